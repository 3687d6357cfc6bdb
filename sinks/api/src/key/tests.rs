#![allow(clippy::unwrap_used)]

use proptest::{collection::vec, prelude::*};
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Vectors {
    format: u32,
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    types: Vec<KeyType>,
    keys: Vec<VectorKey>,
}

#[derive(Deserialize)]
struct VectorKey {
    bytes: String,
    values: Vec<Vec<serde_json::Value>>,
}

fn vectors() -> Vectors {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/keys.json");
    let vectors: Vectors = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(vectors.format, 1);
    vectors
}

fn vector_value(key_type: KeyType, value: &serde_json::Value) -> KeyValue {
    let text = value.as_str().unwrap_or_default();
    match key_type {
        KeyType::Bool => KeyValue::Bool(value.as_bool().unwrap()),
        KeyType::Int => KeyValue::Int(text.parse().unwrap()),
        KeyType::UInt => KeyValue::UInt(text.parse().unwrap()),
        KeyType::Decimal => KeyValue::Decimal(text.parse().unwrap()),
        KeyType::Text => KeyValue::Text(text.into()),
        KeyType::Bytes => KeyValue::Bytes(hex::decode(text).unwrap().into()),
        KeyType::Uuid => KeyValue::Uuid(hex::decode(text.replace('-', "")).unwrap().try_into().unwrap()),
        KeyType::Date => KeyValue::Date(text.parse().unwrap()),
        KeyType::Time => KeyValue::Time(text.parse().unwrap()),
        KeyType::Timestamp => KeyValue::Timestamp(text.parse().unwrap()),
        KeyType::TimestampTz => KeyValue::TimestampTz(text.parse().unwrap()),
    }
}

fn normal(value: &KeyValue) -> KeyValue {
    match value {
        KeyValue::Decimal(decimal) => KeyValue::Decimal(decimal.normalized()),
        other => other.clone(),
    }
}

#[test]
fn values_encode_as_in_the_vectors_and_sort_as_in_postgresql() {
    let vectors = vectors();

    let mut types_seen = Vec::new();
    for Group { types, keys } in &vectors.groups {
        let mut last: Option<Key> = None;
        for VectorKey { bytes, values } in keys {
            for row in values {
                let row: Vec<KeyValue> = types.iter().zip(row).map(|(t, value)| vector_value(*t, value)).collect();
                let key = Key::encode(types, &row).unwrap();
                assert_eq!(hex::encode(key.as_bytes()), *bytes, "{types:?} {row:?}");
                assert_eq!(key.decode(types).unwrap(), row.iter().map(normal).collect::<Vec<_>>());
            }
            let key = Key::from_encoded(hex::decode(bytes).unwrap());
            assert!(last.as_ref().is_none_or(|last| *last < key), "{types:?}: {last:?} is not below {key:?}");
            last = Some(key);
        }
        types_seen.extend(types.clone());
        assert!(types == &[KeyType::Bool] || keys.len() > 50, "{types:?} has only {} keys", keys.len());
    }
    assert!(ALL_TYPES.iter().all(|key_type| types_seen.contains(key_type)));
}

#[test]
fn vectors_cut_short_or_with_a_byte_more_are_refused() {
    for Group { types, keys } in &vectors().groups {
        for VectorKey { bytes, .. } in keys {
            let bytes = hex::decode(bytes).unwrap();
            for length in 0..bytes.len() {
                let cut = Key::from_encoded(&bytes[..length]).decode(types);
                assert_eq!(cut, Err(KeyError::Malformed { at: length }), "{types:?} {bytes:02x?}");
            }
            let longer = Key::from_encoded([bytes.as_slice(), &[0]].concat()).decode(types);
            assert_eq!(longer, Err(KeyError::Malformed { at: bytes.len() }));
        }
    }
}

/// The rows of the documentation's table that have an example, as (type, value, bytes).
fn documented_examples() -> Vec<(String, String, String)> {
    let mut last_type = String::new();
    let mut examples = Vec::new();
    for line in include_str!("mod.rs").lines().filter_map(|line| line.strip_prefix("//! |")?.strip_suffix('|')) {
        let cells: Vec<&str> = line.split('|').map(|cell| cell.trim_matches(['`', ' '])).collect();
        if let [key_type, _, value, bytes] = cells[..]
            && !["type", "---"].contains(&key_type)
        {
            if !key_type.is_empty() {
                last_type = key_type.to_owned();
            }
            examples.push((last_type.clone(), value.to_owned(), bytes.replace(' ', "")));
        }
    }
    examples
}

