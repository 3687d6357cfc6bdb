//! The poll thread: the one that talks to the group, and never waits for a sink.
//!
//! It goes round: commands of the async side, one chunk for each lane that has room, the group's events, partitions
//! being given up, commits. When there is nothing to do it parks; new records, events, commands and room in the budget
//! wake it. All waiting (for lanes, for commits) is a deadline that is looked at in each round, never a blocking call.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering, mpsc::Receiver},
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    consumer::{BaseConsumer, Consumer},
    error::RDKafkaErrorCode,
};
use sink_api::Offset;
use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

use super::{
    GroupEvent,
    budget::Wake,
    context::{GroupContext, offset_list, partition_list},
    error::{FatalError, PartitionError, TopicPartition},
    health::Pulse,
    lane_queue::{Feed, LaneQueue, Moved},
    native::{CommitOutcome, Commits},
    partition::{Command, PartitionState, Reach},
    rebalance::Giving,
    records::Delivery,
};

/// The longest the thread sleeps: what it notices by time alone (deadlines, pauses) is not more precise than this.
const ROUND: Duration = Duration::from_millis(100);

/// The same while a rebalance of the whole group waits for us.
const SHORT_ROUND: Duration = Duration::from_millis(5);

/// How often frontiers are committed. The sink's own frontier counts at a restart, so this may lag.
const COMMIT_EVERY: Duration = Duration::from_secs(1);

/// How long a lane must have been full before its prefetch is thrown away: fetching it again costs more than keeping it
/// over a slow batch.
const PAUSE_AFTER: Duration = Duration::from_secs(2);

/// The thread's own state.
pub(super) struct PollLoop {
    pub(super) consumer: Arc<BaseConsumer<GroupContext>>,
    pub(super) commits: Commits,
    pub(super) commands: Receiver<Command>,
    pub(super) events: mpsc::UnboundedSender<GroupEvent>,
    pub(super) reach: Reach,
    pub(super) wake: Arc<Wake>,
    pub(super) pulse: Arc<Pulse>,
    pub(super) registry: super::Registry,
    pub(super) release_within: Duration,
    pub(super) lanes: BTreeMap<TopicPartition, LaneQueue>,
    pub(super) giving: Vec<Giving>,
    pub(super) stopping: Option<Instant>,
    pub(super) next_commit: Instant,
}

/// Whether the thread goes on.
#[derive(PartialEq, Eq)]
enum Turn {
    On,
    Over,
}

impl PollLoop {
    /// Runs until it is stopped or a fatal error ends the consumer.
    pub(super) fn run(mut self) {
        self.wake.bind();
        loop {
            self.pulse.polled();
            self.serve_commands();
            let now = Instant::now();
            let busy = self.collect(now);
            // After the records were taken and before they are handed over: librdkafka says that a topic was made anew
            // before it fetches from the new one, so here it is known of every record to which it applies.
            if self.serve_group() == Turn::Over {
                break;
            }
            self.lanes.values_mut().for_each(LaneQueue::send);
            for outcome in self.commits.ended() {
                self.committed(outcome);
            }
            self.serve_giving(now);
            self.serve_commits(now);
            if self.stopping.is_some() && self.lanes.is_empty() && self.giving.is_empty() {
                break;
            }
            if !busy {
                // What ends a giving-up (a commit) wakes nobody.
                thread::park_timeout(if self.giving.is_empty() { ROUND } else { SHORT_ROUND });
            }
        }
        self.leave();
    }

