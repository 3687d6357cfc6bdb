//! Keys in the canonical, order-preserving encoding.
//!
//! Every key has exactly one encoding, equal keys have equal bytes, and comparing the bytes (`memcmp`, the shorter first
//! when one begins the other) compares the keys as the source does. A key is its columns' encodings in key order, one
//! after the other, without tags, lengths or padding: the reader knows the types. No column's encoding begins
//! another one of its type, so whatever follows cannot disturb the order.
//!
//! This is a published format; `tests/vectors/keys.json` holds test vectors in the order of a real PostgreSQL.
//!
//! | type | encoding | value | bytes |
//! |---|---|---|---|
//! | `Bool` | `00` or `01` | `true` | `01` |
//! | `Int` | 8 bytes big-endian, sign bit flipped | `-1` | `7f ff ff ff ff ff ff ff` |
//! | | | `258` | `80 00 00 00 00 00 01 02` |
//! | `UInt` | 8 bytes big-endian | `258` | `00 00 00 00 00 00 01 02` |
//! | `Text` | UTF-8, each `00` written as `00 ff`; ended by `00 01` | `""` | `00 01` |
//! | | | `"é"` | `c3 a9 00 01` |
//! | `Bytes` | as text | `\x610062` | `61 00 ff 62 00 01` |
//! | `Uuid` | its 16 bytes | `00010203-0405-0607-0809-0a0b0c0d0e0f` | `00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f` |
//! | `Date` | days from 1970-01-01: 4 bytes big-endian, sign bit flipped | `1970-01-02` | `80 00 00 01` |
//! | | | `infinity` | `ff ff ff ff` |
//! | `Time` | microseconds from midnight: as `Int` | `00:00:01` | `80 00 00 00 00 0f 42 40` |
//! | `Timestamp` | microseconds from 1970-01-01T00:00:00: as `Int` | `1969-12-31 23:59:59.999999` | `7f ff ff ff ff ff ff ff` |
//! | `TimestampTz` | microseconds from 1970-01-01T00:00:00Z: as `Int` | `-infinity` | `00 00 00 00 00 00 00 00` |
//! | `Decimal` | below | `-Infinity` | `00` |
//! | | | `-12.5` | `01 7f ff ff fe f2 cc ff` |
//! | | | `0.00` | `02` |
//! | | | `0.01` | `03 80 00 00 00 02 00` |
//! | | | `1` | `03 80 00 00 01 02 00` |
//! | | | `12.50` | `03 80 00 00 01 0d 33 00` |
//! | | | `123456` | `03 80 00 00 03 0d 23 39 00` |
//! | | | `Infinity` | `04` |
//! | | | `NaN` | `05` |
//!
//! *Text and bytes.* `00 01` sorts below `00 ff`, so a value that goes on with a zero byte is above the one that ends,
//! whatever the next column holds; it sorts below every other byte, so a value is below its continuations.
//!
//! *Decimal.* A class byte: `00` -Infinity, `01` below zero, `02` zero, `03` above zero, `04` Infinity, `05` NaN, which
//! PostgreSQL sorts last. A finite number other than zero is then written as 0.p₁p₂p₃… · 100^e, where each pᵢ is a pair
//! of decimal digits (0 to 99), p₁ and the last pair are not 0: the exponent e as 4 bytes big-endian with the sign bit
//! flipped, each pair as one byte pᵢ + 1, then `00`. Below zero, every byte after the class byte is complemented.
//! At most 131,072 digits before the decimal point and 16,383 behind it (without zeros at the end), as PostgreSQL.

mod decimal;
mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Decimal;

pub use decode::KeyReader;
pub use encode::{append_bytes, append_text};
pub(crate) use encode::{int, int_of};

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
        /// Index of the first byte that is wrong; the length, when bytes are lacking.
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

    /// Returns the values, one for each of `types`; decimals in their normal form ([`Decimal::normalized`]).
    ///
    /// # Errors
    /// When the bytes are not the encoding of a key of these types, whole and to the last byte.
    pub fn decode(&self, types: &[KeyType]) -> Result<Vec<KeyValue>, KeyError> {
        let mut reader = KeyReader::new(&self.0);
        let values = types.iter().map(|key_type| reader.next_value(*key_type)).collect::<Result<_, _>>()?;
        reader.finish()?;
        Ok(values)
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
