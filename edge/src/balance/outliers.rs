//! Finds servers that fail or are slow compared with the others (outlier detection).

use std::fmt;

use super::policy::Outcome;

/// Fewest exchanges in a window from which a share of failures or a mean time is taken.
const SAMPLES_MIN: u32 = 20;
/// Fewest other servers to which the time of a server is compared.
const OTHERS_MIN: usize = 2;
/// Difference from the others' median, in microseconds, below which no server counts as slow.
const SLOWER_MIN_US: f64 = 5_000.0;

/// Limits from which on a server counts as an outlier.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlierOptions {
    /// Number of exchanges that fail one after the other. 0: no limit.
    pub failures: u32,
    /// Time over which shares and mean times are taken, in microseconds.
    pub window_us: u64,
    /// Share of failed exchanges in a window, from 0 to 1. `None`: no limit.
    pub error_rate: Option<f64>,
    /// Mean time to the header in a window, as a multiple of the median of the other servers'.
    /// `None`: no limit.
    pub latency: Option<f64>,
}

/// Reason for which a server is an outlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// This many exchanges failed one after the other, the last one in this way.
    Failures { in_a_row: u32, last: Outcome },
    /// A large share of the exchanges failed, the last one in this way.
    ErrorRate {
        failures: u32,
        exchanges: u32,
        last: Outcome,
    },
    /// Responses took longer than those of the other servers: the mean time to the header, and the
    /// median of the others' mean times.
    Latency { mean_us: u64, others_us: u64 },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Cause::Failures { in_a_row: 1, last } => write!(f, "a failure: {}", Failure(last)),
            Cause::Failures { in_a_row, last } => {
                write!(
                    f,
                    "{in_a_row} failures in a row, the last one: {}",
                    Failure(last)
                )
            }
            Cause::ErrorRate {
                failures,
                exchanges,
                last,
            } => {
                let last = Failure(last);
                write!(
                    f,
                    "{failures} of {exchanges} requests failed, the last one: {last}"
                )
            }
            Cause::Latency { mean_us, others_us } => {
                let (mean_ms, others_ms) = (mean_us as f64 / 1e3, others_us as f64 / 1e3);
                write!(
                    f,
                    "responses take {mean_ms:.1} ms, those of the other servers {others_ms:.1} ms"
                )
            }
        }
    }
}

/// Shows the outcome of an exchange that failed.
pub struct Failure(pub Outcome);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Outcome::Answered { status, .. } => write!(f, "status {status}"),
            Outcome::ConnectFailed => f.write_str("no connection"),
            Outcome::TimedOut => f.write_str("timeout"),
            Outcome::Broken => f.write_str("closed connection or invalid response"),
            Outcome::Cancelled => f.write_str("cancelled"),
        }
    }
}

/// Counts the outcomes of exchanges with the servers of an upstream.
pub struct Outliers {
    options: OutlierOptions,
    servers: Vec<Window>,
}

/// The exchanges with one server.
#[derive(Clone, Default)]
struct Window {
    /// Id of the server, if `set_ids` named one.
    id: Option<u64>,
    /// Failures since the last success.
    failures_in_a_row: u32,
    began_us: u64,
    exchanges: u32,
    failures: u32,
    times: u32,
    time_sum_us: f64,
    /// Mean time of the last complete window with enough exchanges.
    mean_us: Option<f64>,
}

impl Outliers {
    /// Creates the counts for servers that `note` names later.
    pub fn new(options: OutlierOptions) -> Outliers {
        Outliers {
            options,
            servers: Vec::new(),
        }
    }

    /// Replaces the ids of the servers (`Balancer::set_ids`). A server that takes over the index of
    /// another one begins without counts.
    pub fn set_ids(&mut self, ids: &[u64]) {
        self.servers.resize(ids.len(), Window::default());
        for (window, &id) in self.servers.iter_mut().zip(ids) {
            if window.id != Some(id) {
                *window = Window::of(id);
            }
        }
    }

