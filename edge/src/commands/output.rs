//! Output on standard output and standard error, shared by all commands: escaping, colours, warnings and messages.

use std::env;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use anyhow::bail;
use clap::ColorChoice;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

use crate::config::{LogOptions, Report};
use crate::sys::{Clock, ListenAddress};
use crate::telemetry::messages::{MessageTarget, Messages};
use crate::telemetry::{AccessTarget, Notices, event_layer};
use crate::wiring::Running;

/// The choice of `--color`.
static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// Sets the choice of `--color` for the whole process. Only the first call has an effect.
pub(super) fn choose_colours(choice: ColorChoice) {
    let _ = CHOICE.set(choice);
}

/// Whether messages on standard error are coloured.
pub(super) fn in_colour() -> bool {
    colours(io::stderr().is_terminal())
}

/// Whether output is coloured. Without `--color`, it is if `terminal` says that it goes to a terminal, and neither
/// NO_COLOR (no-color.org) nor `TERM=dumb` is set.
pub(super) fn colours(terminal: bool) -> bool {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    match CHOICE.get() {
        Some(ColorChoice::Always) => true,
        Some(ColorChoice::Never) => false,
        Some(ColorChoice::Auto) | None => {
            terminal && !set("NO_COLOR") && env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
    }
}

/// Writes to standard output. Unlike `print!`, returns an error if the pipe is closed, instead of
/// panicking.
pub(super) fn say(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Escapes text that a server or a client chose, so that the text can't control a terminal.
/// Everything except letters, digits and printable ASCII is escaped, including control characters
/// and bidirectional overrides.
pub(super) fn harmless(text: &str) -> String {
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
pub(super) fn json(value: &Value) -> String {
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

/// The bytes that are percent-encoded in a value of a query: all but unreserved ones (RFC 3986 2.3).
const IN_VALUE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Percent-encodes a value for a query.
pub(super) fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, IN_VALUE).to_string()
}

/// Returns a text as one word of a shell.
pub(super) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Creates an error with advice on how to solve it, which is shown like an error of the
/// configuration.
pub(super) fn failed(title: impl Into<String>, help: impl Into<String>) -> anyhow::Error {
    Report::without_file(title.into(), Some(help.into())).into()
}

/// Creates an error in the value of an option, as in `--prefix /a`, with advice. The exit status is
/// that of invalid arguments.
pub(super) fn misused(
    option: impl Into<String>,
    title: impl Into<String>,
    help: impl Into<String>,
) -> anyhow::Error {
    Report::of_option(option.into(), title.into(), help.into()).into()
}

/// Creates an error in the value of an option from a reason, which may end in a line of advice in
/// brackets. Otherwise the advice is `help`.
pub(super) fn misused_for(option: &str, why: &str, help: &str) -> anyhow::Error {
    let (title, advice) = split_advice(why);
    let advice = advice.unwrap_or(help);
    misused(harmless(option), harmless(title), harmless(advice))
}

/// Creates an error from the response of the admin address: its first line, and the line in
/// brackets below it as advice.
pub(super) fn refused(text: &str) -> anyhow::Error {
    let (title, advice) = split_advice(text);
    Report::without_file(harmless(title), advice.map(harmless)).into()
}

/// Splits a text into its first line, and the line in brackets below it. Other text is not split.
fn split_advice(text: &str) -> (&str, Option<&str>) {
    let text = text.trim_end();
    let (title, rest) = text.split_once('\n').unwrap_or((text, ""));
    let advice = rest
        .trim()
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'));
    match advice {
        None if !rest.is_empty() => (text, None),
        _ => (title, advice),
    }
}

/// Prints the warnings about a configuration to standard error.
pub(super) fn warn(warnings: &Report) {
    if !warnings.problems.is_empty() {
        let text = warnings.render(in_colour());
        // Writing fails if standard error is closed. The command continues without the warnings.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Installs the logger for messages, with level and target from the configuration.
pub(super) fn log_messages(options: &LogOptions) -> anyhow::Result<()> {
    let to_stderr = options.messages == MessageTarget::Stderr;
    let colours = to_stderr && in_colour();
    let messages = Messages::new(options.messages.clone(), colours, Clock::system());
    let level: LevelFilter = options.level.as_str().parse()?;
    messages.install();
    let notices = Notices::new(Clock::system());
    notices.install();
    let log = tracing_subscriber::registry()
        .with(messages.with_filter(level))
        .with(event_layer(notices));
    match log.try_init() {
        Ok(()) => Ok(()),
        Err(error) => bail!("messages can't be logged: {error}"),
    }
}

/// Prints the addresses of listeners and of the admin server, one per line. Scripts parse these
/// lines. They go to standard output, or to standard error if the access log goes to standard
/// output.
pub(super) fn announce(running: &Running, log: &LogOptions) -> anyhow::Result<()> {
    let listeners = running.listeners.iter().zip(&running.schemes);
    let listeners = listeners.map(|(address, scheme)| match address {
        ListenAddress::Ip(address) => {
            format!("listening on {}://{address}\n", scheme.as_str())
        }
        path @ ListenAddress::Unix(_) => format!("listening on {path}\n"),
    });
    let admin = running.admin().into_iter();
    let admin = admin.map(|(scheme, address)| match address {
        ListenAddress::Ip(address) => format!("admin on {}://{address}\n", scheme.as_str()),
        path @ ListenAddress::Unix(_) => format!("admin on {path}\n"),
    });
    let text = listeners.chain(admin).collect::<String>();
    let access = log.access.as_ref().map(|access| &access.target);
    match access {
        Some(AccessTarget::Stdout) => Ok(io::stderr().write_all(text.as_bytes())?),
        _ => say(&text),
    }
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

    #[test]
    fn a_text_is_one_word_of_a_shell() {
        assert_eq!(shell_word("/var/lib/root.pem"), "/var/lib/root.pem");
        assert_eq!(shell_word("a (b)"), "'a (b)'");
        assert_eq!(shell_word("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(shell_word(""), "''");
    }
}
