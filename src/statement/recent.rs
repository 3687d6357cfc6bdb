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
pub(crate) const WITHOUT_ID: Xid = Xid(i64::MAX as u64);

/// Marks in a stored state an id that is known in all 64 bits.
const SURE: u64 = 1 << 62;

/// Marks in a stored state that records could not be decoded.
const UNDECODED: u64 = 1 << 61;

/// Where ids are counted from until a snapshot tells the epoch: there is one below, for a transaction that began before a
/// wrap of the 32-bit counter and committed after it.
const FIRST_EPOCH: u64 = 1 << 32;

#[derive(Clone, Debug)]
struct Entry {
    offset: Offset,
    xid: u32,
    table: Arc<TableShape>,
    key: Key,
}

/// The keys of the lane's latest transactions, bounded in bytes.
#[derive(Clone, Debug)]
pub struct RecentKeys {
    entries: VecDeque<Entry>,
    bytes: usize,
    limit: usize,
    /// Ids to come are within 2^31 of this one.
    near: Option<u64>,
    /// What is known of all events so far.
    all: Past,
    /// What is known of those that are no longer held.
    forgotten: Past,
    /// Where the latest record stood that could not be decoded.
    undecoded_at: Offset,
    /// Where the latest statement stood whose read saw everything before it.
    sure_until: Offset,
    /// Tables whose last event carried no transaction id.
    without_id: HashSet<TableName>,
}

impl RecentKeys {
    /// Starts a memory of at most `limit` bytes. `past` is what a stored state says of the highest transaction id among
    /// earlier events; `mid_stream` says that there may be earlier events of which nothing is known.
    pub fn new(limit: usize, past: Option<Xid>, mid_stream: bool) -> RecentKeys {
        let past = Past::restored(past, mid_stream);
        RecentKeys {
            entries: VecDeque::new(),
            bytes: 0,
            limit,
            near: past.highest.map(|xid| xid.0),
            all: past,
            forgotten: past,
            undecoded_at: Offset(i64::MIN),
            sure_until: Offset(i64::MIN),
            without_id: HashSet::new(),
        }
    }

