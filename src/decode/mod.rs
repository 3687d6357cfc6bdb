//! Pure: from a record to an event.
//!
//! [`Decoder::decode`] tells what a record says. It needs to know the sink's tables; when it meets one that it was not
//! taught yet it answers [`DecodeError::NeedsTable`], the caller looks the table up, calls [`Decoder::learn`] and
//! decodes the same record again. So decoding itself does no I/O.

mod authentic;
mod claim;
mod decoder;
mod deletes;
mod envelope;
mod event;
mod fault;
mod json;
mod key;
mod keylist;
mod mapping;
mod markers;
mod modes;
mod own;
mod placeholder;
mod row;
mod rows;
mod said;
mod same_value;
mod schema;
mod settings;
mod signal;
mod tables;
#[cfg(test)]
mod tests;
mod value;
mod whose;
mod wire;

use std::sync::Arc;

use sink_api::{Key, TableName, TableShape};

pub use authentic::sign;
pub use decoder::Decoder;
pub use event::{Claim, Damaged, Event, EventXid, OtherRecord, Part, ReadName, RowEvent, Snapshot, SourceTable};
pub use mapping::{MappingError, TableMapping};
pub use modes::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, Modes, TimeMode, UnknownMode};
pub use placeholder::Placeholder;
pub use settings::{DecodeSettings, MARKER_PREFIX};

/// Why a record could not be decoded.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodeError {
    /// The shape of this sink table is needed first.
    NeedsTable {
        /// The table.
        table: TableName,
        /// The refusal of the statement or marker that needs it, in case the sink has no such table: whoever may write
        /// messages may name any. `None` for a record that is a change.
        refused: Option<Box<Damaged>>,
    },
    /// The record itself is bad: it is parked in the dead letter queue, or stops the lane.
    Bad(BadRecord),
    /// The set-up does not fit the stream (a column that the sink lacks, a mode that was not declared): the sink's
    /// catalog is read again once, then the lane stops.
    Setup {
        /// The sink table, if it is known.
        table: Option<TableName>,
        /// What does not fit, naming columns.
        reason: String,
        /// What to do about it.
        hint: String,
    },
}

/// Where in the line a bad record failed, by Kafka Connect's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// `KEY_CONVERTER`
    KeyConverter,
    /// `VALUE_CONVERTER`
    ValueConverter,
    /// `TASK_PUT`
    TaskPut,
}

/// A record that cannot be applied.
#[derive(Clone, Debug, PartialEq)]
pub struct BadRecord {
    /// Where it failed.
    pub stage: Stage,
    /// The source's or the sink's name of the table, if it is known.
    pub table: Option<String>,
    /// Its number in the decoder, where the record itself says which it is.
    pub feed: Option<usize>,
    /// The key, when it could be read: it counts as changed.
    pub key: Option<(Arc<TableShape>, Key)>,
    /// What is wrong, without row data.
    pub reason: String,
}
