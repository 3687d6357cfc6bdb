//! One lane: the ordered work of one partition.
//!
//! ```text
//! records -> decode -> sequencer -> unit -> writer -> commit
//! ```
//!
//! While the writer makes one unit durable, the lane decodes the next: PostgreSQL and the decoder work side by side,
//! and the batches get as large as the sink is slow.

use std::{sync::Arc, time::Duration};

use sink_api::{LaneId, Offset, Sink, SinkError, TableName};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    feeds::Feeds,
    hints,
    observer::Observer,
    ports::{Delivery, Held, Outlet, RecordStream},
    requests::Requests,
    writer::{BAD_RECORD_HINT, Report, Stop, Wait, Writer},
};
use crate::{
    decode::{BadRecord, Damaged, DecodeError, Decoder, Event},
    record::Record,
    stream::{Sequencer, Step, Unit, UnitBuilder, UnitLimits},
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
    pub(super) feeds: Feeds,
    pub(super) requests: Requests,
    pub(super) sequencer: Sequencer,
    pub(super) writer: Option<Writer<S, O>>,
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
        loop {
            let due = match opened {
                _ if builder.is_empty() => None,
                _ if builder.is_full(&self.settings.unit) || ending.is_some() => Some(Instant::now()),
                Some(since) if builder.has_work() => Some(since + self.settings.delay),
                Some(since) => Some(since + IDLE_COMMIT),
                None => None,
            };
            if writing.is_none() && due.is_some_and(|due| due <= Instant::now()) {
                if builder.has_statements() {
                    let asked = stop.run_until_cancelled(self.records.partition_count()).await;
                    let Some(partitions) = asked.flatten() else { return self.finish(None).await };
                    self.sequencer.partitions(partitions, &mut builder);
                }
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

    /// Takes records until one ends the lane.
    async fn take_all(
        &mut self,
        records: Vec<Record>,
        builder: &mut UnitBuilder,
        steps: &mut Vec<Step>,
        timestamps: &mut Vec<i64>,
    ) -> Result<(), LaneEnd> {
        self.requests.read(records.last().and_then(|record| record.timestamp));
        for record in records {
            builder.record(record.timestamp);
            timestamps.extend(record.timestamp);
            self.take(&record, builder, steps).await?;
        }
        Ok(())
    }

    /// Takes one record: decode, sequence, gather.
    async fn take(&mut self, record: &Record, builder: &mut UnitBuilder, steps: &mut Vec<Step>) -> Result<(), LaneEnd> {
        // Records before the frontier only rebuild what the lane knew; what they ask for was done in an earlier life.
        let rebuilding = record.offset < self.sequencer.state().next_offset;
        match self.decode(record).await? {
            Ok(Event::Truncate { table, .. })
                if !rebuilding && let Some(end) = self.refuses_truncate(&table.name, record.offset) =>
            {
                return Err(end);
            }
            Ok(event) => {
                if let Err(error) = self.feeds.note(&self.sink, &self.id, &event, &mut self.observer).await {
                    return Err(self.sink_failed(record, error));
                }
                if let Event::Row(row) = &event {
                    self.requests.event(&row.table.name, &row.key, &self.observer);
                }
                self.sequencer.push(record.offset, record.timestamp, event, steps);
            }
            Err(bad) => {
                if !rebuilding && !self.outlet.can_park() {
                    // Before it is sequenced: the frontier must not pass it.
                    return Err(self.bad_record(record, &bad));
                }
                self.sequencer.push_bad(record.offset, record.timestamp, &bad, steps);
                if !rebuilding {
                    builder.park(record.offset, bad);
                }
            }
        }
        steps.drain(..).for_each(|step| builder.push(step));
        Ok(())
    }

    /// Returns why a truncate ends the lane, if it does.
    fn refuses_truncate(&self, table: &TableName, offset: Offset) -> Option<LaneEnd> {
        let what = format!("{}: {table} was truncated at the source, at offset {offset}", self.id);
        match self.feeds.other_than(table) {
            _ if !self.settings.apply_truncate => {
                Some(LaneEnd::Failed { what, hint: hints::truncated(&self.id, table, offset.next()) })
            }
            Some(other) => Some(LaneEnd::Failed {
                what: format!("{what}, and the topic has changes of {other} as well"),
                hint: hints::truncated_beside(&self.id, table, offset.next()),
            }),
            None => None,
        }
    }

    /// Decodes a record, looking up the tables that it needs.
    async fn decode(&mut self, record: &Record) -> Result<Result<Event, BadRecord>, LaneEnd> {
        let mut refreshed: Option<TableName> = None;
        loop {
            match self.decoder.decode(record) {
                Ok(event) => return Ok(Ok(event)),
                Err(DecodeError::Bad(bad)) => {
                    // What does not fit may fit the table as it is now.
                    let table = bad.table.as_deref().and_then(|source| self.decoder.sink_of(source)).cloned();
                    match table.filter(|table| refreshed.as_ref() != Some(table)) {
                        Some(table) => {
                            self.learn(&table).await.map_err(|error| self.sink_failed(record, error))?;
                            refreshed = Some(table);
                        }
                        None => return Ok(Err(bad)),
                    }
                }
                Err(DecodeError::NeedsTable { table, refused }) => match (self.learn(&table).await, refused) {
                    (Ok(()), _) => {}
                    (Err(error), Some(refused)) => {
                        self.decoder.refused(&table);
                        return Ok(Ok(Event::Damaged(Damaged {
                            reason: format!("{}: {error}", refused.reason),
                            ..*refused
                        })));
                    }
                    (Err(error), None) => return Err(self.sink_failed(record, error)),
                },
                Err(DecodeError::Setup { table: Some(table), .. }) if refreshed.as_ref() != Some(&table) => {
                    self.learn(&table).await.map_err(|error| self.sink_failed(record, error))?;
                    refreshed = Some(table);
                }
                Err(DecodeError::Setup { reason, hint, .. }) => {
                    return Err(LaneEnd::Failed {
                        what: format!("{} at offset {}: {reason}", self.id, record.offset),
                        hint,
                    });
                }
            }
        }
    }

    async fn learn(&mut self, table: &TableName) -> Result<(), SinkError> {
        let shape = super::patiently(&mut self.observer, || self.sink.describe(table)).await?;
        self.decoder.learn(shape);
        Ok(())
    }

    fn sink_failed(&self, record: &Record, error: SinkError) -> LaneEnd {
        LaneEnd::Failed {
            what: format!("{} at offset {}: {error}", self.id, record.offset),
            hint: error.hint.unwrap_or_else(|| "mend the sink, then restart the worker".to_owned()),
        }
    }

    fn bad_record(&self, record: &Record, bad: &BadRecord) -> LaneEnd {
        let table = bad.table.as_ref().map(|table| format!(" for {table}")).unwrap_or_default();
        LaneEnd::Failed {
            what: format!(
                "{}: the record at offset {}{table} cannot be applied: {}",
                self.id, record.offset, bad.reason
            ),
            hint: BAD_RECORD_HINT.to_owned(),
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
                report.refreshed.iter().for_each(|shape| self.decoder.learn(Arc::clone(shape)));
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
                Ok(())
            }
            Err(Stop::Fenced(what)) => Err(LaneEnd::Fenced(what)),
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
        // What is missing is known now; who takes the partition over finds it only with the next pass.
        let asking = self.requests.send_all(&self.outlet, &self.id, &mut self.observer);
        let _ = tokio::time::timeout(LAST_REQUESTS, asking).await;
        LaneEnd::Stopped
    }
}

async fn finished<S: Sink, O: Outlet, H>(writing: &mut Option<Writing<S, O, H>>) -> WriterDone<S, O> {
    match writing {
        Some(writing) => (&mut writing.task).await,
        None => std::future::pending().await,
    }
}
