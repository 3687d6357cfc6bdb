//! Windows: what changed between a read's low marker and its close.

use std::{collections::BTreeSet, sync::Arc};

use sink_api::{Key, KeyList, Offset, Rule, TableShape, Xid};

use crate::{
    decode::ReadName,
    statement::{Parts, RecentKeys},
};

use crate::statement::Forgotten;

/// One open window.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) read: ReadName,
    /// Where the first delivery of the low marker stands.
    pub(super) low: Offset,
    /// When that record was written, in milliseconds since 1970-01-01 UTC.
    opened_at: Option<i64>,
    /// The highest transaction id among the events before `low`.
    pub(super) highest_before: Option<Xid>,
    /// What is known of the forgotten events before `low`.
    pub(super) forgotten: Forgotten,
    changed: BTreeSet<Key>,
    bytes: usize,
    /// Why the read can prove nothing any more.
    pub(super) void: Option<Void>,
    pub(super) parts: Option<Parts>,
}

/// Why a window is void.
#[derive(Clone, Debug)]
pub(super) struct Void {
    pub(super) rule: Rule,
    pub(super) reason: String,
}

impl Window {
    pub(super) fn open(read: ReadName, low: Offset, opened_at: Option<i64>, recent: &RecentKeys) -> Window {
        Window {
            read,
            low,
            opened_at,
            highest_before: recent.highest(),
            forgotten: recent.forgotten(),
            changed: BTreeSet::new(),
            bytes: 0,
            void: None,
            parts: None,
        }
    }

    /// Counts `key` of `table` as changed, if the window is about that table.
    pub(super) fn change(&mut self, table: &Arc<TableShape>, key: &Key) {
        if self.void.is_none() && self.is_about(table) && self.changed.insert(key.clone()) {
            self.bytes += size_of::<Key>() + key.as_bytes().len();
        }
    }

    /// Takes note that the memory lost an event that stands before the window.
    pub(super) fn forget(&mut self, offset: Offset, xid: Xid) {
        if offset < self.low {
            self.forgotten = self.forgotten.and(xid);
        }
    }

    pub(super) fn is_about(&self, table: &Arc<TableShape>) -> bool {
        Arc::ptr_eq(&self.read.table, table) || self.read.table.name == table.name
    }

    /// Voids the window: its close will be refused. The first reason stays.
    pub(super) fn make_void(&mut self, rule: Rule, reason: impl Into<String>) {
        self.changed.clear();
        self.bytes = 0;
        self.void.get_or_insert_with(|| Void { rule, reason: reason.into() });
    }

    /// Whether the window has been open for too long, by its size or by the stream's own clock.
    pub(super) fn is_over(&self, max_bytes: usize, max_age_ms: i64, now: Option<i64>) -> bool {
        let aged = match (self.opened_at, now) {
            (Some(opened_at), Some(now)) => now.saturating_sub(opened_at) > max_age_ms,
            _ => false,
        };
        aged || self.bytes() > max_bytes
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.parts.as_ref().map_or(0, Parts::bytes)
    }

    pub(super) fn changed(&self) -> KeyList {
        self.changed.iter().collect()
    }
}
