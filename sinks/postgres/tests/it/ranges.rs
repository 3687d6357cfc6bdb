//! The difference between a statement's keys and the sink's; what lies in a range is PostgreSQL's own answer.

use std::time::Instant;

use sink_api::{
    Difference, DifferenceQuery, ErrorClass, Extent, Key, KeyBound, KeyList, KeyRange, KeySet, KeyType, KeyValue, Sink,
    SinkError, SinkLane, Unit, Value,
};

use crate::fixture::{Bench, Db, batch, int, keys, note, public, state, text, upsert};

/// Asks for the difference in a unit of its own, which is dropped by rolling on.
async fn difference(
    bench: &mut Bench,
    extent: Extent,
    selected: KeySet,
    spared: KeyList,
) -> Result<Difference, SinkError> {
    let table = bench.table.clone();
    let query = DifferenceQuery {
        table: &table,
        extent: &extent,
        selected: &selected,
        spared: &spared,
        name_orphans: 100_000,
        name_missing: 100_000,
    };
    let next = state(bench.state.as_ref().map_or(1, |state| state.next_offset.0 + 1));
    let mut unit = bench.lane.begin(bench.state.as_ref()).await?;
    let found = unit.difference(&query).await?;
    unit.commit(&next).await?;
    bench.state = Some(next);
    Ok(found)
}

fn nothing() -> KeySet {
    KeySet::List(KeyList::new())
}

fn days(date: i32) -> KeyValue {
    KeyValue::Date(date)
}

/// A column's type, how it is encoded, and pairs of an SQL literal and what it is as a key column.
type KeyColumn = (&'static str, KeyType, Vec<(&'static str, KeyValue)>);

fn columns() -> Vec<KeyColumn> {
    let texts = || -> Vec<(&'static str, KeyValue)> {
        [
            ("''", ""),
            ("'B'", "B"),
            ("'a'", "a"),
            ("'a '", "a "),
            ("'a b'", "a b"),
            ("'aa'", "aa"),
            ("'é'", "é"),
            ("'\u{fffd}'", "\u{fffd}"),
            ("'😀'", "😀"),
        ]
        .into_iter()
        .map(|(sql, value)| (sql, KeyValue::Text(value.into())))
        .collect()
    };
    let number = |text: &str| KeyValue::Decimal(text.parse().unwrap());
    vec![
        ("boolean", KeyType::Bool, vec![("false", KeyValue::Bool(false)), ("true", KeyValue::Bool(true))]),
        (
            "smallint",
            KeyType::Int,
            vec![("'-32768'", KeyValue::Int(-32768)), ("0", KeyValue::Int(0)), ("32767", KeyValue::Int(32767))],
        ),
        (
            "integer",
            KeyType::Int,
            vec![
                ("'-5'", KeyValue::Int(-5)),
                ("4", KeyValue::Int(4)),
                ("9", KeyValue::Int(9)),
                ("2147483647", KeyValue::Int(2_147_483_647)),
            ],
        ),
        (
            "bigint",
            KeyType::Int,
            vec![
                ("'-9223372036854775808'", KeyValue::Int(i64::MIN)),
                ("-1", KeyValue::Int(-1)),
                ("3", KeyValue::Int(3)),
                ("'9223372036854775807'", KeyValue::Int(i64::MAX)),
            ],
        ),
        (
            "oid",
            KeyType::UInt,
            vec![
                ("1", KeyValue::UInt(1)),
                ("9", KeyValue::UInt(9)),
                ("10", KeyValue::UInt(10)),
                ("4294967295", KeyValue::UInt(4_294_967_295)),
            ],
        ),
        (
            "numeric",
            KeyType::Decimal,
            vec![
                ("'-Infinity'", number("-Infinity")),
                ("-10000", number("-10000")),
                ("-1.5", number("-1.5")),
                ("0.00", number("0")),
                ("0.001", number("0.001")),
                ("1.50", number("1.5")),
                ("9999.5", number("9999.5")),
                ("10000", number("10000")),
                ("123456789012345678901234567890.5", number("123456789012345678901234567890.5")),
                ("'Infinity'", number("Infinity")),
                ("'NaN'", number("NaN")),
            ],
        ),
        ("text COLLATE \"C\"", KeyType::Text, texts()),
        ("varchar(20) COLLATE \"POSIX\"", KeyType::Text, texts()),
        ("shortname", KeyType::Text, texts()),
        (
            "bytea",
            KeyType::Bytes,
            vec![
                ("''", KeyValue::Bytes([].into())),
                ("'\\x00'", KeyValue::Bytes([0].into())),
                ("'\\x0001'", KeyValue::Bytes([0, 1].into())),
                ("'\\x01'", KeyValue::Bytes([1].into())),
                ("'\\xff'", KeyValue::Bytes([255].into())),
            ],
        ),
        (
            "uuid",
            KeyType::Uuid,
            vec![
                ("'00000000-0000-0000-0000-000000000001'", KeyValue::Uuid(1_u128.to_be_bytes())),
                ("'7fffffff-0000-0000-0000-000000000000'", KeyValue::Uuid((0x7fff_ffff_u128 << 96).to_be_bytes())),
                ("'80000000-0000-0000-0000-000000000000'", KeyValue::Uuid((0x8000_0000_u128 << 96).to_be_bytes())),
            ],
        ),
        (
            "date",
            KeyType::Date,
            vec![
                ("'-infinity'", days(i32::MIN)),
                ("'0001-12-31 BC'", days(-719_163)),
                ("'1970-01-01'", days(0)),
                ("'2000-02-29'", days(11_016)),
                ("'infinity'", days(i32::MAX)),
            ],
        ),
        (
            "time",
            KeyType::Time,
            vec![
                ("'00:00'", KeyValue::Time(0)),
                ("'00:00:00.000001'", KeyValue::Time(1)),
                ("'24:00'", KeyValue::Time(86_400_000_000)),
            ],
        ),
        (
            "timestamp",
            KeyType::Timestamp,
            vec![
                ("'-infinity'", KeyValue::Timestamp(i64::MIN)),
                ("'1969-12-31 23:59:59.999999'", KeyValue::Timestamp(-1)),
                ("'1970-01-01'", KeyValue::Timestamp(0)),
                ("'infinity'", KeyValue::Timestamp(i64::MAX)),
            ],
        ),
        (
            "timestamptz",
            KeyType::TimestampTz,
            vec![
                ("'-infinity'", KeyValue::TimestampTz(i64::MIN)),
                ("'1970-01-01 01:00+01'", KeyValue::TimestampTz(0)),
                ("'1970-01-01 00:00:00.000001+00'", KeyValue::TimestampTz(1)),
                ("'infinity'", KeyValue::TimestampTz(i64::MAX)),
            ],
        ),
    ]
}

