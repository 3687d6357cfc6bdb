//! What a unit of work did.

use std::sync::Arc;

use sink_api::{Key, Offset, TableShape};

use super::{observer::Judged, ports::MissingKeys};
use crate::decode::BadRecord;

/// What a unit did, once it is durable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Rows inserted or updated.
    pub upserted: u64,
    /// Rows deleted by changes.
    pub deleted: u64,
    /// Batches written.
    pub batches: u64,
    /// Statements that got their verdict.
    pub statements: Vec<Judged>,
    /// Statements that had one already.
    pub repeated: u64,
    /// Changes whose row could not be made, since the sink lacks the old value of an unchanged large column.
    pub unmakeable: u64,
    /// Records parked.
    pub parked: Vec<(Offset, BadRecord)>,
    /// Keys that the sink lacks.
    pub missing: Vec<MissingKeys>,
    /// Tables whose shape turned out to be another one.
    pub refreshed: Vec<Arc<TableShape>>,
}

impl Report {
    pub(super) fn absorb(&mut self, other: Report) {
        self.upserted += other.upserted;
        self.deleted += other.deleted;
        self.batches += other.batches;
        self.repeated += other.repeated;
        self.unmakeable += other.unmakeable;
        self.statements.extend(other.statements);
        self.parked.extend(other.parked);
        self.missing.extend(other.missing);
        self.refreshed.extend(other.refreshed);
    }
}

/// Gathers, table by table, the keys whose row could not be made.
pub(super) fn unmakeable(keys: Vec<(Arc<TableShape>, Key)>) -> Vec<MissingKeys> {
    let mut tables: Vec<MissingKeys> = Vec::new();
    for (table, key) in keys {
        let missing = match tables.iter_mut().find(|missing| missing.table.name == table.name) {
            Some(missing) => missing,
            None => {
                tables.push(MissingKeys {
                    table,
                    source_table: None,
                    at: Offset(i64::MIN),
                    keys: Vec::new(),
                    count: 0,
                });
                tables.last_mut().expect("an entry was just pushed")
            }
        };
        missing.keys.push(key);
        missing.count += 1;
    }
    tables
}
