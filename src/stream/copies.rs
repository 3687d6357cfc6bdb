//! Copied rows that come late.
//!
//! A row of an incremental snapshot is read outside the stream and placed into it. Debezium leaves it out when it has
//! seen the key change in the copy's window, but it cannot see a transaction that was in the log before the window opened
//! and became visible only after the read: then the copy stands behind a change and is older than it. Applied, it would
//! put an old value over a new one, or bring a deleted row back. Whoever has applied the key's latest change needs no
//! copy of it, so a copy is left out when a complete change of its key came shortly before.

use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use sink_api::{Key, Offset, RowOp, TableShape, Value};

/// How long a change stands in for a copy, by the stream's own clock, in milliseconds. A copy's read and its place in the
/// stream lie seconds apart; after that a copy is more likely meant to mend what went wrong at the sink.
const MILLISECONDS: i64 = 60_000;

/// The keys that changed lately, by hash: a collision leaves a copy out, which the next pass asks for again.
#[derive(Debug)]
pub(super) struct RecentChanges {
    /// How many changes are remembered.
    limit: usize,
    latest: HashMap<u64, (Offset, Option<i64>)>,
    order: VecDeque<(Offset, u64)>,
}

impl RecentChanges {
    /// Remembers up to `limit` changes.
    pub(super) fn new(limit: usize) -> RecentChanges {
        RecentChanges { limit, latest: HashMap::new(), order: VecDeque::new() }
    }

    /// Notes a change of the stream, with its record's timestamp. One that lacks a value cannot stand in for a copy.
    pub(super) fn note(&mut self, offset: Offset, at: Option<i64>, table: &TableShape, key: &Key, op: &RowOp) {
        let hash = hash(table, key);
        let complete = match op {
            RowOp::Delete => true,
            RowOp::Upsert(row) => !row.contains(&Value::Unchanged),
        };
        if !complete {
            self.latest.remove(&hash);
            return;
        }
        self.latest.insert(hash, (offset, at));
        self.order.push_back((offset, hash));
        if self.order.len() > self.limit
            && let Some((offset, hash)) = self.order.pop_front()
            && self.latest.get(&hash).is_some_and(|latest| latest.0 == offset)
        {
            self.latest.remove(&hash);
        }
    }

    /// Takes note that the sink lacked `key` at `at`: the changes before are no reason to leave a copy out.
    pub(super) fn lacked(&mut self, at: Offset, table: &TableShape, key: &Key) {
        let hash = hash(table, key);
        if self.latest.get(&hash).is_some_and(|latest| latest.0 <= at) {
            self.latest.remove(&hash);
        }
    }

    /// Takes note that a change of `key` was not applied; without a key, of any key.
    pub(super) fn lost(&mut self, key: Option<(&TableShape, &Key)>) {
        match key {
            Some((table, key)) => {
                self.latest.remove(&hash(table, key));
            }
            None => self.latest.clear(),
        }
    }

    /// Whether a complete change of `key` came shortly before `now`, the timestamp of the copy's record.
    pub(super) fn has(&self, now: Option<i64>, table: &TableShape, key: &Key) -> bool {
        let shortly = |at: Option<i64>| at.zip(now).is_none_or(|(at, now)| now.saturating_sub(at) <= MILLISECONDS);
        self.latest.get(&hash(table, key)).is_some_and(|latest| shortly(latest.1))
    }

    /// Returns about how much memory is held, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.order.len() * size_of::<(Offset, u64)>()
            + self.latest.len() * (size_of::<(u64, (Offset, Option<i64>))>() + 1)
    }
}

fn hash(table: &TableShape, key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    table.name.hash(&mut hasher);
    key.as_bytes().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sink_api::TableName;

    use super::*;

    fn upsert(value: Value) -> RowOp {
        RowOp::Upsert(Arc::from(vec![Value::Int(1), value]))
    }

    #[test]
    fn a_copy_is_needless_after_a_complete_change_of_its_key() {
        let table = TableShape::new(TableName::new("inventory", "orders"), vec![], vec![], vec![]);
        let other = TableShape::new(TableName::new("inventory", "lines"), vec![], vec![], vec![]);
        let key = |byte: u8| Key::from_encoded([byte]);
        let mut changes = RecentChanges::new(100);

        changes.note(Offset(1), None, &table, &key(1), &upsert(Value::Int(5)));
        changes.note(Offset(2), None, &table, &key(2), &RowOp::Delete);
        changes.note(Offset(3), None, &table, &key(3), &upsert(Value::Int(5)));
        changes.note(Offset(4), None, &table, &key(3), &upsert(Value::Unchanged));

        assert_eq!([1, 2, 3, 4].map(|byte| changes.has(None, &table, &key(byte))), [true, true, false, false]);
        assert!(!changes.has(None, &other, &key(1)));
    }

    #[test]
    fn a_copy_is_needed_when_the_sink_lacked_the_key_after_its_change() {
        let table = TableShape::new(TableName::new("inventory", "orders"), vec![], vec![], vec![]);
        let key = |byte: u8| Key::from_encoded([byte]);
        let mut changes = RecentChanges::new(100);
        changes.note(Offset(1), None, &table, &key(1), &upsert(Value::Int(5)));
        changes.note(Offset(9), None, &table, &key(2), &upsert(Value::Int(5)));

        changes.lacked(Offset(5), &table, &key(1));
        changes.lacked(Offset(5), &table, &key(2));

        assert_eq!([1, 2].map(|byte| changes.has(None, &table, &key(byte))), [false, true]);
    }

    #[test]
    fn a_change_of_long_ago_does_not_stand_in_for_a_copy() {
        let table = TableShape::new(TableName::new("inventory", "orders"), vec![], vec![], vec![]);
        let key = Key::from_encoded([1]);
        let mut changes = RecentChanges::new(100);

        changes.note(Offset(1), Some(1_000), &table, &key, &RowOp::Delete);

        assert_eq!([61_000, 61_001].map(|now| changes.has(Some(now), &table, &key)), [true, false]);
    }

    #[test]
    fn old_changes_are_forgotten() {
        let table = TableShape::new(TableName::new("inventory", "orders"), vec![], vec![], vec![]);
        let key = |n: u32| Key::from_encoded(n.to_be_bytes());
        let mut changes = RecentChanges::new(100);

        (0..=100_u32).for_each(|n| changes.note(Offset(n.into()), None, &table, &key(n), &RowOp::Delete));

        assert_eq!([0, 1].map(|n| changes.has(None, &table, &key(n))), [false, true]);
    }
}
