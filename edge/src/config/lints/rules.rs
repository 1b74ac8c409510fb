//! Errors and warnings about caching rules that contradict each other, have no effect, or are
//! dangerous.
//!
//! Each of them is reported at a key of the section that causes it, so that a problem of a cache is
//! not repeated for the cache's routes.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use crate::cache::Rules;
use crate::config::checks::Checks;
use crate::config::file::{Cookies, Ignorable, RulesFile};
use crate::config::report::Problem;
use crate::config::value::{Words, show_time};

/// Adds all problems of the caching rules `rules`, which apply to the section `file`.
pub fn check(rules: &Rules, file: &RulesFile, checks: &mut Checks) {
    bounds(rules, file, checks);
    out_of_reach(rules, file, checks);
    cookies(rules, file, checks);
    ignored(file, checks);
    targets(rules, file, checks);
    tags(file, checks);
    methods(rules, file, checks);
    post(rules, file, checks);
    key(rules, file, checks);
    parameters(file, checks);
    bypass(file, checks);
    cookie_forwarded(file, checks);
    never_passed(file, checks);
}

fn nothing(name: &str, at: Range<usize>) -> Problem {
    Problem::warning(format!("`{name}` does nothing here")).at(at)
}

fn bounds(rules: &Rules, file: &RulesFile, checks: &mut Checks) {
    let typed = file.lifetime_min.as_ref().or(file.lifetime_max.as_ref());
    if let Some(typed) = typed.filter(|_| rules.lifetimes.min > rules.lifetimes.max) {
        checks.push(
            Problem::error("`lifetime_min` is longer than `lifetime_max`")
                .at(typed.span())
                .label(format!(
                    "here lifetimes are from {} to {}",
                    show_time(rules.lifetimes.min),
                    show_time(rules.lifetimes.max)
                ))
                .help("make `lifetime_min` shorter or `lifetime_max` longer; a route without these keys has those of its cache"),
        );
    }
}

/// Warns about lifetimes outside `lifetime_min` and `lifetime_max`.
fn out_of_reach(rules: &Rules, file: &RulesFile, checks: &mut Checks) {
    let (min, max) = (rules.lifetimes.min, rules.lifetimes.max);
    let mut clamped = |name: &str, time: Duration, at: Range<usize>| {
        let (key, bound) = match time {
            time if time > max => ("lifetime_max", max),
            time if time < min && !time.is_zero() => ("lifetime_min", min),
            _ => return,
        };
        checks.push(
            Problem::warning(format!("`{name}` is limited by `{key}`"))
                .at(at)
                .label(format!("this becomes {}", show_time(bound)))
                .help(format!("change `{key}`, or this")),
        );
    };
    for time in file
        .valid
        .iter()
        .filter_map(|typed| typed.get_ref().on())
        .flat_map(|times| times.0.values())
    {
        clamped("valid", time.get_ref().0, time.span());
    }
    if let Some(time) = &file.heuristic {
        // `heuristic` is an upper bound itself, so only `lifetime_max` can make it useless.
        clamped("heuristic", time.get_ref().0.max(min), time.span());
    }
}

fn cookies(rules: &Rules, file: &RulesFile, checks: &mut Checks) {
    let Some(typed) = &file.set_cookie else {
        return;
    };
    if rules.headers.ignored.set_cookie {
        checks.push(
            nothing("set_cookie", typed.span())
                .label("`ignore_headers` has \"set-cookie\"")
                .help("keep one of the two; `set_cookie` alone can remove the cookie"),
        );
    } else if typed.get_ref().0 == Cookies::Store {
        checks.push(cookie_for_all(typed.span()).label("responses are stored with their cookies"));
    }
}

fn cookie_for_all(at: Range<usize>) -> Problem {
    Problem::warning("a cookie set for one client is sent to all clients")
        .at(at)
        .help("with `set_cookie = \"remove\"` responses are stored without it; keep this only where cookies are the same for all clients")
}

