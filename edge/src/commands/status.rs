//! `sluice status`: what a running edge does, or what it has of a URL, for people or as JSON.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;
use sluice::config::{show_size, show_time};

use super::{AdminArgs, count, say};

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// Show which bytes of this http:// URL are stored and which are on their way
    #[arg(long)]
    url: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &StatusArgs) -> anyhow::Result<()> {
    let target = match &args.url {
        None => "/status".to_owned(),
        Some(url) => format!("/status?url={}", percent_encoded(url)),
    };
    let reply = args.admin.ask("GET", &target)?;
    if reply.status != 200 {
        bail!("{}", reply.text().trim_end());
    }
    let value: Value = serde_json::from_slice(&reply.body).context("the answer is not JSON")?;
    say(&match (args.json, &args.url) {
        (true, _) => format!("{value:#}\n"),
        (false, None) => show_status(&value),
        (false, Some(_)) => show_url(&value),
    })
}

/// Everything but unreserved characters (RFC 3986 2.3).
fn percent_encoded(text: &str) -> String {
    let mut out = String::new();
    for b in text.bytes() {
        match b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            true => out.push(char::from(b)),
            // Writing to a String can't fail, here and below.
            false => _ = write!(out, "%{b:02X}"),
        }
    }
    out
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}

/// Text that a server or a client chose, harmless on a terminal.
fn text(value: &Value) -> String {
    harmless(value.as_str().unwrap_or("-"))
}

fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
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
    format!(
        "cache {}: {}, {} of {} ({}%), {} pinned, {} in progress, {} evicted",
        harmless(name),
        count(number(cache, "objects"), "object"),
        show_size(bytes),
        show_size(limit),
        u128::from(bytes) * 100 / u128::from(limit.max(1)),
        show_size(number(cache, "pinned")),
        count(number(cache, "flights"), "flight"),
        number(cache, "evicted"),
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

fn show_url(caches: &Value) -> String {
    let mut out = String::new();
    for cache in items(caches) {
        for object in items(&cache["objects"]) {
            let _ = writeln!(out, "in cache {}", text(&cache["cache"]));
            out += &show_object(object);
        }
    }
    match out.is_empty() {
        true => "no cache has anything of it\n".to_owned(),
        false => out,
    }
}

fn show_object(object: &Value) -> String {
    let length = object["length"].as_u64();
    let size = length.map_or("length not known yet".to_owned(), show_size);
    let fresh = match object["fresh_for_s"].as_i64().unwrap_or(0) {
        s @ 1.. => format!(
            "fresh for {}",
            show_time(Duration::from_secs(s.unsigned_abs()))
        ),
        s => format!(
            "stale since {}",
            show_time(Duration::from_secs(s.unsigned_abs()))
        ),
    };
    let mut out = format!("  status {}, {size}, {fresh}", number(object, "status"));
    if object["etag"].is_string() {
        out += &format!(", etag {}", text(&object["etag"]));
    }
    if object["variant"].as_str().is_some_and(|v| !v.is_empty()) {
        out += &format!(", for {}", text(&object["variant"]));
    }
    let stored = number(object, "stored_bytes");
    out += &format!(
        "\n  stored     {} ({})\n",
        spans(&object["stored"]),
        show_size(stored)
    );
    out += &format!("  in flight  {}\n", spans(&object["in_flight"]));
    if let Some(length) = length.filter(|length| *length > 0) {
        out += &format!("  [{}]\n", bar(object, length));
    }
    out
}

/// Spans that are written out; further ones are counted.
const SPANS_SHOWN: usize = 8;

fn pairs(spans: &Value) -> impl Iterator<Item = (u64, u64)> {
    items(spans).map(|s| (number(s, "first"), number(s, "last")))
}

fn spans(value: &Value) -> String {
    let shown: Vec<String> = pairs(value)
        .take(SPANS_SHOWN)
        .map(|(a, b)| format!("{a}-{b}"))
        .collect();
    let all = items(value).count();
    match all {
        0 => "nothing".to_owned(),
        n if n > SPANS_SHOWN => format!("{} and {} more", shown.join(", "), n - SPANS_SHOWN),
        _ => shown.join(", "),
    }
}

/// Cells of the bar.
const CELLS: u64 = 64;

/// The object from its first to its last byte: `#` stored, `+` partly, `~` on its way, `.` missing.
fn bar(object: &Value, length: u64) -> String {
    let cell_at = |cell: u64| (u128::from(length) * u128::from(cell) / u128::from(CELLS)) as u64;
    let covered = |spans: &Value, from: u64, to: u64| -> u64 {
        let overlap = |(a, b): (u64, u64)| b.saturating_add(1).min(to).saturating_sub(a.max(from));
        pairs(spans).map(overlap).sum()
    };
    (0..CELLS)
        .map(|cell| (cell_at(cell), cell_at(cell + 1).max(cell_at(cell) + 1)))
        .map(|(from, to)| match covered(&object["stored"], from, to) {
            n if n >= to - from => '#',
            0 if covered(&object["in_flight"], from, to) > 0 => '~',
            0 => '.',
            _ => '+',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_url_is_drawn() {
        let object = json!({
            "status": 200, "length": 640, "etag": "\"a\u{1b}[2J\"", "variant": "", "fresh_for_s": 61,
            "stored": [{ "first": 0, "last": 319 }, { "first": 325, "last": 325 }],
            "in_flight": [{ "first": 320, "last": 399 }], "stored_bytes": 321,
        });
        assert_eq!(
            show_url(&json!([{ "cache": "video", "objects": [object] }])),
            format!(
                "in cache video\n  status 200, 640 B, fresh for 1m 1s, etag \"a?[2J\"\n  \
                 stored     0-319, 325-325 (321 B)\n  in flight  320-399\n  [{}+{}{}]\n",
                "#".repeat(32),
                "~".repeat(7),
                ".".repeat(24)
            )
        );
        assert_eq!(show_url(&json!([])), "no cache has anything of it\n");
    }

    #[test]
    fn hostile_numbers_do_no_harm() {
        let object = json!({
            "length": u64::MAX, "stored": [{ "first": u64::MAX, "last": 0 }, { "first": 0, "last": u64::MAX }],
            "fresh_for_s": i64::MIN,
        });
        assert!(show_object(&object).contains(&"#".repeat(64)));
        assert!(show_status(&json!({})).contains("0 workers"));
        let cache = json!({ "bytes": u64::MAX, "limit": 0 });
        assert!(show_cache("a", &cache).starts_with("cache a"));
    }

    #[test]
    fn a_url_survives_the_query() {
        assert_eq!(
            percent_encoded("http://a/x?y=1&z"),
            "http%3A%2F%2Fa%2Fx%3Fy%3D1%26z"
        );
    }
}
