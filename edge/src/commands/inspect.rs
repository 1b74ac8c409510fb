//! `sluice inspect`: shows which bytes of a URL a running edge has, as a bar and a description, or what would happen to a
//! request.

mod bar;
pub(super) mod layout;
pub(super) mod show;
pub(super) mod terminal;
#[cfg(test)]
mod tests;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::Value;

use super::admin::AdminArgs;
use super::explain::{self, RequestArgs};
use super::nothing::Nothing;
use super::output::{harmless, json, misused_for, percent_encoded, refused, say};
use crate::admin::UrlState;
use crate::http::url::Url;

use terminal::style;

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
    /// Show what Sluice would do with a request for the URL, which is not sent
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    request: RequestArgs,
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
    if args.explain {
        let question = args.request.question(&args.url, &args.headers.headers);
        return explain::print_live(&args.admin, &question, args.json, args.ascii);
    }
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
