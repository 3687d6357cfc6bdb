//! What the assertions share: a lane over a fixture, and short words for rows, keys and batches.

use std::sync::Arc;

use super::{Fixture, ITEMS, LINES};
use crate::{
    Batch, Difference, DifferenceQuery, Extent, Key, KeyBound, KeyList, KeyRange, KeySet, KeyType, KeyValue, LaneId,
    LaneState, MergedChange, Offset, Partition, ReadId, Removal, Row, Sink, SinkError, SinkLane, StatementRow,
    TableBatch, TableName, TableShape, TopicId, Unit, Value, Written,
};

type LaneOf<F> = <<F as Fixture>::Sink as Sink>::Lane;

/// One claimed lane, its committed state and the two tables.
pub(super) struct Rig<'f, F: Fixture> {
    pub(super) fixture: &'f F,
    pub(super) lane: LaneOf<F>,
    pub(super) state: Option<LaneState>,
    pub(super) items: Arc<TableShape>,
    pub(super) lines: Arc<TableShape>,
}

impl<'f, F: Fixture> Rig<'f, F> {
    /// Claims partition 0.
    pub(super) async fn new(fixture: &'f F) -> Rig<'f, F> {
        let sink = fixture.sink();
        let items = sink.describe(&table(ITEMS)).await.expect("the fixture has made contract.items");
        let lines = sink.describe(&table(LINES)).await.expect("the fixture has made contract.lines");
        let claimed = sink.claim(&lane(0)).await.expect("the sink is there");
        Rig { fixture, lane: claimed.lane, state: claimed.state, items, lines }
    }

    /// Begins a unit on the state committed last.
    pub(super) async fn begin(&mut self) -> <LaneOf<F> as SinkLane>::Unit<'_> {
        self.lane.begin(self.state.as_ref()).await.expect("the lane is this owner's")
    }

    /// Returns the state after the one committed last.
    pub(super) fn next_state(&self) -> LaneState {
        state(self.state.as_ref().map_or(10, |state| state.next_offset.0 + 10))
    }

    /// Writes a batch in a unit of its own.
    pub(super) async fn apply(&mut self, batch: &Batch) -> Written {
        let next = self.next_state();
        let mut unit = self.begin().await;
        let written = unit.write(batch).await.expect("the batch can be written");
        unit.commit(&next).await.expect("the unit can be committed");
        self.state = Some(next);
        written
    }

    /// Writes statements down in a unit of their own, at places of their own.
    pub(super) async fn record(&mut self, statements: &[StatementRow]) {
        let next = self.next_state();
        let first = next.next_offset.0 - 10;
        let mut unit = self.begin().await;
        for (offset, statement) in (first..).zip(statements) {
            let statement = StatementRow { offset: Offset(offset), ..statement.clone() };
            unit.record(&statement, &KeyList::new()).await.expect("a statement can be recorded");
        }
        unit.commit(&next).await.expect("the unit can be committed");
        self.state = Some(next);
    }

    /// Makes items with these ids and the name `n`.
    pub(super) async fn make_items(&mut self, ids: impl IntoIterator<Item = i64>) {
        let changes = ids.into_iter().map(|id| (item_key(id), MergedChange::Upsert(item(id, "n")))).collect();
        let batch = self.item_batch(changes);
        self.apply(&batch).await;
    }

    /// Makes lines with these keys.
    pub(super) async fn make_lines(&mut self, keys: &[(&str, i64)]) {
        let changes = keys.iter().map(|(code, line)| {
            (line_key(code, *line), MergedChange::Upsert([Value::Int(1), Value::Int(*line), text(code)].into()))
        });
        let batch = Batch { tables: vec![batch_of(&self.lines, changes.collect())] };
        self.apply(&batch).await;
    }

    /// Removes items by a statement in a unit of its own.
    pub(super) async fn remove_items(&mut self, read: &str, ids: &[i64]) -> u64 {
        let (items, next, keys, read_id) = (self.items.clone(), self.next_state(), item_keys(ids), read_id(read));
        let mut unit = self.begin().await;
        let removal = Removal { table: &items, keys: &keys, read_id: &read_id, offset: Offset(7) };
        let removed = unit.remove(&removal).await.expect("rows can be removed");
        unit.commit(&next).await.expect("the unit can be committed");
        self.state = Some(next);
        removed
    }

