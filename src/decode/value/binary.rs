//! Bytes and bit strings.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use serde_json::value::RawValue;
use sink_api::{ColumnType, Value};

use super::{Misfit, Reading};
use crate::decode::{json, modes::BinaryMode};

const ANY_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, ANY_PADDING);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, ANY_PADDING);

const NOT_BYTES: Misfit = Misfit::Value("it is not bytes in this form");

/// Decodes the text of bytes.
pub(crate) fn decode(mode: BinaryMode, text: &str) -> Result<Vec<u8>, Misfit> {
    match mode {
        BinaryMode::Bytes | BinaryMode::Base64 => STANDARD.decode(text).map_err(|_| NOT_BYTES),
        BinaryMode::Base64UrlSafe => URL_SAFE.decode(text).map_err(|_| NOT_BYTES),
        BinaryMode::Hex => hex::decode(text).map_err(|_| NOT_BYTES),
    }
}

/// Reads bytes. Into a column of another type they go as the text that they are: `include.unknown.datatypes` sends such.
pub(super) fn bytes(
    mode: BinaryMode,
    column: &ColumnType,
    raw: &RawValue,
    reading: Reading<'_>,
) -> Result<Value, Misfit> {
    let bytes = decode(mode, &json::string(raw).ok_or(NOT_BYTES)?)?;
    if reading.unavailable.is_some_and(|placeholder| placeholder.is_bytes(&bytes)) {
        return Ok(Value::Unchanged);
    }
    match column {
        ColumnType::Bytes => Ok(Value::Bytes(bytes.into())),
        ColumnType::Other(_) => String::from_utf8(bytes)
            .map(|text| Value::Text(text.into()))
            .map_err(|_| Misfit::Value("its bytes are not text")),
        _ => Err(Misfit::Types),
    }
}

/// Reads `bytea` as PostgreSQL writes it: `\x` and hexadecimal.
pub(super) fn postgres_bytes(raw: &RawValue) -> Result<Value, Misfit> {
    let text = json::string(raw).ok_or(NOT_BYTES)?;
    let digits = text.strip_prefix("\\x").ok_or(Misfit::Value("it does not start with \\x"))?;
    Ok(Value::Bytes(decode(BinaryMode::Hex, digits)?.into()))
}

/// Reads a bit string: a little-endian number, without zero bytes at the end.
///
/// The length of a `bit varying` is lost at the source: its value comes without leading zeros.
pub(super) fn bits(column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    let bytes = decode(BinaryMode::Bytes, &json::string(raw).ok_or(NOT_BYTES)?)?;
    let bit = |index: usize| bytes.get(index / 8).map_or(0, |byte| byte >> (index % 8) & 1);
    let used = (0..bytes.len() * 8).rev().find(|index| bit(*index) == 1).map_or(0, |highest| highest + 1);
    let length = match column {
        ColumnType::Bit(length) => *length as usize,
        ColumnType::VarBit(most) => most.map_or(used, |most| used.min(most as usize)),
        _ => return Err(Misfit::Types),
    };
    if used > length {
        return Err(Misfit::Value("it has more bits than the column holds"));
    }
    Ok(Value::Bits((0..length).rev().map(bit).collect()))
}
