//! Result of the experiment: all measurements, and their table.

use serde::{Deserialize, Serialize};

use super::case::Load;
use super::series::{Percentiles, Series, Window};
use super::sockets::SocketSample;
use super::{BODY, LinkUsed, Options};
use crate::bench::{median, plain};
use crate::configurations::Configurations;

/// The article's figures: requests per minute to a loaded server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Article {
    /// With a connection for each request.
    pub close_per_minute: f64,
    /// With connections that are reused.
    pub keepalive_per_minute: f64,
}

const ARTICLE: Article = Article {
    close_per_minute: 370.0,
    keepalive_per_minute: 1731.0,
};

/// Result of the experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The emulated link.
    pub link: LinkUsed,
    /// Number of the proxy's clients.
    pub clients: usize,
    /// Length in bytes of each response's body.
    pub body: u64,
    /// Number of rounds.
    pub rounds: usize,
    /// Name and version of the rival, if one was measured.
    pub rival: Option<String>,
    /// Figures of the article.
    pub article: Article,
    /// All measurements, in their order.
    pub measurements: Vec<Measurement>,
    /// Configurations of the proxies.
    pub configurations: Configurations,
    /// Remarks.
    pub notes: Vec<String>,
}

/// Measurement of one proxy with one combination of settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Name of the proxy.
    pub proxy: String,
    /// Name of the combination: A to E, or that of a loaded server.
    pub case: String,
    /// Load of the server.
    pub load: Load,
    /// Whether the proxy keeps idle connections to the server.
    pub upstream_keepalive: bool,
    /// Whether the proxy's requests have `Connection: close`.
    pub close_requests: bool,
    /// Whether the server keeps connections open after a response.
    pub server_keeps: bool,
    /// Number of good responses.
    pub requests: u64,
    /// Number of failed requests.
    pub errors: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Number of connections that the proxy opened and used.
    pub opened: u64,
    /// Number of requests on connections that had carried earlier ones.
    pub reused: u64,
    /// The six series, over the whole measurement.
    pub series: Series,
    /// The six series over time.
    pub windows: Vec<Window>,
    /// Connections at the proxy's end of the link; none over the fallback.
    pub near: Vec<SocketSample>,
    /// Connections at the server's end of the link; none over the fallback.
    pub far: Vec<SocketSample>,
    /// The first connections between proxy and server.
    pub connections: Vec<Connection>,
}

/// A connection between proxy and server. Times are in seconds from the start of the measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connection {
    /// Number of the connection, from 1.
    pub number: u64,
    /// Time at which the server accepted the connection.
    pub begin: f64,
    /// Time at which the server saw its end; `None` if it was open at the end.
    pub end: Option<f64>,
    /// Begin and end of each request, as the server saw them.
    pub requests: Vec<(f64, Option<f64>)>,
}

impl Measurement {
    /// Returns the number of good responses per minute.
    pub fn per_minute(&self) -> f64 {
        self.requests as f64 * 60.0 / self.seconds.max(1e-9)
    }

    fn settings(&self) -> [&'static str; 3] {
        let word = |kept: bool| if kept { "kept" } else { "closed" };
        [
            if self.upstream_keepalive { "yes" } else { "no" },
            word(!self.close_requests),
            word(self.server_keeps),
        ]
    }
}

const TITLES: [(&str, &str); 15] = [
    ("", ""),
    ("", ""),
    ("keepalive", "in proxy"),
    ("request", ""),
    ("server", ""),
    ("requests", "/min"),
    ("opened", ""),
    ("reused", ""),
    ("TIME_WAIT", "near/far"),
    ("connect", "p50 ms"),
    ("", "p95"),
    ("", "max"),
    ("header", "p50 ms"),
    ("response", "p50 ms"),
    ("request", "p95 ms"),
];

impl Report {
    pub(super) fn new(options: &Options, rival: Option<String>) -> Report {
        Report {
            link: LinkUsed {
                profile: options.profile.to_string(),
                fallback: options.relay,
                congestion_control: None,
            },
            clients: options.clients,
            body: BODY,
            rounds: options.rounds,
            rival,
            article: ARTICLE,
            measurements: Vec::new(),
            configurations: Configurations::default(),
            notes: match options.relay {
                true => vec![
                    "fallback: a relay in this process delays bytes of TCP; its times are less exact, and it shows neither \
                     TIME_WAIT nor congestion windows"
                        .to_owned(),
                ],
                false => Vec::new(),
            },
        }
    }

