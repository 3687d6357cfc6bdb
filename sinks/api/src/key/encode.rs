//! From values to bytes.

use super::{KeyType, KeyValue, decimal};

/// Stands before an escaped zero byte and before the end of text and bytes.
pub(super) const ESCAPE: u8 = 0x00;
/// After [`ESCAPE`]: the value goes on with a zero byte.
pub(super) const ZERO: u8 = 0xff;
/// After [`ESCAPE`]: the value ends. Below [`ZERO`], so that an end sorts first; not zero, so that zero padding of a
/// buffer is never read as a value.
pub(super) const END: u8 = 0x01;

impl KeyValue {
    /// Appends the encoding of the value as one column of type `key_type`.
    ///
    /// # Errors
    /// The kind of value there was, when it is not one of `key_type`; nothing is appended then.
    pub fn encode(&self, key_type: KeyType, out: &mut Vec<u8>) -> Result<(), &'static str> {
        match (key_type, self) {
            (KeyType::Bool, KeyValue::Bool(value)) => out.push(u8::from(*value)),
            (KeyType::Int, KeyValue::Int(value))
            | (KeyType::Time, KeyValue::Time(value))
            | (KeyType::Timestamp, KeyValue::Timestamp(value))
            | (KeyType::TimestampTz, KeyValue::TimestampTz(value)) => out.extend_from_slice(&int(*value)),
            (KeyType::UInt, KeyValue::UInt(value)) => out.extend_from_slice(&value.to_be_bytes()),
            (KeyType::Decimal, KeyValue::Decimal(value)) => return decimal::encode(value, out),
            (KeyType::Text, KeyValue::Text(value)) => escaped(value.as_bytes(), out),
            (KeyType::Bytes, KeyValue::Bytes(value)) => escaped(value, out),
            (KeyType::Uuid, KeyValue::Uuid(value)) => out.extend_from_slice(value),
            (KeyType::Date, KeyValue::Date(value)) => out.extend_from_slice(&(*value ^ i32::MIN).to_be_bytes()),
            (_, other) => return Err(other.kind()),
        }
        Ok(())
    }

    /// Returns the kind of the value, for messages.
    fn kind(&self) -> &'static str {
        match self {
            KeyValue::Bool(_) => "a boolean",
            KeyValue::Int(_) => "a signed integer",
            KeyValue::UInt(_) => "an unsigned integer",
            KeyValue::Decimal(_) => "a decimal number",
            KeyValue::Text(_) => "text",
            KeyValue::Bytes(_) => "bytes",
            KeyValue::Uuid(_) => "a UUID",
            KeyValue::Date(_) => "a date",
            KeyValue::Time(_) => "a time of day",
            KeyValue::Timestamp(_) => "a timestamp without zone",
            KeyValue::TimestampTz(_) => "an instant",
        }
    }
}

/// Appends the encoding of text as one column: what [`KeyValue::Text`] does, for a text that is only borrowed.
pub fn append_text(text: &str, out: &mut Vec<u8>) {
    escaped(text.as_bytes(), out);
}

/// Appends the encoding of bytes as one column: what [`KeyValue::Bytes`] does, for bytes that are only borrowed.
pub fn append_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    escaped(bytes, out);
}

/// Returns the encoding of an integer as one column.
pub(crate) fn int(value: i64) -> [u8; 8] {
    (value ^ i64::MIN).to_be_bytes()
}

/// Returns the integer that [`int`] encodes to `bytes`.
pub(crate) fn int_of(bytes: [u8; 8]) -> i64 {
    i64::from_be_bytes(bytes) ^ i64::MIN
}

fn escaped(value: &[u8], out: &mut Vec<u8>) {
    let mut runs = value.split(|byte| *byte == ESCAPE);
    out.extend_from_slice(runs.next().unwrap_or_default());
    for run in runs {
        out.extend_from_slice(&[ESCAPE, ZERO]);
        out.extend_from_slice(run);
    }
    out.extend_from_slice(&[ESCAPE, END]);
}
