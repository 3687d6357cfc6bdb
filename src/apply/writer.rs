//! Makes units of work durable, however long the sink takes.

use std::{sync::Arc, time::Duration};

use sink_api::{ErrorClass, Key, LaneState, Sink, SinkError, SinkLane, TableName, TableShape, Unit as _};

use super::{
    barrier::{self, Barrier, Rules},
    observer::Judged,
    ports::{MissingKeys, Outlet},
    report::{Report, unmakeable},
};
use crate::{
    metrics::SparedKeys,
    retry::Backoff,
    status::Awaited,
    stream::{Unit, Work, merge},
};

/// Writes the units of one lane, one after the other.
#[derive(Debug)]
pub struct Writer<S: Sink, O> {
    sink: S,
    lane: S::Lane,
    pub(super) outlet: O,
    pub(super) rules: Arc<Rules>,
    /// What the sink holds of the lane: `None` before the first commit.
    committed: Option<LaneState>,
    /// The state from which the next unit follows.
    pub(super) base: LaneState,
    /// What the unit in hand has done so far. After a stop: what of it was done before, and is durable.
    pub(super) done: Report,
    pub(super) waits: tokio::sync::watch::Sender<Option<Wait>>,
}

/// Why a lane waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// For whom.
    pub on: Awaited,
    /// What they said.
    pub error: String,
    /// What to do about it, if anything.
    pub hint: Option<String>,
    /// The sink's own code.
    pub code: Option<String>,
    /// How many tries have failed.
    pub attempts: u32,
}

/// Why a lane cannot go on.
#[derive(Debug)]
pub enum Stop {
    /// Kafka gave the partition to another worker before the unit was begun.
    Taken,
    /// Another worker owns the partition now.
    Fenced(String),
    /// A table of the sink has changed so that the records must be decoded anew.
    Outdated(String),
    /// A person must act.
    Failed {
        /// What happened, with table and offset where they are known.
        what: String,
        /// What to do about it.
        hint: String,
    },
}

impl<S: Sink, O: Outlet> Writer<S, O> {
    /// Starts with a claimed lane, the state committed last and the state that the lane starts from.
    pub fn new(
        sink: S,
        lane: S::Lane,
        outlet: O,
        rules: Arc<Rules>,
        committed: Option<LaneState>,
        base: LaneState,
        waits: tokio::sync::watch::Sender<Option<Wait>>,
    ) -> Writer<S, O> {
        Writer { sink, lane, outlet, rules, committed, base, done: Report::default(), waits }
    }

    /// Makes `unit` durable. Transient errors are waited out; a record that the sink refuses is parked, or stops the lane.
    ///
    /// # Errors
    /// When the lane cannot go on; nothing of the unit is durable then beyond what its frontier (`base`) says, and `done`
    /// tells what that was.
    pub async fn apply(&mut self, mut unit: Unit) -> Result<Report, Stop> {
        self.done = Report::default();
        for (offset, bad) in std::mem::take(&mut unit.dead_letters) {
            self.park(offset, bad).await?;
        }
        self.persist(&mut unit).await?;
        Ok(std::mem::take(&mut self.done))
    }

