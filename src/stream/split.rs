//! Units taken apart, to isolate a record that the sink refuses, and fitted to a table that has changed.

use std::sync::Arc;

use sink_api::{Column, LaneState, Offset, RowChange, RowOp, TableShape, Value};

use super::{Unit, Work, unit::joins};

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

    /// Fits the work on `shape`'s table to its new shape, column by column.
    ///
    /// # Errors
    /// What is in the way: another key, or a value whose column is gone or has another type. Such records must be decoded
    /// anew, for what a value means depends on its column.
    pub fn refit(&mut self, shape: &Arc<TableShape>) -> Result<(), String> {
        for work in &mut self.work {
            match work {
                Work::Rows(rows) => {
                    for change in rows.iter_mut().filter(|change| change.table.name == shape.name) {
                        refit(change, shape)?;
                    }
                }
                Work::Truncate(table) if table.name == shape.name => *table = Arc::clone(shape),
                Work::Statement(statement) if statement.table.name == shape.name => {
                    same_key(&statement.table, shape)?;
                    statement.table = Arc::clone(shape);
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
    if new.has_key_of(old) { Ok(()) } else { Err("its primary key is another one".to_owned()) }
}

fn refit(change: &mut RowChange, shape: &Arc<TableShape>) -> Result<(), String> {
    same_key(&change.table, shape)?;
    if let RowOp::Upsert(row) = &mut change.op {
        // What the record says of such a column was left out.
        let had = |name: &str| change.table.column_index(name).map(|at| &change.table.columns[at]);
        let is_new = |column: &&Column| !column.generated && had(&column.name).is_none_or(|before| before.generated);
        if let Some(column) = shape.columns.iter().find(is_new) {
            return Err(format!("column `{}` is one to be written now", column.name));
        }
        let mut fitted = vec![Value::Absent; shape.columns.len()];
        for (column, value) in change.table.columns.iter().zip(row.iter()) {
            // None of these is a value of a type.
            let is_of_any_type = matches!(value, Value::Absent | Value::Unchanged | Value::Null);
            match shape.column_index(&column.name) {
                Some(index) if is_of_any_type || shape.columns[index].column_type == column.column_type => {
                    fitted[index] = value.clone();
                }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sink_api::{Column, ColumnType, Key, KeyColumn, KeyType, TableName};

    use super::*;

    fn shape(id: ColumnType, v: Option<ColumnType>) -> Arc<TableShape> {
        let column = |name: &str, column_type: ColumnType| Column {
            name: name.into(),
            type_name: format!("{column_type:?}"),
            column_type,
            nullable: true,
            generated: false,
            has_default: false,
        };
        let columns = [Some(column("id", id)), v.map(|v| column("v", v))].into_iter().flatten().collect();
        let key = KeyColumn { column: 0, key_type: Ok(KeyType::Int), order: Ok(()) };
        Arc::new(TableShape::new(TableName::new("shop", "orders"), columns, vec![key], vec![]))
    }

    /// Fits a row with this value in `v`, a text, to a new shape.
    fn refitted(v: Value, now: &Arc<TableShape>) -> Result<Vec<Value>, String> {
        let mut change = RowChange {
            table: shape(ColumnType::Int32, Some(ColumnType::Text(Some(2)))),
            key: Key::from_encoded([1]),
            offset: Offset(0),
            op: RowOp::Upsert([Value::Int(1), v].into()),
        };
        refit(&mut change, now)?;
        assert!(Arc::ptr_eq(&change.table, now));
        let RowOp::Upsert(row) = change.op else { panic!("it was an upsert") };
        Ok(row.to_vec())
    }

    #[test]
    fn what_a_row_does_not_carry_fits_any_type() {
        let integer = shape(ColumnType::Int32, Some(ColumnType::Int64));
        for v in [Value::Absent, Value::Null, Value::Unchanged] {
            assert_eq!(refitted(v.clone(), &integer), Ok(vec![Value::Int(1), v]));
        }
        assert_eq!(refitted(Value::Absent, &shape(ColumnType::Int32, None)), Ok(vec![Value::Int(1)]));
    }

    /// The record may have carried a value for it, which was left out.
    #[test]
    fn a_row_is_decoded_anew_where_a_column_was_added_or_is_no_longer_computed() {
        let narrow = shape(ColumnType::Int32, None);
        let mut computed = (*shape(ColumnType::Int32, Some(ColumnType::Int64))).clone();
        computed.columns[1].generated = true;
        let wide = shape(ColumnType::Int32, Some(ColumnType::Int64));
        for (before, row) in [(narrow, vec![Value::Int(1)]), (computed.into(), vec![Value::Int(1), Value::Absent])] {
            let mut change = RowChange {
                table: before,
                key: Key::from_encoded([1]),
                offset: Offset(0),
                op: RowOp::Upsert(row.into()),
            };
            assert_eq!(refit(&mut change, &wide), Err("column `v` is one to be written now".to_owned()));
            change.op = RowOp::Delete;
            assert_eq!(refit(&mut change, &wide), Ok(()));
        }
    }

    #[test]
    fn a_value_is_never_taken_for_one_of_another_type() {
        let text = || Value::Text("5".into());

        let type_changed = Err("column `v` has another type".to_owned());
        assert_eq!(refitted(text(), &shape(ColumnType::Int32, Some(ColumnType::Int64))), type_changed);
        assert_eq!(refitted(text(), &shape(ColumnType::Int32, Some(ColumnType::Text(Some(9))))), type_changed);
        assert_eq!(refitted(text(), &shape(ColumnType::Int32, None)), Err("column `v` is gone".to_owned()));
    }

    #[test]
    fn a_key_of_another_type_is_another_key() {
        let now = shape(ColumnType::Int64, Some(ColumnType::Text(Some(2))));

        assert_eq!(refitted(Value::Absent, &now), Err("its primary key is another one".to_owned()));
    }
}
