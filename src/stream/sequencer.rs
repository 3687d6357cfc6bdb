//! The order of a lane's stream, and what it has to remember of it.

use sink_api::{Key, LaneState, Offset, ReadId, RowChange, RowOp, Rule, StatementKind, TableShape, Xid};

use super::{
    close::{Refusal, close, extent_of, statement_id},
    closed::ClosedReads,
    copies::RecentChanges,
    step::{Step, refusal, window_refusal},
    window::{Window, Windows},
};
use crate::{
    decode::{BadRecord, Damaged, Event, EventXid, Part, ReadName, RowEvent},
    statement::{Added, Parts, RecentKeys, WITHOUT_ID, is_same_table},
};

/// Bounds on what a sequencer remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of recent transactions' keys.
    pub recent_bytes: usize,
    /// The most bytes of all open windows together: changed keys and parts. One statement's lists may reach it.
    pub window_bytes: usize,
    /// The longest that a window stays open by the stream's own clock, in milliseconds.
    pub window_age_ms: i64,
    /// The most windows open at a time.
    pub windows: usize,
    /// How many changes are remembered, so that a copied row that is older than one of them is left out.
    pub copies: usize,
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
            // About a minute of a busy source, in less than 4 MiB.
            copies: 65_536,
        }
    }
}

/// Where a sequencer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The frontier: records before it only rebuild windows and memory.
    pub frontier: Offset,
    /// The highest transaction id among the records before the first one that will be pushed, as
    /// [`LaneState::highest_xid`] gave it.
    pub highest_xid: Option<Xid>,
    /// Whether there may be earlier records of which nothing is known.
    pub unknown_past: bool,
    /// The topic's partition count when the lane first saw it.
    pub first_partition_count: i32,
    /// The topic's partition count now.
    pub partition_count: i32,
}

impl Start {
    /// Starts where a stored state ends. Returns where to begin reading as well.
    ///
    /// `log_start` is the first offset that the topic still holds; it may lie behind the oldest open window, whose read
    /// then proves nothing. Of the transactions that are gone it is known that they were applied, and no more.
    pub fn resume(state: &LaneState, log_start: Offset, partition_count: i32) -> (Start, Offset) {
        let is_whole = log_start <= state.memory_offset || log_start <= Offset(0);
        let start = Start {
            frontier: state.next_offset,
            highest_xid: if is_whole { state.highest_xid } else { Some(WITHOUT_ID) },
            unknown_past: state.unknown_past,
            first_partition_count: state.partition_count,
            partition_count,
        };
        (start, state.memory_offset.max(log_start))
    }
}

/// Turns the events of one partition into steps.
#[derive(Debug)]
pub struct Sequencer {
    limits: Limits,
    start: Start,
    next: Offset,
    recent: RecentKeys,
    windows: Windows,
    closed: ClosedReads,
    changes: RecentChanges,
    left_out: u64,
}

impl Sequencer {
    /// Starts at `start`.
    pub fn new(start: Start, limits: Limits) -> Sequencer {
        Sequencer {
            limits,
            next: start.frontier,
            recent: RecentKeys::new(limits.recent_bytes, start.highest_xid, start.unknown_past),
            start,
            windows: Windows::default(),
            closed: ClosedReads::default(),
            changes: RecentChanges::new(limits.copies),
            left_out: 0,
        }
    }

    /// Takes the next event and adds what is to be done. `timestamp` is its record's, in milliseconds since 1970-01-01
    /// UTC.
    ///
    /// Before the frontier only refusals are added: what was to be done was done in an earlier life. A statement there
    /// is refused, for a lane that begins in the middle of a stream; where it has its verdict, the sink knows.
    pub fn push(&mut self, offset: Offset, timestamp: Option<i64>, event: Event, steps: &mut Vec<Step>) {
        let first = steps.len();
        self.expire(offset, timestamp, steps);
        match event {
            Event::Row(row) => self.row(offset, timestamp, row, steps),
            Event::Truncate { table, .. } => {
                self.changes.lost(None);
                self.windows.void_table(&table, Rule::TableChange, "the table was truncated inside the window");
                steps.push(Step::Truncate(table));
            }
            Event::Low(read) => self.low(offset, timestamp, read, steps),
            Event::Part(part) => steps.extend(self.part(offset, *part)),
            Event::Damaged(damaged) => steps.extend(self.damaged(offset, damaged)),
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
            Some((table, key)) => {
                self.windows.change(offset, table, key);
                self.changes.lost(Some((&**table, key)));
            }
            None => {
                self.changes.lost(None);
                let reason = format!("the key of the record at offset {offset} could not be read");
                self.windows.void_all(Rule::Window, &reason);
            }
        }
        // Its transaction is not known either.
        self.recent.push_undecoded(offset);
        self.passed(offset, first, steps);
    }

