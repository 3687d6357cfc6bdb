//! The captured scenario, applied from each form of stream: in the end the rows are those that its SQL leaves.

use std::collections::{BTreeMap, HashMap};

use sink_api::{Key, KeyType, KeyValue, RowOp, Value};

use super::{decode, decoder, fixture, int_key, scenario_shapes};
use crate::decode::{DecodeSettings, Event, EventXid, OtherRecord, TableMapping};

type Rows = BTreeMap<Key, Vec<Value>>;

/// What a form of stream leaves out of the scenario.
#[derive(Clone, Copy, PartialEq)]
enum Lacks {
    Nothing,
    /// `ExtractNewRecordState` drops truncates.
    Truncates,
    /// `delete.tombstone.handling.mode=drop`.
    TruncatesAndDeletes,
}

/// Applies a capture's records, partition by partition, each with its own decoder.
fn apply(name: &str, settings: &DecodeSettings) -> BTreeMap<String, Rows> {
    let shapes = scenario_shapes();
    let mut decoders = HashMap::new();
    let mut tables: BTreeMap<String, Rows> = BTreeMap::new();
    let mut signals = 0;
    for (topic, partition, record) in fixture(name) {
        let decoder =
            decoders.entry((topic.clone(), partition)).or_insert_with(|| decoder(settings.clone(), &topic, &shapes));
        match decode(decoder, &record) {
            Event::Row(row) => {
                // Flattened rows do not say it.
                assert!(["", topic.split('.').next().unwrap()].contains(&&*row.source.connector));
                let rows = tables.entry(row.table.name.name.clone()).or_default();
                match row.op {
                    RowOp::Delete => drop(rows.remove(&row.key)),
                    RowOp::Upsert(values) => {
                        let merged = values.iter().enumerate().map(|(index, value)| match value {
                            Value::Absent => rows.get(&row.key).map_or(Value::Absent, |old| old[index].clone()),
                            Value::Unchanged => rows[&row.key][index].clone(),
                            value => value.clone(),
                        });
                        let merged = merged.collect();
                        rows.insert(row.key, merged);
                    }
                }
            }
            Event::Truncate { table, .. } => tables.entry(table.name.name.clone()).or_default().clear(),
            Event::Other(OtherRecord::Signal) => signals += 1,
            // The scenario's markers are made up; other tests look at them.
            Event::Damaged(_) => {}
            event => panic!("{event:?}"),
        }
    }
    assert!(signals > 0 || name.contains("fdrop") || name.contains("one"), "{name} has signal rows");
    tables
}

const HOUR_12: i64 = 1_709_208_000_000_000;

/// Row `g` of `inv.big` as the first INSERT makes it.
fn big(g: i64) -> Vec<Value> {
    vec![
        Value::Int(g),
        Value::Text(format!("name{g}").into()),
        Value::Decimal(format!("{}.{:02}", g * 125 / 100, g * 125 % 100).parse().unwrap()),
        Value::Bool(g % 2 == 0),
        Value::TimestampTz(HOUR_12 + g * 1_000_000),
        Value::Timestamp(HOUR_12 + 123_456 + g * 1_000_000),
        Value::Date(19_723 + g as i32),
        Value::Text(format!("{{\"g\": {g}}}").into()),
        Value::Bytes((g as u32).to_be_bytes().into()),
        Value::Array([Value::Int(g), Value::Null, Value::Int(-g)].into()),
        Value::Null,
    ]
}

fn sparse(id: i64, name: &str, price: Option<&str>, note: Value) -> Vec<Value> {
    let mut row = vec![Value::Null; 11];
    row[0] = Value::Int(id);
    row[1] = Value::Text(name.into());
    row[2] = price.map_or(Value::Null, |price| Value::Decimal(price.parse().unwrap()));
    row[10] = note;
    row
}

