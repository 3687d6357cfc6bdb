//! The flags of every command, as clap reads them. What may be left out, and what goes together, is decided in
//! `config`, where flags, environment and file have been put together.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgAction, Args, Parser, Subcommand};
use sink_api::TableName;

use crate::{
    config::{
        GivenSink, KafkaProperty, LogFormat, Orphans, OutputFormat, StartAt, TopicTable, TruncateMode, Usage, defaults,
        kafka, sink, table, units,
    },
    decode::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, TableMapping, TimeMode},
};

/// Repairs CDC sinks in place: applies a change stream and removes orphan rows at proven positions of it.
#[derive(Debug, Parser)]
#[command(name = "sink-repair", version, max_term_width = 110, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CommandArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CommandArgs {
    /// Apply a change stream and its statements of absence to a sink.
    Apply(Box<ApplyArgs>),
    /// Show what a running worker does and what needs a person.
    Status(StatusArgs),
    /// Bring back rows that a statement removed, never over a row that is there.
    Undo(UndoArgs),
    /// Let a held statement go ahead: asks the source for a fresh read, with a ceiling.
    Confirm(ConfirmArgs),
    /// Forget what the sink remembers: of a topic, of a table's stream, of a source's transactions.
    Reset(ResetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The worker's name: workers of one name share the work, and the sink keeps their place under it.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,
    #[command(flatten)]
    pub(crate) stream: StreamArgs,
    #[command(flatten)]
    pub(crate) sink: SinkArgs,
    #[command(flatten)]
    pub(crate) tables: TableArgs,
    #[command(flatten)]
    pub(crate) statements: StatementArgs,
    #[command(flatten)]
    pub(crate) signal: SignalArgs,
    #[command(flatten)]
    pub(crate) values: ValueArgs,
    #[command(flatten)]
    pub(crate) flow: FlowArgs,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// TOML file whose keys are the flags' names; flags and environment win over it.
    #[arg(long, value_name = "FILE", help_heading = None::<&str>)]
    pub(crate) config: Option<PathBuf>,
    /// How log lines on standard error look.
    #[arg(long, value_name = "FORMAT", default_value = defaults::LOG, hide_possible_values = true, help_heading = LOGGING)]
    pub(crate) log: LogFormat,
    /// Least severity logged, also by module: info,librdkafka=warn.
    #[arg(long, value_name = "LEVEL", default_value = defaults::LOG_LEVEL, help_heading = LOGGING)]
    pub(crate) log_level: String,
}

const LOGGING: &str = "Logging";

