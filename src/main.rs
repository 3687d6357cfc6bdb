//! `sink-repair`: parse, start logging, run, exit code.

use std::{env, ffi::OsString, process::ExitCode, sync::Arc};

use anyhow::Context;
use sink_repair::{
    cli::{self, Environment, Invocation, Parsed},
    commands::{self, FAILED, Outcome, USAGE},
    logging,
    metrics::Metrics,
    terminal,
};

fn main() -> ExitCode {
    match cli::parse(env::args_os(), &environment()) {
        Ok(Parsed::Run(invocation)) => match run(*invocation) {
            Ok(outcome) => ExitCode::from(outcome.code()),
            Err(err) => {
                terminal::complain(&err);
                ExitCode::from(FAILED)
            }
        },
        Ok(Parsed::Show(text)) => {
            // A reader of the help that has gone away is no error.
            let _ = text.print();
            ExitCode::SUCCESS
        }
        Err(usage) => {
            terminal::complain(&usage.into());
            ExitCode::from(USAGE)
        }
    }
}

fn run(invocation: Invocation) -> anyhow::Result<Outcome> {
    let metrics = Arc::new(Metrics::new());
    logging::start(&invocation.log, metrics.log_counters())?;
    for warning in invocation.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(commands::run(invocation.command, metrics))
}

/// Returns the environment, without what is not Unicode: no setting is.
fn environment() -> Environment {
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    env::vars_os().filter_map(text).collect()
}
