//! Every metric of the worker: name, labels and help together.
//!
//! Labels come from closed sets, besides topic and partition. Counters are counted once a batch through the handles of
//! [`LaneMetrics`]; gauges are set when they are asked for, from the live [`Status`], so that metrics and `/status`
//! cannot disagree and a lane that went to another worker leaves no stale figures behind.

mod lane;
mod registry;

use std::{sync::Mutex, time::Duration};

use prometheus::{GaugeVec, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec};
use sink_api::ErrorClass;

pub use lane::{LaneMetrics, SparedKeys};
pub use registry::Declared;

use crate::{
    clock::UnixMillis,
    logging::LogCounters,
    status::{AttentionKind, LaneState, Status},
};
use registry::Registry;

/// From a statement on a warm row to a batch behind a lock or a checkpoint.
const BATCH_BUCKETS: [f64; 14] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Fine where a healthy stream lives, coarse where it only matters that it is late.
const LATENCY_BUCKETS: [f64; 22] = [
    0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.075, 0.1, 0.125, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 3.0, 5.0, 10.0,
    60.0, 600.0,
];

/// A repair request that the worker sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// `execute-snapshot`: missing rows.
    ExecuteSnapshot,
    /// `sink-repair-read`: a fresh read for a statement refused for a passing reason.
    Read,
}

/// What happened to the worker's partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebalanceKind {
    /// Partitions came.
    Assigned,
    /// Partitions were given up in order.
    Revoked,
    /// Partitions were lost: the group went on without this worker.
    Lost,
}

impl RequestKind {
    const ALL: [RequestKind; 2] = [RequestKind::ExecuteSnapshot, RequestKind::Read];

    /// Returns the request's type as the signal has it.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestKind::ExecuteSnapshot => "execute-snapshot",
            RequestKind::Read => "sink-repair-read",
        }
    }
}

impl RebalanceKind {
    const ALL: [RebalanceKind; 3] = [RebalanceKind::Assigned, RebalanceKind::Revoked, RebalanceKind::Lost];

    fn as_str(self) -> &'static str {
        match self {
            RebalanceKind::Assigned => "assigned",
            RebalanceKind::Revoked => "revoked",
            RebalanceKind::Lost => "lost",
        }
    }
}

fn class_name(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Transient => "transient",
        ErrorClass::Data => "data",
        ErrorClass::Configuration => "configuration",
        ErrorClass::Fenced => "fenced",
    }
}

/// The worker's metrics; one set a process, shared by reference.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    records: IntCounterVec,
    record_bytes: IntCounterVec,
    rows: IntCounterVec,
    batches: IntCounterVec,
    batch_seconds: HistogramVec,
    event_to_commit_seconds: HistogramVec,
    statements: IntCounterVec,
    statements_refused: IntCounterVec,
    statements_held: IntCounterVec,
    orphan_rows: IntCounterVec,
    removed_rows: IntCounterVec,
    missing_rows: IntCounterVec,
    spared_keys: IntCounterVec,
    copies_left_out: IntCounterVec,
    dead_letters: IntCounterVec,
    requests: IntCounterVec,
    retries: IntCounterVec,
    rebalances: IntCounterVec,
    log_events: IntCounterVec,
    memory_bytes: IntGauge,
    memory_limit_bytes: IntGauge,
    live: Mutex<Live>,
}

/// Gauges that are set from the status when they are asked for; the lock keeps two askers apart.
#[derive(Debug)]
struct Live {
    frontier: IntGaugeVec,
    end: IntGaugeVec,
    lag_records: IntGaugeVec,
    lag_seconds: GaugeVec,
    open_windows: IntGaugeVec,
    units_in_flight: IntGauge,
    unit_in_flight_seconds: GaugeVec,
    lanes: IntGaugeVec,
    attention: IntGaugeVec,
}

