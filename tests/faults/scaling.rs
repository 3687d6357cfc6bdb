//! From one worker to three and back, under load: lanes move, every change takes effect once.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use test_support::markers::{Post, prefix_reaching};
use test_support::{Pipeline, Stack, until};

use crate::audit;
use crate::counters::{self, Counting};
use crate::rig::{self, LIMIT, say};

const PARTITIONS: u32 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn workers_come_and_go_and_every_change_takes_effect_once() -> Result<()> {
    let _servers = rig::beside_others().await;
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "scaling")
        .table("counters", counters::COUNTERS)
        .seed(counters::SEED)
        .partitions(PARTITIONS)
        .start()
        .await?;
    pipeline.make_sink_tables().await?;
    audit::install(&pipeline).await?;
    audit::watch_versions(&pipeline, "counters").await?;
    let topic = pipeline.topic("counters");
    let arguments = rig::with(
        rig::arguments(&stack, &pipeline.name, &topic, &pipeline.sink_url()),
        &["--orphans", "remove", "--max-removals-percent", "100"],
    );
    let mut first = rig::start(&arguments)?;
    lanes_belong_to(&pipeline, &[first.id()]).await?;
    let load = Counting::start(&pipeline, 3, Duration::from_millis(40), rig::seed()?).await?;

    let mut second = rig::start(&arguments)?;
    let mut third = rig::start(&arguments)?;
    lanes_belong_to(&pipeline, &[first.id(), second.id(), third.id()]).await?;
    statements_are_refused_by_scope(&pipeline).await?;
    second.stop(LIMIT).await?;
    lanes_belong_to(&pipeline, &[first.id(), third.id()]).await?;
    third.stop(LIMIT).await?;
    lanes_belong_to(&pipeline, &[first.id()]).await?;
    load.stop().await?;

    let rows = rig::until_equal(&pipeline, "counters", LIMIT).await?;
    let mut sink = pipeline.sink().await?;
    let versions = audit::each_version_once(&mut sink).await?;
    let (claims, steps) = audit::frontier_only_rises(&mut sink).await?;
    let removed = sink.number("SELECT count(*) FROM sink_repair.removed").await?;
    ensure!(removed == 0, "a refused statement removed {removed} rows");
    say(format!(
        "one worker, three, one: {rows} rows equal, {versions} versions written, each once; {claims} claims, {steps} steps"
    ));
    first.stop(LIMIT).await
}

/// Waits until each of these processes owns a lane, and nobody else does.
async fn lanes_belong_to(pipeline: &Pipeline, owners: &[u32]) -> Result<()> {
    let mut sink = pipeline.sink().await?;
    let wanted: BTreeSet<String> = owners.iter().map(u32::to_string).collect();
    until(&format!("the lanes belong to the processes {wanted:?}"), LIMIT, async || {
        let sql = "SELECT split_part(owner, ' pid ', 2) FROM sink_repair.frontier";
        let lanes = sink.column(sql).await?;
        let owners: BTreeSet<String> = lanes.iter().flatten().cloned().collect();
        Ok((lanes.len() == PARTITIONS as usize && owners == wanted).then_some(()))
    })
    .await
}

/// Makes a statement in each partition; none may be taken on a topic of three.
async fn statements_are_refused_by_scope(pipeline: &Pipeline) -> Result<()> {
    let mut reads = 0;
    for partition in 0..PARTITIONS {
        let post = Post::Envelope { prefix: prefix_reaching(partition, PARTITIONS, false) };
        reads += pipeline.bracket_by("counters", post).await?.pass(400).await?.len();
    }
    let mut sink = pipeline.sink().await?;
    let verdicts = until("every statement has its verdict", LIMIT, async || {
        let verdicts = sink
            .column("SELECT verdict || ' ' || coalesce(rule, '') || ' ' || partition FROM sink_repair.statement")
            .await?;
        Ok((verdicts.len() >= reads).then_some(verdicts))
    })
    .await?;
    let mut kinds: Vec<String> = verdicts.into_iter().flatten().collect();
    kinds.sort();
    kinds.dedup();
    ensure!(
        kinds == ["refused scope 0", "refused scope 1", "refused scope 2"],
        "statements on three partitions: {kinds:?}"
    );
    say(format!("{reads} statements on {PARTITIONS} partitions, all refused by scope"));
    Ok(())
}
