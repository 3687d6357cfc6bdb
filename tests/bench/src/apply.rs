//! The worker: `sink-repair apply`, as built beside this program, at its default settings.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use test_support::{Stack, Worker, unique};

use crate::drain::{self, Run};
use crate::fill::Filled;

/// Starts it on a topic, with the table `public.items` as its sink.
pub fn start(stack: &Stack, topic: &str, more: &[&str]) -> Result<Worker> {
    let binary = std::env::current_exe()?.with_file_name("sink-repair");
    let name = unique("bench");
    let mut arguments = vec![
        "apply",
        "--name",
        &name,
        "--bootstrap-servers",
        &stack.kafka,
        "--topics",
        topic,
        "--sink",
        &stack.sink,
        "--sink-table",
        "public.items",
        "--listen",
        "127.0.0.1:0",
    ];
    arguments.extend(more);
    Worker::start(binary.to_str().context("a path that is not Unicode")?, arguments)
}

/// Fails when it has ended with an error.
pub fn check(worker: &mut Worker) -> Result<()> {
    match worker.ended()? {
        Some(status) if !status.success() => bail!("the worker ended with {status}:\n{}", worker.log()),
        _ => Ok(()),
    }
}

/// Drains the topic.
pub async fn run(stack: &Stack, filled: &Filled) -> Result<Run> {
    let mut sink = drain::prepare(stack).await?;
    let mut worker = start(stack, &filled.topic, &["--until-caught-up"])?;
    let pid = worker.id();
    let run = drain::drain(&mut sink, pid, &filled.expected, async || check(&mut worker)).await?;
    let status = worker.wait(Duration::from_secs(30)).await?;
    if !status.success() {
        bail!("the worker ended with {status}:\n{}", worker.log());
    }
    Ok(run)
}
