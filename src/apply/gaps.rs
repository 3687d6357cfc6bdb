//! Offsets that the log skips.
//!
//! A transaction's marker takes an offset, and so do records of one that was aborted: such gaps mean nothing. Where a topic
//! is compacted a change may be gone of which a later one stands in the log. A window is not whole without it.

use std::time::Duration;

use sink_api::Offset;
use tokio::time::Instant;

use super::ports::Outlet;

/// How long an answer holds. Under transactions there is a gap at each one's end; compaction needs longer to begin.
const HOLDS: Duration = Duration::from_secs(10);

/// The gaps of a partition.
#[derive(Debug)]
pub(super) struct Gaps {
    next: Offset,
    compacted: Option<(Instant, bool)>,
}

impl Gaps {
    /// Reading begins at `first`.
    pub(super) fn new(first: Offset) -> Gaps {
        Gaps { next: first, compacted: None }
    }

    /// Takes note of a record. Returns the first of the offsets that are missing right before it, if there are any.
    pub(super) fn before(&mut self, offset: Offset) -> Option<Offset> {
        let first = std::mem::replace(&mut self.next, offset.next());
        (first < offset).then_some(first)
    }

    /// Whether what is missing may have been records; `None` when the partition was taken away before there was an answer.
    pub(super) async fn may_be_lost(&mut self, outlet: &impl Outlet) -> Option<bool> {
        if let Some((_, answer)) = self.compacted.filter(|(at, _)| at.elapsed() < HOLDS) {
            return Some(answer);
        }
        let answer = outlet.may_be_compacted().await?;
        self.compacted = Some((Instant::now(), answer));
        Some(answer)
    }
}
