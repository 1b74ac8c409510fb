//! `sluice certs`: shows the certificates of a running Sluice, and renews or revokes those from authorities.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anyhow::{Context, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;

use super::admin::AdminArgs;
use super::nothing::Nothing;
use super::output::{harmless, json, percent_encoded, refused, say};
use super::status::table::table;
use crate::config::{self, Purpose, Report};
use crate::sys::Clock;
use crate::wiring;

/// Most names of a certificate that are shown.
const NAMES_MAX: usize = 3;
/// Most characters of an error that are shown.
const ERROR_MAX: usize = 1000;
const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 3600;
const DAY_S: i64 = 24 * HOUR_S;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct CertsArgs {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Obtain a new certificate now, whatever the validity of the one in use
    Renew(RenewArgs),
    /// Revoke a certificate, stop using it, and obtain a new one with a new key
    Revoke(RevokeArgs),
}

#[derive(Debug, Args)]
struct RenewArgs {
    /// A name of the certificate
    name: String,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Debug, Args)]
struct RevokeArgs {
    /// A name of the certificate
    name: String,
    /// Reason that the authority publishes
    #[arg(long, value_enum, default_value = "unspecified", ignore_case = true)]
    reason: ReasonArg,
    #[command(flatten)]
    admin: AdminArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "camelCase")]
enum ReasonArg {
    /// No reason
    Unspecified,
    /// Somebody else may have the private key
    KeyCompromise,
    /// Another certificate replaces this one
    Superseded,
    /// The names are not in use any more
    CessationOfOperation,
}

pub fn run(args: &CertsArgs) -> anyhow::Result<()> {
    match &args.action {
        None => list(args),
        Some(Action::Renew(args)) => order(&args.admin, &args.name, "renew"),
        Some(Action::Revoke(args)) => {
            let reason = args.reason.to_possible_value();
            let reason = reason.as_ref().map_or("", |value| value.get_name());
            order(&args.admin, &args.name, &format!("revoke&reason={reason}"))
        }
    }
}

/// Sends an order about the certificate of a name.
fn order(admin: &AdminArgs, name: &str, order: &str) -> anyhow::Result<()> {
    let name = percent_encoded(name);
    let target = format!("/certificates?name={name}&order={order}");
    let reply = admin.request("POST", &target)?;
    match reply.status {
        200 => say(&reply.text()),
        404 => bail!(Nothing {
            text: harmless(reply.text().trim_end()),
            help: Some("`sluice certs` lists all certificates".to_owned()),
        }),
        _ => Err(refused(&reply.text())),
    }
}

fn list(args: &CertsArgs) -> anyhow::Result<()> {
    let value = match args.admin.request("GET", "/certificates") {
        Ok(reply) if reply.status == 200 => {
            serde_json::from_slice(&reply.body).context("the answer is not JSON")?
        }
        Ok(reply) => return Err(refused(&reply.text())),
        Err(error) => match stored(args)? {
            None => return Err(error),
            Some(value) => {
                let why = error.downcast_ref::<Report>();
                let why = why.and_then(|report| Some(report.problems.first()?.title.clone()));
                let why = why.unwrap_or_else(|| error.to_string());
                // Writing fails if standard error is closed.
                let _ = writeln!(
                    io::stderr(),
                    "note: {why}\nThese are the certificates on the disk."
                );
                value
            }
        },
    };
    say(&match args.json {
        true => json(&value),
        false => show(&value),
    })
}

/// Returns the certificates on the disk, if a configuration file can be read that says where they are.
fn stored(args: &CertsArgs) -> anyhow::Result<Option<Value>> {
    let Some(file) = args.admin.config_file() else {
        return Ok(None);
    };
    let Ok(loaded) = config::load(&file, Purpose::Reload) else {
        return Ok(None);
    };
    let state = loaded.plan.acme.state.display();
    let found = wiring::stored_certificates(&loaded.plan, &Clock::system());
    let found = found.with_context(|| format!("the certificates in {state} can't be read"))?;
    Ok(Some(serde_json::to_value(found)?))
}

const HEADING: [&str; 8] = [
    "", "names", "source", "issuer", "left", "renewal", "attempt", "failed",
];

/// Whether a column has text, which is aligned to the left. The last one has numbers.
fn is_text(column: usize) -> bool {
    column < HEADING.len() - 1
}

/// Formats the certificates as a table, and below it the warnings and the errors of attempts.
fn show(value: &Value) -> String {
    let list = value["list"].as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        return "no certificates\n".to_owned();
    }
    let now_s = value["now_unix_s"].as_i64().unwrap_or_default();
    let rows: Vec<_> = list.iter().map(|one| row(one, now_s)).collect();
    let mut out = table(&HEADING, is_text, &rows);
    for one in list {
        // Writing to a String can't fail.
        if let Some(warning) = one["warning"].as_str() {
            let _ = writeln!(out, "! {}: {}", names(one), harmless(warning));
        }
        if let Some(error) = one["last_error"].as_str() {
            let end = error.char_indices().nth(ERROR_MAX);
            let error = &error[..end.map_or(error.len(), |(at, _)| at)];
            let _ = writeln!(
                out,
                "  {}: the last attempt failed: {}",
                names(one),
                harmless(error)
            );
        }
    }
    out
}

