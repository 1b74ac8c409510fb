//! The tables of the slow-clients experiment: latency of the ordinary client, and times until each kind is cut.

use super::{KindRow, Report, Siege};
use crate::bench::plain;
use crate::figures;
use crate::load::Latency;

impl Report {
    /// Renders the figures and the two tables.
    pub fn render(&self) -> String {
        let mut text = format!(
            "{} slow clients of each kind for {} s, an ordinary one with {} requests per second\n\n",
            self.each, self.seconds, self.rate
        );
        text.push_str(&figures::render(&self.figures, self.rival.as_deref()));
        text.push('\n');
        text.push_str(&plain(&ORDINARY, &self.ordinary()));
        text.push('\n');
        text.push_str(&plain(&SLOW, &self.slow()));
        text
    }

    fn ordinary(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for siege in &self.sieges {
            let share = 100.0 * siege.cpu_seconds / self.seconds;
            let kinds: Vec<&str> = siege.kinds.iter().map(|row| row.kind.name()).collect();
            let among = match kinds[..] {
                [only] => only,
                _ => "all",
            };
            let share = format!("{share:.1}");
            let lines = [
                (&siege.quiet, "none", siege.memory.0, "-"),
                (&siege.under, among, siege.memory.1, &share),
            ];
            for (latency, among, memory, share) in lines {
                let ms = |us: f64| match latency.is_empty() {
                    true => "-".to_owned(),
                    false => format!("{:.2}", us / 1000.0),
                };
                rows.push(vec![
                    siege.name.clone(),
                    among.to_owned(),
                    ms(latency.p50_us),
                    ms(latency.p99_us),
                    ms(latency.max_us),
                    megabytes(memory),
                    share.to_owned(),
                ]);
            }
        }
        rows
    }

    fn slow(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for siege in &self.sieges {
            for row in &siege.kinds {
                let mut cells = vec![siege.name.clone(), row.kind.name().to_owned()];
                cells.extend(row.cells());
                rows.push(cells);
            }
        }
        rows
    }
}

const ORDINARY: [(&str, &str); 7] = [
    ("ordinary client", ""),
    ("slow clients", ""),
    ("p50", "ms"),
    ("p99", "ms"),
    ("longest", "ms"),
    ("server", "MB"),
    ("its core", "%"),
];

const SLOW: [(&str, &str); 9] = [
    ("slow clients", ""),
    ("kind", ""),
    ("cut", ""),
    ("first", "s"),
    ("median", "s"),
    ("last", "s"),
    ("never", ""),
    ("refused", ""),
    ("responses", "status × n"),
];

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

impl KindRow {
    fn cells(&self) -> Vec<String> {
        let seconds = |seconds: Option<f64>| match seconds {
            Some(seconds) => format!("{seconds:.1}"),
            None => "-".to_owned(),
        };
        let statuses: Vec<String> = self
            .statuses
            .iter()
            .map(|(status, count)| format!("{status} × {count}"))
            .collect();
        vec![
            self.cut.to_string(),
            seconds(self.after.map(|after| after.0)),
            seconds(self.after.map(|after| after.1)),
            seconds(self.after.map(|after| after.2)),
            self.never.to_string(),
            self.refused.to_string(),
            statuses.join(", "),
        ]
    }
}

impl Siege {
    /// Returns the number of slow clients that were never cut.
    pub fn never(&self) -> u64 {
        self.kinds.iter().map(|row| row.never).sum()
    }

    /// Longest time in seconds until a slow client was cut.
    pub fn latest(&self) -> f64 {
        let last = self.kinds.iter().filter_map(|row| row.after);
        last.map(|after| after.2).fold(0.0, f64::max)
    }

    /// Returns a summary in one line.
    pub(super) fn line(&self) -> String {
        let times = |latency: &Latency| match latency.is_empty() {
            true => "no good response".to_owned(),
            false => format!(
                "p99 {:.2} ms, longest {:.1} ms",
                latency.p99_us / 1000.0,
                latency.max_us / 1000.0
            ),
        };
        format!(
            "{}: {} (alone: {}), {} failed; {} never cut, last cut after {:.1} s",
            self.name,
            times(&self.under),
            times(&self.quiet),
            self.errors,
            self.never(),
            self.latest()
        )
    }
}
