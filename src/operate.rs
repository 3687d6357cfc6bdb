//! The commands of an operator: `undo`, `confirm`, `reset`.

use std::fmt::Write as _;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use sink_api::{
    KeyBound, KeyRange, LaneId, LaneState, Offset, Partition, ReadId, Sink, SinkLane, TableName, UndoSelector,
    Unit as _,
};
use sink_postgres::PostgresSink;

use crate::{
    apply::connect,
    commands::Outcome,
    config::{ConfirmSettings, KafkaSettings, Reset, ResetSettings, ResetTo, UndoSettings, Usage},
    kafka::{ClientSettings, Lookup, Outgoing, Producer, TopicPartition},
    statement::parse_range,
    terminal::say,
};

/// Brings removed rows back, never over a row that is there.
///
/// # Errors
/// When the sink refuses.
pub async fn undo(settings: UndoSettings) -> anyhow::Result<Outcome> {
    let sink = connect::postgres(&settings.sink, "undo").await?;
    let undone = sink.undo(&settings.selector).await?;
    if undone.is_empty() {
        if let UndoSelector::Read(read_id) = &settings.selector
            && sink.statement(read_id).await?.is_none()
        {
            return Err(no_read(read_id));
        }
        if let UndoSelector::Table { table, .. } = &settings.selector
            && !sink.knows_table(table).await?
        {
            return Err(no_table(table));
        }
        say("nothing to bring back: no copy of a removed row fits\n")?;
        return Ok(Outcome::Done);
    }
    let mut text = String::new();
    let mut failed = false;
    for table in &undone {
        let name = table.table.as_ref().map(ToString::to_string).unwrap_or_default();
        writeln!(
            text,
            "{name}: {} rows brought back, {} keys hold a row again and were left alone",
            table.restored, table.occupied
        )?;
        for reason in &table.failed {
            failed = true;
            writeln!(text, "{name}: not brought back: {reason}")?;
        }
    }
    if undone.iter().any(|table| table.restored > 0) {
        text.push_str(
            "A row that is back is in the sink only. If its key was deleted at the source since, it is an orphan again: the next\n\
             pass finds it.\n",
        );
    }
    say(&text)?;
    Ok(if failed { Outcome::Found } else { Outcome::Done })
}

/// Asks for a fresh read of a held statement's range, with a ceiling on what it may remove.
///
/// # Errors
/// When the read is not held, or Kafka does not take the request.
pub async fn confirm(settings: ConfirmSettings) -> anyhow::Result<Outcome> {
    let sink = connect::postgres(&settings.sink, "confirm").await?;
    let read_id = &settings.read_id;
    let statement = match sink.statement(read_id).await? {
        Some(statement) if statement.verdict == "held" => statement,
        Some(statement) => bail!("the read {read_id} is not held: its verdict is {}", statement.verdict),
        None => return Err(no_read(read_id)),
    };
    let mut data = json!({ "table": statement.source_table, "read_id": read_id, "max_removals": settings.up_to });
    if let Some(range) = parse_range(&statement.extent) {
        data["range"] = range_json(&range);
    }
    let id = format!("sink-repair-confirm-{}", uuid::Uuid::new_v4());
    let value = json!({ "id": id, "type": "sink-repair-confirm", "data": data }).to_string();
    let producer = Producer::new(&client(&settings.kafka))?;
    let outgoing = Outgoing {
        topic: &settings.signal.topic,
        partition: Some(Partition(0)),
        key: Some(settings.signal.key.as_bytes()),
        value: Some(value.as_bytes()),
        timestamp: None,
        headers: &[],
    };
    let hint =
        "hint: check --signal-topic (the connector's signal.kafka.topic) and --bootstrap-servers; nothing was asked";
    producer.send(&outgoing).await.map_err(|error| anyhow::anyhow!("send the confirmation: {error}\n{hint}"))?;
    say(&format!(
        "asked for a fresh read of {} (held: {} orphans found); it may remove up to {} rows\nrequest {id}\n\
         hint: what answers is who makes the reads; by hand, read the range again and write \
         \"confirmed\":{{\"max_removals\":{}}} into the chunk marker (docs/safety.md)\n",
        statement.source_table, statement.orphans, settings.up_to, settings.up_to
    ))?;
    Ok(Outcome::Done)
}

/// Writes a range as requests carry it, with bounds in the canonical encoding.
pub(crate) fn range_json(range: &KeyRange) -> Value {
    let bound = |bound: &KeyBound| match bound {
        KeyBound::Open => json!({ "open": true }),
        KeyBound::Inclusive(key) => json!({ "encoded": hex::encode(key.as_bytes()), "inclusive": true }),
        KeyBound::Exclusive(key) => json!({ "encoded": hex::encode(key.as_bytes()), "inclusive": false }),
    };
    json!({ "lower": bound(&range.lower), "upper": bound(&range.upper) })
}

