//! Points in time as operators write and read them: milliseconds since 1970-01-01 UTC inside, RFC 3339 outside.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use sink_api::calendar::{civil_from_days, days_from_civil};

const DAY_MS: i64 = 86_400_000;

/// A point in time: milliseconds since 1970-01-01 UTC. Serialised as RFC 3339 in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct UnixMillis(pub i64);

/// The text is no RFC 3339 date and time with a zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a date and time like 2026-01-31T08:00:00Z")]
pub struct NotATime(String);

impl UnixMillis {
    /// Returns the present moment.
    pub fn now() -> UnixMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(since.as_millis() as i64)
    }

    /// Returns how long ago `earlier` was; zero when it is in the future.
    pub fn since(self, earlier: UnixMillis) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0).max(0) as u64)
    }

    /// Returns the moment `span` before this one.
    pub fn before(self, span: Duration) -> UnixMillis {
        UnixMillis(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Returns the moment without milliseconds, for people: `2026-01-31T08:00:00Z`.
    pub fn to_the_second(self) -> String {
        let text = self.to_string();
        text.split_once('.').map_or_else(|| text.clone(), |(text, _)| format!("{text}Z"))
    }

    /// Returns the same moment in microseconds since 1970-01-01 UTC.
    pub fn micros(self) -> i64 {
        self.0.saturating_mul(1000)
    }
}

impl fmt::Display for UnixMillis {
    /// Writes `2026-01-31T08:00:00.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms) = (self.0.div_euclid(DAY_MS), self.0.rem_euclid(DAY_MS));
        let (year, month, day) = civil_from_days(days);
        let (seconds, ms) = (ms / 1000, ms % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
    }
}

impl FromStr for UnixMillis {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<UnixMillis, NotATime> {
        parse(text).map(UnixMillis).ok_or_else(|| NotATime(text.to_owned()))
    }
}

impl From<UnixMillis> for String {
    fn from(time: UnixMillis) -> String {
        time.to_string()
    }
}

impl TryFrom<String> for UnixMillis {
    type Error = NotATime;

    fn try_from(text: String) -> Result<UnixMillis, NotATime> {
        text.parse()
    }
}

fn parse(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let days = days_from_civil(year, month, day);
    if civil_from_days(days) != (year, month, day) {
        return None;
    }

    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = rest.split_at(zone_at);
    let offset_minutes = match zone {
        "Z" | "z" => 0,
        _ => {
            let [hours, minutes] = numbers(&zone[1..], ':', [2, 2])?;
            (hours <= 23 && minutes <= 59).then_some(())?;
            (hours * 60 + minutes) * if zone.starts_with('-') { -1 } else { 1 }
        }
    };
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    (hour <= 23 && minute <= 59 && second <= 59).then_some(())?;
    ((1..=9).contains(&fraction.len()) && fraction.bytes().all(|byte| byte.is_ascii_digit())).then_some(())?;
    let ms = format!("{fraction:0<3}")[..3].parse::<i64>().ok()?;

    Some(days * DAY_MS + ((hour * 60 + minute - offset_minutes) * 60 + second) * 1000 + ms)
}

/// Returns the numbers of `text`, which stand between `separator`s and have exactly these numbers of digits.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut found = [0; N];
    let mut parts = text.split(separator);
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next()?;
        (part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit())).then_some(())?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use super::*;

    /// From `date -u -d TEXT +%s%3N`.
    const KNOWN: [(&str, i64); 6] = [
        ("1970-01-01T00:00:00.000Z", 0),
        ("2000-02-29T23:59:59.999Z", 951_868_799_999),
        ("2026-11-30T08:13:20.500Z", 1_796_026_400_500),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2100-03-01T00:00:00.000Z", 4_107_542_400_000),
        ("1900-02-28T12:00:00.000Z", -2_203_934_400_000),
    ];

    #[test]
    fn a_time_is_written_and_read_as_date_does() {
        for (text, ms) in KNOWN {
            assert_eq!(UnixMillis(ms).to_string(), text);
            assert_eq!(text.parse(), Ok(UnixMillis(ms)));
        }
    }

    #[test]
    fn a_zone_is_taken_into_account() {
        assert_eq!("2026-11-30T09:13:20+01:00".parse(), Ok(UnixMillis(1_796_026_400_000)));
        assert_eq!("2026-11-30 02:43:20.5-05:30".parse(), Ok(UnixMillis(1_796_026_400_500)));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "2026-11-30",
            "2026-11-30T08:00:00",
            "2026-02-30T08:00:00Z",
            "2026-13-01T08:00:00Z",
            "2026-1-1T08:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T08:00:00.Z",
            "2026-01-01T08:00:00+1:00",
            "2026-01-01T08:00:00Zulu",
        ] {
            assert_eq!(text.parse::<UnixMillis>(), Err(NotATime(text.to_owned())));
        }
    }
}
