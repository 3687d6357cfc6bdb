//! Decimal numbers in the binary form of `numeric`: a header of four 16-bit fields, then digits to the base 10,000.

use sink_api::Decimal;

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const INFINITY: u16 = 0xd000;
const NEGATIVE_INFINITY: u16 = 0xf000;

/// The largest display scale that the header holds.
const MAX_SCALE: i64 = 0x3fff;

/// Decimal digits in one digit to the base 10,000.
const GROUP: usize = 4;

/// Appends the binary form of `value`. Returns false, and appends nothing, when the number is too large for `numeric`.
pub(super) fn append(value: &Decimal, out: &mut Vec<u8>) -> bool {
    let (negative, digits, scale) = match value {
        Decimal::NaN => return header(0, 0, NAN, 0, out),
        Decimal::Infinity => return header(0, 0, INFINITY, 0x20, out),
        Decimal::NegativeInfinity => return header(0, 0, NEGATIVE_INFINITY, 0x20, out),
        Decimal::Finite { negative, digits, scale } => (*negative, digits.as_bytes(), i64::from(*scale)),
    };
    let display_scale = scale.max(0);
    if display_scale > MAX_SCALE {
        return false;
    }
    if digits.iter().all(|digit| *digit == b'0') {
        return header(0, 0, 0, display_scale as u16, out);
    }
    // Groups are aligned to the decimal point: so many zeros stand before the first digit.
    let whole = digits.len() as i64 - scale;
    let padding = (-whole).rem_euclid(GROUP as i64) as usize;
    let Ok(weight) = i16::try_from((whole + padding as i64) / GROUP as i64 - 1) else { return false };
    let Ok(groups) = u16::try_from((padding + digits.len()).div_ceil(GROUP)) else { return false };
    header(groups, weight, if negative { NEGATIVE } else { 0 }, display_scale as u16, out);
    let digit_at = |at: usize| at.checked_sub(padding).and_then(|at| digits.get(at)).map_or(0, |digit| digit - b'0');
    for group in 0..usize::from(groups) {
        let value = (0..GROUP).fold(0_u16, |value, at| value * 10 + u16::from(digit_at(group * GROUP + at)));
        out.extend_from_slice(&value.to_be_bytes());
    }
    true
}

fn header(groups: u16, weight: i16, sign: u16, display_scale: u16, out: &mut Vec<u8>) -> bool {
    out.extend_from_slice(&groups.to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&display_scale.to_be_bytes());
    true
}
