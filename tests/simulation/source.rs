//! A PostgreSQL source: transactions, row locks, the log, and the gap between the log and visibility.
//!
//! A commit stands in the log before the transaction becomes visible; until then it counts as running and holds its row
//! locks. With synchronous replication the gap may last for ever. What a snapshot saw is kept here as the set of
//! transactions that ran and the next id, not in the worker's terms.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A place in the source's log: the index of an entry.
pub type Pos = usize;

/// How many natural keys a table can have.
pub const KEYS: i64 = 10;

/// A row's values: a version, and a large column that an update may leave alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub version: i64,
    pub large: i64,
}

/// What an entry of the log says.
#[derive(Clone, Debug)]
pub enum What {
    /// The key has a row; without `large` the log does not carry the unchanged large column.
    Put { table: usize, key: i64, version: i64, large: Option<i64>, from: Option<i64> },
    /// The key's row is gone; `to` is the key that it was renamed to.
    Delete { table: usize, key: i64, to: Option<i64> },
    /// All rows of the table are gone.
    Truncate { table: usize },
    /// A row of an incremental snapshot, published at this place by the connector.
    Copy { table: usize, key: i64, row: Row },
    /// The low marker of a read.
    Low { read: usize },
    /// A part of a read's statement.
    Part { read: usize, part: usize, parts: usize, asked: Vec<i64>, selected: Vec<i64>, changed: Vec<i64> },
}

/// One entry of the log.
#[derive(Clone, Debug)]
pub struct Entry {
    pub xid: u64,
    pub what: What,
}

/// What a snapshot saw, in the source's own terms and as text fields.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    running: BTreeSet<u64>,
    next: u64,
    pub xmin: u64,
    pub xmax: u64,
    pub xip: Vec<u64>,
}

impl Seen {
    /// Whether the effects of a committed transaction were visible.
    pub fn saw(&self, xid: u64) -> bool {
        xid < self.next && !self.running.contains(&xid)
    }
}

#[derive(Debug, Default)]
struct Transaction {
    xid: Option<u64>,
    events: Vec<What>,
    own: HashMap<(usize, i64), Option<Row>>,
}

/// A transaction whose commit stands in the log and that is not visible yet.
#[derive(Debug)]
struct Committed {
    due: Option<u64>,
    xid: u64,
    events: Vec<What>,
}

#[derive(Debug)]
pub struct Source {
    pub log: Vec<Entry>,
    pub initial: Vec<BTreeSet<i64>>,
    /// The rows that a new snapshot sees.
    pub visible: Vec<BTreeMap<i64, Row>>,
    first_xid: u64,
    next_xid: u64,
    latest_completed: u64,
    running: BTreeSet<u64>,
    open: Vec<Transaction>,
    committed: Vec<Committed>,
    row_locks: HashMap<(usize, i64), u64>,
    table_locks: HashMap<usize, u64>,
    clock: u64,
    version: i64,
}

impl Source {
    pub fn new(first_xid: u64, initial: &[u16]) -> Source {
        let initial: Vec<BTreeSet<i64>> =
            initial.iter().map(|bits| (0..KEYS).filter(|key| bits >> key & 1 == 1).collect()).collect();
        let row = Row { version: 0, large: 0 };
        Source {
            log: Vec::new(),
            visible: initial.iter().map(|keys| keys.iter().map(|key| (*key, row)).collect()).collect(),
            initial,
            first_xid,
            next_xid: first_xid,
            latest_completed: first_xid - 1,
            running: BTreeSet::new(),
            open: Vec::new(),
            committed: Vec::new(),
            row_locks: HashMap::new(),
            table_locks: HashMap::new(),
            clock: 0,
            version: 0,
        }
    }

    pub fn assign(&mut self) -> u64 {
        let xid = ordinary(self.next_xid);
        self.next_xid = xid + 1;
        self.running.insert(xid);
        xid
    }

    /// Takes a transaction out of the running ones: it is visible, or gone.
    pub fn end(&mut self, xid: u64) {
        self.running.remove(&xid);
        self.latest_completed = self.latest_completed.max(xid);
        self.row_locks.retain(|_, owner| *owner != xid);
        self.table_locks.retain(|_, owner| *owner != xid);
    }

