//! Someone who writes into the sink besides the worker: plants orphans, deletes rows.
//!
//! Values are never made wrong, since reads of keys do not see that: a natural key is planted only while the source
//! does not have it, so that whatever makes it live comes later through the stream and overwrites what was planted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use test_support::{Database, Pipeline};
use tokio::task::JoinHandle;

use crate::load::{Key, SHOPS};

/// A side writer at work.
pub struct SideWriter {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Result<Damage>>,
}

/// What it did, as far as the sink told.
#[derive(Clone, Copy, Debug, Default)]
pub struct Damage {
    pub planted: u64,
    pub deleted: u64,
}

impl SideWriter {
    /// Starts it.
    pub async fn start(pipeline: &Pipeline, pause: Duration, seed: u64) -> Result<SideWriter> {
        let stop = Arc::new(AtomicBool::new(false));
        let (source, url) = (pipeline.source().await?, pipeline.sink_url());
        let task = tokio::spawn(write(source, url, pause, StdRng::seed_from_u64(seed), Arc::clone(&stop)));
        Ok(SideWriter { stop, task })
    }

    /// Stops it.
    pub async fn stop(self) -> Result<Damage> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.context("the side writer panicked")?.context("the side writer failed")
    }
}

async fn write(
    mut source: Database,
    sink_url: String,
    pause: Duration,
    mut rng: StdRng,
    stop: Arc<AtomicBool>,
) -> Result<Damage> {
    let mut damage = Damage::default();
    let mut sink: Option<Database> = None;
    while !stop.load(Ordering::SeqCst) {
        tokio::time::sleep(pause.mul_f64(rng.random())).await;
        let connected = match sink.take() {
            Some(connected) => Ok(connected),
            None => Database::connect(&sink_url).await,
        };
        // The sink is killed now and then; it comes back.
        let Ok(mut connected) = connected else { continue };
        let done = match rng.random_range(0..12) {
            0 => delete(&mut connected).await.map(|rows| damage.deleted += rows),
            1..6 => plant(&mut connected, &stranger(&mut rng)).await.map(|rows| damage.planted += rows),
            _ => {
                let key = Key::random(&mut rng);
                let live =
                    source.number(format!("SELECT count(*) FROM orders WHERE (shop, code) = {}", key.sql())).await?;
                if live == 0 { plant(&mut connected, &key).await.map(|rows| damage.planted += rows) } else { Ok(()) }
            }
        };
        // A deadlock with the worker costs this statement; a connection that is lost fails again and is replaced.
        sink = done.is_ok().then_some(connected);
    }
    Ok(damage)
}

/// A key that the source never has: between its keys, below them or above.
fn stranger(rng: &mut StdRng) -> Key {
    Key { shop: rng.random_range(0..=SHOPS + 1), code: format!("a{}x", rng.random_range(0..1_000_000)) }
}

async fn plant(sink: &mut Database, key: &Key) -> Result<u64> {
    let values = key.sql().trim_end_matches(')').to_owned();
    let planted = sink
        .column(format!(
            "INSERT INTO orders VALUES {values}, -1, 'planted') ON CONFLICT (shop, code) DO NOTHING RETURNING 'x'"
        ))
        .await?;
    Ok(planted.len() as u64)
}

/// Several at once and seldom: a request for missing rows that comes while another one is answered may fail the
/// connector (a known race of its signal thread, debezium/debezium#6147), and then nothing flows.
async fn delete(sink: &mut Database) -> Result<u64> {
    let gone = sink
        .column(
            "DELETE FROM orders WHERE (shop, code) IN (SELECT shop, code FROM orders ORDER BY random() LIMIT 5) \
             RETURNING 'x'",
        )
        .await?;
    Ok(gone.len() as u64)
}