#[test]
fn the_documented_examples_hold() {
    let examples = documented_examples();

    assert_eq!(examples.len(), 22);
    for (key_type, text, bytes) in examples {
        let (key_type, value) = match (key_type.as_str(), text.as_str()) {
            ("Bool", text) => (KeyType::Bool, KeyValue::Bool(text.parse().unwrap())),
            ("Int", text) => (KeyType::Int, KeyValue::Int(text.parse().unwrap())),
            ("UInt", text) => (KeyType::UInt, KeyValue::UInt(text.parse().unwrap())),
            ("Text", text) => (KeyType::Text, KeyValue::Text(text.trim_matches('"').into())),
            ("Bytes", text) => (KeyType::Bytes, KeyValue::Bytes(hex::decode(&text[2..]).unwrap().into())),
            ("Uuid", text) => (KeyType::Uuid, vector_value(KeyType::Uuid, &text.into())),
            ("Date", "1970-01-02") => (KeyType::Date, KeyValue::Date(1)),
            ("Date", "infinity") => (KeyType::Date, KeyValue::Date(i32::MAX)),
            ("Time", "00:00:01") => (KeyType::Time, KeyValue::Time(1_000_000)),
            ("Timestamp", "1969-12-31 23:59:59.999999") => (KeyType::Timestamp, KeyValue::Timestamp(-1)),
            ("TimestampTz", "-infinity") => (KeyType::TimestampTz, KeyValue::TimestampTz(i64::MIN)),
            ("Decimal", text) => (KeyType::Decimal, KeyValue::Decimal(text.parse().unwrap())),
            other => panic!("no reading of the documented example {other:?}"),
        };
        assert_eq!(hex::encode(Key::encode(&[key_type], &[value]).unwrap().as_bytes()), bytes, "{key_type:?} {text}");
    }
}

#[test]
fn malformed_bytes_are_refused_at_the_first_wrong_one() {
    use KeyType::{Bool, Bytes, Decimal, Int, Text};
    let cases: &[(&[KeyType], &str, usize)] = &[
        (&[Bool], "", 0),
        (&[Bool], "02", 0),
        (&[Int], "80000000000000", 7),
        (&[Int], "800000000000000000", 8),
        (&[Text], "61", 1),
        (&[Text], "6100", 2),
        (&[Text], "610000", 2),
        (&[Text], "610002", 2),
        (&[Bytes], "6100ff", 3),
        // Invalid UTF-8 behind an escaped zero.
        (&[Text], "6100ffff0001", 3),
        (&[Text], "c30001", 0),
        // A surrogate, an overlong form.
        (&[Text], "eda0800001", 0),
        (&[Text], "c0800001", 0),
        // No class; a finite number without pairs; zero as the first or last pair; a pair above 99.
        (&[Decimal], "06", 0),
        (&[Decimal], "038000000100", 5),
        (&[Decimal], "0380000001010200", 5),
        (&[Decimal], "0380000001020100", 6),
        (&[Decimal], "03800000016500", 5),
        (&[Decimal], "017ffffffefeff", 5),
        (&[Decimal], "0380000001", 5),
        (&[Decimal], "0380", 2),
        // One digit more than PostgreSQL's numeric takes, at either end.
        (&[Decimal], "03800100010200", 1),
        (&[Decimal], "037fffe0000c0200", 1),
        (&[Decimal], "03ffffffff0200", 1),
        (&[Decimal], "03000000000200", 1),
        (&[Bool, Bool], "01", 1),
    ];

    for (types, bytes, at) in cases {
        let decoded = Key::from_encoded(hex::decode(bytes).unwrap()).decode(types);
        assert_eq!(decoded, Err(KeyError::Malformed { at: *at }), "{types:?} {bytes}");
    }
}

#[test]
fn the_largest_and_smallest_decimals_of_postgresql_are_keys_and_no_larger_ones() {
    let decimal =
        |digits: &str, scale| KeyValue::Decimal(Decimal::Finite { negative: false, digits: digits.into(), scale });
    let encode = |value: KeyValue| Key::encode(&[KeyType::Decimal], &[value]);

    for (digits, scale) in [("1", -131_071), ("9", -131_071), ("1", 16_383), ("10", 16_384)] {
        let key = encode(decimal(digits, scale)).unwrap();
        assert_eq!(key.decode(&[KeyType::Decimal]), Ok(vec![normal(&decimal(digits, scale))]));
    }
    for (digits, scale) in [("1", -131_072), ("1", 16_384), ("1", i32::MAX), ("1", i32::MIN), ("1x", 0)] {
        assert!(matches!(encode(decimal(digits, scale)), Err(KeyError::WrongType { column: 1, .. })));
    }
}

