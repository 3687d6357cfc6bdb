//! From flags to librdkafka's properties.
//!
//! Three layers, later ones win: our defaults, the user's `--kafka KEY=VALUE`, and what must hold for the guarantees. A
//! user's value for one of the last is refused rather than overruled in silence.

use std::time::Duration;

use rdkafka::{
    config::{ClientConfig, RDKafkaLogLevel},
    error::KafkaError,
};
use rdkafka_sys::rd_kafka_conf_res_t as ConfRes;

use super::topics::TopicSelection;

/// How to reach the cluster.
#[derive(Clone)]
pub struct ClientSettings {
    /// `HOST:PORT,...`
    pub bootstrap_servers: String,
    /// librdkafka properties of the user, for all clients of the process.
    pub properties: Vec<(String, String)>,
}

/// What a consumer group reads, and how.
#[derive(Clone)]
pub struct ConsumerSettings {
    /// The cluster.
    pub client: ClientSettings,
    /// The consumer group.
    pub group: String,
    /// The topics.
    pub topics: TopicSelection,
    /// Bytes of records that all lanes together may hold; see [`Budget`](super::Budget).
    pub memory: usize,
    /// How long lanes may take to finish their unit of work when their partition is taken.
    pub release_within: Duration,
}

impl ConsumerSettings {
    /// Returns settings with the defaults.
    pub fn new(client: ClientSettings, group: impl Into<String>, topics: TopicSelection) -> ConsumerSettings {
        ConsumerSettings {
            client,
            group: group.into(),
            topics,
            memory: DEFAULT_MEMORY,
            release_within: DEFAULT_RELEASE_WITHIN,
        }
    }
}

/// Some batches for each of a dozen lanes; with librdkafka's prefetch and the program itself well below 64 MB.
pub const DEFAULT_MEMORY: usize = 16 << 20;

/// Long enough for a batch in hand, short enough that a rebalance of the whole group does not wait for a sink that is
/// down.
pub const DEFAULT_RELEASE_WITHIN: Duration = Duration::from_secs(5);

/// Settings that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(pub(super) String);

/// Properties that have a flag of their own.
const FLAGS: [(&str, &str); 3] = [
    ("bootstrap.servers", "--bootstrap-servers"),
    ("metadata.broker.list", "--bootstrap-servers"),
    ("group.id", "--group"),
];

/// Consumer properties that the guarantees rest on, with the reasons.
const HELD: [(&str, &str, &str); 6] = [
    ("enable.auto.commit", "false", "an offset is committed only after its effect is durable"),
    ("auto.commit.enable", "false", "an offset is committed only after its effect is durable"),
    ("enable.auto.offset.store", "false", "an offset is committed only after its effect is durable"),
    ("auto.offset.reset", "error", "lost records must stop the lane, not be skipped"),
    ("isolation.level", "read_committed", "records of aborted transactions never happened"),
    ("enable.partition.eof", "true", "it tells when a lane has caught up"),
];

/// The only classic strategy that moves a partition without stopping the others.
const STRATEGY: (&str, &str) = ("partition.assignment.strategy", "cooperative-sticky");

/// Defaults of every client, which the user may change.
const CLIENT_DEFAULTS: [(&str, &str); 4] = [
    ("client.id", "sink-repair"),
    ("socket.keepalive.enable", "true"),
    // A broker that is back should be noticed within seconds.
    ("reconnect.backoff.max.ms", "2000"),
    // New partitions and topics made anew are noticed within half a minute, not five.
    ("topic.metadata.refresh.interval.ms", "30000"),
];

/// Defaults of the consumer. The queues are small since the budget does not count what they hold; each figure was
/// measured with `examples/kafka_read.rs`.
const CONSUMER_DEFAULTS: [(&str, &str); 6] = [
    // Bytes of decompressed records that a partition may have waiting before it is left out of a fetch. With all its
    // overhead a partition that has a backlog takes about 3 MB.
    ("queued.max.messages.kbytes", "1024"),
    // The count must not end the prefetch before the bytes do, but for very small records: each costs 300 bytes more.
    ("queued.min.messages", "4000"),
    // Compressed bytes of a partition in one response. What comes is decompressed at once: Debezium's JSON by 10 to 20.
    ("fetch.message.max.bytes", "131072"),
    // The same over all partitions of a broker.
    ("fetch.max.bytes", "524288"),
    // A full queue is looked at again soon, since it drains in a few milliseconds: with the default, one second, the lane
    // starves at 2,400 records of 4 kB per second, with this it gets 80,000 and more.
    ("fetch.queue.backoff.ms", "5"),
    ("allow.auto.create.topics", "false"),
];

/// Settings of group membership, which only a member may have.
const MEMBERSHIP: [&str; 8] = [
    "group.protocol",
    "group.remote.assignor",
    "group.instance.id",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "group.protocol.type",
    "max.poll.interval.ms",
];

/// Two names of one property: a user's value under one must not meet our default under the other.
const ALIASES: [(&str, &str); 1] = [("max.partition.fetch.bytes", "fetch.message.max.bytes")];

