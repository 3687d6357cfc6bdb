//! A partition as its lane sees it.
//!
//! ```text
//! Assignment --describe--> topic id --start(offset)--> Records --next_chunk--> ... --commit(frontier)
//! ```
//!
//! An [`Assignment`] and the [`Records`] started from it together hold the partition: while one of them lives, a
//! rebalance waits for the lane, up to its deadline.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI64, Ordering},
        mpsc as thread_mpsc,
    },
    time::Instant,
};

use sink_api::{Offset, TopicId};
use tokio::sync::{mpsc, watch};

use super::{
    budget::{Budget, LaneShare, Wake},
    error::{PartitionError, TopicPartition},
    health::PartitionHealth,
    lookup::{LogBounds, Lookup},
    native::TopicDescription,
    records::{Delivery, Records},
};

/// How a partition is being taken from its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Until when the lane may finish its unit of work; dropping the assignment and its records says that it has.
    pub deadline: Instant,
    /// The partition already belongs to someone else: nothing may be written any more.
    pub lost: bool,
}

/// Where a lane starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At the sink's frontier.
    Offset(Offset),
    /// At the group's committed offset, or where there is none at an edge of the log.
    CommittedOr(Edge),
    /// At an edge of the log.
    Edge(Edge),
}

/// One end of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// The oldest record that is still there.
    Earliest,
    /// The next record to come.
    Latest,
}

/// What lanes and the watch thread ask of the poll thread.
pub(super) enum Command {
    /// Read this partition from `at` on into `deliveries`.
    Start { state: Arc<PartitionState>, at: Offset, deliveries: mpsc::UnboundedSender<Delivery> },
    /// The lane is gone.
    Released(Arc<PartitionState>),
    /// The lane must end with an error.
    Fail(Arc<PartitionState>, PartitionError),
    /// Read these topics.
    Subscribe(Vec<String>),
    /// End all lanes until the instant, commit, leave the group.
    Stop(Instant),
}

/// No offset yet.
const UNKNOWN: i64 = -1;

/// What the threads and the lane share about one partition, for one time that it is ours.
#[derive(Debug)]
pub(super) struct PartitionState {
    pub(super) partition: TopicPartition,
    pub(super) share: Arc<LaneShare>,
    pub(super) ending: watch::Sender<Option<Ending>>,
    pub(super) topic_id: OnceLock<TopicId>,
    pub(super) paused: AtomicBool,
    /// The thread has polled the end of the partition and nothing since.
    pub(super) at_end: AtomicBool,
    start: AtomicI64,
    position: AtomicI64,
    frontier: AtomicI64,
    committed: AtomicI64,
    end: AtomicI64,
}

impl PartitionState {
    pub(super) fn new(partition: TopicPartition) -> PartitionState {
        PartitionState {
            partition,
            share: Arc::default(),
            ending: watch::Sender::new(None),
            topic_id: OnceLock::new(),
            paused: AtomicBool::new(false),
            at_end: AtomicBool::new(false),
            start: AtomicI64::new(UNKNOWN),
            position: AtomicI64::new(UNKNOWN),
            frontier: AtomicI64::new(UNKNOWN),
            committed: AtomicI64::new(UNKNOWN),
            end: AtomicI64::new(UNKNOWN),
        }
    }

    pub(super) fn started_at(&self, offset: Offset) {
        self.start.store(offset.0, Ordering::SeqCst);
        self.position.store(offset.0, Ordering::SeqCst);
        self.at_end.store(false, Ordering::SeqCst);
    }

    /// The next offset to hand to the lane.
    pub(super) fn position(&self) -> Option<Offset> {
        known(&self.position)
    }

    pub(super) fn delivered_up_to(&self, next: Offset) {
        self.position.store(next.0, Ordering::SeqCst);
        self.end.fetch_max(next.0, Ordering::SeqCst);
    }

    pub(super) fn done_up_to(&self, frontier: Offset) {
        self.frontier.store(frontier.0, Ordering::SeqCst);
    }

