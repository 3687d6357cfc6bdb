//! Those who kill: one the worker, one the sink, one Kafka and Connect, each at random moments, so that their kills
//! overlap.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use test_support::{Part, Signal, Stack, Worker};
use tokio::sync::watch;

use crate::rig;

/// How many kills of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub worker: u32,
    pub sink: u32,
    pub kafka: u32,
    pub connect: u32,
}

impl Numbers {
    /// Those of the scale that is asked for.
    pub fn of_scale() -> Numbers {
        match rig::full_scale() {
            true => Numbers { worker: 100, sink: 10, kafka: 5, connect: 5 },
            false => Numbers { worker: 20, sink: 3, kafka: 2, connect: 2 },
        }
    }

    /// About how long the worker's kills take; the others are spread over it.
    pub fn span(&self) -> Duration {
        Duration::from_millis(2_500) * self.worker
    }
}

/// The longest that a worker is at work before it is killed: some units, some statements.
const AT_WORK: Duration = Duration::from_millis(2_000);

/// The longest life of those that are killed while they start.
const STARTING: Duration = Duration::from_millis(1_500);

/// One in so many is killed while it starts; such a death is another member that the group has to miss first.
const WHILE_STARTING: u32 = 4;

/// When a lane has not started by then, since something else was killed, its worker dies all the same.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the workers' logs said.
#[derive(Debug, Default)]
pub struct Lives {
    pub killed: u32,
    pub lanes_started: u64,
    /// How long lanes took to start, those that had the time.
    pub starting: Vec<Duration>,
    pub statements: u64,
    /// Lines of level ERROR, without their times.
    pub errors: BTreeMap<String, u64>,
    /// The same of level WARN.
    pub warnings: BTreeMap<String, u64>,
}

impl Lives {
    fn read(&mut self, log: &str) {
        for line in log.lines() {
            self.lanes_started += u64::from(line.contains("lane started"));
            self.statements += u64::from(line.contains("statement applied"));
            for (level, lines) in [("ERROR", &mut self.errors), ("WARN", &mut self.warnings)] {
                if let Some((_, text)) = line.split_once(level) {
                    *lines.entry(without_numbers(text)).or_default() += 1;
                }
            }
        }
    }
}

/// Kills the worker `times` times, each time starting another at once; returns the last one, alive.
pub async fn kill_workers(arguments: &[String], times: u32, seed: u64) -> Result<(Worker, Lives)> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut lives = Lives::default();
    let mut worker = rig::start(arguments)?;
    while lives.killed < times {
        let born = Instant::now();
        if rng.random_ratio(1, WHILE_STARTING) {
            tokio::time::sleep(STARTING.mul_f64(rng.random())).await;
        } else {
            if worker.logged("lane started", PATIENCE).await.is_ok() {
                lives.starting.push(born.elapsed());
            }
            tokio::time::sleep(AT_WORK.mul_f64(rng.random())).await;
        }
        if let Some(status) = worker.ended()? {
            bail!("the worker gave up ({status}):\n{}", worker.log());
        }
        worker.signal(Signal::Kill)?;
        worker.wait(Duration::from_secs(10)).await?;
        lives.killed += 1;
        lives.read(&worker.log());
        worker = rig::start(arguments)?;
    }
    Ok((worker, lives))
}

impl Lives {
    /// Adds the log of a worker that was not killed.
    pub fn add(&mut self, worker: &Worker) {
        self.read(&worker.log());
    }
}

/// Kills these parts in a random order and starts each again at once, spread over `span`.
pub async fn kill_parts(stack: Stack, mut parts: Vec<Part>, span: Duration, seed: u64) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    parts.shuffle(&mut rng);
    let (begin, count) = (Instant::now(), parts.len() as u32);
    for (n, part) in parts.into_iter().enumerate() {
        // Somewhere in this part's share of the span, or at once when the last one took longer than its share.
        let moment = (span / count).mul_f64(n as f64 + rng.random::<f64>());
        tokio::time::sleep(moment.saturating_sub(begin.elapsed())).await;
        stack.kill9(part).await?;
        stack.start(part).await?;
        rig::say(format!("{part:?} killed and back, {:.0} s after the begin", begin.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// Restarts a connector whose task has failed, as its operator would, until `over`; returns how often.
pub async fn tend_connector(stack: Stack, name: String, over: watch::Receiver<bool>) -> u32 {
    let mut restarts = 0;
    while !*over.borrow() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // An answer is not to be had while Connect is away.
        if let Ok(status) = stack.connector(&["status", &name]).await
            && status.contains("FAILED")
            && stack.connector(&["restart", &name]).await.is_ok()
        {
            restarts += 1;
        }
    }
    restarts
}

/// What lines of one cause have in common: digits, and what follows an address or a name, differ from life to life.
fn without_numbers(text: &str) -> String {
    let mut plain = String::new();
    for char in text.trim().chars() {
        match char {
            '0'..='9' if plain.ends_with('N') => {}
            '0'..='9' => plain.push('N'),
            char => plain.push(char),
        }
    }
    plain
}
