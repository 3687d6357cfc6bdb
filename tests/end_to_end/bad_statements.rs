//! Damaged statements and markers: each is refused by the rule that it breaks, with what is wrong, and removes nothing; the
//! stream goes on.

use anyhow::{Context, Result};
use hmac::{Hmac, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use test_support::kafka::New;

use crate::bare::Bare;
use crate::worker::{Verdict, recorded, texts, verdict};

const TABLE: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, v text);
    CREATE TABLE notes (name text COLLATE \"C\" PRIMARY KEY);
    CREATE VIEW \"a view\" AS SELECT 1 AS id;
    CREATE TABLE keyless (id bigint);
    CREATE TABLE floats (id double precision PRIMARY KEY)";

/// What the sink holds: what the stream brings, and an orphan that no damaged statement may remove.
const KEYS: &str = "SELECT id::text FROM orders ORDER BY orders.id";

fn open() -> Value {
    json!({"lower": {"open": true}, "upper": {"open": true}})
}

fn chunk_info(read_id: &str) -> Value {
    json!({
        "table": "inventory.orders", "read_id": read_id, "range": open(), "selected": [1, 2, 3], "changed": [],
    })
}

fn low(topic: &str, read_id: &str) -> Value {
    json!({"v": 1, "kind": "low", "read_id": read_id, "table": "inventory.orders", "topic": topic})
}

fn chunk(topic: &str, read_id: &str) -> Value {
    json!({
        "v": 1, "kind": "chunk", "read_id": read_id, "table": "inventory.orders", "topic": topic, "part": 1, "parts": 1,
        "range": open(), "selected": [1, 2, 3], "key_types": ["bigint"], "snapshot": "763:763:", "settled": true,
    })
}

fn keys(topic: &str, read_id: &str) -> Value {
    json!({
        "v": 1, "kind": "keys", "read_id": read_id, "table": "inventory.orders", "topic": topic, "part": 1, "parts": 1,
        "asked": [1, 77], "present": [1], "key_types": ["bigint"], "snapshot": "763:763:", "settled": true,
    })
}

/// A marker by the outbox way.
fn routed(value: &Value) -> New {
    let kind = value["kind"].as_str().unwrap_or_default();
    New::text(&format!("\"{}/{kind}\"", value["read_id"]), &Value::String(value.to_string()).to_string())
        .header("sink-repair.kind", kind)
}

/// A logical message by the envelope way, with this content as it stands in the record.
fn message(bare: &Bare, content: &str) -> New {
    let mut value = bare.envelope("m", Value::Null);
    value.as_object_mut().unwrap().retain(|name, _| !matches!(name.as_str(), "before" | "after"));
    value["message"] = json!({"prefix": "sink-repair", "content": content});
    New::text(r#"{"prefix":"sink-repair"}"#, &value.to_string())
}

/// A read and how it ends.
struct Case {
    read_id: String,
    records: Vec<New>,
    verdict: &'static str,
    says: &'static str,
}

/// Changes a value.
fn with(mut value: Value, change: impl FnOnce(&mut Value)) -> Value {
    change(&mut value);
    value
}

fn without(mut value: Value, field: &str) -> Value {
    value.as_object_mut().unwrap().remove(field);
    value
}

fn cases(bare: &Bare) -> Vec<Case> {
    let topic = bare.topic();
    let mut cases: Vec<Case> = Vec::new();
    let mut number = 0;
    let mut next = || {
        number += 1;
        format!("r{number}")
    };

    // Chunk info records.
    let mut info = |verdict, says, change: &dyn Fn(Value) -> Value| {
        let read_id = next();
        let records = vec![bare.chunk_info(&change(chunk_info(&read_id)))];
        cases.push(Case { read_id, records, verdict, says });
    };
    info("refused whole", "field `scope` is not known", &|v| with(v, |v| v["scope"] = json!("half")));
    info("refused whole", "field `selected` is missing", &|v| without(v, "selected"));
    info("refused whole", "field `changed` is missing", &|v| with(v, |v| v["changed"] = Value::Null));
    info("refused whole", "field `range` is missing", &|v| without(v, "range"));
    info("refused whole", "field `v`: this version of the protocol is not known", &|v| with(v, |v| v["v"] = json!(2)));
    info("refused whole", "field `range.upper`", &|v| with(v, |v| v["range"]["upper"] = json!({})));
    info("refused whole", "field `range.lower`", &|v| with(v, |v| v["range"]["lower"] = json!({"open": false})));
    info("refused whole", "field `range.upper`", &|v| with(v, |v| v["range"]["upper"] = json!({"key": 10})));
    info("refused order", "range", &|v| {
        with(v, |v| {
            v["range"] = json!({"lower": {"key": 9, "inclusive": true}, "upper": {"key": 1, "inclusive": true}});
        })
    });
    info("refused order", "field `selected`", &|v| with(v, |v| v["selected"] = json!([1, 3, 2])));
    info("refused order", "field `selected`", &|v| with(v, |v| v["selected"] = json!([1, 1, 2, 3])));
    info("refused order", "field `changed`", &|v| with(v, |v| v["changed"] = json!([3, 2])));
    info("refused order", "field `selected`", &|v| {
        with(v, |v| v["range"]["upper"] = json!({"key": 2, "inclusive": true}))
    });
    info("refused order", "field `selected`", &|v| with(v, |v| v["selected"] = json!({"intervals": [[1, 3], [2, 5]]})));
    info("refused whole", "field `selected`", &|v| with(v, |v| v["selected"] = json!("all")));
    info("refused same-value", "field `selected`", &|v| with(v, |v| v["selected"] = json!([1, "two", 3])));
    info("refused same-value", "field `selected`", &|v| with(v, |v| v["selected"] = json!([1, 2.5, 3])));
    info("refused same-value", "field `selected`", &|v| with(v, |v| v["selected"] = json!([[1, 2], [3, 4]])));
    info("refused whole", "field `selected`", &|v| with(v, |v| v["selected"] = json!({"encoded": ["8000"]})));
    info("refused whole", "field `confirmed.max_removals` is missing", &|v| with(v, |v| v["confirmed"] = json!({})));
    info("refused whole", "field `confirmed.max_removals` is not a number", &|v| {
        with(v, |v| v["confirmed"] = json!({"max_removals": "all"}))
    });
    info("refused whole", "field `rows` is not a number from 0", &|v| with(v, |v| v["rows"] = json!(-1)));
    info("refused whole", "field `snapshot` is not a snapshot", &|v| with(v, |v| v["snapshot"] = json!("7:6:")));
    info("refused whole", "field `key_types` is not a list of text", &|v| with(v, |v| v["key_types"] = json!([1])));
    info("refused same-value", "field `key_types`", &|v| with(v, |v| v["key_types"] = json!(["numeric"])));
    info("refused same-value", "the source's key has 2 columns, the sink's 1", &|v| {
        with(v, |v| v["key_types"] = json!(["bigint", "bigint"]))
    });
    info("refused order", "field `key_order` is an order that is not known", &|v| {
        with(v, |v| v["key_order"] = json!("en_US.utf8"))
    });
    info("refused order", "field `key_order` is not `bytes`, and key column `name` is text", &|v| {
        with(v, |v| {
            v["table"] = json!("inventory.notes");
            v["selected"] = json!(["a"]);
        })
    });
    info("refused one-stream", "the record is meant for topic `elsewhere`", &|v| {
        with(v, |v| v["topic"] = json!("elsewhere"))
    });
    info("refused whole", "field `table` is not schema.table", &|v| with(v, |v| v["table"] = json!("orders")));

    // Whoever may write messages may name any table, and write anything in any field.
    info(
        "refused one-stream",
        "no stream feeds inventory.nothere: describe inventory.nothere: the table is not there",
        &|v| with(v, |v| v["table"] = json!("inventory.nothere")),
    );
    info("refused one-stream", "describe inventory.a view: the table is a view", &|v| {
        with(v, |v| v["table"] = json!("inventory.a view"))
    });
    info("refused one-stream", "describe inventory.keyless: the table has no primary key", &|v| {
        with(v, |v| v["table"] = json!("inventory.keyless"))
    });
    info("refused order", "floating point key \"id\"", &|v| with(v, |v| v["table"] = json!("inventory.floats")));
    info("refused one-stream", "no stream feeds pg_catalog.pg_authid", &|v| {
        with(v, |v| v["table"] = json!("pg_catalog.pg_authid"))
    });
    info("refused whole", "field `table` is longer than 512 bytes, or has control characters", &|v| {
        with(v, |v| v["table"] = json!("inventory.ord\0ers"))
    });
    info("refused whole", "field `table` is longer than 512 bytes, or has control characters", &|v| {
        with(v, |v| v["table"] = json!(format!("inventory.{}", "o".repeat(100_000))))
    });
    info("refused whole", "is not known", &|v| with(v, |v| v["a\0b"] = json!(1)));
    info("refused whole", "ffff...", &|v| with(v, |v| v["f".repeat(100_000)] = json!(1)));
    let nested: Value = (0..100).fold(json!(1), |inner, _| json!([inner]));
    info("refused same-value", "field `selected`", &|v| with(v, |v| v["selected"] = nested.clone()));

    // Markers: a low, then a damaged close.
    let mut closed = |verdict, says, close: &dyn Fn(&str) -> Vec<Value>| {
        let read_id = next();
        let records = [low(&topic, &read_id)].into_iter().chain(close(&read_id)).map(|value| routed(&value)).collect();
        cases.push(Case { read_id, records, verdict, says });
    };
    closed("refused whole", "field `note` is not known", &|id| vec![with(chunk(&topic, id), |v| v["note"] = json!(1))]);
    closed("refused whole", "field `snapshot` is missing", &|id| vec![without(chunk(&topic, id), "snapshot")]);
    closed("refused whole", "field `settled` is not true or false", &|id| {
        vec![with(chunk(&topic, id), |v| v["settled"] = json!("yes"))]
    });
    closed("refused whole", "field `part`: 3 of 2 parts", &|id| {
        vec![with(chunk(&topic, id), |v| {
            v["part"] = json!(3);
            v["parts"] = json!(2);
        })]
    });
    closed("refused whole", "part 2 of 3 came after 0 parts", &|id| {
        vec![with(chunk(&topic, id), |v| {
            v["part"] = json!(2);
            v["parts"] = json!(3);
        })]
    });
    closed("refused whole", "part 2 of 2 disagrees with an earlier part", &|id| {
        let part = |number: u32| {
            with(chunk(&topic, id), |v| {
                v["part"] = json!(number);
                v["parts"] = json!(2);
            })
        };
        vec![part(1), with(part(2), |v| v["settled"] = json!(false))]
    });
    closed("refused order", "", &|id| {
        let part = |number: u32, selected: Value| {
            with(chunk(&topic, id), |v| {
                v["part"] = json!(number);
                v["parts"] = json!(2);
                v["selected"] = selected;
            })
        };
        vec![part(1, json!([1, 3])), part(2, json!([2]))]
    });
    closed("refused whole", "its low marker names another table", &|id| {
        vec![with(chunk(&topic, id), |v| {
            v["table"] = json!("inventory.notes");
            v["selected"] = json!(["a"]);
            v["key_types"] = json!(["text"]);
            v["key_order"] = json!("bytes");
        })]
    });
    closed("refused whole", "its low markers name different tables", &|id| {
        vec![with(low(&topic, id), |v| v["table"] = json!("inventory.notes")), chunk(&topic, id)]
    });
    closed("refused whole", "it calls keys present that were not asked for", &|id| {
        vec![with(keys(&topic, id), |v| v["present"] = json!([1, 5]))]
    });
    closed("refused whole", "field `asked` is missing", &|id| vec![without(keys(&topic, id), "asked")]);
    closed("refused one-stream", "the record is meant for topic `elsewhere`", &|id| {
        vec![with(chunk(&topic, id), |v| v["topic"] = json!("elsewhere"))]
    });

    // A low alone, on a table that the sink lacks: refused at once.
    let read_id = next();
    cases.push(Case {
        records: vec![routed(&with(low(&topic, &read_id), |v| v["table"] = json!("inventory.nothere")))],
        verdict: "refused one-stream",
        says: "describe inventory.nothere: the table is not there",
        read_id,
    });

    // Closes without their low, and marks that contradict each other.
    let read_id = next();
    cases.push(Case {
        records: vec![routed(&chunk(&topic, &read_id))],
        verdict: "refused window",
        says: "its low marker does not stand in the stretch of the stream that this lane has read",
        read_id,
    });
    let read_id = next();
    let as_keys = New { headers: vec![], ..routed(&chunk(&topic, &read_id)) }.header("sink-repair.kind", "keys");
    cases.push(Case {
        records: vec![routed(&low(&topic, &read_id)), as_keys],
        verdict: "refused whole",
        says: "field `kind` and the record's header disagree",
        read_id,
    });

    // Absence events.
    let mut absent = |key: &str, headers: &[(&str, &str)], verdict, says| {
        let read_id = next();
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), Some(value.as_bytes().to_vec())));
        let record = New { headers: headers.collect(), ..New::tombstone(key) }.header("dblog.read_id", &read_id);
        cases.push(Case { read_id, records: vec![record], verdict, says });
    };
    let table = ("dblog.table", "inventory.orders");
    absent(r#"{"id":77}"#, &[("dblog.op", "absent")], "refused whole", "header `dblog.table` is missing");
    absent(r#"{"id":77}"#, &[("dblog.op", "gone"), table], "refused whole", "header `dblog.op` is not `absent`");
    let nothere = ("dblog.table", "inventory.nothere");
    absent(r#"{"id":77}"#, &[("dblog.op", "absent"), nothere], "refused one-stream", "the table is not there");
    absent(r#"{"id":77}"#, &[("dblog.op", "absent"), ("dblog.table", "a\nb.c")], "refused whole", "control characters");
    absent("{\"id\":\"x\"}", &[("dblog.op", "absent"), table], "refused whole", "`id`");
    absent("{}", &[("dblog.op", "absent"), table], "refused whole", "`id`");
    cases
}

/// What cannot even say its read is written down under its place.
fn unnamed(bare: &Bare) -> Vec<(New, &'static str)> {
    let info = |text: &str| New::text("k", text).header("dblog.record", "chunk-info");
    vec![
        (info("{\"table\":"), "the value"),
        (info("[]"), "the payload"),
        (New { value: None, ..info("") }, "the record has no value"),
        (
            info("{}").header("dblog.record", "chunk-info-2"),
            "header `dblog.record` names a kind of record that is not known",
        ),
        (
            New::text("k", "{}").header("sink-repair.kind", "high"),
            "header `sink-repair.kind` is none of low, chunk and keys",
        ),
        (New::text("k", "\"no json\"").header("sink-repair.kind", "chunk"), "the payload"),
        (
            info(&with(chunk_info("a\0b"), |_| {}).to_string()),
            "field `read_id` is longer than 512 bytes, or has control characters",
        ),
        (info(&chunk_info(&"r".repeat(5_000)).to_string()), "field `read_id` is longer than 512 bytes"),
        (New { value: Some(b"{\"table\":\"\xff\"}".to_vec()), ..info("") }, "the value is not UTF-8"),
        (info(&format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000))), "the payload is not an object"),
        (message(bare, "%%%"), "the message's content is not bytes in base64"),
        // {"v":1,"kind":"lo
        (message(bare, "eyJ2IjoxLCJraW5kIjoibG8="), "the payload is cut off"),
        (message(bare, "/////w=="), "the message's content is not UTF-8"),
        // {"kind":"high"}
        (message(bare, "eyJraW5kIjoiaGlnaCJ9"), "field `kind` is none of low, chunk and keys"),
        (
            New::tombstone(r#"{"id":77}"#).header("dblog.op", "absent").header("dblog.table", "inventory.orders"),
            "header `dblog.read_id` is missing",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_statements_are_refused_by_name_and_the_stream_goes_on() -> Result<()> {
    let bare = Bare::new("damaged", TABLE).await?;
    let mut sink = bare.sink().await?;
    sink.run("INSERT INTO orders VALUES (77, 'orphan')").await?;
    let (cases, unnamed) = (cases(&bare), unnamed(&bare));
    let mut records: Vec<New> = (1..=3).map(|id| bare.row(id, "v")).collect();
    records.extend(cases.iter().flat_map(|case| case.records.clone()));
    let first_unnamed = records.len();
    records.extend(unnamed.iter().map(|(record, _)| record.clone()));
    let end = records.len();
    records.push(bare.row(4, "the stream goes on"));
    bare.write(records).await?;

    bare.apply().catches_up().await?;

    let mut wrong = Vec::new();
    let mut check = |what: &str, found: Option<Verdict>, verdict: &str, says: &str| match found {
        Some(found) if found.named() == verdict && found.reason.contains(says) && found.removed == 0 => {}
        found => wrong.push(format!("{what}: {verdict} {says:?} expected, found {found:?}")),
    };
    for case in &cases {
        check(&case.read_id, recorded(&mut sink, &case.read_id).await?, case.verdict, case.says);
    }
    for (offset, (_, says)) in (first_unnamed..).zip(&unnamed) {
        let read_id = format!("unnamed@{offset}");
        check(&read_id, recorded(&mut sink, &read_id).await?, "refused whole", says);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(texts(&mut sink, KEYS).await?, ["1", "2", "3", "4", "77"]);
    assert_eq!(texts(&mut sink, "SELECT next_offset::text FROM sink_repair.frontier").await?, [(end + 1).to_string()]);

    // The same statements undamaged do remove.
    bare.write(vec![bare.chunk_info(&with(chunk_info("good"), |v| {
        v["selected"] = json!([1, 2, 3, 4]);
        v["x_note"] = json!("fields of one's own are not read");
    }))])
    .await?;
    bare.apply().catches_up().await?;
    let good = recorded(&mut sink, "good").await?.context("no verdict")?;
    assert_eq!((good.named().as_str(), good.removed), ("applied", 1));
    assert_eq!(texts(&mut sink, KEYS).await?, ["1", "2", "3", "4"]);
    Ok(())
}

/// The whole row of a marker at the sink: a verdict that is final, whatever comes later under the same name.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_verdict_stands_when_a_read_comes_again() -> Result<()> {
    let bare = Bare::new("again", TABLE).await?;
    let mut sink = bare.sink().await?;
    let topic = bare.topic();
    bare.write(vec![bare.row(1, "v"), routed(&chunk(&topic, "r")), bare.row(2, "v"), bare.row(3, "v")]).await?;
    bare.apply().catches_up().await?;
    assert_eq!(verdict(&mut sink, "r").await?.named(), "refused window");
    sink.run("INSERT INTO orders VALUES (77, 'orphan')").await?;

    bare.write(vec![routed(&low(&topic, "r")), routed(&chunk(&topic, "r")), bare.row(4, "v")]).await?;
    bare.apply().catches_up().await?;

    assert_eq!(verdict(&mut sink, "r").await?.named(), "refused window");
    assert_eq!(texts(&mut sink, KEYS).await?, ["1", "2", "3", "4", "77"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_on_a_topic_of_several_partitions_are_refused() -> Result<()> {
    let bare = Bare::new("scope", TABLE).await?;
    let mut sink = bare.sink().await?;
    let topic = format!("{}-three.inventory.orders", bare.name);
    test_support::kafka::create_topic(&bare.stack, &topic, 3, &[]).await?;
    let marker = |value: &Value| New { partition: Some(1), ..routed(value) };
    let records = vec![marker(&low(&topic, "r")), marker(&chunk(&topic, "r"))];
    test_support::kafka::write(&bare.stack, &topic, records).await?;

    bare.apply().with(&["--topics", &topic]).catches_up().await?;

    let verdict = verdict(&mut sink, "r").await?;
    assert_eq!(verdict.named(), "refused scope");
    assert_eq!(verdict.reason, "the topic has 3 partitions; statements are taken on topics of one partition");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_added_under_a_running_worker_end_its_statements() -> Result<()> {
    let bare = Bare::new("added", TABLE).await?;
    let mut sink = bare.sink().await?;
    sink.run("INSERT INTO orders VALUES (77, 'orphan'), (78, 'not listed')").await?;
    let topic = bare.topic();
    let read = |read_id: &str, selected: Value| {
        let close = with(chunk(&topic, read_id), |value| value["selected"] = selected);
        [low(&topic, read_id), close].map(|value| New { partition: Some(0), ..routed(&value) })
    };
    let mut worker = bare.apply().start()?;
    bare.write(vec![bare.row(79, "gone"), bare.gone(79)]).await?;
    bare.write(read("before", json!([78])).into()).await?;
    assert_eq!(verdict(&mut sink, "before").await?.named(), "applied");

    test_support::kafka::add_partitions(&bare.stack, &topic, 2).await?;
    bare.write(read("after", json!([])).into()).await?;
    bare.write(read("later", json!([])).into()).await?;

    for read_id in ["after", "later"] {
        let verdict = verdict(&mut sink, read_id).await?;
        assert_eq!(verdict.named(), "refused scope", "{read_id}");
        assert_eq!(verdict.reason, "the topic had 1 partitions and has 2 now, so keys have moved", "{read_id}");
    }
    assert_eq!(texts(&mut sink, KEYS).await?, ["78"]);
    worker.stop(std::time::Duration::from_secs(25)).await
}

/// Signs as docs/protocol.md says: HMAC-SHA256 over the payload, fields sorted, no blanks.
fn signed(value: &Value, key: &[u8]) -> Value {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(value.to_string().as_bytes());
    with(value.clone(), |value| value["mac"] = json!(hex::encode(mac.finalize().into_bytes())))
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_key_only_signed_markers_are_taken() -> Result<()> {
    let bare = Bare::new("signed", TABLE).await?;
    let mut sink = bare.sink().await?;
    let key = b"0123456789abcdef0123456789abcdef";
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("key");
    std::fs::write(&file, key)?;
    sink.run("INSERT INTO orders VALUES (77, 'orphan')").await?;
    let topic = bare.topic();
    let sealed = |value: &Value| routed(&signed(value, key));
    let forged = with(signed(&chunk(&topic, "forged"), key), |value| value["selected"] = json!([1]));
    let mut records: Vec<New> = (1..=3).map(|id| bare.row(id, "v")).collect();
    records.extend([
        routed(&low(&topic, "unsigned")),
        routed(&chunk(&topic, "unsigned")),
        sealed(&low(&topic, "forged")),
        routed(&forged),
        sealed(&low(&topic, "other")),
        routed(&signed(&chunk(&topic, "other"), b"another key, also of 32 bytes....")),
        bare.chunk_info(&chunk_info("info")),
        sealed(&low(&topic, "good")),
        sealed(&chunk(&topic, "good")),
    ]);
    bare.write(records).await?;

    bare.apply().with(&["--marker-key-file", file.to_str().context("a path in UTF-8")?]).catches_up().await?;

    let missing = "field `mac` is missing, and this worker takes signed markers only";
    let wrong = "field `mac` is not the payload's signature under this worker's key";
    for (read_id, reason) in [("unsigned", missing), ("forged", wrong), ("other", wrong), ("info", missing)] {
        let verdict = verdict(&mut sink, read_id).await?;
        assert_eq!((verdict.named().as_str(), verdict.reason.as_str()), ("refused authentic", reason), "{read_id}");
    }
    let good = verdict(&mut sink, "good").await?;
    assert_eq!((good.named().as_str(), good.removed), ("applied", 1), "{}", good.reason);
    assert_eq!(texts(&mut sink, KEYS).await?, ["1", "2", "3"]);
    Ok(())
}
