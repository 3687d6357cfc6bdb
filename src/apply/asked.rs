//! Keys that were asked for, and whether they came.
//!
//! A request has no answer of its own: the row comes through the stream, or it does not. A key whose next event is not
//! there after some time was asked for in vain. It is asked for once more; if that is in vain as well, the key is
//! unobtainable, which a person is told, and it is left alone until its next event.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use sink_api::{Key, TableName};
use tokio::time::Instant;

/// How often a key is asked for until its next event.
const TIMES: u32 = 2;

/// The most keys of a table that are remembered. What is missing beyond is found again by the next pass.
const REMEMBERED: usize = 20_000;

/// What became of the requests for keys.
#[derive(Debug)]
pub(super) struct Asked {
    /// How long a row may take to come.
    answer: Duration,
    tables: HashMap<TableName, HashMap<Key, Ask>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// It is to be asked for, after this many requests.
    Wanted(u32),
    /// It was asked for so often, last at this time.
    Sent(u32, Instant),
    /// It does not come.
    Unobtainable,
}

/// What of a table was asked for in vain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Vain {
    /// The table.
    pub(super) table: TableName,
    /// The keys to ask for once more.
    pub(super) again: Vec<Key>,
    /// How many keys are unobtainable now, if there are more than before.
    pub(super) unobtainable: Option<u64>,
}

impl Asked {
    pub(super) fn new(answer: Duration) -> Asked {
        Asked { answer, tables: HashMap::new() }
    }

    /// Whether nothing is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Whether a missing key is to be asked for now; it counts as wanted then.
    pub(super) fn want(&mut self, table: &TableName, key: &Key) -> bool {
        let keys = self.tables.entry(table.clone()).or_default();
        if keys.len() >= REMEMBERED {
            return false;
        }
        match keys.entry(key.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(Ask::Wanted(0));
                true
            }
            // On its way, or in vain: time tells.
            Entry::Occupied(_) => false,
        }
    }

    /// Takes note that a request for keys was sent at `now`.
    pub(super) fn sent(&mut self, table: &TableName, keys: &[Key], now: Instant) {
        let Some(asked) = self.tables.get_mut(table) else { return };
        for key in keys {
            if let Some(ask) = asked.get_mut(key) {
                *ask = match *ask {
                    Ask::Wanted(times) => Ask::Sent(times + 1, now),
                    // The same keys, of another source of the table.
                    Ask::Sent(times, _) => Ask::Sent(times, now),
                    Ask::Unobtainable => Ask::Unobtainable,
                };
            }
        }
    }

    /// Takes note that a request for keys could not be sent: the next pass finds them again.
    pub(super) fn not_sent(&mut self, table: &TableName, keys: &[Key]) {
        if let Some(asked) = self.tables.get_mut(table) {
            asked.retain(|key, _| !keys.contains(key));
        }
        self.tables.retain(|_, asked| !asked.is_empty());
    }

    /// Takes note of an event of a key. Returns how many keys of the table are unobtainable now, if there are less.
    pub(super) fn event(&mut self, table: &TableName, key: &Key) -> Option<u64> {
        let asked = self.tables.get_mut(table)?;
        // One that is still to be asked for may be wanted for this very event.
        let was = *asked.get(key).filter(|ask| !matches!(ask, Ask::Wanted(_)))?;
        asked.remove(key);
        let left = if was == Ask::Unobtainable { unobtainable(asked) } else { 0 };
        if asked.is_empty() {
            self.tables.remove(table);
        }
        (was == Ask::Unobtainable).then_some(left)
    }

    /// Returns when the next key will have been asked for in vain.
    pub(super) fn next(&self) -> Option<Instant> {
        let sent = self.tables.values().flat_map(HashMap::values).filter_map(|ask| match ask {
            Ask::Sent(_, at) => Some(*at + self.answer),
            Ask::Wanted(_) | Ask::Unobtainable => None,
        });
        sent.min()
    }

    /// Returns what was asked for in vain until `now`.
    pub(super) fn vain(&mut self, now: Instant) -> Vec<Vain> {
        let mut vain = Vec::new();
        for (table, asked) in &mut self.tables {
            let (mut again, mut more) = (Vec::new(), false);
            for (key, ask) in asked.iter_mut() {
                match *ask {
                    Ask::Sent(times, at) if at + self.answer <= now && times < TIMES => {
                        *ask = Ask::Wanted(times);
                        again.push(key.clone());
                    }
                    Ask::Sent(_, at) if at + self.answer <= now => {
                        *ask = Ask::Unobtainable;
                        more = true;
                    }
                    _ => {}
                }
            }
            if more || !again.is_empty() {
                again.sort_unstable();
                let unobtainable = more.then(|| unobtainable(asked));
                vain.push(Vain { table: table.clone(), again, unobtainable });
            }
        }
        vain
    }
}

