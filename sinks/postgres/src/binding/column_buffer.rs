//! One column of a batch as a binary array.
//!
//! The form (`array_send`): number of dimensions, whether there are nulls, the element type, then length and lower bound
//! of the one dimension, then the elements, each behind its length in bytes, -1 for null. The header is written last,
//! over the room left for it.

use sink_api::{ColumnType, Value};
use sqlx::{
    Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgTypeInfo, types::Oid},
};

use super::{Carrier, fit, numeric, text_form};

const HEADER: usize = 20;

/// Days from 1970-01-01 to 2000-01-01, from where PostgreSQL counts.
const EPOCH_DAYS: i32 = 10_957;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * 86_400_000_000;

/// Why a value was not taken.
#[derive(Debug, PartialEq)]
pub(crate) enum ValueError {
    /// The column cannot hold it exactly, for this reason.
    Misfit(String),
    /// It has no binary form of the column's carrier: the column has to travel as text.
    NeedsText,
}

/// Builds one array parameter; its memory is used again for the next one.
#[derive(Debug)]
pub(crate) struct ColumnBuffer {
    bytes: Vec<u8>,
    carrier: Carrier,
    rows: i32,
    nulls: bool,
}

impl ColumnBuffer {
    pub(crate) fn new(carrier: Carrier) -> ColumnBuffer {
        ColumnBuffer { bytes: vec![0; HEADER], carrier, rows: 0, nulls: false }
    }

    /// Starts a new array.
    pub(crate) fn start(&mut self, carrier: Carrier) {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
        self.carrier = carrier;
        self.rows = 0;
        self.nulls = false;
    }

    /// Appends a value of a column; absent counts as null.
    ///
    /// # Errors
    /// When it does not fit; the buffer must be started anew then.
    pub(crate) fn push(&mut self, column_type: &ColumnType, delimiter: u8, value: &Value) -> Result<(), ValueError> {
        if matches!(value, Value::Null | Value::Absent | Value::Unchanged) {
            self.nulls = true;
            self.rows += 1;
            self.bytes.extend_from_slice(&(-1_i32).to_be_bytes());
            return Ok(());
        }
        fit::check(column_type, value).map_err(ValueError::Misfit)?;
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        append(self.carrier, column_type, delimiter, value, &mut self.bytes)?;
        self.close(at)
    }

    /// Appends what `write` writes in the carrier's binary form.
    pub(crate) fn push_with<E>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        write(&mut self.bytes)?;
        // Keys are short: an index entry takes 2,704 bytes at most.
        let _ = self.close(at);
        Ok(())
    }

    /// Completes the array.
    pub(crate) fn finish(&mut self) -> Raw<'_> {
        let dimensions = i32::from(self.rows > 0);
        self.bytes[0..4].copy_from_slice(&dimensions.to_be_bytes());
        self.bytes[4..8].copy_from_slice(&i32::from(self.nulls).to_be_bytes());
        self.bytes[8..12].copy_from_slice(&self.carrier.oid().to_be_bytes());
        self.bytes[12..16].copy_from_slice(&self.rows.to_be_bytes());
        self.bytes[16..20].copy_from_slice(&1_i32.to_be_bytes());
        let length = if self.rows > 0 { self.bytes.len() } else { 12 };
        Raw { oid: self.carrier.array_oid(), bytes: &self.bytes[..length] }
    }

    fn close(&mut self, at: usize) -> Result<(), ValueError> {
        let length = i32::try_from(self.bytes.len() - at - 4)
            .map_err(|_| ValueError::Misfit("the value is longer than 2 GiB".into()))?;
        self.bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
        self.rows += 1;
        Ok(())
    }
}

