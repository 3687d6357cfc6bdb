//! The lane over a sink in memory and a stream of records given by hand.

#![allow(clippy::unwrap_used)]

mod bad_records;
mod merged_random;
mod requests;
mod statements;
mod truncates;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use sink_api::{
    Column, ColumnType, KeyColumn, KeyType, LaneId, Offset, Partition, Sink, TableName, TableShape, TopicId,
    testing::MemorySink,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    barrier::Rules,
    feeds::Feeds,
    gaps::Gaps,
    known::KnownTables,
    lane::{Lane, LaneEnd, LaneSettings},
    observer::Observer,
    ports::{Delivery, Held, NotParked, Outlet, RecordStream, Request, StreamFailure},
    requests::{Pace, Requests},
    scope::Scope,
    writer::Writer,
};
use crate::{
    decode::{BadRecord, DecodeSettings, Decoder},
    metrics::Metrics,
    record::Record,
    statement::{Caps, OrphanPolicy},
    status::StatusBoard,
    stream::{Limits, Sequencer, Start, UnitLimits},
};

const PACE: Pace =
    Pace { gather: Duration::from_millis(1), distance: Duration::from_millis(1), answer: Duration::from_millis(500) };

struct NoMemory;

impl Held for NoMemory {
    fn shrink_to(&mut self, _: usize) {}

    fn absorb(&mut self, _: NoMemory) {}
}

/// Gives its records one at a time; then it has caught up.
struct Given {
    records: VecDeque<Record>,
    committed: Arc<Mutex<Option<Offset>>>,
    /// Those that come later.
    more: Option<tokio::sync::mpsc::UnboundedReceiver<Record>>,
}

impl RecordStream for Given {
    type Held = NoMemory;

    async fn next(&mut self) -> Result<Option<Delivery<NoMemory>>, StreamFailure> {
        match self.records.pop_front() {
            Some(record) => Ok(Some(Delivery { records: vec![record], held: NoMemory })),
            None => match &mut self.more {
                Some(more) => {
                    let records = more.recv().await.into_iter().collect();
                    Ok(Some(Delivery { records, held: NoMemory }))
                }
                None => std::future::pending().await,
            },
        }
    }

    fn caught_up(&self) -> bool {
        self.records.is_empty()
    }

    fn commit(&self, next_offset: Offset) {
        *self.committed.lock().unwrap() = Some(next_offset);
    }
}

/// Keeps the offsets of what is parked and what is asked for, if it may.
#[derive(Clone, Default)]
struct Parking {
    parked: Option<Arc<Mutex<Vec<Offset>>>>,
    requests: Option<Arc<Mutex<Vec<Request>>>>,
    /// Whether requests get no answer, and what is parked neither.
    mute: bool,
    /// What Kafka says of the topic's partitions, the last one for ever; `None` is no answer, and no entry is one.
    partitions: Arc<Mutex<VecDeque<Option<i32>>>>,
    /// Whether records may be missing from the log.
    compacted: bool,
}

impl Parking {
    fn keeping(parked: &Arc<Mutex<Vec<Offset>>>) -> Parking {
        Parking { parked: Some(Arc::clone(parked)), ..Parking::default() }
    }

    fn asking(requests: &Arc<Mutex<Vec<Request>>>) -> Parking {
        Parking { requests: Some(Arc::clone(requests)), ..Parking::default() }
    }
}

impl Outlet for Parking {
    async fn partition_count(&self) -> Option<i32> {
        let answer = {
            let mut answers = self.partitions.lock().unwrap();
            if answers.len() > 1 { answers.pop_front() } else { answers.front().copied() }
        };
        match answer {
            None => Some(1),
            Some(None) => std::future::pending().await,
            Some(count) => count,
        }
    }

    async fn may_be_compacted(&self) -> Option<bool> {
        Some(self.compacted)
    }

    fn can_park(&self) -> bool {
        self.parked.is_some()
    }

    async fn park(&self, offset: Offset, _: &BadRecord) -> Result<(), NotParked> {
        if self.mute {
            return Err(NotParked::Unanswered("no answer".to_owned()));
        }
        self.parked.as_ref().unwrap().lock().unwrap().push(offset);
        Ok(())
    }

    fn can_request(&self) -> bool {
        self.requests.is_some()
    }

