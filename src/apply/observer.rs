//! What a lane tells the outside of its work.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sink_api::{ErrorClass, HeldStatement, LaneId, NotNative, Offset, StatementRow, TableName, Verdict, Written};
use tracing::{debug, error, info, warn};

use super::{lane::LaneEnd, ports::Request, report::Report, writer::Wait};
use crate::{
    clock::UnixMillis,
    metrics::{LaneMetrics, Metrics, SparedKeys},
    status::{Awaited, LaneState, LaneStatus, Progress},
    stream::Sequencer,
};

/// Feeds metrics, status and log from one lane. Never waits, never fails.
pub(super) struct Observer {
    lane: LaneId,
    metrics: Arc<Metrics>,
    counters: LaneMetrics,
    status: LaneStatus,
    frontier: Offset,
    last_record: Option<UnixMillis>,
    /// Copied rows that were left out, as counted last.
    left_out: u64,
    open_windows: usize,
    unit_since: Option<(Instant, UnixMillis)>,
    waiting_since: Option<(Awaited, UnixMillis)>,
    reading_memory: bool,
}

impl Observer {
    pub(super) fn new(lane: LaneId, metrics: Arc<Metrics>, status: LaneStatus) -> Observer {
        Observer {
            counters: LaneMetrics::new(Arc::clone(&metrics), &lane.topic, lane.partition),
            lane,
            metrics,
            status,
            frontier: Offset(0),
            last_record: None,
            left_out: 0,
            open_windows: 0,
            unit_since: None,
            waiting_since: None,
            reading_memory: false,
        }
    }

    /// The lane has found its place.
    pub(super) fn started(&mut self, frontier: Offset, read_from: Offset) {
        info!(lane = %self.lane, %frontier, %read_from, "lane started");
        self.frontier = frontier;
        self.reading_memory = read_from < frontier;
        self.status.state(if self.reading_memory { LaneState::ReadingMemory } else { LaneState::Running });
        self.publish();
    }

    /// What an earlier life of the lane held still waits for an operator.
    pub(super) fn held(&self, held: &[HeldStatement]) {
        for held in held {
            self.status.held(&held.statement, UnixMillis(held.recorded_at / 1000));
        }
    }

    /// Records were taken: how many, of how many bytes, and the offset of the last.
    pub(super) fn took(&mut self, records: u64, bytes: u64, last: Option<Offset>, sequencer: &Sequencer) {
        self.counters.read(records, bytes);
        self.open_windows = sequencer.open_reads().len();
        let left_out = sequencer.left_out();
        self.counters.copies_left_out(left_out - std::mem::replace(&mut self.left_out, left_out));
        if self.reading_memory && last.is_some_and(|last| last.next() >= self.frontier) {
            self.reading_memory = false;
            self.status.state(LaneState::Running);
        }
        self.publish();
    }

    /// A unit is being written.
    pub(super) fn began(&mut self) {
        self.unit_since = Some((Instant::now(), UnixMillis::now()));
        self.publish();
    }

    /// A unit is durable.
    pub(super) fn committed(&mut self, report: &Report, next_offset: Offset, timestamps: &[i64]) {
        let now = UnixMillis::now();
        let took = self.unit_since.take().map_or(Duration::ZERO, |(since, _)| since.elapsed());
        let written = Written { upserted: report.upserted, deleted: report.deleted, missing: Vec::new() };
        self.counters.committed(&written, took, timestamps.iter().copied(), now);
        self.frontier = next_offset;
        self.last_record = timestamps.last().map(|timestamp| UnixMillis(*timestamp)).or(self.last_record);
        for judged in &report.statements {
            self.counters.statement(&judged.row, judged.spared);
            self.log_statement(&judged.row);
            self.status.statement(&judged.row, now);
        }
        if report.repeated > 0 {
            debug!(lane = %self.lane, reads = report.repeated, "reads that have their verdict came again");
        }
        self.counters.missing(report.unmakeable);
        if report.unmakeable > 0 {
            let tables =
                report.missing.iter().map(|missing| missing.table.name.to_string()).collect::<Vec<_>>().join(", ");
            warn!(
                lane = %self.lane, tables, rows = report.unmakeable, before = %next_offset,
                "rows could not be made: their records leave out unchanged large values (TOAST), and the sink has no such row; \
                 with --signal-topic they are asked for, else run an incremental snapshot of them"
            );
        }
        for (offset, bad) in &report.parked {
            let table = bad.table.as_deref().unwrap_or("unknown");
            warn!(lane = %self.lane, %offset, table, reason = bad.reason, "record parked in the dead letter queue");
            self.counters.dead_letter(bad.stage);
            self.status.dead_letter(*offset, bad.table.clone(), &bad.reason, now);
        }
        self.publish();
    }