    /// `pg_current_snapshot()`
    pub fn snapshot(&self) -> Seen {
        let xmax = ordinary(self.latest_completed + 1);
        let xip: Vec<u64> = self.running.range(..xmax).copied().collect();
        let xmin = xip.first().copied().unwrap_or(xmax);
        Seen { running: self.running.clone(), next: self.next_xid, xmin, xmax, xip }
    }

    /// Lets time pass: committed transactions whose gap is over become visible.
    pub fn tick(&mut self) {
        self.clock += 1;
        let now = self.clock;
        self.show(|committed| committed.due.is_some_and(|due| due <= now));
    }

    /// Ends everything that is under way.
    pub fn calm_down(&mut self) {
        for slot in 0..self.open.len() {
            self.abort(slot);
        }
        self.show(|_| true);
    }

    fn show(&mut self, ready: impl Fn(&Committed) -> bool) {
        while let Some(index) = self.committed.iter().position(&ready) {
            let committed = self.committed.remove(index);
            committed.events.iter().for_each(|event| self.apply(event));
            self.end(committed.xid);
        }
    }

    fn apply(&mut self, event: &What) {
        match event {
            What::Put { table, key, version, large, from } => {
                let old = self.visible[*table].get(&from.unwrap_or(*key)).copied();
                let large = large.or(old.map(|old| old.large)).expect("only updates leave the large column alone");
                self.visible[*table].insert(*key, Row { version: *version, large });
            }
            What::Delete { table, key, .. } => drop(self.visible[*table].remove(key)),
            What::Truncate { table } => self.visible[*table].clear(),
            What::Copy { .. } | What::Low { .. } | What::Part { .. } => {}
        }
    }

    /// Uses up transaction ids elsewhere in the cluster. All that a case is about stays within half of the 32-bit ids,
    /// as PostgreSQL keeps all that is running.
    pub fn burn(&mut self, count: u64) {
        let most = (self.first_xid + (1 << 31) - (1 << 20)).saturating_sub(self.next_xid);
        self.next_xid += count.min(most);
        let last = self.assign();
        self.end(last);
    }

    fn slot(&mut self, slot: usize) -> &mut Transaction {
        while self.open.len() <= slot {
            self.open.push(Transaction::default());
        }
        &mut self.open[slot]
    }

    fn slot_xid(&mut self, slot: usize) -> u64 {
        if let Some(xid) = self.slot(slot).xid {
            return xid;
        }
        let xid = self.assign();
        self.slot(slot).xid = Some(xid);
        xid
    }

    fn is_free(&mut self, slot: usize, table: usize, key: i64) -> bool {
        let own = self.slot(slot).xid;
        let free = |owner: Option<&u64>| owner.is_none_or(|owner| Some(*owner) == own);
        free(self.row_locks.get(&(table, key))) && free(self.table_locks.get(&table))
    }

    fn row(&mut self, slot: usize, table: usize, key: i64) -> Option<Row> {
        match self.slot(slot).own.get(&(table, key)) {
            Some(row) => *row,
            None => self.visible[table].get(&key).copied(),
        }
    }

    /// Writes `key` in transaction `slot`: inserts it, or by `how` updates, deletes or renames it. A write that would
    /// wait for a lock is left out.
    pub fn write(&mut self, slot: usize, table: usize, key: i64, how: u8) {
        if !self.is_free(slot, table, key) {
            return;
        }
        let xid = self.slot_xid(slot);
        self.row_locks.insert((table, key), xid);
        self.version += 1;
        let version = self.version;
        let Some(old) = self.row(slot, table, key) else {
            let row = Row { version, large: version };
            return self.add(slot, What::Put { table, key, version, large: Some(version), from: None }, key, Some(row));
        };
        match how % 6 {
            0 => {
                let row = Row { version, large: version };
                self.add(slot, What::Put { table, key, version, large: Some(version), from: None }, key, Some(row));
            }
            1 => {
                let row = Row { version, ..old };
                self.add(slot, What::Put { table, key, version, large: None, from: None }, key, Some(row));
            }
            2 => {
                let to = (key + 1 + i64::from(how / 6)) % KEYS;
                if to == key || !self.is_free(slot, table, to) || self.row(slot, table, to).is_some() {
                    return;
                }
                self.row_locks.insert((table, to), xid);
                let row = Row { version, large: old.large };
                self.add(slot, What::Delete { table, key, to: Some(to) }, key, None);
                let put = What::Put { table, key: to, version, large: Some(old.large), from: Some(key) };
                self.add(slot, put, to, Some(row));
            }
            _ => self.add(slot, What::Delete { table, key, to: None }, key, None),
        }
    }

