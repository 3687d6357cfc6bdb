//! From records of the model's topic to what decoding hands to the sequencer.

use std::sync::Arc;

use sink_api::{
    Column, ColumnType, Key, KeyBound, KeyColumn, KeyList, KeyRange, KeySet, KeyType, KeyValue, ReadId, RowOp,
    StatementKind, TableName, TableShape, Value,
};
use sink_repair::decode::{BadRecord, Claim, Event, EventXid, Part, ReadName, RowEvent, Snapshot, SourceTable, Stage};

use super::{
    connector::{Record, Shape},
    reads::{Form, Read},
    source::{Row, What},
};

/// The sink's tables, and how their rows come.
pub struct Wire {
    /// Each table's shape, as it was read from the catalog at different times.
    shapes: Vec<[Arc<TableShape>; 2]>,
    sources: Vec<Arc<SourceTable>>,
    /// Records before this offset carry no transaction id.
    pub without_xid: usize,
}

pub fn key(id: i64) -> Key {
    Key::encode(&[KeyType::Int], &[KeyValue::Int(id)]).unwrap()
}

pub fn read_id(read: usize) -> ReadId {
    ReadId(format!("read-{read}"))
}

fn keys(ids: &[i64]) -> KeyList {
    let keys: Vec<Key> = ids.iter().map(|id| key(*id)).collect();
    keys.iter().collect()
}

fn shape(table: usize, type_name: &str) -> TableShape {
    let column = |name: &str| Column {
        name: name.into(),
        column_type: ColumnType::Int64,
        type_name: type_name.into(),
        nullable: false,
        generated: false,
        has_default: false,
    };
    TableShape::new(
        TableName::new("shop", format!("t{table}")),
        vec![column("id"), column("version"), column("large")],
        vec![KeyColumn { column: 0, key_type: Ok(KeyType::Int), order: Ok(()) }],
        vec![],
    )
}

impl Wire {
    pub fn new(tables: usize, without_xid: usize) -> Wire {
        let source = |table| SourceTable {
            connector: "srv".into(),
            database: "shop".into(),
            schema: "shop".into(),
            table: format!("t{table}"),
        };
        Wire {
            shapes: (0..tables).map(|table| ["bigint", "int8"].map(|name| Arc::new(shape(table, name)))).collect(),
            sources: (0..tables).map(|table| Arc::new(source(table))).collect(),
            without_xid,
        }
    }

    pub fn table_of(&self, name: &TableName) -> usize {
        self.shapes.iter().position(|shapes| shapes[0].name == *name).expect("the sink has the table")
    }

    pub fn name_of(&self, table: usize) -> &TableName {
        &self.shapes[table][0].name
    }

    /// Returns the shape of a table as it is known at `offset`: the catalog is read again now and then.
    fn shape(&self, offset: usize, table: usize) -> Arc<TableShape> {
        Arc::clone(&self.shapes[table][offset / 7 % 2])
    }

    /// Decodes a record. `mended` says that the records whose value could not be decoded can be by now.
    pub fn decode(&self, offset: usize, record: &Record, reads: &[Read], mended: bool) -> Result<Event, BadRecord> {
        let xid = match record.shape {
            Shape::Tombstone => EventXid::Exempt,
            _ if offset < self.without_xid => EventXid::Unknown,
            _ => EventXid::Known(record.entry.xid as u32),
        };
        match (&record.entry.what, record.shape) {
            (What::Put { table, key: id, .. } | What::Delete { table, key: id, .. }, Shape::BadValue) if !mended => {
                Err(bad(Some((self.shape(offset, *table), key(*id)))))
            }
            (_, Shape::BadKey) => Err(bad(None)),
            (What::Put { table, key, version, large, from }, _) => {
                Ok(self.row(offset, *table, *key, *from, xid, upsert(*key, *version, *large)))
            }
            (What::Copy { table, key, row: Row { version, large } }, _) => {
                Ok(self.row(offset, *table, *key, None, EventXid::Exempt, upsert(*key, *version, Some(*large))))
            }
            (What::Delete { table, key, to }, _) => Ok(self.row(offset, *table, *key, *to, xid, RowOp::Delete)),
            (What::Truncate { table }, _) => Ok(Event::Truncate { table: self.shape(offset, *table), xid }),
            (What::Low { read }, _) => Ok(Event::Low(self.name(offset, *read, &reads[*read]))),
            (What::Part { read, part, parts, asked, selected, changed }, shape) => Ok(Event::Part(Box::new(Part {
                claim: self.claim(offset, *read, &reads[*read]),
                part: *part as u32,
                parts: *parts as u32,
                asked: keys(asked),
                selected: match shape {
                    Shape::Twisted => set(*read, &twisted(selected)),
                    _ => set(*read, selected),
                },
                changed: set(*read, changed),
            }))),
        }
    }

