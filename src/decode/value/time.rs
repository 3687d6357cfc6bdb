//! Dates, times of day, timestamps and lengths of time.
//!
//! Columns count days or microseconds; what a record has beyond a microsecond, or beyond the digits that the column
//! keeps, is an error, not rounded. Debezium has no number for infinity and writes what PostgreSQL's driver makes of it:
//! numbers outside of every date and time that PostgreSQL holds, which are read as what they mean.

use serde_json::value::RawValue;
use sink_api::{ColumnType, Value, calendar::days_from_civil};

use super::{Misfit, number::int};
use crate::decode::{
    json,
    wire::{Unit, Wire},
};

const OUT_OF_RANGE: Misfit = Misfit::Value("it is out of range");
const TOO_FINE: Misfit = Misfit::Value("it has more fractional digits of a second than the column holds");
const NOT_ISO: Misfit = Misfit::Value("it is not ISO 8601 text of this type");

const MICROS_PER_DAY: i64 = 86_400_000_000;

/// What Debezium writes for a timestamp of `infinity` and `-infinity`, in microseconds: the PostgreSQL driver's
/// `DATE_POSITIVE_INFINITY` and `DATE_NEGATIVE_INFINITY`.
const TIMESTAMP_INFINITY: i64 = 9_223_372_036_825_200_000;
const TIMESTAMP_MINUS_INFINITY: i64 = -9_223_372_036_832_400_000;

/// What Debezium writes for a date of `infinity`: the driver's constant cut to 32 bits when it reads the table,
/// PostgreSQL's own largest day past 32 bits when it reads the log.
const DATE_INFINITY: [i32; 2] = [-622_191_234, -2_147_472_692];
/// The same of `-infinity`. The driver's constant lies before Christ, and Debezium loses that when it reads the table.
const DATE_MINUS_INFINITY: [i32; 2] = [-625_821_272, -2_147_472_691];

/// The same in ISO text, as far as it comes from the table: years that only the driver's constants reach.
const YEAR_OF_INFINITY: i64 = 292_278_994;
const YEAR_OF_MINUS_INFINITY: i64 = 292_269_055;

/// Reads days since 1970-01-01.
pub(super) fn days(column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    if *column != ColumnType::Date {
        return Err(Misfit::Types);
    }
    date(int(raw)?).map(Value::Date)
}

/// Takes a day as Debezium counts it.
fn date(days: i64) -> Result<i32, Misfit> {
    let days = i32::try_from(days).map_err(|_| OUT_OF_RANGE)?;
    Ok(match days {
        days if DATE_INFINITY.contains(&days) => i32::MAX,
        days if DATE_MINUS_INFINITY.contains(&days) => i32::MIN,
        days => days,
    })
}

/// Reads a number of `unit`s as microseconds.
fn micros(unit: Unit, raw: &RawValue) -> Result<i64, Misfit> {
    let number = int(raw)?;
    match unit {
        Unit::Millis => number.checked_mul(1_000).ok_or(OUT_OF_RANGE),
        Unit::Micros => Ok(number),
        Unit::Nanos if number % 1_000 == 0 => Ok(number / 1_000),
        Unit::Nanos => Err(Misfit::Value("it has nanoseconds, which no column holds")),
    }
}

fn keeps(micros: i64, digits: u8) -> Result<i64, Misfit> {
    let step = 10_i64.pow(6_u32.saturating_sub(u32::from(digits)));
    if micros % step == 0 { Ok(micros) } else { Err(TOO_FINE) }
}

/// Reads a time of day.
pub(super) fn time(unit: Unit, column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    let ColumnType::Time(digits) = column else { return Err(Misfit::Types) };
    let micros = micros(unit, raw)?;
    if !(0..=MICROS_PER_DAY).contains(&micros) {
        return Err(OUT_OF_RANGE);
    }
    keeps(micros, *digits).map(Value::Time)
}

/// Reads a date and time without zone.
pub(super) fn timestamp(unit: Unit, column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    let ColumnType::Timestamp(digits) = column else { return Err(Misfit::Types) };
    match micros(unit, raw)? {
        TIMESTAMP_INFINITY => Ok(Value::Timestamp(i64::MAX)),
        TIMESTAMP_MINUS_INFINITY => Ok(Value::Timestamp(i64::MIN)),
        i64::MAX | i64::MIN => Err(OUT_OF_RANGE),
        micros => keeps(micros, *digits).map(Value::Timestamp),
    }
}

