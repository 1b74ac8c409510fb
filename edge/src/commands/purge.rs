//! `sluice purge`: removes stored responses from a running Sluice, or marks them stale.

use std::fmt::Write as _;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use super::admin::AdminArgs;
use super::output::{harmless, json, say};
use crate::http::purge::{Answer, Purge, Purged};

#[derive(Debug, Args)]
#[command(
    after_help = "When this command ends, the purge is in force on all workers. The purge also applies to responses of fetches that began before."
)]
pub struct PurgeArgs {
    #[command(flatten)]
    what: What,
    /// Mark responses stale instead of removing them: they can be revalidated, or served stale as configured
    #[arg(long)]
    soft: bool,
    /// Purge only this cache [default: all caches]
    #[arg(long, value_name = "NAME")]
    cache: Option<String>,
    #[command(flatten)]
    admin: AdminArgs,
    /// Print the JSON response of the admin address
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct What {
    /// Purge all variants of this URL, written as clients request it: http://cdn.example.com/video.mp4
    url: Option<String>,
    /// Purge all URLs with this prefix: http://HOST/DIR/, //HOST/DIR/ for any scheme, /DIR/ for any host
    #[arg(long)]
    prefix: Option<String>,
    /// Purge all responses that have one of these tags (Surrogate-Key, Cache-Tag)
    #[arg(long = "tag", value_name = "TAG", num_args = 1..)]
    tags: Option<Vec<String>>,
    /// Purge all responses
    #[arg(long)]
    all: bool,
}

pub fn run(args: &PurgeArgs) -> anyhow::Result<()> {
    let body = order(args).to_string();
    let reply = args.admin.send("POST", "/purge", body.as_bytes())?;
    if reply.status != 200 {
        bail!("{}", harmless(reply.text().trim_end()));
    }
    let answer: Answer = serde_json::from_slice(&reply.body)
        .context("the answer of the admin address can't be parsed")?;
    match args.json {
        true => say(&json(&serde_json::from_slice(&reply.body)?)),
        false => say(&show(&answer)),
    }
}

/// Returns the body of `POST /purge` for these arguments.
fn order(args: &PurgeArgs) -> Value {
    let mut order = Map::new();
    let What {
        url,
        prefix,
        tags,
        all,
    } = &args.what;
    let texts = [("url", url), ("prefix", prefix), ("cache", &args.cache)];
    for (key, text) in texts {
        if let Some(text) = text {
            order.insert(key.to_owned(), json!(text));
        }
    }
    if let Some(tags) = tags {
        order.insert("tags".to_owned(), json!(tags));
    }
    for (key, set) in [("all", *all), ("soft", args.soft)] {
        if set {
            order.insert(key.to_owned(), json!(true));
        }
    }
    Value::Object(order)
}

/// Returns the part of a purged URL before its final `*`. Such a URL may have been meant as a
/// prefix.
fn starred(purged: &Purged) -> Option<&str> {
    match &purged.rule {
        Purge::Url(url) => url.strip_suffix('*'),
        _ => None,
    }
}

fn show(answer: &Answer) -> String {
    let mut out = String::new();
    for purged in &answer.purged {
        let Purged {
            cache,
            sequence,
            rule,
            soft,
        } = purged;
        let what = match rule {
            Purge::Url(url) => format!("URL {url}"),
            Purge::Prefix(prefix) => format!("URLs with the prefix {prefix}"),
            Purge::Tag(tag) => format!("tag {tag}"),
            Purge::All(_) => "everything".to_owned(),
        };
        let how = if *soft { "stale" } else { "purged" };
        let cache = harmless(cache.as_deref().unwrap_or("-"));
        // Writing to a String can't fail.
        let _ = writeln!(
            out,
            "cache {cache}: {how}, sequence {sequence}: {}",
            harmless(&what)
        );
    }
    if let Some(start) = answer.purged.iter().find_map(starred) {
        let _ = writeln!(
            out,
            "note: the * is part of this URL; to purge every URL with this prefix: --prefix {}",
            harmless(start)
        );
    }
    out
}
