//! From settings to a running worker.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use sink_api::Sink;
use sink_postgres::PostgresSink;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    Rules, connect,
    lane::LaneSettings,
    run::{GRACE, Worker},
};
use crate::{
    clock::UnixMillis,
    commands::Outcome,
    config::{self, ApplySettings, TruncateMode},
    decode::DecodeSettings,
    http::{Heartbeat, Pages, Server},
    kafka::{
        ClientSettings, Consumer, ConsumerSettings, Health, Producer, Rebalances, TopicPattern, TopicSelection,
        ensure_topic,
    },
    metrics::{Metrics, RebalanceKind},
    statement::{Caps, OrphanPolicy},
    status::{Away, GroupState, LogEnd, StatusBoard},
    stream::{Limits, UnitLimits},
};

/// How often copies of removed rows are looked through for those past their keep.
const EXPIRY_EVERY: Duration = Duration::from_secs(3600);

/// How often the consumer's health is put on the board.
const HEALTH_EVERY: Duration = Duration::from_millis(500);

/// Above this the poll thread hangs.
const POLL_ALIVE: Duration = Duration::from_secs(30);

/// Statements of one unit: a transaction that is open for long holds back the sink's vacuum.
const STATEMENTS_A_UNIT: usize = 16;

/// Applies the stream until `stop` is cancelled, or every partition is caught up (`until_caught_up`).
///
/// # Errors
/// When Kafka or the sink refuses the set-up, or when no lane is left that works.
pub async fn apply(settings: ApplySettings, metrics: Arc<Metrics>, stop: CancellationToken) -> anyhow::Result<Outcome> {
    let board = StatusBoard::new(&settings.name, &settings.group, settings.sink.address.as_str(), Arc::clone(&metrics));
    let heartbeat = Heartbeat::default();
    let pages = Pages { metrics: Arc::clone(&metrics), board: board.clone(), heartbeat: heartbeat.clone() };
    let pages_stop = CancellationToken::new();
    let server = Server::start(settings.listen, pages, pages_stop.clone()).await?;
    let connected = tokio::select! {
        // A stop while the sink is away ends the wait.
        biased;
        () = stop.cancelled() => return Ok(Outcome::Done),
        sink = connect::postgres(&settings.sink, &settings.name) => sink,
    };
    let outcome = work(settings, metrics, board, heartbeat, connected?, stop).await;
    pages_stop.cancel();
    server.stopped().await;
    outcome
}

async fn work(
    settings: ApplySettings,
    metrics: Arc<Metrics>,
    board: StatusBoard,
    heartbeat: Heartbeat,
    sink: PostgresSink,
    stop: CancellationToken,
) -> anyhow::Result<Outcome> {
    let client = client(&settings.kafka);
    if let Some(dead_letter) = &settings.dead_letter {
        let replication = dead_letter.replication_factor.map(i32::from);
        ensure_topic(&client, &dead_letter.topic, replication).await.context("create the dead letter topic")?;
    }
    let (events, received) = mpsc::unbounded_channel();
    let consumer_settings = ConsumerSettings {
        memory: usize::try_from(settings.memory).unwrap_or(usize::MAX),
        ..ConsumerSettings::new(client.clone(), &settings.group, topics(&settings)?)
    };
    let consumer = Consumer::start(consumer_settings, events)?;
    let worker = Arc::new(Worker {
        producer: Arc::new(Producer::new(&client)?),
        client: Arc::new(client),
        rules: Arc::new(rules(&settings)),
        lane: Arc::new(lane(&settings)),
        decode: Arc::new(decode(&settings)),
        limits: limits(&settings),
        settings: Arc::new(settings),
        sink: sink.clone(),
        metrics,
        board,
        stop: stop.clone(),
    });
    info!(name = worker.settings.name, group = worker.settings.group, sink = %worker.settings.sink.address, "started");
    let housekeeping =
        tokio::spawn(expire(sink, worker.settings.name.clone(), worker.settings.statements.keep_removed));
    let outcome = Arc::clone(&worker).run(consumer, received, heartbeat).await;
    housekeeping.abort();
    outcome
}

pub(crate) fn client(kafka: &config::KafkaSettings) -> ClientSettings {
    ClientSettings {
        bootstrap_servers: kafka.bootstrap_servers.clone(),
        properties: kafka.properties.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
    }
}

