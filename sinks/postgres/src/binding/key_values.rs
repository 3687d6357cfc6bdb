//! Keys between their encoding and PostgreSQL's binary forms.

use sink_api::{
    ColumnType, KeyError, KeyList, KeyReader, KeyType, KeyValue, Value,
    key::{append_bytes, append_text},
};

use super::{
    Carrier, ColumnBuffer, Raw,
    column_buffer::{self, ValueError},
    numeric, text_form,
};
use crate::table::KeyPart;

/// Why a key cannot be turned into parameters, or a listing into keys. Says nothing of the key itself.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum KeyFault {
    /// The bytes are no key of the table.
    #[error("{0}")]
    Encoding(#[from] KeyError),
    /// The column's type does not hold the value.
    #[error("a key is out of range for its column")]
    OutOfRange,
    /// The server's answer is not what was asked for.
    #[error("the server listed a key in an unexpected form")]
    Listing,
}

impl From<ValueError> for KeyFault {
    fn from(_: ValueError) -> KeyFault {
        KeyFault::OutOfRange
    }
}

/// One array parameter for each key column.
pub(crate) struct KeyBuffers<'a> {
    parts: &'a [KeyPart],
    buffers: Vec<ColumnBuffer>,
}

impl<'a> KeyBuffers<'a> {
    pub(crate) fn new(parts: &'a [KeyPart]) -> KeyBuffers<'a> {
        KeyBuffers { parts, buffers: parts.iter().map(|part| ColumnBuffer::new(part.carrier)).collect() }
    }

    /// Appends an encoded key.
    pub(crate) fn push(&mut self, key: &[u8]) -> Result<(), KeyFault> {
        let mut reader = KeyReader::new(key);
        for (part, buffer) in self.parts.iter().zip(&mut self.buffers) {
            buffer.push_with(|out| append_column(&mut reader, part, out))?;
        }
        Ok(reader.finish()?)
    }

    /// Returns the parameters, in key order.
    pub(crate) fn finish(&mut self) -> impl Iterator<Item = Raw<'_>> {
        self.buffers.iter_mut().map(ColumnBuffer::finish)
    }
}

/// Returns the columns of an encoded key, each in its carrier's binary form.
pub(crate) fn scalar_parameters(parts: &[KeyPart], key: &[u8]) -> Result<Vec<(u32, Vec<u8>)>, KeyFault> {
    let mut reader = KeyReader::new(key);
    let mut parameters = Vec::with_capacity(parts.len());
    for part in parts {
        let mut bytes = Vec::new();
        append_column(&mut reader, part, &mut bytes)?;
        parameters.push((part.carrier.oid(), bytes));
    }
    reader.finish()?;
    Ok(parameters)
}

/// Appends the next column of a key in the carrier's binary form.
fn append_column(reader: &mut KeyReader<'_>, part: &KeyPart, out: &mut Vec<u8>) -> Result<(), KeyFault> {
    match (part.key_type, part.carrier) {
        (KeyType::Bool, Carrier::Bool) => out.push(u8::from(reader.next_bool()?)),
        (KeyType::Int, Carrier::Int8) | (KeyType::Time, Carrier::Time) => {
            out.extend_from_slice(&reader.next_int()?.to_be_bytes());
        }
        (KeyType::Int, Carrier::Int4) => {
            let value = i32::try_from(reader.next_int()?).map_err(|_| KeyFault::OutOfRange)?;
            out.extend_from_slice(&value.to_be_bytes());
        }
        (KeyType::Int, Carrier::Int2) => {
            let value = i16::try_from(reader.next_int()?).map_err(|_| KeyFault::OutOfRange)?;
            out.extend_from_slice(&value.to_be_bytes());
        }
        (KeyType::UInt, Carrier::Text) => out.extend_from_slice(reader.next_uint()?.to_string().as_bytes()),
        (KeyType::Decimal, Carrier::Numeric) => {
            if !numeric::append(&reader.next_decimal()?, out) {
                return Err(KeyFault::OutOfRange);
            }
        }
        (KeyType::Text, Carrier::Text) => reader.next_text(out)?,
        (KeyType::Bytes, Carrier::Bytea) => reader.next_bytes(out)?,
        (KeyType::Uuid, Carrier::Uuid) => out.extend_from_slice(&reader.next_uuid()?),
        (KeyType::Date, Carrier::Date) => {
            out.extend_from_slice(&column_buffer::date(reader.next_date()?)?.to_be_bytes());
        }
        (KeyType::Timestamp, Carrier::Timestamp) | (KeyType::TimestampTz, Carrier::TimestampTz) => {
            out.extend_from_slice(&column_buffer::timestamp(reader.next_int()?)?.to_be_bytes());
        }
        _ => return Err(KeyFault::Listing),
    }
    Ok(())
}

/// Appends the keys of a page, which the server sends as one array for each key column.
pub(crate) fn append_key_page(parts: &[KeyPart], arrays: &[&[u8]], keys: &mut KeyList) -> Result<usize, KeyFault> {
    let mut readers = arrays.iter().map(|bytes| ArrayReader::new(bytes)).collect::<Result<Vec<_>, _>>()?;
    let count = readers.first().map_or(0, |reader| reader.left);
    if readers.iter().any(|reader| reader.left != count) {
        return Err(KeyFault::Listing);
    }
    for _ in 0..count {
        for (part, reader) in parts.iter().zip(&mut readers) {
            encode_element(part.key_type, reader.next()?, keys.buffer())?;
        }
        keys.end_key();
    }
    Ok(count)
}

