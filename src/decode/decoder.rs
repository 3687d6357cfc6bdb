//! The decoder of a lane: which form a record has.
//!
//! The marks are looked at in this order, the surest first:
//!
//! | mark | the record is |
//! |---|---|
//! | header `sink-repair.kind` | a marker that the outbox router has routed |
//! | header `dblog.record: chunk-info` | a chunk info record |
//! | no value, header `dblog.op: absent` | an absence event |
//! | no value | a tombstone |
//! | topic `__debezium-heartbeat...` | a heartbeat |
//! | a `source` object and `op` | an envelope; by `op`: `c u r` a row, `d` a delete, `t` a truncate, `m` a message (ours by its prefix), `absent` an absence event |
//! | a field or header that `ExtractNewRecordState` adds (`__op`, `__table`, ...) | a flattened row |
//! | exactly the fields of one of Debezium's own records (`own.rs`) | a heartbeat, transaction metadata, a schema change, a notification |
//! | anything else that is an object | a flattened row |
//!
//! A value that is JSON `null`, or a payload that is, is a tombstone too, though none that Kafka compacts: with
//! `delete.tombstone.handling.mode=tombstone` it is all that `JsonConverter` leaves of a delete.

use std::sync::Arc;

use sink_api::{Key, SourceName, TableName, TableShape};

use super::{
    BadRecord, DecodeError, DecodeSettings, Event, OtherRecord, Stage,
    deletes::RecentDeletes,
    envelope::Top,
    fault::Fault,
    markers::connector_of,
    own,
    row::{RowPlan, Shape},
    said::Named,
    schema::Schemas,
    tables::Tables,
    wire::Wire,
};
use crate::record::{Record, is_statement_header};

/// The prefix of Debezium's heartbeat topics, by default.
const HEARTBEAT_TOPIC: &str = "__debezium-heartbeat";

/// Of a record that may be either of two things.
const NO_SOURCE: &str = "it has `op`, `before` and `after` and no `source`: either the envelope has lost its source, or it \
                         is a flattened row of a table with such columns; have the connector mark its rows then \
                         (add.headers=op)";

/// Decodes the records of one topic partition, in order.
#[derive(Debug)]
pub struct Decoder {
    pub(super) settings: Arc<DecodeSettings>,
    pub(super) topic: String,
    pub(super) tables: Tables,
    /// Schemas of keys; a plan is of one table.
    pub(super) keys: Schemas<(usize, Vec<Wire>)>,
    /// Schemas of values; a plan is of one table.
    pub(super) values: Schemas<(usize, RowPlan)>,
    /// By which a tombstone's table is found.
    pub(super) deletes: RecentDeletes,
    /// Source tables whose changes came by this topic in earlier lives, and where they went.
    pub(super) carried: Vec<(SourceName, TableName)>,
}

impl Decoder {
    /// Makes the decoder of a partition of `topic`.
    pub fn new(settings: Arc<DecodeSettings>, topic: &str) -> Decoder {
        Decoder {
            settings,
            topic: topic.to_owned(),
            tables: Tables::default(),
            keys: Schemas::new(),
            values: Schemas::new(),
            deletes: RecentDeletes::default(),
            carried: Vec::new(),
        }
    }

    /// Takes note of source tables whose changes the topic is known to carry.
    #[must_use]
    pub fn carrying(mut self, sources: Vec<(SourceName, TableName)>) -> Decoder {
        // Where a table goes may have been told otherwise since.
        let now = |(source, sink): (SourceName, TableName)| {
            let now = self.settings.mapping.sink_of(&source);
            (source, now.unwrap_or(sink))
        };
        self.carried = sources.into_iter().map(now).collect();
        self
    }

    /// Takes the shape of a sink table, in place of an earlier one of the same name.
    pub fn learn(&mut self, shape: Arc<TableShape>) {
        self.keys.forget_plans();
        self.values.forget_plans();
        self.tables.learn(shape, &self.settings);
    }

    /// Returns the sink table of a source table, as a bad record names it.
    pub fn sink_of(&self, source: &str) -> Option<&TableName> {
        self.tables.sink_of(source)
    }

    /// Takes note of a record that was given up: it may have been a delete, whose tombstone is still to come.
    pub fn unread(&mut self, record: &Record, bad: &BadRecord) {
        let Some(key) = &record.key else { return };
        let payload = record.value.as_deref().and_then(|value| self.values.split(value).ok());
        if record.value.is_none() || payload.is_some_and(|split| split.payload.trim_ascii() == "null") {
            return self.deletes.given_up(key);
        }
        self.deletes.unread(key, bad.feed);
    }

    /// Takes note that a statement's table is not to be learned.
    pub fn refused(&mut self, table: &TableName) {
        self.tables.forget_unknown(table);
    }

    /// Tells what a record says.
    ///
    /// # Errors
    /// When a table has to be learned first, when the record is bad, or when the set-up does not fit the stream. The
    /// decoder stays usable: the same record may be decoded again.
    pub fn decode(&mut self, record: &Record) -> Result<Event, DecodeError> {
        let mut feed = None;
        self.event(record, &mut feed).map_err(|fault| match fault {
            Fault::Needs(table) => DecodeError::NeedsTable { table, refused: None },
            Fault::StatementNeeds(table, refused) => DecodeError::NeedsTable { table, refused: Some(refused) },
            Fault::Setup { reason, hint } => {
                DecodeError::Setup { table: feed.map(|feed| self.tables.feed(feed).sink.clone()), reason, hint }
            }
            Fault::Bad(stage, reason) => {
                let sure = feed;
                let feed = feed.or_else(|| self.only_table());
                DecodeError::Bad(BadRecord {
                    stage,
                    feed: sure,
                    table: feed.map(|feed| self.tables.feed(feed).source.short()),
                    key: feed.filter(|_| stage != Stage::KeyConverter).and_then(|feed| self.key_of_bad(record, feed)),
                    reason,
                })
            }
        })
    }

