//! Writes records into one topic, and knows whether all of them arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rdkafka::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, NoCustomPartitioner, Producer, ProducerContext};
use test_support::Stack;

/// For topics that are filled before anyone reads them.
const BULK: [(&str, &str); 5] = [
    ("compression.type", "lz4"),
    ("linger.ms", "20"),
    ("batch.size", "262144"),
    ("queue.buffering.max.messages", "200000"),
    ("queue.buffering.max.kbytes", "262144"),
];

/// Kafka Connect's own defaults: each record goes as soon as it can.
const PROMPT: [(&str, &str); 1] = [("linger.ms", "0")];

/// A record to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct New<'a> {
    /// The key's bytes.
    pub key: &'a [u8],
    /// The value's bytes; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Milliseconds since 1970-01-01 UTC; `None` is now.
    pub timestamp: Option<i64>,
    /// A header.
    pub header: Option<(&'a str, &'a str)>,
}

/// A producer for one topic.
pub struct Feeder {
    producer: BaseProducer<Failed>,
    failed: Failed,
    topic: String,
    sent: u64,
}

/// Counts records that were not acknowledged.
#[derive(Clone, Default)]
struct Failed(Arc<AtomicU64>);

impl ClientContext for Failed {}

impl ProducerContext<NoCustomPartitioner> for Failed {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, _: ()) {
        self.0.fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
    }
}

impl Feeder {
    /// Writes as much as it can at a time.
    pub fn bulk(stack: &Stack, topic: &str) -> Result<Feeder> {
        Feeder::new(stack, topic, &BULK)
    }

    /// Writes each record at once.
    pub fn prompt(stack: &Stack, topic: &str) -> Result<Feeder> {
        Feeder::new(stack, topic, &PROMPT)
    }

    fn new(stack: &Stack, topic: &str, properties: &[(&str, &str)]) -> Result<Feeder> {
        let failed = Failed::default();
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &stack.kafka)
            .set("partitioner", "murmur2_random")
            .set("enable.idempotence", "true");
        for (name, value) in properties {
            config.set(*name, *value);
        }
        let producer = config.create_with_context(failed.clone()).context("make a producer")?;
        Ok(Feeder { producer, failed, topic: topic.to_owned(), sent: 0 })
    }

    /// Hands a record over, waiting while too many are under way.
    pub fn send(&mut self, new: New<'_>) -> Result<()> {
        let mut record = BaseRecord::to(&self.topic).key(new.key);
        if let Some(value) = new.value {
            record = record.payload(value);
        }
        if let Some(timestamp) = new.timestamp {
            record = record.timestamp(timestamp);
        }
        if let Some((key, value)) = new.header {
            record = record.headers(OwnedHeaders::new().insert(Header { key, value: Some(value) }));
        }
        loop {
            match self.producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    self.producer.poll(Duration::from_millis(10));
                }
                Err((error, _)) => return Err(error).context("write a record"),
            }
        }
        self.sent += 1;
        if self.sent.is_multiple_of(256) {
            self.producer.poll(Duration::ZERO);
        }
        Ok(())
    }

    /// Waits until every record is acknowledged; returns how many there were.
    pub fn finish(self) -> Result<u64> {
        self.producer.flush(Duration::from_secs(120)).context("flush the producer")?;
        ensure!(self.failed.0.load(Ordering::Relaxed) == 0, "some records were not acknowledged");
        Ok(self.sent)
    }
}
