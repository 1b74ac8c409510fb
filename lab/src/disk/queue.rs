//! The queue of a slow disk. From rate, latency, errors and hangs, the queue computes when each request completes and
//! with which result. The caller supplies the time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::time::Duration;

use super::{Activity, Condition, Pace};

/// Kind of a disk request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// A sync request, which makes earlier writes durable.
    Sync,
}

/// Error with which a disk request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// EIO: an I/O error.
    Io,
    /// ENOSPC: the disk is full.
    Full,
}

/// A disk request that is complete.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Done<R> {
    pub(super) reply: R,
    pub(super) outcome: Result<(), Trouble>,
}

struct Waiting<R> {
    due: Duration,
    number: u64,
    arrived: Duration,
    kind: Kind,
    bytes: u64,
    reply: R,
}

impl<R> Waiting<R> {
    fn order(&self) -> (Duration, u64) {
        (self.due, self.number)
    }
}

impl<R> PartialEq for Waiting<R> {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl<R> Eq for Waiting<R> {}

impl<R> PartialOrd for Waiting<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> Ord for Waiting<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// Disk requests in progress. All times count from the start of the disk.
pub(super) struct Queue<R> {
    pace: Pace,
    condition: Condition,
    /// Time at which the disk will have transferred the bytes of all requests received so far.
    free_at: Duration,
    next: u64,
    waiting: BinaryHeap<Reverse<Waiting<R>>>,
    /// Requests that arrived while the disk's condition was `Hang`.
    held: Vec<Waiting<R>>,
    activity: Activity,
    in_flight: u64,
    busy_since: Duration,
}

impl<R> Queue<R> {
    pub(super) fn new(pace: Pace) -> Queue<R> {
        Queue {
            pace,
            condition: Condition::Fine,
            free_at: Duration::ZERO,
            next: 0,
            waiting: BinaryHeap::new(),
            held: Vec::new(),
            activity: Activity::default(),
            in_flight: 0,
            busy_since: Duration::ZERO,
        }
    }

    /// Returns the error with which a request of this kind fails now, or `None` if it succeeds.
    pub(super) fn trouble(&self, kind: Kind) -> Option<Trouble> {
        match (self.condition, kind) {
            (Condition::FailReads, Kind::Read)
            | (Condition::FailWrites, Kind::Write | Kind::Sync)
            | (Condition::Fail, _) => Some(Trouble::Io),
            (Condition::Full, Kind::Write) => Some(Trouble::Full),
            _ => None,
        }
    }

    /// Whether writes transfer only a part of their bytes.
    pub(super) fn writes_short(&self) -> bool {
        self.condition == Condition::ShortWrites
    }

    /// Adds a request that arrives at the time `now`.
    pub(super) fn arrive(&mut self, now: Duration, kind: Kind, bytes: u64, reply: R) {
        if self.in_flight == 0 {
            self.busy_since = now;
        }
        self.in_flight += 1;
        let waiting = Waiting {
            due: now,
            number: self.next,
            arrived: now,
            kind,
            bytes,
            reply,
        };
        self.next += 1;
        self.enqueue(now, waiting);
    }

    fn enqueue(&mut self, now: Duration, mut waiting: Waiting<R>) {
        if self.condition == Condition::Hang {
            self.held.push(waiting);
            return;
        }
        // A request that fails transfers no bytes, so it completes at once.
        waiting.due = match self.trouble(waiting.kind) {
            Some(_) => now,
            None => self.moved(now, waiting.bytes) + self.pace.latency,
        };
        self.waiting.push(Reverse(waiting));
    }

    /// Returns the time at which these bytes will have been transferred, after the bytes of all earlier requests. A
    /// disk that was idle does not transfer faster afterwards.
    fn moved(&mut self, now: Duration, bytes: u64) -> Duration {
        if let Some(rate) = self.pace.rate {
            let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
            let takes = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
            self.free_at = self.free_at.max(now) + takes;
            return self.free_at;
        }
        now
    }