    /// Counts the outcome of an exchange. Returns the reason if the server is an outlier now; its
    /// counts then begin again.
    pub fn note(&mut self, server: usize, outcome: Outcome, now_us: u64) -> Option<Cause> {
        let failed = is_failure(outcome)?;
        if server >= self.servers.len() {
            self.servers.resize(server + 1, Window::default());
        }
        let window_us = self.options.window_us;
        let window = &mut self.servers[server];
        if now_us.saturating_sub(window.began_us) >= window_us {
            window.begin(now_us, window_us);
        }
        window.count(failed, outcome);
        let cause = match failed {
            true => self.failing(server, outcome),
            false => self.slow(server),
        };
        if cause.is_some() {
            let window = &mut self.servers[server];
            *window = Window {
                id: window.id,
                ..Window::default()
            };
        }
        cause
    }

    fn failing(&self, server: usize, last: Outcome) -> Option<Cause> {
        let (window, options) = (&self.servers[server], &self.options);
        if options.failures > 0 && window.failures_in_a_row >= options.failures {
            let in_a_row = window.failures_in_a_row;
            return Some(Cause::Failures { in_a_row, last });
        }
        let share = f64::from(window.failures) / f64::from(window.exchanges);
        let is_over = options.error_rate.is_some_and(|most| share >= most);
        (is_over && window.exchanges >= SAMPLES_MIN).then_some(Cause::ErrorRate {
            failures: window.failures,
            exchanges: window.exchanges,
            last,
        })
    }

    fn slow(&self, server: usize) -> Option<Cause> {
        let factor = self.options.latency?;
        let window = &self.servers[server];
        // Sorting the others' times at each exchange would cost too much.
        if window.times == 0 || !window.times.is_multiple_of(SAMPLES_MIN) {
            return None;
        }
        let mean_us = window.time_sum_us / f64::from(window.times);
        let others = self.servers.iter().enumerate();
        let others = others.filter(|(index, _)| *index != server);
        let mut times: Vec<f64> = others.filter_map(|(_, other)| other.mean_us()).collect();
        if times.len() < OTHERS_MIN {
            return None;
        }
        times.sort_by(f64::total_cmp);
        let median_us = times[(times.len() - 1) / 2];
        let is_slow = mean_us > median_us * factor && mean_us > median_us + SLOWER_MIN_US;
        is_slow.then_some(Cause::Latency {
            mean_us: mean_us as u64,
            others_us: median_us as u64,
        })
    }
}

impl Window {
    fn of(id: u64) -> Window {
        Window {
            id: Some(id),
            ..Window::default()
        }
    }

    /// Begins the next window. Failures in a row go on.
    fn begin(&mut self, now_us: u64, window_us: u64) {
        let is_next = now_us.saturating_sub(self.began_us) < 2 * window_us;
        *self = Window {
            id: self.id,
            failures_in_a_row: self.failures_in_a_row,
            began_us: now_us,
            mean_us: self.mean_us().filter(|_| is_next),
            ..Window::default()
        };
    }

    fn count(&mut self, failed: bool, outcome: Outcome) {
        self.exchanges += 1;
        if failed {
            self.failures += 1;
            self.failures_in_a_row += 1;
            return;
        }
        self.failures_in_a_row = 0;
        if let Outcome::Answered { head_us, .. } = outcome {
            self.times += 1;
            self.time_sum_us += head_us as f64;
        }
    }

    /// Returns the mean time of this window, or of the one before if this one has few exchanges.
    fn mean_us(&self) -> Option<f64> {
        match self.times >= SAMPLES_MIN {
            true => Some(self.time_sum_us / f64::from(self.times)),
            false => self.mean_us,
        }
    }
}

/// Whether an exchange failed for which the server is responsible, or `None` if the outcome says
/// nothing about the way in which the server responds.
pub fn is_failure(outcome: Outcome) -> Option<bool> {
    match outcome {
        // A server that accepts no connections is found by other means.
        Outcome::Cancelled | Outcome::ConnectFailed => None,
        // 501 and 505 are about the request (RFC 9110 15.6).
        Outcome::Answered { status, .. } => Some(is_failure_status(status)),
        Outcome::TimedOut | Outcome::Broken => Some(true),
    }
}

