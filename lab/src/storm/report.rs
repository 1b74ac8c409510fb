//! What the storm found, as a table for people and as JSON.

use std::time::Duration;

use serde::Serialize;

use super::tally::Tally;
use super::{FILES, Options};
use crate::bench::plain;

/// What one cache made of the storm.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The cache's name and way to fill.
    pub name: String,
    /// Requests that were sent.
    pub requests: u64,
    /// Responses with a byte that is not the one of the version that they name.
    pub wrong: u64,
    /// Requests without a response, or with one that is no answer to them.
    pub failed: u64,
    /// Bodies that ended early.
    pub cut: u64,
    /// Responses of a version that was replaced for longer than they may be fresh, and a second.
    pub stale: u64,
    /// Bytes of bodies that clients got.
    #[serde(rename = "got")]
    pub bytes: u64,
    /// Requests to the origin.
    #[serde(rename = "origin")]
    pub origin_requests: u64,
    /// Bytes of bodies that the origin sent.
    #[serde(rename = "sent")]
    pub origin_bytes: u64,
    /// Bytes of the distinct blocks, each of a version, that clients touched.
    #[serde(rename = "touched")]
    pub touched_bytes: u64,
    /// Bytes that the origin sent over those of the distinct blocks touched.
    pub over: f64,
    /// How long it took, in seconds.
    #[serde(rename = "took")]
    pub seconds: f64,
    /// Whether the time limit ended it before all requests were sent.
    pub ended_early: bool,
    /// Some of what was wrong or failed.
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
            ended_early: false,
            samples: tally.samples.clone(),
        }
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
        ]
    }
}

/// To three decimals.
fn over(sent: u64, touched: u64) -> f64 {
    (sent as f64 / touched.max(1) as f64 * 1000.0).round() / 1000.0
}

/// All that was found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What the requests were drawn from.
    pub seed: u64,
    /// Clients at once.
    pub clients: usize,
    /// Requests that each cache was to get.
    pub requests: u64,
    /// Milliseconds between two changes of a version.
    pub change_every_ms: Option<f64>,
    /// Seconds that responses may be fresh.
    pub max_age: u64,
    /// Bytes a second of the origin's connections.
    pub rate: Option<u64>,
    /// Whether files of any size were asked for whole.
    pub whole_of_any_size: bool,
    /// Bytes of a slice.
    pub slice: u64,
    /// Bytes that a cache may keep.
    pub memory: u64,
    /// Names and versions of the rivals.
    pub rivals: Vec<String>,
    /// A row for each cache.
    pub rows: Vec<Row>,
}

const TITLES: [(&str, &str); 11] = [
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
];

const LEGEND: &str = "
wrong   responses with a byte that does not belong there in the version that their ETag names
failed  requests without a response, or with one that is no answer to them
cut     bodies that ended before their announced end
stale   responses of a version that was replaced for longer than max-age and a second
origin  requests that the origin got;  sent: bytes of bodies that it sent
over    those bytes over the bytes of the distinct blocks (of each version) that clients touched
took    from the first request to the last response;  got: bytes of bodies that clients got
";

impl Report {
    pub(super) fn new(options: &Options, rivals: Vec<String>, rows: Vec<Row>) -> Report {
        Report {
            seed: options.seed,
            clients: options.clients,
            requests: options.requests,
            change_every_ms: options
                .change_every
                .map(|every| every.as_secs_f64() * 1000.0),
            max_age: options.max_age,
            rate: options.rate,
            whole_of_any_size: options.whole_of_any_size,
            slice: options.slice,
            memory: options.memory,
            rivals,
            rows,
        }
    }

    /// Sluice's responses with wrong bytes.
    pub fn wrong(&self) -> u64 {
        self.ours().map(|row| row.wrong).sum()
    }

    /// Requests that Sluice did not answer, or not with an answer to them.
    pub fn failed(&self) -> u64 {
        self.ours().map(|row| row.failed).sum()
    }

    fn ours(&self) -> impl Iterator<Item = &Row> {
        let ours = |row: &&Row| row.name.starts_with("Sluice");
        self.rows.iter().filter(ours)
    }

    /// A table and what its columns mean.
    pub fn render(&self) -> String {
        let changes = match self.change_every_ms {
            Some(every) => format!("one changes every {every} ms"),
            None => "none changes".to_owned(),
        };
        let rivals = match &self.rivals[..] {
            [] => String::new(),
            rivals => format!(", {}", rivals.join(", ")),
        };
        let mut text = format!(
            "{} clients, {FILES} files of 1 B to 100 MB, {changes}, max-age={}, seed {}{rivals}\n\n",
            self.clients, self.max_age, self.seed,
        );
        let rows: Vec<Vec<String>> = self.rows.iter().map(Row::cells).collect();
        text.push_str(&plain(&TITLES, &rows));
        for row in self.rows.iter().filter(|row| row.ended_early) {
            let (name, sent, all) = (&row.name, row.requests, self.requests);
            text.push_str(&format!(
                "{name}: ended early, by its time limit, after {sent} of {all} requests\n"
            ));
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
            ended_early: wrong > 0,
            samples: vec!["/storm/3.bin: status 502".to_owned()],
        }
    }

    #[test]
    fn the_table_fits_a_terminal_and_only_our_own_wrong_bytes_count() {
        let options = Options {
            change_every: Some(Duration::from_millis(20)),
            ..Options::new("sluice")
        };
        let rows = vec![row("Sluice auto", 0), row("nginx slice", 7)];
        let report = Report::new(&options, vec!["nginx 1.22.1".to_owned()], rows);
        let text = report.render();
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(100) && widest > Some(70), "{text}");
        assert!(
            text.contains("  1.150  ") && text.contains("  0.24  "),
            "{text}"
        );
        assert!(text.ends_with("status 502\n"), "{text}");
        assert_eq!((report.wrong(), report.failed()), (0, 12));
        assert_eq!(text.matches("ended early").count(), 1);
        assert!(text.contains("\nnginx slice: ended early"), "{text}");
    }
}