impl ClientSettings {
    /// Checks every property of the user, by name and value.
    ///
    /// # Errors
    /// Names the property.
    pub fn check(&self) -> Result<(), SettingsError> {
        self.consumer("check").and(self.producer()).map(drop)
    }

    /// The settings of a member of `group`.
    pub(super) fn consumer(&self, group: &str) -> Result<ClientConfig, SettingsError> {
        let mut config = self.client()?;
        for (key, value) in CONSUMER_DEFAULTS {
            set_default(&mut config, key, value);
        }
        for (key, held, reason) in HELD {
            if let Some(value) = config.get(key).filter(|value| !value.eq_ignore_ascii_case(held)) {
                return Err(SettingsError(format!("`{key}={value}` cannot be set, it is always `{held}`: {reason}")));
            }
        }
        let (key, strategy) = STRATEGY;
        if config.get("group.protocol").is_none_or(|protocol| protocol.eq_ignore_ascii_case("classic")) {
            if let Some(value) = config.get(key).filter(|value| *value != strategy) {
                let why = "other strategies stop every lane whenever a worker comes or goes";
                return Err(SettingsError(format!("`{key}={value}` cannot be set, it is always `{strategy}`: {why}")));
            }
            config.set(key, strategy);
        }

        // Set last, so that nothing above can change them:
        // - offsets are committed by us alone, after their effect is durable;
        config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
        // - an offset that the log does not have is an error, never a silent jump;
        config.set("auto.offset.reset", "error");
        // - records of aborted transactions never happened;
        config.set("isolation.level", "read_committed");
        // - the end of a partition is told, for `--until-caught-up` and the lag;
        config.set("enable.partition.eof", "true");
        // - librdkafka wants no larger message than a response; for a consumer the limit has no other effect, and the
        //   user's value is meant for the producers;
        let response = config.get("fetch.max.bytes").unwrap_or("52428800").to_owned();
        config.set("message.max.bytes", response);
        // - librdkafka says that a topic was made anew in its metadata log alone, and reads on in the new one;
        let debug = config.get("debug").filter(|debug| !debug.is_empty());
        let debug = debug.map_or("metadata".to_owned(), |debug| format!("{debug},metadata"));
        config.set("debug", debug).set_log_level(RDKafkaLogLevel::Debug);
        // - who we are is said by flags of their own.
        config.set("group.id", group);
        validated(config)
    }

    /// The settings of a client that looks things up for `group` without being a member.
    pub(super) fn observer(&self, group: &str) -> Result<ClientConfig, SettingsError> {
        let mut config = self.consumer(group)?;
        for key in MEMBERSHIP {
            config.remove(key);
        }
        config.remove("debug");
        // Its errors show as failed look-ups, in better words.
        config.set_log_level(RDKafkaLogLevel::Critical);
        validated(config)
    }

    /// The settings of a producer.
    pub(super) fn producer(&self) -> Result<ClientConfig, SettingsError> {
        let mut config = self.client()?;
        // Kafka Connect's choice of partition for dead letters.
        set_default(&mut config, "partitioner", "murmur2_random");
        // Short, so that a failure comes back to the lane, which shows it and tries again.
        set_default(&mut config, "message.timeout.ms", "30000");
        // What came from Kafka with headers added must not fail here: the broker's own limit decides.
        set_default(&mut config, "message.max.bytes", "16777216");
        set_default(&mut config, "queue.buffering.max.kbytes", "32768");
        set_default(&mut config, "linger.ms", "0");
        for (key, held) in [("enable.idempotence", "true"), ("acks", "all"), ("request.required.acks", "all")] {
            if let Some(value) = config.get(key).filter(|value| !value.eq_ignore_ascii_case(held) && *value != "-1") {
                let why = "a dead letter must be on every replica before its offset is committed";
                return Err(SettingsError(format!("`{key}={value}` cannot be set, it is always `{held}`: {why}")));
            }
        }
        config.remove("request.required.acks");

        // Set last: the offset of a dead letter is committed on the strength of this acknowledgement.
        config.set("acks", "all").set("enable.idempotence", "true");
        validated(config)
    }

    /// The settings that every client has.
    pub(super) fn client(&self) -> Result<ClientConfig, SettingsError> {
        let mut config = ClientConfig::new();
        for (key, value) in CLIENT_DEFAULTS {
            config.set(key, value);
        }
        for (key, value) in &self.properties {
            if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| name == key) {
                return Err(SettingsError(format!("`{key}` is set with `{flag}`")));
            }
            config.set(key, value);
        }
        config.set("bootstrap.servers", &self.bootstrap_servers);
        config.set_log_level(RDKafkaLogLevel::Info);
        validated(config)
    }
}

fn set_default(config: &mut ClientConfig, key: &str, value: &str) {
    let alias = ALIASES.iter().find(|(_, name)| *name == key).map(|(alias, _)| *alias);
    if config.get(key).is_none() && alias.is_none_or(|alias| config.get(alias).is_none()) {
        config.set(key, value);
    }
}

