//! The lane over a sink in memory and a stream of records given by hand.

#![allow(clippy::unwrap_used)]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use sink_api::{
    Column, ColumnType, KeyColumn, KeyType, LaneId, Offset, Partition, Sink, TableName, TableShape, TopicId,
    testing::MemorySink,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    barrier::Rules,
    feeds::Feeds,
    lane::{Lane, LaneEnd, LaneSettings},
    observer::Observer,
    ports::{Delivery, Held, NotParked, Outlet, RecordStream, Request, StreamFailure},
    requests::{Pace, Requests},
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
struct Parking(Option<Arc<Mutex<Vec<Offset>>>>, Option<Arc<Mutex<Vec<Request>>>>);

impl Outlet for Parking {
    fn can_park(&self) -> bool {
        self.0.is_some()
    }

    async fn park(&self, offset: Offset, _: &BadRecord) -> Result<(), NotParked> {
        self.0.as_ref().unwrap().lock().unwrap().push(offset);
        Ok(())
    }

    fn can_request(&self) -> bool {
        self.1.is_some()
    }

    async fn request(&self, request: &Request) -> Result<(), String> {
        self.1.as_ref().unwrap().lock().unwrap().push(request.clone());
        Ok(())
    }
}

fn orders() -> TableName {
    TableName::new("inventory", "orders")
}

fn shape() -> TableShape {
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

fn change(offset: i64, id: i64) -> Record {
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
            records: records.into_iter().filter(|record| record.offset >= frontier).collect(),
            committed: Arc::clone(&committed),
            more: None,
        },
        outlet: parking.clone(),
        observer: Observer::new(id.clone(), metrics, status),
        waits: waited,
        decoder: Decoder::new(Arc::new(DecodeSettings::default()), &id.topic),
        feeds: Feeds::default(),
        requests: Requests::new(PACE),
        writer: Some(Writer::new(sink.clone(), claimed.lane, parking, rules, claimed.state, sequencer.state(), waits)),
        sequencer,
        id,
    };
    (lane, committed)
}

fn sink() -> MemorySink {
    let sink = MemorySink::new();
    sink.create_table(shape(), &[]);
    sink
}

#[tokio::test]
async fn a_bad_record_stops_the_lane_before_it_and_is_not_skipped_by_a_restart() {
    let sink = sink();
    let records = || vec![change(0, 1), record(1, 2, "{broken"), change(2, 3)];

    let (first, _) = run(&sink, records(), Parking::default()).await;
    let frontier = sink.state(&lane_id()).map(|state| state.next_offset);
    let (again, _) = run(&sink, records(), Parking::default()).await;

    assert!(matches!(&first, LaneEnd::Failed { what, .. } if what.contains("offset 1")), "{first:?}");
    assert_eq!(frontier, Some(Offset(1)));
    assert_eq!(sink.rows(&orders()).len(), 1);
    assert!(matches!(&again, LaneEnd::Failed { what, .. } if what.contains("offset 1")), "{again:?}");
}

#[tokio::test]
async fn a_bad_record_is_parked_and_the_others_go_on() {
    let sink = sink();
    let parked = Arc::new(Mutex::new(Vec::new()));

    let records = vec![change(0, 1), record(1, 2, "{broken"), change(2, 3)];
    let (end, committed) = run(&sink, records, Parking(Some(Arc::clone(&parked)), None)).await;

    assert_eq!((end, committed), (LaneEnd::CaughtUp, Some(Offset(3))));
    assert_eq!(*parked.lock().unwrap(), [Offset(1)]);
    assert_eq!(sink.rows(&orders()).len(), 2);
}

#[tokio::test]
async fn a_record_that_the_sink_refuses_is_found_among_many_and_parked() {
    let sink = sink();
    let refused = sink_api::Key::encode(&[KeyType::Int], &[sink_api::KeyValue::Int(37)]).unwrap();
    sink.poison(&orders(), &refused, true);
    let parked = Arc::new(Mutex::new(Vec::new()));

    let records = (0..50).map(|offset| change(offset, offset)).collect();
    let (end, committed) = run(&sink, records, Parking(Some(Arc::clone(&parked)), None)).await;

    assert_eq!((end, committed), (LaneEnd::CaughtUp, Some(Offset(50))));
    assert_eq!(*parked.lock().unwrap(), [Offset(37)]);
    assert_eq!(sink.rows(&orders()).len(), 49);
}

#[tokio::test]
async fn a_record_that_the_sink_refuses_stops_the_lane_before_it() {
    let sink = sink();
    let refused = sink_api::Key::encode(&[KeyType::Int], &[sink_api::KeyValue::Int(2)]).unwrap();
    sink.poison(&orders(), &refused, true);

    let records = (0..5).map(|offset| change(offset, offset)).collect();
    let (end, _) = run(&sink, records, Parking::default()).await;

    assert!(matches!(&end, LaneEnd::Failed { what, .. } if what.contains("offset 2")), "{end:?}");
    assert_eq!(sink.state(&lane_id()).map(|state| state.next_offset), Some(Offset(2)));
    assert_eq!(sink.rows(&orders()).len(), 2);
}

/// A row that never comes is asked for twice and then shown; its next event ends both.
#[tokio::test]
async fn a_row_that_does_not_come_is_asked_for_twice_and_shown_until_its_next_event() {
    let sink = sink();
    let statement = r#"{"table":"inventory.orders","read_id":"r","range":{"lower":{"open":true},"upper":{"open":true}},
        "selected":[1,2],"changed":[]}"#;
    let headers = vec![("dblog.record".to_owned(), Some(b"chunk-info"[..].into()))];
    let statement = Record { headers, ..record(1, 0, statement) };
    let requests = Arc::new(Mutex::new(Vec::new()));
    let metrics = Arc::new(Metrics::new());
    let board = StatusBoard::new("test", "group", "memory", Arc::clone(&metrics));
    let outlet = Parking(None, Some(Arc::clone(&requests)));
    let (mut lane, _) = lane(&sink, vec![change(0, 1), statement], outlet, metrics, &board, false).await;
    let (more, coming) = tokio::sync::mpsc::unbounded_channel();
    lane.records.more = Some(coming);
    let stop = CancellationToken::new();
    let running = tokio::spawn(lane.run(stop.clone()));
    let shown = || {
        let attention = board.status().attention.into_iter();
        attention.map(|item| (item.kind, item.table.unwrap(), item.what)).collect::<Vec<_>>()
    };

    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while shown().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "nothing is shown");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::sleep(2 * PACE.answer).await;

    assert_eq!(requests.lock().unwrap().len(), 2);
    let filters: Vec<_> =
        requests.lock().unwrap().iter().map(|it| it.data["additional-conditions"][0]["filter"].clone()).collect();
    assert_eq!(filters, [r#""id" IN (2)"#; 2]);
    let what = "1 missing row was asked for twice and did not come".to_owned();
    assert_eq!(shown(), [(crate::status::AttentionKind::Unobtainable, "inventory.orders".to_owned(), what)]);

    more.send(change(2, 2)).unwrap();
    while !shown().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "it is still shown");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    assert_eq!(running.await.unwrap(), LaneEnd::Stopped);
}
