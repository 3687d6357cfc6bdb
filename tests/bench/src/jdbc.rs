//! The peer: the stock Debezium JDBC sink, in a Connect worker that was just started.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use test_support::{Part, Stack, unique};

use crate::drain::{self, Run};
use crate::fill::Filled;

/// Drains the topic with the settings of these templates (`tests/stack/connectors`).
pub async fn run(stack: &Stack, filled: &Filled, templates: &str) -> Result<Run> {
    // A worker that has run before has compiled code and a grown heap.
    stack.stop(Part::Connect).await?;
    stack.start(Part::Connect).await?;
    let mut sink = drain::prepare(stack).await?;
    let name = unique("jdbc");
    let topic = format!("TOPIC={}", filled.topic);
    stack.connector(&["put", &name, templates, &topic, "TABLES=items"]).await?;
    let mut looked = Instant::now();
    let run = drain::drain(&mut sink, worker_pid()?, &filled.expected, async || {
        if looked.elapsed() > Duration::from_secs(2) {
            looked = Instant::now();
            let status = stack.connector(&["status", &name]).await?;
            if status.contains("FAILED") {
                bail!("{name} failed: {status}");
            }
        }
        Ok(())
    })
    .await?;
    stack.connector(&["delete", &name]).await?;
    Ok(run)
}

fn worker_pid() -> Result<u32> {
    let run = std::env::var("SINK_REPAIR_STACK_RUN").context("SINK_REPAIR_STACK_RUN is not set")?;
    let file = PathBuf::from(run).join("connect.pid");
    let pid = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    Ok(pid.trim().parse()?)
}
