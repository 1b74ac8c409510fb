//! Reports failures of a server in the error log: at most one message per cause and interval, with
//! the number of failures since the last one.

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::handler::Head;
use crate::http::Scheme;
use crate::reason::Reason;

/// Shortest time between two messages about one cause, in microseconds.
const INTERVAL_US: u64 = 5_000_000;
/// Longest URL in a message, in bytes. A longer one is cut and ends in `...`.
const URL_MAX: usize = 1024;

/// The failures of one server, by cause.
#[derive(Default)]
pub(super) struct FailureLog(Mutex<SmallVec<[Failures; 2]>>);

/// The failures of one cause.
struct Failures {
    cause: Reason,
    /// Time of the last message, in microseconds.
    reported_us: u64,
    /// Number of failures since the last message.
    count: u64,
}

impl FailureLog {
    /// Counts a failure. Returns the number of failures to report, or `None` if the last message
    /// about this cause is too recent.
    pub(super) fn count(&self, cause: Reason, now_us: u64) -> Option<u64> {
        let mut all = self.0.lock();
        let known = all.iter_mut().find(|failures| failures.cause == cause);
        let Some(failures) = known else {
            all.push(Failures::reported(cause, now_us));
            return Some(1);
        };
        failures.count += 1;
        if now_us.saturating_sub(failures.reported_us) < INTERVAL_US {
            return None;
        }
        failures.reported_us = now_us;
        Some(std::mem::take(&mut failures.count))
    }

    /// Notes that another message has just reported this cause.
    pub(super) fn note_reported(&self, cause: Reason, now_us: u64) {
        let mut all = self.0.lock();
        match all.iter_mut().find(|failures| failures.cause == cause) {
            Some(failures) => failures.reported_us = now_us,
            None => all.push(Failures::reported(cause, now_us)),
        }
    }
}

impl Failures {
    fn reported(cause: Reason, reported_us: u64) -> Failures {
        Failures {
            cause,
            reported_us,
            count: 0,
        }
    }
}

/// Returns the URL of a request without its query, which may contain secrets.
pub(super) fn url(scheme: Scheme, head: &Head) -> String {
    let mut url = format!("{}://{}{}", scheme.as_str(), head.authority, head.path());
    if url.len() > URL_MAX {
        url.truncate(url.floor_char_boundary(URL_MAX));
        url += "...";
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_reported_once_per_interval_with_the_number_of_failures() {
        let log = FailureLog::default();
        let count = |cause, seconds: u64| log.count(cause, seconds * 1_000_000);
        assert_eq!(count(Reason::HeadTimeout, 10), Some(1));
        assert_eq!(count(Reason::HeadTimeout, 11), None);
        assert_eq!(count(Reason::BadHead, 11), Some(1));
        assert_eq!(count(Reason::HeadTimeout, 12), None);
        assert_eq!(count(Reason::HeadTimeout, 16), Some(3));
        assert_eq!(count(Reason::HeadTimeout, 30), Some(1));
        log.note_reported(Reason::ConnectFailed, 40_000_000);
        assert_eq!(count(Reason::ConnectFailed, 41), None);
        assert_eq!(count(Reason::ConnectFailed, 45), Some(2));
    }

    #[test]
    fn a_url_has_no_query_and_a_limited_length() {
        let mut head = Head::new();
        head.authority = "a.example".to_owned();
        head.target = "/x?token=secret".to_owned();
        assert_eq!(url(Scheme::Http, &head), "http://a.example/x");
        head.target = format!("/{}", "x".repeat(2000));
        let long = url(Scheme::Http, &head);
        assert!(long.len() == URL_MAX + 3 && long.ends_with("x..."));
    }
}