/// All pairs of bounds over `keys` with the SQL condition of each; `row` gives a key's SQL.
fn ranges(keys: &[Key], column: &str, row: impl Fn(usize) -> String) -> Vec<(KeyRange, String)> {
    let bounds = |upper: bool| {
        let sign = if upper { "<" } else { ">" };
        let mut bounds = vec![(KeyBound::Open, "true".to_owned())];
        for (at, key) in keys.iter().enumerate() {
            bounds.push((KeyBound::Inclusive(key.clone()), format!("{column} {sign}= {}", row(at))));
            bounds.push((KeyBound::Exclusive(key.clone()), format!("{column} {sign} {}", row(at))));
        }
        bounds
    };
    let uppers = bounds(true);
    bounds(false)
        .into_iter()
        .flat_map(|(lower, above)| {
            uppers
                .clone()
                .into_iter()
                .map(move |(upper, below)| (KeyRange { lower: lower.clone(), upper }, format!("{above} AND {below}")))
        })
        .collect()
}

async fn check_ranges(db: &mut Db, bench: &mut Bench, keys: &[Key], ranges: Vec<(KeyRange, String)>, what: &str) {
    // All of PostgreSQL's answers at once.
    let queries: Vec<String> = ranges
        .iter()
        .enumerate()
        .map(|(at, (_, condition))| format!("SELECT {at} AS range, array_agg(ord) AS ords FROM t WHERE {condition}"))
        .collect();
    let answers = db.rows(&format!("{} ORDER BY 1", queries.join(" UNION ALL "))).await;
    let table = bench.table.clone();
    let mut unit = bench.lane.begin(bench.state.as_ref()).await.unwrap();
    for ((range, condition), answer) in ranges.into_iter().zip(answers) {
        let ords = answer.split_once('|').unwrap().1.trim_matches(['{', '}', '∅']).to_owned();
        let ords = ords.split(',').filter(|ord| !ord.is_empty());
        let inside: KeyList = ords.map(|ord| &keys[ord.parse::<usize>().unwrap()]).collect::<KeyList>().sorted();
        let query = DifferenceQuery {
            table: &table,
            extent: &Extent::Range(range),
            selected: &nothing(),
            spared: &KeyList::new(),
            name_orphans: 100,
            name_missing: 0,
        };
        let found = unit.difference(&query).await.unwrap();
        assert_eq!(found.orphans, inside, "{what}: {condition}");
        assert_eq!(
            (found.orphan_count, found.in_range),
            (inside.len() as u64, inside.len() as u64),
            "{what}: {condition}"
        );
    }
}

