//! Errors of a sink, sorted by what the lane does about them.

use std::{fmt, time::Duration};

/// What the lane does about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The sink is away or busy: the lane waits and tries again, for ever, and shows it.
    Transient,
    /// One record's content: the lane isolates the record, then parks or stops on it.
    Data,
    /// The set-up: the lane reads the catalog again once, then stops.
    Configuration,
    /// Another worker owns the partition now: the lane ends and has written nothing.
    Fenced,
}

/// An error of a sink: its class, a sentence for the operator and what to do.
///
/// Never holds row data, keys or credentials.
#[derive(Debug, thiserror::Error)]
pub struct SinkError {
    /// What the lane does about it.
    pub class: ErrorClass,
    /// What happened, beginning with what was being done: `write public.orders: connection refused`.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The sink's own code (an SQLSTATE, an HTTP status), for metrics and logs.
    pub code: Option<String>,
    /// How long to wait at least before the next try, when the sink said so.
    pub retry_after: Option<Duration>,
}

impl SinkError {
    /// Makes an error of a class.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> SinkError {
        SinkError { class, message: message.into(), hint: None, code: None, retry_after: None }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> SinkError {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the sink's own code.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> SinkError {
        self.code = Some(code.into());
        self
    }
}

impl fmt::Display for SinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(code) = &self.code {
            write!(f, " ({code})")?;
        }
        Ok(())
    }
}