    async fn request(&self, request: &Request) -> Result<(), String> {
        self.requests.as_ref().unwrap().lock().unwrap().push(request.clone());
        if self.mute {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

fn orders() -> TableName {
    TableName::new("inventory", "orders")
}

pub(super) fn shape() -> TableShape {
    let column = |name: &str, column_type, type_name: &str, nullable| Column {
        name: name.into(),
        column_type,
        type_name: type_name.into(),
        nullable,
        generated: false,
        has_default: false,
    };
    let columns =
        vec![column("id", ColumnType::Int64, "bigint", false), column("name", ColumnType::Text(None), "text", true)];
    TableShape::new(orders(), columns, vec![KeyColumn { column: 0, key_type: Ok(KeyType::Int), order: Ok(()) }], vec![])
}

pub(super) fn change(offset: i64, id: i64) -> Record {
    let source = r#""source":{"connector":"postgresql","name":"shop","db":"app","schema":"inventory","table":"orders","txId":7,"ts_ms":1}"#;
    record(offset, id, &format!(r#"{{"before":null,"after":{{"id":{id},"name":"n{id}"}},{source},"op":"c"}}"#))
}

fn record(offset: i64, id: i64, value: &str) -> Record {
    Record {
        offset: Offset(offset),
        timestamp: Some(offset),
        key: Some(format!(r#"{{"id":{id}}}"#).into_bytes().into()),
        value: Some(value.as_bytes().into()),
        headers: Vec::new(),
    }
}

/// An absence event.
pub(super) fn absence(offset: i64, id: i64, read_id: &str) -> Record {
    let header = |(name, value): (&str, &str)| (name.to_owned(), Some(value.as_bytes().into()));
    let headers = [("dblog.op", "absent"), ("dblog.table", "inventory.orders"), ("dblog.read_id", read_id)];
    Record { value: None, headers: headers.map(header).into(), ..record(offset, id, "") }
}

fn lane_id() -> LaneId {
    LaneId {
        name: "test".into(),
        topic: "shop.inventory.orders".into(),
        topic_id: TopicId([1; 16]),
        partition: Partition(0),
    }
}

/// Runs a lane over `records` until it has caught up or stops.
async fn run(sink: &MemorySink, records: Vec<Record>, parking: Parking) -> (LaneEnd, Option<Offset>) {
    let metrics = Arc::new(Metrics::new());
    let board = StatusBoard::new("test", "group", "memory", Arc::clone(&metrics));
    let (lane, committed) = lane(sink, records, parking, metrics, &board, true).await;
    ended(lane, committed).await
}

/// The same under another policy.
async fn run_as(sink: &MemorySink, records: Vec<Record>, policy: OrphanPolicy) -> (LaneEnd, Option<Offset>) {
    let metrics = Arc::new(Metrics::new());
    let board = StatusBoard::new("test", "group", "memory", Arc::clone(&metrics));
    let (mut lane, committed) = lane(sink, records, Parking::default(), metrics, &board, true).await;
    if let Some(writer) = &mut lane.writer {
        writer.rules = Arc::new(Rules { caps: Caps::default(), policy });
    }
    ended(lane, committed).await
}

async fn ended(lane: Lane<MemorySink, Given, Parking>, committed: Committed) -> (LaneEnd, Option<Offset>) {
    let end = tokio::time::timeout(Duration::from_secs(20), lane.run(CancellationToken::new())).await.unwrap();
    let committed = *committed.lock().unwrap();
    (end, committed)
}

type Committed = Arc<Mutex<Option<Offset>>>;

async fn lane(
    sink: &MemorySink,
    records: Vec<Record>,
    parking: Parking,
    metrics: Arc<Metrics>,
    board: &StatusBoard,
    until_caught_up: bool,
) -> (Lane<MemorySink, Given, Parking>, Committed) {
    let id = lane_id();
    let claimed = sink.claim(&id).await.unwrap();
    let frontier = claimed.state.as_ref().map_or(Offset(0), |state| state.next_offset);
    let start =
        Start { frontier, highest_xid: None, unknown_past: false, first_partition_count: 1, partition_count: 1 };
    let sequencer = Sequencer::new(start, Limits::default());
    let (waits, waited) = watch::channel(None);
    let rules = Arc::new(Rules { caps: Caps::default(), policy: OrphanPolicy::Remove });
    let status = board.lane(&id.topic, id.partition);
    let committed = Arc::new(Mutex::new(None));
    let lane = Lane {
        settings: Arc::new(LaneSettings {
            unit: UnitLimits { rows: 100, bytes: 1 << 20, statements: 4 },
            delay: Duration::ZERO,
            grace: Duration::from_secs(1),
            apply_truncate: false,
            until_caught_up,
        }),
        sink: sink.clone(),
        records: Given {
            records: records
                .into_iter()
                .filter(|record| record.offset.0 >= frontier.0 - super::start::REMEMBERED)
                .collect(),
            committed: Arc::clone(&committed),
            more: None,
        },
        outlet: parking.clone(),
        observer: Observer::new(id.clone(), metrics, status),
        waits: waited,
        decoder: Decoder::new(Arc::new(DecodeSettings::default()), &id.topic),
        known: KnownTables::default(),
        feeds: Feeds::default(),
        requests: Requests::new(PACE),
        writer: Some(Writer::new(sink.clone(), claimed.lane, parking, rules, claimed.state, sequencer.state(), waits)),
        sequencer,
        id,
        placeless: false,
        gaps: Gaps::new(Offset((frontier.0 - super::start::REMEMBERED).max(0))),
        scope: Scope::new(0, 1),
    };
    (lane, committed)
}

/// A marker, as PostgreSQL's connector wraps a message.
fn marker(offset: i64, payload: &str) -> Record {
    let content = STANDARD.encode(payload);
    let source =
        r#""source":{"connector":"postgresql","name":"shop","db":"app","schema":"","table":"","txId":7,"ts_ms":1}"#;
    Record {
        offset: Offset(offset),
        timestamp: Some(offset),
        key: Some(r#"{"prefix":"sink-repair.0"}"#.as_bytes().into()),
        value: Some(
            format!(r#"{{"op":"m",{source},"message":{{"prefix":"sink-repair.0","content":"{content}"}}}}"#)
                .into_bytes()
                .into(),
        ),
        headers: Vec::new(),
    }
}

fn sink() -> MemorySink {
    let sink = MemorySink::new();
    sink.create_table(shape(), &[]);
    sink
}