    /// Returns the time at which the next request completes.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.waiting.peek().map(|Reverse(waiting)| waiting.due)
    }

    /// Removes and returns the requests that are complete at the time `now`.
    pub(super) fn due(&mut self, now: Duration) -> Vec<Done<R>> {
        let mut done = Vec::new();
        while self.next_due().is_some_and(|due| due <= now) {
            let Some(Reverse(waiting)) = self.waiting.pop() else {
                break;
            };
            match self.condition {
                Condition::Hang => self.held.push(waiting),
                _ => done.push(self.leave(now, waiting)),
            }
        }
        done
    }

    fn leave(&mut self, now: Duration, waiting: Waiting<R>) -> Done<R> {
        let outcome = self.trouble(waiting.kind).map_or(Ok(()), Err);
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 {
            self.activity.busy += now.saturating_sub(self.busy_since);
        }
        if outcome.is_ok() {
            self.count(now, &waiting);
        }
        Done {
            reply: waiting.reply,
            outcome,
        }
    }

    fn count(&mut self, now: Duration, waiting: &Waiting<R>) {
        let activity = &mut self.activity;
        match waiting.kind {
            Kind::Read => {
                activity.reads += 1;
                activity.read_bytes += waiting.bytes;
            }
            Kind::Write => {
                activity.writes += 1;
                activity.written_bytes += waiting.bytes;
            }
            Kind::Sync => return,
        }
        activity.waited += now.saturating_sub(waiting.arrived);
    }

    /// Sets the condition of the disk. Requests held during a hang are scheduled, unless the disk still hangs.
    pub(super) fn change(&mut self, now: Duration, condition: Condition) {
        self.condition = condition;
        for waiting in std::mem::take(&mut self.held) {
            self.enqueue(now, waiting);
        }
    }

    /// Sets the rate and the latency of requests that arrive later.
    pub(super) fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Returns the disk's counters at the time `now`.
    pub(super) fn activity(&self, now: Duration) -> Activity {
        let mut activity = self.activity;
        if self.in_flight > 0 {
            activity.busy += now.saturating_sub(self.busy_since);
        }
        activity
    }