fn expected_big(lacks: Lacks) -> Rows {
    let mut rows: Vec<Vec<Value>> = (5..=8).map(big).collect();
    let mut first = big(1);
    first[2] = Value::Null;
    first[3] = Value::Null;
    first[7] = Value::Text("{\"k\": [1, 2, {\"z\": null}]}".into());
    first[8] = Value::Bytes([0x00, 0xff].into());
    first[9] = Value::Array([Value::Int(7), Value::Int(8)].into());
    first[10] = Value::Text("x".into());
    rows.push(first);
    let mut moved = big(2);
    moved[0] = Value::Int(102);
    rows.push(moved);
    rows.push(sparse(4, "reborn", None, Value::Null));
    // The capture's text is cut to its first 64 characters: md5('1') and md5('2').
    let note = "c4ca4238a0b923820dcc509a6f75849bc81e728d9d4c2f636f067f89cc14862c";
    rows.push(sparse(9, "toast-upd", Some("9.99"), Value::Text(note.into())));
    rows.push(sparse(20, "tx-after", Some("20.00"), Value::Null));
    rows.push(sparse(21, "after", Some("21.00"), Value::Null));
    if lacks == Lacks::TruncatesAndDeletes {
        rows.extend([big(2), big(3)]);
    }
    rows.into_iter().map(|row| (int_key(integer(&row[0])), row)).collect()
}

fn integer(value: &Value) -> i64 {
    let Value::Int(value) = value else { panic!("{value:?}") };
    *value
}

fn expected_comp(lacks: Lacks) -> Rows {
    let mut rows = vec![("post", 1, "after truncate")];
    if lacks != Lacks::Nothing {
        rows.extend([("k1", 101, "v1"), ("kX", 2, "v2"), ("k0", 3, "v3"), ("k2", 5, "v5"), ("k0", 6, "v6")]);
        rows.push(("é\"\\ x", 7, "upd"));
    }
    if lacks == Lacks::TruncatesAndDeletes {
        rows.extend([("k1", 1, "v1"), ("k2", 2, "v2"), ("k1", 4, "v4")]);
    }
    let row = |(a, b, v): (&str, i64, &str)| {
        let key = [KeyValue::Text(a.into()), KeyValue::Int(b)];
        let key = Key::encode(&[KeyType::Text, KeyType::Int], &key).unwrap();
        (key, vec![Value::Text(a.into()), Value::Int(b), Value::Text(v.into())])
    };
    rows.into_iter().map(row).collect()
}

fn expected_uu(lacks: Lacks) -> Rows {
    let id = |last: u8| {
        let mut id = [0; 16];
        (id[6], id[8], id[15]) = (0x40, 0x80, last);
        id
    };
    let mut moved = id(1);
    moved[..4].fill(0xff);
    let mut rows = vec![
        (moved, "u1", "1.00", Value::Absent),
        (id(2), "u2", "-12.30", Value::Absent),
        (id(4), "u4b", "4.00", Value::Int(5)),
    ];
    if lacks == Lacks::TruncatesAndDeletes {
        rows.extend([(id(1), "u1", "1.00", Value::Absent), (id(3), "u3", "3.00", Value::Absent)]);
    }
    let row = |(id, v, n, extra): ([u8; 16], &str, &str, Value)| {
        let key = Key::encode(&[KeyType::Uuid], &[KeyValue::Uuid(id)]).unwrap();
        (key, vec![Value::Uuid(id), Value::Text(v.into()), Value::Decimal(n.parse().unwrap()), extra])
    };
    rows.into_iter().map(row).collect()
}

fn check(name: &str, lacks: Lacks) {
    let tables = apply(&format!("debezium-3.6.1/{name}.jsonl"), &DecodeSettings::default());

    assert_eq!(tables["big"], expected_big(lacks), "big from {name}");
    assert_eq!(tables["uu"], expected_uu(lacks), "uu from {name}");
    if matches!(name, "off" | "on") {
        // The truncate has no key: which rows of other partitions came before it cannot be told.
        assert!(tables["comp"].len() > expected_comp(lacks).len());
    } else {
        assert_eq!(tables["comp"], expected_comp(lacks), "comp from {name}");
    }
}

