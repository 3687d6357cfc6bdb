//! Measures the consumer: `kafka_read write BOOTSTRAP TOPIC RECORDS` makes records of 4 kB of JSON, compressed with
//! lz4; `kafka_read read BOOTSTRAP TOPIC [KEY=VALUE ...]` reads them and prints records/s and the peak memory (with
//! `LANE_PAUSE_US` in the environment each chunk takes that long); `kafka_read latency BOOTSTRAP TOPIC` writes 1,000
//! records/s for 20 s and prints how long they take to reach the lane.
#![allow(clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use futures::{StreamExt, stream};
use sink_repair::kafka::{
    ClientSettings, Consumer, ConsumerSettings, Edge, GroupEvent, Outgoing, Producer, Records, StartAt, TopicSelection,
    ensure_topic,
};
use tokio::{sync::mpsc, task::JoinSet};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter("warn").init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [mode, servers, topic, rest @ ..] = args.as_slice() else { bail!("write|read BOOTSTRAP TOPIC ...") };
    match mode.as_str() {
        "latency" => latency(servers, topic).await,
        "write" => write(servers, topic, rest.first().context("how many records")?.parse()?).await,
        _ => read(servers, topic, rest).await,
    }
}

async fn write(servers: &str, topic: &str, count: u64) -> anyhow::Result<()> {
    let properties = [("compression.type", "lz4"), ("linger.ms", "5"), ("batch.size", "65536")];
    let client = ClientSettings {
        bootstrap_servers: servers.to_owned(),
        properties: properties.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec(),
    };
    ensure_topic(&client, topic, None).await?;
    let producer = Producer::new(&client)?;
    let field = |i: u64, n: u64| {
        format!("\"column_{n}\":\"value {} of a column\",", (if n.is_multiple_of(4) { i } else { i / 100 }) % 1000)
    };
    let mut sent = stream::iter(0..count)
        .map(|i| {
            let (producer, key) = (&producer, format!("{{\"id\":{i}}}"));
            let body: String = (0..100).map(|n| field(i, n)).collect();
            async move {
                let value = format!("{{{body}\"id\":{i}}}");
                let record =
                    Outgoing { topic, key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..Outgoing::default() };
                producer.send(&record).await.map(|_| value.len())
            }
        })
        .buffer_unordered(2000);
    let mut bytes = 0;
    while let Some(len) = sent.next().await {
        bytes += len?;
    }
    println!("{count} records, {bytes} bytes of values");
    Ok(())
}

async fn read(servers: &str, topic: &str, properties: &[String]) -> anyhow::Result<()> {
    let properties =
        properties.iter().filter_map(|pair| pair.split_once('=')).map(|(key, value)| (key.into(), value.into()));
    let client = ClientSettings { bootstrap_servers: servers.to_owned(), properties: properties.collect() };
    let group = format!("measure-{}", std::process::id());
    let settings =
        ConsumerSettings::new(client, group, TopicSelection::Names(topic.split(',').map(str::to_owned).collect()));
    let (events, mut group_events) = mpsc::unbounded_channel();
    let consumer = Consumer::start(settings, events)?;
    let mut lanes = JoinSet::new();
    let start = Instant::now();
    let mut first = None;
    let Some(GroupEvent::Assigned(assignments)) = group_events.recv().await else { bail!("no assignment") };
    for assignment in assignments {
        lanes.spawn(async move {
            let records = assignment.start(StartAt::Edge(Edge::Earliest)).await?;
            drain(records).await
        });
    }
    let mut total = BTreeMap::from([("records", 0), ("bytes", 0), ("chunks", 0)]);
    while let Some(lane) = lanes.join_next().await {
        let (records, bytes, chunks, began) = lane??;
        first = first.min(Some(began)).or(Some(began));
        for (name, n) in [("records", records), ("bytes", bytes), ("chunks", chunks)] {
            *total.entry(name).or_default() += n;
        }
    }
    let took = first.unwrap_or(start).elapsed().as_secs_f64();
    let joined = start.elapsed().as_secs_f64() - took;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    let (records, bytes) = (total["records"] as f64, total["bytes"] as f64);
    println!(
        "{records} records in {took:.2} s ({joined:.2} s to join): {:.0} records/s, {:.0} MB/s, {:.0} records a chunk, {peak}",
        records / took,
        bytes / took / 1e6,
        records / total["chunks"] as f64,
    );
    consumer.stop(Duration::from_secs(1)).await;
    Ok(())
}

async fn drain(mut records: Records) -> anyhow::Result<(u64, u64, u64, Instant)> {
    let pause =
        std::env::var("LANE_PAUSE_US").ok().map(|pause| pause.parse().map(Duration::from_micros)).transpose()?;
    let (mut count, mut bytes, mut chunks, mut began) = (0, 0, 0, None);
    while !records.caught_up() {
        let Some(chunk) = records.next_chunk().await? else { bail!("taken") };
        began.get_or_insert_with(Instant::now);
        count += chunk.records.len() as u64;
        bytes += chunk.charge.bytes() as u64;
        chunks += 1;
        // About what a sink's round trip costs.
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
        }
        records.commit(records.position());
    }
    Ok((count, bytes, chunks, began.unwrap_or_else(Instant::now)))
}

async fn latency(servers: &str, topic: &str) -> anyhow::Result<()> {
    let client = ClientSettings { bootstrap_servers: servers.to_owned(), properties: Vec::new() };
    ensure_topic(&client, topic, None).await?;
    let producer = Producer::new(&client)?;
    let group = format!("latency-{}", std::process::id());
    let (events, mut group_events) = mpsc::unbounded_channel();
    let topics = TopicSelection::Names(vec![topic.to_owned()]);
    let consumer = Consumer::start(ConsumerSettings::new(client, group, topics), events)?;
    let Some(GroupEvent::Assigned(assignments)) = group_events.recv().await else { bail!("no assignment") };
    let mut records = assignments[0].start(StartAt::Edge(Edge::Latest)).await?;
    let writer = tokio::spawn(async move {
        let topic = topic_of(&assignments);
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        let mut sends = JoinSet::new();
        let producer = std::sync::Arc::new(producer);
        for _ in 0..20_000 {
            tick.tick().await;
            let (producer, topic) = (producer.clone(), topic.clone());
            sends.spawn(async move {
                let value = now_us().to_string();
                let record = Outgoing { topic: &topic, value: Some(value.as_bytes()), ..Outgoing::default() };
                producer.send(&record).await.map(drop)
            });
            while sends.try_join_next().is_some() {}
        }
        sends.join_all().await;
    });
    let mut took = Vec::new();
    while took.len() < 20_000 {
        let Some(chunk) = records.next_chunk().await? else { bail!("taken") };
        for record in &chunk.records {
            let sent: u128 = std::str::from_utf8(record.value.as_deref().unwrap_or_default())?.parse()?;
            took.push(now_us().saturating_sub(sent));
        }
    }
    writer.await?;
    took.sort_unstable();
    println!(
        "p50 {} us, p99 {} us, most {} us",
        took[took.len() / 2],
        took[took.len() * 99 / 100],
        took[took.len() - 1]
    );
    consumer.stop(Duration::from_secs(1)).await;
    Ok(())
}

fn topic_of(assignments: &[sink_repair::kafka::Assignment]) -> String {
    assignments.first().map(|assignment| assignment.partition().topic.to_string()).unwrap_or_default()
}

fn now_us() -> u128 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |now| now.as_micros())
}
