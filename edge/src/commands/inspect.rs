//! `sluice inspect`: shows which bytes of a URL a running edge has, as a bar and a description.

mod bar;
mod layout;
mod show;
#[cfg(test)]
mod tests;

use std::env;
use std::io::{self, IsTerminal};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;

use super::admin::AdminArgs;
use super::nothing::Nothing;
use super::output::{colours, harmless, json, misused_for, percent_encoded, refused, say};
use crate::admin::UrlState;
use crate::http::url::Url;

pub use layout::Style;

/// Advice for a URL without objects, if the running Sluice gives none.
const ADVICE: &str = "write host, port and query as clients send them";

#[derive(Debug, Args)]
#[command(
    after_help = "If no cache has stored or is fetching the URL, the exit status is 3, and --json prints [].
`sluice status --url URL` shows the same, but its exit status is then 0."
)]
pub struct InspectArgs {
    /// The URL as clients request it, port included: http://cdn.example.com/video.mp4
    url: String,
    #[command(flatten)]
    headers: KeyHeaders,
    #[command(flatten)]
    admin: AdminArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Draw with the ASCII signs # + > . in any locale
    #[arg(long)]
    ascii: bool,
}

/// Headers of a request whose URL is looked up.
#[derive(Debug, Args)]
pub struct KeyHeaders {
    /// Header of the client's request, for a key that contains headers or cookies, and to mark the variant
    /// that the request selects: "Accept-Language: de"; may be given several times
    #[arg(
        short = 'H',
        long = "header",
        value_name = "NAME: VALUE",
        requires = "url"
    )]
    headers: Vec<String>,
}

/// Returns the error that no cache has stored or is fetching the URL, with the advice of the running
/// Sluice.
fn nothing(url: &str, note: &str) -> Nothing {
    Nothing {
        text: format!("no cache has stored or is fetching {}", harmless(url)),
        help: Some(harmless(note)),
    }
}

pub fn run(args: &InspectArgs) -> anyhow::Result<()> {
    match print(&args.admin, &args.url, &args.headers, args.json, args.ascii)? {
        None => Ok(()),
        Some(note) => bail!(nothing(&args.url, &note)),
    }
}

/// Prints which bytes of a URL an edge has. Returns advice if the edge has no object for the URL.
pub fn print(
    admin: &AdminArgs,
    url: &str,
    headers: &KeyHeaders,
    as_json: bool,
    ascii: bool,
) -> anyhow::Result<Option<String>> {
    if let Err(why) = Url::parse(url) {
        let help = "write it as clients request it: http://HOST/PATH";
        return Err(misused_for(url, &why, help));
    }
    let url_text = percent_encoded(url);
    let headers = percent_encoded(&headers.headers.join("\n"));
    let target = format!("/status?url={url_text}&headers={headers}");
    let reply = admin.request("GET", &target)?;
    if reply.status != 200 {
        return Err(refused(&reply.text()));
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
    let is_found = caches.iter().any(|cache| !cache.objects.is_empty());
    let note = reply.header("sluice-note").unwrap_or(ADVICE);
    Ok((!is_found).then(|| note.to_owned()))
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
