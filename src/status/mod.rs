//! What a worker is doing, for people: `/status`, `sink-repair status`, and the gauges of `/metrics`.
//!
//! Lanes publish to a [`StatusBoard`] through a [`LaneStatus`] each; whoever asks gets a [`Status`], a copy as of now.
//! What follows from the lanes' states (a sink that is down, a lane that stopped) is worked out when asked for, so
//! that it is over as soon as its cause is.

mod advice;
mod attention;
mod board;
mod fetch;
mod text;

use serde::{Deserialize, Serialize};
use sink_api::{Offset, Partition, ReadId, Rule, StatementKind};

pub use board::{Away, LaneStatus, LogEnd, Progress, StatusBoard};
pub use fetch::run;

use crate::clock::UnixMillis;

/// What a worker is doing, as of `at`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The worker's name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// When this was so.
    pub at: UnixMillis,
    /// When the worker started.
    pub started_at: UnixMillis,
    /// How long it has been up.
    pub uptime_seconds: u64,
    /// The sink's address, without a password.
    pub sink: String,
    /// The consumer group.
    pub group: Group,
    /// What a person must look at, the most pressing first.
    pub attention: Vec<Attention>,
    /// How many more such items there are.
    pub attention_omitted: u64,
    /// The lanes, by topic and partition.
    pub lanes: Vec<Lane>,
    /// Totals since the start.
    pub counters: Counters,
}

/// The worker's place in its consumer group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// Whether the worker is a member.
    pub state: GroupState,
    /// Since when.
    pub since: UnixMillis,
}

/// Whether the worker is a member of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupState {
    /// Not yet: no assignment has come.
    Joining,
    /// It has been told its partitions (maybe none).
    Joined,
    /// It has left, to stop.
    Left,
}

/// One lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: Partition,
    /// What it is doing.
    #[serde(flatten)]
    pub state: LaneState,
    /// Every earlier record is done and committed.
    pub frontier: Option<Offset>,
    /// The partition's end, as last heard.
    pub end_offset: Option<Offset>,
    /// Offsets between the two.
    pub lag_records: Option<u64>,
    /// Age of the last committed record while the lane lags, 0 when it does not.
    pub lag_seconds: Option<f64>,
    /// Reads whose low marker came and whose close did not yet.
    pub open_windows: usize,
    /// Age of the unit of work in hand.
    pub unit_in_flight_seconds: Option<f64>,
    /// The last statement with a verdict.
    pub last_statement: Option<LastStatement>,
}

/// What a lane is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum LaneState {
    /// Taking the lane over at the sink, finding its place.
    Starting,
    /// Reading records before the frontier, to rebuild windows; nothing is applied.
    ReadingMemory,
    /// Applying records as they come.
    Running,
    /// Trying again and again, until there is an answer.
    Waiting {
        /// For whom.
        on: Awaited,
        /// Since when.
        since: UnixMillis,
        /// What fails.
        why: String,
        /// What to do.
        hint: Option<String>,
        /// How many tries have failed.
        attempts: u32,
    },
    /// Done: the end offset seen at start is reached (`--until-caught-up`).
    CaughtUp,
    /// Given up, until a person acts; the partition's records wait in Kafka.
    Stopped {
        /// Since when.
        since: UnixMillis,
        /// What happened.
        what: String,
        /// What to do.
        hint: Option<String>,
    },
}

/// For whom a lane waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Awaited {
    /// The sink.
    Sink,
    /// Kafka: for the partition count that a statement needs, or for the dead letter topic.
    Kafka,
}

impl Awaited {
    /// Returns its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Awaited::Sink => "the sink",
            Awaited::Kafka => "Kafka",
        }
    }
}

impl LaneState {
    /// The names of all states.
    pub const NAMES: [&str; 6] = ["starting", "reading-memory", "running", "waiting", "caught-up", "stopped"];

