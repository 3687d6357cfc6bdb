//! Markers, chunk info records and absence events that are sound.

use base64::{Engine, engine::general_purpose::STANDARD};
use sink_api::{KeyBound, KeyList, KeyRange, KeySet, ReadId, SourceName, StatementKind};

use super::{decode, decode_one, decoder, int_key, record, scenario_shapes, shape};
use crate::decode::{Claim, DecodeSettings, Event, OtherRecord, Part, ReadName, Snapshot, sign};

pub const LOW: &str = r#"{"v":1,"kind":"low","read_id":"r-1","table":"inv.big","topic":"rr.inv.big"}"#;

pub const CHUNK: &str = r#"{"v":1,"kind":"chunk","read_id":"r-1","table":"inv.big","topic":"rr.inv.big","part":1,"parts":2,"range":{"lower":{"open":true},"upper":{"key":10,"inclusive":true}},"selected":[1,2,3],"key_types":["bigint"],"key_order":"bytes","snapshot":"983:991:983,985","settled":true,"confirmed":{"max_removals":500},"x_note":"of the writer's own"}"#;

pub const KEYS: &str = r#"{"v":1,"kind":"keys","read_id":"r-2","table":"inv.big","topic":"rr.inv.big","part":1,"parts":1,"asked":[12,7,4],"present":[12],"key_types":["bigint"],"snapshot":"983:991:","settled":false}"#;

pub const CHUNK_INFO: &str = r#"{"table":"inv.big","read_id":"snap-01-chunk-01","range":{"lower":{"key":0,"inclusive":false},"upper":{"key":10,"inclusive":true}},"selected":{"intervals":[[1,3],[5,6]]},"changed":[9],"rows":7}"#;

/// Wraps a payload as PostgreSQL's connector does.
pub fn envelope(payload: &str) -> String {
    envelope_of("sink-repair.0", &STANDARD.encode(payload))
}

fn envelope_of(prefix: &str, content: &str) -> String {
    format!(
        r#"{{"op":"m","ts_ms":1796014136064,"source":{{"version":"3.6.1.Final","connector":"postgresql","name":"rr","ts_ms":1796014136057,"snapshot":null,"db":"src","sequence":"[null,\"26573624\"]","schema":"","table":"","txId":762,"lsn":26573624}},"transaction":null,"message":{{"prefix":"{prefix}","content":"{content}"}}}}"#
    )
}

