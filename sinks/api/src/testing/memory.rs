//! A sink in memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    Fault, MemoryLane,
    store::{RecordedStatement, RemovedRow, Store, Table, row_key},
};
use crate::{
    Claimed, Feed, HeldStatement, Key, LaneId, LaneState, Row, Sink, SinkError, SourceName, TableName, TableShape,
    TopicId, UndoSelector, Undone, Value, Verdict,
};

/// A sink in memory: transactional, fenced, and failing on request. Clones share one store.
///
/// Its clock stands still until [`MemorySink::advance`] moves it. Its tables are made by
/// [`MemorySink::create_table`]; `put`, `delete` and `rows` reach them past the contract, as a side writer or a test
/// does.
#[derive(Clone, Debug, Default)]
pub struct MemorySink {
    store: Arc<Mutex<Store>>,
}

impl MemorySink {
    /// Makes a sink without tables.
    pub fn new() -> MemorySink {
        MemorySink::default()
    }

    /// Makes an empty table. `defaults` are the values that columns take when a new row does not name them.
    ///
    /// # Panics
    /// When a default names no column.
    pub fn create_table(&self, shape: TableShape, defaults: &[(&str, Value)]) {
        let mut values = vec![Value::Null; shape.columns.len()];
        for (column, value) in defaults {
            values[shape.column_index(column).expect("a default names a column")] = value.clone();
        }
        let table = Table { shape: Arc::new(shape), defaults: values, rows: BTreeMap::new() };
        self.store().tables.insert(table.shape.name.clone(), table);
    }

    /// Puts a row into a table behind the sink's back.
    ///
    /// # Panics
    /// When there is no such table or the row has no key.
    pub fn put(&self, table: &TableName, row: impl Into<Row>) {
        let (row, mut store) = (row.into(), self.store());
        let table = store.tables.get_mut(table).expect("the test has made the table");
        let key = row_key(&table.shape, &row).expect("the row's key columns hold values of their key types");
        table.rows.insert(key, row);
    }

    /// Deletes a row from a table behind the sink's back. Returns whether it was there.
    pub fn delete(&self, table: &TableName, key: &Key) -> bool {
        self.store().tables.get_mut(table).is_some_and(|table| table.rows.remove(key).is_some())
    }

    /// Returns a table's committed rows in key order.
    pub fn rows(&self, table: &TableName) -> Vec<(Key, Row)> {
        let rows = |table: &Table| table.rows.iter().map(|(key, row)| (key.clone(), row.clone())).collect();
        self.store().tables.get(table).map(rows).unwrap_or_default()
    }

    /// Returns the state that a lane has committed.
    pub fn state(&self, lane: &LaneId) -> Option<LaneState> {
        self.store().state(lane).cloned()
    }

    /// Returns the statements written down, in order.
    pub fn statements(&self) -> Vec<RecordedStatement> {
        self.store().statements.clone()
    }

    /// Returns the copies of removed rows, in the order of their removal.
    pub fn removed(&self) -> Vec<RemovedRow> {
        self.store().removed.clone()
    }

    /// Makes the next operation of the fault's kind fail.
    pub fn inject(&self, fault: Fault) {
        self.inject_after(0, fault);
    }

    /// Makes an operation of the fault's kind fail after `skip` of them went well.
    pub fn inject_after(&self, skip: u32, fault: Fault) {
        self.store().faults.add(skip, fault);
    }

    /// Returns how many injected faults have not struck yet.
    pub fn faults_left(&self) -> usize {
        self.store().faults.count()
    }

    /// Makes every write of a key fail as `Data`, or ends that.
    pub fn poison(&self, table: &TableName, key: &Key, poisoned: bool) {
        let entry = (table.clone(), key.clone());
        if poisoned {
            self.store().poisoned.insert(entry);
        } else {
            self.store().poisoned.remove(&entry);
        }
    }

    /// Takes the sink down (every operation fails as `Transient`) or brings it up again.
    pub fn set_down(&self, down: bool) {
        self.store().down = down;
    }

    /// Takes a lane over, as another worker's claim does.
    pub fn seize(&self, lane: &LaneId) {
        self.store().take_over(lane);
    }

