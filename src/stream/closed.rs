//! Reads that have their verdict.

use std::collections::{HashSet, VecDeque};

use sink_api::ReadId;

/// How many are remembered here; the sink remembers them all.
const CLOSED_READS: usize = 10_000;

/// The reads that got their verdict last.
#[derive(Debug, Default)]
pub(super) struct ClosedReads {
    reads: HashSet<ReadId>,
    order: VecDeque<ReadId>,
}

impl ClosedReads {
    pub(super) fn contains(&self, read_id: &ReadId) -> bool {
        self.reads.contains(read_id)
    }

    /// Notes that a read has its verdict.
    pub(super) fn insert(&mut self, read_id: ReadId) {
        if !self.reads.insert(read_id.clone()) {
            return;
        }
        self.order.push_back(read_id);
        if self.order.len() > CLOSED_READS
            && let Some(oldest) = self.order.pop_front()
        {
            self.reads.remove(&oldest);
        }
    }
}
