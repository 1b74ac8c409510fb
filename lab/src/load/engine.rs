//! The event loop of the load generator, which is the same for all protocols.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use super::counts::Live;
use super::free::Free;
use super::http1::Http1;
use super::http2::Http2;
use super::schedule::Turn;
use super::state::{Due, LoadState, Outcome};
use super::timer::{TIMER, Timer};
use super::{LoadPlan, LoadResult};
use crate::process::pin_to_core;

/// Maximum number of bytes that one system call reads.
const BUFFER: usize = 1 << 20;

/// Longest wait for socket events. After that, the timeouts of requests are checked.
const TICK: Duration = Duration::from_millis(50);

/// Shortest wait for the time of a request. Requests that are due within one wait begin together, which saves most of the
/// waits at high rates.
const WAIT_MIN: Duration = Duration::from_micros(50);

/// Time for which events are looked for before the thread sleeps.
const LOOKING: Duration = Duration::from_micros(5);

/// Maximum number of events that one system call returns.
const EVENTS: usize = 1024;

/// Maximum number of requests that begin before the sockets are looked at again. Each may open a connection, which takes
/// a tenth of a millisecond.
const BEGUN_AT_ONCE: usize = 64;

/// Runs a load until it ends.
///
/// Errors: a plan without requests or without an end, a failed system call, or too many consecutive errors.
pub fn run(plan: LoadPlan) -> anyhow::Result<LoadResult> {
    let turn = Turn::new(0, 1);
    Ok(run_part(plan, turn, None, Instant::now)?.result())
}

/// Runs the load of one thread, and pins this thread if the plan has a core. Once everything is prepared, `begin` returns
/// the time at which the first request is due.
pub(super) fn run_part(
    plan: LoadPlan,
    turn: Turn,
    live: Option<&Live>,
    begin: impl FnOnce() -> Instant,
) -> anyhow::Result<Outcome> {
    if let Some(core) = plan.core {
        pin_to_core(core)?;
    }
    let state = LoadState::new(plan, turn, live)?;
    match state.plan.streams {
        None => {
            let connections = Http1::new(&state.plan, turn)?;
            Engine::new(state, connections)?.run(begin)
        }
        Some(_) => {
            let connections = Http2::new(&state.plan, turn)?;
            Engine::new(state, connections)?.run(begin)
        }
    }
}

/// The connections of a load with one protocol. Requests are sent at places, which have numbers.
pub(super) trait Connections {
    /// Returns the number of places for requests.
    fn places(&self) -> usize;

    /// Returns the time until which the connection of a free place rests after a failure. Before, nothing begins there.
    fn rests_until(&self, place: usize) -> Option<Instant>;

