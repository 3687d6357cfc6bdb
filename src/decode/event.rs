//! What a record says, once decoded.

use std::sync::Arc;

use sink_api::{Key, KeyList, KeyRange, KeySet, ReadId, RowOp, Rule, SourceName, StatementKind, TableShape};

/// A table as the source names it: connector name, database, schema and table, as far as the record says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceTable {
    /// The connector's logical name (`topic.prefix`); empty when the record does not say.
    pub connector: String,
    /// The database; empty when the record does not say.
    pub database: String,
    /// The schema.
    pub schema: String,
    /// The table.
    pub table: String,
}

impl SourceTable {
    /// Whether both may be one table: what both say is the same.
    pub(super) fn is_alike(&self, other: &SourceTable) -> bool {
        (&self.schema, &self.table) == (&other.schema, &other.table) && self.name().may_be(&other.name())
    }

    /// Returns its full name, as far as the record says it.
    pub fn name(&self) -> SourceName {
        SourceName { connector: self.connector.clone(), database: self.database.clone(), table: self.short() }
    }

    /// Returns `schema.table`, the name that statements and requests use.
    pub fn short(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }
}

/// One decoded record.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A row change, a delete or a tombstone.
    Row(RowEvent),
    /// All rows of a table are gone.
    Truncate {
        /// The sink table.
        table: Arc<TableShape>,
        /// The source's transaction, when the record carries it.
        xid: EventXid,
    },
    /// The low marker of a bracketed read.
    Low(ReadName),
    /// A statement of absence, or one part of it.
    Part(Box<Part>),
    /// A statement or marker that proves nothing: refused by name.
    Damaged(Damaged),
    /// A record that is known and says nothing about rows.
    Other(OtherRecord),
}

/// Records that are recognised and never applied as rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherRecord {
    /// A Debezium heartbeat.
    Heartbeat,
    /// A logical decoding message that is not one of ours.
    Message,
    /// Transaction metadata.
    Transaction,
    /// A schema change.
    SchemaChange,
    /// A Debezium notification.
    Notification,
    /// A row of Debezium's signal table.
    Signal,
    /// A record meant for sidecars (`advisory`).
    Advisory,
}

/// What is known of the transaction that made an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventXid {
    /// Its 32-bit transaction id, as Debezium carries it (`source.txId`).
    Known(u32),
    /// The event counts in windows only: a row of an incremental snapshot, the tombstone of a delete.
    Exempt,
    /// The stream should carry an id and does not (flattened without `txId`): visibility cannot be decided.
    Unknown,
}

/// A row change.
#[derive(Clone, Debug, PartialEq)]
pub struct RowEvent {
    /// The sink table.
    pub table: Arc<TableShape>,
    /// The source's table.
    pub source: Arc<SourceTable>,
    /// The key.
    pub key: Key,
    /// The other key of a primary-key update (`__debezium.oldkey`, `__debezium.newkey`).
    pub other_key: Option<Key>,
    /// The transaction.
    pub xid: EventXid,
    /// When the source committed it, in milliseconds since 1970-01-01 UTC, as the record says.
    pub source_ms: Option<i64>,
    /// What it does.
    pub op: RowOp,
}

/// A read and the table it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadName {
    /// The read.
    pub read_id: ReadId,
    /// The source's table, as far as the record says it.
    pub source: SourceName,
    /// The sink table.
    pub table: Arc<TableShape>,
}

/// A snapshot of the source, as `pg_current_snapshot()` writes it: `xmin:xmax:xip,...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Every transaction below was over.
    pub xmin: u64,
    /// Every transaction from here on was not visible.
    pub xmax: u64,
    /// Those between that were still running, ascending.
    pub running: Vec<u64>,
}

/// The scalar fields of a statement, which each of its parts repeats.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The read and its table.
    pub read: ReadName,
    /// The form in which it came.
    pub kind: StatementKind,
    /// The range read; for `Keys` and `Absence` the range of all keys, not used.
    pub range: KeyRange,
    /// The snapshot of the read.
    pub snapshot: Option<Snapshot>,
    /// Whether every transaction that the log holds before the low marker was visible to the read.
    pub settled: bool,
    /// An operator's ceiling on removals.
    pub confirmed: Option<u64>,
    /// How many surviving rows follow the record.
    pub rows: Option<u64>,
    /// The source's key column types, with modifiers.
    pub key_types: Option<Vec<String>>,
    /// Whether text keys were compared as bytes (`key_order`).
    pub byte_order: bool,
}

/// One part of a statement of absence; a chunk info record and an absence event are one part of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What all parts repeat.
    pub claim: Claim,
    /// This part's number, from 1.
    pub part: u32,
    /// How many parts there are.
    pub parts: u32,
    /// The keys that were asked for (`Keys`, `Absence`); empty otherwise. In the order of the record.
    pub asked: KeyList,
    /// The keys that the read returned, in the order of the record: `selected` of a chunk, `present` of `keys`.
    pub selected: KeySet,
    /// The keys that the statement itself says changed in its window (chunk info records).
    pub changed: KeySet,
}

/// A statement or marker that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The read, if the record says.
    pub read_id: Option<ReadId>,
    /// The form, as far as it can be told.
    pub kind: StatementKind,
    /// The source's table, if the record says.
    pub source_table: Option<String>,
    /// The rule that it breaks.
    pub rule: Rule,
    /// What is wrong, without key values.
    pub reason: String,
}
