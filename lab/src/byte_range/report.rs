//! The report of the byte-range experiment: medians as a table and as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::origin_cost::OriginCost;
use super::round::{Round, Times, Timing};
use crate::bench::plain;
use crate::configurations::Configurations;
use crate::spread::{Spread, noise_rule, within_noise};

/// Times of one kind of request, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Milliseconds<T = f64> {
    /// Time to the first byte of the body.
    pub first: T,
    /// Time to the last byte of the body.
    pub total: T,
}

/// The figures of all rounds of one cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spreads {
    /// Times in milliseconds.
    pub ms: Times<Milliseconds<Spread>>,
    /// Cost of the first client's range requests for the origin.
    pub ranges: OriginCost<Spread>,
    /// Cost of the second client's requests for the origin.
    pub file: OriginCost<Spread>,
}

impl Spreads {
    /// Returns the figures of these rounds; `None` without a round.
    fn of(rounds: &[Round]) -> Option<Spreads> {
        Some(Spreads {
            ms: Times::each(|pick| times(rounds, pick))?,
            ranges: costs(rounds, |round| &round.seek)?,
            file: costs(rounds, |round| &round.fill)?,
        })
    }
}

fn times(rounds: &[Round], pick: fn(&Times<Timing>) -> &Timing) -> Option<Milliseconds<Spread>> {
    let all = |time: fn(&Timing) -> Duration| {
        spread_of(rounds.iter().map(|round| ms(time(pick(&round.times)))))
    };
    Some(Milliseconds {
        first: all(|timing| timing.first)?,
        total: all(|timing| timing.total)?,
    })
}

fn costs(rounds: &[Round], cost: fn(&Round) -> &OriginCost) -> Option<OriginCost<Spread>> {
    OriginCost::each(|pick| spread_of(rounds.iter().map(|round| *pick(cost(round)))))
}

/// Returns the spread of these values, each rounded to three decimals.
fn spread_of(values: impl Iterator<Item = f64>) -> Option<Spread> {
    Spread::of(
        values
            .map(|value| (value * 1000.0).round() / 1000.0)
            .collect(),
    )
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Results of one cache.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Name of the cache and fill mode.
    pub name: String,
    /// The reason why a round of the cache failed; `None` if none did. Figures are those of the rounds before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A remark on the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Median times in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<Times<Milliseconds>>,
    /// Cost of the first client's range requests for the origin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranges: Option<OriginCost>,
    /// Cost of the second client's requests for the origin: the whole file and two ranges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<OriginCost>,
    /// CPU time of the server per request in milliseconds, including its background work; `None` without a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<Spread>,
    /// The same figures as `ms`, `ranges` and `file`, with those of each round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spreads>,
}

impl Row {
    pub(super) fn of(
        name: String,
        rounds: &[Round],
        error: Option<String>,
        note: Option<String>,
    ) -> Row {
        let spread = Spreads::of(rounds);
        Row {
            name,
            error,
            note,
            ms: spread.as_ref().and_then(|all| {
                Times::each(|pick| {
                    let ms = pick(&all.ms);
                    Some(Milliseconds {
                        first: ms.first.median,
                        total: ms.total.median,
                    })
                })
            }),
            ranges: spread.as_ref().and_then(|all| medians(&all.ranges)),
            file: spread.as_ref().and_then(|all| medians(&all.file)),
            cpu_ms: spread_of(rounds.iter().filter_map(|round| round.cpu).map(ms)),
            spread,
        }
    }