#[tokio::test]
async fn ranges_of_every_key_type_and_bound_hold_what_postgresql_says() {
    for (kind, key_type, values) in columns() {
        let rows: Vec<String> = (0..).zip(&values).map(|(at, (sql, _))| format!("({sql}, {at})")).collect();
        let mut db = Db::new(&format!(
            "CREATE DOMAIN shortname AS text COLLATE \"C\"; CREATE TABLE t (k {kind} PRIMARY KEY, ord int); INSERT INTO t VALUES {}",
            rows.join(", ")
        ))
        .await;
        let mut bench = Bench::new(&db, "t").await;
        assert_eq!(bench.table.key_types().unwrap(), [key_type], "{kind}");
        bench.table.range_order().unwrap();
        let keys: Vec<Key> =
            values.iter().map(|(_, value)| Key::encode(&[key_type], std::slice::from_ref(value)).unwrap()).collect();

        let ranges = ranges(&keys, "k", |at| values[at].0.to_owned());
        check_ranges(&mut db, &mut bench, &keys, ranges, kind).await;

        // Equality: each key is found alone and removed alone.
        let all: KeyList = keys.iter().collect::<KeyList>().sorted();
        let found = difference(&mut bench, Extent::Keys(all.clone()), nothing(), KeyList::new()).await.unwrap();
        assert_eq!(found.orphans, all, "{kind}");
        for key in &keys {
            assert_eq!(bench.remove(std::slice::from_ref(key), "r").await, 1, "{kind}");
        }
        assert_eq!(db.one("SELECT count(*) FROM t").await, "0", "{kind}");
    }
}