    fn add(&mut self, slot: usize, event: What, key: i64, row: Option<Row>) {
        let table = match &event {
            What::Put { table, .. } | What::Delete { table, .. } => *table,
            _ => unreachable!("only rows are written in a slot"),
        };
        let slot = self.slot(slot);
        slot.events.push(event);
        slot.own.insert((table, key), row);
    }

    /// Commits transaction `slot`; it becomes visible after `gap` ticks, or never before things calm down.
    pub fn commit(&mut self, slot: usize, gap: Option<u64>) {
        let transaction = std::mem::take(self.slot(slot));
        if let Some(xid) = transaction.xid {
            self.write_log(xid, transaction.events, gap);
        }
    }

    pub fn abort(&mut self, slot: usize) {
        if let Some(xid) = std::mem::take(self.slot(slot)).xid {
            self.end(xid);
        }
    }

    fn write_log(&mut self, xid: u64, events: Vec<What>, gap: Option<u64>) {
        self.log.extend(events.iter().map(|what| Entry { xid, what: what.clone() }));
        self.committed.push(Committed { due: gap.map(|gap| self.clock + gap), xid, events });
        let now = self.clock;
        self.show(|committed| committed.due.is_some_and(|due| due <= now));
    }

    /// Writes a transaction of its own into the log that is visible when its commit returns.
    pub fn emit(&mut self, events: Vec<What>) {
        let xid = self.assign();
        self.write_log(xid, events, Some(0));
    }

    /// Puts rows of an incremental snapshot into the stream at this place.
    pub fn publish(&mut self, rows: Vec<What>) {
        self.log.extend(rows.into_iter().map(|what| Entry { xid: 0, what }));
    }

    /// Whether a reader can lock `table` in ACCESS SHARE mode.
    pub fn is_readable(&self, table: usize) -> bool {
        !self.table_locks.contains_key(&table)
    }

    /// Whether nobody writes `table`.
    pub fn is_quiet(&self, table: usize) -> bool {
        self.is_readable(table) && !self.row_locks.keys().any(|(locked, _)| *locked == table)
    }

    pub fn truncate(&mut self, table: usize, gap: Option<u64>) {
        if self.is_quiet(table) {
            let xid = self.assign();
            self.table_locks.insert(table, xid);
            self.write_log(xid, vec![What::Truncate { table }], gap);
        }
    }

    /// Returns the keys of `table` that entries of the log from `from` on change.
    pub fn changed_since(&self, table: usize, from: Pos) -> BTreeSet<i64> {
        self.log[from..]
            .iter()
            .filter_map(|entry| entry.what.row())
            .filter(|row| row.0 == table)
            .map(|row| row.1)
            .collect()
    }
}

/// Skips 0, 1 and 2: they are no ordinary transaction ids, in any epoch.
fn ordinary(xid: u64) -> u64 {
    if (xid as u32) < 3 { (xid & !0xffff_ffff) | 3 } else { xid }
}

impl What {
    /// Returns table and key of a row change that stands in the log.
    pub fn row(&self) -> Option<(usize, i64)> {
        match self {
            What::Put { table, key, .. } | What::Delete { table, key, .. } => Some((*table, *key)),
            _ => None,
        }
    }

    pub fn is_marker(&self) -> bool {
        matches!(self, What::Low { .. } | What::Part { .. })
    }
}