    fn cells(&self) -> Option<Vec<String>> {
        let (ms, ranges, file) = (self.ms?, self.ranges?, self.file?);
        let totals = Times::each(|pick| Some(figure(pick(&ms).total)))?;
        let cpu = self.cpu_ms.as_ref();
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
            cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{:.2}", cpu.median)),
        ])
    }

    /// Returns the cells of the table of lowest and highest values. Values whose difference from those of `reference` is
    /// within the noise are marked.
    fn extremes(&self, reference: Option<&Row>) -> Option<Vec<String>> {
        let reference = reference.filter(|row| row.name != self.name);
        let all = EXTREMES.iter().map(|(_, pick)| {
            let Some(own) = pick(self) else {
                return "-".to_owned();
            };
            let (low, high) = (figure(own.low), figure(own.high));
            let is_near = |other| within_noise(own, other);
            let mark = match reference.and_then(pick).is_some_and(is_near) {
                true => "≈",
                false => "",
            };
            match low == high {
                true => format!("{mark}{low}"),
                false => format!("{mark}{low}-{high}"),
            }
        });
        self.spread.as_ref()?;
        Some([self.name.clone()].into_iter().chain(all).collect())
    }

    fn total(
        &self,
        pick: fn(&Times<Milliseconds<Spread>>) -> &Milliseconds<Spread>,
    ) -> Option<&Spread> {
        self.spread.as_ref().map(|spread| &pick(&spread.ms).total)
    }

    fn is_sluice(&self) -> bool {
        self.name.starts_with("Sluice")
    }
}

/// A figure with its spread.
type Pick = fn(&Row) -> Option<&Spread>;

/// Columns of the table of lowest and highest values.
const EXTREMES: [(&str, Pick); 9] = [
    ("cold", |row| row.total(|ms| &ms.cold)),
    ("same", |row| row.total(|ms| &ms.same)),
    ("again", |row| row.total(|ms| &ms.again)),
    ("far", |row| row.total(|ms| &ms.further)),
    ("in", |row| row.total(|ms| &ms.inside)),
    ("gap", |row| row.total(|ms| &ms.gap)),
    ("whole", |row| row.total(|ms| &ms.whole)),
    ("warm", |row| row.total(|ms| &ms.warm)),
    ("cpu", |row| row.cpu_ms.as_ref()),
];

fn medians(cost: &OriginCost<Spread>) -> Option<OriginCost> {
    OriginCost::each(|pick| Some(pick(cost).median))
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
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// Configurations of the servers.
    pub configurations: Configurations,
    /// Notes about rivals that were left out.
    pub notes: Vec<String>,
}

