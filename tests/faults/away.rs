//! A sink that is away for a while, and commits whose outcome nobody told.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use test_support::{Part, Pipeline, Stack, Worker, until};

use crate::audit;
use crate::counters::{self, Counting};
use crate::proxy::Proxy;
use crate::rig::{self, LIMIT, say};

/// What every commit's message holds.
const COMMIT: &str = "SET CONSTRAINTS ALL IMMEDIATE; COMMIT";

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_away_costs_no_rebalance_and_no_record() -> Result<()> {
    let _servers = rig::alone().await;
    let stack = Stack::from_env()?;
    let pipeline = counting_pipeline(&stack, "away").await?;
    let mut worker = start(&stack, &pipeline, &pipeline.sink_url()).await?;
    let load = Counting::start(&pipeline, 3, Duration::from_millis(40), rig::seed()?).await?;
    let rebalances = until("the assignment is counted", LIMIT, async || {
        let lines = rebalances(&mut worker).await?;
        Ok(lines.iter().any(|line| line.contains("assigned") && !line.ends_with(" 0")).then_some(lines))
    })
    .await?;
    let outage = outage()?;

    stack.stop(Part::Sink).await?;
    let waiting = until("the status says that the lane waits", LIMIT, async || {
        let lane = lane(&mut worker).await?;
        Ok((lane["state"] == "waiting" && lane["attempts"].as_u64() >= Some(3)).then_some(lane))
    })
    .await?;
    let before = cpu_seconds(&worker)?;
    tokio::time::sleep(outage).await;
    let used = cpu_seconds(&worker)? - before;
    let still = lane(&mut worker).await?;
    let ready = worker.get("/readyz").await?;
    stack.start(Part::Sink).await?;
    load.stop().await?;

    ensure!(
        waiting["why"].as_str().is_some_and(|why| !why.is_empty()) && still["state"] == "waiting",
        "the status does not say why the lane waits: {waiting}, then {still}"
    );
    ensure!(still["attempts"].as_u64() > waiting["attempts"].as_u64(), "nothing was tried: {still}");
    let share = used / outage.as_secs_f64();
    ensure!(share < 0.3, "a worker that waits took {share:.2} of a core");
    let rows = rig::until_equal(&pipeline, "counters", LIMIT).await?;
    ensure!(self::rebalances(&mut worker).await? == rebalances, "the outage cost a rebalance");
    let mut sink = pipeline.sink().await?;
    let versions = audit::each_version_once(&mut sink).await?;
    let (claims, _) = audit::frontier_only_rises(&mut sink).await?;
    ensure!(claims == 1, "the lane was claimed {claims} times");
    say(format!(
        "sink away for {} s: {} attempts, {share:.3} of a core, readyz {}, why: {}; then {rows} rows equal, {versions} \
         versions, each once, no rebalance",
        outage.as_secs(),
        still["attempts"],
        ready.0,
        still["why"]
    ));
    worker.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_outcome_nobody_told_takes_effect_once() -> Result<()> {
    let _servers = rig::beside_others().await;
    let stack = Stack::from_env()?;
    let (seed, times) = (rig::seed()?, if rig::full_scale() { 100 } else { 20 });
    say(format!("{times} cut commits, SINK_REPAIR_FAULTS_SEED={seed}"));
    let pipeline = counting_pipeline(&stack, "cut").await?;
    let proxy = Proxy::open(&pipeline.sink_url()).await?;
    let mut worker = start(&stack, &pipeline, &proxy.of(&pipeline.sink_url())?).await?;
    let load = Counting::start(&pipeline, 3, Duration::from_millis(30), seed).await?;
    let mut rng = StdRng::seed_from_u64(seed);
    let mut sink = pipeline.sink().await?;

    let (mut answered, mut ended) = (0, 0);
    for _ in 0..times {
        let after_the_answer = rng.random();
        tokio::time::timeout(LIMIT, proxy.cut_at(COMMIT, after_the_answer)).await.context("no commit came")??;
        answered += u32::from(after_the_answer);
        // The server ends the session at whatever it is doing.
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..100))).await;
        ended += sink
            .number(
                "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity \
                 WHERE datname = current_database() AND application_name LIKE 'sink-repair %'",
            )
            .await?;
    }
    load.stop().await?;

    let rows = rig::until_equal(&pipeline, "counters", LIMIT).await?;
    let versions = audit::each_version_once(&mut sink).await?;
    let (claims, steps) = audit::frontier_only_rises(&mut sink).await?;
    ensure!(claims == 1, "the lane was claimed {claims} times: it ended in between");
    ensure!(answered > 0 && answered < times, "only one kind of cut in {times}");
    say(format!(
        "{answered} commits cut after the server's answer, {} before the server saw them, {ended} sessions ended: {rows} \
         rows equal, {versions} versions, each once, {steps} steps",
        times - answered
    ));
    worker.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_sink_does_not_answer_stops_when_it_is_asked_to() -> Result<()> {
    let _servers = rig::beside_others().await;
    let stack = Stack::from_env()?;
    let pipeline = counting_pipeline(&stack, "mute").await?;
    let proxy = Proxy::open(&pipeline.sink_url()).await?;
    let sink = proxy.of(&pipeline.sink_url())?;
    let arguments = rig::arguments(&stack, &pipeline.name, &pipeline.topic("counters"), &sink);

    // While it takes the lane over, while it learns of a table, while a unit of work is under way.
    for trigger in ["INSERT INTO sink_repair.frontier", "a.attnum AS number", "UPDATE sink_repair.frontier"] {
        let mut worker = rig::start(&arguments)?;
        tokio::time::timeout(LIMIT, proxy.hold_at(trigger)).await.with_context(|| format!("no {trigger}"))??;
        let asked = Instant::now();
        worker.stop(Duration::from_secs(20)).await.with_context(|| format!("the sink does not answer {trigger}"))?;
        say(format!("stopped {:.1} s after it was asked, in the middle of {trigger}", asked.elapsed().as_secs_f64()));
        proxy.release();
    }

    let mut worker = rig::start(&arguments)?;
    rig::until_equal(&pipeline, "counters", LIMIT).await?;
    worker.stop(LIMIT).await
}

