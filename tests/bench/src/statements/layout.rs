//! Which keys there are, which of them are orphans, which change, and what each statement says: pure.

use super::StatementsArgs;

/// Changes ahead of the first statement, of the lowest keys: two units' worth, so that the clock starts at the commit of
/// a unit that holds no statement.
const LEAD_IN: u64 = 4_000;

/// Coprime with every count of keys that is asked for here; far enough that neighbours in the stream are not neighbours
/// in the table.
const STRIDE: u64 = 7_919;

/// The benchmark's keys.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Keys from 1 to this one are at the sink.
    pub rows: u64,
    /// Those of them that are not at the source, ascending.
    pub orphans: Vec<u64>,
    /// The others, ascending.
    pub live: Vec<u64>,
    /// How many statements speak of them.
    pub statements: usize,
    /// Changes ahead of each statement.
    pub changes: u64,
}

/// A statement's range and the keys in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// The key below the range.
    pub above: Option<u64>,
    /// The last key of the range.
    pub up_to: Option<u64>,
    /// The source's keys in it.
    pub keys: &'a [u64],
}

impl Layout {
    /// Spreads the orphans evenly over the keys.
    pub fn new(args: &StatementsArgs) -> Layout {
        let orphans: Vec<u64> = (0..args.orphans).map(|k| 1 + (2 * k + 1) * args.rows / (2 * args.orphans)).collect();
        let live = (1..=args.rows).filter(|id| orphans.binary_search(id).is_err()).collect();
        Layout { rows: args.rows, orphans, live, statements: args.statements, changes: args.changes }
    }

    /// The statements: the whole key space, open at both ends.
    pub fn chunks(&self) -> Vec<Chunk<'_>> {
        let size = self.live.len().div_ceil(self.statements).max(1);
        let slices: Vec<&[u64]> = self.live.chunks(size).collect();
        let last = |n: usize| slices[n].last().copied();
        (0..slices.len())
            .map(|n| Chunk {
                above: n.checked_sub(1).and_then(last),
                up_to: if n + 1 < slices.len() { last(n) } else { None },
                keys: slices[n],
            })
            .collect()
    }

    /// How many changes there are: ahead of the first statement, ahead of each, and one behind the last.
    pub fn change_count(&self) -> u64 {
        self.lead_in() + self.changes * self.statements as u64 + 1
    }

    /// Changes ahead of the first statement.
    pub fn lead_in(&self) -> u64 {
        LEAD_IN.min(self.live.len() as u64 / 2)
    }

    /// The key that change `n` writes, from 1 on; no key twice.
    pub fn changed(&self, n: u64) -> u64 {
        let (lead_in, live) = (self.lead_in(), self.live.len() as u64);
        let place = if n <= lead_in { n - 1 } else { lead_in + n * STRIDE % (live - lead_in) };
        self.live[place as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn layout(rows: u64, orphans: u64, statements: usize) -> Layout {
        Layout::new(&StatementsArgs { rows, orphans, statements, changes: 100, ..StatementsArgs::default() })
    }

    #[test]
    fn the_statements_cover_every_key_once() {
        let layout = layout(1_000_000, 100, 101);

        let chunks = layout.chunks();

        assert_eq!((layout.live.len(), layout.orphans.len(), chunks.len()), (999_900, 100, 101));
        assert_eq!(chunks.iter().flat_map(|chunk| chunk.keys).copied().collect::<Vec<_>>(), layout.live);
        assert_eq!((chunks[0].above, chunks[100].up_to), (None, None));
        assert!(chunks.windows(2).all(|pair| pair[0].up_to == pair[1].above && pair[1].above.is_some()));
    }

    #[test]
    fn orphans_lie_all_over_and_changes_meet_each_key_once() {
        let layout = layout(100_000, 100, 11);

        let tenth = |tenth: u64| layout.orphans.iter().filter(|id| **id / 10_000 == tenth).count();
        let changed: HashSet<u64> = (1..=layout.change_count()).map(|n| layout.changed(n)).collect();

        assert_eq!((0..10).map(tenth).collect::<Vec<_>>(), [10; 10]);
        assert_eq!(changed.len() as u64, layout.change_count());
        assert!(layout.orphans.iter().all(|id| !changed.contains(id)));
    }
}