const TITLES: [(&str, &str); 17] = [
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
    ("cpu", "ms"),
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
  cpu     CPU time of the server, divided by the number of requests of a round (14)
";

impl Report {
    /// Returns Sluice's rows with an error.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        let ours = |row: &&Row| row.error.is_some() && row.is_sluice();
        self.rows.iter().filter(ours)
    }

    /// Renders the tables and an explanation of their columns.
    pub fn render(&self) -> String {
        let rivals = match &self.rivals[..] {
            [] => String::new(),
            rivals => format!("{}\n", rivals.join(", ")),
        };
        let rounds = match self.rounds {
            1 => "1 round".to_owned(),
            rounds => format!("medians of {rounds} rounds"),
        };
        let mut text = format!(
            "{:.0} MiB behind {:.2} MiB/s per connection, slices of {:.0} KiB, {rounds}\n{rivals}\n",
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
        for row in &self.rows {
            if let Some(note) = &row.note {
                text.push_str(&format!("{}: {note}\n", row.name));
            }
        }
        text.push_str(&self.extremes());
        text.push_str(LEGEND);
        for note in &self.notes {
            text.push_str(&format!("\n{note}\n"));
        }
        text
    }

    /// Returns the table of lowest and highest values, which shows where a difference from Sluice is within the noise.
    /// Empty with one round, which shows nothing about noise.
    fn extremes(&self) -> String {
        if self.rounds < 2 {
            return String::new();
        }
        let mut measured = self.rows.iter().filter(|row| row.spread.is_some());
        let reference = measured.rfind(|row| row.is_sluice());
        let mut text = format!("\nLowest and highest values of {} rounds", self.rounds);
        if let Some(row) = reference {
            let name = &row.name;
            text.push_str(&format!(
                "\n≈: the difference from {name} is within the noise:\n{}",
                noise_rule()
            ));
        }
        text.push_str("\n\n");
        let mut titles = vec![("", "")];
        titles.extend(EXTREMES.iter().map(|(title, _)| (*title, "ms")));
        let rows = self.rows.iter().filter_map(|row| row.extremes(reference));
        text.push_str(&plain(&titles, &rows.collect::<Vec<_>>()));
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
            cpu: Some(Duration::from_micros(1500)),
        }
    }

    fn row(name: &str, rounds: &[Round]) -> Row {
        Row::of(name.to_owned(), rounds, None, None)
    }

    fn report(rows: Vec<Row>, rounds: usize) -> Report {
        let mut configurations = Configurations::default();
        configurations.keep("nginx slice+lock", "daemon off;\n");
        Report {
            length: 10 << 20,
            rate: 1 << 20,
            slice: 1 << 20,
            rounds,
            rivals: vec!["nginx 1.22.1".to_owned()],
            rows,
            configurations,
            notes: vec!["Varnish is not installed: left out".to_owned()],
        }
    }

    #[test]
    fn a_row_contains_the_medians_and_the_spread_of_all_rounds() {
        let row = row("Sluice auto", &[round(4), round(60), round(5)]);
        let ms = row.ms.expect("figures");
        assert_eq!((ms.cold.first, ms.warm.total), (5.0, 10.0));
        assert_eq!(row.ranges.expect("figures").requests, 5.0);
        let spread = row.spread.expect("figures");
        assert_eq!(spread.ms.warm.total.rounds, [8.0, 120.0, 10.0]);
        assert_eq!(
            (spread.file.requests.low, spread.file.requests.high),
            (4.0, 60.0)
        );
        assert_eq!(row.cpu_ms.map(|cpu| cpu.median), Some(1.5));
    }

    #[test]
    fn the_table_fits_a_terminal_and_shows_failures() {
        let mut rounds = [round(4999)];
        rounds[0].seek.over_blocks = 20.0;
        rounds[0].seek.sent = 31e6;
        let failed = Row::of("Sluice lock".to_owned(), &[], Some("why".to_owned()), None);
        let apache = Row {
            note: Some("a remark".to_owned()),
            ..row("Apache", &rounds)
        };
        let rows = vec![
            row("origin", &rounds),
            row("nginx slice+lock", &rounds),
            failed,
            apache,
        ];
        let report = report(rows, 1);
        let text = report.render();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(105) && widest > Some(70), "{text}");
        for line in ["Sluice lock: why", "Apache: a remark", "nginx 1.22.1"] {
            assert!(text.contains(&format!("\n{line}\n")), "{text}");
        }
        assert!(text.contains("Varnish is not"), "{text}");
        assert!(!text.contains("Lowest"), "{text}");
        assert_eq!(report.failures().count(), 1);
    }

    #[test]
    fn several_rounds_show_their_spread_and_where_it_overlaps() {
        let rows = vec![
            row("Sluice whole", &[round(9000), round(9001)]),
            row("Sluice auto", &[round(4990), round(5000)]),
            row("nginx slice", &[round(4999), round(5100)]),
            row("Squid", &[round(40), round(40)]),
        ];
        let text = report(rows, 2).render();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(120), "{text}");
        let (_, table) = text.split_once("Lowest and highest").expect("a table");
        for (name, cell) in [
            ("Sluice whole", " 18000-18002 "),
            ("Sluice auto", " 9980-10000 "),
            ("nginx slice", " ≈9998-10200 "),
            ("Squid", " 80.0 "),
        ] {
            assert!(table.contains(&noise_rule()), "{table}");
            let line = table.lines().find(|line| line.starts_with(name));
            assert!(line.is_some_and(|line| line.contains(cell)), "{table}");
        }
    }

    #[test]
    fn a_report_survives_json() {
        let report = report(vec![row("Sluice auto", &[round(4), round(6)])], 2);
        let text = serde_json::to_string(&report).expect("JSON");
        let read: Report = serde_json::from_str(&text).expect("a report");
        assert_eq!(read.render(), report.render());
        assert_eq!(read.configurations, report.configurations);
    }
}
