//! Several tables by one topic, as a router makes it.

use anyhow::Result;
use serde_json::{Value, json};
use test_support::kafka::New;

use crate::bare::Bare;
use crate::worker::texts;

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
