//! Whether a column holds a value exactly.
//!
//! PostgreSQL's assignment to a column raises an error for most values that do not fit, but not for all: it rounds to
//! the scale of `numeric(10,2)` and the digits of `timestamp(3)`, strips blanks to the length of `varchar(n)`, and its
//! input functions drop a time of day on the way to a date. Those are found here. The answer is a reason without the
//! value.

use std::fmt::Write as _;

use sink_api::{ColumnType, Decimal, Value};

/// Returns why a column of this type does not hold `value` exactly, if it does not.
pub(super) fn check(column_type: &ColumnType, value: &Value) -> Result<(), String> {
    use ColumnType as T;
    use Value as V;

    match (column_type, value) {
        (_, V::Absent | V::Unchanged | V::Null) => Ok(()),

        (T::Bool, V::Bool(_) | V::Text(_)) => Ok(()),
        (T::Int16, V::Int(value)) => integer(i16::try_from(*value).is_ok(), 16),
        (T::Int32, V::Int(value)) => integer(i32::try_from(*value).is_ok(), 32),
        (T::Int64, V::Int(_)) => Ok(()),
        (T::Int16 | T::Int32 | T::Int64, V::Decimal(_) | V::Text(_)) => Ok(()),

        (T::Float64, V::Float(_)) => Ok(()),
        (T::Float32, V::Float(value)) => single(*value),
        (T::Float32 | T::Float64, V::Int(value)) => float_of(&value.to_string(), column_type),
        (T::Float32 | T::Float64, V::Decimal(value)) => float_of(&value.to_string(), column_type),
        (T::Float32 | T::Float64, V::Text(value)) => float_of(value, column_type),

        (T::Decimal(None), V::Decimal(_) | V::Int(_) | V::Float(_) | V::Text(_)) => Ok(()),
        (T::Decimal(Some((_, scale))) | T::Money(scale), value) => decimal(i64::from(*scale), value),

        (T::Text(Some(most)), V::Text(value)) => characters(*most, value),
        (T::Char(most), V::Text(value)) => characters(*most, value.trim_end_matches(' ')),
        (T::Text(_) | T::Char(_) | T::Other(_), V::Bytes(_) | V::Array(_)) => wrong_kind(column_type, value),
        (T::Text(_) | T::Char(_) | T::Other(_), _) => Ok(()),

        (T::Bytes, V::Bytes(_)) | (T::Uuid, V::Uuid(_) | V::Text(_)) => Ok(()),

        (T::Date, V::Date(_)) => Ok(()),
        (T::Date, V::Text(value)) if value.contains(':') => Err("the text has a time of day, the column none".into()),
        (T::Date, V::Text(_)) => Ok(()),
        (T::Time(digits) | T::TimeTz(digits), V::Time(micros))
        | (T::Timestamp(digits), V::Timestamp(micros))
        | (T::TimestampTz(digits), V::TimestampTz(micros)) => instant(*digits, *micros),
        (T::Timestamp(_), V::Text(value)) if has_zone(value) => Err("the text has a zone, the column none".into()),
        (T::Time(digits) | T::TimeTz(digits) | T::Timestamp(digits) | T::TimestampTz(digits), V::Text(value)) => {
            fraction(*digits, value)
        }
        // Six digits are all that an interval keeps.
        (T::Interval, V::Text(value)) => fraction(6, value),
        (T::Interval, V::Int(_)) => Ok(()),

        (T::Bit(_) | T::VarBit(_), V::Bits(_) | V::Bool(_) | V::Text(_)) => Ok(()),
        (T::Json(_) | T::Map | T::Point, V::Text(_)) => Ok(()),

        (T::Array(_), V::Text(_)) => Ok(()),
        (T::Array(element), V::Array(values)) => values.iter().try_for_each(|value| match value {
            V::Array(_) => check(column_type, value),
            value => check(element, value),
        }),

        _ => wrong_kind(column_type, value),
    }
}

fn integer(fits: bool, bits: u32) -> Result<(), String> {
    if fits { Ok(()) } else { Err(format!("the value is out of range for an integer of {bits} bits")) }
}

fn characters(most: u32, text: &str) -> Result<(), String> {
    // So many bytes cannot be more characters.
    if text.len() <= most as usize {
        return Ok(());
    }
    let count = text.chars().count();
    if count <= most as usize {
        return Ok(());
    }
    Err(format!("the text has {count} characters, the column takes {most}"))
}

