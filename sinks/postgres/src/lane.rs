//! The connection of one lane, and its units of work.
//!
//! A unit is one transaction. It ends in one of three ways: committed; rolled back at once after an error, so that no
//! lock outlives it; or, when it is dropped in the middle (a future that was cancelled), by closing the connection,
//! which makes the server roll back. The next unit opens a new one.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use sink_api::{
    Batch, Difference, DifferenceQuery, ErrorClass, KeyList, LaneId, LaneState, Offset, ReadId, Removal, RemovalBudget,
    SinkError, SinkLane, SourceName, StatementRow, TableName, TableShape, Unit, Written,
};
use sqlx::{AssertSqlSafe, SqlSafeStr, postgres::PgArguments};

use crate::{
    Shared,
    catalog::{self, fingerprint},
    connect::Session,
    difference,
    errors::{self, classify},
    frontier, removal, statement, stream,
    tables::{LanePlans, outdated},
    write,
};

/// The write side of one lane.
pub struct PostgresLane {
    shared: Arc<Shared>,
    id: LaneId,
    epoch: i64,
    /// `None` after the connection was lost, until the next use.
    session: Option<Session>,
    plans: LanePlans,
}

impl fmt::Debug for PostgresLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresLane").field("id", &self.id).field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

impl PostgresLane {
    pub(crate) fn new(shared: Arc<Shared>, id: LaneId, epoch: i64, session: Session) -> PostgresLane {
        PostgresLane { shared, id, epoch, session: Some(session), plans: LanePlans::default() }
    }

    /// Begins a transaction, on a new connection when the old one is lost or turns out to be.
    async fn begin_transaction(&mut self) -> Result<(), SinkError> {
        if let Some(mut session) = self.session.take() {
            match session.begin().await {
                Ok(()) => {
                    self.session = Some(session);
                    return Ok(());
                }
                Err(error) if classify("begin", &error).class != ErrorClass::Transient => {
                    return Err(classify("begin a unit of work", &error));
                }
                Err(error) => {
                    let error = classify("begin a unit of work", &error);
                    tracing::warn!(lane = %self.id, %error, "connection to the sink lost, connecting again");
                }
            }
        }
        let mut session = self.shared.connector.open().await?;
        session.begin().await.map_err(|error| classify("begin a unit of work", &error))?;
        self.session = Some(session);
        Ok(())
    }

    /// Rolls back; a connection that cannot is dropped.
    async fn roll_back(&mut self) {
        if let Some(mut session) = self.session.take()
            && session.rollback().await.is_ok()
        {
            self.session = Some(session);
        }
    }

    /// Whether the catalog still has the table as a shape says; asked when a value did not fit.
    async fn is_current(&mut self, shape: &TableShape) -> bool {
        if self.begin_transaction().await.is_err() {
            return true;
        }
        let now = match connected(&mut self.session) {
            Ok(session) => catalog::describe(session, &shape.name).await,
            Err(error) => Err(error),
        };
        self.roll_back().await;
        now.is_ok_and(|table| *table.shape == *shape)
    }
}

fn connected(session: &mut Option<Session>) -> Result<&mut Session, SinkError> {
    session
        .as_mut()
        .ok_or_else(|| SinkError::new(ErrorClass::Transient, "the unit of work is over: its connection is lost"))
}

impl SinkLane for PostgresLane {
    type Unit<'a> = PostgresUnit<'a>;

    async fn begin(&mut self, expected: Option<&LaneState>) -> Result<PostgresUnit<'_>, SinkError> {
        self.begin_transaction().await?;
        let expected = expected.map(|state| state.next_offset);
        // From here on a drop closes the connection.
        let mut unit = PostgresUnit::new(self, expected);
        let Parts { session, id, epoch, .. } = unit.parts()?;
        let result = match frontier::look(session, id, epoch).await {
            Ok(row) => frontier::check_expected(&row, id, expected),
            Err(error) => Err(error),
        };
        unit.settle(result).await?;
        Ok(unit)
    }

    async fn committed(&mut self) -> Result<Option<LaneState>, SinkError> {
        self.begin_transaction().await?;
        let mut unit = PostgresUnit::new(self, None);
        // A commit in doubt holds the row until it is in or out.
        let Parts { session, id, epoch, .. } = unit.parts()?;
        let result = frontier::lock(session, id, epoch).await;
        let row = unit.settle(result).await?;
        unit.live = false;
        unit.lane.roll_back().await;
        Ok(row.state_of(unit.lane.id.topic_id).cloned())
    }
}

