//! Flattened rows: `ExtractNewRecordState` in each of its delete modes.
//!
//! The same changes go through each: inserts, updates, deletes, a delete and an insert of one key, a changed key, an update
//! that leaves a large value alone. At the end source and sink are equal, whatever a delete looked like on its way.

use anyhow::Result;
use serde_json::json;
use test_support::kafka::{self, New};
use test_support::{Database, Pipeline, Route, Stack, compare};

use crate::bare::Bare;
use crate::worker::{Apply, LIMIT, assert_says, counts, equal_soon, verdict};

const CHANGES: &str = "INSERT INTO orders VALUES (11, 'new', repeat('n', 9000));
    UPDATE orders SET v = 'changed' WHERE id = 2;
    DELETE FROM orders WHERE id IN (3, 4);
    INSERT INTO orders VALUES (4, 'again', NULL);
    UPDATE orders SET id = 105 WHERE id = 5;
    UPDATE orders SET v = NULL WHERE id = 6;
    INSERT INTO orders VALUES (12, 'short', 'lived');
    DELETE FROM orders WHERE id = 12;
    INSERT INTO orders VALUES (999, 'last', 'last')";

/// What a record of a delete looks like: value, or nothing.
async fn deletes_of(stack: &Stack, topic: &str, key: i64) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for record in kafka::read_all(stack, topic).await? {
        let text = record.key_text().unwrap_or_default();
        if text.ends_with(&format!("{{\"id\":{key}}}")) || text.ends_with(&format!("{{\"id\":{key}}}}}")) {
            found.push(record.value_text().unwrap_or_else(|| "(no value)".to_owned()));
        }
    }
    // The first is the row itself.
    Ok(found.split_off(1))
}

async fn start(
    mode: &str,
    schemas: bool,
    properties: &[(&str, &str)],
) -> Result<(Stack, Pipeline, Database, Database)> {
    let stack = Stack::from_env()?;
    let mut builder = Pipeline::builder(&stack, "flat")
        .table("orders", "id bigint PRIMARY KEY, v text, big text")
        .seed("ALTER TABLE orders ALTER big SET STORAGE EXTERNAL")
        .seed("INSERT INTO orders SELECT g, 'v', repeat('x', 9000) FROM generate_series(1, 10) g")
        // Its key changes; a large value does not travel with it.
        .seed("UPDATE orders SET big = 'small' WHERE id = 5")
        .route(Route::None)
        .schemas(schemas)
        .property("transforms", "unwrap")
        .property("transforms.unwrap.type", "io.debezium.transforms.ExtractNewRecordState")
        .property("transforms.unwrap.delete.tombstone.handling.mode", mode);
    for (name, value) in properties {
        builder = builder.property(name, value);
    }
    let pipeline = builder.start().await?;
    pipeline.make_sink_tables().await?;
    let (source, sink) = (pipeline.source().await?, pipeline.sink().await?);
    Ok((stack, pipeline, source, sink))
}

