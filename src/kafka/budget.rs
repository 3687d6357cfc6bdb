//! Memory, bounded in bytes over all lanes.
//!
//! Every record that the poll thread hands to a lane is charged to the [`Budget`] and to the lane, and stays charged
//! until the lane drops the [`Charge`]: when its effect is durable, not when it is received. While the budget is used
//! up the thread leaves records in librdkafka's queues, whose own prefetch is bounded by its settings. One record is
//! always let through to a lane that holds nothing, so that no lane can starve another for ever.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use std::thread::Thread;

/// Wakes the poll thread.
#[derive(Debug, Default)]
pub(super) struct Wake {
    thread: OnceLock<Thread>,
    /// Whether the thread left records in a queue for lack of room: only then does room wake it.
    starved: AtomicBool,
}

impl Wake {
    /// Binds the calling thread: from here on it is the one to wake.
    pub(super) fn bind(&self) {
        // A second call can only come from the same thread.
        let _ = self.thread.set(std::thread::current());
    }

    /// Wakes the thread, or makes its next park return at once.
    pub(super) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Says that there is room again.
    pub(super) fn room(&self) {
        if self.starved.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Asks for a wake-up when there is room; the caller looks for room once more afterwards.
    pub(super) fn starve(&self) {
        self.starved.store(true, Ordering::SeqCst);
    }
}

/// The bytes of records that were delivered to lanes and not released yet.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
    wake: Arc<Wake>,
}

impl Budget {
    pub(super) fn new(limit: usize, wake: Arc<Wake>) -> Budget {
        Budget { limit, used: AtomicUsize::new(0), wake }
    }

    /// Returns how many bytes may be held.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns how many bytes are held.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    /// Whether a record may be added to `bytes` that are about to be charged.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.used() + bytes < self.limit
    }
}

/// What one lane holds of the budget.
#[derive(Debug, Default)]
pub(super) struct LaneShare {
    /// Bytes charged.
    held: AtomicUsize,
    /// Of these, bytes that wait in the channel.
    ahead: AtomicUsize,
}

impl LaneShare {
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// Whether the lane may get a chunk: less than `ahead_limit` bytes wait in its channel, and the budget has room; or
    /// it holds nothing at all.
    pub(super) fn wants(&self, budget: &Budget, ahead_limit: usize) -> bool {
        (self.ahead.load(Ordering::SeqCst) < ahead_limit && budget.has_room(0)) || self.held() == 0
    }
}

/// Bytes of the budget, given back when dropped.
#[derive(Debug)]
pub struct Charge {
    bytes: usize,
    /// Whether the records still wait in the lane's channel.
    waiting: bool,
    budget: Arc<Budget>,
    lane: Arc<LaneShare>,
}

impl Charge {
    pub(super) fn new(bytes: usize, budget: &Arc<Budget>, lane: &Arc<LaneShare>) -> Charge {
        budget.used.fetch_add(bytes, Ordering::SeqCst);
        lane.held.fetch_add(bytes, Ordering::SeqCst);
        lane.ahead.fetch_add(bytes, Ordering::SeqCst);
        Charge { bytes, waiting: true, budget: Arc::clone(budget), lane: Arc::clone(lane) }
    }

    /// Returns how many bytes are charged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Notes that the lane has received the records.
    pub(super) fn received(&mut self) {
        if std::mem::take(&mut self.waiting) {
            self.lane.ahead.fetch_sub(self.bytes, Ordering::SeqCst);
            self.budget.wake.room();
        }
    }

    /// Gives back all but `bytes`.
    pub fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.lane.held.fetch_sub(less, Ordering::SeqCst);
        self.budget.used.fetch_sub(less, Ordering::SeqCst);
        self.budget.wake.room();
    }

    /// Adds `other`, so that both are given back together.
    pub fn absorb(&mut self, mut other: Charge) {
        assert!(Arc::ptr_eq(&self.lane, &other.lane), "charges of different lanes are given back to each");
        self.received();
        other.received();
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.received();
        self.lane.held.fetch_sub(self.bytes, Ordering::SeqCst);
        self.budget.used.fetch_sub(self.bytes, Ordering::SeqCst);
        self.budget.wake.room();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(limit: usize) -> (Arc<Budget>, Arc<LaneShare>, Arc<LaneShare>) {
        (Arc::new(Budget::new(limit, Arc::default())), Arc::default(), Arc::default())
    }

    #[test]
    fn a_charge_is_given_back_when_it_is_dropped() {
        let (budget, lane, _) = budget(100);

        let mut first = Charge::new(30, &budget, &lane);
        first.absorb(Charge::new(20, &budget, &lane));

        assert_eq!((budget.used(), lane.held(), first.bytes()), (50, 50, 50));
        drop(first);
        assert_eq!((budget.used(), lane.held()), (0, 0));
    }

    #[test]
    fn a_lane_that_holds_nothing_gets_one_record_though_the_budget_is_used_up() {
        let (budget, hungry, full) = budget(100);

        let _held = Charge::new(120, &budget, &full);

        assert!(hungry.wants(&budget, 1000));
        assert!(!budget.has_room(1), "one record, not two");
        assert!(!full.wants(&budget, 1000));
    }

    #[test]
    fn a_lane_that_does_not_receive_leaves_the_budget_to_others() {
        let (budget, slow, other) = budget(1000);

        let mut ahead = Charge::new(100, &budget, &slow);

        assert!(!slow.wants(&budget, 100));
        assert!(other.wants(&budget, 100) && budget.has_room(50));
        ahead.received();
        assert!(slow.wants(&budget, 100));
    }
}
