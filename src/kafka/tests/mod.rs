//! The consumer against librdkafka's mock cluster: assignment, rebalance, back-pressure, commits. What the mock cannot
//! do (transactions, retention, topics made anew) is in `tests/kafka_real.rs`.
#![allow(clippy::unwrap_used)]

mod group;
mod lanes;
mod writing;

use std::{collections::BTreeSet, time::Duration};

use rdkafka::{mocking::MockCluster, producer::DefaultProducerContext};
use sink_api::{Offset, Partition};
use tokio::sync::mpsc;

use super::*;

/// Longer than the mock's delay before a group's first assignment (3 s), with room for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

struct Cluster {
    mock: MockCluster<'static, DefaultProducerContext>,
    producer: Producer,
}

impl Cluster {
    fn new(topic: &str, partitions: i32) -> Cluster {
        // Shown for tests that fail.
        let _ = tracing_subscriber::fmt().with_env_filter("debug").with_test_writer().try_init();
        let mock = MockCluster::new(1).unwrap();
        mock.create_topic(topic, partitions, 1).unwrap();
        let producer = Producer::new(&client(&mock, &[])).unwrap();
        Cluster { mock, producer }
    }

    fn settings(&self, topic: &str, properties: &[(&str, &str)]) -> ConsumerSettings {
        let topics = TopicSelection::Names(vec![topic.to_owned()]);
        ConsumerSettings::new(client(&self.mock, properties), "repair", topics)
    }

    /// Writes records whose values are their numbers, `padding` bytes long.
    async fn write(&self, topic: &str, partition: i32, numbers: std::ops::Range<u64>, padding: usize) {
        let sends = numbers.map(|number| {
            let number = number.to_string();
            let value = "0".repeat(padding.saturating_sub(number.len())) + &number;
            async move {
                let record = Outgoing {
                    topic,
                    partition: Some(Partition(partition)),
                    value: Some(value.as_bytes()),
                    ..Outgoing::default()
                };
                self.producer.send(&record).await.unwrap();
            }
        });
        futures::future::join_all(sends).await;
    }
}

fn client(mock: &MockCluster<'static, DefaultProducerContext>, properties: &[(&str, &str)]) -> ClientSettings {
    ClientSettings {
        bootstrap_servers: mock.bootstrap_servers(),
        properties: properties.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
    }
}

/// A worker of the group, with its assignments by partition.
struct Worker {
    consumer: Consumer,
    events: mpsc::UnboundedReceiver<GroupEvent>,
}

impl Worker {
    fn start(settings: ConsumerSettings) -> Worker {
        let (sender, events) = mpsc::unbounded_channel();
        Worker { consumer: Consumer::start(settings, sender).unwrap(), events }
    }

    /// Waits for the next assignments, in order of their partitions.
    async fn assigned(&mut self) -> Vec<Assignment> {
        let event = within("an assignment", self.events.recv()).await.expect("the consumer is alive");
        let GroupEvent::Assigned(mut assignments) = event else { panic!("a fatal error in place of an assignment") };
        assignments.sort_by_key(|assignment| assignment.partition().clone());
        assignments
    }

    async fn stop(self) {
        assert!(self.consumer.stop(Duration::from_secs(2)).await, "left the group in time");
    }
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("no {what} within {PATIENCE:?}"))
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    within(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Receives until `count` records have come; returns their numbers.
async fn receive(records: &mut Records, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let chunk = within("records", records.next_chunk()).await.unwrap().expect("the partition is ours");
        numbers.extend(numbers_of(&chunk));
    }
    numbers
}

fn numbers_of(chunk: &Chunk) -> Vec<u64> {
    let number = |value: &[u8]| std::str::from_utf8(value).unwrap().parse().unwrap();
    chunk.records.iter().map(|record| number(record.value.as_deref().unwrap())).collect()
}

fn partitions(assignments: &[Assignment]) -> BTreeSet<i32> {
    assignments.iter().map(|assignment| assignment.partition().partition.0).collect()
}
