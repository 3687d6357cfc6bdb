//! The main job of sink-repair on real servers, and whether it was done.
//!
//! A source PostgreSQL with 100,000 rows, stock Debezium, Kafka, `sink-repair apply`, a sink PostgreSQL. The sink is
//! drifted by hand; the source keeps changing 500 times a second, with keys that are deleted and come back; statements
//! of absence are made over the whole table, with plain SQL. At the end source and sink are compared in full. The exit
//! code is 0 only if everything that the table shows is as it should be.

mod drift;
mod load;
mod pass;
mod report;

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use test_support::{Database, Pipeline, Stack, Worker, compare, until};

use report::Report;

/// The demo's table. Its keys are natural ones: a deleted order's code can come back.
const COLUMNS: &str = "code text COLLATE \"C\" PRIMARY KEY, customer integer NOT NULL, total numeric(10,2), note text, updated_at timestamptz";

/// Rows at the source when it begins.
const ROWS: u64 = 100_000;

/// How long the source is written to before the first read and after the last.
const AROUND: Duration = Duration::from_secs(2);

/// Between two reads.
const PAUSE: Duration = Duration::from_millis(300);

/// Rows of one bracketed read.
const CHUNK: usize = 10_000;

/// Flags that lift the caps for a drift of this size. One statement is meant to be held: the planted group is larger.
const CAPS: [&str; 6] = ["--max-removals", "2000", "--max-removals-percent", "50", "--max-removals-day", "20000"];

/// The ceiling of the confirmation.
const CONFIRMED: u64 = 4_000;

