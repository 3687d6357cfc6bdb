//! Whether an absence event stands in the partition by which its key's changes come (rule `scope`).
//!
//! Such an event travels with its key. One that was put into another partition is judged by a lane that has seen nothing
//! of the key. So its key has to hash to the partition; the partition's rows have to show that keys come here by their
//! hash; and the event's key has to be written as theirs are, but for its values: other bytes hash elsewhere.

use std::collections::{HashMap, HashSet};

use sink_api::{Offset, Rule, StatementKind, TableName};

use crate::{
    decode::{Damaged, Event},
    partitioner::partition_of,
    record::Record,
    stream::statement_id,
};

/// How many different keys have to hash to the partition: that many do so by chance once in a million.
fn keys_needed(partitions: u32) -> usize {
    (6.0 / f64::from(partitions.max(2)).log10()).ceil() as usize
}

/// What the rows of a partition show of how records get there.
#[derive(Debug)]
pub(super) struct Scope {
    partition: u32,
    partitions: u32,
    /// Different keys that hash to this partition, as many as are needed.
    here: HashSet<Box<[u8]>>,
    /// How the keys of a table's rows are written, as the last one showed.
    forms: HashMap<TableName, Option<Vec<u8>>>,
    /// Where a row stood whose key does not hash to this partition.
    stray: Option<Offset>,
}

impl Scope {
    pub(super) fn new(partition: i32, partitions: i32) -> Scope {
        let number = |number: i32| u32::try_from(number).unwrap_or_default();
        let (partition, partitions) = (number(partition), number(partitions));
        Scope { partition, partitions, here: HashSet::new(), forms: HashMap::new(), stray: None }
    }

    /// Takes note of a row; passes on what may be judged, and refuses an absence event that may be out of place.
    pub(super) fn admit(&mut self, record: &Record, event: Event) -> Event {
        if self.partitions <= 1 {
            return event;
        }
        let key = record.key.as_deref().unwrap_or_default();
        match &event {
            Event::Row(row) => {
                self.row(record.offset, &row.table.name, key);
                event
            }
            Event::Part(part) if part.claim.kind == StatementKind::Absence => {
                let Some(reason) = self.objection(&part.claim.read.table.name, key) else { return event };
                Event::Damaged(Damaged {
                    read_id: Some(statement_id(part)),
                    kind: StatementKind::Absence,
                    source_table: Some(part.claim.read.source.table.clone()),
                    rule: Rule::Scope,
                    reason,
                })
            }
            _ => event,
        }
    }

    fn row(&mut self, offset: Offset, table: &TableName, key: &[u8]) {
        let form = form(key);
        match self.forms.get_mut(table) {
            Some(known) if *known == form => {}
            Some(known) => *known = form,
            None => drop(self.forms.insert(table.clone(), form)),
        }
        if self.stray.is_some() {
            return;
        }
        if !self.is_here(key) {
            self.stray = Some(offset);
        } else if self.here.len() < keys_needed(self.partitions) && !self.here.contains(key) {
            self.here.insert(key.into());
        }
    }

    fn objection(&self, table: &TableName, key: &[u8]) -> Option<String> {
        let partitions = self.partitions;
        if let Some(offset) = self.stray {
            return Some(format!(
                "the key at offset {offset} does not hash to this partition of {partitions} by Kafka's default partitioner, so \
                 it cannot be told which partition a key's changes come by"
            ));
        }
        if !self.is_here(key) {
            return Some(format!(
                "by its key the record belongs into another one of the topic's {partitions} partitions"
            ));
        }
        let needed = keys_needed(partitions);
        if self.here.len() < needed {
            return Some(format!(
                "of the {needed} different keys of rows that show how keys get to this partition only {} came by it lately",
                self.here.len()
            ));
        }
        match self.forms.get(table) {
            Some(Some(known)) if form(key).as_ref() == Some(known) => None,
            Some(_) => Some(
                "its key is not written as those of the table's rows are (schema, spaces, order of columns, escapes), and \
                 other bytes hash elsewhere"
                    .to_owned(),
            ),
            None => Some("no row of its table came by this partition lately that would show how keys are written".to_owned()),
        }
    }

    fn is_here(&self, key: &[u8]) -> bool {
        partition_of(key, self.partitions) == self.partition
    }
}

