//! `sink-repair`'s PostgreSQL sink.
//!
//! One transaction holds a batch, the rows that a statement removed with their copies, the statement's verdict and the
//! lane's new frontier, so everything happens exactly once: after a crash or a lost connection the frontier row says
//! what is in. The sink's own tables are in schema `sink_repair`.
//!
//! ```text
//! connect    one bounded connection             schema     the sink's own tables
//! catalog    tables as the server has them      binding    values to parameters
//! frontier   claim, fence, advance              lane       units of work
//! write      a batch: deletes, then upserts     unique     rows that exchange unique values
//! difference keys listed and merged             removal    orphans removed, copies kept
//! statement  verdicts                           undo       copies brought back
//! ```
//!
//! Promises and limits, each with a test of its name in `tests/it`:
//! - A value is stored exactly or refused; nothing is rounded, cut or stripped in silence.
//! - Unique values that rows of one batch exchange work, unless deletes of the table set something off (cascades,
//!   triggers); then the constraint must be deferrable.
//! - Row triggers and foreign keys of the sink act on what is written as on any other write.

mod binding;
mod catalog;
mod config;
mod connect;
mod difference;
mod errors;
mod frontier;
mod held;
mod identifier;
mod keyed;
mod lane;
mod overview;
mod removal;
mod schema;
mod statement;
mod stream;
mod table;
mod tables;
mod undo;
mod unique;
mod upsert;
mod write;

use std::{sync::Arc, time::Duration};

use sink_api::{
    Claimed, HeldStatement, LaneId, ReadId, Sink, SinkError, SourceName, TableName, TableShape, UndoSelector, Undone,
};
use tokio::sync::{Mutex, MutexGuard};

pub use config::PostgresConfig;
pub use errors::class_of;
pub use identifier::quote_identifier;
pub use lane::{PostgresLane, PostgresUnit};
pub use overview::{FrontierView, Overview, RemovedView, StatementView, StreamView, VerdictCount};
pub use schema::schema_sql;

use connect::{Connector, Session};
use stream::Streams;
use tables::Tables;

/// A PostgreSQL database as a sink.
#[derive(Clone)]
pub struct PostgresSink {
    shared: Arc<Shared>,
}

/// What all lanes of a sink share.
pub(crate) struct Shared {
    pub(crate) connector: Connector,
    pub(crate) tables: Tables,
    pub(crate) streams: Streams,
    owner: String,
    /// The connection for everything that no lane does.
    control: Mutex<Option<Session>>,
}

impl std::fmt::Debug for PostgresSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresSink").field("place", &self.shared.connector.place()).finish_non_exhaustive()
    }
}

impl PostgresSink {
    /// Connects, and makes schema `sink_repair` where it is not there.
    ///
    /// # Errors
    /// `Transient` when the server is away; `Configuration` for a URL that is not valid, a login that is refused, or a
    /// role that may not create the schema: the hint is the SQL to run.
    pub async fn connect(config: &PostgresConfig) -> Result<PostgresSink, SinkError> {
        let connector = Connector::new(config)?;
        let mut session = connector.open().await?;
        schema::prepare(&mut session).await?;
        Ok(PostgresSink {
            shared: Arc::new(Shared {
                connector,
                tables: Tables::default(),
                streams: Streams::default(),
                owner: config.owner.clone(),
                control: Mutex::new(Some(session)),
            }),
        })
    }

    /// Returns what the sink holds of the worker called `name`.
    ///
    /// # Errors
    /// `Transient` when the sink is away.
    pub async fn overview(&self, name: &str) -> Result<Overview, SinkError> {
        let mut control = self.control().await?;
        let result = overview::read(control.session(), name).await;
        control.end(result).await
    }

    /// Returns the statement of a read, if it has a verdict here.
    ///
    /// # Errors
    /// `Transient` when the sink is away.
    pub async fn statement(&self, read_id: &ReadId) -> Result<Option<StatementView>, SinkError> {
        let mut control = self.control().await?;
        let result = overview::one_statement(control.session(), &read_id.0).await;
        control.end(result).await
    }

