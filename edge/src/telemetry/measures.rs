//! The histograms of one member of a scope, such as one worker or one route.

use super::histogram::Histogram;
use super::metric::Metric;

/// The histograms of one member of a scope at one moment.
pub trait Measures: Clone + Default + 'static {
    /// Descriptions of these histograms.
    const METRICS: &'static [Metric];

    /// Returns each histogram with its description.
    fn histograms(&self) -> impl Iterator<Item = (&'static Metric, &Histogram)>;

    /// Adds another member's values to these.
    fn add(&mut self, other: &Self);
}