/// Returns a key's bytes without its values, which stand behind the schema if there is one; `None` where a value has
/// several spellings.
fn form(key: &[u8]) -> Option<Vec<u8>> {
    const PAYLOAD: &[u8] = b"\"payload\":";
    let values = key.windows(PAYLOAD.len()).rposition(|window| window == PAYLOAD).map_or(0, |at| at + PAYLOAD.len());
    let mut form = key[..values].to_vec();
    let mut rest = &key[values..];
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'"' => {
                let end = after.iter().position(|byte| *byte == b'"')?;
                let (text, behind) = (&after[..end], &after[end + 1..]);
                if text.contains(&b'\\') {
                    return None;
                }
                let is_name = behind.trim_ascii_start().first() == Some(&b':');
                form.push(b'"');
                form.extend(if is_name { text } else { b"" });
                form.push(b'"');
                rest = behind;
            }
            b'0'..=b'9' | b'-' => {
                let end = after.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(after.len());
                let is_plain = match (byte, &after[..end]) {
                    (b'-', digits) => !digits.is_empty() && digits[0] != b'0',
                    (b'0', digits) => digits.is_empty(),
                    _ => true,
                };
                if !is_plain || matches!(after.get(end), Some(b'.' | b'e' | b'E')) {
                    return None;
                }
                form.push(b'0');
                rest = &after[end..];
            }
            byte => {
                form.push(byte);
                rest = after;
            }
        }
    }
    Some(form)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use crate::{
        apply::tests::{absence, change, shape},
        decode::{DecodeSettings, Decoder},
    };

    /// Decodes a record, and asks the lane of a partition of three.
    fn admitted(scope: &mut Scope, record: &Record) -> Result<(), String> {
        let mut decoder = Decoder::new(Arc::new(DecodeSettings::default()), "shop.inventory.orders");
        decoder.learn(Arc::new(shape()));
        match scope.admit(record, decoder.decode(record).unwrap()) {
            Event::Damaged(Damaged { rule: Rule::Scope, reason, .. }) => Err(reason),
            Event::Row(_) | Event::Part(_) => Ok(()),
            event => panic!("{event:?}"),
        }
    }

    /// Returns the ids, of 1 to 99, whose keys hash to a partition of three.
    fn of(partition: u32) -> Vec<i64> {
        (1..100).filter(|id| partition_of(change(0, *id).key.as_deref().unwrap(), 3) == partition).collect()
    }

    #[test]
    fn an_absence_event_is_judged_only_in_the_partition_of_its_key() {
        let (here, there) = (of(1), of(2));
        let mut scope = Scope::new(1, 3);

        let unseen = admitted(&mut scope, &absence(0, here[0], "a"));
        assert!(unseen.is_err_and(|reason| reason.contains("of the 13 different keys")));
        for (offset, id) in (1..).zip(&here[1..]) {
            assert_eq!(admitted(&mut scope, &change(offset, *id)), Ok(()));
        }
        assert_eq!(admitted(&mut scope, &absence(2, here[0], "b")), Ok(()));
        let strange = admitted(&mut scope, &absence(3, there[0], "c"));
        assert!(strange.is_err_and(|reason| reason.contains("belongs into another one of the topic's 3 partitions")));
        assert_eq!(admitted(&mut Scope::new(0, 1), &absence(4, there[0], "d")), Ok(()), "one partition has all keys");
    }

    #[test]
    fn where_keys_are_not_put_by_their_hash_or_are_written_otherwise_none_is_judged() {
        let (here, there) = (of(1), of(2));
        let mut custom = Scope::new(1, 3);
        admitted(&mut custom, &change(7, there[0])).unwrap();
        admitted(&mut custom, &change(8, here[0])).unwrap();
        let refused = admitted(&mut custom, &absence(9, here[1], "a"));
        assert!(
            refused.is_err_and(|reason| reason.contains("the key at offset 7 does not hash to this partition of 3"))
        );

        let mut plain = Scope::new(1, 3);
        for (offset, id) in (1..).zip(&here) {
            admitted(&mut plain, &change(offset, *id)).unwrap();
        }
        let written = |record: Record, key: String| Record { key: Some(key.into_bytes().into()), ..record };
        let forms: [fn(i64) -> String; 2] = [
            |id| {
                format!(
                    r#"{{"schema":{{"type":"struct","fields":[{{"type":"int64","optional":false,"field":"id"}}]}},"payload":{{"id":{id}}}}}"#
                )
            },
            |id| format!(r#"{{"id" : {id}}}"#),
        ];
        for form in forms {
            let event = (1..100).map(|id| written(absence(3, id, "b"), form(id)));
            let here = |event: &Record| partition_of(event.key.as_deref().unwrap(), 3) == 1;
            let refused = admitted(&mut plain, &event.into_iter().find(here).unwrap());
            assert!(refused.is_err_and(|reason| reason.contains("is not written as those of the table's rows are")));
        }
    }

    #[test]
    fn a_form_is_a_keys_bytes_without_its_values() {
        let form = |key: &str| form(key.as_bytes()).map(|form| String::from_utf8(form).unwrap());

        assert_eq!(form(r#"{"id":-12,"name":"é b","at":"x"}"#).as_deref(), Some(r#"{"id":0,"name":"","at":""}"#));
        assert_eq!(
            form(r#"{"schema":{"version":1,"name":"k"},"payload":{"id":7}}"#).as_deref(),
            Some(r#"{"schema":{"version":1,"name":"k"},"payload":{"id":0}}"#)
        );
        assert_eq!(form(r#"{"id":true}"#).as_deref(), Some(r#"{"id":true}"#));
        for spelt_otherwise in [
            r#"{"id":1.0}"#,
            r#"{"id":1e3}"#,
            r#"{"id":007}"#,
            r#"{"id":-0}"#,
            r#"{"v":"\u0041"}"#,
            r#"{"v":"#,
            r#""x"#,
        ] {
            let same = form(spelt_otherwise);
            assert!(same.is_none() || !same.as_ref().unwrap().ends_with('}'), "{spelt_otherwise}: {same:?}");
        }
    }
}
