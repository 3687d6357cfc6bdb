//! A sink table as SQL needs to know it, beside the shape that the worker sees.

use std::sync::Arc;

use sink_api::{KeyType, TableShape};

use crate::binding::Carrier;

/// A table with what its statements are made of.
#[derive(Debug, PartialEq)]
pub(crate) struct Table {
    /// What the worker sees.
    pub(crate) shape: Arc<TableShape>,
    /// The table's name as SQL text.
    pub(crate) sql: String,
    /// The primary key constraint's name as SQL text. Upserts name the constraint: while its index is being rebuilt
    /// concurrently, naming the columns may miss it.
    pub(crate) key_constraint: String,
    /// As the columns of the shape.
    pub(crate) columns: Vec<TableColumn>,
    /// As the key of the shape; `None` when a key column's type cannot be encoded.
    pub(crate) key: Option<Vec<KeyPart>>,
    /// Whether something beside the key must be unique at once, so that rows may stand in each other's way.
    pub(crate) other_unique: bool,
    /// Whether a row may come to stand under another key than it was written with: by a trigger, or by a key column that
    /// the server computes.
    pub(crate) rewrites_rows: bool,
    /// Whether updates that change nothing are left out (`suppress_redundant_updates_trigger`): what was not written may be
    /// there as it should be.
    pub(crate) leaves_unchanged: bool,
    /// Whether the table is partitioned: a look into its index is one into each partition's.
    pub(crate) partitioned: bool,
    /// Whether the server insists on making a column's values itself.
    pub(crate) identity_always: bool,
    /// Of the definition that all this was read from.
    pub(crate) fingerprint: String,
}

/// How a column travels.
#[derive(Debug, PartialEq)]
pub(crate) struct TableColumn {
    /// Its name as SQL text.
    pub(crate) sql: String,
    /// The parameter's type.
    pub(crate) carrier: Carrier,
    /// What turns the parameter into the column's base type: `::"pg_catalog"."jsonb"`, or nothing.
    pub(crate) cast: String,
    /// The same for a parameter that is text.
    pub(crate) text_cast: String,
    /// What turns the column into text that `text_cast` reads: `::text`, but for types whose text depends on the
    /// server's language.
    pub(crate) to_text: String,
    /// What separates the elements of an array's text form.
    pub(crate) delimiter: u8,
    /// The most bytes that the type takes, where it cuts longer texts in silence.
    pub(crate) most_bytes: Option<usize>,
    /// Whether the column is part of the key.
    pub(crate) is_key: bool,
}

/// How a key column travels.
#[derive(Debug, PartialEq)]
pub(crate) struct KeyPart {
    /// Its name.
    pub(crate) name: String,
    /// Its index in the shape.
    pub(crate) column: usize,
    /// Its name as SQL text.
    pub(crate) sql: String,
    /// How its values are encoded.
    pub(crate) key_type: KeyType,
    /// The parameter's type.
    pub(crate) carrier: Carrier,
    /// What turns the parameter into the column's base type.
    pub(crate) cast: String,
    /// What gives the column the encoding's order where it does not have it: `COLLATE ...`, or nothing. An index of
    /// that order exists.
    pub(crate) collate: String,
    /// What turns the column into the form in which keys are listed.
    pub(crate) listed: String,
}

impl Table {
    /// Returns `write public.orders` and the like.
    pub(crate) fn doing(&self, verb: &str) -> String {
        format!("{verb} {}", self.shape.name)
    }
}

impl KeyPart {
    /// Returns the column as an ordered expression, behind a table's alias.
    pub(crate) fn ordered(&self, alias: &str) -> String {
        format!("{alias}.{}{}", self.sql, self.collate)
    }
}
