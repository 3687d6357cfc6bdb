//! Row changes: envelopes, flattened rows and tombstones.
//!
//! An envelope says which table it is of. A flattened row says it in the fields or headers that `ExtractNewRecordState`
//! was told to add, and a tombstone in such headers. What they leave open is found, the surest first: the physical table
//! in a merged topic's key; the operator's word (`--source-table`); the key schema's name, where it is another than the
//! topic's; the delete before a tombstone, by its key; the topic's name, `connector.schema.table`, where the topic
//! carries no other table. What cannot be told is a bad record: a tombstone put down to the wrong table would delete a row.

use std::sync::Arc;

use sink_api::{Key, RowOp, Value};

use super::{
    Event, EventXid, OtherRecord, RowEvent, Stage,
    decoder::Decoder,
    deletes::Told,
    envelope::{Added, Top},
    fault::Fault,
    key::{ReadKey, encode_value, physical_table},
    row::{RowPlan, Shape, read_row},
    schema::{Schemas, Split},
    signal,
    tables::Named,
    wire::Wire,
};
use crate::record::Record;

impl Decoder {
    /// A row that the key has now. `row` is its JSON.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn upsert(
        &mut self,
        record: &Record,
        feed: usize,
        row: &str,
        form: Shape,
        has_schema: bool,
        xid: EventXid,
        source_ms: Option<i64>,
    ) -> Result<Event, Fault> {
        if let Some(bytes) = &record.key {
            self.deletes.lives(bytes, feed);
        }
        let key = self.record_key(record, feed)?;
        let known = self.tables.feed(feed).known()?;
        let shape = Arc::clone(&known.shape);
        let settings = &self.settings;
        let current = if has_schema { self.values.current() } else { None };
        let mut values = match (current, form) {
            (Some(entry), _) => {
                let plan = match &mut entry.plan {
                    Some((table, plan)) if *table == feed => plan,
                    plan => {
                        let schema = match form {
                            Shape::Envelope => entry.schema.field("after").unwrap_or(&entry.schema),
                            Shape::Flattened => &entry.schema,
                        };
                        &mut plan.insert((feed, RowPlan::of_schema(schema, &shape, form, settings))).1
                    }
                };
                read_row(plan, &shape, row, form, settings)?
            }
            (None, Shape::Envelope) => read_row(&mut known.envelope, &shape, row, form, settings)?,
            (None, Shape::Flattened) => read_row(&mut known.flattened, &shape, row, form, settings)?,
        };
        if values.iter().all(|value| *value == Value::Absent) {
            return Err(Fault::Bad(Stage::TaskPut, format!("the row has none of the columns of {}", shape.name)));
        }
        let known = self.tables.feed(feed).known()?;
        for (place, value) in key.values.iter().enumerate() {
            let (key_column, key_type) = (&shape.key[place], known.key()?.types[place]);
            let column = &shape.columns[key_column.column];
            let own = &mut values[key_column.column];
            if column.generated {
                continue;
            }
            if own.keeps_old() {
                *own = value.clone();
            } else if own != value && !is_equal(column, key_type, own, value) {
                return Err(Fault::Bad(
                    Stage::TaskPut,
                    format!("key column `{}`: the record's key and its row disagree", column.name),
                ));
            }
        }
        let other_key = self.other_key(record, feed)?;
        Ok(self.row_event(feed, key.key, other_key, xid, source_ms, RowOp::Upsert(values.into()), &shape))
    }

    /// The key has no row any more.
    pub(super) fn delete(
        &mut self,
        record: &Record,
        feed: usize,
        xid: EventXid,
        source_ms: Option<i64>,
    ) -> Result<Event, Fault> {
        let key = self.record_key(record, feed)?;
        let other_key = self.other_key(record, feed)?;
        if let Some(bytes) = &record.key {
            self.deletes.deleted(bytes, feed);
        }
        let shape = Arc::clone(&self.tables.feed(feed).known()?.shape);
        Ok(self.row_event(feed, key.key, other_key, xid, source_ms, RowOp::Delete, &shape))
    }

    #[allow(clippy::too_many_arguments)]
    fn row_event(
        &mut self,
        feed: usize,
        key: Key,
        other_key: Option<Key>,
        xid: EventXid,
        source_ms: Option<i64>,
        op: RowOp,
        shape: &Arc<sink_api::TableShape>,
    ) -> Event {
        let source = Arc::clone(&self.tables.feed(feed).source);
        Event::Row(RowEvent { table: Arc::clone(shape), source, key, other_key, xid, source_ms, op })
    }

    /// A record without a value: a delete, of whatever form.
    pub(super) fn tombstone(&mut self, record: &Record, feed: &mut Option<usize>) -> Result<Event, Fault> {
        let Some(bytes) = record.key.as_deref() else {
            return Err(Fault::key("the record has neither key nor value"));
        };
        if record.header("dblog.op").is_some() {
            return self.absence_tombstone(record, feed);
        }
        let split = self.keys.split(bytes).map_err(|broken| Fault::key(format!("the key {broken}")))?;
        let mut added = Added::default();
        take_headers(&mut added, record);
        let table = match added.table {
            Some(_) => self.table_of_row(record, &added)?,
            None => self.table_of_tombstone(bytes, &split)?,
        };
        *feed = Some(table);
        if self.is_signal(table, None, Some(split.payload)) {
            return Ok(Event::Other(OtherRecord::Signal));
        }
        let xid = match added.xid() {
            EventXid::Known(xid) => EventXid::Known(xid),
            _ => EventXid::Exempt,
        };
        let key = self.record_key(record, table)?;
        let other_key = self.other_key(record, table)?;
        let shape = Arc::clone(&self.tables.feed(table).known()?.shape);
        Ok(self.row_event(table, key.key, other_key, xid, None, RowOp::Delete, &shape))
    }

    /// A row without an envelope.
    pub(super) fn flattened<'a>(
        &mut self,
        record: &'a Record,
        mut top: Top<'a>,
        split: &Split<'a>,
        feed: &mut Option<usize>,
    ) -> Result<Event, Fault> {
        take_headers(&mut top.added, record);
        let added = top.added;
        let table = self.table_of_row(record, &added)?;
        *feed = Some(table);
        if self.is_signal(table, Some(split.payload), None) {
            return Ok(Event::Other(OtherRecord::Signal));
        }
        if added.is_delete() {
            return self.delete(record, table, added.xid(), added.ts_ms);
        }
        self.upsert(record, table, split.payload, Shape::Flattened, split.has_schema, added.xid(), added.ts_ms)
    }

    /// Whether a record is of the signal table; once seen to be, a table stays it.
    pub(super) fn is_signal(&mut self, feed: usize, row: Option<&str>, key: Option<&str>) -> bool {
        let feed = self.tables.feed(feed);
        if !feed.is_signal && !feed.is_known() {
            feed.is_signal = row.is_some_and(signal::is_signal_row) || key.is_some_and(signal::is_window_key);
        }
        feed.is_signal
    }

    /// Reads a record's key as one of a table.
    pub(super) fn record_key(&mut self, record: &Record, feed: usize) -> Result<ReadKey, Fault> {
        let no_key = || Fault::key("the record has no key, and without one its row cannot be told from others");
        let bytes = record.key.as_deref().ok_or_else(no_key)?;
        let split = self.keys.split(bytes).map_err(|broken| Fault::key(format!("the key {broken}")))?;
        if matches!(split.payload.trim_ascii(), "" | "null") {
            return Err(no_key());
        }
        let known = self.tables.feed(feed).known()?;
        let current = if split.has_schema { self.keys.current() } else { None };
        let Some(entry) = current else {
            let read = known.key()?.read(&known.assumed_key, split.payload)?;
            return Ok(known.seen(read));
        };
        let wires = match &mut entry.plan {
            Some((table, wires)) if *table == feed => wires,
            plan => {
                let wires = known.key()?.of_schema(&entry.schema);
                known.schema_key = Some(wires.clone());
                &mut plan.insert((feed, wires)).1
            }
        };
        let read = known.key()?.read(wires, split.payload)?;
        Ok(known.seen(read))
    }

    /// Reads the other key of a primary-key update, which stands in a header without a schema.
    fn other_key(&mut self, record: &Record, feed: usize) -> Result<Option<Key>, Fault> {
        if record.headers.is_empty() {
            return Ok(None);
        }
        let header =
            ["__debezium.newkey", "__debezium.oldkey"].into_iter().find_map(|name| Some((name, record.header(name)?)));
        let Some((name, bytes)) = header else { return Ok(None) };
        let known = self.tables.feed(feed).known()?;
        let key = known.key()?;
        let unread = |reason: String| Fault::key(format!("header `{name}`: {reason}"));
        let mut schemas = Schemas::<()>::new();
        let split = schemas.split(bytes).map_err(|broken| unread(format!("the key {broken}")))?;
        let wires = known.schema_key.as_ref().unwrap_or(&known.assumed_key);
        // The header converter writes Connect's own dates and decimals as text.
        let plain = || key.read(&vec![Wire::Plain; key.types.len()], split.payload);
        match key.read(wires, split.payload).or_else(|fault| plain().map_err(|_| fault)) {
            Ok(read) => Ok(Some(read.key)),
            Err(Fault::Bad(_, reason)) => Err(unread(reason)),
            Err(fault) => Err(fault),
        }
    }

    fn table_of_tombstone(&mut self, bytes: &[u8], split: &Split<'_>) -> Result<usize, Fault> {
        if let Some(table) = self.table_by_certain_name(split.payload)? {
            return Ok(table);
        }
        let schema_name =
            if split.has_schema { self.keys.current().and_then(|entry| entry.schema.name()) } else { None };
        let named = schema_name.and_then(|name| name.strip_suffix(".Key"));
        // A router that merges topics may name the schema after the merged one; names are adjusted in schemas.
        if let Some(physical) = named.filter(|named| !is_adjusted(named, &self.topic)).map(str::to_owned) {
            return self.table_of_schema(&physical);
        }
        match self.deletes.told(bytes) {
            Told::Of(table) => return Ok(table),
            Told::Unread => return Err(unnamed_tombstone()),
            Told::Nothing => {}
        }
        if let Some(table) = self.only_table() {
            return Ok(table);
        }
        match topic_parts(&self.topic) {
            Some(named) if self.tables.is_empty() && self.carries_only(named.schema, named.table) => {
                self.tables.find(named, &self.settings)
            }
            _ => Err(unnamed_tombstone()),
        }
    }

    /// Finds the table whose own topic a key's schema is named after.
    fn table_of_schema(&mut self, physical: &str) -> Result<usize, Fault> {
        if let Some(table) = self.tables.of_topic(physical) {
            return Ok(table);
        }
        let named = topic_parts(physical).ok_or_else(unnamed_tombstone)?;
        let connector = if self.settings.mapping.needs_connector() { named.connector } else { "" };
        self.tables.find_partial(Named { connector, ..named }, &self.settings)
    }

    fn table_of_row(&mut self, record: &Record, added: &Added<'_>) -> Result<usize, Fault> {
        let topic = self.topic.clone();
        let by_topic = topic_parts(&topic).unwrap_or_default();
        if let Some(table) = added.table.as_deref() {
            let is_topics = by_topic.table == table;
            let assigned = self.settings.mapping.assigned(&topic).filter(|(_, assigned)| *assigned == table);
            let assigned = assigned.map(|(schema, _)| schema.to_owned());
            let schema = match (added.schema.as_deref(), &assigned) {
                (Some(schema), _) => schema,
                (None, Some(schema)) => schema,
                (None, None) if is_topics => by_topic.schema,
                (None, None) => return Err(self.unnamed_table()),
            };
            let connector = match added.connector.as_deref() {
                Some(connector) => connector,
                None if is_topics && by_topic.schema == schema => by_topic.connector,
                None => "",
            };
            let database = added.database.as_deref().unwrap_or_default();
            return self.tables.find_partial(Named { connector, database, schema, table }, &self.settings);
        }
        let key = record.key.as_deref().and_then(|key| self.keys.split(key).ok()).map(|split| split.payload.to_owned());
        if let Some(table) = self.table_by_certain_name(key.as_deref().unwrap_or_default())? {
            return Ok(table);
        }
        let Some(by_topic) = topic_parts(&topic) else { return Err(self.unnamed_table()) };
        let connector = added.connector.as_deref().unwrap_or(by_topic.connector);
        let database = added.database.as_deref().unwrap_or_default();
        self.tables.find_partial(Named { connector, database, ..by_topic }, &self.settings)
    }

    fn unnamed_table(&self) -> Fault {
        Fault::Setup {
            reason: format!("topic `{}` carries flattened rows that do not say their table", self.topic),
            hint: format!(
                "start with --source-table {}=SCHEMA.TABLE, or have the connector say it (add.fields=schema,table)",
                self.topic
            ),
        }
    }

    /// Finds the table that the key's physical table or the operator names.
    fn table_by_certain_name(&mut self, key: &str) -> Result<Option<usize>, Fault> {
        if let Some(physical) = physical_table(key)
            && let Some(named) = topic_parts(&physical)
        {
            return self.tables.find_partial(named, &self.settings).map(Some);
        }
        let assigned = self.settings.mapping.assigned(&self.topic);
        let Some((schema, table)) = assigned.map(|(schema, table)| (schema.to_owned(), table.to_owned())) else {
            return Ok(None);
        };
        let named = Named { schema: &schema, table: &table, ..Named::default() };
        self.tables.find_partial(named, &self.settings).map(Some)
    }

    /// Returns the table that the topic is named after, where no other one is known to come by it.
    pub(super) fn only_table(&mut self) -> Option<usize> {
        let table = self.table_of_topic()?;
        let source = Arc::clone(&self.tables.feed(table).source);
        let alone = self.tables.are_all(&source) && self.carries_only(&source.schema, &source.table);
        alone.then_some(table)
    }

    fn carries_only(&self, schema: &str, table: &str) -> bool {
        let is_it = |source: &str| source.strip_prefix(schema).and_then(|rest| rest.strip_prefix('.')) == Some(table);
        let sinks = if self.settings.mapping.needs_connector() { self.carried.len() } else { 1 };
        sinks <= 1 && self.carried.iter().all(|(source, _)| is_it(source))
    }

    /// Returns the table met before that the topic is named after.
    pub(super) fn table_of_topic(&self) -> Option<usize> {
        self.tables.of_topic(&self.topic)
    }
}

