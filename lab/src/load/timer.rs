//! The timer that wakes the event loop at the time of the next scheduled request.
//!
//! A wait for socket events has a time limit in whole milliseconds, which would delay requests by up to a millisecond. A
//! timer of the kernel is exact to a few microseconds.

use std::time::Instant;

use anyhow::Context as _;
use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

/// Number of the timer's event. No connection has this number.
pub(super) const TIMER: u64 = u64::MAX;

/// A timer whose expiry is an event of an epoll set.
#[derive(Debug)]
pub(super) struct Timer {
    descriptor: OwnedFd,
    /// One moment in both notations: that of `Instant`, and that of the kernel.
    origin: (Instant, Timespec),
    armed: Option<Instant>,
}

impl Timer {
    /// Creates a timer that is not armed, and adds it to an epoll set with the number [`TIMER`].
    ///
    /// Errors: failed system calls.
    pub(super) fn new(set: impl AsFd) -> anyhow::Result<Timer> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags).context("a timer")?;
        // Edge-triggered: each expiry is one event, and nothing has to be read.
        let interest = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(TIMER);
        epoll::add(set, &descriptor, data, interest).context("a timer's events")?;
        Ok(Timer {
            descriptor,
            origin: (Instant::now(), clock_gettime(ClockId::Monotonic)),
            armed: None,
        })
    }

    /// Arms the timer for a time after its creation. A time that has passed already is an event at once.
    ///
    /// Errors: a failed system call.
    pub(super) fn arm(&mut self, at: Instant) -> anyhow::Result<()> {
        if self.armed == Some(at) {
            return Ok(());
        }
        let (instant, kernel) = self.origin;
        let after = Timespec::try_from(at.saturating_duration_since(instant)).context("a time")?;
        let sum = kernel.checked_add(after).context("a time")?;
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: sum,
        };
        let flags = TimerfdTimerFlags::ABSTIME;
        timerfd_settime(&self.descriptor, flags, &once).context("arming a timer")?;
        self.armed = Some(at);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::buffer::spare_capacity;
    use std::time::Duration;

    #[test]
    fn each_armed_time_is_one_event_that_is_not_early_and_not_rounded_to_milliseconds() {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll set");
        let mut timer = Timer::new(&set).expect("a timer");
        let mut events = Vec::with_capacity(4);
        let mut least = Duration::MAX;
        let delay = Duration::from_micros(200);
        for _ in 0..200 {
            let at = Instant::now() + delay;
            timer.arm(at).expect("armed");
            timer.arm(at).expect("armed already");
            events.clear();
            epoll::wait(&set, spare_capacity(&mut events), None).expect("an event");
            let now = Instant::now();
            assert!(now >= at, "early by {:?}", at - now);
            assert_eq!(events.len(), 1);
            let data = events[0].data;
            assert_eq!(data.u64(), TIMER);
            least = least.min(now - at);
        }
        assert!(least < Duration::from_micros(500), "{least:?}");
        let zero = Timespec::default();
        events.clear();
        epoll::wait(&set, spare_capacity(&mut events), Some(&zero)).expect("no event");
        assert!(events.is_empty(), "an event without an armed time");
    }
}
