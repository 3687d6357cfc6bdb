//! Writing to Kafka: dead letters and repair requests.

use std::time::Duration;

use rdkafka::{
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    config::FromClientConfigAndContext,
    error::{KafkaError, RDKafkaErrorCode},
    message::{Header, OwnedHeaders},
    producer::{FutureProducer, FutureRecord, Producer as _},
};
use sink_api::{Offset, Partition};

use super::{
    context::QuietContext,
    error::FatalError,
    settings::{ClientSettings, SettingsError, refused},
};

/// How long creating a topic may take.
const CREATE_WITHIN: Duration = Duration::from_secs(15);

/// A record to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition; `None` leaves it to Kafka's own choice by key (murmur2, any partition without a key).
    pub partition: Option<Partition>,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
    /// Milliseconds since 1970-01-01 UTC; `None` for now.
    pub timestamp: Option<i64>,
    /// The headers, in order.
    pub headers: &'a [(String, Option<Box<[u8]>>)],
}

/// Why a record was not written, or may not have been.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// It is larger than the topic takes: a smaller one may pass.
    #[error("write to {topic}: the record of {bytes} bytes is larger than the topic takes")]
    TooLarge {
        /// The topic.
        topic: String,
        /// Key, value and headers.
        bytes: usize,
    },
    /// It was not acknowledged; asking again may help, and may write it twice.
    #[error("write to {topic}: {why}")]
    Unacknowledged {
        /// The topic.
        topic: String,
        /// What librdkafka says.
        why: String,
    },
    /// The producer is unusable: a new one is needed.
    #[error("write to {topic}: {error}")]
    Fatal {
        /// The topic.
        topic: String,
        /// What happened.
        error: FatalError,
    },
}

/// A producer whose records are on every replica once it says so.
pub struct Producer {
    inner: FutureProducer<QuietContext>,
}

impl Producer {
    /// Makes a producer. It connects when it is first used.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub fn new(settings: &ClientSettings) -> Result<Producer, SettingsError> {
        let inner = FutureProducer::from_config_and_context(&settings.producer()?, QuietContext)
            .map_err(|err| refused(&err))?;
        Ok(Producer { inner })
    }

    /// Writes a record and waits for the acknowledgement of all replicas. Returns where it was written.
    ///
    /// # Errors
    /// By what can be done about it.
    pub async fn send(&self, record: &Outgoing<'_>) -> Result<(Partition, Offset), SendError> {
        let mut outgoing = FutureRecord::<[u8], [u8]>::to(record.topic);
        outgoing.partition = record.partition.map(|partition| partition.0);
        outgoing.key = record.key;
        outgoing.payload = record.value;
        outgoing.timestamp = record.timestamp;
        if !record.headers.is_empty() {
            let headers = OwnedHeaders::new_with_capacity(record.headers.len());
            outgoing.headers =
                Some(record.headers.iter().fold(headers, |headers, (name, value)| {
                    headers.insert(Header { key: name, value: value.as_deref() })
                }));
        }
        match self.inner.send(outgoing, Duration::ZERO).await {
            Ok(delivery) => Ok((Partition(delivery.partition), Offset(delivery.offset))),
            Err((err, _)) => Err(self.error(record, &err)),
        }
    }

    fn error(&self, record: &Outgoing<'_>, err: &KafkaError) -> SendError {
        let topic = record.topic.to_owned();
        if let Some((code, text)) = self.inner.client().fatal_error() {
            let error = FatalError { message: format!("the producer cannot go on: {text} ({code})"), hint: None };
            return SendError::Fatal { topic, error };
        }
        match err.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageSizeTooLarge) => SendError::TooLarge { topic, bytes: record.bytes() },
            Some(code) => SendError::Unacknowledged { topic, why: code.to_string() },
            None => SendError::Unacknowledged { topic, why: err.to_string() },
        }
    }
}

impl Outgoing<'_> {
    /// Returns the bytes of key, value and headers.
    pub fn bytes(&self) -> usize {
        let field = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let headers = self.headers.iter().map(|(name, value)| name.len() + field(value.as_deref())).sum::<usize>();
        field(self.key) + field(self.value) + headers
    }
}

/// Makes sure that a topic exists: one of one partition is created if need be, as Kafka Connect does for its dead
/// letter queue. `replication` of `None` is the broker's default.
///
/// # Errors
/// When it could not be created, with the broker's reason.
pub async fn ensure_topic(settings: &ClientSettings, topic: &str, replication: Option<i32>) -> Result<(), SendError> {
    let failed = |why: String| SendError::Unacknowledged { topic: topic.to_owned(), why: format!("create it: {why}") };
    let config = settings.client().map_err(|err| failed(err.to_string()))?;
    let admin = AdminClient::from_config_and_context(&config, QuietContext).map_err(|err| failed(err.to_string()))?;
    // -1 is the broker's default (KIP-464).
    let wanted = NewTopic::new(topic, 1, TopicReplication::Fixed(replication.unwrap_or(-1)));
    let options = AdminOptions::new().request_timeout(Some(CREATE_WITHIN)).operation_timeout(Some(CREATE_WITHIN));
    let results = admin.create_topics([&wanted], &options).await.map_err(|err| failed(err.to_string()));
    // Dropping an admin client joins its thread.
    tokio::task::spawn_blocking(move || drop(admin));
    match results?.into_iter().next() {
        Some(Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => Ok(()),
        Some(Err((_, code))) => Err(failed(code.to_string())),
        None => Err(failed("the broker did not answer for it".into())),
    }
}
