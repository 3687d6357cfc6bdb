//! The consumer on a real broker: what librdkafka's mock cluster cannot do (transactions, retention, topics that are
//! deleted and made again, fenced members).
#![allow(clippy::unwrap_used, missing_docs)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use futures::future::join_all;
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    producer::{BaseProducer, BaseRecord, Producer as _},
    topic_partition_list::{Offset as RdOffset, TopicPartitionList},
};
use sink_api::{Offset, Partition};
use sink_repair::{
    dead_letter::{self, Failure},
    decode::Stage,
    kafka::{
        Assignment, ClientSettings, Consumer, ConsumerSettings, Edge, FetchError, GroupEvent, Outgoing, PartitionError,
        Producer, Records, SendError, StartAt, TopicPartition, TopicPattern, TopicSelection, ensure_topic, fetch_one,
    },
};
use tokio::{
    sync::{mpsc, oneshot},
    task::{JoinSet, spawn_blocking},
};

const PATIENCE: Duration = Duration::from_secs(60);

fn bootstrap_servers() -> String {
    std::env::var("SINK_REPAIR_TEST_KAFKA").unwrap_or_else(|_| {
        panic!(
            "this test needs a Kafka broker: run `tests/stack/stack.sh up`, then \
             `eval \"$(tests/stack/stack.sh env)\"`"
        )
    })
}

fn client(properties: &[(&str, &str)]) -> ClientSettings {
    ClientSettings {
        bootstrap_servers: bootstrap_servers(),
        properties: properties.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
    }
}

/// A topic name that no other run uses.
fn fresh(name: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("kafka-real-{name}-{}", now.as_nanos())
}

fn admin() -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", bootstrap_servers()).create().unwrap()
}

