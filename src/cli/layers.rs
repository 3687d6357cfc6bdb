//! Flags, environment and file put together: flags win over the environment, the environment over the file.
//!
//! The flags of `apply` are the settings: each is also an environment variable and a key of the file, by a rule and
//! not by a list. What a lower layer says, and no higher one, is handed to clap as if it stood on the command line, so
//! that there is one parser for all three; [`Origins`] remembers where it came from, for messages. Repeatable settings
//! are maps: a property given in a higher layer replaces the same one of a lower layer, the others stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use clap::{ArgAction, ArgMatches, parser::ValueSource};
use toml::{Table, Value};

use crate::config::Usage;

/// The environment's variables.
pub type Environment = BTreeMap<String, String>;

/// What all environment variables of the program begin with.
const PREFIX: &str = "SINK_REPAIR_";

/// The furthest that a name can be from a known one and still be called a slip of the pen.
const SLIP: f64 = 0.8;

/// Where a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Environment,
    File(PathBuf),
}

/// Where the values stand that do not stand on the command line.
#[derive(Debug, Default)]
pub(super) struct Origins(Vec<(String, String, Origin)>);

impl Origins {
    /// Names the place of `value` of the setting `long` in the words of the layer that it stands in.
    pub(super) fn place(&self, long: &str, value: Option<&str>) -> String {
        let here =
            |(name, given, _): &&(String, String, Origin)| name == long && value.is_none_or(|value| value == given);
        match self.0.iter().find(here) {
            None => format!("--{long}"),
            Some((_, _, Origin::Environment)) => variable(long),
            Some((_, _, Origin::File(path))) => format!("`{long}` in {}", path.display()),
        }
    }
}

/// Returns the environment variable of a flag.
pub(super) fn variable(long: &str) -> String {
    format!("{PREFIX}{}", long.to_uppercase().replace('-', "_"))
}

/// A configuration file, read: its keys with their values as flags would have them.
#[derive(Debug, Default)]
pub(super) struct File {
    path: PathBuf,
    values: BTreeMap<String, Vec<String>>,
}

/// Returns the arguments that stand for what the lower layers say to `command`, and where each comes from.
/// `matches` are those of the command line alone.
pub(super) fn below(
    command: &clap::Command,
    matches: &ArgMatches,
    settings: &BTreeSet<String>,
    environment: &Environment,
    file: &File,
) -> (Vec<String>, Origins) {
    let mut arguments = Vec::new();
    let mut origins = Origins::default();
    for arg in command.get_arguments() {
        let Some(long) = arg.get_long().filter(|long| settings.contains(*long)) else { continue };
        let repeatable = matches!(arg.get_action(), ArgAction::Append);
        if !repeatable && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine) {
            continue;
        }
        // A variable without a value is as good as none: compose files often leave one empty.
        let in_environment = environment.get(&variable(long)).filter(|value| !value.is_empty());
        let from_environment =
            in_environment.map(|value| if repeatable { entries(value) } else { vec![value.clone()] });
        let from_file = file.values.get(long).filter(|_| repeatable || from_environment.is_none()).cloned();
        let layers = [(from_file, Origin::File(file.path.clone())), (from_environment, Origin::Environment)];
        for (values, origin) in layers {
            for value in values.into_iter().flatten() {
                arguments.push(format!("--{long}={value}"));
                origins.0.push((long.to_owned(), value, origin.clone()));
            }
        }
    }
    (arguments, origins)
}

/// Splits a repeatable variable: at line ends, or at commas that a `KEY=` follows (values may hold commas).
fn entries(text: &str) -> Vec<String> {
    if text.contains('\n') {
        return text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    }
    let begins_entry = |part: &str| {
        part.split_once('=').is_some_and(|(key, _)| {
            let key = key.trim();
            !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        })
    };
    let mut entries: Vec<String> = Vec::new();
    for part in text.split(',') {
        match entries.last_mut() {
            Some(entry) if !begins_entry(part) => *entry = format!("{entry},{part}"),
            _ => entries.push(part.to_owned()),
        }
    }
    entries
}

