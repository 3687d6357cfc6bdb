//! Row changes and the batches that they are merged into.

use std::sync::Arc;

use crate::{Key, Offset, TableShape, Value};

/// A row's values, one for each column of its table, in table order. Shared: merging and retrying copy no values.
pub type Row = Arc<[Value]>;

/// What a change does to its key.
#[derive(Clone, Debug, PartialEq)]
pub enum RowOp {
    /// The key has this row.
    Upsert(Row),
    /// The key has no row.
    Delete,
}

/// One decoded row change.
#[derive(Clone, Debug, PartialEq)]
pub struct RowChange {
    /// The sink table.
    pub table: Arc<TableShape>,
    /// The key.
    pub key: Key,
    /// Where the change stands in its partition.
    pub offset: Offset,
    /// What it does.
    pub op: RowOp,
}

/// All changes of one key in a batch, merged column by column into one.
#[derive(Clone, Debug, PartialEq)]
pub enum MergedChange {
    /// The key has this row; columns that keep their old value take it from the row that the sink holds.
    Upsert(Row),
    /// The key was deleted and made again: nothing of an older row survives.
    Replace(Row),
    /// The key has no row.
    Delete,
}

/// The merged changes of one table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableBatch {
    /// The sink table.
    pub table: Arc<TableShape>,
    /// One entry a key, in ascending key order, each with the offset of its last change.
    pub changes: Vec<(Key, Offset, MergedChange)>,
}

/// Merged changes of all tables, in order of table name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// One entry a table.
    pub tables: Vec<TableBatch>,
}