fn unobtainable(asked: &HashMap<Key, Ask>) -> u64 {
    asked.values().filter(|ask| **ask == Ask::Unobtainable).count() as u64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use super::*;

    const ANSWER: Duration = Duration::from_secs(60);

    fn table() -> TableName {
        TableName::new("inventory", "orders")
    }

    fn key(byte: u8) -> Key {
        Key::from_encoded([byte])
    }

    #[test]
    fn a_key_is_asked_for_twice_and_then_left_alone_until_its_next_event() {
        let (mut asked, start) = (Asked::new(ANSWER), Instant::now());

        assert!(asked.want(&table(), &key(1)));
        assert!(!asked.want(&table(), &key(1)), "it is wanted already");
        asked.sent(&table(), &[key(1)], start);
        assert!(!asked.want(&table(), &key(1)), "its answer may be on the way");
        assert_eq!((asked.next(), asked.vain(start)), (Some(start + ANSWER), vec![]));

        let again = asked.vain(start + ANSWER);
        assert_eq!(again, [Vain { table: table(), again: vec![key(1)], unobtainable: None }]);
        asked.sent(&table(), &[key(1)], start + ANSWER);

        let lost = asked.vain(start + 2 * ANSWER);
        assert_eq!(lost, [Vain { table: table(), again: vec![], unobtainable: Some(1) }]);
        assert_eq!((asked.want(&table(), &key(1)), asked.next()), (false, None));

        assert_eq!(asked.event(&table(), &key(1)), Some(0));
        assert!(asked.is_empty());
        assert!(asked.want(&table(), &key(1)));
    }

    #[test]
    fn a_row_that_comes_is_not_asked_for_again() {
        let (mut asked, start) = (Asked::new(ANSWER), Instant::now());
        assert!([1, 2].map(|byte| asked.want(&table(), &key(byte))).iter().all(|wanted| *wanted));
        asked.sent(&table(), &[key(1), key(2)], start);

        assert_eq!(asked.event(&table(), &key(1)), None);

        assert_eq!(asked.vain(start + ANSWER)[0].again, [key(2)]);
    }

    #[test]
    fn what_could_not_be_sent_is_wanted_again_when_it_is_found_again() {
        let mut asked = Asked::new(ANSWER);
        asked.want(&table(), &key(1));

        asked.not_sent(&table(), &[key(1)]);

        assert!(asked.is_empty());
        assert!(asked.want(&table(), &key(1)));
    }

    #[test]
    fn two_sources_of_a_table_make_one_request_for_a_key() {
        let (mut asked, start) = (Asked::new(ANSWER), Instant::now());
        asked.want(&table(), &key(1));

        asked.sent(&table(), &[key(1)], start);
        asked.sent(&table(), &[key(1)], start);

        assert_eq!(asked.vain(start + ANSWER)[0].again, [key(1)]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut asked = Asked::new(ANSWER);

        let wanted = (0..30_000_u32).filter(|n| asked.want(&table(), &Key::from_encoded(n.to_be_bytes()))).count();

        assert_eq!(wanted, REMEMBERED);
    }
}
