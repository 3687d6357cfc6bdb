//! Bad records: each is told by what is wrong with it, with its key where that could be read, and never by its data.

use std::sync::Arc;

use sink_api::{Key, TableShape};

use super::{decode_one, int_key, record, scenario_shapes, shape};
use crate::{
    decode::{BadRecord, DecodeError, Stage},
    record::Record,
};

const SOURCE: &str = r#""source":{"name":"srv","db":"src","schema":"inv","table":"big","txId":7}"#;

fn bad(record: &Record) -> BadRecord {
    match decode_one("srv.inv.big", &scenario_shapes(), record) {
        Err(DecodeError::Bad(bad)) => bad,
        other => panic!("{record:?}: {other:?}"),
    }
}

/// The value's bytes under the key `{"id":5}`, and the reason.
fn values() -> Vec<(Vec<u8>, &'static str)> {
    let envelope = |after: &str, op: &str| format!(r#"{{"before":null,"after":{after},{SOURCE}{op}}}"#).into_bytes();
    let upsert = |after: &str| envelope(after, r#","op":"u""#);
    let text = |text: &str| text.as_bytes().to_vec();
    let whole = upsert(r#"{"id":5,"name":"secret"}"#);
    vec![
        (text(""), "the value has no bytes"),
        (text("{"), "the value is cut off"),
        (whole[..40].to_vec(), "the value is cut off"),
        (text("x"), "the value is not JSON at column 1"),
        (text("{\"id\":5} xyz"), "the value is not JSON at column 10"),
        (text("{\"id\":05}"), "the value is not JSON at column 8"),
        (text("{\"a\":\"\n\"}"), "the value is not JSON at column 6"),
        (text("17"), "the value is not an object"),
        (text("\"secret\""), "the value is not an object"),
        (text("[1]"), "the value is not an object"),
        (b"{\"name\":\"\xff\"}".to_vec(), "the value is not UTF-8 at byte 9"),
        (text(r#"{"schema":{"type":"struct"}}"#), "the value is not whole: it has a schema and no payload"),
        (text(r#"{"schema":{"type":7},"payload":{"id":5}}"#), "the value is not a schema as Connect writes it"),
        (
            text(r#"{"schema":{"type":"struct","fields":"x"},"payload":{}}"#),
            "the value is not a schema as Connect writes it",
        ),
        (text(r#"{"schema":{"type":"struct"},"payload":{}"#), "the value is cut off"),
        (envelope("{}", ""), "the envelope has no op"),
        (envelope("{}", r#","op":null"#), "the envelope has no op"),
        (envelope("{}", r#","op":7"#), "the envelope has no op"),
        (envelope("{}", r#","op":"x""#), "the envelope's op is none of c, u, r, d, t, m and absent"),
        (envelope("{}", r#","op":"u","op":"d""#), "the value has the field `op` twice"),
        (envelope("{}", r#","op":"u","after":{}"#), "the value has the field `after` twice"),
        (
            text(r#"{"before":null,"after":{},"op":"c"}"#),
            "it has `op`, `before` and `after` and no `source`: either the envelope has lost its source, or it is a flattened row of a table with such columns; have the connector mark its rows then (add.headers=op)",
        ),
        (text(r#"{"after":{},"source":{"name":"x"},"op":"c"}"#), "the envelope's source names no table"),
        (upsert("null"), "the envelope of op u has no after"),
        (envelope("[]", r#","op":"u""#), "the value is not an object"),
        (upsert(r#"{"id":5,"name":"a","name":"b"}"#), "the value has the field `name` twice"),
        (upsert(r#"{"id":6}"#), "key column `id`: the record's key and its row disagree"),
        (upsert(r#"{"id":null}"#), "key column `id`: the record's key and its row disagree"),
        (
            upsert(r#"{"id":5,"name":7}"#),
            "column `name`: the value, read as string, does not fit text: it is a number, not a string",
        ),
        (
            upsert(r#"{"id":5,"name":"\ud800"}"#),
            "column `name`: the value, read as string, does not fit text: it is a string that is no text: `\\u` escapes half a character",
        ),
        (upsert(r#"{"id":5.0}"#), "column `id`: the value, read as integer, does not fit bigint: it is not an integer"),
        (
            upsert(r#"{"id":9223372036854775808}"#),
            "column `id`: the value, read as integer, does not fit bigint: it is out of range",
        ),
        (
            upsert(r#"{"id":5,"price":"@@"}"#),
            "column `price`: the value, read as Decimal of scale 2, does not fit numeric(10,2): it is not a base64 decimal; without schemas --decimal-handling-mode must be the connector's decimal.handling.mode",
        ),
        (
            upsert(r#"{"id":5,"price":""}"#),
            "column `price`: the value, read as Decimal of scale 2, does not fit numeric(10,2): it is not a decimal number",
        ),
        (
            upsert(r#"{"id":5,"price":1.234}"#),
            "column `price`: the value, read as Decimal of scale 2, does not fit numeric(10,2): it has more fractional digits than the column holds",
        ),
        (
            upsert(r#"{"id":5,"ok":"true"}"#),
            "column `ok`: the value, read as boolean, does not fit boolean: it is not true or false",
        ),
        (
            upsert(r#"{"id":5,"tstz":"2024-02-30T00:00:00Z"}"#),
            "column `tstz`: the value, read as ZonedTimestamp, does not fit timestamptz: it is not ISO 8601 text of this type",
        ),
        (
            upsert(r#"{"id":5,"tstz":"2024-02-28T00:00:00"}"#),
            "column `tstz`: the value, read as ZonedTimestamp, does not fit timestamptz: it has no offset from UTC",
        ),
        (
            upsert(r#"{"id":5,"d":"2024-02-28"}"#),
            "column `d`: the value, read as Date, does not fit date: it is not an integer",
        ),
        (upsert(r#"{"id":5,"js":"{"}"#), "column `js`: the value, read as string, does not fit jsonb: it is not JSON"),
        (
            upsert(r#"{"id":5,"by":"@"}"#),
            "column `by`: the value, read as bytes, does not fit bytea: it is not bytes in this form",
        ),
        (
            upsert(r#"{"id":5,"ia":{}}"#),
            "column `ia`: the value, read as array of integer, does not fit integer[]: it is not an array",
        ),
        (
            upsert(r#"{"id":5,"ia":[1,2147483648]}"#),
            "column `ia`: the value, read as array of integer, does not fit integer[]: it is out of range",
        ),
    ]
}

#[test]
fn bad_values_are_told_by_what_is_wrong_and_carry_their_key() {
    for (value, reason) in values() {
        let mut record = record(Some(r#"{"id":5}"#), None, &[]);
        record.value = Some(value.clone().into());
        let shown = String::from_utf8_lossy(&value).into_owned();
        // A first record makes the table of the topic known.
        let mut decoder = super::decoder(Default::default(), "srv.inv.big", &scenario_shapes());
        decoder.decode(&super::record(Some(r#"{"id":1}"#), None, &[])).unwrap();

        let Err(DecodeError::Bad(bad)) = decoder.decode(&record) else { panic!("{shown}") };

        assert_eq!(bad.reason, reason, "{shown}");
        assert_ne!(bad.stage, Stage::KeyConverter, "{shown}");
        let key = bad.key.map(|(table, key): (Arc<TableShape>, Key)| (table.name.to_string(), key));
        assert_eq!(key, Some(("inv.big".to_owned(), int_key(5))), "{shown}");
    }
}

#[test]
fn bad_keys_are_told_by_what_is_wrong() {
    let value = format!(r#"{{"after":{{"id":5}},{SOURCE},"op":"c"}}"#);
    let no_key = "the record has no key, and without one its row cannot be told from others";
    for (key, reason) in [
        (None, no_key),
        (Some("null"), no_key),
        (Some(r#"{"schema":null,"payload":null}"#), no_key),
        (Some(""), no_key),
        (Some("{"), "the key is cut off"),
        (Some("{}"), "key column `id` is missing"),
        (Some(r#"{"id":null}"#), "key column `id` is null"),
        (Some(r#"{"id":1,"b":2}"#), "the key has the field `b`, which is no key column of the sink table inv.big"),
        (Some(r#"{"id":1,"id":1}"#), "the key has the field `id` twice"),
        (Some("[1]"), "the key is not an object"),
        (
            Some(r#"{"id":"x"}"#),
            "key column `id`: the value, read as integer, does not fit bigint: it is not an integer",
        ),
        (
            Some(r#"{"id":18446744073709551616}"#),
            "key column `id`: the value, read as integer, does not fit bigint: it is out of range",
        ),
        (
            Some(r#"{"schema":{"type":"struct","fields":[]},"payload":{"id":1}}"#),
            "key column `id`: bigint takes no struct values",
        ),
        (Some(r#"{"schema":{"type":"struct"}}"#), "the key is not whole: it has a schema and no payload"),
    ] {
        let bad = bad(&record(key, Some(&value), &[]));

        assert_eq!((bad.stage, &*bad.reason, bad.key), (Stage::KeyConverter, reason, None), "{key:?}");
    }
}

#[test]
fn a_key_that_is_not_text_is_bad() {
    let mut record = record(None, None, &[]);
    record.key = Some([b'{', 0xff].into());

    assert_eq!(bad(&record).reason, "the key is not UTF-8 at byte 1");
}

#[test]
fn a_record_of_nothing_is_bad() {
    assert_eq!(bad(&record(None, None, &[])).reason, "the record has neither key nor value");
}

#[test]
fn the_other_half_of_a_key_update_has_to_be_readable() {
    let bad = bad(&record(Some(r#"{"id":1}"#), None, &[("__debezium.newkey", r#"{"id":"x"}"#)]));

    assert_eq!(
        bad.reason,
        "header `__debezium.newkey`: key column `id`: the value, read as integer, does not fit bigint: it is not an integer"
    );
}

#[test]
fn nesting_without_end_is_an_error() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let array = deep("[", "]");
    let object = deep("{\"a\":", "}");
    for value in [
        array.clone(),
        object.clone(),
        format!(r#"{{"after":{{"id":5,"ia":{array}}},{SOURCE},"op":"c"}}"#),
        format!(r#"{{"after":{{"id":5,"js":{array}}},{SOURCE},"op":"c"}}"#),
        format!(r#"{{"schema":{array},"payload":{{}}}}"#),
        format!(r#"{{"schema":{},"payload":{{}}}}"#, deep(r#"{"type":"array","items":"#, "}")),
        format!(r#"{{"source":{array},"op":"c"}}"#),
    ] {
        let result = decode_one("srv.inv.big", &scenario_shapes(), &record(Some(r#"{"id":5}"#), Some(&value), &[]));
        // Where nothing is looked into, depth does no harm.
        let _ = result;
    }
    let marker = format!(r#"{{"v":1,"selected":{array}}}"#);
    let settings = crate::decode::DecodeSettings { marker_key: Some(vec![1]), ..Default::default() };
    let result =
        super::decoder(settings, "x", &[]).decode(&record(None, Some(&marker), &[("sink-repair.kind", "low")]));
    assert!(matches!(result, Ok(crate::decode::Event::Damaged(_))));
}

#[test]
fn reasons_hold_no_data() {
    for (value, _) in values() {
        let mut record = record(Some(r#"{"id":5}"#), None, &[]);
        record.value = Some(value.into());
        if let Err(DecodeError::Bad(bad)) = decode_one("srv.inv.big", &scenario_shapes(), &record) {
            assert!(!bad.reason.contains("secret"), "{}", bad.reason);
        }
    }
}

#[test]
fn a_key_of_the_wrong_type_is_a_matter_of_set_up() {
    let mut shape = (*shape("inv.f", &[("id", "double precision")], &["id"])).clone();
    shape.key[0].key_type = Err(sink_api::NotNative { reason: "floating point key `id`".to_owned(), hint: None });

    let result = decode_one("srv.inv.f", &[shape.into()], &record(Some(r#"{"id":1.5}"#), None, &[]));

    assert_eq!(
        result,
        Err(DecodeError::Setup {
            table: Some(sink_api::TableName::new("inv", "f")),
            reason: "the sink table inv.f: floating point key `id`".to_owned(),
            hint: "give the table another primary key".to_owned(),
        })
    );
}