    pub(super) fn item_batch(&self, changes: Vec<(Key, MergedChange)>) -> Batch {
        Batch { tables: vec![batch_of(&self.items, changes)] }
    }

    /// Returns the committed items.
    pub(super) async fn items_now(&self) -> Vec<Row> {
        self.fixture.rows(&table(ITEMS)).await
    }

    /// Returns the ids of the committed items.
    pub(super) async fn ids_now(&self) -> Vec<i64> {
        self.items_now().await.iter().map(|row| id_of(row)).collect()
    }

    /// Returns the committed lines.
    pub(super) async fn lines_now(&self) -> Vec<Row> {
        self.fixture.rows(&table(LINES)).await
    }
}

/// Asks a unit for a difference, naming everything.
pub(super) async fn difference(
    unit: &mut impl Unit,
    table: &Arc<TableShape>,
    extent: &Extent,
    selected: &KeySet,
    spared: &KeyList,
) -> Difference {
    let query = DifferenceQuery { table, extent, selected, spared, name_orphans: 1_000, name_missing: 1_000 };
    unit.difference(&query).await.expect("the difference can be found")
}

/// Takes a unit through a write and a commit, and returns the first error.
pub(super) async fn write_and_commit<L: SinkLane>(
    lane: &mut L,
    expected: Option<&LaneState>,
    batch: &Batch,
    next: &LaneState,
) -> Result<(), SinkError> {
    let mut unit = lane.begin(expected).await?;
    unit.write(batch).await?;
    unit.commit(next).await
}

/// The order of a batch's entries, whatever order the test has them in.
pub(super) fn batch_of(table: &Arc<TableShape>, changes: Vec<(Key, MergedChange)>) -> TableBatch {
    let numbered = changes.into_iter().zip(0..);
    let mut changes: Vec<_> = numbered.map(|((key, change), offset)| (key, Offset(offset), change)).collect();
    changes.sort_by(|a, b| a.0.cmp(&b.0));
    TableBatch { table: table.clone(), changes }
}

pub(super) fn table(name: &str) -> TableName {
    TableName::new("contract", name)
}

pub(super) fn lane(partition: i32) -> LaneId {
    LaneId {
        name: "contract".into(),
        topic: "contract.items".into(),
        topic_id: TopicId([1; 16]),
        partition: Partition(partition),
    }
}

pub(super) fn state(next_offset: i64) -> LaneState {
    LaneState {
        next_offset: Offset(next_offset),
        memory_offset: Offset(next_offset),
        highest_xid: None,
        unknown_past: false,
        partition_count: 2,
    }
}

pub(super) fn read_id(name: &str) -> ReadId {
    ReadId(name.to_owned())
}

pub(super) fn text(value: &str) -> Value {
    Value::Text(value.into())
}

/// A full item.
pub(super) fn item(id: i64, name: &str) -> Row {
    item_of(id, text(name), text("known"), text("body"))
}

pub(super) fn item_of(id: i64, name: Value, state: Value, body: Value) -> Row {
    [Value::Int(id), name, state, body].into()
}

pub(super) fn id_of(row: &[Value]) -> i64 {
    match row[0] {
        Value::Int(id) => id,
        ref other => panic!("the fixture returned {other:?} for a bigint"),
    }
}

pub(super) fn item_key(id: i64) -> Key {
    Key::encode(&[KeyType::Int], &[KeyValue::Int(id)]).expect("an integer is an integer key")
}

pub(super) fn line_key(code: &str, line: i64) -> Key {
    let values = [KeyValue::Text(code.into()), KeyValue::Int(line)];
    Key::encode(&[KeyType::Text, KeyType::Int], &values).expect("the values are of the key's types")
}

pub(super) fn item_keys(ids: &[i64]) -> KeyList {
    ids.iter().map(|id| item_key(*id)).collect::<Vec<_>>().iter().collect()
}

pub(super) fn line_keys(keys: &[(&str, i64)]) -> KeyList {
    keys.iter().map(|(code, line)| line_key(code, *line)).collect::<Vec<_>>().iter().collect()
}

pub(super) fn selected(ids: &[i64]) -> KeySet {
    KeySet::List(item_keys(ids))
}

/// All items.
pub(super) fn everything() -> Extent {
    Extent::Range(KeyRange::ALL)
}

pub(super) fn range(lower: KeyBound, upper: KeyBound) -> Extent {
    Extent::Range(KeyRange { lower, upper })
}
