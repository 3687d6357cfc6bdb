//! Several tables by one topic, as a router makes it.

use anyhow::Result;
use serde_json::{Value, json};
use test_support::kafka::New;

use crate::bare::Bare;
use crate::worker::{texts, verdict};

const TABLES: &str =
    "CREATE TABLE orders (id bigint PRIMARY KEY, v text); CREATE TABLE lines (LIKE orders INCLUDING ALL)";

fn change(bare: &Bare, table: &str, op: &str, id: i64) -> New {
    let mut value = bare.envelope(op, json!({ "id": id, "v": "v" }));
    value["source"]["table"] = Value::from(table);
    New::text(&json!({ "id": id }).to_string(), &value.to_string())
}

fn tombstone(id: i64) -> New {
    New { value: None, ..New::text(&json!({ "id": id }).to_string(), "") }
}

/// A restart may fall between a delete and its tombstone, whose key is one of the other table too.
#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_after_a_restart_deletes_nothing_of_another_table() -> Result<()> {
    let bare = Bare::new("merged", TABLES).await?;
    let mut sink = bare.sink().await?;
    let both = |id| [change(&bare, "orders", "c", id), change(&bare, "lines", "c", id)];
    bare.write([both(1), both(2)].concat()).await?;
    bare.write(vec![change(&bare, "lines", "d", 2)]).await?;
    bare.apply().catches_up().await?;

    bare.write(vec![tombstone(2)]).await?;
    bare.apply().catches_up().await?;

    assert_eq!(texts(&mut sink, "SELECT id::text FROM orders ORDER BY id").await?, ["1", "2"]);
    assert_eq!(texts(&mut sink, "SELECT id::text FROM lines ORDER BY id").await?, ["1"]);

    // Here no delete says which table it is.
    bare.write(vec![tombstone(1)]).await?;
    let log = bare.apply().stops().await?;
    assert!(log.contains("the tombstone does not say its table"), "{log}");
    assert_eq!(texts(&mut sink, "SELECT id::text FROM orders ORDER BY id").await?, ["1", "2"]);
    Ok(())
}

/// The topic still holds records of a table whose claim was reset, and a tombstone among them is not the other table's.
#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_deletes_nothing_of_another_table_after_its_tables_claim_was_reset() -> Result<()> {
    let bare = Bare::new("given_up", TABLES).await?;
    let mut sink = bare.sink().await?;
    bare.write(vec![change(&bare, "orders", "c", 1), change(&bare, "lines", "c", 1)]).await?;
    bare.apply().catches_up().await?;
    let reset = bare.apply().operate(&bare.sink_url(), &["reset", "--table", "inventory.lines"]).await?;
    assert_eq!(reset.code, 0, "{}", reset.log);
    // More than a lane reads before its frontier when it starts.
    bare.write((2..=130).map(|id| change(&bare, "orders", "c", id)).collect()).await?;
    bare.apply().catches_up().await?;

    bare.write(vec![tombstone(1)]).await?;
    let log = bare.apply().stops().await?;

    assert!(log.contains("the tombstone does not say its table"), "{log}");
    assert_eq!(texts(&mut sink, "SELECT count(*)::text FROM orders").await?, ["130"]);
    Ok(())
}

/// A chunk info record of all keys, of which the source holds `selected`.
fn chunk_info(read_id: &str, table: &str, selected: &[i64], connector: &str) -> New {
    let open = json!({ "open": true });
    let value = json!({
        "table": table, "read_id": read_id, "range": { "lower": open, "upper": open }, "selected": selected,
        "changed": [], "rows": 0, "key_columns": ["id"], "connector": connector,
    });
    New::text(read_id, &value.to_string()).header("dblog.record", "chunk-info")
}

fn of(connector: &str, database: &str, mut change: New) -> New {
    let mut value: Value = serde_json::from_slice(change.value.as_deref().unwrap_or_default()).unwrap();
    (value["source"]["name"], value["source"]["db"]) = (connector.into(), database.into());
    change.value = Some(value.to_string().into());
    change
}

