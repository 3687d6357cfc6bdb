//! What an operator may ask about the consumer.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use sink_api::{Offset, TopicId};
use tracing::{debug, info, warn};

use super::error::TopicPartition;

/// A snapshot of the consumer.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// Whether the cluster answered last time.
    pub connected: bool,
    /// How long ago it answered last; `None` when it never has.
    pub last_contact: Option<Duration>,
    /// How long ago the poll thread went round; more than a few seconds means that it hangs.
    pub last_poll: Option<Duration>,
    /// The last error, as a sentence; kept after recovery.
    pub last_error: Option<String>,
    /// Topics that are asked for and do not exist.
    pub missing_topics: Vec<String>,
    /// Times that partitions were given to this worker, asked back, or found lost.
    pub rebalances: Rebalances,
    /// Commits that failed (each was or will be tried again).
    pub failed_commits: u64,
    /// Bytes of records that lanes hold.
    pub memory_used: usize,
    /// Bytes that they may hold.
    pub memory_limit: usize,
    /// The partitions of this worker.
    pub partitions: Vec<PartitionHealth>,
}

/// Rebalances since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebalances {
    /// Partitions were given to this worker.
    pub assigned: u64,
    /// Partitions were asked back.
    pub revoked: u64,
    /// Partitions turned out to belong to another worker already.
    pub lost: u64,
}

/// Where one partition stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionHealth {
    /// Which.
    pub partition: TopicPartition,
    /// Its topic's incarnation, once known.
    pub topic_id: Option<TopicId>,
    /// The next offset to hand to the lane; `None` until the lane has started.
    pub position: Option<Offset>,
    /// The frontier that the lane said last.
    pub frontier: Option<Offset>,
    /// The group's committed offset, as far as this worker committed it.
    pub committed: Option<Offset>,
    /// The end of the partition, at most some seconds old.
    pub end: Option<Offset>,
    /// Whether there is no record at `position` or behind it: the end offset may still be higher, since the control
    /// records of transactions count in it.
    pub at_end: bool,
    /// Records between frontier and end. Control records and compacted ones count, except at the very end.
    pub lag: Option<u64>,
    /// Whether fetching is paused since the lane or the budget has been full for a while.
    pub paused: bool,
    /// Bytes of records that the lane holds.
    pub memory: usize,
}

/// The shared part of [`Health`], written by the threads.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    state: Mutex<State>,
    assigned: AtomicU64,
    revoked: AtomicU64,
    lost: AtomicU64,
    failed_commits: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) connected: bool,
    pub(super) last_contact: Option<Instant>,
    pub(super) last_poll: Option<Instant>,
    pub(super) last_error: Option<String>,
    pub(super) missing_topics: Vec<String>,
    away_since: Option<Instant>,
}

impl Pulse {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread went round.
    pub(super) fn polled(&self) {
        self.state().last_poll = Some(Instant::now());
    }

    /// The cluster answered.
    pub(super) fn answered(&self) {
        let mut state = self.state();
        let now = Instant::now();
        state.last_contact = Some(now);
        state.connected = true;
        if let Some(since) = state.away_since.take() {
            info!(seconds = now.duration_since(since).as_secs(), "kafka is back");
        }
    }

    /// The cluster did not answer: shown once, until it does.
    pub(super) fn away(&self, error: &str) {
        let mut state = self.state();
        state.connected = false;
        state.last_error = Some(error.to_owned());
        if state.away_since.is_none() {
            state.away_since = Some(Instant::now());
            warn!(error, "kafka does not answer, waiting for it");
        }
    }

    /// Something failed that the cluster answered.
    pub(super) fn failed(&self, error: &str) {
        let mut state = self.state();
        if state.last_error.as_deref() != Some(error) {
            if state.away_since.is_some() {
                // Each of the connections that are tried says something else.
                debug!(error, "kafka does not answer");
            } else {
                warn!(error, "kafka reports an error, trying again");
            }
            state.last_error = Some(error.to_owned());
        }
    }

    /// Which topics are waited for; shown when that changes.
    pub(super) fn missing(&self, topics: Vec<String>) {
        let mut state = self.state();
        if state.missing_topics != topics {
            if topics.is_empty() {
                info!("all topics exist");
            } else {
                warn!(topics = topics.join(","), "topics do not exist, waiting for them");
            }
            state.missing_topics = topics;
        }
    }

    pub(super) fn count_assigned(&self) {
        self.assigned.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_revoked(&self, lost: bool) {
        let counter = if lost { &self.lost } else { &self.revoked };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failed_commit(&self) {
        self.failed_commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn rebalances(&self) -> Rebalances {
        Rebalances {
            assigned: self.assigned.load(Ordering::Relaxed),
            revoked: self.revoked.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    pub(super) fn failed_commits(&self) -> u64 {
        self.failed_commits.load(Ordering::Relaxed)
    }
}