    /// Returns the measurements of a proxy with a combination of settings.
    pub fn of<'a>(
        &'a self,
        proxy: &'a str,
        case: &'a str,
    ) -> impl Iterator<Item = &'a Measurement> {
        let all = self.measurements.iter();
        all.filter(move |one| one.proxy == proxy && one.case == case)
    }

    /// Returns the median of the requests per minute over the rounds.
    pub fn per_minute(&self, proxy: &str, case: &str) -> Option<f64> {
        median(self.of(proxy, case).map(Measurement::per_minute).collect())
    }

    /// Returns the names of the measured proxies, in their order.
    pub fn proxies(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for one in &self.measurements {
            if !names.contains(&&*one.proxy) {
                names.push(&one.proxy);
            }
        }
        names
    }

    /// Returns how many times as many requests a proxy served with the second combination as with the first.
    pub fn factor(&self, proxy: &str, from: &str, to: &str) -> Option<f64> {
        Some(self.per_minute(proxy, to)? / self.per_minute(proxy, from)?.max(1e-9))
    }

    /// Renders the table, the factors and the notes.
    pub fn render(&self) -> String {
        let mut text = format!(
            "{} clients, bodies of {} KiB, link: {}, congestion control: {}\n\n",
            self.clients,
            self.body >> 10,
            self.link.profile,
            self.link.congestion_control.as_deref().unwrap_or("unknown")
        );
        let rows: Vec<Vec<String>> = self.measurements.iter().map(cells).collect();
        text.push_str(&plain(&TITLES, &rows));
        text.push('\n');
        for proxy in self.proxies() {
            if let Some(line) = self.factors(proxy) {
                text.push_str(&line);
            }
        }
        let Article {
            close_per_minute: close,
            keepalive_per_minute: keepalive,
        } = self.article;
        text.push_str(&format!(
            "The article: {close:.0} and {keepalive:.0} requests/min with a loaded server, {:.1} times as many\n",
            keepalive / close
        ));
        for note in &self.notes {
            text.push_str(&format!("{note}\n"));
        }
        text
    }

    fn factors(&self, proxy: &str) -> Option<String> {
        let idle = self.factor(proxy, "A", "E")?;
        let loaded = self.factor(proxy, "loaded, close", "loaded, keepalive")?;
        Some(format!(
            "{proxy}: reused connections serve {idle:.1} times as many requests with an idle server, {loaded:.1} times as \
             many with a loaded one\n"
        ))
    }
}

fn cells(one: &Measurement) -> Vec<String> {
    let time = |series: Option<Percentiles>, pick: fn(Percentiles) -> f64| {
        series.map_or_else(|| "-".to_owned(), |series| format!("{:.0}", pick(series)))
    };
    let most = |samples: &[SocketSample]| samples.iter().map(|sample| sample.time_wait).max();
    let time_wait = match (most(&one.near), most(&one.far)) {
        (Some(near), Some(far)) => format!("{near}/{far}"),
        _ => "-".to_owned(),
    };
    let Series {
        connect_ms,
        header_ms,
        response_ms,
        request_ms,
        ..
    } = one.series;
    let mut cells = vec![one.case.clone(), one.proxy.clone()];
    cells.extend(one.settings().map(str::to_owned));
    cells.extend([
        format!("{:.0}", one.per_minute()),
        one.opened.to_string(),
        one.reused.to_string(),
        time_wait,
        time(connect_ms, |times| times.p50),
        time(connect_ms, |times| times.p95),
        time(connect_ms, |times| times.max),
        time(header_ms, |times| times.p50),
        time(response_ms, |times| times.p50),
        time(request_ms, |times| times.p95),
    ]);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(proxy: &str, case: &str, requests: u64) -> Measurement {
        Measurement {
            proxy: proxy.to_owned(),
            case: case.to_owned(),
            load: Load::Idle,
            upstream_keepalive: false,
            close_requests: true,
            server_keeps: false,
            requests,
            errors: 0,
            seconds: 60.0,
            opened: requests,
            reused: 0,
            series: Series::default(),
            windows: Vec::new(),
            near: Vec::new(),
            far: Vec::new(),
            connections: Vec::new(),
        }
    }

    fn report(measurements: Vec<Measurement>) -> Report {
        Report {
            link: LinkUsed {
                profile: "delay=80ms".to_owned(),
                fallback: false,
                congestion_control: Some("cubic".to_owned()),
            },
            clients: 5,
            body: BODY,
            rounds: 1,
            rival: None,
            article: ARTICLE,
            measurements,
            configurations: Configurations::default(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn factors_compare_medians() {
        let report = report(vec![
            measurement("Sluice", "A", 100),
            measurement("Sluice", "A", 120),
            measurement("Sluice", "A", 900),
            measurement("Sluice", "E", 360),
        ]);
        assert_eq!(report.factor("Sluice", "A", "E"), Some(3.0));
        assert_eq!(report.factor("nginx", "A", "E"), None);
        assert_eq!(report.proxies(), ["Sluice"]);
    }

    #[test]
    fn the_table_has_a_row_for_each_measurement_and_the_articles_factor() {
        let report = report(vec![measurement("Sluice", "A", 100)]);
        let table = report.render();
        let row: Vec<&str> = table
            .lines()
            .nth(5)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        assert_eq!(
            row[..8],
            ["A", "Sluice", "no", "closed", "closed", "100", "100", "0"]
        );
        assert!(table.contains("4.7 times as many"), "{table}");
    }

    #[test]
    fn the_report_survives_json() {
        let report = report(vec![measurement("Sluice", "A", 100)]);
        let text = serde_json::to_string(&report).expect("JSON");
        let read: Report = serde_json::from_str(&text).expect("a report");
        assert_eq!(read, report);
    }
}
