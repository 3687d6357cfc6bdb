//! Places in a stream.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a record in its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Offset(pub i64);

impl Offset {
    /// Returns the offset after this one: where to go on reading when this record is done.
    pub fn next(self) -> Offset {
        Offset(self.0 + 1)
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a partition in its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Partition(pub i32);

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The broker's own id of a topic: a topic that was deleted and created again has another one, so it
/// tells the incarnations of a stream apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TopicId(pub [u8; 16]);

impl fmt::Display for TopicId {
    /// Writes the id as a UUID in lower-case hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

/// A place in the stream: incarnation, partition, offset.
///
/// Always the stream's, never the source log's. Positions of different incarnations or partitions
/// have no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// The topic's incarnation.
    pub topic_id: TopicId,
    /// The partition of the topic.
    pub partition: Partition,
    /// The offset in the partition.
    pub offset: Offset,
}

/// A PostgreSQL transaction id with its epoch (64 bits, as `pg_current_snapshot()` writes it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Xid(pub u64);

/// Which lane: one partition of one topic, applied under one worker name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneId {
    /// The worker's name (`--name`): two workers of one name share the work, two names do it twice.
    pub name: String,
    /// The topic.
    pub topic: String,
    /// The topic's incarnation.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: Partition,
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// What a lane remembers across restarts, committed together with its effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// The frontier: the next offset to read such that every earlier record is done.
    pub next_offset: Offset,
    /// Where a restarted lane starts reading: the oldest low marker whose window is still open, else the
    /// frontier. Records between it and the frontier only rebuild windows and memory.
    pub memory_offset: Offset,
    /// The highest transaction id among the records before `memory_offset`, with marks of the worker's in its upper bits;
    /// `None` when none had one. Fits a signed 64-bit integer.
    pub highest_xid: Option<Xid>,
    /// Whether records before the lane's start are unknown to it (it began in the middle of a stream).
    pub unknown_past: bool,
    /// The topic's partition count when the lane first saw it.
    pub partition_count: i32,
}
