//! What a lane gets, and when.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_record_comes_once_and_in_order_for_both_group_protocols() {
    let cluster = Cluster::new("orders", 3);
    for partition in 0..3 {
        cluster.write("orders", partition, 0..1000, 0).await;
    }

    for protocol in ["classic", "consumer"] {
        let mut settings = cluster.settings("orders", &[("group.protocol", protocol)]);
        settings.group = protocol.into();
        let mut worker = Worker::start(settings);
        for assignment in worker.assigned().await {
            let mut records = assignment.start(StartAt::Edge(Edge::Earliest)).await.unwrap();

            assert_eq!(receive(&mut records, 1000).await, (0..1000).collect::<Vec<_>>(), "{protocol}");
            assert_eq!((records.position(), records.caught_up()), (Offset(1000), true));
        }
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_fetched_before_a_lane_has_started_and_others_do_not_wait_for_it() {
    let cluster = Cluster::new("orders", 2);
    for partition in 0..2 {
        cluster.write("orders", partition, 0..100, 0).await;
    }
    let mut worker = Worker::start(cluster.settings("orders", &[]));
    let assignments = worker.assigned().await;

    let mut first = assignments[0].start(StartAt::Offset(Offset(10))).await.unwrap();
    assert_eq!(receive(&mut first, 90).await, (10..100).collect::<Vec<_>>());
    let health = worker.consumer.health();
    assert_eq!(health.partitions[1].position, None, "the second lane has not said where to start");
    assert!(health.partitions[1].lag.is_none());

    let mut second = assignments[1].start(StartAt::Offset(Offset(99))).await.unwrap();
    assert_eq!(receive(&mut second, 1).await, [99]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_lane_holds_up_neither_the_others_nor_the_poll_thread_and_loses_nothing() {
    let cluster = Cluster::new("orders", 2);
    let mut settings = cluster.settings("orders", &[]);
    settings.memory = 200_000;
    let mut worker = Worker::start(settings);
    let assignments = worker.assigned().await;
    let mut stuck = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    let mut running = assignments[1].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    for partition in 0..2 {
        cluster.write("orders", partition, 0..800, 2000).await;
    }

    // The stuck lane never receives, and its records alone use up the budget.
    until("pause of the stuck lane", || worker.consumer.health().partitions[0].paused).await;
    let health = worker.consumer.health();
    // Beyond the limit goes one record for each lane.
    assert!(health.memory_used <= health.memory_limit + 2 * 2200, "{} bytes held", health.memory_used);
    assert_eq!(receive(&mut running, 800).await, (0..800).collect::<Vec<_>>());
    assert!(worker.consumer.health().last_poll.unwrap() < Duration::from_secs(1));

    assert_eq!(receive(&mut stuck, 800).await, (0..800).collect::<Vec<_>>());
    until("end of the pause", || !worker.consumer.health().partitions[0].paused).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_count_against_the_budget_until_their_effect_is_durable() {
    let cluster = Cluster::new("orders", 1);
    let mut settings = cluster.settings("orders", &[]);
    settings.memory = 50_000;
    let mut worker = Worker::start(settings);
    let assignments = worker.assigned().await;
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    cluster.write("orders", 0, 0..200, 1000).await;

    let mut held = Vec::new();
    let mut received = 0;
    // However long the first ones take on a busy machine.
    while received < 30 {
        let chunk = within("records", records.next_chunk()).await.unwrap().expect("the partition is ours");
        received += chunk.records.len();
        held.push(chunk);
    }
    while let Ok(chunk) = tokio::time::timeout(Duration::from_millis(500), records.next_chunk()).await {
        held.extend(chunk.unwrap());
    }

    let received: usize = held.iter().map(|chunk| chunk.records.len()).sum();
    assert!((30..=50).contains(&received), "{received} records of about 1,100 bytes fill 50,000 bytes");
    held.clear();
    assert_eq!(receive(&mut records, 200 - received).await.last(), Some(&199));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_larger_than_the_budget_passes_when_its_lane_holds_nothing() {
    let cluster = Cluster::new("orders", 1);
    let mut settings = cluster.settings("orders", &[]);
    settings.memory = 1000;
    let mut worker = Worker::start(settings);
    let assignments = worker.assigned().await;
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();

    cluster.write("orders", 0, 0..5, 100_000).await;

    assert_eq!(receive(&mut records, 5).await, [0, 1, 2, 3, 4]);
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_partition_is_caught_up_and_has_no_lag() {
    let cluster = Cluster::new("orders", 1);
    let mut worker = Worker::start(cluster.settings("orders", &[]));
    let assignments = worker.assigned().await;

    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();

    assert!(records.caught_up());
    let chunk = within("the end", records.next_chunk()).await.unwrap().unwrap();
    assert_eq!((chunk.records.len(), chunk.at_end), (0, true));
    assert_eq!(worker.consumer.health().partitions[0].lag, Some(0));
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lag_counts_from_the_frontier_also_while_the_lane_does_nothing() {
    let cluster = Cluster::new("orders", 1);
    cluster.write("orders", 0, 0..50, 0).await;
    let mut worker = Worker::start(cluster.settings("orders", &[]));
    let assignments = worker.assigned().await;
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    receive(&mut records, 50).await;

    records.commit(Offset(20));
    until("lag of 30", || worker.consumer.health().partitions[0].lag == Some(30)).await;
    cluster.write("orders", 0, 50..60, 0).await;
    until("lag of 40", || worker.consumer.health().partitions[0].lag == Some(40)).await;

    receive(&mut records, 10).await;
    records.commit(Offset(60));
    until("no lag", || worker.consumer.health().partitions[0].lag == Some(0)).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_starts_again_gets_the_records_from_there() {
    let cluster = Cluster::new("orders", 1);
    cluster.write("orders", 0, 0..100, 0).await;
    let mut worker = Worker::start(cluster.settings("orders", &[]));
    let assignments = worker.assigned().await;
    let mut first = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    receive(&mut first, 100).await;

    let mut again = assignments[0].start(StartAt::Offset(Offset(40))).await.unwrap();

    assert_eq!(receive(&mut again, 60).await, (40..100).collect::<Vec<_>>());
    while let Some(chunk) = within("the end of the first start", first.next_chunk()).await.unwrap() {
        assert!(chunk.records.is_empty(), "the earlier start gets no records any more");
    }
    worker.stop().await;
}

/// librdkafka keeps a pause over the end of an assignment. So it is when a partition goes to another worker and comes
/// back.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_was_paused_gets_records_when_it_starts_again() {
    let cluster = Cluster::new("orders", 1);
    let mut settings = cluster.settings("orders", &[]);
    settings.memory = 200_000;
    let mut worker = Worker::start(settings);
    let assignments = worker.assigned().await;
    let mut full = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    cluster.write("orders", 0, 0..400, 2000).await;
    until("pause of the full lane", || worker.consumer.health().partitions[0].paused).await;

    let mut again = assignments[0].start(StartAt::Offset(Offset(40))).await.unwrap();
    // What the first start was given counts until it is let go.
    while full.next_chunk().await.unwrap().is_some() {}
    drop(full);

    assert_eq!(receive(&mut again, 360).await, (40..400).collect::<Vec<_>>());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offset_beyond_the_end_is_an_error_with_both_offsets() {
    let cluster = Cluster::new("orders", 1);
    cluster.write("orders", 0, 0..10, 0).await;
    let mut worker = Worker::start(cluster.settings("orders", &[]));
    let assignments = worker.assigned().await;

    let err = assignments[0].start(StartAt::Offset(Offset(11))).await.map(drop).unwrap_err();

    let partition = TopicPartition::new("orders", 0);
    assert_eq!(err, PartitionError::BeyondEnd { partition, wanted: Offset(11), end: Offset(10) });
    let mut records = assignments[0].start(StartAt::Offset(Offset(9))).await.unwrap();
    assert_eq!(receive(&mut records, 1).await, [9], "the assignment can still be started elsewhere");
    worker.stop().await;
}
