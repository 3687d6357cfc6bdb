//! From what was seen to quantiles.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sqlx::{AssertSqlSafe, Row};
use test_support::Stack;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::load::{Sent, now_us};
use crate::commits;
use test_support::Database;

/// Of latencies, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// How many there were.
    pub count: usize,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Quantiles {
    /// Of latencies in microseconds: the smallest that so many of them do not exceed.
    pub fn of(mut latencies: Vec<i64>) -> Result<Quantiles> {
        ensure!(!latencies.is_empty(), "nothing was measured");
        latencies.sort_unstable();
        let count = latencies.len();
        let quantile = |percent: usize| latencies[(count * percent).div_ceil(100).max(1) - 1] as f64 / 1e3;
        Ok(Quantiles { count, p50: quantile(50), p99: quantile(99), max: quantile(100) })
    }
}

/// From each record's timestamp to the commit of its row. Every row must be there, as its record wrote it.
pub async fn committed(sink: &mut Database, sent: &[Sent]) -> Result<Quantiles> {
    let (first, last) = (sent.first().context("nothing was sent")?, sent.last().context("nothing was sent")?);
    let sql = format!(
        "SELECT id, name, split_part(name, '-', 3)::bigint AS n, {} AS us FROM items i \
         WHERE split_part(name, '-', 3)::bigint BETWEEN {} AND {} ORDER BY n",
        commits::COMMITTED_US,
        first.n,
        last.n
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut sink.connection).await.context("read the rows")?;
    ensure!(rows.len() == sent.len(), "{} events were sent, and {} rows are of them", sent.len(), rows.len());
    let mut latencies = Vec::with_capacity(sent.len());
    for (row, sent) in rows.iter().zip(sent) {
        let (id, name, us): (i64, String, i64) = (row.try_get("id")?, row.try_get("name")?, row.try_get("us")?);
        ensure!(id == sent.id as i64 && name == sent.name(), "event {} is not what its row holds", sent.n);
        latencies.push(us - sent.timestamp * 1_000);
    }
    Quantiles::of(latencies)
}

/// What another session saw: when it had the answer, and the highest key in it.
pub type Answer = (i64, i64);

/// Asks the sink again and again how far it has come.
pub struct Watcher {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<Vec<Answer>>>,
}

/// Fine enough against the tens of milliseconds that are measured, and no load to speak of.
const EVERY: Duration = Duration::from_millis(5);

impl Watcher {
    /// Starts to ask.
    pub async fn start(stack: &Stack) -> Result<Watcher> {
        let mut sink = stack.sink().await?;
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut answers = Vec::new();
            let mut pace = tokio::time::interval(EVERY);
            pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                let ended = stopped.try_recv() != Err(oneshot::error::TryRecvError::Empty);
                let highest: Option<i64> =
                    sqlx::query_scalar("SELECT max(id) FROM items").fetch_one(&mut sink.connection).await?;
                answers.push((now_us()?, highest.unwrap_or_default()));
                // One answer more than was asked for: it has the last row.
                if ended {
                    return Ok(answers);
                }
                pace.tick().await;
            }
        });
        Ok(Watcher { stop, task })
    }

    /// Ends it.
    pub async fn stop(self) -> Result<Vec<Answer>> {
        let _ = self.stop.send(());
        self.task.await?
    }
}

/// From each new row's timestamp to the first answer that has it.
pub fn visible(sent: &[Sent], answers: &[Answer]) -> Result<Quantiles> {
    let mut answers = answers.iter().peekable();
    let mut latencies = Vec::new();
    for sent in sent.iter().filter(|sent| sent.is_new()) {
        while answers.next_if(|(_, highest)| *highest < sent.id as i64).is_some() {}
        let (at, _) = answers.peek().with_context(|| format!("event {} was not seen", sent.n))?;
        latencies.push(at - sent.timestamp * 1_000);
    }
    Quantiles::of(latencies)
}

/// The worker's own histogram: upper bounds in seconds, with how many lie at or below each.
pub fn buckets(metrics: &str) -> Vec<(f64, u64)> {
    metrics
        .lines()
        .filter_map(|line| line.strip_prefix("sink_repair_event_to_commit_seconds_bucket{"))
        .filter_map(|line| {
            let (bound, count) = line.split_once("le=\"")?.1.split_once("\"} ")?;
            Some((bound.replace("+Inf", "inf").parse().ok()?, count.parse().ok()?))
        })
        .collect()
}

/// Median and 99th percentile of what came between two readings, in milliseconds, as Prometheus' `histogram_quantile`
/// has them: even within a bucket.
pub fn own(before: &[(f64, u64)], after: &[(f64, u64)]) -> (f64, f64) {
    let earlier = |bound: f64| before.iter().find(|(of, _)| *of == bound).map_or(0, |(_, count)| *count);
    let counts: Vec<(f64, u64)> = after.iter().map(|(bound, count)| (*bound, count - earlier(*bound))).collect();
    let total = counts.last().map_or(0, |(_, count)| *count) as f64;
    let quantile = |share: f64| {
        let rank = share * total;
        let (mut from, mut below) = (0.0, 0.0);
        for &(bound, count) in &counts {
            let count = count as f64;
            if count >= rank && count > below {
                return if bound.is_finite() {
                    (from + (bound - from) * (rank - below) / (count - below)) * 1e3
                } else {
                    from * 1e3
                };
            }
            (from, below) = (bound, count);
        }
        f64::NAN
    };
    (quantile(0.5), quantile(0.99))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn quantiles_are_latencies_that_were_measured() {
        // The nearest-rank method on 1 to 200 ms.
        let latencies = (1..=200).rev().map(|ms| ms * 1_000).collect();

        assert_eq!(Quantiles::of(latencies).unwrap(), Quantiles { count: 200, p50: 100.0, p99: 198.0, max: 200.0 });
        assert_eq!(Quantiles::of(vec![7_000]).unwrap(), Quantiles { count: 1, p50: 7.0, p99: 7.0, max: 7.0 });
        assert!(Quantiles::of(vec![]).is_err());
    }

    // Prometheus' documentation of histogram_quantile: linear within the bucket.
    #[test]
    fn the_workers_own_quantiles_are_of_what_came_in_between() {
        let page = |low: u64, mid: u64, all: u64| {
            format!(
                "sink_repair_event_to_commit_seconds_bucket{{topic=\"t\",le=\"0.01\"}} {low}\n\
                 sink_repair_event_to_commit_seconds_bucket{{topic=\"t\",le=\"0.02\"}} {mid}\n\
                 sink_repair_event_to_commit_seconds_bucket{{topic=\"t\",le=\"+Inf\"}} {all}\n\
                 sink_repair_event_to_commit_seconds_sum{{topic=\"t\"}} 1\n"
            )
        };
        let (before, after) = (buckets(&page(5, 5, 9)), buckets(&page(5, 105, 109)));

        assert_eq!(before, [(0.01, 5), (0.02, 5), (f64::INFINITY, 9)]);
        let (p50, p99) = own(&before, &after);
        assert!((p50 - 15.0).abs() < 1e-9 && (p99 - 19.9).abs() < 1e-9, "{p50} {p99}");
    }
}
