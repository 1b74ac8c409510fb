//! Plans the caching rules of a section, with defaults from another section.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;

use super::methods;
use super::names::{self, Kind};
use crate::cache::Rules;
use crate::cache::rules::{Bypass, Lifetimes, Requests, ResponseHeaders, Stale};
use crate::config::checks::Checks;
use crate::config::file::{BypassFile, Cookies, Ignorable, RulesFile, Usable};
use crate::config::lints;
use crate::config::lints::variables;
use crate::config::report::Problem;
use crate::config::value::{Key, OrFalse, StatusRange, Statuses, Table, Time, Word, Words, YEAR};
use crate::http::Status;
use crate::http::freshness::{Ignored, SetCookie};
use crate::http::key::KeyRules;
use crate::http::pattern::Pattern;

const DAY: Duration = Duration::from_secs(24 * 3600);
const TIME_MAX: Duration = Duration::from_secs(10 * YEAR.as_secs());
/// Names of the variables of `key`. `NAME` means any name.
const KEY_VARIABLES: [&str; 6] = [
    "scheme",
    "host",
    "path",
    "query",
    "header:NAME",
    "cookie:NAME",
];
/// Longest `key`, in bytes.
const KEY_BYTES_MAX: usize = 1024;

/// Returns the rules of a section. Each rule is the section's, else that of `base`. Only the
/// section's keys are checked, so that no problem is reported twice.
pub fn plan(base: &Rules, file: &RulesFile, checks: &mut Checks) -> Rules {
    let rules = Rules {
        requests: requests(&base.requests, file, checks),
        headers: headers(&base.headers, file, checks),
        forward_headers: names::forwarded(
            "forward_headers",
            file.forward_headers.as_ref(),
            &base.forward_headers,
            checks,
        ),
        trusted_headers: names::forwarded(
            "trusted_headers",
            file.trusted_headers.as_ref(),
            &base.trusted_headers,
            checks,
        ),
        constant_headers: base.constant_headers.clone(),
        key: key(base, file, checks),
        purge_from: base.purge_from.clone(),
        lifetimes: lifetimes(&base.lifetimes, file, checks),
        stale: stale(&base.stale, file, checks),
        hit_for_pass: checks.within(
            "hit_for_pass",
            &file.hit_for_pass,
            base.hit_for_pass,
            Duration::ZERO..=DAY,
        ),
    };
    lints::rules::check(&rules, file, checks);
    rules
}

fn requests(base: &Requests, file: &RulesFile, checks: &mut Checks) -> Requests {
    let uses = |method, base| uses(file.methods.as_ref(), method, base);
    Requests {
        get: uses(Usable::Get, base.get),
        head: uses(Usable::Head, base.head),
        post: uses(Usable::Post, base.post),
        invalidate_on: methods::invalidating(
            file.invalidate_on.as_ref(),
            base.invalidate_on.as_ref(),
            checks,
        ),
        bypass: bypass(&file.bypass, &base.bypass, checks),
        client_cache_control: value(&file.client_cache_control, base.client_cache_control),
    }
}

fn headers(base: &ResponseHeaders, file: &RulesFile, checks: &mut Checks) -> ResponseHeaders {
    let mut names = |name, key, base| names::fields(name, key, base, checks);
    ResponseHeaders {
        ignored: ignored(file.ignore_headers.as_ref(), base.ignored),
        set_cookie: set_cookie(&file.set_cookie, base.set_cookie),
        target_list: names("target_list", file.target_list.as_ref(), &base.target_list),
        tags: names("tag_headers", file.tag_headers.as_ref(), &base.tags),
    }
}

