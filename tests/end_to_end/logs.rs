//! What the log does not hold any more, and what stands in the wrong partition of it, on real topics.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use test_support::kafka::{self, New};

use crate::bare::Bare;
use crate::worker::{Apply, texts, verdict};

const TABLE: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, v text)";
const IDS: &str = "SELECT id::text FROM orders ORDER BY orders.id";

/// A marker by the outbox way, with a key of its own: compaction lets it stand.
fn marker(topic: &str, kind: &str, more: &Value) -> New {
    let mut value = json!({ "v": 1, "kind": kind, "read_id": "r-1", "table": "inventory.orders", "topic": topic });
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more.clone()) {
        value.extend(more);
    }
    New::text(&format!("\"r-1/{kind}\""), &Value::String(value.to_string()).to_string())
        .header("sink-repair.kind", kind)
}

/// A change inside a window is compacted away while the worker is down, since a later one stands in the log: the row that it
/// wrote lives at the statement's position.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_compaction_took_out_of_a_window_costs_no_live_row() -> Result<()> {
    let bare = Bare::new("compacted", TABLE).await?;
    let topic = format!("{}.compacted", bare.name);
    let eager = [("cleanup.policy", "compact"), ("segment.ms", "50"), ("min.cleanable.dirty.ratio", "0.001")];
    kafka::create_topic(&bare.stack, &topic, 1, &eager).await?;
    let write = async |records: Vec<New>| kafka::write(&bare.stack, &topic, records).await;
    let apply = Apply::new(&bare.stack, &bare.name, std::slice::from_ref(&topic), &bare.sink_url());
    write(vec![bare.row(1, "v"), marker(&topic, "low", &json!({})), bare.row(5, "in the window")]).await?;
    apply.to_end().await?;
    let close = json!({
        "part": 1, "parts": 1, "range": { "lower": { "open": true }, "upper": { "open": true } }, "selected": [1],
        "key_types": ["bigint"], "snapshot": "763:763:", "settled": true,
    });
    write(vec![marker(&topic, "chunk", &close), bare.row(5, "later")]).await?;

    // A segment is closed by a record that comes after its time; only closed ones are compacted.
    let deadline = Instant::now() + Duration::from_secs(90);
    while kafka::read_all(&bare.stack, &topic).await?.iter().any(|record| record.offset == 2) {
        ensure!(Instant::now() < deadline, "the topic is not compacted");
        write(vec![bare.row(9, "closes a segment")]).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let ended = apply.to_end().await?;

    ensure!(ended.code == 0, "{}", ended.log);
    let mut sink = bare.sink().await?;
    let verdict = verdict(&mut sink, "r-1").await?;
    assert_eq!(verdict.named(), "refused window");
    let reason = "records from offset 2 to before 3 are missing from the topic, which may be compacted";
    ensure!(verdict.reason.contains(reason), "{verdict:?}");
    assert_eq!(texts(&mut sink, IDS).await?, ["1", "5", "9"]);
    assert_eq!(texts(&mut sink, "SELECT count(*)::text FROM sink_repair.removed").await?, ["0"]);
    Ok(())
}

/// The lane of another partition has seen nothing of the key.
#[tokio::test(flavor = "multi_thread")]
async fn an_absence_event_in_another_partition_than_its_keys_removes_nothing() -> Result<()> {
    let bare = Bare::new("astray", TABLE).await?;
    let topic = format!("{}.three", bare.name);
    kafka::create_topic(&bare.stack, &topic, 3, &[]).await?;
    let written = kafka::write(&bare.stack, &topic, (1..=90).map(|id| bare.row(id, "v")).collect()).await?;
    let partition_of = |id: usize| written[id - 1].0;
    let absent = |id: usize, partition: i32, read_id: &str| New {
        partition: Some(partition),
        ..New::tombstone(&format!(r#"{{"id":{id}}}"#))
            .header("dblog.op", "absent")
            .header("dblog.table", "inventory.orders")
            .header("dblog.read_id", read_id)
    };
    let away = (0..3).filter(|partition| *partition != partition_of(5));
    let mut records: Vec<New> = away.map(|partition| absent(5, partition, &format!("astray-{partition}"))).collect();
    records.push(absent(7, partition_of(7), "at-home"));
    kafka::write(&bare.stack, &topic, records).await?;

    let apply = Apply::new(&bare.stack, &bare.name, std::slice::from_ref(&topic), &bare.sink_url());
    let ended = apply.to_end().await?;

    ensure!(ended.code == 0, "{}", ended.log);
    let mut sink = bare.sink().await?;
    let verdicts = "SELECT split_part(read_id, '-', 1) || ' ' || verdict || coalesce(' ' || rule, '') FROM sink_repair.statement ORDER BY 1";
    assert_eq!(texts(&mut sink, verdicts).await?, ["astray refused scope", "astray refused scope", "at applied"]);
    let ids: Vec<String> = (1..=90).filter(|id| *id != 7).map(|id: i32| id.to_string()).collect();
    assert_eq!(texts(&mut sink, IDS).await?, ids);
    Ok(())
}
