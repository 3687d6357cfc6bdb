//! Decimal numbers as key columns.

use super::KeyError;
use crate::{
    Decimal,
    decimal::{MAX_SCALE, MAX_WHOLE_DIGITS},
};

const NEGATIVE_INFINITY: u8 = 0x00;
const NEGATIVE: u8 = 0x01;
const ZERO: u8 = 0x02;
const POSITIVE: u8 = 0x03;
const INFINITY: u8 = 0x04;
const NAN: u8 = 0x05;

/// Ends the pairs; below the smallest pair, so that a number is below those that go on.
const END: u8 = 0x00;
const EXPONENT_BYTES: usize = 4;

/// Appends the encoding of `value`.
pub(super) fn encode(value: &Decimal, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let (negative, digits, scale) = match value {
        Decimal::NaN => return push(NAN, out),
        Decimal::Infinity => return push(INFINITY, out),
        Decimal::NegativeInfinity => return push(NEGATIVE_INFINITY, out),
        Decimal::Finite { negative, digits, scale } => (*negative, digits.as_bytes(), i64::from(*scale)),
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return Err("a decimal number with something else than digits");
    }
    // The number is 0.DIGITS * 10^place; dropping zeros at either end leaves that as it is but for the place.
    let leading = digits.iter().take_while(|digit| **digit == b'0').count();
    let place = (digits.len() - leading) as i64 - scale;
    let trailing = digits[leading..].iter().rev().take_while(|digit| **digit == b'0').count();
    let digits = &digits[leading..digits.len() - trailing];
    if digits.is_empty() {
        return push(ZERO, out);
    }
    if !within_limits(digits.len(), place) {
        return Err("a decimal number with more digits than PostgreSQL's numeric takes");
    }

    let flip = if negative { 0xff } else { 0x00 };
    let exponent = (place + 1).div_euclid(2) as i32;
    out.push(if negative { NEGATIVE } else { POSITIVE });
    out.extend((exponent ^ i32::MIN).to_be_bytes().map(|byte| byte ^ flip));
    // An odd place puts the first digit alone into its pair.
    let (alone, rest) = digits.split_at(place.rem_euclid(2) as usize);
    out.extend(alone.iter().map(|digit| (digit - b'0' + 1) ^ flip));
    out.extend(rest.chunks(2).map(|pair| {
        let ones = pair.get(1).map_or(0, |digit| digit - b'0');
        ((pair[0] - b'0') * 10 + ones + 1) ^ flip
    }));
    out.push(END ^ flip);
    Ok(())
}

fn push(class: u8, out: &mut Vec<u8>) -> Result<(), &'static str> {
    out.push(class);
    Ok(())
}

/// Whether PostgreSQL's `numeric` holds 0.DIGITS * 10^place.
fn within_limits(digits: usize, place: i64) -> bool {
    place <= MAX_WHOLE_DIGITS && digits as i64 - place <= MAX_SCALE
}

/// An encoded decimal number, checked.
pub(super) enum Encoded<'a> {
    /// NaN or an infinity.
    Special(Decimal),
    /// Zero.
    Zero,
    /// Another finite number.
    Finite(Pairs<'a>),
}

/// The digits of an encoded number: 0.DIGITS * 10^place.
pub(super) struct Pairs<'a> {
    pub(super) negative: bool,
    /// How many digits stand before the decimal point; below zero: zeros behind it before the first digit.
    pub(super) place: i64,
    bytes: &'a [u8],
}

impl Pairs<'_> {
    /// Returns the digits in ASCII, without zeros at either end.
    pub(super) fn digits(&self) -> impl Iterator<Item = u8> {
        let flip = if self.negative { 0xff } else { 0x00 };
        let count = self.count();
        let skip = usize::from(self.first_alone());
        self.bytes
            .iter()
            .map(move |byte| (byte ^ flip) - 1)
            .flat_map(|pair| [b'0' + pair / 10, b'0' + pair % 10])
            .skip(skip)
            .take(count)
    }

    /// Returns the number of digits.
    pub(super) fn count(&self) -> usize {
        let flip = if self.negative { 0xff } else { 0x00 };
        let last_alone = self.bytes.last().is_some_and(|byte| ((byte ^ flip) - 1).is_multiple_of(10));
        2 * self.bytes.len() - usize::from(self.first_alone()) - usize::from(last_alone)
    }

    fn first_alone(&self) -> bool {
        self.place.rem_euclid(2) == 1
    }
}

