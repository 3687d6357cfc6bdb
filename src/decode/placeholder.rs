//! Debezium's placeholder of an unchanged large column.
//!
//! PostgreSQL does not repeat a large value that an update leaves alone, so Debezium writes a placeholder. What it looks
//! like depends on the column's type: the text itself; its bytes in base64 (or hex); an array of one element, text or
//! bytes; an array of numbers, one a byte; a UUID made of it by name; a map from it to itself. A row that really holds
//! such a value cannot be told from a placeholder.

use md5::{Digest, Md5};
use serde_json::value::RawValue;

use super::json;

/// The placeholder, in each of its forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placeholder {
    bytes: Box<[u8]>,
    text: Box<str>,
    /// As JSON writes it.
    quoted: Box<str>,
    uuid: [u8; 16],
}

impl Default for Placeholder {
    fn default() -> Placeholder {
        Placeholder::new("__debezium_unavailable_value")
    }
}

impl Placeholder {
    /// Takes the value of Debezium's `unavailable.value.placeholder`: text, or `hex:` and bytes in hexadecimal.
    pub fn new(property: &str) -> Placeholder {
        let bytes = property
            .strip_prefix("hex:")
            .and_then(|digits| hex::decode(digits).ok())
            .unwrap_or_else(|| property.as_bytes().to_vec());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        // Java's UUID.nameUUIDFromBytes: MD5 with version 3 and the IETF variant.
        let mut uuid: [u8; 16] = Md5::digest(&bytes).into();
        uuid[6] = uuid[6] & 0x0f | 0x30;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let quoted = serde_json::Value::from(text.as_str()).to_string();
        Placeholder { bytes: bytes.into(), text: text.into(), quoted: quoted.into(), uuid }
    }

    /// Whether a JSON value is the placeholder as text.
    pub(super) fn is_text(&self, raw: &RawValue) -> bool {
        raw.get() == &*self.quoted
    }

    /// Whether text is the placeholder.
    pub(super) fn is_plain(&self, text: &str) -> bool {
        text == &*self.text
    }

    /// Whether bytes are the placeholder's.
    pub(super) fn is_bytes(&self, bytes: &[u8]) -> bool {
        bytes == &*self.bytes
    }

    /// Whether a UUID is the placeholder's.
    pub(super) fn is_uuid(&self, uuid: &[u8; 16]) -> bool {
        *uuid == self.uuid
    }

    /// Whether an array's elements are the placeholder's bytes, as numbers. Java's bytes have a sign.
    pub(super) fn is_numbers(&self, elements: &[&RawValue]) -> bool {
        elements.len() == self.bytes.len()
            && elements.iter().zip(&*self.bytes).all(|(element, byte)| {
                json::number(element).and_then(|text| text.parse::<i64>().ok()) == Some(i64::from(byte.cast_signed()))
            })
    }
}
