//! Describes access rules, rate limits and signed URLs.

use super::list::networks;
use crate::config::planner::BURST_DIVISOR;
use crate::config::value::{show_count, show_size};
use crate::gate::{Limit, Options, SECOND, memory, signed};

/// Returns a line for each check that a request must pass.
pub fn describe(options: &Options) -> Vec<String> {
    let mut lines = Vec::new();
    match options.allow.as_deref() {
        None => {}
        Some([]) => lines.push("no client is allowed: `allow` is empty".to_owned()),
        Some(allowed) => lines.push(format!("only for {}", networks(allowed))),
    }
    if !options.deny.is_empty() {
        lines.push(format!("not for {}", networks(&options.deny)));
    }
    if options.client_certificate {
        lines.push("only for clients with a certificate".to_owned());
    }
    lines.extend(options.limit.iter().map(limit_line));
    let methods = options.allow_methods.iter();
    lines.extend(methods.map(|methods| format!("only for the methods {methods}")));
    lines.extend(options.signed_urls.iter().map(signed_line));
    lines
}

fn limit_line(limit: &Limit) -> String {
    let mut text = "for each address".to_owned();
    if let Some(requests) = &limit.requests {
        let per = match requests.per_ns / SECOND {
            1 => "a second",
            60 => "a minute",
            _ => "an hour",
        };
        let rate = show_count(requests.tokens, "request");
        text += &format!(" {rate} {per}, {} at once", requests.size);
    }
    if let Some(bytes) = &limit.bytes {
        let and = if limit.requests.is_some() { "," } else { "" };
        text += &format!("{and} {} a second", show_size(bytes.tokens));
        if bytes.size > bytes.tokens / BURST_DIVISOR {
            text += &format!(" after {}", show_size(bytes.size));
        }
    }
    text + &format!(
        "; {} addresses in {}",
        limit.clients,
        show_size(memory(limit.clients) as u64)
    )
}

fn signed_line(options: &signed::Options) -> String {
    let keys = options.keys.len() + options.key_files.len();
    let many = if keys == 1 { "" } else { "s" };
    let names = &options.names;
    let mut text = format!(
        "only with a signature ({}, {}) by {keys} key{many}",
        names.expires, names.signature
    );
    if options.prefix {
        text += &format!(
            ", which may cover all paths with a common prefix ({})",
            names.prefix
        );
    }
    if options.client {
        text += ", each for one address";
    }
    text
}
