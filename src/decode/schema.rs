//! Schemas as Connect's `JsonConverter` writes them before each value, at almost no cost.
//!
//! `{"schema": S, "payload": P}`: `S` is the same bytes from record to record until the table changes, and four fifths
//! of the record. So the bytes before `P` are remembered with what they mean; a record that starts with remembered bytes
//! is its payload. Told apart record by record: a converter that is switched over in mid-stream does no harm.

use std::{collections::HashMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{
    json::{self, Broken},
    modes::BinaryMode,
    wire::{Unit, Wire},
};

/// How many schemas a lane remembers: the tables of a shared topic, with a version or two each.
const REMEMBERED: usize = 64;

/// A schema, as far as decoding needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Schema {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    field: Option<String>,
    #[serde(default)]
    fields: Vec<Schema>,
    #[serde(default)]
    items: Option<Box<Schema>>,
    #[serde(default)]
    parameters: Option<HashMap<String, String>>,
}

impl Schema {
    /// Returns the schema's own name.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the schema of a struct's field.
    pub(super) fn field(&self, name: &str) -> Option<&Schema> {
        self.fields.iter().find(|field| field.field.as_deref() == Some(name))
    }

    /// Iterates over a struct's fields.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&str, &Schema)> {
        self.fields.iter().filter_map(|field| Some((field.field.as_deref()?, field)))
    }

    /// Returns how values of the schema are written.
    pub(super) fn wire(&self) -> Wire {
        let name = self.name.as_deref().unwrap_or_default();
        let meaning = name
            .strip_prefix("io.debezium.time.")
            .or_else(|| name.strip_prefix("io.debezium.data."))
            .or_else(|| name.strip_prefix("org.apache.kafka.connect.data."));
        match meaning {
            Some("Decimal") => match self.parameters.as_ref().and_then(|all| all.get("scale")?.parse().ok()) {
                Some(scale) => Wire::Decimal(scale),
                None => Wire::Unknown("Decimal without a scale".into()),
            },
            Some("VariableScaleDecimal") => Wire::VariableDecimal,
            Some("Date") => Wire::Days,
            Some("Time") => Wire::Time(Unit::Millis),
            Some("MicroTime") => Wire::Time(Unit::Micros),
            Some("NanoTime") => Wire::Time(Unit::Nanos),
            Some("Timestamp") => Wire::Timestamp(Unit::Millis),
            Some("MicroTimestamp") => Wire::Timestamp(Unit::Micros),
            Some("NanoTimestamp") => Wire::Timestamp(Unit::Nanos),
            Some("ZonedTimestamp") => Wire::ZonedTimestamp,
            Some("ZonedTime") => Wire::ZonedTime,
            Some("IsoDate") => Wire::IsoDate,
            Some("IsoTime") => Wire::IsoTime,
            Some("IsoTimestamp") => Wire::IsoTimestamp,
            Some("MicroDuration") => Wire::Duration(Unit::Micros),
            Some("NanoDuration") => Wire::Duration(Unit::Nanos),
            Some("Bits") => Wire::Bits,
            Some("geometry.Point") => Wire::Point,
            Some("geometry.Geometry" | "geometry.Geography") => Wire::Geometry,
            Some("FloatVector" | "DoubleVector") => Wire::Vector,
            _ => self.plain_wire(name),
        }
    }

    fn plain_wire(&self, name: &str) -> Wire {
        match self.kind.as_str() {
            "boolean" => Wire::Bool,
            "int8" | "int16" | "int32" | "int64" => Wire::Int,
            "float" => Wire::Float32,
            "double" => Wire::Float64,
            "string" => Wire::Text,
            "bytes" => Wire::Binary(BinaryMode::Bytes),
            "map" => Wire::Map,
            "array" => match &self.items {
                Some(items) => Wire::Array(Box::new(items.wire())),
                None => Wire::Unknown("array without items".into()),
            },
            kind if name.is_empty() => Wire::Unknown(kind.into()),
            _ => Wire::Unknown(name.into()),
        }
    }
}

