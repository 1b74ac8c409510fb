//! The command line of `sluice`: its subcommands, each in a file of its own, and helpers that they share.

mod check;
mod demo;
mod hit_ratio;
mod inspect;
mod lab;
mod purge;
mod reload;
mod serve;
mod sign;
mod status;
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
use sluice_lab::client::{self, Reply};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

use crate::config::{self, LogOptions, Report};
use crate::sys::Clock;
use crate::telemetry::messages::{MessageTarget, Messages};
use crate::wiring::Running;

/// Help text about the exit statuses of all commands. clap itself ends with 2.
const EXIT_STATUS: &str = "Exit status:
  0  Success
  1  Error
  2  Unknown or missing arguments
  3  `sluice inspect` found nothing";

/// A caching reverse proxy that serves any byte of a file as soon as it has arrived from the origin
#[derive(Debug, Parser)]
#[command(name = "sluice", version, after_help = EXIT_STATUS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run Sluice with a configuration file, or with --origin or --files and other options
    Serve(serve::ServeArgs),
    /// Check a configuration file or, with --system, this machine's kernel settings
    Check(check::CheckArgs),
    /// Run a slow origin and Sluice in front of it, with three requests to try
    Demo(demo::DemoArgs),
    /// Run experiments that measure and verify Sluice, nginx and Varnish on this machine
    Lab(lab::LabArgs),
    /// Remove stored responses from a running Sluice, or mark them stale
    Purge(purge::PurgeArgs),
    /// Make a running Sluice read its configuration file again
    Reload(AdminArgs),
    /// Sign a URL for a route that requires signed URLs
    Sign(sign::SignArgs),
    /// Show the counters, caches and upstreams of a running Sluice
    Status(status::StatusArgs),
    /// Draw which bytes of a URL are stored, being fetched or missing, with recent decisions and their reasons
    Inspect(inspect::InspectArgs),
}

/// Parses the command line, runs the command and returns the exit status of the process.
pub fn run() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Lab(args) => lab::run(&args),
        Command::Purge(args) => purge::run(&args),
        Command::Reload(args) => reload::run(&args),
        Command::Sign(args) => sign::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Inspect(args) => inspect::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_error(&error);
            exit_code(&error)
        }
    }
}

/// Options that say how a command finds the running Sluice.
#[derive(Debug, Args)]
pub struct AdminArgs {
    /// Admin address of the running Sluice [default: 127.0.0.1:9901]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config", value_parser = admin_address)]
    admin: Option<SocketAddr>,
    /// Configuration file of the running Sluice, from which the admin address is read
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
                .context("the configuration file sets no admin address"),
            (None, None) => Ok(config::ADMIN.parse()?),
        }
    }

    /// Sends a request to the admin address and returns the reply with any status.
    fn request(&self, method: &str, target: &str) -> anyhow::Result<Reply> {
        self.send(method, target, b"")
    }

    /// Sends a request with a body to the admin address and returns the reply with any status.
    fn send(&self, method: &str, target: &str, body: &[u8]) -> anyhow::Result<Reply> {
        let address = self.address()?;
        let host = address.to_string();
        let headers = [("host", host.as_str()), ("x-sluice", "1")];
        client::once(address, method, target, &headers, body).map_err(|error| {
            anyhow::anyhow!(
                "no Sluice answers at {address}: {error}\n(--admin ADDRESS selects another address)"
            )
        })
    }
}

/// Whether messages on standard error are coloured.
fn in_colour() -> bool {
    colours(io::stderr().is_terminal())
}

/// Whether output is coloured: `terminal` says that it goes to a terminal, and neither NO_COLOR
/// (no-color.org) nor `TERM=dumb` is set.
fn colours(terminal: bool) -> bool {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    terminal && !set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Returns the exit status for an error: 3 if `sluice inspect` found nothing, else 1.
fn exit_code(error: &anyhow::Error) -> ExitCode {
    match error.is::<inspect::Nothing>() {
        true => ExitCode::from(3),
        false => ExitCode::FAILURE,
    }
}

/// Prints an error to standard error.
fn print_error(error: &anyhow::Error) {
    let text = match error.downcast_ref::<Report>() {
        Some(report) => report.render(in_colour()),
        None => format!("error: {error:#}\n"),
    };
    // Writing fails if standard error is closed. The exit status is then the only sign of the
    // error.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes to standard output. Unlike `print!`, returns an error if the pipe is closed, instead of
/// panicking.
fn say(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Escapes text that a server or a client chose, so that the text can't control a terminal.
/// Everything except letters, digits and printable ASCII is escaped, including control characters
/// and bidirectional overrides.
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

/// Formats JSON as lines of printable ASCII, so that the text can't control a terminal.
fn json(value: &Value) -> String {
    let mut out = String::new();
    for c in format!("{value:#}\n").chars() {
        let mut units = [0; 2];
        match c {
            '\n' | ' '..='~' => out.push(c),
            // Other characters occur in JSON only within strings (RFC 8259 section 7), where they
            // may be escaped. Writing to a String can't fail.
            c => {
                for unit in c.encode_utf16(&mut units) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out
}

/// Percent-encodes all characters except unreserved ones (RFC 3986 section 2.3).
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

/// Writes a number with its noun in the singular or plural, as in "2 workers".
fn count(n: u64, thing: &str) -> String {
    match n {
        1 => format!("1 {thing}"),
        n => format!("{n} {thing}s"),
    }
}

/// Prints the warnings about a configuration to standard error.
fn warn(warnings: &Report) {
    if !warnings.problems.is_empty() {
        let text = warnings.render(in_colour());
        // Writing fails if standard error is closed. The command continues without the warnings.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Installs the logger for messages, with level and target from the configuration.
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

/// Prints the addresses of listeners and of the admin server, one per line. Scripts parse these lines.
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
    fn a_url_is_encoded_for_a_query_parameter() {
        assert_eq!(
            percent_encoded("http://a/x?y=1&z"),
            "http%3A%2F%2Fa%2Fx%3Fy%3D1%26z"
        );
    }

    #[test]
    fn text_from_outside_cannot_control_a_terminal() {
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
