//! Statements at their place between changes, over the sink in memory.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use sink_api::{
    Key, KeyType, KeyValue, Offset, Rule, Sink, Value, Verdict,
    testing::{Fault, MemorySink},
};

use tokio_util::sync::CancellationToken;

use super::{Parking, change, lane, lane_id, marker, orders, run, run_as, sink};
use crate::{
    apply::lane::LaneEnd,
    metrics::Metrics,
    record::Record,
    statement::OrphanPolicy,
    status::{Awaited, LaneState, StatusBoard},
};

const SOURCE: &str = "inventory.orders";

/// The markers of a read of all keys up to 10 that finds `selected`.
fn read(read_id: &str, offset: i64, selected: &str) -> [Record; 2] {
    read_as(read_id, offset, selected, true)
}

fn read_as(read_id: &str, offset: i64, selected: &str, settled: bool) -> [Record; 2] {
    let read = format!(r#""v":1,"read_id":"{read_id}","table":"{SOURCE}","topic":"shop.inventory.orders""#);
    let close = format!(
        r#"{{{read},"kind":"chunk","part":1,"parts":1,"range":{{"lower":{{"open":true}},"upper":{{"key":10,"inclusive":true}}}},"selected":{selected},"key_types":["bigint"],"snapshot":"9:9:","settled":{settled}}}"#
    );
    [marker(offset, &format!(r#"{{{read},"kind":"low"}}"#)), marker(offset + 1, &close)]
}

/// A row that the source does not have.
fn drift(sink: &MemorySink, id: i64) {
    sink.put(&orders(), vec![Value::Int(id), Value::Null]);
}

fn ids(sink: &MemorySink) -> Vec<Key> {
    sink.rows(&orders()).into_iter().map(|(key, _)| key).collect()
}

fn keys(ids: &[i64]) -> Vec<Key> {
    ids.iter().map(|id| Key::encode(&[KeyType::Int], &[KeyValue::Int(*id)]).unwrap()).collect()
}

fn verdicts(sink: &MemorySink) -> Vec<Verdict> {
    sink.statements().into_iter().map(|recorded| recorded.statement.verdict).collect()
}

#[tokio::test]
async fn a_statement_removes_the_orphans_that_stand_at_its_place() {
    let sink = sink();
    drift(&sink, 4);
    let [low, close] = read("r-1", 1, "[1]");

    // 5 comes behind the statement, in the same unit of work.
    let (end, _) = run(&sink, vec![change(0, 1), low, close, change(3, 5)], Parking::default()).await;

    assert_eq!((end, ids(&sink)), (LaneEnd::CaughtUp, keys(&[1, 5])));
    assert_eq!(verdicts(&sink), [Verdict::Applied]);
    assert_eq!(sink.removed().len(), 1);
}

/// Compaction takes a change of which a later one stands in the log: the window does not show it.
#[tokio::test]
async fn where_records_may_be_missing_from_the_log_a_window_is_not_whole() {
    for compacted in [true, false] {
        for life in ["one", "two"] {
            let sink = sink();
            drift(&sink, 4);
            let [low, _] = read("r-1", 1, "[1]");
            let [_, close] = read("r-1", 3, "[1]");
            let parking = || Parking { compacted, ..Parking::default() };
            let records = vec![change(0, 1), low, close, change(6, 5)];

            if life == "two" {
                // The low marker is read again.
                run(&sink, records[..2].to_vec(), parking()).await;
            }
            let (end, _) = run(&sink, records, parking()).await;

            // The record at offset 2 or 3 is missing: the close stands at 4.
            assert_eq!(end, LaneEnd::CaughtUp);
            match verdicts(&sink).remove(0) {
                Verdict::Applied => assert!(!compacted, "{life}"),
                Verdict::Refused { rule: Rule::Window, reason, again: true } => {
                    assert!(compacted && reason.contains("records from offset 2 to before 4 are missing"), "{reason}");
                }
                verdict => panic!("{verdict:?}"),
            }
        }
    }
}

/// A settled read behind the gap saw what was there, a gap after it is none of its business.
#[tokio::test]
async fn records_that_are_missing_outside_of_a_window_matter_to_reads_that_did_not_settle() {
    for settled in [true, false] {
        let sink = sink();
        drift(&sink, 4);
        let [low, close] = read_as("r-1", 5, "[1]", settled);
        let parking = Parking { compacted: true, ..Parking::default() };

        let (end, _) = run(&sink, vec![change(0, 1), low, close, change(9, 5)], parking).await;

        assert_eq!(
            (end, verdicts(&sink)[0] == Verdict::Applied),
            (LaneEnd::CaughtUp, settled),
            "{:?}",
            verdicts(&sink)
        );
    }
}

#[tokio::test]
async fn a_read_that_is_published_again_after_a_restart_keeps_its_first_verdict() {
    let sink = sink();
    let [low, close] = read("r-1", 1, "[1]");
    run(&sink, vec![change(0, 1), low, close, change(3, 5)], Parking::default()).await;

    let [low, close] = read("r-1", 4, "[1]");
    let (end, committed) = run(&sink, vec![low, close], Parking::default()).await;

    assert_eq!((end, committed), (LaneEnd::CaughtUp, Some(Offset(6))));
    assert_eq!(ids(&sink), keys(&[1, 5]), "5 is of the statement's future");
    assert_eq!(verdicts(&sink).len(), 1);
}

#[tokio::test]
async fn a_table_that_two_sources_feed_keeps_its_orphans() {
    let sink = sink();
    sink.claim_table(&orders(), &sink_api::SourceName::of_table("archive.orders"), &lane_id()).await.unwrap();
    drift(&sink, 4);
    let [low, close] = read("r-1", 1, "[1]");

    run(&sink, vec![change(0, 1), low, close], Parking::default()).await;

    assert_eq!(ids(&sink), keys(&[1, 4]));
    let verdicts = verdicts(&sink);
    assert!(matches!(&verdicts[..], [Verdict::Refused { rule: sink_api::Rule::OneStream, .. }]), "{verdicts:?}");
}

/// Whoever looks before he lets rows be removed is not told that another stream's rows are orphans.
#[tokio::test]
async fn in_report_mode_rows_of_another_stream_are_no_orphans_either() {
    for (others, expected) in [(true, "refused"), (false, "reported")] {
        let sink = sink();
        if others {
            sink.claim_table(&orders(), &sink_api::SourceName::of_table("archive.orders"), &lane_id()).await.unwrap();
        }
        drift(&sink, 4);
        let [low, close] = read("r-1", 1, "[1]");

        let (end, _) = run_as(&sink, vec![change(0, 1), low, close], OrphanPolicy::Report).await;

        assert_eq!((end, verdicts(&sink)[0].as_str()), (LaneEnd::CaughtUp, expected));
        assert_eq!(ids(&sink), keys(&[1, 4]));
    }
}

/// Tables of one name: what another connector, or another database, does not have is not absent here.
#[tokio::test]
async fn a_statement_of_another_connector_or_database_keeps_its_orphans() {
    for (own, other) in [("\"shop\"", "\"outlet\""), ("\"app\"", "\"archive\"")] {
        let sink = sink();
        drift(&sink, 4);
        let strange = |record: Record| {
            let value = String::from_utf8(record.value.unwrap_or_default().to_vec()).unwrap();
            assert!(value.contains(own), "{value}");
            Record { value: Some(value.replace(own, other).into_bytes().into()), ..record }
        };
        let [low, close] = read("r-1", 1, "[1]").map(strange);

        run(&sink, vec![change(0, 1), low, close], Parking::default()).await;

        assert_eq!(ids(&sink), keys(&[1, 4]));
        let verdicts = verdicts(&sink);
        assert!(matches!(&verdicts[..], [Verdict::Refused { rule: sink_api::Rule::OneStream, .. }]), "{verdicts:?}");
    }
}

/// A table whose changes come by no lane has no window, and nothing that spares a key.
#[tokio::test]
async fn a_table_that_no_change_has_come_for_keeps_its_orphans() {
    let sink = sink();
    drift(&sink, 4);
    let [low, close] = read("r-1", 0, "[1]");

    run(&sink, vec![low, close], Parking::default()).await;

    assert_eq!(ids(&sink), keys(&[4]));
    let verdicts = verdicts(&sink);
    let Verdict::Refused { rule, reason, .. } = &verdicts[0] else { panic!("{verdicts:?}") };
    assert_eq!(*rule, sink_api::Rule::OneStream);
    assert!(reason.starts_with("no change of shop/app/inventory.orders has come by this topic yet"), "{reason}");
}

#[tokio::test]
async fn a_record_that_does_not_name_its_connector_is_of_the_one_source() {
    let sink = sink();
    drift(&sink, 4);
    let tombstone = Record { value: None, ..change(0, 9) };
    let [low, close] = read("r-1", 2, "[1]");

    run(&sink, vec![tombstone, change(1, 1), low, close], Parking::default()).await;

    assert_eq!((ids(&sink), verdicts(&sink)), (keys(&[1]), vec![Verdict::Applied]));
}

#[tokio::test]
async fn two_connectors_with_tables_of_one_name_are_two_sources() {
    let sink = sink();
    drift(&sink, 4);
    let mut other = change(1, 2);
    let value = String::from_utf8(other.value.unwrap().to_vec()).unwrap();
    other.value = Some(value.replace(r#""name":"shop""#, r#""name":"archive""#).into_bytes().into());
    let [low, close] = read("r-1", 2, "[1]");

    run(&sink, vec![change(0, 1), other, low, close], Parking::default()).await;

    assert_eq!(ids(&sink), keys(&[1, 2, 4]));
    let verdicts = verdicts(&sink);
    assert!(matches!(&verdicts[..], [Verdict::Refused { rule: sink_api::Rule::OneStream, .. }]), "{verdicts:?}");
}

#[tokio::test]
async fn the_group_learns_of_a_record_when_it_is_durable() {
    let sink = sink();
    (0..10).for_each(|_| sink.inject(Fault::Commit(sink_api::ErrorClass::Configuration)));

    let (end, committed) = run(&sink, vec![change(0, 1)], Parking::default()).await;

    assert!(matches!(end, LaneEnd::Failed { .. }), "{end:?}");
    assert_eq!((committed, sink.state(&lane_id())), (None, None));
}

/// Runs a lane over `records` with Kafka's answers about the topic's partitions, until its end or `stop`.
async fn run_asking(
    sink: &MemorySink,
    records: Vec<Record>,
    partitions: impl IntoIterator<Item = Option<i32>>,
    stop: CancellationToken,
) -> LaneEnd {
    let metrics = Arc::new(Metrics::new());
    let board = StatusBoard::new("test", "group", "memory", Arc::clone(&metrics));
    let answers = Arc::new(Mutex::new(partitions.into_iter().collect()));
    let parking = Parking { partitions: answers, ..Parking::default() };
    let (lane, _) = lane(sink, records, parking, metrics, &board, true).await;
    tokio::time::timeout(Duration::from_secs(20), lane.run(stop)).await.unwrap()
}

/// From then on a key's changes come through another lane, and its row would look like an orphan here.
#[tokio::test]
async fn partitions_that_were_added_by_the_time_a_statement_is_read_refuse_it() {
    let sink = sink();
    drift(&sink, 4);
    let [low, close] = read("r-1", 1, "[1]");

    let end = run_asking(&sink, vec![change(0, 1), low, close], [Some(2)], CancellationToken::new()).await;

    assert_eq!((end, ids(&sink)), (LaneEnd::CaughtUp, keys(&[1, 4])));
    let reason = "the topic had 1 partitions and has 2 now, so keys have moved".to_owned();
    assert_eq!(verdicts(&sink), [Verdict::Refused { rule: sink_api::Rule::Scope, reason, again: false }]);
}

/// Partitions are added between the first look at them and the commit.
async fn assert_refused_meanwhile(sink: &MemorySink) {
    drift(sink, 4);
    let [low, close] = read("r-1", 1, "[1]");

    let answers = [Some(1), Some(2)];
    let end = run_asking(sink, vec![change(0, 1), low, close], answers, CancellationToken::new()).await;

    assert_eq!((end, ids(sink)), (LaneEnd::CaughtUp, keys(&[1, 4])));
    let verdicts = verdicts(sink);
    assert!(matches!(&verdicts[..], [Verdict::Refused { rule: sink_api::Rule::Scope, .. }]), "{verdicts:?}");
}

/// A try may be long: its changes wait for locks, its listings for the disk.
#[tokio::test]
async fn partitions_that_were_added_while_a_unit_was_written_refuse_its_statement() {
    assert_refused_meanwhile(&sink()).await;
}

/// The sink may be away for hours between two tries.
#[tokio::test]
async fn partitions_that_were_added_while_the_sink_was_away_refuse_the_statement() {
    let sink = sink();
    sink.inject(Fault::Difference);
    assert_refused_meanwhile(&sink).await;
}

/// Returns for whom the lane is seen to wait.
async fn awaited(sink: &MemorySink, records: Vec<Record>, parking: Parking) -> Awaited {
    let metrics = Arc::new(Metrics::new());
    let board = StatusBoard::new("test", "group", "memory", Arc::clone(&metrics));
    let (lane, _) = lane(sink, records, parking, metrics, &board, true).await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(lane.run(stop.clone()));
    let on = loop {
        match &board.status().lanes[..] {
            [seen] if let LaneState::Waiting { on, .. } = seen.state => break on,
            [_] => tokio::time::sleep(Duration::from_millis(100)).await,
            lanes => panic!("the lane has ended: {lanes:?}"),
        }
    };
    stop.cancel();
    assert_eq!(running.await.unwrap(), LaneEnd::Stopped);
    on
}

#[tokio::test]
async fn a_lane_says_whether_it_waits_for_kafka_or_for_the_sink() {
    let close = || read("r-1", 1, "[1]").into_iter().chain([change(3, 1)]).collect::<Vec<_>>();
    let silent = |answers: &[Option<i32>]| Parking {
        partitions: Arc::new(Mutex::new(answers.iter().copied().collect())),
        ..Parking::default()
    };
    let bad = Record { value: Some(b"{".as_slice().into()), ..change(0, 1) };
    let parked = Arc::default();

    let mute = Parking { mute: true, ..Parking::keeping(&parked) };
    let (here, away) = (sink(), sink());
    (0..99).for_each(|_| away.inject(Fault::Begin));

    // Kafka has five seconds to answer.
    let seen = tokio::join!(
        awaited(&here, close(), silent(&[None])),
        async { awaited(&sink(), close(), silent(&[Some(1), None])).await },
        async { awaited(&sink(), vec![bad], mute).await },
        awaited(&away, close(), Parking::default()),
    );

    assert_eq!(seen, (Awaited::Kafka, Awaited::Kafka, Awaited::Kafka, Awaited::Sink));
}

#[tokio::test]
async fn a_lane_that_waits_for_the_partition_count_can_be_stopped() {
    let sink = sink();
    drift(&sink, 4);
    let [low, close] = read("r-1", 1, "[1]");
    let stop = CancellationToken::new();

    let later = stop.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(200)).await;
        later.cancel();
    });
    let end = run_asking(&sink, vec![change(0, 1), low, close], [None], stop).await;

    assert_eq!((end, verdicts(&sink)), (LaneEnd::Stopped, vec![]));
    assert!(ids(&sink).contains(&keys(&[4])[0]), "a statement without an answer removes nothing");
}

#[tokio::test]
async fn a_removal_that_the_sink_does_not_finish_is_held_and_the_stream_goes_on() {
    let sink = sink();
    drift(&sink, 4);
    (0..50).for_each(|_| sink.inject(Fault::RemoveTimeout));
    let [low, close] = read("r-1", 1, "[1]");
    let [low_2, close_2] = read("r-2", 4, "[1,4,5]");

    let records = vec![change(0, 1), low, close, change(3, 5), low_2, close_2];
    let (end, committed) = run(&sink, records, Parking::default()).await;

    assert_eq!((end, committed), (LaneEnd::CaughtUp, Some(Offset(6))));
    assert_eq!(ids(&sink), keys(&[1, 4, 5]));
    let verdicts = verdicts(&sink);
    let [Verdict::Held { rule: sink_api::Rule::Cascade, reason }, Verdict::Applied] = &verdicts[..] else {
        panic!("{verdicts:?}");
    };
    assert_eq!(reason, "the sink did not finish the statement in time: remove: injected fault (57014)");
}

#[tokio::test]
async fn a_removal_that_takes_too_long_once_is_tried_again() {
    let sink = sink();
    drift(&sink, 4);
    sink.inject(Fault::RemoveTimeout);
    let [low, close] = read("r-1", 1, "[1]");

    run(&sink, vec![change(0, 1), low, close], Parking::default()).await;

    assert_eq!((ids(&sink), verdicts(&sink)), (keys(&[1]), vec![Verdict::Applied]));
}

#[tokio::test]
async fn the_shapes_are_read_again_however_long_the_sink_takes() {
    let sink = sink();
    sink.inject_after(1, Fault::Describe);
    sink.inject(Fault::Commit(sink_api::ErrorClass::Configuration));

    let (end, _) = run(&sink, vec![change(0, 1)], Parking::default()).await;

    // The shape is what it was, and the error has passed.
    assert_eq!(end, LaneEnd::CaughtUp);
    assert_eq!(sink.faults_left(), 0);
}