#[test]
fn a_value_of_another_type_is_refused_by_name() {
    let types = [KeyType::Int, KeyType::Timestamp];

    let wrong = Key::encode(&types, &[KeyValue::Int(1), KeyValue::TimestampTz(1)]);
    let few = Key::encode(&types, &[KeyValue::Int(1)]);

    assert_eq!(wrong.unwrap_err().to_string(), "key column 2 takes Timestamp values, not an instant");
    assert_eq!(few.unwrap_err().to_string(), "the key has 2 columns, not 1");
    let one_of_each: Vec<KeyValue> = vectors().groups[..ALL_TYPES.len()]
        .iter()
        .map(|group| vector_value(group.types[0], &group.keys[0].values[0][0]))
        .collect();
    for (key_type, value) in
        ALL_TYPES.iter().flat_map(|key_type| one_of_each.iter().map(move |value| (key_type, value)))
    {
        let fits = Key::encode(&[*key_type], std::slice::from_ref(value)).is_ok();
        assert_eq!(fits, ALL_TYPES.iter().zip(&one_of_each).any(|(t, v)| t == key_type && v == value));
    }
}

#[test]
fn a_reader_appends_what_it_reads_and_an_error_leaves_all_as_it_was() {
    let types = [KeyType::Text, KeyType::Decimal, KeyType::Bytes];
    let values =
        [KeyValue::Text("é".into()), KeyValue::Decimal("-12.50".parse().unwrap()), KeyValue::Bytes([0xff, 0].into())];
    let key = Key::encode(&types, &values).unwrap();
    let mut reader = KeyReader::new(key.as_bytes());
    let mut out = b"|".to_vec();

    reader.next_text(&mut out).unwrap();
    reader.next_decimal_text(&mut out).unwrap();
    let not_text = reader.next_text(&mut out);
    let after_error = out.clone();
    reader.next_bytes(&mut out).unwrap();

    assert_eq!(not_text, Err(KeyError::Malformed { at: 12 }));
    assert_eq!(after_error, "|é-12.5".as_bytes());
    assert_eq!(out, [after_error, vec![0xff, 0]].concat());
    assert_eq!(reader.finish(), Ok(()));
}

const ALL_TYPES: [KeyType; 11] = [
    KeyType::Bool,
    KeyType::Int,
    KeyType::UInt,
    KeyType::Decimal,
    KeyType::Text,
    KeyType::Bytes,
    KeyType::Uuid,
    KeyType::Date,
    KeyType::Time,
    KeyType::Timestamp,
    KeyType::TimestampTz,
];

/// Bytes around which the escaping could go wrong, and plain ones.
fn nasty_byte() -> impl Strategy<Value = u8> {
    prop_oneof![4 => prop::sample::select(vec![0u8, 1, 2, 0x7f, 0x80, 0xfe, 0xff]), 1 => any::<u8>()]
}

fn decimal() -> impl Strategy<Value = Decimal> {
    let finite = (any::<bool>(), "[0-9]{1,7}", -4..8i32).prop_map(|(negative, digits, scale)| {
        let digits = digits.trim_start_matches('0');
        let digits = if digits.is_empty() { "0" } else { digits };
        Decimal::Finite { negative, digits: digits.into(), scale }
    });
    prop_oneof![
        20 => finite,
        1 => prop::sample::select(vec![Decimal::NaN, Decimal::Infinity, Decimal::NegativeInfinity]),
    ]
}

fn value(key_type: KeyType) -> BoxedStrategy<KeyValue> {
    let int = || prop_oneof![any::<i64>(), -3..3i64, Just(i64::MAX), Just(i64::MIN)];
    match key_type {
        KeyType::Bool => any::<bool>().prop_map(KeyValue::Bool).boxed(),
        KeyType::Int => int().prop_map(KeyValue::Int).boxed(),
        KeyType::UInt => prop_oneof![any::<u64>(), 0..3u64, Just(u64::MAX)].prop_map(KeyValue::UInt).boxed(),
        KeyType::Decimal => decimal().prop_map(KeyValue::Decimal).boxed(),
        KeyType::Text => vec(
            prop_oneof![prop::sample::select(vec!['\0', '\u{1}', '\u{2}', 'a', 'ÿ', '\u{ffff}', '😀']), any::<char>()],
            0..4,
        )
        .prop_map(|chars| KeyValue::Text(chars.into_iter().collect::<String>().into()))
        .boxed(),
        KeyType::Bytes => vec(nasty_byte(), 0..4).prop_map(|bytes| KeyValue::Bytes(bytes.into())).boxed(),
        KeyType::Uuid => [nasty_byte(), nasty_byte(), nasty_byte()]
            .prop_map(|[a, b, c]| KeyValue::Uuid([a, 0, 0, 0, b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, c]))
            .boxed(),
        KeyType::Date => prop_oneof![any::<i32>(), -3..3i32].prop_map(KeyValue::Date).boxed(),
        KeyType::Time => int().prop_map(KeyValue::Time).boxed(),
        KeyType::Timestamp => int().prop_map(KeyValue::Timestamp).boxed(),
        KeyType::TimestampTz => int().prop_map(KeyValue::TimestampTz).boxed(),
    }
}

