//! The layout of a scope's points: which series there are, and how each one is computed from readings.

use super::scope::{RINGS, Scope};
use crate::telemetry::metric::{Kind, Metric, Numbers, Unit};

/// The percentiles of each histogram that have a series, and the ends of their names.
const PERCENTILES: [(&str, &str, f64); 3] = [
    ("p50", "Median", 0.5),
    ("p95", "95th percentile", 0.95),
    ("p99", "99th percentile", 0.99),
];

/// Memory that a histogram of readings is assumed to take: 128 buckets in use.
const HISTOGRAM_BYTES: usize = 1 << 10;
/// Number of copies of each histogram: the last reading, and the sums of the two coarser rings.
const HISTOGRAM_COPIES: usize = RINGS;
/// Memory that a member takes besides rings and histograms: names, numbers of the last reading, sums.
const MEMBER_BYTES: usize = 4 << 10;

/// One series: a number over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in requests and responses.
    pub name: String,
    /// Unit of the values; empty for a number of things.
    pub unit: &'static str,
    /// Meaning, as a sentence or phrase that ends in a full stop.
    pub help: String,
    pub(super) source: Source,
}

/// The origin of a series' values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Source {
    /// The increase per second of the number at this position.
    Rate(usize),
    /// The mean of the number at this position.
    Gauge(usize),
    /// A quantile of the histogram at this position.
    Quantile(usize, f64, Unit),
    /// The largest value of the histogram at this position.
    Max(usize, Unit),
}

/// How neighbouring points are combined into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Combination {
    Mean,
    Maximum,
}

/// The series of a scope, and the readings from which they are computed.
#[derive(Clone, Debug)]
pub struct Layout {
    scope: Scope,
    series: Vec<Series>,
    /// The kind of each number of a reading.
    numbers: Vec<Kind>,
    /// Number of histograms of a reading.
    histograms: usize,
}

impl Layout {
    /// Creates a layout without series.
    pub fn new(scope: Scope) -> Layout {
        Layout {
            scope,
            series: Vec::new(),
            numbers: Vec::new(),
            histograms: 0,
        }
    }

    /// Adds all values of a struct of numbers to the readings, and a series for each one that is wanted.
    #[must_use]
    pub fn with_numbers<N: Numbers>(mut self, is_wanted: impl Fn(&str) -> bool) -> Layout {
        for metric in N::METRICS {
            let at = self.numbers.len();
            self.numbers.push(metric.kind);
            if is_wanted(metric.name) {
                self.series.push(of_number(metric, at));
            }
        }
        self
    }

    /// Adds one counter to the readings, and a series for it.
    #[must_use]
    pub fn with_counter(mut self, name: &str, help: &str) -> Layout {
        self.series.push(Series {
            name: name.to_owned(),
            unit: rate_unit(Unit::Count),
            help: help.to_owned(),
            source: Source::Rate(self.numbers.len()),
        });
        self.numbers.push(Kind::Counter);
        self
    }

    /// Adds histograms to the readings, and four series for each one that is wanted: three percentiles and the maximum.
    #[must_use]
    pub fn with_histograms(
        mut self,
        metrics: &[Metric],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Layout {
        let first = self.histograms;
        self.histograms += metrics.len();
        let numbered = (first..).zip(metrics);
        for (at, metric) in numbered.filter(|(_, metric)| is_wanted(metric.name)) {
            for (end, title, share) in PERCENTILES {
                let source = Source::Quantile(at, share, metric.unit);
                self.series.push(of_histogram(metric, end, title, source));
            }
            let source = Source::Max(at, metric.unit);
            self.series
                .push(of_histogram(metric, "max", "Maximum", source));
        }
        self
    }

    /// Returns the scope.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns the series, in the order of a point's codes.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// Returns the position of the series with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.series.iter().position(|series| series.name == name)
    }

    /// Returns the memory that a member's history takes, once it is full. Rings have a fixed size; the memory of
    /// histograms is an estimate.
    pub fn member_bytes(&self) -> usize {
        let points: usize = self
            .scope
            .rings()
            .iter()
            .map(|ring| ring.points as usize)
            .sum();
        let rings = points * self.series.len() * size_of::<u16>();
        rings + self.histograms * HISTOGRAM_COPIES * HISTOGRAM_BYTES + MEMBER_BYTES
    }

    pub(super) fn numbers(&self) -> &[Kind] {
        &self.numbers
    }

    pub(super) fn histograms(&self) -> usize {
        self.histograms
    }
}

impl Series {
    pub(super) fn combination(&self) -> Combination {
        match self.source {
            Source::Rate(_) | Source::Gauge(_) => Combination::Mean,
            Source::Quantile(..) | Source::Max(..) => Combination::Maximum,
        }
    }
}

fn of_number(metric: &Metric, at: usize) -> Series {
    let (unit, source) = match metric.kind {
        Kind::Counter => (rate_unit(metric.unit), Source::Rate(at)),
        Kind::Gauge | Kind::Histogram => (metric.unit.as_str(), Source::Gauge(at)),
    };
    Series {
        name: metric.name.to_owned(),
        unit,
        help: metric.help.to_owned(),
        source,
    }
}

fn of_histogram(metric: &Metric, end: &str, title: &str, source: Source) -> Series {
    Series {
        name: format!("{}_{end}", metric.name),
        unit: metric.unit.as_str(),
        help: format!("{title}: {}", metric.help),
        source,
    }
}

fn rate_unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes per second",
        Unit::Seconds => "seconds per second",
        Unit::Milliseconds => "milliseconds per second",
        Unit::Count | Unit::Flag => "per second",
    }
}