    /// Begins a request at a place that was free.
    fn begin(&mut self, load: &mut Load<'_>, place: usize, due: Due);

    /// Handles an event of the connection that was registered under this number. Returns the current time if a place
    /// may be free now.
    fn event(
        &mut self,
        load: &mut Load<'_>,
        number: u64,
        flags: epoll::EventFlags,
        buffer: &mut [u8],
    ) -> Option<Instant>;

    /// Continues to read from a connection that was left with unread bytes, if it still has them. Returns the current
    /// time if a place may be free now.
    fn read_on(&mut self, load: &mut Load<'_>, number: u64, buffer: &mut [u8]) -> Option<Instant>;

    /// Sends everything that was prepared since the last call.
    fn flush(&mut self, load: &mut Load<'_>);

    /// Counts each request whose time limit has passed as failed.
    fn sweep(&mut self, load: &mut Load<'_>, now: Instant);

    /// Returns the numbers of good responses on the connection with the fewest and on the one with the most.
    fn per_connection(&self) -> (u64, u64);
}

/// The parts of a running load that its connections use.
pub(super) struct Load<'a> {
    pub(super) state: LoadState<'a>,
    pub(super) free: Free,
    pub(super) epoll: OwnedFd,
    /// Connections that may have more received bytes for which the socket causes no event. They are read on after the
    /// events of other connections.
    pub(super) unread: Vec<u64>,
}

/// The event loop of one thread.
struct Engine<'a, C> {
    load: Load<'a>,
    connections: C,
    timer: Timer,
}

impl<'a, C: Connections> Engine<'a, C> {
    fn new(state: LoadState<'a>, connections: C) -> anyhow::Result<Engine<'a, C>> {
        let load = Load {
            free: Free::new(connections.places(), state.plan.rotate),
            state,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll")?,
            unread: Vec::new(),
        };
        Ok(Engine {
            timer: Timer::new(&load.epoll)?,
            load,
            connections,
        })
    }

    /// Runs until the end of the load, which begins at the time that `begin` returns.
    fn run(mut self, begin: impl FnOnce() -> Instant) -> anyhow::Result<Outcome> {
        let mut buffer = vec![0; BUFFER];
        let mut events = Vec::with_capacity(self.load.state.plan.connections.clamp(1, EVENTS));
        self.load.state.start(begin());
        let mut unread = Vec::new();
        let mut swept = self.load.state.began;
        loop {
            let now = Instant::now();
            self.load.state.pass(now);
            self.load.free.wake(now);
            self.load.state.expire(now);
            self.begin_due(now, BEGUN_AT_ONCE);
            if self.has_ended(now) {
                return Ok(self.load.state.outcome(self.connections.per_connection()));
            }
            self.load.state.check_errors()?;
            if now - swept > TICK {
                self.connections.sweep(&mut self.load, now);
                swept = now;
            }
            self.load.state.publish_often(now);
            let limit = self.wait_limit(now)?;
            self.wait(&mut events, now, limit)?;
            std::mem::swap(&mut unread, &mut self.load.unread);
            for event in events.drain(..) {
                let (data, flags) = (event.data, event.flags);
                if data.u64() == TIMER {
                    continue;
                }
                let free = self.load.free.count();
                let freed = self
                    .connections
                    .event(&mut self.load, data.u64(), flags, &mut buffer);
                self.begin_next(free, freed);
            }
            for number in unread.drain(..) {
                let free = self.load.free.count();
                let freed = self
                    .connections
                    .read_on(&mut self.load, number, &mut buffer);
                self.begin_next(free, freed);
            }
        }
    }

    /// Waits for events, up to a limit. In a closed loop, they are looked for before this thread sleeps: a server has to wake
    /// up a sleeping client with each response, which takes more of the server's core than looking takes of this one.
    fn wait(
        &self,
        events: &mut Vec<epoll::Event>,
        now: Instant,
        limit: Duration,
    ) -> anyhow::Result<()> {
        let until = now + limit.min(LOOKING);
        let looks = self.load.state.is_closed_loop();
        while looks && events.is_empty() && Instant::now() < until {
            poll(&self.load.epoll, events, Duration::ZERO)?;
        }
        match events.is_empty() {
            true => poll(&self.load.epoll, events, limit),
            false => Ok(()),
        }
    }

    /// Begins requests after an event, before which this many places were free. The next request of a closed loop is
    /// sent before other events are handled, while the connection's data is in the CPU caches.
    fn begin_next(&mut self, free: usize, freed: Option<Instant>) {
        if let Some(now) = freed {
            let count = self.load.free.count().saturating_sub(free);
            self.begin_due(now, count.max(1));
        }
    }

    /// Begins requests that are due while places are free for them, up to a maximum. A place whose request fails at once
    /// is free again.
    fn begin_due(&mut self, mut now: Instant, most: usize) {
        for number in 0..most {
            if self.load.free.is_empty() {
                break;
            }
            if number > 0 && self.load.state.is_closed_loop() {
                // Latency does not count the time that the requests before took to begin.
                now = Instant::now();
            }
            let Some(due) = self.load.state.due(now) else {
                break;
            };
            let Some(place) = self.take_place(now) else {
                break;
            };
            self.connections.begin(&mut self.load, place, due);
        }
        self.connections.flush(&mut self.load);
    }

    /// Takes a free place whose connection does not rest.
    fn take_place(&mut self, now: Instant) -> Option<usize> {
        loop {
            let place = self.load.free.take()?;
            let until = self.connections.rests_until(place);
            let Some(until) = until.filter(|until| *until > now) else {
                return Some(place);
            };
            self.load.free.rest(place, until);
        }
    }

    /// Whether the load has ended. Records an end from outside.
    fn has_ended(&mut self, now: Instant) -> bool {
        let Load { state, free, .. } = &mut self.load;
        if state.over(now) && free.are_all_back() {
            return true;
        }
        // Read once: a stop between two readings would not be recorded.
        let is_stopped = state.is_stopped();
        if is_stopped {
            state.interrupt(now);
        }
        is_stopped
    }

    /// Returns the longest time to wait for events. Arms the timer if a request is due before.
    fn wait_limit(&mut self, now: Instant) -> anyhow::Result<Duration> {
        let Load {
            state,
            free,
            unread,
            ..
        } = &self.load;
        if !unread.is_empty() {
            return Ok(Duration::ZERO);
        }
        if state.over(now) {
            return Ok(TICK);
        }
        if free.is_empty() {
            let next = free.next_wake().unwrap_or(now + TICK);
            return Ok(next.saturating_duration_since(now).min(TICK));
        }
        // In a closed loop, a place is free if its request failed at once, or if too many requests were to begin.
        let next = state.next().unwrap_or(now);
        if next <= now {
            return Ok(Duration::ZERO);
        }
        if next < now + TICK {
            self.timer.arm(next.max(now + WAIT_MIN))?;
        }
        Ok(TICK)
    }
}

/// Adds events that come within a limit.
fn poll(epoll: &OwnedFd, events: &mut Vec<epoll::Event>, limit: Duration) -> anyhow::Result<()> {
    let limit = Timespec::try_from(limit).context("timeout")?;
    match epoll::wait(epoll, spare_capacity(events), Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("waiting for events"),
    }
}

#[cfg(test)]
mod tests;
