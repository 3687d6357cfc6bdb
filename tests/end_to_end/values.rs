//! Every type that Debezium carries, through each of its modes, with the source's value at the end.
//!
//! One wide table: a row of plain values, one of high and one of low edges, one of NULLs; the four come once by the
//! snapshot and once by the stream, since Debezium writes some types differently there. What Debezium itself loses is
//! left out of the comparison by name.

use anyhow::Result;
use test_support::{Database, Pipeline, Stack, compare, until};

use crate::worker::{Apply, LIMIT, texts};

/// Column, type, and its three values as SQL expressions.
type Column = (&'static str, &'static str, [&'static str; 3]);

const COLUMNS: &[Column] = &[
    // Numbers.
    ("a_smallint", "smallint", ["7", "32767", "-32768"]),
    ("an_integer", "integer", ["-7", "2147483647", "-2147483648"]),
    ("a_bigint", "bigint", ["9007199254740993", "9223372036854775807", "-9223372036854775808"]),
    ("a_real", "real", ["1.5", "'Infinity'", "-0.0::real"]),
    ("a_double", "double precision", ["0.1", "'NaN'", "'-Infinity'"]),
    ("an_exact_double", "double precision", ["1e-300", "1.7976931348623157e308", "4.9e-324"]),
    ("a_numeric", "numeric", ["12345.67", "100000000000000000000000000000000000001", "-0.000000000000000001"]),
    ("a_numeric_10_2", "numeric(10,2)", ["-12.30", "99999999.99", "0"]),
    ("a_numeric_38_0", "numeric(38,0)", ["1", "99999999999999999999999999999999999999", "-1"]),
    ("a_nan", "numeric", ["'NaN'", "1", "'NaN'"]),
    ("a_money", "money", ["'12.34'", "'92233720368547758.07'", "'-0.01'"]),
    ("an_oid", "oid", ["1", "4294967295", "0"]),
    // Text, bytes, bits.
    ("a_text", "text", ["'plain'", r#"E'"quoted", \\ back, \u00e9, \U0001f600, line\nfeed, tab\t, \u2028'"#, "''"]),
    ("a_varchar", "varchar(10)", ["'varchar'", "'éééééééééé'", "''"]),
    ("a_char", "char(5)", ["'ab'", "'abcde'", "''"]),
    ("a_citext", "citext", ["'CaSe'", "'É'", "''"]),
    ("a_name", "name", ["'nm'", "'nm'", "'nm'"]),
    ("an_xml", "xml", ["'<a>1 &amp; 2</a>'", "'<b/>'", "'text'"]),
    ("a_mood", "mood", ["'ok'", "'it''s \"odd\"'", "'ok'"]),
    ("an_ltree", "ltree", ["'a.b.c'", "'Top'", "''"]),
    ("a_tsvector", "tsvector", ["to_tsvector('simple', 'a b''c a')", "'''it''''s'':1A'", "''"]),
    ("a_bytea", "bytea", [r"'\x00ff10'", r"'\xfbff'", r"'\x'"]),
    ("a_boolean", "boolean", ["true", "false", "false"]),
    ("a_bit", "bit(1)", ["B'1'", "B'0'", "B'0'"]),
    ("a_bit_16", "bit(16)", ["B'0000000100000010'", "B'1111111111111111'", "B'0000000000000000'"]),
    ("a_varbit", "bit varying(20)", ["B'10101'", "B'11111111111111111111'", "B'1'"]),
    ("a_varbit_with_zeros", "bit varying(20)", ["B'00101'", "B'0'", "B''"]),
    (
        "a_uuid",
        "uuid",
        [
            "'00010203-0405-0607-0809-0a0b0c0d0e0f'",
            "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
            "'00000000-0000-0000-0000-000000000000'",
        ],
    ),
    ("a_json", "json", [r#"'{"b" : 1,  "a":[1.0, null]}'"#, "'null'", r#"'"text"'"#]),
    ("a_jsonb", "jsonb", [r#"'{"n": 12345678901234567890.12345, "é": "\u0041"}'"#, "'null'", "'[]'"]),
    ("an_hstore", "hstore", [r#"'"k"=>"v", "n"=>NULL'"#, r#"'"a \"q\""=>"1, 2", ""=>""'"#, "''"]),
    ("an_inet", "inet", ["'10.0.0.1'", "'2001:db8::1/64'", "'0.0.0.0/0'"]),
    ("a_cidr", "cidr", ["'10.0.0.0/8'", "'2001:db8::/32'", "'0.0.0.0/0'"]),
    ("a_macaddr", "macaddr", ["'08:00:2b:01:02:03'", "'ff:ff:ff:ff:ff:ff'", "'00:00:00:00:00:00'"]),
    ("a_macaddr8", "macaddr8", ["'08:00:2b:01:02:03:04:05'", "'ff:ff:ff:ff:ff:ff:ff:ff'", "'00:00:00:00:00:00:00:00'"]),
    ("an_int4range", "int4range", ["'[1,5)'", "'(,)'", "'empty'"]),
    ("an_int8range", "int8range", ["'[1,5)'", "'[9223372036854775806,)'", "'empty'"]),
    ("a_numrange", "numrange", ["'[1.5,2.5]'", "'(,0)'", "'empty'"]),
    ("a_daterange", "daterange", ["'[2024-01-01,2024-02-29]'", "'(,)'", "'empty'"]),
    ("a_tsrange", "tsrange", ["'[2024-01-01 00:00:00.000001,2024-02-29 12:00:00)'", "'(,)'", "'empty'"]),
    ("a_tstzrange", "tstzrange", ["'[2024-01-01 00:00:00+00,)'", "'(,)'", "'empty'"]),
    ("a_point", "point", ["'(1.5,-2)'", "'(1e300,-1e300)'", "'(0,0)'"]),
    ("a_domain", "positive", ["1", "2147483647", "2"]),
    ("a_text_domain", "short", ["'short'", "'é'", "''"]),
    // Dates and times.
    ("a_date", "date", ["'2024-02-29'", "'9999-12-31'", "'0001-01-01'"]),
    ("a_far_date", "date", ["'1582-10-15'", "'5874897-12-31'", "'1969-12-31'"]),
    ("an_infinite_date", "date", ["'infinity'", "'-infinity'", "'2024-01-01'"]),
    ("a_date_before_christ", "date", ["'0044-03-15 BC'", "'0001-12-31 BC'", "'4713-01-01 BC'"]),
    ("a_time", "time", ["'13:14:15.123456'", "'23:59:59.999999'", "'00:00:00'"]),
    ("an_end_of_day", "time", ["'24:00:00'", "'24:00:00'", "'00:00:00'"]),
    ("a_time_3", "time(3)", ["'13:14:15.123'", "'23:59:59.999'", "'00:00:00'"]),
    ("a_time_0", "time(0)", ["'13:14:15'", "'23:59:59'", "'00:00:00'"]),
    ("a_timetz", "timetz", ["'13:14:15.123456+00'", "'23:59:59.999999+00'", "'00:00:00+00'"]),
    ("a_timestamp", "timestamp", ["'2024-02-29 13:14:15.123456'", "'9999-12-31 23:59:59.999999'", "'0001-01-01'"]),
    (
        "a_timestamp_3",
        "timestamp(3)",
        ["'2024-02-29 13:14:15.123'", "'9999-12-31 23:59:59.999'", "'1969-12-31 23:59:59.999'"],
    ),
    ("a_timestamp_0", "timestamp(0)", ["'2024-02-29 13:14:15'", "'9999-12-31 23:59:59'", "'1582-10-15'"]),
    ("an_infinite_timestamp", "timestamp", ["'infinity'", "'-infinity'", "'2024-01-01'"]),
    ("a_timestamptz", "timestamptz", ["'2024-02-29 13:14:15.123456+01'", "'infinity'", "'-infinity'"]),
    (
        "a_far_timestamptz",
        "timestamptz",
        ["'0044-03-15 12:00 BC'", "'294246-12-31 23:59:59.999999+00'", "'1582-10-04'"],
    ),
    ("an_interval", "interval", ["'1 year 2 mons 3 days 04:05:06.789'", "'-1 mons +3 days -00:00:00.000001'", "'0'"]),
    // Arrays.
    ("ints", "integer[]", ["'{1,NULL,3}'", "'{2147483647,-2147483648}'", "'{}'"]),
    ("bigints", "bigint[]", ["'{9007199254740993}'", "'{NULL}'", "'{}'"]),
    ("doubles", "double precision[]", ["'{1.5,NaN,NULL}'", "'{Infinity}'", "'{}'"]),
    ("booleans", "boolean[]", ["'{t,f,NULL}'", "'{t}'", "'{}'"]),
    ("numerics", "numeric(10,2)[]", ["'{1.50,NULL,-99999999.99}'", "'{0}'", "'{}'"]),
    ("texts", "text[]", [r#"ARRAY['a', NULL, 'b,c', '"q"', '', 'NULL', '{}', E'\\']"#, "'{é}'", "'{}'"]),
    ("byteas", "bytea[]", [r"ARRAY['\x78'::bytea, '\xfe0a']", r"ARRAY['\x'::bytea, NULL]", "'{}'"]),
    ("dates", "date[]", ["'{2024-02-29,NULL}'", "'{1969-12-31}'", "'{}'"]),
    ("timestamps", "timestamp[]", ["'{2024-02-29 13:14:15.123456}'", "'{NULL}'", "'{}'"]),
    ("timestamptzs", "timestamptz[]", ["'{2024-02-29 13:14:15.123456+01,NULL}'", "'{infinity}'", "'{}'"]),
    ("timetzs", "timetz[]", ["'{13:14:15+00}'", "'{NULL}'", "'{}'"]),
    ("fine_timetzs", "timetz[]", ["'{13:14:15.123456+00}'", "'{NULL}'", "'{}'"]),
    ("uuids", "uuid[]", ["'{00010203-0405-0607-0809-0a0b0c0d0e0f,NULL}'", "'{NULL}'", "'{}'"]),
    ("jsonbs", "jsonb[]", [r#"ARRAY['{"a": [1, "x,y"]}'::jsonb, 'null', NULL]"#, "ARRAY['1'::jsonb]", "'{}'"]),
    ("moods", "mood[]", [r#"ARRAY['it''s "odd"', 'ok']"#, "'{ok}'", "'{}'"]),
    ("moods_with_nulls", "mood[]", ["'{ok,NULL}'", "'{ok}'", "'{}'"]),
    ("inets", "inet[]", ["'{10.0.0.1,NULL}'", "'{::1}'", "'{}'"]),
    ("ranges", "int4range[]", [r#"'{"[1,5)",empty,NULL}'"#, r#"'{"(,)"}'"#, "'{}'"]),
    ("two_dimensions", "integer[]", ["'{{1,2},{3,4}}'", "'{{1}}'", "'{1}'"]),
    ("bits", "bit(4)[]", ["'{1010}'", "'{0000}'", "'{1111}'"]),
    ("a_box", "box", ["'(1,1),(0,0)'", "'(1,1),(0,0)'", "'(1,1),(0,0)'"]),
    ("a_multirange", "int4multirange", ["'{[1,2)}'", "'{}'", "'{[1,2)}'"]),
    ("an_lsn", "pg_lsn", ["'0/1'", "'0/2'", "'0/3'"]),
];

const PREPARE: &str = "CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree;
    CREATE TYPE mood AS ENUM ('ok', 'it''s \"odd\"');
    CREATE DOMAIN positive AS integer CHECK (VALUE > 0); CREATE DOMAIN short AS varchar(5)";

/// What stock Debezium loses in every mode (docs/values.md).
const LOST: &[(&str, &str)] = &[
    ("a_name", "null in the stream"),
    ("a_date_before_christ", "wrong in snapshots"),
    ("a_varbit_with_zeros", "leading zeros do not come through"),
    ("two_dimensions", "an array of nulls"),
    ("fine_timetzs", "fractions of a second do not come through"),
    ("moods_with_nulls", "null as a whole"),
    ("bits", "null"),
    ("a_box", "left out of the record"),
    ("a_multirange", "left out of the record"),
    ("an_lsn", "left out of the record"),
];

/// In mode isostring.
const ISO_END_OF_DAY: (&str, &str) = ("an_end_of_day", "24:00 is written as 00:00");

fn definitions() -> String {
    let columns: Vec<_> = COLUMNS.iter().map(|(name, kind, _)| format!("{name} {kind}")).collect();
    format!("id bigint PRIMARY KEY, {}", columns.join(", "))
}

/// Inserts the four rows under ids from `first` on.
fn rows(first: i64) -> String {
    let row = |number: usize| {
        let values = COLUMNS.iter().map(|(_, kind, values)| match values.get(number) {
            Some(value) if *kind == "money" => format!("{value}::numeric::money"),
            Some(value) => format!("({value})::{kind}"),
            None => "NULL".to_owned(),
        });
        format!("INSERT INTO wide VALUES ({}, {})", first + number as i64, values.collect::<Vec<_>>().join(", "))
    };
    (0..4).map(row).collect::<Vec<_>>().join("; ")
}

/// Names each column that differs, with its values on both sides in key order.
async fn differing(source: &mut Database, sink: &mut Database, without: &[(&str, &str)]) -> Result<String> {
    let mut lines = String::new();
    for (name, kind, _) in COLUMNS.iter().filter(|column| !without.iter().any(|(lost, _)| *lost == column.0)) {
        let query = format!("SELECT id || ': ' || {name}::text FROM wide ORDER BY id");
        let (left, right) = (texts(source, &query).await?, texts(sink, &query).await?);
        if left != right {
            lines += &format!("{name} {kind}\n  source {left:?}\n  sink   {right:?}\n");
        }
    }
    Ok(lines)
}

/// Sends the table through a connector of these properties and compares.
async fn arrives(schemas: bool, properties: &[(&str, &str)], flags: &[&str], lost: &[(&str, &str)]) -> Result<()> {
    let stack = Stack::from_env()?;
    let mut builder = Pipeline::builder(&stack, "wide")
        .prepare(PREPARE)
        .table("wide", &definitions())
        .seed(&rows(1))
        .schemas(schemas)
        // In its default, months and days cannot be told again.
        .property("interval.handling.mode", "string");
    for (name, value) in properties {
        builder = builder.property(name, value);
    }
    let pipeline = builder.start().await?;
    pipeline.make_sink_tables().await?;
    let (mut source, mut sink) = (pipeline.source().await?, pipeline.sink().await?);
    let mut worker = Apply::of(&stack, &pipeline, &["wide"]).with(flags).start()?;
    source.run(rows(11)).await?;
    source.run("UPDATE wide SET id = id + 10 WHERE id = 12; DELETE FROM wide WHERE id = 1").await?;
    source.run("UPDATE wide SET a_smallint = 8 WHERE id = 11").await?;

    let without: Vec<_> = LOST.iter().chain(lost).copied().collect();
    until("all changes have arrived", LIMIT, async || {
        if let Some(status) = worker.ended()? {
            anyhow::bail!("the worker ended with {status}");
        }
        Ok((sink
            .number("SELECT count(*) FROM wide WHERE id IN (2, 3, 4, 11, 22, 13, 14) AND a_smallint IS DISTINCT FROM 0")
            .await?
            == 7
            && sink.number("SELECT count(*) FROM wide WHERE id = 11 AND a_smallint = 8").await? == 1)
            .then_some(()))
    })
    .await?;
    let found =
        compare::difference_without(&mut source, "inventory.wide", &mut sink, "inventory.wide", &without).await?;
    assert_eq!(found.equal, 7, "{}", differing(&mut source, &mut sink, &without).await?);
    worker.stop(LIMIT).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_arrives_in_the_default_modes_with_schemas() -> Result<()> {
    arrives(true, &[], &[], &[("a_nan", "null in mode precise")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_arrives_in_the_default_modes_without_schemas() -> Result<()> {
    arrives(false, &[], &["--interval-handling-mode", "string"], &[("a_nan", "null in mode precise")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_arrives_in_the_text_modes_with_schemas() -> Result<()> {
    let properties = [
        ("decimal.handling.mode", "string"),
        ("time.precision.mode", "isostring"),
        ("binary.handling.mode", "base64-url-safe"),
        ("hstore.handling.mode", "map"),
    ];
    arrives(true, &properties, &["--binary-handling-mode", "base64-url-safe"], &[ISO_END_OF_DAY]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_arrives_in_declared_modes_without_schemas() -> Result<()> {
    let properties = [
        ("decimal.handling.mode", "string"),
        ("time.precision.mode", "isostring"),
        ("binary.handling.mode", "hex"),
        ("hstore.handling.mode", "map"),
    ];
    let flags = [
        "--decimal-handling-mode",
        "string",
        "--time-precision-mode",
        "isostring",
        "--binary-handling-mode",
        "hex",
        "--hstore-handling-mode",
        "map",
        "--interval-handling-mode",
        "string",
    ];
    arrives(false, &properties, &flags, &[ISO_END_OF_DAY]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_type_arrives_in_mode_connect_but_for_its_microseconds() -> Result<()> {
    let lost = [
        ("a_nan", "null in mode precise"),
        ("a_time", "microseconds"),
        ("a_timestamp", "microseconds"),
        ("timestamps", "microseconds"),
    ];
    let properties = [("time.precision.mode", "connect"), ("binary.handling.mode", "base64")];
    arrives(true, &properties, &["--binary-handling-mode", "base64"], &lost).await
}
