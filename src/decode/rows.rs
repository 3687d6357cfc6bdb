//! Row changes: envelopes, flattened rows and tombstones.

use std::sync::Arc;

use sink_api::{Key, RowOp, Value};

use super::{
    Event, EventXid, OtherRecord, RowEvent, Stage,
    decoder::Decoder,
    envelope::{Added, Top},
    fault::Fault,
    key::{ReadKey, encode_value},
    row::{RowPlan, Shape, read_row},
    schema::{Schemas, Split},
    signal,
    wire::Wire,
};
use crate::record::{Record, is_statement_header};

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
        // Whoever writes such headers means a statement, however they are damaged: never a delete of the source.
        if record.headers.iter().any(|(name, _)| is_statement_header(name)) {
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
        if added.is_delete() && record.headers.iter().any(|(name, _)| is_statement_header(name)) {
            return self.absence_tombstone(record, feed);
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
}

/// Whether two values of a key column are one key: `1.0` and `1.00` are.
fn is_equal(column: &sink_api::Column, key_type: sink_api::KeyType, left: &Value, right: &Value) -> bool {
    let (mut left_bytes, mut right_bytes) = (Vec::new(), Vec::new());
    encode_value(column, key_type, left, &mut left_bytes).is_ok()
        && encode_value(column, key_type, right, &mut right_bytes).is_ok()
        && left_bytes == right_bytes
}

fn take_headers<'a>(added: &mut Added<'a>, record: &'a Record) {
    for (name, value) in &record.headers {
        if name.starts_with("__") && !name.starts_with("__debezium.") {
            added.take_header(name, value.as_deref());
        }
    }
}
