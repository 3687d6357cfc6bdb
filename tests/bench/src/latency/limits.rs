//! What no worker can go below: each half of the way alone.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use test_support::Stack;

use super::load::{Load, now_us};
use super::measure::Quantiles;
use super::{LIMIT, LatencyArgs, Seen};
use crate::tables;

/// Seconds of each limit: what is steady shows soon.
const SECONDS: u64 = 10;

/// From a record's timestamp to a consumer that does nothing with it.
pub async fn kafka(stack: &Stack, args: &LatencyArgs) -> Result<Seen> {
    let load = Load { rate: args.rate, warm_up: args.rate, events: args.rate * SECONDS.min(args.seconds) };
    let topic = load.topic(stack, "kafka").await?;
    let total = usize::try_from(load.warm_up + load.events)?;
    let reader = {
        let (stack, topic) = (stack.clone(), topic.clone());
        tokio::task::spawn_blocking(move || read(&stack, &topic, total))
    };
    let sender = load.sender(stack, &topic)?;
    let (sender, _) = sender.send(load.warming()).await?;
    let (sender, sent) = sender.send(load.measured()).await?;
    sender.finish().await?;
    let latencies = reader.await??;
    Ok(seen("kafka", Quantiles::of(latencies[total - sent.len()..].to_vec())?, load.late_ms(&sent)))
}

/// Latencies of so many records, in microseconds.
fn read(stack: &Stack, topic: &str, count: usize) -> Result<Vec<i64>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &stack.kafka)
        .set("group.id", "bench-reads-without-a-group")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .create()
        .context("make a consumer")?;
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, 0, Offset::Beginning)?;
    consumer.assign(&from)?;
    let start = Instant::now();
    let mut latencies = Vec::with_capacity(count);
    while latencies.len() < count {
        match consumer.poll(Duration::from_secs(1)) {
            Some(message) => {
                let timestamp = message?.timestamp().to_millis().context("a record without a timestamp")?;
                latencies.push(now_us()? - timestamp * 1_000);
            }
            None if start.elapsed() > LIMIT => bail!("{} of {count} records came within {LIMIT:?}", latencies.len()),
            None => {}
        }
    }
    Ok(latencies)
}

/// Rows written one at a time, a transaction each, with nothing else going on.
pub async fn postgres(stack: &Stack) -> Result<Seen> {
    let mut sink = stack.sink().await?;
    tables::make(&mut sink, "items", &tables::rows("SELECT g, 0 FROM generate_series(1, 100000::bigint) g")).await?;
    let start = Instant::now();
    let mut latencies = Vec::new();
    let mut id = 0_i64;
    while start.elapsed() < Duration::from_secs(SECONDS) {
        id += 1;
        let before = Instant::now();
        let written = sqlx::query(
            "INSERT INTO items (id, name) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
        )
        .bind(id * 7_919 % 100_000)
        .bind("written alone")
        .execute(&mut sink.connection)
        .await?;
        latencies.push(i64::try_from(before.elapsed().as_micros())?);
        ensure!(written.rows_affected() == 1, "a row was not written");
    }
    Ok(seen("postgres", Quantiles::of(latencies)?, 0.0))
}

fn seen(who: &str, committed: Quantiles, late_ms: f64) -> Seen {
    Seen { who: who.to_owned(), committed, visible: None, own: None, used: None, late_ms }
}
