//! The one merge: a sink's keys against a statement's, both in ascending order.
//!
//! It walks three lists at once, the sink's keys as they come, the selected and the spared ones, and holds one key of
//! each. Its time grows with the sink's keys, the spared ones and the *entries* of the selected set: an interval that
//! the sink lacks is counted at once, so that a statement about 2^60 keys is no trap.
//!
//! What the merge calls an orphan may be deleted, so it trusts no listing: keys out of order, repeated or outside the
//! extent are errors, never orphans.

use crate::{DifferenceQuery, Extent, KeyList, KeySet, keyset::KeyCursor};

/// What a statement and the sink disagree about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The first orphans, in ascending order.
    pub orphans: KeyList,
    /// How many orphans there are.
    pub orphan_count: u64,
    /// The first missing keys, in ascending order.
    pub missing: KeyList,
    /// How many missing keys there are.
    pub missing_count: u64,
    /// How many keys the sink holds in the extent.
    pub in_range: u64,
}

/// The sink listed its keys otherwise than asked: its order is not the encoding's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sink listed key number {at} {}", if *outside { "outside the range" } else { "out of order" })]
pub struct OutOfOrder {
    /// The key's number in the listing, from 1.
    pub at: u64,
    /// Whether the key lies outside the extent; else it is not above the one before it.
    pub outside: bool,
}

/// Merges the sink's keys, page by page, with the keys that a statement expects.
///
/// An orphan is a key of the sink that is neither selected nor spared. A missing key is a selected one that the
/// sink lacks and that is not spared.
#[derive(Debug)]
pub struct Merge<'a> {
    extent: Option<&'a Extent>,
    asked_at: usize,
    selected: KeyCursor<'a>,
    spared: &'a KeyList,
    spared_at: usize,
    last: Vec<u8>,
    name_orphans: usize,
    name_missing: usize,
    difference: Difference,
}

impl<'a> Merge<'a> {
    /// Starts a merge that answers `query`; every key of the sink is checked to lie in its extent.
    pub fn of(query: &DifferenceQuery<'a>) -> Merge<'a> {
        let merge = Merge::new(query.selected, query.spared, query.name_orphans, query.name_missing);
        Merge { extent: Some(query.extent), ..merge }
    }

    /// Starts a merge of keys that are known to lie in the statement's extent. `spared` is strictly ascending.
    pub fn new(selected: &'a KeySet, spared: &'a KeyList, name_orphans: usize, name_missing: usize) -> Merge<'a> {
        Merge {
            extent: None,
            asked_at: 0,
            selected: selected.cursor(),
            spared,
            spared_at: 0,
            last: Vec::new(),
            name_orphans,
            name_missing,
            difference: Difference::default(),
        }
    }

    /// Takes the next page of the sink's keys.
    ///
    /// # Errors
    /// When a key is not above the one before it, or lies outside the extent. The merge is void then.
    pub fn page<'k>(&mut self, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<(), OutOfOrder> {
        let mut last: Option<&'k [u8]> = None;
        for key in keys {
            self.difference.in_range += 1;
            let at = self.difference.in_range;
            if at > 1 && key <= last.unwrap_or(&self.last) {
                return Err(OutOfOrder { at, outside: false });
            }
            if !self.in_extent(key) {
                return Err(OutOfOrder { at, outside: true });
            }
            self.take(key);
            last = Some(key);
        }
        if let Some(last) = last {
            self.last.clear();
            self.last.extend_from_slice(last);
        }
        Ok(())
    }

    /// Ends the listing.
    pub fn finish(mut self) -> Difference {
        self.miss_below(None);
        self.difference
    }

    fn take(&mut self, key: &[u8]) {
        if self.selected.key().is_some_and(|selected| selected < key) {
            self.miss_below(Some(key));
        }
        if self.selected.key() == Some(key) {
            self.selected.advance();
        } else if !self.is_spared(key) {
            self.difference.orphan_count += 1;
            if self.difference.orphans.len() < self.name_orphans {
                self.difference.orphans.push(key);
            }
        }
    }

    /// Counts the selected keys below `bound` (`None`: all that are left) as missing, unless they are spared.
    fn miss_below(&mut self, bound: Option<&[u8]>) {
        while self.difference.missing.len() < self.name_missing {
            let Some(key) = self.selected.key().filter(|key| bound.is_none_or(|bound| *key < bound)) else { return };
            if !is_in(self.spared, &mut self.spared_at, key) {
                self.difference.missing_count += 1;
                self.difference.missing.push(key);
            }
            self.selected.advance();
        }
        // The rest is only counted: from one spared key to the next, which itself does not count.
        let mut missing: u64 = 0;
        while let Some(spared) = self.spared.get(self.spared_at).filter(|key| bound.is_none_or(|bound| *key < bound)) {
            missing = missing.saturating_add(self.selected.skip_below(Some(spared)));
            if self.selected.key() == Some(spared) {
                self.selected.advance();
            }
            self.spared_at += 1;
        }
        missing = missing.saturating_add(self.selected.skip_below(bound));
        self.difference.missing_count = self.difference.missing_count.saturating_add(missing);
    }

    /// Keys are asked for in ascending order.
    fn is_spared(&mut self, key: &[u8]) -> bool {
        is_in(self.spared, &mut self.spared_at, key)
    }

    /// Keys are asked for in ascending order.
    fn in_extent(&mut self, key: &[u8]) -> bool {
        match self.extent {
            None => true,
            Some(Extent::Range(range)) => range.contains(key),
            Some(Extent::Keys(asked)) => is_in(asked, &mut self.asked_at, key),
        }
    }
}

/// Whether the ascending `list` holds `key`, looking from `at` on, which moves up to the first key not below.
fn is_in(list: &KeyList, at: &mut usize, key: &[u8]) -> bool {
    while let Some(entry) = list.get(*at) {
        match entry.cmp(key) {
            std::cmp::Ordering::Less => *at += 1,
            order => return order.is_eq(),
        }
    }
    false
}

#[cfg(test)]
mod tests;
