//! The settings of every command, typed and checked against each other.
//!
//! [`crate::cli`] reads single values; here it is decided what may be left out and what goes together. Whoever holds a
//! settings value need not check it again. No `Debug` output holds a secret.

mod apply;
mod commands;
pub(crate) mod defaults;
pub(crate) mod kafka;
mod modes;
mod secret;
pub(crate) mod sink;
pub(crate) mod table;
pub(crate) mod units;
mod usage;

use tracing_subscriber::EnvFilter;

pub use apply::{
    ApplySettings, BatchSettings, Caps, DeadLetterSettings, SignalSettings, StatementSettings, TableSettings,
};
pub use commands::{ConfirmSettings, Reset, ResetSettings, ResetTo, StatusSettings, UndoSettings};
pub use kafka::{KafkaProperties, KafkaProperty, KafkaSettings, TopicSelection};
pub use modes::{LogFormat, Orphans, OutputFormat, StartAt, TruncateMode};
pub use secret::Secret;
pub use sink::{GivenSink, SinkAddress, SinkSettings};
pub use table::TopicTable;
pub use usage::Usage;

use crate::{
    cli::{CommandArgs, CommonArgs, SinkArgs},
    clock::UnixMillis,
};

/// A command with its settings.
#[derive(Debug)]
pub enum Command {
    /// `apply`
    Apply(Box<ApplySettings>),
    /// `status`
    Status(StatusSettings),
    /// `undo`
    Undo(UndoSettings),
    /// `confirm`
    Confirm(ConfirmSettings),
    /// `reset`
    Reset(ResetSettings),
}

impl Command {
    pub(crate) fn of(args: CommandArgs) -> Result<Command, Usage> {
        Ok(match args {
            CommandArgs::Apply(args) => Command::Apply(Box::new(ApplySettings::of(*args)?)),
            CommandArgs::Status(args) => Command::Status(StatusSettings::of(args)?),
            CommandArgs::Undo(args) => Command::Undo(UndoSettings::of(args, UnixMillis::now())?),
            CommandArgs::Confirm(args) => Command::Confirm(ConfirmSettings::of(args)?),
            CommandArgs::Reset(args) => Command::Reset(ResetSettings::of(args)?),
        })
    }
}

/// How to log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How a line looks.
    pub format: LogFormat,
    /// What is logged, in the syntax of `tracing_subscriber::EnvFilter`.
    pub level: String,
}

impl LogSettings {
    pub(crate) fn of(args: &CommonArgs) -> Result<LogSettings, Usage> {
        EnvFilter::try_new(&args.log_level).map_err(|_| {
            Usage::new(format!("`{}` is not a log level", args.log_level))
                .hint("write error, warn, info, debug or trace, also by module: info,librdkafka=debug")
        })?;
        Ok(LogSettings { format: args.log, level: args.log_level.clone() })
    }
}

impl SinkSettings {
    pub(crate) fn of(args: SinkArgs) -> Result<SinkSettings, Usage> {
        let given = required(args.sink, "sink", "say where rows go: --sink postgres://USER@HOST/DB")?;
        let password = match (args.sink_password, args.sink_password_file) {
            (Some(_), Some(_)) => {
                return Err(Usage::new("the sink's password is given twice: by itself and with --sink-password-file")
                    .hint("leave out SINK_REPAIR_SINK_PASSWORD (`sink-password` in the file), or the file's name"));
            }
            (Some(password), None) => Some(Secret::new(password)),
            (None, Some(path)) => Some(secret::read_password(&path).map_err(|usage| usage.at("--sink-password-file"))?),
            (None, None) => given.password,
        };
        Ok(SinkSettings { address: given.address, password })
    }
}

/// Returns what was given for the flag `--NAME`, or says that it is missing.
fn required<T>(given: Option<T>, name: &str, hint: &str) -> Result<T, Usage> {
    given.ok_or_else(|| Usage::new(format!("--{name} is missing")).hint(hint))
}