fn row(one: &Value, now_s: i64) -> [String; HEADING.len()] {
    let source = match one["file"].as_str() {
        Some(file) => format!("file {}", harmless(file)),
        None => harmless(one["source"].as_str().unwrap_or("-")),
    };
    let time = |key: &str| one[key].as_i64().map(|at_s| at_s.saturating_sub(now_s));
    let mark = match one["warning"].is_string() {
        true => "!",
        false => "",
    };
    let failures = one["failures"].as_u64().unwrap_or_default();
    [
        mark.to_owned(),
        names(one),
        source,
        one["issuer"]
            .as_str()
            .map_or_else(|| "-".to_owned(), issuer),
        match one["left_s"].as_i64() {
            None => "none yet".to_owned(),
            Some(left_s) if left_s <= 0 => "expired".to_owned(),
            Some(left_s) => span(left_s),
        },
        match time("renewal_unix_s") {
            _ if one["in_progress"].as_bool() == Some(true) => "in progress".to_owned(),
            None => "-".to_owned(),
            Some(in_s) if in_s <= 0 => "now".to_owned(),
            Some(in_s) => format!("in {}", span(in_s)),
        },
        match time("last_attempt_unix_s") {
            None => "-".to_owned(),
            Some(in_s) => format!("{} ago", span(in_s.saturating_neg().max(0))),
        },
        match failures {
            0 => "-".to_owned(),
            failures => failures.to_string(),
        },
    ]
}

/// Returns the first names of a certificate, and the number of the others.
pub(super) fn names(one: &Value) -> String {
    let all = one["names"].as_array().map_or(&[][..], Vec::as_slice);
    let shown = all.iter().take(NAMES_MAX).filter_map(Value::as_str);
    let shown: Vec<String> = shown.map(harmless).collect();
    match (all.len().saturating_sub(NAMES_MAX), shown.is_empty()) {
        (0, true) => "-".to_owned(),
        (0, false) => shown.join(","),
        (more, _) => format!("{} and {more} more", shown.join(",")),
    }
}

/// Returns the common name of an issuer, or the whole name if it has none.
fn issuer(name: &str) -> String {
    let mut parts = name.split(", ");
    let common = parts.find_map(|part| part.strip_prefix("CN="));
    harmless(common.unwrap_or(name))
}

/// Formats a time in its largest unit, rounded down.
fn span(seconds: i64) -> String {
    match seconds {
        ..MINUTE_S => format!("{seconds} s"),
        MINUTE_S..HOUR_S => format!("{} min", seconds / MINUTE_S),
        HOUR_S..DAY_S => format!("{} h", seconds / HOUR_S),
        _ => config::show_count((seconds / DAY_S).unsigned_abs(), "day"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn certificates_are_a_table_with_errors_below_it() {
        let failing = json!({ "names": ["a.example"], "source": "acme", "in_use": false, "issuer": null,
            "left_s": null, "renewal_unix_s": 1_000_300, "last_attempt_unix_s": 999_940, "failures": 2,
            "last_error": "no\u{1b}[2J address", "in_progress": false,
            "warning": "there is no certificate yet, and the last attempt failed" });
        let good = json!({ "names": ["b.example"], "source": "acme", "in_use": true, "failures": 0,
            "issuer": "C=US, O=Let's Encrypt, CN=R11", "left_s": 60 * DAY_S + 5, "in_progress": true,
            "renewal_unix_s": 1_000_000 + 30 * DAY_S, "last_attempt_unix_s": 1_000_000 - 30 * DAY_S,
            "last_error": null, "warning": null });
        let file = json!({ "names": ["c.example", "d.example", "e.example", "f.example"], "source": "file",
            "file": "/etc/c.pem", "issuer": "O=Test", "left_s": -5, "failures": 0,
            "warning": "this certificate has expired" });
        let shown = show(&json!({ "now_unix_s": 1_000_000, "list": [failing, good, file] }));
        insta::assert_snapshot!("certificates", shown);
        assert_eq!(show(&json!({})), "no certificates\n");
    }

    #[test]
    fn times_have_one_unit() {
        let spans = [0, 59, 60, HOUR_S, DAY_S - 1, DAY_S, 90 * DAY_S].map(span);
        let expected = ["0 s", "59 s", "1 min", "1 h", "23 h", "1 day", "90 days"];
        assert_eq!(spans, expected);
    }

    #[test]
    fn reasons_are_those_of_the_admin_api() {
        for reason in ReasonArg::value_variants() {
            let value = reason.to_possible_value().expect("a name");
            let known = crate::acme::Reason::named(value.get_name());
            assert_eq!(known.map(crate::acme::Reason::name), Some(value.get_name()));
        }
    }
}
