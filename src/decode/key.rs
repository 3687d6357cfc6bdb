//! Keys: from a record's key to the canonical encoding.

use std::sync::Arc;

use serde_json::value::RawValue;
use sink_api::{Column, Key, KeyType, KeyValue, TableShape, Value};

use super::{
    DecodeSettings,
    fault::Fault,
    json::{self, Broken, Kind},
    modes::BinaryMode,
    row::explain,
    same_value,
    schema::Schema,
    value::{self, Reading},
    wire::Wire,
};

/// What a router that merges topics adds to keys.
const PHYSICAL_TABLE: &str = "__dbz__physicalTableIdentifier";

/// A key that was read.
#[derive(Clone, Debug)]
pub(super) struct ReadKey {
    pub(super) key: Key,
    /// The key columns' values, in key order.
    pub(super) values: Vec<Value>,
    /// Whether they stood in the order of the sink's primary key, if they are several.
    pub(super) in_order: Option<bool>,
}

/// The key columns of a table, in key order, with how their values are encoded.
#[derive(Clone, Debug)]
pub(super) struct KeyColumns {
    pub(super) shape: Arc<TableShape>,
    pub(super) types: Vec<KeyType>,
    /// Debezium's text form of bytes.
    pub(super) binary: BinaryMode,
    /// Of a statement's keys: which columns are `oid` at the source.
    pub(super) oids: Vec<bool>,
}

impl KeyColumns {
    /// Iterates over the columns, in key order.
    pub(super) fn columns(&self) -> impl Iterator<Item = &Column> {
        self.shape.key.iter().map(|key| &self.shape.columns[key.column])
    }

    /// Returns the same for keys of a statement that names the source's types.
    pub(super) fn of_sources(&self, types: Option<&[String]>) -> KeyColumns {
        let is_oid = |source_type: &String| same_value::is_oid(source_type);
        KeyColumns { oids: types.unwrap_or_default().iter().map(is_oid).collect(), ..self.clone() }
    }

    /// Whether a key column is `oid` at the source.
    pub(super) fn is_oid(&self, place: usize) -> bool {
        self.oids.get(place).is_some_and(|is_oid| *is_oid)
    }

    /// Returns how the columns' values are written where no schema says it.
    pub(super) fn assumed(&self, settings: &DecodeSettings) -> Vec<Wire> {
        self.columns().map(|column| Wire::assumed(&column.column_type, &settings.modes)).collect()
    }

    /// Returns how a schema says that the columns' values are written.
    pub(super) fn of_schema(&self, schema: &Schema) -> Vec<Wire> {
        let bare = self.types.len() == 1 && schema.fields().next().is_none();
        self.columns()
            .map(|column| match schema.field(&column.name) {
                Some(field) => field.wire(),
                None if bare => schema.wire(),
                None => Wire::Unknown("a type that the schema does not name".into()),
            })
            .collect()
    }

    /// Returns the columns' names, in key order.
    pub(super) fn names(&self) -> Vec<&str> {
        self.columns().map(|column| &*column.name).collect()
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.columns().position(|column| column.name == name)
    }

    /// Reads a key: an object by column name, or for a table of one key column its bare value.
    pub(super) fn read(&self, wires: &[Wire], text: &str) -> Result<ReadKey, Fault> {
        let mut values = vec![Value::Absent; self.types.len()];
        let (mut last, mut ascending) = (None, true);
        if text.trim_ascii_start().starts_with('{') {
            json::object::<KeyFault>(text, |name, raw| {
                let Some(position) = self.position(&name) else {
                    if name == PHYSICAL_TABLE {
                        return Ok(());
                    }
                    return Err(KeyFault(format!(
                        "the key has the field `{name}`, which is no key column of the sink table {}",
                        self.shape.name
                    )));
                };
                if values[position] != Value::Absent {
                    return Err(KeyFault::from(Broken::Twice(name.into_owned())));
                }
                ascending &= last.is_none_or(|last| last < position);
                last = Some(position);
                values[position] = self.value(wires, position, raw)?;
                Ok(())
            })?;
        } else {
            let raw = json::value(text).map_err(KeyFault::from)?;
            if values.len() != 1 || matches!(Kind::of(raw), Kind::Array) {
                return Err(Fault::key("the key is not an object"));
            }
            values[0] = self.value(wires, 0, raw)?;
        }
        let in_order = (self.types.len() > 1).then_some(ascending);
        self.encode(values).map(|read| ReadKey { in_order, ..read }).map_err(Fault::from)
    }

