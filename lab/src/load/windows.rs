//! Results by window: the latencies of the requests that were scheduled within each of consecutive periods of a load.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::schedule::{Schedule, Turn};
use crate::process::stolen;

/// Maximum number of windows of a load. Requests due after the last one are not recorded.
const MOST: usize = 20_000;

/// Results of the requests that were due within one window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Time in seconds from the start of the load to the start of the window.
    pub begin: f64,
    /// Number of requests that were due within the window.
    pub offered: u64,
    /// Number of good responses to requests that were due within the window.
    pub answered: u64,
    /// Median latency in microseconds of all requests that were due; `None` if less than half of them have a good
    /// response.
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency in microseconds of all requests that were due; `None` if less than 99% of them
    /// have a good response.
    pub p99_us: Option<f64>,
    /// Smallest latency of the good responses in microseconds; `None` if there are none.
    #[serde(default)]
    pub min_us: Option<f64>,
    /// Mean latency of the good responses in microseconds; `None` if there are none.
    #[serde(default)]
    pub mean_us: Option<f64>,
    /// Largest latency of the good responses in microseconds; `None` if there are none.
    #[serde(default)]
    pub max_us: Option<f64>,
    /// Standard deviation of the latency of the good responses in microseconds; `None` if there are none.
    #[serde(default)]
    pub deviation_us: Option<f64>,
    /// Share of the window in which the load generator used its CPU core. Near 1, the load generator and not the server
    /// limits the rate.
    pub busy: f64,
    /// CPU time that the hypervisor gave to other machines while a core of this machine was to run, as a share of the
    /// window. The value is summed over all cores.
    #[serde(default)]
    pub stolen: f64,
}

/// State at the beginning of a window.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// CPU time that this thread had used.
    cpu: Duration,
    /// CPU time that the hypervisor had taken away.
    stolen: Duration,
}

