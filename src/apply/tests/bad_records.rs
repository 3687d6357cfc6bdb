//! A record that cannot be applied is parked, or stops its lane; it is never passed over.

use std::sync::{Arc, Mutex};

use sink_api::{KeyType, LaneState, Offset, RowChange, RowOp, Sink, Value};

use super::{Parking, change, lane, lane_id, orders, record, run, sink};
use crate::{
    apply::{lane::LaneEnd, writer::Stop},
    status::StatusBoard,
    stream::{Step, UnitBuilder},
};

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
    let (end, committed) = run(&sink, records, Parking::keeping(&parked)).await;

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
    let (end, committed) = run(&sink, records, Parking::keeping(&parked)).await;

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

#[tokio::test]
async fn what_was_durable_before_a_refused_record_is_told() {
    let sink = sink();
    let refused = sink_api::Key::encode(&[KeyType::Int], &[sink_api::KeyValue::Int(3)]).unwrap();
    sink.poison(&orders(), &refused, true);
    let table = sink.describe(&orders()).await.unwrap();
    let board = StatusBoard::new("test", "group", "memory", Arc::default());
    let (mut lane, _) = lane(&sink, vec![], Parking::default(), Arc::default(), &board, true).await;
    let mut builder = UnitBuilder::default();
    for id in 0..5 {
        let key = sink_api::Key::encode(&[KeyType::Int], &[sink_api::KeyValue::Int(id)]).unwrap();
        let op = RowOp::Upsert(vec![Value::Int(id), Value::Null].into());
        builder.push(Step::Row(RowChange { table: Arc::clone(&table), key, offset: Offset(id), op }));
    }
    let unit = builder.finish(LaneState { next_offset: Offset(5), ..lane.sequencer.state() });
    let mut writer = lane.writer.take().unwrap();

    let stop = writer.apply(unit).await.unwrap_err();

    assert!(matches!(&stop, Stop::Failed { what, .. } if what.contains("offset 3")), "{stop:?}");
    assert_eq!((writer.base.next_offset, writer.done.upserted), (Offset(3), 3));
}