/// Sends the changes; returns what stands in the topic for the delete of key 3.
async fn all_arrive(mode: &str, schemas: bool) -> Result<Vec<String>> {
    let (stack, pipeline, mut source, mut sink) = start(mode, schemas, &[]).await?;
    let mut worker = Apply::of(&stack, &pipeline, &["orders"]).start()?;
    source.run(CHANGES).await?;

    assert_eq!(equal_soon(&mut source, &mut sink, "inventory.orders").await?, 11);
    worker.stop(LIMIT).await?;
    deletes_of(&stack, &pipeline.topic("orders"), 3).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_is_json_null_deletes() -> Result<()> {
    // In this mode a real null goes through the converter, which writes it down.
    assert_eq!(all_arrive("tombstone", false).await?, ["null"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_is_a_null_payload_deletes() -> Result<()> {
    let deletes = all_arrive("tombstone", true).await?;
    assert_eq!(deletes.len(), 1);
    assert!(deletes[0].ends_with("\"payload\":null}"), "{deletes:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_is_a_marked_row_deletes() -> Result<()> {
    let deletes = all_arrive("rewrite", false).await?;
    assert_eq!(deletes.len(), 1);
    assert!(deletes[0].contains("\"__deleted\":\"true\""), "{deletes:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_is_a_marked_row_and_a_tombstone_deletes() -> Result<()> {
    let deletes = all_arrive("rewrite-with-tombstone", true).await?;
    assert_eq!(deletes.len(), 2);
    assert!(deletes[0].contains("\"__deleted\":\"true\""), "{deletes:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_that_became_its_tombstone_deletes() -> Result<()> {
    all_arrive("delete-to-tombstone", true).await.map(drop)
}

/// In mode `drop` a delete leaves nothing in the topic: every deleted row stays, an orphan, until a statement finds it.
#[tokio::test(flavor = "multi_thread")]
async fn what_dropped_deletes_leave_behind_a_statement_removes() -> Result<()> {
    // Markers are routed to the table's topic, and `ExtractNewRecordState` lets them pass as they are. Without the
    // transaction's id a flattened stream cannot be judged.
    let (stack, pipeline, mut source, mut sink) = start(
        "drop",
        false,
        &[
            ("message.prefix.include.list", "sink-repair"),
            ("transforms", "unwrap,marker"),
            ("transforms.unwrap.add.headers", "op,txId"),
            ("transforms.marker.type", "org.apache.kafka.connect.transforms.RegexRouter"),
            ("transforms.marker.regex", r"(.*)\.message"),
            ("transforms.marker.replacement", "$1.inventory.orders"),
        ],
    )
    .await?;
    let mut worker = Apply::of(&stack, &pipeline, &["orders"]).start()?;
    counts(&mut sink, "SELECT count(*) FROM orders", 10).await?;
    source.run(CHANGES).await?;
    counts(&mut sink, "SELECT count(*) FROM orders WHERE id = 999", 1).await?;
    let left = compare::difference(&mut source, "inventory.orders", &mut sink, "inventory.orders").await?;
    assert_eq!((left.only_source, left.only_sink), (0, 3), "3, 5 and 12: {:?}", left.samples);

    let reads = pipeline.bracket("orders").await?.pass(100).await?;

    let verdict = verdict(&mut sink, &reads[0]).await?;
    assert_eq!((verdict.named().as_str(), verdict.removed), ("applied", 3), "{}", verdict.reason);
    assert_eq!(equal_soon(&mut source, &mut sink, "inventory.orders").await?, 11);
    worker.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flattened_stream_without_transaction_ids_refuses_statements() -> Result<()> {
    let bare = Bare::new("noids", "CREATE TABLE orders (id bigint PRIMARY KEY, v text)").await?;
    let mut sink = bare.sink().await?;
    let row = New::text(r#"{"id":1}"#, r#"{"id":1,"v":"flat"}"#);
    let low = json!({"v": 1, "kind": "low", "read_id": "r1", "table": "inventory.orders", "topic": bare.topic()});
    let chunk = json!({
        "v": 1, "kind": "chunk", "read_id": "r1", "table": "inventory.orders", "topic": bare.topic(), "part": 1,
        "parts": 1, "range": {"lower": {"open": true}, "upper": {"open": true}}, "selected": [1],
        "key_types": ["bigint"], "snapshot": "700:700:", "settled": false,
    });
    let marker = |kind: &str, payload: &serde_json::Value| {
        New::text(&format!("\"r1/{kind}\""), &payload.to_string()).header("sink-repair.kind", kind)
    };
    bare.write(vec![row, marker("low", &low), marker("chunk", &chunk)]).await?;

    bare.apply().catches_up().await?;

    let verdict = verdict(&mut sink, "r1").await?;
    assert_eq!(verdict.named(), "refused visibility");
    assert_says(&verdict.reason, &["changes of the table came without transaction id", "add.headers=txId"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_topic_that_does_not_name_a_table_need_to_be_told_it() -> Result<()> {
    let bare = Bare::new("untold", "CREATE TABLE orders (id bigint PRIMARY KEY, v text)").await?;
    let topic = format!("{}-orders", bare.name);
    kafka::create_topic(&bare.stack, &topic, 1, &[]).await?;
    kafka::write(&bare.stack, &topic, vec![New::text(r#"{"id":1}"#, r#"{"id":1,"v":"flat"}"#)]).await?;
    let apply = bare.apply().with(&["--topics", &topic]);

    let log = apply.stops().await?;
    assert_says(
        &log,
        &[
            &format!("topic `{topic}` carries flattened rows that do not say their table"),
            &format!("start with --source-table {topic}=SCHEMA.TABLE"),
        ],
    );

    apply.with(&["--source-table", &format!("{topic}=inventory.orders")]).catches_up().await?;
    counts(&mut bare.sink().await?, "SELECT count(*) FROM orders WHERE v = 'flat'", 1).await
}
