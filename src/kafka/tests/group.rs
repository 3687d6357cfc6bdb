//! How partitions come and go, and what is committed.

use std::time::Instant;

use super::*;

/// The mock waits for about a session before each assignment but the first.
const QUICK: [(&str, &str); 2] = [("session.timeout.ms", "4000"), ("heartbeat.interval.ms", "500")];

/// Waits for the committed offset that a worker started now would begin at.
async fn committed(cluster: &Cluster, topic: &str) -> Option<Offset> {
    let pulse = Arc::new(Pulse::default());
    let lookup = Lookup::new(&client(&cluster.mock, &[]), "repair", pulse).unwrap();
    let partition = TopicPartition::new(topic, 0);
    within("the committed offset", lookup.until_answered(move |lookup| lookup.committed(&partition))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_frontier_is_committed_and_nothing_before_the_lane_says_so() {
    let cluster = Cluster::new("orders", 1);
    cluster.write("orders", 0, 0..100, 0).await;
    let mut worker = Worker::start(cluster.settings("orders", &QUICK));
    let assignments = worker.assigned().await;
    let mut records = assignments[0].start(StartAt::CommittedOr(Edge::Earliest)).await.unwrap();
    receive(&mut records, 100).await;

    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(committed(&cluster, "orders").await, None, "received is not done");
    records.commit(Offset(70));
    until("commit", || worker.consumer.health().partitions[0].committed == Some(Offset(70))).await;
    assert_eq!(committed(&cluster, "orders").await, Some(Offset(70)));

    // Said too late for the periodic commit: stopping makes up for it.
    records.commit(Offset(80));
    drop((records, assignments));
    worker.stop().await;
    assert_eq!(committed(&cluster, "orders").await, Some(Offset(80)));

    let mut next = Worker::start(cluster.settings("orders", &QUICK));
    let assignments = next.assigned().await;
    let mut records = assignments[0].start(StartAt::CommittedOr(Edge::Earliest)).await.unwrap();
    assert_eq!(receive(&mut records, 20).await, (80..100).collect::<Vec<_>>());
    next.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_commit_is_counted_and_tried_again() {
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
    let cluster = Cluster::new("orders", 1);
    cluster.write("orders", 0, 0..10, 0).await;
    let mut worker = Worker::start(cluster.settings("orders", &[]));
    let assignments = worker.assigned().await;
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    receive(&mut records, 10).await;

    let refusal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED;
    cluster.mock.request_errors(RDKafkaApiKey::OffsetCommit, &[refusal, refusal]);
    records.commit(Offset(10));

    until("commit", || worker.consumer.health().partitions[0].committed == Some(Offset(10))).await;
    let health = worker.consumer.health();
    assert_eq!(health.failed_commits, 2);
    assert!(health.last_error.unwrap().starts_with("commit offset 10 of orders-0"));
    worker.stop().await;
}

/// With the group protocol of KIP-848 only: in the classic one the mock refuses commits once another member has joined,
/// as brokers do not. Both protocols on a broker: `tests/kafka_real.rs`.
#[tokio::test(flavor = "multi_thread")]
async fn a_partition_moves_when_its_lane_has_finished_and_starts_at_its_frontier() {
    let properties = &[("group.protocol", "consumer")];
    let cluster = Cluster::new("orders", 2);
    for partition in 0..2 {
        cluster.write("orders", partition, 0..100, 0).await;
    }
    let mut first = Worker::start(cluster.settings("orders", properties));
    let mut lanes = Vec::new();
    for assignment in first.assigned().await {
        let mut records = assignment.start(StartAt::CommittedOr(Edge::Earliest)).await.unwrap();
        receive(&mut records, 100).await;
        lanes.push(records);
    }

    let mut second = Worker::start(cluster.settings("orders", properties));
    let moving = within("the revocation", async {
        loop {
            if let Some(moving) = lanes.iter().position(|records| records.ending().is_some()) {
                return moving;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let mut leaving = lanes.remove(moving);
    assert!(!leaving.ending().unwrap().lost);
    assert!(leaving.next_chunk().await.unwrap().is_none(), "a lane begins nothing new");
    // Its unit of work in hand, and then its last word.
    tokio::time::sleep(Duration::from_millis(300)).await;
    leaving.commit(Offset(60));
    drop(leaving);

    let assignments = second.assigned().await;
    assert_eq!(assignments.len(), 1);
    let mut records = assignments[0].start(StartAt::CommittedOr(Edge::Earliest)).await.unwrap();
    assert_eq!(receive(&mut records, 40).await, (60..100).collect::<Vec<_>>());
    assert!(lanes[0].ending().is_none(), "the other lane goes on");
    cluster.write("orders", partitions_left(&first), 100..110, 0).await;
    assert_eq!(receive(&mut lanes[0], 10).await, (100..110).collect::<Vec<_>>());
    let counts = first.consumer.health().rebalances;
    assert_eq!((counts.assigned, counts.revoked, counts.lost), (1, 1, 0));
    first.stop().await;
    second.stop().await;
}

fn partitions_left(worker: &Worker) -> i32 {
    let health = worker.consumer.health();
    assert_eq!(health.partitions.len(), 1);
    health.partitions[0].partition.partition.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_does_not_finish_loses_its_partition_at_the_deadline() {
    let cluster = Cluster::new("orders", 2);
    let mut settings = cluster.settings("orders", &[("group.protocol", "consumer")]);
    settings.release_within = Duration::from_secs(1);
    let mut first = Worker::start(settings.clone());
    let held = first.assigned().await;
    assert_eq!(partitions(&held), BTreeSet::from([0, 1]));

    let mut second = Worker::start(settings);
    let moved = second.assigned().await;

    assert_eq!(moved.len(), 1);
    let taken = held.iter().find(|assignment| assignment.ending().is_some()).unwrap();
    assert_eq!(taken.partition(), moved[0].partition());
    let err = taken.start(StartAt::Edge(Edge::Earliest)).await.map(drop).unwrap_err();
    assert_eq!(err, PartitionError::Taken { partition: taken.partition().clone() });
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_that_wait_for_their_sink_cost_no_rebalance() {
    let cluster = Cluster::new("orders", 2);
    let properties = [QUICK[0], QUICK[1], ("max.poll.interval.ms", "4000")];
    let mut worker = Worker::start(cluster.settings("orders", &properties));
    let assignments = worker.assigned().await;
    let _stuck = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    cluster.write("orders", 0, 0..10, 0).await;

    // Longer than a consumer may go without polling.
    tokio::time::sleep(Duration::from_secs(6)).await;

    assert!(assignments.iter().all(|assignment| assignment.ending().is_none()));
    let counts = worker.consumer.health().rebalances;
    assert_eq!((counts.assigned, counts.revoked, counts.lost), (1, 0, 0));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_ends_lanes_and_takes_seconds_also_when_the_broker_is_away() {
    let cluster = Cluster::new("orders", 1);
    cluster.write("orders", 0, 0..10, 0).await;
    let mut worker = Worker::start(cluster.settings("orders", &[]));
    let assignments = worker.assigned().await;
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    receive(&mut records, 10).await;
    records.commit(Offset(10));
    let lane = tokio::spawn(async move {
        let ended = records.next_chunk().await.unwrap().is_none_or(|chunk| chunk.records.is_empty());
        drop(assignments);
        ended
    });

    cluster.mock.broker_down(1).unwrap();
    until("notice that the broker is away", || !worker.consumer.health().connected).await;
    assert!(worker.consumer.health().last_error.is_some());
    let began = Instant::now();
    // Left or not: without a broker there is nobody to tell.
    worker.consumer.stop(Duration::from_secs(2)).await;

    assert!(began.elapsed() < Duration::from_secs(8), "took {:?}", began.elapsed());
    assert!(within("the lane's end", lane).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_was_away_is_waited_for_and_nothing_is_lost() {
    let cluster = Cluster::new("orders", 1);
    cluster.write("orders", 0, 0..10, 0).await;
    let mut worker = Worker::start(cluster.settings("orders", &[]));
    let assignments = worker.assigned().await;
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    receive(&mut records, 10).await;

    cluster.mock.broker_down(1).unwrap();
    until("notice that the broker is away", || !worker.consumer.health().connected).await;
    cluster.mock.broker_up(1).unwrap();
    cluster.write("orders", 0, 10..20, 0).await;

    assert_eq!(receive(&mut records, 10).await, (10..20).collect::<Vec<_>>());
    until("notice that it is back", || worker.consumer.health().connected).await;
    worker.stop().await;
}
