//! The rules on statements, one by one, on streams of a few events.

#![allow(clippy::unwrap_used)]

mod copies;
mod order;
mod past;
mod restart;
mod verdict;
mod visibility;
mod whole;
mod window;

use std::sync::Arc;

use sink_api::{
    Key, KeyBound, KeyColumn, KeyList, KeyRange, KeySet, KeyType, KeyValue, LaneState, NotNative, Offset, ReadId,
    RowOp, Rule, StatementKind, TableName, TableShape, Verdict,
};

use super::{Limits, Sequencer, Start, Step};
use crate::{
    decode::{BadRecord, Claim, Damaged, Event, EventXid, Part, ReadName, RowEvent, Snapshot, SourceTable, Stage},
    statement::Statement,
};

fn key(id: i64) -> Key {
    Key::encode(&[KeyType::Int], &[KeyValue::Int(id)]).unwrap()
}

fn keys(ids: &[i64]) -> KeyList {
    let keys: Vec<Key> = ids.iter().map(|id| key(*id)).collect();
    keys.iter().collect()
}

fn list(ids: &[i64]) -> KeySet {
    KeySet::List(keys(ids))
}

fn shape(name: &str, order: Result<(), NotNative>) -> Arc<TableShape> {
    let key = KeyColumn { column: 0, key_type: Ok(KeyType::Int), order };
    Arc::new(TableShape::new(TableName::new("shop", name), vec![], vec![key], vec![]))
}

fn orders() -> Arc<TableShape> {
    shape("orders", Ok(()))
}

fn read(read_id: &str) -> ReadName {
    ReadName { read_id: ReadId(read_id.into()), source: sink_api::SourceName::of_table("shop.orders"), table: orders() }
}

/// Everything below 100 was over, and nothing from 100 on was visible.
fn snapshot() -> Snapshot {
    Snapshot { xmin: 100, xmax: 100, running: vec![] }
}

/// A transaction that `snapshot` sees.
const SEEN: u32 = 50;

/// One that it does not.
const UNSEEN: u32 = 100;

fn claim(kind: StatementKind, read_id: &str) -> Claim {
    Claim {
        read: read(read_id),
        kind,
        range: KeyRange::ALL,
        snapshot: Some(snapshot()),
        settled: true,
        confirmed: None,
        rows: None,
        key_types: None,
        byte_order: false,
    }
}

/// The only part of a chunk of the whole table in which the read found `selected`.
fn chunk(read_id: &str, selected: &[i64]) -> Part {
    Part {
        claim: claim(StatementKind::Chunk, read_id),
        part: 1,
        parts: 1,
        asked: KeyList::new(),
        selected: list(selected),
        changed: list(&[]),
    }
}

fn row(id: i64, xid: EventXid, op: RowOp) -> RowEvent {
    RowEvent {
        table: orders(),
        source: Arc::new(SourceTable {
            connector: "srv".into(),
            database: "shop".into(),
            schema: "shop".into(),
            table: "orders".into(),
        }),
        key: key(id),
        other_key: None,
        xid,
        source_ms: None,
        op,
    }
}

fn put(id: i64, xid: u32) -> RowEvent {
    row(id, EventXid::Known(xid), RowOp::Upsert([].into()))
}

fn start() -> Start {
    Start { frontier: Offset(0), highest_xid: None, unknown_past: false, first_partition_count: 1, partition_count: 1 }
}

/// What became of a statement in the stream.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    /// It became a barrier that spares these keys.
    Spares(Vec<i64>),
    /// It was refused; whether a fresh read is asked for.
    Refused(Rule, bool),
    /// Nothing.
    Ignored,
}

use Outcome::{Ignored, Refused, Spares};

fn spares_nothing() -> Outcome {
    Spares(vec![])
}

/// A lane of which only the sequencer is looked at.
struct Lane {
    sequencer: Sequencer,
    next: i64,
    steps: Vec<Step>,
}

impl Lane {
    fn new() -> Lane {
        Lane::starting(start(), Limits::default())
    }

    /// A lane that remembers no transaction.
    fn forgetful() -> Lane {
        Lane::starting(start(), Limits { recent_bytes: 0, copies: 0, ..Limits::default() })
    }

    fn starting(start: Start, limits: Limits) -> Lane {
        Lane { sequencer: Sequencer::new(start, limits), next: 0, steps: Vec::new() }
    }

    /// A lane that goes on from a stored state, at the place where reading has to begin.
    fn resuming(state: &LaneState, limits: Limits) -> Lane {
        let (start, begin) = Start::resume(state, Offset(0), 1);
        Lane { next: begin.0, ..Lane::starting(start, limits) }
    }

    /// Pushes an event a second after the one before.
    fn push(&mut self, event: Event) -> &mut Lane {
        let at = self.take();
        self.sequencer.push(at, Some(at.0 * 1_000), event, &mut self.steps);
        self
    }

    fn take(&mut self) -> Offset {
        self.steps.clear();
        self.next += 1;
        Offset(self.next - 1)
    }

    fn row(&mut self, row: RowEvent) -> &mut Lane {
        self.push(Event::Row(row))
    }

    fn bad(&mut self, id: Option<i64>) -> &mut Lane {
        let key = id.map(|id| (orders(), key(id)));
        let bad = BadRecord { stage: Stage::ValueConverter, table: None, feed: None, key, reason: "spoiled".into() };
        let at = self.take();
        self.sequencer.push_bad(at, Some(at.0 * 1_000), &bad, &mut self.steps);
        self
    }

    fn low(&mut self, read_id: &str) -> &mut Lane {
        self.push(Event::Low(read(read_id)))
    }

    fn part(&mut self, part: Part) -> Outcome {
        self.push(Event::Part(Box::new(part)));
        self.outcome()
    }

    /// What the record that was pushed last did to a statement.
    fn outcome(&self) -> Outcome {
        let outcome = |step: &Step| match step {
            Step::Statement(statement) => Some(Spares(spared(statement))),
            Step::Refusal(row) => match &row.verdict {
                Verdict::Refused { rule, again, .. } => Some(Refused(*rule, *again)),
                _ => None,
            },
            _ => None,
        };
        let mut outcomes = self.steps.iter().filter_map(outcome);
        let first = outcomes.next();
        assert_eq!(outcomes.next(), None, "one record, two outcomes");
        first.unwrap_or(Ignored)
    }
}

fn spared(statement: &Statement) -> Vec<i64> {
    let known: Vec<(i64, Key)> = (-10..1_000).map(|id| (id, key(id))).collect();
    let id = |spared: &[u8]| known.iter().find(|(_, key)| key.as_bytes() == spared).unwrap().0;
    statement.spared.iter().map(id).collect()
}

fn damaged(read_id: &str, rule: Rule) -> Event {
    Event::Damaged(Damaged {
        read_id: Some(ReadId(read_id.into())),
        kind: StatementKind::Chunk,
        source_table: Some("shop.orders".into()),
        rule,
        reason: "damaged".into(),
    })
}

fn above(id: i64) -> KeyRange {
    KeyRange { lower: KeyBound::Exclusive(key(id)), upper: KeyBound::Open }
}
