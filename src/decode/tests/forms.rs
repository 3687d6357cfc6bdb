//! Which form a record has: other records of Debezium, tombstones, flattened rows, signal tables.

use sink_api::{RowOp, Value};

use super::{decode, decode_one, decoder, fixture, int_key, record, scenario_shapes, shape};
use crate::decode::{DecodeError, DecodeSettings, Event, EventXid, OtherRecord, RowEvent, SourceTable};

const SOURCE: &str =
    r#""source":{"name":"srv","db":"src","schema":"inv","table":"uu2","txId":7,"ts_ms":1700,"snapshot":"false"}"#;

fn pair() -> std::sync::Arc<sink_api::TableShape> {
    shape("inv.uu2", &[("id", "bigint"), ("v", "text")], &["id"])
}

#[test]
fn records_that_say_nothing_of_rows_are_known_for_what_they_are() {
    let mut counts = std::collections::BTreeMap::new();
    let mut unknown = std::collections::BTreeSet::new();
    let mut decoders = std::collections::HashMap::new();
    for (topic, _, record) in fixture("debezium-3.6.3/01-mixed-events.jsonl") {
        let decoder = decoders.entry(topic.clone()).or_insert_with(|| decoder(DecodeSettings::default(), &topic, &[]));
        match decoder.decode(&record) {
            Ok(Event::Other(other)) => *counts.entry(format!("{other:?}")).or_insert(0) += 1,
            Err(DecodeError::NeedsTable { table, .. }) => drop(unknown.insert(table.to_string())),
            // A table without a primary key.
            Err(DecodeError::Bad(bad)) if topic == "srv.inv.nopk" => assert_eq!(bad.table.as_deref(), Some("inv.nopk")),
            other => panic!("{topic}: {other:?}"),
        }
    }

    let text = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/debezium-3.6.3/01-mixed-events.jsonl"
    ))
    .unwrap();
    let topic = |name: &str| text.matches(&format!("\"topic\": \"{name}\"")).count();
    let expected = [
        ("Heartbeat", topic("__debezium-heartbeat.srv")),
        ("Message", topic("srv.message")),
        ("Notification", topic("srv.notif")),
        // All but a made-up command, whose data Debezium would not take.
        ("Signal", topic("srv.inv.dbz_signal") - 1),
        ("Transaction", topic("srv.transaction")),
    ];
    assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)).into());
    let tables = ["comp", "customers", "dbz_signal", "markers", "toast", "trunc1", "types"];
    assert_eq!(unknown.into_iter().collect::<Vec<_>>(), tables.map(|table| format!("inv.{table}")));
}