    /// Takes note that the records from `first` on, up to the one before `next`, are gone from the log: compaction takes
    /// changes of which later ones stand in the log. They may have been of any key.
    pub fn gap(&mut self, first: Offset, next: Offset) {
        self.changes.lost(None);
        let reason = format!(
            "records from offset {first} to before {next} are missing from the topic, which may be compacted \
             (cleanup.policy): they may have been changes inside the window"
        );
        self.windows.void_all(Rule::Window, &reason);
        self.recent.push_undecoded(Offset(next.0.saturating_sub(1)));
    }

    /// Returns what the lane must remember if it ends here.
    pub fn state(&self) -> LaneState {
        let oldest = self.windows.iter().next();
        let (highest_xid, unknown_past) = oldest.map_or_else(|| self.recent.all(), |window| window.before).stored();
        LaneState {
            next_offset: self.next,
            memory_offset: oldest.map_or(self.next, |window| window.low.min(self.next)),
            highest_xid,
            unknown_past,
            partition_count: self.start.first_partition_count,
        }
    }

    /// Returns the reads whose windows are open, oldest first.
    pub fn open_reads(&self) -> impl ExactSizeIterator<Item = &ReadId> {
        self.windows.iter().map(|window| &window.read.read_id)
    }

    /// Takes note that the sink lacked `key` at `at`: whatever changed it before then is not there, so a copy is needed.
    pub fn lacked(&mut self, at: Offset, table: &TableShape, key: &Key) {
        self.changes.lacked(at, table, key);
    }

    /// Takes note that the sink refused a record, which was parked: a copy of its row is needed.
    pub fn parked(&mut self, bad: &BadRecord) {
        self.changes.lost(bad.key.as_ref().map(|(table, key)| (&**table, key)));
    }

    /// Returns how many copied rows were left out, since a change of their key came shortly before.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Returns the memory held, in bytes.
    pub fn bytes(&self) -> usize {
        self.recent.bytes() + self.windows.bytes() + self.changes.bytes()
    }

    /// Ends the record at `offset`.
    fn passed(&mut self, offset: Offset, first: usize, steps: &mut Vec<Step>) {
        if offset >= self.start.frontier {
            self.next = offset.next();
            return;
        }
        let refusals: Vec<Step> = steps.drain(first..).filter_map(Step::before_the_frontier).collect();
        steps.extend(refusals);
    }

    fn row(&mut self, offset: Offset, timestamp: Option<i64>, row: RowEvent, steps: &mut Vec<Step>) {
        for key in std::iter::once(&row.key).chain(&row.other_key) {
            self.windows.change(offset, &row.table, key);
            match row.xid {
                EventXid::Known(xid) => self.recent.push(offset, xid, &row.table, key),
                EventXid::Exempt => {}
                EventXid::Unknown => self.recent.push_without_id(&row.table),
            }
        }
        if row.xid == EventXid::Exempt {
            // A copied row, or the tombstone of a delete that came just before.
            if matches!(row.op, RowOp::Upsert(_)) && self.changes.has(timestamp, &row.table, &row.key) {
                self.left_out += u64::from(offset >= self.start.frontier);
                return;
            }
        } else {
            self.changes.note(offset, timestamp, &row.table, &row.key, &row.op);
        }
        steps.push(Step::Row(RowChange { table: row.table, key: row.key, offset, op: row.op }));
    }

