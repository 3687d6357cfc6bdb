//! Records that cannot be applied: what a sink is sent in the threads of its users (truncated, oversized, wrongly typed,
//! beyond the column, against a constraint), each between two good ones.
//!
//! Each bad record has a topic of its own, so that one worker meets all of them: without a dead letter topic every lane
//! stops, names the record and loses nothing; with one every record is parked as Kafka Connect parks it and the records
//! behind it are applied.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use test_support::kafka::{self, New};
use test_support::until;

use crate::bare::Bare;
use crate::worker::{Apply, LIMIT, assert_says, counts, holds, metric, status, texts};

const TABLE: &str = "CREATE TABLE orders (
    id bigint PRIMARY KEY, v varchar(10), qty integer NOT NULL DEFAULT 0 CHECK (qty >= 0), n numeric(5,2), j jsonb,
    b bytea, at timestamp(3), u uuid UNIQUE, d double precision, flag boolean, tags integer[],
    ref bigint REFERENCES orders)";

const CONVERTER: &str = "org.apache.kafka.connect.json.JsonConverter";
const DATA_EXCEPTION: &str = "org.apache.kafka.connect.errors.DataException";
const SINK_TASK: &str = "org.apache.kafka.connect.sink.SinkTask";
const SQL_EXCEPTION: &str = "java.sql.SQLException";

/// A bad record and what is said of it.
struct Case {
    record: New,
    stage: &'static str,
    /// What the message says, in this order.
    says: &'static [&'static str],
}

fn key(id: i64) -> Vec<u8> {
    json!({ "id": id }).to_string().into()
}

/// The id of every bad row.
const BAD: i64 = 500;

