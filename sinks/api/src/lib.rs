//! What a sink is, and the words that the worker and its sinks share.
//!
//! The worker decodes a change stream into [`RowChange`]s and statements of absence. A [`Sink`] makes
//! them durable, one unit of work at a time:
//!
//! ```text
//! begin -> write(batch) -> [barrier: difference(extent, expected) -> rules -> remove(orphans)] -> commit(state)
//! ```
//!
//! Sinks know nothing of Kafka or Debezium; the worker knows nothing of SQL or bulk APIs. This crate
//! lies below both, and has neither I/O nor a runtime.

pub mod calendar;
pub mod change;
pub mod column;
pub mod decimal;
pub mod error;
pub mod key;
pub mod keyset;
pub mod merge;
pub mod position;
pub mod range;
pub mod sink;
pub mod source;
pub mod statement;
pub mod table;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod value;

pub use change::{Batch, MergedChange, Row, RowChange, RowOp, TableBatch};
pub use column::{Column, ColumnType};
pub use decimal::{Decimal, DecimalError};
pub use error::{ErrorClass, SinkError};
pub use key::{Key, KeyError, KeyReader, KeyType, KeyValue};
pub use keyset::{KeyList, KeySet};
pub use merge::{Difference, Merge};
pub use position::{LaneId, LaneState, Offset, Partition, Position, TopicId, Xid};
pub use range::{KeyBound, KeyRange};
pub use sink::{
    Claimed, DifferenceQuery, Extent, Removal, RemovalBudget, Sink, SinkLane, UndoSelector, Undone, Unit, Written,
};
pub use source::{Feed, Feeding, SourceName};
pub use statement::{HeldStatement, ReadId, Rule, StatementKind, StatementRow, Verdict};
pub use table::{KeyColumn, NotNative, TableName, TableShape};
pub use value::Value;