fn lifetimes(base: &Lifetimes, file: &RulesFile, checks: &mut Checks) -> Lifetimes {
    let (valid, valid_any) = match &file.valid {
        Some(typed) => match typed.get_ref() {
            OrFalse::On(times) => valid(times, typed.span(), checks),
            OrFalse::False => (Vec::new(), None),
        },
        None => (base.valid.clone(), base.valid_any),
    };
    let mut seconds = |name, key, base| seconds(name, key, base, checks);
    Lifetimes {
        valid,
        valid_any,
        heuristic_max: seconds("heuristic", &file.heuristic, base.heuristic_max),
        min: seconds("lifetime_min", &file.lifetime_min, base.min),
        max: seconds("lifetime_max", &file.lifetime_max, base.max),
    }
}

fn stale(base: &Stale, file: &RulesFile, checks: &mut Checks) -> Stale {
    let mut seconds = |name, key, base| seconds(name, key, base, checks);
    Stale {
        while_revalidate: seconds(
            "stale_while_revalidate",
            &file.stale_while_revalidate,
            base.while_revalidate,
        ),
        if_error: seconds("stale_if_error", &file.stale_if_error, base.if_error),
        while_updating: seconds(
            "stale_while_updating",
            &file.stale_while_updating,
            base.while_updating,
        ),
    }
}

fn value<T: Copy>(key: &Key<T>, base: T) -> T {
    key.as_ref().map_or(base, |typed| *typed.get_ref())
}

/// Returns a time in whole seconds, the unit of lifetimes in HTTP (RFC 9111 1.2.2).
fn seconds(name: &str, key: &Key<Time>, base: Duration, checks: &mut Checks) -> Duration {
    let time = checks.within(name, key, base, Duration::ZERO..=TIME_MAX);
    if let Some(typed) = key.as_ref().filter(|_| time.subsec_nanos() != 0) {
        let whole = time.as_secs();
        checks.push(
            Problem::error(format!("`{name}` is not a whole number of seconds"))
                .at(typed.span())
                .label("HTTP counts lifetimes in seconds")
                .help(format!("write \"{whole}s\" or \"{}s\"", whole + 1)),
        );
    }
    time
}

/// Returns the lifetimes by status in `valid`, and the lifetime for `any`.
fn valid(
    Statuses(typed): &Statuses,
    at: Range<usize>,
    checks: &mut Checks,
) -> (Vec<(RangeInclusive<Status>, Duration)>, Option<Duration>) {
    let (mut valid, mut any) = (Vec::new(), None);
    names::few("valid", typed.len(), at, checks);
    for (status, time) in typed {
        let time = seconds("valid", &Some(time.clone()), Duration::ZERO, checks);
        match status.get_ref().as_str() {
            "any" => any = Some(time),
            text => match StatusRange::parse(text) {
                Some(StatusRange(range)) if range.clone().any(may_be_stored) => {
                    valid.push((range, time));
                }
                _ => checks.push(
                    Problem::error(format!("`{text}` is not a status that can be stored"))
                        .at(status.span())
                        .help("write final statuses, as in valid = { 200 = \"1h\", 404 = \"1m\", 5xx = \"2s\", any = \"1s\" }; 206 and 304 follow 200, and statuses about a single request (401, 407, 429 …) are never stored"),
                ),
            },
        }
    }
    // The first range with a status applies, so that a single status precedes its class.
    valid.sort_by_key(|(range, _)| range.end() - range.start());
    (valid, any)
}

/// Whether a stored response can have this status. A 206 or 304 becomes part of a stored 200, a 1xx
/// is interim, and the other statuses in the list concern a single request.
fn may_be_stored(status: Status) -> bool {
    const NEVER: [Status; 16] = [
        206, 304, 401, 407, 408, 412, 413, 416, 417, 421, 425, 426, 428, 429, 431, 511,
    ];
    (200..600).contains(&status) && !NEVER.contains(&status)
}

