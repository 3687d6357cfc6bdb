//! Settings that an operator chooses from a few: the worker's own, and how the source connector writes values.

use clap::{ValueEnum, builder::PossibleValue};

use crate::decode::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, TimeMode};

/// What a statement of absence does to the orphans it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Orphans {
    /// Says what it would remove.
    Report,
    /// Removes them.
    Remove,
    /// Nothing: statements are dropped.
    Ignore,
}

/// Where a lane begins that has neither a frontier nor a committed offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StartAt {
    /// At the oldest record that Kafka still has.
    Earliest,
    /// After the newest record.
    Latest,
}

/// What a truncate in the stream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TruncateMode {
    /// Stops the lane.
    Stop,
    /// Empties the sink table.
    Apply,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How a command's answer looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    Text,
    /// JSON.
    Json,
}

/// Lets an operator choose a mode of the source connector by the name that Debezium gives it.
macro_rules! chosen_by_name {
    ($($mode:ty),+) => {$(
        impl ValueEnum for $mode {
            fn value_variants<'a>() -> &'a [$mode] {
                <$mode>::ALL
            }

            fn to_possible_value(&self) -> Option<PossibleValue> {
                Some(PossibleValue::new(self.as_str()))
            }
        }
    )+};
}

chosen_by_name!(DecimalMode, TimeMode, BinaryMode, IntervalMode, HstoreMode);
