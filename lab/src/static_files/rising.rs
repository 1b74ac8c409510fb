//! The rising load: short connections at a rate that rises linearly until the server falls behind.

use serde::{Deserialize, Serialize};

use super::watch::{Sample, watched};
use crate::LOAD_CORE;
use crate::load::Window;
use crate::ramp::Ramp;
use crate::ramp::climb::{self, Contender};
use crate::spread::Spread;

/// The rate that a server holds, and its latency up to that rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rising {
    /// Highest rate with a good median latency, in requests per second; `None` if nothing was measured.
    pub held: Option<Spread>,
    /// Mean latency up to that rate in microseconds; `None` if a round held no rate.
    pub mean_us: Option<Spread>,
    /// Standard deviation of the latency up to that rate in microseconds; `None` if a round held no rate.
    pub deviation_us: Option<Spread>,
    /// Smallest latency up to that rate in microseconds; `None` if a round held no rate.
    pub min_us: Option<Spread>,
    /// Largest latency up to that rate in microseconds; `None` if a round held no rate.
    pub max_us: Option<Spread>,
    /// Most resident memory of the server in bytes during the load; `None` if nothing was measured.
    pub memory_bytes: Option<Spread>,
    /// The measured rounds.
    pub runs: Vec<RisingRun>,
}

/// One round of [`Rising`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RisingRun {
    /// Latencies over time, and the rate that the server held.
    pub ramp: Ramp,
    /// Latency of all responses up to the held rate; `None` if no rate was held.
    pub replies: Option<Replies>,
    /// Memory and CPU time of the server over time.
    pub samples: Vec<Sample>,
}

/// Latencies of the good responses of several windows, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Replies {
    /// Number of responses.
    pub count: u64,
    /// Smallest latency.
    pub min_us: f64,
    /// Mean latency.
    pub mean_us: f64,
    /// Largest latency.
    pub max_us: f64,
    /// Standard deviation of the latency.
    pub deviation_us: f64,
}

impl Replies {
    /// Returns the latencies of all responses of these windows; `None` if they have none.
    pub fn of<'a>(windows: impl Iterator<Item = &'a Window>) -> Option<Replies> {
        let (mut count, mut sum, mut squares) = (0, 0.0, 0.0);
        let (mut min_us, mut max_us) = (f64::INFINITY, f64::NEG_INFINITY);
        for window in windows {
            let extremes = window.min_us.zip(window.max_us);
            let moments = window.mean_us.zip(window.deviation_us);
            let Some(((min, max), (mean, deviation))) = extremes.zip(moments) else {
                continue;
            };
            let answered = window.answered as f64;
            count += window.answered;
            sum += answered * mean;
            squares += answered * (deviation * deviation + mean * mean);
            (min_us, max_us) = (min_us.min(min), max_us.max(max));
        }
        let mean_us = (count > 0).then(|| sum / count as f64)?;
        let variance = squares / count as f64 - mean_us * mean_us;
        Some(Replies {
            count,
            min_us,
            mean_us,
            max_us,
            // Rounding can make the variance of equal latencies negative.
            deviation_us: variance.max(0.0).sqrt(),
        })
    }
}

impl Rising {
    pub(super) fn of(runs: Vec<RisingRun>) -> Rising {
        let replies = |pick: fn(&Replies) -> f64| {
            let values = runs.iter().map(|run| run.replies.as_ref().map(pick));
            values.collect::<Option<Vec<f64>>>().and_then(Spread::of)
        };
        let memory = runs.iter().map(|run| {
            let resident = run.samples.iter().map(|sample| sample.resident);
            resident.max().map(|most| most as f64)
        });
        Rising {
            held: Spread::of(runs.iter().map(|run| run.ramp.held).collect()),
            mean_us: replies(|replies| replies.mean_us),
            deviation_us: replies(|replies| replies.deviation_us),
            min_us: replies(|replies| replies.min_us),
            max_us: replies(|replies| replies.max_us),
            memory_bytes: memory.collect::<Option<Vec<f64>>>().and_then(Spread::of),
            runs,
        }
    }
}

/// Raises the rate between these `rates` within `seconds`.
pub(super) fn measure(
    one: &Contender,
    seconds: f64,
    rates: (f64, f64),
) -> anyhow::Result<RisingRun> {
    let load = || one.ramp(seconds, rates);
    let (ramp, samples) = watched(one.server.process(), seconds, Some(LOAD_CORE), load)?;
    Ok(RisingRun {
        replies: replies_until_held(&ramp.windows),
        ramp,
        samples,
    })
}

fn replies_until_held(windows: &[Window]) -> Option<Replies> {
    let held = climb::held(windows)?.begin;
    Replies::of(windows.iter().take_while(|window| window.begin <= held))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a window with the latencies 100 and 300 µs, with this median.
    fn window(begin: f64, p50_us: f64) -> Window {
        Window {
            begin,
            offered: 2,
            answered: 2,
            p50_us: Some(p50_us),
            min_us: Some(100.0),
            mean_us: Some(200.0),
            max_us: Some(300.0),
            deviation_us: Some(100.0),
            ..Window::default()
        }
    }

    #[test]
    fn latencies_of_windows_are_those_of_all_their_responses() {
        let one = window(0.0, 100.0);
        let other = Window {
            answered: 1,
            min_us: Some(800.0),
            mean_us: Some(800.0),
            max_us: Some(800.0),
            deviation_us: Some(0.0),
            ..Window::default()
        };
        let empty = Window::default();
        let all = Replies::of([&one, &empty, &other].into_iter()).expect("responses");
        // The responses took 100, 300 and 800 µs.
        assert_eq!((all.count, all.mean_us), (3, 400.0));
        assert_eq!((all.min_us, all.max_us), (100.0, 800.0));
        assert!((all.deviation_us - 294.392).abs() < 0.001, "{all:?}");
        assert_eq!(Replies::of([&empty].into_iter()), None);
    }

    #[test]
    fn responses_above_the_held_rate_do_not_count() {
        let windows = [
            window(0.0, 100.0),
            window(1.0, 1000.0),
            window(2.0, 5000.0),
            window(3.0, 5000.0),
            window(4.0, 100.0),
        ];
        let replies = replies_until_held(&windows).expect("a held rate");
        assert_eq!(replies.count, 4);
        assert_eq!(replies_until_held(&windows[2..4]), None);
    }

    #[test]
    fn a_round_that_held_no_rate_has_no_latency() {
        let run = |held: f64, replies| RisingRun {
            ramp: Ramp {
                name: "h2o".to_owned(),
                held,
                limited: false,
                errors: 0,
                windows: Vec::new(),
            },
            replies,
            samples: Vec::new(),
        };
        let replies = Replies::of([window(0.0, 1.0)].iter());
        let both = Rising::of(vec![run(5.0, replies), run(0.0, None)]);
        assert_eq!(both.held.map(|held| held.low), Some(0.0));
        assert_eq!(both.mean_us, None);
        let good = Rising::of(vec![run(5.0, replies)]);
        assert_eq!(good.mean_us.map(|mean| mean.median), Some(200.0));
    }
}