const LANE: &[&str] = &["topic", "partition"];

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// Makes a set of metrics, all at zero.
    pub fn new() -> Metrics {
        let mut r = Registry::default();
        let build_info =
            r.gauges("sink_repair_build_info", &["version"], "Always 1; the label is the worker's version");
        build_info.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        r.gauge("sink_repair_start_time_seconds", "When the worker started, in seconds since 1970-01-01 UTC")
            .set(UnixMillis::now().0 / 1000);

        let metrics = Metrics {
            records: r.counters("sink_repair_records_total", LANE, "Records handed to the lane"),
            record_bytes: r.counters("sink_repair_record_bytes_total", LANE, "Bytes of these records"),
            rows: r.counters(
                "sink_repair_rows_total",
                &["topic", "partition", "operation"],
                "Rows written by changes, after merging; operation is upserted or deleted",
            ),
            batches: r.counters("sink_repair_batches_total", LANE, "Units of work committed"),
            batch_seconds: r.histograms(
                "sink_repair_batch_seconds",
                &[],
                &BATCH_BUCKETS,
                "Time from the begin of a unit of work to its commit",
            ),
            event_to_commit_seconds: r.histograms(
                "sink_repair_event_to_commit_seconds",
                &["topic"],
                &LATENCY_BUCKETS,
                "Time from a record's timestamp to the commit of its effect",
            ),
            statements: r.counters(
                "sink_repair_statements_total",
                &["topic", "kind", "verdict"],
                "Statements of absence by form (chunk-info, chunk, keys, absence) and verdict (applied, reported, ignored, held, refused)",
            ),
            statements_refused: r.counters(
                "sink_repair_statements_refused_total",
                &["topic", "rule"],
                "Refused statements by the safety rule that they break",
            ),
            statements_held: r.counters(
                "sink_repair_statements_held_total",
                &["topic", "rule"],
                "Held statements by the safety rule that holds them",
            ),
            orphan_rows: r.counters(
                "sink_repair_orphan_rows_total",
                &["topic"],
                "Rows that statements found at the sink and not at the source, removed or not",
            ),
            removed_rows: r.counters("sink_repair_removed_rows_total", &["topic"], "Rows that statements removed"),
            missing_rows: r.counters(
                "sink_repair_missing_rows_total",
                &["topic"],
                "Rows that statements found at the source and not at the sink",
            ),
            copies_left_out: r.counters(
                "sink_repair_copies_left_out_total",
                &["topic"],
                "Rows of incremental snapshots that were not written, since their key had changed within the last minute",
            ),
            spared_keys: r.counters(
                "sink_repair_spared_keys_total",
                &["topic", "reason"],
                "Keys about which a statement says nothing: window (changed during the read), visibility (the read may not have seen their transaction), changed (the statement itself says so)",
            ),
            dead_letters: r.counters(
                "sink_repair_dead_letters_total",
                &["topic", "stage"],
                "Records parked in the dead letter topic; stage as Kafka Connect names it",
            ),
            requests: r.counters(
                "sink_repair_requests_total",
                &["type"],
                "Repair requests sent to the signal topic (execute-snapshot, sink-repair-read)",
            ),
            retries: r.counters(
                "sink_repair_retries_total",
                &["class"],
                "Failed tries of the sink that are tried again, by class of error (transient, data, configuration, fenced)",
            ),
            rebalances: r.counters(
                "sink_repair_rebalances_total",
                &["event"],
                "Changes of the worker's partitions (assigned, revoked, lost)",
            ),
            log_events: r.counters("sink_repair_log_events_total", &["level"], "Log lines of level warn and error"),
            memory_bytes: r.gauge("sink_repair_memory_bytes", "Bytes of records waiting in all lanes"),
            memory_limit_bytes: r.gauge("sink_repair_memory_limit_bytes", "What --memory allows for them"),
            live: Mutex::new(Live {
                frontier: r.gauges(
                    "sink_repair_frontier_offset",
                    LANE,
                    "The lane's frontier: every earlier record is done and committed",
                ),
                end: r.gauges("sink_repair_end_offset", LANE, "The partition's end offset, as last heard from Kafka"),
                lag_records: r.gauges("sink_repair_lag_records", LANE, "Offsets between the frontier and the end"),
                lag_seconds: r.float_gauges(
                    "sink_repair_lag_seconds",
                    LANE,
                    "Age of the last committed record while the lane lags, 0 when it does not",
                ),
                open_windows: r.gauges(
                    "sink_repair_open_windows",
                    LANE,
                    "Bracketed reads whose low marker came and whose close did not yet",
                ),
                units_in_flight: r.gauge("sink_repair_units_in_flight", "Units of work begun and not committed"),
                unit_in_flight_seconds: r.float_gauges(
                    "sink_repair_unit_in_flight_seconds",
                    LANE,
                    "Age of the lane's unit of work, 0 when it has none",
                ),
                lanes: r.gauges(
                    "sink_repair_lanes",
                    &["state"],
                    "Lanes by state (starting, reading-memory, running, waiting, caught-up, stopped)",
                ),
                attention: r.gauges(
                    "sink_repair_attention_items",
                    &["kind"],
                    "Things that a person must look at (held, refused, dead-lettered, kafka-down, sink-down, lane-stopped, unobtainable); /status has them",
                ),
            }),
            registry: r,
        };
        metrics.touch_closed_sets();
        metrics
    }

    /// Makes the series without topic visible at zero, since a rate needs a first value.
    fn touch_closed_sets(&self) {
        for class in [ErrorClass::Transient, ErrorClass::Data, ErrorClass::Configuration, ErrorClass::Fenced] {
            self.retries.with_label_values(&[class_name(class)]);
        }
        for kind in RebalanceKind::ALL {
            self.rebalances.with_label_values(&[kind.as_str()]);
        }
        for kind in RequestKind::ALL {
            self.requests.with_label_values(&[kind.as_str()]);
        }
        self.log_counters();
    }

    /// Returns all metrics as they are declared, in the order of declaration.
    pub fn declared(&self) -> &[Declared] {
        self.registry.declared()
    }

    /// Returns the counters of log lines.
    pub fn log_counters(&self) -> LogCounters {
        LogCounters {
            warn: self.log_events.with_label_values(&["warn"]),
            error: self.log_events.with_label_values(&["error"]),
        }
    }

    /// Returns the gauge of bytes waiting in all lanes, after noting what is allowed.
    pub fn memory(&self, limit: u64) -> IntGauge {
        self.memory_limit_bytes.set(i64::try_from(limit).unwrap_or(i64::MAX));
        self.memory_bytes.clone()
    }

    /// Counts a change of the worker's partitions.
    pub fn rebalance(&self, kind: RebalanceKind) {
        self.rebalances.with_label_values(&[kind.as_str()]).inc();
    }

    /// Counts repair requests that Kafka has acknowledged.
    pub fn requests(&self, kind: RequestKind, count: u64) {
        self.requests.with_label_values(&[kind.as_str()]).inc_by(count);
    }

    /// Counts a failed try of the sink that is tried again.
    pub fn retry(&self, class: ErrorClass) {
        self.retries.with_label_values(&[class_name(class)]).inc();
    }

    /// Returns the sum of a counter over all its labels.
    pub(crate) fn total(&self, name: &str) -> u64 {
        self.registry.total(name)
    }

    /// Returns all metrics in Prometheus' text format, the gauges as `status` has them.
    pub fn render(&self, status: &Status) -> String {
        let live = self.live.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        live.set(status);
        self.registry.render()
    }
}

