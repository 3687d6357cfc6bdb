//! A record's value, one level deep: Debezium's envelope, a flattened row, or something else that Debezium writes.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    event::EventXid,
    json::{self, Broken, Name, TextOrNone},
    own::FieldNames,
};

/// The fields of a value that tell what it is.
#[derive(Debug, Default)]
pub(super) struct Top<'a> {
    pub(super) before: Option<&'a RawValue>,
    pub(super) after: Option<&'a RawValue>,
    pub(super) message: Option<&'a RawValue>,
    pub(super) op: Option<Cow<'a, str>>,
    has_op: bool,
    /// `source`, when it is an object.
    pub(super) source: Option<Source<'a>>,
    pub(super) read_id: Option<Cow<'a, str>>,
    /// What `ExtractNewRecordState` adds to a row.
    pub(super) added: Added<'a>,
    /// Whether a `source` is there that is neither an object nor null: a column of that name.
    has_source_column: bool,
    pub(super) names: FieldNames,
    twice: Option<&'static str>,
}

impl<'a> Top<'a> {
    /// Reads a value's first level.
    pub(super) fn parse(text: &'a str) -> Result<Top<'a>, Broken> {
        let mut top = Top::default();
        let mut json = serde_json::Deserializer::from_str(text);
        json.deserialize_map(TopFields(&mut top))
            .and_then(|()| json.end())
            .map_err(|error| Broken::from_serde(&error, "an object"))?;
        match top.twice {
            Some(name) => Err(Broken::Twice(name.to_owned())),
            None => Ok(top),
        }
    }

    /// Whether it is an envelope, complete or not.
    pub(super) fn is_envelope(&self) -> bool {
        self.source.is_some() && (self.op.is_some() || self.before.is_some() || self.after.is_some() || self.has_op)
    }

    /// Whether it may be an envelope that has lost its `source`: a flattened row with columns of these names looks alike.
    pub(super) fn lacks_source(&self) -> bool {
        self.op.is_some() && self.before.is_some() && self.after.is_some() && !self.has_source_column
    }

    /// Whether its source says which table it is of, as Debezium's always does.
    pub(super) fn names_table(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.table.is_some())
    }
}

struct TopFields<'t, 'a>(&'t mut Top<'a>);

impl<'de> Visitor<'de> for TopFields<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let top = self.0;
        while let Some(name) = map.next_key_seed(Name)? {
            top.names.add(&name);
            match &*name {
                "before" => set(&mut top.before, map.next_value()?, "before", &mut top.twice),
                "after" => set(&mut top.after, map.next_value()?, "after", &mut top.twice),
                "message" => set(&mut top.message, map.next_value()?, "message", &mut top.twice),
                "op" => {
                    if top.has_op {
                        top.twice = Some("op");
                    }
                    top.has_op = true;
                    top.op = map.next_value_seed(TextOrNone)?;
                }
                "source" => match map.next_value_seed(SourceField)? {
                    Origin::Source(source) => set(&mut top.source, source, "source", &mut top.twice),
                    Origin::Column => top.has_source_column = true,
                    Origin::Null => {}
                },
                "read_id" => top.read_id = map.next_value_seed(TextOrNone)?,
                name if name.starts_with("__") => top.added.take(name, map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

fn set<T>(field: &mut Option<T>, value: T, name: &'static str, twice: &mut Option<&'static str>) {
    if field.replace(value).is_some() {
        *twice = Some(name);
    }
}

/// An envelope's `source`.
#[derive(Debug, Default)]
pub(super) struct Source<'a> {
    pub(super) connector: Option<Cow<'a, str>>,
    pub(super) database: Option<Cow<'a, str>>,
    pub(super) schema: Option<Cow<'a, str>>,
    pub(super) table: Option<Cow<'a, str>>,
    snapshot: Option<Cow<'a, str>>,
    pub(super) ts_ms: Option<i64>,
    xid: Option<i64>,
}

impl Source<'_> {
    /// Returns what is known of the event's transaction. Rows of incremental snapshots have none.
    pub(super) fn xid(&self) -> EventXid {
        if self.snapshot.as_deref() == Some("incremental") {
            return EventXid::Exempt;
        }
        self.xid.and_then(|xid| u32::try_from(xid).ok()).map_or(EventXid::Unknown, EventXid::Known)
    }
}

/// What a field called `source` is.
enum Origin<'a> {
    /// An envelope's.
    Source(Source<'a>),
    /// A flattened row's column.
    Column,
    /// Either's.
    Null,
}

/// Reads `source` when it is an object; a column of this name is none.
struct SourceField;

impl<'de> DeserializeSeed<'de> for SourceField {
    type Value = Origin<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for SourceField {
    type Value = Origin<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut source = Source::default();
        while let Some(name) = map.next_key_seed(Name)? {
            match &*name {
                "name" => source.connector = map.next_value_seed(TextOrNone)?,
                "db" => source.database = map.next_value_seed(TextOrNone)?,
                "schema" => source.schema = map.next_value_seed(TextOrNone)?,
                "table" => source.table = map.next_value_seed(TextOrNone)?,
                "snapshot" => source.snapshot = map.next_value_seed(TextOrNone)?,
                "ts_ms" => source.ts_ms = integer(map.next_value()?),
                "txId" => source.xid = integer(map.next_value()?),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Origin::Source(source))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Origin::Column)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Origin::Column)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Origin::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Origin::Column)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Origin::Column)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Origin::Column)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Origin::Column)
    }
}

