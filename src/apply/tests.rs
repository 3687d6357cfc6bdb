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
    requests::Requests,
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

struct NoMemory;

impl Held for NoMemory {
    fn shrink_to(&mut self, _: usize) {}

    fn absorb(&mut self, _: NoMemory) {}
}

/// Gives its records one at a time; then it has caught up.
struct Given {
    records: VecDeque<Record>,
    committed: Arc<Mutex<Option<Offset>>>,
}

impl RecordStream for Given {
    type Held = NoMemory;

    async fn next(&mut self) -> Result<Option<Delivery<NoMemory>>, StreamFailure> {
        match self.records.pop_front() {
            Some(record) => Ok(Some(Delivery { records: vec![record], held: NoMemory })),
            None => std::future::pending().await,
        }
    }

    fn caught_up(&self) -> bool {
        self.records.is_empty()
    }

    fn commit(&self, next_offset: Offset) {
        *self.committed.lock().unwrap() = Some(next_offset);
    }
}

/// Keeps the offsets of what is parked, if it may.
#[derive(Clone)]
struct Parking(Option<Arc<Mutex<Vec<Offset>>>>);

impl Outlet for Parking {
    fn can_park(&self) -> bool {
        self.0.is_some()
    }

    async fn park(&self, offset: Offset, _: &BadRecord) -> Result<(), NotParked> {
        self.0.as_ref().unwrap().lock().unwrap().push(offset);
        Ok(())
    }

    fn can_request(&self) -> bool {
        false
    }

    async fn request(&self, _: &Request) -> Result<(), String> {
        unreachable!("requests are off")
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
    let id = lane_id();
    let claimed = sink.claim(&id).await.unwrap();
    let frontier = claimed.state.as_ref().map_or(Offset(0), |state| state.next_offset);
    let start =
        Start { frontier, highest_xid: None, unknown_past: false, first_partition_count: 1, partition_count: 1 };
    let sequencer = Sequencer::new(start, Limits::default());
    let (waits, waited) = watch::channel(None);
    let rules = Arc::new(Rules { caps: Caps::default(), policy: OrphanPolicy::Remove });
    let metrics = Arc::new(Metrics::new());
    let status = StatusBoard::new("test", "group", "memory", Arc::clone(&metrics)).lane(&id.topic, id.partition);
    let committed = Arc::new(Mutex::new(None));
    let lane = Lane {
        settings: Arc::new(LaneSettings {
            unit: UnitLimits { rows: 100, bytes: 1 << 20, statements: 4 },
            delay: Duration::ZERO,
            grace: Duration::from_secs(1),
            apply_truncate: false,
            until_caught_up: true,
        }),
        sink: sink.clone(),
        records: Given {
            records: records.into_iter().filter(|record| record.offset >= frontier).collect(),
            committed: Arc::clone(&committed),
        },
        outlet: parking.clone(),
        observer: Observer::new(id.clone(), metrics, status),
        waits: waited,
        decoder: Decoder::new(Arc::new(DecodeSettings::default()), &id.topic),
        feeds: Feeds::default(),
        requests: Requests::default(),
        writer: Some(Writer::new(sink.clone(), claimed.lane, parking, rules, claimed.state, sequencer.state(), waits)),
        sequencer,
        id,
    };
    let end = tokio::time::timeout(Duration::from_secs(20), lane.run(CancellationToken::new())).await.unwrap();
    let committed = *committed.lock().unwrap();
    (end, committed)
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

    let (first, _) = run(&sink, records(), Parking(None)).await;
    let frontier = sink.state(&lane_id()).map(|state| state.next_offset);
    let (again, _) = run(&sink, records(), Parking(None)).await;

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
    let (end, committed) = run(&sink, records, Parking(Some(Arc::clone(&parked)))).await;

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
    let (end, committed) = run(&sink, records, Parking(Some(Arc::clone(&parked)))).await;

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
    let (end, _) = run(&sink, records, Parking(None)).await;

    assert!(matches!(&end, LaneEnd::Failed { what, .. } if what.contains("offset 2")), "{end:?}");
    assert_eq!(sink.state(&lane_id()).map(|state| state.next_offset), Some(Offset(2)));
    assert_eq!(sink.rows(&orders()).len(), 2);
}
