//! Limits how long an exchange waits for its client to send the request body and to receive the
//! response.

use std::time::Duration;

use crate::downstream::Options;
use crate::downstream::deadlines::{NEVER, Tick, ticks};

use super::pace::{Pace, Rule};

/// The rate of each direction, and the directions in which the exchange waits for the client.
#[derive(Default)]
pub struct TransferTimeouts {
    receiving: Pace,
    sending: Pace,
    /// Whether the exchange waits for the client to send. The protocol sets this.
    pub awaits_client_data: bool,
    /// Whether the exchange waits for the client to receive. The protocol sets this.
    pub awaits_client_reads: bool,
    acknowledged: Acknowledged,
}

/// The direction in which the client was too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// The client did not receive the response in time.
    Sending,
    /// The client did not send the request body in time.
    Receiving,
}

/// Progress that shows only in acknowledgements. A kernel accepts new bytes only when a third of
/// its send buffer is free, so no write may succeed for minutes although the client receives
/// steadily. The client's acknowledgements show that it does.
#[derive(Default)]
struct Acknowledged {
    /// Tick at which the number of acknowledged bytes is read next.
    next_check: Option<Tick>,
    /// Acknowledged bytes since the connection began, when last read.
    total: Option<u64>,
    /// Bytes that counted as progress when they were acknowledged. They do not count again when a
    /// write fills the room that they freed.
    counted: usize,
}

impl TransferTimeouts {
    /// Notes that the transport accepted bytes of the response.
    pub fn sent(&mut self, now: Tick, bytes: usize) {
        let known = bytes.min(self.acknowledged.counted);
        self.acknowledged.counted -= known;
        (self.acknowledged.next_check, self.acknowledged.total) = (None, None);
        self.sending.progress(now, bytes - known);
    }

    /// Notes that bytes of the request body arrived.
    pub fn received(&mut self, now: Tick, bytes: usize) {
        self.receiving.progress(now, bytes);
    }

    /// Updates both directions. Returns the tick by which `check` has to be called again, and the
    /// direction in which the client is too slow. `acknowledged` returns the bytes that the client
    /// has acknowledged, if the transport knows.
    pub fn check(
        &mut self,
        options: &Options,
        now: Tick,
        acknowledged: impl FnOnce() -> Option<u64>,
    ) -> (Tick, Option<Expired>) {
        let next_check = self.check_acknowledged(options, now, acknowledged);
        let rule = |pause| Rule {
            pause,
            rate_min: options.min_rate,
            grace: options.min_rate_grace,
        };
        let receiving = wait(
            &mut self.receiving,
            self.awaits_client_data,
            now,
            &rule(options.body_timeout),
        );
        let sending = wait(
            &mut self.sending,
            self.awaits_client_reads,
            now,
            &rule(options.send_timeout),
        );
        let expired = match () {
            () if sending <= now => Some(Expired::Sending),
            () if receiving <= now => Some(Expired::Receiving),
            () => None,
        };
        (receiving.min(sending).min(next_check), expired)
    }

    /// Counts the bytes that the client has acknowledged since the last check as progress. Returns
    /// the tick of the next check: a few checks fit into the longest pause.
    fn check_acknowledged(
        &mut self,
        options: &Options,
        now: Tick,
        acknowledged: impl FnOnce() -> Option<u64>,
    ) -> Tick {
        if !self.awaits_client_reads {
            return NEVER;
        }
        let longest: Duration = options.send_timeout.min(options.min_rate_grace);
        let next = now.saturating_add(ticks(longest / 4));
        match self.acknowledged.next_check {
            Some(at) if now < at => return at,
            Some(_) => {
                let total = acknowledged();
                if let (Some(before), Some(after)) = (self.acknowledged.total, total)
                    && let Ok(bytes @ 1..) = usize::try_from(after.saturating_sub(before))
                {
                    self.acknowledged.counted = self.acknowledged.counted.saturating_add(bytes);
                    self.sending.progress(now, bytes);
                }
                self.acknowledged.total = total;
            }
            None => {}
        }
        self.acknowledged.next_check = Some(next);
        next
    }
}

/// Starts or stops the clock of one direction. Returns the tick at which the client is too late.
fn wait(pace: &mut Pace, waits: bool, now: Tick, rule: &Rule) -> Tick {
    match waits {
        true => pace.wait(now, rule),
        false => {
            pace.stop(now);
            NEVER
        }
    }
}
