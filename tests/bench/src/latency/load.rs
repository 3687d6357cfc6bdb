//! Events at a steady pace, and when each was sent.

use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use test_support::Stack;

use crate::feeder::{Feeder, New};
use crate::fill;
use crate::record::Renderer;
use crate::stream::{self, Change};

/// Keys of new rows lie above those of rows that are there, so that the highest key tells how far the sink has come.
const NEW: u64 = 1_000_000_000;

/// How many events there are, numbered from 1.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Events a second.
    pub rate: u64,
    /// Events that are not measured.
    pub warm_up: u64,
    /// Events that are.
    pub events: u64,
}

/// An event that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Its number.
    pub n: u64,
    /// The row that it writes.
    pub id: u64,
    /// The record's timestamp, in milliseconds since 1970-01-01 UTC.
    pub timestamp: i64,
    /// After how long in its stretch it was sent.
    after: Duration,
}

impl Sent {
    /// The `name` of the row.
    pub fn name(&self) -> String {
        stream::name(self.id as i64, self.n)
    }

    /// Whether the row was not there before.
    pub fn is_new(&self) -> bool {
        is_new(self.n)
    }
}

/// Three of ten events are inserts; the others update a row each.
fn is_new(n: u64) -> bool {
    n % 10 < 3
}

fn change(n: u64) -> (u64, Change) {
    match is_new(n) {
        true => (NEW + n, Change::Create((NEW + n) as i64)),
        false => (n, Change::Update(n as i64)),
    }
}

impl Load {
    /// Makes the topic. The broker flushes it once a second: left to the operating system, 120 MB are written at once
    /// every half minute, to the disk that PostgreSQL's log is on, and commits wait for them.
    pub async fn topic(&self, stack: &Stack, stem: &str) -> Result<String> {
        fill::make_topic(stack, stem, &[("flush.messages", &self.rate.to_string())]).await
    }

    /// SQL that returns `id` and `n` of the rows that are there before.
    pub fn rows_before(&self) -> String {
        format!("SELECT g, 0 FROM generate_series(1, {}::bigint) g WHERE g % 10 >= 3", self.warm_up + self.events)
    }

    /// The events that are not measured.
    pub fn warming(&self) -> RangeInclusive<u64> {
        1..=self.warm_up
    }

    /// The events that are.
    pub fn measured(&self) -> RangeInclusive<u64> {
        self.warm_up + 1..=self.warm_up + self.events
    }

    /// By how much an event was late at most, in milliseconds: a sender that cannot keep up measures nothing.
    pub fn late_ms(&self, sent: &[Sent]) -> f64 {
        let due = |at: usize| at as f64 / self.rate as f64;
        sent.iter().enumerate().map(|(at, sent)| (sent.after.as_secs_f64() - due(at)) * 1e3).fold(0.0, f64::max)
    }

    /// Makes what sends them.
    pub fn sender(&self, stack: &Stack, topic: &str) -> Result<Sender> {
        Ok(Sender { feeder: Feeder::prompt(stack, topic)?, renderer: Renderer::new(topic, true), rate: self.rate })
    }
}

/// Sends events, on a thread that does nothing else.
pub struct Sender {
    feeder: Feeder,
    renderer: Renderer,
    rate: u64,
}

impl Sender {
    /// Sends these, each when it is due.
    pub async fn send(mut self, events: RangeInclusive<u64>) -> Result<(Sender, Vec<Sent>)> {
        tokio::task::spawn_blocking(move || {
            let sent = self.send_all(events)?;
            Ok((self, sent))
        })
        .await?
    }

    fn send_all(&mut self, events: RangeInclusive<u64>) -> Result<Vec<Sent>> {
        let start = Instant::now();
        let mut sent = Vec::new();
        for (place, n) in (0_u32..).zip(events) {
            let (id, change) = change(n);
            self.renderer.render(n, change)?;
            let due = Duration::from_secs(1) * place / u32::try_from(self.rate)?;
            thread::sleep(due.saturating_sub(start.elapsed()));
            let after = start.elapsed();
            let timestamp = now_us()? / 1_000;
            let Renderer { key, value, .. } = &self.renderer;
            self.feeder.send(New { key, value: Some(value), timestamp: Some(timestamp), header: None })?;
            sent.push(Sent { n, id, timestamp, after });
        }
        Ok(sent)
    }

    /// Waits until all are acknowledged.
    pub async fn finish(self) -> Result<u64> {
        tokio::task::spawn_blocking(move || self.feeder.finish()).await?
    }
}

/// Microseconds since 1970-01-01 UTC.
pub fn now_us() -> Result<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
    Ok(i64::try_from(now.as_micros())?)
}
