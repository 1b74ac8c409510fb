//! Decides when a certificate is requested: renewal, waiting after a failure, and the budget of requests. Pure: the
//! current time is an argument.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 3600;
const DAY_S: i64 = 24 * HOUR_S;
/// Longest time in seconds for which an authority is not asked because of its Retry-After.
pub const RETRY_AFTER_MAX_S: i64 = 2 * DAY_S;

/// Waiting times in seconds after successive failures. Let's Encrypt permits five failures an hour for a name.
const WAITS_S: [i64; 7] = [
    MINUTE_S,
    5 * MINUTE_S,
    20 * MINUTE_S,
    HOUR_S,
    3 * HOUR_S,
    6 * HOUR_S,
    DAY_S,
];

/// The time in which a certificate is valid, as Unix time in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The first second.
    pub from_unix_s: i64,
    /// The last second.
    pub until_unix_s: i64,
}

/// The time in which the authority wants a certificate to be renewed (RFC 9773 4.2), as Unix time in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Its beginning.
    pub start_unix_s: i64,
    /// Its end.
    pub end_unix_s: i64,
}

/// A certificate in use, as far as its renewal depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The time in which it is valid.
    pub validity: Validity,
    /// The time at which it was obtained, as Unix time in seconds; 0 if that is not known.
    pub obtained_unix_s: i64,
    /// The time in which the authority wants it to be renewed.
    pub window: Option<Window>,
}

/// Returns the time from which a certificate is renewed. `spread`, from 0 to 1, differs between certificates, so that
/// they are not all renewed at once.
///
/// The authority's window counts (RFC 9773 4.2: a random time in it), else two thirds of the validity, less up to a
/// twentieth. A window in the past or a certificate that ends at once makes nobody order without end, and a window in the
/// far future lets no certificate end: the renewal follows the certificate by a day or a third of the validity, and
/// otherwise comes before the last tenth of it.
pub fn renewal_unix_s(held: Held, spread: f64) -> i64 {
    let spread = spread.clamp(0.0, 1.0);
    let part = |length_s: i64, of: f64| (length_s.max(0) as f64 * of) as i64;
    let Validity {
        from_unix_s,
        until_unix_s,
    } = held.validity;
    let length_s = until_unix_s.saturating_sub(from_unix_s);
    let usual_unix_s = from_unix_s.saturating_add(part(length_s, 2.0 / 3.0 - spread / 20.0));
    let wanted_unix_s = held.window.map_or(usual_unix_s, |window| {
        let window_s = window.end_unix_s.saturating_sub(window.start_unix_s);
        window.start_unix_s.saturating_add(part(window_s, spread))
    });
    let soonest_s = part(length_s, 1.0 / 3.0).min(DAY_S);
    let latest_unix_s = from_unix_s.saturating_add(part(length_s, 0.9));
    let soonest_unix_s = held.obtained_unix_s.saturating_add(soonest_s);
    wanted_unix_s.min(latest_unix_s).max(soonest_unix_s)
}

/// Returns the time for which an authority is not asked again for its window, in seconds. `asked_s` is the time that it
/// has named (RFC 9773 4.3.2: a minute to a day); `None` if it gave no answer (4.3.3: six hours).
pub fn window_wait_s(asked_s: Option<u64>) -> i64 {
    match asked_s {
        None => 6 * HOUR_S,
        Some(asked_s) => i64::try_from(asked_s)
            .unwrap_or(DAY_S)
            .clamp(MINUTE_S, DAY_S),
    }
}

/// Returns the time before which no attempt is made, as it was stored, unless the clock was wrong when that happened:
/// no wait is longer than two days.
pub fn not_before_unix_s(stored_unix_s: i64, now_unix_s: i64) -> i64 {
    match stored_unix_s > now_unix_s.saturating_add(2 * DAY_S) {
        true => now_unix_s,
        false => stored_unix_s,
    }
}

/// Returns a number from 0 to 1 that depends on the names of a certificate only, so that it outlives a restart.
pub fn spread(names: &[String]) -> f64 {
    let mut hasher = blake3::Hasher::new();
    for name in names {
        hasher.update(name.as_bytes()).update(b"\n");
    }
    let [first, second, ..] = *hasher.finalize().as_bytes();
    f64::from(u16::from_be_bytes([first, second])) / f64::from(u16::MAX)
}

/// Returns the time in seconds for which a certificate is not requested again after this number of successive failures,
/// at least 1.
pub fn wait_s(failures: u32, spread: f64) -> i64 {
    let at = (failures.max(1) as usize - 1).min(WAITS_S.len() - 1);
    let wait_s = WAITS_S[at];
    let more_s = (wait_s as f64 * spread.clamp(0.0, 1.0) / 4.0) as i64;
    wait_s + more_s
}

/// The requests of a time span, of which there may be only so many. The times are kept with the state, so that restarts
/// don't make the number larger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Budget {
    /// The times of the requests, as Unix time in seconds, the oldest first.
    used_unix_s: VecDeque<i64>,
}

