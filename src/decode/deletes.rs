//! The deletes that a lane has read lately, by the bytes of their keys: a tombstone comes right after its delete, and
//! seldom says its table.
//!
//! A table stands here for a key when the last that was read of the two was a delete: a tombstone that is put down to it
//! takes nothing that lives. A record that could not be read may have been any delete, so the next tombstone of its key
//! that no such table stands for is nobody's. A record may be decoded several times: only what became of it is noted.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// Keys that are remembered. A tombstone comes right after its delete, but for those of other connectors in between.
const KEYS: usize = 1_024;

/// What is known of a tombstone by the deletes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It is of this table, or of one of which as little is left.
    Of(usize),
    /// A record of its key could not be read.
    Unread,
    /// Nothing.
    Nothing,
}

/// The deletes that were read lately.
#[derive(Debug, Default)]
pub(super) struct RecentDeletes {
    by_key: HashMap<Arc<[u8]>, Entry>,
    order: VecDeque<Arc<[u8]>>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Whose last event was a delete, the last one last.
    tables: Vec<usize>,
    /// The tables, as far as they said it, of records that could not be read.
    unread: Vec<Option<usize>>,
}

impl RecentDeletes {
    /// A delete of a table was read.
    pub(super) fn deleted(&mut self, key: &[u8], table: usize) {
        self.lives(key, table);
        self.entry(key).tables.push(table);
    }

    /// Whether anything is known of a key.
    pub(super) fn know(&self, key: &[u8]) -> bool {
        self.by_key.contains_key(key)
    }

    /// A tombstone that was nobody's was given up: the record that could not be read may have been its delete.
    pub(super) fn given_up(&mut self, key: &[u8]) {
        if let Some(entry) = self.by_key.get_mut(key) {
            entry.unread.pop();
        }
    }

    /// A row of a table was read.
    pub(super) fn lives(&mut self, key: &[u8], table: usize) {
        if let Some(entry) = self.by_key.get_mut(key) {
            entry.tables.retain(|known| *known != table);
            entry.unread.retain(|known| *known != Some(table));
        }
    }

    /// A record could not be read, or only its table.
    pub(super) fn unread(&mut self, key: &[u8], table: Option<usize>) {
        let entry = self.entry(key);
        if !entry.unread.contains(&table) {
            entry.unread.push(table);
        }
    }

    /// Returns of which table a tombstone is that can only be of one of `fitting`.
    pub(super) fn told(&self, key: &[u8], fitting: &[usize]) -> Told {
        let Some(entry) = self.by_key.get(key) else { return Told::Nothing };
        match entry.tables.iter().rev().find(|table| fitting.contains(table)) {
            Some(table) => Told::Of(*table),
            None if entry.unread.is_empty() => Told::Nothing,
            None => Told::Unread,
        }
    }

    fn entry(&mut self, key: &[u8]) -> &mut Entry {
        if !self.by_key.contains_key(key) {
            if self.order.len() >= KEYS
                && let Some(oldest) = self.order.pop_front()
            {
                self.by_key.remove(&oldest);
            }
            let key: Arc<[u8]> = key.into();
            self.order.push_back(Arc::clone(&key));
            self.by_key.insert(key, Entry::default());
        }
        self.by_key.get_mut(key).expect("it was just put in")
    }
}

#[cfg(test)]
mod tests {
    #![allow(missing_docs)]

    use super::*;

    #[test]
    fn a_tombstone_is_of_the_last_table_that_deleted_the_key_and_has_not_written_it_since() {
        let mut deletes = RecentDeletes::default();
        deletes.deleted(b"k", 0);
        deletes.deleted(b"k", 1);

        assert_eq!(deletes.told(b"k", &[0, 1]), Told::Of(1));
        assert_eq!((deletes.told(b"k", &[0]), deletes.told(b"k", &[2])), (Told::Of(0), Told::Nothing));
        deletes.lives(b"k", 1);
        assert_eq!(deletes.told(b"k", &[0, 1]), Told::Of(0));
        deletes.lives(b"k", 0);
        assert_eq!((deletes.told(b"k", &[0, 1]), deletes.told(b"other", &[0, 1])), (Told::Nothing, Told::Nothing));
    }

    #[test]
    fn a_tombstone_after_a_record_that_could_not_be_read_is_nobodys_until_one_was_given_up() {
        let mut deletes = RecentDeletes::default();
        let told = |deletes: &RecentDeletes| deletes.told(b"k", &[0, 1]);
        deletes.unread(b"k", None);
        deletes.unread(b"k", Some(1));

        assert_eq!((told(&deletes), told(&deletes)), (Told::Unread, Told::Unread), "asking changes nothing");
        deletes.deleted(b"k", 0);
        assert_eq!(told(&deletes), Told::Of(0), "nothing lives there");
        deletes.lives(b"k", 0);
        assert_eq!(told(&deletes), Told::Unread);
        deletes.given_up(b"k");
        assert_eq!(told(&deletes), Told::Unread);
        deletes.given_up(b"k");
        assert_eq!(told(&deletes), Told::Nothing);
        deletes.unread(b"k", Some(1));
        deletes.lives(b"k", 1);
        assert_eq!(told(&deletes), Told::Nothing, "its table has been read again");
    }

    #[test]
    fn only_so_many_keys_are_remembered() {
        let mut deletes = RecentDeletes::default();
        for key in 0..=KEYS {
            deletes.deleted(&key.to_be_bytes(), 0);
        }

        assert_eq!((deletes.told(&0_usize.to_be_bytes(), &[0]), deletes.order.len()), (Told::Nothing, KEYS));
        assert_eq!(deletes.told(&1_usize.to_be_bytes(), &[0]), Told::Of(0));
    }
}
