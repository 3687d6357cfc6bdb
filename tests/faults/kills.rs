//! Kills under load with statements: whatever dies when, no live row is removed, nothing is half done, and the first
//! pass after the last kill leaves source and sink equal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use test_support::{Database, Part, Pipeline, Stack, until};
use tokio::sync::watch;

use crate::audit;
use crate::load::{self, Key, Load};
use crate::passes::Passes;
use crate::rig::{self, LIMIT, say};
use crate::side_writer::SideWriter;
use crate::source_log::SourceLog;
use crate::violence::{Numbers, kill_parts, kill_workers, tend_connector};

/// Keys of a read: a pass over the table is about a dozen statements.
const CHUNK: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn kills_under_load_leave_no_statement_half_done_and_no_live_row_lost() -> Result<()> {
    let _servers = rig::alone().await;
    let stack = Stack::from_env()?;
    let (numbers, seed, begin) = (Numbers::of_scale(), rig::seed()?, Instant::now());
    say(format!("{numbers:?}, SINK_REPAIR_FAULTS_SEED={seed}"));
    let pipeline = Pipeline::builder(&stack, "kills").table("orders", load::ORDERS).seed(load::SEED).start().await?;
    let mut sink = pipeline.sink().await?;
    sink.run(format!("CREATE TABLE orders ({})", load::ORDERS)).await?;
    audit::install(&pipeline).await?;
    let mut source_log = SourceLog::keep(&pipeline).await?;
    let at_start = live_keys(&mut pipeline.source().await?).await?;
    let arguments = arguments(&stack, &pipeline);

    let confirmed =
        format!("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{}'", pipeline.name);
    let mut source = pipeline.source().await?;
    let first = source.value(&confirmed).await?;
    let load = Load::start(&pipeline, 3, Duration::from_millis(50), seed).await?;
    // When it is killed before its first offset is stored, Debezium begins with a new snapshot: what happened at the
    // source meanwhile comes in no record. It confirms a position to its slot once the offset is stored.
    until(
        "Debezium has stored an offset",
        LIMIT,
        async || Ok((source.value(&confirmed).await? != first).then_some(())),
    )
    .await?;
    let passes = Passes::start(&pipeline, "orders", CHUNK, Duration::from_secs(1)).await?;
    let side = SideWriter::start(&pipeline, Duration::from_millis(400), seed).await?;
    let (over, ended) = watch::channel(false);
    let tending = tokio::spawn(tend_connector(stack.clone(), pipeline.name.clone(), ended));
    let others = |kinds: &[(Part, u32)], salt: u64| {
        let parts = kinds.iter().flat_map(|&(part, count)| std::iter::repeat_n(part, count as usize)).collect();
        tokio::spawn(kill_parts(stack.clone(), parts, numbers.span(), seed ^ salt))
    };
    let sinks = others(&[(Part::Sink, numbers.sink)], 0x51);
    let pipes = others(&[(Part::Kafka, numbers.kafka), (Part::Connect, numbers.connect)], 0x52);
    let (mut worker, mut lives) = kill_workers(&arguments, numbers.worker, seed ^ 0x53).await?;
    sinks.await.context("the killer of the sink panicked")??;
    pipes.await.context("the killer of Kafka and Connect panicked")??;
    say(format!("the last fault is over after {:.0} s", begin.elapsed().as_secs_f64()));

    tokio::time::sleep(Duration::from_secs(3)).await;
    let damage = side.stop().await?;
    passes.stop().await?;
    let written = load.stop().await?;
    let last_pass = pipeline.bracket("orders").await?.pass(CHUNK).await?;
    let mut sink = pipeline.sink().await?;
    until("every statement of the last pass has its verdict", LIMIT, async || {
        if let Some(status) = worker.ended()? {
            anyhow::bail!("the worker gave up ({status}):\n{}", worker.log());
        }
        let list = last_pass.iter().map(|read| format!("'{read}'")).collect::<Vec<_>>().join(", ");
        let sql = format!("SELECT count(*) FROM sink_repair.statement WHERE read_id IN ({list})");
        Ok((sink.number(sql).await? == last_pass.len() as i64).then_some(()))
    })
    .await?;
    // Debezium may drop a request for rows; the worker asks again after half a minute.
    let rows = rig::until_equal(&pipeline, "orders", Duration::from_secs(120)).await;
    lives.add(&worker);
    let _ = over.send(true);
    let restarts = tending.await?;
    say(format!(
        "load: {written:?}; side writer: {damage:?}; connector restarted by hand {restarts} times; {} lanes started, {:.1} s \
         after their worker on average",
        lives.lanes_started,
        lives.starting.iter().sum::<Duration>().as_secs_f64() / lives.starting.len().max(1) as f64
    ));
    for line in audit::verdicts(&mut sink).await? {
        say(line);
    }
    for (kind, lines) in [("error", &lives.errors), ("warning", &lives.warnings)] {
        for (line, count) in lines {
            say(format!("{kind} logged {count} times: {line}"));
        }
    }
    let rows = rows?;

    let (claims, steps) = audit::frontier_only_rises(&mut sink).await?;
    let (statements, removed) = audit::statements_are_whole(&mut sink).await?;
    let judged = source_log.judge(at_start, &removals(&mut sink).await?).await?;
    ensure!(judged.wrong.is_empty(), "live rows were removed: {:?}", judged.wrong);
    let answered: BTreeSet<String> =
        sink.column("SELECT read_id FROM sink_repair.statement").await?.into_iter().flatten().collect();
    let unanswered: Vec<_> = judged.closes.difference(&answered).collect();
    ensure!(unanswered.is_empty(), "statements without a verdict: {unanswered:?}");
    let applied = sink.number("SELECT count(*) FROM sink_repair.statement WHERE verdict = 'applied'").await?;
    ensure!(applied > 0 && removed > 0 && judged.at_risk > 0, "nothing was applied, removed or at risk");
    say(format!(
        "equal: {rows} rows; {} changes and {} reads in the source's log; {statements} statements, {applied} applied, \
         {removed} rows removed, none live; {} keys were live at a close that its read had not seen; \
         {claims} claims and {steps} steps of the frontier, all forwards; {:.0} s",
        judged.changes,
        judged.closes.len(),
        judged.at_risk,
        begin.elapsed().as_secs_f64()
    ));
    worker.stop(LIMIT).await
}