/// Reads the number that begins at `at`. Returns it and where it ends.
pub(super) fn decode(bytes: &[u8], at: usize) -> Result<(Encoded<'_>, usize), KeyError> {
    let class = *bytes.get(at).ok_or(KeyError::Malformed { at: bytes.len() })?;
    let negative = match class {
        NEGATIVE_INFINITY => return Ok((Encoded::Special(Decimal::NegativeInfinity), at + 1)),
        INFINITY => return Ok((Encoded::Special(Decimal::Infinity), at + 1)),
        NAN => return Ok((Encoded::Special(Decimal::NaN), at + 1)),
        ZERO => return Ok((Encoded::Zero, at + 1)),
        NEGATIVE => true,
        POSITIVE => false,
        _ => return Err(KeyError::Malformed { at }),
    };
    let flip = if negative { 0xff } else { 0x00 };
    let exponent_at = at + 1;
    let pairs_at = exponent_at + EXPONENT_BYTES;
    let exponent =
        bytes.get(exponent_at..pairs_at).and_then(|exponent| <[u8; EXPONENT_BYTES]>::try_from(exponent).ok());
    let exponent = exponent.ok_or(KeyError::Malformed { at: bytes.len() })?;
    let exponent = i64::from(i32::from_be_bytes(exponent.map(|byte| byte ^ flip)) ^ i32::MIN);

    let mut end = pairs_at;
    loop {
        match bytes.get(end).map(|byte| byte ^ flip) {
            Some(END) => break,
            Some(1..=100) => end += 1,
            Some(_) => return Err(KeyError::Malformed { at: end }),
            None => return Err(KeyError::Malformed { at: bytes.len() }),
        }
    }
    let pairs = &bytes[pairs_at..end];
    let zero_pair = 1 ^ flip;
    let (Some(first), Some(last)) = (pairs.first(), pairs.last()) else {
        return Err(KeyError::Malformed { at: end });
    };
    if *first == zero_pair {
        return Err(KeyError::Malformed { at: pairs_at });
    }
    if *last == zero_pair {
        return Err(KeyError::Malformed { at: end - 1 });
    }
    let first_alone = (first ^ flip) - 1 < 10;
    let pairs = Pairs { negative, place: 2 * exponent - i64::from(first_alone), bytes: pairs };
    if !within_limits(pairs.count(), pairs.place) {
        return Err(KeyError::Malformed { at: exponent_at });
    }
    Ok((Encoded::Finite(pairs), end + 1))
}

impl Encoded<'_> {
    /// Returns the number in its normal form.
    pub(super) fn to_decimal(&self) -> Decimal {
        match self {
            Encoded::Special(special) => special.clone(),
            Encoded::Zero => Decimal::Finite { negative: false, digits: "0".into(), scale: 0 },
            Encoded::Finite(pairs) => {
                let digits: String = pairs.digits().map(char::from).collect();
                let scale = i32::try_from(digits.len() as i64 - pairs.place).expect("the limits are far below 2^31");
                Decimal::Finite { negative: pairs.negative, digits: digits.into(), scale }
            }
        }
    }

    /// Appends the number in plain decimal notation, as [`Decimal`] displays its normal form.
    pub(super) fn write_text(&self, out: &mut Vec<u8>) {
        let pairs = match self {
            Encoded::Special(Decimal::NaN) => return out.extend_from_slice(b"NaN"),
            Encoded::Special(Decimal::Infinity) => return out.extend_from_slice(b"Infinity"),
            Encoded::Special(_) => return out.extend_from_slice(b"-Infinity"),
            Encoded::Zero => return out.push(b'0'),
            Encoded::Finite(pairs) => pairs,
        };
        if pairs.negative {
            out.push(b'-');
        }
        let count = pairs.count();
        if pairs.place <= 0 {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + pairs.place.unsigned_abs() as usize, b'0');
            out.extend(pairs.digits());
        } else {
            let whole = pairs.place as usize;
            out.extend(pairs.digits().take(whole));
            if whole < count {
                out.push(b'.');
                out.extend(pairs.digits().skip(whole));
            } else {
                out.resize(out.len() + whole - count, b'0');
            }
        }
    }
}
