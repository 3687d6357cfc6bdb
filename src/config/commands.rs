//! The settings of the commands that look, undo and decide.

use sink_api::{Offset, Partition, ReadId, TableName, UndoSelector};

use super::{KafkaSettings, OutputFormat, SignalSettings, SinkSettings, Usage, required, units};
use crate::{
    cli::{ConfirmArgs, ResetArgs, StatusArgs, UndoArgs},
    clock::UnixMillis,
};

/// What `status` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusSettings {
    /// The worker's address, with scheme and without a path.
    pub url: String,
    /// How the answer looks.
    pub format: OutputFormat,
}

/// What `undo` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoSettings {
    /// Where the rows are.
    pub sink: SinkSettings,
    /// Which to bring back.
    pub selector: UndoSelector,
}

/// What `confirm` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmSettings {
    /// Where the held statement is written down.
    pub sink: SinkSettings,
    /// How to reach Kafka.
    pub kafka: KafkaSettings,
    /// Where the request for a fresh read goes.
    pub signal: SignalSettings,
    /// The held statement.
    pub read_id: ReadId,
    /// Most rows that the fresh read may remove.
    pub up_to: u64,
}

/// What `reset` is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResetSettings {
    /// The sink that remembers.
    pub sink: SinkSettings,
    /// What to forget.
    pub reset: Reset,
}

/// What to forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The source's transaction ids, in all lanes of a worker name.
    Source {
        /// The worker's name.
        name: String,
    },
    /// The stream that feeds a table.
    Table(TableName),
    /// The place in a topic.
    Topic {
        /// The worker's name.
        name: String,
        /// How to reach Kafka, which knows the topic's id and ends.
        kafka: KafkaSettings,
        /// The topic.
        topic: String,
        /// Only in this partition; `None`: in all.
        partition: Option<Partition>,
        /// Where to go on.
        to: ResetTo,
        /// Whether the sink need not know the name yet.
        new_name: bool,
    },
}

/// Where to go on reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetTo {
    /// At the oldest record that Kafka still has.
    Earliest,
    /// After the newest record.
    Latest,
    /// At this offset.
    Offset(Offset),
}

impl StatusSettings {
    pub(super) fn of(args: StatusArgs) -> Result<StatusSettings, Usage> {
        let url = match args.url {
            Some(url) if url.starts_with("http://") => url.trim_end_matches('/').to_owned(),
            Some(url) => {
                return Err(Usage::new(format!("`{url}` is not a worker's address")).hint("write http://HOST:PORT"));
            }
            None => {
                // A worker that listens on all addresses is reached on the machine's own.
                let mut address = args.listen.listen;
                if address.ip().is_unspecified() {
                    let own =
                        if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
                    address.set_ip(own);
                }
                format!("http://{address}")
            }
        };
        Ok(StatusSettings { url, format: args.format })
    }
}

impl UndoSettings {
    pub(super) fn of(args: UndoArgs, now: UnixMillis) -> Result<UndoSettings, Usage> {
        let selector = match (args.read_id, args.table, args.since) {
            (Some(read_id), ..) => UndoSelector::Read(ReadId(read_id)),
            (None, Some(table), Some(since)) => {
                let since = units::moment(&since, now).map_err(|usage| usage.at("--since"))?;
                UndoSelector::Table { table, since: since.micros() }
            }
            _ => {
                return Err(Usage::new("it is not said what to undo").hint(
                    "give --read-id ID (from the log, or from sink_repair.statement), or --table TABLE --since 2h",
                ));
            }
        };
        Ok(UndoSettings { sink: SinkSettings::of(args.sink)?, selector })
    }
}

impl ConfirmSettings {
    pub(super) fn of(args: ConfirmArgs) -> Result<ConfirmSettings, Usage> {
        let read_id = required(args.read_id, "read-id", "give the held statement's id: sink-repair status shows it")?;
        let up_to =
            required(args.up_to, "up-to", "say how many rows the fresh read may remove, over all partitions together")?;
        let signal = SignalSettings::of(args.signal)?;
        Ok(ConfirmSettings {
            read_id: ReadId(read_id),
            up_to,
            signal: required(
                signal,
                "signal-topic",
                "give --signal-topic and --signal-key: the source is asked for a fresh read",
            )?,
            kafka: KafkaSettings::of(args.kafka)?,
            sink: SinkSettings::of(args.sink)?,
        })
    }
}

impl ResetSettings {
    pub(super) fn of(args: ResetArgs) -> Result<ResetSettings, Usage> {
        let ResetArgs { name, source, table, topic, partition, to, new_name, sink, kafka, common: _ } = args;
        let name = || required(name, "name", "give the name of the worker whose memory it is");
        let reset = match (source, table, topic) {
            (true, None, None) => Reset::Source { name: name()? },
            (false, Some(table), None) => Reset::Table(table),
            (false, None, Some(topic)) => {
                let to = required(to, "to", "say where to go on: earliest, latest or an offset")?;
                let partition = partition.map(Partition);
                Reset::Topic {
                    name: name()?,
                    kafka: KafkaSettings::of(kafka)?,
                    topic,
                    partition,
                    to: reset_to(&to, partition)?,
                    new_name,
                }
            }
            _ => return Err(Usage::new("it is not said what to reset").hint("give --topic, --table or --source")),
        };
        Ok(ResetSettings { sink: SinkSettings::of(sink)?, reset })
    }
}

fn reset_to(text: &str, partition: Option<Partition>) -> Result<ResetTo, Usage> {
    match text {
        "earliest" => Ok(ResetTo::Earliest),
        "latest" => Ok(ResetTo::Latest),
        text => match text.parse::<i64>() {
            Ok(offset) if offset >= 0 && partition.is_some() => Ok(ResetTo::Offset(Offset(offset))),
            Ok(offset) if offset >= 0 => {
                Err(Usage::new("--to with an offset needs --partition: an offset belongs to one partition")
                    .hint("name the partition"))
            }
            _ => Err(Usage::new(format!("--to: `{text}` is not a place in a topic"))
                .hint("write earliest, latest or an offset")),
        },
    }
}
