//! What an operator does about a statement that a rule held or refused.

use sink_api::{ReadId, Rule};

use crate::terminal::shell_word;

/// Returns the way out of a held statement.
pub(super) fn held(rule: Rule, read_id: &ReadId, orphans: u64) -> String {
    let confirm = format!("sink-repair confirm --read-id {} --up-to {orphans}", shell_word(&read_id.0));
    match rule {
        Rule::Mismatch => "source and sink seem to spell the same keys in two ways: compare some of them, and the key's types on both sides, before anything else".to_owned(),
        Rule::Empty => format!("the source's table was empty: if that is meant: {confirm}"),
        _ => format!("check at the source that the rows listed in sink_repair.statement should go, then: {confirm}"),
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
