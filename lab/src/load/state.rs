//! The state of a running load that does not depend on the protocol: which request is due, what has been counted, and
//! when the load ends.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::counts::{Counts, Live, record};
use super::response::{Expected, Failure};
use super::schedule::{Schedule, Turn};
use super::targets::{Choice, Chosen, Targets};
use super::windows::{Windows, thread_cpu};
use super::{ConnectError, Errors, Latency, LoadPlan, LoadResult};

/// Interval at which a watched load publishes its counters.
const PUBLISHED_EVERY: Duration = Duration::from_millis(100);

/// A request that is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    /// Time from which latency counts: the current time, or in an open loop the scheduled time.
    pub(super) began: Instant,
    /// Number of the request in the load.
    pub(super) number: u64,
}

/// A good response.
#[derive(Debug, Clone, Copy)]
pub(super) struct Good {
    pub(super) began: Instant,
    pub(super) chosen: Chosen,
    /// Length of the body in bytes.
    pub(super) length: u64,
    /// Length of the whole resource, if the response has a range of it.
    pub(super) whole: Option<u64>,
}

/// The state of the load of one thread.
pub(super) struct LoadState<'a> {
    pub(super) targets: Targets,
    pub(super) expected: Expected,
    begun: u64,
    pub(super) began: Instant,
    last: Instant,
    errors_in_row: u64,
    /// Counters since they were last published, and counters that were published.
    pub(super) counts: Counts,
    published: Counts,
    live: Option<&'a Live>,
    /// Time of the last publication.
    published_at: Instant,
    /// The schedule of the whole load, if that is an open loop; `None` in a closed loop.
    schedule: Option<Schedule>,
    /// The thread's share of the schedule.
    turn: Turn,
    windows: Option<Windows>,
    /// Planned duration of the load.
    planned: Option<Duration>,
    /// Time since the start at which the server was found to be saturated. No requests begin after that time.
    saturated: Option<Duration>,
    /// Beginning of the window that showed that, in seconds after the start.
    saturated_from: Option<f64>,
    /// Time since the start at which the load was ended from outside.
    interrupted: Option<Duration>,
    cpu_before: Duration,
    /// Time within which a response must be complete.
    pub(super) time_limit: Duration,
    pub(super) plan: LoadPlan,
}

