//! Why a partition cannot be read.

use std::{fmt, sync::Arc};

use sink_api::{Offset, Partition, TopicId};

/// One partition of one topic.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: Partition,
}

impl TopicPartition {
    /// Names a partition.
    pub fn new(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: topic.into(), partition: Partition(partition) }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// Why a partition cannot be read from where its lane stands. None of these passes by waiting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// Retention took records that the lane has not seen.
    #[error("{partition}: records from offset {wanted} up to {log_start} are gone, the log starts at {log_start} now")]
    RecordsLost {
        /// Where.
        partition: TopicPartition,
        /// The offset that the lane needs.
        wanted: Offset,
        /// The first offset that the log still has.
        log_start: Offset,
    },
    /// The log ends before the lane's position: records that were applied are not in it (any more).
    #[error("{partition}: offset {wanted} is beyond the end of the log, which is {end}")]
    BeyondEnd {
        /// Where.
        partition: TopicPartition,
        /// The offset that the lane needs.
        wanted: Offset,
        /// The log's end.
        end: Offset,
    },
    /// The topic was deleted and made again while it was read.
    #[error("topic {topic} was deleted and made again: its id was {was} and is {now}")]
    Recreated {
        /// The topic.
        topic: Arc<str>,
        /// The id under which it was read so far.
        was: TopicId,
        /// Its id now.
        now: TopicId,
    },
    /// The partition went to another worker, or the consumer stops.
    #[error("{partition} was taken from this worker")]
    Taken {
        /// Where.
        partition: TopicPartition,
    },
}

/// The consumer itself cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FatalError {
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: Option<&'static str>,
}