fn decimal(most: i64, value: &Value) -> Result<(), String> {
    let scale = match value {
        Value::Decimal(value) => scale_of(value),
        Value::Int(value) if most < 0 => scale_of(&read(&value.to_string())?),
        Value::Int(_) => 0,
        Value::Float(value) if value.is_finite() => scale_of(&read(&format!("{value:e}"))?),
        Value::Float(_) => 0,
        Value::Text(text) => scale_of(&read(text.trim())?),
        value => return wrong_kind(&ColumnType::Decimal(None), value),
    };
    if scale > most {
        return Err(format!("the value has {scale} fractional digits, the column keeps {most}"));
    }
    Ok(())
}

fn read(text: &str) -> Result<Decimal, String> {
    text.parse().map_err(|error| format!("the value is {error}"))
}

/// Returns how many fractional digits a number needs; below zero: how many zeros stand before its decimal point.
fn scale_of(value: &Decimal) -> i64 {
    match value {
        Decimal::Finite { digits, scale, .. } => {
            let kept = digits.trim_end_matches('0');
            if kept.is_empty() { i64::MIN } else { i64::from(*scale) - (digits.len() - kept.len()) as i64 }
        }
        _ => i64::MIN,
    }
}

/// A number of 32 bits arrives as the shortest decimal that tells it from its neighbours, and is read as 64 bits: it has
/// at most nine significant digits then. A number with more of them was never one of 32 bits.
fn single(value: f64) -> Result<(), String> {
    let narrow = value as f32;
    if value.is_nan() || f64::from(narrow) == value {
        return Ok(());
    }
    if narrow.is_infinite() || narrow == 0.0 {
        return Err("the value is out of range for a floating point number of 32 bits".into());
    }
    let mut shortest = DigitCount::default();
    write!(shortest, "{:e}", value.abs()).expect("counting does not fail");
    if shortest.digits <= 9 { Ok(()) } else { Err("the value needs 64 bits, the column has 32".into()) }
}

/// Counts the digits of a mantissa.
#[derive(Default)]
struct DigitCount {
    digits: usize,
    in_exponent: bool,
}

impl std::fmt::Write for DigitCount {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.in_exponent |= byte == b'e';
            self.digits += usize::from(byte.is_ascii_digit() && !self.in_exponent);
        }
        Ok(())
    }
}

/// A decimal number goes into a floating point column when it is how that number is written.
fn float_of(text: &str, column_type: &ColumnType) -> Result<(), String> {
    let wanted = read(text.trim())?;
    if !matches!(wanted, Decimal::Finite { .. }) {
        return Ok(());
    }
    let shortest = match column_type {
        ColumnType::Float32 => text.trim().parse::<f32>().map(|value| format!("{value:e}")),
        _ => text.trim().parse::<f64>().map(|value| format!("{value:e}")),
    };
    match shortest.ok().and_then(|text| text.parse::<Decimal>().ok()) {
        Some(kept) if kept.normalized() == wanted.normalized() => Ok(()),
        _ => Err("the number is none that the floating point column holds exactly".into()),
    }
}

fn instant(digits: u8, micros: i64) -> Result<(), String> {
    let unit = 10_i64.pow(6_u32.saturating_sub(u32::from(digits)));
    if micros % unit == 0 || micros == i64::MAX || micros == i64::MIN {
        return Ok(());
    }
    Err(format!("the value has more than the {digits} digits of a second that the column keeps"))
}

/// Looks for a fraction of a second in a text that is finer than the column.
fn fraction(digits: u8, text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('.') {
        let fraction: &str = &text[at + 1..];
        let end = fraction.find(|character: char| !character.is_ascii_digit()).unwrap_or(fraction.len());
        if fraction[..end].bytes().skip(usize::from(digits)).any(|digit| digit != b'0') {
            return Err(format!("the value has more than the {digits} digits of a second that the column keeps"));
        }
    }
    Ok(())
}

/// Whether a timestamp's text ends in an offset other than UTC's own letter.
fn has_zone(text: &str) -> bool {
    text.rfind(':').is_some_and(|colon| {
        let time = text.find(':').unwrap_or(colon);
        text[time..].contains(['+', '-'])
    })
}