impl Live {
    fn set(&self, status: &Status) {
        for gauges in [&self.frontier, &self.end, &self.lag_records, &self.open_windows] {
            gauges.reset();
        }
        self.lag_seconds.reset();
        self.unit_in_flight_seconds.reset();
        for lane in &status.lanes {
            let labels = [lane.topic.as_str(), &lane.partition.to_string()];
            if let Some(frontier) = lane.frontier {
                self.frontier.with_label_values(&labels).set(frontier.0);
            }
            if let Some(end) = lane.end_offset {
                self.end.with_label_values(&labels).set(end.0);
            }
            if let Some(lag) = lane.lag_records {
                self.lag_records.with_label_values(&labels).set(i64::try_from(lag).unwrap_or(i64::MAX));
            }
            if let Some(lag) = lane.lag_seconds {
                self.lag_seconds.with_label_values(&labels).set(lag);
            }
            self.open_windows.with_label_values(&labels).set(lane.open_windows as i64);
            self.unit_in_flight_seconds.with_label_values(&labels).set(lane.unit_in_flight_seconds.unwrap_or(0.0));
        }
        self.units_in_flight
            .set(status.lanes.iter().filter(|lane| lane.unit_in_flight_seconds.is_some()).count() as i64);
        for name in LaneState::NAMES {
            let lanes = status.lanes.iter().filter(|lane| lane.state.name() == name).count();
            self.lanes.with_label_values(&[name]).set(lanes as i64);
        }
        for kind in AttentionKind::ALL {
            let items = status.attention.iter().filter(|item| item.kind == kind).count();
            self.attention.with_label_values(&[kind.as_str()]).set(items as i64);
        }
    }
}

fn seconds(ms: i64) -> f64 {
    Duration::from_millis(ms.max(0) as u64).as_secs_f64()
}

#[cfg(test)]
mod tests;