    fn value(&self, wires: &[Wire], position: usize, raw: &RawValue) -> Result<Value, KeyFault> {
        let column = &self.shape.columns[self.shape.key[position].column];
        let wire = &wires[position];
        let reading = Reading { binary: self.binary, unavailable: None };
        value::read(wire, &column.column_type, raw, reading)
            .map_err(|misfit| KeyFault(format!("key {}", explain(column, wire, &misfit))))
    }

    /// Encodes the values of the key columns.
    pub(super) fn encode(&self, values: Vec<Value>) -> Result<ReadKey, KeyFault> {
        let mut bytes = Vec::with_capacity(9 * self.types.len());
        for ((column, key_type), value) in self.columns().zip(&self.types).zip(&values) {
            encode_value(column, *key_type, value, &mut bytes)?;
        }
        Ok(ReadKey { key: Key::from_encoded(bytes), values, in_order: None })
    }
}

/// Why a key cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyFault(pub(super) String);

impl From<Broken> for KeyFault {
    fn from(broken: Broken) -> KeyFault {
        KeyFault(format!("the key {broken}"))
    }
}

impl From<KeyFault> for Fault {
    fn from(fault: KeyFault) -> Fault {
        Fault::key(fault.0)
    }
}

/// Appends the encoding of one key column's value.
pub(super) fn encode_value(
    column: &Column,
    key_type: KeyType,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), KeyFault> {
    let fault = |what: &str| KeyFault(format!("key column `{}` {what}", column.name));
    let key_value = match (key_type, value) {
        (_, Value::Absent) => return Err(fault("is missing")),
        (_, Value::Null) => return Err(fault("is null")),
        (KeyType::UInt, Value::Int(value)) => {
            KeyValue::UInt(u64::try_from(*value).map_err(|_| fault("takes no numbers below zero"))?)
        }
        // An `oid`, in the sink's text form.
        (KeyType::UInt, Value::Text(value)) => {
            KeyValue::UInt(oid(value).ok_or_else(|| fault("takes integers from 0 to 4294967295"))?.into())
        }
        (KeyType::Decimal, Value::Int(value)) => {
            KeyValue::Decimal(value.to_string().parse().map_err(|_| fault("does not take its value"))?)
        }
        (_, Value::Bool(value)) => KeyValue::Bool(*value),
        (_, Value::Int(value)) => KeyValue::Int(*value),
        (_, Value::Decimal(value)) => KeyValue::Decimal(value.clone()),
        (_, Value::Text(value)) => KeyValue::Text(value.clone()),
        (_, Value::Bytes(value)) => KeyValue::Bytes(value.clone()),
        (_, Value::Uuid(value)) => KeyValue::Uuid(*value),
        (_, Value::Date(value)) => KeyValue::Date(*value),
        (_, Value::Time(value)) => KeyValue::Time(*value),
        (_, Value::Timestamp(value)) => KeyValue::Timestamp(*value),
        (_, Value::TimestampTz(value)) => KeyValue::TimestampTz(*value),
        _ => return Err(fault("is of a type that is no key")),
    };
    key_value.encode(key_type, out).map_err(|_| fault("does not take its value"))
}

/// Reads an `oid`: unsigned, of 32 bits.
fn oid(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Returns the topic that a router took a key from, when it says so: `connector.schema.table`.
pub(super) fn physical_table(text: &str) -> Option<String> {
    if !text.contains(PHYSICAL_TABLE) {
        return None;
    }
    let mut table = None;
    json::object::<Broken>(text, |name, raw| {
        if name == PHYSICAL_TABLE {
            table = json::string(raw).map(std::borrow::Cow::into_owned);
        }
        Ok(())
    })
    .ok()?;
    table
}
