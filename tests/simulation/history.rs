//! What was live when: the source's true history, by place in its log.

use std::collections::HashMap;

use super::source::{KEYS, Pos, Source, What};

#[derive(Debug)]
pub struct History {
    changes: HashMap<(usize, i64), Vec<(Pos, bool)>>,
    initial: Vec<Vec<i64>>,
}

impl History {
    pub fn new(source: &Source) -> History {
        let mut changes: HashMap<(usize, i64), Vec<(Pos, bool)>> = HashMap::new();
        for (pos, entry) in source.log.iter().enumerate() {
            match &entry.what {
                What::Put { table, key, .. } => changes.entry((*table, *key)).or_default().push((pos, true)),
                What::Delete { table, key, .. } => changes.entry((*table, *key)).or_default().push((pos, false)),
                What::Truncate { table } => {
                    (0..KEYS).for_each(|key| changes.entry((*table, key)).or_default().push((pos, false)));
                }
                _ => {}
            }
        }
        History { changes, initial: source.initial.iter().map(|keys| keys.iter().copied().collect()).collect() }
    }

    /// Whether `key` has a row when everything before `pos` is applied.
    pub fn is_live(&self, table: usize, key: i64, pos: Pos) -> bool {
        let changes = self.changes.get(&(table, key)).map_or(&[][..], Vec::as_slice);
        match changes.iter().rev().find(|change| change.0 < pos) {
            Some((_, live)) => *live,
            None => self.initial[table].contains(&key),
        }
    }
}
