//! The settings of `apply`.

use std::{net::SocketAddr, time::Duration};

use super::{
    KafkaSettings, Orphans, Secret, SinkSettings, StartAt, TopicSelection, TopicTable, TruncateMode, Usage, required,
    secret, units,
};
use crate::{
    cli::{ApplyArgs, KafkaArgs, SignalArgs, StatementArgs, StreamArgs, ValueArgs},
    decode::{Modes, Placeholder, TableMapping},
};

/// A lane needs room for the largest record that a broker takes by default (1 MiB), several times over.
const LEAST_MEMORY: u64 = 4 << 20;

/// A batch that waits longer would look like a worker that hangs.
const LONGEST_BATCH_DELAY: Duration = Duration::from_secs(60);

/// Everything that `apply` is told.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplySettings {
    /// The worker's name.
    pub name: String,
    /// How to reach Kafka.
    pub kafka: KafkaSettings,
    /// The consumer group.
    pub group: String,
    /// What is read.
    pub topics: TopicSelection,
    /// Where a lane begins that has no place yet.
    pub start: StartAt,
    /// Whether to stop at the end offsets seen at start.
    pub until_caught_up: bool,
    /// Where rows go.
    pub sink: SinkSettings,
    /// How source tables become sink tables.
    pub tables: TableSettings,
    /// What statements may do.
    pub statements: StatementSettings,
    /// Where records go that cannot be applied; `None`: they stop their lane.
    pub dead_letter: Option<DeadLetterSettings>,
    /// Where repair requests go; `None`: missing rows are only counted.
    pub signal: Option<SignalSettings>,
    /// How the source connector writes values; needed where a record has no schema to say so.
    pub modes: Modes,
    /// Debezium's `unavailable.value.placeholder`.
    pub unavailable: Placeholder,
    /// When a batch is full.
    pub batch: BatchSettings,
    /// Most bytes of records waiting in all lanes.
    pub memory: u64,
    /// Where to serve metrics and status.
    pub listen: SocketAddr,
}

/// How source tables become sink tables.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSettings {
    /// The sink table of a source table, and the source tables of topics whose rows do not name theirs.
    pub mapping: TableMapping,
    /// Whether columns that the sink lacks are dropped; else they stop the lane.
    pub ignore_unknown_columns: bool,
    /// What a truncate does; `Apply` only with exactly one topic.
    pub truncate: TruncateMode,
}

/// What statements of absence may do.
#[derive(Clone, Debug, PartialEq)]
pub struct StatementSettings {
    /// What happens to orphans.
    pub orphans: Orphans,
    /// When a statement is held.
    pub caps: Caps,
    /// Whether removals may set off cascades and triggers.
    pub allow_cascade: bool,
    /// How long removed rows are kept.
    pub keep_removed: Duration,
    /// The key of the markers' signatures; `None`: unsigned markers are taken.
    pub marker_key: Option<Secret<Vec<u8>>>,
    /// Most bytes of changed keys and lists that a window may hold.
    pub window_max_bytes: u64,
    /// Longest time that a window may span.
    pub window_max_age: Duration,
}

/// When a statement is held rather than applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// Most rows one statement removes.
    pub max_removals: u64,
    /// Largest share of the rows in its range, in percent, once it is more than 20 rows.
    pub max_removals_percent: f64,
    /// Most rows that statements remove from a table in 24 hours; `None`: 1 % of its rows, at least 100.
    pub max_removals_day: Option<u64>,
}

/// The dead letter queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterSettings {
    /// The topic.
    pub topic: String,
    /// Its replicas, if it has to be made; `None`: as many as the broker makes by default.
    pub replication_factor: Option<u16>,
}

/// Where repair requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalSettings {
    /// The topic.
    pub topic: String,
    /// The records' key: the connector's `topic.prefix`.
    pub key: String,
}

/// When a batch is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchSettings {
    /// Most rows in it.
    pub rows: usize,
    /// Longest time that it waits to fill.
    pub delay: Duration,
}

impl ApplySettings {
    pub(crate) fn of(args: ApplyArgs) -> Result<ApplySettings, Usage> {
        let ApplyArgs { name, common: _, kafka, stream, sink, tables, statements, signal, values, flow, listen } = args;
        let name = required(name, "name", "give the worker a name that stays the same: --name orders-to-search")?;
        let topics = topic_selection(&stream)?;
        let dead_letter = dead_letter(&stream, &topics)?;
        let signal = signal_settings(signal, &topics)?;
        if tables.truncate == TruncateMode::Apply && topics.only().is_none() {
            return Err(Usage::new("--truncate apply needs --topics with exactly one topic: a truncate has no key and could be another table's")
                .hint("run a worker of its own for that topic, or leave --truncate at stop"));
        }
        let mapping = mapping(tables.sink_table, &tables.source_table, &topics)?;
        if flow.memory < LEAST_MEMORY {
            return Err(Usage::new(format!("--memory {} is too little for a lane", units::show_bytes(flow.memory)))
                .hint(format!("give at least {}", units::show_bytes(LEAST_MEMORY))));
        }
        if flow.batch_delay > LONGEST_BATCH_DELAY {
            return Err(Usage::new("--batch-delay is too long: changes would be held back in silence")
                .hint(format!("give at most {}", units::show_span(LONGEST_BATCH_DELAY))));
        }
        if statements.window_max_bytes < LEAST_MEMORY {
            return Err(Usage::new("--window-max-bytes is too little for a read to end within it")
                .hint(format!("give at least {}", units::show_bytes(LEAST_MEMORY))));
        }
        for (flag, text) in [
            ("group", stream.group.as_deref()),
            ("unavailable-value-placeholder", Some(&*values.unavailable_value_placeholder)),
        ] {
            if text.is_some_and(str::is_empty) {
                return Err(Usage::new(format!("--{flag} is empty")).hint("leave it out to have its default"));
            }
        }
        if statements.window_max_age < Duration::from_millis(100) {
            return Err(Usage::new("--window-max-age is too short").hint("give at least 100ms"));
        }

        Ok(ApplySettings {
            kafka: KafkaSettings::of(kafka)?,
            group: stream.group.unwrap_or_else(|| format!("sink-repair-{name}")),
            name,
            topics,
            start: stream.start,
            until_caught_up: stream.until_caught_up,
            sink: SinkSettings::of(sink)?,
            tables: TableSettings {
                mapping,
                ignore_unknown_columns: tables.ignore_unknown_columns,
                truncate: tables.truncate,
            },
            statements: StatementSettings::of(statements)?,
            dead_letter,
            signal,
            unavailable: Placeholder::new(&values.unavailable_value_placeholder),
            modes: modes(&values),
            batch: BatchSettings { rows: flow.batch_rows as usize, delay: flow.batch_delay },
            memory: flow.memory,
            listen: listen.listen,
        })
    }
}

