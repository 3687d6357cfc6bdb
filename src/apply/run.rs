//! The command `apply`: from a consumer group to lanes, and their ends.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use sink_api::{HeldStatement, LaneId, Sink, SinkError};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Rules,
    command::publish,
    feeds::Feeds,
    gaps::Gaps,
    hints,
    kafka_port::{KafkaOutlet, KafkaRecords},
    known::KnownTables,
    lane::{Lane, LaneEnd, LaneSettings},
    observer::Observer,
    patiently,
    requests::{Pace, Requests},
    scope::Scope,
    start::{self, LogBounds, Plan},
    writer::Writer,
};
use crate::{
    commands::Outcome,
    config::{ApplySettings, StartAt as ConfiguredStart},
    decode::{DecodeSettings, Decoder},
    http::Heartbeat,
    kafka::{self, Assignment, ClientSettings, Consumer, Ending, GroupEvent, PartitionError, Producer, StartAt},
    metrics::Metrics,
    retry::Backoff,
    status::StatusBoard,
    stream::{Limits, Sequencer},
};

/// How long a stopping worker waits for the units in hand.
pub(super) const GRACE: Duration = Duration::from_secs(8);

/// How long Kafka may take to say that a fenced lane's partition is another worker's. One that stood still beyond its
/// session hears it with its next heartbeat; who hears nothing still has the partition, and nobody else works on it.
const TAKEN_WITHIN: Duration = Duration::from_secs(15);

/// How many statements that an earlier life of a lane held are shown: as many as a person looks at.
const HELD_SHOWN: usize = 100;

/// What all lanes share.
pub(super) struct Worker<S: Sink> {
    pub(super) settings: Arc<ApplySettings>,
    pub(super) sink: S,
    pub(super) client: Arc<ClientSettings>,
    pub(super) producer: Arc<Producer>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) board: StatusBoard,
    pub(super) rules: Arc<Rules>,
    pub(super) lane: Arc<LaneSettings>,
    pub(super) decode: Arc<DecodeSettings>,
    pub(super) limits: Limits,
    pub(super) stop: CancellationToken,
}

impl<S: Sink> Worker<S> {
    /// Runs lanes for what the group gives, until `stop`, until everything is done, or until no lane is left.
    pub(super) async fn run(
        self: Arc<Worker<S>>,
        consumer: Consumer,
        mut events: mpsc::UnboundedReceiver<GroupEvent>,
        heartbeat: Heartbeat,
    ) -> anyhow::Result<Outcome> {
        let mut lanes: JoinSet<LaneEnd> = JoinSet::new();
        let mut tally = Tally::default();
        let mut publishing = Box::pin(publish(&consumer, &self.board, &self.metrics, &heartbeat));
        let ended = loop {
            tokio::select! {
                // A stop before all else; then what lanes say, so that a last lane's end is not overtaken by a new one.
                biased;
                () = self.stop.cancelled() => break Ok(()),
                Some(end) = lanes.join_next(), if !lanes.is_empty() => {
                    tally.add(end.context("run a lane")?);
                    if lanes.is_empty() && tally.nothing_left(self.settings.until_caught_up) {
                        break Ok(());
                    }
                }
                event = events.recv() => match event {
                    Some(GroupEvent::Assigned(assignments)) => {
                        for assignment in assignments {
                            let worker = Arc::clone(&self);
                            lanes.spawn(async move { worker.lane(assignment).await });
                        }
                    }
                    Some(GroupEvent::Fatal(error)) => {
                        let hint = error.hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
                        break Err(anyhow::anyhow!("the consumer group cannot be read: {error}{hint}"));
                    }
                    None => break Err(anyhow::anyhow!("the consumer has ended")),
                },
                () = &mut publishing => {}
            }
        };
        drop(publishing);
        consumer.stop(GRACE).await;
        while let Some(end) = lanes.join_next().await {
            tally.add(end.context("run a lane")?);
        }
        ended?;
        tally.outcome()
    }

