//! Values: from JSON to what a column of the sink takes, exactly or not at all.
//!
//! How a value is written ([`Wire`]) and the column's type ([`ColumnType`]) decide together. Nothing is rounded, cut or
//! guessed: a value that the column cannot hold is an error that names the column and both types, never the value.
//! What Debezium itself has lost before (a multi-dimensional array's elements, a NaN in `precise` mode) comes as it comes.

mod array;
mod binary;
mod number;
mod text;
mod time;

pub(super) use binary::decode as decode_bytes;

use serde_json::value::RawValue;
use sink_api::{ColumnType, Value};

use super::{
    json::{self, Kind},
    modes::BinaryMode,
    placeholder::Placeholder,
    wire::Wire,
};

/// What reading a value needs beside its types.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    /// Debezium's text form of bytes, for schemas that only say `string`.
    pub(super) binary: BinaryMode,
    /// The placeholder of unchanged columns; keys have none.
    pub(super) unavailable: Option<&'a Placeholder>,
}

/// Why a value does not become one of its column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// The column takes no values of this type.
    Types,
    /// This value does not fit, and why.
    Value(&'static str),
    /// It takes a mode to read it.
    Mode,
}

/// Reads a value.
pub(super) fn read(wire: &Wire, column: &ColumnType, raw: &RawValue, reading: Reading<'_>) -> Result<Value, Misfit> {
    if Kind::of(raw) == Kind::Null {
        return Ok(Value::Null);
    }
    if reading.unavailable.is_some_and(|placeholder| placeholder.is_text(raw)) {
        return Ok(Value::Unchanged);
    }
    match wire {
        Wire::Bool => boolean(column, raw),
        Wire::Int => number::integer(column, raw),
        Wire::Float32 | Wire::Float64 => number::float(wire, column, raw),
        Wire::Decimal(scale) => number::decimal(*scale, column, raw),
        Wire::VariableDecimal => number::variable_decimal(column, raw),
        Wire::Text => text::read(column, raw, reading),
        Wire::Plain => plain(column, raw, reading),
        Wire::Binary(mode) => binary::bytes(*mode, column, raw, reading),
        Wire::Bits => binary::bits(column, raw),
        Wire::Days => time::days(column, raw),
        Wire::Time(unit) => time::time(*unit, column, raw),
        Wire::Timestamp(unit) => time::timestamp(*unit, column, raw),
        Wire::ZonedTimestamp | Wire::ZonedTime | Wire::IsoDate | Wire::IsoTime | Wire::IsoTimestamp => {
            time::text(wire, column, raw)
        }
        Wire::Duration(unit) => time::duration(*unit, column, raw),
        Wire::Point => text::point(column, raw),
        Wire::Geometry => text::geometry(column, raw),
        Wire::Vector => text::vector(column, raw),
        Wire::Map => text::map(column, raw, reading),
        Wire::Array(element) => array::read_array(element, column, raw, reading),
        Wire::Unknown(_) => Err(Misfit::Types),
    }
}

fn boolean(column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    match column {
        ColumnType::Bool => Ok(Value::Bool(json::boolean(raw).ok_or(Misfit::Value("it is not true or false"))?)),
        ColumnType::Bit(1) => match json::boolean(raw) {
            Some(bit) => Ok(Value::Bits([u8::from(bit)].into())),
            None => binary::bits(column, raw),
        },
        ColumnType::VarBit(most) if most.is_none_or(|most| most > 0) => {
            let bit = json::boolean(raw).ok_or(Misfit::Value("it is not true or false"))?;
            Ok(Value::Bits([u8::from(bit)].into()))
        }
        _ => Err(Misfit::Types),
    }
}

/// Reads a value as PostgreSQL's `to_json` writes it: integers and decimals as numbers, decimals also as text (exact
/// either way), bytes as `\x` and hexadecimal, dates, times and UUIDs as ISO text. Floating point is no key.
fn plain(column: &ColumnType, raw: &RawValue, reading: Reading<'_>) -> Result<Value, Misfit> {
    match column {
        ColumnType::Bool => boolean(column, raw),
        ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => number::integer(column, raw),
        ColumnType::Decimal(_) | ColumnType::Money(_) => number::decimal_text(column, raw),
        ColumnType::Bytes => binary::postgres_bytes(raw),
        ColumnType::Text(_) | ColumnType::Char(_) | ColumnType::Uuid | ColumnType::Other(_) => {
            text::read(column, raw, reading)
        }
        ColumnType::Date => time::text(&Wire::IsoDate, column, raw),
        ColumnType::Time(_) => time::text(&Wire::IsoTime, column, raw),
        ColumnType::Timestamp(_) => time::text(&Wire::IsoTimestamp, column, raw),
        ColumnType::TimestampTz(_) => time::text(&Wire::ZonedTimestamp, column, raw),
        _ => Err(Misfit::Types),
    }
}
