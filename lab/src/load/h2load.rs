//! A load of HTTP/2 by `h2load` (of nghttp2), whose framing costs so little that the server is the limit.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;

use super::{Latency, LoadResult};
use crate::process::{Launch, children_cpu};

/// Time that a load may take beyond its duration, or in all if it has a number of requests.
const PATIENCE: Duration = Duration::from_secs(300);

/// Definition of a load of HTTP/2: a closed loop, or requests at a rate.
#[derive(Debug, Clone)]
pub struct H2Load {
    /// Address of the server.
    pub target: SocketAddr,
    /// Whether the connections have TLS. The server's certificate is not verified.
    pub tls: bool,
    /// The request target.
    pub path: String,
    /// Number of connections.
    pub connections: usize,
    /// Most concurrent streams on each connection.
    pub streams: usize,
    /// Seconds after which the load ends; `None`: after `requests`.
    pub seconds: Option<f64>,
    /// Number of requests after which the load ends, unless `seconds` is set.
    pub requests: u64,
    /// Requests per second on each connection; `None`: closed loop.
    pub rate: Option<f64>,
    /// File that each request uploads with POST; `None`: GET.
    pub upload: Option<PathBuf>,
    /// CPU core to which h2load is pinned.
    pub core: Option<usize>,
}

impl H2Load {
    /// Creates a load of one stream on one connection in clear text, with one request.
    pub fn new(target: SocketAddr, path: &str) -> H2Load {
        H2Load {
            target,
            tls: false,
            path: path.to_owned(),
            connections: 1,
            streams: 1,
            seconds: None,
            requests: 1,
            rate: None,
            upload: None,
            core: None,
        }
    }

    /// Runs the load. Files with its output are in `folder`.
    ///
    /// Errors: h2load is missing or fails, or the server does not speak HTTP/2.
    pub fn run(&self, folder: &Path) -> anyhow::Result<H2Result> {
        let folder = tempfile::Builder::new()
            .prefix("h2load-")
            .tempdir_in(folder)?;
        let log = folder.path().join("log");
        let cpu = children_cpu();
        let mut process = Launch::new("h2load", "h2load", folder.path())
            .args(self.arguments(&log))
            .core(self.core)
            .start()
            .context("on Debian: apt-get install nghttp2-client")?;
        let longest = Duration::from_secs_f64(self.seconds.unwrap_or(0.0)) + PATIENCE;
        let status = process.wait_exit(longest)?;
        let printed = process.stdout();
        anyhow::ensure!(
            status.success(),
            "h2load failed ({status}): {printed}{}",
            process.stderr()
        );
        let mut result = parse(&printed).with_context(|| printed.clone())?;
        let protocol = if self.tls { "h2" } else { "h2c" };
        let expected = format!("Application protocol: {protocol}\n");
        anyhow::ensure!(printed.contains(&expected), "no HTTP/2: {printed}");
        if let Some(seconds) = self.seconds {
            result.seconds = seconds;
        }
        result.cpu_seconds = children_cpu().saturating_sub(cpu).as_secs_f64();
        result.responses = parse_log(&std::fs::read_to_string(&log).unwrap_or_default());
        Ok(result)
    }

    fn arguments(&self, log: &Path) -> Vec<String> {
        let scheme = if self.tls { "https" } else { "http" };
        let mut arguments = vec![
            format!("--clients={}", self.connections),
            format!("--max-concurrent-streams={}", self.streams),
            "--npn-list=h2".to_owned(),
            // The only group that all servers know, also those with an old OpenSSL.
            "--groups=X25519".to_owned(),
        ];
        match self.seconds {
            Some(seconds) => arguments.push(format!("--duration={:.0}ms", seconds * 1000.0)),
            None => arguments.push(format!("--requests={}", self.requests)),
        }
        if let Some(rate) = self.rate {
            arguments.push(format!("--rps={rate}"));
            // In a closed loop, the log would cost CPU time, and its latencies say little.
            arguments.push(format!("--log-file={}", log.display()));
        }
        if let Some(upload) = &self.upload {
            arguments.push(format!("--data={}", upload.display()));
        }
        arguments.push(format!("{scheme}://{}{}", self.target, self.path));
        arguments
    }
}

/// Result of a load by h2load.
#[derive(Debug, Clone, Default)]
pub struct H2Result {
    /// Number of responses with a status of 2xx.
    pub requests: u64,
    /// Number of requests that failed, and of responses with another status.
    pub failed: u64,
    /// Number of bytes of content.
    pub bytes: u64,
    /// Seconds that the load took.
    pub seconds: f64,
    /// CPU time in seconds that h2load used.
    pub cpu_seconds: f64,
    /// The responses in the order of their ends, if the load had a rate.
    pub responses: Vec<Response>,
}

