//! What decoding promises, against records that Debezium wrote and records that are broken.
#![allow(clippy::unwrap_used, missing_docs)]

mod bad_input;
mod damaged;
mod forms;
mod markers;
mod merged;
mod random;
mod scenario;
mod settings;
mod speed;
mod types;
mod values;

use std::{path::Path, sync::Arc};

use sink_api::{Column, ColumnType, Key, KeyColumn, KeyType, KeyValue, NotNative, Offset, TableName, TableShape};

use super::{DecodeError, DecodeSettings, Decoder, Event};
use crate::record::Record;

/// Reads a file of captured records, each with its topic and partition.
pub fn fixture(name: &str) -> Vec<(String, i64, Record)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines()
        .enumerate()
        .map(|(line, text)| {
            let json: serde_json::Value = serde_json::from_str(text).unwrap();
            let bytes = |value: &serde_json::Value| value.as_str().map(|text| text.as_bytes().into());
            let record = Record {
                offset: Offset(json["offset"].as_i64().unwrap_or(line as i64)),
                timestamp: json["timestamp"].as_i64(),
                key: bytes(&json["key"]),
                value: bytes(&json["value"]),
                headers: json["headers"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|header| (header[0].as_str().unwrap().to_owned(), bytes(&header[1])))
                    .collect(),
            };
            (json["topic"].as_str().unwrap().to_owned(), json["partition"].as_i64().unwrap_or(0), record)
        })
        .collect()
}

/// Makes a record of its parts.
pub fn record(key: Option<&str>, value: Option<&str>, headers: &[(&str, &str)]) -> Record {
    Record {
        offset: Offset(0),
        timestamp: Some(0),
        key: key.map(|key| key.as_bytes().into()),
        value: value.map(|value| value.as_bytes().into()),
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), Some(value.as_bytes().into()))).collect(),
    }
}

/// Makes the shape of a table of columns with PostgreSQL's types.
pub fn shape(name: &str, columns: &[(&str, &str)], key: &[&str]) -> Arc<TableShape> {
    let (schema, table) = name.split_once('.').unwrap();
    let columns: Vec<Column> = columns
        .iter()
        .map(|(name, type_name)| Column {
            name: (*name).to_owned(),
            column_type: column_type(type_name),
            type_name: (*type_name).to_owned(),
            nullable: !key.contains(name),
            generated: false,
            has_default: false,
        })
        .collect();
    let key = key
        .iter()
        .map(|name| {
            let column = columns.iter().position(|column| column.name == *name).unwrap();
            KeyColumn { column, key_type: key_type(&columns[column]), order: Ok(()) }
        })
        .collect();
    Arc::new(TableShape::new(TableName::new(schema, table), columns, key, Vec::new()))
}

fn column_type(name: &str) -> ColumnType {
    if let Some(element) = name.strip_suffix("[]") {
        return ColumnType::Array(Box::new(column_type(element)));
    }
    let (base, modifiers) = name.split_once('(').unwrap_or((name, ""));
    let numbers: Vec<i32> = modifiers.trim_end_matches(')').split(',').filter_map(|text| text.parse().ok()).collect();
    let digits = numbers.first().map_or(6, |digits| *digits as u8);
    let length = numbers.first().map(|length| *length as u32);
    match base {
        "boolean" => ColumnType::Bool,
        "smallint" => ColumnType::Int16,
        "integer" => ColumnType::Int32,
        "bigint" => ColumnType::Int64,
        "real" => ColumnType::Float32,
        "double precision" => ColumnType::Float64,
        "numeric" => ColumnType::Decimal(numbers.first().map(|precision| (*precision as u16, numbers[1] as i16))),
        "money" => ColumnType::Money(2),
        "text" | "varchar" => ColumnType::Text(length),
        "char" => ColumnType::Char(length.unwrap()),
        "bytea" => ColumnType::Bytes,
        "uuid" => ColumnType::Uuid,
        "date" => ColumnType::Date,
        "time" => ColumnType::Time(digits),
        "timetz" => ColumnType::TimeTz(digits),
        "timestamp" => ColumnType::Timestamp(digits),
        "timestamptz" => ColumnType::TimestampTz(digits),
        "interval" => ColumnType::Interval,
        "json" => ColumnType::Json(false),
        "jsonb" => ColumnType::Json(true),
        "bit" => ColumnType::Bit(length.unwrap()),
        "varbit" => ColumnType::VarBit(length),
        "hstore" => ColumnType::Map,
        "point" => ColumnType::Point,
        other => ColumnType::Other(other.to_owned()),
    }
}

fn key_type(column: &Column) -> Result<KeyType, NotNative> {
    Ok(match column.column_type {
        ColumnType::Bool => KeyType::Bool,
        ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => KeyType::Int,
        ColumnType::Decimal(_) => KeyType::Decimal,
        _ if column.column_type.is_oid() => KeyType::UInt,
        ColumnType::Text(_) | ColumnType::Other(_) => KeyType::Text,
        ColumnType::Bytes => KeyType::Bytes,
        ColumnType::Uuid => KeyType::Uuid,
        ColumnType::Date => KeyType::Date,
        ColumnType::Time(_) => KeyType::Time,
        ColumnType::Timestamp(_) => KeyType::Timestamp,
        ColumnType::TimestampTz(_) => KeyType::TimestampTz,
        _ => {
            return Err(NotNative {
                reason: format!("key column `{}` is {}, which is no key", column.name, column.type_name),
                hint: None,
            });
        }
    })
}

/// Encodes an integer key.
pub fn int_key(value: i64) -> Key {
    Key::encode(&[KeyType::Int], &[KeyValue::Int(value)]).unwrap()
}

/// The tables of the scenario.
pub fn scenario_shapes() -> Vec<Arc<TableShape>> {
    vec![
        shape(
            "inv.big",
            &[
                ("id", "bigint"),
                ("name", "text"),
                ("price", "numeric(10,2)"),
                ("ok", "boolean"),
                ("tstz", "timestamptz"),
                ("ts", "timestamp"),
                ("d", "date"),
                ("js", "jsonb"),
                ("by", "bytea"),
                ("ia", "integer[]"),
                ("note", "text"),
            ],
            &["id"],
        ),
        shape("inv.comp", &[("a", "text"), ("b", "integer"), ("v", "text")], &["a", "b"]),
        shape("inv.uu", &[("id", "uuid"), ("v", "text"), ("n", "numeric(10,2)"), ("extra", "integer")], &["id"]),
    ]
}

/// Makes a decoder that knows `shapes`.
pub fn decoder(settings: DecodeSettings, topic: &str, shapes: &[Arc<TableShape>]) -> Decoder {
    let mut decoder = Decoder::new(Arc::new(settings), topic);
    shapes.iter().for_each(|shape| decoder.learn(Arc::clone(shape)));
    decoder
}

/// Decodes a record that is good.
#[track_caller]
pub fn decode(decoder: &mut Decoder, record: &Record) -> Event {
    match decoder.decode(record) {
        Ok(event) => event,
        Err(error) => panic!("{error:?}"),
    }
}

/// Decodes one record of `topic` with the default settings.
pub fn decode_one(topic: &str, shapes: &[Arc<TableShape>], record: &Record) -> Result<Event, DecodeError> {
    decoder(DecodeSettings::default(), topic, shapes).decode(record)
}