impl KafkaSettings {
    pub(super) fn of(args: KafkaArgs) -> Result<KafkaSettings, Usage> {
        let bootstrap_servers =
            required(args.bootstrap_servers, "bootstrap-servers", "name a broker: --bootstrap-servers HOST:9092")?;
        Ok(KafkaSettings { bootstrap_servers, properties: args.kafka.into_iter().collect() })
    }
}

impl StatementSettings {
    fn of(args: StatementArgs) -> Result<StatementSettings, Usage> {
        let marker_key = args.marker_key_file.map(|path| secret::read_marker_key(&path)).transpose();
        Ok(StatementSettings {
            orphans: args.orphans,
            caps: Caps {
                max_removals: args.max_removals,
                max_removals_percent: args.max_removals_percent,
                max_removals_day: args.max_removals_day,
            },
            allow_cascade: args.allow_cascade,
            keep_removed: args.keep_removed,
            marker_key: marker_key.map_err(|usage| usage.at("--marker-key-file"))?,
            window_max_bytes: args.window_max_bytes,
            window_max_age: args.window_max_age,
        })
    }
}

fn modes(args: &ValueArgs) -> Modes {
    Modes {
        decimal: args.decimal_handling_mode,
        time: args.time_precision_mode,
        binary: args.binary_handling_mode,
        interval: args.interval_handling_mode,
        hstore: args.hstore_handling_mode,
    }
}

fn topic_selection(args: &StreamArgs) -> Result<TopicSelection, Usage> {
    match (&args.topics, &args.topics_regex) {
        (Some(topics), None) => Ok(TopicSelection::Names(topics.0.clone())),
        (None, Some(regex)) if regex.is_empty() => {
            Err(Usage::new("--topics-regex is empty").hint("write a pattern such as shop\\.inventory\\..*"))
        }
        (None, Some(regex)) => Ok(TopicSelection::Regex(regex.clone())),
        (Some(_), Some(_)) => Err(Usage::new("--topics and --topics-regex exclude each other")
            .hint("give one of them; look into the environment and the --config file too")),
        (None, None) => Err(Usage::new("no topics are given").hint("give --topics NAME,... or --topics-regex RE")),
    }
}

fn dead_letter(args: &StreamArgs, topics: &TopicSelection) -> Result<Option<DeadLetterSettings>, Usage> {
    let Some(topic) = args.dead_letter_topic.clone() else {
        return match args.dead_letter_replication_factor {
            None => Ok(None),
            Some(_) => Err(Usage::new("--dead-letter-replication-factor is given without --dead-letter-topic")
                .hint("name the topic, or leave the factor out")),
        };
    };
    if topics.names(&topic) {
        return Err(Usage::new(format!("`{topic}` is both read and the dead letter topic"))
            .hint("name another --dead-letter-topic"));
    }
    Ok(Some(DeadLetterSettings { topic, replication_factor: args.dead_letter_replication_factor }))
}

fn signal_settings(args: SignalArgs, topics: &TopicSelection) -> Result<Option<SignalSettings>, Usage> {
    let signal = SignalSettings::of(args)?;
    match &signal {
        Some(signal) if topics.names(&signal.topic) => {
            Err(Usage::new(format!("`{}` is both read and the signal topic", signal.topic))
                .hint("name the connector's signal topic (signal.kafka.topic) with --signal-topic"))
        }
        _ => Ok(signal),
    }
}

impl SignalSettings {
    pub(super) fn of(args: SignalArgs) -> Result<Option<SignalSettings>, Usage> {
        match (args.signal_topic, args.signal_key) {
            (None, None) => Ok(None),
            (Some(topic), Some(key)) if !key.is_empty() => Ok(Some(SignalSettings { topic, key })),
            (Some(_), _) => Err(Usage::new("--signal-topic is given without --signal-key")
                .hint("give the source connector's topic.prefix: it takes only requests with that key")),
            (None, Some(_)) => Err(Usage::new("--signal-key is given without --signal-topic")
                .hint("give the connector's signal topic (signal.kafka.topic)")),
        }
    }
}

fn mapping(mut mapping: TableMapping, given: &[TopicTable], topics: &TopicSelection) -> Result<TableMapping, Usage> {
    for TopicTable { topic, table } in given {
        if matches!(topics, TopicSelection::Names(_)) && !topics.names(topic) {
            return Err(Usage::new(format!("--source-table names the topic `{topic}`, which is not read"))
                .hint("add it to --topics, or correct the name"));
        }
        mapping.assign(topic, table).map_err(|error| Usage::new(error.reason).hint(error.hint))?;
    }
    Ok(mapping)
}