impl<'a> LoadState<'a> {
    /// Prepares the part of a load that one thread runs. The plan has the connections and requests of this thread, and
    /// the rate of the whole load.
    ///
    /// Errors: a plan without requests or without an end, or with contradictory fields.
    pub(super) fn new(
        plan: LoadPlan,
        turn: Turn,
        live: Option<&'a Live>,
    ) -> anyhow::Result<LoadState<'a>> {
        anyhow::ensure!(
            !plan.paths.is_empty() && plan.connections > 0,
            "a load needs a path and a connection"
        );
        let is_replay = matches!(plan.choice, Choice::Replay(_));
        anyhow::ensure!(
            plan.requests.is_some() || plan.seconds.is_some() || is_replay,
            "a load needs a number of requests or of seconds"
        );
        let now = Instant::now();
        let schedule = Schedule::of(&plan)?;
        let windows = match (schedule, plan.window_seconds) {
            (Some(schedule), Some(length)) if length > 0.0 => {
                Some(Windows::new(length, schedule, turn, plan.seconds))
            }
            (_, Some(_)) => anyhow::bail!("windows need an open loop and a length"),
            _ => None,
        };
        Ok(LoadState {
            targets: Targets::new(&plan, turn)?,
            expected: Expected {
                status: plan.expect_status,
                length: plan.expect_length,
                verify: plan.verify,
            },
            begun: 0,
            began: now,
            last: now,
            errors_in_row: 0,
            counts: Counts::new()?,
            published: Counts::new()?,
            live,
            published_at: now,
            schedule,
            turn,
            windows,
            planned: plan.seconds.map(duration),
            saturated: None,
            saturated_from: None,
            interrupted: None,
            cpu_before: thread_cpu(),
            time_limit: duration(plan.timeout_seconds),
            plan,
        })
    }

    /// Begins the load at this time.
    pub(super) fn start(&mut self, now: Instant) {
        self.began = now;
        self.last = now;
        self.published_at = now;
        self.cpu_before = thread_cpu();
    }

    /// Records that the load is ended from outside.
    pub(super) fn interrupt(&mut self, now: Instant) {
        self.interrupted = Some(now.saturating_duration_since(self.began));
    }

    /// Fails after too many consecutive errors.
    pub(super) fn check_errors(&self) -> anyhow::Result<()> {
        let most = self.plan.consecutive_errors_max.unwrap_or(u64::MAX);
        anyhow::ensure!(
            self.errors_in_row < most,
            "{most} consecutive errors from {} ({}){}",
            self.plan.target,
            self.all_errors(),
            self.connect_error()
        );
        Ok(())
    }

    /// Returns the number of requests that have ended.
    fn ended(&self) -> u64 {
        self.published.done + self.counts.done + self.all_errors().total()
    }

    /// Returns the reason of the first failed connection for the end of a message; empty if there is none.
    fn connect_error(&self) -> String {
        let first = self.published.connect_error.or(self.counts.connect_error);
        first.map_or_else(String::new, |error| {
            format!(
                "; the first connection failed: {}",
                ConnectError::of(error).text
            )
        })
    }

    fn all_errors(&self) -> Errors {
        let mut errors = self.published.errors;
        errors.add(&self.counts.errors);
        errors
    }

    /// Makes the counters since the last publication visible to the owner of the load, if somebody watches the load and
    /// the last publication was long ago.
    pub(super) fn publish_often(&mut self, now: Instant) {
        if self.live.is_some() && now.saturating_duration_since(self.published_at) > PUBLISHED_EVERY
        {
            self.publish(now);
        }
    }

    fn publish(&mut self, now: Instant) {
        if let Some(live) = self.live {
            let covered = now.saturating_duration_since(self.published_at);
            live.publish(self.turn.number as usize, &self.counts, covered);
        }
        self.published_at = now;
        self.published.add(&self.counts);
        self.counts.clear();
    }

    /// Whether the load was ended from outside.
    pub(super) fn is_stopped(&self) -> bool {
        self.live.is_some_and(Live::is_stopped)
    }

    /// Records that time has passed. At the start of each window, also checks whether the server is saturated.
    pub(super) fn pass(&mut self, now: Instant) {
        let after = now.saturating_duration_since(self.began);
        if self.saturated.is_none() && self.live.is_some_and(Live::is_saturated) {
            self.saturated = Some(after);
        }
        if let Some(windows) = &mut self.windows
            && windows.pass(after)
            && let Some(most) = self.plan.saturated_us
            && let Some(begin) = windows.saturated(most)
            && self.saturated_from.is_none()
        {
            self.saturated = self.saturated.or(Some(after));
            self.saturated_from = Some(begin);
            if let Some(live) = self.live {
                // The other threads of the load end, too.
                live.saturate();
            }
        }
    }

    /// Returns the next request, if that request is due now.
    pub(super) fn due(&self, now: Instant) -> Option<Due> {
        if self.over(now) {
            return None;
        }
        let began = self.next().unwrap_or(now);
        let number = self.begun;
        (began <= now).then_some(Due { began, number })
    }

    /// Chooses what to request with a request that is due, and counts the request as begun. `player` is the number of
    /// the connection or stream that sends the request.
    pub(super) fn choose(&mut self, due: Due, player: usize) -> Chosen {
        self.begun += 1;
        self.targets.choose(due.number, player)
    }

    /// Counts the requests of an open loop whose time limit has passed before a connection was free for them.
    pub(super) fn expire(&mut self, now: Instant) {
        let after = now.saturating_duration_since(self.began);
        let Some(late) = after.checked_sub(self.time_limit) else {
            return;
        };
        if self.saturated.is_some() {
            return;
        }
        // Requests that are due after the planned end never begin.
        let late = late.min(self.planned.unwrap_or(Duration::MAX));
        let expired = self.due_before(late).saturating_sub(self.begun);
        if expired > 0 {
            self.begun += expired;
            self.failed_times(Failure::Timeout, expired);
        }
    }

    /// Returns the number of requests of this thread that are due before this time after the start of the load; 0 in a
    /// closed loop.
    fn due_before(&self, after: Duration) -> u64 {
        let scheduled = |schedule: Schedule| self.turn.count(schedule.before(after.as_secs_f64()));
        let logged = self.targets.logged_before(after);
        let due = logged.or(self.schedule.map(scheduled)).unwrap_or(0);
        due.min(self.plan.requests.unwrap_or(u64::MAX))
    }

    /// Returns the scheduled time of the next request; `None` in a closed loop.
    pub(super) fn next(&self) -> Option<Instant> {
        let due = |schedule: Schedule| schedule.due(self.turn.place(self.begun));
        let scheduled = self.schedule.map(due);
        let after = self.targets.logged_time(self.begun).or(scheduled)?;
        Some(self.began + after)
    }

    /// Whether requests have no scheduled times.
    pub(super) fn is_closed_loop(&self) -> bool {
        self.schedule.is_none() && self.targets.logged().is_none()
    }

    /// Whether no more requests may begin. In an open loop, requests that were scheduled before the end of the load
    /// still begin.
    pub(super) fn over(&self, now: Instant) -> bool {
        let late = self.planned.is_some_and(|planned| {
            let next = self.next().unwrap_or(now);
            next.saturating_duration_since(self.began) >= planned
        });
        late || self.is_exhausted() || self.saturated.is_some()
    }

    /// Whether all requests of a load with a limited number have begun.
    fn is_exhausted(&self) -> bool {
        let is_enough = |most: u64| self.begun >= most;
        self.plan.requests.is_some_and(is_enough) || self.targets.logged().is_some_and(is_enough)
    }

    /// Returns the time since the start after which responses are late; `None` if no end is known.
    fn end(&self) -> Option<Duration> {
        let ends = [self.planned, self.saturated, self.interrupted];
        ends.into_iter().flatten().min()
    }

    /// Returns the number of requests that were due before the load was cut short, and have not begun.
    fn unsent(&self) -> u64 {
        let cut = [self.saturated, self.interrupted];
        let cut = cut.into_iter().flatten().min();
        let Some(end) = cut.and(self.end()) else {
            return 0;
        };
        self.due_before(end).saturating_sub(self.begun)
    }

    /// Counts a good response that was complete at `now`.
    pub(super) fn good(&mut self, good: Good, now: Instant) {
        let took = now.saturating_duration_since(good.began);
        let after = now.saturating_duration_since(self.began);
        let is_late = self.end().is_some_and(|end| after > end);
        if let Some(windows) = &mut self.windows {
            windows.record(good.began.saturating_duration_since(self.began), took);
        }
        if let Some(whole) = good.whole {
            self.targets.learn(good.chosen, whole);
        }
        let slow = |most| took > Duration::from_micros(most);
        let counts = &mut self.counts;
        record(&mut counts.latency, took);
        counts.slow += u64::from(self.plan.slow_us.is_some_and(slow));
        let status = self.expected.status(good.chosen);
        *counts.statuses.entry(status).or_default() += 1;
        counts.done += 1;
        counts.bytes += good.length;
        if is_late {
            counts.late += 1;
            counts.late_bytes += good.length;
        }
        self.last = now;
        self.errors_in_row = 0;
    }

    /// Counts a failed request.
    pub(super) fn failed(&mut self, failure: Failure) {
        self.failed_times(failure, 1);
    }

    fn failed_times(&mut self, failure: Failure, times: u64) {
        self.errors_in_row += times;
        let errors = &mut self.counts.errors;
        let counter = match failure {
            Failure::Connect(errno) => {
                self.counts.connect_error.get_or_insert(errno);
                &mut errors.connect
            }
            Failure::Tls => &mut errors.tls,
            Failure::Closed | Failure::Stale => &mut errors.closed,
            Failure::Timeout => &mut errors.timeout,
            Failure::Status(status) => {
                *self.counts.statuses.entry(status).or_default() += times;
                &mut errors.status
            }
            Failure::Range => &mut errors.range,
            Failure::Length => &mut errors.length,
            Failure::Malformed => &mut errors.malformed,
            Failure::Content => &mut errors.content,
        };
        *counter += times;
        self.last = Instant::now();
    }

    /// Returns the time in seconds to which rates refer.
    fn seconds(&self) -> f64 {
        let last = self.last.saturating_duration_since(self.began);
        let end = match self.end() {
            Some(end) if self.is_exhausted() => end.min(last),
            end => end.unwrap_or(last),
        };
        end.as_secs_f64()
    }

    /// Records why a connection could not be made.
    pub(super) fn connect_failed(&mut self, error: Errno) {
        self.counts.connect_error.get_or_insert(error);
    }

    /// Ends the load. `per_connection` has the numbers of good responses on the connection with the fewest and on the
    /// one with the most.
    pub(super) fn outcome(mut self, per_connection: (u64, u64)) -> Outcome {
        self.publish(Instant::now());
        // The last window ends at the time at which the next request would have been due, even if the load ended
        // earlier.
        let due = |schedule: Schedule| schedule.due(self.turn.place(self.begun));
        let end = self.saturated.or(self.schedule.map(due));
        Outcome {
            seconds: self.seconds(),
            unfinished: self.begun.saturating_sub(self.ended()),
            unsent: self.unsent(),
            per_connection,
            cpu: thread_cpu().saturating_sub(self.cpu_before),
            windows: self.windows,
            end: end.unwrap_or_default(),
            saturated_from: self.saturated_from,
            counts: self.published,
        }
    }
}

