//! The result of a load as JSON and as a table.

use std::fmt::Write as _;

use serde::Serialize;
use sluice_lab::load::{Latency, LoadResult};

use super::given::Given;
use super::replay::Log;
use crate::config::{show_count, show_size};

/// The result of a load.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of the program.
    pub version: &'static str,
    /// Time at which the load began, as in `2026-11-29T08:54:39Z`.
    pub date: String,
    /// The command that repeats the load.
    pub command: String,
    /// The options that were given.
    pub options: Given,
    /// The first requested URL.
    pub url: String,
    /// Number of further URLs.
    #[serde(skip)]
    pub other_urls: usize,
    pub connections: usize,
    /// Most concurrent streams on each connection, if the load uses HTTP/2.
    pub streams: Option<usize>,
    pub threads: usize,
    pub requests_per_s: f64,
    pub connections_per_s: f64,
    pub bytes_per_s: f64,
    /// The log that was repeated.
    pub log: Option<Log>,
    /// Whether a signal ended the load early.
    pub is_interrupted: bool,
    pub server: Option<Server>,
    #[serde(flatten)]
    pub result: LoadResult,
}

/// CPU time and memory of the server process during the load.
#[derive(Debug, Serialize)]
pub struct Server {
    pub pid: u32,
    pub cpu_seconds: f64,
    /// CPU time per complete response, good or not; `None` without responses.
    pub cpu_us_per_request: Option<f64>,
    pub memory_max_bytes: u64,
}

impl Report {
    /// Whether no request has succeeded, although the load had its time.
    pub fn has_failed(&self) -> bool {
        let result = &self.result;
        let without_end = result.unfinished + result.unsent;
        let failed = result.errors.total() > 0 || (without_end > 0 && !self.is_interrupted);
        result.requests == 0 && failed
    }

    /// Returns the line above the table.
    pub fn title(&self) -> String {
        let streams = self.streams.map(|count| count as u64);
        let streams = streams.map(|count| format!(" with {} each", show_count(count, "stream")));
        let others = match self.other_urls {
            0 => String::new(),
            count => format!(" and {}", show_count(count as u64, "other URL")),
        };
        let mode = match self.options.mode() {
            mode if mode.is_empty() => mode,
            mode => format!(", {mode}"),
        };
        format!(
            "{}{others}: {}{}, {}{mode}, {:.2} s{}",
            self.url,
            show_count(self.connections as u64, "connection"),
            streams.unwrap_or_default(),
            show_count(self.threads as u64, "thread"),
            self.result.seconds,
            if self.is_interrupted {
                ", interrupted"
            } else {
                ""
            },
        )
    }

    /// Returns the rows that say which load it was, and when it ran.
    pub fn origin(&self) -> [(&'static str, String); 3] {
        [
            ("command", self.command.clone()),
            ("date", self.date.clone()),
            ("version", format!("Sluice {}", self.version)),
        ]
    }

    /// Renders the report as text.
    pub fn render(&self) -> String {
        let mut text = format!("{}\n\n", self.title());
        for (name, value) in self.rows() {
            // Writing to a String can't fail.
            let _ = writeln!(text, "{name:<14}{value}");
        }
        text
    }

    /// Returns the names and values of the table.
    pub fn rows(&self) -> Vec<(&'static str, String)> {
        let result = &self.result;
        let speed = show_size(self.bytes_per_s as u64);
        let mut rows = vec![
            (
                "requests",
                format!("{} ({:.1}/s)", result.requests, self.requests_per_s),
            ),
            (
                "connections",
                format!("{} ({:.1}/s)", result.connects, self.connections_per_s),
            ),
            (
                "body bytes",
                format!("{} ({speed}/s)", show_size(result.bytes)),
            ),
            ("errors", self.result.errors.to_string()),
        ];
        rows.extend(self.exceptions());
        let statuses = result.statuses.iter();
        let statuses: Vec<String> = statuses
            .map(|(status, n)| format!("{status}: {n}"))
            .collect();
        if !statuses.is_empty() {
            rows.push(("statuses", statuses.join(", ")));
        }
        if result.requests > 0 {
            rows.push(("latency", latency(&result.latency)));
            rows.push(("", percentiles(&result.latency)));
        }
        if !result.connect.is_empty() {
            rows.push(("connect", latency(&result.connect)));
        }
        if let Some(after) = result.saturated_seconds {
            let value = match result.saturated_rate {
                Some(rate) => format!("after {after:.2} s, above {rate:.0} requests/s"),
                None => "from the beginning".to_owned(),
            };
            rows.push(("saturated", value));
        }
        let log = self.log.as_ref().map(Log::describe);
        if let Some(log) = log.filter(|log| !log.is_empty()) {
            rows.push(("log", log));
        }
        if let Some(own) = us_per_response(result.cpu_seconds, result) {
            rows.push(("client CPU", format!("{own:.1} µs per response")));
        }
        if let Some(server) = &self.server {
            let per = server.cpu_us_per_request;
            let per = per.map(|us| format!("{us:.1} µs CPU per response, "));
            let memory = show_size(server.memory_max_bytes);
            let value = format!("{}up to {memory} resident", per.unwrap_or_default());
            rows.push(("server", value));
        }
        rows
    }

    /// Returns the rows of what happens in few loads only.
    fn exceptions(&self) -> Vec<(&'static str, String)> {
        let result = &self.result;
        let mut rows = Vec::new();
        if let Some(error) = &result.first_connect_error {
            rows.push(("connect error", error.text.clone()));
        }
        if result.late > 0 {
            let size = show_size(result.late_bytes);
            let value = format!(
                "{} after the end, {size}",
                show_count(result.late, "response")
            );
            rows.push(("late", value));
        }
        for (name, count) in [
            ("unfinished", result.unfinished),
            ("unsent", result.unsent),
            ("sent again", result.sent_again),
        ] {
            if count > 0 {
                rows.push((name, show_count(count, "request")));
            }
        }
        rows
    }
}

fn latency(latency: &Latency) -> String {
    format!(
        "min {}, mean {}, max {}, deviation {}",
        show(latency.min_us),
        show(latency.mean_us),
        show(latency.max_us),
        show(latency.deviation_us)
    )
}

fn percentiles(latency: &Latency) -> String {
    format!(
        "p50 {}, p90 {}, p95 {}, p99 {}, p99.9 {}, p99.99 {}",
        show(latency.p50_us),
        show(latency.p90_us),
        show(latency.p95_us),
        show(latency.p99_us),
        show(latency.p999_us),
        show(latency.p9999_us)
    )
}

/// Returns the microseconds of CPU time per complete response, good or not; `None` without responses.
pub fn us_per_response(cpu_seconds: f64, result: &LoadResult) -> Option<f64> {
    let errors = &result.errors;
    let complete = result.requests + errors.status + errors.range + errors.length + errors.content;
    (complete > 0).then(|| 1e6 * cpu_seconds / complete as f64)
}

/// Formats a time in microseconds.
pub fn show(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.0}µs"),
        us if us < 1_000_000.0 => format!("{:.2}ms", us / 1e3),
        us => format!("{:.2}s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(result: LoadResult) -> Report {
        Report {
            version: "1",
            date: String::new(),
            command: String::new(),
            options: Given::default(),
            url: "http://a/".to_owned(),
            other_urls: 0,
            connections: 1,
            streams: None,
            threads: 1,
            requests_per_s: result.rate(),
            connections_per_s: 0.0,
            bytes_per_s: 0.0,
            log: None,
            is_interrupted: false,
            server: None,
            result,
        }
    }

