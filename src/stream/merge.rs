//! All changes of a key in a batch, merged column by column into one.
//!
//! The last change wins, but a column that it does not name keeps the value of the change before: an event without the
//! value of an unchanged large column must not lose the value that came two records earlier.

use std::{cmp::Ordering, sync::Arc};

use sink_api::{Batch, Key, MergedChange, Offset, Row, RowChange, RowOp, TableBatch, Value};

/// Merges row changes, given in stream order.
pub fn merge(changes: &[RowChange]) -> Batch {
    let mut order: Vec<usize> = (0..changes.len()).collect();
    order.sort_unstable_by(|&left, &right| compare(&changes[left], &changes[right]).then(left.cmp(&right)));
    let mut batch = Batch::default();
    for index in order {
        let change = &changes[index];
        let table = match batch.tables.last_mut() {
            Some(table) if table.table.name == change.table.name => table,
            _ => {
                batch.tables.push(TableBatch { table: Arc::clone(&change.table), changes: Vec::new() });
                batch.tables.last_mut().expect("a table was just pushed")
            }
        };
        match table.changes.last_mut() {
            Some((key, offset, merged)) if *key == change.key => {
                *offset = change.offset;
                *merged = apply(std::mem::replace(merged, MergedChange::Delete), &change.op);
            }
            _ => table.changes.push(first(change)),
        }
    }
    batch
}

fn compare(left: &RowChange, right: &RowChange) -> Ordering {
    if Arc::ptr_eq(&left.table, &right.table) {
        left.key.cmp(&right.key)
    } else {
        left.table.name.cmp(&right.table.name).then_with(|| left.key.cmp(&right.key))
    }
}

fn first(change: &RowChange) -> (Key, Offset, MergedChange) {
    let merged = match &change.op {
        RowOp::Upsert(row) => MergedChange::Upsert(row.clone()),
        RowOp::Delete => MergedChange::Delete,
    };
    (change.key.clone(), change.offset, merged)
}

fn apply(before: MergedChange, op: &RowOp) -> MergedChange {
    let row = match op {
        RowOp::Delete => return MergedChange::Delete,
        RowOp::Upsert(row) => row,
    };
    match before {
        MergedChange::Delete => MergedChange::Replace(row.clone()),
        MergedChange::Upsert(old) => MergedChange::Upsert(over(&old, row)),
        MergedChange::Replace(old) => MergedChange::Replace(over(&old, row)),
    }
}

/// Lays a newer row over an older one. An unchanged column over an absent one stays unchanged: its row must exist.
fn over(old: &Row, new: &Row) -> Row {
    if !new.iter().any(Value::keeps_old) {
        return new.clone();
    }
    old.iter()
        .zip(new.iter())
        .map(|(old, new)| match (old, new) {
            (Value::Absent, new) => new.clone(),
            (old, new) if new.keeps_old() => old.clone(),
            (_, new) => new.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use sink_api::{KeyType, KeyValue, TableName, TableShape};

    use super::*;

    fn key(id: i64) -> Key {
        Key::encode(&[KeyType::Int], &[KeyValue::Int(id)]).unwrap()
    }

    fn row(values: [Value; 2]) -> RowOp {
        RowOp::Upsert(values.to_vec().into())
    }

    fn merged(changes: Vec<(&str, i64, RowOp)>) -> Vec<(String, Key, i64, MergedChange)> {
        let changes: Vec<RowChange> = changes
            .into_iter()
            .enumerate()
            .map(|(at, (table, id, op))| RowChange {
                table: Arc::new(TableShape::new(TableName::new("s", table), vec![], vec![], vec![])),
                key: key(id),
                offset: Offset(at as i64),
                op,
            })
            .collect();
        merge(&changes)
            .tables
            .into_iter()
            .flat_map(|table| {
                let name = table.table.name.name.clone();
                table.changes.into_iter().map(move |(key, offset, change)| (name.clone(), key, offset.0, change))
            })
            .collect()
    }

    fn upsert(values: [Value; 2]) -> MergedChange {
        MergedChange::Upsert(values.to_vec().into())
    }

    #[test]
    fn keys_come_in_order_and_once() {
        let changes = merged(vec![
            ("b", 1, RowOp::Delete),
            ("a", 2, RowOp::Delete),
            ("a", -1, RowOp::Delete),
            ("a", 2, RowOp::Delete),
        ]);

        let order: Vec<(&str, Key, i64)> =
            changes.iter().map(|(table, key, offset, _)| (table.as_str(), key.clone(), *offset)).collect();
        assert_eq!(order, [("a", key(-1), 2), ("a", key(2), 3), ("b", key(1), 0)]);
    }

    #[test]
    fn a_value_survives_a_later_event_without_it() {
        let changes = merged(vec![
            ("a", 1, row([Value::Int(1), Value::Text("long".into())])),
            ("a", 1, row([Value::Int(2), Value::Unchanged])),
        ]);

        assert_eq!(changes[0].3, upsert([Value::Int(2), Value::Text("long".into())]));
    }

    #[test]
    fn a_column_that_no_event_has_is_kept_by_the_sink() {
        let changes = merged(vec![
            ("a", 1, row([Value::Unchanged, Value::Absent])),
            ("a", 1, row([Value::Unchanged, Value::Unchanged])),
        ]);

        assert_eq!(changes[0].3, upsert([Value::Unchanged, Value::Unchanged]));
    }

    #[test]
    fn a_row_made_after_a_delete_replaces_the_old_one() {
        let changes = merged(vec![
            ("a", 1, row([Value::Int(1), Value::Int(1)])),
            ("a", 1, RowOp::Delete),
            ("a", 1, row([Value::Int(2), Value::Absent])),
        ]);

        assert_eq!(changes[0].3, MergedChange::Replace(vec![Value::Int(2), Value::Absent].into()));
    }

    #[test]
    fn the_last_delete_wins() {
        let changes = merged(vec![("a", 1, row([Value::Int(1), Value::Null])), ("a", 1, RowOp::Delete)]);

        assert_eq!(changes[0].3, MergedChange::Delete);
    }
}