    /// Moves the sink's clock on.
    pub fn advance(&self, by: Duration) {
        self.store().now += micros(by);
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        // A test that panicked with the store in hand has said what is wrong; others go on.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

impl Sink for MemorySink {
    type Lane = MemoryLane;

    async fn describe(&self, table: &TableName) -> Result<Arc<TableShape>, SinkError> {
        let mut store = self.store();
        store.reach("read the catalog")?;
        store.faults.check(Fault::Describe, "read the catalog")?;
        store.table(table).map(|table| table.shape.clone())
    }

    async fn claim(&self, lane: &LaneId) -> Result<Claimed<MemoryLane>, SinkError> {
        let mut store = self.store();
        store.reach("claim a lane")?;
        store.faults.check(Fault::Claim, "claim a lane")?;
        let epoch = store.take_over(lane);
        Ok(Claimed {
            lane: MemoryLane::new(self.clone(), lane.clone(), epoch),
            state: store.state(lane).cloned(),
            sources: store.sources(lane.topic_id),
            other_incarnation: other_incarnation(&store, lane),
        })
    }

    async fn claim_table(
        &self,
        table: &TableName,
        source: &SourceName,
        lane: &LaneId,
    ) -> Result<Option<String>, SinkError> {
        let mut store = self.store();
        store.reach("claim a table")?;
        let feed =
            Feed { table: table.clone(), source: source.clone(), topic_id: lane.topic_id, name: lane.name.clone() };
        if !store.streams.contains(&feed) {
            store.streams.push(feed.clone());
        }
        let first = store.streams.iter().find(|other| other.table == *table);
        Ok(first.filter(|first| !first.may_be(&feed)).map(told))
    }

    async fn held(&self, lane: &LaneId, most: usize) -> Result<Vec<HeldStatement>, SinkError> {
        let store = self.store();
        store.reach("list held statements")?;
        let all: Vec<&RecordedStatement> = store.statements.iter().filter(|recorded| recorded.lane == *lane).collect();
        let waits = |(at, recorded): &(usize, &&RecordedStatement)| {
            matches!(recorded.statement.verdict, Verdict::Held { .. })
                && !all[*at..].iter().any(|later| later.statement.settles(&recorded.statement))
        };
        let held = all
            .iter()
            .enumerate()
            .filter(waits)
            .map(|(_, recorded)| HeldStatement { statement: recorded.statement.clone(), recorded_at: recorded.at });
        let held: Vec<HeldStatement> = held.collect();
        Ok(held[held.len().saturating_sub(most)..].to_vec())
    }

    async fn undo(&self, selector: &UndoSelector) -> Result<Vec<Undone>, SinkError> {
        let mut store = self.store();
        store.reach("undo")?;
        let store = &mut *store;
        let mut done: BTreeMap<TableName, Undone> = BTreeMap::new();
        // The newest copy of a key is the one to bring back.
        for copy in store.removed.iter_mut().rev().filter(|copy| !copy.restored && selects(selector, copy)) {
            let undone = done.entry(copy.table.clone()).or_default();
            undone.table = Some(copy.table.clone());
            match store.tables.get_mut(&copy.table) {
                None => undone.failed.push(format!("{}: there is no such table", copy.table)),
                Some(table) if table.rows.contains_key(&copy.key) => undone.occupied += 1,
                Some(table) => {
                    table.rows.insert(copy.key.clone(), copy.row.clone());
                    copy.restored = true;
                    undone.restored += 1;
                }
            }
        }
        Ok(done.into_values().collect())
    }

    async fn expire_removed(&self, name: &str, keep: Duration) -> Result<u64, SinkError> {
        let mut store = self.store();
        store.reach("forget removed rows")?;
        let (before, oldest) = (store.removed.len(), store.now.saturating_sub(micros(keep)));
        store.removed.retain(|copy| copy.lane.name != name || copy.at >= oldest);
        Ok((before - store.removed.len()) as u64)
    }
}

/// Returns an incarnation, other than the lane's, of the topic's name that some partition has committed; none for a
/// lane that has committed in its own.
fn other_incarnation(store: &Store, lane: &LaneId) -> Option<TopicId> {
    if store.state(lane).is_some() {
        return None;
    }
    let known = store.lanes.iter().filter(|(name, _)| name.name == lane.name && name.topic == lane.topic);
    known.filter_map(|(_, row)| Some(row.committed.as_ref()?.0)).filter(|topic_id| *topic_id != lane.topic_id).min()
}

fn selects(selector: &UndoSelector, copy: &RemovedRow) -> bool {
    match selector {
        UndoSelector::Read(read_id) => copy.read_id == *read_id,
        UndoSelector::Table { table, since } => copy.table == *table && copy.at >= *since,
    }
}

/// Names a stream.
pub(super) fn told(feed: &Feed) -> String {
    format!("{} of topic id {}, applied by {}", feed.source, feed.topic_id, feed.name)
}
