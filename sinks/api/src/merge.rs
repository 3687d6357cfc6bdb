//! The one merge: a sink's keys against a statement's, both in ascending order.

use crate::{KeyList, KeySet, keyset::KeyCursor};

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

/// The sink's keys did not come in strictly ascending order: its order is not the encoding's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sink listed key number {at} out of order")]
pub struct OutOfOrder {
    /// The key's number in the listing, from 1.
    pub at: u64,
}

/// Merges the sink's keys, page by page, with the keys that a statement expects.
///
/// An orphan is a key of the sink that is neither selected nor spared. A missing key is a selected one that the
/// sink lacks and that is not spared.
#[derive(Debug)]
pub struct Merge<'a> {
    selected: KeyCursor<'a>,
    spared: &'a KeyList,
    spared_at: usize,
    last: Vec<u8>,
    name_orphans: usize,
    name_missing: usize,
    difference: Difference,
}

impl<'a> Merge<'a> {
    /// Starts a merge. `spared` is strictly ascending.
    pub fn new(selected: &'a KeySet, spared: &'a KeyList, name_orphans: usize, name_missing: usize) -> Merge<'a> {
        Merge {
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
    /// When a key is not above the one before it.
    pub fn page<'k>(&mut self, keys: impl IntoIterator<Item = &'k [u8]>) -> Result<(), OutOfOrder> {
        for key in keys {
            self.difference.in_range += 1;
            if self.difference.in_range > 1 && key <= self.last.as_slice() {
                return Err(OutOfOrder { at: self.difference.in_range });
            }
            self.last.clear();
            self.last.extend_from_slice(key);
            self.take(key);
        }
        Ok(())
    }

    /// Ends the listing.
    pub fn finish(mut self) -> Difference {
        while self.selected.key().is_some() {
            self.miss();
        }
        self.difference
    }

    fn take(&mut self, key: &[u8]) {
        while self.selected.key().is_some_and(|selected| selected < key) {
            self.miss();
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

    /// Counts the selected key at the cursor as missing, unless it is spared.
    fn miss(&mut self) {
        let key = self.selected.key().map(<[u8]>::to_vec).unwrap_or_default();
        if !self.is_spared(&key) {
            self.difference.missing_count += 1;
            if self.difference.missing.len() < self.name_missing {
                self.difference.missing.push(&key);
            }
        }
        self.selected.advance();
    }

    /// Whether `key` is spared. Keys are asked for in ascending order.
    fn is_spared(&mut self, key: &[u8]) -> bool {
        while self.spared.get(self.spared_at).is_some_and(|spared| spared < key) {
            self.spared_at += 1;
        }
        self.spared.get(self.spared_at) == Some(key)
    }
}
