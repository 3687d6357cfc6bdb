//! Values of columns on their way to a sink.

use crate::Decimal;

/// One value of a row.
///
/// Dates count days from 1970-01-01, times microseconds from midnight, timestamps microseconds from
/// 1970-01-01T00:00:00 (`TimestampTz`: UTC). `i32::MAX`/`i64::MAX` and the minimum are positive and negative infinity.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The event does not name the column: an existing row keeps its value, a new one takes the default.
    Absent,
    /// The event names the column without its value (an unchanged large column): an existing row keeps its value;
    /// a row that does not exist cannot be made.
    Unchanged,
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// A floating point number of either width.
    Float(f64),
    /// A decimal number.
    Decimal(Decimal),
    /// Text; also every type whose text form the sink reads itself (enums, inet, ranges, intervals, JSON, ...).
    Text(Box<str>),
    /// Bytes.
    Bytes(Box<[u8]>),
    /// A UUID.
    Uuid([u8; 16]),
    /// A day.
    Date(i32),
    /// A time of day.
    Time(i64),
    /// A date and time without zone.
    Timestamp(i64),
    /// An instant.
    TimestampTz(i64),
    /// A bit string, first bit first, one byte `0` or `1` a bit.
    Bits(Box<[u8]>),
    /// An array; elements are null or values.
    Array(Box<[Value]>),
}

impl Value {
    /// Whether an existing row keeps its own value of the column.
    pub fn keeps_old(&self) -> bool {
        matches!(self, Value::Absent | Value::Unchanged)
    }
}
