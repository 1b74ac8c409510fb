//! `sluice servers`: shows the servers of a running Sluice's upstreams, and gives orders about them.

use std::fmt::Write;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::admin::AdminArgs;
use super::output::{harmless, json, percent_encoded, refused, say};
use super::status::table::table;

#[derive(Debug, Args)]
pub struct ServersArgs {
    /// Name of an upstream [default: all]
    upstream: Option<String>,
    /// Address of one of its servers, as this command shows it
    #[arg(requires = "upstream")]
    server: Option<String>,
    /// Give the server this state; it is kept until the next start
    #[arg(long, value_name = "STATE", requires = "server")]
    set: Option<Set>,
    /// Give the server this weight in place of the configured one, until the next start
    #[arg(long, value_name = "NUMBER", requires = "server")]
    weight: Option<u32>,
    #[command(flatten)]
    admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Set {
    /// The server gets requests
    Up,
    /// The server gets no new requests, except of clients that stick to it
    Drain,
    /// The server gets no new requests
    Down,
}

pub fn run(args: &ServersArgs) -> anyhow::Result<()> {
    let reply = match order(args) {
        Some(target) => args.admin.request("POST", &target)?,
        None => args.admin.request("GET", "/servers")?,
    };
    if reply.status != 200 {
        return Err(refused(&reply.text()));
    }
    let value: Value = serde_json::from_slice(&reply.body).context("the answer is not JSON")?;
    let value = only(value, args);
    say(&match args.json {
        true => json(&value),
        false => servers(&value),
    })
}

/// Returns the target of the request that gives an order, if an order is given.
fn order(args: &ServersArgs) -> Option<String> {
    let (upstream, server) = (args.upstream.as_ref()?, args.server.as_ref()?);
    let (upstream, server) = (percent_encoded(upstream), percent_encoded(server));
    let mut target = format!("/servers?upstream={upstream}&server={server}");
    let set = args.set.map(|set| match set {
        Set::Up => "up",
        Set::Drain => "drain",
        Set::Down => "down",
    });
    if let Some(set) = set {
        let _ = write!(target, "&set={set}");
    }
    if let Some(weight) = args.weight {
        let _ = write!(target, "&weight={weight}");
    }
    (set.is_some() || args.weight.is_some()).then_some(target)
}

/// Leaves only the servers that the arguments name.
fn only(mut value: Value, args: &ServersArgs) -> Value {
    let Some(upstreams) = value.as_object_mut() else {
        return value;
    };
    upstreams.retain(|name, _| args.upstream.as_ref().is_none_or(|only| only == name));
    for upstream in upstreams.values_mut() {
        if let (Some(servers), Some(only)) = (upstream["servers"].as_array_mut(), &args.server) {
            servers.retain(|server| server["address"] == only.as_str());
        }
    }
    value
}

const HEADING: [&str; 8] = [
    "upstream", "server", "state", "weight", "busy", "idle", "requests", "failed",
];
/// Number of text columns, which are aligned to the left. The other columns are numbers.
const TEXT_COLUMNS: usize = 3;

/// Formats the servers as a table.
fn servers(value: &Value) -> String {
    let mut rows = Vec::new();
    for (name, upstream) in value.as_object().into_iter().flatten() {
        let servers = upstream["servers"].as_array().into_iter().flatten();
        rows.extend(servers.map(|server| row(name, server)));
    }
    table(&HEADING, TEXT_COLUMNS, &rows)
}

fn row(upstream: &str, server: &Value) -> [String; HEADING.len()] {
    let text = |key: &str| harmless(server[key].as_str().unwrap_or("-"));
    let number = |key: &str| server[key].as_u64().unwrap_or_default().to_string();
    let backup = match server["backup"].as_bool() {
        Some(true) => " (backup)",
        _ => "",
    };
    [
        harmless(upstream),
        text("address"),
        text("state") + backup,
        number("weight"),
        number("busy"),
        number("idle"),
        number("requests"),
        number("failures"),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_are_a_table() {
        let server = json!({ "address": "10.0.0.1:80", "state": "up", "weight": 2, "busy": 1,
            "idle": 10, "requests": 1234, "failures": 0, "backup": false });
        let other = json!({ "address": "10.0.0.2:80", "state": "down\u{1b}", "backup": true });
        let shown = servers(&json!({ "origin": { "servers": [server, other] } }));
        let expected = "\
upstream  server       state                weight  busy  idle  requests  failed
origin    10.0.0.1:80  up                        2     1    10      1234       0
origin    10.0.0.2:80  down\\u{1b} (backup)       0     0     0         0       0
";
        assert_eq!(shown, expected);
    }
}