/// Reads a length of time into an interval without months and days, `[-]hours:minutes:seconds`: how Debezium counts
/// (a month as 30.4375 days) cannot be undone.
pub(super) fn duration(unit: Unit, column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    if *column != ColumnType::Interval {
        return Err(Misfit::Types);
    }
    let micros = micros(unit, raw)?;
    let sign = if micros < 0 { "-" } else { "" };
    let micros = micros.unsigned_abs();
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    Ok(Value::Text(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}.{fraction:06}").into()))
}

/// Reads the text form of a date or a time.
pub(super) fn text(wire: &Wire, column: &ColumnType, raw: &RawValue) -> Result<Value, Misfit> {
    let text = json::string(raw).ok_or(NOT_ISO)?;
    match (wire, column) {
        (Wire::IsoDate, ColumnType::Date) => match infinity(&text) {
            Some(true) => Ok(Value::Date(i32::MAX)),
            Some(false) => Ok(Value::Date(i32::MIN)),
            None => date_text(&text).map(Value::Date),
        },
        (Wire::IsoTime, ColumnType::Time(digits)) => {
            let (micros, _) = time_text(&text, Zone::None)?;
            keeps(micros, *digits).map(Value::Time)
        }
        (Wire::ZonedTime, ColumnType::TimeTz(digits)) => {
            keeps(time_text(&text, Zone::Needed)?.0, *digits)?;
            Ok(Value::Text(text.into()))
        }
        (Wire::IsoTimestamp, ColumnType::Timestamp(digits)) => {
            timestamp_text(&text, Zone::None, *digits).map(Value::Timestamp)
        }
        (Wire::ZonedTimestamp, ColumnType::TimestampTz(digits)) => {
            timestamp_text(&text, Zone::Needed, *digits).map(Value::TimestampTz)
        }
        (_, ColumnType::Text(None) | ColumnType::Other(_)) => Ok(Value::Text(text.into())),
        _ => Err(Misfit::Types),
    }
}

fn infinity(text: &str) -> Option<bool> {
    match text {
        "infinity" | "+infinity" => Some(true),
        "-infinity" => Some(false),
        _ => None,
    }
}

/// What a text may say of its zone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Zone {
    /// Nothing, or UTC, which Debezium appends to what has no zone.
    None,
    /// The offset.
    Needed,
}

fn date_text(text: &str) -> Result<i32, Misfit> {
    let mut scan = Scan(text.as_bytes());
    let date = scan.date()?;
    if scan.zone()?.is_some_and(|offset| offset != 0) {
        return Err(NOT_ISO);
    }
    let year = scan.finish(date.0)?;
    match year {
        YEAR_OF_INFINITY => Ok(i32::MAX),
        YEAR_OF_MINUS_INFINITY => Ok(i32::MIN),
        year => self::date(days_from_civil(year, date.1, date.2)),
    }
}

fn time_text(text: &str, zone: Zone) -> Result<(i64, i64), Misfit> {
    let mut scan = Scan(text.as_bytes());
    let micros = scan.time()?;
    let offset = scan.zone_as(zone)?;
    if !scan.0.is_empty() {
        return Err(NOT_ISO);
    }
    Ok((micros, offset))
}

fn timestamp_text(text: &str, zone: Zone, digits: u8) -> Result<i64, Misfit> {
    match infinity(text) {
        Some(true) => return Ok(i64::MAX),
        Some(false) => return Ok(i64::MIN),
        None => {}
    }
    let mut scan = Scan(text.as_bytes());
    let (year, month, day) = scan.date()?;
    let [b'T' | b' ', rest @ ..] = scan.0 else { return Err(NOT_ISO) };
    scan.0 = rest;
    let time = scan.time()?;
    let offset = scan.zone_as(zone)?;
    let year = scan.finish(year)?;
    // In 128 bits: the first day of all begins before the first microsecond.
    let micros = i128::from(days_from_civil(year, month, day)) * i128::from(MICROS_PER_DAY)
        + i128::from(time - offset * 1_000_000);
    let micros = i64::try_from(micros).map_err(|_| OUT_OF_RANGE)?;
    match micros {
        TIMESTAMP_INFINITY if zone == Zone::None => Ok(i64::MAX),
        TIMESTAMP_MINUS_INFINITY if zone == Zone::None => Ok(i64::MIN),
        i64::MAX | i64::MIN => Err(OUT_OF_RANGE),
        micros => keeps(micros, digits),
    }
}

/// The rest of a text, from left to right.
struct Scan<'a>(&'a [u8]);

