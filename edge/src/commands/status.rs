//! `sluice status`: prints the state of a running Sluice as text or as JSON.

mod volumes;

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use sluice::config::{show_size, show_time};

use super::{AdminArgs, count, harmless, inspect, json, say};

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
        None => tell(args),
        Some(url) => match inspect::tell(&args.admin, url, args.json, false)? || args.json {
            true => Ok(()),
            false => say("no cache has stored or is fetching this URL\n"),
        },
    }
}

fn tell(args: &StatusArgs) -> anyhow::Result<()> {
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

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// Text that a server or a client chose, harmless on a terminal.
fn text(value: &Value) -> String {
    harmless(value.as_str().unwrap_or("-"))
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
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

/// One line for each group of counters: its name, then number and meaning of each.
fn show_counters(counters: &Value, out: &mut String) {
    const GROUPS: &[(&str, &[(&str, &str)])] = &[
        (
            "connections",
            &[
                ("connections_now", "open"),
                ("connections_accepted", "accepted"),
                ("connections_refused", "refused"),
            ],
        ),
        (
            "requests",
            &[
                ("requests", "in all"),
                ("requests_now", "being answered"),
                ("requests_refused", "refused"),
            ],
        ),
        (
            "responses",
            &[
                ("responses_2xx", "2xx"),
                ("responses_3xx", "3xx"),
                ("responses_4xx", "4xx"),
                ("responses_5xx", "5xx"),
                ("responses_cut", "cut short"),
            ],
        ),
        (
            "cache",
            &[
                ("cache_hits", "hits"),
                ("cache_misses", "misses"),
                ("cache_collapsed", "rode another's fetch"),
                ("cache_passes", "passed by"),
            ],
        ),
        (
            "bytes",
            &[
                ("client_bytes_out", "to clients"),
                ("upstream_bytes_in", "from origins"),
            ],
        ),
    ];
    for (group, members) in GROUPS {
        let shown: Vec<String> = members
            .iter()
            .map(|(key, meaning)| match *group {
                "bytes" => format!("{} {meaning}", show_size(number(counters, key))),
                _ => format!("{} {meaning}", number(counters, key)),
            })
            .collect();
        let _ = writeln!(out, "{group:12}{}", shown.join(", "));
    }
}

fn show_cache(name: &str, cache: &Value) -> String {
    let (bytes, limit) = (number(cache, "bytes"), number(cache, "limit"));
    let mut line = format!(
        "cache {}: {}, {} of {} ({}%), {} pinned, {} in progress, {} evicted",
        harmless(name),
        count(number(cache, "objects"), "object"),
        show_size(bytes),
        show_size(limit),
        u128::from(bytes) * 100 / u128::from(limit.max(1)),
        show_size(number(cache, "pinned")),
        count(number(cache, "flights"), "flight"),
        number(cache, "evicted"),
    );
    let hits = number(cache, "volume_hits");
    if hits > 0 {
        let bytes = show_size(number(cache, "volume_bytes"));
        let _ = write!(line, ", {hits} found on volumes ({bytes})");
    }
    line
}

/// Content in codings that were made here.
fn show_compress(compress: &Value) -> String {
    format!(
        "compression: {}, {} of {}, {} made ({} from {}), {} not worth it, {} failed, {} evicted",
        count(number(compress, "contents"), "content"),
        show_size(number(compress, "bytes")),
        show_size(number(compress, "limit")),
        number(compress, "made"),
        show_size(number(compress, "made_bytes_out")),
        show_size(number(compress, "made_bytes_in")),
        number(compress, "not_worth"),
        number(compress, "failed"),
        number(compress, "evicted"),
    )
}

fn show_files(files: &Value) -> String {
    format!(
        "files in {}: {} of {}, {} known, {} open",
        text(&files["root"]),
        show_size(number(files, "bytes")),
        show_size(number(files, "limit")),
        count(number(files, "entries"), "path"),
        number(files, "open"),
    )
}

fn show_server(upstream: &str, server: &Value) -> String {
    format!(
        "upstream {}: {}: {}, {} failed; connections: {} busy, {} idle",
        harmless(upstream),
        text(&server["address"]),
        count(number(server, "requests"), "request"),
        number(server, "failures"),
        number(server, "busy"),
        number(server, "idle"),
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
