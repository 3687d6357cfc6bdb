//! What stops decoding, before it is known of which table and key.

use sink_api::TableName;

use super::{Damaged, Stage, json::Broken};

/// Why a record cannot be decoded.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// The shape of a sink table is needed.
    Needs(TableName),
    /// The same of a statement, which is refused so if the table is not there.
    StatementNeeds(TableName, Box<Damaged>),
    /// The record is bad.
    Bad(Stage, String),
    /// The set-up does not fit.
    Setup { reason: String, hint: String },
}

impl Fault {
    /// The key is bad.
    pub(super) fn key(reason: impl Into<String>) -> Fault {
        Fault::Bad(Stage::KeyConverter, reason.into())
    }

    /// The value is bad.
    pub(super) fn value(reason: impl Into<String>) -> Fault {
        Fault::Bad(Stage::ValueConverter, reason.into())
    }
}

impl From<Broken> for Fault {
    /// As for a value: where a key is read it is said so.
    fn from(broken: Broken) -> Fault {
        Fault::value(format!("the value {broken}"))
    }
}
