//! Two workers of one name, of which one stands still while the other takes its partition: whatever the late one had in
//! hand, it writes nothing, says who has the lane now, and goes on as a member of the group.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use test_support::{Pipeline, Signal, Stack, until};

use crate::audit;
use crate::load::{self, Load};
use crate::proxy::Proxy;
use crate::rig::{self, LIMIT, say};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stood_still_before_its_unit_began_writes_nothing() -> Result<()> {
    // The sink has nothing of the unit yet: it begins when the worker wakes up, and finds the epoch raised.
    late_worker("late", "BEGIN ISOLATION LEVEL").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stood_still_before_its_commit_does_not_keep_its_successor_waiting_for_ever() -> Result<()> {
    let took_over = late_worker("open", "SET CONSTRAINTS ALL IMMEDIATE; COMMIT").await?;

    // The sink ends a transaction that is silent for ten seconds; until then its lock on the frontier stands.
    ensure!(took_over < Duration::from_secs(40), "the successor waited for {took_over:?}");
    Ok(())
}

/// Halts a worker whose message to the sink with `trigger` is on its way, lets another take over, and wakes it. Returns
/// how long the takeover took.
async fn late_worker(stem: &str, trigger: &'static str) -> Result<Duration> {
    let _servers = rig::beside_others().await;
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, stem).table("orders", load::ORDERS).seed(load::SEED).start().await?;
    pipeline.sink().await?.run(format!("CREATE TABLE orders ({})", load::ORDERS)).await?;
    audit::install(&pipeline).await?;
    let proxy = Proxy::open(&pipeline.sink_url()).await?;
    let topic = pipeline.topic("orders");
    let mut late = rig::start(&rig::arguments(&stack, &pipeline.name, &topic, &proxy.of(&pipeline.sink_url())?))?;
    rig::until_at_work(&pipeline).await?;
    let load = Load::start(&pipeline, 2, Duration::from_millis(60), rig::seed()?).await?;
    let mut next = rig::start(&rig::arguments(&stack, &pipeline.name, &topic, &pipeline.sink_url()))?;
    next.address(LIMIT).await?;

    proxy.hold_at(trigger).await?;
    late.signal(Signal::Stop)?;
    let halted = Instant::now();
    next.logged("lane started", LIMIT).await?;
    let took_over = halted.elapsed();
    let mut sink = pipeline.sink().await?;
    let sql = "SELECT count(*) FROM audit.frontier WHERE epoch = (SELECT max(epoch) FROM audit.frontier)";
    // Its first row is the claim.
    until("the successor commits", LIMIT, async || Ok((sink.number(sql).await? >= 2).then_some(()))).await?;
    late.signal(Signal::Cont)?;
    proxy.release();

    let line = late.logged("another worker has taken the partition; nothing was written", LIMIT).await?;
    let (lane, owner) = (format!("{topic}-0"), format!("pid {} now", next.id()));
    ensure!(line.contains(&lane) && line.contains(&owner), "the late worker does not say who has the lane: {line}");
    say(format!("taken over after {:.1} s; the late worker: {}", took_over.as_secs_f64(), line.trim()));
    // It is still a member: when the other leaves, the partition comes back to it.
    let lanes = lanes_started(&late.log());
    next.stop(LIMIT).await?;
    until("the late worker has a lane again", LIMIT, async || Ok((lanes_started(&late.log()) > lanes).then_some(())))
        .await?;
    load.stop().await?;
    rig::until_equal(&pipeline, "orders", LIMIT).await?;
    let (claims, steps) = audit::frontier_only_rises(&mut pipeline.sink().await?).await?;
    ensure!(claims >= 3, "{claims} claims are too few for a lane that went there and back");
    say(format!("{claims} claims, {steps} steps of the frontier, all forwards"));
    late.stop(LIMIT).await?;
    Ok(took_over)
}

fn lanes_started(log: &str) -> usize {
    log.lines().filter(|line| line.contains("lane started")).count()
}
