//! The live state, shared between lanes and those who look.
//!
//! One lock over small values, never held across an await; a lane takes it once a batch.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use sink_api::{Offset, Partition, StatementRow, Verdict};

use super::{
    Attention, AttentionKind, Counters, Group, GroupState, Lane, LaneState, LastStatement, Status, advice,
    attention::{Item, follows_from, follows_from_kafka, name_of},
};
use crate::{clock::UnixMillis, metrics::Metrics};

/// What was refused or parked a day ago and not since is in the log and in the metrics.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 3600);

/// More than a person looks at; keeps memory and answers small.
const MOST_ITEMS: usize = 100;

/// The state of a worker, shared by reference.
#[derive(Clone, Debug)]
pub struct StatusBoard(Arc<Board>);

#[derive(Debug)]
struct Board {
    name: String,
    group: String,
    sink: String,
    started_at: UnixMillis,
    metrics: Arc<Metrics>,
    live: Mutex<Live>,
}

#[derive(Debug)]
struct Live {
    group: (GroupState, UnixMillis),
    kafka: Option<(UnixMillis, Away)>,
    lanes: BTreeMap<(String, Partition), Entry>,
    attention: Vec<Item>,
    omitted: u64,
    next_generation: u64,
}

#[derive(Debug)]
struct Entry {
    generation: u64,
    state: LaneState,
    progress: Option<Progress>,
    end: Option<LogEnd>,
    last_statement: Option<LastStatement>,
}

/// Why no records come from Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Away {
    /// It does not answer: the last error.
    Silent(String),
    /// It answers that topics do not exist.
    NoTopics(Vec<String>),
}

/// Where a partition ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The partition's end offset.
    pub log: Offset,
    /// What the frontier is when every record is done: less than the end offset where transactions' control records,
    /// which no consumer sees, stand last.
    pub records: Offset,
}

impl From<Offset> for LogEnd {
    fn from(end: Offset) -> LogEnd {
        LogEnd { log: end, records: end }
    }
}

/// How far a lane has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Every earlier record is done and committed.
    pub frontier: Offset,
    /// The timestamp of the last committed record.
    pub last_record: Option<UnixMillis>,
    /// Reads whose low marker came and whose close did not yet.
    pub open_windows: usize,
    /// When the unit of work in hand was begun.
    pub unit_since: Option<UnixMillis>,
}

/// A lane's own place on the board; the lane leaves the board with it, unless it has stopped.
#[derive(Debug)]
pub struct LaneStatus {
    board: StatusBoard,
    topic: String,
    partition: Partition,
    generation: u64,
}

impl StatusBoard {
    /// Makes the board of a worker. `sink` is an address without a password.
    pub fn new(name: &str, group: &str, sink: &str, metrics: Arc<Metrics>) -> StatusBoard {
        let now = UnixMillis::now();
        StatusBoard(Arc::new(Board {
            name: name.to_owned(),
            group: group.to_owned(),
            sink: sink.to_owned(),
            started_at: now,
            metrics,
            live: Mutex::new(Live {
                group: (GroupState::Joining, now),
                kafka: None,
                lanes: BTreeMap::new(),
                attention: Vec::new(),
                omitted: 0,
                next_generation: 0,
            }),
        }))
    }

    /// Notes whether the worker is a member of its group.
    pub fn group(&self, state: GroupState, now: UnixMillis) {
        let mut live = self.live();
        if live.group.0 != state {
            live.group = (state, now);
        }
    }

    /// Notes why no records come from Kafka; `None` when nothing stands against it.
    pub fn kafka(&self, away: Option<Away>, now: UnixMillis) {
        let mut live = self.live();
        let since = live.kafka.as_ref().map_or(now, |(since, _)| *since);
        live.kafka = away.map(|away| (since, away));
    }

    /// Puts a lane on the board, in the place of an earlier one of the same partition.
    pub fn lane(&self, topic: &str, partition: Partition) -> LaneStatus {
        let mut live = self.live();
        let generation = live.next_generation;
        live.next_generation += 1;
        let entry = Entry { generation, state: LaneState::Starting, progress: None, end: None, last_statement: None };
        live.lanes.insert((topic.to_owned(), partition), entry);
        LaneStatus { board: self.clone(), topic: topic.to_owned(), partition, generation }
    }