/// Tables of one name: what another connector, or another database, does not have is not absent here.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_a_connector_that_does_not_feed_the_table_removes_nothing() -> Result<()> {
    let bare = Bare::new("stranger", TABLES).await?;
    let mut sink = bare.sink().await?;
    let row = |connector: &str, id| of(connector, "shop", change(&bare, "orders", "c", id));
    bare.write((1..=5).map(|id| row("c1", id)).collect()).await?;
    let marker = |read_id: &str, connector: &str, database: &str, kind: &str, more: Value| {
        let mut payload = json!({
            "v": 1, "kind": kind, "read_id": read_id, "table": "inventory.orders", "topic": bare.topic(),
        });
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut message = bare.envelope("m", json!({}));
        message["message"] = json!({ "prefix": "sink-repair", "content": base64(&payload.to_string()) });
        of(connector, database, New::text(r#"{"prefix":"sink-repair"}"#, &message.to_string()))
    };
    let open = json!({ "open": true });
    let close = json!({
        "part": 1, "parts": 1, "range": { "lower": open, "upper": open }, "selected": [11], "key_types": ["bigint"],
        "snapshot": "900:900:", "settled": true,
    });
    for (read_id, connector, database) in [("other", "c2", "shop"), ("database", "c1", "elsewhere")] {
        bare.write(vec![
            marker(read_id, connector, database, "low", json!({})),
            marker(read_id, connector, database, "chunk", close.clone()),
        ])
        .await?;
    }
    bare.write(vec![chunk_info("info", "inventory.orders", &[11], "c2")]).await?;
    bare.apply().catches_up().await?;

    for read_id in ["other", "database", "info"] {
        let told = verdict(&mut sink, read_id).await?;
        assert_eq!(told.named(), "refused one-stream", "{read_id}: {}", told.reason);
    }

    // It does now, after a restart that has forgotten the first one's rows: two do, and neither speaks for all.
    bare.write(vec![row("c2", 11), chunk_info("both", "inventory.orders", &[11], "c2")]).await?;
    bare.apply().catches_up().await?;

    assert_eq!(verdict(&mut sink, "both").await?.named(), "refused one-stream");
    assert_eq!(texts(&mut sink, "SELECT count(*)::text FROM orders").await?, ["6"]);
    let streams = "SELECT concat_ws('/', connector, database, source) FROM sink_repair.stream ORDER BY 1";
    assert_eq!(texts(&mut sink, streams).await?, ["c1/shop/inventory.orders", "c2/shop/inventory.orders"]);
    Ok(())
}

/// A partition of the sink's table that another source table feeds.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_on_a_table_one_of_whose_partitions_is_fed_on_its_own_removes_nothing() -> Result<()> {
    let ddl = "CREATE TABLE orders (id bigint PRIMARY KEY, v text) PARTITION BY RANGE (id); \
               CREATE TABLE lines PARTITION OF orders FOR VALUES FROM (100) TO (200); \
               CREATE TABLE rest PARTITION OF orders DEFAULT";
    let bare = Bare::new("parts", ddl).await?;
    let mut sink = bare.sink().await?;
    let rows = |table: &'static str, ids: std::ops::RangeInclusive<i64>| ids.map(move |id| (table, id));
    let rows = rows("orders", 1..=3).chain(rows("lines", 101..=103));
    bare.write(rows.map(|(table, id)| change(&bare, table, "c", id)).collect()).await?;
    bare.write(vec![
        chunk_info("whole", "inventory.orders", &[1, 2, 3], &bare.name),
        chunk_info("part", "inventory.lines", &[101], &bare.name),
    ])
    .await?;

    bare.apply().catches_up().await?;

    for read_id in ["whole", "part"] {
        let told = verdict(&mut sink, read_id).await?;
        assert_eq!(told.named(), "refused one-stream", "{read_id}");
        assert!(told.reason.contains("inventory.lines by topic"), "{}", told.reason);
    }
    assert_eq!(texts(&mut sink, "SELECT count(*)::text FROM orders").await?, ["6"]);
    Ok(())
}

/// Two connectors that capture tables of one name into one topic, each into a sink table of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_tombstone_deletes_nothing_of_the_other_connectors_table() -> Result<()> {
    let ddl = "CREATE SCHEMA c1; CREATE SCHEMA c2; CREATE TABLE c1.orders (id bigint PRIMARY KEY, v text); \
               CREATE TABLE c2.orders (LIKE c1.orders INCLUDING ALL)";
    let bare = Bare::new("twins", ddl).await?;
    let mut sink = bare.sink().await?;
    let apply = bare.apply().with(&["--sink-table", "{connector}.{table}"]);
    let key = |connector: &str, id: i64| {
        // In the order in which Connect writes them.
        let schema = r#"{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}],"optional":false"#;
        format!(r#"{{"schema":{schema},"name":"{connector}.inventory.orders.Key"}},"payload":{{"id":{id}}}}}"#)
    };
    let record = |connector: &str, op: &str, id: i64| {
        let mut record = of(connector, "shop", change(&bare, "orders", op, id));
        record.key = Some(key(connector, id).into());
        record
    };
    bare.write(vec![record("c1", "c", 1), record("c2", "c", 1), record("c1", "c", 2), record("c2", "c", 2)]).await?;
    bare.write(vec![record("c2", "d", 1), tombstone_of(&key("c2", 1))]).await?;
    // The key says its connector here, where no delete does.
    bare.write(vec![tombstone_of(&key("c1", 2))]).await?;

    apply.catches_up().await?;

    let rows = "SELECT 'c1 ' || id FROM c1.orders UNION ALL SELECT 'c2 ' || id FROM c2.orders ORDER BY 1";
    assert_eq!(texts(&mut sink, rows).await?, ["c1 1", "c2 2"]);
    Ok(())
}

fn tombstone_of(key: &str) -> New {
    New { value: None, ..New::text(key, "") }
}

fn base64(text: &str) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(text)
}