    /// Runs one lane from its assignment to its end.
    async fn lane(self: Arc<Worker<S>>, assignment: Assignment) -> LaneEnd {
        let assignment = Arc::new(assignment);
        let mut backoff = Backoff::default();
        loop {
            match self.life(&assignment).await {
                // Its frontier is the sink's, so what a restarted worker would do can be done here as well.
                LaneEnd::Outdated(_) if !self.stop.is_cancelled() => {
                    // Longer each time: somebody may be changing a table again and again.
                    let delay = backoff.next(rand::random(), None);
                    self.stop.run_until_cancelled(tokio::time::sleep(delay)).await;
                }
                LaneEnd::Outdated(_) => return LaneEnd::Stopped,
                end => return end,
            }
        }
    }

    /// Runs a lane from its frontier to its end, or until it has to begin again.
    async fn life(&self, assignment: &Arc<Assignment>) -> LaneEnd {
        let description = match assignment.describe().await {
            Ok(description) => description,
            Err(_) => return LaneEnd::Stopped,
        };
        let partition = assignment.partition().clone();
        let id = LaneId {
            name: self.settings.name.clone(),
            topic: partition.topic.to_string(),
            topic_id: description.id,
            partition: partition.partition,
        };
        let status = self.board.lane(&partition.topic, partition.partition);
        let mut observer = Observer::new(id.clone(), Arc::clone(&self.metrics), status);
        let (taken, taken_later) = (assignment.taken(), assignment.taken());
        let prepared = tokio::select! {
            // First: a partition that is being taken needs no place any more.
            biased;
            _ = taken => Err(LaneEnd::Stopped),
            prepared = self.prepare(assignment, &id, description.partitions, &mut observer) => prepared,
        };
        let (claimed, held, records, plan) = match prepared {
            Ok(prepared) => prepared,
            Err(end) => {
                observer.ended(&end);
                return end;
            }
        };
        observer.started(plan.start.frontier, plan.read_from);
        observer.held(&held);
        let sequencer = Sequencer::new(plan.start, self.limits);
        let placeless = claimed.state.is_none();
        let (waits, waited) = watch::channel(None);
        let outlet = self.outlet(&partition, Arc::clone(assignment));
        let writer = Writer::new(
            self.sink.clone(),
            claimed.lane,
            outlet.clone(),
            Arc::clone(&self.rules),
            claimed.state,
            sequencer.state(),
            waits,
        );
        let lane = Lane {
            id: id.clone(),
            settings: Arc::clone(&self.lane),
            sink: self.sink.clone(),
            records: KafkaRecords { records, lane: id.clone() },
            outlet,
            observer,
            waits: waited,
            decoder: Decoder::new(Arc::clone(&self.decode), &partition.topic).carrying(claimed.sources),
            known: KnownTables::default(),
            feeds: Feeds::default(),
            requests: Requests::new(Pace::default()),
            sequencer,
            writer: Some(writer),
            placeless,
            gaps: Gaps::new(plan.read_from),
            scope: Scope::new(partition.partition.0, description.partitions),
        };
        match lane.run(self.stop.clone()).await {
            LaneEnd::Fenced(what) => self.fenced(id, what, taken_later).await,
            end => end,
        }
    }

    /// Ends a fenced lane: in silence when Kafka takes its partition as well, for whoever has it now works on it; else
    /// the partition stays here with nobody to work on it, and a person must know.
    async fn fenced(&self, id: LaneId, what: String, taken: impl Future<Output = Ending>) -> LaneEnd {
        tokio::select! {
            biased;
            _ = taken => return LaneEnd::Fenced(what),
            () = self.stop.cancelled() => return LaneEnd::Fenced(what),
            () = tokio::time::sleep(TAKEN_WITHIN) => {}
        }
        let end = LaneEnd::Failed {
            what: format!("{id}: {what}, and Kafka has not taken the partition from this worker"),
            hint: hints::fenced(&id),
        };
        let status = self.board.lane(&id.topic, id.partition);
        Observer::new(id, Arc::clone(&self.metrics), status).ended(&end);
        end
    }

