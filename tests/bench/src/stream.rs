//! The changes, and what the sink must hold at the end: pure, and the same for the same seed on every machine.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// The id of the last row: when it is there, all before it is.
pub const SENTINEL: i64 = 999_999_999_999;

/// Shares of updates, inserts and deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    updates: u64,
    inserts: u64,
    deletes: u64,
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let parts: Result<Vec<u64>, _> = text.split(',').map(u64::from_str).collect();
        match parts.as_deref() {
            Ok(&[updates, inserts, deletes]) if updates + inserts > 0 => Ok(Mix { updates, inserts, deletes }),
            _ => Err("three numbers as in 70,20,10".to_owned()),
        }
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {}", self.updates, self.inserts, self.deletes)
    }
}

/// What an event does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A row that was not there.
    Create(i64),
    /// A row that was.
    Update(i64),
    /// A row that was, and no longer is.
    Delete(i64),
}

/// The stream: updates of a random one of the first ids (its first is a create), inserts of new ids, deletes of a random
/// live id; last, the sentinel.
#[derive(Debug)]
pub struct Stream {
    random: SplitMix,
    mix: Mix,
    keys: i64,
    next_id: i64,
    events: u64,
    done: u64,
    /// Each live id with the event that wrote it and its place in `ids`.
    live: HashMap<i64, (u64, usize)>,
    /// All live ids in no order, so that one of them can be drawn at once.
    ids: Vec<i64>,
}

/// What the sink must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// How many rows.
    pub rows: u64,
    /// The digest of all of them ([`Digester`]).
    pub digest: String,
}

impl Stream {
    /// Begins a stream of `events` changes, the sentinel's included, on ids from 1 to `keys` and new ones above.
    pub fn new(events: u64, keys: i64, mix: Mix, seed: u64) -> Stream {
        Stream {
            random: SplitMix(seed),
            mix,
            keys,
            next_id: keys + 1,
            events,
            done: 0,
            live: HashMap::new(),
            ids: Vec::new(),
        }
    }

    /// Returns what the sink must hold once every change so far is applied.
    pub fn expected(&self) -> Expected {
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        let mut digester = Digester::default();
        for id in ids {
            let (n, _) = self.live[&id];
            digester.row(id, &name(id, n), cents(id, n));
        }
        digester.finish()
    }

    fn write(&mut self, id: i64, n: u64) -> Change {
        let place = self.ids.len();
        match self.live.insert(id, (n, place)) {
            Some((_, place)) => {
                self.live.insert(id, (n, place));
                Change::Update(id)
            }
            None => {
                self.ids.push(id);
                Change::Create(id)
            }
        }
    }

    fn delete(&mut self) -> Option<Change> {
        let place = self.random.below(self.ids.len() as u64)? as usize;
        let id = self.ids.swap_remove(place);
        self.live.remove(&id);
        if let Some(moved) = self.ids.get(place)
            && let Some(entry) = self.live.get_mut(moved)
        {
            entry.1 = place;
        }
        Some(Change::Delete(id))
    }
}

impl Iterator for Stream {
    /// The event's number and what it does.
    type Item = (u64, Change);

    fn next(&mut self) -> Option<(u64, Change)> {
        let n = self.done;
        if n == self.events {
            return None;
        }
        self.done += 1;
        if self.done == self.events {
            return Some((n, self.write(SENTINEL, n)));
        }
        let Mix { updates, inserts, deletes } = self.mix;
        let drawn = self.random.below(updates + inserts + deletes)?;
        if drawn >= updates + inserts
            && let Some(change) = self.delete()
        {
            return Some((n, change));
        }
        if (updates..updates + inserts).contains(&drawn) {
            let id = self.next_id;
            self.next_id += 1;
            return Some((n, self.write(id, n)));
        }
        let id = 1 + self.random.below(self.keys.unsigned_abs())? as i64;
        Some((n, self.write(id, n)))
    }
}

/// The `name` of a row as event `n` wrote it.
pub fn name(id: i64, n: u64) -> String {
    format!("name-{id}-{n}")
}

/// The `price` of a row as event `n` wrote it, in cents.
pub fn cents(id: i64, n: u64) -> i64 {
    (id.wrapping_mul(7919) + n as i64 * 31).rem_euclid(90_000_000)
}

/// Digests rows in id order; the same on what was sent and on what the sink holds.
#[derive(Debug, Default)]
pub struct Digester {
    hash: Sha256,
    rows: u64,
    line: String,
}

impl Digester {
    /// Adds the next row.
    pub fn row(&mut self, id: i64, name: &str, cents: i64) {
        self.line.clear();
        // Writing to a String does not fail.
        let _ = writeln!(self.line, "{id}|{name}|{cents}");
        self.hash.update(&self.line);
        self.rows += 1;
    }

    /// Returns count and digest.
    pub fn finish(self) -> Expected {
        let digest = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Expected { rows: self.rows, digest }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): four lines that stay the same when a crate's generators do not.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: u64) -> Option<u64> {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).checked_rem(bound)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use super::*;

    fn stream(seed: u64) -> Stream {
        Stream::new(20_000, 3_000, "70,20,10".parse().unwrap(), seed)
    }

    // A sink as plain as can be: what the stream says must be there is what applying it leaves.
    #[test]
    fn applying_the_changes_in_order_leaves_what_is_expected() {
        let mut stream = stream(7);
        let mut table = BTreeMap::new();

        for (n, change) in &mut stream {
            match change {
                Change::Create(id) => assert!(table.insert(id, n).is_none(), "{id} was there"),
                Change::Update(id) => assert!(table.insert(id, n).is_some(), "{id} was not there"),
                Change::Delete(id) => assert!(table.remove(&id).is_some(), "{id} was not there"),
            }
        }

        let mut digester = Digester::default();
        for (&id, &n) in &table {
            digester.row(id, &name(id, n), cents(id, n));
        }
        assert_eq!(stream.expected(), digester.finish());
        assert_eq!(table.last_key_value().unwrap().0, &SENTINEL);
    }

    #[test]
    fn a_seed_makes_the_same_stream_again_and_keeps_the_mix() {
        let first: Vec<_> = stream(1).collect();
        let deletes = first.iter().filter(|(_, change)| matches!(change, Change::Delete(_))).count();
        let new = first.iter().filter(|(_, change)| matches!(change, Change::Create(id) if *id > 3_000)).count();

        assert!(first == stream(1).collect::<Vec<_>>());
        assert!(first != stream(2).collect::<Vec<_>>());
        assert_eq!(first.len(), 20_000);
        assert!((1_800..2_200).contains(&deletes), "{deletes} deletes");
        assert!((3_700..4_300).contains(&new), "{new} new ids");
    }
}
