//! The handles of one lane: looked up once, counted once a batch.

use std::{sync::Arc, time::Duration};

use prometheus::{Histogram, IntCounter, local::LocalHistogram};
use sink_api::{ErrorClass, Partition, StatementRow, Verdict, Written};

use super::{Metrics, seconds};
use crate::{clock::UnixMillis, decode::Stage};

/// Keys that a statement spared, by reason; a key counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SparedKeys {
    /// Changed between the low marker and the close.
    pub window: u64,
    /// Of a transaction that the read may not have seen.
    pub visibility: u64,
    /// Named as changed by the statement itself.
    pub changed: u64,
}

/// The metrics of one lane.
#[derive(Debug)]
pub struct LaneMetrics {
    metrics: Arc<Metrics>,
    topic: String,
    records: IntCounter,
    record_bytes: IntCounter,
    upserted: IntCounter,
    deleted: IntCounter,
    batches: IntCounter,
    batch_seconds: Histogram,
    event_to_commit: LocalHistogram,
    orphans: IntCounter,
    removed: IntCounter,
    missing: IntCounter,
    spared: [IntCounter; 3],
    copies_left_out: IntCounter,
}

impl LaneMetrics {
    /// Makes the handles of a lane; its series become visible at zero.
    pub fn new(metrics: Arc<Metrics>, topic: &str, partition: Partition) -> LaneMetrics {
        let partition = partition.to_string();
        let lane = [topic, partition.as_str()];
        let spared = |reason| metrics.spared_keys.with_label_values(&[topic, reason]);
        LaneMetrics {
            topic: topic.to_owned(),
            records: metrics.records.with_label_values(&lane),
            record_bytes: metrics.record_bytes.with_label_values(&lane),
            upserted: metrics.rows.with_label_values(&[topic, &partition, "upserted"]),
            deleted: metrics.rows.with_label_values(&[topic, &partition, "deleted"]),
            batches: metrics.batches.with_label_values(&lane),
            batch_seconds: metrics.batch_seconds.with_label_values(&[] as &[&str]),
            event_to_commit: metrics.event_to_commit_seconds.with_label_values(&[topic]).local(),
            orphans: metrics.orphan_rows.with_label_values(&[topic]),
            removed: metrics.removed_rows.with_label_values(&[topic]),
            missing: metrics.missing_rows.with_label_values(&[topic]),
            copies_left_out: metrics.copies_left_out.with_label_values(&[topic]),
            spared: [spared("window"), spared("visibility"), spared("changed")],
            metrics,
        }
    }

    /// Counts records that the lane took.
    pub fn read(&self, records: u64, bytes: u64) {
        self.records.inc_by(records);
        self.record_bytes.inc_by(bytes);
    }

    /// Counts a unit of work that was committed at `now`, `took` after it began, with the timestamps of its records
    /// (milliseconds since 1970-01-01 UTC).
    pub fn committed(
        &mut self,
        written: &Written,
        took: Duration,
        timestamps: impl IntoIterator<Item = i64>,
        now: UnixMillis,
    ) {
        self.upserted.inc_by(written.upserted);
        self.deleted.inc_by(written.deleted);
        self.batches.inc();
        self.batch_seconds.observe(took.as_secs_f64());
        for timestamp in timestamps {
            self.event_to_commit.observe(seconds(now.0 - timestamp));
        }
        self.event_to_commit.flush();
    }

    /// Counts a statement whose verdict is durable.
    pub fn statement(&self, statement: &StatementRow, spared: SparedKeys) {
        let topic = self.topic.as_str();
        let verdict = &statement.verdict;
        self.metrics.statements.with_label_values(&[topic, statement.kind.as_str(), verdict.as_str()]).inc();
        match verdict {
            Verdict::Held { rule, .. } => {
                self.metrics.statements_held.with_label_values(&[topic, rule.as_str()]).inc();
            }
            Verdict::Refused { rule, .. } => {
                self.metrics.statements_refused.with_label_values(&[topic, rule.as_str()]).inc();
            }
            Verdict::Applied | Verdict::Reported | Verdict::Ignored => {}
        }
        self.orphans.inc_by(statement.orphans);
        self.removed.inc_by(statement.removed);
        self.missing.inc_by(statement.missing);
        for (counter, keys) in self.spared.iter().zip([spared.window, spared.visibility, spared.changed]) {
            counter.inc_by(keys);
        }
    }

    /// Counts rows that a change could not make, since the sink lacks the old value of an unchanged large column.
    pub fn missing(&self, rows: u64) {
        self.missing.inc_by(rows);
    }

    /// Counts copied rows that were left out.
    pub fn copies_left_out(&self, rows: u64) {
        self.copies_left_out.inc_by(rows);
    }

    /// Counts a record that the dead letter topic has acknowledged.
    pub fn dead_letter(&self, stage: Stage) {
        let stage = match stage {
            Stage::KeyConverter => "KEY_CONVERTER",
            Stage::ValueConverter => "VALUE_CONVERTER",
            Stage::TaskPut => "TASK_PUT",
        };
        self.metrics.dead_letters.with_label_values(&[self.topic.as_str(), stage]).inc();
    }

    /// Counts a failed try of the sink that is tried again.
    pub fn retry(&self, class: ErrorClass) {
        self.metrics.retry(class);
    }
}
