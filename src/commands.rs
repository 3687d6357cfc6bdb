//! From a command to the room that does it.

use std::sync::Arc;

use crate::{
    apply,
    config::{Command, ConfirmSettings, ResetSettings, UndoSettings},
    metrics::Metrics,
    status, stop,
};

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
        Command::Undo(settings) => undo(settings).await,
        Command::Confirm(settings) => confirm(settings).await,
        Command::Reset(settings) => reset(settings).await,
        Command::Status(settings) => {
            let attention = tokio::task::spawn_blocking(move || status::run(&settings)).await??;
            Ok(if attention { Outcome::Found } else { Outcome::Done })
        }
    }
}

/// Brings removed rows back and says, table by table, how many were restored, how many keys hold a row again, and what
/// could not be restored; `Found` when something could not.
async fn undo(settings: UndoSettings) -> anyhow::Result<Outcome> {
    anyhow::bail!("undo at {}: the sink is built in another room", settings.sink.address)
}

/// Looks the held statement up at the sink and sends `sink-repair-confirm` with the ceiling; says for which table and
/// range. An error when the statement is not held.
async fn confirm(settings: ConfirmSettings) -> anyhow::Result<Outcome> {
    anyhow::bail!("confirm {}: the sink is built in another room", settings.read_id)
}

/// Makes the sink forget, and says what was forgotten. An error when a worker still holds the lane.
async fn reset(settings: ResetSettings) -> anyhow::Result<Outcome> {
    anyhow::bail!("reset at {}: the sink is built in another room", settings.sink.address)
}
