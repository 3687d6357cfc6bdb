//! Statements: bracketed passes over the whole table, one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use test_support::Pipeline;
use tokio::task::JoinHandle;

/// Passes under way.
pub struct Passes {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<Vec<String>>>,
}

impl Passes {
    /// Starts passes in chunks of `rows` keys.
    pub async fn start(pipeline: &Pipeline, table: &str, rows: usize, pause: Duration) -> Result<Passes> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut bracket = pipeline.bracket(table).await?;
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut reads = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                reads.extend(bracket.pass(rows).await?);
                tokio::time::sleep(pause).await;
            }
            Ok(reads)
        });
        Ok(Passes { stop, task })
    }

    /// Ends after the pass in hand; returns the reads of all.
    pub async fn stop(self) -> Result<Vec<String>> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.context("the statement maker panicked")?.context("a pass failed")
    }
}
