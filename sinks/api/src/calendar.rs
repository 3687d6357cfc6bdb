//! Days and dates.
//!
//! Howard Hinnant's `days_from_civil` and `civil_from_days` (<https://howardhinnant.github.io/date_algorithms.html>), exact
//! over the proleptic Gregorian calendar. Years start in March inside, so that the leap day is the last. PostgreSQL's
//! dates reach the year 5,874,897, beyond what date libraries hold.

/// Returns the days from 1970-01-01 to a date. A day or month that the calendar does not have gives another date's.
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Returns year, month and day of a day counted from 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From PostgreSQL: `SELECT date '...' - date '1970-01-01'`; the year 0 is its 1 BC.
    const KNOWN: [((i64, i64, i64), i64); 7] = [
        ((1970, 1, 1), 0),
        ((2000, 2, 29), 11_016),
        ((1900, 3, 1), -25_508),
        ((1, 1, 1), -719_162),
        ((0, 12, 31), -719_163),
        ((-4712, 1, 1), -2_440_550),
        ((5_874_897, 12, 31), 2_145_042_905),
    ];

    #[test]
    fn days_and_dates_are_those_of_postgresql() {
        for (date, days) in KNOWN {
            assert_eq!(days_from_civil(date.0, date.1, date.2), days, "{date:?}");
            assert_eq!(civil_from_days(days), date, "{days}");
        }
    }
}
