//! A statement's parts, put together.
//!
//! Kafka bounds a record to about 1 MiB, so a long statement comes in parts. Each repeats all scalar fields, the lists
//! are consecutive slices, and the position is the last part's. A connector that restarts delivers parts again: an equal
//! part is ignored. A part that disagrees, or that comes before an earlier one, refuses the whole read: nothing is
//! known then of what came in between.

use sink_api::{KeyList, KeySet};

use crate::decode::{Claim, Part};

/// The parts of one statement, so far.
#[derive(Clone, Debug)]
pub struct Parts {
    claim: Claim,
    parts: u32,
    /// Digest of each part's lists, to tell an equal part from one that disagrees.
    seen: Vec<(usize, u64)>,
    asked: KeyList,
    selected: KeySet,
    changed: KeySet,
    limit: usize,
}

/// What a part did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Added {
    /// More parts are to come.
    Incomplete,
    /// It was there already.
    Repeated,
    /// All parts are there.
    Complete,
    /// The parts make no whole, for this reason.
    Refused(String),
}

impl Parts {
    /// Starts with the first part. `limit` bounds the lists, in bytes.
    pub fn new(part: Part, limit: usize) -> (Parts, Added) {
        let (empty_selected, empty_changed) = (empty_like(&part.selected), empty_like(&part.changed));
        let mut parts = Parts {
            claim: part.claim.clone(),
            parts: part.parts,
            seen: Vec::new(),
            asked: KeyList::new(),
            selected: empty_selected,
            changed: empty_changed,
            limit,
        };
        let added = parts.add(part);
        (parts, added)
    }

    /// Adds a part.
    pub fn add(&mut self, part: Part) -> Added {
        if part.parts != self.parts || part.claim != self.claim {
            return Added::Refused(format!("part {} of {} disagrees with an earlier part", part.part, part.parts));
        }
        let digest = digest(&part);
        match self.seen.get((part.part as usize).wrapping_sub(1)) {
            Some(seen) if *seen == digest => return Added::Repeated,
            Some(_) => {
                return Added::Refused(format!("part {} of {} came twice and not equal", part.part, part.parts));
            }
            None => {}
        }
        if part.part as usize != self.seen.len() + 1 {
            return Added::Refused(format!(
                "part {} of {} came after {} parts",
                part.part,
                part.parts,
                self.seen.len()
            ));
        }
        if let Err(list) = self.append(part) {
            return Added::Refused(format!("the parts' slices of `{list}` do not follow one another in order"));
        }
        self.seen.push(digest);
        if self.bytes() > self.limit {
            return Added::Refused(format!("its lists pass {} bytes", self.limit));
        }
        if self.seen.len() == self.parts as usize { Added::Complete } else { Added::Incomplete }
    }

    /// Returns the memory that the lists hold, in bytes.
    pub fn bytes(&self) -> usize {
        self.asked.bytes() + set_bytes(&self.selected) + set_bytes(&self.changed)
    }

    /// Takes the statement apart: scalar fields, asked, selected and changed keys.
    pub fn into_whole(self) -> (Claim, KeyList, KeySet, KeySet) {
        (self.claim, self.asked, self.selected, self.changed)
    }

    fn append(&mut self, part: Part) -> Result<(), &'static str> {
        // Asked keys stand in the order in which they were asked.
        part.asked.iter().for_each(|key| self.asked.push(key));
        append_set(&mut self.selected, part.selected).ok_or("selected")?;
        append_set(&mut self.changed, part.changed).ok_or("changed")
    }
}

fn empty_like(set: &KeySet) -> KeySet {
    match set {
        KeySet::List(_) => KeySet::List(KeyList::new()),
        KeySet::Intervals(_) => KeySet::Intervals(Vec::new()),
    }
}

fn set_bytes(set: &KeySet) -> usize {
    match set {
        KeySet::List(list) => list.bytes(),
        KeySet::Intervals(intervals) => size_of_val(intervals.as_slice()),
    }
}

fn append_list(list: &mut KeyList, slice: &KeyList) -> Option<()> {
    if let (Some(last), Some(first)) = (list.last(), slice.get(0))
        && last >= first
    {
        return None;
    }
    slice.iter().for_each(|key| list.push(key));
    Some(())
}

fn append_set(set: &mut KeySet, slice: KeySet) -> Option<()> {
    match (set, slice) {
        (KeySet::List(list), KeySet::List(slice)) => append_list(list, &slice),
        (KeySet::Intervals(intervals), KeySet::Intervals(slice)) => {
            if let (Some(last), Some(first)) = (intervals.last(), slice.first())
                && last.1 >= first.0
            {
                return None;
            }
            intervals.extend(slice);
            Some(())
        }
        // An empty slice has no form of its own.
        (_, slice) if slice.is_empty() => Some(()),
        (set, slice) if set.is_empty() => {
            *set = slice;
            Some(())
        }
        _ => None,
    }
}

/// Returns size and hash of a part's lists.
fn digest(part: &Part) -> (usize, u64) {
    use std::hash::{DefaultHasher, Hash, Hasher};

    let mut hasher = DefaultHasher::new();
    let hash_list = |list: &KeyList, hasher: &mut DefaultHasher| {
        list.len().hash(hasher);
        list.iter().for_each(|key| key.hash(hasher));
    };
    hash_list(&part.asked, &mut hasher);
    for set in [&part.selected, &part.changed] {
        match set {
            KeySet::List(list) => hash_list(list, &mut hasher),
            KeySet::Intervals(intervals) => intervals.hash(&mut hasher),
        }
    }
    (part.asked.len() + set_bytes(&part.selected) + set_bytes(&part.changed), hasher.finish())
}
