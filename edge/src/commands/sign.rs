//! `sluice sign`: signs a URL for a route with `[site.route.signed_urls]`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::output::{misused, say};
use crate::gate::signed::{self, KEY_BYTES_MAX, Key, Names, Secret};
use crate::http::Method;
use crate::http::target::{self, Form};
use crate::sys::{Clock, disk};

#[derive(Debug, Args)]
pub struct SignArgs {
    /// URL to sign, as in http://cdn.example.com/videos/1/film.mp4, or only its path and query
    url: String,
    /// File that contains the key
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// Time for which the signature is valid, as in 1h or 7days
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    expires: Duration,
    /// End of the signature's validity as Unix time in seconds, instead of --expires
    #[arg(long, value_name = "SECONDS", conflicts_with = "expires")]
    until: Option<u64>,
    /// Sign for all paths with this prefix, as in /videos/1/ (the route needs `prefix = true`)
    #[arg(long, value_name = "PATH")]
    prefix: Option<String>,
    /// Sign for this client address only (the route needs `client = true`)
    #[arg(long, value_name = "ADDRESS")]
    client: Option<IpAddr>,
    /// Names of the query parameters for expiry, signature and prefix
    #[arg(long, value_name = "NAME", num_args = 3)]
    parameters: Option<Vec<String>>,
}

pub fn run(args: &SignArgs) -> anyhow::Result<()> {
    let option = format!("--key-file {}", args.key_file.display());
    let wrong = |why: String| {
        let help = "name a file that contains only the key, as `openssl rand -hex 32` writes it";
        misused(&option, why, help)
    };
    let content = disk::read_text_or_pipe(&args.key_file, KEY_BYTES_MAX as u64 + 2)
        .map_err(|error| wrong(format!("the file can't be read: {error}")))?;
    let secret = Secret::from_file(content.as_bytes()).map_err(|why| wrong(why.to_string()))?;
    let key =
        Key::new(&secret).ok_or_else(|| wrong("the file does not contain a key".to_owned()))?;
    let (before, target) = split(&args.url)?;
    let prefix = args.prefix.as_deref().map(|p| prefix(p, &target));
    let signed = signed::signed(
        &key,
        &names(args.parameters.as_deref()),
        &target,
        prefix.transpose()?.as_deref(),
        until(args),
        args.client,
    );
    say(&format!("{before}{signed}\n"))
}

fn names(typed: Option<&[String]>) -> Names {
    match typed {
        Some([expires, signature, prefix]) => Names {
            expires: expires.as_str().into(),
            signature: signature.as_str().into(),
            prefix: prefix.as_str().into(),
        },
        _ => Names::default(),
    }
}

/// Splits a URL into the part before the path, and path and query in canonical form.
fn split(url: &str) -> anyhow::Result<(&str, String)> {
    // An argument that begins with a slash is a path, even if its query contains another URL.
    let scheme = url.find("://").filter(|_| !url.starts_with('/'));
    let Some(scheme) = scheme else {
        return Ok(("", canonical(url)?));
    };
    let host = &url[scheme + 3..];
    let end = host.find(['/', '?', '#']).unwrap_or(host.len());
    let (before, path) = url.split_at(scheme + 3 + end);
    match path.starts_with('/') {
        true => Ok((before, canonical(path)?)),
        false => Ok((before, canonical(&format!("/{path}"))?)),
    }
}

/// Advice for a URL or path that can't be signed.
const EXAMPLE: &str = "write a URL or a path that begins with a slash, as in /videos/1/film.mp4";

fn canonical(path: &str) -> anyhow::Result<String> {
    let mut out = String::new();
    match target::canonical(&Method::Get, path.as_bytes(), &mut out) {
        Ok(Form::Origin) => Ok(out),
        Ok(_) => Err(misused(path, "this is not a path", EXAMPLE)),
        Err(error) => {
            let why = format!("this is not a valid path and query: {}", error.reason());
            Err(misused(path, why, EXAMPLE))
        }
    }
}

fn prefix(typed: &str, target: &str) -> anyhow::Result<String> {
    let prefix = canonical(typed)?;
    let path = target.split('?').next().unwrap_or_default();
    if !prefix.ends_with('/') || prefix.contains('?') {
        return Err(misused(
            format!("--prefix {typed}"),
            "this is not a folder's path",
            "write a path that ends in a slash, as in /videos/1/",
        ));
    }
    if !path.starts_with(&prefix) {
        return Err(misused(
            format!("--prefix {typed}"),
            format!("the path of the URL, {path}, does not begin with {prefix}"),
            "write a prefix of the signed path",
        ));
    }
    Ok(prefix)
}

fn until(args: &SignArgs) -> u64 {
    if let Some(until) = args.until {
        return until;
    }
    let now_s = Clock::system().unix_ms() / 1000;
    now_s.saturating_add(args.expires.as_secs())
}