/// Encodes one column of a listed key.
fn encode_element(key_type: KeyType, element: &[u8], out: &mut Vec<u8>) -> Result<(), KeyFault> {
    let text = || std::str::from_utf8(element).map_err(|_| KeyFault::Listing);
    let value = match key_type {
        KeyType::Int => KeyValue::Int(match element.len() {
            2 => i64::from(i16::from_be_bytes(fixed(element)?)),
            4 => i64::from(i32::from_be_bytes(fixed(element)?)),
            _ => i64::from_be_bytes(fixed(element)?),
        }),
        KeyType::Text => {
            append_text(text()?, out);
            return Ok(());
        }
        KeyType::Bytes => {
            append_bytes(element, out);
            return Ok(());
        }
        KeyType::Bool => KeyValue::Bool(fixed::<1>(element)? != [0]),
        KeyType::UInt => KeyValue::UInt(text()?.parse().map_err(|_| KeyFault::Listing)?),
        KeyType::Decimal => KeyValue::Decimal(text()?.parse().map_err(|_| KeyFault::Listing)?),
        KeyType::Uuid => KeyValue::Uuid(fixed(element)?),
        KeyType::Date => KeyValue::Date(column_buffer::date_from_postgres(i32::from_be_bytes(fixed(element)?))),
        KeyType::Time => KeyValue::Time(i64::from_be_bytes(fixed(element)?)),
        KeyType::Timestamp => {
            let micros = column_buffer::timestamp_from_postgres(i64::from_be_bytes(fixed(element)?));
            KeyValue::Timestamp(micros.ok_or(KeyFault::OutOfRange)?)
        }
        KeyType::TimestampTz => {
            let micros = column_buffer::timestamp_from_postgres(i64::from_be_bytes(fixed(element)?));
            KeyValue::TimestampTz(micros.ok_or(KeyFault::OutOfRange)?)
        }
    };
    value.encode(key_type, out).map_err(|_| KeyFault::Listing)
}

fn fixed<const N: usize>(element: &[u8]) -> Result<[u8; N], KeyFault> {
    element.try_into().map_err(|_| KeyFault::Listing)
}

/// Reads the elements of a one-dimensional array without nulls.
struct ArrayReader<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> ArrayReader<'a> {
    fn new(bytes: &'a [u8]) -> Result<ArrayReader<'a>, KeyFault> {
        let mut reader = ArrayReader { rest: bytes, left: 0 };
        let dimensions = reader.number()?;
        let (_nulls, _element_type) = (reader.number()?, reader.number()?);
        match dimensions {
            0 => Ok(reader),
            1 => {
                reader.left = usize::try_from(reader.number()?).map_err(|_| KeyFault::Listing)?;
                let _lower_bound = reader.number()?;
                Ok(reader)
            }
            _ => Err(KeyFault::Listing),
        }
    }

    fn next(&mut self) -> Result<&'a [u8], KeyFault> {
        let length = usize::try_from(self.number()?).map_err(|_| KeyFault::Listing)?;
        let (element, rest) = self.rest.split_at_checked(length).ok_or(KeyFault::Listing)?;
        self.rest = rest;
        self.left -= 1;
        Ok(element)
    }

    fn number(&mut self) -> Result<i32, KeyFault> {
        let (number, rest) = self.rest.split_first_chunk::<4>().ok_or(KeyFault::Listing)?;
        self.rest = rest;
        Ok(i32::from_be_bytes(*number))
    }
}

/// Returns the column values of an encoded key, in key order.
pub(crate) fn key_values(parts: &[KeyPart], key: &[u8]) -> Result<Vec<Value>, KeyFault> {
    let mut reader = KeyReader::new(key);
    let values = parts
        .iter()
        .map(|part| {
            Ok(match reader.next_value(part.key_type)? {
                KeyValue::Bool(value) => Value::Bool(value),
                KeyValue::Int(value) => Value::Int(value),
                KeyValue::UInt(value) => Value::Text(value.to_string().into()),
                KeyValue::Decimal(value) => Value::Decimal(value),
                KeyValue::Text(value) => Value::Text(value),
                KeyValue::Bytes(value) => Value::Bytes(value),
                KeyValue::Uuid(value) => Value::Uuid(value),
                KeyValue::Date(value) => Value::Date(value),
                KeyValue::Time(value) => Value::Time(value),
                KeyValue::Timestamp(value) => Value::Timestamp(value),
                KeyValue::TimestampTz(value) => Value::TimestampTz(value),
            })
        })
        .collect::<Result<Vec<_>, KeyError>>()?;
    reader.finish()?;
    Ok(values)
}

/// Returns an encoded key as a JSON object, for an operator to read: numbers and booleans as such, the rest as text.
pub(crate) fn key_json(parts: &[KeyPart], key: &[u8]) -> Result<String, KeyFault> {
    let values = key_values(parts, key)?;
    let object = parts
        .iter()
        .zip(values)
        .map(|(part, value)| {
            let value = match value {
                Value::Bool(value) => value.into(),
                Value::Int(value) => value.into(),
                value => {
                    let mut text = Vec::new();
                    text_form::append(&ColumnType::Text(None), b',', &value, &mut text);
                    String::from_utf8_lossy(&text).into_owned().into()
                }
            };
            (part.name.clone(), value)
        })
        .collect::<serde_json::Map<String, serde_json::Value>>();
    Ok(serde_json::Value::Object(object).to_string())
}
