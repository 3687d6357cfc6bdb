//! A load of which every effect can be told: each row counts upwards, each of its versions is written once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use test_support::{Database, Pipeline};
use tokio::task::JoinSet;

/// The table's columns.
pub const COUNTERS: &str = "id bigint PRIMARY KEY, v bigint NOT NULL";

/// Rows of the snapshot.
pub const SEED: &str = "CREATE SEQUENCE version; \
    INSERT INTO counters SELECT n, nextval('version') FROM generate_series(0, 599) AS n";

/// Ids are below this.
const IDS: i64 = 900;

/// Writers of versions.
pub struct Counting {
    stop: Arc<AtomicBool>,
    writers: JoinSet<Result<()>>,
}

impl Counting {
    /// Starts writers, each with ids of its own, so that versions of a row rise in the order of their commits.
    pub async fn start(pipeline: &Pipeline, writers: i64, pause: Duration, seed: u64) -> Result<Counting> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        for n in 0..writers {
            let source = pipeline.source().await?;
            let rng = StdRng::seed_from_u64(seed ^ n.unsigned_abs());
            tasks.spawn(write(source, rng, pause, (n, writers), Arc::clone(&stop)));
        }
        Ok(Counting { stop, writers: tasks })
    }

    /// Stops them.
    pub async fn stop(mut self) -> Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(one) = self.writers.join_next().await {
            one.context("a writer panicked")?.context("a writer failed")?;
        }
        Ok(())
    }
}

async fn write(
    mut source: Database,
    mut rng: StdRng,
    pause: Duration,
    (n, writers): (i64, i64),
    stop: Arc<AtomicBool>,
) -> Result<()> {
    while !stop.load(Ordering::SeqCst) {
        let statements: Vec<String> = (0..rng.random_range(1..=5))
            .map(|_| {
                let id = rng.random_range(0..IDS / writers) * writers + n;
                match rng.random_ratio(1, 5) {
                    true => format!("DELETE FROM counters WHERE id = {id}"),
                    false => format!(
                        "INSERT INTO counters VALUES ({id}, nextval('version')) \
                         ON CONFLICT (id) DO UPDATE SET v = excluded.v"
                    ),
                }
            })
            .collect();
        source.run(format!("BEGIN; {}; COMMIT", statements.join("; "))).await?;
        tokio::time::sleep(pause.mul_f64(rng.random())).await;
    }
    Ok(())
}
