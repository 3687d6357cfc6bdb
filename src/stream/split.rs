//! Units taken apart, to isolate a record that the sink refuses, and fitted to a table that has changed.

use std::sync::Arc;

use sink_api::{Column, LaneState, Offset, RowChange, RowOp, Rule, StatementRow, TableShape, Value};

use super::{Unit, Work, close::Refusal, step::refused_row, unit::joins};
use crate::statement::Statement;

impl Unit {
    /// Returns the tables that the unit writes to, each shape of one once.
    pub fn tables(&self) -> Vec<Arc<TableShape>> {
        let mut tables: Vec<Arc<TableShape>> = Vec::new();
        let mut add = |table: &Arc<TableShape>| {
            if !tables.iter().any(|known| Arc::ptr_eq(known, table) || known == table) {
                tables.push(Arc::clone(table));
            }
        };
        for work in &self.work {
            match work {
                Work::Rows(rows) => rows.iter().for_each(|change| add(&change.table)),
                Work::Truncate(table) => add(table),
                Work::Statement(statement) => add(&statement.table),
                Work::Refusal(_) => {}
            }
        }
        tables
    }

    /// Cuts the unit in two between records. The first half ends in a state that follows from `base`: it may make a
    /// restarted lane read more than it has to, never less.
    ///
    /// # Errors
    /// The only piece of work, when there is nothing to cut (`None` when there is no work).
    pub fn halves(&self, base: &LaneState) -> Result<(Unit, Unit), Option<&Work>> {
        let pieces = self.pieces();
        let cut = cut(&pieces).ok_or(self.work.first())?;
        let at = pieces[cut].0;
        let (first, second) = pieces.split_at(cut);
        let state = LaneState { next_offset: at, memory_offset: base.memory_offset.min(at), ..base.clone() };
        let half = |pieces: &[(Offset, Work)], end: LaneState| Unit {
            work: gather(pieces),
            dead_letters: Vec::new(),
            end,
            records: 0,
            bytes: self.bytes / 2,
            earliest: self.earliest,
        };
        Ok((half(first, state), half(second, self.end.clone())))
    }

    /// Fits the rows of `shape`'s table to its new shape, column by column.
    ///
    /// # Errors
    /// What is in the way: a key of other columns, a column that is gone and has values.
    pub fn refit(&mut self, shape: &Arc<TableShape>) -> Result<(), String> {
        for work in &mut self.work {
            match work {
                Work::Rows(rows) => {
                    for change in rows.iter_mut().filter(|change| change.table.name == shape.name) {
                        refit(change, shape).map_err(|reason| format!("{reason}, at offset {}", change.offset))?;
                    }
                }
                Work::Truncate(table) if table.name == shape.name => *table = Arc::clone(shape),
                Work::Statement(statement) if statement.table.name == shape.name => {
                    if same_key_columns(&statement.table, shape) {
                        statement.table = Arc::clone(shape);
                    } else {
                        *work = Work::Refusal(Box::new(outdated(statement)));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the work one record at a time, each with its offset. A truncate stands with what follows it.
    fn pieces(&self) -> Vec<(Offset, Work)> {
        let mut pieces = Vec::new();
        for work in &self.work {
            match work {
                Work::Rows(rows) => {
                    pieces.extend(rows.iter().map(|change| (change.offset, Work::Rows(vec![change.clone()]))));
                }
                Work::Statement(statement) => pieces.push((statement.offset, work.clone())),
                Work::Refusal(row) => pieces.push((row.offset, work.clone())),
                Work::Truncate(_) => {
                    let before = pieces.last().map_or(Offset(i64::MIN), |(offset, _)| *offset);
                    pieces.push((before, work.clone()));
                }
            }
        }
        pieces
    }
}

/// Returns the index nearest to the middle before which a record ends.
fn cut(pieces: &[(Offset, Work)]) -> Option<usize> {
    (1..pieces.len())
        .filter(|&index| pieces[index - 1].0 < pieces[index].0)
        .min_by_key(|&index| index.abs_diff(pieces.len() / 2))
}

fn gather(pieces: &[(Offset, Work)]) -> Vec<Work> {
    let mut gathered: Vec<Work> = Vec::new();
    for (_, work) in pieces {
        match (gathered.last_mut(), work) {
            (Some(Work::Rows(rows)), Work::Rows(more)) if more.iter().all(|change| joins(rows, change)) => {
                rows.extend(more.iter().cloned());
            }
            _ => gathered.push(work.clone()),
        }
    }
    gathered
}

fn same_key(old: &TableShape, new: &TableShape) -> Result<(), String> {
    let names = |shape: &TableShape| -> Vec<String> {
        shape.key.iter().map(|key| shape.columns[key.column].name.clone()).collect()
    };
    let types = |shape: &TableShape| shape.key_types().ok();
    if names(old) == names(new) && types(old) == types(new) {
        Ok(())
    } else {
        Err("its primary key is another one".to_owned())
    }
}

/// Whether a key has the same values in both.
fn same_key_columns(old: &TableShape, new: &TableShape) -> bool {
    let columns =
        |shape: &TableShape| -> Vec<Column> { shape.key.iter().map(|key| shape.columns[key.column].clone()).collect() };
    same_key(old, new).is_ok() && columns(old) == columns(new)
}

/// Refuses a statement whose keys were read for another key of the sink's table.
fn outdated(statement: &Statement) -> StatementRow {
    let reason = "the key of the sink's table was changed after the statement was read".to_owned();
    let refused = Refusal { rule: Rule::TableChange, reason, again: true };
    StatementRow { confirmed: statement.confirmed, ..refused_row(statement, refused) }
}

fn refit(change: &mut RowChange, shape: &Arc<TableShape>) -> Result<(), String> {
    same_key(&change.table, shape)?;
    if let RowOp::Upsert(row) = &mut change.op {
        let mut fitted = vec![Value::Absent; shape.columns.len()];
        for (column, value) in change.table.columns.iter().zip(row.iter()) {
            match shape.column_index(&column.name) {
                Some(index) if shape.columns[index].column_type == column.column_type => fitted[index] = value.clone(),
                Some(_) => return Err(format!("column `{}` has another type", column.name)),
                None if *value == Value::Absent => {}
                None => return Err(format!("column `{}` is gone", column.name)),
            }
        }
        *row = fitted.into();
    }
    change.table = Arc::clone(shape);
    Ok(())
}