    /// Notes the end of a partition; without effect when it has no lane.
    pub fn end_offset(&self, topic: &str, partition: Partition, end: LogEnd) {
        if let Some(lane) = self.live().lanes.get_mut(&(topic.to_owned(), partition)) {
            lane.end = Some(end);
        }
    }

    /// Takes a partition's lane off the board, also one that has stopped: another worker has the partition now.
    pub fn revoked(&self, topic: &str, partition: Partition) {
        self.live().lanes.remove(&(topic.to_owned(), partition));
    }

    /// Returns the state as of now.
    pub fn status(&self) -> Status {
        self.status_at(UnixMillis::now())
    }

    pub(super) fn status_at(&self, now: UnixMillis) -> Status {
        let board = &self.0;
        let counters = self.counters();
        let mut live = self.live();
        live.attention.retain(|item| item.is_held() || now.since(item.attention.last) < FORGOTTEN_AFTER);
        let lanes: Vec<Lane> =
            live.lanes.iter().map(|((topic, partition), entry)| entry.lane(topic, *partition, now)).collect();
        let mut attention: Vec<Attention> = live.attention.iter().map(|item| item.attention.clone()).collect();
        attention.extend(live.kafka.as_ref().and_then(|kafka| follows_from_kafka(kafka, now)));
        attention.extend(follows_from(&lanes, now));
        attention.sort_by_key(|item| (item.kind, item.since));
        Status {
            name: board.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at: now,
            started_at: board.started_at,
            uptime_seconds: now.since(board.started_at).as_secs(),
            sink: board.sink.clone(),
            group: Group { name: board.group.clone(), state: live.group.0, since: live.group.1 },
            attention,
            attention_omitted: live.omitted,
            lanes,
            counters,
        }
    }

    fn counters(&self) -> Counters {
        let total = |name: &str| self.0.metrics.total(&format!("sink_repair_{name}_total"));
        Counters {
            records: total("records"),
            rows: total("rows"),
            statements: total("statements"),
            held: total("statements_held"),
            refused: total("statements_refused"),
            orphans: total("orphan_rows"),
            removed: total("removed_rows"),
            missing: total("missing_rows"),
            spared: total("spared_keys"),
            dead_letters: total("dead_letters"),
            retries: total("retries"),
            rebalances: total("rebalances"),
        }
    }

