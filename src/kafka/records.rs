//! The records of a started partition, chunk by chunk.

use std::sync::Arc;

use sink_api::Offset;
use tokio::sync::mpsc;

use super::{
    budget::{Budget, Charge},
    error::PartitionError,
    lookup::LogBounds,
    partition::{Assignment, Ending, Lease, taken},
};
use crate::record::Record;

/// Some records of a partition, in the order of the log.
#[derive(Debug)]
pub struct Chunk {
    /// The records; offsets ascend and may have gaps (transactions, compaction).
    pub records: Vec<Record>,
    /// Whether the log ended behind them. A chunk may have no records and only say that.
    pub at_end: bool,
    /// Their memory: to be dropped when the records' effect is durable, or when they are let go.
    pub charge: Charge,
}

/// What the poll thread sends to a lane.
#[derive(Debug)]
pub(super) enum Delivery {
    Chunk(Chunk),
    /// The log does not have the position any more.
    OutOfRange,
    Failed(PartitionError),
}

/// The records of a started partition.
pub struct Records {
    lease: Arc<Lease>,
    receiver: mpsc::UnboundedReceiver<Delivery>,
    start: Offset,
    position: Offset,
    end_at_start: Offset,
    caught_up: bool,
    failure: Option<Failure>,
}

/// Why no more records can come; what was said once is said again.
enum Failure {
    /// To be found out.
    OutOfRange,
    Known(PartitionError),
}

impl Records {
    pub(super) fn new(
        lease: Arc<Lease>,
        receiver: mpsc::UnboundedReceiver<Delivery>,
        start: Offset,
        bounds: LogBounds,
    ) -> Records {
        let (end_at_start, caught_up) = (bounds.end, start >= bounds.end);
        Records { lease, receiver, start, position: start, end_at_start, caught_up, failure: None }
    }

    /// Returns the next records, in order; `None` when the partition is being taken or the consumer stops: the lane
    /// then finishes its unit of work, commits and drops this. May be cancelled without losing records.
    ///
    /// # Errors
    /// When the log does not have the next offset any more, or the topic was made anew.
    pub async fn next_chunk(&mut self) -> Result<Option<Chunk>, PartitionError> {
        if self.failure.is_none() {
            let delivery = tokio::select! {
                // First: a lane whose partition is being taken begins nothing new.
                biased;
                _ = taken(Arc::clone(&self.lease.state)) => return Ok(None),
                delivery = self.receiver.recv() => delivery,
            };
            self.failure = match delivery {
                Some(Delivery::Chunk(chunk)) => return Ok(Some(self.received(chunk))),
                Some(Delivery::Failed(err)) => Some(Failure::Known(err)),
                Some(Delivery::OutOfRange) => Some(Failure::OutOfRange),
                None => return Ok(None),
            };
        }
        let err = match &self.failure {
            Some(Failure::Known(err)) => err.clone(),
            _ => Assignment::of(&self.lease).out_of_range(self.position).await,
        };
        match err {
            PartitionError::Taken { .. } => Ok(None),
            err => {
                self.failure = Some(Failure::Known(err.clone()));
                Err(err)
            }
        }
    }

    fn received(&mut self, mut chunk: Chunk) -> Chunk {
        chunk.charge.received();
        if let Some(last) = chunk.records.last() {
            self.position = last.offset.next();
        }
        self.caught_up |= chunk.at_end || self.position >= self.end_at_start;
        chunk
    }

    /// Returns the offset at which reading started.
    pub fn start_offset(&self) -> Offset {
        self.start
    }

    /// Returns the next offset that can come: one more than that of the last record received.
    pub fn position(&self) -> Offset {
        self.position
    }

    /// Whether every record that the partition had at the start has been received.
    pub fn caught_up(&self) -> bool {
        self.caught_up
    }

    /// Sets the group's committed offset, soon: `frontier` is the next offset to read such that every earlier record
    /// is done and durable.
    pub fn commit(&self, frontier: Offset) {
        self.lease.state.done_up_to(frontier);
    }

    /// Returns how the partition is being taken, if it is.
    pub fn ending(&self) -> Option<Ending> {
        *self.lease.state.ending.borrow()
    }

    /// Waits until the partition is being taken: what a lane that waits for its sink listens to besides.
    pub fn taken(&self) -> impl Future<Output = Ending> + Send + 'static {
        taken(Arc::clone(&self.lease.state))
    }

    /// Returns the budget that the records count against.
    pub fn budget(&self) -> &Budget {
        &self.lease.reach.budget
    }
}