fn arguments(stack: &Stack, pipeline: &Pipeline) -> Vec<String> {
    let common = rig::arguments(stack, &pipeline.name, &pipeline.topic("orders"), &pipeline.sink_url());
    let signal = pipeline.signal_topic();
    rig::with(
        common,
        &[
            "--orphans",
            "remove",
            "--max-removals",
            "1000000",
            "--max-removals-percent",
            "100",
            "--max-removals-day",
            "100000000",
            "--signal-topic",
            &signal,
            "--signal-key",
            &pipeline.name,
            // The sooner a dead member is noticed, the more of its time a worker spends at work.
            "--kafka",
            "session.timeout.ms=1000",
            "--kafka",
            "heartbeat.interval.ms=300",
        ],
    )
}

async fn live_keys(source: &mut Database) -> Result<BTreeSet<Key>> {
    Ok(keys(source, "SELECT '', shop, code FROM orders").await?.into_iter().map(|(_, key)| key).collect())
}

async fn removals(sink: &mut Database) -> Result<BTreeMap<String, Vec<Key>>> {
    let mut removed: BTreeMap<String, Vec<Key>> = BTreeMap::new();
    let sql = "SELECT read_id, (row_text->>'shop')::int, row_text->>'code' FROM sink_repair.removed";
    for (read_id, key) in keys(sink, sql).await? {
        removed.entry(read_id).or_default().push(key);
    }
    Ok(removed)
}

async fn keys(database: &mut Database, sql: &'static str) -> Result<Vec<(String, Key)>> {
    let rows: Vec<(String, i32, String)> = sqlx::query_as(sql).fetch_all(&mut database.connection).await?;
    Ok(rows.into_iter().map(|(read_id, shop, code)| (read_id, Key { shop, code })).collect())
}