/// Whether two values of a key column are one key: `1.0` and `1.00` are.
fn is_equal(column: &sink_api::Column, key_type: sink_api::KeyType, left: &Value, right: &Value) -> bool {
    let (mut left_bytes, mut right_bytes) = (Vec::new(), Vec::new());
    encode_value(column, key_type, left, &mut left_bytes).is_ok()
        && encode_value(column, key_type, right, &mut right_bytes).is_ok()
        && left_bytes == right_bytes
}

/// Whether a schema's name is a topic's, but for characters that schemas may not have.
fn is_adjusted(name: &str, topic: &str) -> bool {
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() { byte } else { b'_' };
    name.len() == topic.len() && name.bytes().zip(topic.bytes()).all(|(left, right)| plain(left) == plain(right))
}

fn unnamed_tombstone() -> Fault {
    let reason = "the tombstone does not say its table; no delete right before it says it, and by the topic's name it \
                  cannot be told, or other tables come by this topic too; of a topic with one table name it with \
                  --source-table; of flattened rows have the connector say it (add.headers=source.schema,source.table)";
    Fault::Bad(Stage::TaskPut, reason.to_owned())
}

fn take_headers<'a>(added: &mut Added<'a>, record: &'a Record) {
    for (name, value) in &record.headers {
        if name.starts_with("__") && !name.starts_with("__debezium.") {
            added.take_header(name, value.as_deref());
        }
    }
}

/// Takes a topic's name apart: `connector.schema.table`. The connector's own name may have dots.
pub(super) fn topic_parts(topic: &str) -> Option<Named<'_>> {
    let (rest, table) = topic.rsplit_once('.')?;
    let (connector, schema) = rest.rsplit_once('.')?;
    let is_whole = [connector, schema, table].iter().all(|part| !part.is_empty());
    is_whole.then_some(Named { connector, database: "", schema, table })
}