/// Returns a duration, which is as long as possible if the number of seconds is too large or no number.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// Result of one thread of a load, which can be added to that of another one.
pub(super) struct Outcome {
    counts: Counts,
    seconds: f64,
    unfinished: u64,
    unsent: u64,
    per_connection: (u64, u64),
    cpu: Duration,
    windows: Option<Windows>,
    /// End of the last window.
    end: Duration,
    /// Beginning of the first window in which the server was saturated, in seconds after the start.
    saturated_from: Option<f64>,
}

impl Outcome {
    /// Adds the result of another thread that ran at the same time.
    pub(super) fn add(&mut self, other: Outcome) {
        self.counts.add(&other.counts);
        self.seconds = self.seconds.max(other.seconds);
        self.unfinished += other.unfinished;
        self.unsent += other.unsent;
        let ((least, most), (l, m)) = (self.per_connection, other.per_connection);
        self.per_connection = (least.min(l), most.max(m));
        self.cpu += other.cpu;
        self.end = self.end.min(other.end);
        let both = [self.saturated_from, other.saturated_from];
        self.saturated_from = both.into_iter().flatten().reduce(f64::min);
        if let (Some(windows), Some(others)) = (&mut self.windows, other.windows) {
            windows.add(others);
        }
    }

    /// Returns the result of the load.
    pub(super) fn result(self) -> LoadResult {
        let windows = |windows: &Windows| windows.result(self.end);
        let below = |from| self.windows.as_ref()?.rate_before(from);
        let counts = self.counts;
        LoadResult {
            requests: counts.done,
            errors: counts.errors,
            bytes: counts.bytes,
            seconds: self.seconds,
            late: counts.late,
            late_bytes: counts.late_bytes,
            unfinished: self.unfinished,
            unsent: self.unsent,
            sent_again: counts.sent_again,
            first_connect_error: counts.connect_error.map(ConnectError::of),
            connects: counts.connects,
            latency: Latency::of(&counts.latency),
            connect: Latency::of(&counts.connect),
            slow: counts.slow,
            statuses: counts.statuses,
            per_connection: self.per_connection,
            cpu_seconds: self.cpu.as_secs_f64(),
            windows: self.windows.as_ref().map_or_else(Vec::new, windows),
            saturated_seconds: self.saturated_from,
            saturated_rate: self.saturated_from.and_then(below),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requests_expire_at_once_whose_time_limit_has_passed() {
        let plan = LoadPlan {
            rate: Some(1_000_000.0),
            seconds: Some(60.0),
            timeout_seconds: 1.0,
            ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/")
        };
        for (most, expired) in [(None, 1_500_000), (Some(7), 7)] {
            let plan = LoadPlan {
                requests: most,
                ..plan.clone()
            };
            let mut state = LoadState::new(plan, Turn::new(1, 2), None).expect("a valid plan");
            let began = Instant::now();
            state.start(began);
            state.expire(began + Duration::from_secs(1));
            assert_eq!(state.counts.errors.timeout, 0);
            for _ in 0..2 {
                state.expire(began + Duration::from_secs(4));
                assert_eq!(state.counts.errors.timeout, expired);
            }
        }
    }
    #[test]
    fn the_rate_before_the_first_slow_window_is_known() {
        let plan = LoadPlan {
            rate: Some(10.0),
            rising_to: Some(110.0),
            seconds: Some(10.0),
            window_seconds: Some(1.0),
            saturated_us: Some(5000.0),
            ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/")
        };
        for (slow_after, rate) in [(2, Some(25.0)), (0, None)] {
            let live = Live::new().expect("bounds");
            let turn = Turn::new(0, 1);
            let mut state = LoadState::new(plan.clone(), turn, Some(&live)).expect("a valid plan");
            let began = Instant::now();
            state.start(began);
            let mut number = 0;
            for second in 0..slow_after + 2 {
                while let due = state.schedule.expect("an open loop").due(number)
                    && due < Duration::from_secs(second + 1)
                {
                    let took = Duration::from_millis(if second < slow_after { 1 } else { 50 });
                    let good = Good {
                        began: began + due,
                        chosen: Chosen::default(),
                        length: 0,
                        whole: None,
                    };
                    state.good(good, began + due + took);
                    number += 1;
                }
                assert!(!live.is_saturated() && state.saturated.is_none());
                state.pass(began + Duration::from_secs(second + 1));
            }
            assert!(live.is_saturated() && !live.is_stopped());
            // Another thread of the load ends, too.
            let mut other = LoadState::new(plan.clone(), turn, Some(&live)).expect("a valid plan");
            other.start(began);
            other.pass(began);
            assert!(other.over(began) && !other.is_stopped());
            let result = state.outcome((0, 0)).result();
            let found = (slow_after + 2) as f64;
            assert_eq!(result.seconds, found);
            assert_eq!(result.saturated_seconds, Some(found - 2.0));
            assert_eq!(result.saturated_rate, rate);
        }
    }
}