/// Says which variables look like settings whose name was misspelt. Others with the prefix are left alone:
/// Kubernetes makes some for a service called `sink-repair`.
pub(super) fn misspelt(environment: &Environment, settings: &BTreeSet<String>) -> Vec<String> {
    let known: BTreeSet<String> = settings.iter().map(String::as_str).chain(["config"]).map(variable).collect();
    let unknown = environment.keys().filter(|name| name.starts_with(PREFIX) && !known.contains(*name));
    unknown
        .filter_map(|name| {
            let nearest = nearest(name, known.iter().map(String::as_str)).filter(|near| {
                // The common prefix makes all of them look alike.
                strsim::normalized_levenshtein(&near[PREFIX.len()..], &name[PREFIX.len()..]) >= SLIP
            })?;
            Some(format!("the environment variable {name} is not a setting and is ignored: did you mean {nearest}?"))
        })
        .collect()
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, is no TOML, or has a key that is no setting.
    pub(super) fn read(path: &Path, settings: &BTreeSet<String>, repeatable: &BTreeSet<String>) -> Result<File, Usage> {
        let text = std::fs::read_to_string(path).map_err(|err| {
            Usage::new(format!("read {}: {err}", path.display())).hint("check the path given with --config")
        })?;
        File::parse(&text, path, settings, repeatable).map_err(|usage| usage.at(path.display()))
    }

    fn parse(
        text: &str,
        path: &Path,
        settings: &BTreeSet<String>,
        repeatable: &BTreeSet<String>,
    ) -> Result<File, Usage> {
        // The parser's own rendering shows the line, which may hold a password.
        let table: Table = text.parse().map_err(|err: toml::de::Error| {
            let line = err.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            Usage::new(format!("line {line}: {}", err.message())).hint("the file is TOML: key = \"value\"")
        })?;
        let mut values = BTreeMap::new();
        for (key, value) in table {
            if !settings.contains(&key) {
                let hint = nearest(&key, settings.iter().map(String::as_str)).map_or_else(
                    || "keys are the flags' names: sink-repair apply --help".into(),
                    |near| format!("did you mean `{near}`?"),
                );
                return Err(Usage::new(format!("`{key}` is not a setting")).hint(hint));
            }
            let given = if repeatable.contains(&key) { pairs(&key, value)? } else { vec![scalar(&key, value)?] };
            values.insert(key, given);
        }
        Ok(File { path: path.to_owned(), values })
    }
}

fn scalar(key: &str, value: Value) -> Result<String, Usage> {
    match value {
        Value::String(text) => Ok(text),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(truth) => Ok(truth.to_string()),
        Value::Array(items) => {
            let items = items.into_iter().map(|item| scalar(key, item)).collect::<Result<Vec<_>, _>>()?;
            Ok(items.join(","))
        }
        Value::Datetime(_) => Err(Usage::new(format!("`{key}` is a date")).hint("put it in quotes")),
        Value::Table(_) => Err(Usage::new(format!("`{key}` is a table")).hint(format!("write {key} = \"value\""))),
    }
}

/// Reads a table of names and values; `a.b = 1` is a table in a table to TOML, and one name here.
fn pairs(key: &str, value: Value) -> Result<Vec<String>, Usage> {
    fn flatten(key: &str, prefix: &str, table: Table, out: &mut Vec<String>) -> Result<(), Usage> {
        for (name, value) in table {
            let name = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
            match value {
                Value::Table(inner) => flatten(key, &name, inner, out)?,
                value => out.push(format!("{name}={}", scalar(key, value)?)),
            }
        }
        Ok(())
    }
    match value {
        Value::Table(table) => {
            let mut out = Vec::new();
            flatten(key, "", table, &mut out)?;
            Ok(out)
        }
        _ => {
            Err(Usage::new(format!("`{key}` is not a table")).hint(format!("write [{key}] and a line for each entry")))
        }
    }
}

