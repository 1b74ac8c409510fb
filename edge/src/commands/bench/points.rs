//! The results of a running load over time, as a plot shows them.

use sluice_lab::load::Recent;

/// Number of points above which two neighbours become one. So a load of any duration takes little memory.
const POINTS_MAX: usize = 1200;

/// Results of the requests that ended within one period.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Seconds from the start of the load to the end of the period.
    pub seconds: f64,
    /// Good responses per second.
    pub rate: f64,
    /// Failed requests per second.
    pub errors: f64,
    /// Latencies in microseconds; 0 without good responses.
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

/// The points of a load, which are equally far apart.
#[derive(Debug)]
pub struct Points {
    points: Vec<Point>,
    /// Number of seconds of each point.
    step: u64,
    /// The seconds of the next point so far.
    pending: Vec<Point>,
}

impl Points {
    pub fn new() -> Points {
        Points {
            points: Vec::new(),
            step: 1,
            pending: Vec::new(),
        }
    }

    /// Adds the results of a second.
    pub fn add(&mut self, seconds: u64, recent: &Recent) {
        self.pending.push(Point {
            seconds: seconds as f64,
            rate: recent.per_second(recent.requests),
            errors: recent.per_second(recent.errors),
            p50_us: recent.latency.p50_us,
            p99_us: recent.latency.p99_us,
            max_us: recent.latency.max_us,
        });
        if (self.pending.len() as u64) < self.step {
            return;
        }
        self.points.extend(joined(&self.pending));
        self.pending.clear();
        if self.points.len() >= POINTS_MAX {
            self.points = self.points.chunks(2).filter_map(joined).collect();
            self.step *= 2;
        }
    }

    /// Returns the points so far.
    pub fn all(&self) -> &[Point] {
        &self.points
    }
}

/// Joins neighbours: the mean of the rates, and the greatest latencies.
fn joined(points: &[Point]) -> Option<Point> {
    let (last, rest) = points.split_last()?;
    let mut sum = *last;
    for point in rest {
        sum.rate += point.rate;
        sum.errors += point.errors;
        sum.p50_us = sum.p50_us.max(point.p50_us);
        sum.p99_us = sum.p99_us.max(point.p99_us);
        sum.max_us = sum.max_us.max(point.max_us);
    }
    sum.rate /= points.len() as f64;
    sum.errors /= points.len() as f64;
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_lab::load::Latency;

    #[test]
    fn long_loads_have_coarser_points() {
        let mut points = Points::new();
        for second in 1..=10_000 {
            let recent = Recent {
                seconds: 1.0,
                requests: 100 + second % 2,
                errors: 0,
                bytes: 0,
                connects: 0,
                latency: Latency {
                    max_us: if second == 1 { 9.0 } else { 1.0 },
                    ..Latency::default()
                },
            };
            points.add(second, &recent);
        }
        let all = points.all();
        assert!((600..POINTS_MAX).contains(&all.len()), "{}", all.len());
        assert!(all.iter().all(|point| (point.rate - 100.5).abs() < 1e-9));
        assert_eq!((all[0].seconds, all[0].max_us), (16.0, 9.0));
        assert_eq!(all[1].max_us, 1.0);
    }
}
