//! Row changes: envelopes, flattened rows and tombstones.
//!
//! An envelope says which table it is of. A flattened row says it in the fields or headers that `ExtractNewRecordState`
//! was told to add, and a tombstone in such headers. What they leave open is found, the surest first: the physical table
//! in a merged topic's key; the operator's word (`--source-table`); the key schema's name, where it is another than the
//! topic's; the delete before a tombstone, by its key; the topic's name, `connector.schema.table`, where the topic
//! carries no other table. What cannot be told is a bad record: a tombstone put down to the wrong table would delete a row.

use std::sync::Arc;

use sink_api::{Key, RowOp, SourceName, Value};

use super::{
    Event, EventXid, OtherRecord, RowEvent, Stage,
    decoder::Decoder,
    deletes::Told,
    envelope::{Added, Top},
    fault::Fault,
    key::{ReadKey, encode_value, physical_table},
    markers::connector_of,
    row::{RowPlan, Shape, read_row},
    schema::{Schemas, Split},
    signal,
    tables::{Named, Said, is_rendered},
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
        if let Some(bytes) = record.key.as_deref().filter(|bytes| self.deletes.know(bytes)) {
            for feed in self.tables.sharing_sink(feed) {
                self.deletes.lives(bytes, feed);
            }
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
        let table = self.table_of_tombstone(record, bytes, &split, &added)?;
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

    /// Finds the table of a tombstone. What it says itself leaves some of the tables met before; of those the one is meant
    /// whose last event of this key was a delete: there the tombstone takes nothing that lives. Without such a delete it
    /// has to say enough to leave one table only.
    fn table_of_tombstone(
        &mut self,
        record: &Record,
        bytes: &[u8],
        split: &Split<'_>,
        added: &Added<'_>,
    ) -> Result<usize, Fault> {
        if let Some(table) = self.table_by_certain_name(split.payload, connector_of(record))? {
            return Ok(table);
        }
        let schema_name =
            if split.has_schema { self.keys.current().and_then(|entry| entry.schema.name()) } else { None };
        let schema_name = schema_name.and_then(|name| name.strip_suffix(".Key"));
        // A router that merges topics may name the schema after the merged one; names are adjusted in schemas.
        let schema_name = schema_name.filter(|name| !is_rendered(name, &self.topic)).map(str::to_owned);
        let said = Said { named: named(record, added), schema_name: schema_name.as_deref() };
        let fitting = self.tables.fitting(&said);
        match self.deletes.told(bytes, &fitting) {
            Told::Of(table) => return Ok(table),
            Told::Unread if !said.names_table() => return Err(unnamed_tombstone()),
            Told::Unread | Told::Nothing => {}
        }
        if !said.names_table() {
            // A name without its schema is of the topic's own table, or of the operator's.
            return match said.named.table {
                "" => self.table_of_lone_topic(&said.named, &fitting),
                _ => self.table_of_row(record, added),
            };
        }
        if fitting.is_empty() {
            return self.table_not_met(record, added, &said);
        }
        let Some(table) = self.tables.one_of(&fitting) else { return Err(unnamed_tombstone()) };
        let feed = self.tables.feed(table);
        let (source, sink) = (feed.source.name(), &feed.sink);
        // Of a table that no record has come of in this life it may be as well.
        let mut known = self.carried.iter().filter(|(carried, _)| said.fits(carried));
        match known.all(|(known, known_sink)| known.may_be(&source) && known_sink == sink) {
            true => Ok(table),
            false => Err(unnamed_tombstone()),
        }
    }

    /// Returns the number of a table that a tombstone names and that no record has come of in this life: one that the topic
    /// is known to carry, else the one of that very name. A schema's name may be another table's, written otherwise.
    fn table_not_met(&mut self, record: &Record, added: &Added<'_>, said: &Said<'_>) -> Result<usize, Fault> {
        let mut known = self.carried.iter().filter(|(carried, _)| said.fits(carried)).cloned();
        let first = known.next();
        if let Some((first, sink)) = first {
            if known.any(|(other, other_sink)| !other.may_be(&first) || other_sink != sink) {
                return Err(unnamed_tombstone());
            }
            let (schema, table) = first.table.split_once('.').ok_or_else(unnamed_tombstone)?;
            if table.contains('.') {
                return Err(unnamed_tombstone());
            }
            let Named { connector, database, .. } = said.named;
            let connector = if connector.is_empty() { &first.connector } else { connector };
            let database = if database.is_empty() { &first.database } else { database };
            return self.tables.find(Named { connector, database, schema, table }, &self.settings);
        }
        let Some(name) = said.schema_name.filter(|_| said.named.table.is_empty() || said.named.schema.is_empty())
        else {
            return self.table_of_row(record, added);
        };
        if name.contains('_') {
            return Err(unnamed_tombstone());
        }
        let by_name = topic_parts(name).ok_or_else(unnamed_tombstone)?;
        let connector = self.connector_or_topics(said.named.connector, by_name.connector);
        self.tables.find(Named { connector, ..by_name }, &self.settings)
    }

    /// Finds the table of a tombstone that says nothing: the topic's only one.
    fn table_of_lone_topic(&mut self, named: &Named<'_>, fitting: &[usize]) -> Result<usize, Fault> {
        if let Some(table) = self.only_table().filter(|table| fitting.contains(table)) {
            return Ok(table);
        }
        let topic = self.topic.clone();
        match topic_parts(&topic) {
            Some(by_topic) if self.tables.is_empty() && self.carries_only(&short_name(by_topic)) => {
                let connector = self.connector_or_topics(named.connector, by_topic.connector);
                self.tables.find(Named { connector, ..by_topic }, &self.settings)
            }
            _ => Err(unnamed_tombstone()),
        }
    }

    fn table_of_row(&mut self, record: &Record, added: &Added<'_>) -> Result<usize, Fault> {
        let topic = self.topic.clone();
        let by_topic = topic_parts(&topic).unwrap_or_default();
        let named = named(record, added);
        let table = named.table;
        if !table.is_empty() {
            let is_topics = by_topic.table == table;
            let assigned = self.settings.mapping.assigned(&topic).filter(|(_, assigned)| *assigned == table);
            let assigned = assigned.map(|(schema, _)| schema.to_owned());
            let schema = match (named.schema, &assigned) {
                ("", Some(schema)) => schema,
                ("", None) if is_topics => by_topic.schema,
                ("", None) => return Err(self.unnamed_table()),
                (schema, _) => schema,
            };
            let is_topics = is_topics && by_topic.schema == schema;
            let topics = if is_topics { by_topic.connector } else { "" };
            let connector = self.connector_or_topics(named.connector, topics);
            return self.find_partial(Named { connector, schema, ..named });
        }
        let key = record.key.as_deref().and_then(|key| self.keys.split(key).ok()).map(|split| split.payload.to_owned());
        if let Some(table) = self.table_by_certain_name(key.as_deref().unwrap_or_default(), connector_of(record))? {
            return Ok(table);
        }
        if by_topic.table.is_empty() {
            return Err(self.unnamed_table());
        }
        let connector = self.connector_or_topics(named.connector, by_topic.connector);
        self.find_partial(Named { connector, database: named.database, ..by_topic })
    }

    /// Finds the table of this name; what it leaves open is taken from the one table that it fits, of those met and of those
    /// that the topic is known to carry.
    fn find_partial(&mut self, named: Named<'_>) -> Result<usize, Fault> {
        let said = Said { named, schema_name: None };
        let known = self.carried.iter().map(|(carried, _)| carried).filter(|carried| said.fits(carried));
        let is_one = SourceName::are_one(known);
        // Where the connector decides where a row goes, what is not said is not guessed.
        let is_sure = !named.connector.is_empty() || !self.settings.mapping.needs_connector();
        match is_one && is_sure {
            true => self.tables.find_partial(named, &self.settings),
            false => self.tables.find(named, &self.settings),
        }
    }

    /// Returns the connector that a record names; the topic's name only says where rows go, where that depends on it: a
    /// topic may be called otherwise.
    fn connector_or_topics<'n>(&self, said: &'n str, topics: &'n str) -> &'n str {
        if said.is_empty() && self.settings.mapping.needs_connector() { topics } else { said }
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
    fn table_by_certain_name(&mut self, key: &str, connector: Option<&str>) -> Result<Option<usize>, Fault> {
        if let Some(physical) = physical_table(key)
            && let Some(named) = topic_parts(&physical)
        {
            let connector = connector.unwrap_or(named.connector);
            return self.find_partial(Named { connector, ..named }).map(Some);
        }
        let assigned = self.settings.mapping.assigned(&self.topic);
        let Some((schema, table)) = assigned.map(|(schema, table)| (schema.to_owned(), table.to_owned())) else {
            return Ok(None);
        };
        let connector = connector.unwrap_or_default();
        let named = Named { connector, schema: &schema, table: &table, ..Named::default() };
        self.find_partial(named).map(Some)
    }

    /// Returns the table that the topic is named after, where no other one is known to come by it.
    pub(super) fn only_table(&mut self) -> Option<usize> {
        let table = self.table_of_topic()?;
        let source = self.tables.feed(table).source.name();
        (self.tables.are_all(&source) && self.carries_only(&source)).then_some(table)
    }

    /// Whether all that the topic is known to carry may be one table, and this one.
    fn carries_only(&self, source: &SourceName) -> bool {
        SourceName::are_one(self.carried.iter().map(|(carried, _)| carried).chain([source]))
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

fn unnamed_tombstone() -> Fault {
    let reason = "the tombstone does not say its table, or says what fits several; no delete right before it says it (it \
                  may lie too far back, before a restart: then it was applied, and the tombstone can be stepped over), \
                  and by the topic's name it cannot be told, or other tables come by this topic too; of a topic with \
                  one table name it with --source-table; of flattened rows have the connector say it \
                  (add.headers=source.name,source.schema,source.table)";
    Fault::Bad(Stage::TaskPut, reason.to_owned())
}

fn take_headers<'a>(added: &mut Added<'a>, record: &'a Record) {
    for (name, value) in &record.headers {
        if name.starts_with("__") && !name.starts_with("__debezium.") {
            added.take_header(name, value.as_deref());
        }
    }
}

/// Returns what a flattened row or a tombstone says of its table.
fn named<'a>(record: &'a Record, added: &'a Added<'_>) -> Named<'a> {
    let text = |text: &'a Option<std::borrow::Cow<'_, str>>| text.as_deref().unwrap_or_default();
    let connector = added.connector.as_deref().or_else(|| connector_of(record)).unwrap_or_default();
    Named { connector, database: text(&added.database), schema: text(&added.schema), table: text(&added.table) }
}

/// Returns a table's name without what the topic's own name says of its connector, which may be another's.
fn short_name(named: Named<'_>) -> SourceName {
    SourceName::of_table(format!("{}.{}", named.schema, named.table))
}

/// Takes a topic's name apart: `connector.schema.table`. The connector's own name may have dots.
pub(super) fn topic_parts(topic: &str) -> Option<Named<'_>> {
    let (rest, table) = topic.rsplit_once('.')?;
    let (connector, schema) = rest.rsplit_once('.')?;
    let is_whole = [connector, schema, table].iter().all(|part| !part.is_empty());
    is_whole.then_some(Named { connector, database: "", schema, table })
}
