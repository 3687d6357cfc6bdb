//! The source's own life meanwhile: 500 changes a second.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use test_support::Database;
use tokio::{task::JoinHandle, time};

/// A running load.
pub struct Load {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<u64>>,
}

/// Twenty transactions a second, 25 changes each.
const EVERY: Duration = Duration::from_millis(50);

/// Starts to write.
pub fn start(url: String) -> Load {
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let task = tokio::spawn(async move {
        let mut source = Database::connect(&url).await?;
        let mut ticks = time::interval(EVERY);
        let mut changes = 0;
        let mut round: u64 = 0;
        while !asked.load(Ordering::Relaxed) {
            ticks.tick().await;
            round += 1;
            // Ten keys are deleted, and come back two rounds later; five orders are new or change.
            let (gone, back, other) = (round * 7919, round.saturating_sub(2) * 7919, round * 104_729);
            source
                .run(format!(
                    "BEGIN;
                     DELETE FROM orders WHERE code IN (SELECT 'order-' || lpad(((g * 9973 + {gone}) % 100000 + 1)::text, 6, '0') FROM generate_series(1, 10) g);
                     INSERT INTO orders SELECT 'order-' || lpad(((g * 9973 + {back}) % 100000 + 1)::text, 6, '0'), 1, {round}, 'came back in round {round}', now()
                       FROM generate_series(1, 10) g ON CONFLICT (code) DO UPDATE SET note = excluded.note;
                     UPDATE orders SET total = {round}, updated_at = now() WHERE code IN (SELECT 'order-' || lpad(((g * 31 + {other}) % 100000 + 1)::text, 6, '0') FROM generate_series(1, 5) g);
                     COMMIT"
                ))
                .await?;
            changes += 25;
        }
        Ok(changes)
    });
    Load { stop, task }
}

impl Load {
    /// Ends the load and returns how many changes it made.
    pub async fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.context("run the load")?
    }
}
