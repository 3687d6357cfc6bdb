//! Whether an absence event stands in the partition by which its key's changes come (rule `scope`).
//!
//! Such an event travels with its key. One that was put into another partition is judged by a lane that has seen nothing
//! of the key. So its key has to hash to the partition, and the partition's rows have to show that keys come here by
//! their hash, and in the form that the event's key has: other bytes hash elsewhere.

use sink_api::{Offset, Rule, StatementKind};

use crate::{
    decode::{Damaged, Event},
    partitioner::partition_of,
    record::Record,
    stream::statement_id,
};

/// What the rows of a partition show of how records get there.
#[derive(Debug)]
pub(super) struct Scope {
    partition: u32,
    partitions: u32,
    /// Whether the keys of rows have schemas, as the last one showed.
    schemas: Option<bool>,
    /// Where a row stood whose key does not hash to this partition.
    stray: Option<Offset>,
}

impl Scope {
    pub(super) fn new(partition: i32, partitions: i32) -> Scope {
        let number = |number: i32| u32::try_from(number).unwrap_or_default();
        Scope { partition: number(partition), partitions: number(partitions), schemas: None, stray: None }
    }

    /// Takes note of a row; passes on what may be judged, and refuses an absence event that may be out of place.
    pub(super) fn admit(&mut self, record: &Record, event: Event) -> Event {
        if self.partitions <= 1 {
            return event;
        }
        match &event {
            Event::Row(_) => {
                let key = record.key.as_deref().unwrap_or_default();
                self.schemas = Some(has_schema(key));
                if self.stray.is_none() && !self.is_here(key) {
                    self.stray = Some(record.offset);
                }
                event
            }
            Event::Part(part) if part.claim.kind == StatementKind::Absence => {
                let Some(reason) = self.objection(record.key.as_deref().unwrap_or_default()) else { return event };
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

    fn objection(&self, key: &[u8]) -> Option<String> {
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
        match self.schemas {
            Some(schemas) if schemas == has_schema(key) => None,
            Some(_) => Some(
                "its key and those of the partition's rows are not written alike, with and without a schema".to_owned(),
            ),
            None => Some("no row came by this partition lately that would show how keys get here".to_owned()),
        }
    }

    fn is_here(&self, key: &[u8]) -> bool {
        partition_of(key, self.partitions) == self.partition
    }
}

/// Whether a key has a schema around it, as `JsonConverter` writes it.
fn has_schema(key: &[u8]) -> bool {
    key.trim_ascii_start().starts_with(b"{\"schema\"")
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

    /// Returns the ids, of 1 to 30, whose keys hash to a partition of three.
    fn of(partition: u32) -> Vec<i64> {
        (1..30).filter(|id| partition_of(change(0, *id).key.as_deref().unwrap(), 3) == partition).collect()
    }

    #[test]
    fn an_absence_event_is_judged_only_in_the_partition_of_its_key() {
        let (here, there) = (of(1), of(2));
        let mut scope = Scope::new(1, 3);

        let unseen = admitted(&mut scope, &absence(0, here[0], "a"));
        assert!(unseen.is_err_and(|reason| reason.contains("no row came by this partition")));
        assert_eq!(admitted(&mut scope, &change(1, here[1])), Ok(()));
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

        let with_schema = |record: Record, id: i64| {
            let key = format!(
                r#"{{"schema":{{"type":"struct","fields":[{{"type":"int64","optional":false,"field":"id"}}]}},"payload":{{"id":{id}}}}}"#
            );
            Record { key: Some(key.into_bytes().into()), ..record }
        };
        let event = (1..100).map(|id| (id, with_schema(absence(3, id, "b"), id)));
        let (_, event) =
            event.into_iter().find(|(_, event)| partition_of(event.key.as_deref().unwrap(), 3) == 1).unwrap();
        let mut plain = Scope::new(1, 3);
        admitted(&mut plain, &change(1, here[0])).unwrap();
        let refused = admitted(&mut plain, &event);
        assert!(refused.is_err_and(|reason| reason.contains("not written alike")));
    }
}
