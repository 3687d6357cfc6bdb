//! What a person does about a lane that cannot find its place: commands that can be copied as they are.

use std::fmt::Display;

use sink_api::{LaneId, TableName};

use super::start::CannotStart;
use crate::{kafka::PartitionError, terminal::shell_word};

/// What follows once records are lost, whatever lost them.
const AFRESH: &str = "then have the tables sent afresh (an incremental snapshot) and read (statements)";

/// Returns the command that moves a lane's place, or those of all lanes of the topic. The sink and the brokers are the
/// worker's own: they may stand in the environment or in its file.
fn reset(id: &LaneId, only_this_partition: bool, to: impl Display) -> String {
    let partition = if only_this_partition { format!(" --partition {}", id.partition) } else { String::new() };
    let (name, topic) = (shell_word(&id.name), shell_word(&id.topic));
    format!(
        "`sink-repair reset --name {name} --topic {topic}{partition} --to {to}` (with the worker's --sink and --bootstrap-servers)"
    )
}

/// Of a topic that was deleted and made again.
pub(super) fn made_again(id: &LaneId) -> String {
    format!(
        "the old offsets mean nothing in the new topic: run {}, and `sink-repair reset --table TABLE` for each table that \
         it feeds; {AFRESH}",
        reset(id, false, "earliest")
    )
}

/// Of records that retention took.
fn records_lost(id: &LaneId) -> String {
    format!("have Kafka keep records longer; run {}, {AFRESH}", reset(id, true, "earliest"))
}

/// Of a log that ends before the frontier.
fn beyond_end(id: &LaneId) -> String {
    format!("the topic was truncated, or Kafka restored: run {}, {AFRESH}", reset(id, true, "earliest"))
}

/// Of a lane that cannot start.
pub(super) fn cannot_start(id: &LaneId, cannot: &CannotStart) -> String {
    match cannot {
        CannotStart::RecordsLost { .. } => records_lost(id),
        CannotStart::BeyondEnd { .. } => beyond_end(id),
    }
}

/// Of a partition that cannot be read on.
pub(super) fn unreadable(id: &LaneId, error: &PartitionError) -> String {
    match error {
        PartitionError::RecordsLost { .. } => records_lost(id),
        PartitionError::BeyondEnd { .. } => beyond_end(id),
        PartitionError::Recreated { .. } => made_again(id),
        PartitionError::Taken { .. } => "start the worker again".to_owned(),
    }
}

/// Of a lane whose place at the sink was taken while Kafka left it its partition.
pub(super) fn fenced(id: &LaneId) -> String {
    format!(
        "another worker named {} has claimed the lane, or someone ran `sink-repair reset`: see that no worker of the same \
         --name runs in another group, then start this one again",
        shell_word(&id.name)
    )
}

/// Of a truncate that is not to be applied.
pub(super) fn truncated(id: &LaneId, table: &TableName, next: impl Display) -> String {
    format!("{}; or start with --truncate apply if the topic has one partition and one table", by_hand(id, table, next))
}

/// Of a truncate that cannot be applied, since the topic has another table as well.
pub(super) fn truncated_beside(id: &LaneId, table: &TableName, next: impl Display) -> String {
    format!("{}; --truncate apply is for topics of one table", by_hand(id, table, next))
}

fn by_hand(id: &LaneId, table: &TableName, next: impl Display) -> String {
    format!("empty {table} at the sink by hand and go on behind the record: run {}", reset(id, true, next))
}

/// Of truncates that are to be applied from a topic of several partitions.
pub(super) const TRUNCATE_PARTITIONS: &str =
    "leave --truncate at stop: the lane that meets one then stops, and says what to do";
