//! What a person must look at.

use std::time::Duration;

use sink_api::{Partition, Rule, StatementKind, StatementRow};

use super::{Attention, AttentionKind, Awaited, Away, Lane, LaneState};
use crate::clock::UnixMillis;

/// A sink that restarts is back sooner; what lasts longer, a person wants to know.
const DOWN_AFTER: Duration = Duration::from_secs(10);

/// How many refused statements an item keeps, to know when all are settled: those of a pass over a large table.
const REFUSED_KEPT: usize = 1_000;

/// What a person must look at, with the statements that it is about.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) attention: Attention,
    /// The statement that is held, or the refused ones, the last one last.
    statements: Vec<StatementRow>,
    /// Whether more were refused than are kept.
    more: bool,
}

impl Item {
    /// Makes the item of a statement.
    pub(super) fn of(statement: &StatementRow, attention: Attention) -> Item {
        Item { attention, statements: vec![statement.clone()], more: false }
    }

    /// Makes an item that no statement ends.
    pub(super) fn without_statement(attention: Attention) -> Item {
        Item { attention, statements: Vec::new(), more: false }
    }

    /// Whether it is a held statement, which waits for a person however long that takes.
    pub(super) fn is_held(&self) -> bool {
        self.attention.kind == AttentionKind::Held
    }

    /// Whether both are of one place and kind, and so are counted together. Held statements are each confirmed by their
    /// read, so they stand alone, but for reads of the same keys: the latest of them is the one to confirm.
    pub(super) fn goes_with(&self, other: &Item) -> bool {
        type Place<'a> = (AttentionKind, Option<&'a str>, Option<Partition>, Option<&'a str>, Option<Rule>);
        fn place(of: &Item) -> Place<'_> {
            let item = &of.attention;
            // A later read of the same keys may be held by another rule.
            let rule = item.rule.filter(|_| !of.is_held());
            (item.kind, item.topic.as_deref(), item.partition, item.table.as_deref(), rule)
        }
        let same = match (self.statements.as_slice(), other.statements.as_slice()) {
            ([held], [other]) if self.is_held() => same_keys(held, other),
            _ => true,
        };
        place(self) == place(other) && same
    }

    /// Counts a later item into this one, which it goes with.
    pub(super) fn count_in(&mut self, later: Item) {
        let (since, count) = (self.attention.since, self.attention.count + 1);
        self.attention = Attention { since, count, ..later.attention };
        for statement in later.statements {
            self.statements.retain(|earlier| !same_keys(earlier, &statement));
            if self.statements.len() == REFUSED_KEPT {
                self.statements.remove(0);
                self.more = true;
            }
            self.statements.push(statement);
        }
    }

    /// Takes note of a later statement of the same lane. Returns whether the item is settled.
    pub(super) fn settle(&mut self, later: &StatementRow) -> bool {
        let before = self.statements.len();
        self.statements.retain(|statement| !later.settles(statement));
        if self.statements.len() == before {
            return false;
        }
        if let Some(last) = self.statements.last() {
            // What is shown is one of those that are left.
            self.attention.offset = Some(last.offset);
            self.attention.read_id = Some(last.read_id.clone());
            self.attention.what = last.verdict.reason().map(|(_, reason)| reason.to_owned()).unwrap_or_default();
        }
        self.statements.is_empty() && !self.more
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
            LaneState::Waiting { on, since, why, hint, .. } if now.since(*since) >= DOWN_AFTER => {
                let (kind, default) = match on {
                    Awaited::Sink => (
                        AttentionKind::SinkDown,
                        "bring the sink back: the lanes go on by themselves, nothing is lost meanwhile",
                    ),
                    Awaited::Kafka => (
                        AttentionKind::KafkaDown,
                        "bring Kafka back, or mend there what the error names: the lanes go on by themselves, nothing is lost meanwhile",
                    ),
                };
                (kind, *since, why, Some(hint.clone().unwrap_or_else(|| default.to_owned())))
            }
            _ => continue,
        };
        if kind != AttentionKind::LaneStopped
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
