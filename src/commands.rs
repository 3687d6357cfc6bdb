//! From a command to the room that does it.

use std::sync::Arc;

use crate::{apply, config::Command, metrics::Metrics, operate, status, stop};

/// How a command ended that did what it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As asked.
    Done,
    /// As asked, and a person must look at something.
    Found,
}

impl Outcome {
    /// Returns the exit code.
    pub fn code(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::Found => 2,
        }
    }
}

/// Exit code of a command that failed.
pub const FAILED: u8 = 1;

/// Exit code of a command that was called wrongly (`EX_USAGE` of `sysexits.h`).
pub const USAGE: u8 = 64;

/// Runs a command until it is done. `apply` ends in order on SIGTERM and SIGINT; the others just end.
///
/// # Errors
/// When it failed, with what happened and, where there is one, the way out.
pub async fn run(command: Command, metrics: Arc<Metrics>) -> anyhow::Result<Outcome> {
    match command {
        Command::Apply(settings) => apply::apply(*settings, metrics, stop::on_signal()?).await,
        Command::Undo(settings) => operate::undo(settings).await,
        Command::Confirm(settings) => operate::confirm(settings).await,
        Command::Reset(settings) => operate::reset(settings).await,
        Command::Status(settings) => {
            let attention = tokio::task::spawn_blocking(move || status::run(&settings)).await??;
            Ok(if attention { Outcome::Found } else { Outcome::Done })
        }
    }
}