fn ignored(key: Option<&Words<Ignorable>>, base: Ignored) -> Ignored {
    let Some(typed) = key else { return base };
    let mut ignored = Ignored::default();
    for word in typed.get_ref() {
        *match word.get_ref().0 {
            Ignorable::CacheControl => &mut ignored.cache_control,
            Ignorable::Expires => &mut ignored.expires,
            Ignorable::Age => &mut ignored.age,
            Ignorable::Vary => &mut ignored.vary,
            Ignorable::SetCookie => &mut ignored.set_cookie,
            Ignorable::Targeted => &mut ignored.targeted,
            Ignorable::XAccelExpires => &mut ignored.x_accel_expires,
        } = true;
    }
    ignored
}

fn set_cookie(key: &Key<Word<Cookies>>, base: SetCookie) -> SetCookie {
    match key.as_ref().map(|typed| typed.get_ref().0) {
        Some(Cookies::Pass) => SetCookie::Pass,
        Some(Cookies::Store) => SetCookie::Store,
        Some(Cookies::Remove) => SetCookie::Remove,
        None => base,
    }
}

fn uses(key: Option<&Words<Usable>>, method: Usable, base: bool) -> bool {
    match key {
        Some(typed) => typed
            .get_ref()
            .iter()
            .any(|word| word.get_ref().0 == method),
        None => base,
    }
}

fn bypass(key: &Key<OrFalse<Table<BypassFile>>>, base: &Bypass, checks: &mut Checks) -> Bypass {
    let Some(typed) = key else {
        return base.clone();
    };
    let OrFalse::On(Table(typed)) = typed.get_ref() else {
        return Bypass::default();
    };
    let mut list = |name, key, kind| names::patterns(name, key, kind, &[], checks);
    Bypass {
        cookies: list("cookies", typed.cookies.as_ref(), Kind::Cookie),
        headers: list("headers", typed.headers.as_ref(), Kind::Field),
        query: list("query", typed.query.as_ref(), Kind::Parameter),
    }
}

/// Returns the rules for cache keys, including the languages to which Accept-Language is reduced.
fn key(base: &Rules, file: &RulesFile, checks: &mut Checks) -> KeyRules {
    let base = &base.key;
    let mut list =
        |name, key, of: &[Pattern]| names::patterns(name, key, Kind::Parameter, of, checks);
    let ignore = list("query_ignore", file.query_ignore.as_ref(), &base.ignore);
    let only = list("query_only", file.query_only.as_ref(), &base.only);
    let languages = names::languages(file.languages.as_ref(), &base.languages, checks);
    let mut rules = match &file.key {
        Some(typed) => template(typed, checks).unwrap_or_default(),
        None => base.clone(),
    };
    rules.sort = value(&file.query_sort, base.sort);
    (rules.ignore, rules.only) = (ignore, only);
    rules.languages = languages;
    rules
}

fn template(typed: &Spanned<String>, checks: &mut Checks) -> Option<KeyRules> {
    let (text, span) = (typed.get_ref(), typed.span());
    if text.len() > KEY_BYTES_MAX {
        checks.push(
            Problem::error("`key` is too long")
                .at(span)
                .label(format!("{} bytes; at most {KEY_BYTES_MAX}", text.len()))
                .help("take literal text out of it"),
        );
        return None;
    }
    if text.contains(char::is_control) {
        checks.push(
            Problem::error("`key` has control characters")
                .at(span)
                .help("use visible characters: `sluice inspect` shows keys"),
        );
        return None;
    }
    let error = match KeyRules::parse(text) {
        Ok(rules) => {
            variables::check(typed, &KEY_VARIABLES, checks);
            return Some(rules);
        }
        Err(error) => error,
    };
    // If the string has no escapes, a position in the template is also a position in the file.
    let at = match span.len() == text.len() + 2 && !text.is_empty() {
        true => span.start + 1 + error.at.start..span.start + 1 + error.at.end,
        false => span,
    };
    checks.push(
        Problem::error("`key` is not a template")
            .at(at)
            .label(error.what)
            .help(error.help),
    );
    None
}