    /// Takes the lane over at the sink and finds its place in the log.
    async fn prepare(
        &self,
        assignment: &Assignment,
        id: &LaneId,
        partitions: i32,
        observer: &mut Observer,
    ) -> Result<(sink_api::Claimed<S::Lane>, Vec<HeldStatement>, kafka::Records, Plan), LaneEnd> {
        let failed = |what: String, hint: String| LaneEnd::Failed { what: format!("{id}: {what}"), hint };
        let broken = |error: SinkError| {
            failed(error.to_string(), error.hint.unwrap_or_else(|| "mend the sink, then restart the worker".to_owned()))
        };
        if self.lane.apply_truncate && partitions > 1 {
            let what = format!(
                "the topic has {partitions} partitions, and --truncate apply takes one: a truncate has no key and can \
                 arrive in any of them"
            );
            return Err(failed(what, hints::TRUNCATE_PARTITIONS.to_owned()));
        }
        let claimed = patiently(observer, || self.sink.claim(id)).await.map_err(broken)?;
        if let Some(other) = claimed.other_incarnation {
            return Err(failed(
                format!(
                    "the topic was deleted and made again: its id is {}, the sink's frontier is of {other}",
                    id.topic_id
                ),
                hints::made_again(id),
            ));
        }
        let stopped = |error: PartitionError| match error {
            PartitionError::Taken { .. } => LaneEnd::Stopped,
            error => LaneEnd::Failed { what: error.to_string(), hint: hints::unreadable(id, &error) },
        };
        let held = patiently(observer, || self.sink.held(id, HELD_SHOWN)).await.map_err(broken)?;
        let log = assignment.bounds().await.map_err(stopped)?;
        let log = LogBounds { start: log.start, end: log.end };
        let plan = match &claimed.state {
            Some(state) => start::resume(state, partitions, log),
            None => {
                let edge = match self.settings.start {
                    ConfiguredStart::Earliest => log.start,
                    ConfiguredStart::Latest => log.end,
                };
                let from = assignment.committed().await.map_err(stopped)?.unwrap_or(edge);
                start::begin(from, partitions, log)
            }
        };
        let plan = plan.map_err(|cannot| failed(cannot.to_string(), hints::cannot_start(id, &cannot)))?;
        if plan.windows_lost {
            warn!(lane = %id, "the log no longer holds the low markers of open windows; their reads will be refused and asked for again");
        }
        let records = assignment.start(StartAt::Offset(plan.read_from)).await.map_err(stopped)?;
        Ok((claimed, held, records, plan))
    }

    fn outlet(&self, partition: &kafka::TopicPartition, assignment: Arc<Assignment>) -> KafkaOutlet {
        let settings = &self.settings;
        KafkaOutlet {
            worker: settings.name.as_str().into(),
            group: settings.group.as_str().into(),
            client: Arc::clone(&self.client),
            producer: Arc::clone(&self.producer),
            partition: partition.clone(),
            assignment,
            dead_letter_topic: settings.dead_letter.as_ref().map(|dead_letter| dead_letter.topic.as_str().into()),
            signal: settings.signal.as_ref().map(|signal| (signal.topic.as_str().into(), signal.key.as_str().into())),
        }
    }
}

/// How the lanes of this run have ended.
#[derive(Debug, Default)]
struct Tally {
    caught_up: usize,
    failed: Vec<String>,
}

impl Tally {
    fn add(&mut self, end: LaneEnd) {
        match end {
            LaneEnd::CaughtUp => self.caught_up += 1,
            LaneEnd::Failed { what, hint } => self.failed.push(format!("{what}\nhint: {hint}")),
            // The group gives the partition to whom it wants.
            LaneEnd::Stopped | LaneEnd::Fenced(_) | LaneEnd::Outdated(_) => {}
        }
    }

    /// Whether no lane will do anything more: all have failed, or all are done.
    fn nothing_left(&self, until_caught_up: bool) -> bool {
        !self.failed.is_empty() || (until_caught_up && self.caught_up > 0)
    }

    fn outcome(self) -> anyhow::Result<Outcome> {
        if self.failed.is_empty() {
            info!("stopped");
            return Ok(Outcome::Done);
        }
        bail!("{}", self.failed.join("\n"))
    }
}
