//! Retries: which failed requests are sent to another server, and how many of them.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::http::{Method, Status};
use crate::reason::Reason;

/// Time whose share of `budget_min` may be spent at once, in seconds.
const BURST_S: f64 = 10.0;
/// Most retries that requests can save up by `budget`.
const SAVED_MAX: f64 = 100.0;
/// Shortest time between two messages about a budget that is used up, in microseconds.
const REPORT_INTERVAL_US: u64 = 5_000_000;
/// Most times that a request is sent again because a server of HTTP/2 refused it before it processed anything.
const REFUSALS_MAX: u32 = 4;

/// Options of retries (`retry` in `[upstream.NAME]`).
#[derive(Clone, Debug, PartialEq)]
pub struct RetryOptions {
    /// Most servers tried for one request, the first one included.
    pub tries: u32,
    /// The failures after which another server is tried.
    pub on: RetryCauses,
    /// Number of retries that each request permits, from 0 to 1.
    pub budget: f64,
    /// Number of retries per second and worker that are permitted in any case.
    pub budget_min: u32,
    /// Time after the first try from which on no further try is begun.
    pub total: Duration,
}

/// The failures after which another server is tried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryCauses {
    /// No connection could be opened.
    pub connect: bool,
    /// The TLS handshake with the server failed.
    pub tls: bool,
    /// The server closed the connection before the response was complete.
    pub reset: bool,
    /// The response did not arrive within `read_timeout`, or at `min_rate`.
    pub timeout: bool,
    /// Statuses of responses that count as failures.
    pub statuses: SmallVec<[RangeInclusive<Status>; 2]>,
}

impl Default for RetryOptions {
    fn default() -> RetryOptions {
        RetryOptions {
            tries: 2,
            on: RetryCauses {
                connect: true,
                tls: true,
                reset: true,
                timeout: true,
                statuses: SmallVec::new(),
            },
            budget: 0.2,
            budget_min: 10,
            total: Duration::from_secs(10),
        }
    }
}

impl RetryCauses {
    /// Whether another server may be tried after a failure for this reason.
    pub(super) fn covers(&self, reason: Reason) -> bool {
        match reason {
            // Ports are scarce for connections to one server; descriptors for those to all.
            Reason::Unresolved
            | Reason::NoLocalPort
            | Reason::ConnectFailed
            | Reason::ConnectTimeout => self.connect,
            Reason::TlsFailed => self.tls,
            Reason::StaleConnection
            | Reason::StreamRefused
            | Reason::ClosedBeforeHead
            | Reason::SendFailed
            | Reason::BodyCut => self.reset,
            Reason::HeadTimeout | Reason::BodyTimeout => self.timeout,
            _ => false,
        }
    }

    /// Whether another server may be tried after a response with this status.
    pub(super) fn covers_status(&self, status: Status) -> bool {
        self.statuses.iter().any(|range| range.contains(&status))
    }
}

/// Whether a request with this method may be sent to another server although a server may have
/// received it: it asks for no change (RFC 9110 9.2.1). Other idempotent methods are excluded, since
/// two servers that execute a request late and in any order may undo a newer one.
pub(super) fn is_repeatable(method: &Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options)
}

/// Indices of the servers that failed a request.
pub(super) type Failed = SmallVec<[usize; 4]>;

/// The tries of one request.
#[derive(Default)]
pub(super) struct Tries {
    /// The servers that failed the request.
    pub(super) failed: Failed,
    /// Time of the first try, in microseconds of the upstream's clock.
    began_us: Option<u64>,
    /// The server to which the request was sent once more after a stale connection.
    repeated: Option<usize>,
    /// Number of times that servers refused the request before they processed it.
    refusals: u32,
    /// Gets each sending of the request.
    watch: Option<Rc<Cell<Option<Sent>>>>,
}

/// One sending of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) server: usize,
    /// Time at which sending began, in microseconds of the upstream's clock.
    pub(super) at_us: u64,
}

impl Tries {
    /// Creates the tries of a request of which `sent` gets the latest sending.
    pub(super) fn watched(sent: Rc<Cell<Option<Sent>>>) -> Tries {
        Tries {
            watch: Some(sent),
            ..Tries::default()
        }
    }

    /// Notes that the request is sent to this server from the time `at_us` on.
    pub(super) fn note_sent(&self, server: usize, at_us: u64) {
        if let Some(watch) = &self.watch {
            watch.set(Some(Sent { server, at_us }));
        }
    }

    /// Notes that a try begins at the time `now_us`.
    pub(super) fn begin(&mut self, now_us: u64) {
        self.began_us.get_or_insert(now_us);
    }

    /// Whether the number of servers or the total time permits no further try.
    pub(super) fn are_over(&self, options: &RetryOptions, now_us: u64) -> bool {
        let took_us = now_us.saturating_sub(self.began_us.unwrap_or(now_us));
        self.failed.len() >= options.tries as usize
            || u128::from(took_us) >= options.total.as_micros()
    }

    /// Whether the request may be sent to this server once more after a stale connection. Returns
    /// true only once per server, or a few times if the connection `refused` the request.
    pub(super) fn repeat(&mut self, server: usize, refused: bool) -> bool {
        if refused {
            self.refusals += 1;
            return self.refusals <= REFUSALS_MAX;
        }
        self.repeated.replace(server) != Some(server)
    }
}

