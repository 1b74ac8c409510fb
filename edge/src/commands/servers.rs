//! `sluice servers`: shows the servers of a running Sluice's upstreams, and gives orders about them.

use std::fmt::Write;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::admin::AdminArgs;
use super::nothing::Nothing;
use super::output::{harmless, json, percent_encoded, refused, say};
use super::status::table::table;
use crate::upstream::{is_named, unknown};

#[derive(Debug, Args)]
pub struct ServersArgs {
    /// Name of an upstream [default: all]
    upstream: Option<String>,
    /// Address of one of its servers, or the configured name or URL of some, also without port
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
    let ordered = order(args);
    let reply = match &ordered {
        Some(target) => args.admin.request("POST", target)?,
        None => args.admin.request("GET", "/servers")?,
    };
    match reply.status {
        200 => {}
        404 => bail!(nothing(&reply.text())),
        _ => return Err(refused(&reply.text())),
    }
    let mut value: Value = serde_json::from_slice(&reply.body).context("the answer is not JSON")?;
    let missing = only(&mut value, args);
    match missing {
        Some(why) if ordered.is_none() => bail!(nothing(&why)),
        _ if args.json => say(&json(&value)),
        _ if ordered.is_some() && are_unresolved(&value) => {
            say("the name has no address yet; the order holds for those that it gets\n")
        }
        _ => say(&servers(&value)),
    }
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

/// Leaves only the servers that the arguments name. Returns the text of an error if there are none.
fn only(value: &mut Value, args: &ServersArgs) -> Option<String> {
    let name = args.upstream.as_ref()?;
    let upstreams = value.as_object_mut()?;
    if !upstreams.contains_key(name) {
        let names = upstreams.keys().map(String::as_str);
        return Some(unknown("upstream", name, names));
    }
    upstreams.retain(|other, _| other == name);
    let address = args.server.as_deref()?;
    let all = upstreams[name]["servers"].as_array_mut()?;
    let is_it = |server: &&Value| {
        let text = |key: &str| server[key].as_str().unwrap_or_default();
        is_named(address, text("address"), text("name"))
    };
    let found: Vec<Value> = all.iter().filter(is_it).cloned().collect();
    let before = std::mem::replace(all, found);
    let known = ["name", "address"].iter().flat_map(|key| {
        let servers = before.iter();
        servers.filter_map(|server| server[*key].as_str())
    });
    all.is_empty().then(|| unknown("server", address, known))
}

/// Whether none of the servers has an address.
fn are_unresolved(value: &Value) -> bool {
    let upstreams = value.as_object().into_iter().flatten();
    let servers = upstreams.filter_map(|(_, upstream)| upstream["servers"].as_array());
    let mut states = servers.flatten().map(|server| server["state"].as_str());
    states.all(|state| matches!(state, Some("resolving" | "unresolved")))
}

fn nothing(text: &str) -> Nothing {
    Nothing {
        text: harmless(text.trim_end()),
        help: None,
    }
}

const HEADING: [&str; 9] = [
    "upstream", "server", "state", "weight", "busy", "idle", "requests", "failed", "why",
];

/// Whether a column has text, which is aligned to the left. The others have numbers.
fn is_text(column: usize) -> bool {
    column < 3 || column == HEADING.len() - 1
}

/// Formats the servers as a table.
fn servers(value: &Value) -> String {
    let mut rows = Vec::new();
    for (name, upstream) in value.as_object().into_iter().flatten() {
        let servers = upstream["servers"].as_array().into_iter().flatten();
        rows.extend(servers.map(|server| row(name, server)));
    }
    table(&HEADING, is_text, &rows)
}

fn row(upstream: &str, server: &Value) -> [String; HEADING.len()] {
    let text = |key: &str| harmless(server[key].as_str().unwrap_or("-"));
    let number = |key: &str| server[key].as_u64().unwrap_or_default().to_string();
    let backup = match server["backup"].as_bool() {
        Some(true) => " (backup)",
        _ => "",
    };
    let name = match text("name") {
        name if name == "-" || name == text("address") => String::new(),
        name => format!(" ({name})"),
    };
    [
        harmless(upstream),
        text("address") + &name,
        text("state") + backup,
        number("weight"),
        number("busy"),
        number("idle"),
        number("requests"),
        number("failures"),
        why(server),
    ]
}

/// Returns the reason for the state of a server. For an ejected server, also how long it is until a trial.
fn why(server: &Value) -> String {
    let why = harmless(server["why"].as_str().unwrap_or_default());
    match server["trial_in_s"].as_f64() {
        None => why,
        Some(left_s) if left_s > 0.0 => format!("{why}; {} s left", left_s.ceil()),
        Some(_) => format!("{why}; until a trial succeeds"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_are_a_table() {
        let server = json!({ "address": "10.0.0.1:80", "state": "up", "weight": 2, "busy": 1,
            "idle": 10, "requests": 1234, "failures": 0, "backup": false });
        let other = json!({ "address": "10.0.0.2:80", "name": "b:80", "state": "down\u{1b}", "backup": true,
            "why": "by order" });
        let ejected = |left_s: f64| json!({ "address": "10.0.0.3:80", "state": "ejected", "why": "a failure: status 500", "trial_in_s": left_s });
        let all = [server, other, ejected(6.2), ejected(0.0)];
        let shown = servers(&json!({ "origin": { "servers": all } }));
        let expected = "\
upstream  server              state                weight  busy  idle  requests  failed  why
origin    10.0.0.1:80         up                        2     1    10      1234       0
origin    10.0.0.2:80 (b:80)  down\\u{1b} (backup)       0     0     0         0       0  by order
origin    10.0.0.3:80         ejected                   0     0     0         0       0  a failure: status 500; 7 s left
origin    10.0.0.3:80         ejected                   0     0     0         0       0  a failure: status 500; until a trial succeeds
";
        assert_eq!(shown, expected);
    }
}
