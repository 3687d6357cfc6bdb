//! Values in modes and types that the captures do not have, and values that do not fit.
//!
//! Microseconds, days and accepted text forms are PostgreSQL's own answers (`extract(epoch ...)`, `date - date`, casts).

use sink_api::{RowOp, Value};

use super::{decoder, record, shape};
use crate::decode::{DecodeError, DecodeSettings, Event, Placeholder};

/// Decodes one value for a column, without a schema. `modes` are `property=value`.
fn read_with(column: &str, modes: &str, json: &str) -> Result<Value, String> {
    let mut settings = DecodeSettings::default();
    for mode in modes.split(' ').filter(|mode| !mode.is_empty()) {
        match mode.split_once('=').unwrap() {
            ("decimal", value) => settings.modes.decimal = value.parse().unwrap(),
            ("time", value) => settings.modes.time = value.parse().unwrap(),
            ("binary", value) => settings.modes.binary = value.parse().unwrap(),
            ("interval", value) => settings.modes.interval = value.parse().unwrap(),
            ("hstore", value) => settings.modes.hstore = value.parse().unwrap(),
            ("placeholder", value) => settings.unavailable = Placeholder::new(value),
            other => panic!("{other:?}"),
        }
    }
    decode(column, settings, format!(r#"{{"after":{{"id":1,"c":{json}}},{SOURCE},"op":"u"}}"#))
}

fn read(column: &str, json: &str) -> Result<Value, String> {
    read_with(column, "", json)
}

/// Decodes one value for a column, with this schema.
fn read_as(column: &str, schema: &str, json: &str) -> Result<Value, String> {
    let field = schema.replacen('{', "{\"field\":\"c\",", 1);
    let schema = format!(
        r#"{{"type":"struct","fields":[{{"type":"struct","fields":[{{"type":"int64","field":"id"}},{field}],"field":"after"}}]}}"#
    );
    let payload = format!(r#"{{"after":{{"id":1,"c":{json}}},{SOURCE},"op":"u"}}"#);
    decode(column, DecodeSettings::default(), format!(r#"{{"schema":{schema},"payload":{payload}}}"#))
}

const SOURCE: &str = r#""source":{"name":"srv","schema":"inv","table":"t","txId":7}"#;

fn decode(column: &str, settings: DecodeSettings, value: String) -> Result<Value, String> {
    let shape = shape("inv.t", &[("id", "bigint"), ("c", column)], &["id"]);
    match decoder(settings, "x", &[shape]).decode(&record(Some(r#"{"id":1}"#), Some(&value), &[])) {
        Ok(Event::Row(row)) => match row.op {
            RowOp::Upsert(values) => Ok(values[1].clone()),
            RowOp::Delete => panic!("{value}"),
        },
        Err(DecodeError::Bad(bad)) => Err(bad.reason),
        Err(DecodeError::Setup { reason, .. }) => Err(format!("set-up: {reason}")),
        other => panic!("{other:?}"),
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.into())
}

fn decimal(text: &str) -> Value {
    Value::Decimal(text.parse().unwrap())
}

#[test]
fn modes_say_how_values_are_read_without_schemas() {
    let bytes = || Value::Bytes([0x00, 0xff, 0x10].into());
    for (column, modes, json, value) in [
        ("numeric(10,2)", "decimal=string", "\"-12.30\"", decimal("-12.30")),
        ("numeric(10,2)", "decimal=double", "-12.3", decimal("-12.3")),
        ("numeric(10,2)", "", "-12.30", decimal("-12.30")),
        ("numeric", "decimal=double", "1.0E30", decimal("1.0e30")),
        ("numeric", "decimal=double", "\"NaN\"", Value::Decimal(sink_api::Decimal::NaN)),
        ("numeric", "decimal=string", "\"POSITIVE_INFINITY\"", Value::Decimal(sink_api::Decimal::Infinity)),
        ("money", "decimal=string", "\"12.34\"", decimal("12.34")),
        ("date", "time=connect", "19782", Value::Date(19_782)),
        ("date", "time=isostring", "\"2024-02-29Z\"", Value::Date(19_782)),
        ("time", "time=connect", "47655123", Value::Time(47_655_123_000)),
        ("time(3)", "", "47655123", Value::Time(47_655_123_000)),
        ("time(3)", "time=adaptive_time_microseconds", "47655123000", Value::Time(47_655_123_000)),
        ("time", "time=nanoseconds", "47655123456000", Value::Time(47_655_123_456)),
        ("timestamp", "time=connect", "1709212455123", Value::Timestamp(1_709_212_455_123_000)),
        ("timestamp(3)", "time=microseconds", "1709212455123000", Value::Timestamp(1_709_212_455_123_000)),
        ("timestamp", "time=nanoseconds", "1709212455123456000", Value::Timestamp(1_709_212_455_123_456)),
        ("timestamp", "time=isostring", "\"2024-02-29T13:14:15.123456Z\"", Value::Timestamp(1_709_212_455_123_456)),
        ("bytea", "binary=base64", "\"AP8Q\"", bytes()),
        ("bytea", "binary=base64-url-safe", "\"AP8Q\"", bytes()),
        ("bytea", "binary=base64-url-safe", "\"-_8=\"", Value::Bytes([0xfb, 0xff].into())),
        ("bytea", "binary=hex", "\"00ff10\"", bytes()),
        ("interval", "interval=string", "\"P0Y-1M0DT0H0M0S\"", text("P0Y-1M0DT0H0M0S")),
        ("hstore", "hstore=map", r#"{"k":"v \"q\" \\","n":null}"#, text(r#""k"=>"v \"q\" \\", "n"=>NULL"#)),
        ("hstore", "", "\"{}\"", text("")),
    ] {
        assert_eq!(read_with(column, modes, json), Ok(value), "{column} {modes} {json}");
    }
}

#[test]
fn a_schema_says_how_a_value_is_read() {
    let named = |kind: &str, name: &str| format!(r#"{{"type":"{kind}","name":"{name}"}}"#);
    let micros = 1_709_212_455_123_456;
    let geometry = r#"{"wkb":"AQEAAAAAAAAAAAD4PwAAAAAAAADA","srid":4326}"#;
    for (column, schema, json, value) in [
        ("bigint", r#"{"type":"int8"}"#.to_owned(), "-128", Value::Int(-128)),
        ("numeric(20,0)", r#"{"type":"int64"}"#.to_owned(), "9223372036854775807", decimal("9223372036854775807")),
        (
            "bigint",
            r#"{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"0"}}"#.to_owned(),
            "\"AQA=\"",
            Value::Int(256),
        ),
        (
            "timestamp",
            named("int64", "org.apache.kafka.connect.data.Timestamp"),
            "1709212455123",
            Value::Timestamp(micros / 1_000 * 1_000),
        ),
        (
            "timestamp(3)",
            named("int64", "io.debezium.time.MicroTimestamp"),
            "1709212455123000",
            Value::Timestamp(micros / 1_000 * 1_000),
        ),
        (
            "timestamp",
            named("int64", "io.debezium.time.NanoTimestamp"),
            "1709212455123456000",
            Value::Timestamp(micros),
        ),
        ("time", named("int32", "org.apache.kafka.connect.data.Time"), "1", Value::Time(1_000)),
        ("time(0)", named("int64", "io.debezium.time.NanoTime"), "1000000000", Value::Time(1_000_000)),
        ("interval", named("int64", "io.debezium.time.NanoDuration"), "-1000", text("-00:00:00.000001")),
        ("bit(3)", named("bytes", "io.debezium.data.Bits"), "\"BQ==\"", Value::Bits([1, 0, 1].into())),
        ("bit(1)", r#"{"type":"boolean"}"#.to_owned(), "false", Value::Bits([0].into())),
        (
            "geometry",
            named("struct", "io.debezium.data.geometry.Geometry"),
            geometry,
            text("SRID=4326;0101000000000000000000F83F00000000000000C0"),
        ),
        (
            "vector",
            r#"{"type":"array","name":"io.debezium.data.DoubleVector","items":{"type":"double"}}"#.to_owned(),
            "[1.0,2.5]",
            text("[1.0,2.5]"),
        ),
        ("pg_lsn", r#"{"type":"bytes"}"#.to_owned(), "\"MC8xQkM=\"", text("0/1BC")),
        (
            "text",
            named("string", "io.debezium.time.ZonedTimestamp"),
            "\"2024-02-29T11:14:15Z\"",
            text("2024-02-29T11:14:15Z"),
        ),
        (
            "text[]",
            r#"{"type":"array","items":{"type":"string"}}"#.to_owned(),
            "[\"\\u00e9\",null]",
            Value::Array([text("é"), Value::Null].into()),
        ),
    ] {
        assert_eq!(read_as(column, &schema, json), Ok(value), "{column} {schema} {json}");
    }
}

#[test]
fn iso_text_is_postgresqls_instant() {
    for (json, micros) in [
        ("2024-02-29T13:14:15.123456+02:00", 1_709_205_255_123_456),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000_000),
        ("0044-03-15 00:00:00+00 BC", -63_517_824_000_000_000),
        ("-0043-03-15T00:00:00.000000Z", -63_517_824_000_000_000),
        ("4713-01-01 00:00:00+00 BC", -210_863_520_000_000_000),
        ("0005-02-29 12:00:00+00 BC", -62_288_308_800_000_000),
        ("10000-12-31 23:59:59.9+05:30", 253_433_903_399_900_000),
        ("+10000-12-31T23:59:59.900000000+0530", 253_433_903_399_900_000),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("2000-02-29T24:00:00Z", 951_868_800_000_000),
        ("1883-11-18T12:00:00-04:56:02", -2_717_651_038_000_000),
        ("294246-12-31T23:59:59.999999Z", 9_223_371_244_799_999_999),
        ("infinity", i64::MAX),
        ("-infinity", i64::MIN),
    ] {
        assert_eq!(read("timestamptz", &format!("\"{json}\"")), Ok(Value::TimestampTz(micros)), "{json}");
    }
}

#[test]
fn iso_text_is_postgresqls_day() {
    for (json, days) in [
        ("2024-02-29", 19_782),
        ("0001-01-01", -719_162),
        ("0044-03-15 BC", -735_160),
        ("4713-11-24 BC", -2_440_222),
        ("5874897-12-31", 2_145_042_905),
        ("1900-03-01", -25_508),
        ("2100-02-28", 47_540),
        ("0000-12-31", -719_163),
        ("+292278994-08-16Z", i32::MAX),
        ("infinity", i32::MAX),
        ("-infinity", i32::MIN),
    ] {
        let read = read_with("date", "time=isostring", &format!("\"{json}\""));

        assert_eq!(read, Ok(Value::Date(days)), "{json}");
    }
}

#[test]
fn text_that_is_no_date_or_time_is_refused() {
    for (column, texts) in [
        (
            "date",
            &[
                "",
                "2024",
                "2024-2-29",
                "2023-02-29",
                "1900-02-29",
                "2024-13-01",
                "2024-00-01",
                "2024-01-00",
                "2024-01-01x",
                "24-01-01",
                "2024-01-01+01",
                "1234567890-01-01",
                "--2024-01-01",
            ][..],
        ),
        (
            "time",
            &[
                "",
                "1:00",
                "12:60:00",
                "12:00:60",
                "24:00:01",
                "12:00:00.",
                "12:00:00+01",
                "12:00:00.1234567",
                "-12:00:00",
            ][..],
        ),
        (
            "timestamp",
            &[
                "",
                "2024-01-01",
                "2024-01-01T",
                "2024-01-01X12:00:00",
                "2024-01-01T12:00:00+01:00",
                "2024-01-01T12:00:00.1234567",
                "999999999-01-01T00:00:00",
            ][..],
        ),
        (
            "timestamptz",
            &["2024-01-01T12:00:00", "2024-01-01T12:00:00+1", "2024-01-01T12:00:00Q", "999999999-01-01T00:00:00Z"][..],
        ),
        ("timetz", &["12:00:00", "x"][..]),
    ] {
        for text in texts {
            let read = read_with(column, "time=isostring", &format!("\"{text}\""));

            assert!(read.is_err(), "{column} {text}: {read:?}");
        }
    }
}

#[test]
fn values_that_a_column_does_not_hold_are_refused_not_cut_or_rounded() {
    let types = "takes no";
    for (column, modes, json, reason) in [
        ("smallint", "", "32768", "it is out of range"),
        ("integer", "", "-2147483649", "it is out of range"),
        ("integer", "", "1e3", "it is not an integer"),
        ("integer", "", "\"1\"", "it is not an integer"),
        ("real", "", "1e39", "it is out of range"),
        ("real", "", "0.1000000001", "it has more digits than the column holds"),
        ("double precision", "", "1e309", "it is out of range"),
        ("double precision", "", "\"nan\"", "it is not a number"),
        ("numeric(4,2)", "decimal=string", "\"100\"", "it is out of range"),
        ("numeric(4,2)", "decimal=string", "\"1.001\"", "it has more fractional digits than the column holds"),
        ("numeric(4,2)", "decimal=string", "\"Infinity\"", "it is out of range"),
        (
            "numeric",
            "",
            "\"+zI=\"",
            "a decimal's scale is not in the record: give --decimal-handling-mode string if the connector has decimal.handling.mode=string, else switch schemas on or set that mode",
        ),
        ("numeric", "", r#"{"scale":1}"#, "it is not a decimal number"),
        ("numeric", "", r#"{"scale":16384,"value":"AQ=="}"#, "it is out of range"),
        ("numeric", "", "1e200000", "it is out of range"),
        ("varchar(2)", "", "\"abc\"", "it has more characters than the column holds"),
        ("varchar(2)", "", "\"ab \"", "it has more characters than the column holds"),
        ("char(2)", "", "\"abc\"", "it has more characters than the column holds"),
        (
            "timestamp(3)",
            "time=microseconds",
            "1709212455123456",
            "it has more fractional digits of a second than the column holds",
        ),
        ("timestamp", "time=nanoseconds", "1", "it has nanoseconds, which no column holds"),
        ("timestamp", "time=connect", "9223372036854775807", "it is out of range"),
        (
            "timestamptz(0)",
            "",
            "\"2024-01-01T00:00:00.5Z\"",
            "it has more fractional digits of a second than the column holds",
        ),
        (
            "timestamptz",
            "",
            "\"2024-01-01T00:00:00.0000001Z\"",
            "it has more fractional digits of a second than the column holds",
        ),
        ("time", "", "86400000001", "it is out of range"),
        ("time", "", "-1", "it is out of range"),
        ("date", "", "2147483648", "it is out of range"),
        ("bit(3)", "", "\"CA==\"", "it has more bits than the column holds"),
        ("bytea", "binary=hex", "\"0\"", "it is not bytes in this form"),
        ("uuid", "", "\"11111111-2222-3333-4444-55555555555\"", "it is not a UUID"),
        ("uuid", "", "\"11111111222233334444555555555555----\"", "it is not a UUID"),
        ("uuid", "", "\"1111111g-2222-3333-4444-555555555555\"", "it is not a UUID"),
        ("uuid", "", "\"éééééééééééééééééé\"", "it is not a UUID"),
        ("interval", "interval=string", "\"1 day\"", "it is not an ISO 8601 interval"),
        ("hstore", "", "\"[1]\"", "it is not an object of strings and nulls"),
        ("hstore", "hstore=map", r#"{"a":1}"#, "it is not an object of strings and nulls"),
        ("point", "", r#"{"x":1}"#, "it is not a point"),
        ("point", "", "7", "it is not a point"),
        ("text", "", "7", "it is a number, not a string"),
        ("inet", "", r#"{"a":1}"#, ""),
        ("text[]", "", "\"a\"", "it is not an array"),
        ("text[]", "", r#"["a","__debezium_unavailable_value"]"#, "it holds the placeholder among others"),
    ] {
        let read = read_with(column, modes, json);

        let Err(message) = read else { panic!("{column} {json}: {read:?}") };
        assert!(message.starts_with("column `c`: ") && message.ends_with(reason), "{column} {json}: {message}");
        assert!(!message.contains(types), "{column} {json}: {message}");
    }
}

#[test]
fn types_that_do_not_go_together_are_refused_by_name() {
    let named = |kind: &str, name: &str| format!(r#"{{"type":"{kind}","name":"{name}"}}"#);
    let time = "io.debezium.time.";
    for (column, schema, json, message) in [
        ("integer", r#"{"type":"string"}"#.to_owned(), "\"1\"", "integer takes no string values"),
        ("text", r#"{"type":"int32"}"#.to_owned(), "1", "text takes no integer values"),
        ("boolean", r#"{"type":"int16"}"#.to_owned(), "1", "boolean takes no integer values"),
        ("timestamp", named("int32", &format!("{time}Date")), "1", "timestamp takes no Date values"),
        (
            "timestamp",
            named("string", &format!("{time}ZonedTimestamp")),
            "\"2024-01-01T00:00:00Z\"",
            "timestamp takes no ZonedTimestamp values",
        ),
        (
            "timestamptz",
            named("int64", &format!("{time}MicroTimestamp")),
            "1",
            "timestamptz takes no MicroTimestamp values",
        ),
        ("bigint", named("int64", &format!("{time}MicroTimestamp")), "1", "bigint takes no MicroTimestamp values"),
        ("date", r#"{"type":"int32"}"#.to_owned(), "1", "date takes no integer values"),
        ("numeric", named("struct", "io.debezium.data.geometry.Point"), "{}", "numeric takes no Point values"),
        ("text", named("struct", "com.example.Thing"), "{}", "text takes no com.example.Thing values"),
        (
            "numeric(10,2)",
            named("bytes", "org.apache.kafka.connect.data.Decimal"),
            "\"AQ==\"",
            "numeric(10,2) takes no Decimal without a scale values",
        ),
    ] {
        assert_eq!(read_as(column, &schema, json), Err(format!("column `c`: {message}")), "{schema}");
    }
}

#[test]
fn a_double_for_a_single_precision_column_has_to_be_one() {
    let double = r#"{"type":"double"}"#;

    assert_eq!(read_as("real", double, "0.5"), Ok(Value::Float(0.5)));
    let inexact = read_as("real", double, "0.1").unwrap_err();
    assert_eq!(
        inexact,
        "column `c`: the value, read as double, does not fit real: it has more digits than the column holds"
    );
    assert_eq!(read_as("real", r#"{"type":"float"}"#, "0.1"), Ok(Value::Float(f64::from(0.1_f32))));
}

#[test]
fn bytes_as_text_need_a_mode_even_with_schemas() {
    let read = read_as("bytea", r#"{"type":"string"}"#, "\"AP8Q\"");

    assert_eq!(
        read,
        Err("set-up: column `c` takes bytes, and the stream carries them as text of an unknown form".to_owned())
    );
}

#[test]
fn every_form_of_the_placeholder_is_unchanged() {
    let numbers = |text: &str| format!("{:?}", text.bytes().collect::<Vec<u8>>());
    let default = "__debezium_unavailable_value";
    for (column, modes, json) in [
        ("text", "", format!("\"{default}\"")),
        ("numeric", "decimal=string", format!("\"{default}\"")),
        ("xml", "", format!("\"{default}\"")),
        ("hstore", "", format!("\"{default}\"")),
        ("hstore", "hstore=map", format!("{{\"{default}\":\"{default}\"}}")),
        ("bytea", "", "\"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\"".to_owned()),
        ("bytea", "binary=hex", format!("\"{}\"", hex::encode(default))),
        ("bytea[]", "", "[\"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\"]".to_owned()),
        ("text[]", "", format!("[\"{default}\"]")),
        ("jsonb[]", "", format!("[\"{default}\"]")),
        ("integer[]", "", numbers(default)),
        ("bigint[]", "", numbers(default)),
        ("date[]", "", numbers(default)),
        ("uuid[]", "", "[\"b68a35a7-17ad-35b3-af2a-ae46edb4545a\"]".to_owned()),
        ("text", "placeholder=gone", "\"gone\"".to_owned()),
        ("bytea", "placeholder=gone", "\"Z29uZQ==\"".to_owned()),
        ("bytea", "placeholder=hex:00ff", "\"AP8=\"".to_owned()),
        ("smallint[]", "placeholder=hex:00ff", "[0,-1]".to_owned()),
    ] {
        assert_eq!(read_with(column, modes, &json), Ok(Value::Unchanged), "{column} {modes} {json}");
    }
    assert_eq!(read_with("text", "placeholder=gone", &format!("\"{default}\"")), Ok(text(default)));
}

#[test]
fn a_zero_byte_in_text_is_left_to_the_sink() {
    assert_eq!(read("text", "\"a\\u0000b\""), Ok(text("a\0b")));
}
