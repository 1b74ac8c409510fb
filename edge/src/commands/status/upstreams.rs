//! Prints the servers of upstreams in `sluice status`: a table, and below the table the reasons of failures.

use std::fmt::Write;

use serde_json::Value;

use super::table::table;
use super::values::{items, number, text};
use crate::commands::output::harmless;
use crate::config::show_size;
use crate::telemetry::{Numbers, ServerNumbers};

const HEADING: [&str; 15] = [
    "upstream", "server", "state", "requests", "failed", "reused", "busy", "idle", "sent",
    "received", "connect", "tls", "header", "response", "rtt",
];
/// Line below the table that explains columns.
const LEGEND: &str = "times are p50/p99; sent and received include heads and health checks\n";
/// Number of text columns, which are aligned to the left. The other columns are numbers.
const TEXT_COLUMNS: usize = 3;
/// Most reasons of failures shown for a server, those with the most failures.
const REASONS_MAX: usize = 8;

/// Returns the table, or an empty text if there are no servers.
pub fn show(upstreams: &Value) -> String {
    let (mut rows, mut failures) = (Vec::new(), String::new());
    for (name, upstream) in upstreams.as_object().into_iter().flatten() {
        let name = harmless(name);
        let before = rows.len();
        for server in items(&upstream["servers"]) {
            let address = text(&server["address"]);
            failures += &reasons(&name, &address, &server["failures_by_reason"]);
            rows.push(row(&name, address, server));
        }
        if rows.len() > before + 1 {
            rows.push(row(&name, "all".to_owned(), &upstream["total"]));
        }
    }
    match rows.is_empty() {
        true => String::new(),
        false => table(&HEADING, |column| column < TEXT_COLUMNS, &rows) + LEGEND + &failures,
    }
}

fn row(upstream: &str, server: String, value: &Value) -> [String; 15] {
    let numbers = ServerNumbers::read(|name| number(value, name));
    let reused = match numbers.requests {
        0 => "-".to_owned(),
        all => format!("{}%", u128::from(numbers.reuses) * 100 / u128::from(all)),
    };
    let times = |name: &str| {
        let time = |percentile: &str| value[name][percentile].as_u64().map(show_us);
        match (time("p50_us"), time("p99_us")) {
            (Some(median), Some(most)) => format!("{median}/{most}"),
            _ => "-".to_owned(),
        }
    };
    let mut state = text(&value["state"]);
    if value["backup"].as_bool() == Some(true) {
        state += " (backup)";
    }
    [
        upstream.to_owned(),
        server,
        state,
        numbers.requests.to_string(),
        numbers.failures.to_string(),
        reused,
        numbers.busy.to_string(),
        numbers.idle.to_string(),
        show_size(numbers.bytes_out),
        show_size(numbers.bytes_in),
        times("connect_duration"),
        times("tls_handshake_duration"),
        times("header_duration"),
        times("response_duration"),
        times("tcp_rtt"),
    ]
}

/// Returns a line with the reasons of a server's failures, or an empty text without failures.
fn reasons(upstream: &str, server: &str, failures: &Value) -> String {
    let all = failures.as_object().into_iter().flatten();
    let mut all: Vec<(u64, String)> = all
        .map(|(reason, n)| (n.as_u64().unwrap_or(0), harmless(reason)))
        .collect();
    if all.is_empty() {
        return String::new();
    }
    all.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let more = all.len().saturating_sub(REASONS_MAX);
    let shown: Vec<String> = all
        .iter()
        .take(REASONS_MAX)
        .map(|(n, reason)| format!("{n} {reason}"))
        .collect();
    let mut line = format!("failures of {upstream} {server}: {}", shown.join(", "));
    if more > 0 {
        // Writing to a String can't fail.
        let _ = write!(line, " and {more} other reasons");
    }
    line + "\n"
}

/// Shows a duration briefly. The durations are estimates.
fn show_us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}µs"),
        1_000..1_000_000 => format!("{:.1}ms", us as f64 / 1e3),
        _ => format!("{:.1}s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_are_a_table() {
        let times = json!({ "p50_us": 180, "p95_us": 900, "p99_us": 2_300 });
        let upstreams = json!({
            "origin": {
                "servers": [
                    {
                        "address": "10.0.0.1:9000", "state": "ejected", "requests": 1234, "failures": 7, "reuses": 1200, "busy": 3, "idle": 4,
                        "bytes_out": 300_000, "bytes_in": 5_u64 << 30, "connect_duration": times, "tls_handshake_duration": times, "header_duration": times,
                        "response_duration": { "p50_us": 1_000_000, "p99_us": 2_000_000 }, "tcp_rtt": times,
                        "failures_by_reason": { "connect-failed": 2, "head-timeout": 5 }
                    },
                    { "address": "10.0.0.2:9000", "state": "up", "backup": true }
                ],
                "total": { "requests": 1234 }
            },
            "other": { "servers": [{ "address": "a.example:80\u{1b}", "requests": 1 }] }
        });
        insta::assert_snapshot!("upstreams", show(&upstreams));
    }

    #[test]
    fn hostile_values_do_no_harm() {
        assert_eq!(show(&json!(null)), "");
        assert_eq!(show(&json!({ "a": 1, "b": { "servers": 2 } })), "");
        let most = u64::MAX;
        let upstreams = json!({ "a": { "servers": [
            { "requests": 1, "reuses": most, "bytes_in": most, "tcp_rtt": { "p50_us": most, "p99_us": -1 },
              "failures_by_reason": { "\u{1b}[2J": "x" } }
        ] } });
        assert!(!show(&upstreams).contains('\u{1b}'));
    }
}