fn in_envelope(payload: &str) -> Event {
    let record = record(Some(r#"{"prefix":"sink-repair.0"}"#), Some(&envelope(payload)), &[]);
    placeless(decode_one("rr.inv.big", &scenario_shapes(), &record).unwrap())
}

/// Leaves out which connector and database an event names.
fn placeless(mut event: Event) -> Event {
    let read = match &mut event {
        Event::Low(read) => read,
        Event::Part(part) => &mut part.claim.read,
        _ => return event,
    };
    read.source = SourceName::of_table(&read.source.table);
    event
}

#[test]
fn a_statement_is_of_the_connector_that_its_record_names() {
    let source = |record: &crate::record::Record| match decode_one("rr.inv.big", &scenario_shapes(), record).unwrap() {
        Event::Low(read) => read.source.to_string(),
        event => panic!("{event:?}"),
    };
    let named = LOW.replace("\"v\":1", "\"v\":1,\"connector\":\"rr\"");
    let routed = [("sink-repair.kind", "low")];
    let header = [("sink-repair.kind", "low"), ("__debezium.context.connectorLogicalName", "rr")];

    for (record, expected) in [
        (record(None, Some(&envelope(LOW)), &[]), "rr/src/inv.big"),
        (record(None, Some(&named), &routed), "rr/inv.big"),
        (record(None, Some(LOW), &header), "rr/inv.big"),
        (record(None, Some(LOW), &routed), "inv.big"),
    ] {
        assert_eq!(source(&record), expected);
    }
}

fn keys(keys: &[i64]) -> KeyList {
    keys.iter().map(|key| int_key(*key)).collect::<Vec<_>>().iter().collect()
}

fn read(read_id: &str) -> ReadName {
    ReadName {
        read_id: ReadId(read_id.to_owned()),
        source: SourceName::of_table("inv.big"),
        table: scenario_shapes().remove(0),
    }
}

fn chunk() -> Event {
    Event::Part(Box::new(Part {
        claim: Claim {
            read: read("r-1"),
            kind: StatementKind::Chunk,
            range: KeyRange { lower: KeyBound::Open, upper: KeyBound::Inclusive(int_key(10)) },
            snapshot: Some(Snapshot { xmin: 983, xmax: 991, running: vec![983, 985] }),
            settled: true,
            confirmed: Some(500),
            rows: None,
            key_types: Some(vec!["bigint".to_owned()]),
            byte_order: true,
        },
        part: 1,
        parts: 2,
        asked: KeyList::new(),
        selected: KeySet::List(keys(&[1, 2, 3])),
        changed: KeySet::List(KeyList::new()),
    }))
}

#[test]
fn a_low_marker_names_its_read() {
    assert_eq!(in_envelope(LOW), Event::Low(read("r-1")));
}

#[test]
fn a_chunk_marker_is_a_part_of_a_statement() {
    assert_eq!(in_envelope(CHUNK), chunk());
}

#[test]
fn a_keys_marker_keeps_the_order_in_which_keys_were_asked_for() {
    let Event::Part(part) = in_envelope(KEYS) else { panic!() };

    assert_eq!((part.claim.kind, part.claim.range), (StatementKind::Keys, KeyRange::ALL));
    assert_eq!(part.asked, keys(&[12, 7, 4]));
    assert_eq!(part.selected, KeySet::List(keys(&[12])));
}

#[test]
fn the_outbox_form_is_a_string_or_an_object_with_or_without_schema() {
    let string = serde_json::Value::from(CHUNK).to_string();
    let with_schema = |schema: &str, payload: &str| format!(r#"{{"schema":{schema},"payload":{payload}}}"#);
    for value in [
        string.clone(),
        CHUNK.to_owned(),
        with_schema(r#"{"type":"string","optional":true}"#, &string),
        with_schema(r#"{"type":"struct","fields":[],"optional":true}"#, CHUNK),
    ] {
        for kind in ["chunk", "\"chunk\""] {
            let record = record(Some("\"r-1.chunk\""), Some(&value), &[("sink-repair.kind", kind), ("id", "m1")]);

            assert_eq!(decode_one("rr.inv.big", &scenario_shapes(), &record), Ok(chunk()), "{value}");
        }
    }
}

#[test]
fn content_in_another_binary_mode_is_read() {
    for (mode, content) in
        [("hex", hex::encode(LOW)), ("base64", STANDARD.encode(LOW)), ("bytes", STANDARD.encode(LOW))]
    {
        let mut settings = DecodeSettings::default();
        settings.modes.binary = mode.parse().unwrap();
        let mut decoder = decoder(settings, "rr.inv.big", &scenario_shapes());

        let event = decode(&mut decoder, &record(None, Some(&envelope_of("sink-repair", &content)), &[]));

        assert_eq!(placeless(event), Event::Low(read("r-1")), "{mode}");
    }
}

#[test]
fn messages_of_other_prefixes_are_none_of_ours() {
    for prefix in ["sink-repairs", "sr", "x.sink-repair"] {
        let record = record(None, Some(&envelope_of(prefix, &STANDARD.encode(LOW))), &[]);

        assert_eq!(decode_one("rr.inv.big", &[], &record), Ok(Event::Other(OtherRecord::Message)), "{prefix}");
    }
}

#[test]
fn a_payload_without_its_forms_mark_is_no_marker() {
    let event = decode_one("rr.inv.big", &scenario_shapes(), &record(Some(r#"{"id":1}"#), Some(CHUNK), &[]));

    assert!(event.is_err(), "{event:?}");
}

#[test]
fn a_chunk_info_record_is_marked_by_its_header_or_comes_as_a_message() {
    let by_header = record(None, Some(CHUNK_INFO), &[("dblog.record", "chunk-info")]);

    let event = decode_one("rr.inv.big", &scenario_shapes(), &by_header).unwrap();

    assert_eq!(event, in_envelope(CHUNK_INFO));
    let Event::Part(part) = event else { panic!("{event:?}") };
    assert_eq!(
        *part,
        Part {
            claim: Claim {
                read: read("snap-01-chunk-01"),
                kind: StatementKind::ChunkInfo,
                range: KeyRange { lower: KeyBound::Exclusive(int_key(0)), upper: KeyBound::Inclusive(int_key(10)) },
                snapshot: None,
                settled: false,
                confirmed: None,
                rows: Some(7),
                key_types: None,
                byte_order: false,
            },
            part: 1,
            parts: 1,
            asked: KeyList::new(),
            selected: KeySet::Intervals(vec![(1, 3), (5, 6)]),
            changed: KeySet::List(keys(&[9])),
        }
    );
}

#[test]
fn an_advisory_record_is_for_sidecars() {
    let payload = CHUNK_INFO.replace("\"rows\":7", "\"advisory\":true");

    assert_eq!(in_envelope(&payload), Event::Other(OtherRecord::Advisory));
}

#[test]
fn keys_come_in_three_forms() {
    let encoded = [1, 2, 3].map(|key| format!("\"{}\"", hex::encode(int_key(key).as_bytes()))).join(",");
    for selected in ["[1,2,3]".to_owned(), format!(r#"{{"encoded":[{encoded}]}}"#)] {
        let event = in_envelope(&CHUNK.replace("[1,2,3]", &selected));

        assert_eq!(event, chunk(), "{selected}");
    }
}

#[test]
fn keys_of_several_columns_are_arrays_or_objects() {
    let payload = |selected: &str| {
        format!(
            r#"{{"table":"inv.comp","read_id":"r","range":{{"lower":{{"key":["k0",3],"inclusive":true}},"upper":{{"key":{{"b":7,"a":"é\"\\ x"}},"inclusive":true}}}},"selected":{selected},"changed":[],"key_order":"bytes","key_columns":["a","b"]}}"#
        )
    };

    let arrays = in_envelope(&payload(r#"[["k0",3],["k0",6],["é\"\\ x",7]]"#));
    let objects = in_envelope(&payload(r#"[{"a":"k0","b":3},{"b":6,"a":"k0"},{"a":"é\"\\ x","b":7}]"#));

    assert_eq!(arrays, objects);
    let Event::Part(part) = arrays else { panic!("{arrays:?}") };
    // The keys of the rows themselves.
    let shapes = scenario_shapes();
    let row_keys: Vec<_> = [r#"{"a":"k0","b":3}"#, r#"{"a":"k0","b":6}"#, r#"{"a":"é\"\\ x","b":7}"#]
        .iter()
        .map(|key| match decode_one("x.inv.comp", &shapes, &record(Some(key), None, &[])) {
            Ok(Event::Row(row)) => row.key,
            event => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(part.selected, KeySet::List(row_keys.iter().collect()));
}

/// For each type: the column, the source's type, a key as PostgreSQL's `to_json` writes it, the same in a record's key.
const SAME_KEYS: [(&str, &str, &str, &str); 17] = [
    ("bigint", "bigint", "-9223372036854775808", "-9223372036854775808"),
    ("oid", "oid", "4294967295", "4294967295"),
    ("oid", "oid", "\"4294967295\"", "4294967295"),
    ("bigint", "oid", "4294967295", "4294967295"),
    ("bigint", "oid", "\"4294967295\"", "4294967295"),
    ("numeric", "numeric", "123456789012345678901234567890.5", r#"{"scale":1,"value":"D5Uan6OihslPDnZsOQ=="}"#),
    ("numeric(10,2)", "numeric(10,2)", "-12.30", "\"+zI=\""),
    ("numeric(10,2)", "numeric(10,2)", "\"-12.3\"", "\"+zI=\""),
    ("boolean", "boolean", "true", "true"),
    ("text", "text", "\"\u{e9}\\u0001\"", "\"\u{e9}\\u0001\""),
    ("bytea", "bytea", r#""\\x00ff10""#, "\"AP8Q\""),
    ("uuid", "uuid", "\"11111111-2222-3333-4444-555555555555\"", "\"11111111-2222-3333-4444-555555555555\""),
    ("date", "date", "\"2024-02-29\"", "19782"),
    ("time", "time without time zone", "\"13:14:15.123456\"", "47655123456"),
    ("timestamp", "timestamp without time zone", "\"2024-02-29T13:14:15.123456\"", "1709212455123456"),
    ("timestamp(3)", "timestamp(3) without time zone", "\"2024-02-29T13:14:15.123\"", "1709212455123"),
    (
        "timestamptz",
        "timestamp with time zone",
        "\"2024-02-29T13:14:15.123456+02:00\"",
        "\"2024-02-29T11:14:15.123456Z\"",
    ),
];

#[test]
fn a_key_in_a_statement_is_the_key_of_its_row() {
    for (column, source, in_marker, in_record) in SAME_KEYS {
        let shape = shape("inv.k", &[("id", column)], &["id"]);
        let payload = format!(
            r#"{{"table":"inv.k","read_id":"r","range":{{"lower":{{"open":true}},"upper":{{"open":true}}}},"selected":[{in_marker}],"changed":[],"key_order":"bytes","key_types":["{source}"]}}"#
        );
        let mut decoder = decoder(DecodeSettings::default(), "srv.inv.k", &[shape]);

        let row = decode(&mut decoder, &record(Some(&format!(r#"{{"id":{in_record}}}"#)), None, &[]));
        let statement = decode(&mut decoder, &record(None, Some(&payload), &[("dblog.record", "chunk-info")]));

        let (Event::Row(row), Event::Part(part)) = (row, &statement) else { panic!("{column}: {statement:?}") };
        assert_eq!(part.selected, KeySet::List([&row.key].into_iter().collect()), "{column}");
    }
}

#[test]
fn an_absence_event_is_a_tombstone_with_headers_or_an_envelope() {
    let headers = [("dblog.op", "absent"), ("dblog.table", "inv.big"), ("dblog.read_id", "v-1")];
    let envelope = |op: &str| {
        format!(
            r#"{{"before":null,"after":null,"source":{{"name":"rr","db":"src","schema":"inv","table":"big","txId":9}},"op":"{op}","read_id":"v-1"}}"#
        )
    };
    let expected = Event::Part(Box::new(Part {
        claim: Claim {
            read: read("v-1"),
            kind: StatementKind::Absence,
            range: KeyRange::ALL,
            snapshot: None,
            settled: false,
            confirmed: None,
            rows: None,
            key_types: None,
            byte_order: false,
        },
        part: 1,
        parts: 1,
        asked: keys(&[4]),
        selected: KeySet::List(KeyList::new()),
        changed: KeySet::List(KeyList::new()),
    }));
    // The outbox router infers the key's schema when schemas are on.
    let inferred = r#"{"schema":{"type":"struct","fields":[{"type":"int64","optional":true,"field":"id"}],"optional":false,"name":"key"},"payload":{"id":4}}"#;

    for (key, value, headers) in [
        (r#"{"id":4}"#, None, &headers[..]),
        (inferred, None, &headers[..]),
        (r#"{"id":4}"#, Some(envelope("absent")), &headers[..]),
        (r#"{"id":4}"#, Some(envelope("d")), &headers[..]),
        (r#"{"id":4}"#, Some(envelope("absent")), &[][..]),
    ] {
        let event = decode_one("rr.inv.big", &scenario_shapes(), &record(Some(key), value.as_deref(), headers));

        assert_eq!(event.map(placeless), Ok(expected.clone()), "{key} {value:?}");
    }
}

fn signed_only() -> DecodeSettings {
    DecodeSettings { marker_key: Some(b"secret".to_vec()), ..DecodeSettings::default() }
}

#[test]
fn a_signed_marker_is_taken_where_signatures_are_asked_for() {
    // python3: hmac.new(b"secret", json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode(), "sha256")
    const MAC: &str = "85199c32600d52f83cc7720cb08b0472bd5136e3e09a61bdc3917ae1ed483140";
    let spaced = LOW.replace("\"v\":1,", "\"v\" : 1,\n ").replace('}', &format!(",\"mac\":\"{MAC}\"}}"));
    let mut decoder = decoder(signed_only(), "rr.inv.big", &scenario_shapes());

    let event = decode(&mut decoder, &record(None, Some(&envelope(&spaced)), &[]));

    assert_eq!(sign(b"secret", LOW).as_deref(), Some(MAC));
    assert_eq!(placeless(event), Event::Low(read("r-1")));
}

#[test]
fn the_canonical_form_is_pythons() {
    const PAYLOAD: &str =
        r#"{ "z": [1, -2.50, 1e3, {"b": null, "a": true}], "é": "\u00e9\n\u001f\"\\\/", "a": {} , "mac": "x"}"#;

    assert_eq!(
        sign(b"secret", PAYLOAD).as_deref(),
        Some("f3f00f6340d4ad0b7c3532e39855cea7e6f1ec37e116e28395047cbbae4b2894")
    );
}
