//! What a read's snapshot saw of the events that stand before its close.
//!
//! The place of an event in the topic does not say whether the read saw it: PostgreSQL writes a commit into its log
//! before the transaction becomes visible, and a connector that restarts publishes a stretch of the log again, so that
//! even events later than a marker can stand before it. One rule covers both: a key of any event before the close whose
//! transaction the read's snapshot does not see is spared. Where events were forgotten that could matter, the statement
//! is refused.

use std::{collections::VecDeque, sync::Arc};

use sink_api::{Key, Offset, TableName, TableShape, Xid};

use crate::decode::Snapshot;

/// Whether a snapshot sees the effects of transaction `xid`.
///
/// Source: PostgreSQL documentation, `pg_visible_in_snapshot` (for a transaction that committed).
pub fn sees(snapshot: &Snapshot, xid: u64) -> bool {
    xid < snapshot.xmin || (xid < snapshot.xmax && snapshot.running.binary_search(&xid).is_err())
}

/// Returns the 64-bit transaction id with these low 32 bits that is nearest to `near`.
///
/// Debezium carries `source.txId` without its epoch. Live transactions lie within 2^31 of each other; an id from further
/// back comes out above `near`, which errs on the side of "not seen".
pub fn widen(low: u32, near: u64) -> u64 {
    let same_epoch = (near & !0xffff_ffff) | u64::from(low);
    let half = 1_u64 << 31;
    if same_epoch > near.saturating_add(half) {
        same_epoch.checked_sub(1 << 32).unwrap_or(same_epoch)
    } else if same_epoch.saturating_add(half) < near {
        same_epoch + (1 << 32)
    } else {
        same_epoch
    }
}

/// What is known of the events that the memory no longer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forgotten {
    /// There were none with a transaction.
    Nothing,
    /// None of them had a higher transaction id.
    UpTo(Xid),
    /// The lane began in the middle of a stream and cannot tell.
    Unknown,
}

impl Forgotten {
    /// Adds one more forgotten transaction.
    pub(crate) fn and(self, xid: Xid) -> Forgotten {
        match self {
            Forgotten::Nothing => Forgotten::UpTo(xid),
            Forgotten::UpTo(highest) => Forgotten::UpTo(highest.max(xid)),
            Forgotten::Unknown => Forgotten::Unknown,
        }
    }

    /// Whether everything forgotten was visible to the read. `settled` is the reader's own word that it saw every
    /// transaction that the log holds before its low marker; it decides only where the lane has no past of its own.
    pub(crate) fn all_seen(self, snapshot: &Snapshot, settled: bool) -> bool {
        match self {
            Forgotten::Nothing => true,
            Forgotten::UpTo(xid) => widen(xid.0 as u32, snapshot.xmax) < snapshot.xmin,
            Forgotten::Unknown => settled,
        }
    }
}

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
    highest: Option<Xid>,
    forgotten: Forgotten,
}

impl RecentKeys {
    /// Starts a memory of at most `limit` bytes. `past` is the highest transaction id among earlier events;
    /// `unknown` says that there may be earlier events of which nothing is known.
    pub fn new(limit: usize, past: Option<Xid>, unknown: bool) -> RecentKeys {
        let forgotten = match past {
            _ if unknown => Forgotten::Unknown,
            Some(xid) => Forgotten::UpTo(xid),
            None => Forgotten::Nothing,
        };
        RecentKeys { entries: VecDeque::new(), bytes: 0, limit, highest: past, forgotten }
    }

    /// Returns the highest transaction id so far.
    pub fn highest(&self) -> Option<Xid> {
        self.highest
    }

    /// Returns what is known of the events that are no longer held.
    pub(crate) fn forgotten(&self) -> Forgotten {
        self.forgotten
    }

    /// Returns the memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Remembers that transaction `xid` (32 bits) changed `key`; calls `forget` for each event that no longer fits.
    pub fn push(
        &mut self,
        offset: Offset,
        xid: u32,
        table: &Arc<TableShape>,
        key: &Key,
        mut forget: impl FnMut(Offset, Xid),
    ) {
        let xid = Xid(self.highest.map_or(u64::from(xid), |highest| widen(xid, highest.0)));
        self.highest = Some(self.highest.map_or(xid, |highest| highest.max(xid)));
        let entry = Entry { offset, xid, table: Arc::clone(table), key: key.clone() };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        while self.bytes > self.limit {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.bytes();
            self.forgotten = self.forgotten.and(oldest.xid);
            forget(oldest.offset, oldest.xid);
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

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Entry>() + self.key.as_bytes().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(xmin: u64, xmax: u64, running: &[u64]) -> Snapshot {
        Snapshot { xmin, xmax, running: running.to_vec() }
    }

    #[test]
    fn a_snapshot_sees_what_was_over_before_it() {
        // PostgreSQL 15: SELECT x, pg_visible_in_snapshot(x::text::xid8, '983:991:983,985') ...
        let snapshot = snapshot(983, 991, &[983, 985]);

        let seen: Vec<u64> = (981..994).filter(|xid| sees(&snapshot, *xid)).collect();

        assert_eq!(seen, [981, 982, 984, 986, 987, 988, 989, 990]);
    }

    #[test]
    fn a_32_bit_id_gets_the_nearest_epoch() {
        // facts of PostgreSQL after `pg_resetwal -e 1`: the snapshot says 4294968022, the decoded transaction 725.
        assert_eq!(widen(725, 4_294_968_022), 4_294_968_021);
        assert_eq!(widen(0xffff_fff0, 4_294_967_300), 0xffff_fff0);
        assert_eq!(widen(5, 0xffff_fff0), (1 << 32) + 5);
        assert_eq!(widen(747, 743), 747);
        assert_eq!(widen(0xffff_fff0, 10), 0xffff_fff0, "there is no epoch below the first");
    }

    #[test]
    fn what_was_forgotten_must_have_been_seen() {
        let snapshot = snapshot(100, 110, &[]);

        assert!(Forgotten::Nothing.all_seen(&snapshot, false));
        assert!(Forgotten::UpTo(Xid(99)).all_seen(&snapshot, false));
        assert!(!Forgotten::UpTo(Xid(100)).all_seen(&snapshot, true));
        assert!(Forgotten::Unknown.all_seen(&snapshot, true));
        assert!(!Forgotten::Unknown.all_seen(&snapshot, false));
    }
}
