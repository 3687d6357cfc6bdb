//! Values as PostgreSQL's input functions read them under the sink's settings (UTC, ISO dates).

use std::io::Write;

use sink_api::{ColumnType, Value, calendar::civil_from_days};

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Appends the text form that a column's type reads of a value that is neither null nor absent. `delimiter` separates
/// the elements of arrays.
pub(super) fn append(column_type: &ColumnType, delimiter: u8, value: &Value, out: &mut Vec<u8>) {
    match (column_type, value) {
        (ColumnType::Bit(_) | ColumnType::VarBit(_), Value::Bool(bit)) => out.push(b'0' + u8::from(*bit)),
        (ColumnType::Interval, Value::Int(micros)) => print(out, format_args!("{micros} microseconds")),
        (ColumnType::Array(element), Value::Array(elements)) => append_array(element, delimiter, elements, out),
        _ => append_plain(value, out),
    }
}

/// Appends the text form of a value that is the same for all types.
fn append_plain(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Absent | Value::Unchanged | Value::Null => {}
        Value::Bool(value) => out.push(if *value { b't' } else { b'f' }),
        Value::Int(value) => print(out, format_args!("{value}")),
        Value::Float(value) => append_float(*value, out),
        Value::Decimal(value) => print(out, format_args!("{value}")),
        Value::Text(value) => out.extend_from_slice(value.as_bytes()),
        Value::Bytes(value) => {
            out.extend_from_slice(b"\\x");
            value.iter().for_each(|byte| print(out, format_args!("{byte:02x}")));
        }
        Value::Uuid(value) => {
            for (at, byte) in value.iter().enumerate() {
                if matches!(at, 4 | 6 | 8 | 10) {
                    out.push(b'-');
                }
                print(out, format_args!("{byte:02x}"));
            }
        }
        Value::Date(days) => match *days {
            i32::MAX => out.extend_from_slice(b"infinity"),
            i32::MIN => out.extend_from_slice(b"-infinity"),
            days => {
                let before_christ = append_day(i64::from(days), out);
                append_era(before_christ, out);
            }
        },
        Value::Time(micros) => append_time(*micros, out),
        Value::Timestamp(micros) => append_timestamp(*micros, "", out),
        Value::TimestampTz(micros) => append_timestamp(*micros, "+00", out),
        Value::Bits(bits) => out.extend(bits.iter().map(|bit| b'0' + (bit & 1))),
        Value::Array(elements) => append_array(&ColumnType::Text(None), b',', elements, out),
    }
}

/// Appends the shortest text that reads as the same number.
fn append_float(value: f64, out: &mut Vec<u8>) {
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"Infinity" } else { b"-Infinity" });
    } else if value == 0.0 || (1e-5..1e15).contains(&value.abs()) {
        print(out, format_args!("{value}"));
    } else {
        print(out, format_args!("{value:e}"));
    }
}

/// Appends an array literal. Elements are quoted, so that none is mistaken for a null or a delimiter.
fn append_array(element_type: &ColumnType, delimiter: u8, elements: &[Value], out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, element) in elements.iter().enumerate() {
        if at > 0 {
            out.push(delimiter);
        }
        match element {
            Value::Absent | Value::Unchanged | Value::Null => out.extend_from_slice(b"NULL"),
            Value::Array(inner) => append_array(element_type, delimiter, inner, out),
            scalar => {
                out.push(b'"');
                let from = out.len();
                append(element_type, delimiter, scalar, out);
                escape_from(from, out);
                out.push(b'"');
            }
        }
    }
    out.push(b'}');
}

/// Puts a backslash before each quote and backslash from index `from` on.
fn escape_from(from: usize, out: &mut Vec<u8>) {
    let special = |byte: &u8| matches!(byte, b'"' | b'\\');
    if out[from..].iter().any(special) {
        let plain = out.split_off(from);
        for byte in plain {
            if special(&byte) {
                out.push(b'\\');
            }
            out.push(byte);
        }
    }
}

fn append_timestamp(micros: i64, zone: &str, out: &mut Vec<u8>) {
    match micros {
        i64::MAX => out.extend_from_slice(b"infinity"),
        i64::MIN => out.extend_from_slice(b"-infinity"),
        micros => {
            let before_christ = append_day(micros.div_euclid(MICROS_PER_DAY), out);
            out.push(b' ');
            append_time(micros.rem_euclid(MICROS_PER_DAY), out);
            out.extend_from_slice(zone.as_bytes());
            append_era(before_christ, out);
        }
    }
}

fn append_time(micros: i64, out: &mut Vec<u8>) {
    let seconds = micros.div_euclid(1_000_000);
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    print(out, format_args!("{hours:02}:{minutes:02}:{seconds:02}.{:06}", micros.rem_euclid(1_000_000)));
}

/// Appends a day; returns whether it lies before the year 1.
fn append_day(days: i64, out: &mut Vec<u8>) -> bool {
    let (year, month, day) = civil_from_days(days);
    // There is no year 0: 1 BC is followed by 1 AD.
    let shown = if year > 0 { year } else { 1 - year };
    print(out, format_args!("{shown:04}-{month:02}-{day:02}"));
    year <= 0
}

fn append_era(before_christ: bool, out: &mut Vec<u8>) {
    if before_christ {
        out.extend_from_slice(b" BC");
    }
}

fn print(out: &mut Vec<u8>, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("writing to a vector does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Value) -> String {
        let mut out = Vec::new();
        append_plain(&value, &mut out);
        String::from_utf8(out).expect("text forms are UTF-8")
    }

    /// Expected values: `SELECT date '1970-01-01' + n` and the like in PostgreSQL 15.
    #[test]
    fn dates_and_times_are_written_as_postgresql_writes_them() {
        assert_eq!(text(Value::Date(0)), "1970-01-01");
        assert_eq!(text(Value::Date(-719_163)), "0001-12-31 BC");
        assert_eq!(text(Value::Date(-719_162)), "0001-01-01");
        assert_eq!(text(Value::Date(11_016)), "2000-02-29");
        assert_eq!(text(Value::Date(2_145_042_905)), "5874897-12-31");
        assert_eq!(text(Value::Timestamp(-1)), "1969-12-31 23:59:59.999999");
        assert_eq!(text(Value::TimestampTz(i64::MIN)), "-infinity");
        assert_eq!(text(Value::Time(86_400_000_000)), "24:00:00.000000");
    }

    #[test]
    fn array_elements_are_quoted_so_that_none_is_mistaken() {
        let array = |values: Vec<Value>| Value::Array(values.into());
        let value = array(vec![
            array(vec![Value::Text("NULL".into()), Value::Null]),
            array(vec![Value::Text("a,\"b\\".into()), Value::Bytes([0xff].into())]),
        ]);

        assert_eq!(text(value), r#"{{"NULL",NULL},{"a,\"b\\","\\xff"}}"#);
    }
}
