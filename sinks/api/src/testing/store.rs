//! What the in-memory sink holds, and a unit's view over it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Bound,
    sync::Arc,
};

use super::fault::Faults;
use crate::{
    ErrorClass, Extent, Feed, Key, KeyBound, KeyRange, KeyType, KeyValue, LaneId, LaneState, Offset, Partition, ReadId,
    Row, SinkError, SourceName, StatementRow, TableName, TableShape, TopicId, Value,
};

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) tables: BTreeMap<TableName, Table>,
    pub(super) lanes: HashMap<LaneName, LaneRow>,
    /// What feeds tables.
    pub(super) streams: Vec<Feed>,
    pub(super) statements: Vec<RecordedStatement>,
    pub(super) removed: Vec<RemovedRow>,
    pub(super) faults: Faults,
    pub(super) poisoned: HashSet<(TableName, Key)>,
    pub(super) down: bool,
    /// Microseconds since 1970-01-01 UTC.
    pub(super) now: i64,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) shape: Arc<TableShape>,
    /// One a column; null where there is none.
    pub(super) defaults: Vec<Value>,
    pub(super) rows: BTreeMap<Key, Row>,
}

/// A lane without its topic's incarnation: what a frontier is kept under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LaneName {
    pub(super) name: String,
    pub(super) topic: String,
    pub(super) partition: Partition,
}

impl LaneName {
    pub(super) fn of(lane: &LaneId) -> LaneName {
        LaneName { name: lane.name.clone(), topic: lane.topic.clone(), partition: lane.partition }
    }
}

#[derive(Debug, Default)]
pub(super) struct LaneRow {
    pub(super) epoch: u64,
    pub(super) committed: Option<(TopicId, LaneState)>,
}

/// A copy of a row that a statement removed.
#[derive(Clone, Debug, PartialEq)]
pub struct RemovedRow {
    /// The table.
    pub table: TableName,
    /// The row's key.
    pub key: Key,
    /// The row.
    pub row: Row,
    /// The read that proved the key absent.
    pub read_id: ReadId,
    /// The lane that removed the row.
    pub lane: LaneId,
    /// The statement's place in the lane's partition.
    pub offset: Offset,
    /// When, in microseconds since 1970-01-01 UTC.
    pub at: i64,
    /// Whether an undo has brought the row back.
    pub restored: bool,
}

/// A statement as it was written down.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedStatement {
    /// The lane.
    pub lane: LaneId,
    /// The statement and its verdict.
    pub statement: StatementRow,
    /// The orphans it names.
    pub orphans: crate::KeyList,
    /// When, in microseconds since 1970-01-01 UTC.
    pub at: i64,
}

impl Store {
    /// Fails when the sink is down.
    pub(super) fn reach(&self, doing: &str) -> Result<(), SinkError> {
        if self.down {
            return Err(SinkError::new(ErrorClass::Transient, format!("{doing}: the sink is down")));
        }
        Ok(())
    }

    /// Returns the source tables that a topic's lanes have noted.
    pub(super) fn sources(&self, topic_id: TopicId) -> Vec<(SourceName, TableName)> {
        let own = self.streams.iter().filter(|feed| feed.topic_id == topic_id);
        let mut sources: Vec<_> = own.map(|feed| (feed.source.clone(), feed.table.clone())).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    pub(super) fn table(&self, name: &TableName) -> Result<&Table, SinkError> {
        let missing = || SinkError::new(ErrorClass::Configuration, format!("read {name}: there is no such table"));
        self.tables.get(name).ok_or_else(missing)
    }

    /// Returns the state that the lane's incarnation has committed.
    pub(super) fn state(&self, lane: &LaneId) -> Option<&LaneState> {
        let (topic_id, state) = self.lanes.get(&LaneName::of(lane))?.committed.as_ref()?;
        (*topic_id == lane.topic_id).then_some(state)
    }

    /// Fails when the lane has another owner than the one of `epoch`.
    pub(super) fn fence(&self, lane: &LaneId, epoch: u64) -> Result<(), SinkError> {
        if self.lanes.get(&LaneName::of(lane)).is_some_and(|row| row.epoch == epoch) {
            return Ok(());
        }
        Err(SinkError::new(ErrorClass::Fenced, format!("lane {lane}: another worker has taken it over")))
    }

    /// Takes a lane over; returns the new owner's epoch.
    pub(super) fn take_over(&mut self, lane: &LaneId) -> u64 {
        let row = self.lanes.entry(LaneName::of(lane)).or_default();
        row.epoch += 1;
        row.epoch
    }
}

/// What a unit has changed in one table.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    pub(super) truncated: bool,
    pub(super) rows: BTreeMap<Key, Option<Row>>,
}