#[tokio::main]
async fn main() -> ExitCode {
    let Some(binary) = std::env::args().nth(1) else {
        report::say("usage: demo PATH-OF-sink-repair (see demo.sh)");
        return ExitCode::from(64);
    };
    match run(&binary).await {
        Ok(report) => {
            report.print();
            if report.all_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            report::say(&format!("the demo failed: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(binary: &str) -> Result<Report> {
    let mut report = Report::default();
    let stack = Stack::from_env()?;
    report.step("load 100,000 rows at the source and start stock Debezium");
    let pipeline = Pipeline::builder(&stack, "demo")
        .table("orders", COLUMNS)
        .seed(&format!(
            "INSERT INTO orders SELECT 'order-' || lpad(g::text, 6, '0'), g % 977, g * 0.25, 'order number ' || g, now() \
             FROM generate_series(1, {ROWS}) g"
        ))
        .start()
        .await?;
    let (mut source, mut sink) = (pipeline.source().await?, pipeline.sink().await?);
    sink.run(format!("CREATE TABLE inventory.orders ({COLUMNS})")).await?;

    report.step("start sink-repair apply next to the sink");
    let arguments = arguments(&stack, &pipeline);
    let mut worker = Worker::start(binary, &arguments)?;
    let outcome = repair(&mut report, binary, &pipeline, &mut source, &mut sink, &mut worker).await;
    if outcome.is_err() {
        report::say(&format!("the worker's log:\n{}", worker.log()));
    }
    outcome?;
    worker.stop(Duration::from_secs(20)).await?;
    worker.hush();
    Ok(report)
}

fn arguments(stack: &Stack, pipeline: &Pipeline) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "apply",
        "--name",
        &pipeline.name,
        "--bootstrap-servers",
        &stack.kafka,
        "--topics",
        &pipeline.topic("orders"),
        "--sink",
        &pipeline.sink_url(),
        "--orphans",
        "remove",
        "--signal-topic",
        &pipeline.signal_topic(),
        "--signal-key",
        &pipeline.name,
        "--listen",
        "127.0.0.1:0",
    ]
    .map(str::to_owned)
    .to_vec();
    arguments.extend(CAPS.map(str::to_owned));
    arguments
}

async fn repair(
    report: &mut Report,
    binary: &str,
    pipeline: &Pipeline,
    source: &mut Database,
    sink: &mut Database,
    worker: &mut Worker,
) -> Result<()> {
    until("the sink has all rows", Duration::from_secs(90), async || {
        Ok((sink.number("SELECT count(*) FROM inventory.orders").await? as u64 == ROWS).then_some(()))
    })
    .await?;

    report.step("drift the sink: orphans inside, below and above the keys, a side writer's rows, lost rows");
    let drift = drift::plant(sink).await?;
    let before = compare::difference(source, "inventory.orders", sink, "inventory.orders").await?;
    report.orphans_before = before.only_sink;
    report.missing_before = before.only_source;
    report.check("the drift is as planted", before.only_sink == drift.orphans && before.only_source == drift.lost);

    report.step("write 500 changes a second at the source, with keys that are deleted and come back");
    let load = load::start(pipeline.source_url());

    report.step("make statements of absence over the whole table");
    tokio::time::sleep(AROUND).await;
    let reads = pass::whole(pipeline, CHUNK, PAUSE).await?;
    pass::judged(sink, &reads).await?;
    let held = pass::held(sink, &reads).await?;
    report.held = held.len() as u64;
    report.check("one statement is held by a cap", held.len() == 1);
    for read in &held {
        report.step("confirm the held statement: a fresh read of its range, with a ceiling");
        let confirmed = pass::again(pipeline, read, CHUNK, CONFIRMED).await?;
        pass::judged(sink, std::slice::from_ref(&confirmed)).await?;
        let verdict = pass::verdict(sink, &confirmed.read_id).await?;
        report.check("the confirmed statement is applied", verdict == "applied");
    }
    report.missing_found = sink
        .number("SELECT coalesce(sum(missing), 0)::int8 FROM sink_repair.statement WHERE verdict = 'applied'")
        .await? as u64;

    tokio::time::sleep(AROUND).await;
    report.step("end the writes; wait for the rows that were asked for again");
    report.changes = load.stop().await?;
    settled(source, sink).await?;
    let after = compare::difference(source, "inventory.orders", sink, "inventory.orders").await?;
    report.orphans_after = after.only_sink;
    report.lost_after = after.only_source;
    report.kept = sink.number("SELECT count(*) FROM sink_repair.removed").await? as u64;
    report.check("every removed row is kept for undo", report.kept >= drift.orphans);

    report.step("undo one statement, then make a pass that finds its rows again");
    let undone = pass::most_removed(sink).await?;
    let output = test_support::run(binary, ["undo", "--sink", &pipeline.sink_url(), "--read-id", &undone]).await?;
    report.undo = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned();
    let back = compare::difference(source, "inventory.orders", sink, "inventory.orders").await?;
    report.undone = back.only_sink;
    report.check("the undo brought rows back", output.status.success() && back.only_sink > 0);
    let reads = pass::whole(pipeline, CHUNK, Duration::ZERO).await?;
    pass::judged(sink, &reads).await?;
    for read in pass::held(sink, &reads).await? {
        let confirmed = pass::again(pipeline, &read, CHUNK, CONFIRMED).await?;
        pass::judged(sink, &[confirmed]).await?;
    }

    report.step("compare source and sink in full");
    settled(source, sink).await?;
    report.equal = compare::equal(source, "inventory.orders", sink, "inventory.orders").await.context("at the end")?;
    report.statements = pass::verdicts(sink).await?;
    let (status, page) = worker.get("/status").await?;
    report.check("the worker is well", status == 200 && page.contains("\"state\":\"running\""));
    Ok(())
}

/// Waits until the sink has applied everything: a row that is written last at the source has come, and the counts agree.
async fn settled(source: &mut Database, sink: &mut Database) -> Result<()> {
    source
        .run("INSERT INTO orders VALUES ('zz-end', 0, 0, now()::text, now()) ON CONFLICT (code) DO UPDATE SET note = excluded.note")
        .await?;
    let mark = source.value("SELECT note FROM orders WHERE code = 'zz-end'").await?;
    until("the sink has caught up", Duration::from_secs(60), async || {
        let seen = sink.value("SELECT note FROM inventory.orders WHERE code = 'zz-end'").await?;
        Ok((seen == mark).then_some(()))
    })
    .await?;
    until("the rows that were asked for have come", Duration::from_secs(60), async || {
        let (left, right) = (
            source.number("SELECT count(*) FROM orders").await?,
            sink.number("SELECT count(*) FROM inventory.orders").await?,
        );
        Ok((left == right).then_some(()))
    })
    .await
    .or(Ok(()))
}
