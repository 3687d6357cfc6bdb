//! What a read's snapshot saw of the events that stand before its close.
//!
//! The place of an event in the topic does not say whether the read saw it: PostgreSQL writes a commit into its log
//! before the transaction becomes visible, and a connector that restarts publishes a stretch of the log again, so that
//! even events later than a marker can stand before it. One rule covers both: a key of any event before the close whose
//! transaction the read's snapshot does not see is spared. Where events were forgotten that could matter, the statement
//! is refused.

use sink_api::Xid;

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

/// What is known of events that the memory does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    /// None of those that carried a transaction id had a higher one. Only the low 32 bits are PostgreSQL's.
    pub(crate) highest: Option<Xid>,
    /// None of those up to the latest statement that saw them all had a higher id than this one, in all 64 bits.
    ///
    /// Without it, the events of an idle table would look as if they came from the future once the cluster has used up
    /// 2^31 ids since.
    pub(crate) sure: Option<Xid>,
    /// As `highest`, for those after that statement.
    pub(crate) since: Option<Xid>,
    /// There may be others, of which nothing is known and none was applied by this lane: it began in the middle of the
    /// stream.
    pub(crate) mid_stream: bool,
    /// There are others that were not applied, since they could not be decoded.
    pub(crate) undecoded: bool,
    /// All of those two kinds that stand in the log before any statement to come have ids below this one, or are
    /// delivered again before it: a read that waited for them has shown it.
    pub(crate) below: Option<u64>,
    /// There are others, applied, that carried no transaction id; [`super::RecentKeys::lacks_ids`] tells of which table.
    pub(crate) without_id: bool,
}

/// Why it cannot be told whether a read saw everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Undecided {
    /// A transaction that the read may not have seen is no longer remembered.
    Forgotten,
    /// Nothing is known of earlier events, and the reader did not wait for them.
    Unsettled,
}

impl Past {
    /// Adds a transaction.
    pub(crate) fn add(&mut self, xid: Xid) {
        self.highest = self.highest.max(Some(xid));
        self.since = self.since.max(Some(xid));
    }

    /// Whether everything up to the latest statement that saw it all was visible to `snapshot` as well.
    pub(crate) fn is_sure(&self, snapshot: &Snapshot) -> bool {
        self.sure.is_some_and(|xid| xid.0 < snapshot.xmin)
    }

    /// Whether all transactions with an id were over before `snapshot`.
    pub(crate) fn is_over(&self, snapshot: &Snapshot) -> bool {
        let highest = if self.is_sure(snapshot) { self.since } else { self.highest };
        highest.is_none_or(|xid| widen(xid.0 as u32, snapshot.xmax) < snapshot.xmin)
    }

    /// Checks that the read saw all of the past. `settled` is the reader's own word that it saw every transaction that
    /// the log holds before its low marker; it decides where the lane knows nothing itself, and only there: events
    /// *later* than the marker may stand before it, and of those the reader knows nothing.
    pub(crate) fn seen_by(&self, snapshot: &Snapshot, settled: bool) -> Result<(), Undecided> {
        if !self.is_over(snapshot) {
            return Err(Undecided::Forgotten);
        }
        let unknown = (self.mid_stream || self.undecoded) && self.below.is_none_or(|below| below > snapshot.xmin);
        if unknown && !settled {
            return Err(Undecided::Unsettled);
        }
        Ok(())
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
        let past = |highest: Option<u64>, mid_stream| Past { highest: highest.map(Xid), mid_stream, ..Past::default() };

        assert_eq!(past(None, false).seen_by(&snapshot, false), Ok(()));
        assert_eq!(past(Some(99), false).seen_by(&snapshot, false), Ok(()));
        assert_eq!(past(Some(100), false).seen_by(&snapshot, true), Err(Undecided::Forgotten));
        assert_eq!(past(Some(99), true).seen_by(&snapshot, true), Ok(()));
        assert_eq!(past(Some(99), true).seen_by(&snapshot, false), Err(Undecided::Unsettled));
        assert_eq!(past(Some(100), true).seen_by(&snapshot, true), Err(Undecided::Forgotten));
    }
}
