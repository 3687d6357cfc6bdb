//! Units of work: what a lane commits together.

use std::{mem, sync::Arc};

use sink_api::{LaneState, Offset, RowChange, RowOp, StatementRow, TableShape, Value};

use super::{Step, close::keys_stayed, step::refused_row};
use crate::{decode::BadRecord, statement::Statement};

/// One kind of work, in stream order.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Apply these changes, given in stream order.
    Rows(Vec<RowChange>),
    /// Remove all rows of a table.
    Truncate(Arc<TableShape>),
    /// Evaluate a statement.
    Statement(Box<Statement>),
    /// Write down a statement that proves nothing.
    Refusal(Box<StatementRow>),
}

/// What a lane commits together: work, and the state that holds once it is done.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// The work, in stream order.
    pub work: Vec<Work>,
    /// Records to park in the dead letter queue before the unit commits.
    pub dead_letters: Vec<(Offset, BadRecord)>,
    /// The lane's state at the end of the unit.
    pub end: LaneState,
    /// How many records it covers.
    pub records: u64,
    /// About how much memory its rows hold, in bytes.
    pub bytes: usize,
    /// The earliest timestamp of its records, in milliseconds since 1970-01-01 UTC.
    pub earliest: Option<i64>,
}

impl Unit {
    /// Whether there is a statement to evaluate.
    pub fn has_statements(&self) -> bool {
        self.work.iter().any(|work| matches!(work, Work::Statement(_)))
    }

    /// Takes note of the topic's partition count, asked for after the unit's last record was read: if keys have moved, its
    /// statements are refused. A row's later changes come through another lane, which no window of this one sees.
    pub fn partitions(&mut self, now: i32) {
        let Err(refused) = keys_stayed(self.end.partition_count, now) else { return };
        for work in &mut self.work {
            if let Work::Statement(statement) = work {
                *work = Work::Refusal(Box::new(refused_row(statement, refused.clone())));
            }
        }
    }
}

/// When a unit is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitLimits {
    /// Row changes.
    pub rows: usize,
    /// Bytes of row changes.
    pub bytes: usize,
    /// Statements: each costs a listing of its range, and a transaction that is open for long holds back vacuum.
    pub statements: usize,
}

/// Gathers steps into units.
#[derive(Debug, Default)]
pub struct UnitBuilder {
    work: Vec<Work>,
    dead_letters: Vec<(Offset, BadRecord)>,
    records: u64,
    rows: usize,
    bytes: usize,
    statements: usize,
    earliest: Option<i64>,
}

impl UnitBuilder {
    /// Counts one record, with its timestamp in milliseconds since 1970-01-01 UTC.
    pub fn record(&mut self, timestamp: Option<i64>) {
        self.records += 1;
        if let Some(timestamp) = timestamp {
            self.earliest = Some(self.earliest.map_or(timestamp, |earliest| earliest.min(timestamp)));
        }
    }

    /// Adds a step.
    pub fn push(&mut self, step: Step) {
        match step {
            Step::Row(change) => {
                self.rows += 1;
                self.bytes += change_bytes(&change);
                match self.work.last_mut() {
                    Some(Work::Rows(rows)) if joins(rows, &change) => rows.push(change),
                    _ => self.work.push(Work::Rows(vec![change])),
                }
            }
            Step::Truncate(table) => self.work.push(Work::Truncate(table)),
            Step::Statement(statement) => {
                self.statements += 1;
                self.bytes += set_bytes(&statement);
                self.work.push(Work::Statement(statement));
            }
            Step::Refusal(row) => self.work.push(Work::Refusal(row)),
        }
    }

    /// Adds a record to park.
    pub fn park(&mut self, offset: Offset, bad: BadRecord) {
        self.dead_letters.push((offset, bad));
    }

    /// Whether anything is to be done beyond moving the frontier.
    pub fn has_work(&self) -> bool {
        !self.work.is_empty() || !self.dead_letters.is_empty()
    }

    /// Whether no record has been counted.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Whether the unit should be committed before more is added.
    pub fn is_full(&self, limits: &UnitLimits) -> bool {
        self.rows >= limits.rows || self.bytes >= limits.bytes || self.statements >= limits.statements
    }

    /// Returns about how much memory the unit holds, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Ends the unit at `end` and starts an empty one.
    pub fn finish(&mut self, end: LaneState) -> Unit {
        let done = mem::take(self);
        Unit {
            work: done.work,
            dead_letters: done.dead_letters,
            end,
            records: done.records,
            bytes: done.bytes,
            earliest: done.earliest,
        }
    }
}

/// Whether a change may be merged with these: a table's rows are laid out by its shape, so a batch has one shape of each.
pub(super) fn joins(rows: &[RowChange], change: &RowChange) -> bool {
    rows.iter()
        .rev()
        .find(|row| Arc::ptr_eq(&row.table, &change.table) || row.table.name == change.table.name)
        .is_none_or(|row| Arc::ptr_eq(&row.table, &change.table) || row.table == change.table)
}

