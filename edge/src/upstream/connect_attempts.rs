//! The attempts to connect to a server that accepts no connections, limited for all workers
//! together.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::reason::Reason;

/// The attempts to connect to one server.
#[derive(Default)]
pub(super) struct ConnectAttempts {
    state: Mutex<State>,
    /// The latest beginning of an attempt that succeeded, in microseconds.
    accepted_us: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Time at which the last attempt began, in microseconds.
    began_us: u64,
    /// The latest beginning of an attempt that failed, and the reason for the last failure.
    failed: Option<(u64, Reason)>,
}

impl ConnectAttempts {
    /// Begins an attempt at the time `now_us`. Returns false if the last one began less than
    /// `interval_us` ago.
    pub(super) fn begin(&self, now_us: u64, interval_us: u64) -> bool {
        let mut state = self.state.lock();
        let is_due = now_us.saturating_sub(state.began_us) >= interval_us;
        if is_due {
            state.began_us = now_us;
        }
        is_due
    }

    /// Notes that an attempt which began at the time `began_us` succeeded.
    pub(super) fn note_success(&self, began_us: u64) {
        self.accepted_us.fetch_max(began_us, Ordering::Relaxed);
    }

    /// Notes that an attempt which began at the time `began_us` failed. Returns false if the failure
    /// does not count, since an attempt that began later has succeeded.
    pub(super) fn note_failure(&self, began_us: u64, reason: Reason) -> bool {
        if began_us < self.accepted_us.load(Ordering::Relaxed) {
            return false;
        }
        let mut state = self.state.lock();
        state.began_us = state.began_us.max(began_us);
        let latest_us = state.failed.map_or(0, |(at_us, _)| at_us);
        state.failed = Some((latest_us.max(began_us), reason));
        true
    }

    /// Returns the reason why an attempt failed that began at the time `since_us` or later.
    pub(super) fn failed_since(&self, since_us: u64) -> Option<Reason> {
        let (at_us, reason) = self.state.lock().failed?;
        (at_us >= since_us).then_some(reason)
    }

    /// Returns the time until an attempt may begin, in microseconds.
    pub(super) fn due_in_us(&self, now_us: u64, interval_us: u64) -> u64 {
        let began_us = self.state.lock().began_us;
        interval_us.saturating_sub(now_us.saturating_sub(began_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_have_a_distance_and_only_later_failures_count() {
        let attempts = ConnectAttempts::default();
        assert!(attempts.note_failure(100, Reason::ConnectFailed));
        assert!(!attempts.begin(105, 10));
        assert_eq!(attempts.due_in_us(105, 10), 5);
        assert!(attempts.begin(110, 10) && !attempts.begin(119, 10));
        assert_eq!(attempts.failed_since(100), Some(Reason::ConnectFailed));
        assert_eq!(attempts.failed_since(101), None);
        assert!(attempts.note_failure(110, Reason::ConnectTimeout));
        assert!(attempts.note_failure(105, Reason::ConnectFailed));
        assert_eq!(attempts.failed_since(110), Some(Reason::ConnectFailed));
    }
}
