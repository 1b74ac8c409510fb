//! `sluice status`: prints the state of a running Sluice as text or as JSON.

mod values;
mod volumes;

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;

use super::admin::AdminArgs;
use super::inspect;
use super::output::{count, harmless, json, say};
use values::{items, number, text};

use crate::config::{show_size, show_time};
use crate::telemetry::{
    self, CacheNumbers, CompressNumbers, FilesNumbers, Numbers, ServerNumbers, Unit, WorkerNumbers,
};

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Show the stored bytes of this URL, like `sluice inspect URL`, but with exit status 0 if nothing is stored
    #[arg(long)]
    url: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &StatusArgs) -> anyhow::Result<()> {
    match &args.url {
        None => print(args),
        Some(url) => match inspect::print(&args.admin, url, args.json, false)? || args.json {
            true => Ok(()),
            false => say("no cache has stored or is fetching this URL\n"),
        },
    }
}

fn print(args: &StatusArgs) -> anyhow::Result<()> {
    let reply = args.admin.request("GET", "/status")?;
    if reply.status != 200 {
        bail!("{}", harmless(reply.text().trim_end()));
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
        count(items(&status["workers"]).count() as u64, "worker"),
        number(&status["reload"], "generation"),
    );
    show_counters(&status["counters"], &mut out);
    for (name, cache) in entries(&status["caches"]) {
        let _ = writeln!(out, "{}", show_cache(name, cache));
    }
    if status["compress"].is_object() {
        let _ = writeln!(out, "{}", show_compress(&status["compress"]));
    }
    out += &volumes::show(&status["volumes"]);
    for files in items(&status["files"]) {
        let _ = writeln!(out, "{}", show_files(files));
    }
    for (name, upstream) in entries(&status["upstreams"]) {
        for server in items(&upstream["servers"]) {
            let _ = writeln!(out, "{}", show_server(name, server));
        }
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

fn show_cache(name: &str, cache: &Value) -> String {
    let cache = CacheNumbers::read(|name| number(cache, name));
    let mut line = format!(
        "cache {}: {}, {} of {} ({}%), {} pinned, {} in progress, {} evicted",
        harmless(name),
        count(cache.objects, "object"),
        show_size(cache.bytes),
        show_size(cache.limit),
        u128::from(cache.bytes) * 100 / u128::from(cache.limit.max(1)),
        show_size(cache.pinned),
        count(cache.flights, "flight"),
        cache.evicted,
    );
    let hits = cache.volume_hits;
    if hits > 0 {
        let bytes = show_size(cache.volume_bytes);
        let _ = write!(line, ", {hits} found on volumes ({bytes})");
    }
    line
}

fn show_compress(compress: &Value) -> String {
    let compress = CompressNumbers::read(|name| number(compress, name));
    format!(
        "compression: {}, {} of {}, {} made ({} from {}), {} not worth it, {} failed, {} evicted",
        count(compress.contents, "content"),
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
        count(numbers.entries, "path"),
        numbers.open,
    )
}

fn show_server(upstream: &str, server: &Value) -> String {
    let numbers = ServerNumbers::read(|name| number(server, name));
    format!(
        "upstream {}: {}: {}, {} failed; connections: {} busy, {} idle",
        harmless(upstream),
        text(&server["address"]),
        count(numbers.requests, "request"),
        numbers.failures,
        numbers.busy,
        numbers.idle,
    )
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
}
