//! A sink's tables, as the worker needs to know them.

use std::{collections::HashMap, fmt};

use serde::{Deserialize, Serialize};

use crate::{Column, KeyType};

/// A table's name: `schema.name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableName {
    /// The schema.
    pub schema: String,
    /// The name within the schema.
    pub name: String,
}

impl TableName {
    /// Makes a table name of its two parts.
    pub fn new(schema: impl Into<String>, name: impl Into<String>) -> TableName {
        TableName { schema: schema.into(), name: name.into() }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// Why a sink cannot list a key column's values in the encoding's order with an index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NotNative {
    /// What is in the way, naming the column: `text key "id" under collation "en_US.utf8"`.
    pub reason: String,
    /// What to do about it, ready to run where possible.
    pub hint: Option<String>,
}

/// One column of a table's primary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyColumn {
    /// Index into [`TableShape::columns`].
    pub column: usize,
    /// How its values are encoded. `Err` says why no value of it can be a key.
    pub key_type: Result<KeyType, NotNative>,
    /// Whether the sink lists ranges of it in the encoding's order, natively. Equality is not in question
    /// here: it holds for every column with a `key_type`.
    pub order: Result<(), NotNative>,
}

/// A sink table: its columns and its primary key, in key order.
#[derive(Clone, Debug, PartialEq)]
pub struct TableShape {
    /// The table.
    pub name: TableName,
    /// Its columns in table order.
    pub columns: Vec<Column>,
    /// Its primary key, in key order; never empty.
    pub key: Vec<KeyColumn>,
    /// What the removal of a row would set off beyond the row (cascading foreign keys, delete triggers):
    /// statements may not remove rows of such a table unless the operator allows it.
    pub removal_hazards: Vec<String>,
    by_name: HashMap<String, usize>,
}

impl TableShape {
    /// Makes a shape of its parts.
    pub fn new(name: TableName, columns: Vec<Column>, key: Vec<KeyColumn>, removal_hazards: Vec<String>) -> TableShape {
        let by_name = columns.iter().enumerate().map(|(index, column)| (column.name.clone(), index)).collect();
        TableShape { name, columns, key, removal_hazards, by_name }
    }

    /// Returns the index of the column called `name`.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Returns the key types in key order, or why the table's keys cannot be encoded.
    pub fn key_types(&self) -> Result<Vec<KeyType>, NotNative> {
        self.key.iter().map(|column| column.key_type.clone()).collect()
    }

    /// Whether a key that was read for `other` is the same key here: the columns' names, types and encodings are equal.
    pub fn has_key_of(&self, other: &TableShape) -> bool {
        let of = |shape: &TableShape, key: &KeyColumn| {
            let column = &shape.columns[key.column];
            (column.name.clone(), column.column_type.clone(), key.key_type.clone().ok())
        };
        self.key.iter().map(|key| of(self, key)).eq(other.key.iter().map(|key| of(other, key)))
    }

    /// Returns why a range of the table's keys cannot be evaluated in the encoding's order, if it cannot.
    pub fn range_order(&self) -> Result<(), NotNative> {
        self.key.iter().try_for_each(|column| column.order.clone())
    }
}
