//! Sorted sets of keys, packed.

use crate::{Key, KeyType, KeyValue};

/// Encoded keys in one buffer, in the order in which they were pushed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyList {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl KeyList {
    /// Makes an empty list.
    pub fn new() -> KeyList {
        KeyList::default()
    }

    /// Appends a key.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.end_key();
    }

    /// Returns the buffer to append one key's bytes to; `end_key` completes the key.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Completes the key whose bytes were appended to `buffer`.
    ///
    /// # Panics
    /// When the list passes 4 GiB, which the limit on a statement's size rules out.
    pub fn end_key(&mut self) {
        self.ends.push(u32::try_from(self.bytes.len()).expect("a key list stays below 4 GiB"));
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the key at `index`, encoded.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        Some(&self.bytes[start..end])
    }

    /// Returns the last key.
    pub fn last(&self) -> Option<&[u8]> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Iterates over the keys, encoded.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|index| self.get(index).expect("the index is below the length"))
    }

    /// Returns the memory that the list holds, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<u32>()
    }

    /// Returns the positions of the first two neighbours that are not strictly ascending.
    pub fn first_inversion(&self) -> Option<(usize, usize)> {
        (1..self.len()).find(|&index| self.get(index - 1) >= self.get(index)).map(|index| (index - 1, index))
    }

    /// Sorts the keys and drops repeated ones.
    #[must_use]
    pub fn sorted(&self) -> KeyList {
        let mut keys: Vec<&[u8]> = self.iter().collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().collect()
    }

    /// Whether a sorted list holds `key`.
    pub fn contains(&self, key: &[u8]) -> bool {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            match self.get(middle).expect("the middle is below the length").cmp(key) {
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        false
    }
}

impl<'a> FromIterator<&'a [u8]> for KeyList {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(keys: I) -> KeyList {
        let mut list = KeyList::new();
        keys.into_iter().for_each(|key| list.push(key));
        list
    }
}

impl<'a> FromIterator<&'a Key> for KeyList {
    fn from_iter<I: IntoIterator<Item = &'a Key>>(keys: I) -> KeyList {
        keys.into_iter().map(Key::as_bytes).collect()
    }
}

/// A set of keys as a statement lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySet {
    /// The keys, strictly ascending.
    List(KeyList),
    /// For one integer column: inclusive intervals, strictly ascending and apart.
    Intervals(Vec<(i64, i64)>),
}

impl KeySet {
    /// Returns the number of keys.
    pub fn len(&self) -> u64 {
        match self {
            KeySet::List(list) => list.len() as u64,
            KeySet::Intervals(intervals) => intervals
                .iter()
                .fold(0, |sum: u64, (low, high)| sum.saturating_add(high.abs_diff(*low)).saturating_add(1)),
        }
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        match self {
            KeySet::List(list) => list.is_empty(),
            KeySet::Intervals(intervals) => intervals.is_empty(),
        }
    }

    /// Starts to read the keys in ascending order.
    pub fn cursor(&self) -> KeyCursor<'_> {
        let mut cursor = KeyCursor { set: self, index: 0, value: 0, encoded: Vec::new(), done: false };
        if let KeySet::Intervals(intervals) = self {
            cursor.value = intervals.first().map_or(0, |interval| interval.0);
        }
        cursor.load();
        cursor
    }
}

/// Reads a [`KeySet`] in ascending order; memory does not grow with the set.
#[derive(Debug)]
pub struct KeyCursor<'a> {
    set: &'a KeySet,
    index: usize,
    value: i64,
    encoded: Vec<u8>,
    done: bool,
}

impl KeyCursor<'_> {
    /// Returns the key at the cursor, encoded; `None` behind the last one.
    pub fn key(&self) -> Option<&[u8]> {
        if self.done {
            return None;
        }
        match self.set {
            KeySet::List(list) => list.get(self.index),
            KeySet::Intervals(_) => Some(&self.encoded),
        }
    }

    /// Moves on to the next key.
    pub fn advance(&mut self) {
        match self.set {
            KeySet::List(_) => self.index += 1,
            KeySet::Intervals(intervals) => {
                if self.done {
                    return;
                }
                if self.value < intervals[self.index].1 {
                    self.value += 1;
                } else {
                    self.index += 1;
                    if let Some(interval) = intervals.get(self.index) {
                        self.value = interval.0;
                    }
                }
            }
        }
        self.load();
    }

    fn load(&mut self) {
        match self.set {
            KeySet::List(list) => self.done = self.index >= list.len(),
            KeySet::Intervals(intervals) => {
                self.done = self.index >= intervals.len();
                if !self.done {
                    self.encoded.clear();
                    KeyValue::Int(self.value)
                        .encode(KeyType::Int, &mut self.encoded)
                        .expect("an integer is a value of the integer key type");
                }
            }
        }
    }
}
