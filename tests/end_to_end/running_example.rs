//! The running example of the paper: keys 1 to 10 were there, 4 and 7 are gone at the source, 9 changes in the window, 12
//! was written into the sink by somebody else, above the range.

use anyhow::Result;
use serde_json::json;
use test_support::markers::Read;
use test_support::{Database, Pipeline, Route, Stack, compare, until};

use crate::bare::Bare;
use crate::worker::{Apply, LIMIT, Verdict, holds, texts, verdict};

const KEYS: &str = "SELECT id::text FROM orders ORDER BY orders.id";

/// What the statement on (-inf, 10] comes to: ten rows in range, 4 and 7 orphans, 9 spared.
fn chunk_applied() -> Verdict {
    Verdict { verdict: "applied".into(), orphans: 2, removed: 2, spared: 1, in_range: 10, ..Verdict::default() }
}

/// What the one on (10, inf) comes to: 12 is the only row.
fn tail_applied() -> Verdict {
    Verdict { verdict: "applied".into(), orphans: 1, removed: 1, in_range: 1, ..Verdict::default() }
}

async fn drift(sink: &mut Database) -> Result<()> {
    sink.run("INSERT INTO orders VALUES (4, 'orphan'), (7, 'orphan'), (12, 'a side writer''s')").await
}