    fn row(&self, offset: usize, table: usize, id: i64, other: Option<i64>, xid: EventXid, op: RowOp) -> Event {
        Event::Row(RowEvent {
            table: self.shape(offset, table),
            source: Arc::clone(&self.sources[table]),
            key: key(id),
            other_key: other.map(key),
            xid,
            source_ms: None,
            op,
        })
    }

    fn name(&self, offset: usize, number: usize, read: &Read) -> ReadName {
        ReadName {
            read_id: read_id(number),
            source: self.sources[read.plan.table].name(),
            table: self.shape(offset, read.plan.table),
        }
    }

    fn claim(&self, offset: usize, number: usize, read: &Read) -> Claim {
        let plan = &read.plan;
        let bound =
            |bound: Option<i64>, closed: fn(Key) -> KeyBound| bound.map_or(KeyBound::Open, |id| closed(key(id)));
        let (kind, has_range) = match plan.form {
            Form::Chunk => (StatementKind::Chunk, true),
            Form::Keys => (StatementKind::Keys, false),
            Form::Info | Form::PlainInfo => (StatementKind::ChunkInfo, true),
            Form::Absence => (StatementKind::Absence, false),
        };
        let snapshot =
            read.seen.as_ref().map(|seen| Snapshot { xmin: seen.xmin, xmax: seen.xmax, running: seen.xip.clone() });
        Claim {
            read: self.name(offset, number, read),
            kind,
            range: match has_range {
                true => KeyRange {
                    lower: bound(plan.lower, KeyBound::Exclusive),
                    upper: bound(plan.upper, KeyBound::Inclusive),
                },
                false => KeyRange::ALL,
            },
            snapshot: snapshot.filter(|_| plan.form.has_snapshot()),
            settled: read.settled,
            confirmed: plan.confirmed,
            rows: None,
            key_types: Some(vec!["bigint".into()]),
            byte_order: false,
        }
    }
}

fn upsert(key: i64, version: i64, large: Option<i64>) -> RowOp {
    RowOp::Upsert([Value::Int(key), Value::Int(version), large.map_or(Value::Unchanged, Value::Int)].into())
}

/// Every other read lists its keys as intervals.
fn set(read: usize, ids: &[i64]) -> KeySet {
    if read.is_multiple_of(2) {
        return KeySet::List(keys(ids));
    }
    let mut intervals: Vec<(i64, i64)> = Vec::new();
    for id in ids {
        match intervals.last_mut() {
            Some(last) if last.1 + 1 == *id => last.1 = *id,
            _ => intervals.push((*id, *id)),
        }
    }
    KeySet::Intervals(intervals)
}

fn twisted(selected: &[i64]) -> Vec<i64> {
    if selected.is_empty() { vec![0] } else { selected[1..].to_vec() }
}

fn bad(key: Option<(Arc<TableShape>, Key)>) -> BadRecord {
    BadRecord { stage: Stage::ValueConverter, table: None, feed: None, key, reason: "spoiled".into() }
}