/// The cases, for records of a topic of this prefix.
fn cases(bare: &Bare) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |stage, record, says| cases.push(Case { record, stage, says });

    // Values that are no JSON, or none of Debezium's.
    let value = |bytes: &[u8]| New { key: Some(key(BAD)), value: Some(bytes.to_vec()), ..New::default() };
    add("VALUE_CONVERTER", value(b"{\"before\":null,\"after\":{\"id\":500,\"v\":"), &["the value"] as &[_]);
    add("VALUE_CONVERTER", value(b""), &["the value has no bytes"]);
    add("VALUE_CONVERTER", value(b"plain text"), &["the value"]);
    add("VALUE_CONVERTER", value(b"{\"after\":{\"id\":500,\"v\":\"\xff\xfe\"}}"), &["the value", "UTF-8"]);
    add("VALUE_CONVERTER", value(b"1"), &["the value"]);
    add("VALUE_CONVERTER", value(b"[1]"), &["the value"]);
    add("VALUE_CONVERTER", value(b"\"text\""), &["the value"]);
    // Avro in the wire format of a schema registry: a zero byte, the schema's number, the body.
    add("VALUE_CONVERTER", value(b"\x00\x00\x00\x00\x04\x02\x02a"), &["the value"]);
    let nested = format!("{{\"id\":500,\"v\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
    add("VALUE_CONVERTER", value(nested.as_bytes()), &["column `v`", "it is an array, not a string"]);
    add("VALUE_CONVERTER", value(b"{\"id\":500,\"v\":\"\\ud800\"}"), &["column `v`"]);

    // Envelopes with something amiss.
    let envelope = |change: &dyn Fn(&mut Value)| {
        let mut value = bare.envelope("c", json!({ "id": BAD, "v": "v" }));
        change(&mut value);
        New { key: Some(key(BAD)), value: Some(value.to_string().into()), ..New::default() }
    };
    let op = |op: Value| envelope(&move |value| value["op"] = op.clone());
    add("VALUE_CONVERTER", op(json!("x")), &["the envelope's op is none of c, u, r, d, t, m and absent"]);
    add("VALUE_CONVERTER", op(Value::Null), &["the envelope has no op"]);
    add("VALUE_CONVERTER", envelope(&|value| value["after"] = Value::Null), &["the envelope of op c has no after"]);
    add("VALUE_CONVERTER", envelope(&|value| value["source"] = Value::Null), &["the envelope has lost its source"]);
    let untabled = envelope(&|value| value["source"]["table"] = json!(""));
    add("VALUE_CONVERTER", untabled, &["the envelope's source names no table"]);
    let twice = bare.envelope("c", json!({ "id": BAD })).to_string().replacen("\"op\":", "\"op\":\"d\",\"op\":", 1);
    add("VALUE_CONVERTER", value(twice.as_bytes()), &["the value", "op"]);

    // Values of another type than the column's, or beyond it.
    let row = |column: &str, value: Value| {
        let column = column.to_owned();
        envelope(&move |envelope| envelope["after"][&column] = value.clone())
    };
    add("VALUE_CONVERTER", row("v", json!({"a": 1})), &["column `v`"]);
    add("VALUE_CONVERTER", row("v", json!("more than ten")), &["column `v`", "more characters than the column holds"]);
    add("VALUE_CONVERTER", row("v", json!("x".repeat(900_000))), &["column `v`", "more characters"]);
    add("VALUE_CONVERTER", row("qty", json!(1.5)), &["column `qty`"]);
    add("VALUE_CONVERTER", row("qty", json!("seven")), &["column `qty`"]);
    add("VALUE_CONVERTER", row("qty", json!(2_147_483_648_i64)), &["column `qty`", "it is out of range"]);
    add("VALUE_CONVERTER", row("qty", json!(true)), &["column `qty`"]);
    add("VALUE_CONVERTER", row("n", json!("abc!")), &["column `n`"]);
    // 100000 with two digits behind the point, as unscaled bytes: 1000.00.
    add("VALUE_CONVERTER", row("n", json!("AYag")), &["column `n`", "it is out of range"]);
    add("VALUE_CONVERTER", row("b", json!("not base64!")), &["column `b`"]);
    add("VALUE_CONVERTER", row("at", json!("yesterday")), &["column `at`"]);
    add("VALUE_CONVERTER", row("at", json!(9_300_000_000_000_000_i64)), &["column `at`", "it is out of range"]);
    add("VALUE_CONVERTER", row("d", json!("one")), &["column `d`"]);
    add("VALUE_CONVERTER", row("flag", json!("true")), &["column `flag`"]);
    add("VALUE_CONVERTER", row("tags", json!([1, "two"])), &["column `tags`"]);
    add("VALUE_CONVERTER", row("tags", json!({"0": 1})), &["column `tags`"]);
    add("VALUE_CONVERTER", row("j", json!("{no json")), &["column `j`", "it is not JSON"]);
    add("VALUE_CONVERTER", row("u", json!("not-a-uuid")), &["column `u`", "it is not a UUID"]);

    // What only PostgreSQL sees.
    add("TASK_PUT", row("v", json!("a\0b")), &["invalid byte sequence for encoding", "(22021)"]);
    add("TASK_PUT", row("ref", json!(7)), &["violates foreign key constraint \"orders_ref_fkey\"", "(23503)"]);
    add("TASK_PUT", row("qty", Value::Null), &["null value in column \"qty\"", "(23502)"]);
    add("TASK_PUT", row("qty", json!(-1)), &["orders_qty_check", "(23514)"]);
    let taken = json!("00000000-0000-0000-0000-000000000001");
    add(
        "TASK_PUT",
        row("u", taken),
        &["another row of inventory.orders holds a value that constraint \"orders_u_key\""],
    );

    // Keys.
    let good = bare.envelope("c", json!({ "id": BAD, "v": "v" })).to_string();
    let keyed = |key: Option<&[u8]>| New { key: key.map(<[u8]>::to_vec), ..New::text("", &good) };
    add("KEY_CONVERTER", keyed(None), &["the record has no key"]);
    add("KEY_CONVERTER", keyed(Some(b"")), &["key"]);
    add("KEY_CONVERTER", keyed(Some(b"[500]")), &["the key is not an object"]);
    add("KEY_CONVERTER", keyed(Some(b"{\"id\":")), &["the key"]);
    add("KEY_CONVERTER", keyed(Some(b"{\"id\":\xff}")), &["the key"]);
    add("KEY_CONVERTER", keyed(Some(b"{\"other\":500}")), &["`other`", "no key column"]);
    add("KEY_CONVERTER", keyed(Some(b"{\"id\":null}")), &["`id`"]);
    add("KEY_CONVERTER", keyed(Some(b"{\"id\":\"abc\"}")), &["`id`"]);
    add("KEY_CONVERTER", keyed(Some(b"{\"id\":9223372036854775808}")), &["`id`"]);
    add("KEY_CONVERTER", keyed(Some(b"{\"id\":500,\"id\":501}")), &["the key", "id"]);
    add("TASK_PUT", keyed(Some(b"{\"id\":501}")), &["key column `id`: the record's key and its row disagree"]);
    add("KEY_CONVERTER", New { value: None, ..keyed(None) }, &["the record has neither key nor value"]);
    add(
        "KEY_CONVERTER",
        New { value: Some(b"null".to_vec()), ..keyed(None) },
        &["the record has neither key nor value"],
    );
    add("KEY_CONVERTER", New::tombstone("{\"id\":{}}"), &["`id`"]);
    cases
}

