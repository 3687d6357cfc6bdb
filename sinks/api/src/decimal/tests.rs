#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn finite(negative: bool, digits: &str, scale: i32) -> Decimal {
    Decimal::Finite { negative, digits: digits.into(), scale }
}

#[test]
fn text_of_postgresql_java_and_debezium_is_read() {
    let cases = [
        ("-12.30", finite(true, "1230", 2)),
        ("+7", finite(false, "7", 0)),
        ("007.50", finite(false, "750", 2)),
        ("0.05", finite(false, "5", 2)),
        (".5", finite(false, "5", 1)),
        ("5.", finite(false, "5", 0)),
        ("1E+5", finite(false, "1", -5)),
        ("1.5e3", finite(false, "15", -2)),
        ("-2.50E-7", finite(true, "250", 9)),
        ("0", finite(false, "0", 0)),
        ("-0.00", finite(false, "0", 2)),
        ("0E+99999999999999999999", finite(false, "0", 0)),
        ("0E-10", finite(false, "0", 10)),
        ("NaN", Decimal::NaN),
        ("NAN", Decimal::NaN),
        ("Infinity", Decimal::Infinity),
        ("+Infinity", Decimal::Infinity),
        ("inf", Decimal::Infinity),
        ("-Infinity", Decimal::NegativeInfinity),
        ("POSITIVE_INFINITY", Decimal::Infinity),
        ("NEGATIVE_INFINITY", Decimal::NegativeInfinity),
    ];

    for (text, expected) in cases {
        assert_eq!(text.parse(), Ok(expected), "{text}");
    }
}

#[test]
fn other_text_is_refused() {
    let wrong = [
        "",
        "-",
        "+",
        ".",
        "-.",
        "e5",
        ".e5",
        "1e",
        "1e+",
        "1e1.5",
        "1e5e5",
        "--1",
        "+-1",
        "1.2.3",
        " 1",
        "1 ",
        "1_000",
        "1,5",
        "0x10",
        "١",
        "1é",
        "-NaN",
        "+NaN",
        "-POSITIVE_INFINITY",
        "infinit",
        "NULL",
    ];

    for text in wrong {
        assert_eq!(text.parse::<Decimal>(), Err(DecimalError::Syntax), "{text:?}");
    }
}

#[test]
fn numbers_beyond_postgresql_are_refused_whatever_their_exponent() {
    for text in ["1E+131072", "10E+131071", "1E-16384", "1E+999999999999999999999", "-1E-99999999999", "0E-16384"] {
        assert_eq!(text.parse::<Decimal>(), Err(DecimalError::TooLong), "{text}");
    }
    for text in ["1E+131071", "1E-16383", "0.1E+131072"] {
        assert!(text.parse::<Decimal>().is_ok(), "{text}");
    }
    assert_eq!("9".repeat(131_073).parse::<Decimal>(), Err(DecimalError::TooLong));
    assert_eq!(Decimal::from_unscaled(&[1], i32::MIN), Err(DecimalError::TooLong));
    assert_eq!(Decimal::from_unscaled(&[1], i32::MAX), Err(DecimalError::TooLong));
    assert_eq!(Decimal::from_unscaled(&[0x7f; 70_000], 0), Err(DecimalError::TooLong));
}

/// Captured from Debezium 3.6 over PostgreSQL: the base64 of facts/debezium, decoded.
#[test]
fn the_bytes_that_debezium_writes_are_read() {
    let cases: [(&[u8], i32, &str); 4] = [
        (&[0x12, 0xd6, 0x87], 2, "12345.67"),
        (&[0x05, 0x6b, 0xc7, 0x5e, 0x2d, 0x63, 0x10, 0x00, 0x00], 0, "100000000000000000000"),
        (&[0x01], 6, "0.000001"),
        (&[0xfb, 0x32], 2, "-12.30"),
    ];

    for (unscaled, scale, expected) in cases {
        assert_eq!(Decimal::from_unscaled(unscaled, scale).unwrap().to_string(), expected);
    }
}

/// Expected values from Python's `int.from_bytes(..., signed=True)`: powers of two around 128 bits and beyond.
#[test]
fn unscaled_values_of_any_length_are_read() {
    let power = |zeros: usize, first: u8| -> Vec<u8> { [vec![first], vec![0; zeros]].concat() };
    let cases = [
        (vec![0x00], "0"),
        (vec![0xff; 20], "-1"),
        (vec![0x80], "-128"),
        (power(15, 0x7f), "168811955464684315858783496655603761152"),
        (power(15, 0x80), "-170141183460469231731687303715884105728"),
        (power(16, 0x01), "340282366920938463463374607431768211456"),
        (power(16, 0x80), "-43556142965880123323311949751266331066368"),
        (power(32, 0x01), "115792089237316195423570985008687907853269984665640564039457584007913129639936"),
        (power(32, 0xff), "-115792089237316195423570985008687907853269984665640564039457584007913129639936"),
    ];

    for (unscaled, expected) in cases {
        assert_eq!(Decimal::from_unscaled(&unscaled, 0).unwrap().to_string(), expected, "{unscaled:02x?}");
    }
    assert_eq!(Decimal::from_unscaled(&[], 0), Err(DecimalError::Syntax));
    assert_eq!(Decimal::from_unscaled(&[0; 40], -3).unwrap(), finite(false, "0", 0));
}

#[test]
fn display_is_plain_notation_with_the_number_s_own_scale() {
    let cases = [
        (finite(true, "1230", 2), "-12.30"),
        (finite(false, "5", 3), "0.005"),
        (finite(false, "123", 3), "0.123"),
        (finite(false, "12", -3), "12000"),
        (finite(false, "0", 2), "0.00"),
        (finite(false, "0", -2), "0"),
        (Decimal::NaN, "NaN"),
        (Decimal::Infinity, "Infinity"),
        (Decimal::NegativeInfinity, "-Infinity"),
    ];

    for (decimal, expected) in cases {
        assert_eq!(decimal.to_string(), expected);
    }
    assert_eq!(finite(false, "1", 16_383).to_string().len(), 2 + 16_383);
    assert_eq!(finite(false, "1", -131_071).to_string().len(), 131_072);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_displayed_is_read_as_the_same_number(negative: bool, digits in "[1-9][0-9]{0,40}", scale in 0..60i32) {
        let decimal = finite(negative, &digits, scale);

        prop_assert_eq!(decimal.to_string().parse(), Ok(decimal));
    }

    #[test]
    fn unscaled_bytes_are_the_number_they_are_in_128_bits(value: i128, extra in 0..9usize) {
        let sign = if value < 0 { 0xff } else { 0 };
        let bytes = [vec![sign; extra], value.to_be_bytes().to_vec()].concat();

        prop_assert_eq!(Decimal::from_unscaled(&bytes, 0).unwrap().to_string(), value.to_string());
    }

    #[test]
    fn text_never_panics(text in "[-+]?[0-9.eE+é]{0,12}") {
        if let Ok(decimal) = text.parse::<Decimal>() {
            let negative_zero = matches!(&decimal, Decimal::Finite { negative: true, digits, .. } if &**digits == "0");
            prop_assert!(!negative_zero);
        }
    }
}
