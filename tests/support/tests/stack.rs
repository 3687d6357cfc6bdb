//! The stack and what tests are written with, on the real servers: what a connector publishes when tables and markers
//! are written as [`test_support`] writes them.

#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use test_support::kafka::{self, Read};
use test_support::markers::{Bracket, Post, partition_of, prefix_reaching};
use test_support::{Pipeline, Route, Stack, compare, until};

const LIMIT: Duration = Duration::from_secs(30);

/// Reads a topic until it holds this many records.
async fn records(stack: &Stack, topic: &str, count: usize) -> Result<Vec<Read>> {
    until(&format!("{topic} holds {count} records"), LIMIT, async || {
        let records = kafka::read_all(stack, topic).await?;
        Ok((records.len() >= count).then_some(records))
    })
    .await
}

fn json_of(bytes: &Option<Vec<u8>>) -> Value {
    serde_json::from_slice(bytes.as_deref().unwrap()).unwrap()
}

/// `op` and key of a row event, `m` and the content's kind of a message.
fn summary(record: &Read) -> String {
    let value = json_of(&record.value);
    match value["op"].as_str().unwrap() {
        "m" => format!("m {}", content(&value)["kind"].as_str().unwrap()),
        op => format!("{op} {}", json_of(&record.key)["id"]),
    }
}

fn content(envelope: &Value) -> Value {
    let text = envelope["message"]["content"].as_str().unwrap();
    serde_json::from_slice(&base64(text)).unwrap()
}

