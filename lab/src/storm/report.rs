//! The report of the storm, as a table and as JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tally::{SAMPLES_MAX, Tally};
use super::{FILES, Options};
use crate::bench::plain;
use crate::configurations::Configurations;
use crate::spread::Spread;

/// The figures of one cache in all rounds, as ratios that can be compared between caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spreads {
    /// Bytes sent by the origin, divided by those of the distinct blocks that clients requested.
    pub over: Option<Spread>,
    /// Bytes sent by the origin, divided by those that clients received.
    pub received: Option<Spread>,
    /// CPU time of the server per request in microseconds.
    pub cpu_us: Option<Spread>,
}

impl Spreads {
    fn of(rounds: &[Row]) -> Spreads {
        let received = |row: &Row| row.origin_bytes as f64 / row.bytes.max(1) as f64;
        Spreads {
            over: Spread::of(rounds.iter().map(|row| row.over).collect()),
            received: Spread::of(rounds.iter().map(received).collect()),
            cpu_us: Spread::of(rounds.iter().filter_map(|row| row.cpu_us).collect()),
        }
    }
}

/// Results of one cache: sums over all rounds, and medians of ratios.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the cache and fill mode.
    pub name: String,
    /// Number of requests sent.
    pub requests: u64,
    /// Responses with a byte that differs from the version that their ETag names.
    pub wrong: u64,
    /// Requests without a response, or with a response that does not fit the request.
    pub failed: u64,
    /// Bodies that ended early.
    pub cut: u64,
    /// Responses with a version that had been replaced for more than max-age and a second.
    pub stale: u64,
    /// Body bytes that clients received.
    #[serde(rename = "got")]
    pub bytes: u64,
    /// Requests that the origin received.
    #[serde(rename = "origin")]
    pub origin_requests: u64,
    /// Body bytes that the origin sent.
    #[serde(rename = "sent")]
    pub origin_bytes: u64,
    /// Size of the distinct blocks that clients requested. Each version of a block counts separately.
    #[serde(rename = "touched")]
    pub touched_bytes: u64,
    /// Bytes sent by the origin, divided by `touched_bytes`.
    pub over: f64,
    /// Duration in seconds.
    #[serde(rename = "took")]
    pub seconds: f64,
    /// CPU time of the server per request in microseconds.
    pub cpu_us: Option<f64>,
    /// Whether the time limit ended a storm before all requests were sent.
    pub ended_early: bool,
    /// The figures of the rounds; `None` for a single storm.
    #[serde(default)]
    pub spread: Option<Spreads>,
    /// Descriptions of some wrong and failed responses.
    pub samples: Vec<String>,
}

impl Row {
    pub(super) fn of(
        name: String,
        tally: &Tally,
        took: Duration,
        (origin_requests, origin_bytes): (u64, u64),
        touched_bytes: u64,
    ) -> Row {
        Row {
            name,
            requests: tally.requests(),
            wrong: tally.wrong,
            failed: tally.failed,
            cut: tally.cut,
            stale: tally.stale,
            bytes: tally.bytes,
            origin_requests,
            origin_bytes,
            touched_bytes,
            over: over(origin_bytes, touched_bytes),
            seconds: took.as_secs_f64(),
            cpu_us: None,
            ended_early: false,
            spread: None,
            samples: tally.samples.clone(),
        }
    }

    /// Combines the results of all rounds; `None` if there are none.
    pub(super) fn of_rounds(rounds: &[Row]) -> Option<Row> {
        let mut sum = rounds.first()?.clone();
        for row in &rounds[1..] {
            sum.add(row);
        }
        let spread = Spreads::of(rounds);
        let median = |spread: &Option<Spread>| Some(spread.as_ref()?.median);
        sum.over = median(&spread.over).unwrap_or(sum.over);
        sum.cpu_us = median(&spread.cpu_us);
        sum.spread = Some(spread);
        Some(sum)
    }

    fn add(&mut self, other: &Row) {
        self.requests += other.requests;
        self.wrong += other.wrong;
        self.failed += other.failed;
        self.cut += other.cut;
        self.stale += other.stale;
        self.bytes += other.bytes;
        self.origin_requests += other.origin_requests;
        self.origin_bytes += other.origin_bytes;
        self.touched_bytes += other.touched_bytes;
        self.seconds += other.seconds;
        self.ended_early |= other.ended_early;
        let room = SAMPLES_MAX.saturating_sub(self.samples.len());
        self.samples
            .extend(other.samples.iter().take(room).cloned());
    }

