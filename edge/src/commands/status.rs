//! `sluice status`: prints the state of a running Sluice as text or as JSON.

pub(super) mod table;
mod upstreams;
pub(super) mod values;
mod volumes;

use std::fmt::Write;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use serde_json::Value;

use super::admin::AdminArgs;
use super::certs;
use super::inspect::{self, KeyHeaders};
use super::output::{harmless, json, refused, say};
use values::{items, number, text};

use crate::config::{show_count, show_size, show_time};
use crate::telemetry::{
    self, BufferNumbers, CacheNumbers, CertificateTotals, CompressNumbers, FilesNumbers, Numbers,
    Unit, WorkerNumbers,
};

/// Most certificates with a warning that are shown. `sluice certs` shows all of them.
const WARNED_MAX: usize = 10;

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Show the stored bytes of this URL, like `sluice inspect URL`, but with exit status 0 if nothing is stored
    #[arg(long)]
    url: Option<String>,
    #[command(flatten)]
    headers: KeyHeaders,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &StatusArgs) -> anyhow::Result<()> {
    match &args.url {
        None => print(args),
        Some(url) => match inspect::print(&args.admin, url, &args.headers, args.json, false)? {
            None => Ok(()),
            Some(_) if args.json => Ok(()),
            Some(note) => say(&format!(
                "no cache has stored or is fetching this URL\n({})\n",
                harmless(&note)
            )),
        },
    }
}

