//! A record that cannot be applied is parked, or stops its lane; it is never passed over.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sink_api::{KeyType, LaneState, Offset, RowChange, RowOp, Sink, Value};
use tokio_util::sync::CancellationToken;

use super::{Parking, change, lane, lane_id, orders, record, run, sink};
use crate::{
    apply::{lane::LaneEnd, writer::Stop},
    metrics::Metrics,
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
    let (end, committed) = run(&sink, records, Parking::default()).await;

    assert!(matches!(&end, LaneEnd::Failed { what, .. } if what.contains("offset 2")), "{end:?}");
    assert_eq!(sink.state(&lane_id()).map(|state| state.next_offset), Some(Offset(2)));
    assert_eq!((sink.rows(&orders()).len(), committed), (2, Some(Offset(2))), "what is durable is told to the group");
}

/// Its row at the source was mended, or the sink was: a copy of it is no repetition of what the sink has.
#[tokio::test]
async fn a_copy_of_a_row_that_was_parked_is_written() {
    let sink = sink();
    let key = sink_api::Key::encode(&[KeyType::Int], &[sink_api::KeyValue::Int(2)]).unwrap();
    sink.poison(&orders(), &key, true);
    let parked = Arc::new(Mutex::new(Vec::new()));
    let metrics = Arc::new(Metrics::new());
    let board = StatusBoard::new("test", "group", "memory", Arc::clone(&metrics));
    let (mut lane, _) = lane(&sink, vec![change(0, 2)], Parking::keeping(&parked), metrics, &board, false).await;
    let (more, coming) = tokio::sync::mpsc::unbounded_channel();
    lane.records.more = Some(coming);
    let stop = CancellationToken::new();
    let running = tokio::spawn(lane.run(stop.clone()));
    let frontier = |offset| sink.state(&lane_id()).is_some_and(|state| state.next_offset == Offset(offset));
    while !frontier(1) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // What the lane was told of the unit comes right behind its commit.
    tokio::time::sleep(Duration::from_millis(100)).await;
    sink.poison(&orders(), &key, false);

    let mut copy = change(1, 2);
    let value = String::from_utf8(copy.value.unwrap().to_vec()).unwrap();
    let value =
        value.replace(r#""op":"c""#, r#""op":"r""#).replace(r#""txId":7"#, r#""snapshot":"incremental","txId":7"#);
    copy.value = Some(value.into_bytes().into());
    more.send(copy).unwrap();

    while !frontier(2) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    assert_eq!(running.await.unwrap(), LaneEnd::Stopped);
    assert_eq!((parked.lock().unwrap().len(), sink.rows(&orders()).len()), (1, 1));
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

/// A column may have gone at the source and at the sink since, and a table with all that came of it.
#[tokio::test]
async fn a_record_before_the_frontier_that_does_not_fit_any_more_stops_no_lane() {
    let sink = sink();
    run(&sink, vec![change(0, 1)], Parking::default()).await;
    let gone = record(
        0,
        1,
        r#"{"before":null,"after":{"id":1,"old":1},"op":"c","source":{"name":"shop","db":"app","schema":"inventory","table":"orders","txId":7}}"#,
    );
    let of_no_table = |offset| {
        let value = r#"{"before":null,"after":{"id":1},"op":"c","source":{"name":"shop","db":"app","schema":"a","table":"gone","txId":7}}"#;
        record(offset, 1, value)
    };

    let (end, committed) = run(&sink, vec![gone, change(1, 2)], Parking::default()).await;
    assert_eq!((end, committed), (LaneEnd::CaughtUp, Some(Offset(2))));
    let (end, committed) = run(&sink, vec![of_no_table(1), change(2, 3)], Parking::default()).await;
    assert_eq!((end, committed), (LaneEnd::CaughtUp, Some(Offset(3))));
    // One that is still to be applied does.
    let (end, _) = run(&sink, vec![of_no_table(3)], Parking::default()).await;
    assert!(matches!(end, LaneEnd::Failed { .. }), "{end:?}");
}
