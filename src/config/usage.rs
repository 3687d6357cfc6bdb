//! What is wrong with the way the program was called, in two lines: what, and what to do.

use std::fmt;

/// A mistake in flags, environment or configuration file. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Usage {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Usage {
    /// Makes a mistake without a hint.
    pub fn new(message: impl Into<String>) -> Usage {
        Usage { message: message.into(), hint: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Usage {
        Usage { hint: Some(hint.into()), ..self }
    }

    /// Says where the mistake is, before what it is.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Usage {
        Usage { message: format!("{place}: {}", self.message), ..self }
    }
}