/// Makes the sink forget, so that a worker can go on after something that a worker must not decide by itself.
///
/// # Errors
/// When the sink or Kafka refuses.
pub async fn reset(settings: ResetSettings) -> anyhow::Result<Outcome> {
    let sink = connect::postgres(&settings.sink, "reset").await?;
    match settings.reset {
        Reset::Table(table) => forget_stream(&sink, &table).await,
        Reset::Source { name } => forget_transactions(&sink, &name).await,
        Reset::Topic { name, kafka, topic, partition, to, new_name } => {
            if !new_name && sink.overview(&name).await?.frontiers.is_empty() {
                let hint = "give the --name that `apply` runs under, or --new-name if it is to begin there";
                return Err(no_worker(&name).hint(hint).into());
            }
            move_frontier(&sink, &name, &client(&kafka), &topic, partition, to).await
        }
    }
}

async fn forget_stream(sink: &PostgresSink, table: &TableName) -> anyhow::Result<Outcome> {
    let released = sink.release_table(table).await?;
    let mut text = String::new();
    for stream in &released {
        writeln!(text, "{table}: forgotten: {stream}")?;
    }
    text.push_str(&match released.len() {
        0 => format!("{table}: no stream was noted\n"),
        1 => format!(
            "{table}: the next stream that writes to it is noted anew (its own again, while its worker runs)\n"
        ),
        _ => format!(
            "{table}: the next stream that writes to it is noted anew, and its statements take rows of the others for orphans.\n\
             If rows of another one are left, or its worker runs, stop the worker before the next pass and delete them first.\n"
        ),
    });
    say(&text)?;
    Ok(Outcome::Done)
}

/// After a restore of the source to an earlier time its transaction ids go back: what is remembered of them is dropped.
async fn forget_transactions(sink: &PostgresSink, name: &str) -> anyhow::Result<Outcome> {
    let overview = sink.overview(name).await?;
    if overview.frontiers.is_empty() {
        return Err(no_worker(name).hint("give the --name that `apply` runs under").into());
    }
    for lane in &overview.frontiers {
        let topic_id =
            sink_api::TopicId(uuid::Uuid::parse_str(&lane.topic_id).context("read a topic id")?.into_bytes());
        let id =
            LaneId { name: name.to_owned(), topic: lane.topic.clone(), topic_id, partition: Partition(lane.partition) };
        let claimed = sink.claim(&id).await?;
        let Some(state) = claimed.state else { continue };
        let next =
            LaneState { memory_offset: state.next_offset, highest_xid: None, unknown_past: true, ..state.clone() };
        replace(claimed.lane, Some(&state), &next).await?;
        say(&format!("{id}: what was known of the source's transactions is forgotten\n"))?;
    }
    Ok(Outcome::Done)
}

async fn move_frontier(
    sink: &PostgresSink,
    name: &str,
    client: &ClientSettings,
    topic: &str,
    partition: Option<Partition>,
    to: ResetTo,
) -> anyhow::Result<Outcome> {
    let lookup = Lookup::of(client, name)?;
    let description = lookup.topic(topic).await?;
    let partitions: Vec<Partition> = match partition {
        Some(partition) => vec![partition],
        None => (0..description.partitions).map(Partition).collect(),
    };
    for partition in partitions {
        let bounds = lookup.log(&TopicPartition { topic: topic.into(), partition }).await?;
        let next_offset: Offset = match to {
            ResetTo::Earliest => bounds.start,
            ResetTo::Latest => bounds.end,
            ResetTo::Offset(offset) if offset < bounds.start || offset > bounds.end => {
                bail!(
                    "{topic}-{partition}: offset {offset} is not in the log, which goes from {} to {}",
                    bounds.start,
                    bounds.end
                )
            }
            ResetTo::Offset(offset) => offset,
        };
        let id = LaneId { name: name.to_owned(), topic: topic.to_owned(), topic_id: description.id, partition };
        let claimed = sink.claim(&id).await?;
        let state = LaneState {
            next_offset,
            memory_offset: next_offset,
            highest_xid: None,
            unknown_past: next_offset > Offset(0),
            partition_count: description.partitions,
        };
        replace(claimed.lane, claimed.state.as_ref(), &state).await?;
        say(&format!("{id}: the next record is that at offset {next_offset}\n"))?;
    }
    Ok(Outcome::Done)
}

async fn replace<L: SinkLane>(mut lane: L, old: Option<&LaneState>, new: &LaneState) -> anyhow::Result<()> {
    let unit = lane.begin(old).await?;
    Ok(unit.commit(new).await?)
}

fn no_worker(name: &str) -> Usage {
    Usage::new(format!("the sink knows no worker called {name}"))
}

fn no_read(read_id: &ReadId) -> anyhow::Error {
    let hint = "give the read's id from the log, from `sink-repair status` or from sink_repair.statement";
    Usage::new(format!("the sink knows no read {read_id}")).hint(hint).into()
}

fn no_table(table: &TableName) -> anyhow::Error {
    let hint = "give the sink's own name of the table, SCHEMA.TABLE, as in sink_repair.removed";
    Usage::new(format!("the sink has no table {table}, and no copy of a row of it")).hint(hint).into()
}

fn client(kafka: &KafkaSettings) -> ClientSettings {
    crate::apply::client(kafka)
}
