//! The times at which something happened on a connection, and at which something is due.

use tokio::time::Instant;

/// The times that concern a whole connection.
pub(super) struct Activity {
    began: Instant,
    /// Time at which bytes were received last, or at which the first of the present exchanges began.
    pub(super) active: Instant,
    /// Time of a PING since which nothing has arrived.
    pub(super) pinged: Option<Instant>,
    /// No deadline of an exchange is before this time.
    pub(super) soonest: Option<Instant>,
    /// The number of streams that the server permitted when it was last noted.
    pub(super) permitted: Option<u32>,
}

impl Activity {
    pub(super) fn new(now: Instant) -> Activity {
        Activity {
            began: now,
            active: now,
            pinged: None,
            soonest: None,
            permitted: None,
        }
    }

    /// Notes that bytes have arrived, or that the first of several exchanges begins.
    pub(super) fn note_active(&mut self, now: Instant) {
        self.active = now;
        self.pinged = None;
    }

    /// Returns the time since the connection was opened, in milliseconds.
    pub(super) fn ms(&self, now: Instant) -> u64 {
        now.duration_since(self.began).as_millis() as u64
    }
}
