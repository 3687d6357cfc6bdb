//! One lane: the ordered work of one partition.
//!
//! ```text
//! records -> decode -> sequencer -> unit -> writer -> commit
//! ```
//!
//! While the writer makes one unit durable, the lane decodes the next: PostgreSQL and the decoder work side by side,
//! and the batches get as large as the sink is slow.

use std::{sync::Arc, time::Duration};

use sink_api::{LaneId, Offset, Sink};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    feeds::Feeds,
    gaps::Gaps,
    known::KnownTables,
    observer::Observer,
    ports::{Delivery, Held, Outlet, RecordStream},
    report::Report,
    requests::Requests,
    scope::Scope,
    writer::{Stop, Wait, Writer},
};
use crate::{
    decode::Decoder,
    record::Record,
    stream::{Sequencer, Unit, UnitBuilder, UnitLimits},
};

/// How a lane works.
#[derive(Clone, Debug)]
pub struct LaneSettings {
    /// When a unit is full.
    pub unit: UnitLimits,
    /// How long the first change of a unit waits for more, when the sink is idle.
    pub delay: Duration,
    /// How long a stopping lane waits for the unit in hand before it is rolled back.
    pub grace: Duration,
    /// Whether truncates are applied; otherwise they stop the lane.
    pub apply_truncate: bool,
    /// Whether the lane ends once it has caught up.
    pub until_caught_up: bool,
}

/// How long a frontier that moved without work may stay uncommitted: heartbeats must not cost a transaction each.
const IDLE_COMMIT: Duration = Duration::from_secs(5);

/// How long a lane that ends may take to send the requests that it still has.
const LAST_REQUESTS: Duration = Duration::from_secs(2);

/// How a lane ended.
#[derive(Debug, PartialEq, Eq)]
pub enum LaneEnd {
    /// The partition was given back, or the worker stops.
    Stopped,
    /// Every record up to the end seen at the start is done.
    CaughtUp,
    /// Another worker owns the partition; nothing was written.
    Fenced(String),
    /// A table of the sink has changed so that the records must be decoded anew: the lane begins again at its frontier.
    Outdated(String),
    /// A person must act.
    Failed {
        /// What happened.
        what: String,
        /// What to do.
        hint: String,
    },
}

/// One lane and its stages.
pub struct Lane<S: Sink, R, O> {
    pub(super) id: LaneId,
    pub(super) settings: Arc<LaneSettings>,
    pub(super) sink: S,
    pub(super) records: R,
    pub(super) outlet: O,
    pub(super) observer: Observer,
    pub(super) waits: watch::Receiver<Option<Wait>>,
    pub(super) decoder: Decoder,
    pub(super) known: KnownTables,
    pub(super) feeds: Feeds,
    pub(super) requests: Requests,
    pub(super) sequencer: Sequencer,
    pub(super) writer: Option<Writer<S, O>>,
    /// Whether the lane has no place at the sink yet: it takes one before all else. Until then a restart would look for
    /// its place anew, and `latest` is later then.
    pub(super) placeless: bool,
    pub(super) gaps: Gaps,
    pub(super) scope: Scope,
}

/// A unit that is being written, and what the lane keeps of it.
struct Writing<S: Sink, O, H> {
    task: JoinHandle<(Writer<S, O>, Result<Report, Stop>)>,
    next_offset: Offset,
    /// Of its records, in milliseconds since 1970-01-01 UTC.
    timestamps: Vec<i64>,
    /// Given back when the unit is durable.
    _held: Option<H>,
}

type WriterDone<S, O> = Result<(Writer<S, O>, Result<Report, Stop>), tokio::task::JoinError>;

impl<S: Sink, R: RecordStream, O: Outlet> Lane<S, R, O> {
    /// Runs until the partition is given back, everything is done or a person must act.
    pub async fn run(mut self, stop: CancellationToken) -> LaneEnd {
        let end = self.work(stop).await;
        if matches!(end, LaneEnd::Outdated(_)) {
            self.send_last_requests().await;
        }
        self.observer.ended(&end);
        end
    }