    pub(super) fn frontier(&self) -> Option<Offset> {
        known(&self.frontier)
    }

    pub(super) fn committed(&self, offset: Offset) {
        self.committed.store(offset.0, Ordering::SeqCst);
    }

    pub(super) fn ends_at(&self, end: Offset) {
        self.end.store(end.0, Ordering::SeqCst);
    }

    pub(super) fn health(&self) -> PartitionHealth {
        let (position, frontier, end) = (self.position(), self.frontier(), known(&self.end));
        let done = frontier.or(known(&self.start));
        let at_end = self.at_end.load(Ordering::SeqCst);
        let caught_up = at_end && done >= position;
        let lag = match (done, end) {
            // Between the last record and the end may be control records, which no lane ever sees.
            (Some(_), _) if caught_up => Some(0),
            (Some(done), Some(end)) => Some(u64::try_from(end.0 - done.0).unwrap_or(0)),
            _ => None,
        };
        PartitionHealth {
            partition: self.partition.clone(),
            topic_id: self.topic_id.get().copied(),
            position,
            frontier,
            committed: known(&self.committed),
            end,
            at_end,
            lag,
            paused: self.paused.load(Ordering::SeqCst),
            memory: self.share.held(),
        }
    }
}

fn known(offset: &AtomicI64) -> Option<Offset> {
    Some(offset.load(Ordering::SeqCst)).filter(|offset| *offset != UNKNOWN).map(Offset)
}

/// What an assignment needs to reach the threads.
#[derive(Clone)]
pub(super) struct Reach {
    pub(super) commands: thread_mpsc::Sender<Command>,
    pub(super) wake: Arc<Wake>,
    pub(super) lookup: Lookup,
    pub(super) budget: Arc<Budget>,
}

impl Reach {
    pub(super) fn tell(&self, command: Command) {
        // When the thread is gone every lane has been ended, and there is nothing left to tell.
        let _ = self.commands.send(command);
        self.wake.wake();
    }
}

/// Says that the lane is gone, when the last part of it is.
pub(super) struct Lease {
    pub(super) state: Arc<PartitionState>,
    pub(super) reach: Reach,
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.reach.tell(Command::Released(Arc::clone(&self.state)));
    }
}

/// A partition that the group gave to this worker. Nothing is fetched of it before [`start`](Assignment::start).
pub struct Assignment {
    lease: Arc<Lease>,
}

impl Assignment {
    pub(super) fn new(state: Arc<PartitionState>, reach: Reach) -> Assignment {
        Assignment { lease: Arc::new(Lease { state, reach }) }
    }

    /// The assignment from which records were started.
    pub(super) fn of(lease: &Arc<Lease>) -> Assignment {
        Assignment { lease: Arc::clone(lease) }
    }

    /// Returns which partition it is.
    pub fn partition(&self) -> &TopicPartition {
        &self.lease.state.partition
    }

    /// Asks for the topic's id and partition count, until the cluster answers.
    ///
    /// # Errors
    /// `Taken` when the partition is taken before.
    pub async fn describe(&self) -> Result<TopicDescription, PartitionError> {
        let topic = Arc::clone(&self.partition().topic);
        let ask = move |lookup: &Lookup| match lookup.describe(&[&*topic])?.into_iter().next().flatten() {
            Some(description) => Ok(description),
            None => Err(super::lookup::LookupError::missing(&topic)),
        };
        let description = self.or_taken(self.lease.reach.lookup.until_answered(ask)).await?;
        // Set once: a second answer with another id is found by the watch thread.
        let _ = self.lease.state.topic_id.set(description.id);
        Ok(description)
    }

    /// Asks for the group's committed offset, until the cluster answers.
    ///
    /// # Errors
    /// `Taken` when the partition is taken before.
    pub async fn committed(&self) -> Result<Option<Offset>, PartitionError> {
        let partition = self.partition().clone();
        self.or_taken(self.lease.reach.lookup.until_answered(move |lookup: &Lookup| lookup.committed(&partition))).await
    }

