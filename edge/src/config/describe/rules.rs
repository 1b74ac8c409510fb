//! Caching rules that differ from the defaults.

use std::time::Duration;

use super::list::list;
use crate::cache::Rules;
use crate::cache::rules::Bypass;
use crate::config::value::show_time;
use crate::http::freshness::{Ignored, SetCookie};
use crate::http::key::KeyRules;

/// A line for each rule that differs from the default.
pub fn rules(rules: &Rules) -> Vec<String> {
    let d = &Rules::default();
    let lines = [
        valid(rules),
        changed(rules.heuristic_max, d.heuristic_max, guessed),
        lifetimes(rules, d),
        stale(rules),
        changed(rules.ignore, d.ignore, ignored),
        changed(rules.set_cookie, d.set_cookie, set_cookie),
        changed(&rules.targets, &d.targets, |t| {
            fields(t, "targeted fields", "no targeted field is heeded")
        }),
        changed(&rules.tags, &d.tags, |t| fields(t, "tags in", "no tags")),
        said(
            rules.client_directives,
            "clients may ask for more: no-cache, no-store, max-age, min-fresh, Pragma",
        ),
        key(&rules.key, &d.key),
        parameters(&rules.key),
        changed(&rules.key.languages, &d.key.languages, |tags| {
            format!("Accept-Language reduced to one of {}", list(tags))
        }),
        changed(&rules.bypass, &d.bypass, bypass),
        said(!rules.get, "GET goes past the cache"),
        said(!rules.head, "HEAD goes past the cache"),
        said(
            rules.post,
            "responses to POST that name their own target answer GET, too",
        ),
        changed(&rules.forward, &d.forward, |names| {
            format!("shared fetches also carry {}", list(names))
        }),
        changed(rules.pass_for, d.pass_for, |time| {
            format!("what can't be shared is passed for {}", show_time(time))
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

fn valid(rules: &Rules) -> Option<String> {
    let fresh = |what: String, time: Duration| match time {
        Duration::ZERO => format!("{what} never"),
        time => format!("{what} for {}", show_time(time)),
    };
    let named = rules.valid.iter();
    let named = named.map(|(status, time)| fresh(status.to_string(), *time));
    let any = rules
        .valid_any
        .map(|time| fresh("all others".to_owned(), time));
    let all: Vec<String> = named.chain(any).collect();
    (!all.is_empty()).then(|| format!("fresh where the response does not say: {}", all.join(", ")))
}

fn guessed(max: Duration) -> String {
    match max {
        Duration::ZERO => "no lifetime is guessed".to_owned(),
        max => format!("guessed lifetimes of at most {}", show_time(max)),
    }
}

fn lifetimes(rules: &Rules, d: &Rules) -> Option<String> {
    let min = changed(rules.lifetime_min, d.lifetime_min, |time| {
        format!("at least {}", show_time(time))
    });
    let max = changed(rules.lifetime_max, d.lifetime_max, |time| {
        format!("at most {}", show_time(time))
    });
    let both: Vec<String> = min.into_iter().chain(max).collect();
    (!both.is_empty()).then(|| format!("lifetimes of {}", both.join(", ")))
}

fn stale(rules: &Rules) -> Option<String> {
    let times = [
        (rules.stale_while_revalidate, "while revalidated behind"),
        (rules.stale_while_updating, "while another waits for it"),
        (rules.stale_if_error, "where the origin fails"),
    ];
    let said: Vec<String> = times
        .iter()
        .filter(|(time, _)| !time.is_zero())
        .map(|(time, when)| format!("{when} for {}", show_time(*time)))
        .collect();
    (!said.is_empty()).then(|| format!("stale {}", said.join(", ")))
}

fn ignored(ignored: Ignored) -> String {
    let fields = [
        (ignored.cache_control, "Cache-Control and Pragma"),
        (ignored.expires, "Expires"),
        (ignored.age, "Age"),
        (ignored.vary, "Vary"),
        (ignored.set_cookie, "Set-Cookie"),
        (ignored.targeted, "targeted fields"),
        (ignored.x_accel_expires, "X-Accel-Expires"),
    ];
    let named = fields.iter().filter(|(is, _)| *is).map(|(_, name)| name);
    format!("not heeded: {}", list(&named.collect::<Vec<_>>()))
}

fn set_cookie(rule: SetCookie) -> String {
    match rule {
        SetCookie::Pass => "what sets a cookie is not stored",
        SetCookie::Store => "what sets a cookie is stored with it",
        SetCookie::Remove => "what sets a cookie is stored without it",
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
        ("fields", &bypass.headers),
        ("parameters", &bypass.query),
    ];
    let named = kinds.iter().filter(|(_, names)| !names.is_empty());
    let named: Vec<String> = named
        .map(|(kind, names)| format!("{kind} {}", list(names)))
        .collect();
    format!("past the cache with {}", named.join("; "))
}