/// One worker's budget of retries: if many requests fail, retries must not multiply the load of the
/// servers that are left.
pub(super) struct RetryBudget {
    /// Number of retries that may begin now.
    left: Cell<f64>,
    /// Time at which `budget_min` was last added, in microseconds.
    filled_us: Cell<u64>,
    per_request: f64,
    per_second: f64,
    /// Number of retries that were refused since the last message, and the time of that message.
    refused: Cell<u64>,
    reported_us: Cell<Option<u64>>,
}

impl RetryBudget {
    /// Creates the budget at the time `now_us`.
    pub(super) fn new(options: &RetryOptions, now_us: u64) -> RetryBudget {
        let per_second = f64::from(options.budget_min);
        RetryBudget {
            left: Cell::new(BURST_S * per_second),
            filled_us: Cell::new(now_us),
            per_request: options.budget,
            per_second,
            refused: Cell::new(0),
            reported_us: Cell::new(None),
        }
    }

    /// Adds the share of one request.
    pub(super) fn add_request(&self) {
        self.add(self.per_request);
    }

    fn add(&self, retries: f64) {
        let most = BURST_S * self.per_second + SAVED_MAX;
        self.left.set((self.left.get() + retries).min(most));
    }

    /// Takes one retry. Returns whether there was one left.
    pub(super) fn take(&self, now_us: u64) -> bool {
        let elapsed_us = now_us.saturating_sub(self.filled_us.replace(now_us));
        self.add(self.per_second * elapsed_us as f64 / 1e6);
        let left = self.left.get();
        if left < 1.0 {
            self.refused.set(self.refused.get() + 1);
            return false;
        }
        self.left.set(left - 1.0);
        true
    }

    /// Returns the number of refused retries to report, unless the last message is recent.
    pub(super) fn report(&self, now_us: u64) -> Option<u64> {
        let is_recent = |at: u64| now_us.saturating_sub(at) < REPORT_INTERVAL_US;
        if self.refused.get() == 0 || self.reported_us.get().is_some_and(is_recent) {
            return None;
        }
        self.reported_us.set(Some(now_us));
        Some(self.refused.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(budget: f64, budget_min: u32) -> RetryOptions {
        RetryOptions {
            budget,
            budget_min,
            ..RetryOptions::default()
        }
    }

    /// Takes retries until none is left.
    fn taken(budget: &RetryBudget, now_us: u64) -> usize {
        (0..10_000).take_while(|_| budget.take(now_us)).count()
    }

    #[test]
    fn retries_are_a_share_of_the_requests_and_a_minimum_per_second() {
        let budget = RetryBudget::new(&options(0.25, 2), 0);
        assert_eq!(taken(&budget, 0), 20);
        (0..100).for_each(|_| budget.add_request());
        assert_eq!(taken(&budget, 0), 25);
        assert_eq!(taken(&budget, 3_000_000), 6);
        (0..100_000).for_each(|_| budget.add_request());
        assert_eq!(taken(&budget, 3_000_000), 120, "not without a limit");
        let none = RetryBudget::new(&options(0.0, 0), 0);
        none.add_request();
        assert_eq!(taken(&none, 1_000_000_000), 0);
    }

    #[test]
    fn refused_retries_are_reported_once_per_interval() {
        let budget = RetryBudget::new(&options(0.0, 0), 0);
        assert_eq!(budget.report(0), None);
        assert!(!budget.take(0));
        assert_eq!(budget.report(0), Some(1));
        assert!(!budget.take(1) && !budget.take(2));
        assert_eq!(budget.report(2), None);
        assert_eq!(budget.report(REPORT_INTERVAL_US), Some(2));
        assert_eq!(budget.report(3 * REPORT_INTERVAL_US), None);
    }

    #[test]
    fn tries_end_by_number_and_by_time() {
        let options = options(0.2, 10);
        let mut tries = Tries::default();
        tries.begin(5);
        tries.begin(9_000_000);
        tries.failed.push(3);
        assert!(!tries.are_over(&options, 10_000_004));
        assert!(tries.are_over(&options, 10_000_005));
        tries.failed.push(1);
        assert!(tries.are_over(&options, 6));
        assert!(tries.repeat(1, false) && !tries.repeat(1, false) && tries.repeat(2, false));
        let repeats = (0..10).filter(|_| tries.repeat(2, true)).count();
        assert_eq!(repeats, REFUSALS_MAX as usize);
    }

    #[test]
    fn each_cause_covers_its_reasons() {
        let all = RetryOptions::default().on;
        let none = RetryCauses::default();
        for reason in [
            Reason::Unresolved,
            Reason::NoLocalPort,
            Reason::ConnectFailed,
            Reason::ConnectTimeout,
            Reason::TlsFailed,
            Reason::StaleConnection,
            Reason::StreamRefused,
            Reason::ClosedBeforeHead,
            Reason::SendFailed,
            Reason::HeadTimeout,
            Reason::BodyCut,
            Reason::BodyTimeout,
        ] {
            assert!(all.covers(reason) && !none.covers(reason), "{reason}");
        }
        for reason in [
            Reason::NoSocket,
            Reason::BadHead,
            Reason::ServersBusy,
            Reason::ClientGone,
        ] {
            assert!(!all.covers(reason), "{reason}");
        }
    }
}
