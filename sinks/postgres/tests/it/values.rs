//! Values: what the sink writes must equal what PostgreSQL itself makes of a literal.

use std::sync::Arc;

use sink_api::{ColumnType, ErrorClass, MergedChange, Sink, TableShape, Value};

use crate::fixture::{Bench, Db, batch, int, public, text, upsert};

const EPOCH_2000: i64 = 946_684_800_000_000;

fn decimal(text: &str) -> Value {
    Value::Decimal(text.parse().unwrap())
}

fn bytes(value: &[u8]) -> Value {
    Value::Bytes(value.into())
}

fn bits(value: &[u8]) -> Value {
    Value::Bits(value.into())
}

fn array(values: impl IntoIterator<Item = Value>) -> Value {
    Value::Array(values.into_iter().collect())
}

/// A column's type, and pairs of an SQL literal and the value that must land as it.
fn cases() -> Vec<(&'static str, Vec<(&'static str, Value)>)> {
    vec![
        ("boolean", vec![("true", Value::Bool(true)), ("false", Value::Bool(false)), ("true", text("true"))]),
        (
            "smallint",
            vec![("-32768", Value::Int(-32768)), ("32767", Value::Int(32767)), ("7", text("7")), ("7", decimal("7"))],
        ),
        ("integer", vec![("-2147483648", Value::Int(-2_147_483_648)), ("2147483647", Value::Int(2_147_483_647))]),
        (
            "bigint",
            vec![
                ("'-9223372036854775808'", Value::Int(i64::MIN)),
                ("'9223372036854775807'", Value::Int(i64::MAX)),
                ("12", text("12")),
            ],
        ),
        (
            "real",
            vec![
                ("'0.1'", Value::Float(0.1)),
                ("'NaN'", Value::Float(f64::NAN)),
                ("'-Infinity'", Value::Float(f64::NEG_INFINITY)),
                ("'3.4028235e38'", Value::Float(3.402_823_5e38)),
                ("'1e-45'", Value::Float(1e-45)),
                ("'16777216'", Value::Int(16_777_216)),
                ("'0.25'", decimal("0.25")),
            ],
        ),
        (
            "double precision",
            vec![
                ("'0.1'", Value::Float(0.1)),
                ("'NaN'", Value::Float(f64::NAN)),
                ("'Infinity'", Value::Float(f64::INFINITY)),
                ("'-0'", Value::Float(-0.0)),
                ("'5e-324'", Value::Float(5e-324)),
                ("'1.7976931348623157e308'", Value::Float(f64::MAX)),
                ("'9007199254740992'", Value::Int(9_007_199_254_740_992)),
                ("'0.1'", decimal("0.1")),
                ("'-Infinity'", decimal("-Infinity")),
            ],
        ),
        (
            "numeric",
            vec![
                ("0", decimal("0")),
                ("0.000", decimal("0.000")),
                ("1.50", decimal("1.50")),
                ("-0.0001", decimal("-0.0001")),
                ("100000000000000000000", decimal("1e20")),
                ("10000", decimal("10000")),
                ("9999.99990001", decimal("9999.99990001")),
                (
                    "12345678901234567890123456789012345678901234567890.123456789",
                    decimal("12345678901234567890123456789012345678901234567890.123456789"),
                ),
                ("0.00000000000000000000000000001230", decimal("0.00000000000000000000000000001230")),
                ("'NaN'", Value::Decimal(sink_api::Decimal::NaN)),
                ("'Infinity'", Value::Decimal(sink_api::Decimal::Infinity)),
                ("'-Infinity'", Value::Decimal(sink_api::Decimal::NegativeInfinity)),
                ("17", Value::Int(17)),
                ("0.1", Value::Float(0.1)),
                ("1.10", text("1.10")),
            ],
        ),
        (
            "numeric(10,2)",
            vec![("-12.30", decimal("-12.3")), ("1.50", decimal("1.500")), ("99999999.99", decimal("99999999.99"))],
        ),
        ("numeric(5,-2)", vec![("12300", Value::Int(12300)), ("1200", decimal("12e2"))]),
        ("money", vec![("'12.34'", decimal("12.34")), ("'-0.05'", decimal("-0.05")), ("'7'", Value::Int(7))]),
        (
            "text",
            vec![
                ("'a''b\"c\\d'", text("a'b\"c\\d")),
                ("''", text("")),
                ("'  blanks  '", text("  blanks  ")),
                ("'é😀'", text("é😀")),
                ("'5'", Value::Int(5)),
                ("'0.5'", Value::Float(0.5)),
            ],
        ),
        ("varchar(3)", vec![("'ab '", text("ab ")), ("'ééé'", text("ééé"))]),
        ("char(5)", vec![("'ab'", text("ab")), ("'ab'", text("ab   ")), ("'ab'", text("ab        "))]),
        ("name", vec![("'n'", text("n"))]),
        ("\"char\"", vec![("'x'", text("x"))]),
        ("citext", vec![("'MiXed'", text("MiXed"))]),
        ("bytea", vec![("'\\x00ff5c'", bytes(&[0, 255, 0x5c])), ("''", bytes(&[]))]),
        (
            "uuid",
            vec![
                (
                    "'00112233-4455-6677-8899-aabbccddeeff'",
                    Value::Uuid(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"),
                ),
                ("'00112233-4455-6677-8899-aabbccddeeff'", text("{00112233-4455-6677-8899-AABBCCDDEEFF}")),
            ],
        ),
        (
            "date",
            vec![
                ("'2000-02-29'", Value::Date(11_016)),
                ("'0001-12-31 BC'", Value::Date(-719_163)),
                ("'4713-11-24 BC'", Value::Date(-2_440_222)),
                ("'5874897-12-31'", Value::Date(2_145_042_905)),
                ("'infinity'", Value::Date(i32::MAX)),
                ("'-infinity'", Value::Date(i32::MIN)),
                ("'2020-01-02'", text("2020-01-02")),
            ],
        ),
        (
            "time",
            vec![
                ("'00:00'", Value::Time(0)),
                ("'23:59:59.999999'", Value::Time(86_399_999_999)),
                ("'24:00'", Value::Time(86_400_000_000)),
            ],
        ),
        ("time(3)", vec![("'10:00:00.123'", Value::Time(36_000_123_000)), ("'10:00:00.12'", text("10:00:00.120000"))]),
        ("timetz", vec![("'10:30:00.5+02'", text("10:30:00.5+02")), ("'10:30Z'", text("10:30:00Z"))]),
        (
            "timestamp",
            vec![
                ("'2000-01-01'", Value::Timestamp(EPOCH_2000)),
                ("'1969-12-31 23:59:59.999999'", Value::Timestamp(-1)),
                ("'0044-03-15 12:00 BC'", text("0044-03-15 12:00:00 BC")),
                ("'infinity'", Value::Timestamp(i64::MAX)),
                ("'-infinity'", Value::Timestamp(i64::MIN)),
            ],
        ),
        ("timestamp(3)", vec![("'2000-01-01 00:00:00.001'", Value::Timestamp(EPOCH_2000 + 1000))]),
        (
            "timestamptz",
            vec![
                ("'2000-01-01 00:00:00.000001+00'", Value::TimestampTz(EPOCH_2000 + 1)),
                ("'infinity'", Value::TimestampTz(i64::MAX)),
                ("'2000-01-01 02:00:00+02'", text("2000-01-01T00:00:00Z")),
            ],
        ),
        (
            "interval",
            vec![
                ("'1 year 2 months 3 days 04:05:06.789'", text("P1Y2M3DT4H5M6.789S")),
                ("'-1 day 23:00'", text("-1 days +23:00:00")),
                ("'1.000001 seconds'", Value::Int(1_000_001)),
            ],
        ),
        ("json", vec![("'{\"b\": 1,  \"a\": [null]}'", text("{\"b\": 1,  \"a\": [null]}"))]),
        ("jsonb", vec![("'{\"a\": [null], \"b\": 1.10}'", text("{\"b\":1.10,\"a\":[null]}"))]),
        ("xml", vec![("'<a>b</a>'", text("<a>b</a>"))]),
        ("bit(3)", vec![("B'101'", bits(b"101")), ("B'101'", bits(&[1, 0, 1]))]),
        ("bit(1)", vec![("B'1'", Value::Bool(true)), ("B'0'", bits(b"0"))]),
        ("varbit", vec![("B''", bits(b"")), ("B'0001'", bits(b"0001"))]),
        ("hstore", vec![("'\"a\"=>\"x\", \"b\"=>NULL'", text("\"a\"=>\"x\", \"b\"=>NULL"))]),
        ("point", vec![("'(1.5,-2)'", text("(1.5,-2)"))]),
        ("box", vec![("'(2,2),(1,1)'", text("(2,2),(1,1)"))]),
        ("mood", vec![("'so so'", text("so so"))]),
        ("pair", vec![("'(1,\"a,b\")'", text("(1,\"a,b\")"))]),
        ("inet", vec![("'10.0.0.1/8'", text("10.0.0.1/8"))]),
        ("cidr", vec![("'10.0.0.0/8'", text("10.0.0.0/8"))]),
        ("macaddr", vec![("'08:00:2b:01:02:03'", text("08:00:2b:01:02:03"))]),
        ("int4range", vec![("'[1,5)'", text("[1,5)")), ("'empty'", text("empty"))]),
        ("tstzrange", vec![("'[2000-01-01 00:00+00,)'", text("[\"2000-01-01 00:00:00+00\",)"))]),
        ("int4multirange", vec![("'{[1,3),[5,7)}'", text("{[1,3),[5,7)}"))]),
        ("tsvector", vec![("'''a'':1 ''b'':2'", text("'a':1 'b':2"))]),
        ("pg_lsn", vec![("'16/B374D848'", text("16/B374D848"))]),
        ("oid", vec![("4294967295", Value::Int(4_294_967_295))]),
        ("cents", vec![("1.25", decimal("1.25"))]),
        ("short", vec![("'abc'", text("abc"))]),
        (
            "integer[]",
            vec![
                ("'{1,NULL,-3}'", array([Value::Int(1), Value::Null, Value::Int(-3)])),
                ("'{}'", array([])),
                (
                    "'{{1,2},{3,4}}'",
                    array([array([Value::Int(1), Value::Int(2)]), array([Value::Int(3), Value::Int(4)])]),
                ),
                ("'[0:1]={1,2}'", text("[0:1]={1,2}")),
            ],
        ),
        (
            "text[]",
            vec![(
                "ARRAY['a,b', '\"q\\', '', 'NULL', NULL, ' é ']",
                array([text("a,b"), text("\"q\\"), text(""), text("NULL"), Value::Null, text(" é ")]),
            )],
        ),
        ("numeric(10,2)[]", vec![("'{1.50,NaN}'", array([decimal("1.5"), Value::Decimal(sink_api::Decimal::NaN)]))]),
        ("bytea[]", vec![("ARRAY['\\x00ff'::bytea, '']", array([bytes(&[0, 255]), bytes(&[])]))]),
        ("boolean[]", vec![("'{t,f}'", array([Value::Bool(true), Value::Bool(false)]))]),
        (
            "uuid[]",
            vec![(
                "'{00112233-4455-6677-8899-aabbccddeeff}'",
                array([Value::Uuid(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff")]),
            )],
        ),
        (
            "double precision[]",
            vec![(
                "'{0.1,-Infinity,NaN,1e300}'",
                array([
                    Value::Float(0.1),
                    Value::Float(f64::NEG_INFINITY),
                    Value::Float(f64::NAN),
                    Value::Float(1e300),
                ]),
            )],
        ),
        (
            "date[]",
            vec![(
                "'{2000-02-29,0001-12-31 BC,infinity}'",
                array([Value::Date(11_016), Value::Date(-719_163), Value::Date(i32::MAX)]),
            )],
        ),
        ("time[]", vec![("'{24:00,00:00:00.000001}'", array([Value::Time(86_400_000_000), Value::Time(1)]))]),
        (
            "timestamp[]",
            vec![(
                "'{1969-12-31 23:59:59.999999,infinity}'",
                array([Value::Timestamp(-1), Value::Timestamp(i64::MAX)]),
            )],
        ),
        ("timestamptz[]", vec![("'{2000-01-01 00:00+00}'", array([Value::TimestampTz(EPOCH_2000)]))]),
        ("interval[]", vec![("'{1.000001 seconds}'", array([Value::Int(1_000_001)]))]),
        ("bit(1)[]", vec![("'{1,0}'", array([Value::Bool(true), bits(b"0")]))]),
        ("bit(2)[]", vec![("'{10,01}'", array([bits(b"10"), bits(b"01")]))]),
        ("mood[]", vec![("'{\"so so\",NULL}'", array([text("so so"), Value::Null]))]),
        ("box[]", vec![("'{(2,2),(1,1);(4,4),(3,3)}'", array([text("(2,2),(1,1)"), text("(4,4),(3,3)")]))]),
        ("pair[]", vec![("ARRAY['(1,\"a,b\")'::pair]", array([text("(1,\"a,b\")")]))]),
        ("hstore[]", vec![("ARRAY['a=>1'::hstore]", array([text("\"a\"=>\"1\"")]))]),
        ("jsonb[]", vec![("ARRAY['{\"a\": \"x,y\"}'::jsonb]", array([text("{\"a\": \"x,y\"}")]))]),
        ("cents[]", vec![("'{1.25}'", array([decimal("1.25")]))]),
    ]
}

pub const TYPES: &str = "
CREATE EXTENSION hstore;
CREATE EXTENSION citext;
CREATE TYPE mood AS ENUM ('sad', 'so so', 'happy');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN cents AS numeric(10,2);
CREATE DOMAIN short AS varchar(3);";

/// Returns a table with one column `c1`, `c2`, ... for each type, and its rows as literals: the n-th row holds the n-th
/// case of each type.
pub fn table_of_all_types(name: &str) -> (String, usize) {
    let cases = cases();
    let columns: Vec<String> = (1..).zip(&cases).map(|(at, (kind, _))| format!("c{at} {kind}")).collect();
    let longest = cases.iter().map(|(_, values)| values.len()).max().unwrap();
    let rows: Vec<String> = (0..longest)
        .map(|row| {
            let literals: Vec<&str> =
                cases.iter().map(|(_, values)| values.get(row).map_or("NULL", |(sql, _)| sql)).collect();
            format!("INSERT INTO {name} VALUES ({row}, {});", literals.join(", "))
        })
        .collect();
    (format!("CREATE TABLE {name} (id int PRIMARY KEY, {});{}", columns.join(", "), rows.join("\n")), longest)
}

fn rows_of_all_types() -> Vec<Vec<Value>> {
    let cases = cases();
    let longest = cases.iter().map(|(_, values)| values.len()).max().unwrap();
    (0..longest)
        .map(|row| {
            let values =
                cases.iter().map(|(_, values)| values.get(row).map_or(Value::Null, |(_, value)| value.clone()));
            [Value::Int(row as i64)].into_iter().chain(values).collect()
        })
        .collect()
}

#[tokio::test]
async fn every_value_lands_as_postgresql_makes_it_of_a_literal() {
    let (expected, rows) = table_of_all_types("expected");
    let mut db = Db::new(&format!("{TYPES}{expected}; CREATE TABLE actual (LIKE expected INCLUDING ALL)")).await;
    let mut bench = Bench::new(&db, "actual").await;

    let changes = (0..).zip(rows_of_all_types()).map(|(id, row)| (int(id), upsert(row)));
    let written = bench.write(changes).await;

    assert_eq!(written.upserted, rows as u64);
    for (at, (kind, _)) in (1..).zip(cases()) {
        let shown = |table: &str| format!("SELECT c{at}::text FROM {table} ORDER BY id");
        let (wanted, found) = (db.rows(&shown("expected")).await, db.rows(&shown("actual")).await);
        assert_eq!(found, wanted, "{kind}");
    }
    assert_eq!(
        db.one("SELECT count(*) FROM expected e JOIN actual a USING (id) WHERE e::text = a::text").await,
        rows.to_string()
    );
}

#[tokio::test]
async fn types_are_described_with_their_limits() {
    let (expected, _) = table_of_all_types("expected");
    let db = Db::new(&format!("{TYPES}{expected}")).await;
    let shape = db.sink().await.describe(&public("expected")).await.unwrap();
    let of = |kind: &str| {
        let at = cases().iter().position(|(name, _)| *name == kind).unwrap();
        shape.columns[at + 1].column_type.clone()
    };

    assert_eq!(of("numeric"), ColumnType::Decimal(None));
    assert_eq!(of("numeric(10,2)"), ColumnType::Decimal(Some((10, 2))));
    assert_eq!(of("numeric(5,-2)"), ColumnType::Decimal(Some((5, -2))));
    assert_eq!(of("money"), ColumnType::Money(2));
    assert_eq!(of("varchar(3)"), ColumnType::Text(Some(3)));
    assert_eq!(of("char(5)"), ColumnType::Char(5));
    assert_eq!(of("time(3)"), ColumnType::Time(3));
    assert_eq!(of("timestamp"), ColumnType::Timestamp(6));
    assert_eq!(of("timestamp(3)"), ColumnType::Timestamp(3));
    assert_eq!(of("bit(3)"), ColumnType::Bit(3));
    assert_eq!(of("varbit"), ColumnType::VarBit(None));
    assert_eq!(of("hstore"), ColumnType::Map);
    assert_eq!(of("mood"), ColumnType::Other("mood".into()));
    assert_eq!(of("cents"), ColumnType::Decimal(Some((10, 2))));
    assert_eq!(of("short"), ColumnType::Text(Some(3)));
    assert_eq!(of("numeric(10,2)[]"), ColumnType::Array(Box::new(ColumnType::Decimal(Some((10, 2))))));
    assert_eq!(of("cents[]"), ColumnType::Array(Box::new(ColumnType::Decimal(Some((10, 2))))));
    assert_eq!(shape.columns[0].type_name, "integer");
    assert_eq!(shape.columns[cases().iter().position(|(name, _)| *name == "cents").unwrap() + 1].type_name, "cents");
}

#[tokio::test]
async fn a_value_that_would_be_changed_in_silence_is_a_data_error_that_names_the_column() {
    let misfits: Vec<(&str, Value)> = vec![
        ("numeric(10,2)", decimal("1.005")),
        ("cents", decimal("1.005")),
        ("cents[]", array([decimal("1.005")])),
        ("numeric(5,-2)", Value::Int(1250)),
        ("numeric(10,2)[]", array([decimal("1.005")])),
        ("money", decimal("1.005")),
        ("timestamp(3)", Value::Timestamp(1)),
        ("timestamptz(0)", Value::TimestampTz(1000)),
        ("time(3)", Value::Time(1)),
        ("timetz(3)", text("10:00:00.1234+00")),
        ("timestamp", text("2000-01-01 00:00:00.1234567")),
        ("date", text("2000-01-01 10:00")),
        ("varchar(2)", text("ab ")),
        ("varchar(2)[]", array([text("ab ")])),
        ("varchar(2)", text("abc")),
        ("name", text(&"n".repeat(64))),
        ("\"char\"", text("xy")),
        ("real", Value::Float(0.123_456_789_012)),
        ("real", Value::Float(1e300)),
        ("double precision", Value::Int(9_007_199_254_740_993)),
        ("smallint", Value::Int(40_000)),
        ("integer", decimal("1.5")),
        ("integer", text("1.5")),
        ("bit(3)", bits(b"1011")),
        ("bit(3)", bits(b"10")),
        ("varbit(2)", bits(b"101")),
        ("char(2)", text("abc")),
        ("bytea", text("secret")),
        ("text", text("nul\0")),
        ("mood", text("secret")),
        ("interval", text("secret")),
        ("jsonb", text("{secret")),
        ("date", text("secret")),
        ("uuid", text("secret")),
        ("integer", text("secret")),
        ("inet", text("secret")),
        ("integer[]", text("{secret")),
        ("boolean", text("secret")),
        ("numeric(4,2)", decimal("100.00")),
    ];
    let columns: Vec<String> = (0..).zip(&misfits).map(|(at, (kind, _))| format!("c{at} {kind}")).collect();
    let mut db = Db::new(&format!("{TYPES} CREATE TABLE t (id int PRIMARY KEY, {})", columns.join(", "))).await;
    let mut bench = Bench::new(&db, "t").await;

    for (at, (kind, value)) in misfits.iter().enumerate() {
        let mut row = vec![Value::Absent; misfits.len() + 1];
        (row[0], row[at + 1]) = (Value::Int(1), value.clone());
        let error = bench.error([(int(1), upsert(row))]).await;

        assert_eq!(error.class, ErrorClass::Data, "{kind}: {error}");
        assert!(error.message.starts_with("write public.t: "), "{kind}: {error}");
        assert!(error.code.is_some() || error.message.contains(&format!("column \"c{at}\"")), "{kind}: {error}");
        assert!(!format!("{error} {:?}", error.hint).contains("secret"), "{kind}: {error}");
    }
    assert_eq!(db.one("SELECT count(*) FROM t").await, "0");
}

#[tokio::test]
async fn a_column_that_was_widened_since_is_looked_at_again() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v numeric(10,2))").await;
    let mut bench = Bench::new(&db, "t").await;
    let row = || [(int(1), upsert([Value::Int(1), decimal("1.005")]))];

    assert_eq!(bench.error(row()).await.class, ErrorClass::Data);
    db.run("ALTER TABLE t ALTER COLUMN v TYPE numeric(10,3)").await;
    let error = bench.error(row()).await;
    assert_eq!(
        (error.class, error.message.as_str()),
        (ErrorClass::Configuration, "write public.t: the table's definition has changed")
    );
    bench.table = bench.sink.describe(&public("t")).await.unwrap();
    bench.write(row()).await;

    assert_eq!(db.rows("SELECT * FROM t").await, ["1|1.005"]);
}

#[tokio::test]
async fn values_of_two_forms_in_one_column_of_a_batch_all_land() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, u uuid, n numeric, d timestamp)").await;
    let mut bench = Bench::new(&db, "t").await;

    bench
        .write([
            (int(1), upsert([Value::Int(1), Value::Uuid([0; 16]), Value::Int(5), Value::Timestamp(0)])),
            (
                int(2),
                upsert([
                    Value::Int(2),
                    text("00000000-0000-0000-0000-000000000001"),
                    decimal("5.10"),
                    text("1970-01-02 00:00:00"),
                ]),
            ),
        ])
        .await;

    assert_eq!(
        db.rows("SELECT * FROM t ORDER BY id").await,
        [
            "1|00000000-0000-0000-0000-000000000000|5|1970-01-01 00:00:00",
            "2|00000000-0000-0000-0000-000000000001|5.10|1970-01-02 00:00:00"
        ]
    );
}