impl Mark {
    fn now() -> Mark {
        Mark {
            cpu: thread_cpu(),
            stolen: stolen().unwrap_or_default(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Windows {
    /// Length of a window in seconds.
    length: f64,
    schedule: Schedule,
    /// The threads whose requests are recorded.
    turns: Vec<Turn>,
    /// Planned end of the load, in seconds from its start.
    end: f64,
    /// Latencies in tenths of microseconds, by window.
    took: Vec<Vec<u32>>,
    /// State at the beginning of each window.
    marks: Vec<Mark>,
}

impl Windows {
    pub(super) fn new(
        length: f64,
        schedule: Schedule,
        turn: Turn,
        seconds: Option<f64>,
    ) -> Windows {
        Windows {
            length,
            schedule,
            turns: vec![turn],
            end: seconds.unwrap_or(f64::MAX),
            took: Vec::new(),
            marks: vec![Mark::now()],
        }
    }

    fn place(&self, after: Duration) -> usize {
        // A request that is due at the end of a window belongs to the next one in spite of rounding errors.
        (after.as_secs_f64() / self.length + 1e-6) as usize
    }

    /// Records a response after `took` to a request that was due `after` the start of the load.
    pub(super) fn record(&mut self, after: Duration, took: Duration) {
        let place = self.place(after);
        if place >= MOST {
            return;
        }
        if self.took.len() <= place {
            self.took.resize(place + 1, Vec::new());
        }
        let tenths = u32::try_from(took.as_nanos() / 100);
        self.took[place].push(tenths.unwrap_or(u32::MAX));
    }

    /// Adds the windows of another thread of the same load. The CPU time remains that of this thread.
    pub(super) fn add(&mut self, other: Windows) {
        self.turns.extend(other.turns);
        let most = self.took.len().max(other.took.len());
        self.took.resize(most, Vec::new());
        for (own, mut others) in self.took.iter_mut().zip(other.took) {
            own.append(&mut others);
        }
    }

    /// Records that the time `after` has passed since the start of the load. Returns whether a new window has begun.
    pub(super) fn pass(&mut self, after: Duration) -> bool {
        let place = self.place(after).min(MOST);
        let new = place >= self.marks.len();
        if new {
            self.marks.resize(place + 1, Mark::now());
        }
        new
    }

    /// Returns the beginning of the last window but one, in seconds after the start, if its median latency is above
    /// `most_us` microseconds. A missing response counts as slower than that.
    pub(super) fn saturated(&self, most_us: f64) -> Option<f64> {
        let place = self.marks.len().checked_sub(3)?;
        let window = self.window(place);
        // Nothing is due in a window after the planned end, which begins if responses are late.
        let is_slow = window.offered > 0 && window.p50_us.is_none_or(|median| median > most_us);
        is_slow.then_some(window.begin)
    }

    /// Returns the number of requests per second that were due in the window before the one with this beginning; `None` if
    /// that is the first window.
    pub(super) fn rate_before(&self, begin: f64) -> Option<f64> {
        let before = self.place(Duration::from_secs_f64(begin)).checked_sub(1)?;
        Some(self.window(before).offered as f64 / self.length)
    }

    /// Returns the number of requests of the recorded threads that are due before this many seconds have passed.
    fn due_before(&self, seconds: f64) -> u64 {
        let whole = self.schedule.before(seconds);
        self.turns.iter().map(|turn| turn.count(whole)).sum()
    }

    fn window(&self, place: usize) -> Window {
        let begin = place as f64 * self.length;
        let end = (begin + self.length).min(self.end).max(begin);
        let offered = self.due_before(end) - self.due_before(begin);
        let mut took = self.took.get(place).cloned().unwrap_or_default();
        took.sort_unstable();
        // Returns the smallest latency that this share of the due requests did not exceed.
        let at = |share: f64| {
            let rank = ((offered as f64 * share).ceil() as usize).max(1) - 1;
            took.get(rank)
        };
        let micros = |tenths: Option<&u32>| tenths.map(|tenths| f64::from(*tenths) / 10.0);
        let (mean_us, deviation_us) = mean_and_deviation(&took).unzip();
        let share = |of: fn(&Mark) -> Duration| match &self.marks.get(place..place + 2) {
            Some([before, after]) => {
                of(after).saturating_sub(of(before)).as_secs_f64() / self.length
            }
            _ => 0.0,
        };
        Window {
            begin,
            offered,
            answered: took.len() as u64,
            p50_us: micros(at(0.5)),
            p99_us: micros(at(0.99)),
            min_us: micros(took.first()),
            mean_us,
            max_us: micros(took.last()),
            deviation_us,
            busy: share(|mark| mark.cpu),
            stolen: share(|mark| mark.stolen),
        }
    }

    /// Returns the results of all windows that were complete when the load ended.
    pub(super) fn result(&self, after: Duration) -> Vec<Window> {
        let whole = self.place(after.min(Duration::from_secs_f64(self.end.min(1e9))));
        (0..whole.min(MOST))
            .map(|place| self.window(place))
            .collect()
    }
}

/// Returns mean and standard deviation in microseconds of latencies in tenths of microseconds; `None` if there are none.
fn mean_and_deviation(took: &[u32]) -> Option<(f64, f64)> {
    let count = took.len() as f64;
    let mean_of = |of: &dyn Fn(f64) -> f64| {
        let sum: f64 = took
            .iter()
            .map(|tenths| of(f64::from(*tenths) / 10.0))
            .sum();
        (count > 0.0).then_some(sum / count)
    };
    let mean = mean_of(&|micros| micros)?;
    let variance = mean_of(&|micros| (micros - mean).powi(2))?;
    Some((mean, variance.sqrt()))
}

/// Returns the CPU time that this thread has used.
pub(super) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadPlan;

    fn windows() -> Windows {
        let plan = LoadPlan {
            rate: Some(10.0),
            seconds: Some(5.0),
            ..LoadPlan::new("127.0.0.1:1".parse().expect("an address"), "/")
        };
        let schedule = Schedule::of(&plan).expect("good").expect("open");
        Windows::new(1.0, schedule, Turn::new(0, 1), plan.seconds)
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn windows_after_the_planned_end_do_not_count_as_slow() {
        let mut windows = windows();
        windows.pass(Duration::from_secs(60));
        assert_eq!(windows.saturated(1.0), None);
        assert_eq!(windows.window(57).offered, 0);
        assert_eq!(windows.result(Duration::from_secs(60)).len(), 5);
    }

    #[test]
    fn responses_count_in_the_window_in_which_they_were_due() {
        let mut windows = windows();
        for number in 0..10 {
            windows.record(MS * 100 * number, MS * (1 + number));
            windows.record(MS * (1000 + 100 * number), MS * 50);
        }
        let result = windows.result(MS * 2500);
        assert_eq!(result.len(), 2);
        assert_eq!((result[0].offered, result[0].answered), (10, 10));
        assert_eq!(result[0].p50_us, Some(5000.0));
        assert_eq!(result[0].p99_us, Some(10_000.0));
        assert_eq!(result[1].p50_us, Some(50_000.0));
        let first = &result[0];
        assert_eq!((first.min_us, first.max_us), (Some(1000.0), Some(10_000.0)));
        assert_eq!(first.mean_us, Some(5500.0));
        assert!(
            first
                .deviation_us
                .is_some_and(|us| (us - 2872.3).abs() < 0.1)
        );
        assert_eq!(result[1].deviation_us, Some(0.0));
    }

    #[test]
    fn missing_responses_count_as_slow() {
        let mut windows = windows();
        for number in 0..4 {
            windows.record(MS * 100 * number, MS);
        }
        let [first] = &windows.result(MS * 1000)[..] else {
            panic!("one window");
        };
        assert_eq!((first.offered, first.answered), (10, 4));
        assert_eq!((first.p50_us, first.p99_us), (None, None));
        assert_eq!((first.mean_us, first.max_us), (Some(1000.0), Some(1000.0)));
        assert_eq!(windows.saturated(1e9), None, "it is looked at later");
        assert!(windows.pass(MS * 1001) && !windows.pass(MS * 1002));
        assert!(windows.pass(MS * 2000) && windows.saturated(1e9) == Some(0.0));
        windows.record(MS * 500, MS);
        assert!(windows.saturated(1e6).is_none() && windows.saturated(999.0) == Some(0.0));
    }
}