/// A response in h2load's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// Start of the request in microseconds since 1970.
    pub began_us: u64,
    /// Microseconds from the start of the request to the end of the response.
    pub took_us: u64,
}

impl H2Result {
    /// Returns the result in the form that the lab's own load generator gives. Latencies are missing.
    pub fn into_load_result(self) -> LoadResult {
        LoadResult {
            requests: self.requests,
            bytes: self.bytes,
            seconds: self.seconds,
            cpu_seconds: self.cpu_seconds,
            latency: Latency::default(),
            ..LoadResult::default()
        }
    }
}

fn parse(printed: &str) -> Option<H2Result> {
    let line = |name: &str| printed.lines().find_map(|line| line.strip_prefix(name));
    // finished in 3.00s, 50.67 req/s, 259.73KB/s
    let took = line("finished in ")?.split(',').next()?;
    // requests: 152 total, 152 started, 152 done, 152 succeeded, 0 failed, 0 errored, 0 timeout
    let requests = line("requests: ")?;
    let count = |text: &str, what: &str| -> Option<u64> {
        let mut parts = text.split(", ");
        parts.find_map(|part| part.trim().strip_suffix(what)?.trim().parse().ok())
    };
    // status codes: 152 2xx, 0 3xx, 0 4xx, 0 5xx
    let statuses = line("status codes: ")?;
    let good = count(statuses, "2xx")?;
    let others = count(statuses, "3xx")? + count(statuses, "4xx")? + count(statuses, "5xx")?;
    // traffic: 779.19KB (797892) total, 16.33KB (16720) headers (space savings 38.89%), 760.00KB (778240) data
    let data = line("traffic: ")?.rsplit_once('(')?.1;
    Some(H2Result {
        requests: good.min(count(requests, "succeeded")?),
        failed: count(requests, "failed")?.max(others),
        bytes: data.split_once(')')?.0.parse().ok()?,
        seconds: seconds(took)?,
        ..H2Result::default()
    })
}

/// Returns the seconds of a duration such as `3.00s` or `81us`.
fn seconds(text: &str) -> Option<f64> {
    // Durations from a minute on have minutes, such as `1m02s`.
    if let Some((minutes, rest)) = text.split_once('m')
        && rest != "s"
    {
        return Some(minutes.parse::<f64>().ok()? * 60.0 + seconds(rest)?);
    }
    for (unit, factor) in [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)] {
        if let Some(number) = text.strip_suffix(unit) {
            return Some(number.parse::<f64>().ok()? * factor);
        }
    }
    None
}

/// Returns the responses of a log: lines of start, status and duration. Failed requests have no status of 2xx.
fn parse_log(log: &str) -> Vec<Response> {
    let parse = |line: &str| {
        let mut columns = line.split('\t');
        let began_us = columns.next()?.parse().ok()?;
        let status: i32 = columns.next()?.parse().ok()?;
        let took_us = columns.next()?.parse().ok()?;
        let good = (200..300).contains(&status);
        good.then_some(Response { began_us, took_us })
    };
    log.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
Application protocol: h2c
finished in 3.00s, 50.67 req/s, 259.73KB/s
requests: 152 total, 152 started, 152 done, 150 succeeded, 2 failed, 2 errored, 0 timeout
status codes: 150 2xx, 0 3xx, 1 4xx, 1 5xx
traffic: 779.19KB (797892) total, 16.33KB (16720) headers (space savings 38.89%), 760.00KB (778240) data
                     min         max         mean         sd        +/- sd
";

    #[test]
    fn the_output_is_parsed() {
        let result = parse(PRINTED).expect("all lines are there");
        assert_eq!((result.requests, result.failed), (150, 2));
        assert_eq!(result.bytes, 778_240);
        assert_eq!(result.seconds, 3.0);
        assert!(parse("finished in 3.00s").is_none());
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(seconds("1.5s"), Some(1.5));
        assert_eq!(seconds("250ms"), Some(0.25));
        assert_eq!(seconds("1m02s"), Some(62.0));
        assert_eq!(seconds("x"), None);
    }

    #[test]
    fn the_log_is_parsed() {
        let log =
            "1795718567157420\t200\t147\n1795718567157421\t-1\t9\n1795718567157430\t200\t249\n";
        let took: Vec<_> = parse_log(log).iter().map(|one| one.took_us).collect();
        assert_eq!(took, [147, 249]);
    }
}
