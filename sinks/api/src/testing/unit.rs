//! A unit of work of the in-memory sink: an overlay over the store until it commits.

use std::collections::BTreeMap;

use super::{
    Fault, MemoryLane,
    fault::injected,
    memory::told,
    store::{LaneName, Overlay, RecordedStatement, RemovedRow, Store, Table, row_key},
};
use crate::{
    Batch, Difference, DifferenceQuery, ErrorClass, Feed, Feeding, Key, KeyList, LaneId, LaneState, Merge,
    MergedChange, ReadId, Removal, RemovalBudget, Row, SinkError, SourceName, StatementRow, TableBatch, TableName,
    TableShape, Unit, Value, Written,
};

/// Small, so that every test of a difference crosses pages.
const LISTING_PAGE: usize = 100;

const DAY_MICROS: i64 = 24 * 3_600 * 1_000_000;

/// A unit of work of a [`MemorySink`](super::MemorySink).
#[derive(Debug)]
pub struct MemoryUnit<'a> {
    lane: &'a mut MemoryLane,
    expected: Option<LaneState>,
    tables: BTreeMap<TableName, Overlay>,
    removed: Vec<RemovedRow>,
    statements: Vec<RecordedStatement>,
    dead: bool,
}

impl<'a> MemoryUnit<'a> {
    pub(super) fn new(lane: &'a mut MemoryLane, expected: Option<LaneState>) -> MemoryUnit<'a> {
        let (tables, removed, statements) = (BTreeMap::new(), Vec::new(), Vec::new());
        MemoryUnit { lane, expected, tables, removed, statements, dead: false }
    }

    /// Does one operation on the store, unless the unit is dead; an error kills it.
    fn act<T>(
        &mut self,
        doing: &str,
        act: impl FnOnce(&mut MemoryUnit<'_>, &mut Store) -> Result<T, SinkError>,
    ) -> Result<T, SinkError> {
        if self.dead {
            return Err(SinkError::new(ErrorClass::Transient, format!("{doing}: the unit is dead since an error")));
        }
        let sink = self.lane.sink.clone();
        let mut store = sink.store();
        let done = store.reach(doing).and_then(|()| act(self, &mut store));
        self.dead = done.is_err();
        done
    }
}

impl Unit for MemoryUnit<'_> {
    async fn write(&mut self, batch: &Batch) -> Result<Written, SinkError> {
        self.act("write", |unit, store| {
            if let Some(class) =
                store.faults.take(|fault| if let Fault::Write(class) = fault { Some(class) } else { None })
            {
                return Err(injected(class, "write"));
            }
            let mut written = Written::default();
            for changes in &batch.tables {
                let overlay = unit.tables.entry(changes.table.name.clone()).or_default();
                write_table(store, overlay, changes, &mut written)?;
            }
            Ok(written)
        })
    }

    async fn truncate(&mut self, table: &TableShape) -> Result<(), SinkError> {
        self.act("truncate", |unit, store| {
            store.table(&table.name)?;
            unit.tables.insert(table.name.clone(), Overlay { truncated: true, rows: BTreeMap::new() });
            Ok(())
        })
    }

    async fn verdict(&mut self, read_id: &ReadId) -> Result<Option<String>, SinkError> {
        self.act("read a verdict", |unit, store| Ok(unit.find_verdict(store, read_id)))
    }

    async fn difference(&mut self, query: &DifferenceQuery<'_>) -> Result<Difference, SinkError> {
        self.act("list keys", |unit, store| {
            store.faults.check(Fault::Difference, "list keys")?;
            let overlay = unit.tables.entry(query.table.name.clone()).or_default();
            let mut merge = Merge::of(query);
            for page in overlay.keys(store.table(&query.table.name)?, query.extent).chunks(LISTING_PAGE) {
                let page = merge.page(page.iter().map(|key| key.as_bytes()));
                page.map_err(|error| SinkError::new(ErrorClass::Configuration, format!("list keys: {error}")))?;
            }
            Ok(merge.finish())
        })
    }

    async fn removal_budget(&mut self, table: &TableShape, source: &SourceName) -> Result<RemovalBudget, SinkError> {
        self.act("count removed rows", |unit, store| {
            let overlay = unit.tables.entry(table.name.clone()).or_default();
            let rows = overlay.keys(store.table(&table.name)?, &crate::Extent::Range(crate::KeyRange::ALL)).len();
            let since = store.now - DAY_MICROS;
            let removed = store.removed.iter().chain(&unit.removed);
            let removed = removed.filter(|copy| copy.table == table.name && copy.at > since).count();
            let LaneId { topic_id, name, .. } = unit.lane.id.clone();
            let own = Feed { table: table.name.clone(), source: source.clone(), topic_id, name };
            let feeds = store.streams.iter().filter(|feed| feed.table == table.name);
            let Feeding { fed, alone } = own.feeds(feeds.clone());
            let streams = if alone { Vec::new() } else { feeds.map(told).collect() };
            Ok(RemovalBudget { removed_last_day: removed as u64, rows: rows as u64, streams, fed })
        })
    }

    async fn remove(&mut self, removal: &Removal<'_>) -> Result<u64, SinkError> {
        self.act("remove", |unit, store| {
            store.faults.check(Fault::Remove, "remove")?;
            store.faults.check(Fault::RemoveTimeout, "remove").map_err(|error| error.code("57014"))?;
            let table = store.table(&removal.table.name)?;
            let overlay = unit.tables.entry(removal.table.name.clone()).or_default();
            let mut count = 0;
            for key in removal.keys.iter().map(Key::from_encoded) {
                let Some(row) = overlay.row(table, &key).cloned() else { continue };
                overlay.rows.insert(key.clone(), None);
                count += 1;
                unit.removed.push(RemovedRow {
                    table: removal.table.name.clone(),
                    key,
                    row,
                    read_id: removal.read_id.clone(),
                    lane: unit.lane.id.clone(),
                    offset: removal.offset,
                    at: store.now,
                    restored: false,
                });
            }
            Ok(count)
        })
    }

    async fn record(&mut self, statement: &StatementRow, orphans: &KeyList) -> Result<(), SinkError> {
        self.act("record a statement", |unit, store| {
            if unit.find_verdict(store, &statement.read_id).is_none() {
                unit.statements.push(RecordedStatement {
                    lane: unit.lane.id.clone(),
                    statement: statement.clone(),
                    orphans: orphans.clone(),
                    at: store.now,
                });
            }
            Ok(())
        })
    }

    async fn commit(mut self, state: &LaneState) -> Result<(), SinkError> {
        self.act("commit", |unit, store| unit.commit_to(store, state))
    }
}

impl MemoryUnit<'_> {
    fn find_verdict(&self, store: &Store, read_id: &ReadId) -> Option<String> {
        let mut known = store.statements.iter().chain(&self.statements);
        let found = known.find(|known| known.lane == self.lane.id && known.statement.read_id == *read_id);
        found.map(|known| known.statement.verdict.as_str().to_owned())
    }