#[test]
fn a_schema_change_is_known() {
    let value = r#"{"source":{"name":"srv","db":"inventory","table":""},"ts_ms":1,"databaseName":"inventory","schemaName":null,"ddl":"CREATE TABLE t (id int)","tableChanges":[]}"#;

    let event = decode_one("srv", &[], &record(Some(r#"{"databaseName":"inventory"}"#), Some(value), &[]));

    assert_eq!(event, Ok(Event::Other(OtherRecord::SchemaChange)));
}

#[test]
fn a_heartbeat_in_another_topic_is_known_by_its_key() {
    let record = record(Some(r#"{"serverName":"srv"}"#), Some(r#"{"ts_ms":1796006773821}"#), &[]);

    assert_eq!(decode_one("all", &[], &record), Ok(Event::Other(OtherRecord::Heartbeat)));
}

/// Records of Debezium's own kinds: the kind, its schema's name, key and value.
const OWN: [(OtherRecord, &str, &str, &str); 4] = [
    (OtherRecord::Heartbeat, "common.Heartbeat", r#"{"serverName":"srv"}"#, r#"{"ts_ms":1796006773821}"#),
    (
        OtherRecord::Transaction,
        "common.TransactionMetadataValue",
        r#"{"id":"743:25270496"}"#,
        r#"{"status":"BEGIN","id":"743:25270496","event_count":null,"data_collections":null,"ts_ms":1796006770162}"#,
    ),
    (
        OtherRecord::SchemaChange,
        "mysql.SchemaChangeValue",
        r#"{"databaseName":"inventory"}"#,
        r#"{"source":{"name":"srv","table":""},"ts_ms":1,"databaseName":"i","schemaName":null,"ddl":"CREATE","tableChanges":[]}"#,
    ),
    (
        OtherRecord::Notification,
        "common.Notification",
        r#"{"id":"n"}"#,
        r#"{"id":"n","type":"STARTED","aggregate_type":"Initial Snapshot","additional_data":{},"timestamp":1796006758337}"#,
    ),
];

/// What the topic of a table makes of a record: `None` is a row.
fn other_of(key: &str, value: &str, headers: &[(&str, &str)]) -> Option<OtherRecord> {
    match decode_one("srv.inv.t", &[], &record(Some(key), Some(value), headers)) {
        Ok(Event::Other(other)) => Some(other),
        Err(DecodeError::NeedsTable { table, .. }) if table.to_string() == "inv.t" => None,
        event => panic!("{value}: {event:?}"),
    }
}

#[test]
fn debeziums_own_records_are_known_by_exactly_their_fields_and_their_schema() {
    for (kind, name, key, value) in OWN {
        let typed = |name: &str| {
            let schema = format!(r#"{{"type":"struct","fields":[],"optional":false,"name":"{name}","version":1}}"#);
            format!(r#"{{"schema":{schema},"payload":{value}}}"#)
        };
        let another = value.replacen('{', r#"{"amount":1,"#, 1);
        let fewer = value.replacen(r#""id":"#, r#""no":"#, 1).replacen("ddl", "sql", 1).replacen("ts_ms", "at", 1);

        assert_eq!(other_of(key, value, &[]), Some(kind));
        assert_eq!(other_of(key, &typed(&format!("io.debezium.connector.{name}")), &[]), Some(kind));
        assert_eq!(other_of(key, &typed("srv.inv.t.Value"), &[]), None, "{kind:?} under a table's schema");
        for row in [another, fewer] {
            assert_eq!(other_of(key, &row, &[]), None, "{row}");
        }
    }
}

#[test]
fn a_marked_row_is_a_row_whatever_its_columns_are() {
    let rows = [
        r#"{"id":1,"aggregate_type":"a","type":"t","additional_data":"x","amount":1}"#,
        r#"{"id":1,"status":"s","event_count":1,"data_collections":"x","note":"n"}"#,
        r#"{"id":1,"ddl":"d","databaseName":"x","who":"w"}"#,
        r#"{"id":1,"op":"c","before":"x","after":"y"}"#,
        r#"{"id":1,"op":"c","before":"x","after":"y","source":"app"}"#,
        r#"{"id":1,"op":"c","before":"x","after":"y","source":{"app":1}}"#,
    ];
    for row in rows.into_iter().chain(OWN.map(|(_, _, _, value)| value)) {
        for mark in ["__op", "__table", "__source_table", "__deleted", "__source_ts_ms", "__lsn"] {
            let text = if mark.ends_with("able") { "t" } else { "1" };
            let marked = row.replacen('{', &format!(r#"{{"{mark}":"{text}","#), 1);

            assert_eq!(other_of(r#"{"serverName":"srv"}"#, row, &[(mark, text)]), None, "{row} under header {mark}");
            assert_eq!(other_of(r#"{"serverName":"srv"}"#, &marked, &[]), None, "{row} with field {mark}");
        }
    }
}

#[test]
fn connects_own_headers_mark_no_row() {
    let headers = [("__debezium.context.connectorName", "srv"), ("__connect.errors.topic", "t")];

    for (kind, _, key, value) in OWN {
        assert_eq!(other_of(key, value, &headers), Some(kind));
    }
}

#[test]
fn an_unmarked_row_whose_source_is_no_object_is_no_envelope() {
    assert_eq!(other_of(r#"{"id":1}"#, r#"{"id":1,"op":"c","before":"x","after":"y","source":"app"}"#, &[]), None);
}

#[test]
fn the_signal_table_may_be_named() {
    let settings = DecodeSettings { signal_table: Some("inv.uu2".to_owned()), ..DecodeSettings::default() };
    let mut decoder = decoder(settings, "srv.inv.uu2", &[pair()]);
    let row = format!(r#"{{"before":null,"after":{{"id":1,"v":"x"}},{SOURCE},"op":"c"}}"#);

    let events = [Some(&*row), None].map(|value| decode(&mut decoder, &record(Some(r#"{"id":1}"#), value, &[])));

    assert_eq!(events, [Event::Other(OtherRecord::Signal), Event::Other(OtherRecord::Signal)]);
}

#[test]
fn a_users_table_with_the_columns_of_a_signal_table_is_a_table() {
    let row = format!(r#"{{"before":null,"after":{{"id":"1","type":"log","data":"x"}},{SOURCE},"op":"c"}}"#);

    let event = decode_one("srv.inv.uu2", &[], &record(Some(r#"{"id":"1"}"#), Some(&row), &[]));

    assert_eq!(event, Err(DecodeError::NeedsTable { table: sink_api::TableName::new("inv", "uu2"), refused: None }));
}

fn row_event(key: i64, xid: EventXid, op: RowOp) -> Event {
    Event::Row(RowEvent {
        table: pair(),
        source: SourceTable {
            connector: "srv".to_owned(),
            database: "src".to_owned(),
            schema: "inv".to_owned(),
            table: "uu2".to_owned(),
        }
        .into(),
        key: int_key(key),
        other_key: None,
        xid,
        source_ms: Some(1700),
        op,
    })
}

#[test]
fn an_envelope_is_a_whole_row_event() {
    let row = format!(r#"{{"before":null,"after":{{"id":1,"v":null}},{SOURCE},"op":"u","ts_ms":1}}"#);

    let event = decode_one("x", &[pair()], &record(Some(r#"{"id":1}"#), Some(&row), &[]));

    let values = vec![Value::Int(1), Value::Null];
    assert_eq!(event, Ok(row_event(1, EventXid::Known(7), RowOp::Upsert(values.into()))));
}

#[test]
fn a_truncate_names_its_table_and_transaction() {
    let value = format!(r#"{{"before":null,"after":null,{SOURCE},"op":"t"}}"#);

    let event = decode_one("x", &[pair()], &record(None, Some(&value), &[]));

    assert_eq!(event, Ok(Event::Truncate { table: pair(), xid: EventXid::Known(7) }));
}

#[test]
fn a_field_that_is_missing_is_absent_and_a_key_column_comes_from_the_key() {
    let wide = shape("inv.uu2", &[("id", "bigint"), ("v", "text"), ("w", "text")], &["id"]);
    let value = format!(r#"{{"after":{{"w":"x"}},{SOURCE},"op":"c"}}"#);

    let Ok(Event::Row(row)) = decode_one("x", &[wide], &record(Some(r#"{"id":1}"#), Some(&value), &[])) else {
        panic!()
    };

    assert_eq!(row.op, RowOp::Upsert(vec![Value::Int(1), Value::Absent, Value::Text("x".into())].into()));
}

#[test]
fn generated_columns_are_left_to_the_sink() {
    let mut shape = (*pair()).clone();
    shape.columns[1].generated = true;
    let value = format!(r#"{{"after":{{"id":1,"v":"x"}},{SOURCE},"op":"c"}}"#);

    let event = decode_one("x", &[shape.into()], &record(Some(r#"{"id":1}"#), Some(&value), &[]));

    let Ok(Event::Row(row)) = event else { panic!("{event:?}") };
    assert_eq!(row.op, RowOp::Upsert(vec![Value::Int(1), Value::Absent].into()));
}

fn flattened(headers: &[(&str, &str)], more: &str) -> RowEvent {
    let value = format!(r#"{{"id":1,"v":"x"{more}}}"#);
    let event = decode_one("srv.inv.uu2", &[pair()], &record(Some(r#"{"id":1}"#), Some(&value), headers));
    let Ok(Event::Row(row)) = event else { panic!("{event:?}") };
    row
}

#[test]
fn flattened_rows_have_their_transaction_in_a_field_or_header() {
    let field = flattened(&[], r#","__txId":7"#);
    let source_field = flattened(&[], r#","__source_txId":8"#);
    let header = flattened(&[("__source_txId", "9")], "");
    let incremental = flattened(&[], r#","__txId":null"#);
    let nowhere = flattened(&[], "");

    let xids = [&field, &source_field, &header, &incremental, &nowhere].map(|row| row.xid);
    let known = EventXid::Known;
    assert_eq!(xids, [known(7), known(8), known(9), EventXid::Exempt, EventXid::Unknown]);
}

#[test]
fn flattened_rows_are_of_the_table_that_they_name_before_the_topics() {
    let value = r#"{"id":1,"v":"x","__table":"uu2","__schema":"inv","__db":"src","__name":"srv","__source_ts_ms":1700,"__txId":7}"#;

    let event = decode_one("merged", &[pair()], &record(Some(r#"{"id":1}"#), Some(value), &[]));

    let values = vec![Value::Int(1), Value::Text("x".into())];
    assert_eq!(event, Ok(row_event(1, EventXid::Known(7), RowOp::Upsert(values.into()))));
}

/// Written, it would be a row of nulls.
#[test]
fn a_row_without_any_column_of_its_table_is_bad() {
    let envelope = r#"{"before":null,"after":{},"source":{"schema":"inv","table":"uu2"},"op":"c"}"#;
    for value in ["{}", r#"{"__op":"u"}"#, envelope] {
        let event = decode_one("srv.inv.uu2", &[pair()], &record(Some(r#"{"id":1}"#), Some(value), &[]));

        let Err(DecodeError::Bad(bad)) = event else { panic!("{value}: {event:?}") };
        assert_eq!(bad.reason, "the row has none of the columns of inv.uu2");
    }
}

#[test]
fn flattened_rows_are_deletes_by_header_or_field() {
    for (headers, more) in [
        (&[][..], r#","__deleted":"true""#),
        (&[][..], r#","__deleted":true"#),
        (&[][..], r#","__op":"d""#),
        (&[("__op", "d")][..], ""),
    ] {
        assert_eq!(flattened(headers, more).op, RowOp::Delete, "{headers:?} {more}");
    }
    assert_ne!(flattened(&[("__op", "u")], r#","__deleted":"false""#).op, RowOp::Delete);
}

#[test]
fn a_sinks_own_column_with_underscores_is_written() {
    let shape = shape("inv.uu2", &[("id", "bigint"), ("__op", "text")], &["id"]);
    let record = record(Some(r#"{"id":1}"#), Some(r#"{"id":1,"__op":"u","__lsn":5}"#), &[]);

    let Ok(Event::Row(row)) = decode_one("srv.inv.uu2", &[shape], &record) else { panic!() };

    assert_eq!(row.op, RowOp::Upsert(vec![Value::Int(1), Value::Text("u".into())].into()));
}

#[test]
fn a_topic_whose_rows_do_not_say_their_table_is_a_matter_of_set_up() {
    let row = record(Some(r#"{"id":1}"#), Some(r#"{"id":1,"v":"x"}"#), &[]);

    let unnamed = decode_one("orders", &[pair()], &row);
    let mut settings = DecodeSettings::default();
    settings.mapping.assign("orders", &sink_api::TableName::new("inv", "uu2")).unwrap();
    let named = decoder(settings, "orders", &[pair()]).decode(&row);

    assert_eq!(
        unnamed,
        Err(DecodeError::Setup {
            table: None,
            reason: "topic `orders` carries flattened rows that do not say their table".to_owned(),
            hint:
                "start with --source-table orders=SCHEMA.TABLE, or have the connector say it (add.fields=schema,table)"
                    .to_owned(),
        })
    );
    assert!(matches!(named, Ok(Event::Row(_))), "{named:?}");
}

#[test]
fn a_tombstone_goes_to_the_table_of_the_delete_before_it() {
    let shapes = scenario_shapes();
    let mut one = decoder(DecodeSettings::default(), "one.all", &shapes);
    let mut tombstones = Vec::new();
    for (_, _, record) in fixture("debezium-3.6.1/one.jsonl") {
        let is_tombstone = record.value.is_none();
        if let Event::Row(row) = decode(&mut one, &record)
            && is_tombstone
        {
            tombstones.push((row.table.name.name.clone(), row.op, row.xid));
        }
    }

    let tables = ["big", "comp", "comp", "uu", "big", "comp", "uu", "big"];
    assert_eq!(tombstones, tables.map(|table| (table.to_owned(), RowOp::Delete, EventXid::Exempt)));
}

#[test]
fn a_tombstone_in_a_shared_topic_that_could_be_of_any_table_is_bad() {
    let mut one = decoder(DecodeSettings::default(), "one.all", &scenario_shapes());
    let row = format!(r#"{{"after":{{"id":1}},{},"op":"c"}}"#, SOURCE.replace("uu2", "big"));
    decode(&mut one, &record(Some(r#"{"id":1}"#), Some(&row), &[]));

    let error = one.decode(&record(Some(r#"{"id":1}"#), None, &[])).unwrap_err();

    let DecodeError::Bad(bad) = error else { panic!("{error:?}") };
    assert_eq!((bad.table, bad.key), (None, None));
    assert!(bad.reason.starts_with("the tombstone does not say its table"), "{}", bad.reason);
}

#[test]
fn the_key_of_a_merged_topic_names_its_table() {
    let key = r#"{"id":2,"__dbz__physicalTableIdentifier":"srv.inv.uu2"}"#;

    let event = decode_one("all", &[pair()], &record(Some(key), None, &[]));

    let Ok(Event::Row(row)) = event else { panic!("{event:?}") };
    assert_eq!((row.table, row.key, row.op), (pair(), int_key(2), RowOp::Delete));
}

#[test]
fn json_null_in_place_of_a_value_is_a_tombstone() {
    let wrapped = r#"{"schema":{"type":"struct","fields":[],"optional":true},"payload":null}"#;
    for value in ["null", " null ", wrapped, r#"{"schema":null,"payload":null}"#] {
        let event = decode_one("srv.inv.uu2", &[pair()], &record(Some(r#"{"id":2}"#), Some(value), &[]));

        let Ok(Event::Row(row)) = event else { panic!("{value}: {event:?}") };
        assert_eq!((row.key, row.op), (int_key(2), RowOp::Delete), "{value}");
    }
}

#[test]
fn a_bare_key_is_the_value_of_the_one_key_column() {
    let with_schema = r#"{"schema":{"type":"int64","optional":false},"payload":3}"#;
    for key in ["3", with_schema] {
        let event = decode_one("srv.inv.uu2", &[pair()], &record(Some(key), None, &[]));

        let Ok(Event::Row(row)) = event else { panic!("{event:?}") };
        assert_eq!(row.key, int_key(3), "{key}");
    }
}

#[test]
fn a_table_with_columns_schema_and_payload_is_a_table() {
    let shape = shape("inv.uu2", &[("schema", "text"), ("payload", "text")], &["schema"]);
    let record = record(Some(r#"{"schema":"a"}"#), Some(r#"{"schema":"a","payload":"b"}"#), &[]);

    let event = decode_one("srv.inv.uu2", &[shape], &record);

    let Ok(Event::Row(row)) = event else { panic!("{event:?}") };
    assert_eq!(row.op, RowOp::Upsert(vec![Value::Text("a".into()), Value::Text("b".into())].into()));
}

#[test]
fn forms_may_change_from_record_to_record() {
    let of = |file: &str| {
        let topic = format!("{file}.inv.uu");
        let records = fixture(&format!("debezium-3.6.1/{file}.jsonl")).into_iter();
        let rows = records.filter(|(own, _, record)| *own == topic && record.value.is_some());
        rows.map(|(.., record)| record).collect::<Vec<_>>()
    };
    let mut decoder = decoder(DecodeSettings::default(), "x", &scenario_shapes());
    let mut decode = |record: &crate::record::Record| match decode(&mut decoder, record) {
        Event::Row(row) => (row.key, format!("{:?}", row.op)),
        event => panic!("{event:?}"),
    };

    let (mut with, mut without) = (Vec::new(), Vec::new());
    for (on, off) in of("on").iter().zip(&of("off")) {
        with.push(decode(on));
        without.push(decode(off));
    }
    with.sort();
    without.sort();

    // Four rows read, a key update's two halves, two updates, a delete.
    assert_eq!(with.len(), 9);
    assert_eq!(with, without);
}

#[test]
fn learning_a_table_again_replaces_its_shape() {
    let value = format!(r#"{{"after":{{"id":1,"v":"x","w":"y"}},{SOURCE},"op":"c"}}"#);
    let record = record(Some(r#"{"id":1}"#), Some(&value), &[]);
    let mut decoder = decoder(DecodeSettings::default(), "x", &[pair()]);

    let before = decoder.decode(&record).unwrap_err();
    decoder.learn(shape("inv.uu2", &[("id", "bigint"), ("v", "text"), ("w", "text")], &["id"]));
    let after = decoder.decode(&record);

    assert_eq!(
        before,
        DecodeError::Setup {
            table: Some(sink_api::TableName::new("inv", "uu2")),
            reason: "the sink table inv.uu2 lacks the column `w`".to_owned(),
            hint: "add it to the sink table, or start with --ignore-unknown-columns".to_owned(),
        }
    );
    assert!(after.is_ok(), "{after:?}");
}

#[test]
fn all_columns_that_the_sink_lacks_are_named_or_ignored_when_told_so() {
    let value = format!(r#"{{"after":{{"id":1,"a":1,"v":"x","b":2}},{SOURCE},"op":"c"}}"#);
    let record = record(Some(r#"{"id":1}"#), Some(&value), &[]);

    let refused = decode_one("x", &[pair()], &record);
    let ignored = decoder(DecodeSettings { ignore_unknown_columns: true, ..DecodeSettings::default() }, "x", &[pair()])
        .decode(&record);

    let Err(DecodeError::Setup { reason, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(reason, "the sink table inv.uu2 lacks the columns `a`, `b`");
    assert!(matches!(ignored, Ok(Event::Row(_))), "{ignored:?}");
}
