//! Sorted sets of keys, packed.

use crate::{Key, key};

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

    /// Drops all keys and keeps the memory for the next ones.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
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

    /// Returns the positions in the list of the first two entries that are not strictly ascending; an interval whose
    /// ends are the wrong way round is named twice. `None`: the set is what a statement may list.
    pub fn first_inversion(&self) -> Option<(usize, usize)> {
        match self {
            KeySet::List(list) => list.first_inversion(),
            KeySet::Intervals(intervals) => (0..intervals.len()).find_map(|index| {
                let (low, high) = intervals[index];
                if low > high {
                    Some((index, index))
                } else {
                    (index > 0 && intervals[index - 1].1 >= low).then(|| (index - 1, index))
                }
            }),
        }
    }

    /// Whether the set holds `key` (encoded).
    pub fn contains(&self, key: &[u8]) -> bool {
        match self {
            KeySet::List(list) => list.contains(key),
            KeySet::Intervals(intervals) => <[u8; 8]>::try_from(key).is_ok_and(|key| {
                let value = key::int_of(key);
                let next = intervals.partition_point(|(low, _)| *low <= value);
                next > 0 && value <= intervals[next - 1].1
            }),
        }
    }

    /// Returns the set as runs of successive integers, first and last of each, as far apart as they can be; `None` when
    /// there are more than `most`, or when a key is no encoded integer.
    pub fn runs(&self, most: usize) -> Option<Vec<(i64, i64)>> {
        let mut runs: Vec<(i64, i64)> = Vec::new();
        let mut take = |low: i64, high: i64| match runs.last_mut() {
            Some(run) if run.1.checked_add(1) == Some(low) => {
                run.1 = high;
                true
            }
            _ => {
                runs.push((low, high));
                runs.len() <= most
            }
        };
        let fits = match self {
            KeySet::Intervals(intervals) => intervals.iter().all(|&(low, high)| take(low, high)),
            KeySet::List(list) => list
                .iter()
                .all(|key| <[u8; 8]>::try_from(key).is_ok_and(|key| take(key::int_of(key), key::int_of(key)))),
        };
        fits.then_some(runs)
    }

    /// Starts to read the keys in ascending order.
    pub fn cursor(&self) -> KeyCursor<'_> {
        KeyCursor(match self {
            KeySet::List(list) => Place::List { bytes: &list.bytes, start: 0, ends: &list.ends },
            KeySet::Intervals(intervals) => Place::at(intervals),
        })
    }
}

/// Reads a [`KeySet`] in ascending order; memory does not grow with the set.
#[derive(Clone, Debug)]
pub struct KeyCursor<'a>(Place<'a>);

/// What is left to read, the key at the cursor first.
#[derive(Clone, Debug)]
enum Place<'a> {
    List { bytes: &'a [u8], start: usize, ends: &'a [u32] },
    Intervals { rest: &'a [(i64, i64)], value: i64, encoded: [u8; 8] },
}

impl<'a> Place<'a> {
    /// The place at the first value of `rest`.
    fn at(rest: &'a [(i64, i64)]) -> Place<'a> {
        let value = rest.first().map_or(0, |interval| interval.0);
        Place::Intervals { rest, value, encoded: key::int(value) }
    }
}

impl KeyCursor<'_> {
    /// Returns the key at the cursor, encoded; `None` behind the last one.
    pub fn key(&self) -> Option<&[u8]> {
        match &self.0 {
            Place::List { bytes, start, ends } => ends.first().map(|end| &bytes[*start..*end as usize]),
            Place::Intervals { rest, encoded, .. } => (!rest.is_empty()).then_some(encoded),
        }
    }

    /// Moves on to the next key.
    pub fn advance(&mut self) {
        match &mut self.0 {
            Place::List { start, ends, .. } => {
                if let Some((end, rest)) = ends.split_first() {
                    (*start, *ends) = (*end as usize, rest);
                }
            }
            Place::Intervals { rest, value, encoded } => match rest.split_first() {
                Some(((_, high), _)) if *value < *high => {
                    *value += 1;
                    *encoded = key::int(*value);
                }
                Some((_, rest)) => self.0 = Place::at(rest),
                None => {}
            },
        }
    }

    /// Moves on to the first key that is not below `bound`, or behind the last one. Returns how many keys were passed;
    /// intervals are passed at once, however long they are.
    pub fn skip_below(&mut self, bound: Option<&[u8]>) -> u64 {
        let mut passed: u64 = 0;
        if let Place::List { .. } = self.0 {
            while self.key().is_some_and(|key| bound.is_none_or(|bound| key < bound)) {
                self.advance();
                passed += 1;
            }
            return passed;
        }
        let limit = bound.and_then(lowest_int);
        while let Place::Intervals { rest, value, .. } = &self.0 {
            let (Some((_, high)), value) = (rest.first(), *value) else { break };
            match limit {
                Some(limit) if limit <= value => break,
                Some(limit) if limit <= *high => {
                    passed = passed.saturating_add(limit.abs_diff(value));
                    self.0 = Place::Intervals { rest, value: limit, encoded: key::int(limit) };
                    break;
                }
                _ => {
                    passed = passed.saturating_add(high.abs_diff(value)).saturating_add(1);
                    self.0 = Place::at(&rest[1..]);
                }
            }
        }
        passed
    }
}

/// Returns the lowest integer whose encoding is not below `bound`, which need not be an encoded integer; `None` when
/// all are below.
fn lowest_int(bound: &[u8]) -> Option<i64> {
    let mut padded = [0; 8];
    let length = bound.len().min(8);
    padded[..length].copy_from_slice(&bound[..length]);
    let value = key::int_of(padded);
    if bound.len() > 8 { value.checked_add(1) } else { Some(value) }
}

#[cfg(test)]
mod tests;
