//! A topic filled with the stream.

use std::fmt;
use std::time::Instant;

use anyhow::Result;
use test_support::{Stack, kafka, unique};

use crate::feeder::{Feeder, New};
use crate::record::Renderer;
use crate::stream::{Change, Expected, Stream};
use crate::throughput::StreamArgs;

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

/// Makes a topic of one partition that keeps its records; returns its name, which looks like a connector's.
pub async fn make_topic(stack: &Stack, stem: &str, settings: &[(&str, &str)]) -> Result<String> {
    let topic = format!("{}.inventory.items", unique(stem));
    kafka::create_topic(stack, &topic, 1, &[&[("retention.ms", "-1")], settings].concat()).await?;
    Ok(topic)
}

/// Makes a topic and writes the stream into it: every change, and behind every delete its tombstone.
pub async fn fill(stack: &Stack, args: &StreamArgs, schemas: bool) -> Result<Filled> {
    let topic = make_topic(stack, if schemas { "schemas" } else { "plain" }, &[]).await?;
    let (stack, args) = (stack.clone(), args.clone());
    tokio::task::spawn_blocking(move || write(&stack, &args, topic, schemas)).await?
}

fn write(stack: &Stack, args: &StreamArgs, topic: String, schemas: bool) -> Result<Filled> {
    let start = Instant::now();
    let mut feeder = Feeder::bulk(stack, &topic)?;
    let mut stream = Stream::new(args.events, args.keys, args.mix, args.seed);
    let mut renderer = Renderer::new(&topic, schemas);
    let mut bytes = 0;
    for (n, change) in &mut stream {
        renderer.render(n, change)?;
        let Renderer { key, value, .. } = &renderer;
        feeder.send(New { key, value: Some(value), ..New::default() })?;
        bytes += key.len() + value.len();
        if matches!(change, Change::Delete(_)) {
            feeder.send(New { key, ..New::default() })?;
            bytes += key.len();
        }
    }
    let records = feeder.finish()?;
    Ok(Filled {
        topic,
        schemas,
        records,
        bytes: bytes as u64,
        seconds: start.elapsed().as_secs_f64(),
        expected: stream.expected(),
    })
}