    /// Starts reading; a lane that was started before goes on at the new place, and its earlier [`Records`] end.
    ///
    /// # Errors
    /// `RecordsLost` and `BeyondEnd` when the log does not have the offset, `Taken` when the partition is taken before.
    pub async fn start(&self, at: StartAt) -> Result<Records, PartitionError> {
        let partition = self.partition().clone();
        if self.lease.state.topic_id.get().is_none() {
            // Without the id a topic that is made anew would go unnoticed.
            self.describe().await?;
        }
        let bounds = self.bounds().await?;
        let wanted = match at {
            StartAt::Offset(offset) => offset,
            StartAt::Edge(edge) => edge_of(bounds, edge),
            StartAt::CommittedOr(edge) => self.committed().await?.unwrap_or_else(|| edge_of(bounds, edge)),
        };
        inside(bounds, wanted, &partition)?;
        self.lease.state.ends_at(bounds.end);
        let (deliveries, receiver) = mpsc::unbounded_channel();
        let state = Arc::clone(&self.lease.state);
        self.lease.reach.tell(Command::Start { state, at: wanted, deliveries });
        Ok(Records::new(Arc::clone(&self.lease), receiver, wanted, bounds))
    }

    /// Returns how the partition is being taken, if it is.
    pub fn ending(&self) -> Option<Ending> {
        *self.lease.state.ending.borrow()
    }

    /// Waits until the partition is being taken.
    pub fn taken(&self) -> impl Future<Output = Ending> + Send + 'static {
        taken(Arc::clone(&self.lease.state))
    }

    /// Asks for the log's first offset and the one after its last, until the cluster answers.
    ///
    /// # Errors
    /// `Taken` when the partition is taken before.
    pub async fn bounds(&self) -> Result<LogBounds, PartitionError> {
        let partition = self.partition().clone();
        self.or_taken(self.lease.reach.lookup.until_answered(move |lookup| lookup.bounds(&partition))).await
    }

    /// Finds out why the log does not have an offset that it should have.
    pub(super) async fn out_of_range(&self, wanted: Offset) -> PartitionError {
        let partition = self.partition().clone();
        let why = async {
            let was = self.lease.state.topic_id.get().copied();
            let now = self.describe().await?.id;
            if let Some(was) = was.filter(|was| *was != now) {
                return Err(PartitionError::Recreated { topic: Arc::clone(&partition.topic), was, now });
            }
            let bounds = self.bounds().await?;
            inside(bounds, wanted, &partition)?;
            // The log has it, and yet refused it: its leader changed, and records that were here are gone.
            Ok(PartitionError::BeyondEnd { partition: partition.clone(), wanted, end: bounds.end })
        };
        why.await.unwrap_or_else(|err| err)
    }

    async fn or_taken<T>(&self, answer: impl Future<Output = T>) -> Result<T, PartitionError> {
        tokio::select! {
            // First: what is learned of a partition that is gone is of no use.
            biased;
            _ = self.taken() => Err(PartitionError::Taken { partition: self.partition().clone() }),
            answer = answer => Ok(answer),
        }
    }
}

pub(super) async fn taken(state: Arc<PartitionState>) -> Ending {
    let mut ending = state.ending.subscribe();
    let ending = ending.wait_for(Option::is_some).await.expect("the sender lives in the state that is held here");
    ending.expect("it was waited for")
}

fn edge_of(bounds: LogBounds, edge: Edge) -> Offset {
    match edge {
        Edge::Earliest => bounds.start,
        Edge::Latest => bounds.end,
    }
}

fn inside(bounds: LogBounds, wanted: Offset, partition: &TopicPartition) -> Result<(), PartitionError> {
    let partition = partition.clone();
    if wanted < bounds.start {
        Err(PartitionError::RecordsLost { partition, wanted, log_start: bounds.start })
    } else if wanted > bounds.end {
        Err(PartitionError::BeyondEnd { partition, wanted, end: bounds.end })
    } else {
        Ok(())
    }
}
