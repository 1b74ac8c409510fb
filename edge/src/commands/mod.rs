//! The command line: its arguments, one file per command, and helpers that commands share.

pub mod check;
pub mod demo;
pub mod hit_ratio;
pub mod inspect;
pub mod lab;
pub mod purge;
pub mod reload;
pub mod serve;
pub mod sign;
pub mod status;
mod system;

use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand};
use serde_json::Value;
use sluice::config::{self, LogOptions, Report};
use sluice::sys::Clock;
use sluice::telemetry::messages::{MessageTarget, Messages};
use sluice::wiring::Running;
use sluice_lab::client::{self, Reply};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

/// A caching reverse proxy that hands out any byte of a file the moment it has arrived.
#[derive(Debug, Parser)]
#[command(name = "sluice", version)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the edge: with a configuration file, or with --origin and options alone
    Serve(serve::ServeArgs),
    /// Check a configuration file and show its mistakes, or what would run; or check this machine
    Check(check::CheckArgs),
    /// Run a slow origin and an edge in front of it, with three things to try
    Demo(demo::DemoArgs),
    /// Compare how Sluice, nginx and Varnish fill their caches, and verify every byte
    Lab(lab::LabArgs),
    /// Remove stored responses of a running edge, or mark them stale
    Purge(purge::PurgeArgs),
    /// Make a running edge read its configuration again
    Reload(AdminArgs),
    /// Sign a URL, for a route that accepts only signed URLs
    Sign(sign::SignArgs),
    /// Show the state of a running edge
    Status(status::StatusArgs),
    /// Show which bytes of a URL a running edge has, which are being fetched, and why
    Inspect(inspect::InspectArgs),
}

/// The admin address of a running edge.
#[derive(Debug, Args)]
pub struct AdminArgs {
    /// The edge's admin address [default: 127.0.0.1:9901]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = admin_address)]
    admin: Option<SocketAddr>,
    /// The edge's configuration file, from which the admin address is read
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

fn admin_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("write an IP address and a port, as in {}", config::ADMIN))
}

impl AdminArgs {
    fn address(&self) -> anyhow::Result<SocketAddr> {
        match (&self.admin, &self.config) {
            (Some(address), _) => Ok(*address),
            (None, Some(path)) => config::load(path)?
                .plan
                .admin
                .context("this configuration has no admin address"),
            (None, None) => Ok(config::ADMIN.parse()?),
        }
    }

    /// Sends a request without a body; returns the response whatever its status.
    fn request(&self, method: &str, target: &str) -> anyhow::Result<Reply> {
        self.send(method, target, b"")
    }

    /// As `request`, with a body.
    fn send(&self, method: &str, target: &str, body: &[u8]) -> anyhow::Result<Reply> {
        let address = self.address()?;
        let host = address.to_string();
        let fields = [("host", host.as_str()), ("x-sluice", "1")];
        client::once(address, method, target, &fields, body).map_err(|error| {
            anyhow::anyhow!(
                "no edge answers at {address}: {error}\n(use --admin ADDRESS for another address)"
            )
        })
    }
}

/// Whether standard error shows colours.
fn in_colour() -> bool {
    colours(io::stderr().is_terminal())
}

/// Whether an output shows colours and may have them (no-color.org).
fn colours(terminal: bool) -> bool {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    terminal && !set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The exit status after an error: 3 if the only problem is that there is nothing to show.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    match error.is::<inspect::Nothing>() {
        true => ExitCode::from(3),
        false => ExitCode::FAILURE,
    }
}

/// Prints an error on standard error.
pub fn complain(error: &anyhow::Error) {
    let text = match error.downcast_ref::<Report>() {
        Some(report) => report.render(in_colour()),
        None => format!("error: {error:#}\n"),
    };
    // If standard error is closed, the error can't be reported.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes to standard output. Unlike with `print!`, a closed pipe is an error, not a panic.
fn say(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Text from a server or a client, made harmless for a terminal: only letters, digits and printable
/// ASCII are left as they are. Control characters and changes of the text's direction are escaped.
fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric() {
            true => out.push(c),
            false => out.extend(c.escape_unicode()),
        }
    }
    out
}

/// JSON in ASCII, so that nothing in it can control a terminal.
fn json(value: &Value) -> String {
    let mut out = String::new();
    for c in format!("{value:#}\n").chars() {
        let mut units = [0; 2];
        match c {
            '\n' | ' '..='~' => out.push(c),
            // JSON has other characters only within strings (RFC 8259 7). Writing to a String
            // can't fail, here and below.
            c => {
                for unit in c.encode_utf16(&mut units) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out
}

/// Percent-encodes everything except unreserved characters (RFC 3986 2.3).
fn percent_encoded(text: &str) -> String {
    let mut out = String::new();
    for b in text.bytes() {
        match b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            true => out.push(char::from(b)),
            false => _ = write!(out, "%{b:02X}"),
        }
    }
    out
}

/// A number with its noun, in the singular or plural.
fn count(n: u64, thing: &str) -> String {
    match n {
        1 => format!("1 {thing}"),
        n => format!("{n} {thing}s"),
    }
}

/// Prints the warnings about a configuration.
fn warn(warnings: &Report) {
    if !warnings.problems.is_empty() {
        let text = warnings.render(in_colour());
        // An error is ignored: warnings are not worth stopping for.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Starts the logging of messages of a level and above.
fn log_messages(options: &LogOptions) -> anyhow::Result<()> {
    let to_stderr = options.messages == MessageTarget::Stderr;
    let colours = to_stderr && in_colour();
    let messages = Messages::new(options.messages.clone(), colours, Clock::system());
    let level: LevelFilter = options.level.as_str().parse()?;
    messages.install();
    let log = tracing_subscriber::registry().with(messages.with_filter(level));
    match log.try_init() {
        Ok(()) => Ok(()),
        Err(error) => bail!("messages can't be logged: {error}"),
    }
}

/// Prints the addresses of a running edge, one per line, for people and programs.
fn announce(running: &Running) -> anyhow::Result<()> {
    let listeners = running
        .listeners
        .iter()
        .map(|a| format!("listening on http://{a}\n"));
    let admin = running
        .admin
        .iter()
        .map(|a| format!("admin on http://{a}\n"));
    say(&listeners.chain(admin).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_percent_encoded_for_a_query() {
        assert_eq!(
            percent_encoded("http://a/x?y=1&z"),
            "http%3A%2F%2Fa%2Fx%3Fy%3D1%26z"
        );
    }

    #[test]
    fn text_from_others_cannot_control_a_terminal() {
        let hostile = "a\u{1b}[2J\u{9b}1m\r\n\u{202e}\u{7f}\u{fffd} \"é\"";
        let shown = harmless(hostile);
        assert_eq!(
            shown,
            "a\\u{1b}[2J\\u{9b}1m\\u{d}\\u{a}\\u{202e}\\u{7f}\\u{fffd} \"é\""
        );
        let value = Value::from(format!("{hostile}\u{1f600}"));
        let shown = json(&value);
        assert!(
            shown.trim_end().bytes().all(|b| (b' '..=b'~').contains(&b)),
            "{shown}"
        );
        assert_eq!(serde_json::from_str::<Value>(&shown).expect("JSON"), value);
    }
}
