//! `sluice inspect`: shows which bytes of a URL a running edge has, as a bar and a description.

mod bar;
mod layout;
mod show;
#[cfg(test)]
mod tests;

use std::env;
use std::fmt;
use std::io::{self, IsTerminal};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;

use super::admin::AdminArgs;
use super::output::{colours, harmless, json, percent_encoded, say};
use crate::admin::UrlState;

pub use layout::Style;

#[derive(Debug, Args)]
#[command(
    after_help = "If no cache has stored or is fetching the URL, the exit status is 3, and --json prints [].
`sluice status --url URL` shows the same, but its exit status is then 0."
)]
pub struct InspectArgs {
    /// The URL as clients request it, port included: http://cdn.example.com/video.mp4
    url: String,
    #[command(flatten)]
    admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw with the ASCII signs # + > . in any locale
    #[arg(long)]
    ascii: bool,
}

/// Error: no cache has stored or is fetching the URL. This error has a separate exit status, so
/// that a script can distinguish it from an edge that does not respond.
#[derive(Debug)]
pub struct Nothing(String);

impl fmt::Display for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no cache has stored or is fetching {}\n(host, port and query must be those that clients send)",
            harmless(&self.0)
        )
    }
}

impl std::error::Error for Nothing {}

pub fn run(args: &InspectArgs) -> anyhow::Result<()> {
    match print(&args.admin, &args.url, args.json, args.ascii)? {
        true => Ok(()),
        false => bail!(Nothing(args.url.clone())),
    }
}

/// Prints which bytes of a URL an edge has. Returns whether it has any object for the URL.
pub fn print(admin: &AdminArgs, url: &str, as_json: bool, ascii: bool) -> anyhow::Result<bool> {
    let reply = admin.request("GET", &format!("/status?url={}", percent_encoded(url)))?;
    if reply.status != 200 {
        bail!("{}", harmless(reply.text().trim_end()));
    }
    let answer: Value = serde_json::from_slice(&reply.body).context("the answer is not JSON")?;
    let shown = match as_json {
        true => json(&answer),
        false => String::new(),
    };
    let caches: Vec<UrlState> = serde_json::from_value(answer)
        .context("the answer of the admin address can't be parsed")?;
    match as_json {
        true => say(&shown)?,
        false => say(&show::show(url, &caches, &style(ascii)))?,
    }
    Ok(caches.iter().any(|cache| !cache.objects.is_empty()))
}

/// Returns the style of the text on standard output.
fn style(ascii: bool) -> Style {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let terminal = io::stdout().is_terminal();
    let reported = || rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_col);
    let columns = set("COLUMNS").and_then(|columns| columns.parse().ok());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    Style {
        width: Style::width(columns.unwrap_or_else(|| if terminal { reported() } else { 0 })),
        ascii: ascii || !locale.is_some_and(|name| is_utf8(&name)),
        colour: colours(terminal),
    }
}

/// Whether a locale of this name uses UTF-8, as `en_GB.UTF-8` and `C.utf8` do.
fn is_utf8(locale: &str) -> bool {
    let name = locale.to_ascii_lowercase();
    name.contains("utf-8") || name.contains("utf8")
}