/// One unit of work.
pub struct PostgresUnit<'a> {
    lane: &'a mut PostgresLane,
    /// The offset that was committed when it began.
    expected: Option<Offset>,
    live: bool,
    /// Tables that were locked and found to be as they were described.
    checked: HashSet<TableName>,
    /// By table and source, what the caps need, with what was removed since.
    budgets: HashMap<(TableName, SourceName), RemovalBudget>,
    /// What was removed from each table, to be counted before the commit.
    removed: HashMap<TableName, u64>,
}

impl fmt::Debug for PostgresUnit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresUnit").field("lane", &self.lane.id).field("live", &self.live).finish()
    }
}

impl Drop for PostgresUnit<'_> {
    fn drop(&mut self) {
        if self.live {
            self.lane.session = None;
        }
    }
}

impl<'a> PostgresUnit<'a> {
    fn new(lane: &'a mut PostgresLane, expected: Option<Offset>) -> PostgresUnit<'a> {
        PostgresUnit {
            lane,
            expected,
            live: true,
            checked: HashSet::new(),
            budgets: HashMap::new(),
            removed: HashMap::new(),
        }
    }

    /// Passes a result on; an error ends the unit.
    async fn settle<T>(&mut self, result: Result<T, SinkError>) -> Result<T, SinkError> {
        if result.is_err() && self.live {
            self.lane.roll_back().await;
            self.live = false;
        }
        result
    }

    /// Makes sure that a table is as `shape` has it, until the unit ends; once a unit.
    async fn check(&mut self, shape: &Arc<TableShape>) -> Result<(), SinkError> {
        if self.checked.contains(&shape.name) {
            return Ok(());
        }
        let Parts { shared, session, plans, .. } = self.parts()?;
        let result = async {
            fingerprint::lock(session, &shape.name).await?;
            stream::keep(session, &shared.streams.of(&shape.name)).await?;
            let known = plans.of(&shared.tables, session, shape).await?.table.fingerprint.clone();
            if fingerprint::read(session, &shape.name).await? == known {
                return Ok(());
            }
            let now = catalog::describe(session, &shape.name).await?;
            plans.forget(&shape.name);
            let same = *now.shape == **shape;
            shared.tables.remember(now);
            if same { Ok(()) } else { Err(outdated(&shape.name)) }
        };
        let result = result.await;
        self.settle(result).await?;
        self.checked.insert(shape.name.clone());
        Ok(())
    }

    /// Returns the parts that a step works with.
    fn parts(&mut self) -> Result<Parts<'_>, SinkError> {
        if !self.live {
            return Err(SinkError::new(ErrorClass::Transient, "the unit of work is over: an earlier step failed"));
        }
        let PostgresLane { shared, id, session, plans, epoch } = &mut *self.lane;
        Ok(Parts { shared, id, epoch: *epoch, session: connected(session)?, plans })
    }
}

/// What a step of a unit works with.
struct Parts<'p> {
    shared: &'p Shared,
    id: &'p LaneId,
    epoch: i64,
    session: &'p mut Session,
    plans: &'p mut LanePlans,
}

