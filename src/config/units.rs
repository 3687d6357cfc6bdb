//! Human units, read strictly: a number without a unit is refused, so that nobody has to know which one is meant.

use std::time::Duration;

use super::Usage;
use crate::clock::UnixMillis;

const BYTES: [(&str, u64); 7] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
];

const SPANS_MS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a number of bytes: `64MiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, Usage> {
    scaled(text, &BYTES, "a size", "64MiB")
}

/// Reads a span of time: `500ms`, `30d`.
pub(crate) fn span(text: &str) -> Result<Duration, Usage> {
    scaled(text, &SPANS_MS, "a time", "500ms").map(Duration::from_millis)
}

/// Below this nobody has time to look at what was removed.
const SHORTEST_KEEP: Duration = Duration::from_secs(3_600);

/// Reads how long to keep what cannot be made again.
pub(crate) fn keep(text: &str) -> Result<Duration, Usage> {
    match span(text)? {
        keep if keep >= SHORTEST_KEEP => Ok(keep),
        _ => Err(Usage::new(format!("`{text}` is too short: what is forgotten cannot be brought back"))
            .hint("write 1h or more, such as 30d")),
    }
}

/// Reads a moment: an age before `now` (`2h`) or a date and time (`2026-01-31T08:00:00Z`).
pub(crate) fn moment(text: &str, now: UnixMillis) -> Result<UnixMillis, Usage> {
    span(text).map(|age| now.before(age)).or_else(|_| text.parse()).map_err(|_| {
        Usage::new(format!("`{text}` is neither an age nor a date and time"))
            .hint("write an age such as 2h or 3d, or a time such as 2026-01-31T08:00:00Z")
    })
}

/// Reads a share of a whole, in percent: `5`, `0.5`, `5%`.
pub(crate) fn percent(text: &str) -> Result<f64, Usage> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let plain = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match number.parse::<f64>() {
        Ok(percent) if plain && percent <= 100.0 => Ok(percent),
        _ => Err(Usage::new(format!("`{text}` is not a percentage")).hint("write a number from 0 to 100, such as 5")),
    }
}

fn scaled(text: &str, units: &[(&str, u64)], what: &str, example: &str) -> Result<u64, Usage> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let names = || units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let refuse =
        |why: String| Usage::new(why).hint(format!("write {what} such as {example}; the units are {}", names()));

    if number.is_empty() {
        return Err(refuse(format!("`{text}` does not begin with a whole number")));
    }
    if unit.is_empty() {
        return Err(refuse(format!("`{text}` has no unit")));
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(refuse(format!("`{unit}` is not a unit of {}", what.trim_start_matches("a "))));
    };
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
    number.ok_or_else(|| refuse(format!("`{text}` is too large")))
}

/// Writes a number of bytes in the largest unit that it is a whole number of.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let unit = BYTES[..4].iter().rev().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    unit.map_or_else(|| format!("{bytes}B"), |(name, factor)| format!("{}{name}", bytes / factor))
}

/// Writes a span in its two largest units, for people: `3h 12m`.
pub(crate) fn show_span(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 if span.is_zero() => "0s".to_owned(),
        0 => format!("{}ms", span.subsec_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use super::*;

    #[test]
    fn sizes_and_spans_are_read_with_their_unit() {
        assert_eq!(bytes("64MiB"), Ok(67_108_864));
        assert_eq!(bytes("1GB"), Ok(1_000_000_000));
        assert_eq!(bytes("0B"), Ok(0));
        assert_eq!(span("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(span("30d"), Ok(Duration::from_secs(2_592_000)));
    }

    #[test]
    fn what_is_no_size_or_span_is_refused_with_the_reason() {
        let why = |error: Usage| error.message;
        assert_eq!(span("500").map_err(why), Err("`500` has no unit".to_owned()));
        assert_eq!(span("").map_err(why), Err("`` does not begin with a whole number".to_owned()));
        assert_eq!(span("-5s").map_err(why), Err("`-5s` does not begin with a whole number".to_owned()));
        assert_eq!(span("1.5h").map_err(why), Err("`.5h` is not a unit of time".to_owned()));
        assert_eq!(span("5 s").map_err(why), Err("` s` is not a unit of time".to_owned()));
        assert_eq!(span("1D").map_err(why), Err("`D` is not a unit of time".to_owned()));
        assert_eq!(bytes("5mib").map_err(why), Err("`mib` is not a unit of size".to_owned()));
        assert_eq!(
            bytes("18446744073709551615GiB").map_err(why),
            Err("`18446744073709551615GiB` is too large".to_owned())
        );
    }

    #[test]
    fn copies_are_kept_for_an_hour_at_least() {
        assert_eq!(keep("1h"), Ok(Duration::from_secs(3_600)));
        for text in ["0s", "59m", "3599999ms"] {
            let usage = keep(text).unwrap_err();
            assert_eq!(usage.message, format!("`{text}` is too short: what is forgotten cannot be brought back"));
            assert_eq!(usage.hint.as_deref(), Some("write 1h or more, such as 30d"));
        }
    }

    #[test]
    fn percentages_lie_between_nothing_and_all() {
        assert_eq!(percent("5"), Ok(5.0));
        assert_eq!(percent("0.5%"), Ok(0.5));
        for text in ["101", "-1", "nan", "inf", "", "%", "1e1", "5 %"] {
            assert!(percent(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_moment_is_an_age_or_a_time() {
        let now = UnixMillis(10_000_000);
        assert_eq!(moment("2h", now), Ok(UnixMillis(2_800_000)));
        assert_eq!(moment("1970-01-01T00:00:01Z", now), Ok(UnixMillis(1_000)));
        assert_eq!(moment("yesterday", now).unwrap_err().message, "`yesterday` is neither an age nor a date and time");
    }

    #[test]
    fn spans_and_sizes_are_shown_short() {
        let shown: Vec<String> =
            [0, 40, 59_900, 61_000, 11_520_000, 200_000_000].map(|ms| show_span(Duration::from_millis(ms))).into();
        assert_eq!(shown, ["0s", "40ms", "59s", "1m 1s", "3h 12m", "2d 7h"]);
        assert_eq!([0, 1000, 16 << 20, 3 << 30].map(show_bytes), ["0B", "1000B", "16MiB", "3GiB"]);
    }
}
