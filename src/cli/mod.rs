//! From the command line, the environment and a file to a command with typed settings.
//!
//! ```text
//! flags ----------+
//! environment ----+-> layers -> clap (args) -> config -> Command
//! file -----------+
//! ```

mod args;
mod layers;
mod refusal;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{
    Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, builder::BoolishValueParser, parser::ValueSource,
};

pub(crate) use args::{
    ApplyArgs, CommandArgs, CommonArgs, ConfirmArgs, KafkaArgs, ResetArgs, SignalArgs, SinkArgs, StatementArgs,
    StatusArgs, StreamArgs, UndoArgs, ValueArgs,
};
pub use layers::Environment;

use args::Cli;
use layers::{File, Origins};

use crate::config::{Command, KafkaProperty, LogSettings, Usage};

/// What the caller wants.
#[derive(Debug)]
pub enum Parsed {
    /// Run a command.
    Run(Box<Invocation>),
    /// See a text (help, version): clap prints it.
    Show(clap::Error),
}

/// A command with its settings.
#[derive(Debug)]
pub struct Invocation {
    /// The command.
    pub command: Command,
    /// How to log.
    pub log: LogSettings,
    /// What is odd about the settings and does not stop the program; to be logged.
    pub warnings: Vec<String>,
}

/// Reads the command line `argv` (with the program's name first), `environment` and the file that one of them names.
///
/// # Errors
/// When they are wrong or do not fit together.
pub fn parse(argv: impl IntoIterator<Item = OsString>, environment: &Environment) -> Result<Parsed, Usage> {
    let argv: Vec<OsString> = argv.into_iter().collect();
    let mut app = app();
    let settings = settings(&app, |_| true);
    let repeatable = self::settings(&app, |arg| matches!(arg.get_action(), ArgAction::Append));

    let flags = match app.try_get_matches_from_mut(&argv) {
        Ok(flags) => flags,
        Err(err) if !err.use_stderr() => return Ok(Parsed::Show(err)),
        Err(err) => return Err(refusal::usage(&err, command_named_in(&app, &argv), &Origins::default())),
    };
    let (name, flags) = flags.subcommand().ok_or_else(|| Usage::new("no command is given"))?;
    let mut warnings = layers::misspelt(environment, &settings);
    warnings.extend(check_secrets(flags)?);

    let file = match config_file(flags, environment) {
        Some(path) => File::read(Path::new(&path), &settings, &repeatable)?,
        None => File::default(),
    };
    let subcommand = app.find_subcommand(name).expect("clap found it");
    let (below, origins) = layers::below(subcommand, flags, &settings, environment, &file);
    let whole = argv[..2].iter().cloned().chain(below.into_iter().map(OsString::from)).chain(argv[2..].iter().cloned());
    let cli = app
        .try_get_matches_from_mut(whole)
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|err| refusal::usage(&err, Some(name), &origins))?;

    let log = LogSettings::of(cli.command.common())?;
    let command = Command::of(cli.command)?;
    Ok(Parsed::Run(Box::new(Invocation { command, log, warnings })))
}

/// Returns clap's view of the program, with what follows from the rules and not from each flag: the variables'
/// names in the help, and switches that a flag can turn off again (`--allow-cascade=false`) when a file turns them on.
fn app() -> clap::Command {
    let app = Cli::command().arg_required_else_help(false);
    let settings = settings(&app, |_| true);
    let refine = |arg: Arg| {
        // So that `--max-removals -1` is a value which is refused, and no flag `-1`.
        let arg = if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg };
        let Some(long) = arg.get_long().filter(|long| settings.contains(*long)).map(str::to_owned) else { return arg };
        let switch = matches!(arg.get_action(), ArgAction::SetTrue);
        let default = arg.get_default_values().first().filter(|_| !switch).map(|value| value.display().to_string());
        let mut help = arg.get_help().cloned().unwrap_or_default().to_string();
        for (what, value) in [("default", default), ("env", Some(layers::variable(&long)))] {
            // With a space at which no line is broken.
            help.extend(value.map(|value| format!(" [{what}:\u{a0}{value}]")));
        }
        let arg = arg.help(help).hide_default_value(true);
        if !switch {
            return arg;
        }
        arg.action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .value_parser(BoolishValueParser::new())
            .value_name("BOOL")
            .default_value("false")
            .default_missing_value("true")
            .hide_possible_values(true)
    };
    let names: Vec<String> = app.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    names.into_iter().fold(app, |app, name| app.mut_subcommand(name, |command| command.mut_args(refine)))
}

/// Returns the names of the settings: the flags of `apply` that `which` accepts.
fn settings(app: &clap::Command, which: impl Fn(&Arg) -> bool) -> BTreeSet<String> {
    let apply = app.find_subcommand("apply").expect("`apply` is declared");
    let flags = apply.get_arguments().filter(|arg| which(arg)).filter_map(Arg::get_long);
    flags.filter(|long| !matches!(*long, "config" | "help" | "version")).map(str::to_owned).collect()
}

fn command_named_in<'a>(app: &'a clap::Command, argv: &[OsString]) -> Option<&'a str> {
    let name = argv.get(1)?.to_str()?;
    app.find_subcommand(name).map(clap::Command::get_name)
}

fn config_file(flags: &ArgMatches, environment: &Environment) -> Option<PathBuf> {
    let in_environment = || environment.get(&layers::variable("config")).filter(|path| !path.is_empty());
    flags.get_one::<PathBuf>("config").cloned().or_else(|| in_environment().map(PathBuf::from))
}

/// Refuses or warns of secrets on the command line, where every user of the machine can read them.
fn check_secrets(flags: &ArgMatches) -> Result<Vec<String>, Usage> {
    let on_command_line =
        |id: &str| flags.ids().any(|known| known == id) && flags.value_source(id) == Some(ValueSource::CommandLine);
    let advice = "every user of this machine can read it";
    let mut warnings = Vec::new();
    if on_command_line("sink_password") {
        return Err(Usage::new(format!("the sink's password stands on the command line, where {advice}"))
            .hint("set SINK_REPAIR_SINK_PASSWORD, or name a file with --sink-password-file"));
    }
    if on_command_line("sink") {
        let given = flags.get_one::<crate::config::GivenSink>("sink");
        if given.is_some_and(|given| given.password.is_some()) {
            warnings.push(format!("--sink holds a password on the command line, where {advice}: set SINK_REPAIR_SINK_PASSWORD, or use --sink-password-file"));
        }
    }
    if on_command_line("kafka") {
        let given = flags.get_many::<KafkaProperty>("kafka").into_iter().flatten();
        for property in given.filter(|property| KafkaProperty::is_secret(property.name())) {
            let name = property.name();
            warnings.push(format!("--kafka {name} stands on the command line, where {advice}: set SINK_REPAIR_KAFKA, or write it into the --config file"));
        }
    }
    Ok(warnings)
}

impl CommandArgs {
    fn common(&self) -> &CommonArgs {
        match self {
            CommandArgs::Apply(args) => &args.common,
            CommandArgs::Status(args) => &args.common,
            CommandArgs::Undo(args) => &args.common,
            CommandArgs::Confirm(args) => &args.common,
            CommandArgs::Reset(args) => &args.common,
        }
    }
}

#[cfg(test)]
mod tests;
