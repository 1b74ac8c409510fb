//! The facts about the traffic above the tables of `sluice top`, and its texts.

use super::format::{byte_rate, count, duration, percent, rate, time};
use super::model::Model;
use super::snapshot::Traffic;
use super::tables::Mood;

/// The help.
pub const HELP: &str = " q, Ctrl-C        quit
 ?, Esc           show and close this help
 Tab, Shift-Tab   next or previous table
 1 to 6           table by its number
 Left, Right      column to sort by
 r                reverse the order
 Up, Down         scroll; also Page Up, Page Down, Home, End
 t                span of the charts: 5, 10 or 1 min

 Rates are those of the last second; latency and hit
 ratios, those of the last 10 s. Times of servers and
 failures count from the start of Sluice.";

/// A number with its label.
pub struct Fact {
    /// Name of the number.
    pub label: &'static str,
    /// The number with its unit.
    pub value: String,
    /// How remarkable the number is.
    pub mood: Mood,
}

/// Returns the program, its address and age.
pub fn title(model: &Model) -> String {
    let snapshot = &model.snapshot;
    format!(
        "sluice {}  {}  up {}  configuration {}",
        snapshot.version,
        model.address,
        time(snapshot.uptime_s),
        snapshot.generation,
    )
}

fn fact(label: &'static str, value: String) -> Fact {
    Fact {
        label,
        value,
        mood: Mood::Plain,
    }
}

/// Returns the facts about the traffic.
pub fn facts(traffic: &Traffic) -> Vec<Fact> {
    let failed = traffic.responses_5xx_per_s;
    let mood = match failed {
        Some(failed) if failed > 0.0 => Mood::Bad,
        _ => Mood::Plain,
    };
    let latency = &traffic.latency;
    let connections = format!(
        "{} ({} HTTP/2)",
        count(traffic.connections_now as f64),
        count(traffic.http2_connections_now as f64)
    );
    let mut facts = vec![
        fact("requests", format!("{}/s", rate(traffic.requests_per_s))),
        fact("in progress", count(traffic.requests_now as f64)),
        fact("2xx", format!("{}/s", rate(traffic.responses_2xx_per_s))),
        fact("3xx", format!("{}/s", rate(traffic.responses_3xx_per_s))),
        fact("4xx", format!("{}/s", rate(traffic.responses_4xx_per_s))),
        Fact {
            mood,
            ..fact("5xx", format!("{}/s", rate(failed)))
        },
        fact("hits", percent(traffic.hit_ratio)),
        fact("of bytes", percent(traffic.byte_hit_ratio)),
        fact("p50", duration(latency.p50_us)),
    ];
    let optional = [
        ("p95", latency.p95_us),
        ("p99", latency.p99_us),
        ("max", latency.max_us),
    ];
    let known = optional.iter().filter(|(_, us)| us.is_some());
    facts.extend(known.map(|(label, us)| fact(label, duration(*us))));
    facts.extend([
        fact("connections", connections),
        fact("to clients", byte_rate(traffic.client_bytes_per_s)),
        fact("from origins", byte_rate(traffic.upstream_bytes_per_s)),
        fact(
            "requests to origins",
            format!("{}/s", rate(traffic.upstream_requests_per_s)),
        ),
    ]);
    facts
}