impl Scan<'_> {
    /// Takes a year (signed, of four or more digits), a month and a day.
    fn date(&mut self) -> Result<(i64, i64, i64), Misfit> {
        let negative = self.0.first() == Some(&b'-');
        if negative || self.0.first() == Some(&b'+') {
            self.0 = &self.0[1..];
        }
        let length = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        // Nine digits hold every year that anyone writes, and far from overflow.
        if !(4..=9).contains(&length) {
            return Err(NOT_ISO);
        }
        let year = self.digits(length)?;
        self.expect(b'-')?;
        let month = self.digits(2)?;
        self.expect(b'-')?;
        let day = self.digits(2)?;
        let year = if negative { -year } else { year };
        // PostgreSQL marks years before Christ behind everything else: 0005-02-29 BC is a leap day of year -4.
        let astronomical = if self.0.ends_with(b" BC") { 1 - year } else { year };
        if !(1..=12).contains(&month) || day < 1 || day > days_in_month(astronomical, month) {
            return Err(NOT_ISO);
        }
        Ok((year, month, day))
    }

    /// Takes a time of day, in microseconds.
    fn time(&mut self) -> Result<i64, Misfit> {
        let hours = self.digits(2)?;
        self.expect(b':')?;
        let minutes = self.digits(2)?;
        let mut seconds = 0;
        let mut micros = 0;
        if self.0.first() == Some(&b':') {
            self.0 = &self.0[1..];
            seconds = self.digits(2)?;
            if self.0.first() == Some(&b'.') {
                self.0 = &self.0[1..];
                micros = self.fraction()?;
            }
        }
        let total = (hours * 3_600 + minutes * 60 + seconds) * 1_000_000 + micros;
        if minutes > 59 || seconds > 59 || total > MICROS_PER_DAY {
            return Err(NOT_ISO);
        }
        Ok(total)
    }

    /// Takes up to nine digits of a second, in microseconds.
    fn fraction(&mut self) -> Result<i64, Misfit> {
        let length = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if !(1..=9).contains(&length) {
            return Err(NOT_ISO);
        }
        let nanos = self.digits(length)? * 10_i64.pow(9 - length as u32);
        if nanos % 1_000 == 0 { Ok(nanos / 1_000) } else { Err(TOO_FINE) }
    }

    /// Takes an offset from UTC, in seconds, if there is one.
    fn zone(&mut self) -> Result<Option<i64>, Misfit> {
        let sign = match self.0.first() {
            Some(b'Z') => {
                self.0 = &self.0[1..];
                return Ok(Some(0));
            }
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Ok(None),
        };
        self.0 = &self.0[1..];
        let mut seconds = self.digits(2)? * 3_600;
        for unit in [60, 1] {
            match self.0.first() {
                Some(b':') => self.0 = &self.0[1..],
                Some(byte) if byte.is_ascii_digit() => {}
                _ => break,
            }
            seconds += self.digits(2)? * unit;
        }
        Ok(Some(sign * seconds))
    }

    fn zone_as(&mut self, zone: Zone) -> Result<i64, Misfit> {
        match (zone, self.zone()?) {
            (Zone::None, None | Some(0)) => Ok(0),
            (Zone::None, Some(_)) => Err(Misfit::Value("it has an offset from UTC, which the column does not hold")),
            (Zone::Needed, Some(offset)) => Ok(offset),
            (Zone::Needed, None) => Err(Misfit::Value("it has no offset from UTC")),
        }
    }

    /// Ends a text; PostgreSQL marks years before Christ behind everything else. Returns the astronomical year.
    fn finish(&mut self, year: i64) -> Result<i64, Misfit> {
        match self.0 {
            b"" => Ok(year),
            b" BC" => Ok(1 - year),
            _ => Err(NOT_ISO),
        }
    }

    fn digits(&mut self, count: usize) -> Result<i64, Misfit> {
        let (digits, rest) = self.0.split_at_checked(count).ok_or(NOT_ISO)?;
        self.0 = rest;
        digits.iter().try_fold(0, |value, byte| match byte {
            b'0'..=b'9' => Ok(value * 10 + i64::from(byte - b'0')),
            _ => Err(NOT_ISO),
        })
    }

    fn expect(&mut self, byte: u8) -> Result<(), Misfit> {
        let (first, rest) = self.0.split_first().ok_or(NOT_ISO)?;
        self.0 = rest;
        if *first == byte { Ok(()) } else { Err(NOT_ISO) }
    }
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use super::*;

    // What Debezium 3.6.1 writes, read from the table and from the log.
    #[test]
    fn infinite_dates_are_known_by_what_the_driver_makes_of_them() {
        let number = |text: &str| days(&ColumnType::Date, &RawValue::from_string(text.to_owned()).unwrap()).unwrap();
        let iso = |text: &str| Value::Date(date_text(text).unwrap());

        for infinity in [number("-622191234"), number("-2147472692"), iso("+292278994-08-16Z"), iso("-5877611-06-21Z")]
        {
            assert_eq!(infinity, Value::Date(i32::MAX));
        }
        for infinity in [number("-625821272"), number("-2147472691"), iso("+292269055-12-02Z"), iso("-5877611-06-22Z")]
        {
            assert_eq!(infinity, Value::Date(i32::MIN));
        }
        assert_eq!(iso("+5874897-12-31Z"), number("2145042905"));
    }

    #[test]
    fn infinite_timestamps_are_known_in_iso_text() {
        let iso = |text: &str| timestamp_text(text, Zone::None, 6);

        assert_eq!(iso("+294247-01-10T04:00:25.2Z"), Ok(i64::MAX));
        assert_eq!(iso("-290308-12-21T19:59:27.6Z"), Ok(i64::MIN));
        assert_eq!(iso("-290308-12-21T00:00:00Z"), Err(OUT_OF_RANGE));
    }
}