    /// Commits a unit, or the parts of it that the sink takes.
    pub(super) async fn persist(&mut self, unit: &mut Unit) -> Result<(), Stop> {
        let mut refreshes = 0;
        let mut backoff = Backoff::default();
        loop {
            let error = match self.commit(unit).await? {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match error.class {
                ErrorClass::Fenced => return Err(Stop::Fenced(error.to_string())),
                ErrorClass::Data => return self.isolate(unit, &error).await,
                ErrorClass::Transient if timed_out(&error) => return self.isolate(unit, &error).await,
                ErrorClass::Configuration => {
                    refreshes += 1;
                    // A migration changes a table several times, and some errors pass with it (REINDEX CONCURRENTLY).
                    let most = if self.refresh(unit).await? { MOST_REFRESHES } else { MOST_TRIES };
                    if refreshes >= most {
                        return Err(failed(&error, unit));
                    }
                    if refreshes > 1 {
                        self.wait(Awaited::Sink, &error, refreshes, &mut backoff).await;
                    }
                }
                ErrorClass::Transient => return Err(failed(&error, unit)),
            }
        }
    }

    /// Tries until the sink has taken the unit or has said what is wrong with it. Transient errors end here, but for a
    /// unit with statements that takes the sink too long: to try it again for ever would block the stream.
    pub(super) async fn commit(&mut self, unit: &mut Unit) -> Result<Result<(), SinkError>, Stop> {
        let mut backoff = Backoff::default();
        let mut attempts = 0;
        let mut too_long = 0;
        loop {
            if unit.has_statements() {
                // Each time: the sink may have been away for hours.
                unit.partitions(self.partition_count().await?);
            }
            let mut done = Report::default();
            let Hitch { on, error } = match self.attempt(unit, &mut done).await? {
                Ok(()) => {
                    self.advance(&unit.end);
                    self.done.absorb(done);
                    self.waits.send_if_modified(|wait| wait.take().is_some());
                    return Ok(Ok(()));
                }
                Err(hitch) => hitch,
            };
            if error.class != ErrorClass::Transient {
                self.waits.send_if_modified(|wait| wait.take().is_some());
                return Ok(Err(error));
            }
            attempts += 1;
            too_long = if timed_out(&error) { too_long + 1 } else { 0 };
            self.wait(on, &error, attempts, &mut backoff).await;
            // The commit may have taken effect before its answer was lost.
            if self.settle(unit, &mut backoff, &mut attempts).await? {
                self.done.absorb(done);
                return Ok(Ok(()));
            }
            if too_long >= TOO_LONG_TIMES && unit.has_statements() {
                self.waits.send_if_modified(|wait| wait.take().is_some());
                return Ok(Err(error));
            }
        }
    }

    fn advance(&mut self, state: &LaneState) {
        self.committed = Some(state.clone());
        self.base = state.clone();
    }

    /// Reads what is committed now. Returns whether it is `unit`.
    async fn settle(&mut self, unit: &Unit, backoff: &mut Backoff, attempts: &mut u32) -> Result<bool, Stop> {
        loop {
            match self.lane.committed().await {
                Ok(state) if state.as_ref() == Some(&unit.end) => {
                    self.advance(&unit.end);
                    self.waits.send_if_modified(|wait| wait.take().is_some());
                    return Ok(true);
                }
                Ok(state) if state == self.committed => return Ok(false),
                Ok(_) => {
                    return Err(Stop::Fenced("the sink holds a frontier that this worker did not write".to_owned()));
                }
                Err(error) if error.class == ErrorClass::Transient => {
                    *attempts += 1;
                    self.wait(Awaited::Sink, &error, *attempts, backoff).await;
                }
                Err(error) if error.class == ErrorClass::Fenced => return Err(Stop::Fenced(error.to_string())),
                Err(error) => return Err(failed(&error, unit)),
            }
        }
    }

    /// Asks Kafka for the topic's partition count; that it gives no answer is shown as what the lane waits for.
    async fn partition_count(&mut self) -> Result<i32, Stop> {
        let mut backoff = Backoff::default();
        let mut attempts = 0;
        loop {
            match count_now(&mut self.outlet).await? {
                Ok(count) => {
                    if attempts > 0 {
                        self.waits.send_if_modified(|wait| wait.take().is_some());
                    }
                    return Ok(count);
                }
                Err(error) => {
                    attempts += 1;
                    self.wait(Awaited::Kafka, &error, attempts, &mut backoff).await;
                }
            }
        }
    }

    /// Does the unit's work and commits it.
    async fn attempt(&mut self, unit: &Unit, report: &mut Report) -> Result<Result<(), Hitch>, Stop> {
        let mut open = match self.lane.begin(self.committed.as_ref()).await {
            Ok(open) => open,
            Err(error) => return Ok(Err(error.into())),
        };
        if let Err(error) = Self::work(&mut open, unit, &self.rules, report).await {
            return Ok(Err(error.into()));
        }
        if unit.has_statements() {
            // The sink may have waited for a lock meanwhile. While the count is the first one, no other lane has written.
            match count_now(&mut self.outlet).await? {
                Ok(now) if now == unit.end.partition_count => {}
                Ok(now) => return Ok(Err(keys_moved(unit.end.partition_count, now).into())),
                Err(error) => return Ok(Err(Hitch { on: Awaited::Kafka, error })),
            }
        }
        Ok(open.commit(&unit.end).await.map_err(Hitch::from))
    }

    /// Does the unit's work.
    async fn work(
        open: &mut <S::Lane as SinkLane>::Unit<'_>,
        unit: &Unit,
        rules: &Rules,
        report: &mut Report,
    ) -> Result<(), SinkError> {
        for work in &unit.work {
            match work {
                Work::Rows(rows) => {
                    let written = open.write(&merge(rows)).await?;
                    report.upserted += written.upserted;
                    report.deleted += written.deleted;
                    report.batches += 1;
                    report.unmakeable += written.missing.len() as u64;
                    report.missing.extend(unmakeable(written.missing));
                }
                Work::Truncate(table) => open.truncate(table).await?,
                Work::Statement(statement) => match barrier::evaluate(open, statement, rules).await? {
                    Barrier::Repeated => report.repeated += 1,
                    Barrier::Judged { row, missing } => {
                        if row.missing > 0 {
                            report.missing.push(MissingKeys {
                                table: Arc::clone(&statement.table),
                                source_table: Some(statement.source.table.clone()),
                                at: statement.offset,
                                keys: missing.iter().map(Key::from_encoded).collect(),
                                count: row.missing,
                            });
                        }
                        report.statements.push(Judged {
                            row: *row,
                            spared: SparedKeys {
                                window: statement.spared_by_window,
                                visibility: statement.spared_by_visibility,
                                changed: 0,
                            },
                        });
                    }
                },
                Work::Refusal(row) => {
                    if open.verdict(&row.read_id).await?.is_some() {
                        report.repeated += 1;
                    } else {
                        open.record(row, &sink_api::KeyList::new()).await?;
                        let row = (**row).clone();
                        report.statements.push(Judged { row, spared: SparedKeys::default() });
                    }
                }
            }
        }
        Ok(())
    }

    /// Shows that the lane waits, and waits.
    pub(super) async fn wait(&mut self, on: Awaited, error: &SinkError, attempts: u32, backoff: &mut Backoff) {
        let delay = backoff.next(rand::random(), error.retry_after);
        tracing::warn!(error = %error, attempts, delay_ms = delay.as_millis() as u64, "waiting");
        self.waits.send_replace(Some(Wait {
            on,
            error: error.to_string(),
            hint: error.hint.clone(),
            code: error.code.clone(),
            attempts,
        }));
        tokio::time::sleep(delay).await;
    }

    /// Reads the shapes of the unit's tables again. Returns whether one had changed and the unit was fitted to it.
    async fn refresh(&mut self, unit: &mut Unit) -> Result<bool, Stop> {
        let mut changed = false;
        for table in unit.tables() {
            let shape = self.describe(&table, unit).await?;
            if *shape != *table {
                unit.refit(&shape).map_err(|reason| Stop::Outdated(outdated(&table.name, &reason)))?;
                self.done.refreshed.push(shape);
                changed = true;
            }
        }
        Ok(changed)
    }

    /// Reads a table's shape. Transient errors are waited out.
    async fn describe(&mut self, table: &TableShape, unit: &Unit) -> Result<Arc<TableShape>, Stop> {
        let mut backoff = Backoff::default();
        let mut attempts = 0;
        loop {
            match self.sink.describe(&table.name).await {
                Ok(shape) => {
                    self.waits.send_if_modified(|wait| wait.take().is_some());
                    return Ok(shape);
                }
                Err(error) if error.class == ErrorClass::Transient => {
                    attempts += 1;
                    self.wait(Awaited::Sink, &error, attempts, &mut backoff).await;
                }
                Err(error) => return Err(failed(&error, unit)),
            }
        }
    }
}

/// What came in the way of a try, and who has to answer before the next one can do better.
struct Hitch {
    on: Awaited,
    error: SinkError,
}

impl From<SinkError> for Hitch {
    fn from(error: SinkError) -> Hitch {
        Hitch { on: Awaited::Sink, error }
    }
}

/// Says that a table is another one than records were decoded for.
pub(super) fn outdated(table: &TableName, how: &str) -> String {
    format!("{table} has changed: {how}")
}

/// Times in a row that a unit is fitted to a table that goes on changing: some minutes.
const MOST_REFRESHES: u32 = 40;

/// Times in a row that a unit is tried that the sink refuses as it is set up: some seconds.
const MOST_TRIES: u32 = 6;

/// How long Kafka may take to say how many partitions a topic has.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Asks Kafka once for the topic's partition count.
async fn count_now(outlet: &mut impl Outlet) -> Result<Result<i32, SinkError>, Stop> {
    match tokio::time::timeout(ANSWER_WITHIN, outlet.partition_count()).await {
        Ok(Some(count)) => Ok(Ok(count)),
        Ok(None) => Err(Stop::Taken),
        Err(_) => {
            let within = ANSWER_WITHIN.as_secs();
            let what = format!(
                "Kafka does not say within {within} s how many partitions the topic has, and there are statements to judge"
            );
            Ok(Err(SinkError::new(ErrorClass::Transient, what)))
        }
    }
}

fn keys_moved(first: i32, now: i32) -> SinkError {
    SinkError::new(
        ErrorClass::Transient,
        format!(
            "the topic had {first} partitions and has {now} now, so the unit is written again without its statements"
        ),
    )
}

/// How often in a row a unit with statements may take the sink too long before the statement at fault is searched. The
/// first time it may have been the load.
const TOO_LONG_TIMES: u32 = 2;

/// Whether the sink gave up what took it too long (PostgreSQL's `statement_timeout`).
pub(super) fn timed_out(error: &SinkError) -> bool {
    error.code.as_deref() == Some("57014")
}

pub(super) fn failed(error: &SinkError, unit: &Unit) -> Stop {
    Stop::Failed {
        what: format!("{error}, in the unit that ends before offset {}", unit.end.next_offset),
        hint: error.hint.clone().unwrap_or_else(|| "mend the set-up, then restart the worker".to_owned()),
    }
}
