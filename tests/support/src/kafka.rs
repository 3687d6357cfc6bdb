//! Topics and records.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};

use crate::Stack;

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// Milliseconds since 1970-01-01 UTC.
    pub timestamp: Option<i64>,
    /// The key's bytes.
    pub key: Option<Vec<u8>>,
    /// The value's bytes; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// All headers, in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Read {
    /// Returns the key as text, for messages and comparisons.
    pub fn key_text(&self) -> Option<String> {
        self.key.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the value as text.
    pub fn value_text(&self) -> Option<String> {
        self.value.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the text of the last header of this name.
    pub fn header(&self, name: &str) -> Option<String> {
        let (_, value) = self.headers.iter().rev().find(|(header, _)| header == name)?;
        value.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// A record to write.
#[derive(Clone, Debug, Default)]
pub struct New {
    /// The partition; `None` lets the key decide, by murmur2 as Kafka Connect does.
    pub partition: Option<i32>,
    /// Milliseconds since 1970-01-01 UTC; `None` is now.
    pub timestamp: Option<i64>,
    /// The key's bytes.
    pub key: Option<Vec<u8>>,
    /// The value's bytes; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// The headers, in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl New {
    /// Returns a record of a key and a value, both text.
    pub fn text(key: &str, value: &str) -> New {
        New { key: Some(key.into()), value: Some(value.into()), ..New::default() }
    }

    /// Returns a tombstone.
    pub fn tombstone(key: &str) -> New {
        New { key: Some(key.into()), ..New::default() }
    }

    /// Adds a header.
    pub fn header(mut self, name: &str, value: &str) -> New {
        self.headers.push((name.into(), Some(value.into())));
        self
    }
}

/// Long enough for a broker that was just started again.
const LIMIT: Duration = Duration::from_secs(30);

fn config(stack: &Stack) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &stack.kafka);
    config
}

/// Makes a topic with these properties; it must not be there yet.
pub async fn create_topic(stack: &Stack, topic: &str, partitions: i32, properties: &[(&str, &str)]) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = config(stack).create()?;
    let mut new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    for (name, value) in properties {
        new = new.set(name, value);
    }
    let options = AdminOptions::new().operation_timeout(Some(LIMIT));
    for result in admin.create_topics([&new], &options).await.context("create a topic")? {
        result.map_err(|(topic, code)| anyhow!("create topic {topic}: {code}"))?;
    }
    Ok(())
}

/// Adds partitions to a topic, so that it has so many.
pub async fn add_partitions(stack: &Stack, topic: &str, count: usize) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = config(stack).create()?;
    let options = AdminOptions::new().operation_timeout(Some(LIMIT));
    for result in
        admin.create_partitions([&NewPartitions::new(topic, count)], &options).await.context("add partitions")?
    {
        result.map_err(|(topic, code)| anyhow!("add partitions to {topic}: {code}"))?;
    }
    Ok(())
}

/// Sets a property of a topic, and those that were set before back to the broker's.
pub async fn set_topic(stack: &Stack, topic: &str, name: &str, value: &str) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = config(stack).create()?;
    let wanted = AlterConfig::new(ResourceSpecifier::Topic(topic)).set(name, value);
    let options = AdminOptions::new().request_timeout(Some(LIMIT));
    for result in admin.alter_configs([&wanted], &options).await.context("configure a topic")? {
        result.map_err(|(resource, code)| anyhow!("configure {resource:?}: {code}"))?;
    }
    Ok(())
}

/// Deletes a topic and waits until no broker knows it.
pub async fn delete_topic(stack: &Stack, topic: &str) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = config(stack).create()?;
    let options = AdminOptions::new().operation_timeout(Some(LIMIT));
    for result in admin.delete_topics(&[topic], &options).await.context("delete a topic")? {
        result.map_err(|(topic, code)| anyhow!("delete topic {topic}: {code}"))?;
    }
    crate::until(&format!("topic {topic} is gone"), LIMIT, async || {
        let known = admin.inner().fetch_metadata(Some(topic), LIMIT)?;
        let gone = known.topics().iter().all(|topic| topic.error().is_some());
        Ok(gone.then_some(()))
    })
    .await
}

/// Deletes the records before an offset, as retention does.
pub async fn delete_records(stack: &Stack, topic: &str, partition: i32, before: i64) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> = config(stack).create()?;
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(topic, partition, Offset::Offset(before))?;
    let options = AdminOptions::new().operation_timeout(Some(LIMIT));
    let deleted = admin.delete_records(&offsets, &options).await.context("delete records")?;
    for element in deleted.elements() {
        element.error().map_err(|error| anyhow!("delete records of {topic}: {error}"))?;
    }
    Ok(())
}