    fn commit_to(&mut self, store: &mut Store, state: &LaneState) -> Result<(), SinkError> {
        let id = &self.lane.id;
        if store.faults.take(|fault| (fault == Fault::LaneLost).then_some(())).is_some() {
            store.take_over(id);
        }
        if let Some(class) =
            store.faults.take(|fault| if let Fault::Commit(class) = fault { Some(class) } else { None })
        {
            return Err(injected(class, "commit"));
        }
        store.fence(id, self.lane.epoch)?;
        if store.state(id) != self.expected.as_ref() {
            let message = format!("lane {id}: the frontier is not the one that the unit began from");
            return Err(SinkError::new(ErrorClass::Fenced, message));
        }

        for (name, overlay) in std::mem::take(&mut self.tables) {
            let Some(table) = store.tables.get_mut(&name) else { continue };
            if overlay.truncated {
                table.rows.clear();
            }
            for (key, row) in overlay.rows {
                match row {
                    Some(row) => table.rows.insert(key, row),
                    None => table.rows.remove(&key),
                };
            }
        }
        store.removed.append(&mut self.removed);
        store.statements.append(&mut self.statements);
        let row = store.lanes.entry(LaneName::of(id)).or_default();
        row.committed = Some((id.topic_id, state.clone()));
        store.faults.check(Fault::CommitReply, "commit")
    }
}

fn write_table(
    store: &Store,
    overlay: &mut Overlay,
    changes: &TableBatch,
    written: &mut Written,
) -> Result<(), SinkError> {
    let name = &changes.table.name;
    let table = store.table(name)?;
    assert!(changes.changes.is_sorted_by(|a, b| a.0 < b.0), "a batch of {name} has one entry a key, ascending");
    for (key, _, change) in &changes.changes {
        if store.poisoned.contains(&(name.clone(), key.clone())) {
            return Err(SinkError::new(ErrorClass::Data, format!("write {name}: a value does not fit")).code("poison"));
        }
        let old = overlay.row(table, key);
        let new = match change {
            MergedChange::Delete => {
                written.deleted += u64::from(old.is_some());
                None
            }
            MergedChange::Upsert(row) => {
                let new = full_row(table, key, row, old)?;
                if new.is_none() {
                    written.missing.push((changes.table.clone(), key.clone()));
                    continue;
                }
                new
            }
            MergedChange::Replace(row) => {
                let new = full_row(table, key, row, None)?;
                if new.is_none() {
                    written.missing.push((changes.table.clone(), key.clone()));
                }
                new
            }
        };
        written.upserted += u64::from(new.is_some());
        overlay.rows.insert(key.clone(), new);
    }
    Ok(())
}

/// Returns the row to store; `None` when it needs an old value that is not there.
fn full_row(table: &Table, key: &Key, row: &Row, old: Option<&Row>) -> Result<Option<Row>, SinkError> {
    let name = &table.shape.name;
    assert_eq!(row.len(), table.shape.columns.len(), "a row of {name} has one value a column");
    if let Some(own) = row_key(&table.shape, row) {
        assert_eq!(own, *key, "a row of {name} stands under its own key");
    }
    let mut full = Vec::with_capacity(row.len());
    for (index, value) in row.iter().enumerate() {
        full.push(match (value, old) {
            (Value::Absent | Value::Unchanged, Some(old)) => old[index].clone(),
            (Value::Unchanged, None) => return Ok(None),
            (Value::Absent, None) => table.defaults[index].clone(),
            (value, _) => value.clone(),
        });
        let column = &table.shape.columns[index];
        if full[index] == Value::Null && !column.nullable && !column.generated {
            let message = format!("write {name}: null in column \"{}\"", column.name);
            return Err(SinkError::new(ErrorClass::Data, message));
        }
    }
    Ok(Some(full.into()))
}
