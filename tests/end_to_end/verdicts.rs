//! Held, empty, refused, reported, undone: what the log, the metrics, `/status`, `sink-repair status` and the sink itself
//! show of it.

use anyhow::Result;
use serde_json::{Value, json};
use test_support::kafka;
use test_support::{Pipeline, Stack, Worker, until};

use crate::bare::Bare;
use crate::worker::{Apply, LIMIT, Verdict, assert_says, counts, equal_soon, holds, metric, status, texts, verdict};

const TABLE: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, v text)";

fn everything(read_id: &str, selected: Value) -> Value {
    json!({
        "table": "inventory.orders", "read_id": read_id, "range": {"lower": {"open": true}, "upper": {"open": true}},
        "selected": selected, "changed": [],
    })
}

/// Returns `/status` as JSON.
async fn page(worker: &mut Worker) -> Result<Value> {
    let (code, body) = worker.get("/status").await?;
    assert_eq!(code, 200);
    Ok(serde_json::from_str(&body)?)
}

/// Picks the fields of what needs a person.
fn attention(page: &Value) -> Vec<Value> {
    let items = page["attention"].as_array().unwrap();
    let fields = |item: &Value| json!([item["kind"], item["table"], item["read_id"], item["rule"], item["what"]]);
    items.iter().map(fields).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_statement_shows_everywhere_and_a_confirmed_fresh_read_goes_through() -> Result<()> {
    let stack = Stack::from_env()?;
    let pipeline = Pipeline::builder(&stack, "held")
        .table("orders", "id bigint PRIMARY KEY, v text")
        .seed("INSERT INTO orders SELECT g, 'v' FROM generate_series(1, 100) g")
        .start()
        .await?;
    pipeline.make_sink_tables().await?;
    let (mut source, mut sink) = (pipeline.source().await?, pipeline.sink().await?);
    let apply = Apply::of(&stack, &pipeline, &["orders"]);
    let mut worker = apply.start()?;
    let topic = pipeline.topic("orders");
    counts(&mut sink, "SELECT count(*) FROM orders", 100).await?;
    sink.run("INSERT INTO orders SELECT g, 'orphan' FROM generate_series(201, 230) g").await?;
    let mut bracket = pipeline.bracket("orders").await?;

    let held = bracket.pass(1000).await?.remove(0);

    let reason = "30 orphans of 130 rows in range, above the cap of 20 a statement";
    let expected = Verdict {
        verdict: "held".into(),
        rule: "cap".into(),
        reason: reason.into(),
        orphans: 30,
        in_range: 130,
        ..Verdict::default()
    };
    assert_eq!(verdict(&mut sink, &held).await?, expected);
    assert_eq!(sink.number("SELECT count(*) FROM orders").await?, 130, "nothing was removed");
    let named = format!("SELECT key->>'id' FROM sink_repair.orphan WHERE read_id = '{held}' ORDER BY encoded LIMIT 2");
    assert_eq!(texts(&mut sink, &named).await?, ["201", "202"]);
    let line = worker.logged("statement held", LIMIT).await?;
    assert_says(
        &line,
        &[
            " WARN ",
            &format!("read_id={held}"),
            "table=\"inventory.orders\"",
            "rule=\"cap\"",
            reason,
            "orphans=30",
            "removed=0",
        ],
    );
    let of = |name: &str, labels: &str| format!("sink_repair_{name}{{{labels},topic=\"{topic}\"}}");
    assert_eq!(metric(&mut worker, &of("statements_held_total", "rule=\"cap\"")).await?, 1.0);
    let by_verdict = format!("sink_repair_statements_total{{kind=\"chunk\",topic=\"{topic}\",verdict=\"held\"}}");
    assert_eq!(metric(&mut worker, &by_verdict).await?, 1.0);
    assert_eq!(metric(&mut worker, "sink_repair_attention_items{kind=\"held\"}").await?, 1.0);
    let what = [json!(["held", "inventory.orders", held, "cap", reason])];
    assert_eq!(attention(&page(&mut worker).await?), what);
    let shown = status(&mut worker).await?;
    assert_eq!(shown.code, 2, "{}", shown.log);
    let confirm = format!("sink-repair confirm --read-id {held} --up-to 30");
    assert_says(
        &shown.log,
        &["NEEDS ATTENTION (1)", "held          inventory.orders", &format!("read {held}"), reason, &confirm],
    );

    // It waits for a person over a restart.
    worker.stop(LIMIT).await?;
    let mut worker = apply.start()?;
    let shown = async || Ok((attention(&page(&mut worker).await?) == what).then_some(()));
    until("the held statement is shown after a restart", LIMIT, shown).await?;

    // What is suggested asks the source for a fresh read.
    let confirmed = [
        "confirm",
        "--read-id",
        &held,
        "--up-to",
        "30",
        "--signal-topic",
        &pipeline.signal_topic(),
        "--signal-key",
        &pipeline.name,
    ];
    let asked = apply.operate(&pipeline.sink_url(), &confirmed).await?;
    assert_eq!(asked.code, 0, "{}", asked.log);
    let signals = kafka::read_all(&stack, &pipeline.signal_topic()).await?;
    let signal: Value = serde_json::from_slice(signals[0].value.as_deref().unwrap_or_default())?;
    assert_eq!(
        (signal["type"].as_str(), signals[0].key_text()),
        (Some("sink-repair-confirm"), Some(pipeline.name.clone()))
    );
    assert_eq!(signal["data"]["max_removals"], 30);
    assert_eq!(signal["data"]["read_id"], json!(held));

    // The answer, by hand: a fresh read that carries the ceiling. One row more than confirmed is held again.
    sink.run("INSERT INTO orders VALUES (231, 'orphan')").await?;
    for (read_id, ceiling) in [("fresh-30", 30), ("fresh-31", 31)] {
        bracket.low(read_id).await?;
        assert!(bracket.settle(LIMIT).await?);
        let mut read = bracket.read(read_id, None, 1000).await?;
        read.marker = read.marker.confirmed(ceiling);
        bracket.close(&read).await?;
    }
    let again = verdict(&mut sink, "fresh-30").await?;
    assert_eq!(
        (again.named().as_str(), again.reason.as_str()),
        ("held fresh-read", "the fresh read found 31 orphans, above the 30 confirmed")
    );
    let applied = verdict(&mut sink, "fresh-31").await?;
    assert_eq!((applied.named().as_str(), applied.removed), ("applied", 31), "{}", applied.reason);
    assert_eq!(equal_soon(&mut source, &mut sink, "inventory.orders").await?, 100);
    until("nothing needs a person", LIMIT, async || Ok((status(&mut worker).await?.code == 0).then_some(()))).await?;

    // And back: all but the key that lives again.
    source.run("INSERT INTO orders VALUES (205, 'alive')").await?;
    counts(&mut sink, "SELECT count(*) FROM orders WHERE id = 205", 1).await?;
    let undone = apply.operate(&pipeline.sink_url(), &["undo", "--read-id", "fresh-31"]).await?;
    assert_eq!(undone.code, 0, "{}", undone.log);
    assert_says(&undone.log, &["inventory.orders: 30 rows brought back, 1 keys hold a row again and were left alone"]);
    assert_eq!(sink.number("SELECT count(*) FROM orders WHERE v = 'orphan'").await?, 30);
    holds(&mut sink, "SELECT v FROM orders WHERE id = 205", &["alive"]).await?;
    let twice = apply.operate(&pipeline.sink_url(), &["undo", "--read-id", "fresh-31"]).await?;
    assert_says(&twice.log, &["inventory.orders: 0 rows brought back, 1 keys hold a row again"]);
    worker.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_source_table_is_held_until_confirmed() -> Result<()> {
    let bare = Bare::new("empty", TABLE).await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().start()?;
    sink.run("INSERT INTO orders VALUES (1, 'orphan'), (2, 'orphan')").await?;

    bare.write(vec![bare.row(3, "gone"), bare.gone(3)]).await?;
    bare.write(vec![bare.chunk_info(&everything("empty", json!([])))]).await?;

    let reason = "the source table is empty and the sink holds 2 rows";
    let held = verdict(&mut sink, "empty").await?;
    assert_eq!((held.named().as_str(), held.reason.as_str(), held.orphans), ("held empty", reason, 2));
    assert_says(&worker.logged("statement held", LIMIT).await?, &["rule=\"empty\"", reason, "orphans=2", "removed=0"]);
    assert_eq!(attention(&page(&mut worker).await?), [json!(["held", "inventory.orders", "empty", "empty", reason])]);
    let name = format!("sink_repair_statements_held_total{{rule=\"empty\",topic=\"{}\"}}", bare.topic());
    assert_eq!(metric(&mut worker, &name).await?, 1.0);
    let shown = status(&mut worker).await?;
    assert_eq!(shown.code, 2);
    assert_says(
        &shown.log,
        &[
            &format!("empty: {reason}"),
            "the source's table was empty: if that is meant: `sink-repair confirm --read-id empty --up-to 2`",
        ],
    );

    let mut confirmed = everything("fresh", json!([]));
    confirmed["confirmed"] = json!({"max_removals": 2});
    bare.write(vec![bare.chunk_info(&confirmed)]).await?;
    assert_eq!(verdict(&mut sink, "fresh").await?.named(), "applied");
    assert_eq!(sink.number("SELECT count(*) FROM orders").await?, 0);
    worker.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_statement_shows_its_rule_everywhere() -> Result<()> {
    let bare = Bare::new("refused", TABLE).await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().start()?;
    let mut damaged = everything("damaged", json!([]));
    damaged["scope"] = json!("half");

    bare.write(vec![bare.chunk_info(&damaged)]).await?;

    let reason = "field `scope` is not known";
    let refused = verdict(&mut sink, "damaged").await?;
    assert_eq!((refused.named().as_str(), refused.reason.as_str()), ("refused whole", reason));
    let line = worker.logged("statement refused", LIMIT).await?;
    assert_says(&line, &[" WARN ", "read_id=damaged", "rule=\"whole\"", reason]);
    let name = format!("sink_repair_statements_refused_total{{rule=\"whole\",topic=\"{}\"}}", bare.topic());
    assert_eq!(metric(&mut worker, &name).await?, 1.0);
    assert_eq!(
        attention(&page(&mut worker).await?),
        [json!(["refused", "inventory.orders", "damaged", "whole", reason])]
    );
    let shown = status(&mut worker).await?;
    assert_eq!(shown.code, 2);
    assert_says(
        &shown.log,
        &["refused       inventory.orders", "read damaged", &format!("whole: {reason}"), "compare versions"],
    );
    worker.stop(LIMIT).await
}

/// The default: an operator sees what would go, and nothing goes.
#[tokio::test(flavor = "multi_thread")]
async fn a_reported_statement_says_what_would_go() -> Result<()> {
    let bare = Bare::new("reported", TABLE).await?;
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().with(&["--orphans", "report"]).start()?;
    sink.run("INSERT INTO orders VALUES (7, 'orphan'), (8, 'orphan')").await?;

    bare.write(vec![bare.row(1, "v"), bare.chunk_info(&everything("look", json!([1, 2])))]).await?;

    let expected = Verdict { verdict: "reported".into(), orphans: 2, missing: 1, in_range: 3, ..Verdict::default() };
    assert_eq!(verdict(&mut sink, "look").await?, expected);
    let named = "SELECT key->>'id' FROM sink_repair.orphan WHERE read_id = 'look' ORDER BY encoded";
    assert_eq!(texts(&mut sink, named).await?, ["7", "8"]);
    assert_eq!(sink.number("SELECT count(*) FROM orders").await?, 3);
    let line = worker.logged("statement reported", LIMIT).await?;
    assert_says(&line, &[" INFO ", "read_id=look", "orphans=2", "removed=0", "missing=1", "in_range=3"]);
    let of = |name: &str| format!("sink_repair_{name}{{topic=\"{}\"}}", bare.topic());
    assert_eq!(metric(&mut worker, &of("orphan_rows_total")).await?, 2.0);
    assert_eq!(metric(&mut worker, &of("missing_rows_total")).await?, 1.0);
    let last = page(&mut worker).await?["lanes"][0]["last_statement"].clone();
    assert_eq!(
        json!([last["read_id"], last["verdict"], last["orphans"], last["removed"]]),
        json!(["look", "reported", 2, 0])
    );
    let shown = status(&mut worker).await?;
    assert_eq!(shown.code, 0, "{}", shown.log);
    assert_says(&shown.log, &["Nothing needs attention.", "inventory.orders reported (2 orphans, 1 missing)"]);
    worker.stop(LIMIT).await?;

    // Dropped, where statements are not for this sink.
    bare.write(vec![bare.chunk_info(&everything("dropped", json!([1])))]).await?;
    bare.apply().with(&["--orphans", "ignore"]).catches_up().await?;
    assert_eq!(verdict(&mut sink, "dropped").await?, Verdict { verdict: "ignored".into(), ..Verdict::default() });
    assert_eq!(sink.number("SELECT count(*) FROM orders").await?, 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_spellings_of_the_same_keys_are_held() -> Result<()> {
    let bare = Bare::new("mismatch", TABLE).await?;
    let mut sink = bare.sink().await?;
    sink.run("INSERT INTO orders SELECT g, 'v' FROM generate_series(1001, 1030) g").await?;
    let selected: Vec<i64> = (1..=30).collect();
    bare.write(vec![bare.row(31, "gone"), bare.gone(31), bare.chunk_info(&everything("spelled", json!(selected)))])
        .await?;

    bare.apply().with(&["--max-removals-percent", "100"]).catches_up().await?;

    let held = verdict(&mut sink, "spelled").await?;
    assert_eq!(held.named(), "held mismatch");
    assert_eq!(held.reason, "30 orphans and 30 missing rows look like two spellings of the same keys");
    assert_eq!(sink.number("SELECT count(*) FROM orders").await?, 30);
    Ok(())
}