    /// Returns the number of requests in progress.
    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Removes and returns all requests, because the disk is being dropped.
    pub(super) fn drain(&mut self) -> Vec<R> {
        let held = std::mem::take(&mut self.held).into_iter();
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        held.chain(waiting.map(|Reverse(waiting)| waiting))
            .map(|waiting| waiting.reply)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn queue(rate: u64, latency_ms: u64) -> Queue<u32> {
        Queue::new(Pace {
            rate: Some(rate),
            latency: ms(latency_ms),
        })
    }

    fn replies(done: Vec<Done<u32>>) -> Vec<(u32, bool)> {
        done.into_iter()
            .map(|done| (done.reply, done.outcome.is_ok()))
            .collect()
    }

    #[test]
    fn reads_and_writes_share_the_rate_and_each_has_the_latency() {
        let mut queue = queue(1000, 5);
        queue.arrive(ms(0), Kind::Write, 100, 1);
        queue.arrive(ms(0), Kind::Read, 50, 2);
        assert_eq!(queue.next_due(), Some(ms(105)));
        assert!(queue.due(ms(104)).is_empty());
        assert_eq!(replies(queue.due(ms(105))), [(1, true)]);
        assert_eq!(replies(queue.due(ms(155))), [(2, true)]);
        // The disk was idle for a second before this request, and transfers the request's bytes no faster for that.
        queue.arrive(ms(1155), Kind::Write, 100, 3);
        assert_eq!(queue.next_due(), Some(ms(1260)));
        queue.due(ms(1260));
        let usage = queue.activity(ms(2000)).since(&Activity::default(), 2.0);
        assert_eq!((usage.writes, usage.reads), (1.0, 0.5));
        assert_eq!((usage.written_bytes, usage.read_bytes), (100.0, 25.0));
        // The three requests take 105, 155 and 105 ms. At least one is in progress for 155 + 105 of 2000 ms, which is
        // 0.13.
        assert!((usage.wait_ms - 365.0 / 3.0).abs() < 1e-6, "{usage:?}");
        assert_eq!(usage.utilization, 0.13);
    }

    #[test]
    fn a_hanging_disk_answers_when_it_is_released() {
        let mut queue = queue(1000, 0);
        queue.arrive(ms(0), Kind::Write, 100, 1);
        queue.change(ms(50), Condition::Hang);
        queue.arrive(ms(60), Kind::Read, 100, 2);
        assert!(queue.due(ms(10_000)).is_empty());
        assert_eq!((queue.next_due(), queue.in_flight()), (None, 2));
        // A disk that hangs with a request in progress counts as busy all the time.
        assert_eq!(queue.activity(ms(10_000)).busy, ms(10_000));
        queue.change(ms(10_000), Condition::Fine);
        assert_eq!(replies(queue.due(ms(10_200))), [(2, true), (1, true)]);
        assert_eq!(queue.in_flight(), 0);
    }

    #[test]
    fn each_condition_fails_its_kinds_of_requests() {
        let outcomes = |condition| {
            let mut queue = queue(1000, 0);
            queue.change(ms(0), condition);
            for (number, kind) in [Kind::Read, Kind::Write, Kind::Sync]
                .into_iter()
                .enumerate()
            {
                queue.arrive(ms(0), kind, 10, number as u32);
            }
            let mut done = queue.due(ms(1000));
            done.sort_by_key(|done| done.reply);
            assert_eq!(queue.in_flight(), 0);
            let outcomes = done.iter().map(|done| done.outcome);
            <[_; 3]>::try_from(outcomes.collect::<Vec<_>>()).expect("three answers")
        };
        let (io, full) = (Err(Trouble::Io), Err(Trouble::Full));
        assert_eq!(outcomes(Condition::Fine), [Ok(()), Ok(()), Ok(())]);
        assert_eq!(outcomes(Condition::FailReads), [io, Ok(()), Ok(())]);
        assert_eq!(outcomes(Condition::FailWrites), [Ok(()), io, io]);
        assert_eq!(outcomes(Condition::Fail), [io, io, io]);
        assert_eq!(outcomes(Condition::Full), [Ok(()), full, Ok(())]);
    }

    #[test]
    fn draining_returns_all_pending_requests() {
        let mut queue = queue(1, 0);
        queue.arrive(ms(0), Kind::Write, 100, 1);
        queue.change(ms(0), Condition::Hang);
        queue.arrive(ms(0), Kind::Write, 100, 2);
        let mut left = queue.drain();
        left.sort_unstable();
        assert_eq!(left, [1, 2]);
    }

    proptest! {
        /// From the first request on, the disk never transfers more bytes than the rate allows, and a disk that always
        /// has requests transfers as many.
        #[test]
        fn bytes_never_exceed_the_rate(
            requests in prop::collection::vec((0u64..50, 1u64..5000, any::<bool>()), 1..60),
        ) {
            let mut queue = queue(100_000, 3);
            let (mut now, mut total) = (ms(0), 0);
            let mut busy_until = Duration::ZERO;
            for (number, (gap, bytes, reads)) in requests.iter().enumerate() {
                now += ms(*gap);
                let kind = if *reads { Kind::Read } else { Kind::Write };
                queue.arrive(now, kind, *bytes, number as u32);
                busy_until = busy_until.max(now) + Duration::from_micros(bytes * 10);
                total += bytes;
            }
            let mut moved = 0;
            while let Some(due) = queue.next_due() {
                for done in queue.due(due) {
                    moved += requests[done.reply as usize].1;
                }
                let allowed = (due - ms(3)).as_secs_f64() * 100_000.0;
                prop_assert!(moved as f64 <= allowed + 1.0, "{moved} bytes by {due:?}");
                now = due;
            }
            prop_assert_eq!((moved, now), (total, busy_until + ms(3)));
        }
    }
}
