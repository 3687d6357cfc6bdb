//! Nothing that stands in a topic makes decoding panic, and schemas change nothing about a row.

use proptest::prelude::*;

use super::{decoder, record, scenario_shapes};
use crate::{decode::DecodeSettings, record::Record};

/// JSON of any shape, with the names that decoding looks for.
fn json() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "before",
        "after",
        "source",
        "op",
        "schema",
        "payload",
        "id",
        "name",
        "price",
        "ts",
        "tstz",
        "d",
        "js",
        "by",
        "ia",
        "note",
        "table",
        "txId",
        "type",
        "fields",
        "field",
        "message",
        "prefix",
        "content",
        "kind",
        "read_id",
        "range",
        "lower",
        "upper",
        "key",
        "inclusive",
        "open",
        "selected",
        "changed",
        "intervals",
        "encoded",
        "parameters",
        "items",
        "__deleted",
        "__table",
        "__schema",
        "x",
    ]);
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<i64>().prop_map(|value| value.to_string()),
        any::<f64>().prop_map(|value| if value.is_finite() { value.to_string() } else { "1e999".to_owned() }),
        "\\PC{0,12}".prop_map(|text| serde_json::Value::from(text).to_string()),
        prop::sample::select(vec![
            "\"c\"",
            "\"u\"",
            "\"d\"",
            "\"m\"",
            "\"t\"",
            "\"absent\"",
            "\"big\"",
            "\"inv\"",
            "\"struct\"",
            "\"sink-repair\"",
            "\"__debezium_unavailable_value\"",
            "\"AQ==\"",
            "\"infinity\"",
            "-0",
            "1E400",
            "123456789012345678901234567890",
            "\"2024-02-29T11:14:15.123456Z\"",
            "\"-0043-03-15\"",
            "\"P1Y\"",
            "\"\\ud800\"",
            "{\"open\":true}",
        ])
        .prop_map(str::to_owned),
    ];
    leaf.prop_recursive(5, 48, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::vec((name.clone(), inner), 0..10).prop_map(|fields| {
                let fields: Vec<_> = fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

/// An envelope of a row, so that values are reached.
fn envelope() -> impl Strategy<Value = String> {
    (json(), json()).prop_map(|(after, other)| {
        format!(
            r#"{{"before":{other},"after":{after},"source":{{"name":"srv","schema":"inv","table":"big","txId":7}},"op":"c"}}"#
        )
    })
}

fn headers() -> impl Strategy<Value = Vec<(String, Option<Box<[u8]>>)>> {
    let header = (
        prop::sample::select(vec![
            "sink-repair.kind",
            "dblog.record",
            "dblog.op",
            "dblog.table",
            "dblog.read_id",
            "__op",
            "__txId",
            "__debezium.newkey",
        ]),
        prop::option::of(prop::sample::select(vec![
            "low",
            "chunk",
            "keys",
            "chunk-info",
            "absent",
            "inv.big",
            "{\"id\":1}",
            "d",
        ])),
    );
    prop_oneof![
        3 => Just(Vec::new()),
        1 => prop::collection::vec(header, 1..4).prop_map(|headers| {
            let bytes = |value: Option<&str>| value.map(|value| value.as_bytes().into());
            headers.into_iter().map(|(name, value)| (name.to_owned(), bytes(value))).collect()
        }),
    ]
}

fn decode_all(records: &[Record]) {
    let settings = DecodeSettings { ignore_unknown_columns: true, ..DecodeSettings::default() };
    let mut decoder = decoder(settings, "srv.inv.big", &scenario_shapes());
    for record in records {
        let _ = decoder.decode(record);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_json_never_panics(
        key in prop::option::of(json()),
        values in prop::collection::vec(prop::option::of(prop_oneof![json(), envelope()]), 1..4),
        headers in headers(),
    ) {
        let records: Vec<Record> = values
            .iter()
            .map(|value| Record { headers: headers.clone(), ..record(key.as_deref(), value.as_deref(), &[]) })
            .collect();

        decode_all(&records);
    }

    #[test]
    fn random_bytes_never_panic(key in any::<Vec<u8>>(), value in any::<Vec<u8>>(), headers in headers()) {
        let mut record = record(None, None, &[]);
        record.headers = headers;
        record.key = Some(key.into());
        record.value = Some(value.into());

        decode_all(&[record]);
    }

    #[test]
    fn cut_and_changed_records_never_panic(
        which in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        thread_local! {
            static RECORDS: Vec<Record> = ["debezium-3.6.1/on.jsonl", "debezium-3.6.1/off.jsonl", "debezium-3.6.3/03-special-values.jsonl"]
                .iter()
                .flat_map(|name| super::fixture(name))
                .map(|(.., record)| record)
                .filter(|record| record.value.is_some())
                .collect();
        }
        RECORDS.with(|records| {
            let whole = &records[which.index(records.len())];
            let value = whole.value.as_deref().unwrap();
            let mut changed = value.to_vec();
            changed[at.index(value.len())] = byte;
            let short = value[..cut.index(value.len())].to_vec();
            let with = |value: Vec<u8>| Record { value: Some(value.into()), ..whole.clone() };

            decode_all(&[whole.clone(), with(short), with(changed)]);
        });
    }

    #[test]
    fn a_schema_changes_nothing_about_a_row(id in any::<i64>(), name in "\\PC{0,20}", ok in any::<Option<bool>>(), micros in -9_000_000_000_000_000_i64..9_000_000_000_000_000) {
        let schema = r#"{"type":"struct","fields":[{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"},{"type":"string","optional":true,"field":"name"},{"type":"boolean","optional":true,"field":"ok"},{"type":"int64","optional":true,"name":"io.debezium.time.MicroTimestamp","version":1,"field":"ts"}],"optional":true,"field":"after"}],"optional":false}"#;
        let row = serde_json::json!({"id": id, "name": name, "ok": ok, "ts": micros});
        let payload = format!(r#"{{"after":{row},"source":{{"name":"srv","schema":"inv","table":"big","txId":7}},"op":"c"}}"#);
        let wrapped = format!(r#"{{"schema":{schema},"payload":{payload}}}"#);
        let key = format!(r#"{{"id":{id}}}"#);
        let mut decoder = decoder(DecodeSettings::default(), "srv.inv.big", &scenario_shapes());

        let without = decoder.decode(&record(Some(&key), Some(&payload), &[]));
        let first = decoder.decode(&record(Some(&key), Some(&wrapped), &[]));
        let remembered = decoder.decode(&record(Some(&key), Some(&wrapped), &[]));

        prop_assert!(without.is_ok(), "{:?}", without);
        prop_assert_eq!(&first, &without);
        prop_assert_eq!(&remembered, &without);
    }
}