/// Writes records and waits for all acknowledgements; returns partition and offset of each.
pub async fn write(stack: &Stack, topic: &str, records: Vec<New>) -> Result<Vec<(i32, i64)>> {
    let producer: FutureProducer = config(stack)
        .set("partitioner", "murmur2_random")
        .set("enable.idempotence", "true")
        // What a topic takes is the broker's to say.
        .set("message.max.bytes", "16777216")
        .create()
        .context("make a producer")?;
    let mut sent = Vec::with_capacity(records.len());
    for new in &records {
        let headers = new.headers.iter().fold(OwnedHeaders::new(), |headers, (name, value)| {
            headers.insert(Header { key: name, value: value.as_ref() })
        });
        let record = FutureRecord::<[u8], [u8]> {
            topic,
            partition: new.partition,
            payload: new.value.as_deref(),
            key: new.key.as_deref(),
            timestamp: new.timestamp,
            headers: Some(headers),
        };
        sent.push(producer.send_result(record).map_err(|(error, _)| anyhow!("write to {topic}: {error}"))?);
    }
    let mut places = Vec::with_capacity(sent.len());
    for delivery in sent {
        let delivery = delivery.await.context("the producer is gone")?;
        let delivery = delivery.map_err(|(error, _)| anyhow!("write to {topic}: {error}"))?;
        places.push((delivery.partition, delivery.offset));
    }
    Ok(places)
}

/// Returns the next offset to be written, per partition.
pub async fn end_offsets(stack: &Stack, topic: &str) -> Result<Vec<i64>> {
    let consumer = reader(stack)?;
    let topic = topic.to_owned();
    tokio::task::spawn_blocking(move || ends(&consumer, &topic)).await?
}

/// Reads a topic from its start to the end that it has now; ordered by partition, then offset. Records of aborted
/// transactions are not there. A topic that is not there yet holds none: Connect makes a topic with its first record.
pub async fn read_all(stack: &Stack, topic: &str) -> Result<Vec<Read>> {
    let consumer = reader(stack)?;
    let topic = topic.to_owned();
    tokio::task::spawn_blocking(move || read_to_end(&consumer, &topic)).await?
}

fn reader(stack: &Stack) -> Result<BaseConsumer> {
    config(stack)
        .set("group.id", "test-support-reads-without-a-group")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed")
        .create()
        .context("make a consumer")
}

fn partitions(consumer: &BaseConsumer, topic: &str) -> Result<usize> {
    let metadata = consumer.fetch_metadata(Some(topic), LIMIT).context("ask for a topic's partitions")?;
    Ok(metadata.topics().iter().find(|known| known.name() == topic).map_or(0, |known| known.partitions().len()))
}

fn ends(consumer: &BaseConsumer, topic: &str) -> Result<Vec<i64>> {
    let partitions = partitions(consumer, topic)?;
    if partitions == 0 {
        return Err(anyhow!("topic {topic} is not there"));
    }
    (0..i32::try_from(partitions)?)
        .map(|partition| Ok(consumer.fetch_watermarks(topic, partition, LIMIT).context("ask for the end offset")?.1))
        .collect()
}

fn read_to_end(consumer: &BaseConsumer, topic: &str) -> Result<Vec<Read>> {
    // The end of a partition is told by the consumer: the last record is not at `end - 1` behind a transaction or after
    // compaction.
    let mut open: Vec<i32> = (0..i32::try_from(partitions(consumer, topic)?)?).collect();
    let mut from = TopicPartitionList::new();
    for &partition in &open {
        from.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&from)?;
    let mut read = Vec::new();
    while !open.is_empty() {
        match consumer.poll(LIMIT).with_context(|| format!("no record and no end of {topic}"))? {
            Ok(message) => read.push(owned(&message)),
            Err(KafkaError::PartitionEOF(ended)) => open.retain(|&partition| partition != ended),
            Err(error) => return Err(error).with_context(|| format!("read {topic}")),
        }
    }
    read.sort_by_key(|record| (record.partition, record.offset));
    Ok(read)
}

fn owned(message: &BorrowedMessage<'_>) -> Read {
    let headers = message.headers().map(|headers| {
        headers.iter().map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect()
    });
    Read {
        partition: message.partition(),
        offset: message.offset(),
        timestamp: message.timestamp().to_millis(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers.unwrap_or_default(),
    }
}