fn change_bytes(change: &RowChange) -> usize {
    let row = match &change.op {
        RowOp::Delete => 0,
        RowOp::Upsert(row) => row.iter().map(value_bytes).sum(),
    };
    size_of::<RowChange>() + change.key.as_bytes().len() + row
}

fn value_bytes(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::Text(text) => text.len(),
            Value::Bytes(bytes) | Value::Bits(bytes) => bytes.len(),
            Value::Array(values) => values.iter().map(value_bytes).sum(),
            _ => 0,
        }
}

fn set_bytes(statement: &Statement) -> usize {
    let selected = match &statement.selected {
        sink_api::KeySet::List(list) => list.bytes(),
        sink_api::KeySet::Intervals(intervals) => size_of_val(intervals.as_slice()),
    };
    selected + statement.spared.bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sink_api::{Extent, Key, KeyList, KeyRange, KeySet, ReadId, StatementKind, TableName};

    use super::*;

    fn table() -> Arc<TableShape> {
        Arc::new(TableShape::new(TableName::new("shop", "orders"), vec![], vec![], vec![]))
    }

    fn change(offset: i64) -> RowChange {
        RowChange { table: table(), key: Key::from_encoded([1]), offset: Offset(offset), op: RowOp::Delete }
    }

    fn statement(offset: i64) -> Box<Statement> {
        Box::new(Statement {
            read_id: ReadId(format!("read-{offset}")),
            kind: StatementKind::Chunk,
            source: sink_api::SourceName::of_table("shop.orders"),
            table: table(),
            extent: Extent::Range(KeyRange::ALL),
            selected: KeySet::List(KeyList::new()),
            spared: KeyList::new(),
            spared_by_window: 0,
            spared_by_visibility: 0,
            confirmed: None,
            offset: Offset(offset),
        })
    }

    fn end() -> LaneState {
        LaneState {
            next_offset: Offset(4),
            memory_offset: Offset(4),
            highest_xid: None,
            unknown_past: false,
            partition_count: 1,
        }
    }

    #[test]
    fn rows_laid_out_for_two_shapes_of_a_table_are_not_merged() {
        let changed = Arc::new(TableShape::new(TableName::new("shop", "orders"), vec![], vec![], vec!["new".into()]));
        let other = Arc::new(TableShape::new(TableName::new("shop", "lines"), vec![], vec![], vec![]));
        let of = |offset, table: &Arc<TableShape>| RowChange { table: Arc::clone(table), ..change(offset) };
        let mut builder = UnitBuilder::default();

        for change in [change(0), of(1, &other), change(2), of(3, &changed), of(4, &other), of(5, &changed)] {
            builder.push(Step::Row(change));
        }
        let unit = builder.finish(end());

        let sizes = |work: &[Work]| -> Vec<usize> {
            work.iter().map(|work| if let Work::Rows(rows) = work { rows.len() } else { 0 }).collect()
        };
        assert_eq!(sizes(&unit.work), [3, 3]);
        let (first, second) = Unit { work: unit.work[..].to_vec(), ..unit.clone() }.halves(&end()).unwrap();
        assert_eq!((sizes(&first.work), sizes(&second.work)), (vec![3], vec![3]));
        let (_, third) = second.halves(&end()).unwrap();
        let whole = Unit { work: [first.work, third.work].concat(), ..unit.clone() };
        assert_eq!(whole.tables().len(), 3, "each shape of a table is looked at");
    }

    #[test]
    fn a_statement_stands_between_the_changes_before_and_after_it() {
        let mut builder = UnitBuilder::default();

        builder.push(Step::Row(change(0)));
        builder.push(Step::Row(change(1)));
        builder.push(Step::Statement(statement(2)));
        builder.push(Step::Row(change(3)));

        let expected =
            [Work::Rows(vec![change(0), change(1)]), Work::Statement(statement(2)), Work::Rows(vec![change(3)])];
        assert_eq!(builder.finish(end()).work, expected);
        assert!(!builder.has_work() && builder.is_empty());
    }

    #[test]
    fn a_unit_is_full_by_rows_bytes_or_statements() {
        let limits = UnitLimits { rows: 2, bytes: 1 << 20, statements: 1 };
        let filled = |steps: Vec<Step>, limits: UnitLimits| {
            let mut builder = UnitBuilder::default();
            steps.into_iter().for_each(|step| builder.push(step));
            builder.is_full(&limits)
        };

        assert!(!filled(vec![Step::Row(change(0))], limits));
        assert!(filled(vec![Step::Row(change(0)), Step::Row(change(1))], limits));
        assert!(filled(vec![Step::Row(change(0))], UnitLimits { bytes: 10, ..limits }));
        assert!(filled(vec![Step::Statement(statement(0))], limits));
    }

    #[test]
    fn a_unit_carries_what_its_records_say() {
        let mut builder = UnitBuilder::default();
        builder.record(Some(70));
        builder.record(None);
        builder.record(Some(50));

        let unit = builder.finish(end());

        assert_eq!((unit.records, unit.earliest, unit.end), (3, Some(50), end()));
    }
}
