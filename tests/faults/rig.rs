//! What all tests here begin with.

use std::fmt::Display;
use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use test_support::{Pipeline, Stack, Worker, compare, until};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The program.
pub const BINARY: &str = env!("CARGO_BIN_EXE_sink-repair");

/// Long enough for two busy cores.
pub const LIMIT: Duration = Duration::from_secs(90);

/// Held by tests while they need servers that nobody kills.
static SERVERS: RwLock<()> = RwLock::const_new(());

/// Waits until no other test runs, and keeps it so: for tests that stop servers.
pub async fn alone() -> RwLockWriteGuard<'static, ()> {
    SERVERS.write().await
}

/// Waits until nobody stops servers, and keeps it so.
pub async fn beside_others() -> RwLockReadGuard<'static, ()> {
    SERVERS.read().await
}

/// Tells whoever watches the run; the test harness does not swallow it.
pub fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "faults: {text}");
}

/// Whether the full numbers are asked for.
pub fn full_scale() -> bool {
    std::env::var("SINK_REPAIR_FAULTS_SCALE").is_ok_and(|scale| scale == "full")
}

/// Returns the seed of a run: given (`SINK_REPAIR_FAULTS_SEED`), to see a failure again, or a new one.
pub fn seed() -> Result<u64> {
    match std::env::var("SINK_REPAIR_FAULTS_SEED") {
        Ok(text) => text.parse().context("read SINK_REPAIR_FAULTS_SEED"),
        Err(_) => Ok(rand::random()),
    }
}

/// Returns the arguments of `apply` that every worker here has; a session timeout of seconds, so that a group notices a
/// dead member soon.
pub fn arguments(stack: &Stack, name: &str, topic: &str, sink: &str) -> Vec<String> {
    let given = [
        "apply",
        "--name",
        name,
        "--bootstrap-servers",
        &stack.kafka,
        "--topics",
        topic,
        "--sink",
        sink,
        "--listen",
        "127.0.0.1:0",
        "--kafka",
        "session.timeout.ms=2000",
        "--kafka",
        "heartbeat.interval.ms=500",
    ];
    given.map(str::to_owned).to_vec()
}

/// Adds flags.
pub fn with(mut arguments: Vec<String>, more: &[&str]) -> Vec<String> {
    arguments.extend(more.iter().map(|&flag| flag.to_owned()));
    arguments
}

/// Starts a worker of these arguments.
pub fn start(arguments: &[String]) -> Result<Worker> {
    Worker::start(BINARY, arguments)
}

/// Waits until a table of the pipeline is the same at source and sink; returns the number of its rows.
pub async fn until_equal(pipeline: &Pipeline, table: &str, limit: Duration) -> Result<u64> {
    let name = pipeline.table(table);
    let (mut source, mut sink) = (pipeline.source().await?, pipeline.sink().await?);
    let start = std::time::Instant::now();
    loop {
        let found = compare::difference(&mut source, &name, &mut sink, &name).await?;
        if found.only_source + found.only_sink == 0 {
            return Ok(found.equal);
        }
        if start.elapsed() > limit {
            anyhow::bail!(
                "{name} differs after {} s: {} rows equal, {} only at the source, {} only at the sink\n{}",
                limit.as_secs(),
                found.equal,
                found.only_source,
                found.only_sink,
                found.samples.join("\n")
            );
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// Waits until a worker has committed a unit: from then on it knows its tables, and what it sends to the sink are units.
/// The sink must be audited.
pub async fn until_at_work(pipeline: &Pipeline) -> Result<()> {
    let mut sink = pipeline.sink().await?;
    until("a worker commits", LIMIT, async || {
        let steps = sink.number("SELECT count(*) FROM audit.frontier WHERE next_offset IS NOT NULL").await?;
        Ok((steps > 0).then_some(()))
    })
    .await
}