async fn counting_pipeline(stack: &Stack, stem: &str) -> Result<Pipeline> {
    let pipeline =
        Pipeline::builder(stack, stem).table("counters", counters::COUNTERS).seed(counters::SEED).start().await?;
    pipeline.make_sink_tables().await?;
    audit::install(&pipeline).await?;
    audit::watch_versions(&pipeline, "counters").await?;
    Ok(pipeline)
}

/// Starts a worker, and returns when it has committed its first unit.
async fn start(stack: &Stack, pipeline: &Pipeline, sink: &str) -> Result<Worker> {
    let mut worker = rig::start(&rig::arguments(stack, &pipeline.name, &pipeline.topic("counters"), sink))?;
    worker.logged("lane started", LIMIT).await?;
    rig::until_at_work(pipeline).await?;
    Ok(worker)
}

/// How long the sink is away; `SINK_REPAIR_FAULTS_OUTAGE` in seconds asks for another time than 20.
fn outage() -> Result<Duration> {
    let seconds = match std::env::var("SINK_REPAIR_FAULTS_OUTAGE") {
        Ok(text) => text.parse().context("read SINK_REPAIR_FAULTS_OUTAGE")?,
        Err(_) => 20,
    };
    Ok(Duration::from_secs(seconds))
}

async fn lane(worker: &mut Worker) -> Result<Value> {
    let (_, body) = worker.get("/status").await?;
    let status: Value = serde_json::from_str(&body).context("read the status")?;
    Ok(status["lanes"][0].clone())
}

/// Returns the lines of the metric that counts rebalances.
async fn rebalances(worker: &mut Worker) -> Result<Vec<String>> {
    let (_, body) = worker.get("/metrics").await?;
    let lines: Vec<String> =
        body.lines().filter(|line| line.starts_with("sink_repair_rebalances_total{")).map(str::to_owned).collect();
    ensure!(!lines.is_empty(), "no metric counts rebalances");
    Ok(lines)
}

/// Returns the processor time that the worker has used.
fn cpu_seconds(worker: &Worker) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", worker.id()))?;
    let fields: Vec<&str> = stat.rsplit_once(')').context("no name in stat")?.1.split_whitespace().collect();
    // utime and stime (proc(5)), in hundredths of a second.
    Ok((fields[11].parse::<f64>()? + fields[12].parse::<f64>()?) / 100.0)
}
