//! How long an exchange waits for its client: to send the body, and to read the response.

use std::time::Duration;

use crate::downstream::Options;
use crate::downstream::deadlines::{NEVER, Pace, Rule, Tick, ticks};
use crate::sys::net::Socket;

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
    queue: Queue,
}

/// What the kernel still has to get rid of. It takes more only when a third of its buffer is free,
/// so a client that reads slowly but steadily may show nothing for minutes; what the client has
/// acknowledged does.
#[derive(Default)]
struct Queue {
    /// When it is looked at next, and what had been acknowledged at the last look.
    look: Option<Tick>,
    acknowledged: Option<u64>,
    /// Bytes that counted when they were acknowledged, and whose room is still to be filled.
    counted: usize,
}

impl Patience {
    /// The kernel took so many bytes.
    pub fn wrote(&mut self, now: Tick, bytes: usize) {
        let known = bytes.min(self.queue.counted);
        self.queue.counted -= known;
        (self.queue.look, self.queue.acknowledged) = (None, None);
        self.reply.progress(now, bytes - known);
    }

    /// While the client has to read: counts what it has acknowledged since the last look. Says when
    /// the next look is due, a few times within the longest pause.
    pub fn look(&mut self, options: &Options, now: Tick, socket: &Socket) -> Tick {
        if !self.reply_waits {
            return NEVER;
        }
        let patience = options.send_timeout.min(options.min_rate_grace);
        let next = now.saturating_add(ticks(patience / 4));
        match self.queue.look {
            Some(at) if now < at => return at,
            Some(_) => {
                let acknowledged = socket.acknowledged();
                if let (Some(before), Some(after)) = (self.queue.acknowledged, acknowledged)
                    && let Ok(bytes @ 1..) = usize::try_from(after.saturating_sub(before))
                {
                    self.queue.counted = self.queue.counted.saturating_add(bytes);
                    self.reply.progress(now, bytes);
                }
                self.queue.acknowledged = acknowledged;
            }
            None => {}
        }
        self.queue.look = Some(next);
        next
    }

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
