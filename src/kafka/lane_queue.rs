//! One partition on the poll thread: its queue, and what is known of its lane.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use rdkafka::{
    consumer::base_consumer::PartitionQueue,
    error::{KafkaError, RDKafkaErrorCode},
    message::{BorrowedMessage, Message},
};
use sink_api::Offset;
use tokio::sync::mpsc;
use tracing::debug;

use super::{
    budget::{Budget, Charge, Wake},
    context::GroupContext,
    health::Pulse,
    native,
    partition::PartitionState,
    records::{Chunk, Delivery},
};
use crate::record::{Record, is_wanted_header};

/// Records of a chunk at most: enough that a send costs nothing per record.
const CHUNK_RECORDS: usize = 500;

/// Bytes of a chunk, after which it ends: small against the budget, so that lanes share it.
const CHUNK_BYTES: usize = 256 << 10;

/// A lane whose channel holds as much gets no more: a chunk or two are there when it has done one, and one that is stuck
/// holds little. What is added is always a whole chunk, if there is one: filling up exactly would make small chunks, and
/// each chunk taken would be followed by one as small.
const AHEAD_BYTES: usize = 256 << 10;

/// Where records come from and where they go.
pub(super) struct Feed {
    queue: PartitionQueue<GroupContext>,
    deliveries: mpsc::UnboundedSender<Delivery>,
    next: Offset,
    /// Collected and not sent yet: records, then perhaps an error.
    pending: Vec<Delivery>,
    /// The lane has been told of an error and gets no more.
    ended: bool,
}

impl Feed {
    pub(super) fn new(
        mut queue: PartitionQueue<GroupContext>,
        deliveries: mpsc::UnboundedSender<Delivery>,
        at: Offset,
        wake: &Arc<Wake>,
    ) -> Feed {
        let wake = Arc::clone(wake);
        queue.set_nonempty_callback(move || wake.wake());
        Feed { queue, deliveries, next: at, pending: Vec::new(), ended: false }
    }
}

/// A partition that is ours.
pub(super) struct LaneQueue {
    pub(super) state: Arc<PartitionState>,
    pub(super) feed: Option<Feed>,
    /// The lane is gone: nothing more is fetched.
    pub(super) released: bool,
    /// The offset that the group has, as far as we know.
    pub(super) committed: Option<Offset>,
    /// The offset of the commit that is under way.
    pub(super) committing: Option<Offset>,
    full_since: Option<Instant>,
}

/// What one look at a lane's queue came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// Nothing to do.
    Nothing,
    /// Records or an error were collected, and there may be more.
    Some,
    /// Records may be waiting, and there is no room.
    Full,
}

impl LaneQueue {
    pub(super) fn new(state: Arc<PartitionState>) -> LaneQueue {
        LaneQueue { state, feed: None, released: false, committed: None, committing: None, full_since: None }
    }

    /// Collects up to one chunk, to be handed over by [`send`](LaneQueue::send).
    pub(super) fn collect(&mut self, budget: &Arc<Budget>, wake: &Wake, pulse: &Pulse, now: Instant) -> Moved {
        let Some(feed) = self.feed.as_mut().filter(|feed| !feed.ended && !self.released) else {
            return Moved::Nothing;
        };
        let share = &self.state.share;
        if !share.wants(budget, AHEAD_BYTES) {
            wake.starve();
            // Looked at again after the note, so that room made in between is not missed.
            if !share.wants(budget, AHEAD_BYTES) {
                self.full_since.get_or_insert(now);
                return Moved::Full;
            }
        }
        self.full_since = None;

        let (mut records, mut bytes, mut at_end, mut failure) = (Vec::new(), 0, false, None);
        let mut empty_polls = 0;
        while records.len() < CHUNK_RECORDS && bytes < CHUNK_BYTES && (records.is_empty() || budget.has_room(bytes)) {
            match feed.queue.poll(Duration::ZERO) {
                // An event that is no record looks like an empty queue, once.
                None if empty_polls == 1 => break,
                None => empty_polls += 1,
                Some(Ok(message)) if message.offset() < feed.next.0 => {
                    debug!(partition = %self.state.partition, offset = message.offset(), "a record came twice, skipped");
                }
                Some(Ok(message)) => {
                    let record = copy(&message);
                    bytes += record.bytes();
                    feed.next = record.offset.next();
                    at_end = false;
                    records.push(record);
                }
                Some(Err(KafkaError::PartitionEOF(_))) => at_end = true,
                Some(Err(err)) => match err.rdkafka_error_code() {
                    Some(
                        RDKafkaErrorCode::AutoOffsetReset
                        | RDKafkaErrorCode::OffsetOutOfRange
                        | RDKafkaErrorCode::LogTruncation,
                    ) => {
                        failure = Some(Delivery::OutOfRange);
                        break;
                    }
                    _ => pulse.failed(&format!("read {}: {err}", self.state.partition)),
                },
            }
        }

        if !records.is_empty() || at_end {
            let charge = Charge::new(bytes, budget, share);
            feed.pending.push(Delivery::Chunk(Chunk { records, at_end, charge }));
        }
        feed.pending.extend(failure);
        if feed.pending.is_empty() { Moved::Nothing } else { Moved::Some }
    }

    /// Hands over what was collected, unless the lane was ended meanwhile.
    pub(super) fn send(&mut self) {
        let Some(feed) = self.feed.as_mut().filter(|feed| !feed.pending.is_empty()) else { return };
        for delivery in std::mem::take(&mut feed.pending) {
            if feed.ended {
                break;
            }
            match &delivery {
                Delivery::Chunk(chunk) => {
                    self.state.at_end.store(chunk.at_end, Ordering::SeqCst);
                    self.state.delivered_up_to(feed.next);
                }
                Delivery::OutOfRange | Delivery::Failed(_) => feed.ended = true,
            }
            // A lane that is gone takes nothing; its release is on the way.
            let _ = feed.deliveries.send(delivery);
        }
    }

    /// Ends the lane's records with an error.
    pub(super) fn fail(&mut self, failure: Delivery) {
        if let Some(feed) = self.feed.as_mut().filter(|feed| !feed.ended) {
            feed.ended = true;
            let _ = feed.deliveries.send(failure);
        }
    }

    /// Whether nothing is to be fetched for now: its lane is gone, or has been full for longer than `moment`.
    pub(super) fn should_pause(&self, moment: Duration, now: Instant) -> bool {
        let ended = self.released || self.feed.as_ref().is_some_and(|feed| feed.ended);
        ended || self.full_since.is_some_and(|since| now.duration_since(since) >= moment)
    }

    /// The frontier to commit, when the group does not have it yet.
    pub(super) fn to_commit(&self) -> Option<Offset> {
        let frontier = self.state.frontier()?;
        (self.committing.is_none() && self.committed != Some(frontier)).then_some(frontier)
    }
}

/// Copies what a lane needs. Null and empty are told apart.
fn copy(message: &BorrowedMessage<'_>) -> Record {
    Record {
        offset: Offset(message.offset()),
        timestamp: message.timestamp().to_millis(),
        key: message.key().map(Box::from),
        value: message.payload().map(Box::from),
        headers: native::headers(message, is_wanted_header),
    }
}
