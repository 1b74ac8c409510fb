//! Describes edits of headers and error pages.

use crate::config::value::{StatusRange, show_time};
use crate::edit::{ErrorPage, Lifetime, Options, SECURITY};

/// Returns a line for each kind of edit.
pub fn describe(options: &Options) -> Vec<String> {
    let mut lines = Vec::new();
    for (whose, edits) in [
        ("request", &options.request),
        ("response", &options.response),
    ] {
        let is_set = |name: &str| edits.remove.iter().any(|removed| **removed == *name);
        let put = edits.put.iter().map(|(name, value)| {
            let verb = if is_set(name) { "set" } else { "add" };
            format!("{verb} {name}: {value}")
        });
        let removed = edits.remove.iter();
        let removed = removed.filter(|name| edits.put.iter().all(|(put, _)| put != *name));
        let removed = removed.map(|name| format!("remove {name}"));
        let all: Vec<String> = put.chain(removed).collect();
        lines.extend(all.into_iter().map(|edit| format!("{whose}: {edit}")));
    }
    if let Some(expires) = &options.expires {
        let types = expires.types.iter();
        let mut all: Vec<String> = types
            .map(|(name, lifetime)| format!("{name} {}", show_lifetime(*lifetime)))
            .collect();
        all.push(match all.is_empty() {
            true => show_lifetime(expires.default),
            false => format!("others {}", show_lifetime(expires.default)),
        });
        lines.push(format!("expires: {}", all.join(", ")));
    }
    if let Some(text) = &options.cache_control {
        lines.push(format!("cache-control: {text}"));
    }
    if options.security {
        let names: Vec<&str> = SECURITY.iter().map(|(name, _)| *name).collect();
        lines.push(format!("added if missing: {}", names.join(", ")));
    }
    if !options.errors.pages.is_empty() {
        let shown = |page: &ErrorPage| StatusRange(page.statuses.clone()).to_string();
        let all: Vec<String> = options.errors.pages.iter().map(shown).collect();
        let whose = match options.errors.intercept {
            true => ", also for errors of origins",
            false => "",
        };
        lines.push(format!("pages for {}{whose}", all.join(", ")));
    }
    lines
}

fn show_lifetime(lifetime: Lifetime) -> String {
    match lifetime {
        Lifetime::Off => "unchanged".to_owned(),
        Lifetime::Epoch => "epoch".to_owned(),
        Lifetime::Max => "max".to_owned(),
        Lifetime::For(time) => show_time(time),
        Lifetime::Past(time) => format!("-{}", show_time(time)),
    }
}