    fn cells(&self) -> Vec<String> {
        let cut = 100.0 * self.cut as f64 / self.requests.max(1) as f64;
        vec![
            self.name.clone(),
            self.requests.to_string(),
            self.wrong.to_string(),
            self.failed.to_string(),
            format!("{cut:.2}"),
            self.stale.to_string(),
            self.origin_requests.to_string(),
            format!("{:.1}", self.origin_bytes as f64 / 1e6),
            format!("{:.3}", self.over),
            format!("{:.1}", self.seconds),
            format!("{:.0}", self.bytes as f64 / 1e6 / self.seconds.max(1e-3)),
            self.cpu_us
                .map_or_else(|| "-".to_owned(), |us| format!("{us:.0}")),
        ]
    }
}

/// Returns the number of rounds of a report that does not name it.
fn one() -> usize {
    1
}

/// Returns the ratio, rounded to three decimals.
fn over(sent: u64, touched: u64) -> f64 {
    (sent as f64 / touched.max(1) as f64 * 1000.0).round() / 1000.0
}

/// Result of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Seed of the random requests.
    pub seed: u64,
    /// Number of concurrent clients.
    pub clients: usize,
    /// Number of requests for each cache in a round.
    pub requests: u64,
    /// Number of rounds.
    #[serde(default = "one")]
    pub rounds: usize,
    /// Milliseconds between two changes of a version; `None`: no changes.
    pub change_every_ms: Option<f64>,
    /// Lifetime of responses in seconds.
    pub max_age: u64,
    /// Bytes per second on each connection of the origin; `None`: no limit.
    pub rate: Option<u64>,
    /// Whether whole files of any size were requested.
    pub whole_of_any_size: bool,
    /// Size of a slice in bytes.
    pub slice: u64,
    /// Size of a cache in bytes.
    pub memory: u64,
    /// Names and versions of the rivals.
    pub rivals: Vec<String>,
    /// One row for each cache.
    pub rows: Vec<Row>,
    /// Configurations of the caches.
    pub configurations: Configurations,
    /// Remarks, including rivals that could not be measured and why.
    pub notes: Vec<String>,
}

const TITLES: [(&str, &str); 12] = [
    ("", ""),
    ("requests", ""),
    ("wrong", ""),
    ("failed", ""),
    ("cut", "%"),
    ("stale", ""),
    ("origin", "requests"),
    ("sent", "MB"),
    ("over", "×"),
    ("took", "s"),
    ("got", "MB/s"),
    ("cpu", "µs"),
];

const LEGEND: &str = "
wrong   responses with a byte that differs from the version named by their ETag
failed  requests without a response, or with a response that does not fit them
cut     bodies that ended before their announced length
stale   responses with a version that had been replaced for more than max-age and a second
origin  requests that the origin received;  sent: body bytes that it sent
over    those bytes over the size of the distinct blocks (of each version) that clients requested
took    from the first request to the last response;  got: body bytes that clients received
cpu     CPU time of the server per request
Counts are those of all rounds; over and cpu are medians of the rounds.
";

impl Report {
    /// Returns a report without rows.
    pub(super) fn new(options: &Options, rivals: Vec<String>) -> Report {
        Report {
            seed: options.seed,
            clients: options.clients,
            requests: options.requests,
            rounds: options.rounds,
            change_every_ms: options
                .change_every
                .map(|every| every.as_secs_f64() * 1000.0),
            max_age: options.max_age,
            rate: options.rate,
            whole_of_any_size: options.whole_of_any_size,
            slice: options.slice,
            memory: options.memory,
            rivals,
            rows: Vec::new(),
            configurations: Configurations::default(),
            notes: Vec::new(),
        }
    }

    /// Returns the number of Sluice's responses with wrong bytes.
    pub fn wrong(&self) -> u64 {
        self.ours().map(|row| row.wrong).sum()
    }

    /// Returns the number of requests without a fitting response from Sluice.
    pub fn failed(&self) -> u64 {
        self.ours().map(|row| row.failed).sum()
    }

    fn ours(&self) -> impl Iterator<Item = &Row> {
        let ours = |row: &&Row| row.name.starts_with("Sluice");
        self.rows.iter().filter(ours)
    }

