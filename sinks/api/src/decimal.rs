//! Decimal numbers of any size, and the spellings in which they travel.
//!
//! PostgreSQL's `numeric` is the widest type that has to fit: up to 131,072 digits before the decimal point and 16,383
//! behind it, NaN and both infinities. A number is kept as its digits and a scale, so that `1.50` stays `1.50`; what
//! comes in beyond PostgreSQL's limits is refused here, before someone writes out two billion zeros.

use std::{fmt, str::FromStr};

/// As many digits as PostgreSQL's `numeric` takes before the decimal point.
pub(crate) const MAX_WHOLE_DIGITS: i64 = 131_072;

/// As many digits as PostgreSQL's `numeric` takes behind the decimal point.
pub(crate) const MAX_SCALE: i64 = 16_383;

/// More bytes than any unscaled value within the limits has: 147,455 digits of 3.33 bits.
const MAX_UNSCALED_BYTES: usize = 61_232;

/// A decimal number of any size: `unscaled * 10^-scale`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Decimal {
    /// A finite number. `digits` are the decimal digits of the unscaled value, without sign and leading zeros
    /// (`"0"` for zero).
    Finite {
        /// Whether it is below zero.
        negative: bool,
        /// The digits of the unscaled value.
        digits: Box<str>,
        /// How many of the digits stand behind the decimal point; below zero: zeros to append.
        scale: i32,
    },
    /// Not a number.
    NaN,
    /// Above every number.
    Infinity,
    /// Below every number.
    NegativeInfinity,
}

/// Why something is no [`Decimal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// It is not written as a decimal number.
    #[error("not a decimal number")]
    Syntax,
    /// It has more than 131,072 digits before the decimal point or more than 16,383 behind it.
    #[error("a decimal number with more digits than PostgreSQL's numeric takes")]
    TooLong,
}

impl Decimal {
    /// Makes a number of an unscaled value, big-endian two's complement as Java's `BigInteger` writes it, and a scale:
    /// Kafka Connect's `Decimal` and Debezium's `VariableScaleDecimal`.
    ///
    /// # Errors
    /// When `unscaled` is empty or the number is too long.
    pub fn from_unscaled(unscaled: &[u8], scale: i32) -> Result<Decimal, DecimalError> {
        let first = *unscaled.first().ok_or(DecimalError::Syntax)?;
        if unscaled.len() > MAX_UNSCALED_BYTES {
            return Err(DecimalError::TooLong);
        }
        let negative = first & 0x80 != 0;
        if unscaled.len() <= 16 {
            let mut wide = [if negative { 0xff } else { 0 }; 16];
            wide[16 - unscaled.len()..].copy_from_slice(unscaled);
            return Decimal::finite(negative, &i128::from_be_bytes(wide).unsigned_abs().to_string(), i64::from(scale));
        }
        Decimal::finite(negative, &magnitude_digits(unscaled, negative), i64::from(scale))
    }

    /// Returns the number without zeros at the end of its digits: `1.50` becomes `1.5`, `100` is `1` of scale -2, zero
    /// has scale 0. Numbers that are equal in SQL have one such form.
    #[must_use]
    pub fn normalized(&self) -> Decimal {
        match self {
            Decimal::Finite { negative, digits, scale } => {
                let kept = digits.trim_end_matches('0');
                if kept.is_empty() {
                    return Decimal::Finite { negative: false, digits: "0".into(), scale: 0 };
                }
                let dropped = i32::try_from(digits.len() - kept.len()).unwrap_or(i32::MAX);
                Decimal::Finite { negative: *negative, digits: kept.into(), scale: scale.saturating_sub(dropped) }
            }
            special => special.clone(),
        }
    }

    /// Makes a finite number of digits that may have leading zeros.
    fn finite(negative: bool, digits: &str, scale: i64) -> Result<Decimal, DecimalError> {
        let digits = digits.trim_start_matches('0');
        if scale > MAX_SCALE {
            return Err(DecimalError::TooLong);
        }
        if digits.is_empty() {
            let scale = i32::try_from(scale.max(0)).map_err(|_| DecimalError::TooLong)?;
            return Ok(Decimal::Finite { negative: false, digits: "0".into(), scale });
        }
        if digits.len() as i64 - scale > MAX_WHOLE_DIGITS {
            return Err(DecimalError::TooLong);
        }
        let scale = i32::try_from(scale).map_err(|_| DecimalError::TooLong)?;
        Ok(Decimal::Finite { negative, digits: digits.into(), scale })
    }
}

