//! Signatures of markers.
//!
//! Whoever may log in to the source may emit messages, so with a key markers are signed. The field `mac` is the
//! HMAC-SHA256, in hexadecimal, of the payload without `mac` in canonical form: no blanks, the fields of every object
//! sorted by the bytes of their names, strings with no escapes but those that JSON demands (`\"`, `\\`, `\b`, `\f`, `\n`,
//! `\r`, `\t`, `\u00xx` for other control characters), numbers as they stand. Python's
//! `json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)` writes it.

use std::{borrow::Cow, fmt::Write};

use hmac::{Hmac, Mac};
use serde_json::value::RawValue;
use sha2::Sha256;

use super::json::{self, Broken, Kind};

/// Deeper than any payload goes; the canonical form is written recursively.
const DEEPEST: usize = 16;

/// Returns the signature of a marker's payload, in hexadecimal. A field `mac` in it does not count.
///
/// Returns `None` when the payload is no JSON object, repeats a field, or is nested deeper than any marker.
pub fn sign(key: &[u8], payload: &str) -> Option<String> {
    Some(hex::encode(hmac(key, payload)?.finalize().into_bytes()))
}

/// Whether `mac` is the signature of `payload`. Takes the same time wherever they differ.
pub(super) fn is_signed(key: &[u8], payload: &str, mac: &str) -> bool {
    match (hmac(key, payload), hex::decode(mac)) {
        (Some(hmac), Ok(mac)) => hmac.verify_slice(&mac).is_ok(),
        _ => false,
    }
}

fn hmac(key: &[u8], payload: &str) -> Option<Hmac<Sha256>> {
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    let mut text = String::with_capacity(payload.len());
    write_object(&mut text, payload, DEEPEST, Some("mac")).ok()?;
    hmac.update(text.as_bytes());
    Some(hmac)
}

fn write_value(out: &mut String, raw: &RawValue, depth: usize) -> Result<(), Broken> {
    let depth = depth.checked_sub(1).ok_or(Broken::Kind("flat enough"))?;
    match Kind::of(raw) {
        Kind::Object => write_object(out, raw.get(), depth, None),
        Kind::Array => {
            out.push('[');
            let mut first = true;
            json::array(raw.get(), |element| {
                if !std::mem::take(&mut first) {
                    out.push(',');
                }
                write_value(out, element, depth)
            })?;
            out.push(']');
            Ok(())
        }
        Kind::String => {
            write_string(out, &json::string(raw).ok_or(Broken::Kind("text"))?);
            Ok(())
        }
        Kind::Null | Kind::Bool | Kind::Number => {
            out.push_str(raw.get());
            Ok(())
        }
    }
}

fn write_object(out: &mut String, text: &str, depth: usize, without: Option<&str>) -> Result<(), Broken> {
    let mut fields: Vec<(Cow<'_, str>, &RawValue)> = Vec::new();
    json::object::<Broken>(text, |name, value| {
        if without != Some(&name) {
            fields.push((name, value));
        }
        Ok(())
    })?;
    fields.sort_by(|(left, _), (right, _)| left.cmp(right));
    if let Some(pair) = fields.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Broken::Twice(pair[0].0.to_string()));
    }
    out.push('{');
    for (index, (name, value)) in fields.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(out, name);
        out.push(':');
        write_value(out, value, depth)?;
    }
    out.push('}');
    Ok(())
}

fn write_string(out: &mut String, text: &str) {
    // Writing to a string does not fail; serde_json escapes just what JSON demands.
    let _ = write!(out, "{}", serde_json::Value::from(text));
}