fn print(args: &StatusArgs) -> anyhow::Result<()> {
    let reply = args.admin.request("GET", "/status")?;
    if reply.status != 200 {
        return Err(refused(&reply.text()));
    }
    let value: Value = serde_json::from_slice(&reply.body).context("the answer is not JSON")?;
    say(&match args.json {
        true => json(&value),
        false => show_status(&value),
    })
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn show_status(status: &Value) -> String {
    let mut out = format!(
        "sluice {}, process {}, up {}, {}, configuration {}\n",
        text(&status["version"]),
        number(status, "pid"),
        show_time(Duration::from_secs(number(status, "uptime_s"))),
        show_count(items(&status["workers"]).count() as u64, "worker"),
        number(&status["reload"], "generation"),
    );
    show_counters(&status["counters"], &mut out);
    show_rates(status, &mut out);
    show_durations(status, &mut out);
    for (name, cache) in entries(&status["caches"]) {
        let _ = writeln!(out, "{}", show_cache(name, cache));
    }
    out += &show_buffers(&status["buffers"]);
    if status["compress"].is_object() {
        let _ = writeln!(out, "{}", show_compress(&status["compress"]));
    }
    out += &volumes::show(&status["volumes"]);
    for files in items(&status["files"]) {
        let _ = writeln!(out, "{}", show_files(files));
    }
    out += &upstreams::show(&status["upstreams"]);
    out += &show_certificates(&status["certificates"]);
    let refused = number(status, "tls_files_refused");
    if refused > 0 {
        let _ = writeln!(
            out,
            "tls: {} can't be used, and the earlier contents stay in use (see the messages)",
            show_count(refused, "changed file")
        );
    }
    if let Some(error) = status["reload"]["last_error"].as_str() {
        out += "the last reload changed nothing:\n";
        for line in error.lines() {
            let _ = writeln!(out, "  {}", harmless(line));
        }
    }
    out
}

/// Writes one line for each group of counters: the group's name, then value and label of each
/// counter.
fn show_counters(counters: &Value, out: &mut String) {
    let numbers = WorkerNumbers::read(|name| number(counters, name));
    let mut lines: Vec<(&str, Vec<String>)> = Vec::new();
    for (metric, value) in telemetry::described(&numbers) {
        let Some((line, label)) = metric.summary else {
            continue;
        };
        let shown = match metric.unit {
            Unit::Bytes => format!("{} {label}", show_size(value)),
            _ => format!("{value} {label}"),
        };
        match lines.last_mut() {
            Some((last, members)) if *last == line => members.push(shown),
            _ => lines.push((line, vec![shown])),
        }
    }
    for (line, members) in lines {
        let _ = writeln!(out, "{line:12}{}", members.join(", "));
    }
}

/// Writes the hit ratios since the start, and a line about the last seconds.
fn show_rates(status: &Value, out: &mut String) {
    let counters = WorkerNumbers::read(|name| number(&status["counters"], name));
    let ratios = hit_ratios(counters.hit_ratio(), counters.byte_hit_ratio());
    let _ = writeln!(out, "{:12}{ratios}", "hit ratio");
    let recent = &status["recent"];
    let value = |name: &str| recent[name].as_f64();
    let rate = |name: &str| value(name).unwrap_or_default();
    if let Some(seconds) = value("seconds").filter(|seconds| *seconds > 0.0) {
        let _ = writeln!(
            out,
            "{:12}{:.1} requests/s, {}/s to clients, {}/s from origins; hit ratio {}",
            format!("last {seconds:.0} s"),
            rate("requests"),
            show_about(rate("client_bytes_out")),
            show_about(rate("upstream_bytes_in")),
            hit_ratios(value("hit_ratio"), value("byte_hit_ratio")),
        );
    }
}

/// Writes the percentiles of the request durations since the start and of the last seconds.
fn show_durations(status: &Value, out: &mut String) {
    let all = percentiles(&status["request_duration"]);
    let _ = write!(out, "{:12}{all}", "latency");
    let recent = &status["recent"];
    if let Some(seconds) = recent["seconds"].as_f64().filter(|seconds| *seconds > 0.0) {
        let durations = percentiles(&recent["request_duration"]);
        let _ = write!(out, "; last {seconds:.0} s: {durations}");
    }
    out.push('\n');
}

/// Shows estimated percentiles.
fn percentiles(durations: &Value) -> String {
    let shown =
        ["p50", "p95", "p99", "max"].map(|name| match durations[format!("{name}_us")].as_u64() {
            Some(us) if us < 1_000 => format!("{name} ~{us} µs"),
            Some(us) if us < 1_000_000 => format!("{name} ~{:.1} ms", us as f64 / 1e3),
            Some(us) => format!("{name} ~{:.1} s", us as f64 / 1e6),
            None => format!("{name} -"),
        });
    shown.join(", ")
}

fn hit_ratios(requests: Option<f64>, bytes: Option<f64>) -> String {
    let percent = |ratio: Option<f64>| match ratio {
        Some(ratio) => format!("{:.1}%", 100.0 * ratio),
        None => "-".to_owned(),
    };
    format!(
        "{} of requests, {} of bytes",
        percent(requests),
        percent(bytes)
    )
}

/// Shows a number of bytes with one decimal.
fn show_about(bytes: f64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.iter().find(|(power, _)| bytes >= 2f64.powi(*power));
    match unit {
        Some((power, name)) => format!("{:.1} {name}", bytes / 2f64.powi(*power)),
        None => format!("{bytes:.0} B"),
    }
}

fn show_cache(name: &str, cache: &Value) -> String {
    let cache = CacheNumbers::read(|name| number(cache, name));
    let mut line = format!(
        "cache {}: {}, {} of {} ({}%), {} pinned, {} in progress, {} evicted",
        harmless(name),
        show_count(cache.objects, "object"),
        show_size(cache.bytes),
        show_size(cache.limit),
        u128::from(cache.bytes) * 100 / u128::from(cache.limit.max(1)),
        show_size(cache.pinned),
        show_count(cache.flights, "flight"),
        cache.evicted,
    );
    let hits = cache.volume_hits;
    if hits > 0 {
        let bytes = show_size(cache.volume_bytes);
        let _ = write!(line, ", {hits} found on volumes ({bytes})");
    }
    line
}

/// Returns the line about buffers; empty if there were none.
fn show_buffers(buffers: &Value) -> String {
    let buffers = BufferNumbers::read(|name| number(buffers, name));
    let memory = format!(
        "{} of {}",
        show_size(buffers.bytes),
        show_size(buffers.limit)
    );
    match (buffers.bytes, buffers.disk_limit, buffers.spilled) {
        (0, 0, 0) => String::new(),
        (_, 0, 0) => format!("buffers: {memory}\n"),
        _ => format!(
            "buffers: {memory}, {} of {} on disk in {}, {} spilled, {} without room, {} failed, {} late\n",
            show_size(buffers.disk_bytes),
            show_size(buffers.disk_limit),
            show_count(buffers.files, "file"),
            buffers.spilled,
            buffers.disk_full,
            buffers.disk_errors,
            buffers.disk_timeouts,
        ),
    }
}

fn show_compress(compress: &Value) -> String {
    let compress = CompressNumbers::read(|name| number(compress, name));
    format!(
        "compression: {}, {} of {}, {} made ({} from {}), {} not worth it, {} failed, {} evicted",
        show_count(compress.contents, "content"),
        show_size(compress.bytes),
        show_size(compress.limit),
        compress.made,
        show_size(compress.made_bytes_out),
        show_size(compress.made_bytes_in),
        compress.not_worth,
        compress.failed,
        compress.evicted,
    )
}

fn show_files(files: &Value) -> String {
    let numbers = FilesNumbers::read(|name| number(files, name));
    format!(
        "files in {}: {} of {}, {} known, {} open",
        text(&files["root"]),
        show_size(numbers.bytes),
        show_size(numbers.limit),
        show_count(numbers.entries, "path"),
        numbers.open,
    )
}

/// Returns the line about certificates, and one for each of the first ones with a warning. Empty without certificates.
fn show_certificates(certificates: &Value) -> String {
    let totals = CertificateTotals::read(|name| number(certificates, name));
    if totals.configured == 0 {
        return String::new();
    }
    let mut out = format!(
        "certificates: {} of {} in use, {} with warnings, {} whose last attempt failed\n",
        totals.in_use, totals.configured, totals.warned, totals.failing,
    );
    let warned = items(&certificates["list"]).filter(|one| one["warning"].is_string());
    for one in warned.take(WARNED_MAX) {
        let _ = writeln!(
            out,
            "certificate for {}: {} (see `sluice certs`)",
            certs::names(one),
            text(&one["warning"])
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hostile_numbers_do_no_harm() {
        assert!(show_status(&json!({})).contains("0 workers"));
        let cache = json!({ "bytes": u64::MAX, "limit": 0 });
        assert!(show_cache("a", &cache).starts_with("cache a"));
    }

    #[test]
    fn certificates_are_counted_and_those_with_warnings_are_named() {
        assert_eq!(show_certificates(&json!({ "configured": 0 })), "");
        let warned =
            json!({ "names": ["a.example"], "warning": "this certificate\u{1b} has expired" });
        let shown = show_certificates(
            &json!({ "configured": 2, "in_use": 1, "warned": 1, "failing": 0,
            "list": [warned, { "names": ["b.example"], "warning": null }] }),
        );
        let expected = "certificates: 1 of 2 in use, 1 with warnings, 0 whose last attempt failed\n\
            certificate for a.example: this certificate\\u{1b} has expired (see `sluice certs`)\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn percentiles_of_request_durations_are_shown() {
        let status = json!({
            "request_duration": { "p50_us": 8, "p95_us": 1_500, "p99_us": 2_000_000, "max_us": 3_000_000 },
            "recent": { "seconds": 10.0, "request_duration": { "p50_us": null } },
        });
        let expected = "latency     p50 ~8 µs, p95 ~1.5 ms, p99 ~2.0 s, max ~3.0 s; last 10 s: p50 -, p95 -, p99 -, max -\n";
        let shown = show_status(&status);
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn hit_ratios_and_rates_are_shown() {
        let status = json!({
            "counters": { "cache_hits": 3, "cache_misses": 1, "cache_response_bytes": 100, "cache_hit_bytes": 50 },
            "recent": { "seconds": 10.0, "requests": 12.34, "client_bytes_out": 3_145_728.0,
                "upstream_bytes_in": 100.0, "hit_ratio": 1.0, "byte_hit_ratio": null },
        });
        let shown = show_status(&status);
        assert!(
            shown.contains("hit ratio   75.0% of requests, 50.0% of bytes\n"),
            "{shown}"
        );
        let recent = "last 10 s   12.3 requests/s, 3.0 MiB/s to clients, 100 B/s from origins; \
                      hit ratio 100.0% of requests, - of bytes\n";
        assert!(shown.contains(recent), "{shown}");
    }
}
