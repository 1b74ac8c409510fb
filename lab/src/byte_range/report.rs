//! The report of the byte-range experiment: medians as a table and as JSON.

use std::time::Duration;

use serde::Serialize;

use super::origin_cost::OriginCost;
use super::round::{Round, Times, Timing};
use crate::bench::{median, plain};

/// Median times of one kind of request, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Milliseconds {
    /// Time to the first byte of the body.
    pub first: f64,
    /// Time to the last byte of the body.
    pub total: f64,
}

/// Results of one cache.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Name of the cache and fill mode.
    pub name: String,
    /// The reason why the cache could not be measured; `None` if it could.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Median times in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<Times<Milliseconds>>,
    /// Cost of the first client's range requests for the origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<OriginCost>,
    /// Cost of the second client's requests for the origin: the whole file and two ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<OriginCost>,
}

impl Row {
    pub(super) fn of(name: String, rounds: &[Round]) -> Row {
        let one = |pick: fn(&Times<Timing>) -> &Timing| {
            let all = |time: fn(&Timing) -> Duration| {
                let times = rounds.iter().map(|round| time(pick(&round.times)));
                middle(times.map(|time| time.as_secs_f64() * 1000.0))
            };
            Milliseconds {
                first: all(|timing| timing.first),
                total: all(|timing| timing.total),
            }
        };
        Row {
            name,
            error: None,
            ms: rounds.first().map(|round| round.times.map(one)),
            ranges: Some(accounts(rounds, |round| &round.seek)),
            file: Some(accounts(rounds, |round| &round.fill)),
        }
    }

    pub(super) fn failed(name: String, error: &anyhow::Error) -> Row {
        Row {
            name,
            error: Some(format!("{error:#}")),
            ms: None,
            ranges: None,
            file: None,
        }
    }

    fn cells(&self) -> Option<Vec<String>> {
        let (ms, ranges, file) = (self.ms?, self.ranges?, self.file?);
        let totals = ms.map(|pick| figure(pick(&ms).total));
        let cache = !self.name.starts_with("origin");
        let cost = |text: String| if cache { text } else { "-".to_owned() };
        Some(vec![
            self.name.clone(),
            totals.cold,
            totals.same,
            totals.again,
            totals.further,
            totals.inside,
            totals.landed,
            totals.gap,
            figure(ms.whole.first),
            totals.whole,
            totals.warm,
            cost(format!("{:.0}", ranges.requests)),
            cost(format!("{:.1}", mebibytes(ranges.sent))),
            cost(format!("{:.2}", ranges.over_blocks)),
            cost(format!("{:.1}", mebibytes(file.sent))),
            cost(format!("{:.0}", ranges.times.max(file.times))),
        ])
    }
}

/// Returns the median, rounded to three decimals.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let value = median(values.collect()).unwrap_or_default();
    (value * 1000.0).round() / 1000.0
}

fn accounts(rounds: &[Round], pick: fn(&Round) -> &OriginCost) -> OriginCost {
    let all =
        |figure: fn(&OriginCost) -> f64| middle(rounds.iter().map(|round| figure(pick(round))));
    OriginCost {
        requests: all(|account| account.requests),
        sent: all(|account| account.sent),
        over_blocks: all(|account| account.over_blocks),
        times: all(|account| account.times),
    }
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// Formats milliseconds with one decimal below 100, without decimals above.
fn figure(ms: f64) -> String {
    match ms {
        100.0.. => format!("{ms:.0}"),
        _ => format!("{ms:.1}"),
    }
}

/// Result of the experiment.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Bytes of the file.
    pub length: u64,
    /// Bytes per second that the origin sends on each connection.
    pub rate: u64,
    /// Size of a slice in bytes.
    pub slice: u64,
    /// Number of rounds, whose medians are reported.
    pub rounds: usize,
    /// Names and versions of the rivals.
    pub rivals: Vec<String>,
    /// One row for each cache.
    pub rows: Vec<Row>,
    /// Notes about rivals that were left out.
    pub notes: Vec<String>,
}

const TITLES: [(&str, &str); 16] = [
    ("", ""),
    ("cold", "ms"),
    ("same", "ms"),
    ("again", "ms"),
    ("far", "ms"),
    ("in", "ms"),
    ("landed", "ms"),
    ("gap", "ms"),
    ("1st", "ms"),
    ("whole", "ms"),
    ("warm", "ms"),
    ("req", ""),
    ("sent", "MiB"),
    ("over", "×"),
    ("file", "MiB"),
    ("most", "×"),
];

