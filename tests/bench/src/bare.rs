//! The limit: the same batches from memory, through the worker's own PostgreSQL sink, with no Kafka and no JSON.
//!
//! Batches are cut as the worker cuts a stream that it is behind on: so many changes each, those of one key merged. All
//! are made before the clock starts.

use std::sync::Arc;

use anyhow::{Context, Result};
use sink_api::{
    Batch, Decimal, Key, KeyType, KeyValue, LaneId, LaneState, Offset, Partition, RowChange, RowOp, Sink, SinkLane,
    TableName, TableShape, TopicId, Unit, Value,
};
use sink_postgres::{PostgresConfig, PostgresLane, PostgresSink};
use sink_repair::stream::merge;
use test_support::{Stack, unique};

use crate::drain::{self, Run};
use crate::fill::Filled;
use crate::record::rest;
use crate::stream::{Change, Stream, cents, name};
use crate::throughput::StreamArgs;

/// The default of `--batch-rows`.
const BATCH_ROWS: usize = 2_000;

/// 2026-11-30 in microseconds since 1970-01-01 UTC.
const DAY_US: i64 = 1_795_996_800_000_000;

/// Sends the stream that the topic was filled with.
pub async fn run(stack: &Stack, args: &StreamArgs, filled: &Filled) -> Result<Run> {
    let mut observer = drain::prepare(stack).await?;
    let sink = PostgresSink::connect(&PostgresConfig::new(&stack.sink)).await.context("connect to the sink")?;
    let shape = sink.describe(&TableName::new("public", "items")).await.context("describe the sink table")?;
    let batches = batches(args, &shape)?;
    let lane = LaneId {
        name: unique("bare"),
        topic: filled.topic.clone(),
        topic_id: TopicId([0; 16]),
        partition: Partition(0),
    };
    let claimed = sink.claim(&lane).await.context("claim the lane")?;
    let pid = std::process::id();
    let drained = drain::drain(&mut observer, pid, &filled.expected, async || Ok(()));
    let (mut run, ()) = tokio::try_join!(drained, send(claimed.lane, batches))?;
    // It holds the whole stream, so its memory says nothing.
    run.peak_mb = 0;
    Ok(run)
}

/// Each batch in a transaction of its own, with the lane's state, one after the other.
async fn send(mut lane: PostgresLane, batches: Vec<(Offset, Batch)>) -> Result<()> {
    let mut before: Option<LaneState> = None;
    for (next_offset, batch) in batches {
        let after = LaneState {
            next_offset,
            memory_offset: next_offset,
            highest_xid: None,
            unknown_past: false,
            partition_count: 1,
        };
        let mut unit = lane.begin(before.as_ref()).await.context("begin a unit")?;
        unit.write(&batch).await.context("write a batch")?;
        unit.commit(&after).await.context("commit a unit")?;
        before = Some(after);
    }
    Ok(())
}

/// The stream, with the offset after each batch.
fn batches(args: &StreamArgs, shape: &Arc<TableShape>) -> Result<Vec<(Offset, Batch)>> {
    let changes = Stream::new(args.events, args.keys, args.mix, args.seed)
        .map(|(n, change)| row_change(shape, n, change))
        .collect::<Result<Vec<_>>>()?;
    Ok(changes.chunks(BATCH_ROWS).map(|chunk| (chunk[chunk.len() - 1].offset.next(), merge(chunk))).collect())
}

fn row_change(shape: &Arc<TableShape>, n: u64, change: Change) -> Result<RowChange> {
    let (id, op) = match change {
        Change::Delete(id) => (id, RowOp::Delete),
        Change::Create(id) | Change::Update(id) => (id, RowOp::Upsert(row(id, n)?.into())),
    };
    let key = Key::encode(&[KeyType::Int], &[KeyValue::Int(id)])?;
    Ok(RowChange { table: Arc::clone(shape), key, offset: Offset(n as i64), op })
}

/// In the order of [`crate::record::COLUMNS`].
fn row(id: i64, n: u64) -> Result<Vec<Value>> {
    let rest = rest(id, n);
    Ok(vec![
        Value::Int(id),
        Value::Text(name(id, n).into()),
        Value::Decimal(Decimal::from_unscaled(&cents(id, n).to_be_bytes(), 2)?),
        Value::Bool(rest.ok),
        Value::TimestampTz(DAY_US + rest.second as i64 * 1_000_000),
        Value::Date(rest.day),
        Value::Text(rest.js.into()),
        Value::Text(rest.note.into()),
    ])
}
