//! What an operator does about a statement that a rule held or refused.

use sink_api::{ReadId, Rule};

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
            "another source or topic feeds this table; if it no longer does: sink-repair reset --table TABLE"
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

/// Quotes a word for a shell, where it must be: read ids come from records, and operators copy commands.
fn shell_word(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:/@%+-".contains(&byte);
    if !word.is_empty() && !word.starts_with('-') && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    #![allow(missing_docs)]

    use super::*;

    #[test]
    fn a_read_id_cannot_break_out_of_the_command_that_is_suggested() {
        assert_eq!(shell_word("snap-01-chunk-07"), "snap-01-chunk-07");
        assert_eq!(shell_word("a; rm -rf ~"), "'a; rm -rf ~'");
        assert_eq!(shell_word("it's $(x)"), r"'it'\''s $(x)'");
        assert_eq!(shell_word("--up-to"), "'--up-to'");
    }
}