fn topics(settings: &ApplySettings) -> anyhow::Result<TopicSelection> {
    Ok(match &settings.topics {
        config::TopicSelection::Names(names) => TopicSelection::Names(names.clone()),
        config::TopicSelection::Regex(pattern) => {
            let others = settings.dead_letter.iter().map(|dead_letter| dead_letter.topic.clone());
            let others = others.chain(settings.signal.iter().map(|signal| signal.topic.clone()));
            TopicSelection::Pattern(TopicPattern::new(pattern, others.collect())?)
        }
    })
}

fn rules(settings: &ApplySettings) -> Rules {
    let statements = &settings.statements;
    Rules {
        caps: Caps {
            rows: statements.caps.max_removals,
            percent: statements.caps.max_removals_percent,
            rows_a_day: statements.caps.max_removals_day,
            allow_cascade: statements.allow_cascade,
        },
        policy: match statements.orphans {
            config::Orphans::Report => OrphanPolicy::Report,
            config::Orphans::Remove => OrphanPolicy::Remove,
            config::Orphans::Ignore => OrphanPolicy::Ignore,
        },
    }
}

fn lane(settings: &ApplySettings) -> LaneSettings {
    LaneSettings {
        unit: UnitLimits {
            rows: settings.batch.rows,
            // Two units are in memory at a time: one that is written, one that is gathered.
            bytes: usize::try_from(settings.memory / 4).unwrap_or(usize::MAX),
            statements: STATEMENTS_A_UNIT,
        },
        delay: settings.batch.delay,
        grace: GRACE,
        apply_truncate: settings.tables.truncate == TruncateMode::Apply,
        until_caught_up: settings.until_caught_up,
    }
}

fn limits(settings: &ApplySettings) -> Limits {
    let age = settings.statements.window_max_age.as_millis();
    Limits {
        window_bytes: usize::try_from(settings.statements.window_max_bytes).unwrap_or(usize::MAX),
        window_age_ms: i64::try_from(age).unwrap_or(i64::MAX),
        ..Limits::default()
    }
}

fn decode(settings: &ApplySettings) -> DecodeSettings {
    DecodeSettings {
        mapping: settings.tables.mapping.clone(),
        modes: settings.modes,
        ignore_unknown_columns: settings.tables.ignore_unknown_columns,
        marker_key: settings.statements.marker_key.as_ref().map(|key| key.expose().clone()),
        unavailable: settings.unavailable.clone(),
        ..DecodeSettings::default()
    }
}

/// Forgets copies of rows that workers of this name removed, once they are past their keep, from time to time.
async fn expire(sink: PostgresSink, name: String, keep: Duration) {
    loop {
        match sink.expire_removed(&name, keep).await {
            Ok(0) => {}
            Ok(rows) => info!(rows, "copies of removed rows forgotten"),
            Err(error) => warn!(error = %error, "copies of removed rows could not be looked through"),
        }
        tokio::time::sleep(EXPIRY_EVERY).await;
    }
}

/// Returns why no records come from Kafka.
fn away(health: &Health) -> Option<Away> {
    if !health.connected {
        let why = health.last_error.clone();
        return Some(Away::Silent(why.unwrap_or_else(|| "it has not answered since the start".to_owned())));
    }
    (!health.missing_topics.is_empty()).then(|| Away::NoTopics(health.missing_topics.clone()))
}

/// Puts the consumer's health on the board until it is dropped.
pub(super) async fn publish(consumer: &Consumer, board: &StatusBoard, metrics: &Metrics, heartbeat: &Heartbeat) {
    let mut seen = Rebalances::default();
    loop {
        let health = consumer.health();
        if health.last_poll.is_some_and(|age| age < POLL_ALIVE) {
            heartbeat.beat();
        }
        metrics.memory(health.memory_limit as u64).set(health.memory_used as i64);
        for (kind, now, before) in [
            (RebalanceKind::Assigned, health.rebalances.assigned, seen.assigned),
            (RebalanceKind::Revoked, health.rebalances.revoked, seen.revoked),
            (RebalanceKind::Lost, health.rebalances.lost, seen.lost),
        ] {
            (before..now).for_each(|_| metrics.rebalance(kind));
        }
        seen = health.rebalances;
        let state = if health.connected { GroupState::Joined } else { GroupState::Joining };
        board.group(state, UnixMillis::now());
        board.kafka(away(&health), UnixMillis::now());
        for partition in &health.partitions {
            if let Some(end) = partition.end {
                let records = partition.position.filter(|_| partition.at_end).unwrap_or(end);
                let end = LogEnd { log: end, records };
                board.end_offset(&partition.partition.topic, partition.partition.partition, end);
            }
        }
        tokio::time::sleep(HEALTH_EVERY).await;
    }
}
