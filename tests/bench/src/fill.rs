//! A topic filled with the stream.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::{ClientContext, producer::NoCustomPartitioner};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use test_support::{Stack, kafka, unique};

use crate::StreamArgs;
use crate::record::Renderer;
use crate::stream::{Change, Expected, Stream};

/// A filled topic.
#[derive(Clone, Debug)]
pub struct Filled {
    /// Its name.
    pub topic: String,
    /// Whether its records carry their schema.
    pub schemas: bool,
    /// Records, tombstones included.
    pub records: u64,
    /// Bytes of keys and values before compression.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// What a sink must hold.
    pub expected: Expected,
}

impl fmt::Display for Filled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} records, {:.2} GB uncompressed, filled in {:.1} s; {} rows with digest {}",
            self.topic,
            self.records,
            self.bytes as f64 / 1e9,
            self.seconds,
            self.expected.rows,
            self.expected.digest
        )
    }
}

/// Makes a topic of one partition and writes the stream into it: every change, and behind every delete its tombstone.
pub async fn fill(stack: &Stack, args: &StreamArgs, schemas: bool) -> Result<Filled> {
    let topic = format!("{}.inventory.items", unique(if schemas { "schemas" } else { "plain" }));
    kafka::create_topic(stack, &topic, 1, &[("retention.ms", "-1")]).await?;
    let (stack, args) = (stack.clone(), args.clone());
    tokio::task::spawn_blocking(move || write(&stack, &args, topic, schemas)).await?
}

fn write(stack: &Stack, args: &StreamArgs, topic: String, schemas: bool) -> Result<Filled> {
    let start = Instant::now();
    let failed = Failed::default();
    let producer = producer(stack, failed.clone())?;
    let mut stream = Stream::new(args.events, args.keys, args.mix, args.seed);
    let mut renderer = Renderer::new(&topic, schemas);
    let (mut records, mut bytes) = (0, 0);
    for (n, change) in &mut stream {
        renderer.render(n, change)?;
        send(&producer, &topic, &renderer.key, Some(&renderer.value))?;
        records += 1;
        bytes += renderer.key.len() + renderer.value.len();
        if matches!(change, Change::Delete(_)) {
            send(&producer, &topic, &renderer.key, None)?;
            records += 1;
            bytes += renderer.key.len();
        }
        if n % 256 == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(Duration::from_secs(120)).context("flush the producer")?;
    ensure!(failed.0.load(Ordering::Relaxed) == 0, "some records were not acknowledged");
    Ok(Filled {
        topic,
        schemas,
        records,
        bytes: bytes as u64,
        seconds: start.elapsed().as_secs_f64(),
        expected: stream.expected(),
    })
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

fn producer(stack: &Stack, context: Failed) -> Result<BaseProducer<Failed>> {
    ClientConfig::new()
        .set("bootstrap.servers", &stack.kafka)
        .set("partitioner", "murmur2_random")
        .set("enable.idempotence", "true")
        .set("compression.type", "lz4")
        .set("linger.ms", "20")
        .set("batch.size", "262144")
        .set("queue.buffering.max.messages", "200000")
        .set("queue.buffering.max.kbytes", "262144")
        .create_with_context(context)
        .context("make a producer")
}

fn send(producer: &BaseProducer<Failed>, topic: &str, key: &[u8], value: Option<&[u8]>) -> Result<()> {
    let mut record = BaseRecord::to(topic).key(key);
    if let Some(value) = value {
        record = record.payload(value);
    }
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back;
                producer.poll(Duration::from_millis(10));
            }
            Err((error, _)) => return Err(error).context("write a record"),
        }
    }
}