#[derive(Debug, Args)]
#[command(next_help_heading = "Kafka")]
pub(crate) struct KafkaArgs {
    /// Brokers to begin with.
    #[arg(long, value_name = "HOST:PORT,...", value_parser = kafka::bootstrap_servers)]
    pub(crate) bootstrap_servers: Option<String>,
    /// Any librdkafka property, such as security.protocol=SSL; repeatable.
    #[arg(long, value_name = "KEY=VALUE", action = ArgAction::Append)]
    pub(crate) kafka: Vec<KafkaProperty>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Kafka")]
pub(crate) struct StreamArgs {
    /// Topics to read (either these or --topics-regex).
    #[arg(long, value_name = "NAME,...", value_parser = topic_list)]
    pub(crate) topics: Option<TopicList>,
    /// Read the topics whose whole name matches.
    #[arg(long, value_name = "RE", value_parser = kafka::topics_regex)]
    pub(crate) topics_regex: Option<String>,
    /// Consumer group [default: sink-repair-NAME].
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Where to begin without a frontier and a committed offset: earliest or latest.
    #[arg(long, value_name = "WHERE", default_value = defaults::START, hide_possible_values = true)]
    pub(crate) start: StartAt,
    /// Topic for records that cannot be applied [default: none, such a record stops its lane].
    #[arg(long, value_name = "NAME", value_parser = kafka::topic)]
    pub(crate) dead_letter_topic: Option<String>,
    /// Replicas of the dead letter topic, if it has to be made [default: the broker's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=99))]
    pub(crate) dead_letter_replication_factor: Option<u16>,
    /// Stop once every partition has reached the end offset seen at start.
    #[arg(long)]
    pub(crate) until_caught_up: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Sink")]
pub(crate) struct SinkArgs {
    /// Where rows go: postgres://USER@HOST/DB.
    #[arg(long, value_name = "URL", value_parser = sink::sink)]
    pub(crate) sink: Option<GivenSink>,
    /// File with the sink's password. The password itself may only stand in SINK_REPAIR_SINK_PASSWORD or in the
    /// --config file.
    #[arg(long, value_name = "FILE")]
    pub(crate) sink_password_file: Option<PathBuf>,
    /// Taken from environment and file only, never from the command line.
    #[arg(long, hide = true)]
    pub(crate) sink_password: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Sink")]
pub(crate) struct TableArgs {
    /// Sink table of a source table; {connector} and {database} may stand in it too.
    #[arg(long, value_name = "TEMPLATE", default_value = defaults::SINK_TABLE, value_parser = table::mapping)]
    pub(crate) sink_table: TableMapping,
    /// Source table of a topic whose flattened rows do not name it; repeatable.
    #[arg(long, value_name = "TOPIC=TABLE", action = ArgAction::Append)]
    pub(crate) source_table: Vec<TopicTable>,
    /// Drop values of columns that the sink's table lacks [default: such a column stops the lane].
    #[arg(long)]
    pub(crate) ignore_unknown_columns: bool,
    /// What a TRUNCATE in the stream does: stop (the lane) or apply (only with one topic of one partition and table).
    #[arg(long, value_name = "ACTION", default_value = defaults::TRUNCATE, hide_possible_values = true)]
    pub(crate) truncate: TruncateMode,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Statements of absence")]
pub(crate) struct StatementArgs {
    /// What happens to the orphans that a statement finds: report, remove or ignore.
    #[arg(long, value_name = "ACTION", default_value = defaults::ORPHANS, hide_possible_values = true)]
    pub(crate) orphans: Orphans,
    /// Hold a statement that would remove more rows than this.
    #[arg(long, value_name = "N", default_value = defaults::MAX_REMOVALS)]
    pub(crate) max_removals: u64,
    /// Hold a statement that would remove more than this share of the rows in its range (and more than 20).
    #[arg(long, value_name = "PERCENT", default_value = defaults::MAX_REMOVALS_PERCENT, value_parser = units::percent)]
    pub(crate) max_removals_percent: f64,
    /// Hold a statement that takes a table's removals of 24 hours above this [default: 1 % of its rows, at least 100].
    #[arg(long, value_name = "N")]
    pub(crate) max_removals_day: Option<u64>,
    /// How long copies of the rows that workers of this name removed are kept for `undo`, at least 1h.
    #[arg(long, value_name = "AGE", default_value = defaults::KEEP_REMOVED, value_parser = units::keep)]
    pub(crate) keep_removed: Duration,
    /// Remove orphans also where that sets off a foreign key's cascade or a delete trigger.
    #[arg(long)]
    pub(crate) allow_cascade: bool,
    /// File with the key of the markers' signatures; unsigned markers are refused then.
    #[arg(long, value_name = "FILE")]
    pub(crate) marker_key_file: Option<PathBuf>,
    /// Give up a read whose changed keys and lists need more memory than this.
    #[arg(long, value_name = "SIZE", default_value = defaults::WINDOW_MAX_BYTES, value_parser = units::bytes)]
    pub(crate) window_max_bytes: u64,
    /// Give up a read whose end has not come within this time.
    #[arg(long, value_name = "TIME", default_value = defaults::WINDOW_MAX_AGE, value_parser = units::span)]
    pub(crate) window_max_age: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Statements of absence")]
pub(crate) struct SignalArgs {
    /// Topic for repair requests [default: none, missing rows are only counted].
    #[arg(long, value_name = "NAME", value_parser = kafka::topic)]
    pub(crate) signal_topic: Option<String>,
    /// Key of repair requests: the source connector's topic.prefix.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) signal_key: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "How the source connector writes values (for records without schema)")]
pub(crate) struct ValueArgs {
    /// precise, double or string.
    #[arg(long, value_name = "MODE", default_value = defaults::DECIMAL_HANDLING_MODE, hide_possible_values = true)]
    pub(crate) decimal_handling_mode: DecimalMode,
    /// adaptive, adaptive_time_microseconds, connect, isostring, microseconds or nanoseconds.
    #[arg(long, value_name = "MODE", default_value = defaults::TIME_PRECISION_MODE, hide_possible_values = true)]
    pub(crate) time_precision_mode: TimeMode,
    /// bytes, base64, base64-url-safe or hex.
    #[arg(long, value_name = "MODE", default_value = defaults::BINARY_HANDLING_MODE, hide_possible_values = true)]
    pub(crate) binary_handling_mode: BinaryMode,
    /// numeric or string.
    #[arg(long, value_name = "MODE", default_value = defaults::INTERVAL_HANDLING_MODE, hide_possible_values = true)]
    pub(crate) interval_handling_mode: IntervalMode,
    /// json or map.
    #[arg(long, value_name = "MODE", default_value = defaults::HSTORE_HANDLING_MODE, hide_possible_values = true)]
    pub(crate) hstore_handling_mode: HstoreMode,
    /// What stands for a large value that did not change.
    #[arg(long, value_name = "TEXT", default_value = defaults::UNAVAILABLE_VALUE_PLACEHOLDER)]
    pub(crate) unavailable_value_placeholder: String,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Speed and memory")]
pub(crate) struct FlowArgs {
    /// Most rows in one batch.
    #[arg(long, value_name = "N", default_value = defaults::BATCH_ROWS, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) batch_rows: u32,
    /// Longest time that a batch waits to fill.
    #[arg(long, value_name = "TIME", default_value = defaults::BATCH_DELAY, value_parser = units::span)]
    pub(crate) batch_delay: Duration,
    /// Most memory for waiting records, over all lanes.
    #[arg(long, value_name = "SIZE", default_value = defaults::MEMORY, value_parser = units::bytes)]
    pub(crate) memory: u64,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Looking in")]
pub(crate) struct ListenArgs {
    /// Where the worker serves /metrics, /healthz, /readyz and /status; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = defaults::LISTEN, value_parser = address)]
    pub(crate) listen: SocketAddr,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The worker's address, instead of --listen: http://HOST:PORT.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// How the answer looks: text or json.
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub(crate) format: OutputFormat,
    #[command(flatten)]
    pub(crate) listen: ListenArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UndoArgs {
    /// Bring back what this statement removed (either this or --table).
    #[arg(long, value_name = "ID", conflicts_with_all = ["table", "since"])]
    pub(crate) read_id: Option<String>,
    /// Bring back what statements removed from this sink table.
    #[arg(long, value_name = "TABLE", value_parser = table::table_name, requires = "since")]
    pub(crate) table: Option<TableName>,
    /// From when on: an age (2h, 3d) or a time (2026-01-31T08:00:00Z).
    #[arg(long, value_name = "TIME", requires = "table")]
    pub(crate) since: Option<String>,
    #[command(flatten)]
    pub(crate) sink: SinkArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConfirmArgs {
    /// The held statement.
    #[arg(long, value_name = "ID")]
    pub(crate) read_id: Option<String>,
    /// Most rows that the fresh read may remove, over all partitions together.
    #[arg(long, value_name = "N")]
    pub(crate) up_to: Option<u64>,
    #[command(flatten)]
    pub(crate) sink: SinkArgs,
    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,
    #[command(flatten)]
    pub(crate) signal: SignalArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ResetArgs {
    /// Name of the (stopped) worker whose memory it is.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) name: Option<String>,
    /// Forget the source's transaction ids, after the source was restored to an earlier time.
    #[arg(long, conflicts_with_all = ["table", "topic"])]
    pub(crate) source: bool,
    /// Forget which stream feeds this sink table, so that another may.
    #[arg(long, value_name = "TABLE", value_parser = table::table_name, conflicts_with = "topic")]
    pub(crate) table: Option<TableName>,
    /// Move the place in this topic, after records were lost or the topic was made anew.
    #[arg(long, value_name = "NAME", value_parser = kafka::topic)]
    pub(crate) topic: Option<String>,
    /// Only in this partition [default: in all].
    #[arg(long, value_name = "N", requires = "topic", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) partition: Option<i32>,
    /// Where to go on: earliest, latest or an offset.
    #[arg(long, value_name = "WHERE", requires = "topic")]
    pub(crate) to: Option<String>,
    /// Take a --name that the sink does not know yet: a worker of that name begins at this place.
    #[arg(long, requires = "topic")]
    pub(crate) new_name: bool,
    #[command(flatten)]
    pub(crate) sink: SinkArgs,
    #[command(flatten)]
    pub(crate) kafka: KafkaArgs,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Topics as one value, so that a flag replaces the environment's list rather than adding to it.
#[derive(Clone, Debug)]
pub(crate) struct TopicList(pub(crate) Vec<String>);

fn topic_list(text: &str) -> Result<TopicList, Usage> {
    kafka::topics(text).map(TopicList)
}

fn name(text: &str) -> Result<String, Usage> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if text.is_empty() || text.len() > 100 || !text.bytes().all(legal) {
        return Err(Usage::new(format!("`{text}` cannot be a worker's name"))
            .hint("use 1 to 100 letters, digits, dots, underscores and hyphens, such as orders-to-search"));
    }
    Ok(text.to_owned())
}

fn address(text: &str) -> Result<SocketAddr, Usage> {
    text.parse().map_err(|_| {
        Usage::new(format!("`{text}` is not an address to listen on"))
            .hint("write IP:PORT, such as 127.0.0.1:9464, or 0.0.0.0:9464 for all of the machine's addresses")
    })
}
