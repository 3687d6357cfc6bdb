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
    budget::{Budget, Charge, LaneShare, Wake},
    error::{PartitionError, TopicPartition},
    health::PartitionHealth,
    lookup::{LogBounds, Lookup},
    native::TopicDescription,
};
use crate::record::Record;

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
        let caught_up = self.at_end.load(Ordering::SeqCst) && done >= position;
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
struct Lease {
    state: Arc<PartitionState>,
    reach: Reach,
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
        Ok(Records {
            lease: Arc::clone(&self.lease),
            receiver,
            start: wanted,
            position: wanted,
            end_at_start: bounds.end,
            caught_up: wanted >= bounds.end,
            out_of_range: false,
        })
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

    /// Fails when the topic's id is not the one that [`describe`](Assignment::describe) learned first.
    async fn is_the_same_topic(&self) -> Result<(), PartitionError> {
        let now = self.describe().await?.id;
        match self.lease.state.topic_id.get() {
            Some(was) if *was != now => {
                Err(PartitionError::Recreated { topic: Arc::clone(&self.partition().topic), was: *was, now })
            }
            _ => Ok(()),
        }
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

async fn taken(state: Arc<PartitionState>) -> Ending {
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

/// The records of a started partition.
pub struct Records {
    lease: Arc<Lease>,
    receiver: mpsc::UnboundedReceiver<Delivery>,
    start: Offset,
    position: Offset,
    end_at_start: Offset,
    caught_up: bool,
    out_of_range: bool,
}

impl Records {
    /// Returns the next records, in order; `None` when the partition is being taken or the consumer stops: the lane
    /// then finishes its unit of work, commits and drops this. May be cancelled without losing records.
    ///
    /// # Errors
    /// When the log does not have the next offset any more, or the topic was made anew.
    pub async fn next_chunk(&mut self) -> Result<Option<Chunk>, PartitionError> {
        if !self.out_of_range {
            let delivery = tokio::select! {
                // First: a lane whose partition is being taken begins nothing new.
                biased;
                _ = taken(Arc::clone(&self.lease.state)) => return Ok(None),
                delivery = self.receiver.recv() => delivery,
            };
            match delivery {
                Some(Delivery::Chunk(chunk)) => return Ok(Some(self.received(chunk))),
                Some(Delivery::Failed(err)) => return Err(err),
                Some(Delivery::OutOfRange) => self.out_of_range = true,
                None => return Ok(None),
            }
        }
        let assignment = Assignment { lease: Arc::clone(&self.lease) };
        match assignment.is_the_same_topic().await {
            Err(PartitionError::Taken { .. }) => return Ok(None),
            same => same?,
        }
        match assignment.bounds().await {
            Ok(bounds) => {
                let partition = assignment.partition();
                inside(bounds, self.position, partition)?;
                // The log has it, and yet refused it: its leader changed and lost records that were here.
                Err(PartitionError::BeyondEnd { partition: partition.clone(), wanted: self.position, end: bounds.end })
            }
            Err(_) => Ok(None),
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
        self.lease.state.frontier.store(frontier.0, Ordering::SeqCst);
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
