//! Numbers: integers, floating point, decimals, money. Read from their text; nothing passes through a type that rounds.

use serde_json::value::RawValue;
use sink_api::{ColumnType, Decimal, DecimalError, Value};

use super::{Misfit, binary};
use crate::decode::{
    json::{self, Broken, Kind},
    modes::BinaryMode,
    wire::Wire,
};

const OUT_OF_RANGE: Misfit = Misfit::Value("it is out of range");
const NOT_AN_INTEGER: Misfit = Misfit::Value("it is not an integer");
const NOT_A_NUMBER: Misfit = Misfit::Value("it is not a number");
const NOT_A_DECIMAL: Misfit = Misfit::Value("it is not a decimal number");

/// Reads a JSON integer.
pub(super) fn integer(column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    let text = json::number(raw).ok_or(NOT_AN_INTEGER)?;
    match column {
        ColumnType::Int16 => ranged(text, i64::from(i16::MIN), i64::from(i16::MAX)),
        ColumnType::Int32 => ranged(text, i64::from(i32::MIN), i64::from(i32::MAX)),
        ColumnType::Int64 => ranged(text, i64::MIN, i64::MAX),
        ColumnType::Decimal(limits) => fitting(parse_decimal(digits_only(text)?)?, *limits),
        ColumnType::Float32 => exact_float(text, 1 << 24),
        ColumnType::Float64 => exact_float(text, 1 << 53),
        ColumnType::Other(_) => Ok(Value::Text(digits_only(text)?.into())),
        _ => Err(Misfit::Types),
    }
}

/// Returns the number of an integer's text.
pub(super) fn int(raw: &RawValue) -> Result<i64, Misfit> {
    parse_int(json::number(raw).ok_or(NOT_AN_INTEGER)?)
}

fn parse_int(text: &str) -> Result<i64, Misfit> {
    text.parse().map_err(|_| digits_only(text).err().unwrap_or(OUT_OF_RANGE))
}

fn digits_only(text: &str) -> Result<&str, Misfit> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) { Ok(text) } else { Err(NOT_AN_INTEGER) }
}

fn ranged(text: &str, least: i64, most: i64) -> Result<Value, Misfit> {
    let value = parse_int(text)?;
    if (least..=most).contains(&value) { Ok(Value::Int(value)) } else { Err(OUT_OF_RANGE) }
}

/// Floating point holds every integer up to `most` in size.
#[allow(clippy::cast_precision_loss)]
fn exact_float(text: &str, most: u64) -> Result<Value, Misfit> {
    let value = parse_int(text)?;
    if value.unsigned_abs() <= most { Ok(Value::Float(value as f64)) } else { Err(OUT_OF_RANGE) }
}

/// Reads a JSON number, or one of the strings that JSON has for what is no number.
pub(super) fn float(wire: &Wire, column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    match column {
        ColumnType::Float64 => parse_float(raw).map(Value::Float),
        ColumnType::Float32 => single(wire, raw).map(Value::Float),
        // `decimal.handling.mode=double`: the number's digits are what the source sent.
        ColumnType::Decimal(limits) => match json::string(raw) {
            Some(text) => fitting(special(&text)?, *limits),
            None => fitting(parse_decimal(json::number(raw).ok_or(NOT_A_NUMBER)?)?, *limits),
        },
        ColumnType::Money(digits) => {
            fitting(parse_decimal(json::number(raw).ok_or(NOT_A_NUMBER)?)?, Some((MONEY_DIGITS, *digits)))
        }
        _ => Err(Misfit::Types),
    }
}

fn special(text: &str) -> Result<Decimal, Misfit> {
    match text {
        "NaN" => Ok(Decimal::NaN),
        "Infinity" => Ok(Decimal::Infinity),
        "-Infinity" => Ok(Decimal::NegativeInfinity),
        _ => Err(NOT_A_NUMBER),
    }
}

fn parse_float(raw: &RawValue) -> Result<f64, Misfit> {
    if let Some(text) = json::string(raw) {
        return match &*text {
            "NaN" => Ok(f64::NAN),
            "Infinity" => Ok(f64::INFINITY),
            "-Infinity" => Ok(f64::NEG_INFINITY),
            _ => Err(NOT_A_NUMBER),
        };
    }
    let value: f64 = json::number(raw).ok_or(NOT_A_NUMBER)?.parse().map_err(|_| NOT_A_NUMBER)?;
    if value.is_finite() { Ok(value) } else { Err(OUT_OF_RANGE) }
}

/// The most digits that the shortest text of a 32-bit float has: a longer text is of a 64-bit one.
const SINGLE_DIGITS: usize = 9;

fn single(wire: &Wire, raw: &RawValue) -> Result<f64, Misfit> {
    let double = parse_float(raw)?;
    if !double.is_finite() {
        return Ok(double);
    }
    let text = raw.get();
    let single: f32 = text.parse().map_err(|_| NOT_A_NUMBER)?;
    if !single.is_finite() {
        return Err(OUT_OF_RANGE);
    }
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    if (*wire == Wire::Float64 || digits > SINGLE_DIGITS) && f64::from(single) != double {
        return Err(Misfit::Value("it has more digits than the column holds"));
    }
    Ok(f64::from(single))
}