    /// Returns the state's name.
    pub fn name(&self) -> &'static str {
        match self {
            LaneState::Starting => "starting",
            LaneState::ReadingMemory => "reading-memory",
            LaneState::Running => "running",
            LaneState::Waiting { .. } => "waiting",
            LaneState::CaughtUp => "caught-up",
            LaneState::Stopped { .. } => "stopped",
        }
    }
}

/// A statement and its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStatement {
    /// The read.
    pub read_id: ReadId,
    /// Its form.
    pub kind: StatementKind,
    /// The sink's table, or the source's where the sink's is not known.
    pub table: String,
    /// Its offset.
    pub offset: Offset,
    /// Its verdict.
    pub verdict: String,
    /// Why, for held and refused ones.
    pub reason: Option<String>,
    /// Rows found at the sink and not at the source.
    pub orphans: u64,
    /// Rows removed.
    pub removed: u64,
    /// Rows found at the source and not at the sink.
    pub missing: u64,
    /// Keys spared.
    pub spared: u64,
    /// When the verdict was given.
    pub at: UnixMillis,
}

/// Something that a person must look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    /// What kind of thing.
    pub kind: AttentionKind,
    /// The sink's table, or the source's where the sink's is not known.
    pub table: Option<String>,
    /// The topic; none where it concerns the whole worker.
    pub topic: Option<String>,
    /// The partition.
    pub partition: Option<Partition>,
    /// The offset, the last one when it happened several times.
    pub offset: Option<Offset>,
    /// The read, the last one when it happened several times.
    pub read_id: Option<ReadId>,
    /// The safety rule.
    pub rule: Option<Rule>,
    /// What happened.
    pub what: String,
    /// What to do.
    pub hint: Option<String>,
    /// When it happened first.
    pub since: UnixMillis,
    /// When it happened last.
    pub last: UnixMillis,
    /// How often it happened, or how many lanes it concerns.
    pub count: u64,
}

/// What kind of thing a person must look at; the most pressing first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionKind {
    /// A lane has given up.
    LaneStopped,
    /// The worker or a lane waits for Kafka, or the worker for topics that do not exist.
    KafkaDown,
    /// A lane waits for its sink.
    SinkDown,
    /// A statement waits for an operator.
    Held,
    /// Records were parked in the dead letter topic.
    DeadLettered,
    /// Statements were refused.
    Refused,
    /// Keys were asked for and did not come.
    Unobtainable,
}

impl AttentionKind {
    /// All kinds.
    pub const ALL: [AttentionKind; 7] = [
        AttentionKind::LaneStopped,
        AttentionKind::KafkaDown,
        AttentionKind::SinkDown,
        AttentionKind::Held,
        AttentionKind::DeadLettered,
        AttentionKind::Refused,
        AttentionKind::Unobtainable,
    ];

    /// Returns the kind's name.
    pub fn as_str(self) -> &'static str {
        match self {
            AttentionKind::LaneStopped => "lane-stopped",
            AttentionKind::KafkaDown => "kafka-down",
            AttentionKind::SinkDown => "sink-down",
            AttentionKind::Held => "held",
            AttentionKind::DeadLettered => "dead-lettered",
            AttentionKind::Refused => "refused",
            AttentionKind::Unobtainable => "unobtainable",
        }
    }
}

/// Totals since the worker started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Records handed to lanes.
    pub records: u64,
    /// Rows written by changes.
    pub rows: u64,
    /// Statements with a verdict.
    pub statements: u64,
    /// Of these, held.
    pub held: u64,
    /// Of these, refused.
    pub refused: u64,
    /// Rows that statements found at the sink and not at the source.
    pub orphans: u64,
    /// Rows that statements removed.
    pub removed: u64,
    /// Rows that statements found at the source and not at the sink.
    pub missing: u64,
    /// Keys that statements spared.
    pub spared: u64,
    /// Records parked in the dead letter topic.
    pub dead_letters: u64,
    /// Failed tries of the sink.
    pub retries: u64,
    /// Changes of the worker's partitions.
    pub rebalances: u64,
}

#[cfg(test)]
mod tests;