    /// Returns the memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Remembers that transaction `xid` (32 bits) changed `key`.
    pub fn push(&mut self, offset: Offset, xid: u32, table: &Arc<TableShape>, key: &Key) {
        self.with_id(offset, table);
        let near = self.near.get_or_insert(FIRST_EPOCH | u64::from(xid));
        let wide = widen(xid, *near);
        *near = wide.max(*near);
        self.all.add(Xid(wide));
        let entry = Entry { offset, xid, table: Arc::clone(table), key: key.clone() };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        while self.bytes > self.limit {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, entry: &Entry) {
        let xid = Some(Xid(widen(entry.xid, self.near.unwrap_or_default())));
        if entry.offset <= self.sure_until {
            self.forgotten.highest = self.forgotten.highest.max(xid.min(self.all.sure));
        } else {
            self.forgotten.highest = self.forgotten.highest.max(xid);
            self.forgotten.since = self.forgotten.since.max(xid);
        }
    }

    /// Takes note of an event that carried no transaction id and should.
    pub(crate) fn push_without_id(&mut self, table: &TableShape) {
        if !self.without_id.contains(&table.name) {
            self.without_id.insert(table.name.clone());
        }
    }

    /// Whether an event of `table` carried no transaction id and none since did.
    pub(crate) fn lacks_ids(&self, table: &TableName) -> bool {
        self.all.without_id || self.without_id.contains(table)
    }

    /// Takes note of a record that could not be decoded.
    pub(crate) fn push_undecoded(&mut self, offset: Offset) {
        for past in [&mut self.all, &mut self.forgotten] {
            (past.undecoded, past.below) = (true, None);
        }
        self.undecoded_at = offset;
    }

    /// Ends a stretch of events without ids. What lies behind is as good as unknown: the stream carries ids since its
    /// connector was set up anew, and what that delivers again carries ids as well.
    fn with_id(&mut self, offset: Offset, table: &TableShape) {
        let table_lacked = !self.without_id.is_empty() && self.without_id.remove(&table.name);
        if table_lacked || self.all.without_id {
            self.push_undecoded(offset);
            (self.all.without_id, self.forgotten.without_id) = (false, false);
        }
    }

    /// Takes note of a read whose low marker stood at `low` and that waited for all transactions before it. What is not
    /// known stands in the log before that marker, or after it, and then it is delivered again before any statement
    /// that stands behind it in the log.
    pub(crate) fn learn_settled(&mut self, low: Offset, snapshot: &Snapshot) {
        if self.undecoded_at < low {
            for past in [&mut self.all, &mut self.forgotten] {
                past.below.get_or_insert(snapshot.xmin);
            }
        }
    }

    /// Takes note of a read that saw all events so far, if it did: their ids are known in 64 bits then.
    pub(crate) fn learn(&mut self, offset: Offset, snapshot: &Snapshot) {
        if self.all.highest.is_none() || !self.all.is_over(snapshot) {
            return;
        }
        let wide = |xid: Xid| Xid(widen(xid.0 as u32, snapshot.xmax));
        let sure = if self.all.is_sure(snapshot) {
            self.all.sure.max(self.all.since.map(wide))
        } else {
            self.all.highest.map(wide)
        };
        self.sure_until = offset;
        // All ids so far lie below it, so this holds whatever epoch was assumed.
        self.near = Some(snapshot.xmax);
        self.all = Past { highest: sure, sure, since: None, ..self.all };
        let highest = self.forgotten.highest.map(wide).min(sure);
        self.forgotten = Past { highest, sure, since: None, ..self.forgotten };
    }

    /// Returns what is known of all events so far, as if none were remembered.
    pub(crate) fn all(&self) -> Past {
        self.with_flags(self.all)
    }

    /// Returns what is known of the events that are no longer held.
    pub(crate) fn forgotten(&self) -> Past {
        self.with_flags(self.forgotten)
    }

    fn with_flags(&self, past: Past) -> Past {
        Past { without_id: past.without_id || !self.without_id.is_empty(), ..past }
    }

    /// Returns what is known of the events before `low` that are no longer held; `before` is what was known of all of
    /// them at `low`.
    pub(crate) fn forgotten_before(&self, low: Offset, before: Past) -> Past {
        match self.entries.front() {
            // Some of them are still held, so none of those after them is forgotten.
            Some(oldest) if oldest.offset < low => {
                let Past { highest, sure, since, .. } = self.forgotten;
                Past { highest, sure, since, ..before }
            }
            _ => before,
        }
    }

    /// Returns the keys of `table` whose transactions `snapshot` does not see.
    pub fn unseen<'a>(&'a self, table: &'a TableName, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Key> + 'a {
        let sure = match self.all.is_sure(snapshot) {
            true => self.entries.partition_point(|entry| entry.offset <= self.sure_until),
            false => 0,
        };
        // The arithmetic first: under load thousands of entries are held and next to none is unseen.
        self.entries
            .range(sure..)
            .filter(move |entry| !sees(snapshot, widen(entry.xid, snapshot.xmax)))
            .filter(move |entry| &entry.table.name == table)
            .map(|entry| &entry.key)
    }
}

impl Past {
    /// Returns the past as a stored state keeps it: what [`RecentKeys::new`] takes.
    pub(crate) fn stored(self) -> (Option<Xid>, bool) {
        if self.without_id {
            return (Some(WITHOUT_ID), self.mid_stream);
        }
        let xid = match self {
            Past { sure: Some(sure), since: None, .. } => Some(sure.0 | SURE),
            Past { highest, .. } => highest.map(|xid| xid.0),
        };
        // 0 is no transaction's id.
        let xid = if self.undecoded { Some(xid.unwrap_or(0) | UNDECODED) } else { xid };
        (xid.map(Xid), self.mid_stream)
    }

    fn restored(stored: Option<Xid>, mid_stream: bool) -> Past {
        if stored == Some(WITHOUT_ID) {
            return Past { mid_stream, without_id: true, ..Past::default() };
        }
        let flags = stored.map_or(0, |xid| xid.0 & (SURE | UNDECODED));
        let highest = stored.map(|xid| Xid(xid.0 & !flags)).filter(|xid| xid.0 != 0);
        let (sure, since) = if flags & SURE != 0 { (highest, None) } else { (None, highest) };
        Past { highest, sure, since, mid_stream, undecoded: flags & UNDECODED != 0, ..Past::default() }
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Entry>() + self.key.as_bytes().len()
    }
}
