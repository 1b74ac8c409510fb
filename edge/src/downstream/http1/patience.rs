//! How long an exchange waits for its client: to send the body, and to read the response.

use std::time::Duration;

use crate::downstream::Options;
use crate::downstream::deadlines::{NEVER, Pace, Rule, Tick};

/// The pace of both directions, and which of them the client is waited for in.
#[derive(Default)]
pub struct Patience {
    /// Of the request's body.
    pub upload: Pace,
    /// Of the response.
    pub reply: Pace,
    /// The client has to send.
    pub upload_waits: bool,
    /// The client has to read.
    pub reply_waits: bool,
}

impl Patience {
    /// Until when the client has to send, and until when to read. What it is not waited for costs
    /// it no time; `lingers` says that the reply's pace counts something else.
    pub fn limits(&mut self, options: &Options, now: Tick, lingers: bool) -> (Tick, Tick) {
        let rule = |pause| Rule {
            pause,
            rate_min: options.min_rate,
            grace: options.min_rate_grace,
        };
        let upload = match self.upload_waits {
            true => self.upload.wait(now, &rule(options.body_timeout)),
            false => NEVER,
        };
        let reply = match self.reply_waits {
            true => self.reply.wait(now, &rule(options.send_timeout)),
            false => NEVER,
        };
        if !self.upload_waits {
            self.upload.stop(now);
        }
        if !self.reply_waits && !lingers {
            self.reply.stop(now);
        }
        (upload, reply)
    }

    /// Until when a client that was told to stop may go on: no longer for what it sends.
    pub fn linger(&mut self, now: Tick, time: Duration) -> Tick {
        let rule = Rule {
            pause: time,
            rate_min: 0,
            grace: time,
        };
        self.reply.wait(now, &rule)
    }
}