fn ignored(file: &RulesFile, checks: &mut Checks) {
    for entry in file.ignore_headers.iter().flat_map(|typed| typed.get_ref()) {
        let at = entry.span();
        checks.push(match entry.get_ref().0 {
            Ignorable::SetCookie => cookie_for_all(at).label("Set-Cookie is ignored"),
            Ignorable::CacheControl => {
                Problem::warning("responses marked `private` and `no-store` are stored, too")
                    .at(at)
                    .label("Cache-Control is ignored")
                    .help("keep this only where no response is meant for a single client; `lifetime_min`, `valid` and `heuristic` change lifetimes without it")
            }
            Ignorable::Vary => Problem::warning("clients get responses made for other clients")
                .at(at)
                .label("Vary is ignored")
                .help("keep this only where responses do not differ, or add the header that they differ by to `key`, as in {header:Accept-Language}"),
            Ignorable::Expires
            | Ignorable::Age
            | Ignorable::Targeted
            | Ignorable::XAccelExpires => continue,
        });
    }
}

fn targets(rules: &Rules, file: &RulesFile, checks: &mut Checks) {
    let Some(typed) = file
        .target_list
        .as_ref()
        .filter(|t| !t.get_ref().is_empty())
    else {
        return;
    };
    for entry in typed.get_ref().iter().filter(|name| has_a_meaning(name)) {
        checks.push(
            Problem::error(format!("`{}` is not a targeted header", entry.get_ref()))
                .at(entry.span())
                .label("it applies to all caches anyway")
                .help("name headers for some caches only (RFC 9213), as in \"CDN-Cache-Control\""),
        );
    }
    if rules.headers.ignored.targeted {
        checks.push(
            nothing("target_list", typed.span())
                .label("`ignore_headers` has \"targeted\"")
                .help("keep one of the two; `target_list = false` ignores them as well"),
        );
    }
}

/// Reports headers in `tag_headers` that have another meaning.
fn tags(file: &RulesFile, checks: &mut Checks) {
    let typed = file.tag_headers.iter().flat_map(|typed| typed.get_ref());
    for entry in typed.filter(|name| has_a_meaning(name)) {
        checks.push(
            Problem::error(format!("`{}` has no tags", entry.get_ref()))
                .at(entry.span())
                .label("its value is not a list of tags")
                .help("name headers that the origin uses for tags, as in \"Surrogate-Key\""),
        );
    }
}

/// Whether a response header has a standard meaning for caches or clients, so that it cannot
/// contain tags.
fn has_a_meaning(name: &Spanned<String>) -> bool {
    const FIELDS: [&str; 14] = [
        "age",
        "cache-control",
        "cache-status",
        "connection",
        "date",
        "etag",
        "expires",
        "last-modified",
        "location",
        "pragma",
        "set-cookie",
        "transfer-encoding",
        "vary",
        "x-accel-expires",
    ];
    let name = name.get_ref().to_ascii_lowercase();
    FIELDS.contains(&&*name) || name.starts_with("content-")
}

fn methods(rules: &Rules, file: &RulesFile, checks: &mut Checks) {
    let Some(typed) = file.methods.as_ref().filter(|_| !rules.requests.get) else {
        return;
    };
    let label = match rules.requests.head {
        true => "GET bypasses the cache, and only HEAD uses it",
        false => "every request bypasses the cache",
    };
    checks.push(
        Problem::warning("the cache answers no GET here")
            .at(typed.span())
            .label(label)
            .help("add \"GET\", or leave `cache` out of the route"),
    );
}

/// Warns about `"POST"` in `methods` if the key contains headers or cookies.
fn post(rules: &Rules, file: &RulesFile, checks: &mut Checks) {
    let methods = file.methods.as_ref().map(Words::span);
    let at = methods.or(file.key.as_ref().map(toml::Spanned::span));
    if let Some(at) = at.filter(|_| rules.requests.post && rules.key.needs_fields()) {
        checks.push(
            Problem::warning("\"POST\" in `methods` does nothing here")
                .at(at)
                .label("`key` contains a header or cookie, and a POST concerns all of its values")
                .help("remove \"POST\", or headers and cookies from `key`"),
        );
    }
}

