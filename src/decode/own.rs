//! Records that Debezium writes of itself: they say nothing of rows, and are passed over.
//!
//! A flattened row of a table can have the same field names as one of them, and a row that is passed over is lost. So a
//! record is one of these only when it has exactly the fields of its kind (Debezium's `SchemaFactory`, 3.6), under the
//! kind's schema name where schemas are on; one that is marked as a flattened row never is. In doubt it is a row.

use super::event::OtherRecord;

/// A kind of record, known by its value.
struct Kind {
    is: OtherRecord,
    fields: &'static [&'static str],
    /// The last part of its schema's name.
    schema: &'static str,
}

const KINDS: [Kind; 4] = [
    Kind { is: OtherRecord::Heartbeat, fields: &["ts_ms"], schema: "Heartbeat" },
    Kind {
        is: OtherRecord::Transaction,
        fields: &["status", "id", "event_count", "data_collections", "ts_ms"],
        schema: "TransactionMetadataValue",
    },
    Kind {
        is: OtherRecord::SchemaChange,
        fields: &["source", "ts_ms", "databaseName", "schemaName", "ddl", "tableChanges"],
        schema: "SchemaChangeValue",
    },
    Kind {
        is: OtherRecord::Notification,
        fields: &["id", "type", "aggregate_type", "additional_data", "timestamp"],
        schema: "Notification",
    },
];

/// All fields of these kinds.
const FIELDS: [&str; 14] = [
    "ts_ms",
    "status",
    "id",
    "event_count",
    "data_collections",
    "source",
    "databaseName",
    "schemaName",
    "ddl",
    "tableChanges",
    "type",
    "aggregate_type",
    "additional_data",
    "timestamp",
];

/// The field names of a value, as far as they matter here.
#[derive(Debug, Default)]
pub(super) struct FieldNames {
    count: usize,
    /// One bit for each of [`FIELDS`] that is there.
    known: u16,
}

impl FieldNames {
    pub(super) fn add(&mut self, name: &str) {
        self.count += 1;
        self.known |= bit(name);
    }

    /// Whether these are the fields, each once.
    fn are(&self, fields: &[&str]) -> bool {
        self.count == fields.len() && self.known == fields.iter().fold(0, |known, name| known | bit(name))
    }
}

fn bit(name: &str) -> u16 {
    FIELDS.iter().position(|field| *field == name).map_or(0, |place| 1 << place)
}

/// Returns which of Debezium's own records has these fields, under this schema name where it has a schema.
pub(super) fn known(fields: &FieldNames, schema: Option<Option<&str>>) -> Option<OtherRecord> {
    let is_named = |kind: &Kind| match schema {
        None => true,
        Some(name) => name.and_then(|name| name.strip_prefix("io.debezium.")?.rsplit('.').next()) == Some(kind.schema),
    };
    KINDS.iter().find(|kind| fields.are(kind.fields) && is_named(kind)).map(|kind| kind.is)
}

/// Whether a header is one that `ExtractNewRecordState` adds to flattened rows (`add.headers`): those of Connect and
/// Debezium itself have a dot.
pub(super) fn marks_row(header: &str) -> bool {
    header.starts_with("__") && !header.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_kind_has_its_bit() {
        assert!(KINDS.iter().flat_map(|kind| kind.fields).all(|name| bit(name) != 0));
    }
}
