//! The worker: `sink-repair apply`, as built beside this program.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use test_support::{Stack, Worker, unique};

use crate::drain::{self, Run};
use crate::fill::Filled;

/// Drains the topic with the default settings.
pub async fn run(stack: &Stack, filled: &Filled) -> Result<Run> {
    let mut sink = drain::prepare(stack).await?;
    let binary = std::env::current_exe()?.with_file_name("sink-repair");
    let name = unique("bench");
    let mut worker = Worker::start(
        binary.to_str().context("a path that is not Unicode")?,
        [
            "apply",
            "--name",
            &name,
            "--bootstrap-servers",
            &stack.kafka,
            "--topics",
            &filled.topic,
            "--sink",
            &stack.sink,
            "--sink-table",
            "public.items",
            "--listen",
            "127.0.0.1:0",
            "--until-caught-up",
        ],
    )?;
    let pid = worker.id();
    let drained = drain::drain(&mut sink, pid, &filled.expected, async || match worker.ended()? {
        Some(status) if !status.success() => bail!("the worker ended with {status}:\n{}", worker.log()),
        _ => Ok(()),
    });
    let run = drained.await?;
    let status = worker.wait(Duration::from_secs(30)).await?;
    if !status.success() {
        bail!("the worker ended with {status}:\n{}", worker.log());
    }
    Ok(run)
}