const LEGEND: &str = "
\"origin\" is without a cache. No cache can deliver the first byte of an uncached file sooner. A cache
can complete a whole file sooner, since it may fetch over several connections.

Ranges of ten bytes of an uncached file:
  cold    bytes 5000000-5000009
  same    the same bytes, requested as soon as the origin has received the first request
  again   the same bytes, requested as soon as the first response is complete
  far     bytes 9000000-9000009, requested at the same moment as \"again\"
  req     origin requests for these four;  sent: bytes that the origin sent for them
  over    those bytes over the size of the slices that contain the ranges
A range of another uncached file:
  in      bytes 5000000-5000009, while the fetch of their slice is at its first bytes: the range
          waits for the bytes before it, at most the time of one slice
The whole of another uncached file, and two ranges when 2 MiB of it have arrived:
  landed  bytes 1000000-1000009;  gap: bytes 5000000-5000009
  1st     first byte of the whole file;  whole: its last byte
  file    bytes that the origin sent for these three
Then:
  warm    bytes 5000000-5000009 of the first file, when the origin is idle
  most    highest number of times that the origin sent the same requested byte of either file
";

impl Report {
    /// Returns Sluice's rows with an error.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        let ours = |row: &&Row| row.error.is_some() && row.name.starts_with("Sluice");
        self.rows.iter().filter(ours)
    }

    /// Renders a table and an explanation of its columns.
    pub fn render(&self) -> String {
        let rivals = match &self.rivals[..] {
            [] => String::new(),
            rivals => format!(", {}", rivals.join(", ")),
        };
        let rounds = match self.rounds {
            1 => "1 round".to_owned(),
            rounds => format!("medians of {rounds} rounds"),
        };
        let mut text = format!(
            "{:.0} MiB behind {:.2} MiB/s per connection, slices of {:.0} KiB, {rounds}{rivals}\n\n",
            mebibytes(self.length as f64),
            mebibytes(self.rate as f64),
            self.slice as f64 / 1024.0,
        );
        let rows: Vec<Vec<String>> = self.rows.iter().filter_map(Row::cells).collect();
        text.push_str(&plain(&TITLES, &rows));
        for row in &self.rows {
            if let Some(error) = &row.error {
                text.push_str(&format!("{}: {}\n", row.name, error.trim()));
            }
        }
        text.push_str(LEGEND);
        for note in &self.notes {
            text.push_str(&format!("\n{note}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(ms: u64) -> Round {
        let timing = Timing {
            first: Duration::from_millis(ms),
            total: Duration::from_millis(2 * ms),
        };
        let times = Times {
            cold: timing,
            same: timing,
            again: timing,
            further: timing,
            inside: timing,
            landed: timing,
            gap: timing,
            whole: timing,
            warm: timing,
        };
        let account = OriginCost {
            requests: ms as f64,
            ..OriginCost::default()
        };
        Round {
            times,
            seek: account,
            fill: account,
        }
    }

    #[test]
    fn a_row_contains_the_medians_of_all_rounds() {
        let row = Row::of("Sluice auto".to_owned(), &[round(4), round(60), round(5)]);
        let ms = row.ms.expect("figures");
        assert_eq!((ms.cold.first, ms.warm.total), (5.0, 10.0));
        assert_eq!(row.ranges.expect("figures").requests, 5.0);
    }

    #[test]
    fn the_table_fits_a_terminal_and_shows_failures() {
        let mut rounds = [round(4999)];
        rounds[0].seek.over_blocks = 20.0;
        rounds[0].seek.sent = 31e6;
        let report = Report {
            length: 10 << 20,
            rate: 1 << 20,
            slice: 1 << 20,
            rounds: 1,
            rivals: vec!["nginx 1.22.1".to_owned()],
            rows: vec![
                Row::of("origin".to_owned(), &rounds),
                Row::of("nginx slice+lock".to_owned(), &rounds),
                Row::failed("Sluice lock".to_owned(), &anyhow::anyhow!("why")),
            ],
            notes: vec!["Varnish is not installed: left out".to_owned()],
        };
        let text = report.render();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100) && widest > Some(70), "{text}");
        assert!(
            text.contains("\nSluice lock: why\n") && text.contains("Varnish is not"),
            "{text}"
        );
        assert_eq!(report.failures().count(), 1);
    }
}