    async fn work(&mut self, stop: CancellationToken) -> LaneEnd {
        let mut builder = UnitBuilder::default();
        let mut steps = Vec::new();
        let mut writing: Option<Writing<S, O, R::Held>> = None;
        let mut opened: Option<Instant> = None;
        let mut timestamps = Vec::new();
        let mut held: Option<R::Held> = None;
        let mut ending: Option<LaneEnd> = None;
        if std::mem::take(&mut self.placeless) {
            writing = self.start(builder.finish(self.sequencer.state()), Vec::new(), None);
        }
        loop {
            let due = match opened {
                _ if builder.is_empty() => None,
                _ if builder.is_full(&self.settings.unit) || ending.is_some() => Some(Instant::now()),
                Some(since) if builder.has_work() => Some(since + self.settings.delay),
                Some(since) => Some(since + IDLE_COMMIT),
                None => None,
            };
            if writing.is_none() && due.is_some_and(|due| due <= Instant::now()) {
                writing =
                    self.start(builder.finish(self.sequencer.state()), std::mem::take(&mut timestamps), held.take());
                opened = None;
                // A new task waits on this very thread until this one does: without this, the sink gets nothing to do
                // before the next unit is decoded.
                tokio::task::yield_now().await;
                continue;
            }
            if writing.is_none() && builder.is_empty() {
                if let Some(ending) = ending {
                    return ending;
                }
                if self.settings.until_caught_up && self.records.caught_up() {
                    let asking = self.requests.send_all(&self.outlet, &self.id, &mut self.observer);
                    let _ = stop.run_until_cancelled(asking).await;
                    return LaneEnd::CaughtUp;
                }
            }
            let room = ending.is_none() && !builder.is_full(&self.settings.unit);
            tokio::select! {
                // A stop before all else; then the writer, so that its unit's memory goes before more is taken; then
                // the deadline, which a steady stream of records must not put off.
                biased;
                () = stop.cancelled() => return self.finish(writing).await,
                done = finished(&mut writing), if writing.is_some() => {
                    if let Err(end) = self.written(&mut writing, done) {
                        return end;
                    }
                }
                Ok(()) = self.waits.changed() => {
                    let wait = self.waits.borrow_and_update().clone();
                    self.observer.waiting(wait.as_ref());
                }
                () = tokio::time::sleep_until(self.requests.due().unwrap_or_else(Instant::now)), if self.requests.due().is_some() => {
                    let waiting = self.waits.borrow().is_some();
                    let acting = self.requests.act(&self.outlet, &self.id, waiting, &mut self.observer);
                    // Kafka may be away for long.
                    let _ = stop.run_until_cancelled(acting).await;
                }
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if writing.is_none() && due.is_some() => {}
                records = self.records.next(), if room => match records {
                    Ok(Some(Delivery { records, held: mut memory })) => {
                        opened.get_or_insert_with(Instant::now);
                        let before = builder.bytes();
                        let taken = (records.len() as u64, records.iter().map(Record::bytes).sum::<usize>() as u64);
                        let last = records.last().map(|record| record.offset);
                        ending = tokio::select! {
                            // A stop first: what is taken then is not written any more.
                            biased;
                            // The sink is asked for tables and feeds, and may be away for long.
                            () = stop.cancelled() => Some(LaneEnd::Stopped),
                            taken = self.take_all(records, &mut builder, &mut steps, &mut timestamps) => taken.err(),
                        };
                        // Only what was decoded is held until it is durable.
                        memory.shrink_to(builder.bytes() - before);
                        match &mut held {
                            Some(held) => held.absorb(memory),
                            None => held = Some(memory),
                        }
                        self.observer.took(taken.0, taken.1, last, &self.sequencer);
                    }
                    Ok(None) => return self.finish(writing).await,
                    Err(failure) => ending = Some(LaneEnd::Failed { what: failure.what, hint: failure.hint }),
                },
            }
        }
    }

    /// Hands a unit to the writer.
    fn start(&mut self, unit: Unit, timestamps: Vec<i64>, held: Option<R::Held>) -> Option<Writing<S, O, R::Held>> {
        let mut writer = self.writer.take()?;
        self.observer.began();
        let next_offset = unit.end.next_offset;
        let task = tokio::spawn(async move {
            let result = writer.apply(unit).await;
            (writer, result)
        });
        Some(Writing { task, next_offset, timestamps, _held: held })
    }

    /// Deals with what the writer said.
    fn written(&mut self, writing: &mut Option<Writing<S, O, R::Held>>, done: WriterDone<S, O>) -> Result<(), LaneEnd> {
        let Some(unit) = writing.take() else { return Ok(()) };
        let (mut writer, result) = done.map_err(|error| LaneEnd::Failed {
            what: format!("{}: the writer ended: {error}", self.id),
            hint: "this is a fault in sink-repair: report it with the log".to_owned(),
        })?;
        let (before, durable) = (std::mem::take(&mut writer.done), writer.base.next_offset);
        self.writer = Some(writer);
        if result.is_err() && before != Report::default() {
            // The earlier half of a unit whose later half stopped the lane.
            self.records.commit(durable);
            self.observer.committed(&before, durable, &[]);
        }
        match result {
            Ok(mut report) => {
                self.records.commit(unit.next_offset);
                self.observer.committed(&report, unit.next_offset, &unit.timestamps);
                for (_, bad) in &report.parked {
                    self.sequencer.parked(bad);
                }
                for missing in &report.missing {
                    missing.keys.iter().for_each(|key| self.sequencer.lacked(missing.at, &missing.table, key));
                }
                if self.outlet.can_request() {
                    self.requests.take(&self.id, &self.feeds, &mut report);
                }
                std::mem::take(&mut report.refreshed).into_iter().try_for_each(|shape| self.meet(shape))
            }
            Err(Stop::Taken) => Err(LaneEnd::Stopped),
            Err(Stop::Fenced(what)) => Err(LaneEnd::Fenced(what)),
            Err(Stop::Outdated(what)) => Err(LaneEnd::Outdated(what)),
            Err(Stop::Failed { what, hint }) => Err(LaneEnd::Failed { what: format!("{}: {what}", self.id), hint }),
        }
    }

    /// Ends on request: the unit in hand is finished, or rolled back when that takes too long.
    async fn finish(&mut self, mut writing: Option<Writing<S, O, R::Held>>) -> LaneEnd {
        if writing.is_some() {
            let grace = self.settings.grace;
            match tokio::time::timeout(grace, finished(&mut writing)).await {
                Ok(done) => {
                    if let Err(end) = self.written(&mut writing, done) {
                        return end;
                    }
                }
                Err(_) => {
                    if let Some(Writing { task, .. }) = writing {
                        // Dropping the unit's connection undoes it.
                        task.abort();
                    }
                }
            }
        }
        self.send_last_requests().await;
        LaneEnd::Stopped
    }

    /// What is missing is known now; who works on the partition next finds it only with the next pass.
    async fn send_last_requests(&mut self) {
        let asking = self.requests.send_all(&self.outlet, &self.id, &mut self.observer);
        let _ = tokio::time::timeout(LAST_REQUESTS, asking).await;
    }
}

async fn finished<S: Sink, O: Outlet, H>(writing: &mut Option<Writing<S, O, H>>) -> WriterDone<S, O> {
    match writing {
        Some(writing) => (&mut writing.task).await,
        None => std::future::pending().await,
    }
}