/// Appends the binary form of `value` as `carrier`.
fn append(
    carrier: Carrier,
    column_type: &ColumnType,
    delimiter: u8,
    value: &Value,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    match (carrier, value) {
        (Carrier::Text, value) => text_form::append(column_type, delimiter, value, out),
        (Carrier::Bool, Value::Bool(value)) => out.push(u8::from(*value)),
        // That the number fits was seen before.
        (Carrier::Int2, Value::Int(value)) => out.extend_from_slice(&(*value as i16).to_be_bytes()),
        (Carrier::Int4, Value::Int(value)) => out.extend_from_slice(&(*value as i32).to_be_bytes()),
        (Carrier::Int8, Value::Int(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (Carrier::Float4, Value::Float(value)) => out.extend_from_slice(&(*value as f32).to_be_bytes()),
        (Carrier::Float8, Value::Float(value)) => out.extend_from_slice(&value.to_be_bytes()),
        (Carrier::Numeric, Value::Decimal(value)) => {
            if !numeric::append(value, out) {
                return Err(ValueError::Misfit("the number has more digits than numeric takes".into()));
            }
        }
        (Carrier::Bytea, Value::Bytes(value)) => out.extend_from_slice(value),
        (Carrier::Uuid, Value::Uuid(value)) => out.extend_from_slice(value),
        (Carrier::Date, Value::Date(days)) => out.extend_from_slice(&date(*days)?.to_be_bytes()),
        (Carrier::Time, Value::Time(micros)) => out.extend_from_slice(&micros.to_be_bytes()),
        (Carrier::Timestamp, Value::Timestamp(micros)) | (Carrier::TimestampTz, Value::TimestampTz(micros)) => {
            out.extend_from_slice(&timestamp(*micros)?.to_be_bytes());
        }
        _ => return Err(ValueError::NeedsText),
    }
    Ok(())
}

/// Converts days from 1970 to days from 2000. Both infinities are the same numbers in both counts.
pub(super) fn date(days: i32) -> Result<i32, ValueError> {
    match days {
        i32::MIN | i32::MAX => Ok(days),
        days => days
            .checked_sub(EPOCH_DAYS)
            .filter(|days| *days != i32::MIN)
            .ok_or_else(|| ValueError::Misfit("the date is out of PostgreSQL's range".into())),
    }
}

/// Converts microseconds from 1970 to microseconds from 2000.
pub(super) fn timestamp(micros: i64) -> Result<i64, ValueError> {
    match micros {
        i64::MIN | i64::MAX => Ok(micros),
        micros => micros
            .checked_sub(EPOCH_MICROS)
            .filter(|micros| *micros != i64::MIN)
            .ok_or_else(|| ValueError::Misfit("the timestamp is out of PostgreSQL's range".into())),
    }
}

/// Converts microseconds from 1970 to microseconds from 2000, no further than PostgreSQL's first and last instant.
pub(crate) fn postgres_micros(micros: i64) -> i64 {
    timestamp(micros).unwrap_or(i64::MIN)
}

/// Converts days from 2000 to days from 1970.
pub(super) fn date_from_postgres(days: i32) -> i32 {
    if days == i32::MIN || days == i32::MAX { days } else { days + EPOCH_DAYS }
}

/// Converts microseconds from 2000 to microseconds from 1970; `None` for the last 30 years that PostgreSQL knows, which
/// only the former can count.
pub(super) fn timestamp_from_postgres(micros: i64) -> Option<i64> {
    if micros == i64::MIN || micros == i64::MAX { Some(micros) } else { micros.checked_add(EPOCH_MICROS) }
}

/// A parameter in PostgreSQL's own binary form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    /// Its type.
    pub(crate) oid: u32,
    /// Its bytes.
    pub(crate) bytes: &'a [u8],
}

impl Type<Postgres> for Raw<'_> {
    /// Never asked: `produces` names the type of each value.
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(Carrier::Bytea.oid()))
    }
}

impl Encode<'_, Postgres> for Raw<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(self.bytes);
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(PgTypeInfo::with_oid(Oid(self.oid)))
    }

    fn size_hint(&self) -> usize {
        self.bytes.len()
    }
}
