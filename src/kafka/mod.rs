//! Kafka: the only place that names rdkafka.
//!
//! ```text
//!  librdkafka ---> poll thread ---> Assignment, Records ---> lane (async)
//!                    ^    ^                                    |
//!   watch thread ----+    +------ start, commit(frontier), drop
//! ```
//!
//! One consumer group, a lane per partition. The poll thread answers the group and hands out records; it never waits
//! for a lane, so a sink that is down for an hour costs no rebalance. Lanes get records through channels whose content
//! is bounded in bytes by one [`Budget`]. The watch thread and the lanes ask the cluster through a second client, so
//! that a broker that does not answer holds up nobody else.

mod budget;
mod context;
mod error;
mod fetch;
mod health;
mod lane_queue;
mod lookup;
mod native;
mod partition;
mod policy;
mod poll;
mod producer;
mod rebalance;
mod records;
mod settings;
#[cfg(test)]
mod tests;
mod topics;
mod watch;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc as thread_mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    config::FromClientConfigAndContext,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaError,
};
use tokio::sync::{mpsc, oneshot};
use tracing::warn;

pub use budget::{Budget, Charge};
pub use error::{FatalError, PartitionError, TopicPartition};
pub use fetch::{FetchError, fetch_one};
pub use health::{Health, PartitionHealth, Rebalances};
pub use lookup::{LogBounds, Lookup, LookupError};
pub use native::TopicDescription;
pub use partition::{Assignment, Edge, Ending, StartAt};
pub use policy::may_be_compacted;
pub use producer::{Outgoing, Producer, SendError, ensure_topic};
pub use records::{Chunk, Records};
pub use settings::{ClientSettings, ConsumerSettings, DEFAULT_MEMORY, DEFAULT_RELEASE_WITHIN, SettingsError};
pub use topics::{TopicPattern, TopicSelection};

use budget::Wake;
use context::GroupContext;
use health::Pulse;
use native::Commits;
use partition::{Command, PartitionState, Reach};
use poll::PollLoop;
use watch::Watch;

/// What the group gives.
pub enum GroupEvent {
    /// Partitions are this worker's now: each is to get a lane. How one is taken again, its [`Assignment`] and
    /// [`Records`] say.
    Assigned(Vec<Assignment>),
    /// The consumer has ended; all lanes are told that they have lost their partitions.
    Fatal(FatalError),
}

/// The partitions of this worker.
#[derive(Clone, Default)]
struct Registry(Arc<Mutex<BTreeMap<TopicPartition, Arc<PartitionState>>>>);

impl Registry {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TopicPartition, Arc<PartitionState>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, state: &Arc<PartitionState>) {
        self.lock().insert(state.partition.clone(), Arc::clone(state));
    }

    /// Removes this very state, not a later one of the same partition.
    fn remove(&self, state: &Arc<PartitionState>) {
        let mut states = self.lock();
        if states.get(&state.partition).is_some_and(|known| Arc::ptr_eq(known, state)) {
            states.remove(&state.partition);
        }
    }

    fn all(&self) -> Vec<Arc<PartitionState>> {
        self.lock().values().cloned().collect()
    }
}

/// A member of a consumer group.
pub struct Consumer {
    reach: Reach,
    pulse: Arc<Pulse>,
    registry: Registry,
    stop_watch: Arc<AtomicBool>,
    watch: thread::Thread,
    left: oneshot::Receiver<()>,
}

impl Consumer {
    /// Joins the group and starts to send what it gives to `events`. A cluster that is away or topics that do not exist
    /// are no error: they are waited for.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub fn start(
        settings: ConsumerSettings,
        events: mpsc::UnboundedSender<GroupEvent>,
    ) -> Result<Consumer, SettingsError> {
        let wake = Arc::new(Wake::default());
        let pulse = Arc::new(Pulse::default());
        let registry = Registry::default();
        let budget = Arc::new(Budget::new(settings.memory, Arc::clone(&wake)));
        let lookup = Lookup::new(&settings.client, &settings.group, Arc::clone(&pulse))?;
        let config = settings.client.consumer(&settings.group)?;
        let mut consumer = BaseConsumer::from_config_and_context(&config, GroupContext::default())
            .map_err(|err| settings::refused(&err))?;
        let waker = Arc::clone(&wake);
        consumer.set_nonempty_callback(move || waker.wake());

        let (commands, received) = thread_mpsc::channel();
        let reach = Reach { commands, wake: Arc::clone(&wake), lookup: lookup.clone(), budget };
        let commits = Commits::new(consumer.client()).map_err(|code| settings::refused(&KafkaError::Global(code)))?;
        let poll = PollLoop {
            consumer: Arc::new(consumer),
            commits,
            commands: received,
            events,
            reach: reach.clone(),
            wake,
            pulse: Arc::clone(&pulse),
            registry: registry.clone(),
            release_within: settings.release_within,
            lanes: BTreeMap::new(),
            giving: Vec::new(),
            stopping: None,
            next_commit: Instant::now(),
        };
        let (leave, left) = oneshot::channel();
        spawn("kafka-poll", move || {
            poll.run();
            let _ = leave.send(());
        })?;

        let stop_watch = Arc::new(AtomicBool::new(false));
        let watch = Watch {
            topics: settings.topics,
            lookup,
            reach: reach.clone(),
            pulse: Arc::clone(&pulse),
            registry: registry.clone(),
            stop: Arc::clone(&stop_watch),
        };
        let watch = spawn("kafka-watch", move || watch.run())?;
        Ok(Consumer { reach, pulse, registry, stop_watch, watch, left })
    }

    /// Returns how things are.
    pub fn health(&self) -> Health {
        let state = self.pulse.state();
        Health {
            connected: state.connected,
            last_contact: state.last_contact.map(|at| at.elapsed()),
            last_poll: state.last_poll.map(|at| at.elapsed()),
            last_error: state.last_error.clone(),
            missing_topics: state.missing_topics.clone(),
            rebalances: self.pulse.rebalances(),
            failed_commits: self.pulse.failed_commits(),
            memory_used: self.reach.budget.used(),
            memory_limit: self.reach.budget.limit(),
            partitions: self.registry.all().iter().map(|state| state.health()).collect(),
        }
    }

    /// Ends all lanes, which have until `within` to finish, commits their frontiers and leaves the group; returns
    /// whether that was done in time. A broker that is away does not hold it up for more than some seconds beyond.
    pub async fn stop(self, within: Duration) -> bool {
        self.reach.tell(Command::Stop(Instant::now() + within));
        let left = tokio::time::timeout(within + LEAVE_WITHIN, self.left_group()).await.is_ok();
        if !left {
            warn!("the consumer group was not left in time; it will notice by its session timeout");
        }
        left
    }

    async fn left_group(mut self) {
        // An error means that the thread is gone, which is as good.
        let _ = (&mut self.left).await;
    }
}

/// The last commit and the broker's answer to the leave.
const LEAVE_WITHIN: Duration = Duration::from_secs(5);

impl Drop for Consumer {
    fn drop(&mut self) {
        self.stop_watch.store(true, Ordering::SeqCst);
        self.watch.unpark();
        self.reach.tell(Command::Stop(Instant::now()));
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<thread::Thread, SettingsError> {
    let handle = thread::Builder::new().name(name.into()).spawn(run).map_err(|err| settings::no_thread(&err))?;
    Ok(handle.thread().clone())
}