/// Returns the known name that `name` most resembles, if it resembles any.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let resemblance = |known: &&str| (strsim::jaro_winkler(name, known) * 1000.0) as u32;
    known.max_by_key(resemblance).filter(|known| strsim::jaro_winkler(name, known) > SLIP)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn parse(text: &str) -> Result<BTreeMap<String, Vec<String>>, Usage> {
        let settings =
            names(&["kafka", "source-table", "topics", "memory", "max-removals", "allow-cascade", "sink-password"]);
        File::parse(text, Path::new("f.toml"), &settings, &names(&["kafka", "source-table"])).map(|file| file.values)
    }

    #[test]
    fn dotted_names_in_a_table_are_one_name() {
        let values = parse(
            "[kafka]\nsecurity.protocol = \"SSL\"\n\"ssl.ca.location\" = \"/ca\"\nstatistics.interval.ms = 5\n\
             [source-table]\nshop.orders = \"public.orders\"\n",
        )
        .unwrap();

        assert_eq!(values["kafka"], ["security.protocol=SSL", "ssl.ca.location=/ca", "statistics.interval.ms=5"]);
        assert_eq!(values["source-table"], ["shop.orders=public.orders"]);
    }

    #[test]
    fn values_of_any_kind_are_taken_as_flags_have_them() {
        let values =
            parse("topics = [\"a\", \"b\"]\nmax-removals = 7\nallow-cascade = true\nmemory = '1MiB'\n").unwrap();

        assert_eq!(values["topics"], ["a,b"]);
        assert_eq!(values["max-removals"], ["7"]);
        assert_eq!(values["allow-cascade"], ["true"]);
        assert_eq!(values["memory"], ["1MiB"]);
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        for (text, message, hint) in [
            ("topcis = 'a'", "`topcis` is not a setting", "did you mean `topics`?"),
            ("max_removals = 1", "`max_removals` is not a setting", "did you mean `max-removals`?"),
            ("zzz = 1", "`zzz` is not a setting", "keys are the flags' names: sink-repair apply --help"),
            ("kafka = 'a=b'", "`kafka` is not a table", "write [kafka] and a line for each entry"),
            ("[memory]\nmax = 1", "`memory` is a table", "write memory = \"value\""),
        ] {
            assert_eq!(parse(text).unwrap_err(), Usage::new(message).hint(hint));
        }
    }

    #[test]
    fn a_line_that_is_no_toml_is_named_and_not_shown() {
        let error = parse("memory = '1MiB'\nsink-password = hunter2\n").unwrap_err();

        assert!(error.message.starts_with("line 2: "), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }

    #[test]
    fn a_repeatable_variable_is_split_at_lines_or_at_commas_before_a_key() {
        assert_eq!(entries("a.b=1,c-d=2"), ["a.b=1", "c-d=2"]);
        assert_eq!(entries("debug=broker,topic,client.id=x"), ["debug=broker,topic", "client.id=x"]);
        assert_eq!(entries("a=1,b=2\n c=3,d=4 \n\n"), ["a=1,b=2", "c=3,d=4"]);
    }

    #[test]
    fn only_variables_that_look_misspelt_are_mentioned() {
        let environment: Environment =
            ["SINK_REPAIR_TOPIC", "SINK_REPAIR_PORT", "SINK_REPAIR_SERVICE_HOST", "SINK_REPAIR_MEMORY", "TOPICS"]
                .map(|name| (name.to_owned(), "x".to_owned()))
                .into();

        assert_eq!(
            misspelt(&environment, &names(&["topics", "memory"])),
            [
                "the environment variable SINK_REPAIR_TOPIC is not a setting and is ignored: did you mean SINK_REPAIR_TOPICS?"
            ]
        );
    }
}