#[tokio::test]
async fn long_numbers_and_long_texts_land_whole() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, n numeric, v text, b bytea)").await;
    let mut bench = Bench::new(&db, "t").await;
    let digits = format!("{}.{}", "9".repeat(131_072), "7".repeat(16_383));

    bench
        .write([(
            int(1),
            upsert([Value::Int(1), decimal(&digits), text(&"é".repeat(2_000_000)), bytes(&vec![1; 3_000_000])]),
        )])
        .await;

    assert_eq!(db.one("SELECT n::text FROM t").await, digits);
    assert_eq!(db.one("SELECT length(v) || ' ' || length(b) FROM t").await, "2000000 3000000");
}

/// Numbers of all lengths and scales, against PostgreSQL's own reading of their text.
#[tokio::test]
async fn numbers_in_binary_form_equal_their_text() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, n numeric, v text)").await;
    let mut bench = Bench::new(&db, "t").await;
    let mut rows = Vec::new();
    for length in 1..=13_usize {
        for scale in -9..=17_i32 {
            for digits in ["123456789012345", "100000000000000", "900000000000009"] {
                let number =
                    sink_api::Decimal::Finite { negative: scale % 2 == 0, digits: digits[..length].into(), scale };
                let id = rows.len() as i64;
                rows.push((
                    int(id),
                    upsert([Value::Int(id), Value::Decimal(number.clone()), text(&number.to_string())]),
                ));
            }
        }
    }
    let count = rows.len();

    bench.write(rows).await;

    assert_eq!(db.one("SELECT count(*) FROM t WHERE n::text = v").await, count.to_string());
}

#[tokio::test]
async fn key_columns_that_a_row_does_not_carry_come_from_its_key() {
    let mut db = Db::new("CREATE TABLE t (id int PRIMARY KEY, v text)").await;
    let mut bench = Bench::new(&db, "t").await;

    bench.write([(int(7), upsert([Value::Absent, text("a")]))]).await;

    assert_eq!(db.rows("SELECT * FROM t").await, ["7|a"]);
    let table: Arc<TableShape> = Arc::clone(&bench.table);
    bench.try_write(&batch(&table, [(int(7), MergedChange::Delete)])).await.unwrap();
    assert_eq!(db.rows("SELECT * FROM t").await, Vec::<String>::new());
}
