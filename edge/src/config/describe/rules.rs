//! Describes caching rules that differ from the defaults.

use std::time::Duration;

use super::list::list;
use crate::cache::Rules;
use crate::cache::rules::{Bypass, Lifetimes, Stale};
use crate::config::value::{StatusRange, show_time};
use crate::http::freshness::{Ignored, SetCookie};
use crate::http::key::KeyRules;

/// Returns a line for each rule that differs from the default.
pub fn rules(rules: &Rules) -> Vec<String> {
    let d = &Rules::default();
    let (requests, headers) = (&rules.requests, &rules.headers);
    let lines = [
        valid(&rules.lifetimes),
        changed(
            rules.lifetimes.heuristic_max,
            d.lifetimes.heuristic_max,
            guessed,
        ),
        lifetimes(&rules.lifetimes, &d.lifetimes),
        stale(&rules.stale),
        changed(headers.ignored, d.headers.ignored, ignored),
        changed(headers.set_cookie, d.headers.set_cookie, set_cookie),
        changed(&headers.target_list, &d.headers.target_list, |t| {
            fields(t, "targeted headers", "targeted headers are ignored")
        }),
        changed(&headers.tags, &d.headers.tags, |t| {
            fields(t, "tags in", "no tags")
        }),
        said(
            requests.client_cache_control,
            "no-cache, no-store, max-age, min-fresh and Pragma of clients are honoured",
        ),
        key(&rules.key, &d.key),
        parameters(&rules.key),
        changed(&rules.key.languages, &d.key.languages, |tags| {
            format!("Accept-Language reduced to one of {}", list(tags))
        }),
        changed(&requests.bypass, &d.requests.bypass, bypass),
        said(!requests.get, "GET bypasses the cache"),
        said(!requests.head, "HEAD bypasses the cache"),
        said(
            requests.post,
            "responses to POST with their own URL in Content-Location answer GET",
        ),
        requests.invalidate_on.as_ref().map(|methods| {
            if methods.is_empty() {
                return "no request invalidates stored responses".to_owned();
            }
            format!("only {methods} invalidate stored responses")
        }),
        changed(&rules.forward_headers, &d.forward_headers, |names| {
            format!("shared fetches also contain {}", list(names))
        }),
        changed(&rules.trusted_headers, &d.trusted_headers, |names| {
            format!(
                "shared fetches contain {}, whose values are trusted",
                list(names)
            )
        }),
        changed(rules.hit_for_pass, d.hit_for_pass, |time| {
            format!("hit-for-pass for {}", show_time(time))
        }),
    ];
    lines.into_iter().flatten().collect()
}

fn changed<T: PartialEq>(is: T, default: T, text: impl Fn(T) -> String) -> Option<String> {
    (is != default).then(|| text(is))
}

fn said(is: bool, text: &str) -> Option<String> {
    is.then(|| text.to_owned())
}

fn valid(lifetimes: &Lifetimes) -> Option<String> {
    let fresh = |what: String, time: Duration| match time {
        Duration::ZERO => format!("{what} always revalidated"),
        time => format!("{what} for {}", show_time(time)),
    };
    let named = lifetimes.valid.iter();
    let named = named.map(|(status, time)| fresh(StatusRange(status.clone()).to_string(), *time));
    let any = lifetimes
        .valid_any
        .map(|time| fresh("all others".to_owned(), time));
    let all: Vec<String> = named.chain(any).collect();
    (!all.is_empty()).then(|| format!("lifetimes of responses without one: {}", all.join(", ")))
}

fn guessed(max: Duration) -> String {
    match max {
        Duration::ZERO => "no heuristic lifetime".to_owned(),
        max => format!("heuristic lifetimes of at most {}", show_time(max)),
    }
}

fn lifetimes(rules: &Lifetimes, d: &Lifetimes) -> Option<String> {
    let min = changed(rules.min, d.min, |time| {
        format!("at least {}", show_time(time))
    });
    let max = changed(rules.max, d.max, |time| {
        format!("at most {}", show_time(time))
    });
    let both: Vec<String> = min.into_iter().chain(max).collect();
    (!both.is_empty()).then(|| format!("lifetimes of {}", both.join(", ")))
}

fn stale(stale: &Stale) -> Option<String> {
    let times = [
        (
            stale.while_revalidate,
            "while revalidated in the background",
        ),
        (stale.while_updating, "while another request revalidates"),
        (stale.if_error, "if the origin fails"),
    ];
    let said: Vec<String> = times
        .iter()
        .filter(|(time, _)| !time.is_zero())
        .map(|(time, when)| format!("{when} for {}", show_time(*time)))
        .collect();
    (!said.is_empty()).then(|| format!("served stale {}", said.join(", ")))
}

fn ignored(ignored: Ignored) -> String {
    let fields = [
        (ignored.cache_control, "Cache-Control and Pragma"),
        (ignored.expires, "Expires"),
        (ignored.age, "Age"),
        (ignored.vary, "Vary"),
        (ignored.set_cookie, "Set-Cookie"),
        (ignored.targeted, "targeted headers"),
        (ignored.x_accel_expires, "X-Accel-Expires"),
    ];
    let named = fields.iter().filter(|(is, _)| *is).map(|(_, name)| name);
    format!("ignored: {}", list(&named.collect::<Vec<_>>()))
}

fn set_cookie(rule: SetCookie) -> String {
    match rule {
        SetCookie::Pass => "responses with Set-Cookie are not stored",
        SetCookie::Store => "responses with Set-Cookie are stored with it",
        SetCookie::Remove => "responses with Set-Cookie are stored without it",
    }
    .to_owned()
}

fn fields(names: &[Box<str>], some: &str, none: &str) -> String {
    match names.is_empty() {
        true => none.to_owned(),
        false => format!("{some} {}", list(names)),
    }
}

fn key(key: &KeyRules, default: &KeyRules) -> Option<String> {
    let (is, default) = (key.to_string(), default.to_string());
    (is != default).then(|| format!("key {is}"))
}

fn parameters(key: &KeyRules) -> Option<String> {
    let sort = key.sort.then(|| "in order of name".to_owned());
    let only = (!key.only.is_empty()).then(|| format!("only {}", list(&key.only)));
    let ignore = (!key.ignore.is_empty()).then(|| format!("without {}", list(&key.ignore)));
    let all: Vec<String> = [sort, only, ignore].into_iter().flatten().collect();
    (!all.is_empty()).then(|| format!("parameters {}", all.join(", ")))
}

fn bypass(bypass: &Bypass) -> String {
    let kinds = [
        ("cookies", &bypass.cookies),
        ("headers", &bypass.headers),
        ("parameters", &bypass.query),
    ];
    let named = kinds.iter().filter(|(_, names)| !names.is_empty());
    let named: Vec<String> = named
        .map(|(kind, names)| format!("{kind} {}", list(names)))
        .collect();
    format!("requests with {} bypass the cache", named.join("; "))
}
