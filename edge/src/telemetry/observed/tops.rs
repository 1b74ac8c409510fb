//! The URLs with the greatest sums in each minute of the last hour.

use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::quality::RandomState;
use serde::Serialize;

use super::measure::{Measure, Sums};
use super::space_saving::{Listed, SpaceSaving, Summary, merge};

/// Number of complete minutes that are kept.
pub const MINUTES_MAX: usize = 60;
/// URLs that are counted in the current minute, for each measure.
pub(super) const COUNTED: usize = 256;
/// URLs that are kept of a complete minute, for each measure. All minutes and measures together are
/// 30,720 URLs of at most 512 bytes.
pub(super) const KEPT: usize = 128;
const MINUTE_US: u64 = 60_000_000;

/// The URLs with the greatest sums.
pub(super) struct Tops {
    hasher: RandomState,
    current: [SpaceSaving; Measure::ALL.len()],
    /// Number of the current minute, and the time at which counting it began, in microseconds.
    minute: u64,
    began_us: u64,
    /// Complete minutes, the latest one first.
    complete: VecDeque<Minute>,
}

struct Minute {
    number: u64,
    began_us: u64,
    summaries: [Summary; Measure::ALL.len()],
}

/// The URLs with the greatest sums of a measure in the last minutes.
#[derive(Clone, Debug, Serialize)]
pub struct Top {
    /// The measure.
    pub by: Measure,
    /// Number of minutes that were asked for.
    pub minutes: usize,
    /// Length of the time that the values are about. Complete minutes and the current one count.
    pub seconds: f64,
    /// The URLs, the one with the greatest value first.
    pub urls: Vec<TopUrl>,
}

/// A URL with its sums.
#[derive(Clone, Debug, Serialize)]
pub struct TopUrl {
    /// The URL, masked and escaped.
    pub url: Box<str>,
    /// Upper bound of the sum of the measure. Latency is in milliseconds.
    pub value: f64,
    /// The sum is at least `value` less this. Sampling adds an error of its own.
    pub error: f64,
    /// Requests since the URL was first counted in each minute.
    pub requests: u64,
    /// Misses among these.
    pub misses: u64,
    /// Body bytes of these.
    pub bytes: u64,
    /// Mean duration of these, in milliseconds.
    pub latency_ms: f64,
}

impl Tops {
    /// Creates empty counts. `now_us` is the current time of the monotonic clock.
    pub(super) fn new(now_us: u64) -> Tops {
        Tops {
            hasher: RandomState::default(),
            current: std::array::from_fn(|_| SpaceSaving::new(COUNTED)),
            minute: now_us / MINUTE_US,
            began_us: now_us,
            complete: VecDeque::with_capacity(MINUTES_MAX + 1),
        }
    }

    /// Adds requests to a URL, which is masked and escaped.
    pub(super) fn add(&mut self, url: &str, sums: &Sums) {
        let hash = self.hasher.hash_one(url);
        let mut text: Option<Arc<str>> = None;
        let mut make = || text.get_or_insert_with(|| url.into()).clone();
        for (measure, sketch) in Measure::ALL.into_iter().zip(&mut self.current) {
            sketch.add((hash, url), sums.of(measure), sums, &mut make);
        }
    }

    /// Completes the current minute if it is over.
    pub(super) fn pass(&mut self, now_us: u64) {
        let minute = now_us / MINUTE_US;
        if minute == self.minute {
            return;
        }
        let summaries = self.current.each_ref().map(|sketch| sketch.summary(KEPT));
        if summaries.iter().any(|one| !one.listed.is_empty()) {
            self.complete.push_front(Minute {
                number: self.minute,
                began_us: self.began_us,
                summaries,
            });
            self.current.iter_mut().for_each(SpaceSaving::clear);
        }
        let oldest = minute.saturating_sub(MINUTES_MAX as u64);
        self.complete.retain(|one| one.number >= oldest);
        (self.minute, self.began_us) = (minute, minute * MINUTE_US);
    }

    /// Returns the URLs with the greatest sums in the current minute and the last complete ones.
    pub(super) fn top(&self, by: Measure, minutes: usize, most: usize, now_us: u64) -> Top {
        let current = self.current[by as usize].summary(COUNTED);
        let oldest = self.minute.saturating_sub(minutes as u64);
        let complete = self.complete.iter().filter(|one| one.number >= oldest);
        let began_us = match complete.clone().next_back() {
            Some(minute) => minute.began_us,
            None => self.began_us,
        };
        let summaries = complete.map(|minute| &minute.summaries[by as usize]);
        let merged = merge(summaries.chain([&current]));
        Top {
            by,
            minutes,
            seconds: now_us.saturating_sub(began_us) as f64 / 1e6,
            urls: merged
                .into_iter()
                .take(most)
                .map(|one| shown(by, one))
                .collect(),
        }
    }
}

fn shown(by: Measure, one: Listed) -> TopUrl {
    let scale = match by {
        Measure::Latency => 1e-3,
        _ => 1.0,
    };
    let sums = one.sums;
    TopUrl {
        url: (*one.key).into(),
        value: one.count as f64 * scale,
        error: one.error as f64 * scale,
        requests: sums.requests,
        misses: sums.misses,
        bytes: sums.bytes,
        latency_ms: sums.latency_us as f64 / sums.requests.max(1) as f64 / 1e3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(requests: u64, latency_us: u64) -> Sums {
        Sums {
            requests,
            latency_us,
            bytes: 10 * requests,
            misses: 0,
        }
    }

    #[test]
    fn the_last_minutes_and_the_current_one_are_added_up() {
        let mut tops = Tops::new(0);
        tops.add("/old", &requests(100, 100));
        tops.pass(MINUTE_US);
        tops.add("/a", &requests(3, 6000));
        tops.pass(2 * MINUTE_US);
        tops.add("/a", &requests(2, 2000));
        tops.add("/b", &requests(4, 9000));
        let now_us = 2 * MINUTE_US + 30_000_000;
        let top = tops.top(Measure::Requests, 1, 10, now_us);
        assert_eq!(top.seconds, 90.0);
        let seen: Vec<_> = top
            .urls
            .iter()
            .map(|u| (&*u.url, u.value, u.error))
            .collect();
        assert_eq!(seen, [("/a", 5.0, 0.0), ("/b", 4.0, 0.0)]);
        assert_eq!((top.urls[0].latency_ms, top.urls[0].bytes), (1.6, 50));
        let top = tops.top(Measure::Latency, 2, 1, now_us);
        let seen: Vec<_> = top.urls.iter().map(|u| (&*u.url, u.value)).collect();
        assert_eq!(seen, [("/b", 9.0)]);
        assert!(tops.top(Measure::Misses, 60, 10, now_us).urls.is_empty());
    }

    #[test]
    fn minutes_older_than_an_hour_are_forgotten() {
        let mut tops = Tops::new(0);
        for minute in 1..200 {
            tops.add("/a", &requests(1, 1));
            tops.pass(minute * MINUTE_US);
        }
        assert_eq!(tops.complete.len(), MINUTES_MAX);
        tops.pass(1000 * MINUTE_US);
        assert!(
            tops.top(Measure::Requests, 60, 10, 1000 * MINUTE_US)
                .urls
                .is_empty()
        );
        assert!(tops.complete.is_empty());
    }
}
