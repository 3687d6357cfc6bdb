//! How one value stands in a record: what its schema says, or what the column's type and the modes say in its place.
//!
//! A schema names the type's meaning (`io.debezium.time.MicroTimestamp`), so with schemas on nothing is guessed. With
//! schemas off the sink's columns are taken to have the source's types: a `timestamp(3)` to come in milliseconds and a
//! `timestamp(6)` in microseconds, a `numeric(10,2)` as unscaled bytes of scale 2. Where sink and source differ in
//! these, schemas have to be on.

use std::fmt;

use sink_api::ColumnType;

use super::modes::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, Modes, TimeMode};

/// The unit of a number that counts time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Millis,
    Micros,
    Nanos,
}

/// How a value is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Bool,
    Int,
    Float32,
    Float64,
    Text,
    /// A key in a statement: JSON as PostgreSQL's `to_json` writes the value.
    Plain,
    Binary(BinaryMode),
    /// Connect's `Decimal` of this scale: unscaled bytes, or a number with `decimal.format=numeric`.
    Decimal(i32),
    /// A struct of scale and unscaled bytes.
    VariableDecimal,
    /// Days since 1970-01-01.
    Days,
    /// Time of day.
    Time(Unit),
    /// Date and time without zone.
    Timestamp(Unit),
    ZonedTimestamp,
    ZonedTime,
    IsoDate,
    IsoTime,
    IsoTimestamp,
    /// A length of time. Months and days went into it at the source and do not come out again.
    Duration(Unit),
    /// Little-endian bytes without zero bytes at the end.
    Bits,
    Point,
    /// PostGIS: a struct of WKB and SRID.
    Geometry,
    /// pgvector: an array of floats.
    Vector,
    Map,
    Array(Box<Wire>),
    /// A struct or a type that is not known.
    Unknown(Box<str>),
}

impl Wire {
    /// Returns how values for a column are written where no schema says it.
    pub(super) fn assumed(column: &ColumnType, modes: &Modes) -> Wire {
        match column {
            ColumnType::Bool => Wire::Bool,
            ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => Wire::Int,
            ColumnType::Float32 => Wire::Float32,
            ColumnType::Float64 => Wire::Float64,
            ColumnType::Decimal(Some((_, scale))) => decimal(modes, Wire::Decimal(i32::from(*scale))),
            ColumnType::Decimal(None) => decimal(modes, Wire::VariableDecimal),
            ColumnType::Money(digits) => decimal(modes, Wire::Decimal(i32::from(*digits))),
            ColumnType::Text(_)
            | ColumnType::Char(_)
            | ColumnType::Uuid
            | ColumnType::Json(_)
            | ColumnType::Other(_) => Wire::Text,
            ColumnType::Bytes => Wire::Binary(modes.binary),
            ColumnType::Date if modes.time == TimeMode::IsoString => Wire::IsoDate,
            ColumnType::Date => Wire::Days,
            ColumnType::Time(digits) => match (modes.time, digits) {
                (TimeMode::IsoString, _) => Wire::IsoTime,
                (TimeMode::AdaptiveTimeMicroseconds, _) => Wire::Time(Unit::Micros),
                (mode, digits) => Wire::Time(unit(mode, *digits)),
            },
            ColumnType::TimeTz(_) => Wire::ZonedTime,
            ColumnType::Timestamp(digits) => match modes.time {
                TimeMode::IsoString => Wire::IsoTimestamp,
                mode => Wire::Timestamp(unit(mode, *digits)),
            },
            ColumnType::TimestampTz(_) => Wire::ZonedTimestamp,
            ColumnType::Interval if modes.interval == IntervalMode::Numeric => Wire::Duration(Unit::Micros),
            ColumnType::Interval => Wire::Text,
            // Debezium writes bit(1) as a boolean.
            ColumnType::Bit(1) => Wire::Bool,
            ColumnType::Bit(_) | ColumnType::VarBit(_) => Wire::Bits,
            ColumnType::Map if modes.hstore == HstoreMode::Map => Wire::Map,
            ColumnType::Map => Wire::Text,
            ColumnType::Point => Wire::Point,
            ColumnType::Array(element) => Wire::Array(Box::new(Wire::assumed(element, modes))),
        }
    }
}

fn decimal(modes: &Modes, precise: Wire) -> Wire {
    match modes.decimal {
        DecimalMode::Precise => precise,
        DecimalMode::String => Wire::Text,
        DecimalMode::Double => Wire::Float64,
    }
}

fn unit(mode: TimeMode, digits: u8) -> Unit {
    match mode {
        TimeMode::Connect => Unit::Millis,
        TimeMode::Nanoseconds => Unit::Nanos,
        TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds if digits <= 3 => Unit::Millis,
        _ => Unit::Micros,
    }
}

impl fmt::Display for Wire {
    /// Writes the name of the type as a schema has it, as far as it has one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Wire::Bool => "boolean",
            Wire::Int => "integer",
            Wire::Float32 => "float",
            Wire::Float64 => "double",
            Wire::Text => "string",
            Wire::Plain => "JSON",
            Wire::Binary(BinaryMode::Bytes) => "bytes",
            Wire::Binary(mode) => return write!(f, "{mode} string"),
            Wire::Decimal(scale) => return write!(f, "Decimal of scale {scale}"),
            Wire::VariableDecimal => "VariableScaleDecimal",
            Wire::Days => "Date",
            Wire::Time(Unit::Millis) => "Time",
            Wire::Time(Unit::Micros) => "MicroTime",
            Wire::Time(Unit::Nanos) => "NanoTime",
            Wire::Timestamp(Unit::Millis) => "Timestamp",
            Wire::Timestamp(Unit::Micros) => "MicroTimestamp",
            Wire::Timestamp(Unit::Nanos) => "NanoTimestamp",
            Wire::ZonedTimestamp => "ZonedTimestamp",
            Wire::ZonedTime => "ZonedTime",
            Wire::IsoDate => "IsoDate",
            Wire::IsoTime => "IsoTime",
            Wire::IsoTimestamp => "IsoTimestamp",
            Wire::Duration(Unit::Nanos) => "NanoDuration",
            Wire::Duration(_) => "MicroDuration",
            Wire::Bits => "Bits",
            Wire::Point => "Point",
            Wire::Geometry => "Geometry",
            Wire::Vector => "vector",
            Wire::Map => "map",
            Wire::Array(element) => return write!(f, "array of {element}"),
            Wire::Unknown(name) => name,
        };
        f.write_str(name)
    }
}
