//! Keys in the canonical, order-preserving encoding.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Decimal;

/// The type of one key column: it says how the column's values are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyType {
    /// `false` before `true`.
    Bool,
    /// Signed integers of up to 64 bits.
    Int,
    /// Unsigned integers of up to 64 bits.
    UInt,
    /// Decimal numbers of any size; 1.0 and 1.00 are one key.
    Decimal,
    /// Text under byte order of its UTF-8.
    Text,
    /// Bytes.
    Bytes,
    /// UUIDs.
    Uuid,
    /// Days.
    Date,
    /// Times of day, in microseconds.
    Time,
    /// Dates and times without zone, in microseconds.
    Timestamp,
    /// Instants, in microseconds.
    TimestampTz,
}

/// One column's value of a key. Units are those of [`crate::Value`].
#[derive(Clone, Debug, PartialEq)]
pub enum KeyValue {
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A decimal number.
    Decimal(Decimal),
    /// Text.
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
}

/// What is wrong with a key or its encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The value is not one of the column's key type.
    #[error("key column {column} takes {expected:?} values, not {found}")]
    WrongType {
        /// The column's place in the key, from 1.
        column: usize,
        /// The column's key type.
        expected: KeyType,
        /// What was there.
        found: &'static str,
    },
    /// Too few or too many values.
    #[error("the key has {expected} columns, not {found}")]
    WrongCount {
        /// How many columns the key has.
        expected: usize,
        /// How many values there were.
        found: usize,
    },
    /// The bytes are no encoding of a key of these types.
    #[error("byte {at} of the encoded key is not valid for its type")]
    Malformed {
        /// Index of the first byte that is wrong.
        at: usize,
    },
}

/// A primary key in the canonical encoding: comparing keys compares their bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<[u8]>);

impl Key {
    /// Takes bytes that are known to be an encoded key.
    pub fn from_encoded(bytes: impl Into<Box<[u8]>>) -> Key {
        Key(bytes.into())
    }

    /// Encodes `values`, one for each of `types`.
    ///
    /// # Errors
    /// When their number or a value's type does not fit.
    pub fn encode(types: &[KeyType], values: &[KeyValue]) -> Result<Key, KeyError> {
        if types.len() != values.len() {
            return Err(KeyError::WrongCount { expected: types.len(), found: values.len() });
        }
        let mut bytes = Vec::with_capacity(9 * types.len());
        for (column, (key_type, value)) in types.iter().zip(values).enumerate() {
            value.encode(*key_type, &mut bytes).map_err(|found| KeyError::WrongType {
                column: column + 1,
                expected: *key_type,
                found,
            })?;
        }
        Ok(Key(bytes.into()))
    }

    /// Returns the encoded bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", hex::encode(&self.0))
    }
}

impl KeyValue {
    /// Appends the encoding of the value as one column of type `key_type`.
    ///
    /// # Errors
    /// The kind of value there was, when it is not one of `key_type`.
    pub fn encode(&self, key_type: KeyType, out: &mut Vec<u8>) -> Result<(), &'static str> {
        match (key_type, self) {
            (KeyType::Bool, KeyValue::Bool(value)) => out.push(u8::from(*value)),
            (KeyType::Int, KeyValue::Int(value)) => out.extend_from_slice(&(*value ^ i64::MIN).to_be_bytes()),
            _ => return Err("another type"),
        }
        Ok(())
    }
}