    /// Renders a table and an explanation of its columns.
    pub fn render(&self) -> String {
        let changes = match self.change_every_ms {
            Some(every) => format!("one changes every {every} ms"),
            None => "no changes".to_owned(),
        };
        let rounds = match self.rounds {
            1 => "1 round".to_owned(),
            several => format!("{several} rounds"),
        };
        let rivals = match &self.rivals[..] {
            [] => String::new(),
            rivals => format!("{}\n", rivals.join(", ")),
        };
        let mut text = format!(
            "{rounds}, {} clients, {FILES} files of 1 B to 100 MB, {changes}, max-age={}, seed {}\n{rivals}\n",
            self.clients, self.max_age, self.seed,
        );
        let rows: Vec<Vec<String>> = self.rows.iter().map(Row::cells).collect();
        text.push_str(&plain(&TITLES, &rows));
        for row in self.rows.iter().filter(|row| row.ended_early) {
            let all = self.requests * self.rounds as u64;
            let (name, sent) = (&row.name, row.requests);
            text.push_str(&format!(
                "{name}: ended by the time limit after {sent} of {all} requests\n"
            ));
        }
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        text.push_str(LEGEND);
        for row in &self.rows {
            for sample in &row.samples {
                text.push_str(&format!("\n{}: {sample}", row.name));
            }
        }
        if self.rows.iter().any(|row| !row.samples.is_empty()) {
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, wrong: u64) -> Row {
        Row {
            name: name.to_owned(),
            requests: 100_000,
            wrong,
            failed: 12,
            cut: 240,
            stale: 0,
            bytes: 6_000_000_000,
            origin_requests: 100_000,
            origin_bytes: 1_150_000_000,
            touched_bytes: 1_000_000_000,
            over: over(1_150_000_000, 1_000_000_000),
            seconds: 20.0,
            cpu_us: Some(1234.5),
            ended_early: wrong > 0,
            spread: None,
            samples: vec!["/storm/3.bin: status 502".to_owned()],
        }
    }

    #[test]
    fn the_table_fits_a_terminal_and_only_sluices_wrong_bytes_count() {
        let options = Options {
            change_every: Some(Duration::from_millis(20)),
            ..Options::new("sluice")
        };
        let mut report = Report::new(&options, vec!["nginx 1.22.1".to_owned()]);
        report.rows = vec![row("Sluice auto", 0), row("nginx slice", 7)];
        report.notes = vec!["Squid: not measured: why".to_owned()];
        let text = report.render();
        assert!(text.contains("\nSquid: not measured: why\n"), "{text}");
        let json = serde_json::to_string(&report).expect("JSON");
        let read: Report = serde_json::from_str(&json).expect("a report");
        assert_eq!(read, report);
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100) && widest > Some(70), "{text}");
        assert!(
            text.contains("  1.150  ") && text.contains("  0.24  "),
            "{text}"
        );
        assert!(text.ends_with("status 502\n"), "{text}");
        assert_eq!((report.wrong(), report.failed()), (0, 12));
        assert!(text.starts_with("3 rounds, 200 clients, "), "{text}");
        assert_eq!(text.matches("ended by the time limit").count(), 1);
        assert!(
            text.contains("\nnginx slice: ended by the time limit"),
            "{text}"
        );
    }
    #[test]
    fn rounds_are_added_up_and_their_ratios_are_medians() {
        let round = |origin_bytes, cpu_us, failed| Row {
            origin_bytes,
            over: over(origin_bytes, 1_000_000_000),
            cpu_us: Some(cpu_us),
            failed,
            ..row("Sluice auto", 0)
        };
        let rounds = [
            round(1_100_000_000, 20.0, 0),
            round(3_000_000_000, 25.0, 2),
            round(1_200_000_000, 40.0, 1),
        ];
        let all = Row::of_rounds(&rounds).expect("rounds");
        assert_eq!((all.requests, all.failed, all.cut), (300_000, 3, 720));
        assert_eq!(all.origin_bytes, 5_300_000_000);
        assert_eq!((all.over, all.cpu_us), (1.2, Some(25.0)));
        assert_eq!(all.samples.len(), 3);
        let spread = all.spread.expect("a spread");
        let received = spread.received.expect("bytes");
        assert_eq!((received.median, received.high), (0.2, 0.5));
        assert_eq!(spread.over.expect("blocks").rounds, [1.1, 3.0, 1.2]);
        assert_eq!(Row::of_rounds(&[]), None);
    }
}