    fn live(&self) -> MutexGuard<'_, Live> {
        // A panic elsewhere leaves values that are each valid; showing them beats hiding them.
        self.0.live.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl LaneStatus {
    /// Publishes what the lane is doing.
    pub fn state(&self, state: LaneState) {
        self.update(|entry| entry.state = state);
    }

    /// Publishes how far the lane has come.
    pub fn progress(&self, progress: Progress) {
        self.update(|entry| entry.progress = Some(progress));
    }

    /// Puts a statement on the board that an earlier life of the lane held.
    pub fn held(&self, statement: &StatementRow, at: UnixMillis) {
        self.judged(statement, at);
    }

    /// Publishes a statement's verdict; a held or refused one asks for attention, and what it settles no longer does.
    pub fn statement(&self, statement: &StatementRow, now: UnixMillis) {
        let last = LastStatement {
            read_id: statement.read_id.clone(),
            kind: statement.kind,
            table: name_of(statement),
            offset: statement.offset,
            verdict: statement.verdict.as_str().to_owned(),
            reason: statement.verdict.reason().map(|(rule, reason)| format!("{rule}: {reason}")),
            orphans: statement.orphans,
            removed: statement.removed,
            missing: statement.missing,
            spared: statement.spared,
            at: now,
        };
        self.update(|entry| entry.last_statement = Some(last));
        self.board.live().attention.retain_mut(|item| !(self.owns(&item.attention) && item.settle(statement)));
        self.judged(statement, now);
    }

    fn judged(&self, statement: &StatementRow, now: UnixMillis) {
        let (kind, rule, reason, hint) = match &statement.verdict {
            Verdict::Held { rule, reason } => {
                let hint = advice::held(*rule, reason, &statement.read_id, statement.orphans);
                (AttentionKind::Held, *rule, reason, hint)
            }
            Verdict::Refused { rule, reason, again } => {
                (AttentionKind::Refused, *rule, reason, advice::refused(*rule, *again).to_owned())
            }
            Verdict::Applied | Verdict::Reported | Verdict::Ignored => return,
        };
        let attention = Attention {
            table: Some(name_of(statement)),
            offset: Some(statement.offset),
            read_id: Some(statement.read_id.clone()),
            rule: Some(rule),
            hint: Some(hint),
            ..self.item(kind, reason.clone(), now)
        };
        self.raise(Item::of(statement, attention));
    }

    /// Asks for attention to a record that was parked in the dead letter topic.
    pub fn dead_letter(&self, offset: Offset, table: Option<String>, reason: &str, now: UnixMillis) {
        let hint = "read the records in the dead letter topic; correct them at the source, which sends them anew";
        let attention = Attention {
            table,
            offset: Some(offset),
            hint: Some(hint.to_owned()),
            ..self.item(AttentionKind::DeadLettered, reason.to_owned(), now)
        };
        self.raise(Item::without_statement(attention));
    }

    /// Asks for attention to the keys of `table` that were asked for and did not come; for none no more.
    pub fn unobtainable(&self, table: &str, keys: u64, now: UnixMillis) {
        if keys == 0 {
            self.board.live().attention.retain(|Item { attention: item, .. }| {
                !(self.owns(item) && item.kind == AttentionKind::Unobtainable && item.table.as_deref() == Some(table))
            });
            return;
        }
        let what = match keys {
            1 => "1 missing row was asked for twice and did not come".to_owned(),
            _ => format!("{keys} missing rows were asked for twice and did not come"),
        };
        let hint = "check that the connector reads the signal topic, and that it captures the table";
        let attention = Attention {
            table: Some(table.to_owned()),
            hint: Some(hint.to_owned()),
            ..self.item(AttentionKind::Unobtainable, what, now)
        };
        self.raise(Item::without_statement(attention));
    }

    fn item(&self, kind: AttentionKind, what: String, now: UnixMillis) -> Attention {
        Attention {
            kind,
            table: None,
            topic: Some(self.topic.clone()),
            partition: Some(self.partition),
            offset: None,
            read_id: None,
            rule: None,
            what,
            hint: None,
            since: now,
            last: now,
            count: 1,
        }
    }

    fn owns(&self, item: &Attention) -> bool {
        item.topic.as_ref() == Some(&self.topic) && item.partition == Some(self.partition)
    }

    /// Adds an item, or counts it into an earlier one that it goes with.
    fn raise(&self, item: Item) {
        let mut live = self.board.live();
        if let Some(earlier) = live.attention.iter_mut().find(|earlier| earlier.goes_with(&item)) {
            earlier.count_in(item);
        } else if live.attention.len() < MOST_ITEMS {
            live.attention.push(item);
        } else {
            live.omitted += 1;
        }
    }

    fn update(&self, change: impl FnOnce(&mut Entry)) {
        let mut live = self.board.live();
        let mine = live.lanes.get_mut(&(self.topic.clone(), self.partition));
        if let Some(entry) = mine.filter(|entry| entry.generation == self.generation) {
            change(entry);
        }
    }
}

impl Drop for LaneStatus {
    fn drop(&mut self) {
        let mut live = self.board.live();
        let place = (self.topic.clone(), self.partition);
        let mine = live.lanes.get(&place).filter(|entry| entry.generation == self.generation);
        if mine.is_some_and(|entry| !matches!(entry.state, LaneState::Stopped { .. } | LaneState::CaughtUp)) {
            live.lanes.remove(&place);
            // Whoever has the partition next reads them from the sink.
            live.attention.retain(|item| !item.is_held() || !self.owns(&item.attention));
        }
    }
}

impl Entry {
    fn lane(&self, topic: &str, partition: Partition, now: UnixMillis) -> Lane {
        let progress = self.progress.as_ref();
        let frontier = progress.map(|progress| progress.frontier);
        let lag_records =
            frontier.zip(self.end).map(|(frontier, end)| u64::try_from(end.records.0 - frontier.0).unwrap_or(0));
        let age = |since: UnixMillis| now.since(since).as_secs_f64();
        let lag_seconds = match lag_records {
            Some(0) => Some(0.0),
            _ => progress.and_then(|progress| progress.last_record).map(age),
        };
        Lane {
            topic: topic.to_owned(),
            partition,
            state: self.state.clone(),
            frontier,
            end_offset: self.end.map(|end| end.log),
            lag_records,
            lag_seconds,
            open_windows: progress.map_or(0, |progress| progress.open_windows),
            unit_in_flight_seconds: progress.and_then(|progress| progress.unit_since).map(age),
            last_statement: self.last_statement.clone(),
        }
    }
}