async fn create(topic: &str, partitions: i32) {
    let wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    // A topic that was deleted just now is there for a moment longer.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let result = admin().create_topics([&wanted], &AdminOptions::new()).await.unwrap().remove(0);
        match result {
            Ok(_) => return,
            Err(err) => assert!(Instant::now() < deadline, "create {topic}: {err:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn delete(topic: &str) {
    admin().delete_topics(&[topic], &AdminOptions::new()).await.unwrap().remove(0).unwrap();
}

/// Moves the log's start, as retention does.
async fn delete_records(topic: &str, before: i64) {
    let mut list = TopicPartitionList::new();
    list.add_partition_offset(topic, 0, RdOffset::Offset(before)).unwrap();
    admin().delete_records(&list, &AdminOptions::new()).await.unwrap();
}

/// Writes records whose values are their numbers, with leading zeros.
async fn write(topic: &str, partition: i32, numbers: std::ops::Range<u64>, len: usize) {
    static PRODUCER: OnceLock<Producer> = OnceLock::new();
    let producer = PRODUCER.get_or_init(|| Producer::new(&client(&[("linger.ms", "5")])).unwrap());
    join_all(numbers.map(|number| async move {
        let number = number.to_string();
        let value = "0".repeat(len.saturating_sub(number.len())) + &number;
        let record = Outgoing {
            topic,
            partition: Some(Partition(partition)),
            value: Some(value.as_bytes()),
            ..Outgoing::default()
        };
        producer.send(&record).await.unwrap();
    }))
    .await;
}

/// Writes records in one transaction.
async fn transact(topic: &str, numbers: std::ops::Range<u64>, commit: bool) {
    let topic = topic.to_owned();
    let write = move || {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap_servers())
            .set("transactional.id", format!("{topic}-{}", numbers.start))
            .create()
            .unwrap();
        let limit = Duration::from_secs(30);
        producer.init_transactions(limit).unwrap();
        producer.begin_transaction().unwrap();
        for number in numbers {
            let value = number.to_string();
            producer.send(BaseRecord::<(), str>::to(&topic).partition(0).payload(&value)).unwrap();
        }
        producer.flush(limit).unwrap();
        if commit { producer.commit_transaction(limit).unwrap() } else { producer.abort_transaction(limit).unwrap() }
    };
    spawn_blocking(write).await.unwrap();
}

struct Worker {
    consumer: Consumer,
    events: mpsc::UnboundedReceiver<GroupEvent>,
}

impl Worker {
    fn reads(topic: &str, properties: &[(&str, &str)]) -> Worker {
        let topics = TopicSelection::Names(vec![topic.to_owned()]);
        Worker::start(ConsumerSettings::new(client(properties), format!("{topic}-group"), topics))
    }

    fn start(settings: ConsumerSettings) -> Worker {
        let _ = tracing_subscriber::fmt().with_env_filter("info").with_test_writer().try_init();
        let (sender, events) = mpsc::unbounded_channel();
        Worker { consumer: Consumer::start(settings, sender).unwrap(), events }
    }

    async fn assigned(&mut self) -> Vec<Assignment> {
        match within("an assignment", self.events.recv()).await.expect("the consumer is alive") {
            GroupEvent::Assigned(assignments) => assignments,
            GroupEvent::Fatal(err) => panic!("{err}"),
        }
    }

    async fn stop(self) {
        assert!(self.consumer.stop(Duration::from_secs(5)).await, "left the group in time");
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("no {what} within {PATIENCE:?}"))
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    within(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Receives until the lane has caught up.
async fn receive_all(records: &mut Records) -> Vec<u64> {
    let mut numbers = Vec::new();
    while !records.caught_up() {
        let chunk = within("records", records.next_chunk()).await.unwrap().expect("the partition is ours");
        numbers.extend(chunk.records.iter().map(|record| number(record.value.as_deref().unwrap())));
    }
    numbers
}

fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_catches_up_though_control_records_end_the_log_and_aborted_records_never_come() {
    let topic = fresh("transactions");
    create(&topic, 1).await;
    transact(&topic, 0..5, true).await;
    transact(&topic, 5..10, false).await;
    transact(&topic, 10..15, true).await;
    transact(&topic, 15..20, false).await;
    let mut worker = Worker::reads(&topic, &[]);
    let assignments = worker.assigned().await;
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();

    let numbers = receive_all(&mut records).await;

    assert_eq!(numbers, (0..5).chain(10..15).collect::<Vec<_>>());
    records.commit(records.position());
    let health = || worker.consumer.health().partitions.remove(0);
    until("the end offset", || health().end == Some(Offset(24))).await;
    assert_eq!((health().frontier, health().lag), (Some(Offset(17)), Some(0)), "20 records and 4 markers");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_of_nothing_but_an_aborted_transaction_is_caught_up() {
    let topic = fresh("aborted");
    create(&topic, 1).await;
    transact(&topic, 0..3, false).await;
    let mut worker = Worker::reads(&topic, &[]);
    let assignments = worker.assigned().await;
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();

    assert_eq!(receive_all(&mut records).await, Vec::<u64>::new());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frontier_before_the_logs_start_is_an_error_never_a_reset() {
    let topic = fresh("lost");
    create(&topic, 1).await;
    write(&topic, 0, 0..100, 0).await;
    delete_records(&topic, 60).await;
    let mut worker = Worker::reads(&topic, &[]);
    let assignments = worker.assigned().await;

    let err = assignments[0].start(StartAt::Offset(Offset(59))).await.map(drop).unwrap_err();

    let partition = TopicPartition::new(&topic, 0);
    assert_eq!(err, PartitionError::RecordsLost { partition, wanted: Offset(59), log_start: Offset(60) });
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    assert_eq!(receive_all(&mut records).await, (60..100).collect::<Vec<_>>());
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_that_overtakes_a_slow_lane_ends_it_with_what_was_lost() {
    let topic = fresh("overtaken");
    create(&topic, 1).await;
    write(&topic, 0, 0..1000, 4000).await;
    let topics = TopicSelection::Names(vec![topic.clone()]);
    let mut settings = ConsumerSettings::new(client(&[]), format!("{topic}-group"), topics);
    settings.memory = 100_000;
    let mut worker = Worker::start(settings);
    let assignments = worker.assigned().await;
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    until("pause of the lane", || worker.consumer.health().partitions[0].paused).await;

    delete_records(&topic, 900).await;
    let mut received = Vec::new();
    let err = loop {
        match within("the loss", records.next_chunk()).await {
            Ok(chunk) => {
                let chunk = chunk.expect("the partition is ours");
                received.extend(chunk.records.iter().map(|record| number(record.value.as_deref().unwrap())));
            }
            Err(err) => break err,
        }
    };

    assert_eq!(received, (0..received.len() as u64).collect::<Vec<_>>(), "what came is whole");
    let partition = TopicPartition::new(&topic, 0);
    assert_eq!(err, PartitionError::RecordsLost { partition, wanted: records.position(), log_start: Offset(900) });
    let again = records.next_chunk().await.map(drop).unwrap_err();
    assert_eq!(again, err, "it stays so");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_made_anew_ends_its_lane() {
    let topic = fresh("anew");
    create(&topic, 1).await;
    write(&topic, 0, 0..10, 0).await;
    let mut worker = Worker::reads(&topic, &[]);
    let assignments = worker.assigned().await;
    let first = assignments[0].describe().await.unwrap();
    assert_eq!((first.topic.as_str(), first.partitions), (topic.as_str(), 1));
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    receive_all(&mut records).await;

    delete(&topic).await;
    create(&topic, 1).await;
    // Longer than the old one, so that the lane's position is inside it.
    write(&topic, 0, 100..150, 0).await;
    let ended = within("the lane's end", async {
        loop {
            match records.next_chunk().await {
                Ok(Some(chunk)) => assert!(chunk.records.is_empty(), "{:?} came from the new one", chunk.records[0]),
                ended => return ended,
            }
        }
    })
    .await;

    match ended {
        Err(err) => {
            let PartitionError::Recreated { was, now, .. } = &err else { panic!("{err:?}") };
            assert_eq!((*was, first.id != *now), (first.id, true));
            assert_eq!(records.next_chunk().await.map(drop).unwrap_err(), err, "it stays so");
        }
        Ok(None) => {
            drop((records, assignments));
            let again = worker.assigned().await;
            assert_ne!(again[0].describe().await.unwrap().id, first.id);
        }
        other => panic!("{other:?}"),
    }
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_that_do_not_exist_are_waited_for_visibly() {
    let topic = fresh("later");
    let mut worker = Worker::reads(&topic, &[]);
    until("the missing topic's name", || worker.consumer.health().missing_topics == [topic.clone()]).await;

    create(&topic, 2).await;

    assert_eq!(worker.assigned().await.len(), 2);
    until("its absence", || worker.consumer.health().missing_topics.is_empty()).await;
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pattern_finds_topics_that_appear_later_and_leaves_out_what_is_excepted() {
    let stem = fresh("pattern");
    let name = |suffix: &str| format!("{stem}.{suffix}");
    create(&name("a"), 1).await;
    create(&name("dead"), 1).await;
    let pattern = TopicPattern::new(&format!("{stem}\\..*"), vec![name("dead")]).unwrap();
    let mut worker =
        Worker::start(ConsumerSettings::new(client(&[]), format!("{stem}-group"), TopicSelection::Pattern(pattern)));
    let names = |assignments: &[Assignment]| -> Vec<String> {
        assignments.iter().map(|assignment| assignment.partition().to_string()).collect()
    };
    let first = worker.assigned().await;
    assert_eq!(names(&first), [format!("{}-0", name("a"))]);

    create(&name("b"), 1).await;

    let second = worker.assigned().await;
    assert_eq!(names(&second), [format!("{}-0", name("b"))]);
    assert!(first[0].ending().is_none(), "the first one goes on");
    worker.stop().await;
}

/// What the lanes of all workers have made durable: the frontier of each partition, and the numbers before it.
#[derive(Default)]
struct Sink {
    done: Mutex<BTreeMap<i32, (Offset, Vec<u64>)>>,
}

/// Applies a partition until it is taken, in units of one chunk.
async fn lane(assignment: Assignment, sink: Arc<Sink>) {
    let partition = assignment.partition().partition.0;
    let frontier = sink.done.lock().unwrap().get(&partition).map(|(frontier, _)| *frontier);
    let start = frontier.map_or(StartAt::Edge(Edge::Earliest), StartAt::Offset);
    let Ok(mut records) = assignment.start(start).await else { return };
    while let Some(chunk) = records.next_chunk().await.unwrap() {
        // A unit of work that takes a while, and ends also when the partition is being taken.
        tokio::time::sleep(Duration::from_millis(5)).await;
        {
            let mut done = sink.done.lock().unwrap();
            let (frontier, numbers) = done.entry(partition).or_insert((records.start_offset(), Vec::new()));
            numbers.extend(chunk.records.iter().map(|record| number(record.value.as_deref().unwrap())));
            *frontier = records.position();
        }
        records.commit(records.position());
    }
}

async fn work(mut worker: Worker, sink: Arc<Sink>, mut stop: oneshot::Receiver<()>) {
    let mut lanes = JoinSet::new();
    loop {
        tokio::select! {
            // First: a worker that stops takes no more partitions.
            biased;
            _ = &mut stop => break,
            event = worker.events.recv() => match event.unwrap() {
                GroupEvent::Assigned(assignments) => {
                    for assignment in assignments {
                        lanes.spawn(lane(assignment, Arc::clone(&sink)));
                    }
                }
                GroupEvent::Fatal(err) => panic!("{err}"),
            },
        }
    }
    worker.stop().await;
    while let Some(lane) = lanes.join_next().await {
        lane.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_come_and_go_lose_nothing_and_do_nothing_twice_in_the_classic_protocol() {
    workers_come_and_go("classic").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_that_come_and_go_lose_nothing_and_do_nothing_twice_in_the_consumer_protocol() {
    workers_come_and_go("consumer").await;
}

async fn workers_come_and_go(protocol: &str) {
    let topic = fresh(protocol);
    create(&topic, 4).await;
    let sink = Arc::new(Sink::default());
    let writer = {
        let topic = topic.clone();
        tokio::spawn(async move {
            for batch in 0..60 {
                let numbers = batch * 50..(batch + 1) * 50;
                join_all((0..4).map(|partition| write(&topic, partition, numbers.clone(), 100))).await;
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
        })
    };

    let mut workers = Vec::new();
    for _ in 0..3 {
        let (stop, stopped) = oneshot::channel();
        let worker = Worker::reads(&topic, &[("group.protocol", protocol)]);
        workers.push((stop, tokio::spawn(work(worker, Arc::clone(&sink), stopped))));
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    for (stop, worker) in workers.drain(..2) {
        stop.send(()).unwrap();
        within("the worker's end", worker).await.unwrap();
    }
    writer.await.unwrap();
    until("all records", || {
        let done = sink.done.lock().unwrap();
        done.len() == 4 && done.values().all(|(frontier, _)| *frontier >= Offset(3000))
    })
    .await;
    let (stop, worker) = workers.remove(0);
    stop.send(()).unwrap();
    within("the worker's end", worker).await.unwrap();

    for (partition, (_, numbers)) in &*sink.done.lock().unwrap() {
        assert_eq!(*numbers, (0..3000).collect::<Vec<_>>(), "{protocol}, partition {partition}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stops_leaves_its_partitions_to_the_next_at_once() {
    let topic = fresh("leave");
    create(&topic, 1).await;
    write(&topic, 0, 0..10, 0).await;
    let mut first = Worker::reads(&topic, &[]);
    let assignments = first.assigned().await;
    let mut records = assignments[0].start(StartAt::Edge(Edge::Earliest)).await.unwrap();
    receive_all(&mut records).await;
    records.commit(Offset(7));
    drop((records, assignments));
    first.stop().await;

    let began = Instant::now();
    let mut second = Worker::reads(&topic, &[]);
    let assignments = second.assigned().await;
    assert!(began.elapsed() < Duration::from_secs(20), "a session of 45 s was not waited for: {:?}", began.elapsed());
    let mut records = assignments[0].start(StartAt::CommittedOr(Edge::Earliest)).await.unwrap();
    assert_eq!(receive_all(&mut records).await, [7, 8, 9]);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_moves_with_the_frontier_of_the_lane_that_gives_it_up() {
    for protocol in ["classic", "consumer"] {
        let topic = fresh(&format!("moves-{protocol}"));
        create(&topic, 2).await;
        for partition in 0..2 {
            write(&topic, partition, 0..10, 0).await;
        }
        let mut first = Worker::reads(&topic, &[("group.protocol", protocol)]);
        let mut lanes = Vec::new();
        while lanes.len() < 2 {
            for assignment in first.assigned().await {
                let mut records = assignment.start(StartAt::CommittedOr(Edge::Earliest)).await.unwrap();
                receive_all(&mut records).await;
                lanes.push(records);
            }
        }

        let mut second = Worker::reads(&topic, &[("group.protocol", protocol)]);
        until("revocation", || lanes.iter().any(|records| records.ending().is_some())).await;
        let moving = lanes.iter().position(|records| records.ending().is_some()).unwrap();
        let mut leaving = lanes.remove(moving);
        assert!(leaving.next_chunk().await.unwrap().is_none(), "{protocol}: a lane begins nothing new");
        // Its unit of work in hand, and then its last word.
        tokio::time::sleep(Duration::from_millis(300)).await;
        leaving.commit(Offset(7));
        drop(leaving);

        let assignments = second.assigned().await;
        let mut records = assignments[0].start(StartAt::CommittedOr(Edge::Earliest)).await.unwrap();
        assert_eq!(receive_all(&mut records).await, [7, 8, 9], "{protocol}");
        assert!(lanes[0].ending().is_none(), "{protocol}: the other lane goes on");
        first.stop().await;
        second.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_name_another_takes_ends_with_the_reason() {
    let topic = fresh("fenced");
    create(&topic, 1).await;
    let properties = [("group.instance.id", "only"), ("session.timeout.ms", "6000")];
    let mut first = Worker::reads(&topic, &properties);
    let assignments = first.assigned().await;

    let mut second = Worker::reads(&topic, &properties);
    let fatal = within("the end", async {
        loop {
            match first.events.recv().await.expect("an event") {
                GroupEvent::Fatal(err) => return err,
                GroupEvent::Assigned(_) => {}
            }
        }
    })
    .await;

    assert!(fatal.message.starts_with("the consumer group: "), "{fatal}");
    assert_eq!(fatal.hint, Some("two workers have the same group.instance.id: give each its own"));
    assert!(assignments[0].ending().unwrap().lost);
    second.assigned().await;
    second.stop().await;
    first.consumer.stop(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_retention_took_is_gone_and_is_not_waited_for() {
    let topic = fresh("gone");
    create(&topic, 1).await;
    write(&topic, 0, 0..10, 0).await;
    delete_records(&topic, 5).await;
    let partition = TopicPartition::new(&topic, 0);

    let gone = fetch_one(&client(&[]), "any", &partition, Offset(4), PATIENCE).await;
    let left = fetch_one(&client(&[]), "any", &partition, Offset(5), PATIENCE).await;

    assert!(matches!(gone, Err(FetchError::Gone { .. })), "{gone:?}");
    assert_eq!(left.unwrap().value.as_deref(), Some(b"5".as_slice()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_is_written_as_connect_does_and_shortened_when_it_is_too_large() {
    let (topic, queue) = (fresh("letters"), fresh("dead"));
    create(&topic, 1).await;
    ensure_topic(&client(&[]), &queue, Some(1)).await.unwrap();
    ensure_topic(&client(&[]), &queue, Some(1)).await.expect("one that exists is fine");
    let producer = Producer::new(&client(&[])).unwrap();
    let headers = vec![("own".to_owned(), Some([0xff, 0x00].into())), ("own".to_owned(), None)];
    let original = Outgoing {
        topic: &topic,
        key: Some(b"{\"id\":1}"),
        // Not older than the queue's retention.
        timestamp: Some(now_ms() - 3_600_000),
        headers: &headers,
        ..Outgoing::default()
    };
    let (_, offset) = producer.send(&original).await.unwrap();
    let source = TopicPartition::new(&topic, 0);
    let raw = fetch_one(&client(&[]), "any", &source, offset, PATIENCE).await.unwrap();

    let trace = "x".repeat(2_000_000);
    let failure = Failure {
        topic: &topic,
        partition: Partition(0),
        offset,
        worker: "orders",
        stage: Stage::TaskPut,
        class: "",
        exception: "java.sql.SQLException",
        message: Some("value too long"),
        trace: &trace,
    };
    let headers = dead_letter::headers(&raw, &failure);
    let letter = |headers| Outgoing {
        topic: &queue,
        partition: None,
        key: raw.key.as_deref(),
        value: raw.value.as_deref(),
        timestamp: raw.timestamp,
        headers,
    };
    let too_large = producer.send(&letter(&headers)).await.unwrap_err();
    let SendError::TooLarge { bytes, .. } = too_large else { panic!("{too_large}") };
    let mut shorter = headers.clone();
    assert!(dead_letter::shorten(&mut shorter, bytes - 500_000) >= bytes - 500_000);
    let place = producer.send(&letter(&shorter)).await.unwrap();

    assert_eq!(place, (Partition(0), Offset(0)));
    let parked = fetch_one(&client(&[]), "any", &TopicPartition::new(&queue, 0), Offset(0), PATIENCE).await.unwrap();
    assert_eq!((parked.key, parked.value, parked.timestamp), (raw.key.clone(), None, original.timestamp));
    assert_eq!(parked.headers, shorter);
    assert_eq!(parked.headers.len(), 12);
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}