    #[test]
    fn exceptions_have_rows_of_their_own() {
        let text = report(LoadResult::default()).render();
        for name in [
            "late",
            "unfinished",
            "unsent",
            "sent again",
            "connect error",
        ] {
            assert!(!text.contains(name), "{text}");
        }
        let text = report(LoadResult {
            requests: 12,
            seconds: 2.0,
            late: 2,
            late_bytes: 2048,
            unfinished: 3,
            unsent: 1,
            sent_again: 5,
            ..LoadResult::default()
        })
        .render();
        for line in [
            "requests      12 (5.0/s)",
            "late          2 responses after the end, 2 KiB",
            "unfinished    3 requests",
            "unsent        1 request",
            "sent again    5 requests",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line} in {text}");
        }
    }

    #[test]
    fn a_load_without_any_response_has_failed_unless_it_was_interrupted() {
        let mut none = report(LoadResult {
            unfinished: 3,
            ..LoadResult::default()
        });
        assert!(none.has_failed());
        none.is_interrupted = true;
        assert!(!none.has_failed());
        none.result.errors.timeout = 1;
        assert!(none.has_failed());
        none.result.requests = 1;
        assert!(!none.has_failed());
    }

    #[test]
    fn cpu_time_is_divided_by_all_complete_responses() {
        let mut result = LoadResult {
            cpu_seconds: 1.0,
            ..LoadResult::default()
        };
        result.errors.timeout = 5;
        let mut none = report(result.clone());
        none.server = Some(Server {
            pid: 1,
            cpu_seconds: 1.0,
            cpu_us_per_request: us_per_response(1.0, &result),
            memory_max_bytes: 2048,
        });
        let text = none.render();
        assert!(!text.contains("client CPU"), "{text}");
        assert!(
            text.contains("\nserver        up to 2 KiB resident\n"),
            "{text}"
        );
        result.requests = 2;
        result.errors.status = 6;
        let text = report(result).render();
        let line = "\nclient CPU    125000.0 µs per response\n";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn saturation_is_shown_with_the_rate_that_the_server_could_take() {
        for (rate, shown) in [
            (Some(499.6), "after 2.50 s, above 500 requests/s"),
            (None, "from the beginning"),
        ] {
            let text = report(LoadResult {
                saturated_seconds: Some(2.5),
                saturated_rate: rate,
                ..LoadResult::default()
            })
            .render();
            assert!(
                text.contains(&format!("\nsaturated     {shown}\n")),
                "{text}"
            );
        }
    }

    #[test]
    fn times_have_three_units() {
        assert_eq!(show(12.4), "12µs");
        assert_eq!(show(12_340.0), "12.34ms");
        assert_eq!(show(3_456_789.0), "3.46s");
    }
}
