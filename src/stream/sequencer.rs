//! The order of a lane's stream, and what it has to remember of it.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    sync::Arc,
};

use sink_api::{
    Extent, Key, KeyList, KeySet, LaneState, Offset, ReadId, RowChange, Rule, StatementKind, StatementRow, TableShape,
    Verdict, Xid,
};

use super::window::Window;
use crate::{
    decode::{BadRecord, Claim, Damaged, Event, EventXid, Part, RowEvent, Snapshot},
    statement::{Added, Parts, RecentKeys, Statement, extent_text},
};

/// Bounds on what a sequencer remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of recent transactions' keys.
    pub recent_bytes: usize,
    /// The most bytes of one open window: changed keys and parts.
    pub window_bytes: usize,
    /// The longest that a window stays open by the stream's own clock, in milliseconds.
    pub window_age_ms: i64,
    /// The most windows open at a time.
    pub windows: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // A busy source's last few seconds: about 40,000 integer keys.
            recent_bytes: 4 << 20,
            // Above the lists of the longest statement, a million integers.
            window_bytes: 16 << 20,
            // A read takes seconds; an hour leaves room for a connector that is away for a while.
            window_age_ms: 3_600_000,
            // One pass and one request a table, with room; more are a mistake or an attack.
            windows: 1_000,
        }
    }
}

/// Where a sequencer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The frontier: records before it only rebuild windows and memory.
    pub frontier: Offset,
    /// The highest transaction id among the records before the first one that will be pushed.
    pub highest_xid: Option<Xid>,
    /// Whether there may be earlier records of which nothing is known.
    pub unknown_past: bool,
    /// The topic's partition count when the lane first saw it.
    pub first_partition_count: i32,
    /// The topic's partition count now.
    pub partition_count: i32,
}

/// What is to be done, in stream order.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Apply a change.
    Row(RowChange),
    /// Remove all rows of a table.
    Truncate(Arc<TableShape>),
    /// A barrier: evaluate a statement.
    Statement(Box<Statement>),
    /// Write down a statement that proves nothing.
    Refusal(Box<StatementRow>),
}

/// How many reads with a verdict are remembered here; the sink remembers them all.
const CLOSED_READS: usize = 10_000;

/// The most keys of a `changed` list in interval form; beyond, the list says nothing useful.
const CHANGED_KEYS: u64 = 1_000_000;

/// Turns the events of one partition into steps.
#[derive(Debug)]
pub struct Sequencer {
    limits: Limits,
    start: Start,
    next: Offset,
    recent: RecentKeys,
    windows: Vec<Window>,
    closed: HashSet<ReadId>,
    closed_order: VecDeque<ReadId>,
    /// A table of whose events the transaction is not known.
    without_xid: Option<String>,
}

impl Sequencer {
    /// Starts at `start`.
    pub fn new(start: Start, limits: Limits) -> Sequencer {
        Sequencer {
            limits,
            next: start.frontier,
            recent: RecentKeys::new(limits.recent_bytes, start.highest_xid, start.unknown_past),
            start,
            windows: Vec::new(),
            closed: HashSet::new(),
            closed_order: VecDeque::new(),
            without_xid: None,
        }
    }

    /// Takes the next event. `timestamp` is its record's, in milliseconds since 1970-01-01 UTC.
    pub fn push(&mut self, offset: Offset, timestamp: Option<i64>, event: Event, steps: &mut Vec<Step>) {
        let first = steps.len();
        self.expire(offset, timestamp, steps);
        match event {
            Event::Row(row) => self.row(offset, row, steps),
            Event::Truncate { table, .. } => {
                self.void_table(&table, "the table was truncated inside the window");
                steps.push(Step::Truncate(table));
            }
            Event::Low(read) => self.low(offset, timestamp, read, steps),
            Event::Part(part) => self.part(offset, *part, steps),
            Event::Damaged(damaged) => self.damaged(offset, damaged, steps),
            Event::Other(_) => {}
        }
        self.passed(offset, first, steps);
    }

    /// Takes the next record, which could not be decoded. It counts as a change of its key; without a key it may have
    /// been a change of any.
    pub fn push_bad(&mut self, offset: Offset, timestamp: Option<i64>, bad: &BadRecord, steps: &mut Vec<Step>) {
        let first = steps.len();
        self.expire(offset, timestamp, steps);
        match &bad.key {
            Some((table, key)) => self.changed(table, key),
            None => self.windows.iter_mut().for_each(|window| {
                window.make_void(Rule::Window, format!("the key of the record at offset {offset} could not be read"));
            }),
        }
        self.passed(offset, first, steps);
    }

