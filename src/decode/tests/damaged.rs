//! Damaged statements and markers: each is refused by the rule that it breaks, with what is wrong and no key of it.

use sink_api::{NotNative, ReadId, Rule, StatementKind};

use super::{
    decode_one, decoder, fixture,
    markers::{CHUNK, CHUNK_INFO, KEYS, LOW, envelope},
    record, scenario_shapes, shape,
};
use crate::{
    decode::{Damaged, DecodeSettings, Event, TimeMode},
    record::Record,
};

fn damage(record: &Record) -> Damaged {
    match decode_one("rr.inv.big", &scenario_shapes(), record) {
        Ok(Event::Damaged(damaged)) => damaged,
        event => panic!("{event:?}"),
    }
}

fn message(payload: &str) -> Record {
    record(Some(r#"{"prefix":"sink-repair"}"#), Some(&envelope(payload)), &[])
}

/// The payload, what to replace in it, by what; the rule and the reason.
const PAYLOADS: &[(&str, &str, &str, Rule, &str)] = &[
    (LOW, r#","topic":"rr.inv.big""#, "", Rule::Whole, "field `topic` is missing"),
    (
        LOW,
        r#""rr.inv.big""#,
        r#""rr.inv.small""#,
        Rule::OneStream,
        "field `topic`: the record is meant for topic `rr.inv.small` and stands in `rr.inv.big`",
    ),
    (LOW, r#""rr.inv.big""#, "5", Rule::Whole, "field `topic` is not text"),
    (LOW, r#""v":1"#, r#""v":2"#, Rule::Whole, "field `v`: this version of the protocol is not known"),
    (LOW, r#""v":1,"#, "", Rule::Whole, "field `v` is missing"),
    (LOW, r#""low""#, r#""high""#, Rule::Whole, "field `kind` is none of low, chunk and keys"),
    (LOW, r#""low""#, "7", Rule::Whole, "field `kind` is none of low, chunk and keys"),
    (LOW, r#""r-1""#, r#""""#, Rule::Whole, "field `read_id` is not text"),
    (LOW, r#""r-1""#, "17", Rule::Whole, "field `read_id` is not text"),
    (LOW, r#""inv.big""#, r#""big""#, Rule::Whole, "field `table` is not schema.table"),
    (LOW, r#""v":1"#, r#""v":1,"selected":[1]"#, Rule::Whole, "field `selected` is not known"),
    (LOW, r#""v":1"#, r#""v":1,"v":1"#, Rule::Whole, "the payload has the field `v` twice"),
    (LOW, r#"inv.big"}"#, "inv.big", Rule::Whole, "the payload is cut off"),
    (LOW, "{", "[", Rule::Whole, "the payload is not an object"),
    (LOW, r#"{"v""#, "{v", Rule::Whole, "the payload is not JSON at column 2"),
    (CHUNK, r#""x_note""#, r#""filter""#, Rule::Whole, "field `filter` is not known"),
    (CHUNK, r#""part":1,"#, "", Rule::Whole, "field `part` is missing"),
    (CHUNK, r#""part":1,"#, r#""part":0,"#, Rule::Whole, "field `part` is not a number from 1"),
    (CHUNK, r#""part":1,"#, r#""part":3,"#, Rule::Whole, "field `part`: 3 of 2 parts"),
    (CHUNK, r#""parts":2"#, r#""parts":"2""#, Rule::Whole, "field `parts` is not a number from 1"),
    (CHUNK, r#""parts":2"#, r#""parts":4294967296"#, Rule::Whole, "field `parts` is not a number from 1"),
    (CHUNK, r#""settled":true"#, r#""settled":null"#, Rule::Whole, "field `settled` is missing"),
    (CHUNK, r#""settled":true"#, r#""settled":"true""#, Rule::Whole, "field `settled` is not true or false"),
    (CHUNK, "983:991:983,985", "983:991", Rule::Whole, "field `snapshot` is not a snapshot, xmin:xmax:xip,..."),
    (CHUNK, "983:991:983,985", "991:983:", Rule::Whole, "field `snapshot` is not a snapshot, xmin:xmax:xip,..."),
    (CHUNK, "983:991:983,985", "983:991:985,983", Rule::Whole, "field `snapshot` is not a snapshot, xmin:xmax:xip,..."),
    (CHUNK, "983:991:983,985", "983:991:+983", Rule::Whole, "field `snapshot` is not a snapshot, xmin:xmax:xip,..."),
    (CHUNK, r#"{"max_removals":500}"#, "true", Rule::Whole, "field `confirmed`: it is not an object"),
    (
        CHUNK,
        r#"{"max_removals":500}"#,
        r#"{"max_removals":500,"max_removals":500}"#,
        Rule::Whole,
        "field `confirmed`: it has the field `max_removals` twice",
    ),
    (CHUNK, r#"{"max_removals":500}"#, "{}", Rule::Whole, "field `confirmed.max_removals` is missing"),
    (
        CHUNK,
        r#"{"max_removals":500}"#,
        r#"{"max_removals":-1}"#,
        Rule::Whole,
        "field `confirmed.max_removals` is not a number from 0",
    ),
    (
        CHUNK,
        r#"{"max_removals":500}"#,
        r#"{"max_removals":500,"by":"x"}"#,
        Rule::Whole,
        "field `confirmed.by` is not known",
    ),
    (
        CHUNK,
        r#""key_order":"bytes""#,
        r#""key_order":"icu""#,
        Rule::Order,
        "field `key_order` is an order that is not known",
    ),
    (CHUNK, r#"["bigint"]"#, r#""bigint""#, Rule::Whole, "field `key_types` is not a list of text"),
    (
        CHUNK,
        r#"["bigint"]"#,
        r#"["bigint","text"]"#,
        Rule::SameValue,
        "field `key_types`: the source's key has 2 columns, the sink's 1",
    ),
    (
        CHUNK,
        r#"["bigint"]"#,
        r#"["numeric"]"#,
        Rule::SameValue,
        "field `key_types`: key column `id`: the sink's bigint does not hold every value of the source's numeric",
    ),
    (CHUNK, r#""lower":{"open":true},"#, "", Rule::Whole, "field `range.lower` is missing"),
    (
        CHUNK,
        r#"{"open":true}"#,
        r#"{"open":true,"key":1}"#,
        Rule::Whole,
        "field `range.lower`: it is neither open nor a key with `inclusive`",
    ),
    (
        CHUNK,
        r#"{"open":true}"#,
        r#"{"open":false}"#,
        Rule::Whole,
        "field `range.lower`: it is neither open nor a key with `inclusive`",
    ),
    (
        CHUNK,
        r#"{"open":true}"#,
        r#"{"key":1}"#,
        Rule::Whole,
        "field `range.lower`: it is neither open nor a key with `inclusive`",
    ),
    (
        CHUNK,
        r#"{"open":true}"#,
        r#"{"open":true,"of":1}"#,
        Rule::Whole,
        "field `range.lower`: it has the field `of`, which is not known",
    ),
    (
        CHUNK,
        r#""lower""#,
        r#""where":1,"lower""#,
        Rule::Whole,
        "field `range`: it has the field `where`, which is not known",
    ),
    (
        CHUNK,
        r#"{"open":true}"#,
        r#"{"key":11,"inclusive":true}"#,
        Rule::Order,
        "field `range`: the lower bound is above the upper bound",
    ),
    (
        CHUNK,
        r#""key":10"#,
        r#""key":1.5"#,
        Rule::SameValue,
        "field `range.upper`: key column `id`: the value, read as JSON, does not fit bigint: it is not an integer",
    ),
    (
        CHUNK,
        r#""key":10"#,
        r#""key":10.0"#,
        Rule::SameValue,
        "field `range.upper`: key column `id`: the value, read as JSON, does not fit bigint: it is not an integer",
    ),
    (
        CHUNK,
        r#""key":10"#,
        r#""key":9223372036854775808"#,
        Rule::SameValue,
        "field `range.upper`: key column `id`: the value, read as JSON, does not fit bigint: it is out of range",
    ),
    (CHUNK, r#""key":10"#, r#""key":null"#, Rule::Whole, "field `range.upper`: key column `id` is null"),
    (CHUNK, r#""key":10"#, r#""key":{"no":1}"#, Rule::Whole, "field `range.upper`: `no` is no key column"),
    (
        CHUNK,
        r#""key":10"#,
        r#""key":[10]"#,
        Rule::SameValue,
        "field `range.upper`: key column `id`: the value, read as JSON, does not fit bigint: it is not an integer",
    ),
    (CHUNK, "[1,2,3]", "[1,3,2]", Rule::Order, "field `selected`: positions 2 and 3 are not in ascending order"),
    (CHUNK, "[1,2,3]", "[1,2,2]", Rule::Order, "field `selected`: positions 2 and 3 are not in ascending order"),
    (CHUNK, "[1,2,3]", "[1,2,11]", Rule::Order, "field `selected`: position 3 lies outside the range"),
    (
        CHUNK,
        "[1,2,3]",
        "[1,\"2\",3]",
        Rule::SameValue,
        "field `selected`: position 2: key column `id`: the value, read as JSON, does not fit bigint: it is not an integer",
    ),
    (CHUNK, "[1,2,3]", "7", Rule::Whole, "field `selected`: it is not a list"),
    (
        CHUNK,
        "[1,2,3]",
        r#"{"keys":[1]}"#,
        Rule::Whole,
        "field `selected`: it is neither a list nor one of `intervals` and `encoded`",
    ),
    (
        CHUNK,
        "[1,2,3]",
        r#"{"encoded":["8000000000000001","80000000000000"]}"#,
        Rule::Whole,
        "field `selected`: position 2: it is no encoded key of this table",
    ),
    (CHUNK, "[1,2,3]", r#"{"encoded":["x"]}"#, Rule::Whole, "field `selected`: position 1: it is not hexadecimal"),
    (
        CHUNK,
        "[1,2,3]",
        r#"{"intervals":[[1,3],[3,4]]}"#,
        Rule::Order,
        "field `selected`: position 2: the interval is not above the one before it",
    ),
    (
        CHUNK,
        "[1,2,3]",
        r#"{"intervals":[[3,1]]}"#,
        Rule::Order,
        "field `selected`: position 1: the interval's first end is above its last",
    ),
    (CHUNK, "[1,2,3]", r#"{"intervals":[[1,11]]}"#, Rule::Order, "field `selected`: position 1 lies outside the range"),
    (
        CHUNK,
        "[1,2,3]",
        r#"{"intervals":[[1]]}"#,
        Rule::Whole,
        "field `selected`: position 1: it does not have two ends",
    ),
    (
        CHUNK,
        "[1,2,3]",
        r#"{"intervals":[[-9223372036854775808,9]]}"#,
        Rule::Whole,
        "field `selected`: its intervals have more than 10000000 keys",
    ),
    (KEYS, "[12,7,4]", r#"{"intervals":[[4,7]]}"#, Rule::Whole, "field `asked`: it lists intervals, not keys"),
    (KEYS, r#""present":[12],"#, "", Rule::Whole, "field `present` is missing"),
    (KEYS, r#""asked":"#, r#""range":{},"asked":"#, Rule::Whole, "field `range` is not known"),
    (CHUNK_INFO, "[9]", "[9,8]", Rule::Order, "field `changed`: positions 1 and 2 are not in ascending order"),
    (CHUNK_INFO, r#""changed":[9],"#, "", Rule::Whole, "field `changed` is missing"),
    (CHUNK_INFO, r#""rows":7"#, r#""rows":-7"#, Rule::Whole, "field `rows` is not a number from 0"),
    (
        CHUNK_INFO,
        r#""rows":7"#,
        r#""topic":"other""#,
        Rule::OneStream,
        "field `topic`: the record is meant for topic `other` and stands in `rr.inv.big`",
    ),
    (CHUNK_INFO, r#""rows":7"#, r#""advisory":1"#, Rule::Whole, "field `advisory` is not true or false"),
    (CHUNK_INFO, r#""rows":7"#, r#""where":"region = 1""#, Rule::Whole, "field `where` is not known"),
];

#[test]
fn damaged_payloads_are_refused_by_name() {
    for (payload, from, to, rule, reason) in PAYLOADS {
        assert!(payload.contains(from), "{from} in {payload}");
        let payload = payload.replacen(from, to, 1);

        let damaged = damage(&message(&payload));

        assert_eq!((damaged.rule, &*damaged.reason), (*rule, *reason), "{payload}");
    }
}

/// An integer that the sink's column cannot hold names no row of it, in whatever form it stands.
#[test]
fn whatever_is_wrong_in_a_payload_the_field_is_named() {
    for payload in [LOW, CHUNK, KEYS, CHUNK_INFO] {
        let whole: serde_json::Map<String, serde_json::Value> = serde_json::from_str(payload).unwrap();
        let fields = whole.keys().map(String::as_str).chain(["confirmed"]);
        for field in fields.filter(|field| !field.starts_with("x_")) {
            for wrong in ["true", "7.5", r#""\u0001""#, "[[]]", r#"{"no":1}"#, r#"{"max_removals":[]}"#] {
                let mut changed = whole.clone();
                changed.insert(field.to_owned(), serde_json::from_str(wrong).unwrap());
                let record = message(&serde_json::to_string(&changed).unwrap());
                match decode_one("rr.inv.big", &scenario_shapes(), &record) {
                    Ok(Event::Damaged(damaged)) => {
                        assert!(damaged.reason.contains(&format!("field `{field}")), "{field}: {}", damaged.reason);
                    }
                    // What is not looked at: a mac where none is asked for, a flag that may be true.
                    other => assert!(matches!(field, "mac" | "settled" | "advisory"), "{field} {wrong}: {other:?}"),
                }
            }
        }
    }
}

#[test]
fn an_oid_is_an_unsigned_number_of_32_bits() {
    for (selected, reason) in [
        ("[4294967296]", "position 1: key column `id` takes integers from 0 to 4294967295"),
        (r#"["-1"]"#, "position 1: key column `id` takes integers from 0 to 4294967295"),
        ("[1.0]", "position 1: key column `id` takes integers from 0 to 4294967295"),
        (r#"{"encoded":["0000000100000000"]}"#, "position 1: key column `id`: the integer does not fit oid"),
    ] {
        let payload = format!(
            r#"{{"table":"inv.k","read_id":"r","range":{{"lower":{{"open":true}},"upper":{{"open":true}}}},"selected":{selected},"changed":[],"key_types":["oid"]}}"#
        );
        let shape = shape("inv.k", &[("id", "oid")], &["id"]);
        let record = record(None, Some(&payload), &[("dblog.record", "chunk-info")]);

        let Ok(Event::Damaged(damaged)) = decode_one("srv.inv.k", &[shape], &record) else { panic!("{selected}") };

        assert_eq!(damaged.reason, format!("field `selected`: {reason}"));
    }
}

#[test]
fn integers_beyond_the_columns_type_are_refused_in_every_form() {
    for (selected, place) in [
        (
            "[1,2147483648]",
            "position 2: key column `id`: the value, read as JSON, does not fit integer: it is out of range",
        ),
        (r#"{"intervals":[[2147483647,2147483648]]}"#, "position 1: key column `id`: the integer does not fit integer"),
        (
            r#"{"intervals":[[-2147483649,-2147483648]]}"#,
            "position 1: key column `id`: the integer does not fit integer",
        ),
        (r#"{"encoded":["8000000080000000"]}"#, "position 1: key column `id`: the integer does not fit integer"),
    ] {
        let payload = CHUNK.replacen("[1,2,3]", selected, 1).replacen("bigint", "integer", 1);
        let table = shape("inv.big", &[("id", "integer")], &["id"]);

        let Ok(Event::Damaged(damaged)) = decode_one("rr.inv.big", &[table], &message(&payload)) else {
            panic!("{selected} is taken");
        };

        assert_eq!((damaged.rule, &*damaged.reason), (Rule::SameValue, &*format!("field `selected`: {place}")));
    }
}

#[test]
fn a_refusal_keeps_what_the_payload_says_of_its_read() {
    let damaged = damage(&message(&KEYS.replace("[12]", "[null]")));

    assert_eq!(
        damaged,
        Damaged {
            read_id: Some(ReadId("r-2".to_owned())),
            kind: StatementKind::Keys,
            source_table: Some("inv.big".to_owned()),
            rule: Rule::Whole,
            reason: "field `present`: position 1: key column `id` is null".to_owned(),
        }
    );
}

#[test]
fn damaged_wrappings_are_refused_by_name() {
    let content = |content: &str| {
        let value = envelope("x").replace("\"eA==\"", content);
        assert_ne!(value, envelope("x"));
        record(None, Some(&value), &[])
    };
    let routed = |kind: &str, value: Option<&str>| record(None, value, &[("sink-repair.kind", kind)]);
    let absent = |headers: &[(&str, &str)], key: &str| record(Some(key), None, headers);
    let full = [("dblog.op", "absent"), ("dblog.table", "inv.big"), ("dblog.read_id", "v-1")];
    for (record, reason) in [
        (content("\"%%%\""), "the message's content is not bytes in base64"),
        (content("null"), "the message's content is not bytes in base64"),
        (content("\"/w==\""), "the message's content is not UTF-8"),
        (content("\"\""), "the payload is cut off"),
        (routed("high", Some(LOW)), "header `sink-repair.kind` is none of low, chunk and keys"),
        (routed("chunk", Some(LOW)), "field `kind` and the record's header disagree"),
        (routed("low", None), "the record has no value"),
        (routed("low", Some("")), "the value is cut off"),
        (routed("low", Some("{")), "the value is cut off"),
        (routed("low", Some("\"p2\"")), "the payload is not JSON at column 1"),
        (routed("low", Some("17")), "the payload is not an object"),
        (
            record(None, Some(CHUNK_INFO), &[("dblog.record", "bounds")]),
            "header `dblog.record` names a kind of record that is not known",
        ),
        (record(None, Some(CHUNK), &[("dblog.record", "chunk-info")]), "field `kind` and the record's header disagree"),
        (absent(&full[..1], r#"{"id":4}"#), "header `dblog.table` is missing"),
        (absent(&full[..2], r#"{"id":4}"#), "header `dblog.read_id` is missing"),
        // Whatever is damaged of it, it is no delete of the source.
        (absent(&full[1..], r#"{"id":4}"#), "header `dblog.op` is not `absent`"),
        (absent(&full[2..], r#"{"id":4}"#), "header `dblog.table` is missing"),
        (absent(&[("dblog.Op", "absent"), full[1], full[2]], r#"{"id":4}"#), "header `dblog.op` is not `absent`"),
        (absent(&[("DBLOG.OP", "absent")], r#"{"id":4}"#), "header `dblog.table` is missing"),
        (absent(&[("dblog.op", "gone"), full[1], full[2]], r#"{"id":4}"#), "header `dblog.op` is not `absent`"),
        (
            absent(&full, r#"{"id":"four"}"#),
            "key column `id`: the value, read as integer, does not fit bigint: it is not an integer",
        ),
        (
            absent(&full, r#"{"id":4,"a":1}"#),
            "the key has the field `a`, which is no key column of the sink table inv.big",
        ),
    ] {
        let damaged = damage(&record);

        assert_eq!((damaged.rule, &*damaged.reason), (Rule::Whole, reason), "{record:?}");
    }
}

#[test]
fn captured_messages_that_are_no_markers_are_refused() {
    let mut reasons: Vec<(String, Rule, String)> = Vec::new();
    for (file, topic) in [("rr", "rr.inv.big"), ("ob2", "ob2.inv.big")] {
        for (own, _, record) in fixture(&format!("debezium-3.6.1/{file}.jsonl")) {
            if own == topic
                && let Ok(Event::Damaged(damaged)) = decode_one(topic, &[], &record)
            {
                reasons.push((file.to_owned(), damaged.rule, damaged.reason));
            }
        }
    }
    reasons.sort();
    reasons.dedup();

    let whole = |file: &str, reason: &str| (file.to_owned(), Rule::Whole, reason.to_owned());
    assert_eq!(
        reasons,
        [
            whole("ob2", "field `kind` and the record's header disagree"),
            whole("ob2", "the payload is not JSON at column 1"),
            whole("rr", "field `m` is not known"),
        ]
    );
}

#[test]
fn unsigned_and_wrongly_signed_markers_are_refused_where_signatures_are_asked_for() {
    let settings = DecodeSettings { marker_key: Some(b"secret".to_vec()), ..DecodeSettings::default() };
    let signed = |mac: &str| CHUNK.replace("\"x_note\"", &format!("\"mac\":\"{mac}\",\"x_note\""));
    let wrong = crate::decode::sign(b"other", CHUNK).unwrap();
    let missing = "field `mac` is missing, and this worker takes signed markers only";
    let not_ours = "field `mac` is not the payload's signature under this worker's key";
    for (payload, reason) in [
        (CHUNK.to_owned(), missing),
        (CHUNK_INFO.to_owned(), missing),
        (signed(&wrong), not_ours),
        (signed("zz"), not_ours),
        (signed(&crate::decode::sign(b"secret", CHUNK).unwrap()).replace("[1,2,3]", "[1,2]"), not_ours),
    ] {
        let event = decoder(settings.clone(), "rr.inv.big", &scenario_shapes()).decode(&message(&payload));

        let Ok(Event::Damaged(damaged)) = event else { panic!("{event:?}") };
        assert_eq!((damaged.rule, &*damaged.reason), (Rule::Authentic, reason), "{payload}");
    }
}

/// The sink's column, the source's type, what is wrong: nothing, or the reason behind `key column `id``.
const TYPES: &[(&str, &str, Option<&str>)] = &[
    ("bigint", "bigint", None),
    ("bigint", "integer", None),
    ("bigint", "oid", None),
    ("oid", "oid", None),
    ("numeric(10,0)", "oid", None),
    ("numeric(19,0)", "bigint", None),
    ("numeric(12,2)", "numeric(10,2)", None),
    ("numeric", "numeric(10,2)", None),
    ("numeric", "numeric", None),
    ("text", "text", None),
    ("text", "character varying(20)", None),
    ("varchar(20)", "character varying(20)", None),
    ("varchar(63)", "name", None),
    ("uuid", "uuid", None),
    ("date", "date", None),
    ("boolean", "boolean", None),
    ("bytea", "bytea", None),
    ("time", "time(3) without time zone", None),
    ("timestamp", "timestamp without time zone", None),
    ("timestamp(3)", "timestamp(3) without time zone", None),
    ("timestamptz", "timestamp with time zone", None),
    ("integer", "bigint", Some("the sink's integer does not hold every value of the source's bigint")),
    ("integer", "oid", Some("the sink's integer does not hold every value of the source's oid")),
    ("oid", "integer", Some("the sink's oid does not hold every value of the source's integer")),
    ("text", "oid", Some("the sink's text does not hold every value of the source's oid")),
    ("numeric(18,0)", "bigint", Some("the sink's numeric(18,0) does not hold every value of the source's bigint")),
    (
        "numeric(10,2)",
        "numeric(12,2)",
        Some("the sink's numeric(10,2) does not hold every value of the source's numeric(12,2)"),
    ),
    (
        "numeric(12,2)",
        "numeric(12,3)",
        Some("the sink's numeric(12,2) does not hold every value of the source's numeric(12,3)"),
    ),
    (
        "numeric(12,4)",
        "numeric(12,2)",
        Some("the sink's numeric(12,4) does not hold every value of the source's numeric(12,2)"),
    ),
    ("numeric(12,2)", "numeric", Some("the sink's numeric(12,2) does not hold every value of the source's numeric")),
    (
        "varchar(10)",
        "character varying(20)",
        Some("the sink's varchar(10) does not hold every value of the source's character varying(20)"),
    ),
    ("varchar(10)", "text", Some("the sink's varchar(10) does not hold every value of the source's text")),
    (
        "timestamp(3)",
        "timestamp(6) without time zone",
        Some("the sink's timestamp(3) does not hold every value of the source's timestamp(6) without time zone"),
    ),
    (
        "timestamp(3)",
        "timestamp without time zone",
        Some("the sink's timestamp(3) does not hold every value of the source's timestamp without time zone"),
    ),
    (
        "timestamp",
        "timestamp with time zone",
        Some("the sink's timestamp does not hold every value of the source's timestamp with time zone"),
    ),
    ("text", "uuid", Some("the sink's text does not hold every value of the source's uuid")),
    ("text", "citext", Some("the source's type citext does not tell upper from lower case, which is no key")),
    ("text", "character(8)", Some("the source's type character(8) is padded with blanks, which is no key")),
    (
        "text",
        "inv.mood",
        Some("the source's type inv.mood is not known as a key's (an enum, a domain or another type)"),
    ),
    ("numeric", "double precision", Some("the source's type double precision is floating point, which is no key")),
    (
        "time",
        "time with time zone",
        Some("the source's type time with time zone is no key: its offsets are lost in the stream"),
    ),
    ("bigint", "bigint(3)", Some("the source's type bigint(3) has modifiers that are not known")),
    ("timestamp", "timestamp(9)", Some("the source's type timestamp(9) has modifiers that are not known")),
    ("bigint", "", Some("the source's type  is not known as a key's (an enum, a domain or another type)")),
];

fn statement_on(column: &str, source: &str, settings: DecodeSettings, key: Option<&str>) -> Event {
    let shape = shape("inv.k", &[("id", column)], &["id"]);
    let payload = format!(
        r#"{{"table":"inv.k","read_id":"r","range":{{"lower":{{"open":true}},"upper":{{"open":true}}}},"selected":[],"changed":[],"key_order":"bytes","key_types":["{source}"]}}"#
    );
    let mut decoder = decoder(settings, "srv.inv.k", &[shape]);
    if let Some(key) = key {
        decoder.decode(&record(Some(key), None, &[])).unwrap();
    }
    decoder.decode(&record(None, Some(&payload), &[("dblog.record", "chunk-info")])).unwrap()
}

#[test]
fn a_key_that_the_sink_does_not_hold_exactly_refuses_the_statement() {
    for (column, source, reason) in TYPES {
        match (statement_on(column, source, DecodeSettings::default(), None), reason) {
            (Event::Part(_), None) => {}
            (Event::Damaged(damaged), Some(reason)) => {
                assert_eq!(damaged.rule, Rule::SameValue);
                assert_eq!(damaged.reason, format!("field `key_types`: key column `id`: {reason}"));
            }
            (event, _) => panic!("{source} into {column}: {event:?}"),
        }
    }
}

#[test]
fn a_key_that_the_stream_does_not_carry_exactly_refuses_the_statement() {
    let connect = || {
        let mut settings = DecodeSettings::default();
        settings.modes.time = TimeMode::Connect;
        settings
    };
    let key = |name: &str, kind: &str, payload: &str| {
        format!(
            r#"{{"schema":{{"type":"struct","fields":[{{"type":"{kind}","optional":false,"name":"{name}","field":"id"}}],"optional":false}},"payload":{{"id":{payload}}}}}"#
        )
    };
    let in_millis = key("org.apache.kafka.connect.data.Timestamp", "int64", "1709212455123");
    let in_micros = key("io.debezium.time.MicroTimestamp", "int64", "1709212455123456");
    let as_double = r#"{"schema":{"type":"struct","fields":[{"type":"double","optional":false,"field":"id"}],"optional":false},"payload":{"id":1.5}}"#;
    let (timestamp, numeric) = ("timestamp without time zone", "numeric(10,2)");

    let by_modes = statement_on("timestamp", timestamp, connect(), None);
    let by_schema = statement_on("timestamp", timestamp, DecodeSettings::default(), Some(&in_millis));
    let double = statement_on("numeric(10,2)", numeric, DecodeSettings::default(), Some(as_double));
    // The schema counts, not the mode.
    let fine = statement_on("timestamp", timestamp, connect(), Some(&in_micros));

    let reason = |event: Event| match event {
        Event::Damaged(damaged) => (damaged.rule, damaged.reason),
        event => panic!("{event:?}"),
    };
    let millis = "field `key_types`: key column `id`: the stream's Timestamp does not carry every value of the source's timestamp without time zone";
    assert_eq!(reason(by_modes), (Rule::SameValue, millis.to_owned()));
    assert_eq!(reason(by_schema), (Rule::SameValue, millis.to_owned()));
    let double_reason = "field `key_types`: key column `id`: the stream's double does not carry every value of the source's numeric(10,2)";
    assert_eq!(reason(double), (Rule::SameValue, double_reason.to_owned()));
    assert!(matches!(fine, Event::Part(_)), "{fine:?}");
}

#[test]
fn ranges_of_text_keys_need_byte_order_and_lists_of_them_do_not() {
    let shape = shape("inv.k", &[("id", "text")], &["id"]);
    let chunk_info = r#"{"table":"inv.k","read_id":"r","range":{"lower":{"open":true},"upper":{"open":true}},"selected":[],"changed":[]}"#;
    let keys = r#"{"v":1,"kind":"keys","read_id":"r-2","table":"inv.k","topic":"srv.inv.k","part":1,"parts":1,"asked":["b","B"],"present":["b","B"],"key_types":["text"],"snapshot":"1:1:","settled":true}"#;
    let mut decoder = decoder(DecodeSettings::default(), "srv.inv.k", &[shape]);

    let range = decoder.decode(&message(chunk_info)).unwrap();
    let list = decoder.decode(&message(keys)).unwrap();

    let Event::Damaged(damaged) = range else { panic!("{range:?}") };
    assert_eq!(damaged.rule, Rule::Order);
    assert_eq!(damaged.reason, "field `key_order` is not `bytes`, and key column `id` is text");
    assert!(matches!(list, Event::Part(_)), "{list:?}");
}

#[test]
fn a_table_whose_key_is_no_key_refuses_its_statements() {
    let mut shape = (*shape("inv.big", &[("id", "bigint")], &["id"])).clone();
    shape.key[0].key_type = Err(NotNative { reason: "floating point key `id`".to_owned(), hint: None });

    let event = decode_one("rr.inv.big", &[shape.into()], &message(CHUNK));

    let Ok(Event::Damaged(damaged)) = event else { panic!("{event:?}") };
    assert_eq!((damaged.rule, &*damaged.reason), (Rule::Order, "floating point key `id`"));
}
