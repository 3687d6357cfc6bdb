//! What clap refuses, in the program's two lines: what is wrong, and what to do.

use std::{
    error::Error,
    num::{IntErrorKind, ParseIntError},
};

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::layers::{Origins, nearest};
use crate::config::Usage;

/// Turns clap's error about `command` into ours. Repeats no value but of settings that are chosen from a list.
pub(super) fn usage(err: &clap::Error, command: Option<&str>, origins: &Origins) -> Usage {
    let text = |kind| match err.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let list = |kind| match err.get(kind) {
        Some(ContextValue::Strings(list)) => list.clone(),
        Some(ContextValue::String(text)) => vec![text.clone()],
        _ => Vec::new(),
    };
    let help = command.map_or("sink-repair --help".to_owned(), |command| format!("sink-repair {command} --help"));
    let flag = text(ContextKind::InvalidArg).unwrap_or_default();
    let long = flag.trim_start_matches("--").split([' ', '=', '[']).next().unwrap_or_default();
    let value = text(ContextKind::InvalidValue).unwrap_or_default();

    match err.kind() {
        ErrorKind::UnknownArgument => {
            let hint = match list(ContextKind::SuggestedArg).first() {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("run: {help}"),
            };
            let name = flag.split([' ', '=', '[']).next().unwrap_or_default();
            Usage::new(format!("there is no flag `{name}` here")).hint(hint)
        }
        ErrorKind::InvalidSubcommand => {
            let command = text(ContextKind::InvalidSubcommand).unwrap_or_default();
            Usage::new(format!("there is no command `{command}`")).hint(format!("run: {help}"))
        }
        ErrorKind::MissingSubcommand => Usage::new("no command is given").hint(format!("run: {help}")),
        ErrorKind::InvalidValue if value.is_empty() => {
            Usage::new(format!("{} has no value", origins.place(long, None))).hint(format!("run: {help}"))
        }
        ErrorKind::InvalidValue => {
            let valid = list(ContextKind::ValidValue);
            let hint = match nearest(value, valid.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("run: {help}"),
            };
            Usage::new(format!("{}: `{value}` is not one of {}", origins.place(long, Some(value)), valid.join(", ")))
                .hint(hint)
        }
        ErrorKind::ValueValidation => {
            let place = origins.place(long, Some(value));
            match err.source() {
                Some(cause) => match cause.downcast_ref::<Usage>() {
                    Some(ours) => ours.clone().at(place),
                    None if is_no_digit(cause) => Usage::new(format!("{place}: it is not a whole number, 0 or above"))
                        .hint(format!("run: {help}")),
                    None => Usage::new(format!("{place}: {cause}")).hint(format!("run: {help}")),
                },
                None => Usage::new(format!("{place} has a value that it cannot have")).hint(format!("run: {help}")),
            }
        }
        ErrorKind::ArgumentConflict => {
            let others = list(ContextKind::PriorArg);
            let other = others.first().map_or("itself", |other| other.split(' ').next().unwrap_or(other));
            if other == format!("--{long}") {
                return Usage::new(format!("--{long} is given twice")).hint("give it once");
            }
            Usage::new(format!("--{long} and {other} exclude each other")).hint("give one of them")
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = list(ContextKind::InvalidArg);
            Usage::new(format!("{} is missing", missing.join(" and "))).hint(format!("run: {help}"))
        }
        _ => Usage::new(err.kind().as_str().unwrap_or("the command line cannot be read")).hint(format!("run: {help}")),
    }
}

/// Whether a number has something else than digits in it.
fn is_no_digit(cause: &(dyn Error + 'static)) -> bool {
    cause.downcast_ref::<ParseIntError>().is_some_and(|error| *error.kind() == IntErrorKind::InvalidDigit)
}