    /// Whether the sink has a table, or a copy of a row that was removed from it.
    ///
    /// # Errors
    /// `Transient` when the sink is away.
    pub async fn knows_table(&self, table: &TableName) -> Result<bool, SinkError> {
        let mut control = self.control().await?;
        let result = undo::knows(control.session(), table).await;
        control.end(result).await
    }

    /// Gives up the claims on a table, so that another stream may feed it. Returns the streams that had one.
    ///
    /// # Errors
    /// `Transient` when the sink is away.
    pub async fn release_table(&self, table: &TableName) -> Result<Vec<String>, SinkError> {
        let mut control = self.control().await?;
        let result = stream::release(control.session(), table).await;
        control.end(result).await
    }

    /// Takes the control connection out, or a new one when it is lost. Not put back, it is closed.
    async fn control(&self) -> Result<Control<'_>, SinkError> {
        let mut place = self.shared.control.lock().await;
        if let Some(mut session) = place.take()
            && session.is_alive().await
        {
            return Ok(Control { place, session });
        }
        let session = self.shared.connector.open().await?;
        Ok(Control { place, session })
    }
}

/// The control connection while it is in use.
struct Control<'a> {
    place: MutexGuard<'a, Option<Session>>,
    session: Session,
}

impl Control<'_> {
    fn session(&mut self) -> &mut Session {
        &mut self.session
    }

    /// Puts the connection back, unless it is lost.
    async fn end<T>(mut self, result: Result<T, SinkError>) -> Result<T, SinkError> {
        if result.is_ok() || self.session.rollback().await.is_ok() {
            *self.place = Some(self.session);
        }
        result
    }
}

impl Sink for PostgresSink {
    type Lane = PostgresLane;

    async fn describe(&self, table: &TableName) -> Result<Arc<TableShape>, SinkError> {
        let mut control = self.control().await?;
        let result = describe(control.session(), table).await;
        let table = control.end(result).await?;
        self.shared.tables.remember(Arc::clone(&table));
        Ok(Arc::clone(&table.shape))
    }

    async fn claim(&self, lane: &LaneId) -> Result<Claimed<PostgresLane>, SinkError> {
        let mut session = self.shared.connector.open().await?;
        let row = frontier::claim(&mut session, lane, &self.shared.owner).await?;
        let sources = stream::sources(&mut session, lane).await?;
        Ok(Claimed {
            state: row.state_of(lane.topic_id).cloned(),
            sources,
            other_incarnation: row.other_incarnation(lane),
            lane: PostgresLane::new(Arc::clone(&self.shared), lane.clone(), row.epoch, session),
        })
    }

    async fn claim_table(
        &self,
        table: &TableName,
        source: &SourceName,
        lane: &LaneId,
    ) -> Result<Option<String>, SinkError> {
        let mut control = self.control().await?;
        let result = stream::claim(control.session(), table, source, lane).await;
        let holder = control.end(result).await?;
        self.shared.streams.remember(table, source, lane);
        Ok(holder)
    }

    async fn held(&self, lane: &LaneId, most: usize) -> Result<Vec<HeldStatement>, SinkError> {
        let mut control = self.control().await?;
        let result = held::list(control.session(), lane, most).await;
        control.end(result).await
    }

    async fn undo(&self, selector: &UndoSelector) -> Result<Vec<Undone>, SinkError> {
        let mut control = self.control().await?;
        let result = undo::undo(control.session(), selector).await;
        control.end(result).await
    }

    async fn expire_removed(&self, name: &str, keep: Duration) -> Result<u64, SinkError> {
        let mut control = self.control().await?;
        let result = undo::expire(control.session(), name, keep).await;
        control.end(result).await
    }
}

async fn describe(session: &mut Session, table: &TableName) -> Result<Arc<table::Table>, SinkError> {
    let doing = format!("describe {table}");
    session.begin().await.map_err(|error| errors::classify(&doing, &error))?;
    let described = catalog::describe(session, table).await?;
    session.commit().await.map_err(|error| errors::classify(&doing, &error))?;
    Ok(described)
}