    /// Decodes a record. As soon as its table is known, `feed` is.
    fn event(&mut self, record: &Record, feed: &mut Option<usize>) -> Result<Event, Fault> {
        let has = |name: &str| record.headers.iter().any(|(header, _)| header == name);
        // Most records have no headers but the connector's, which are not carried here.
        if !record.headers.is_empty() {
            if has("sink-repair.kind") {
                return self.routed_marker(record);
            }
            if has("dblog.record") {
                return self.chunk_info(record);
            }
        }
        let Some(value) = record.value.as_deref() else { return self.tombstone(record, feed) };
        let is_row = record.headers.iter().any(|(header, _)| own::marks_row(header));
        if self.topic.starts_with(HEARTBEAT_TOPIC) && !is_row {
            return Ok(Event::Other(OtherRecord::Heartbeat));
        }
        if value.is_empty() {
            return Err(Fault::value("the value has no bytes"));
        }
        let split = self.values.split(value)?;
        if split.payload.trim_ascii() == "null" {
            return self.tombstone(record, feed);
        }
        let top = Top::parse(split.payload)?;
        let is_row = is_row || top.added.any;
        // A column called `source` may be an object, after a transform that unpacks JSON.
        if top.is_envelope() && (!is_row || top.names_table()) {
            return self.envelope(record, &top, split.has_schema, feed);
        }
        if !is_row {
            if top.lacks_source() {
                return Err(Fault::value(NO_SOURCE));
            }
            if let Some(other) = self.own_record(record, &top, split.has_schema) {
                return Ok(Event::Other(other));
            }
        }
        self.flattened(record, top, &split, feed)
    }

    /// Returns which of Debezium's own records it is.
    fn own_record(&mut self, record: &Record, top: &Top<'_>, has_schema: bool) -> Option<OtherRecord> {
        let current = if has_schema { self.values.current() } else { None };
        let other = own::known(&top.names, current.map(|entry| entry.schema.name()))?;
        // A time alone is little to go by.
        let is_sure = other != OtherRecord::Heartbeat || record.key.as_deref().is_some_and(is_heartbeat_key);
        is_sure.then_some(other)
    }

    fn envelope(
        &mut self,
        record: &Record,
        top: &Top<'_>,
        has_schema: bool,
        feed: &mut Option<usize>,
    ) -> Result<Event, Fault> {
        let (Some(op), Some(source)) = (top.op.as_deref(), top.source.as_ref()) else {
            return Err(Fault::value("the envelope has no op"));
        };
        if op == "m" {
            return self.message(top, source, record);
        }
        let named = Named {
            connector: source.connector.as_deref().or_else(|| connector_of(record)).unwrap_or_default(),
            database: source.database.as_deref().unwrap_or_default(),
            schema: source.schema.as_deref().unwrap_or_default(),
            table: source.table.as_deref().unwrap_or_default(),
        };
        if named.table.is_empty() {
            return Err(Fault::value("the envelope's source names no table"));
        }
        let is_absence =
            op == "absent" || op == "d" && record.headers.iter().any(|(name, _)| is_statement_header(name));
        if is_absence {
            return self.absence_envelope(record, named, top.read_id.as_deref(), op == "absent", feed);
        }
        let table = self.tables.find(named, &self.settings)?;
        *feed = Some(table);
        let after = top.after.map(|raw| raw.get()).filter(|row| *row != "null");
        let before = top.before.map(|raw| raw.get()).filter(|row| *row != "null");
        if self.is_signal(table, after.or(before), None) {
            if let Some(key) = record.key.as_deref().filter(|_| op == "d") {
                self.deletes.deleted(key, table);
            }
            return Ok(Event::Other(OtherRecord::Signal));
        }
        match op {
            "c" | "u" | "r" => {
                let Some(after) = after else {
                    return Err(Fault::value(format!("the envelope of op {op} has no after")));
                };
                self.upsert(record, table, after, Shape::Envelope, has_schema, source.xid(), source.ts_ms)
            }
            "d" => self.delete(record, table, source.xid(), source.ts_ms),
            "t" => {
                let known = self.tables.feed(table).known()?;
                Ok(Event::Truncate { table: Arc::clone(&known.shape), xid: source.xid() })
            }
            _ => Err(Fault::value("the envelope's op is none of c, u, r, d, t, m and absent")),
        }
    }

    /// Returns the key of a record that is bad for another reason. Only where the table is sure: a key of another table
    /// would count as that table's change.
    fn key_of_bad(&mut self, record: &Record, feed: usize) -> Option<(Arc<TableShape>, Key)> {
        let key = self.record_key(record, feed).ok()?;
        Some((Arc::clone(self.tables.feed(feed).shape()?), key.key))
    }
}

fn is_heartbeat_key(key: &[u8]) -> bool {
    const NAME: &[u8] = b"\"serverName\"";
    key.windows(NAME.len()).any(|window| window == NAME)
}