    fn serve_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Start { state, at, deliveries } => self.start(&state, at, deliveries),
                Command::Released(state) => self.released(&state),
                Command::Fail(state, err) => {
                    if let Some(lane) = self.lane(&state) {
                        lane.fail(Delivery::Failed(err));
                    }
                }
                Command::Subscribe(topics) => self.subscribe(&topics),
                Command::Stop(deadline) => self.stop(deadline),
            }
        }
    }

    /// The lane of this very assignment: a later one of the same partition is another lane.
    fn lane(&mut self, state: &Arc<PartitionState>) -> Option<&mut LaneQueue> {
        self.lanes.get_mut(&state.partition).filter(|lane| Arc::ptr_eq(&lane.state, state))
    }

    fn subscribe(&mut self, topics: &[String]) {
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        info!(topics = topics.join(","), "subscribe");
        if let Err(err) = self.consumer.subscribe(&names) {
            self.pulse.failed(&format!("subscribe: {err}"));
        }
    }

    fn start(&mut self, state: &Arc<PartitionState>, at: Offset, deliveries: mpsc::UnboundedSender<Delivery>) {
        let (consumer, wake) = (Arc::clone(&self.consumer), Arc::clone(&self.wake));
        let Some(lane) = self.lane(state) else {
            // Taken meanwhile: dropping `deliveries` ends the records.
            return;
        };
        let partition = &state.partition;
        let list = partition_list([partition.clone()]);
        if lane.feed.take().is_some() {
            if let Err(err) = consumer.incremental_unassign(&list) {
                warn!(%partition, error = %err, "stop reading before starting again");
            }
            state.paused.store(false, Ordering::SeqCst);
        }
        // Split before it is assigned, so that no record goes to the common queue.
        let Some(queue) = consumer.split_partition_queue(&partition.topic, partition.partition.0) else {
            error!(%partition, "librdkafka has no queue for the partition");
            return;
        };
        // librdkafka keeps a pause over the end of an assignment: a lane that was full when its partition went would get
        // nothing when it comes back. Before it is assigned, since a resume drops what was fetched before it.
        if let Err(err) = consumer.resume(&list) {
            debug!(%partition, error = %err, "resume before reading");
        }
        state.started_at(at);
        lane.feed = Some(Feed::new(queue, deliveries, at, &wake));
        consumer.context().assigned().insert(partition.clone());
        match consumer.incremental_assign(&offset_list([(partition, at.0)])) {
            Ok(()) => info!(%partition, offset = %at, "reading"),
            Err(err) => {
                warn!(%partition, error = %err, "start reading");
                consumer.context().assigned().remove(partition);
                // The group moved on; a revocation that says so is on its way.
                if let Some(lane) = self.lane(state) {
                    lane.fail(Delivery::Failed(PartitionError::Taken { partition: partition.clone() }));
                }
            }
        }
    }

    /// Serves librdkafka's queue until it is empty, then acts on what came.
    fn serve_group(&mut self) -> Turn {
        loop {
            let served = self.consumer.context().served();
            match self.consumer.poll(Duration::ZERO) {
                None if self.consumer.context().served() == served => break,
                // An error is in the inbox as well, with its text.
                None | Some(Err(_)) => {}
                Some(Ok(message)) => {
                    use rdkafka::message::Message;
                    let partition = TopicPartition::new(message.topic(), message.partition());
                    // Every partition has a queue of its own before it is assigned. Should that fail to hold, a record
                    // would be missing from its lane: better to stop.
                    let offset = message.offset();
                    let message = format!("{partition}: record {offset} came outside of its partition's queue");
                    return self.fatal(FatalError { message, hint: None });
                }
            }
        }
        let inbox = std::mem::take(&mut *self.consumer.context().inbox());
        for (code, reason) in inbox.errors {
            if self.group_error(code, &reason) == Turn::Over {
                return Turn::Over;
            }
        }
        for topic in inbox.made_anew {
            // The lane finds out what happened.
            let lanes = self.lanes.values_mut().filter(|lane| *lane.state.partition.topic == *topic);
            lanes.for_each(|lane| lane.fail(Delivery::OutOfRange));
        }
        for rebalance in inbox.rebalances {
            self.rebalance(rebalance);
        }
        Turn::On
    }

    fn group_error(&mut self, code: RDKafkaErrorCode, reason: &str) -> Turn {
        // The code of a fatal error is the cause's own.
        if let Some((code, text)) = self.consumer.client().fatal_error() {
            let hint = matches!(code, RDKafkaErrorCode::FencedInstanceId | RDKafkaErrorCode::UnreleasedInstanceId)
                .then_some("two workers have the same group.instance.id: give each its own");
            return self.fatal(FatalError { message: format!("the consumer group: {text} ({code})"), hint });
        }
        match code {
            RDKafkaErrorCode::AllBrokersDown => self.pulse.away(reason),
            // The watch thread says which topics are missing.
            RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic => debug!(reason),
            _ => self.pulse.failed(reason),
        }
        Turn::On
    }

    fn fatal(&mut self, err: FatalError) -> Turn {
        error!(error = %err, hint = err.hint, "the consumer cannot go on");
        self.end_all_as_lost();
        let _ = self.events.send(GroupEvent::Fatal(err));
        Turn::Over
    }

    /// Collects a chunk for every lane that has room. Returns whether there may be more.
    fn collect(&mut self, now: Instant) -> bool {
        let mut busy = false;
        for lane in self.lanes.values_mut() {
            match lane.collect(&self.reach.budget, &self.wake, &self.pulse, now) {
                Moved::Some => busy = true,
                Moved::Nothing | Moved::Full => {}
            }
            let (pause, paused) = (lane.should_pause(PAUSE_AFTER, now), &lane.state.paused);
            if lane.feed.is_some() && pause != paused.load(Ordering::SeqCst) {
                let list = partition_list([lane.state.partition.clone()]);
                let done = if pause { self.consumer.pause(&list) } else { self.consumer.resume(&list) };
                debug!(partition = %lane.state.partition, pause, ok = done.is_ok(), "pause or resume");
                if done.is_ok() {
                    paused.store(pause, Ordering::SeqCst);
                }
            }
        }
        busy
    }

    fn serve_commits(&mut self, now: Instant) {
        if now >= self.next_commit {
            self.next_commit = now + COMMIT_EVERY;
            commit(&self.consumer, &self.commits, self.lanes.values_mut());
        }
    }

    fn committed(&mut self, outcome: CommitOutcome) {
        match outcome.result {
            Ok(()) => self.pulse.answered(),
            Err(code) => {
                self.pulse.count_failed_commit();
                self.pulse.failed(&format!("commit offset {} of {}: {code}", outcome.offset, outcome.partition));
            }
        }
        let giving = self.giving.iter_mut().flat_map(|giving| giving.lanes.iter_mut());
        let lane = self.lanes.values_mut().chain(giving).find(|lane| lane.state.partition == outcome.partition);
        if let Some(lane) = lane {
            lane.committing = None;
            if outcome.result.is_ok() {
                lane.committed = Some(Offset(outcome.offset));
                lane.state.committed(Offset(outcome.offset));
            }
        }
    }

    /// Leaves the group. Partitions that are still assigned are given up inside the drop.
    fn leave(self) {
        let PollLoop { consumer, commits, lanes, giving, .. } = self;
        consumer.context().close();
        // Their queues hold the consumer.
        drop((lanes, giving, commits));
        drop(consumer);
        info!("left the consumer group");
    }
}

/// Starts the commit of every frontier that the group does not have yet.
pub(super) fn commit<'a>(
    consumer: &BaseConsumer<GroupContext>,
    commits: &Commits,
    lanes: impl Iterator<Item = &'a mut LaneQueue>,
) {
    let mut lanes: Vec<(&mut LaneQueue, Offset)> =
        lanes.filter_map(|lane| lane.to_commit().map(|offset| (lane, offset))).collect();
    if lanes.is_empty() {
        return;
    }
    let list = offset_list(lanes.iter().map(|(lane, offset)| (&lane.state.partition, offset.0)));
    match commits.start(consumer.client(), &list) {
        Ok(()) => lanes.iter_mut().for_each(|(lane, offset)| lane.committing = Some(*offset)),
        Err(code) => debug!(error = %code, "start a commit"),
    }
}