fn wrong_kind(column_type: &ColumnType, value: &Value) -> Result<(), String> {
    let kind = match value {
        Value::Absent | Value::Unchanged | Value::Null => "no value",
        Value::Bool(_) => "a boolean",
        Value::Int(_) => "an integer",
        Value::Float(_) => "a floating point number",
        Value::Decimal(_) => "a decimal number",
        Value::Text(_) => "text",
        Value::Bytes(_) => "bytes",
        Value::Uuid(_) => "a UUID",
        Value::Date(_) => "a date",
        Value::Time(_) => "a time of day",
        Value::Timestamp(_) => "a timestamp",
        Value::TimestampTz(_) => "an instant",
        Value::Bits(_) => "a bit string",
        Value::Array(_) => "an array",
    };
    Err(format!("the value is {kind}, the column's type is {column_type:?}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn fits(column_type: ColumnType, value: Value) -> bool {
        check(&column_type, &value).is_ok()
    }

    fn number(text: &str) -> Value {
        Value::Decimal(text.parse().unwrap())
    }

    #[test]
    fn a_number_finer_than_its_column_does_not_fit() {
        let cents = || ColumnType::Decimal(Some((10, 2)));

        assert!(fits(cents(), number("1.00")) && fits(cents(), number("1.500")) && fits(cents(), number("NaN")));
        assert!(!fits(cents(), number("1.005")) && !fits(cents(), Value::Text("1.005e0".into())));
        assert!(!fits(cents(), Value::Float(0.125)) && fits(cents(), Value::Float(0.25)));
        assert!(fits(ColumnType::Decimal(Some((5, -2))), Value::Int(1200)));
        assert!(!fits(ColumnType::Decimal(Some((5, -2))), Value::Int(1250)));
    }

    #[test]
    fn a_number_of_64_bits_does_not_fit_into_32() {
        assert!(fits(ColumnType::Float32, Value::Float(0.1)) && fits(ColumnType::Float32, Value::Float(f64::INFINITY)));
        assert!(fits(ColumnType::Float32, Value::Float(3.402_823_5e38)));
        assert!(!fits(ColumnType::Float32, Value::Float(0.123_456_789_012)));
        assert!(!fits(ColumnType::Float32, Value::Float(1e300)) && !fits(ColumnType::Float32, Value::Float(1e-300)));
        assert!(!fits(ColumnType::Float64, Value::Int(9_007_199_254_740_993)));
        assert!(
            fits(ColumnType::Float64, number("0.1")) && !fits(ColumnType::Float64, number("0.1000000000000000055"))
        );
    }

    #[test]
    fn a_time_finer_than_its_column_does_not_fit() {
        assert!(fits(ColumnType::Timestamp(3), Value::Timestamp(1_000)));
        assert!(!fits(ColumnType::Timestamp(3), Value::Timestamp(1_001)));
        assert!(fits(ColumnType::TimestampTz(0), Value::TimestampTz(i64::MAX)));
        assert!(!fits(ColumnType::TimeTz(3), Value::Text("10:00:00.1234+00".into())));
        assert!(!fits(ColumnType::TimestampTz(6), Value::Text("2020-01-01T00:00:00.1234567Z".into())));
        assert!(!fits(ColumnType::Date, Value::Text("2020-01-01 10:00:00".into())));
        assert!(!fits(ColumnType::Timestamp(6), Value::Text("2020-01-01 10:00:00+02".into())));
    }

    #[test]
    fn blanks_count_where_postgresql_strips_them_in_silence() {
        assert!(!fits(ColumnType::Text(Some(2)), Value::Text("ab ".into())));
        assert!(fits(ColumnType::Text(Some(2)), Value::Text("éé".into())));
        assert!(fits(ColumnType::Char(2), Value::Text("ab ".into())));
    }

    #[test]
    fn elements_of_arrays_are_held_to_the_same_limits() {
        let column = ColumnType::Array(Box::new(ColumnType::Decimal(Some((10, 2)))));
        let nested = |text| Value::Array([Value::Array([number(text), Value::Null].into())].into());

        assert!(check(&column, &nested("1.25")).is_ok());
        assert!(check(&column, &nested("1.255")).is_err());
    }
}