impl Budget {
    /// Counts a request now, if at most `most` of the last `span_s` seconds are counted with it.
    ///
    /// # Errors
    ///
    /// There were too many: the time from which a request is permitted again, as Unix time in seconds.
    pub fn take(&mut self, now_unix_s: i64, most: usize, span_s: i64) -> Result<(), i64> {
        // Times in the future come from a clock that was set back since.
        self.used_unix_s
            .retain(|at| *at <= now_unix_s && now_unix_s.saturating_sub(*at) < span_s);
        let left = most.saturating_sub(self.used_unix_s.len());
        match self.used_unix_s.front() {
            Some(first) if left == 0 => Err(first.saturating_add(span_s)),
            None if left == 0 => Err(now_unix_s.saturating_add(span_s)),
            _ => {
                self.used_unix_s.push_back(now_unix_s);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NINETY_DAYS: Validity = Validity {
        from_unix_s: 1_000_000_000,
        until_unix_s: 1_000_000_000 + 90 * DAY_S,
    };

    /// A certificate that was obtained when its validity began.
    fn held(validity: Validity, window: Option<Window>) -> Held {
        Held {
            validity,
            obtained_unix_s: validity.from_unix_s,
            window,
        }
    }

    #[test]
    fn a_window_in_the_past_or_after_the_end_is_not_followed() {
        let at = |start_unix_s, end_unix_s| {
            let window = Window {
                start_unix_s,
                end_unix_s,
            };
            renewal_unix_s(held(NINETY_DAYS, Some(window)), 0.5) - NINETY_DAYS.from_unix_s
        };
        assert_eq!(at(0, 10), DAY_S);
        assert_eq!(at(i64::MAX - 1, i64::MAX), 81 * DAY_S);
        assert_eq!(at(i64::MIN, i64::MAX), DAY_S);
    }

    #[test]
    fn a_certificate_that_soon_ends_is_not_ordered_without_pause() {
        let late = Held {
            obtained_unix_s: NINETY_DAYS.until_unix_s - 10,
            ..held(NINETY_DAYS, None)
        };
        assert_eq!(renewal_unix_s(late, 0.0), late.obtained_unix_s + DAY_S);
    }

    #[test]
    fn windows_are_asked_for_once_a_day_or_more_often() {
        assert_eq!(window_wait_s(None), 6 * HOUR_S);
        assert_eq!(window_wait_s(Some(0)), MINUTE_S);
        assert_eq!(window_wait_s(Some(u64::MAX)), DAY_S);
    }

    #[test]
    fn a_wait_from_a_wrong_clock_is_over() {
        assert_eq!(not_before_unix_s(1000 + DAY_S, 1000), 1000 + DAY_S);
        assert_eq!(not_before_unix_s(1000 + 3 * DAY_S, 1000), 1000);
    }

    #[test]
    fn certificates_are_renewed_after_two_thirds_or_as_the_authority_wants() {
        let due_s =
            |spread| renewal_unix_s(held(NINETY_DAYS, None), spread) - NINETY_DAYS.from_unix_s;
        assert_eq!(due_s(0.0) / DAY_S, 60);
        assert!((due_s(1.0) - (55 * DAY_S + DAY_S / 2)).abs() <= 1);
        let six_days = Validity {
            until_unix_s: NINETY_DAYS.from_unix_s + 6 * DAY_S,
            ..NINETY_DAYS
        };
        assert_eq!(
            renewal_unix_s(held(six_days, None), 0.0) - six_days.from_unix_s,
            4 * DAY_S
        );
        let window = Window {
            start_unix_s: NINETY_DAYS.from_unix_s + 10 * DAY_S,
            end_unix_s: NINETY_DAYS.from_unix_s + 12 * DAY_S,
        };
        let due_s = renewal_unix_s(held(NINETY_DAYS, Some(window)), 0.5) - NINETY_DAYS.from_unix_s;
        assert_eq!(due_s, 11 * DAY_S);
    }

    #[test]
    fn waiting_times_stay_below_five_failures_an_hour() {
        let mut at_s = 0;
        let mut failures_at_s = Vec::new();
        for failures in 1..20 {
            failures_at_s.push(at_s);
            at_s += wait_s(failures, 0.0);
        }
        for first_s in &failures_at_s {
            let in_hour = failures_at_s
                .iter()
                .filter(|s| (*first_s..first_s + HOUR_S).contains(*s));
            assert!(in_hour.count() < 5);
        }
        assert_eq!(wait_s(0, 0.0), MINUTE_S);
    }

    #[test]
    fn the_spread_depends_on_the_names_only() {
        let names = |name: &str| [name.to_owned()];
        assert_eq!(spread(&names("a")), spread(&names("a")));
        assert_ne!(spread(&names("a")), spread(&names("b")));
    }

    proptest! {
        #[test]
        fn a_budget_is_never_exceeded(steps in prop::collection::vec(-20_i64..100, 1..200), most in 0_usize..6) {
            let (mut budget, mut now_s) = (Budget::default(), 1_000_000_i64);
            let mut taken: Vec<i64> = Vec::new();
            for step_s in steps {
                now_s += step_s.max(0);
                match budget.take(now_s, most, 100) {
                    Ok(()) => taken.push(now_s),
                    Err(again_s) => prop_assert!(again_s > now_s),
                }
                let recent = taken.iter().filter(|at| now_s - **at < 100).count();
                prop_assert!(recent <= most);
            }
        }

        #[test]
        fn a_renewal_is_due_within_the_validity(length_s in 0_i64..1_000_000, spread in 0.0_f64..1.0, start in -10_000_i64..2_000_000, end in -10_000_i64..2_000_000) {
            let validity = Validity { from_unix_s: 0, until_unix_s: length_s };
            let due = renewal_unix_s(held(validity, None), spread);
            prop_assert!((0..=length_s).contains(&due));
            let window = Window { start_unix_s: start, end_unix_s: end };
            prop_assert!(renewal_unix_s(held(validity, Some(window)), spread) <= length_s);
        }
    }
}