#[test]
fn envelopes_without_schemas_leave_the_source_rows() {
    check("off", Lacks::Nothing);
}

#[test]
fn envelopes_with_schemas_leave_the_source_rows() {
    check("on", Lacks::Nothing);
}

#[test]
fn all_tables_in_one_topic_leave_the_source_rows() {
    check("one", Lacks::Nothing);
}

#[test]
fn flattened_rows_with_tombstones_leave_the_source_rows_but_for_the_truncate() {
    check("ftomb", Lacks::Truncates);
}

#[test]
fn flattened_rows_with_rewritten_deletes_leave_the_source_rows_but_for_the_truncate() {
    check("frew", Lacks::Truncates);
}

#[test]
fn flattened_rows_with_both_kinds_of_deletes_leave_the_source_rows_but_for_the_truncate() {
    check("frewt", Lacks::Truncates);
}

#[test]
fn flattened_rows_whose_deletes_are_dropped_leave_orphans() {
    check("fdrop", Lacks::TruncatesAndDeletes);
}

#[test]
fn transactions_are_known_from_envelopes_and_exempt_for_tombstones_and_incremental_snapshots() {
    let shapes = scenario_shapes();
    let mut seen = Vec::new();
    let mut big = decoder(DecodeSettings::default(), "off.inv.big", &shapes);
    for (topic, partition, record) in fixture("debezium-3.6.1/off.jsonl") {
        if topic == "off.inv.big"
            && partition == 2
            && let Event::Row(row) = decode(&mut big, &record)
        {
            seen.push((row.key, row.xid));
        }
    }

    let known = |id, xid| (int_key(id), EventXid::Known(xid));
    let exempt = |id| (int_key(id), EventXid::Exempt);
    assert_eq!(
        seen,
        [
            known(4, 753),
            known(5, 753),
            known(102, 769),
            known(4, 778),
            exempt(4),
            known(4, 778),
            exempt(5),
            exempt(102)
        ]
    );
}

#[test]
fn both_halves_of_a_key_update_name_the_other_key() {
    let shapes = scenario_shapes();
    for (name, halves) in [("off", 3), ("on", 3), ("frew", 2), ("frewt", 3), ("ftomb", 2), ("fdrop", 1)] {
        let mut decoders = HashMap::new();
        let mut others = Vec::new();
        for (topic, partition, record) in fixture(&format!("debezium-3.6.1/{name}.jsonl")) {
            let decoder = decoders
                .entry((topic.clone(), partition))
                .or_insert_with(|| decoder(DecodeSettings::default(), &topic, &shapes));
            if topic.ends_with(".big")
                && let Event::Row(row) = decode(decoder, &record)
                && let Some(other) = row.other_key
            {
                others.push((row.key, other));
            }
        }
        others.sort();

        let mut expected = vec![(int_key(2), int_key(102)); halves - 1];
        expected.push((int_key(102), int_key(2)));
        assert_eq!(others, expected, "{name}");
    }
}

#[test]
fn a_lane_asks_for_each_table_once_and_goes_on() {
    let shapes = scenario_shapes();
    let mapping = TableMapping::parse("copy.{table}").unwrap();
    let mut decoder = decoder(DecodeSettings { mapping, ..DecodeSettings::default() }, "one.all", &[]);
    let mut asked = Vec::new();
    for (_, _, record) in fixture("debezium-3.6.1/one.jsonl") {
        if let Err(crate::decode::DecodeError::NeedsTable { table: name, .. }) = decoder.decode(&record) {
            let mut shape = (**shapes.iter().find(|shape| shape.name.name == name.name).unwrap()).clone();
            shape.name = name.clone();
            decoder.learn(shape.into());
            asked.push(name.to_string());
            decode(&mut decoder, &record);
        }
    }

    assert_eq!(asked, ["copy.big", "copy.comp", "copy.uu"]);
}