    fn low(&mut self, offset: Offset, timestamp: Option<i64>, read: ReadName, steps: &mut Vec<Step>) {
        if self.closed.contains(&read.read_id) {
            return;
        }
        if let Some(window) = self.windows.find(&read.read_id) {
            // The window runs from the first delivery of its low marker.
            if !is_same_table(&window.read, &read) {
                window.make_void(Rule::Whole, "its low markers name different tables");
            }
            return;
        }
        if let Some(oldest) = self.windows.make_room(self.limits.windows) {
            let reason = format!("more than {} windows were open", self.limits.windows);
            steps.push(self.refuse_window(offset, oldest, reason));
        }
        self.windows.open(read, offset, timestamp, &self.recent);
    }

    fn part(&mut self, offset: Offset, part: Part) -> Option<Step> {
        let read_id = statement_id(&part);
        if self.closed.contains(&read_id) {
            return None;
        }
        let limit = self.limits.window_bytes;
        if matches!(part.claim.kind, StatementKind::ChunkInfo | StatementKind::Absence) {
            let (parts, added) = Parts::new(part, limit);
            return Some(self.close(offset, read_id, parts, added));
        }
        let Some(window) = self.windows.find(&read_id) else {
            let reason = "its low marker does not stand in the stretch of the stream that this lane has read";
            let refused = Refusal { rule: Rule::Window, reason: reason.to_owned(), again: true };
            self.closed.insert(read_id.clone());
            return Some(refusal(read_id, &part.claim, &extent_of(&part.claim, &part.asked), offset, refused));
        };
        if !is_same_table(&window.read, &part.claim.read) {
            window.make_void(Rule::Whole, "its low marker names another table");
        }
        let (parts, added) = match self.windows.take_parts(&read_id) {
            None => Parts::new(part, limit),
            Some(mut parts) => {
                let added = parts.add(part);
                (parts, added)
            }
        };
        match added {
            Added::Incomplete | Added::Repeated => {
                self.windows.put_parts(&read_id, parts);
                None
            }
            added => Some(self.close(offset, read_id, parts, added)),
        }
    }

    /// Completes a statement at its last part: it becomes a barrier, or is refused.
    fn close(&mut self, offset: Offset, read_id: ReadId, parts: Parts, added: Added) -> Step {
        let changed = self.windows.find(&read_id).map(|window| (window.read.table.name.clone(), window.low));
        let changed = changed.map(|(table, low)| self.windows.changed(&table, low));
        let window = self.windows.remove(&read_id).zip(changed);
        self.closed.insert(read_id.clone());
        let (snapshot, settled) = (parts.claim().snapshot.clone(), parts.claim().settled);
        let low = window.as_ref().map(|(window, _)| window.low);
        let step = close(&self.start, &self.recent, offset, read_id, parts, added, window);
        if let Some(snapshot) = snapshot {
            self.recent.learn(offset, &snapshot);
            if let Some(low) = low.filter(|_| settled) {
                self.recent.learn_settled(low, &snapshot);
            }
        }
        step
    }

    fn damaged(&mut self, offset: Offset, damaged: Damaged) -> Option<Step> {
        // A statement of another format version, or of another topic, is not about a window of ours; a damaged part is.
        let read_id = match damaged.read_id.clone() {
            Some(read_id) if self.closed.contains(&read_id) => return None,
            Some(read_id) => {
                self.windows.remove(&read_id);
                self.closed.insert(read_id.clone());
                read_id
            }
            None => ReadId(format!("unnamed@{offset}")),
        };
        Some(Step::damaged(read_id, offset, damaged))
    }

    fn expire(&mut self, offset: Offset, now: Option<i64>, steps: &mut Vec<Step>) {
        let limits = self.limits;
        while let Some(window) = self.windows.expire(limits.window_bytes, limits.window_age_ms, now) {
            steps.push(self.refuse_window(offset, window, "its window was open for too long".to_owned()));
        }
    }

    fn refuse_window(&mut self, offset: Offset, window: Window, reason: String) -> Step {
        self.closed.insert(window.read.read_id.clone());
        window_refusal(window, offset, reason)
    }
}
