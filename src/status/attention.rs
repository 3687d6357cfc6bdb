//! What a person must look at.

use std::time::Duration;

use sink_api::{Partition, Rule, StatementKind, StatementRow};

use super::{Attention, AttentionKind, Away, Lane, LaneState};
use crate::clock::UnixMillis;

/// A sink that restarts is back sooner; what lasts longer, a person wants to know.
const DOWN_AFTER: Duration = Duration::from_secs(10);

/// What a person must look at, with the statement that waits for them.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) attention: Attention,
    pub(super) held: Option<StatementRow>,
}

impl Item {
    /// Whether both are of one place and kind, and so are counted together. Held statements are each confirmed by their
    /// read, so they stand alone, but for reads of the same keys: the latest of them is the one to confirm.
    pub(super) fn goes_with(&self, other: &Item) -> bool {
        type Place<'a> = (AttentionKind, Option<&'a str>, Option<Partition>, Option<&'a str>, Option<Rule>);
        fn place(Item { attention: item, held }: &Item) -> Place<'_> {
            // A later read of the same keys may be held by another rule.
            (
                item.kind,
                item.topic.as_deref(),
                item.partition,
                item.table.as_deref(),
                item.rule.filter(|_| held.is_none()),
            )
        }
        let same_keys = match (&self.held, &other.held) {
            (Some(held), Some(other)) => same_keys(held, other),
            _ => true,
        };
        place(self) == place(other) && same_keys
    }
}

/// Whether both are about the same keys. The extent of a list of keys is its length only, so there the read decides.
fn same_keys(held: &StatementRow, other: &StatementRow) -> bool {
    let ranged = matches!(held.kind, StatementKind::Chunk | StatementKind::ChunkInfo);
    let same = held.table == other.table && held.kind == other.kind && held.extent == other.extent;
    held.read_id == other.read_id || (ranged && same)
}

/// Returns the sink's table, or the source's where the sink's is not known.
pub(super) fn name_of(statement: &StatementRow) -> String {
    statement.table.as_ref().map_or_else(|| statement.source_table.clone(), ToString::to_string)
}

/// Returns what a person must look at since the worker waits for Kafka: why, and since when.
pub(super) fn follows_from_kafka((since, away): &(UnixMillis, Away), now: UnixMillis) -> Option<Attention> {
    let (what, hint) = match away {
        Away::Silent(why) => (
            format!("Kafka does not answer: {why}"),
            "bring Kafka back, or correct --bootstrap-servers and --kafka: the worker goes on by itself",
        ),
        Away::NoTopics(topics) => (
            format!("topics do not exist: {}", topics.join(", ")),
            "start the connector that makes them, or correct --topics: the worker waits for them",
        ),
    };
    (now.since(*since) >= DOWN_AFTER).then(|| Attention {
        kind: AttentionKind::KafkaDown,
        table: None,
        topic: None,
        partition: None,
        offset: None,
        read_id: None,
        rule: None,
        what,
        hint: Some(hint.to_owned()),
        since: *since,
        last: now,
        count: 1,
    })
}

/// Returns what a person must look at since lanes are in the state in which they are: one item for each lane that has
/// stopped, one for each reason for which lanes wait.
pub(super) fn follows_from(lanes: &[Lane], now: UnixMillis) -> Vec<Attention> {
    let mut items: Vec<Attention> = Vec::new();
    for lane in lanes {
        let (kind, since, what, hint) = match &lane.state {
            LaneState::Stopped { since, what, hint } => (AttentionKind::LaneStopped, *since, what, hint.clone()),
            LaneState::Waiting { since, why, hint, .. } if now.since(*since) >= DOWN_AFTER => {
                let default = "bring the sink back: the lanes go on by themselves, nothing is lost meanwhile";
                let hint = hint.clone().unwrap_or_else(|| default.to_owned());
                (AttentionKind::SinkDown, *since, why, Some(hint))
            }
            _ => continue,
        };
        if kind == AttentionKind::SinkDown
            && let Some(same) = items.iter_mut().find(|item| item.kind == kind && item.what == *what)
        {
            same.count += 1;
            same.since = same.since.min(since);
            continue;
        }
        items.push(Attention {
            kind,
            table: None,
            topic: Some(lane.topic.clone()),
            partition: Some(lane.partition),
            offset: lane.frontier.filter(|_| kind == AttentionKind::LaneStopped),
            read_id: None,
            rule: None,
            what: what.clone(),
            hint,
            since,
            last: now,
            count: 1,
        });
    }
    items
}
