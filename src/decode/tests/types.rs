//! Every type that Debezium carries, from captured records: each value is the one that its INSERT wrote.
//!
//! The inserted values are those of the table "Type mappings" in the project's notes on Debezium; PostgreSQL itself gave
//! the text forms.

use std::sync::Arc;

use sink_api::{RowOp, TableShape, Value};

use super::{decode, decoder, fixture, shape};
use crate::decode::{DecimalMode, DecodeSettings, Event, IntervalMode, Modes, TimeMode};

fn types() -> Arc<TableShape> {
    shape(
        "inv.types",
        &[
            ("id", "bigint"),
            ("i2", "smallint"),
            ("i4", "integer"),
            ("r", "real"),
            ("d", "double precision"),
            ("n", "numeric"),
            ("n102", "numeric(10,2)"),
            ("m", "money"),
            ("b", "boolean"),
            ("bit1", "bit(1)"),
            ("bit16", "bit(16)"),
            ("vb", "varbit(20)"),
            ("c", "char(5)"),
            ("vc", "varchar(10)"),
            ("t", "text"),
            ("by", "bytea"),
            ("da", "date"),
            ("ti", "time"),
            ("tz", "timetz"),
            ("ts", "timestamp"),
            ("ts3", "timestamp(3)"),
            ("tstz", "timestamptz"),
            ("iv", "interval"),
            ("u", "uuid"),
            ("js", "json"),
            ("jb", "jsonb"),
            ("x", "xml"),
            ("e", "mood"),
            ("h", "hstore"),
            ("lt", "ltree"),
            ("ci", "citext"),
            ("ine", "inet"),
            ("cid", "cidr"),
            ("mac", "macaddr"),
            ("ir", "int4range"),
            ("nr", "numrange"),
            ("tsr", "tstzrange"),
            ("pt", "point"),
            ("tv", "tsvector"),
            ("o", "oid"),
            ("ai", "integer[]"),
            ("at", "text[]"),
            ("an", "numeric(10,2)[]"),
            ("ad", "date[]"),
            ("atz", "timestamptz[]"),
            ("auu", "uuid[]"),
            ("ajb", "jsonb[]"),
            ("ae", "mood[]"),
            ("nn", "integer"),
            ("nd", "text"),
            ("nm", "text"),
            ("mac8", "macaddr8"),
            ("ch", "\"char\""),
            ("hs", "hstore[]"),
            ("by2", "bytea[]"),
            ("tz2", "timetz[]"),
            ("r2", "int4range[]"),
            ("bt", "bit(4)[]"),
        ],
        &["id"],
    )
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

fn decimal(text: &str) -> Value {
    Value::Decimal(text.parse().unwrap())
}

fn bits(text: &str) -> Value {
    Value::Bits(text.bytes().map(|byte| byte - b'0').collect())
}

fn array<const N: usize>(values: [Value; N]) -> Value {
    Value::Array(values.into())
}

const UUID: [u8; 16] = [0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55];

/// What the INSERT of row 1 wrote, up to column `nn`.
fn inserted() -> Vec<Value> {
    vec![
        Value::Int(1),
        Value::Int(2),
        Value::Int(3),
        Value::Float(1.5),
        Value::Float(2.5),
        decimal("12345.6700"),
        decimal("-12.30"),
        decimal("12.34"),
        Value::Bool(true),
        bits("1"),
        bits("0000000100000010"),
        bits("10101"),
        text("ab   "),
        text("vc"),
        text("txt"),
        Value::Bytes([0x00, 0xff, 0x10].into()),
        Value::Date(19_782),
        Value::Time(47_655_123_456),
        // 13:14:15.123456+02: Debezium keeps the instant, not the offset.
        text("11:14:15.123456Z"),
        Value::Timestamp(1_709_212_455_123_456),
        Value::Timestamp(1_709_212_455_123_000),
        Value::TimestampTz(1_709_205_255_123_456),
        text("P1Y2M3DT4H5M6.789S"),
        Value::Uuid(UUID),
        text("{\"a\": 1}"),
        text("{\"b\": 2}"),
        text("<a>1</a>"),
        text("ok"),
        text("\"k\"=>\"v\", \"n\"=>NULL"),
        text("a.b.c"),
        text("CiT"),
        text("10.0.0.1"),
        text("10.0.0.0/8"),
        text("08:00:2b:01:02:03"),
        text("[1,5)"),
        text("[1.5,2.5]"),
        text("[\"2024-01-01 00:00:00+00\",)"),
        text("(1.5,-2.0)"),
        text("'a':1 'b':2"),
        text("4294967295"),
        array([Value::Int(1), Value::Null, Value::Int(3)]),
        array([text("a"), Value::Null, text("b,c")]),
        array([decimal("1.20"), decimal("-3.40")]),
        array([Value::Date(19_782)]),
        array([Value::TimestampTz(1_709_205_255_000_000)]),
        array([Value::Uuid(UUID)]),
        array([text("{\"b\": 2}")]),
        array([text("ok"), text("sad")]),
        Value::Int(7),
    ]
}

const N: usize = 5;
const IV: usize = 22;

/// In the default modes a `numeric` loses the zeros at its end, an interval its months and days.
fn inserted_by_default() -> Vec<Value> {
    let mut row = inserted();
    row[N] = decimal("12345.67");
    // 37091106789000 microseconds.
    row[IV] = text("10303:05:06.789000");
    row
}

fn rows(name: &str, table: &str, settings: &DecodeSettings, shape: &Arc<TableShape>) -> Vec<Vec<Value>> {
    let topic = format!("srv.inv.{table}");
    let mut decoder = decoder(settings.clone(), &topic, std::slice::from_ref(shape));
    let mut rows = Vec::new();
    for (_, _, record) in fixture(&format!("debezium-3.6.3/{name}.jsonl")).into_iter().filter(|(own, ..)| *own == topic)
    {
        match decode(&mut decoder, &record) {
            Event::Row(row) => match row.op {
                RowOp::Upsert(values) => rows.push(values.to_vec()),
                RowOp::Delete => panic!("{row:?}"),
            },
            event => panic!("{event:?}"),
        }
    }
    rows
}

fn string_modes() -> DecodeSettings {
    DecodeSettings {
        modes: Modes {
            decimal: DecimalMode::String,
            time: TimeMode::IsoString,
            interval: IntervalMode::String,
            ..Modes::default()
        },
        ..DecodeSettings::default()
    }
}

#[test]
fn all_types_come_with_schemas() {
    let rows = rows("02-schemas-enabled", "types", &DecodeSettings::default(), &types());

    let mut expected = inserted_by_default();
    expected.push(text("dflt"));
    expected.resize(types().columns.len(), Value::Absent);
    assert_eq!(rows, [expected]);
}

#[test]
fn with_schemas_modes_do_not_matter() {
    let rows = rows("02-schemas-enabled", "types", &string_modes(), &types());

    assert_eq!(rows[0][..inserted().len()], inserted_by_default());
}

#[test]
fn all_types_come_without_schemas_in_default_modes() {
    let rows = rows("11-more-types", "types", &DecodeSettings::default(), &types());

    let more = |i2: i64, nm: Value| {
        let mut expected = inserted_by_default();
        expected[1] = Value::Int(i2);
        expected.extend([
            text("dflt"),
            nm,
            text("08:00:2b:01:02:03:04:05"),
            text("c"),
            array([text("\"a\"=>\"1\"")]),
            array([Value::Bytes([1].into())]),
            array([text("10:00:00Z")]),
            array([text("[1,2)")]),
            // Debezium has no value for bit(4)[].
            Value::Null,
        ]);
        expected
    };
    // Debezium loses `name` when it reads the log.
    assert_eq!(rows, [more(2, text("nm")), more(3, Value::Null)]);
}

#[test]
fn all_types_come_without_schemas_in_string_modes() {
    let rows = rows("04-special-values-string-modes", "types", &string_modes(), &types());

    let mut expected = inserted();
    expected.push(Value::Null);
    expected.resize(types().columns.len(), Value::Absent);
    assert_eq!(rows, [expected]);
}

fn special() -> Arc<TableShape> {
    shape(
        "inv.sp",
        &[
            ("id", "bigint"),
            ("f", "real"),
            ("d", "double precision"),
            ("n", "numeric"),
            ("ts", "timestamp"),
            ("tstz", "timestamptz"),
            ("da", "date"),
            ("tz", "timetz"),
            ("ti", "time"),
            ("iv", "interval"),
            ("nd", "text"),
            ("b3", "bit(24)"),
            ("js", "jsonb"),
            ("arr", "integer[]"),
            ("tsr", "tsrange"),
            ("c3", "char(3)"),
            ("bb", "boolean"),
            ("dd", "numeric(10,2)"),
        ],
        &["id"],
    )
}

/// NaN is not equal to itself: shown, it is.
fn shown(rows: &[Vec<Value>]) -> Vec<String> {
    rows.iter().map(|row| format!("{row:?}")).collect()
}

fn special_rows(id: i64) -> [Vec<Value>; 3] {
    [
        vec![
            Value::Int(id),
            Value::Float(f64::NAN),
            Value::Float(f64::INFINITY),
            decimal("100000000000000000000"),
            Value::Timestamp(i64::MAX),
            Value::TimestampTz(i64::MIN),
            Value::Date(i32::MAX),
            text("00:00:00Z"),
            Value::Time(86_400_000_000),
            // -1 mon
            text("-730:30:00.000000"),
            text("dflt"),
            bits("000000000000000100000010"),
            text("null"),
            // Debezium has nulls for the elements of two-dimensional arrays.
            array([Value::Null, Value::Null]),
            text("empty"),
            text("a  "),
            Value::Bool(true),
            decimal("1.50"),
        ],
        vec![
            Value::Int(id + 1),
            Value::Float(f64::NEG_INFINITY),
            Value::Float(-0.0),
            decimal("0.000001"),
            // 0044-03-15 BC
            Value::Timestamp(-63_517_824_000_000_000),
            Value::TimestampTz(-63_517_824_000_000_000),
            Value::Date(-735_160),
            text("15:59:00Z"),
            Value::Time(0),
            text("00:00:00.000001"),
            text("dflt"),
            bits("000000000000000000000000"),
            text("\"s\""),
            array([]),
            text("[\"2024-01-01 00:00:00\",\"2024-01-02 00:00:00\")"),
            text("abc"),
            Value::Bool(false),
            decimal("0.00"),
        ],
        vec![
            Value::Int(id + 2),
            Value::Float(f64::from(1e30_f32)),
            Value::Float(0.1),
            decimal("12345678901234567890.123"),
            // 294276-12-31 23:59:59.999999 overflows at the source.
            Value::Timestamp(-9_223_372_036_853_775_810),
            // 294246-12-31 23:59:59.999999+00
            Value::TimestampTz(9_223_371_244_799_999_999),
            Value::Date(2_145_042_905),
            text("09:59:59.999999Z"),
            Value::Time(86_399_999_999),
            // 1 year
            text("8766:00:00.000000"),
            text("dflt"),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            text("  x"),
            Value::Bool(true),
            decimal("1.50"),
        ],
    ]
}

#[test]
fn a_timestamp_that_64_bits_do_not_hold_is_bad() {
    let mut decoder = decoder(DecodeSettings::default(), "srv.inv.sp", &[special()]);
    let third =
        fixture("debezium-3.6.3/03-special-values.jsonl").into_iter().filter(|(topic, ..)| topic.ends_with(".sp"));
    let (_, _, record) = third.into_iter().nth(2).unwrap();

    let error = decoder.decode(&record).unwrap_err();

    let crate::decode::DecodeError::Bad(bad) = error else { panic!("{error:?}") };
    assert_eq!(
        bad.reason,
        "column `tstz`: the value, read as ZonedTimestamp, does not fit timestamptz: it is out of range"
    );
}

#[test]
fn special_values_come_as_the_source_has_them() {
    let mut decoder = decoder(DecodeSettings::default(), "srv.inv.sp", &[special()]);
    let mut rows = Vec::new();
    for (topic, _, mut record) in fixture("debezium-3.6.3/03-special-values.jsonl") {
        if topic.ends_with(".sp") {
            // The last timestamp with time zone that PostgreSQL has does not fit 64 bits since 1970: see above.
            let value = String::from_utf8(record.value.unwrap().into()).unwrap();
            record.value = Some(
                value.replace("+294276-12-31T23:59:59.999999Z", "+294246-12-31T23:59:59.999999Z").into_bytes().into(),
            );
            let Event::Row(row) = decode(&mut decoder, &record) else { panic!() };
            let RowOp::Upsert(values) = row.op else { panic!() };
            rows.push(values.to_vec());
        }
    }

    let mut read = special_rows(1);
    let logged = special_rows(11);
    // Debezium reads days before Christ wrongly when it reads the table.
    read[1][6] = Value::Date(-703_383);
    assert_eq!(shown(&rows), shown(&[read, logged].concat()));
}

#[test]
fn special_values_come_in_string_modes() {
    let rows = rows("04-special-values-string-modes", "sp", &string_modes(), &special());

    let [mut first, ..] = special_rows(1);
    for (column, value) in [
        // isostring loses 24:00.
        (8, Value::Time(0)),
        (9, text("P0Y-1M0DT0H0M0S")),
        (10, Value::Null),
        (16, Value::Null),
        (17, Value::Null),
    ] {
        first[column] = value;
    }
    let mut ninth = vec![Value::Null; 18];
    ninth[0] = Value::Int(9);
    ninth[3] = Value::Decimal(sink_api::Decimal::NaN);
    ninth[16] = Value::Bool(true);
    ninth[17] = decimal("1.50");
    assert_eq!(shown(&rows), shown(&[first, ninth]));
}

#[test]
fn unchanged_large_columns_are_unchanged_in_every_form() {
    let toast = shape(
        "inv.toast",
        &[
            ("id", "bigint"),
            ("v", "integer"),
            ("big", "text"),
            ("bigb", "bytea"),
            ("bigj", "jsonb"),
            ("biga", "text[]"),
            ("bigi", "integer[]"),
        ],
        &["id"],
    );

    let rows = rows("01-mixed-events", "toast", &DecodeSettings::default(), &toast);

    let mut expected = vec![Value::Unchanged; 7];
    expected[0] = Value::Int(1);
    expected[1] = Value::Int(2);
    assert_eq!(rows.last(), Some(&expected));
}