fn integer(raw: &RawValue) -> Option<i64> {
    raw.get().parse().ok()
}

/// What `ExtractNewRecordState` was told to add to flattened rows, as fields (`add.fields`) or headers (`add.headers`):
/// two underscores, the struct it comes from, and the field, such as `__op`, `__source_table`, `__txId`.
#[derive(Debug, Default)]
pub(super) struct Added<'a> {
    /// Whether anything was added: no other record has such fields or headers.
    pub(super) any: bool,
    pub(super) deleted: Option<bool>,
    pub(super) op: Option<Cow<'a, str>>,
    pub(super) connector: Option<Cow<'a, str>>,
    pub(super) database: Option<Cow<'a, str>>,
    pub(super) schema: Option<Cow<'a, str>>,
    pub(super) table: Option<Cow<'a, str>>,
    pub(super) ts_ms: Option<i64>,
    /// `Some(None)`: it is there and null.
    xid: Option<Option<u32>>,
    incremental: bool,
}

impl<'a> Added<'a> {
    /// Takes an added field.
    fn take(&mut self, name: &str, raw: &'a RawValue) {
        let text = match json::string(raw) {
            Some(text) => Some(text),
            None if raw.get() == "null" => None,
            None => Some(Cow::Borrowed(raw.get())),
        };
        self.set(name, text);
    }

    /// Takes an added header; fields win.
    pub(super) fn take_header(&mut self, name: &str, value: Option<&'a [u8]>) {
        let text = value.and_then(|value| std::str::from_utf8(value).ok());
        let text = text.map(|text| text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text));
        self.set(name, text.filter(|text| *text != "null").map(Cow::Borrowed));
    }

    fn set(&mut self, name: &str, text: Option<Cow<'a, str>>) {
        self.any = true;
        fn keep<T>(field: &mut Option<T>, value: Option<T>) {
            if field.is_none() {
                *field = value;
            }
        }
        match name {
            "__deleted" => keep(&mut self.deleted, text.map(|text| text == "true")),
            "__op" => keep(&mut self.op, text),
            "__name" | "__source_name" => keep(&mut self.connector, text),
            "__db" | "__source_db" => keep(&mut self.database, text),
            "__schema" | "__source_schema" => keep(&mut self.schema, text),
            "__table" | "__source_table" => keep(&mut self.table, text),
            "__source_ts_ms" => keep(&mut self.ts_ms, text.and_then(|text| text.parse().ok())),
            "__txId" | "__source_txId" => match text {
                None => keep(&mut self.xid, Some(None)),
                Some(text) => keep(&mut self.xid, text.parse().ok().map(Some)),
            },
            "__snapshot" | "__source_snapshot" => self.incremental |= text.as_deref() == Some("incremental"),
            _ => {}
        }
    }

    /// Whether the row is gone.
    pub(super) fn is_delete(&self) -> bool {
        self.deleted.unwrap_or(false) || self.op.as_deref() == Some("d")
    }

    /// Returns what is known of the event's transaction. Only rows of incremental snapshots have none where it is added.
    pub(super) fn xid(&self) -> EventXid {
        match self.xid {
            _ if self.incremental => EventXid::Exempt,
            Some(Some(xid)) => EventXid::Known(xid),
            Some(None) => EventXid::Exempt,
            None => EventXid::Unknown,
        }
    }
}