/// Whether a response with this status counts as a failure of the server.
pub fn is_failure_status(status: u16) -> bool {
    matches!(status, 500 | 502..=504)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn outliers() -> Outliers {
        Outliers::new(OutlierOptions {
            failures: 5,
            window_us: 10 * SECOND,
            error_rate: Some(0.5),
            latency: Some(3.0),
        })
    }

    fn answered(status: u16, head_us: u64) -> Outcome {
        Outcome::Answered {
            status,
            head_us,
            total_us: None,
        }
    }

    #[test]
    fn failures_in_a_row_make_an_outlier_and_a_success_between_them_does_not() {
        let mut outliers = outliers();
        for _ in 0..3 {
            for _ in 0..4 {
                assert_eq!(outliers.note(0, Outcome::TimedOut, SECOND), None);
                assert_eq!(outliers.note(1, Outcome::Broken, SECOND), None);
            }
            assert_eq!(outliers.note(0, answered(200, 1), SECOND), None);
            assert_eq!(outliers.note(0, answered(404, 1), SECOND), None);
            assert_eq!(outliers.note(1, Outcome::Cancelled, SECOND), None);
            let cause = outliers.note(1, answered(503, 1), SECOND).expect("a cause");
            let text = "5 failures in a row, the last one: status 503";
            assert_eq!(cause.to_string(), text);
        }
    }

    #[test]
    fn a_share_of_failures_counts_within_a_window() {
        let mut outliers = outliers();
        let mut found = None;
        for n in 0..20 {
            let status = if n % 2 == 0 { 500 } else { 200 };
            found = found.or(outliers.note(0, answered(status, 1), SECOND));
        }
        // The twentieth exchange is a success, so the next failure decides.
        assert_eq!(found, None);
        let cause = outliers.note(0, Outcome::TimedOut, SECOND);
        let text = "11 of 21 requests failed, the last one: timeout";
        assert_eq!(cause.expect("a cause").to_string(), text);
        for n in 0..40u64 {
            let status = if n % 2 == 0 { 500 } else { 200 };
            assert_eq!(outliers.note(0, answered(status, 1), n * SECOND), None);
        }
    }

    #[test]
    fn a_server_much_slower_than_the_others_is_an_outlier() {
        let mut outliers = outliers();
        let mut found = Vec::new();
        for _ in 0..40 {
            for (server, head_us) in [(0, 10_000), (1, 12_000), (2, 50_000), (3, 20_000)] {
                found.extend(
                    outliers
                        .note(server, answered(200, head_us), SECOND)
                        .map(|cause| (server, cause)),
                );
            }
        }
        let text = "responses take 50.0 ms, those of the other servers 10.0 ms";
        assert_eq!((found[0].0, found[0].1.to_string()), (2, text.to_owned()));
        assert!(found.iter().all(|(server, _)| *server == 2));
    }

    #[test]
    fn a_server_that_takes_over_an_index_begins_without_counts() {
        let mut outliers = outliers();
        outliers.set_ids(&[7, 8]);
        for _ in 0..4 {
            assert_eq!(outliers.note(0, Outcome::Broken, SECOND), None);
            assert_eq!(outliers.note(1, Outcome::Broken, SECOND), None);
        }
        outliers.set_ids(&[9, 8, 10]);
        assert_eq!(outliers.note(0, Outcome::Broken, SECOND), None);
        let (in_a_row, last) = (5, Outcome::Broken);
        let cause = outliers.note(1, last, SECOND);
        assert_eq!(cause, Some(Cause::Failures { in_a_row, last }));
    }

    #[test]
    fn two_servers_are_too_few_to_compare_and_fast_ones_are_never_slow() {
        let mut outliers = outliers();
        for _ in 0..100 {
            for (server, head_us) in [(0, 10_000), (1, 900_000)] {
                assert_eq!(outliers.note(server, answered(200, head_us), SECOND), None);
            }
        }
        let mut outliers = self::outliers();
        for _ in 0..100 {
            for (server, head_us) in [(0, 100), (1, 110), (2, 4_000)] {
                assert_eq!(outliers.note(server, answered(200, head_us), SECOND), None);
            }
        }
    }
}
