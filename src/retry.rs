//! The one retry: how long to wait before the next try.
//!
//! Exponential with full jitter (<https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>): the wait is drawn evenly
//! between nothing and a ceiling that doubles with every failure up to a cap, so that many lanes that lost the same
//! sink do not come back to it at the same moment. Pure: the random number is an argument, and sleeping (which a
//! shutdown must end) is the lane's.

use std::time::Duration;

/// Ceiling of the first wait: a dropped connection is mostly back at once.
const FIRST: Duration = Duration::from_millis(100);

/// Ceiling of every later wait: long enough to spare a sink that is restarting, short enough that its return is
/// noticed within seconds.
const LONGEST: Duration = Duration::from_secs(15);

/// Longest wait that a sink's own `retry_after` can ask for: beyond it the sink is asked again anyway.
const LONGEST_ASKED_FOR: Duration = Duration::from_secs(300);

/// The waits between the tries of one operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Returns the wait before the next try. `random` is drawn evenly from `[0, 1)`; the wait is not shorter than
    /// `retry_after`, when the sink asked for one.
    pub fn next(&mut self, random: f64, retry_after: Option<Duration>) -> Duration {
        let ceiling = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let asked_for = retry_after.unwrap_or_default().min(LONGEST_ASKED_FOR);
        asked_for + ceiling.mul_f64(random.clamp(0.0, 1.0))
    }

    /// Returns how many tries have failed since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Starts over, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, missing_docs)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_ceiling_doubles_up_to_the_cap() {
        let mut backoff = Backoff::default();

        let ceilings: Vec<u128> = (0..10).map(|_| backoff.next(1.0, None).as_millis()).collect();

        assert_eq!(ceilings, [100, 200, 400, 800, 1600, 3200, 6400, 12800, 15000, 15000]);
        assert_eq!(backoff.failures(), 10);
    }

    #[test]
    fn a_success_starts_over() {
        let mut backoff = Backoff::default();
        backoff.next(1.0, None);
        backoff.next(1.0, None);

        backoff.reset();

        assert_eq!(backoff.failures(), 0);
        assert_eq!(backoff.next(1.0, None), Duration::from_millis(100));
    }

    #[test]
    fn the_wait_is_at_least_what_the_sink_asked_for() {
        let mut backoff = Backoff::default();

        assert_eq!(backoff.next(0.5, Some(Duration::from_secs(20))), Duration::from_millis(20_050));
        assert_eq!(backoff.next(0.0, Some(Duration::from_secs(86_400))), Duration::from_secs(300));
    }

    proptest! {
        #[test]
        fn the_wait_is_spread_over_the_whole_ceiling_and_never_above_it(failures in 0u32..100_000, random in 0.0..1.0f64) {
            let mut backoff = Backoff { failures };

            let wait = backoff.next(random, None);

            let ceiling = if failures > 7 { 15.0 } else { 0.1 * f64::from(1u32 << failures) };
            prop_assert!((wait.as_secs_f64() - ceiling * random).abs() < 1e-6);
        }
    }
}
