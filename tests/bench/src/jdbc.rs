//! The peer: the stock Debezium JDBC sink, in a Connect worker that was just started.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use test_support::{Part, Stack, unique};

use crate::drain::{self, Run};
use crate::fill::Filled;

/// Its templates (`tests/stack/connectors`) as its documentation has it.
pub const DEFAULT: &str = "jdbc-sink";

/// Its fastest settings.
pub const BEST: &str = "jdbc-sink,jdbc-sink-best";

/// A running JDBC sink.
pub struct Jdbc {
    stack: Stack,
    name: String,
    looked: Instant,
    /// Its Connect worker.
    pub pid: u32,
}

impl Jdbc {
    /// Starts it on a topic, with the table `items` as its sink.
    pub async fn start(stack: &Stack, topic: &str, templates: &str) -> Result<Jdbc> {
        // A worker that has run before has compiled code and a grown heap.
        stack.stop(Part::Connect).await?;
        stack.start(Part::Connect).await?;
        let name = unique("jdbc");
        stack.connector(&["put", &name, templates, &format!("TOPIC={topic}"), "TABLES=items"]).await?;
        Ok(Jdbc { stack: stack.clone(), name, looked: Instant::now(), pid: worker_pid()? })
    }

    /// Asks every two seconds whether it has failed.
    pub async fn check(&mut self) -> Result<()> {
        if self.looked.elapsed() > Duration::from_secs(2) {
            self.looked = Instant::now();
            let status = self.stack.connector(&["status", &self.name]).await?;
            if status.contains("FAILED") {
                bail!("{} failed: {status}", self.name);
            }
        }
        Ok(())
    }

    /// Takes it away.
    pub async fn stop(self) -> Result<()> {
        self.stack.connector(&["delete", &self.name]).await.map(drop)
    }
}

/// Drains the topic with the settings of these templates.
pub async fn run(stack: &Stack, filled: &Filled, templates: &str) -> Result<Run> {
    let mut sink = drain::prepare(stack).await?;
    let mut jdbc = Jdbc::start(stack, &filled.topic, templates).await?;
    let pid = jdbc.pid;
    let run = drain::drain(&mut sink, pid, &filled.expected, async || jdbc.check().await).await?;
    jdbc.stop().await?;
    Ok(run)
}

fn worker_pid() -> Result<u32> {
    let run = std::env::var("SINK_REPAIR_STACK_RUN").context("SINK_REPAIR_STACK_RUN is not set")?;
    let file = PathBuf::from(run).join("connect.pid");
    let pid = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
    Ok(pid.trim().parse()?)
}
