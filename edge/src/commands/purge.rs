//! `sluice purge`: removes stored responses from a running Sluice, or marks them stale.

use std::fmt::Write as _;

use anyhow::Context;
use clap::Args;
use serde_json::{Map, Value, json};

use super::admin::AdminArgs;
use super::output::{harmless, json, misused, misused_for, refused, say};
use crate::cache::purge::rules;
use crate::config::show_count;
use crate::http::key::KeyRules;
use crate::http::purge::{Answer, Matched, Purge, Purged};

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
    check(&args.what)?;
    let body = order(args).to_string();
    let reply = args.admin.send("POST", "/purge", body.as_bytes())?;
    if reply.status != 200 {
        return Err(refused(&reply.text()));
    }
    let answer: Answer = serde_json::from_slice(&reply.body)
        .context("the answer of the admin address can't be parsed")?;
    match args.json {
        true => say(&json(&serde_json::from_slice(&reply.body)?)),
        false => say(&show(&answer)),
    }
}

/// Checks the URL, the prefix and the tags as the running Sluice will.
fn check(what: &What) -> anyhow::Result<()> {
    if let Some(path) = what.url.as_ref().filter(|url| url.starts_with('/')) {
        let prefix = path.trim_end_matches('*');
        let help = format!(
            "write http://HOST{path}, or --prefix {prefix} for all paths that begin so, on any host"
        );
        let title = "a URL begins with http:// or https://";
        return Err(misused(harmless(path), title, harmless(&help)));
    }
    let url = what.url.iter();
    let url = url.map(|url| (url.clone(), Purge::Url(url.clone())));
    let prefix = what.prefix.iter();
    let prefix = prefix.map(|prefix| {
        let option = format!("--prefix {prefix}");
        (option, Purge::Prefix(prefix.clone()))
    });
    let tags = what.tags.iter().flatten();
    let tags = tags.map(|tag| (format!("--tag {tag}"), Purge::Tag(tag.clone())));
    for (option, purge) in url.chain(prefix).chain(tags) {
        if let Err(why) = rules(&purge, &[KeyRules::default()]) {
            return Err(misused_for(&option, &why.to_string(), EXAMPLES));
        }
    }
    Ok(())
}

/// Advice for arguments that are not valid.
const EXAMPLES: &str =
    "write http://HOST/PATH, --prefix http://HOST/DIR/, --prefix /DIR/, or --tag NAME";

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

/// Describes how many responses a purge covers, and shows some of them.
fn show_matched(matched: &Matched) -> String {
    let count = match (matched.responses, matched.or_more) {
        (0, false) => "no response".to_owned(),
        (n, false) => show_count(n, "response"),
        (n, true) => format!("at least {}", show_count(n, "response")),
    };
    let volumes = match matched.has_volumes {
        true => "; responses on volumes are covered too, and not counted",
        false => "",
    };
    let mut out = format!("  {count} in memory{volumes}\n");
    for example in &matched.examples {
        // Writing to a String can't fail.
        let _ = writeln!(out, "    {}", harmless(example));
    }
    out
}

fn show(answer: &Answer) -> String {
    let mut out = String::new();
    for purged in &answer.purged {
        let Purged {
            cache,
            rule,
            soft,
            matched,
            ..
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
        let _ = writeln!(out, "cache {cache}: {how}: {}", harmless(&what));
        if let Some(matched) = matched {
            out += &show_matched(matched);
        }
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
