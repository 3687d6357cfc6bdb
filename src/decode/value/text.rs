//! Text, and the types that travel as text in a form that the sink reads itself.

use std::{borrow::Cow, fmt::Write};

use serde_json::value::RawValue;
use sink_api::{ColumnType, Value};

use super::{Misfit, Reading, array, binary, number, time};
use crate::decode::{
    json::{self, Broken, Kind},
    modes::BinaryMode,
    wire::Wire,
};

const TOO_LONG: Misfit = Misfit::Value("it has more characters than the column holds");

/// Reads a string into a column of any type that has a text form.
pub(super) fn read(column: &ColumnType, raw: &RawValue, reading: Reading<'_>) -> Result<Value, Misfit> {
    let Some(text) = json::string(raw) else { return other_than_string(column, raw) };
    if reading.unavailable.is_some_and(|placeholder| placeholder.is_plain(&text)) {
        return Ok(Value::Unchanged);
    }
    match column {
        ColumnType::Text(most) => {
            if most.is_some_and(|most| exceeds(&text, most)) {
                return Err(TOO_LONG);
            }
            Ok(Value::Text(boxed(text)))
        }
        // The blanks at the end are padding, and what lies behind the length may only be padding.
        ColumnType::Char(length) => {
            if exceeds(text.trim_end_matches(' '), *length) {
                return Err(TOO_LONG);
            }
            Ok(Value::Text(boxed(text)))
        }
        ColumnType::Other(_) => Ok(Value::Text(boxed(text))),
        ColumnType::Json(_) => match json::value(&text) {
            Ok(_) => Ok(Value::Text(boxed(text))),
            Err(_) => Err(Misfit::Value("it is not JSON")),
        },
        ColumnType::Uuid => uuid(&text).map(Value::Uuid),
        ColumnType::Interval => interval(&text).map(|()| Value::Text(boxed(text))),
        ColumnType::Map => json_to_map(&text),
        ColumnType::Decimal(_) | ColumnType::Money(_) => number::decimal_text(column, raw),
        ColumnType::Date => time::text(&Wire::IsoDate, column, raw),
        ColumnType::Time(_) => time::text(&Wire::IsoTime, column, raw),
        ColumnType::TimeTz(_) => time::text(&Wire::ZonedTime, column, raw),
        ColumnType::Timestamp(_) => time::text(&Wire::IsoTimestamp, column, raw),
        ColumnType::TimestampTz(_) => time::text(&Wire::ZonedTimestamp, column, raw),
        ColumnType::Bytes if reading.binary == BinaryMode::Bytes => Err(Misfit::Mode),
        ColumnType::Bytes => binary::bytes(reading.binary, column, raw, reading),
        _ => Err(Misfit::Types),
    }
}

/// JSON that a transform has already taken out of its string; numbers of types that are known as text (`oid`).
fn other_than_string(column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    match (column, Kind::of(raw)) {
        (ColumnType::Json(_), Kind::Object | Kind::Array)
        | (ColumnType::Other(_), Kind::Number | Kind::Bool | Kind::Array) => Ok(Value::Text(raw.get().into())),
        (ColumnType::Decimal(_) | ColumnType::Money(_), Kind::Number) => number::decimal_text(column, raw),
        (ColumnType::Other(_), Kind::Object) => point(column, raw).or_else(|_| geometry(column, raw)),
        _ => Err(not_text(raw)),
    }
}

/// Says what stands where a string should.
fn not_text(raw: &RawValue) -> Misfit {
    Misfit::Value(match Kind::of(raw) {
        Kind::Null => "it is null, not a string",
        Kind::Bool => "it is true or false, not a string",
        Kind::Number => "it is a number, not a string",
        // It was found to be JSON: only its escapes may make no text.
        Kind::String => "it is a string that is no text: `\\u` escapes half a character",
        Kind::Array => "it is an array, not a string",
        Kind::Object => "it is an object, not a string",
    })
}

fn boxed(text: Cow<'_, str>) -> Box<str> {
    match text {
        Cow::Borrowed(text) => text.into(),
        Cow::Owned(text) => text.into(),
    }
}

/// Whether text has more than `most` characters. A character has one byte at least.
fn exceeds(text: &str, most: u32) -> bool {
    text.len() > most as usize && text.chars().count() > most as usize
}

/// Reads a UUID as PostgreSQL and Java write it: 8-4-4-4-12 hexadecimal digits.
fn uuid(text: &str) -> Result<[u8; 16], Misfit> {
    const NOT_A_UUID: Misfit = Misfit::Value("it is not a UUID");
    let digits = text.as_bytes();
    if digits.len() != 36 {
        return Err(NOT_A_UUID);
    }
    let mut value = [0; 16];
    let mut at = 0;
    for (index, byte) in value.iter_mut().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            if digits[at] != b'-' {
                return Err(NOT_A_UUID);
            }
            at += 1;
        }
        hex::decode_to_slice(&digits[at..at + 2], std::slice::from_mut(byte)).map_err(|_| NOT_A_UUID)?;
        at += 2;
    }
    Ok(value)
}