/// Lets librdkafka look at every property.
fn validated(config: ClientConfig) -> Result<ClientConfig, SettingsError> {
    match config.create_native_config() {
        Ok(_) => Ok(config),
        Err(KafkaError::ClientConfig(ConfRes::RD_KAFKA_CONF_UNKNOWN, _, key, _)) => {
            Err(SettingsError(format!("`{key}` is not a property of librdkafka {}", librdkafka_version())))
        }
        // The value may be a secret, and librdkafka's description repeats it.
        Err(KafkaError::ClientConfig(_, _, key, _)) => {
            Err(SettingsError(format!("the value of the librdkafka property `{key}` is not valid")))
        }
        Err(err) => Err(SettingsError(format!("read the librdkafka properties: {err}"))),
    }
}

fn librdkafka_version() -> String {
    rdkafka::util::get_rdkafka_version().1
}

/// Puts a reason of librdkafka that made a client impossible into a settings error.
pub(super) fn refused(err: &KafkaError) -> SettingsError {
    SettingsError(format!("make a Kafka client: {err}"))
}

pub(super) fn no_thread(err: &std::io::Error) -> SettingsError {
    SettingsError(format!("start a thread: {err}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn settings(properties: &[(&str, &str)]) -> ClientSettings {
        ClientSettings {
            bootstrap_servers: "broker:9092".into(),
            properties: properties.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
        }
    }

    fn refusal(properties: &[(&str, &str)]) -> String {
        settings(properties).check().unwrap_err().to_string()
    }

    #[test]
    fn a_property_that_the_guarantees_rest_on_is_refused_with_the_reason() {
        assert_eq!(
            refusal(&[("enable.auto.commit", "true")]),
            "`enable.auto.commit=true` cannot be set, it is always `false`: an offset is committed only after its \
             effect is durable"
        );
        assert!(refusal(&[("auto.offset.reset", "earliest")]).contains("must stop the lane"));
        assert!(refusal(&[("isolation.level", "read_uncommitted")]).contains("aborted transactions"));
        assert!(refusal(&[("partition.assignment.strategy", "range")]).contains("cooperative-sticky"));
        assert!(settings(&[("enable.auto.commit", "false")]).check().is_ok(), "saying what holds is no error");
    }

    #[test]
    fn an_unknown_property_is_named() {
        let message = refusal(&[("sesion.timeout.ms", "1")]);

        assert!(message.starts_with("`sesion.timeout.ms` is not a property of librdkafka 2."), "{message}");
    }

    #[test]
    fn a_value_that_is_not_valid_is_not_repeated() {
        let message = refusal(&[("session.timeout.ms", "hunter2")]);

        assert_eq!(message, "the value of the librdkafka property `session.timeout.ms` is not valid");
    }

    #[test]
    fn properties_with_a_flag_of_their_own_point_to_it() {
        assert_eq!(refusal(&[("group.id", "other")]), "`group.id` is set with `--group`");
    }

    #[test]
    fn what_must_hold_holds_and_the_rest_is_the_users() {
        let config = settings(&[("session.timeout.ms", "10000"), ("max.partition.fetch.bytes", "1000000")])
            .consumer("repair")
            .unwrap();

        let value = |key: &str| config.get(key).map(str::to_owned);
        assert_eq!(value("enable.auto.commit").as_deref(), Some("false"));
        assert_eq!(value("enable.auto.offset.store").as_deref(), Some("false"));
        assert_eq!(value("auto.offset.reset").as_deref(), Some("error"));
        assert_eq!(value("isolation.level").as_deref(), Some("read_committed"));
        assert_eq!(value("partition.assignment.strategy").as_deref(), Some("cooperative-sticky"));
        assert_eq!(value("session.timeout.ms").as_deref(), Some("10000"));
        assert_eq!(value("fetch.message.max.bytes"), None, "the user's alias stands alone");
    }

    #[test]
    fn the_consumer_protocol_leaves_out_the_settings_that_it_forbids() {
        let config = settings(&[("group.protocol", "consumer")]).consumer("repair").unwrap();

        assert_eq!(config.get("partition.assignment.strategy"), None);
        assert_eq!(config.get("session.timeout.ms"), None);
        config.create::<rdkafka::consumer::BaseConsumer>().map(drop).unwrap();
    }

    #[test]
    fn an_observer_is_no_member() {
        let config = settings(&[("group.instance.id", "a"), ("group.protocol", "consumer")]).observer("r").unwrap();

        assert_eq!((config.get("group.instance.id"), config.get("group.protocol")), (None, None));
        assert_eq!(config.get("group.id"), Some("r"));
    }

    #[test]
    fn a_producer_waits_for_every_replica() {
        let config = settings(&[]).producer().unwrap();

        assert_eq!((config.get("acks"), config.get("enable.idempotence")), (Some("all"), Some("true")));
        assert!(settings(&[("acks", "1")]).producer().is_err());
        assert!(settings(&[("acks", "1")]).check().is_err());
    }
}
