//! A statement's parts, put together.
//!
//! Kafka bounds a record to about 1 MiB, so a long statement comes in parts. Each repeats all scalar fields, the lists
//! are consecutive slices, and the position is the last part's. A connector that restarts delivers parts again: an equal
//! part is ignored. A part that disagrees, or that comes before an earlier one, refuses the whole read: nothing is
//! known then of what came in between.
//!
//! A range's lists must be strictly ascending under our encoding and lie inside the bounds, whatever the key type: one
//! inversion means that source and sink disagree about the order of keys. Lists of single keys come in any order.

use sink_api::{KeyList, KeyRange, KeySet, KeyType, KeyValue, Rule, StatementKind};

use crate::decode::{Claim, Part, ReadName};

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
    /// The parts make no whole.
    Refused {
        /// The rule that they break.
        rule: Rule,
        /// Why.
        reason: String,
    },
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
        let Part { part: number, parts, .. } = part;
        if parts != self.parts || !is_same_claim(&part.claim, &self.claim) {
            return not_whole(format!("part {number} of {parts} disagrees with an earlier part"));
        }
        let digest = digest(&part);
        match self.seen.get((number as usize).wrapping_sub(1)) {
            Some(seen) if *seen == digest => return Added::Repeated,
            Some(_) => return not_whole(format!("part {number} of {parts} came twice and not equal")),
            None => {}
        }
        if number as usize != self.seen.len() + 1 {
            return not_whole(format!("part {number} of {parts} came after {} parts", self.seen.len()));
        }
        if let Err(reason) = self.append(part) {
            return Added::Refused { rule: Rule::Order, reason };
        }
        self.seen.push(digest);
        if self.bytes() > self.limit {
            return not_whole(format!("its lists pass {} bytes", self.limit));
        }
        if self.seen.len() == self.parts as usize { Added::Complete } else { Added::Incomplete }
    }

    /// Returns the memory that the lists hold, in bytes.
    pub fn bytes(&self) -> usize {
        self.asked.bytes() + set_bytes(&self.selected) + set_bytes(&self.changed)
    }

    /// Returns what all parts repeat.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Takes the statement apart: scalar fields, asked keys as they came, selected and changed keys in order.
    pub fn into_whole(self) -> (Claim, KeyList, KeySet, KeySet) {
        let sorted = |set: KeySet| match set {
            KeySet::List(list) if list.first_inversion().is_some() => KeySet::List(list.sorted()),
            set => set,
        };
        (self.claim, self.asked, sorted(self.selected), sorted(self.changed))
    }

    fn append(&mut self, part: Part) -> Result<(), String> {
        // Asked keys stand in the order in which they were asked.
        part.asked.iter().for_each(|key| self.asked.push(key));
        let range = match self.claim.kind {
            StatementKind::ChunkInfo | StatementKind::Chunk => Some(&self.claim.range),
            StatementKind::Keys | StatementKind::Absence => None,
        };
        append(&mut self.selected, part.selected, "selected", range)?;
        append(&mut self.changed, part.changed, "changed", range)
    }
}

/// Whether two markers of one read are about the same table. Its shape may have been read anew in between.
pub(crate) fn is_same_table(left: &ReadName, right: &ReadName) -> bool {
    left.source == right.source && left.table.name == right.table.name
}

fn is_same_claim(left: &Claim, right: &Claim) -> bool {
    let Claim { read, kind, range, snapshot, settled, confirmed, rows, key_types, byte_order } = left;
    read.read_id == right.read.read_id
        && is_same_table(read, &right.read)
        && *kind == right.kind
        && *range == right.range
        && *snapshot == right.snapshot
        && *settled == right.settled
        && *confirmed == right.confirmed
        && *rows == right.rows
        && *key_types == right.key_types
        && *byte_order == right.byte_order
}

fn not_whole(reason: String) -> Added {
    Added::Refused { rule: Rule::Whole, reason }
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

/// Appends a slice of a list. With a `range`, the list must be strictly ascending and lie inside.
fn append(set: &mut KeySet, slice: KeySet, name: &str, range: Option<&KeyRange>) -> Result<(), String> {
    if slice.is_empty() {
        // An empty slice has no form of its own.
        return Ok(());
    }
    if set.is_empty() {
        *set = empty_like(&slice);
    }
    match (set, slice) {
        (KeySet::List(list), KeySet::List(slice)) => append_list(list, &slice, name, range),
        (KeySet::Intervals(intervals), KeySet::Intervals(slice)) => append_intervals(intervals, slice, name, range),
        _ => Err(format!("`{name}` is a list in one part and intervals in another")),
    }
}

fn append_list(list: &mut KeyList, slice: &KeyList, name: &str, range: Option<&KeyRange>) -> Result<(), String> {
    let Some(range) = range else {
        slice.iter().for_each(|key| list.push(key));
        return Ok(());
    };
    for key in slice.iter() {
        if list.last().is_some_and(|last| last >= key) {
            let at = list.len();
            return Err(format!("`{name}` is not ascending from position {at} to {}", at + 1));
        }
        list.push(key);
    }
    in_bounds(slice.get(0), name, range)?;
    in_bounds(slice.last(), name, range)
}

fn append_intervals(
    intervals: &mut Vec<(i64, i64)>,
    slice: Vec<(i64, i64)>,
    name: &str,
    range: Option<&KeyRange>,
) -> Result<(), String> {
    for (low, high) in slice {
        if low > high || intervals.last().is_some_and(|last| last.1 >= low) {
            return Err(format!("`{name}` is not ascending at interval {}", intervals.len() + 1));
        }
        intervals.push((low, high));
        if let Some(range) = range {
            in_bounds(Some(&encoded(low)), name, range)?;
            in_bounds(Some(&encoded(high)), name, range)?;
        }
    }
    Ok(())
}

fn in_bounds(key: Option<&[u8]>, name: &str, range: &KeyRange) -> Result<(), String> {
    match key {
        Some(key) if !range.contains(key) => Err(format!("`{name}` holds a key outside the bounds")),
        _ => Ok(()),
    }
}

fn encoded(value: i64) -> Vec<u8> {
    let mut key = Vec::new();
    KeyValue::Int(value).encode(KeyType::Int, &mut key).expect("an integer is a value of the integer key type");
    key
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
