//! The six series of a measurement, from the proxy's access log: over windows of time, and over the whole measurement.

use serde::{Deserialize, Serialize};

/// Most windows of a measurement.
const WINDOWS_MAX: usize = 60;

/// Median, 95th percentile and maximum of some values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// Maximum.
    pub max: f64,
}

impl Percentiles {
    /// Returns the percentiles of these values; `None` if there are none. A percentile is the smallest value that
    /// is at least as large as this share of the values.
    fn of(values: impl Iterator<Item = f64>) -> Option<Percentiles> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| values.get((values.len() * percent).div_ceil(100).max(1) - 1);
        Some(Percentiles {
            p50: *at(50)?,
            p95: *at(95)?,
            max: *values.last()?,
        })
    }
}

/// The series of a period. Times are in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Number of requests to the upstream.
    pub requests: u64,
    /// Time to connect to the upstream; 0 on a reused connection.
    pub connect_ms: Option<Percentiles>,
    /// Time to the end of the upstream's response head.
    pub header_ms: Option<Percentiles>,
    /// Time to the end of the upstream's response.
    pub response_ms: Option<Percentiles>,
    /// Time of the client's request.
    pub request_ms: Option<Percentiles>,
    /// Bytes of the bodies to clients.
    pub body_bytes: Option<Percentiles>,
}

/// The series of one of consecutive periods of the same length.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Seconds from the start of the measurement to the start of the window.
    pub begin: f64,
    /// The requests that ended within the window.
    #[serde(flatten)]
    pub series: Series,
}

/// A line of the access log. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    /// End of the request, as Unix time.
    pub(super) end: f64,
    connect: Option<f64>,
    header: Option<f64>,
    response: Option<f64>,
    request: f64,
    bytes: f64,
}

/// Parses the lines of an access log in the experiment's format. `logs_beginning`: whether the time of a line is the
/// beginning of the request.
///
/// Errors: a line that does not have this format.
pub(super) fn parse(log: &str, logs_beginning: bool) -> anyhow::Result<Vec<Line>> {
    let parse = |line: &str| {
        parse_line(line, logs_beginning)
            .ok_or_else(|| anyhow::anyhow!("an unexpected line in the access log: {line:?}"))
    };
    log.lines().map(parse).collect()
}

fn parse_line(line: &str, logs_beginning: bool) -> Option<Line> {
    let values: Vec<&str> = line.split('|').collect();
    let [time, connect, header, response, request, bytes] = values[..] else {
        return None;
    };
    let (time, request): (f64, f64) = (time.parse().ok()?, request.parse().ok()?);
    Some(Line {
        end: if logs_beginning { time + request } else { time },
        connect: last(connect),
        header: last(header),
        response: last(response),
        request,
        bytes: bytes.parse().ok()?,
    })
}

/// Returns the time of the last attempt, of several that nginx separates by commas; `None` for `-`.
fn last(value: &str) -> Option<f64> {
    value.rsplit([',', ':']).next()?.trim().parse().ok()
}

/// Returns the series of these lines.
pub(super) fn series<'a>(lines: impl Iterator<Item = &'a Line> + Clone) -> Series {
    let times = |pick: fn(&Line) -> Option<f64>| {
        let known = lines.clone().filter_map(pick);
        Percentiles::of(known.map(|seconds| seconds * 1000.0))
    };
    Series {
        requests: lines.clone().count() as u64,
        connect_ms: times(|line| line.connect),
        header_ms: times(|line| line.header),
        response_ms: times(|line| line.response),
        request_ms: times(|line| Some(line.request)),
        body_bytes: Percentiles::of(lines.clone().map(|line| line.bytes)),
    }
}

/// Returns the series over windows of equal length, of a measurement that began at this Unix time.
pub(super) fn windows(lines: &[Line], began: f64, seconds: f64) -> Vec<Window> {
    let count = (seconds.ceil() as usize).clamp(1, WINDOWS_MAX);
    let length = seconds / count as f64;
    let window = |number: usize| {
        let begin = number as f64 * length;
        let within = |line: &&Line| {
            let at = line.end - began - begin;
            (0.0..length).contains(&at)
        };
        Window {
            begin,
            series: series(lines.iter().filter(within)),
        }
    };
    (0..count).map(window).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_proxies_have_the_same_values() {
        let sluice = parse("100.000|0.080|0.160|0.240|0.241|32768\n", true).expect("a line");
        let nginx = parse("100.241|0.080|0.160|0.240|0.241|32768\n", false).expect("a line");
        assert_eq!(sluice, nginx);
        assert_eq!(
            series(sluice.iter()).header_ms.map(|one| one.p50),
            Some(160.0)
        );
    }

    #[test]
    fn the_last_of_several_attempts_counts() {
        let lines = parse("1.0|0.001, 0.080|-, 0.160|- : 0.2|0.5|0\n", false).expect("a line");
        let series = series(lines.iter());
        assert_eq!(series.connect_ms.map(|one| one.max), Some(80.0));
        assert_eq!(series.response_ms.map(|one| one.max), Some(200.0));
    }

    #[test]
    fn an_unknown_time_is_left_out_and_a_wrong_line_is_an_error() {
        let lines = parse("1.0|-|-|-|0.5|120\n", false).expect("a line");
        let series = series(lines.iter());
        assert_eq!((series.requests, series.connect_ms), (1, None));
        for wrong in ["", "1|2|3", "a|0|0|0|0|0", "1|0|0|0|0|0|0"] {
            assert!(parse(&format!("{wrong}\n"), false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn percentiles_are_values_that_occur() {
        let of = |values: &[f64]| Percentiles::of(values.iter().copied());
        assert_eq!(of(&[]), None);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        let found = of(&hundred).expect("values");
        assert_eq!((found.p50, found.p95, found.max), (50.0, 95.0, 100.0));
        let one = of(&[7.0]).expect("a value");
        assert_eq!((one.p50, one.p95, one.max), (7.0, 7.0, 7.0));
    }

    #[test]
    fn each_request_is_in_the_window_of_its_end() {
        let text: String = (0..50)
            .map(|n| format!("{}|0|0|0|0.0|1\n", 100.05 + f64::from(n) / 10.0))
            .collect();
        let lines = parse(&text, false).expect("lines");
        let windows = windows(&lines, 100.0, 5.0);
        let counts: Vec<u64> = windows.iter().map(|one| one.series.requests).collect();
        assert_eq!(counts, [10; 5]);
        assert_eq!(windows[4].begin, 4.0);
    }
}
