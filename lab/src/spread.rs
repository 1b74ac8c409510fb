//! Medians with their spread over several rounds, and whether two of them differ by more than the noise.

use serde::{Deserialize, Serialize};

use crate::bench::median;

/// One figure of one server, measured in several rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median of the rounds. For an even number of rounds, that is the mean of the two values in the middle.
    pub median: f64,
    /// Smallest value of all rounds.
    pub low: f64,
    /// Largest value of all rounds.
    pub high: f64,
    /// Values of all rounds, in the order in which they were measured.
    pub rounds: Vec<f64>,
}

impl Spread {
    /// Returns the spread of these values; `None` if there are none, or if one of them is infinite or not a number.
    pub fn of(rounds: Vec<f64>) -> Option<Spread> {
        if !rounds.iter().all(|value| value.is_finite()) {
            return None;
        }
        Some(Spread {
            median: median(rounds.clone())?,
            low: rounds.iter().copied().reduce(f64::min)?,
            high: rounds.iter().copied().reduce(f64::max)?,
            rounds,
        })
    }

    /// Formats the median and, if there are several rounds, the lowest and the highest value, as in `12 (11-15)`. `show`
    /// formats one value.
    pub fn show(&self, show: impl Fn(f64) -> String) -> String {
        let median = show(self.median);
        match self.rounds.len() {
            0 | 1 => median,
            _ => format!("{median} ({}-{})", show(self.low), show(self.high)),
        }
    }
}

/// Relative difference of two medians up to which few rounds show nothing.
const FEW_ROUNDS_DIFFERENCE: f64 = 0.10;
/// The same for [`MANY_ROUNDS`] or more.
const MANY_ROUNDS_DIFFERENCE: f64 = 0.03;
/// Number of rounds of both figures from which on the smaller difference counts.
const MANY_ROUNDS: usize = 4;

/// Whether the difference between two figures is within the noise of the measurement. This is the only rule for that; see
/// [`noise_rule`] for its text. The relative difference is that from the smaller value, so that a zero differs from
/// everything else.
pub fn within_noise(one: &Spread, other: &Spread) -> bool {
    let do_overlap = one.low <= other.high && other.low <= one.high;
    let limit = match one.rounds.len().min(other.rounds.len()) {
        MANY_ROUNDS.. => MANY_ROUNDS_DIFFERENCE,
        _ => FEW_ROUNDS_DIFFERENCE,
    };
    let smaller = one.median.abs().min(other.median.abs());
    do_overlap || (one.median - other.median).abs() <= limit * smaller
}

/// Returns the rule of [`within_noise`] as the end of a sentence: a difference is within the noise if …
pub fn noise_rule() -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    format!(
        "the ranges of the rounds overlap, or the medians differ by at most {} ({} with {MANY_ROUNDS} or more rounds)",
        percent(FEW_ROUNDS_DIFFERENCE),
        percent(MANY_ROUNDS_DIFFERENCE)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(rounds: &[f64]) -> Spread {
        Spread::of(rounds.to_vec()).expect("finite values")
    }

    #[test]
    fn a_spread_has_the_median_and_the_range_of_its_rounds() {
        let three = spread(&[3.0, 1.0, 2.5]);
        assert_eq!((three.median, three.low, three.high), (2.5, 1.0, 3.0));
        assert_eq!(three.rounds, [3.0, 1.0, 2.5]);
        assert_eq!(spread(&[4.0, 2.0]).median, 3.0);
        for wrong in [vec![], vec![1.0, f64::NAN], vec![f64::INFINITY]] {
            assert_eq!(Spread::of(wrong), None);
        }
    }

    #[test]
    fn overlapping_ranges_and_near_medians_are_within_the_noise() {
        let three = spread(&[10.0, 11.0, 12.0]);
        let four = spread(&[100.0, 100.0, 101.0, 99.0]);
        let one = spread(&[100.0]);
        for (one, other, expected) in [
            (&three, spread(&[12.0, 20.0]), true),
            (&three, spread(&[10.5, 10.6]), true),
            (&three, spread(&[1.0, 30.0]), true),
            // The ranges do not overlap, and the medians differ by 10 % and by 11 %.
            (&three, spread(&[12.1, 12.1]), true),
            (&three, spread(&[12.21, 12.21]), false),
            (&three, spread(&[8.0, 9.9]), false),
            (&one, spread(&[109.0]), true),
            (&one, spread(&[111.0]), false),
            (&one, spread(&[103.5; 4]), true),
            (&four, spread(&[103.5, 103.5, 103.5]), true),
            (&four, spread(&[103.5; 4]), false),
            (&four, spread(&[102.5; 4]), true),
            (&four, spread(&[101.0, 150.0, 150.0, 150.0]), true),
            (&one, spread(&[0.0]), false),
            (&one, spread(&[-100.0]), false),
        ] {
            assert_eq!(within_noise(one, &other), expected, "{one:?} {other:?}");
            assert_eq!(within_noise(&other, one), expected, "{one:?} {other:?}");
        }
        assert!(within_noise(&spread(&[0.0]), &spread(&[0.0])));
    }

    #[test]
    fn the_documentation_has_the_rule() {
        let rule = noise_rule();
        assert!(rule.contains("at most 10 % (3 % with 4 or more rounds)"));
        let text = include_str!("../../docs/lab.md");
        let words: Vec<&str> = text.split_whitespace().collect();
        assert!(words.join(" ").contains(&rule), "{rule}");
    }

    #[test]
    fn a_spread_is_shown_and_survives_json() {
        let whole = |value: f64| format!("{value:.0}");
        assert_eq!(spread(&[3.0, 1.0, 2.0]).show(whole), "2 (1-3)");
        assert_eq!(spread(&[3.0]).show(whole), "3");
        let spread = spread(&[1.5, 2.5]);
        let text = serde_json::to_string(&spread).expect("JSON");
        let read: Spread = serde_json::from_str(&text).expect("a spread");
        assert_eq!(read, spread);
    }
}