    /// Returns what the lane must remember if it ends here.
    pub fn state(&self) -> LaneState {
        let oldest = self.windows.first();
        LaneState {
            next_offset: self.next,
            memory_offset: oldest.map_or(self.next, |window| window.low.min(self.next)),
            highest_xid: oldest.map_or(self.recent.highest(), |window| window.highest_before),
            unknown_past: self.start.unknown_past,
            partition_count: self.start.first_partition_count,
        }
    }

    /// Returns the reads whose windows are open, oldest first.
    pub fn open_reads(&self) -> impl ExactSizeIterator<Item = &ReadId> {
        self.windows.iter().map(|window| &window.read.read_id)
    }

    /// Returns the memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.recent.bytes() + self.windows.iter().map(Window::bytes).sum::<usize>()
    }

    /// Ends the record at `offset`. Before the frontier its steps were taken in an earlier life.
    fn passed(&mut self, offset: Offset, first: usize, steps: &mut Vec<Step>) {
        if offset < self.start.frontier {
            steps.truncate(first);
        } else {
            self.next = offset.next();
        }
    }

    fn row(&mut self, offset: Offset, row: RowEvent, steps: &mut Vec<Step>) {
        self.changed(&row.table, &row.key);
        if let Some(other) = &row.other_key {
            self.changed(&row.table, other);
        }
        match row.xid {
            EventXid::Known(xid) => {
                self.remember(offset, xid, &row.table, &row.key);
                if let Some(other) = &row.other_key {
                    self.remember(offset, xid, &row.table, other);
                }
            }
            EventXid::Exempt => {}
            EventXid::Unknown => {
                self.without_xid.get_or_insert_with(|| row.table.name.to_string());
            }
        }
        steps.push(Step::Row(RowChange { table: row.table, key: row.key, offset, op: row.op }));
    }

    fn changed(&mut self, table: &Arc<TableShape>, key: &Key) {
        self.windows.iter_mut().for_each(|window| window.change(table, key));
    }

    fn remember(&mut self, offset: Offset, xid: u32, table: &Arc<TableShape>, key: &Key) {
        let windows = &mut self.windows;
        self.recent.push(offset, xid, table, key, |forgotten, xid| {
            windows.iter_mut().for_each(|window| window.forget(forgotten, xid));
        });
    }

    fn low(&mut self, offset: Offset, timestamp: Option<i64>, read: crate::decode::ReadName, steps: &mut Vec<Step>) {
        if self.closed.contains(&read.read_id) {
            return;
        }
        if let Some(window) = self.windows.iter_mut().find(|window| window.read.read_id == read.read_id) {
            // The window runs from the first delivery of its low marker.
            if window.read != read {
                window.make_void(Rule::Whole, "its low markers name different tables");
            }
            return;
        }
        if self.windows.len() >= self.limits.windows {
            let oldest = self.windows.remove(0);
            let reason = format!("more than {} windows were open", self.limits.windows);
            steps.push(self.refuse_window(offset, oldest, Rule::Window, reason, true));
        }
        self.windows.push(Window::open(read, offset, timestamp, &self.recent));
    }

    fn part(&mut self, offset: Offset, part: Part, steps: &mut Vec<Step>) {
        let read_id = &part.claim.read.read_id;
        if matches!(part.claim.kind, StatementKind::ChunkInfo | StatementKind::Absence) {
            let (parts, added) = Parts::new(part, self.limits.window_bytes);
            steps.extend(self.close(offset, parts, added, None));
            return;
        }
        if self.closed.contains(read_id) {
            return;
        }
        let Some(index) = self.windows.iter().position(|window| window.read.read_id == *read_id) else {
            let reason =
                "its low marker does not stand in the stretch of the stream that this lane has read".to_owned();
            let step =
                self.refuse(offset, &part.claim, &Extent::Range(part.claim.range.clone()), Rule::Window, reason, true);
            steps.push(step);
            return;
        };
        let limit = self.limits.window_bytes;
        let window = &mut self.windows[index];
        if window.read != part.claim.read {
            window.make_void(Rule::Whole, "its low marker names another table");
        }
        let (parts, added) = match window.parts.take() {
            None => Parts::new(part, limit),
            Some(mut parts) => {
                let added = parts.add(part);
                (parts, added)
            }
        };
        match added {
            Added::Incomplete | Added::Repeated => window.parts = Some(parts),
            added => {
                let window = self.windows.remove(index);
                steps.extend(self.close(offset, parts, added, Some(window)));
            }
        }
    }

    /// Completes a statement at its last part: it becomes a barrier, or is refused.
    fn close(&mut self, offset: Offset, parts: Parts, added: Added, window: Option<Window>) -> Option<Step> {
        let (claim, asked, selected, changed) = parts.into_whole();
        let extent = match claim.kind {
            StatementKind::ChunkInfo | StatementKind::Chunk => Extent::Range(claim.range.clone()),
            StatementKind::Keys | StatementKind::Absence => Extent::Keys(asked.sorted()),
        };
        let verdict = if let Added::Refused(reason) = added {
            Err(Refusal { rule: Rule::Whole, reason, again: true })
        } else {
            self.admit(&claim, &extent, &selected).and_then(|()| self.spare(&claim, &changed, window.as_ref()))
        };
        let spared = match verdict {
            Ok(spared) => spared,
            Err(refusal) => {
                return Some(self.refuse(offset, &claim, &extent, refusal.rule, refusal.reason, refusal.again));
            }
        };
        let read_id = match claim.kind {
            StatementKind::Absence => absence_id(&claim.read.read_id, &extent),
            _ => claim.read.read_id.clone(),
        };
        if !self.close_read(&read_id) {
            return None;
        }
        Some(Step::Statement(Box::new(Statement {
            read_id,
            kind: claim.kind,
            source_table: claim.read.source_table,
            table: claim.read.table,
            extent,
            selected,
            spared: spared.keys,
            spared_by_window: spared.by_window,
            spared_by_visibility: spared.by_visibility,
            confirmed: claim.confirmed,
            offset,
        })))
    }

    /// Checks what can be checked without the window.
    fn admit(&self, claim: &Claim, extent: &Extent, selected: &KeySet) -> Result<(), Refusal> {
        let refuse = |rule, reason| Err(Refusal { rule, reason, again: false });
        let Start { first_partition_count: first, partition_count: now, .. } = self.start;
        if first != now {
            return refuse(
                Rule::Scope,
                format!("the topic had {first} partitions and has {now} now, so keys have moved"),
            );
        }
        if now != 1 && claim.kind != StatementKind::Absence {
            return refuse(
                Rule::Scope,
                format!("the topic has {now} partitions; statements are taken on topics of one partition"),
            );
        }
        match extent {
            Extent::Range(range) => {
                if let Err(not_native) = claim.read.table.range_order() {
                    return refuse(Rule::Order, not_native.reason);
                }
                if !range.is_ordered() {
                    return refuse(Rule::Order, "its lower bound lies above its upper bound".to_owned());
                }
            }
            Extent::Keys(asked) => {
                if let KeySet::List(present) = selected
                    && present.iter().any(|key| !asked.contains(key))
                {
                    return refuse(Rule::Whole, "it calls keys present that were not asked for".to_owned());
                }
            }
        }
        Ok(())
    }

    /// Returns the keys that the statement must spare.
    fn spare(&self, claim: &Claim, changed: &KeySet, window: Option<&Window>) -> Result<Spared, Refusal> {
        if let Some(void) = window.and_then(|window| window.void.as_ref()) {
            return Err(Refusal { rule: void.rule, reason: void.reason.clone(), again: true });
        }
        if changed.len() > CHANGED_KEYS {
            let reason = format!("it lists more than {CHANGED_KEYS} changed keys");
            return Err(Refusal { rule: Rule::Whole, reason, again: false });
        }
        let mut keys = window.map(Window::changed).unwrap_or_default();
        let mut cursor = changed.cursor();
        while let Some(key) = cursor.key() {
            keys.push(key);
            cursor.advance();
        }
        if !changed.is_empty() {
            keys = keys.sorted();
        }
        let by_window = keys.len() as u64;
        if let Some(snapshot) = &claim.snapshot {
            let unseen = self.unseen(claim, snapshot, window)?;
            if !unseen.is_empty() {
                unseen.iter().for_each(|key| keys.push(key.as_bytes()));
                keys = keys.sorted();
            }
        }
        let by_visibility = keys.len() as u64 - by_window;
        Ok(Spared { keys, by_window, by_visibility })
    }

    /// Returns the keys of events before the close whose transactions the read did not see.
    fn unseen<'a>(
        &'a self,
        claim: &'a Claim,
        snapshot: &'a Snapshot,
        window: Option<&Window>,
    ) -> Result<BTreeSet<&'a Key>, Refusal> {
        if let Some(table) = &self.without_xid {
            let reason = format!(
                "the events of {table} carry no transaction id; add `txId` to the flattening transform \
                 (`add.headers=txId` or `add.fields=txId`)"
            );
            return Err(Refusal { rule: Rule::Visibility, reason, again: false });
        }
        let forgotten = window.map_or(self.recent.forgotten(), |window| window.forgotten);
        if !forgotten.all_seen(snapshot, claim.settled) {
            let reason = "transactions that the read may not have seen are no longer remembered".to_owned();
            return Err(Refusal { rule: Rule::Visibility, reason, again: true });
        }
        Ok(self.recent.unseen(&claim.read.table.name, snapshot).collect())
    }

    fn damaged(&mut self, offset: Offset, damaged: Damaged, steps: &mut Vec<Step>) {
        // A statement of another format version, or of another topic, is not about a window of ours; a damaged part is.
        if let Some(read_id) = &damaged.read_id {
            if self.closed.contains(read_id) {
                return;
            }
            self.windows.retain(|window| window.read.read_id != *read_id);
            self.close_read(read_id);
        }
        let read_id = damaged.read_id.unwrap_or_else(|| ReadId(format!("unnamed@{offset}")));
        steps.push(Step::Refusal(Box::new(StatementRow {
            read_id,
            kind: damaged.kind,
            table: None,
            source_table: damaged.source_table.unwrap_or_default(),
            extent: String::new(),
            offset,
            verdict: Verdict::Refused { rule: damaged.rule, reason: damaged.reason, again: false },
            orphans: 0,
            removed: 0,
            missing: 0,
            spared: 0,
            in_range: 0,
        })));
    }

    fn void_table(&mut self, table: &Arc<TableShape>, reason: &str) {
        self.windows
            .iter_mut()
            .filter(|window| window.is_about(table))
            .for_each(|window| window.make_void(Rule::TableChange, reason));
    }

    fn expire(&mut self, offset: Offset, now: Option<i64>, steps: &mut Vec<Step>) {
        let limits = self.limits;
        while let Some(index) =
            self.windows.iter().position(|window| window.is_over(limits.window_bytes, limits.window_age_ms, now))
        {
            let window = self.windows.remove(index);
            let reason = "its window was open for too long".to_owned();
            steps.push(self.refuse_window(offset, window, Rule::Window, reason, true));
        }
    }

    fn refuse_window(&mut self, offset: Offset, window: Window, rule: Rule, reason: String, again: bool) -> Step {
        self.close_read(&window.read.read_id);
        Step::Refusal(Box::new(StatementRow {
            read_id: window.read.read_id,
            kind: StatementKind::Chunk,
            table: Some(window.read.table.name.clone()),
            source_table: window.read.source_table,
            extent: String::new(),
            offset,
            verdict: Verdict::Refused { rule, reason, again },
            orphans: 0,
            removed: 0,
            missing: 0,
            spared: 0,
            in_range: 0,
        }))
    }

    fn refuse(
        &mut self,
        offset: Offset,
        claim: &Claim,
        extent: &Extent,
        rule: Rule,
        reason: String,
        again: bool,
    ) -> Step {
        let read_id = match claim.kind {
            StatementKind::Absence => absence_id(&claim.read.read_id, extent),
            _ => claim.read.read_id.clone(),
        };
        self.close_read(&read_id);
        Step::Refusal(Box::new(StatementRow {
            read_id,
            kind: claim.kind,
            table: Some(claim.read.table.name.clone()),
            source_table: claim.read.source_table.clone(),
            extent: extent_text(extent),
            offset,
            verdict: Verdict::Refused { rule, reason, again },
            orphans: 0,
            removed: 0,
            missing: 0,
            spared: 0,
            in_range: 0,
        }))
    }

    /// Notes that a read has its verdict. Returns whether it had none before.
    fn close_read(&mut self, read_id: &ReadId) -> bool {
        if !self.closed.insert(read_id.clone()) {
            return false;
        }
        self.closed_order.push_back(read_id.clone());
        if self.closed_order.len() > CLOSED_READS
            && let Some(oldest) = self.closed_order.pop_front()
        {
            self.closed.remove(&oldest);
        }
        true
    }
}

struct Refusal {
    rule: Rule,
    reason: String,
    again: bool,
}

struct Spared {
    keys: KeyList,
    by_window: u64,
    by_visibility: u64,
}

/// Names one absence event: the events of one read share its id, and each has a verdict of its own.
fn absence_id(read_id: &ReadId, extent: &Extent) -> ReadId {
    use sha2::{Digest, Sha256};

    let Extent::Keys(keys) = extent else { return read_id.clone() };
    let mut hash = Sha256::new();
    keys.iter().for_each(|key| hash.update(key));
    ReadId(format!("{read_id}#{}", hex::encode(&hash.finalize()[..8])))
}
