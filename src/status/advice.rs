//! What an operator does about a statement that a rule held or refused.

use sink_api::{ReadId, Rule};

use crate::{statement::NOT_IN_TIME, terminal::shell_word};

/// What the sink says of a removal that left rows.
const KEPT: &str = ": the table kept ";

/// Returns the way out of a statement that was held for `reason`.
pub(super) fn held(rule: Rule, reason: &str, read_id: &ReadId, orphans: u64) -> String {
    // The sink and the brokers are the worker's own: they may stand in the environment or in its file.
    let confirm = format!(
        "`sink-repair confirm --read-id {} --up-to {orphans}` (with the worker's --sink, --bootstrap-servers, --signal-topic and --signal-key, where neither environment nor --config has them)",
        shell_word(&read_id.0)
    );
    match rule {
        Rule::Cascade if reason.starts_with(NOT_IN_TIME) => "look at the sink for foreign keys that point to the table and have no index, and for triggers on it; then read the range again at the source".to_owned(),
        Rule::Cascade if reason.contains(KEPT) => "a trigger of the sink keeps the rows: change it, or remove them by hand; then read the range again at the source".to_owned(),
        Rule::Cascade => "remove first what refers to the rows at the sink, or make the foreign key ON DELETE CASCADE and start with --allow-cascade; then read the range again at the source".to_owned(),
        Rule::Mismatch => "source and sink seem to spell the same keys in two ways: compare some of them, and the key's types on both sides, before anything else".to_owned(),
        Rule::Empty => format!("the source's table was empty: if that is meant: {confirm}"),
        _ => format!("check at the source that the rows should go whose keys sink_repair.orphan lists, then: {confirm}"),
    }
}

/// Returns the way out of a refused statement.
pub(super) fn refused(rule: Rule, again: bool) -> &'static str {
    if again {
        return "nothing, if --signal-topic is set: a fresh read is asked for; else read the range again at the source";
    }
    match rule {
        Rule::Order | Rule::SameValue => {
            "the key's type or collation differs between source, stream and sink: see the reason"
        }
        Rule::OneStream => {
            "see the reason; if another source or topic fed this table and no longer does: sink-repair reset --table TABLE"
        }
        Rule::Scope => "the topic has several partitions, and statements on such topics are not taken yet",
        Rule::Unfiltered => "make statements from a read of the whole table: no row filter, no row security",
        Rule::Whole => {
            "what makes the markers wrote a part or a field that this version does not take: compare versions"
        }
        Rule::Authentic => "find out who writes unsigned or wrongly signed markers; compare the key on both sides",
        Rule::TableChange => "the table itself changed during the read: read it again",
        Rule::Cascade => "a removal would set off more than itself: if that is meant, --allow-cascade",
        Rule::Incarnation => "the topic was deleted and made again since: read the range again",
        _ => "read the range again at the source",
    }
}
