//! How a worker ends.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;
use test_support::Signal;
use test_support::kafka::{self, New};

use crate::bare::Bare;
use crate::worker::{LIMIT, counts, texts};

const TABLE: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, v text)";

/// Longer than any unit of work here takes, shorter than what orchestrators wait before they kill.
const SECONDS: Duration = Duration::from_secs(10);

/// Updates of 100 keys: `v` counts up, so that a change applied twice, or not at all, or out of order shows.
fn updates(bare: &Bare, from: usize, count: usize) -> Vec<New> {
    (from..from + count).map(|number| bare.row(number as i64 % 100, &format!("{number:09}"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_under_load_ends_within_seconds_and_loses_nothing() -> Result<()> {
    let bare = Bare::new("sigterm", TABLE).await?;
    let mut sink = bare.sink().await?;
    // Far more than is done when the signals come.
    let total = 60_000;
    for from in (0..total).step_by(10_000) {
        bare.write(updates(&bare, from, 10_000)).await?;
    }
    let frontier = "SELECT coalesce(max(next_offset), 0) FROM sink_repair.frontier";
    let apply = bare.apply().with(&["--batch-rows", "500"]);

    let mut before = 0;
    for _ in 0..3 {
        let mut worker = apply.start()?;
        test_support::until("some units are done", LIMIT, async || {
            if sink.value("SELECT to_regclass('sink_repair.frontier')::text").await?.is_none() {
                return Ok(None);
            }
            Ok((sink.number(frontier).await? > before).then_some(()))
        })
        .await?;
        worker.signal(Signal::Term)?;
        let asked = Instant::now();
        let status = worker.wait(LIMIT).await?;

        assert_eq!(status.code(), Some(0), "{}", worker.log());
        assert!(asked.elapsed() < SECONDS, "it took {:?}", asked.elapsed());
        before = sink.number(frontier).await?;
        assert!(before < total as i64, "nothing was left to lose");
        // The sink holds exactly the records before the frontier.
        let last = texts(&mut sink, "SELECT max(v) FROM orders").await?;
        assert_eq!(last, [format!("{:09}", before - 1)]);
    }
    apply.catches_up().await?;

    let expected: Vec<String> = (0..100).map(|id| format!("{:09}", total - 100 + id)).collect();
    assert_eq!(texts(&mut sink, "SELECT v FROM orders ORDER BY id").await?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn until_caught_up_does_what_was_there_at_its_start_and_ends() -> Result<()> {
    let bare = Bare::new("caughtup", TABLE).await?;
    let mut sink = bare.sink().await?;

    bare.apply().catches_up().await?;
    assert_eq!(sink.number("SELECT count(*) FROM orders").await?, 0, "an empty topic is done at once");

    bare.write(updates(&bare, 0, 100)).await?;
    bare.apply().catches_up().await?;
    assert_eq!(sink.number("SELECT count(*) FROM orders").await?, 100);

    bare.apply().catches_up().await?;
    assert_eq!(sink.number("SELECT next_offset FROM sink_repair.frontier").await?, 100, "nothing new is done at once");
    Ok(())
}

/// Records that are no rows move the frontier too: what was filtered is not read for ever.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_no_rows_are_done_too() -> Result<()> {
    let bare = Bare::new("norows", TABLE).await?;
    let mut sink = bare.sink().await?;
    let heartbeat = New::text(r#"{"serverName":"shop"}"#, r#"{"ts_ms":1796014136110}"#);
    let transaction = New::text(
        r#"{"id":"571:53195829"}"#,
        r#"{"status":"BEGIN","id":"571:53195829","ts_ms":1486500577125,"event_count":null,"data_collections":null}"#,
    );
    let mut foreign = bare.envelope("m", json!(null));
    foreign["message"] = json!({"prefix": "someone-else", "content": "eA=="});
    let message = New::text(r#"{"prefix":"someone-else"}"#, &foreign.to_string());
    bare.write(vec![bare.row(1, "v"), heartbeat, transaction, message]).await?;

    bare.apply().catches_up().await?;

    assert_eq!(sink.number("SELECT next_offset FROM sink_repair.frontier").await?, 4);
    assert_eq!(sink.number("SELECT count(*) FROM orders").await?, 1);
    Ok(())
}

/// Exactly once, and in order, whatever the partition: three lanes in one worker.
#[tokio::test(flavor = "multi_thread")]
async fn lanes_of_one_topic_work_side_by_side() -> Result<()> {
    let bare = Bare::new("lanes", TABLE).await?;
    let mut sink = bare.sink().await?;
    let topic = format!("{}-three.inventory.orders", bare.name);
    kafka::create_topic(&bare.stack, &topic, 3, &[]).await?;
    kafka::write(&bare.stack, &topic, updates(&bare, 0, 3_000)).await?;

    let mut worker = bare.apply().with(&["--topics", &topic]).start()?;

    counts(&mut sink, "SELECT count(*) FROM orders WHERE v >= '000002900'", 100).await?;
    worker.stop(SECONDS).await?;
    assert_eq!(sink.number("SELECT sum(next_offset)::bigint FROM sink_repair.frontier").await?, 3_000);
    Ok(())
}
