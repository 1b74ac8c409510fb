//! Generated requests for experiments without servers: Zipf's distribution, scans, and objects that are requested only once.

use serde::Serialize;
pub use sluice_lab::zipf::{SplitMix, Zipf};

/// Number of requests per scanned object after which the next scan begins.
const SCAN_EVERY: u32 = 5;

/// Requests that are mixed into those of Zipf's distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// No other requests.
    Zipf,
    /// 30% of the requests are for objects that are requested only once.
    OneHitWonders,
    /// At intervals, a tenth of all objects is requested in sequence.
    Scans,
}

impl Mix {
    /// Returns the name as it is added to that of the distribution; empty for `Zipf`.
    pub fn name(self) -> &'static str {
        match self {
            Mix::Zipf => "",
            Mix::OneHitWonders => "+ one-hit wonders",
            Mix::Scans => "+ scans",
        }
    }
}

/// Generates a trace of requested object numbers. Objects that are requested only once have higher
/// numbers than all others.
pub fn trace(zipf: &Zipf, mix: Mix, requests: u32, seed: u64) -> Vec<u32> {
    let objects = zipf.objects();
    let mut random = SplitMix(seed);
    // Ranks are assigned to object numbers at random, so that a scan is not in order of popularity.
    let ranks = shuffled(objects, &mut random);
    let mut trace = Vec::with_capacity(requests as usize);
    let mut next_wonder = objects;
    while trace.len() < requests as usize {
        let scanned = objects / 10;
        if mix == Mix::Scans
            && !trace.is_empty()
            && trace.len() % (SCAN_EVERY * scanned) as usize == 0
        {
            let begin = (random.unit() * f64::from(objects - scanned)) as u32;
            trace.extend(begin..begin + scanned);
        }
        if mix == Mix::OneHitWonders && random.unit() < 0.3 {
            trace.push(next_wonder);
            next_wonder += 1;
        } else {
            trace.push(ranks[zipf.rank(random.unit()) as usize]);
        }
    }
    trace.truncate(requests as usize);
    trace
}

/// Returns the numbers below `count` in random order.
pub fn shuffled(count: u32, random: &mut SplitMix) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    for at in (1..numbers.len()).rev() {
        let other = (random.unit() * (at + 1) as f64) as usize;
        numbers.swap(at, other.min(at));
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_contain_one_hit_wonders_and_scans() {
        let zipf = Zipf::new(2000, 0.9);
        let wonders = trace(&zipf, Mix::OneHitWonders, 20_000, 1);
        let count = wonders.iter().filter(|key| **key >= 2000).count();
        assert!((5500..6500).contains(&count), "{count}");
        let scans = trace(&zipf, Mix::Scans, 20_000, 1);
        let in_order = scans
            .windows(2)
            .filter(|pair| pair[1] == pair[0] + 1)
            .count();
        assert!((2000..5000).contains(&in_order), "{in_order}");
    }
}
