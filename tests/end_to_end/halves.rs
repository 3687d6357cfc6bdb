//! Deletes and key changes as they reach sinks in the threads of their users: one half lost, a half twice, a copy too late.

use anyhow::Result;
use serde_json::{Value, json};
use test_support::kafka::{self, New};

use crate::bare::Bare;
use crate::worker::{LIMIT, assert_says, counts, texts, verdict};

const TABLE: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, v text)";
const ROWS: &str = "SELECT id || '=' || v FROM orders ORDER BY id";

fn record(bare: &Bare, op: &str, id: i64, v: &str) -> New {
    New::text(&json!({ "id": id }).to_string(), &bare.envelope(op, json!({ "id": id, "v": v })).to_string())
}

fn tombstone(id: i64) -> New {
    New::tombstone(&json!({ "id": id }).to_string())
}

/// After compaction, or a crash of the connector between the two, only one of a delete's records may be there.
#[tokio::test(flavor = "multi_thread")]
async fn each_half_of_a_delete_deletes() -> Result<()> {
    let bare = Bare::new("halves", TABLE).await?;
    let mut records: Vec<New> = (1..=8).map(|id| bare.row(id, "v")).collect();
    records.extend([record(&bare, "d", 1, ""), tombstone(1)]);
    records.push(record(&bare, "d", 2, ""));
    records.push(tombstone(3));
    // Twice, and of what was never there.
    records.extend([record(&bare, "d", 4, ""), record(&bare, "d", 4, ""), tombstone(4), tombstone(4)]);
    records.extend([record(&bare, "d", 99, ""), tombstone(98)]);
    // A key that comes back, also between the halves.
    records.extend([record(&bare, "d", 5, ""), tombstone(5), bare.row(5, "again")]);
    records.extend([record(&bare, "d", 6, ""), bare.row(6, "between"), record(&bare, "u", 6, "last")]);
    records.extend([bare.row(7, "again"), record(&bare, "d", 7, ""), tombstone(7)]);
    bare.write(records).await?;

    bare.apply().catches_up().await?;

    assert_eq!(texts(&mut bare.sink().await?, ROWS).await?, ["5=again", "6=last", "8=v"]);
    Ok(())
}

/// The same for keys that are no integers: `operator does not exist: uuid = character varying`.
#[tokio::test(flavor = "multi_thread")]
async fn rows_with_a_uuid_key_are_deleted() -> Result<()> {
    let bare = Bare::new("uuids", "CREATE TABLE orders (id uuid PRIMARY KEY, v text)").await?;
    let id = |n: u8| format!("00000000-0000-0000-0000-0000000000{n:02}");
    let key = |n: u8| json!({ "id": id(n) }).to_string();
    let row = |op: &str, n: u8| New::text(&key(n), &bare.envelope(op, json!({"id": id(n), "v": "v"})).to_string());
    bare.write(vec![row("c", 1), row("c", 2), row("c", 3), row("d", 1), New::tombstone(&key(2))]).await?;

    bare.apply().catches_up().await?;

    assert_eq!(texts(&mut bare.sink().await?, "SELECT id::text FROM orders").await?, [id(3)]);
    Ok(())
}

/// A row of an incremental snapshot that stands behind a change that is newer than it.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_that_comes_too_late_does_not_overwrite_what_is_newer() -> Result<()> {
    let bare = Bare::new("late", TABLE).await?;
    let copy = |id: i64, v: &str| {
        let mut value = bare.envelope("r", json!({ "id": id, "v": v }));
        value["source"]["snapshot"] = json!("incremental");
        value["source"]["txId"] = Value::Null;
        New::text(&json!({ "id": id }).to_string(), &value.to_string())
    };
    let mut records: Vec<New> = (1..=3).map(|id| bare.row(id, "old")).collect();
    records.extend([record(&bare, "u", 1, "new"), record(&bare, "d", 2, ""), tombstone(2)]);
    records.extend([copy(1, "old"), copy(2, "old"), copy(4, "copied")]);
    bare.write(records).await?;

    bare.apply().catches_up().await?;

    assert_eq!(texts(&mut bare.sink().await?, ROWS).await?, ["1=new", "3=old", "4=copied"]);
    Ok(())
}

/// Seen with stock Debezium: a truncate stops a compacted topic, and the `c` of a changed key is lost with its batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_changed_key_whose_new_row_was_lost_is_found_and_asked_for() -> Result<()> {
    let bare = Bare::new("split", TABLE).await?;
    let mut sink = bare.sink().await?;
    let signals = format!("{}-signal", bare.name);
    kafka::create_topic(&bare.stack, &signals, 1, &[]).await?;
    let gone = record(&bare, "d", 1, "").header("__debezium.newkey", r#"{"id":101}"#);
    let statement = json!({
        "table": "inventory.orders", "read_id": "after", "range": {"lower": {"open": true}, "upper": {"open": true}},
        "selected": [2, 101], "changed": [],
    });
    bare.write(vec![bare.row(1, "v"), bare.row(2, "v"), gone, tombstone(1), bare.chunk_info(&statement)]).await?;

    let mut worker = bare.apply().with(&["--signal-topic", &signals, "--signal-key", "shop"]).start()?;

    let found = verdict(&mut sink, "after").await?;
    assert_eq!((found.named().as_str(), found.missing, found.removed), ("applied", 1, 0), "{}", found.reason);
    assert_eq!(texts(&mut sink, ROWS).await?, ["2=v"]);
    worker.logged("repair request sent", LIMIT).await?;
    let asked = kafka::read_all(&bare.stack, &signals).await?;
    assert_says(&asked[0].value_text().unwrap_or_default(), &[r#""filter":"\"id\" IN (101)""#]);
    // It comes.
    bare.write(vec![record(&bare, "r", 101, "v")]).await?;
    counts(&mut sink, "SELECT count(*) FROM orders WHERE id = 101", 1).await?;
    worker.stop(LIMIT).await
}