fn base64(text: &str) -> Vec<u8> {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<u32> =
        text.bytes().filter_map(|c| alphabet.iter().position(|&a| a == c)).map(|d| d as u32).collect();
    let bits = digits.chunks(4).flat_map(|group| {
        let word = group.iter().fold(0, |word, digit| word << 6 | digit) << (6 * (4 - group.len()));
        word.to_be_bytes()[1..group.len()].to_vec()
    });
    bits.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_envelope_way_a_bracket_stands_among_the_rows_in_log_order() -> Result<()> {
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "envelope")
        .table("orders", "id bigint PRIMARY KEY, v text")
        .seed("INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        .start()
        .await?;
    let topic = pipeline.topic("orders");
    let mut source = pipeline.source().await?;
    let mut bracket = pipeline.bracket("orders").await?;

    bracket.low("r1").await?;
    source.run("UPDATE orders SET v = 'B' WHERE id = 2").await?;
    assert!(bracket.settle(LIMIT).await?);
    let read = bracket.read("r1", None, 2).await?;
    source.run("DELETE FROM orders WHERE id = 1").await?;
    bracket.close(&read).await?;
    source.run("INSERT INTO orders VALUES (4, 'd')").await?;

    let records = records(&stack, &topic, 9).await?;
    let seen: Vec<_> = records.iter().filter(|record| record.value.is_some()).map(summary).collect();
    assert_eq!(seen, ["r 1", "r 2", "r 3", "m low", "u 2", "d 1", "m chunk", "c 4"]);
    let chunk = content(&json_of(&records[7].value));
    let snapshot = chunk["snapshot"].clone();
    assert!(snapshot.as_str().unwrap().split(':').count() == 3, "{snapshot}");
    assert_eq!(
        chunk,
        json!({
            "v": 1, "kind": "chunk", "read_id": "r1", "table": pipeline.table("orders"), "topic": topic,
            "part": 1, "parts": 1, "selected": [1, 2], "key_types": ["bigint"], "key_order": "bytes",
            "range": {"lower": {"open": true}, "upper": {"key": 2, "inclusive": true}},
            "snapshot": snapshot, "settled": true,
        })
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn by_the_outbox_way_a_marker_reaches_the_partition_that_it_names() -> Result<()> {
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "outbox")
        .table("orders", "id bigint PRIMARY KEY, v text")
        .seed("INSERT INTO orders SELECT g, 'v' FROM generate_series(1, 9) g")
        .route(Route::Outbox)
        .partitions(3)
        .start()
        .await?;
    let topic = pipeline.topic("orders");

    for partition in 0..3 {
        let post = Post::Outbox { prefix: pipeline.markers.clone(), partition: Some(partition) };
        let mut bracket = pipeline.bracket_by("orders", post).await?;
        bracket.low(&format!("r{partition}")).await?;
    }
    let bracket = pipeline.bracket("orders").await?;
    let absent = bracket.absence_events("answer", &[vec!["4".into()], vec!["40".into()]]).await?;

    let records = records(&stack, &topic, 9 + 3 + 1).await?;
    let lows: Vec<_> = records
        .iter()
        .filter(|record| record.header("sink-repair.kind").as_deref() == Some("low"))
        .map(|record| (record.partition, json_of(&record.value)))
        .collect();
    let low = |n: i32| {
        let table = pipeline.table("orders");
        let payload = format!(r#"{{"v":1,"kind":"low","read_id":"r{n}","table":"{table}","topic":"{topic}"}}"#);
        (n, Value::String(payload))
    };
    assert_eq!(lows, [low(0), low(1), low(2)]);
    assert_eq!(absent, 1);
    let event = records.iter().find(|record| record.value.is_none()).context("no absence event")?;
    assert_eq!(event.key_text().as_deref(), Some(r#"{"id":40}"#));
    assert_eq!(event.partition, i32::try_from(partition_of(br#"{"id":40}"#, 3))?);
    assert_eq!(event.header("dblog.op").as_deref(), Some("absent"));
    assert_eq!(event.header("dblog.read_id").as_deref(), Some("answer"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_chosen_for_a_partition_reaches_it() -> Result<()> {
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "prefix")
        .table("orders", "id bigint PRIMARY KEY")
        .schemas(true)
        .partitions(3)
        .start()
        .await?;
    let topic = pipeline.topic("orders");

    for partition in 0..3 {
        let post = Post::Envelope { prefix: prefix_reaching(partition, 3, true) };
        let mut bracket = pipeline.bracket_by("orders", post).await?;
        bracket.low(&format!("r{partition}")).await?;
    }

    let records = until("the markers are there", LIMIT, async || {
        // The topic is made by its first record.
        let records = kafka::read_all(&stack, &topic).await?;
        Ok((records.len() == 3).then_some(records))
    })
    .await?;
    let seen: Vec<_> = records
        .iter()
        .map(|record| (record.partition, content(&json_of(&record.value)["payload"])["read_id"].clone()))
        .collect();
    assert_eq!(seen, [(0, json!("r0")), (1, json!("r1")), (2, json!("r2"))]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_covers_a_table_with_a_composite_key_and_no_gap() -> Result<()> {
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "pass")
        .table("orders", "b text COLLATE \"C\", a int, PRIMARY KEY (b, a)")
        .seed("INSERT INTO orders SELECT 'k' || g % 2, g FROM generate_series(1, 5) g")
        .start()
        .await?;
    let topic = pipeline.topic("orders");

    let reads = pipeline.bracket("orders").await?.pass(2).await?;

    let records = records(&stack, &topic, 5 + 6).await?;
    let chunks: Vec<_> = records[5..]
        .iter()
        .map(|record| content(&json_of(&record.value)))
        .filter(|marker| marker["kind"] == "chunk")
        .map(|marker| json!([marker["range"], marker["selected"], marker["key_types"]]))
        .collect();
    let types = json!(["text", "integer"]);
    let upto = |b: &str, a: i32| json!({"key": [b, a], "inclusive": true});
    let above = |b: &str, a: i32| json!({"key": [b, a], "inclusive": false});
    let open = json!({"open": true});
    assert_eq!(reads.len(), 3);
    assert_eq!(
        chunks,
        [
            json!([{"lower": open, "upper": upto("k0", 4)}, [["k0", 2], ["k0", 4]], types]),
            json!([{"lower": above("k0", 4), "upper": upto("k1", 3)}, [["k1", 1], ["k1", 3]], types]),
            json!([{"lower": above("k1", 3), "upper": open}, [["k1", 5]], types]),
        ]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_a_table_that_was_rewritten_since_the_look_ends_without_a_marker() -> Result<()> {
    let stack = Stack::from_env()?;
    let mut source = stack.source().await?;
    let name = test_support::unique("rewrite");
    source.run(format!("CREATE TABLE public.{name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1)")).await?;
    let table = format!("public.{name}");
    let post = Post::Envelope { prefix: "sink-repair".to_owned() };
    let mut bracket = Bracket::look(&stack.source, &table, "t", post).await?;

    source.run(format!("ALTER TABLE {name} ALTER id TYPE bigint")).await?;
    let refused = bracket.read("r", None, 10).await;

    assert!(refused.unwrap_err().to_string().contains("is not the table that it was"));
    source.run(format!("DROP TABLE {name}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comparison_names_each_row_that_differs() -> Result<()> {
    let stack = Stack::from_env()?;
    let (mut source, mut sink) = (stack.source().await?, stack.sink().await?);
    let name = test_support::unique("compare");
    source.run(format!("CREATE TABLE {name} (id int, v text)")).await?;
    source.run(format!("INSERT INTO {name} VALUES (1, 'a'), (2, NULL), (3, 'c'), (3, 'c')")).await?;
    sink.run(format!("CREATE TABLE {name} (v text, id int)")).await?;
    sink.run(format!("INSERT INTO {name} VALUES ('a', 1), ('', 2), ('c', 3), ('d', 4)")).await?;
    let table = format!("public.{name}");

    let found = compare::difference(&mut source, &table, &mut sink, &table).await?;

    assert_eq!(found.equal, 2);
    assert_eq!((found.only_source, found.only_sink), (2, 2));
    let samples =
        ["source: (2,)", "sink: (2,\"\")", "source: (3,c)", "sink: (4,d)"].map(|s| format!("  only at the {s}"));
    let mut seen = found.samples.clone();
    seen.sort();
    let mut expected = samples.to_vec();
    expected.sort();
    assert_eq!(seen, expected);
    source.run(format!("DROP TABLE {name}")).await?;
    sink.run(format!("DROP TABLE {name}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_is_read_back_from_every_partition() -> Result<()> {
    let stack = Stack::from_env()?;
    let topic = test_support::unique("written");
    assert_eq!(kafka::read_all(&stack, &topic).await?, []);
    kafka::create_topic(&stack, &topic, 2, &[("cleanup.policy", "delete")]).await?;
    let new = [
        kafka::New { partition: Some(1), timestamp: Some(1_700_000_000_000), ..kafka::New::text("k", "v") }
            .header("h", "1"),
        kafka::New { partition: Some(0), ..kafka::New::tombstone("k") },
    ];

    let places = kafka::write(&stack, &topic, new.to_vec()).await?;

    let read = kafka::read_all(&stack, &topic).await?;
    assert_eq!(places, [(1, 0), (0, 0)]);
    assert_eq!(kafka::end_offsets(&stack, &topic).await?, [1, 1]);
    assert_eq!(
        read[0],
        Read {
            partition: 0,
            offset: 0,
            timestamp: read[0].timestamp,
            key: Some(b"k".to_vec()),
            value: None,
            headers: vec![]
        }
    );
    assert_eq!(
        read[1],
        Read {
            partition: 1,
            offset: 0,
            timestamp: Some(1_700_000_000_000),
            key: Some(b"k".to_vec()),
            value: Some(b"v".to_vec()),
            headers: vec![("h".to_owned(), Some(b"1".to_vec()))],
        }
    );
    kafka::delete_topic(&stack, &topic).await
}