/// Reads Connect's `Decimal`: base64 of the unscaled value, or a number (`decimal.format=numeric`).
pub(super) fn decimal(scale: i32, column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    match json::string(raw) {
        Some(text) => into_column(unscaled(&text, scale)?, column),
        None => into_column(parse_decimal(json::number(raw).ok_or(NOT_A_DECIMAL)?)?, column),
    }
}

fn unscaled(base64: &str, scale: i32) -> Result<Decimal, Misfit> {
    let bytes = binary::decode(BinaryMode::Bytes, base64).map_err(|_| Misfit::Value("it is not a base64 decimal; without schemas --decimal-handling-mode must be the connector's decimal.handling.mode"))?;
    Decimal::from_unscaled(&bytes, scale).map_err(misfit)
}

/// Reads Debezium's struct of scale and unscaled value. A bare base64 string is of a `numeric` with a precision: its
/// scale is not in the record, and the sink's column has none.
pub(super) fn variable_decimal(column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    let (mut scale, mut value) = (None, None);
    match Kind::of(raw) {
        Kind::Number => return into_column(parse_decimal(raw.get())?, column),
        Kind::String => {
            return Err(Misfit::Value(
                "a decimal's scale is not in the record: give --decimal-handling-mode string if the connector has decimal.handling.mode=string, else switch schemas on or set that mode",
            ));
        }
        _ => {}
    }
    json::object::<Broken>(raw.get(), |name, field| {
        match &*name {
            "scale" => scale = json::number(field).and_then(|text| text.parse::<i32>().ok()),
            "value" => value = json::string(field),
            _ => {}
        }
        Ok(())
    })
    .map_err(|_| NOT_A_DECIMAL)?;
    let (Some(scale), Some(value)) = (scale, value) else { return Err(NOT_A_DECIMAL) };
    into_column(unscaled(&value, scale)?, column)
}

/// Reads decimal text (`decimal.handling.mode=string`), or a number.
pub(super) fn decimal_text(column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    match json::string(raw) {
        Some(text) => into_column(parse_decimal(&text)?, column),
        None => into_column(parse_decimal(json::number(raw).ok_or(NOT_A_DECIMAL)?)?, column),
    }
}

/// `money` is a 64-bit integer of its smallest unit.
const MONEY_DIGITS: u16 = 19;

fn into_column(decimal: Decimal, column: &ColumnType) -> Result<Value, Misfit> {
    match column {
        ColumnType::Decimal(limits) => fitting(decimal, *limits),
        ColumnType::Money(digits) => fitting(decimal, Some((MONEY_DIGITS, *digits))),
        ColumnType::Int16 | ColumnType::Int32 | ColumnType::Int64 => {
            // numeric(p,0) into an integer column; `1.00` is as good as `1`.
            let text = decimal.to_string();
            let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
            if fraction.bytes().any(|digit| digit != b'0') {
                return Err(NOT_AN_INTEGER);
            }
            let value = parse_int(whole)?;
            let (least, most) = match column {
                ColumnType::Int16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
                ColumnType::Int32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
                _ => (i64::MIN, i64::MAX),
            };
            if (least..=most).contains(&value) { Ok(Value::Int(value)) } else { Err(OUT_OF_RANGE) }
        }
        ColumnType::Text(_) | ColumnType::Other(_) => Ok(Value::Text(decimal.to_string().into())),
        _ => Err(Misfit::Types),
    }
}

fn parse_decimal(text: &str) -> Result<Decimal, Misfit> {
    text.parse().map_err(misfit)
}

fn misfit(error: DecimalError) -> Misfit {
    match error {
        DecimalError::Syntax => NOT_A_DECIMAL,
        DecimalError::TooLong => OUT_OF_RANGE,
    }
}

/// Checks a number against a column's precision and scale.
fn fitting(decimal: Decimal, limits: Option<(u16, i16)>) -> Result<Value, Misfit> {
    let Some((precision, scale)) = limits else { return Ok(Value::Decimal(decimal)) };
    match &decimal {
        Decimal::NaN => {}
        Decimal::Infinity | Decimal::NegativeInfinity => return Err(OUT_OF_RANGE),
        Decimal::Finite { digits, scale: own, .. } if &**digits != "0" => {
            let dropped = i64::from(*own) - i64::from(scale);
            let zeros = digits.bytes().rev().take_while(|digit| *digit == b'0').count() as i64;
            if dropped > zeros {
                return Err(Misfit::Value("it has more fractional digits than the column holds"));
            }
            if digits.len() as i64 - i64::from(*own) > i64::from(precision) - i64::from(scale) {
                return Err(OUT_OF_RANGE);
            }
        }
        Decimal::Finite { .. } => {}
    }
    Ok(Value::Decimal(decimal))
}
