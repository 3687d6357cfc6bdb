//! Settings that an operator chooses from a few: the worker's own, and how the source connector writes values.

use clap::ValueEnum;

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

/// Debezium's `decimal.handling.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum DecimalMode {
    Precise,
    Double,
    String,
}

/// Debezium's `time.precision.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum TimeMode {
    Adaptive,
    AdaptiveTimeMicroseconds,
    Connect,
    Isostring,
    Microseconds,
    Nanoseconds,
}

/// Debezium's `binary.handling.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum BinaryMode {
    Bytes,
    Base64,
    Base64UrlSafe,
    Hex,
}

/// Debezium's `interval.handling.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum IntervalMode {
    Numeric,
    String,
}

/// Debezium's `hstore.handling.mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs)]
pub enum HstoreMode {
    Json,
    Map,
}

/// How the source connector writes values; needed where a record has no schema to say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceModes {
    /// `decimal.handling.mode`
    pub decimal: DecimalMode,
    /// `time.precision.mode`
    pub time: TimeMode,
    /// `binary.handling.mode`
    pub binary: BinaryMode,
    /// `interval.handling.mode`
    pub interval: IntervalMode,
    /// `hstore.handling.mode`
    pub hstore: HstoreMode,
    /// `unavailable.value.placeholder`
    pub unavailable_placeholder: String,
}