fn topic(bare: &Bare, number: usize) -> String {
    format!("{}_{number}.inventory.orders", bare.name)
}

/// The record before the bad one and the one behind it, in the topic of this number.
fn neighbours(bare: &Bare, number: usize) -> [New; 2] {
    let id = 1_000 + 10 * i64::try_from(number).unwrap();
    [bare.row(id, "before"), bare.row(id + 1, "behind")]
}

/// Writes each case between two good records; returns the topics.
async fn write(bare: &Bare, cases: &[Case]) -> Result<Vec<String>> {
    // Holds the value that one bad record wants.
    bare.sink().await?.run("INSERT INTO orders (id, u) VALUES (1, '00000000-0000-0000-0000-000000000001')").await?;
    let mut topics = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let topic = topic(bare, number);
        let [before, behind] = neighbours(bare, number);
        let bad = New { timestamp: Some(1_796_000_000_000), ..case.record.clone() };
        let bad = bad.header("trace", "00-4bf9").header("__connect.errors.topic", "of an earlier life");
        kafka::create_topic(&bare.stack, &topic, 1, &[]).await?;
        kafka::write(&bare.stack, &topic, vec![before, bad, behind]).await?;
        topics.push(topic);
    }
    Ok(topics)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_record_stops_its_lane_by_name_or_is_parked_as_connect_parks_it() -> Result<()> {
    let bare = Bare::new("bad", TABLE).await?;
    let cases = cases(&bare);
    let topics = write(&bare, &cases).await?;
    let mut sink = bare.sink().await?;
    let apply = Apply::new(&bare.stack, &bare.name, &topics, &bare.sink_url());

    let log = apply.stops().await?;

    let mut wrong = Vec::new();
    for (topic, case) in topics.iter().zip(&cases) {
        let said = log
            .lines()
            .find(|line| line.starts_with(&format!("error: {topic}-0:")) || line.starts_with(&format!("{topic}-0:")));
        let parts = ["offset 1", "inventory.orders"].iter().chain(case.says);
        let missing: Vec<_> = parts.filter(|part| !said.is_some_and(|said| said.contains(**part))).collect();
        if !missing.is_empty() {
            wrong.push(format!("{missing:?} is not said: {}", said.unwrap_or("(nothing)")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_says(&log, &["set --dead-letter-topic to park such records and go on"]);
    let expected = |parts: &[i64]| {
        let ids = (0..cases.len()).flat_map(|number| parts.iter().map(move |part| 1_000 + 10 * number as i64 + part));
        ids.map(|id| id.to_string()).collect::<Vec<_>>()
    };
    let ids = "SELECT id::text FROM orders WHERE id >= 500 ORDER BY orders.id";
    assert_eq!(texts(&mut sink, ids).await?, expected(&[0]), "what came before each is done, nothing else");

    let dead = format!("{}-dead", bare.name);
    apply.with(&["--dead-letter-topic", &dead]).catches_up().await?;

    assert_eq!(texts(&mut sink, ids).await?, expected(&[0, 1]), "what came behind each is done, the bad ones are not");
    let parked = kafka::read_all(&bare.stack, &dead).await?;
    assert_eq!(parked.len(), cases.len(), "each is parked once");
    for (topic, case) in topics.iter().zip(&cases) {
        let letter = parked
            .iter()
            .find(|letter| letter.header("__connect.errors.topic").as_ref() == Some(topic))
            .with_context(|| format!("nothing was parked of {topic}: {:?}", case.says))?;
        assert_eq!(letter.key, case.record.key, "{:?}", case.says);
        assert_eq!(letter.value, case.record.value, "{:?}", case.says);
        assert_eq!(letter.timestamp, Some(1_796_000_000_000));
        let (class, exception) = match case.stage {
            "TASK_PUT" => (SINK_TASK, SQL_EXCEPTION),
            _ => (CONVERTER, DATA_EXCEPTION),
        };
        let message = letter.header("__connect.errors.exception.message").unwrap_or_default();
        assert_says(&message, case.says);
        let headers: Vec<_> = letter
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), String::from_utf8(value.clone().unwrap_or_default()).unwrap()))
            .collect();
        let ours = ["topic", "partition", "offset", "connector.name", "task.id", "stage", "class.name"];
        let ours = ours.map(|name| format!("__connect.errors.{name}"));
        let values = [topic, "0", "1", &bare.name, "0", case.stage, class].map(str::to_owned);
        let expected: Vec<_> =
            [("trace", "00-4bf9".to_owned()), ("__connect.errors.topic", "of an earlier life".to_owned())]
                .into_iter()
                .chain(ours.iter().map(String::as_str).zip(values))
                .chain([
                    ("__connect.errors.exception.class.name", exception.to_owned()),
                    ("__connect.errors.exception.message", message.clone()),
                    ("__connect.errors.exception.stacktrace", format!("{exception}: {message}")),
                ])
                .collect();
        assert_eq!(headers, expected, "{:?}", case.says);
    }
    Ok(())
}

/// What a parked record looks like to an operator, and that the lane goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_parked_record_shows_in_the_log_the_metrics_and_the_status() -> Result<()> {
    let bare = Bare::new("parked", TABLE).await?;
    let dead = format!("{}-dead", bare.name);
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().with(&["--dead-letter-topic", &dead]).start()?;
    let bad = New::text(r#"{"id":2}"#, &bare.envelope("c", json!({"id": 2, "qty": -1})).to_string());
    bare.write(vec![bare.row(1, "before"), bad, bare.row(3, "behind")]).await?;

    holds(&mut sink, "SELECT id::text FROM orders ORDER BY orders.id", &["1", "3"]).await?;
    let line = worker.logged("record parked in the dead letter queue", LIMIT).await?;
    assert_says(&line, &[" WARN ", "offset=1", "table=\"inventory.orders\"", "orders_qty_check"]);
    let name = format!("sink_repair_dead_letters_total{{stage=\"TASK_PUT\",topic=\"{}\"}}", bare.topic());
    assert_eq!(metric(&mut worker, &name).await?, 1.0);
    assert_eq!(metric(&mut worker, "sink_repair_attention_items{kind=\"dead-lettered\"}").await?, 1.0);
    let shown = status(&mut worker).await?;
    assert_eq!(shown.code, 2, "something needs a person:\n{}", shown.log);
    assert_says(&shown.log, &["NEEDS ATTENTION (1)", "dead-lettered inventory.orders", "offset 1", "orders_qty_check"]);
    assert!(!shown.log.contains("(2, ") && !line.contains("(2, "), "row data is shown:\n{}{line}", shown.log);
    worker.stop(LIMIT).await
}

/// The other way out: the sink is mended, and the record that was refused is applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_lane_goes_on_with_the_refused_record_once_the_sink_takes_it() -> Result<()> {
    let bare = Bare::new("mended", TABLE).await?;
    let mut sink = bare.sink().await?;
    let wide = New::text(r#"{"id":2}"#, &bare.envelope("c", json!({"id": 2, "v": "more than ten"})).to_string());
    bare.write(vec![bare.row(1, "before"), wide, bare.row(3, "behind")]).await?;

    assert_says(
        &bare.apply().stops().await?,
        &[&format!("{}-0: the record at offset 1 for inventory.orders cannot be applied", bare.topic()), "column `v`"],
    );
    sink.run("ALTER TABLE orders ALTER v TYPE text").await?;
    bare.apply().catches_up().await?;

    holds(&mut sink, "SELECT v FROM orders ORDER BY id", &["before", "more than ten", "behind"]).await
}

/// A sink that is away is no reason to park: nothing is drained into the dead letter topic.
#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_goes_away_parks_nothing() -> Result<()> {
    let bare = Bare::new("away", TABLE).await?;
    let dead = format!("{}-dead", bare.name);
    let mut sink = bare.sink().await?;
    let mut worker = bare.apply().with(&["--dead-letter-topic", &dead]).start()?;
    let mut ids = 0..;
    let mut rows = |count: usize| ids.by_ref().take(count).map(|id| bare.row(id, "v")).collect::<Vec<_>>();
    bare.write(rows(100)).await?;
    counts(&mut sink, "SELECT count(*) FROM orders", 100).await?;
    for _ in 0..3 {
        // The lane is in the middle of a unit when its connection goes.
        let mut other = bare.sink().await?;
        other.run("BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").await?;
        bare.write(rows(200)).await?;
        let ended = until("the lane waits for the lock, and is ended", LIMIT, async || {
            let ended = sink
                .number(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                     AND wait_event_type = 'Lock'",
                )
                .await?;
            Ok((ended > 0).then_some(ended))
        });
        ended.await?;
        other.run("COMMIT").await?;
    }

    counts(&mut sink, "SELECT count(*) FROM orders", 700).await?;
    assert_eq!(kafka::read_all(&bare.stack, &dead).await?.len(), 0);
    assert!(metric(&mut worker, "sink_repair_retries_total{class=\"transient\"}").await? >= 3.0);
    let line = worker.logged("57P01", LIMIT).await?;
    assert_says(&line, &[" WARN ", "57P01"]);
    worker.stop(LIMIT).await
}

