//! The history of one member: its rings, and the sums from which the next point of each ring is computed.

use super::code;
use super::layout::{Layout, Source};
use super::ring::Ring;
use super::scope::RINGS;
use super::tick::Tick;
use crate::telemetry::histogram::Histogram;
use crate::telemetry::metric::{Kind, Unit};

/// The values of a member at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// Numbers, in the order of the layout.
    pub numbers: &'a [u64],
    /// Histograms, in the order of the layout.
    pub histograms: &'a [&'a Histogram],
}

/// The history of one member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) rings: [Ring; RINGS],
    steps: [Step; RINGS],
    numbers: Box<[u64]>,
    histograms: Box<[Histogram]>,
    /// Unix time of the last reading; `None` for a member that was restored and has no reading yet.
    noted_s: Option<u64>,
    /// Whether the first reading only says where the counters begin.
    is_late: bool,
}

/// The sums over the readings of a step that has not ended yet.
#[derive(Debug)]
struct Step {
    seconds: f64,
    readings: u32,
    sums: Box<[f64]>,
    histograms: Box<[Histogram]>,
}

impl Member {
    /// Creates an empty history. The counters of a new member count from zero, unless they began before its history
    /// (`is_late`).
    pub(super) fn new(layout: &Layout, is_late: bool) -> Member {
        let rings = layout.scope().rings();
        Member {
            rings: rings.map(|size| Ring::new(size, layout.series().len())),
            steps: std::array::from_fn(|_| Step::new(layout)),
            numbers: vec![0; layout.numbers().len()].into(),
            histograms: vec![Histogram::default(); layout.histograms()].into(),
            noted_s: None,
            is_late,
        }
    }

    /// Whether the member had no reading since this time.
    pub(super) fn is_gone(&self, since_s: u64) -> bool {
        self.noted_s.is_none_or(|noted| noted < since_s)
    }

    /// Returns the end of the newest point, as Unix time.
    pub(super) fn end_s(&self) -> u64 {
        let ends = self.rings.iter().map(|ring| {
            let newest = ring.newest();
            newest.map_or(0, |newest| (newest + 1) * u64::from(ring.size().step_s))
        });
        ends.max().unwrap_or(0)
    }

    /// Records a reading: adds it to all steps, and adds a point for each step that has ended.
    pub(super) fn note(&mut self, layout: &Layout, tick: &Tick, reading: Values<'_>) {
        if self.noted_s.is_some_and(|noted| noted != tick.before_s()) {
            // The member was absent in between.
            self.steps.iter_mut().for_each(Step::clear);
        }
        self.noted_s = Some(tick.now_s());
        let values = self.take_values(layout, reading.numbers);
        let news = self.take_histograms(reading.histograms);
        if std::mem::take(&mut self.is_late) {
            return;
        }
        let Member { rings, steps, .. } = self;
        for (ring, step) in rings.iter_mut().zip(steps) {
            if tick.is_backwards(ring.size().step_s) {
                step.clear();
            }
            step.add(tick.elapsed_s(), &values, &news);
            if let Some(numbers) = tick.ended(ring.size().step_s) {
                let step_s = f64::from(ring.size().step_s);
                // A late reading ends the step later than its steps do. The seconds in between count for these, so that
                // rates add up to the counters. A step in which the member began counts as a whole, for the same reason.
                let seconds = match tick.is_filled() {
                    true => step_s * (numbers.end - numbers.start) as f64,
                    false => step.seconds.max(step_s),
                };
                let point = step.point(layout, seconds);
                numbers.for_each(|number| ring.push(number, &point));
                step.clear();
            }
        }
    }

    /// Returns the increase of each counter since the last reading, and each gauge.
    fn take_values(&mut self, layout: &Layout, numbers: &[u64]) -> Vec<f64> {
        let last = self.numbers.iter_mut().zip(numbers);
        let values = last.zip(layout.numbers()).map(|((last, number), kind)| {
            let before = std::mem::replace(last, *number);
            match kind {
                // A counter that fell has begun again.
                Kind::Counter => number.checked_sub(before).unwrap_or(*number) as f64,
                // Workers change gauges while they are added up, so a sum can be below zero for a moment.
                Kind::Gauge | Kind::Histogram => number.cast_signed().max(0) as f64,
            }
        });
        values.collect()
    }

    /// Returns what each histogram has gained since the last reading.
    fn take_histograms(&mut self, histograms: &[&Histogram]) -> Vec<Histogram> {
        let last = self.histograms.iter_mut().zip(histograms);
        let news = last.map(|(last, now)| {
            let mut news = (*now).clone();
            if last.count() <= now.count() {
                news.subtract(last);
            }
            last.clone_from(now);
            news
        });
        news.collect()
    }
}

impl Step {
    fn new(layout: &Layout) -> Step {
        Step {
            seconds: 0.0,
            readings: 0,
            sums: vec![0.0; layout.numbers().len()].into(),
            histograms: vec![Histogram::default(); layout.histograms()].into(),
        }
    }

    fn clear(&mut self) {
        (self.seconds, self.readings) = (0.0, 0);
        self.sums.fill(0.0);
        self.histograms.fill(Histogram::default());
    }

    fn add(&mut self, seconds: f64, values: &[f64], news: &[Histogram]) {
        self.seconds += seconds;
        self.readings += 1;
        for (sum, value) in self.sums.iter_mut().zip(values) {
            *sum += value;
        }
        for (sum, news) in self.histograms.iter_mut().zip(news) {
            sum.add(news);
        }
    }

    /// Returns the codes of all series over the readings, which stand for this many seconds.
    fn point(&self, layout: &Layout, seconds: f64) -> Vec<u16> {
        let value = |source| match source {
            Source::Rate(at) => Some(self.sums[at] / seconds),
            Source::Gauge(at) => Some(self.sums[at] / f64::from(self.readings)),
            Source::Quantile(at, share, unit) => {
                let value = self.histograms[at].quantile(share);
                value.map(|value| in_unit(value, unit))
            }
            Source::Max(at, unit) => self.histograms[at].max().map(|value| in_unit(value, unit)),
        };
        let series = layout.series().iter();
        series
            .map(|series| code::encode(value(series.source)))
            .collect()
    }
}

/// Returns a value of a histogram in its unit. Histograms of durations count microseconds.
fn in_unit(value: u64, unit: Unit) -> f64 {
    match unit {
        Unit::Seconds => value as f64 / 1e6,
        _ => value as f64,
    }
}