/// Checks that text is an ISO 8601 interval, such as `P1Y2M3DT4H5M6.789S`, parts of which may be below zero.
fn interval(text: &str) -> Result<(), Misfit> {
    let parts = text.strip_prefix('-').unwrap_or(text).strip_prefix('P');
    let known = |byte: u8| byte.is_ascii_digit() || b"YMWDTHS.+-".contains(&byte);
    match parts {
        Some(parts) if !parts.is_empty() && parts.bytes().all(known) => Ok(()),
        _ => Err(Misfit::Value("it is not an ISO 8601 interval")),
    }
}

const NOT_A_MAP: Misfit = Misfit::Value("it is not an object of strings and nulls");

/// Reads text that holds a JSON object (`hstore.handling.mode=json`).
fn json_to_map(text: &str) -> Result<Value, Misfit> {
    pairs(text, None)
}

/// Reads a JSON object of strings and nulls (`hstore.handling.mode=map`).
pub(super) fn map(column: &ColumnType, raw: &RawValue, reading: Reading<'_>) -> Result<Value, Misfit> {
    match (column, Kind::of(raw)) {
        (ColumnType::Map, Kind::Object) => pairs(raw.get(), Some(reading)),
        (ColumnType::Map, _) => Err(NOT_A_MAP),
        _ => Err(Misfit::Types),
    }
}

/// Writes a JSON object in hstore's text form: `"k"=>"v", "n"=>NULL`.
fn pairs(text: &str, reading: Option<Reading<'_>>) -> Result<Value, Misfit> {
    let mut written = String::new();
    let (mut count, mut unchanged) = (0, false);
    json::object::<Misfit>(text, |name, raw| {
        if count > 0 {
            written.push_str(", ");
        }
        count += 1;
        quoted(&mut written, &name);
        written.push_str("=>");
        match (json::string(raw), Kind::of(raw)) {
            (Some(value), _) => {
                unchanged |= reading
                    .and_then(|reading| reading.unavailable)
                    .is_some_and(|placeholder| placeholder.is_plain(&name) && placeholder.is_plain(&value));
                quoted(&mut written, &value);
            }
            (None, Kind::Null) => written.push_str("NULL"),
            _ => return Err(NOT_A_MAP),
        }
        Ok(())
    })?;
    if count == 1 && unchanged {
        return Ok(Value::Unchanged);
    }
    Ok(Value::Text(written.into()))
}

impl From<Broken> for Misfit {
    fn from(_: Broken) -> Misfit {
        NOT_A_MAP
    }
}

fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
}

/// Reads a point's struct into PostgreSQL's text form, `(x,y)`, with the digits that came.
pub(super) fn point(column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    const NOT_A_POINT: Misfit = Misfit::Value("it is not a point");
    if !matches!(column, ColumnType::Point | ColumnType::Other(_)) {
        return Err(Misfit::Types);
    }
    let (mut x, mut y) = (None, None);
    json::object::<Broken>(raw.get(), |name, field| {
        match &*name {
            "x" => x = coordinate(field),
            "y" => y = coordinate(field),
            _ => {}
        }
        Ok(())
    })
    .map_err(|_| NOT_A_POINT)?;
    match (x, y) {
        (Some(x), Some(y)) => Ok(Value::Text(format!("({x},{y})").into())),
        _ => Err(NOT_A_POINT),
    }
}

fn coordinate(raw: &RawValue) -> Option<Cow<'_, str>> {
    json::number(raw)
        .map(Cow::Borrowed)
        .or_else(|| json::string(raw).filter(|text| matches!(&**text, "NaN" | "Infinity" | "-Infinity")))
}

/// Reads PostGIS's struct of WKB and SRID into its text form, `SRID=4326;0101...`.
pub(super) fn geometry(column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    const NOT_A_GEOMETRY: Misfit = Misfit::Value("it is not a geometry");
    if !matches!(column, ColumnType::Other(_)) {
        return Err(Misfit::Types);
    }
    let (mut wkb, mut srid) = (None, None);
    json::object::<Broken>(raw.get(), |name, field| {
        match &*name {
            "wkb" => wkb = json::string(field),
            "srid" => srid = json::number(field),
            _ => {}
        }
        Ok(())
    })
    .map_err(|_| NOT_A_GEOMETRY)?;
    let bytes = binary::decode(BinaryMode::Bytes, &wkb.ok_or(NOT_A_GEOMETRY)?).map_err(|_| NOT_A_GEOMETRY)?;
    let mut text = String::new();
    if let Some(srid) = srid {
        // Writing to a string does not fail.
        let _ = write!(text, "SRID={srid};");
    }
    text.push_str(&hex::encode_upper(bytes));
    Ok(Value::Text(text.into()))
}

/// Reads an array of floats into pgvector's text form.
pub(super) fn vector(column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    const NOT_A_VECTOR: Misfit = Misfit::Value("it is not an array of numbers");
    match column {
        ColumnType::Other(_) => {
            let numbers = array::read_elements(raw).map_err(|_| NOT_A_VECTOR)?;
            if numbers.iter().any(|element| json::number(element).is_none()) {
                return Err(NOT_A_VECTOR);
            }
            Ok(Value::Text(raw.get().into()))
        }
        _ => Err(Misfit::Types),
    }
}