/// Warns about keys without host, scheme or query.
fn key(rules: &Rules, file: &RulesFile, checks: &mut Checks) {
    let template = rules.key.to_string();
    let lacks = |part: &str| !template.contains(part);
    if let Some(typed) = file.key.as_ref().filter(|_| lacks("{host}")) {
        checks.push(
            Problem::warning("all hosts share one response")
                .at(typed.span())
                .label("{host} is not in it")
                .help("add {host}, or keep this only where the hosts of the site have the same content; a site without `hosts` accepts any name that a client invents"),
        );
    }
    if let Some(typed) = file.key.as_ref().filter(|_| lacks("{scheme}")) {
        checks.push(
            Problem::warning("http and https share one response")
                .at(typed.span())
                .label("{scheme} is not in it")
                .help("add {scheme}, or keep this only where both have the same content: clients with https would get a redirect from http to https, too"),
        );
    }
    let of_query = [
        ("query_sort", file.query_sort.as_ref().map(|k| k.span())),
        ("query_ignore", file.query_ignore.as_ref().map(|k| k.span())),
        ("query_only", file.query_only.as_ref().map(|k| k.span())),
    ];
    for (name, at) in of_query {
        if let Some(at) = at.filter(|_| lacks("{query}")) {
            checks.push(
                nothing(name, at)
                    .label("without {query} in `key`, the query is neither used nor sent")
                    .help("leave it out, or add {query} to `key`"),
            );
        }
    }
}

/// Warns about parameters in `query_ignore` that `query_only` removes anyway.
fn parameters(file: &RulesFile, checks: &mut Checks) {
    let (Some(ignore), Some(only)) = (&file.query_ignore, &file.query_only) else {
        return;
    };
    if only.get_ref().is_empty() {
        return;
    }
    for entry in ignore.get_ref() {
        let meet = |kept: &str| overlap(entry.get_ref(), kept);
        if only.get_ref().iter().any(|kept| meet(kept.get_ref())) {
            continue;
        }
        checks.push(
            nothing(
                &format!("query_ignore = \"{}\"", entry.get_ref()),
                entry.span(),
            )
            .label("`query_only` removes it anyway")
            .help("keep only `query_only`"),
        );
    }
}

/// Whether some name matches both patterns.
fn overlap(one: &str, other: &str) -> bool {
    match (one.strip_suffix('*'), other.strip_suffix('*')) {
        (None, None) => one == other,
        (Some(start), None) => other.starts_with(start),
        (None, Some(start)) => one.starts_with(start),
        (Some(a), Some(b)) => a.starts_with(b) || b.starts_with(a),
    }
}

fn bypass(file: &RulesFile, checks: &mut Checks) {
    let typed = file
        .bypass
        .as_ref()
        .and_then(|typed| typed.get_ref().on())
        .and_then(|table| table.0.headers.as_ref());
    for entry in typed.iter().flat_map(|typed| typed.get_ref()) {
        let name = entry.get_ref();
        if name == "*" || name.eq_ignore_ascii_case("host") {
            checks.push(
                Problem::warning("every request bypasses the cache")
                    .at(entry.span())
                    .label("every request has this header")
                    .help("name other headers, or leave `cache` out of the route"),
            );
        }
    }
}

fn cookie_forwarded(file: &RulesFile, checks: &mut Checks) {
    let keys = [&file.forward_headers, &file.trusted_headers];
    let typed = keys.into_iter().flatten().flat_map(|typed| typed.get_ref());
    for entry in typed.filter(|name| name.get_ref().eq_ignore_ascii_case("cookie")) {
        checks.push(
            Problem::warning("a response to one client's cookies may be sent to others")
                .at(entry.span())
                .label("shared fetches contain the cookies of the first client")
                .help("put the cookie that matters into `key`, as in {cookie:lang}; keep this only where the origin says `Vary: Cookie` or `private`"),
        );
    }
}

fn never_passed(file: &RulesFile, checks: &mut Checks) {
    let zero = file
        .hit_for_pass
        .as_ref()
        .filter(|typed| typed.get_ref().0.is_zero());
    if let Some(typed) = zero {
        checks.push(
            Problem::warning("requests for responses that can't be stored wait for each other")
                .at(typed.span())
                .label("such responses are not remembered")
                .help("a second is enough: write \"1s\""),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_where_both_can_mean_a_name() {
        for (one, other, both) in [
            ("a", "a", true),
            ("a", "b", false),
            ("a*", "ab", true),
            ("a*", "ba", false),
            ("ab*", "a*", true),
            ("ab*", "ac*", false),
            ("*", "x", true),
            ("a", "ab", false),
        ] {
            assert_eq!(overlap(one, other), both, "{one} {other}");
            assert_eq!(overlap(other, one), both, "{other} {one}");
        }
    }
}