/// Compares as SQL does, on the values: numbers by padding them to one scale, the rest by its own order.
fn sql_order(a: &KeyValue, b: &KeyValue) -> std::cmp::Ordering {
    fn place(decimal: &Decimal) -> (u8, i128) {
        match decimal {
            Decimal::NegativeInfinity => (0, 0),
            Decimal::Finite { negative, digits, scale } => {
                let unscaled = digits.parse::<i128>().unwrap() * 10i128.pow((8 - scale) as u32);
                (1, if *negative { -unscaled } else { unscaled })
            }
            Decimal::Infinity => (2, 0),
            Decimal::NaN => (3, 0),
        }
    }
    match (a, b) {
        (KeyValue::Bool(a), KeyValue::Bool(b)) => a.cmp(b),
        (KeyValue::UInt(a), KeyValue::UInt(b)) => a.cmp(b),
        (KeyValue::Decimal(a), KeyValue::Decimal(b)) => place(a).cmp(&place(b)),
        (KeyValue::Text(a), KeyValue::Text(b)) => a.chars().cmp(b.chars()),
        (KeyValue::Bytes(a), KeyValue::Bytes(b)) => a.cmp(b),
        (KeyValue::Uuid(a), KeyValue::Uuid(b)) => a.cmp(b),
        (KeyValue::Date(a), KeyValue::Date(b)) => a.cmp(b),
        (KeyValue::Int(a), KeyValue::Int(b))
        | (KeyValue::Time(a), KeyValue::Time(b))
        | (KeyValue::Timestamp(a), KeyValue::Timestamp(b))
        | (KeyValue::TimestampTz(a), KeyValue::TimestampTz(b)) => a.cmp(b),
        _ => panic!("two types"),
    }
}

fn key_types() -> impl Strategy<Value = Vec<KeyType>> {
    vec(prop::sample::select(ALL_TYPES.to_vec()), 1..4)
}

fn row(types: &[KeyType]) -> Vec<BoxedStrategy<KeyValue>> {
    types.iter().map(|key_type| value(*key_type)).collect()
}

/// Two keys of one table; often equal in their first columns.
fn two_rows() -> impl Strategy<Value = (Vec<KeyType>, Vec<KeyValue>, Vec<KeyValue>)> {
    key_types().prop_flat_map(|types| {
        let shared = 0..=types.len();
        (Just(types.clone()), row(&types), row(&types), shared).prop_map(|(types, a, mut b, shared)| {
            b[..shared].clone_from_slice(&a[..shared]);
            (types, a, b)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn bytes_compare_as_values_and_are_equal_for_equal_values_only((types, a, b) in two_rows()) {
        let expected = a.iter().zip(&b).map(|(a, b)| sql_order(a, b)).find(|order| order.is_ne());

        let order = Key::encode(&types, &a).unwrap().cmp(&Key::encode(&types, &b).unwrap());

        prop_assert_eq!(order, expected.unwrap_or(std::cmp::Ordering::Equal));
    }

    #[test]
    fn what_was_encoded_decodes_to_its_normal_form((types, a, _) in two_rows()) {
        let key = Key::encode(&types, &a).unwrap();

        prop_assert_eq!(key.decode(&types).unwrap(), a.iter().map(normal).collect::<Vec<_>>());
    }

    #[test]
    fn decimal_text_read_from_a_key_is_the_normal_form_displayed(decimal in decimal()) {
        let key = Key::encode(&[KeyType::Decimal], &[KeyValue::Decimal(decimal.clone())]).unwrap();
        let mut text = Vec::new();

        KeyReader::new(key.as_bytes()).next_decimal_text(&mut text).unwrap();

        prop_assert_eq!(String::from_utf8(text).unwrap(), decimal.normalized().to_string());
    }

    #[test]
    fn damaged_bytes_are_refused_or_are_themselves_the_encoding_of_what_they_decode_to(
        (types, a, _) in two_rows(),
        at in any::<prop::sample::Index>(),
        byte in nasty_byte(),
        cut in any::<bool>(),
    ) {
        let mut bytes = Key::encode(&types, &a).unwrap().as_bytes().to_vec();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] = byte }

        let key = Key::from_encoded(bytes);

        match key.decode(&types) {
            Ok(values) => prop_assert_eq!(Key::encode(&types, &values).unwrap(), key),
            Err(KeyError::Malformed { at }) => prop_assert!(at <= key.as_bytes().len()),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn garbage_never_panics(types in key_types(), bytes in vec(nasty_byte(), 0..40)) {
        let key = Key::from_encoded(bytes);

        if let Ok(values) = key.decode(&types) {
            prop_assert_eq!(Key::encode(&types, &values).unwrap(), key);
        }
    }
}