impl Overlay {
    /// Returns the row of `key` as the unit sees it.
    pub(super) fn row<'v>(&'v self, table: &'v Table, key: &Key) -> Option<&'v Row> {
        match self.rows.get(key) {
            Some(own) => own.as_ref(),
            None if self.truncated => None,
            None => table.rows.get(key),
        }
    }

    /// Returns the keys of an extent that have a row, as the unit sees it, ascending.
    pub(super) fn keys<'v>(&'v self, table: &'v Table, extent: &Extent) -> Vec<&'v Key> {
        match extent {
            Extent::Range(range) => {
                let own = in_range(&self.rows, range).filter(|(_, row)| row.is_some()).map(|(key, _)| key);
                let kept = in_range(&table.rows, range).map(|(key, _)| key);
                let kept = kept.filter(|key| !self.truncated && !self.rows.contains_key(*key));
                let mut keys: Vec<&Key> = own.chain(kept).collect();
                keys.sort_unstable();
                keys
            }
            Extent::Keys(asked) => asked
                .iter()
                .filter_map(|key| {
                    let key = Key::from_encoded(key);
                    match self.rows.get_key_value(&key) {
                        Some((key, row)) => row.is_some().then_some(key),
                        None if self.truncated => None,
                        None => table.rows.get_key_value(&key).map(|(key, _)| key),
                    }
                })
                .collect(),
        }
    }
}

fn in_range<'r, V>(rows: &'r BTreeMap<Key, V>, range: &KeyRange) -> impl Iterator<Item = (&'r Key, &'r V)> {
    let lower = match &range.lower {
        KeyBound::Open => Bound::Unbounded,
        KeyBound::Inclusive(key) => Bound::Included(key),
        KeyBound::Exclusive(key) => Bound::Excluded(key),
    };
    rows.range::<Key, _>((lower, Bound::Unbounded)).take_while(|(key, _)| range.contains(key.as_bytes()))
}

/// Returns the key of a full row; `None` when a key column holds no value of its key type.
pub fn row_key(shape: &TableShape, row: &[Value]) -> Option<Key> {
    let types = shape.key_types().ok()?;
    let columns = shape.key.iter().zip(&types);
    let values: Option<Vec<KeyValue>> =
        columns.map(|(column, key_type)| key_value(*key_type, row.get(column.column)?)).collect();
    Key::encode(&types, &values?).ok()
}

fn key_value(key_type: KeyType, value: &Value) -> Option<KeyValue> {
    Some(match (key_type, value) {
        (KeyType::Bool, Value::Bool(value)) => KeyValue::Bool(*value),
        (KeyType::Int, Value::Int(value)) => KeyValue::Int(*value),
        (KeyType::UInt, Value::Int(value)) => KeyValue::UInt(u64::try_from(*value).ok()?),
        (KeyType::Decimal, Value::Decimal(value)) => KeyValue::Decimal(value.clone()),
        (KeyType::Text, Value::Text(value)) => KeyValue::Text(value.clone()),
        (KeyType::Bytes, Value::Bytes(value)) => KeyValue::Bytes(value.clone()),
        (KeyType::Uuid, Value::Uuid(value)) => KeyValue::Uuid(*value),
        (KeyType::Date, Value::Date(value)) => KeyValue::Date(*value),
        (KeyType::Time, Value::Time(value)) => KeyValue::Time(*value),
        (KeyType::Timestamp, Value::Timestamp(value)) => KeyValue::Timestamp(*value),
        (KeyType::TimestampTz, Value::TimestampTz(value)) => KeyValue::TimestampTz(*value),
        _ => return None,
    })
}
