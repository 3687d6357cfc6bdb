//! The keys of a lane's latest transactions.
//!
//! A memory bounded in bytes, oldest first out. Of what it no longer holds it keeps a [`Past`]: enough to tell whether a
//! read saw all of it.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use sink_api::{Key, Offset, TableName, TableShape, Xid};

use super::visibility::{Past, sees, widen};
use crate::decode::Snapshot;

/// Stands in a stored state for the id of an event that carried none.
const WITHOUT_ID: Xid = Xid(i64::MAX as u64);

/// Where ids are counted from until a higher epoch shows: there is one below, for a transaction that began before a wrap
/// of the 32-bit counter and committed after it.
const FIRST_EPOCH: u64 = 1 << 32;

#[derive(Clone, Debug)]
struct Entry {
    offset: Offset,
    xid: Xid,
    table: Arc<TableShape>,
    key: Key,
}

/// The keys of the lane's latest transactions, bounded in bytes.
#[derive(Clone, Debug)]
pub struct RecentKeys {
    entries: VecDeque<Entry>,
    bytes: usize,
    limit: usize,
    /// The highest transaction id so far, forgotten ones included. Only its low 32 bits are PostgreSQL's.
    highest: Option<Xid>,
    forgotten: Past,
    /// Tables whose last event carried no transaction id.
    without_id: HashSet<TableName>,
}

impl RecentKeys {
    /// Starts a memory of at most `limit` bytes. `past` is the highest transaction id among earlier events, as
    /// [`RecentKeys::highest`] gave it; `unknown` says that there may be earlier events of which nothing is known.
    pub fn new(limit: usize, past: Option<Xid>, unknown: bool) -> RecentKeys {
        let without_id = past == Some(WITHOUT_ID);
        let highest = past.filter(|_| !without_id);
        RecentKeys {
            entries: VecDeque::new(),
            bytes: 0,
            limit,
            highest,
            forgotten: Past { highest, unknown, without_id },
            without_id: HashSet::new(),
        }
    }

    /// Returns the memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Remembers that transaction `xid` (32 bits) changed `key`.
    pub fn push(&mut self, offset: Offset, xid: u32, table: &Arc<TableShape>, key: &Key) {
        self.with_id(table);
        let near = self.highest.map_or(FIRST_EPOCH | u64::from(xid), |highest| highest.0);
        let xid = Xid(widen(xid, near));
        self.highest = self.highest.max(Some(xid));
        let entry = Entry { offset, xid, table: Arc::clone(table), key: key.clone() };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        while self.bytes > self.limit {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.forgotten.add(oldest.xid);
        }
    }

    /// Takes note of an event that carried no transaction id and should.
    pub(crate) fn push_without_id(&mut self, table: &TableShape) {
        if !self.without_id.contains(&table.name) {
            self.without_id.insert(table.name.clone());
        }
    }

    /// Takes note of a record that could not be decoded.
    pub(crate) fn push_unknown(&mut self) {
        self.forgotten.unknown = true;
    }

    /// Ends a stretch of events without ids. What lies behind is as good as unknown: the stream carries ids since its
    /// connector was set up anew, and what that delivers again carries ids as well.
    fn with_id(&mut self, table: &TableShape) {
        let began_without = std::mem::take(&mut self.forgotten.without_id);
        if began_without || (!self.without_id.is_empty() && self.without_id.remove(&table.name)) {
            self.forgotten.unknown = true;
        }
    }

    /// Returns what is known of all events so far, as if none were remembered.
    pub(crate) fn all(&self) -> Past {
        Past { highest: self.highest, ..self.forgotten() }
    }

    /// Returns what is known of the events that are no longer held.
    pub(crate) fn forgotten(&self) -> Past {
        Past { without_id: self.forgotten.without_id || !self.without_id.is_empty(), ..self.forgotten }
    }

    /// Returns what is known of the events before `low` that are no longer held; `before` is what was known of all of
    /// them at `low`.
    pub(crate) fn forgotten_before(&self, low: Offset, before: Past) -> Past {
        match self.entries.front() {
            // Some of them are still held, so none of those after them is forgotten.
            Some(oldest) if oldest.offset < low => Past { highest: self.forgotten.highest, ..before },
            _ => before,
        }
    }

    /// Returns the keys of `table` whose transactions `snapshot` does not see.
    pub fn unseen<'a>(&'a self, table: &'a TableName, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Key> + 'a {
        // The arithmetic first: under load thousands of entries are held and next to none is unseen.
        self.entries
            .iter()
            .filter(move |entry| !sees(snapshot, widen(entry.xid.0 as u32, snapshot.xmax)))
            .filter(move |entry| &entry.table.name == table)
            .map(|entry| &entry.key)
    }
}

impl Past {
    /// Returns the past as a stored state keeps it: what [`RecentKeys::new`] takes.
    pub(crate) fn stored(self) -> (Option<Xid>, bool) {
        if self.without_id { (Some(WITHOUT_ID), true) } else { (self.highest, self.unknown) }
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Entry>() + self.key.as_bytes().len()
    }
}