/// A bad record of about `bytes` bytes.
fn large(bare: &Bare, bytes: usize) -> New {
    let frame = bare.envelope("c", json!({"id": 2, "v": ""})).to_string().len();
    let text = "x".repeat(bytes - frame);
    New::text(r#"{"id":2}"#, &bare.envelope("c", json!({"id": 2, "v": text})).to_string())
}

/// A record as large as its topic takes is too large with ten more headers; then their texts give way, never the record.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_that_its_headers_make_too_large_keeps_the_record_whole() -> Result<()> {
    let bare = Bare::new("large", TABLE).await?;
    let dead = format!("{}-dead", bare.name);
    // What is left for the headers holds their names and short values, not the message twice.
    kafka::create_topic(&bare.stack, &dead, 1, &[("max.message.bytes", "500750")]).await?;
    let large = large(&bare, 500_000);
    bare.write(vec![large.clone(), bare.row(3, "behind")]).await?;

    bare.apply().with(&["--dead-letter-topic", &dead]).catches_up().await?;

    let parked = kafka::read_all(&bare.stack, &dead).await?;
    assert_eq!(parked.len(), 1);
    assert_eq!(parked[0].value, large.value);
    assert_says(
        &parked[0].header("__connect.errors.exception.stacktrace").unwrap_or_default(),
        &["(cut to fit the topic)"],
    );
    holds(&mut bare.sink().await?, "SELECT id::text FROM orders", &["3"]).await
}

