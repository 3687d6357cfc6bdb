//! Rows that the sink lacks: found, asked for, sent by stock Debezium, there again.

use anyhow::Result;
use serde_json::{Value, json};
use test_support::kafka;
use test_support::{Pipeline, Stack};

use crate::bare::Bare;
use crate::worker::{Apply, COMES, LIMIT, counts, equal_tables_within, metric, status, verdict};

/// Returns the requests in a signal topic, without their ids.
async fn requests(stack: &Stack, topic: &str) -> Result<Vec<(Option<String>, Value)>> {
    let records = kafka::read_all(stack, topic).await?;
    let request = |record: kafka::Read| {
        let mut value: Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default()).unwrap();
        let id = value.as_object_mut().unwrap().remove("id").unwrap();
        assert!(id.as_str().unwrap().starts_with("sink-repair-0-"), "{id}");
        (record.key_text(), value)
    };
    Ok(records.into_iter().map(request).collect())
}

fn snapshot(table: &str, filter: &str) -> Value {
    json!({
        "type": "execute-snapshot",
        "data": {
            "data-collections": [table], "type": "incremental",
            "additional-conditions": [{"data-collection": table, "filter": filter}],
        },
    })
}

/// The sink's table has another name than the source's: it is the source's that is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn rows_lost_at_the_sink_are_found_by_a_statement_and_come_back() -> Result<()> {
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "missing")
        .table("orders", "id bigint, part text, v text, big text, PRIMARY KEY (part, id)")
        .seed("ALTER TABLE orders ALTER big SET STORAGE EXTERNAL")
        .seed("INSERT INTO orders SELECT g, 'it''s ' || g % 2, 'v', repeat('x', 9000) FROM generate_series(1, 20) g")
        .start()
        .await?;
    let (mut source, mut sink) = (pipeline.source().await?, pipeline.sink().await?);
    sink.run(
        "CREATE TABLE public.inventory_orders (id bigint, part text COLLATE \"C\", v text, big text, \
         PRIMARY KEY (part, id))",
    )
    .await?;
    let mut worker = Apply::of(&stack, &pipeline, &["orders"])
        .with(&["--sink-table", "public.{schema}_{table}"])
        .with(&["--signal-topic", &pipeline.signal_topic(), "--signal-key", &pipeline.name])
        .start()?;
    counts(&mut sink, "SELECT count(*) FROM inventory_orders", 20).await?;
    sink.run("DELETE FROM inventory_orders WHERE id IN (4, 7, 20)").await?;

    let reads = pipeline.bracket("orders").await?.pass(100).await?;

    let found = verdict(&mut sink, &reads[0]).await?;
    assert_eq!((found.named().as_str(), found.missing, found.orphans), ("applied", 3, 0));
    let (source_table, sink_table) = ("inventory.orders", "public.inventory_orders");
    assert_eq!(equal_tables_within(COMES, &mut source, source_table, &mut sink, sink_table).await?, 20);
    let by_statement =
        snapshot("inventory.orders", r#"("part", "id") IN (('it''s 0', 4), ('it''s 0', 20), ('it''s 1', 7))"#);
    let asked = requests(&stack, &pipeline.signal_topic()).await?;
    // Debezium drops a request now and then; it is made once more then.
    assert!((1..=2).contains(&asked.len()), "{asked:?}");
    assert!(asked.iter().all(|request| *request == (Some(pipeline.name.clone()), by_statement.clone())), "{asked:?}");
    let sent = "sink_repair_requests_total{type=\"execute-snapshot\"}";
    assert_eq!(metric(&mut worker, sent).await?, asked.len() as f64);

    // A change that leaves a large value alone says nothing of that value, so the row cannot be made of it; nor can that of
    // a new key.
    sink.run("DELETE FROM inventory_orders WHERE id = 9").await?;
    source.run("UPDATE orders SET v = 'changed' WHERE id IN (9, 10); UPDATE orders SET id = 111 WHERE id = 11").await?;

    assert_eq!(equal_tables_within(COMES, &mut source, source_table, &mut sink, sink_table).await?, 20);
    let asked = requests(&stack, &pipeline.signal_topic()).await?.split_off(asked.len());
    let by_change = snapshot("inventory.orders", r#"("part", "id") IN (('it''s 1', 9), ('it''s 1', 111))"#);
    assert!((1..=2).contains(&asked.len()) && asked.iter().all(|request| request.1 == by_change), "{asked:?}");
    let name = format!("sink_repair_missing_rows_total{{topic=\"{}\"}}", pipeline.topic("orders"));
    assert_eq!(metric(&mut worker, &name).await?, 5.0);
    assert_eq!(status(&mut worker).await?.code, 0, "all have come");
    worker.stop(LIMIT).await
}

/// The filter is SQL that finds just these keys, also infinite ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_s_filter_finds_its_keys() -> Result<()> {
    const COLUMNS: &str = "d date, t timestamp, z timestamptz, b bytea, n numeric(10,2), PRIMARY KEY (d, t, z, b, n)";
    let bare = Bare::new("filter", &format!("CREATE TABLE orders ({COLUMNS}); CREATE TABLE twin ({COLUMNS})")).await?;
    let mut sink = bare.sink().await?;
    let signals = format!("{}-signal", bare.name);
    kafka::create_topic(&bare.stack, &signals, 1, &[]).await?;
    sink.run(
        r"INSERT INTO twin VALUES ('-infinity', '-infinity', '-infinity', '\x', -1.5),
            ('2024-02-29', '2024-02-29 12:00:00.000001', '2024-02-29 12:00+02', '\x00ff', 0.01),
            ('infinity', 'infinity', 'infinity', '\x27', 99999999.99)",
    )
    .await?;
    let statement = json!({
        "table": "inventory.orders", "read_id": "r", "range": {"lower": {"open": true}, "upper": {"open": true}},
        "selected": [
            ["-infinity", "-infinity", "-infinity", "\\x", "-1.50"],
            ["2024-02-29", "2024-02-29T12:00:00.000001", "2024-02-29T10:00:00Z", "\\x00ff", "0.01"],
            ["infinity", "infinity", "infinity", "\\x27", "99999999.99"],
        ],
        "changed": [], "key_columns": ["d", "t", "z", "b", "n"],
    });
    bare.write(vec![bare.chunk_info(&statement)]).await?;

    bare.apply().with(&["--signal-topic", &signals, "--signal-key", "shop"]).catches_up().await?;

    let found = verdict(&mut sink, "r").await?;
    assert_eq!((found.named().as_str(), found.missing), ("applied", 3), "{}", found.reason);
    let asked = requests(&bare.stack, &signals).await?;
    let filter = asked[0].1["data"]["additional-conditions"][0]["filter"].as_str().unwrap().to_owned();
    assert_eq!(sink.number(format!("SELECT count(*) FROM twin WHERE {filter}")).await?, 3, "{filter}");
    Ok(())
}
