//! From bytes to values.

use super::{
    KeyError, KeyType, KeyValue, decimal,
    encode::{END, ESCAPE, ZERO, int_of},
};
use crate::Decimal;

/// Reads the columns of an encoded key, one after the other, in key order.
///
/// Strict: what it accepts is exactly what [`KeyValue::encode`] writes, so that a key has one spelling. After an error
/// the reader stays where it was.
#[derive(Clone, Debug)]
pub struct KeyReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> KeyReader<'a> {
    /// Starts at the first column of `bytes`.
    pub fn new(bytes: &'a [u8]) -> KeyReader<'a> {
        KeyReader { bytes, at: 0 }
    }

    /// Ends reading.
    ///
    /// # Errors
    /// When there are bytes left.
    pub fn finish(self) -> Result<(), KeyError> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(KeyError::Malformed { at: self.at }) }
    }

    /// Reads a column of type `key_type`; a decimal in its normal form.
    ///
    /// # Errors
    /// When the bytes are no value of the type. The same holds for all that follow.
    pub fn next_value(&mut self, key_type: KeyType) -> Result<KeyValue, KeyError> {
        Ok(match key_type {
            KeyType::Bool => KeyValue::Bool(self.next_bool()?),
            KeyType::Int => KeyValue::Int(self.next_int()?),
            KeyType::UInt => KeyValue::UInt(self.next_uint()?),
            KeyType::Decimal => KeyValue::Decimal(self.next_decimal()?),
            KeyType::Text => {
                let mut text = Vec::new();
                self.next_text(&mut text)?;
                KeyValue::Text(String::from_utf8(text).expect("next_text appends UTF-8 only").into())
            }
            KeyType::Bytes => {
                let mut bytes = Vec::new();
                self.next_bytes(&mut bytes)?;
                KeyValue::Bytes(bytes.into())
            }
            KeyType::Uuid => KeyValue::Uuid(self.next_uuid()?),
            KeyType::Date => KeyValue::Date(self.next_date()?),
            KeyType::Time => KeyValue::Time(self.next_int()?),
            KeyType::Timestamp => KeyValue::Timestamp(self.next_int()?),
            KeyType::TimestampTz => KeyValue::TimestampTz(self.next_int()?),
        })
    }

    /// Reads a `Bool` column.
    ///
    /// # Errors
    /// See [`KeyReader::next_value`].
    pub fn next_bool(&mut self) -> Result<bool, KeyError> {
        let value = match self.bytes.get(self.at) {
            Some(0) => false,
            Some(1) => true,
            _ => return Err(KeyError::Malformed { at: self.at }),
        };
        self.at += 1;
        Ok(value)
    }

    /// Reads an `Int`, `Time`, `Timestamp` or `TimestampTz` column.
    ///
    /// # Errors
    /// See [`KeyReader::next_value`].
    pub fn next_int(&mut self) -> Result<i64, KeyError> {
        Ok(int_of(self.next_array()?))
    }

    /// Reads a `UInt` column.
    ///
    /// # Errors
    /// See [`KeyReader::next_value`].
    pub fn next_uint(&mut self) -> Result<u64, KeyError> {
        Ok(u64::from_be_bytes(self.next_array()?))
    }

    /// Reads a `Date` column.
    ///
    /// # Errors
    /// See [`KeyReader::next_value`].
    pub fn next_date(&mut self) -> Result<i32, KeyError> {
        Ok(i32::from_be_bytes(self.next_array()?) ^ i32::MIN)
    }

    /// Reads a `Uuid` column.
    ///
    /// # Errors
    /// See [`KeyReader::next_value`].
    pub fn next_uuid(&mut self) -> Result<[u8; 16], KeyError> {
        self.next_array()
    }

    /// Reads a `Text` column and appends its UTF-8 to `out`, which an error leaves as it was.
    ///
    /// # Errors
    /// See [`KeyReader::next_value`].
    pub fn next_text(&mut self, out: &mut Vec<u8>) -> Result<(), KeyError> {
        let (start, from) = (self.at, out.len());
        self.next_bytes(out)?;
        if let Err(error) = std::str::from_utf8(&out[from..]) {
            let valid = &out[from..from + error.valid_up_to()];
            let at = start + valid.len() + valid.iter().filter(|byte| **byte == 0).count();
            out.truncate(from);
            self.at = start;
            return Err(KeyError::Malformed { at });
        }
        Ok(())
    }

    /// Reads a `Bytes` column and appends it to `out`, which an error leaves as it was.
    ///
    /// # Errors
    /// See [`KeyReader::next_value`].
    pub fn next_bytes(&mut self, out: &mut Vec<u8>) -> Result<(), KeyError> {
        let from = out.len();
        let mut at = self.at;
        loop {
            let rest = &self.bytes[at..];
            let run = rest.iter().position(|byte| *byte == ESCAPE).unwrap_or(rest.len());
            out.extend_from_slice(&rest[..run]);
            let escape = at + run;
            match self.bytes.get(escape + 1) {
                Some(&END) => {
                    self.at = escape + 2;
                    return Ok(());
                }
                Some(&ZERO) => {
                    out.push(0);
                    at = escape + 2;
                }
                wrong => {
                    out.truncate(from);
                    return Err(KeyError::Malformed { at: wrong.map_or(self.bytes.len(), |_| escape + 1) });
                }
            }
        }
    }

    /// Reads a `Decimal` column; returns its normal form.
    ///
    /// # Errors
    /// See [`KeyReader::next_value`].
    pub fn next_decimal(&mut self) -> Result<Decimal, KeyError> {
        let (value, end) = decimal::decode(self.bytes, self.at)?;
        self.at = end;
        Ok(value.to_decimal())
    }

    /// Reads a `Decimal` column and appends it to `out` in plain notation, as its normal form is displayed.
    ///
    /// # Errors
    /// See [`KeyReader::next_value`].
    pub fn next_decimal_text(&mut self, out: &mut Vec<u8>) -> Result<(), KeyError> {
        let (value, end) = decimal::decode(self.bytes, self.at)?;
        self.at = end;
        value.write_text(out);
        Ok(())
    }

    fn next_array<const N: usize>(&mut self) -> Result<[u8; N], KeyError> {
        let array = self.bytes[self.at..].first_chunk().ok_or(KeyError::Malformed { at: self.bytes.len() })?;
        self.at += N;
        Ok(*array)
    }
}