impl Unit for PostgresUnit<'_> {
    async fn write(&mut self, batch: &Batch) -> Result<Written, SinkError> {
        for changes in &batch.tables {
            self.check(&changes.table).await?;
        }
        let Parts { shared, session, plans, .. } = self.parts()?;
        let result = write::batch(session, &shared.tables, plans, batch).await;
        let mut result = self.settle(result).await;
        // What we refused ourselves we refused by the shape; a table that was altered since deserves another look.
        if let Err(error) = &result
            && error.class == ErrorClass::Data
            && error.code.is_none()
        {
            for changes in &batch.tables {
                if !self.lane.is_current(&changes.table).await {
                    result = Err(outdated(&changes.table.name));
                    break;
                }
            }
        }
        result
    }

    async fn truncate(&mut self, table: &TableShape) -> Result<(), SinkError> {
        // What a share of the table's rows was is not what it is now.
        self.budgets.clear();
        let Parts { session, .. } = self.parts()?;
        let name = crate::identifier::quote_table(&table.name);
        let sql = AssertSqlSafe(format!("TRUNCATE TABLE {name}")).into_sql_str();
        let done = session.execute(&sql, PgArguments::default()).await;
        let result = done.map(drop).map_err(|error| {
            let told = classify(&format!("truncate {}", table.name), &error);
            match errors::code(&error) {
                Some("42501") => told.hint(format!("GRANT TRUNCATE ON {name} to the sink's role")),
                Some("0A000") => told.hint("drop the foreign keys that refer to the table, or empty it by hand"),
                _ => told,
            }
        });
        self.settle(result).await
    }

    async fn verdict(&mut self, read_id: &ReadId) -> Result<Option<String>, SinkError> {
        let Parts { session, id, .. } = self.parts()?;
        let result = statement::verdict(session, id, read_id).await;
        self.settle(result).await
    }

    async fn difference(&mut self, query: &DifferenceQuery<'_>) -> Result<Difference, SinkError> {
        self.check(query.table).await?;
        let Parts { shared, session, plans, .. } = self.parts()?;
        let result = match plans.of(&shared.tables, session, query.table).await {
            Ok(plans) => difference::find(session, &plans.table, query).await,
            Err(error) => Err(error),
        };
        self.settle(result).await
    }

    async fn removal_budget(&mut self, table: &TableShape, source: &SourceName) -> Result<RemovalBudget, SinkError> {
        let of = (table.name.clone(), source.clone());
        if let Some(budget) = self.budgets.get(&of) {
            return Ok(budget.clone());
        }
        let first = self.budgets.is_empty();
        let removed = self.removed.get(&table.name).copied().unwrap_or_default();
        let Parts { shared, session, id, .. } = self.parts()?;
        let result = async {
            if first {
                stream::hold(session).await?;
            }
            let known = match shared.tables.known(&table.name) {
                Some(known) => known,
                None => catalog::describe(session, &table.name).await?,
            };
            removal::budget(session, &known, source, id).await
        };
        let result = result.await;
        let mut budget = self.settle(result).await?;
        budget.removed_last_day += removed;
        self.budgets.insert(of, budget.clone());
        Ok(budget)
    }

    async fn remove(&mut self, removal: &Removal<'_>) -> Result<u64, SinkError> {
        self.check(removal.table).await?;
        let Parts { shared, session, plans, id, .. } = self.parts()?;
        let result = match plans.of(&shared.tables, session, removal.table).await {
            Ok(plans) => removal::remove(session, &plans.table, id, removal).await,
            Err(error) => Err(error),
        };
        let removed = self.settle(result).await?;
        let name = &removal.table.name;
        *self.removed.entry(name.clone()).or_default() += removed;
        for (_, budget) in self.budgets.iter_mut().filter(|((table, _), _)| table == name) {
            budget.removed_last_day += removed;
            budget.rows = budget.rows.saturating_sub(removed);
        }
        Ok(removed)
    }

    async fn record(&mut self, statement: &StatementRow, orphans: &KeyList) -> Result<(), SinkError> {
        let Parts { shared, session, id, .. } = self.parts()?;
        let table = statement.table.as_ref().and_then(|name| shared.tables.known(name));
        let result = statement::record(session, id, table.as_deref(), statement, orphans).await;
        self.settle(result).await
    }

    async fn commit(mut self, state: &LaneState) -> Result<(), SinkError> {
        let expected = self.expected;
        let counts = std::mem::take(&mut self.removed);
        let Parts { session, id, epoch, .. } = self.parts()?;
        let result = async {
            for (table, removed) in counts.iter().filter(|(_, removed)| **removed > 0) {
                removal::count(session, table, id, *removed).await?;
            }
            frontier::advance(session, id, epoch, expected, state).await
        };
        let result = result.await;
        self.settle(result).await?;
        let Parts { session, id, .. } = self.parts()?;
        let doing = format!("commit lane {id}");
        let result = session.commit().await.map_err(|error| classify(&doing, &error));
        if result.is_ok() {
            self.live = false;
        }
        self.settle(result).await
    }
}