/// Neither applied nor parked: the lane stands before it, and goes on once the topic takes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_the_dead_letter_topic_does_not_take_stops_the_lane() -> Result<()> {
    let bare = Bare::new("untaken", TABLE).await?;
    let mut sink = bare.sink().await?;
    let dead = format!("{}-dead", bare.name);
    kafka::create_topic(&bare.stack, &dead, 1, &[("max.message.bytes", "400000")]).await?;
    bare.write(vec![bare.row(1, "before"), large(&bare, 500_000), bare.row(3, "behind")]).await?;
    let apply = bare.apply().with(&["--dead-letter-topic", &dead]);

    let log = apply.stops().await?;

    assert_says(
        &log,
        &[
            &format!(
                "{}-0: the record at offset 1 for inventory.orders can neither be applied nor parked",
                bare.topic()
            ),
            "column `v`",
            &format!("write to {dead}: the record of"),
            "is larger than the topic takes",
            &format!("hint: raise max.message.bytes of {dead}"),
        ],
    );
    let frontier = "SELECT coalesce(max(next_offset), 0) FROM sink_repair.frontier";
    assert!(sink.number(frontier).await? <= 1, "the record is not passed");
    kafka::set_topic(&bare.stack, &dead, "max.message.bytes", "600000").await?;
    apply.catches_up().await?;
    assert_eq!(texts(&mut sink, "SELECT id::text FROM orders ORDER BY orders.id").await?, ["1", "3"]);
    assert_eq!(kafka::read_all(&bare.stack, &dead).await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_topic_that_cannot_be_made_ends_the_worker_at_its_start() -> Result<()> {
    let bare = Bare::new("unmade", TABLE).await?;
    let dead = format!("{}-dead", bare.name);

    let flags = ["--dead-letter-topic", &dead, "--dead-letter-replication-factor", "3"];
    let log = bare.apply().with(&flags).stops().await?;

    assert_says(&log, &["create the dead letter topic", &dead, "ReplicationFactor"]);
    Ok(())
}

/// A record that is larger than what the worker may hold is applied all the same, alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_larger_than_the_worker_s_memory_is_applied() -> Result<()> {
    let bare = Bare::new("huge", "CREATE TABLE orders (id bigint PRIMARY KEY, v text)").await?;
    let mut sink = bare.sink().await?;
    kafka::set_topic(&bare.stack, &bare.topic(), "max.message.bytes", "10000000").await?;
    bare.write(vec![bare.row(1, "before"), large(&bare, 6_000_000), bare.row(3, "behind")]).await?;

    bare.apply().with(&["--memory", "4MiB"]).catches_up().await?;

    assert_eq!(
        texts(&mut sink, "SELECT id::text FROM orders WHERE length(v) > 5900000 OR id <> 2 ORDER BY orders.id").await?,
        ["1", "2", "3"]
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_the_sink_lacks_stops_the_lane_and_is_not_parked() -> Result<()> {
    let bare = Bare::new("notable", "CREATE TABLE other (id bigint PRIMARY KEY)").await?;
    bare.write(vec![bare.row(1, "v")]).await?;
    let dead = format!("{}-dead", bare.name);

    let log = bare.apply().with(&["--dead-letter-topic", &dead]).stops().await?;

    assert_says(
        &log,
        &[&format!("{}-0 at offset 0", bare.topic()), "describe inventory.orders: the table is not there", "hint: "],
    );
    assert_eq!(kafka::read_all(&bare.stack, &dead).await?.len(), 0);
    bare.sink().await?.run("CREATE TABLE orders (id bigint PRIMARY KEY, v text)").await?;
    bare.apply().catches_up().await?;
    holds(&mut bare.sink().await?, "SELECT v FROM orders", &["v"]).await
}
