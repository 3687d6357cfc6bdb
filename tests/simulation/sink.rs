//! A sink in memory: rows, verdicts and the lane's state, changed in one step or not at all.

use std::collections::{BTreeMap, HashMap};

use sink_api::{Batch, Difference, Extent, Key, KeyList, LaneState, Merge, MergedChange, ReadId, Value, Verdict};
use sink_repair::statement::Statement;

use super::{source::Pos, wire::Wire};

/// What a unit of work replaces as a whole.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub tables: Vec<BTreeMap<Key, Vec<Value>>>,
    pub verdicts: BTreeMap<ReadId, Verdict>,
    pub removed: Vec<(ReadId, usize, Key)>,
    /// The farthest place in the log of an event that was applied to a key.
    pub applied: HashMap<(usize, Key), Pos>,
    pub state: Option<LaneState>,
}

#[derive(Debug, Default)]
pub struct Sink {
    pub content: Content,
    epoch: u64,
}

/// What became of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    Done,
    Fenced,
}

impl Sink {
    /// Takes the lane over. Returns the new owner's number.
    pub fn claim(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }

    /// Replaces the content when the lane is still `epoch`'s and nothing was committed since `expected`.
    pub fn commit(&mut self, epoch: u64, expected: Option<&LaneState>, content: Content) -> Committed {
        if self.epoch != epoch || self.content.state.as_ref() != expected {
            return Committed::Fenced;
        }
        self.content = content;
        Committed::Done
    }
}

impl Content {
    pub fn write(&mut self, batch: &Batch, wire: &Wire) {
        for table in &batch.tables {
            let number = wire.table_of(&table.table.name);
            for (key, _, change) in &table.changes {
                let rows = &mut self.tables[number];
                let old = match change {
                    MergedChange::Upsert(_) => rows.get(key).cloned(),
                    MergedChange::Replace(_) | MergedChange::Delete => rows.remove(key),
                };
                let (MergedChange::Upsert(row) | MergedChange::Replace(row)) = change else { continue };
                let replaces = matches!(change, MergedChange::Replace(_));
                let value = |column: usize| match (&row[column], &old) {
                    (Value::Unchanged, Some(old)) if !replaces => Some(old[column].clone()),
                    (Value::Unchanged, _) => None,
                    (value, _) => Some(value.clone()),
                };
                // A row that lacks the old value of its large column cannot be made.
                if let Some(values) = (0..row.len()).map(value).collect::<Option<Vec<Value>>>() {
                    rows.insert(key.clone(), values);
                }
            }
        }
    }

    pub fn difference(&self, table: usize, statement: &Statement) -> Difference {
        let mut merge = Merge::new(&statement.selected, &statement.spared, usize::MAX, usize::MAX);
        let keys: Vec<&[u8]> = self.keys(table, &statement.extent).collect();
        merge.page(keys).expect("the sink lists its keys in order");
        merge.finish()
    }

    /// Returns the keys that the sink holds in an extent.
    pub fn keys<'a>(&'a self, table: usize, extent: &'a Extent) -> impl Iterator<Item = &'a [u8]> {
        self.tables[table].keys().map(Key::as_bytes).filter(move |key| match extent {
            Extent::Range(range) => range.contains(key),
            Extent::Keys(keys) => keys.contains(key),
        })
    }

    pub fn remove(&mut self, table: usize, statement: &Statement, keys: &KeyList) -> u64 {
        let mut removed = 0;
        for key in keys.iter().map(Key::from_encoded) {
            if self.tables[table].remove(&key).is_some() {
                self.removed.push((statement.read_id.clone(), table, key));
                removed += 1;
            }
        }
        removed
    }
}