    /// The lane waits for the sink or for Kafka, or waits no longer.
    pub(super) fn waiting(&mut self, wait: Option<&Wait>) {
        match wait {
            Some(wait) => {
                if wait.on == Awaited::Sink {
                    self.counters.retry(ErrorClass::Transient);
                }
                let before = self.waiting_since.filter(|(on, _)| *on == wait.on);
                let (on, since) = before.unwrap_or_else(|| (wait.on, UnixMillis::now()));
                self.waiting_since = Some((on, since));
                let (why, hint) = (wait.error.clone(), wait.hint.clone());
                self.status.state(LaneState::Waiting { on, since, why, hint, attempts: wait.attempts });
            }
            None => {
                if let Some((_, since)) = self.waiting_since.take() {
                    let seconds = UnixMillis::now().since(since).as_secs();
                    info!(lane = %self.lane, seconds, "no longer waiting");
                    self.status.state(LaneState::Running);
                }
            }
        }
    }

    /// A repair request was sent, or could not be.
    pub(super) fn requested(&self, request: &Request, result: &Result<(), String>) {
        match result {
            Ok(()) => {
                info!(lane = %self.lane, id = request.id, kind = request.kind.as_str(), keys = request.keys, "repair request sent");
                self.metrics.requests(request.kind, 1);
            }
            Err(error) => {
                error!(lane = %self.lane, kind = request.kind.as_str(), keys = request.keys, error, "repair request not sent; the next pass finds its keys again");
            }
        }
    }

    /// Ranges of a table's keys cannot be evaluated, so statements of them are refused.
    pub(super) fn unordered(&self, table: &TableName, why: &NotNative) {
        let (reason, hint) = (&why.reason, why.hint.as_deref().unwrap_or_default());
        warn!(lane = %self.lane, %table, reason, hint, "statements of ranges of this table are refused");
    }

    /// So many keys of a table were asked for twice and did not come; none any more, if it is 0.
    pub(super) fn unobtainable(&self, table: &TableName, keys: u64) {
        match keys {
            0 => info!(lane = %self.lane, %table, "no missing row is unobtainable any more"),
            _ => {
                warn!(lane = %self.lane, %table, keys, "missing rows were asked for twice and did not come; they are not asked for again before their next event");
            }
        }
        self.status.unobtainable(&table.to_string(), keys, UnixMillis::now());
    }

    /// The lane has ended.
    pub(super) fn ended(&self, end: &LaneEnd) {
        match end {
            LaneEnd::Stopped => info!(lane = %self.lane, frontier = %self.frontier, "lane stopped"),
            LaneEnd::CaughtUp => {
                info!(lane = %self.lane, frontier = %self.frontier, "lane caught up");
                self.status.state(LaneState::CaughtUp);
            }
            LaneEnd::Fenced(what) => {
                warn!(lane = %self.lane, reason = what, "another worker has taken the partition; nothing was written");
            }
            LaneEnd::Outdated(what) => {
                info!(lane = %self.lane, frontier = %self.frontier, reason = what, "lane begins again at its frontier");
            }
            LaneEnd::Failed { what, hint } => {
                error!(lane = %self.lane, reason = what, hint, "lane stopped");
                self.status.state(LaneState::Stopped {
                    since: UnixMillis::now(),
                    what: what.clone(),
                    hint: Some(hint.clone()),
                });
            }
        }
    }

    fn publish(&self) {
        self.status.progress(Progress {
            frontier: self.frontier,
            last_record: self.last_record,
            open_windows: self.open_windows,
            unit_since: self.unit_since.map(|(_, at)| at),
        });
    }

    fn log_statement(&self, row: &StatementRow) {
        let table = row.table.as_ref().map_or_else(|| row.source_table.clone(), ToString::to_string);
        let (rule, reason) = row.verdict.reason().map_or(("", ""), |(rule, reason)| (rule.as_str(), reason));
        macro_rules! line {
            ($level:ident, $text:literal) => {
                $level!(
                    lane = %self.lane, offset = %row.offset, read_id = %row.read_id, table, kind = row.kind.as_str(),
                    rule, reason, orphans = row.orphans, removed = row.removed, missing = row.missing,
                    spared = row.spared, in_range = row.in_range, $text
                )
            };
        }
        match &row.verdict {
            Verdict::Applied => line!(info, "statement applied"),
            Verdict::Reported => line!(info, "statement reported"),
            Verdict::Ignored => line!(debug, "statement ignored"),
            Verdict::Held { .. } => line!(warn, "statement held"),
            Verdict::Refused { .. } => line!(warn, "statement refused"),
        }
    }
}

/// A statement's verdict, with what spared keys.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Judged {
    pub(super) row: StatementRow,
    pub(super) spared: SparedKeys,
}