async fn by_markers(route: Route, schemas: bool) -> Result<()> {
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "paper")
        .table("orders", "id bigint PRIMARY KEY, v text")
        .seed("INSERT INTO orders SELECT g, 'v' FROM generate_series(1, 10) g WHERE g NOT IN (4, 7)")
        .route(route)
        .schemas(schemas)
        .start()
        .await?;
    pipeline.make_sink_tables().await?;
    let mut worker = Apply::of(&stack, &pipeline, &["orders"]).start()?;
    let (mut source, mut sink) = (pipeline.source().await?, pipeline.sink().await?);
    holds(&mut sink, KEYS, &["1", "2", "3", "5", "6", "8", "9", "10"]).await?;
    drift(&mut sink).await?;
    let mut bracket = pipeline.bracket("orders").await?;

    bracket.low("r1").await?;
    source.run("UPDATE orders SET v = 'of the window' WHERE id = 9").await?;
    assert!(bracket.settle(LIMIT).await?);
    let read = bracket.read("r1", None, 8).await?;
    bracket.close(&read).await?;

    assert_eq!(verdict(&mut sink, "r1").await?, chunk_applied());
    assert_eq!(texts(&mut sink, KEYS).await?, ["1", "2", "3", "5", "6", "8", "9", "10", "12"]);
    assert_eq!(texts(&mut sink, "SELECT v FROM orders WHERE id = 9").await?, ["of the window"]);

    bracket.low("r2").await?;
    assert!(bracket.settle(LIMIT).await?);
    let Read { last, .. } = read;
    let tail = bracket.read("r2", last.as_deref(), 8).await?;
    bracket.close(&tail).await?;

    assert_eq!(verdict(&mut sink, "r2").await?, tail_applied());
    assert_eq!(compare::equal(&mut source, "inventory.orders", &mut sink, "inventory.orders").await?, 8);
    let removed =
        "SELECT read_id || ' ' || (row_text->>'id') || ' ' || (row_text->>'v') FROM sink_repair.removed ORDER BY id";
    assert_eq!(texts(&mut sink, removed).await?, ["r1 4 orphan", "r1 7 orphan", "r2 12 a side writer's"]);
    worker.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_example_by_the_envelope_way() -> Result<()> {
    by_markers(Route::Envelope, false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_example_by_the_envelope_way_with_schemas() -> Result<()> {
    by_markers(Route::Envelope, true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_example_by_the_outbox_way() -> Result<()> {
    by_markers(Route::Outbox, false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_example_by_the_outbox_way_with_schemas() -> Result<()> {
    by_markers(Route::Outbox, true).await
}

async fn by_absence_events(schemas: bool) -> Result<()> {
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "absent")
        .table("orders", "id bigint PRIMARY KEY, v text")
        .seed("INSERT INTO orders SELECT g, 'v' FROM generate_series(1, 10) g WHERE g NOT IN (4, 7)")
        .route(Route::Outbox)
        .schemas(schemas)
        .start()
        .await?;
    pipeline.make_sink_tables().await?;
    let mut worker = Apply::of(&stack, &pipeline, &["orders"]).start()?;
    let (mut source, mut sink) = (pipeline.source().await?, pipeline.sink().await?);
    holds(&mut sink, KEYS, &["1", "2", "3", "5", "6", "8", "9", "10"]).await?;
    drift(&mut sink).await?;
    let bracket = pipeline.bracket("orders").await?;

    let asked = [4, 7, 9, 12].map(|key: i32| vec![key.to_string()]);
    assert_eq!(bracket.absence_events("answer", &asked).await?, 3);

    let removed = "SELECT split_part(read_id, '#', 1) || ' ' || kind || ' ' || verdict || ' ' || removed FROM \
                   sink_repair.statement ORDER BY position";
    holds(&mut sink, removed, &["answer absence applied 1"; 3]).await?;
    assert_eq!(compare::equal(&mut source, "inventory.orders", &mut sink, "inventory.orders").await?, 8);
    assert_eq!(
        texts(&mut sink, "SELECT row_text->>'id' FROM sink_repair.removed ORDER BY id").await?,
        ["4", "7", "12"]
    );
    worker.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_example_as_absence_events() -> Result<()> {
    by_absence_events(false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_example_as_absence_events_with_schemas() -> Result<()> {
    by_absence_events(true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_example_as_chunk_info_records() -> Result<()> {
    let bare = Bare::new("chunkinfo", "CREATE TABLE orders (id bigint PRIMARY KEY, v text)").await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().start()?;
    bare.write([1, 2, 3, 5, 6, 8, 9, 10].map(|id| bare.row(id, "v")).to_vec()).await?;
    holds(&mut sink, KEYS, &["1", "2", "3", "5", "6", "8", "9", "10"]).await?;
    drift(&mut sink).await?;

    // As in the paper: 9 was read with its old value, and changed before the close.
    let chunk = bare.chunk_info(&json!({
        "table": "inventory.orders", "read_id": "snap-01-chunk-01",
        "range": {"lower": {"open": true}, "upper": {"key": 10, "inclusive": true}},
        "selected": [1, 2, 3, 5, 6, 8, 9, 10], "changed": [9], "rows": 7,
    }));
    let survivors = [1, 2, 3, 5, 6, 8, 10].map(|id| bare.row(id, "of the chunk"));
    bare.write([vec![bare.row(9, "of the window"), chunk], survivors.to_vec()].concat()).await?;

    assert_eq!(verdict(&mut sink, "snap-01-chunk-01").await?, chunk_applied());
    holds(
        &mut sink,
        "SELECT v FROM orders WHERE id IN (8, 9, 10, 12) ORDER BY orders.id",
        &["of the chunk", "of the window", "of the chunk", "a side writer's"],
    )
    .await?;
    assert_eq!(texts(&mut sink, KEYS).await?, ["1", "2", "3", "5", "6", "8", "9", "10", "12"]);

    let tail = bare.chunk_info(&json!({
        "table": "inventory.orders", "read_id": "snap-01-chunk-02",
        "range": {"lower": {"key": 10, "inclusive": false}, "upper": {"open": true}}, "selected": [], "changed": [],
    }));
    bare.write(vec![tail.clone(), bare.row(13, "later"), tail]).await?;

    assert_eq!(verdict(&mut sink, "snap-01-chunk-02").await?, tail_applied());
    until("the later row is there", LIMIT, async || {
        Ok((sink.number("SELECT count(*) FROM orders WHERE id = 13").await? == 1).then_some(()))
    })
    .await?;
    // The second delivery of the tail would have taken 13 for an orphan.
    let frontier = "SELECT next_offset::text FROM sink_repair.frontier";
    holds(&mut sink, frontier, &["20"]).await?;
    assert_eq!(texts(&mut sink, KEYS).await?, ["1", "2", "3", "5", "6", "8", "9", "10", "13"]);
    worker.stop(LIMIT).await
}
