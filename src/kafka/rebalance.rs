//! Taking partitions and giving them up.
//!
//! Partitions that the group gives are acknowledged at once, with nothing to fetch: a lane may need an hour to learn
//! from its sink where to start, and the group must not wait for that. When it knows, the partition is added with its
//! offset.
//!
//! Partitions that the group asks back are given up in three steps, each with a deadline: lanes finish their unit of
//! work, their frontiers are committed, librdkafka is told. The group waits for the last step, so a partition never
//! has two owners unless this worker stood still beyond its session; then the sink's fence holds.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rdkafka::{consumer::Consumer, topic_partition_list::TopicPartitionList};
use tracing::{info, warn};

use super::{
    GroupEvent,
    context::{Rebalance, partition_list},
    error::TopicPartition,
    lane_queue::LaneQueue,
    partition::{Assignment, Ending, PartitionState},
    poll::{PollLoop, commit},
};

/// How long the last commit may take. Failing is harmless: the sink's frontier counts.
const COMMIT_WITHIN: Duration = Duration::from_secs(2);

/// Partitions that are being given up.
pub(super) struct Giving {
    pub(super) lanes: Vec<LaneQueue>,
    /// All that are to be given up, with or without a lane.
    partitions: Vec<TopicPartition>,
    ending: Ending,
    /// Set once the last commit has begun.
    commit_until: Option<Instant>,
}

impl PollLoop {
    pub(super) fn rebalance(&mut self, rebalance: Rebalance) {
        match rebalance {
            Rebalance::Assign(partitions) => self.assigned(partitions),
            Rebalance::Revoke { partitions, lost } => {
                if !partitions.is_empty() {
                    self.pulse.count_revoked(lost);
                }
                let deadline = Instant::now() + if lost { Duration::ZERO } else { self.release_within };
                self.give_up(partitions, Ending { deadline, lost });
            }
        }
    }

    fn assigned(&mut self, partitions: Vec<TopicPartition>) {
        // Acknowledges without fetching; what there is to fetch is added when its lane starts.
        if let Err(err) = self.consumer.incremental_assign(&TopicPartitionList::new()) {
            warn!(error = %err, "acknowledge an assignment");
        }
        if partitions.is_empty() {
            return;
        }
        info!(partitions = list(&partitions), "partitions assigned");
        self.pulse.count_assigned();
        self.pulse.answered();
        if self.stopping.is_some() {
            return;
        }
        let mut assignments = Vec::new();
        for partition in partitions {
            let state = Arc::new(PartitionState::new(partition.clone()));
            self.registry.add(&state);
            assignments.push(Assignment::new(Arc::clone(&state), self.reach.clone()));
            self.lanes.insert(partition, LaneQueue::new(state));
        }
        // Nobody to take them: they are released at once.
        let _ = self.events.send(GroupEvent::Assigned(assignments));
    }

    /// Begins to give up partitions.
    fn give_up(&mut self, partitions: Vec<TopicPartition>, ending: Ending) {
        if !partitions.is_empty() {
            info!(partitions = list(&partitions), lost = ending.lost, "giving up partitions");
        }
        let lanes: Vec<LaneQueue> = partitions.iter().filter_map(|partition| self.lanes.remove(partition)).collect();
        for lane in &lanes {
            lane.state.ending.send_replace(Some(ending));
        }
        self.giving.push(Giving { lanes, partitions, ending, commit_until: None });
    }

    /// The lane of an assignment is gone.
    pub(super) fn released(&mut self, state: &Arc<PartitionState>) {
        let giving = self.giving.iter_mut().flat_map(|giving| giving.lanes.iter_mut());
        let lane = self.lanes.values_mut().chain(giving).find(|lane| Arc::ptr_eq(&lane.state, state));
        if let Some(lane) = lane {
            lane.released = true;
        }
        // Its fetches are paused rather than ended: to unassign it now could be taken for the answer to a revocation
        // of other partitions that is on its way.
    }

    /// Ends all lanes until `deadline`, as if the group asked for everything back.
    pub(super) fn stop(&mut self, deadline: Instant) {
        self.stopping = Some(deadline);
        let partitions = self.lanes.keys().cloned().collect();
        self.give_up(partitions, Ending { deadline, lost: false });
    }

    /// Tells every lane that nothing may be written any more.
    pub(super) fn end_all_as_lost(&mut self) {
        let ending = Ending { deadline: Instant::now(), lost: true };
        let giving = self.giving.iter().flat_map(|giving| giving.lanes.iter());
        for lane in self.lanes.values().chain(giving) {
            lane.state.ending.send_replace(Some(ending));
        }
    }

    /// Takes each giving-up as far as it can go now.
    pub(super) fn serve_giving(&mut self, now: Instant) {
        let mut i = 0;
        while i < self.giving.len() {
            if self.advance(i, now) {
                let giving = self.giving.remove(i);
                self.give_back(giving);
            } else {
                i += 1;
            }
        }
    }

    /// Whether nothing more is to be waited for.
    fn advance(&mut self, i: usize, now: Instant) -> bool {
        let giving = &mut self.giving[i];
        if giving.ending.lost {
            return true;
        }
        let Some(until) = giving.commit_until else {
            let finished = giving.lanes.iter().all(|lane| lane.released);
            // A commit that is under way carries an older frontier; the last one goes after it.
            let committing = giving.lanes.iter().any(|lane| lane.committing.is_some());
            if now >= giving.ending.deadline || (finished && !committing) {
                for lane in giving.lanes.iter().filter(|lane| !lane.released) {
                    warn!(partition = %lane.state.partition, "the lane did not finish in time");
                }
                giving.lanes.iter_mut().for_each(|lane| lane.committing = None);
                if !self.pulse.state().connected {
                    // librdkafka would keep the commit, and the consumer with it, until its session ends.
                    return true;
                }
                commit(&self.consumer, &self.commits, giving.lanes.iter_mut());
                giving.commit_until = Some(now + COMMIT_WITHIN);
            }
            return giving.lanes.iter().all(|lane| lane.to_commit().is_none() && lane.committing.is_none())
                && giving.commit_until.is_some();
        };
        now >= until || giving.lanes.iter().all(|lane| lane.committing.is_none())
    }

    fn give_back(&mut self, giving: Giving) {
        let ours = {
            let mut assigned = self.consumer.context().assigned();
            let ours = giving.partitions.iter().filter(|partition| assigned.remove(partition)).cloned();
            partition_list(ours.collect::<Vec<_>>())
        };
        // Also with nothing in it: librdkafka waits for the answer.
        if let Err(err) = self.consumer.incremental_unassign(&ours) {
            warn!(error = %err, "give up partitions");
        }
        for lane in &giving.lanes {
            self.registry.remove(&lane.state);
        }
    }
}

fn list(partitions: &[TopicPartition]) -> String {
    partitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
