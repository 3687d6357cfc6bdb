//! Rows that are missing and asked for.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{PACE, Parking, change, lane, record, sink};
use crate::{apply::lane::LaneEnd, metrics::Metrics, record::Record, status::StatusBoard};

/// A statement that finds key 2 missing.
fn a_row_is_missing(offset: i64) -> Record {
    let statement = r#"{"table":"inventory.orders","read_id":"r","range":{"lower":{"open":true},"upper":{"open":true}},
        "selected":[1,2],"changed":[]}"#;
    let headers = vec![("dblog.record".to_owned(), Some(b"chunk-info"[..].into()))];
    Record { headers, ..record(offset, 0, statement) }
}

#[tokio::test]
async fn a_request_that_gets_no_answer_does_not_keep_a_lane_from_stopping() {
    let sink = sink();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let metrics = Arc::new(Metrics::new());
    let board = StatusBoard::new("test", "group", "memory", Arc::clone(&metrics));
    let outlet = Parking { mute: true, ..Parking::asking(&requests) };
    let (lane, _) = lane(&sink, vec![change(0, 1), a_row_is_missing(1)], outlet, metrics, &board, false).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(lane.run(stop.clone()));
    while requests.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    stop.cancel();

    let end = tokio::time::timeout(Duration::from_secs(5), running).await.expect("the lane stops").unwrap();
    assert_eq!(end, LaneEnd::Stopped);
}

/// A row that never comes is asked for twice and then shown; its next event ends both.
#[tokio::test]
async fn a_row_that_does_not_come_is_asked_for_twice_and_shown_until_its_next_event() {
    let sink = sink();
    let statement = a_row_is_missing(1);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let metrics = Arc::new(Metrics::new());
    let board = StatusBoard::new("test", "group", "memory", Arc::clone(&metrics));
    let outlet = Parking::asking(&requests);
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
