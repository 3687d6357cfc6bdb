//! Tables as they come: odd names, composite keys, partitions, truncates.

use anyhow::Result;
use serde_json::{Value, json};
use test_support::{Pipeline, Route, Stack, kafka::New};

use crate::bare::Bare;
use crate::worker::{Apply, COMES, LIMIT, assert_says, counts, equal_soon, equal_tables_within, holds, verdict};

/// Statements, removals and requests quote whatever a table and its columns are called.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_an_odd_name_is_kept_and_repaired() -> Result<()> {
    kept_and_repaired("Odd table (1+x)$ é.").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_a_quote_in_its_name_is_kept_and_repaired() -> Result<()> {
    kept_and_repaired(r#"Odd "table" x"#).await
}

/// A table of this name is applied; then an orphan of it goes and a lost row of it comes back.
async fn kept_and_repaired(name: &str) -> Result<()> {
    let stack = Stack::from_env()?;
    let quoted = format!("\"{}\"", name.replace('"', "\"\""));
    let pipeline = Pipeline::builder(&stack, "odd")
        .table(name, r#""Select" text COLLATE "C", "a b" int, "c"".d'é" text, PRIMARY KEY ("Select", "a b")"#)
        .seed(&format!("INSERT INTO {quoted} SELECT 'k' || g % 3, g, 'v' FROM generate_series(1, 9) g"))
        .property("table.include.list", r"inventory\.Odd.*")
        .start()
        .await?;
    let (mut source, mut sink) = (pipeline.source().await?, pipeline.sink().await?);
    sink.run(format!(
        r#"CREATE TABLE {quoted} ("c"".d'é" text, "a b" int, "Select" text COLLATE "C", PRIMARY KEY ("Select", "a b"))"#
    ))
    .await?;
    let mut worker = Apply::of(&stack, &pipeline, &[name])
        .with(&["--signal-topic", &pipeline.signal_topic(), "--signal-key", &pipeline.name])
        .start()?;
    let table = format!("inventory.{name}");
    source
        .run(format!(r#"UPDATE {quoted} SET "c"".d'é" = 'w' WHERE "a b" = 4; DELETE FROM {quoted} WHERE "a b" = 5"#))
        .await?;
    counts(&mut sink, &format!("SELECT count(*) FROM {quoted}"), 8).await?;
    assert_eq!(equal_soon(&mut source, &mut sink, &table).await?, 8);

    sink.run(format!(r#"DELETE FROM {quoted} WHERE "a b" = 1; INSERT INTO {quoted} VALUES ('orphan', 5, 'k2')"#))
        .await?;
    let reads = pipeline.bracket(name).await?.pass(100).await?;

    let verdict = verdict(&mut sink, &reads[0]).await?;
    assert_eq!((verdict.named().as_str(), verdict.removed, verdict.missing), ("applied", 1, 1), "{}", verdict.reason);
    assert_eq!(equal_tables_within(COMES, &mut source, &table, &mut sink, &table).await?, 8);
    worker.stop(LIMIT).await
}

/// Several tables in one worker, each with markers of its own by the outbox way.
#[tokio::test(flavor = "multi_thread")]
async fn partitioned_sink_tables_and_composite_keys_are_repaired_side_by_side() -> Result<()> {
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "several")
        .table("orders", "id bigint PRIMARY KEY, v text")
        .table("lines", "order_id uuid, line numeric(10,2), at timestamptz, v text, PRIMARY KEY (order_id, line, at)")
        .seed("INSERT INTO orders SELECT g, 'v' FROM generate_series(1, 100) g")
        .seed(
            "INSERT INTO lines SELECT ('00000000-0000-0000-0000-0000000000' || 10 + g / 10)::uuid, g / 4.0, \
             '2024-01-01'::timestamptz + g * interval '1 microsecond', 'v' FROM generate_series(1, 50) g",
        )
        .route(Route::Outbox)
        .schemas(true)
        .start()
        .await?;
    let (mut source, mut sink) = (pipeline.source().await?, pipeline.sink().await?);
    sink.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id);
         CREATE TABLE orders_low PARTITION OF orders FOR VALUES FROM (MINVALUE) TO (50);
         CREATE TABLE orders_high PARTITION OF orders FOR VALUES FROM (50) TO (MAXVALUE) PARTITION BY HASH (id);
         CREATE TABLE orders_high_0 PARTITION OF orders_high FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE orders_high_1 PARTITION OF orders_high FOR VALUES WITH (MODULUS 2, REMAINDER 1);
         CREATE TABLE lines (order_id uuid, line numeric(10,2), at timestamptz, v text, PRIMARY KEY (order_id, line, at))",
    )
    .await?;
    let mut worker = Apply::of(&stack, &pipeline, &["orders", "lines"]).start()?;
    assert_eq!(equal_soon(&mut source, &mut sink, "inventory.orders").await?, 100);
    assert_eq!(equal_soon(&mut source, &mut sink, "inventory.lines").await?, 50);

    sink.run("INSERT INTO orders VALUES (-5, 'orphan'), (1000, 'orphan'), (1001, 'orphan')").await?;
    sink.run("INSERT INTO lines SELECT order_id, line + 1000, at, 'orphan' FROM lines LIMIT 5").await?;
    // The key moves to another partition, and back.
    source.run("UPDATE orders SET id = 2000 WHERE id = 1; UPDATE orders SET id = 1 WHERE id = 2000").await?;
    let mut removed = Vec::new();
    for (table, rows) in [("orders", 40), ("lines", 20)] {
        let reads = pipeline.bracket(table).await?.pass(rows).await?;
        let mut of_table = 0;
        for read in &reads {
            let verdict = verdict(&mut sink, read).await?;
            assert_eq!(verdict.named(), "applied", "{}", verdict.reason);
            of_table += verdict.removed;
        }
        removed.push(of_table);
    }

    assert_eq!(removed, [3, 5]);
    assert_eq!(equal_soon(&mut source, &mut sink, "inventory.orders").await?, 100);
    assert_eq!(equal_soon(&mut source, &mut sink, "inventory.lines").await?, 50);
    worker.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_truncate_stops_the_lane_unless_it_is_to_be_applied() -> Result<()> {
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "truncate")
        .table("orders", "id bigint PRIMARY KEY, v text")
        .seed("INSERT INTO orders VALUES (1, 'v'), (2, 'v')")
        .route(Route::None)
        .start()
        .await?;
    pipeline.make_sink_tables().await?;
    let (mut source, mut sink) = (pipeline.source().await?, pipeline.sink().await?);
    let apply = Apply::of(&stack, &pipeline, &["orders"]);
    source.run("TRUNCATE orders").await?;
    source.run("INSERT INTO orders VALUES (3, 'after')").await?;
    let ids = "SELECT id::text FROM orders ORDER BY orders.id";

    let mut stopped = apply.start()?;
    let status = stopped.wait(LIMIT).await?;

    assert_eq!(status.code(), Some(1));
    assert_says(
        &stopped.log(),
        &[
            &format!("{}-0: inventory.orders was truncated at the source, at offset 2", pipeline.topic("orders")),
            "--truncate apply",
            &format!(
                "sink-repair reset --name {} --topic {} --partition 0 --to 3",
                pipeline.name,
                pipeline.topic("orders")
            ),
        ],
    );
    // What came before it is done.
    holds(&mut sink, ids, &["1", "2"]).await?;

    let mut worker = apply.with(&["--truncate", "apply"]).start()?;
    holds(&mut sink, ids, &["3"]).await?;
    worker.stop(LIMIT).await?;

    // The way that the message names ends the same.
    let reset = ["reset", "--name", &apply.name, "--topic", &pipeline.topic("orders"), "--partition", "0", "--to", "3"];
    let ended = apply.operate(&pipeline.sink_url(), &reset).await?;
    assert_eq!(ended.code, 0, "{}", ended.log);
    let mut worker = apply.start()?;
    source.run("INSERT INTO orders VALUES (4, 'later')").await?;
    holds(&mut sink, ids, &["3", "4"]).await?;
    worker.stop(LIMIT).await
}

/// Equality of keys must be equality of their bytes, also for plain changes.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_a_floating_point_key_is_refused_by_name() -> Result<()> {
    let bare = Bare::new("floating", "CREATE TABLE orders (id double precision PRIMARY KEY, v text)").await?;
    bare.write(vec![bare.row(1, "v")]).await?;

    let log = bare.apply().stops().await?;

    assert_says(
        &log,
        &[
            &format!("{}-0 at offset 0", bare.topic()),
            "the sink table inventory.orders",
            "floating point key \"id\"",
            "hint: ",
        ],
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn truncates_are_not_applied_from_a_topic_of_several_partitions() -> Result<()> {
    let bare = Bare::new("truncates", "CREATE TABLE orders (id bigint PRIMARY KEY, v text)").await?;
    let topic = format!("{}-three.inventory.orders", bare.name);
    test_support::kafka::create_topic(&bare.stack, &topic, 3, &[]).await?;

    let log = bare.apply().with(&["--topics", &topic, "--truncate", "apply"]).stops().await?;

    assert_says(&log, &["the topic has 3 partitions, and --truncate apply takes one", "leave --truncate at stop"]);
    Ok(())
}

/// A statement on everything in the table, of a source whose key is of this type.
fn everything(read_id: &str, selected: Value, key_type: &str) -> Value {
    let open = json!({ "open": true });
    json!({
        "table": "inventory.orders", "read_id": read_id, "range": { "lower": open, "upper": open },
        "selected": selected, "changed": [], "key_types": [key_type],
    })
}

/// PostgreSQL's `to_json` writes an `oid` as text; others write it as a number.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_an_oid_key_is_kept_and_repaired() -> Result<()> {
    for column in ["oid", "bigint"] {
        let bare = Bare::new("oid", &format!("CREATE TABLE orders (id {column} PRIMARY KEY, v text)")).await?;
        let mut sink = bare.sink().await?;
        sink.run("INSERT INTO orders VALUES (7, 'orphan'), (4294967294, 'orphan')").await?;
        let all = [9, 10, 4_294_967_295].map(|id| bare.row(id, "v"));
        let texts = everything("texts", json!(["9", "10", "4294967295"]), "oid");
        let numbers = everything("numbers", json!([9, 10, 4_294_967_295_u32]), "oid");
        bare.write(all.into_iter().chain([bare.chunk_info(&texts), bare.chunk_info(&numbers)]).collect()).await?;

        bare.apply().catches_up().await?;

        let (first, second) = (verdict(&mut sink, "texts").await?, verdict(&mut sink, "numbers").await?);
        assert_eq!((first.named().as_str(), first.removed, first.missing), ("applied", 2, 0), "{}", first.reason);
        assert_eq!((second.named().as_str(), second.orphans, second.missing), ("applied", 0, 0), "{}", second.reason);
        holds(&mut sink, "SELECT id::text FROM orders ORDER BY orders.id", &["9", "10", "4294967295"]).await?;
        let undone = bare.apply().operate(&bare.sink_url(), &["undo", "--read-id", "texts"]).await?;
        assert_says(&undone.log, &["inventory.orders: 2 rows brought back"]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_removal_a_trigger_prevents_is_held_and_the_stream_goes_on() -> Result<()> {
    let bare = Bare::new(
        "softly",
        "CREATE TABLE orders (id bigint PRIMARY KEY, v text);
         CREATE FUNCTION softly() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN IF OLD.v = 'kept' THEN RETURN NULL; END IF; RETURN OLD; END $$;
         CREATE TRIGGER softly BEFORE DELETE ON orders FOR EACH ROW EXECUTE FUNCTION softly();
         INSERT INTO orders VALUES (7, 'orphan'), (8, 'kept')",
    )
    .await?;
    let mut sink = bare.sink().await?;
    let read = bare.chunk_info(&everything("r", json!([1]), "bigint"));
    bare.write(vec![bare.row(1, "v"), read, bare.row(2, "later")]).await?;

    bare.apply().with(&["--allow-cascade"]).catches_up().await?;

    let verdict = verdict(&mut sink, "r").await?;
    assert_eq!((verdict.named().as_str(), verdict.removed), ("held cascade", 0));
    assert_says(&verdict.reason, &["the table kept 1 of 2 rows: trigger \"softly\" on orders fires on DELETE"]);
    holds(&mut sink, "SELECT id::text FROM orders ORDER BY orders.id", &["1", "2", "7", "8"]).await?;
    assert_eq!(sink.number("SELECT count(*) FROM sink_repair.removed").await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn undo_of_a_table_that_the_sink_does_not_know_is_an_error() -> Result<()> {
    let bare = Bare::new("unknown", "CREATE TABLE orders (id bigint PRIMARY KEY, v text)").await?;
    let undo =
        async |table: &str| bare.apply().operate(&bare.sink_url(), &["undo", "--table", table, "--since", "1h"]).await;

    let (unknown, known) = (undo("inventory.order").await?, undo("inventory.orders").await?);

    assert_eq!(unknown.code, 1, "{}", unknown.log);
    assert_says(&unknown.log, &["the sink has no table inventory.order, and no copy of a row of it", "hint: "]);
    assert_eq!(known.code, 0, "{}", known.log);
    Ok(())
}

/// Columns that Debezium's own records have as well make no such record of a row.
#[tokio::test(flavor = "multi_thread")]
async fn flattened_rows_that_look_like_debeziums_own_records_are_applied() -> Result<()> {
    let tables = [
        (
            "aggregate_type text, type text, additional_data text, amount int",
            json!({"id": 1, "aggregate_type": "a", "type": "t", "additional_data": "d", "amount": 5}),
        ),
        (
            "status text, event_count int, data_collections text, note text",
            json!({"id": 1, "status": "s", "event_count": 2, "data_collections": "d", "note": "n"}),
        ),
        ("ddl text, \"databaseName\" text, who text", json!({"id": 1, "ddl": "d", "databaseName": "n", "who": "w"})),
        (
            "op text, before text, after text, source text",
            json!({"id": 1, "op": "u", "before": "b", "after": "a", "source": "s"}),
        ),
    ];
    for (columns, row) in tables {
        let bare = Bare::new("looks", &format!("CREATE TABLE orders (id bigint PRIMARY KEY, {columns})")).await?;
        let record = New::text(r#"{"id":1}"#, &row.to_string()).header("__op", "c").header("__source_table", "orders");
        bare.write(vec![record]).await?;

        bare.apply().catches_up().await?;

        holds(&mut bare.sink().await?, "SELECT id::text FROM orders", &["1"]).await?;
    }
    Ok(())
}