/// Returns the decimal digits of a two's complement number's magnitude.
fn magnitude_digits(unscaled: &[u8], negative: bool) -> String {
    /// The largest power of ten below 2^32: one division yields nine digits.
    const NINE_DIGITS: u64 = 1_000_000_000;
    let mut limbs: Vec<u32> = unscaled
        .rchunks(4)
        .rev()
        .map(|chunk| chunk.iter().fold(if negative { u32::MAX } else { 0 }, |limb, byte| limb << 8 | u32::from(*byte)))
        .collect();
    if negative {
        let mut carry = true;
        for limb in limbs.iter_mut().rev() {
            (*limb, carry) = (!*limb).overflowing_add(u32::from(carry));
        }
    }
    let mut groups = Vec::new();
    let mut from = 0;
    while from < limbs.len() {
        let mut rest = 0;
        for limb in &mut limbs[from..] {
            let value = rest << 32 | u64::from(*limb);
            *limb = (value / NINE_DIGITS) as u32;
            rest = value % NINE_DIGITS;
        }
        groups.push(rest);
        while limbs.get(from) == Some(&0) {
            from += 1;
        }
    }
    groups.iter().rev().map(|group| format!("{group:09}")).collect()
}

impl FromStr for Decimal {
    type Err = DecimalError;

    /// Reads decimal text as PostgreSQL and Java write it: `-12.30`, `1E+5`, `.5`; `NaN`, `Infinity`, `-Infinity`, `inf`
    /// in any case, and Debezium's `POSITIVE_INFINITY` and `NEGATIVE_INFINITY`. No blanks.
    fn from_str(text: &str) -> Result<Decimal, DecimalError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if !unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
            return special(text, unsigned, negative);
        }
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !all_digits(whole) || !all_digits(fraction) {
            return Err(DecimalError::Syntax);
        }
        let scale = fraction.len() as i64 - exponent;
        if fraction.is_empty() {
            return Decimal::finite(negative, whole, scale);
        }
        let mut digits = String::with_capacity(whole.len() + fraction.len());
        digits.push_str(whole);
        digits.push_str(fraction);
        Decimal::finite(negative, &digits, scale)
    }
}

fn special(text: &str, unsigned: &str, negative: bool) -> Result<Decimal, DecimalError> {
    let infinity = unsigned.eq_ignore_ascii_case("infinity") || unsigned.eq_ignore_ascii_case("inf");
    match (infinity, negative) {
        (true, false) => Ok(Decimal::Infinity),
        (true, true) => Ok(Decimal::NegativeInfinity),
        _ if text.eq_ignore_ascii_case("nan") => Ok(Decimal::NaN),
        _ if text.eq_ignore_ascii_case("positive_infinity") => Ok(Decimal::Infinity),
        _ if text.eq_ignore_ascii_case("negative_infinity") => Ok(Decimal::NegativeInfinity),
        _ => Err(DecimalError::Syntax),
    }
}

fn parse_exponent(text: &str) -> Result<i64, DecimalError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DecimalError::Syntax);
    }
    // Far beyond every limit, and far from overflow in what is computed with it.
    const FAR: i64 = i32::MAX as i64;
    let value =
        digits.trim_start_matches('0').bytes().take(11).fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
    Ok(if text.starts_with('-') { -value.min(FAR) } else { value.min(FAR) })
}

impl fmt::Display for Decimal {
    /// Writes plain decimal notation with exactly `scale` fractional digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decimal::NaN => f.write_str("NaN"),
            Decimal::Infinity => f.write_str("Infinity"),
            Decimal::NegativeInfinity => f.write_str("-Infinity"),
            Decimal::Finite { negative, digits, scale } => {
                if *negative {
                    f.write_str("-")?;
                }
                if *scale <= 0 {
                    f.write_str(digits)?;
                    if &**digits != "0" {
                        write_zeros(f, scale.unsigned_abs() as usize)?;
                    }
                    return Ok(());
                }
                let scale = *scale as usize;
                if digits.len() > scale {
                    let (whole, fraction) = digits.split_at(digits.len() - scale);
                    write!(f, "{whole}.{fraction}")
                } else {
                    f.write_str("0.")?;
                    write_zeros(f, scale - digits.len())?;
                    f.write_str(digits)
                }
            }
        }
    }
}

fn write_zeros(f: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    (0..count).try_for_each(|_| f.write_str("0"))
}

#[cfg(test)]
mod tests;