#[tokio::test]
async fn ranges_of_composite_keys_hold_what_postgresql_says() {
    let mut db = Db::new(
        "CREATE TABLE t (name text COLLATE \"C\", ord serial, region int, amount numeric, PRIMARY KEY (region, name, amount));
         ALTER SEQUENCE t_ord_seq MINVALUE 0 RESTART 0;
         INSERT INTO t (region, name, amount) SELECT r, n, a FROM unnest(ARRAY[-1, 5]) r, unnest(ARRAY['', 'B', 'a']) n, unnest(ARRAY[0.5, 10]) a",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;
    let types = [KeyType::Int, KeyType::Text, KeyType::Decimal];
    let mut keys = Vec::new();
    let mut literals = Vec::new();
    for row in db.rows("SELECT region, name, amount FROM t ORDER BY ord").await {
        let parts: Vec<&str> = row.split('|').collect();
        let values = [
            KeyValue::Int(parts[0].parse().unwrap()),
            KeyValue::Text(parts[1].into()),
            KeyValue::Decimal(parts[2].parse().unwrap()),
        ];
        keys.push(Key::encode(&types, &values).unwrap());
        literals.push(format!("({}, '{}', {})", parts[0], parts[1], parts[2]));
    }

    let ranges = ranges(&keys, "(region, name, amount)", |at| literals[at].clone());
    check_ranges(&mut db, &mut bench, &keys, ranges, "composite").await;

    let some = crate::fixture::keys(&keys[3..9]).sorted();
    let found = difference(&mut bench, Extent::Keys(some.clone()), nothing(), KeyList::new()).await.unwrap();
    assert_eq!(found.orphans, some);
}

/// The running example of the paper: keys 1 to 10, 4 and 7 absent at the source, 9 changed in the window.
#[tokio::test]
async fn orphans_are_neither_selected_nor_spared_and_missing_keys_are_neither_held_nor_spared() {
    let mut db = Db::new(
        "CREATE TABLE t (k bigint PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10); INSERT INTO t VALUES (12)",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;
    let range = Extent::Range(KeyRange { lower: KeyBound::Open, upper: KeyBound::Inclusive(int(10)) });
    let selected = KeySet::List(keys(&[1, 2, 3, 5, 6, 8, 10].map(int)));
    let spared = keys(&[int(9)]);

    let found = difference(&mut bench, range.clone(), selected, spared.clone()).await.unwrap();
    assert_eq!(found.orphans, keys(&[int(4), int(7)]));
    assert_eq!((found.orphan_count, found.missing_count, found.in_range), (2, 0, 10));

    db.run("DELETE FROM t WHERE k IN (2, 9)").await;
    let selected = KeySet::Intervals(vec![(-1, 3), (5, 6), (8, 10)]);
    let found = difference(&mut bench, range, selected, spared).await.unwrap();
    assert_eq!(found.missing, keys(&[int(-1), int(0), int(2)]));
    assert_eq!((found.orphan_count, found.missing_count, found.in_range), (2, 3, 8));
}

#[tokio::test]
async fn a_range_of_many_pages_is_listed_whole_and_sees_the_units_own_writes() {
    let db = Db::new("CREATE TABLE t (k int PRIMARY KEY, v text); INSERT INTO t SELECT generate_series(1, 45000), 'x'")
        .await;
    let mut bench = Bench::new(&db, "t").await;
    let table = bench.table.clone();

    let mut unit = bench.lane.begin(None).await.unwrap();
    unit.write(&batch(&table, [(int(50_000), upsert([Value::Int(50_000), text("own")]))])).await.unwrap();
    let found = unit
        .difference(&DifferenceQuery {
            table: &table,
            extent: &Extent::Range(KeyRange::ALL),
            selected: &KeySet::Intervals(vec![(1, 39_999), (40_001, 44_999), (60_000, 60_009)]),
            spared: &KeyList::new(),
            name_orphans: 2,
            name_missing: 3,
        })
        .await
        .unwrap();

    assert_eq!(found.orphans, keys(&[int(40_000), int(45_000)]));
    assert_eq!(found.missing, keys(&[int(60_000), int(60_001), int(60_002)]));
    assert_eq!((found.orphan_count, found.missing_count, found.in_range), (3, 10, 45_001));
}

#[tokio::test]
async fn long_text_keys_are_listed_in_pages_of_bounded_size() {
    let db = Db::new(
        "CREATE TABLE t (k text COLLATE \"C\" PRIMARY KEY);
         INSERT INTO t SELECT lpad(i::text, 6, '0') || repeat('x', 1000) FROM generate_series(1, 12000) i",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;

    let found = difference(&mut bench, Extent::Range(KeyRange::ALL), nothing(), KeyList::new()).await.unwrap();

    assert_eq!(found.in_range, 12_000);
}

const LINGUISTIC: &str =
    "CREATE TABLE t (id text COLLATE \"en-US-x-icu\" PRIMARY KEY); INSERT INTO t VALUES ('a'), ('B'), ('c'), ('é')";

fn word(text: &str) -> Key {
    Key::encode(&[KeyType::Text], &[KeyValue::Text(text.into())]).unwrap()
}

#[tokio::test]
async fn text_under_another_collation_is_refused_for_ranges_and_works_for_keys() {
    let db = Db::new(LINGUISTIC).await;
    let mut bench = Bench::new(&db, "t").await;
    let refusal = bench.table.range_order().unwrap_err();
    assert_eq!(
        refusal.reason,
        "text key \"id\" of public.t under collation \"en-US-x-icu\", whose order is not that of bytes"
    );
    assert_eq!(refusal.hint.as_deref(), Some("CREATE INDEX CONCURRENTLY ON \"public\".\"t\" (\"id\" COLLATE \"C\")"));

    let error = difference(&mut bench, Extent::Range(KeyRange::ALL), nothing(), KeyList::new()).await.unwrap_err();
    assert_eq!((error.class, error.hint), (ErrorClass::Configuration, refusal.hint));

    let asked = keys(&["B", "a", "b", "é"].map(word));
    let found = difference(&mut bench, Extent::Keys(asked), nothing(), KeyList::new()).await.unwrap();
    assert_eq!(found.orphans, keys(&["B", "a", "é"].map(word)));
}

#[tokio::test]
async fn an_index_under_byte_order_makes_text_ranges_work() {
    let mut db = Db::new(LINGUISTIC).await;
    db.run("CREATE INDEX CONCURRENTLY ON \"public\".\"t\" (\"id\" COLLATE \"C\")").await;
    let mut bench = Bench::new(&db, "t").await;
    bench.table.range_order().unwrap();

    let range = KeyRange { lower: KeyBound::Exclusive(word("B")), upper: KeyBound::Open };
    let found = difference(&mut bench, Extent::Range(range), nothing(), KeyList::new()).await.unwrap();

    assert_eq!(found.orphans, keys(&["a", "c", "é"].map(word)));
    db.run("SET enable_seqscan = off; SET enable_sort = off").await;
    let plan = db.rows("EXPLAIN SELECT id::text FROM t WHERE id COLLATE \"pg_catalog\".\"C\" > 'B' ORDER BY id COLLATE \"pg_catalog\".\"C\"").await;
    assert!(plan[0].starts_with("Index Only Scan using t_id_idx"), "{plan:?}");
}

/// Listings are kept prepared, and PostgreSQL refuses a prepared statement whose result has another type now.
#[tokio::test]
async fn a_listing_works_when_the_keys_type_has_changed() {
    let mut db = Db::new("CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t VALUES (1), (2)").await;
    let mut bench = Bench::new(&db, "t").await;
    let all = || Extent::Range(KeyRange { lower: KeyBound::Open, upper: KeyBound::Open });
    for _ in 0..7 {
        assert_eq!(difference(&mut bench, all(), nothing(), KeyList::new()).await.unwrap().orphan_count, 2);
    }
    for key_type in ["int", "smallint", "bigint"] {
        db.run(&format!("ALTER TABLE t ALTER id TYPE {key_type}")).await;
        bench.table = bench.sink.describe(&crate::fixture::public("t")).await.unwrap();

        let found = difference(&mut bench, all(), nothing(), KeyList::new()).await;

        assert_eq!(found.unwrap().orphan_count, 2, "{key_type}");
    }
}

#[tokio::test]
async fn enum_keys_are_compared_for_equality_only() {
    let db = Db::new("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); CREATE TABLE t (m mood, id int, PRIMARY KEY (m, id)); INSERT INTO t VALUES ('ok', 1), ('sad', 2)").await;
    let mut bench = Bench::new(&db, "t").await;
    let key = |mood: &str, id: i64| {
        Key::encode(&[KeyType::Text, KeyType::Int], &[KeyValue::Text(mood.into()), KeyValue::Int(id)]).unwrap()
    };

    assert!(bench.table.range_order().unwrap_err().reason.contains("enum key \"m\""));
    let asked = keys(&[key("happy", 1), key("ok", 1), key("sad", 2)]);
    let found = difference(&mut bench, Extent::Keys(asked), nothing(), KeyList::new()).await.unwrap();
    assert_eq!(found.orphans, keys(&[key("ok", 1), key("sad", 2)]));
    assert_eq!(bench.remove(&[key("ok", 1)], "r").await, 1);
}

#[tokio::test]
async fn keys_that_cannot_be_encoded_are_named() {
    let mut db = Db::new(
        "CREATE EXTENSION citext;
         CREATE COLLATION ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE TABLE float_key (id real PRIMARY KEY);
         CREATE TABLE char_key (id char(4) PRIMARY KEY);
         CREATE TABLE citext_key (id citext PRIMARY KEY);
         CREATE TABLE ci_key (id text COLLATE ci PRIMARY KEY);
         CREATE TABLE interval_key (id interval PRIMARY KEY);
         CREATE TABLE array_key (id int[] PRIMARY KEY)",
    )
    .await;
    let sink = db.sink().await;
    for (table, part) in [
        ("float_key", "floating point key \"id\""),
        ("char_key", "character(4) key \"id\""),
        ("citext_key", "key \"id\" of type citext"),
        ("ci_key", "text key \"id\" under collation \"ci\", which takes different texts for equal"),
        ("interval_key", "key \"id\" of type interval"),
        ("array_key", "key \"id\" of type integer[]"),
    ] {
        let refusal = sink.describe(&public(table)).await.unwrap().key_types().unwrap_err();
        assert!(refusal.reason.starts_with(part), "{table}: {}", refusal.reason);
        assert!(refusal.hint.is_some(), "{table}");
    }
    db.run("SELECT 1").await;
}

/// Not a rule but a measurement: `cargo test -p sink-postgres --test it -- --ignored --nocapture speed`.
#[tokio::test]
#[ignore = "a measurement"]
async fn speed_of_a_million_keys_in_101_statements() {
    let mut db = Db::new("CREATE TABLE t (k bigint PRIMARY KEY, v text); INSERT INTO t SELECT i, 'some text to fill the row' FROM generate_series(1, 1000000) i").await;
    db.run("VACUUM ANALYZE t").await;
    let mut bench = Bench::new(&db, "t").await;
    let table = bench.table.clone();
    let mut fastest = u128::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        let mut unit = bench.lane.begin(None).await.unwrap();
        for chunk in 0..101_i64 {
            let one = Instant::now();
            let (low, high) = (chunk * 10_000, (chunk + 1) * 10_000);
            let selected = KeySet::Intervals(vec![(low + 1, high)]);
            let range = KeyRange { lower: KeyBound::Exclusive(int(low)), upper: KeyBound::Inclusive(int(high)) };
            let query = DifferenceQuery {
                table: &table,
                extent: &Extent::Range(range),
                selected: &selected,
                spared: &KeyList::new(),
                name_orphans: 100,
                name_missing: 100,
            };
            let found = unit.difference(&query).await.unwrap();
            assert_eq!(found.orphan_count, 0);
            fastest = fastest.min(if chunk < 100 { one.elapsed().as_micros() } else { u128::MAX });
        }
        note(&format!(
            "101 statements over 1,000,000 keys: {:?}; the fastest of 10,000 keys: {fastest} µs",
            start.elapsed()
        ));
    }
}

/// A plan that was made while the table was small is kept: a scan of the whole table for each look would stay for ever.
#[tokio::test]
async fn rows_are_found_by_the_key_however_small_the_table() {
    let mut db = Db::new(
        "CREATE TABLE t (id int PRIMARY KEY);
         CREATE TABLE seen (setting text);
         CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN INSERT INTO public.seen VALUES (current_setting('enable_seqscan')); RETURN NULL; END $$;
         CREATE TRIGGER see AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION see()",
    )
    .await;
    let mut bench = Bench::new(&db, "t").await;

    bench.write([(int(1), upsert([Value::Int(1)]))]).await;

    assert_eq!(db.rows("SELECT setting FROM seen").await, ["off"]);
}

/// Dense keys of every integer type, at the type's ends, on a plain table and on a partitioned one, as PostgreSQL's own
/// sets have them.
#[tokio::test]
async fn dense_integers_are_compared_in_every_integer_type() {
    for (column, least, most) in [
        ("smallint", i64::from(i16::MIN), i64::from(i16::MAX)),
        ("integer", i64::from(i32::MIN), i64::from(i32::MAX)),
        ("bigint", i64::MIN, i64::MAX),
        ("whole", i64::from(i32::MIN), i64::from(i32::MAX)),
    ] {
        for partitioned in ["", "PARTITION BY HASH (id)"] {
            let partition = match partitioned {
                "" => "SELECT 1",
                _ => "CREATE TABLE p PARTITION OF t FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
            };
            let mut db = Db::new(&format!(
                "CREATE DOMAIN whole AS integer;
                 CREATE TABLE t (id {column} PRIMARY KEY) {partitioned};
                 {partition};
                 INSERT INTO t SELECT g FROM generate_series(1, 100) g WHERE g <> 50;
                 INSERT INTO t VALUES ({least}), ({most})"
            ))
            .await;
            let mut bench = Bench::new(&db, "t").await;
            let selected = KeySet::Intervals(vec![(1, 39), (41, 49), (51, 99)]);
            let expected = db
                .rows("SELECT id FROM t EXCEPT SELECT g FROM generate_series(1, 99) g WHERE g NOT IN (40, 50) ORDER BY id")
                .await;

            let everything = Extent::Range(KeyRange { lower: KeyBound::Open, upper: KeyBound::Open });
            let found = difference(&mut bench, everything, selected, KeyList::new()).await.unwrap();

            let orphans: Vec<Key> = expected.iter().map(|id| int(id.parse().unwrap())).collect();
            assert_eq!(found.orphans, keys(&orphans), "{column} {partitioned}");
            assert_eq!(
                (found.orphan_count, found.missing_count, found.in_range),
                (4, 0, 101),
                "{column} {partitioned}"
            );
        }
    }
}

/// The last 30 years of PostgreSQL's timestamps are none that microseconds from 1970 can count: such a key of a side writer
/// makes no statement, and it does not stop the stream.
#[tokio::test]
async fn a_timestamp_that_cannot_be_counted_from_1970_is_an_error_of_the_data() {
    for column in ["timestamp", "timestamptz"] {
        let db = Db::new(&format!(
            "CREATE TABLE t (at {column} PRIMARY KEY); INSERT INTO t VALUES ('2026-01-01'), ('294276-12-31 23:59:59.999999'), ('infinity')"
        ))
        .await;
        let mut bench = Bench::new(&db, "t").await;

        let error = difference(&mut bench, Extent::Range(KeyRange::ALL), nothing(), KeyList::new()).await.unwrap_err();

        assert_eq!(error.class, ErrorClass::Data);
        assert!(error.message.contains("a key is out of range for its column"), "{error}");
    }
}