/// A remembered schema and the plan `P` that was made of it for one table.
#[derive(Debug)]
pub(super) struct Entry<P> {
    /// All bytes before the payload.
    prefix: Box<[u8]>,
    pub(super) schema: Schema,
    pub(super) plan: Option<P>,
}

/// The schemas of a lane's keys, or of its values.
#[derive(Debug)]
pub(super) struct Schemas<P> {
    /// The last one used comes first.
    entries: Vec<Entry<P>>,
}

/// A record's key or value, without its schema.
#[derive(Debug)]
pub(super) struct Split<'a> {
    pub(super) payload: &'a str,
    /// Whether there was a schema: it is [`Schemas::current`] then.
    pub(super) has_schema: bool,
}

impl<P> Schemas<P> {
    pub(super) fn new() -> Schemas<P> {
        Schemas { entries: Vec::new() }
    }

    /// Returns the schema that the last split record had.
    pub(super) fn current(&mut self) -> Option<&mut Entry<P>> {
        self.entries.first_mut()
    }

    /// Drops all plans.
    pub(super) fn forget_plans(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.plan = None);
    }

    /// Separates payload from schema.
    pub(super) fn split<'a>(&mut self, bytes: &'a [u8]) -> Result<Split<'a>, Broken> {
        if let Some(index) = self.entries.iter().position(|entry| bytes.starts_with(&entry.prefix)) {
            if index > 0 {
                self.entries[..=index].rotate_right(1);
            }
            let rest = json::utf8(&bytes[self.entries[0].prefix.len()..])?;
            let payload = rest.trim_ascii_end().strip_suffix('}').ok_or(Broken::CutOff)?;
            return Ok(Split { payload, has_schema: true });
        }
        let text = json::utf8(bytes)?;
        if !begins_with_schema(text) {
            return Ok(Split { payload: text, has_schema: false });
        }
        let wrapped: Wrapped<'a> =
            serde_json::from_str(text).map_err(|error| Broken::from_serde(&error, "an object"))?;
        match (wrapped.schema, wrapped.payload, wrapped.others) {
            (Some(schema), Some(payload), 0) if schema.get() == "null" => {
                Ok(Split { payload: payload.get(), has_schema: false })
            }
            (Some(schema), Some(payload), 0) if schema.get().starts_with('{') => {
                let schema = serde_json::from_str(schema.get())
                    .map_err(|error| Broken::from_serde(&error, "a schema as Connect writes it"))?;
                self.remember(text, payload.get(), schema);
                Ok(Split { payload: payload.get(), has_schema: true })
            }
            (Some(schema), None, 0) if schema.get().starts_with('{') => {
                Err(Broken::Kind("whole: it has a schema and no payload"))
            }
            _ => Ok(Split { payload: text, has_schema: false }),
        }
    }

    fn remember(&mut self, text: &str, payload: &str, schema: Schema) {
        let start = payload.as_ptr() as usize - text.as_ptr() as usize;
        self.entries.truncate(REMEMBERED - 1);
        self.entries.insert(0, Entry { prefix: text.as_bytes()[..start].into(), schema, plan: None });
    }
}

/// Whether a text is an object whose first field is `schema`, where `JsonConverter` puts it.
fn begins_with_schema(text: &str) -> bool {
    let inner = text.trim_ascii_start().strip_prefix('{').map(str::trim_ascii_start);
    inner.is_some_and(|inner| inner.starts_with("\"schema\""))
}

/// The two fields of a wrapped value.
struct Wrapped<'a> {
    schema: Option<&'a RawValue>,
    payload: Option<&'a RawValue>,
    others: usize,
}

impl<'de: 'a, 'a> Deserialize<'de> for Wrapped<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Wrapped<'a>, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Wrapped<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Wrapped<'de>, A::Error> {
                let mut wrapped = Wrapped { schema: None, payload: None, others: 0 };
                while let Some(name) = map.next_key_seed(json::Name)? {
                    match &*name {
                        "schema" if wrapped.schema.is_none() => wrapped.schema = Some(map.next_value()?),
                        "payload" if wrapped.payload.is_none() => wrapped.payload = Some(map.next_value()?),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            wrapped.others += 1;
                        }
                    }
                }
                Ok(wrapped)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}
