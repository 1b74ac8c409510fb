//! Plans `allow`, `deny`, `limit` and `signed_urls` of sites and routes.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use super::names;
use crate::config::checks::Checks;
use crate::config::file::{LimitFile, RouteFile, SignedFile, SiteFile};
use crate::config::report::Problem;
use crate::config::value::{AllowList, Key, Names, OrFalse, Table};
use crate::edit;
use crate::gate::signed::{self, KEY_BYTES_MAX, KEY_BYTES_MIN, Secret};
use crate::gate::{Filling, Limit, Options, SECOND};
use crate::http::Network;

/// Most networks in one list.
const NETWORKS_MAX: usize = 4096;
/// Most keys for signed URLs.
const KEYS_MAX: usize = 8;
/// Longest name of a parameter, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Default of `clients`, the most clients whose rates are tracked.
const CLIENTS: usize = 65_536;
/// A burst of bandwidth is at least what the rate allows in one eighth of a second, the precision
/// of timers.
pub const AT_ONCE: u64 = 8;

/// The values of these keys in a site or route. `None`: the key is missing. `Some(None)`: the key
/// is `false`.
#[derive(Clone, Default)]
pub struct Said {
    allow: Option<Option<Vec<Network>>>,
    deny: Option<Vec<Network>>,
    limit: Option<Option<Limit>>,
    signed: Option<Option<signed::Options>>,
}

impl Said {
    /// Parses the keys of a site. `scope` is the site's name in messages.
    pub fn by_site(site: &SiteFile, scope: &str, checks: &mut Checks) -> Said {
        Said {
            allow: allowed(site.allow.as_ref(), checks),
            deny: denied(site.deny.as_ref(), checks),
            limit: limit(&site.limit, scope, checks),
            signed: signed(&site.signed_urls, checks),
        }
    }

    /// Parses the keys of a route. `scope` is the route's name in messages.
    fn by_route(route: &RouteFile, scope: &str, checks: &mut Checks) -> Said {
        Said {
            allow: allowed(route.allow.as_ref(), checks),
            deny: denied(route.deny.as_ref(), checks),
            limit: limit(&route.limit, scope, checks),
            signed: signed(&route.signed_urls, checks),
        }
    }

    /// Returns the gate of a route of this site. Each value is the route's, else the site's.
    pub fn plan(
        &self,
        route: &RouteFile,
        scope: &str,
        purge: &[Network],
        checks: &mut Checks,
    ) -> Option<Box<Options>> {
        let (site, route) = (self.clone(), Said::by_route(route, scope, checks));
        let options = Options {
            allow: route.allow.or(site.allow).flatten(),
            deny: route.deny.or(site.deny).unwrap_or_default(),
            purge: purge.to_vec(),
            limit: route.limit.or(site.limit).flatten(),
            signed: route.signed.or(site.signed).flatten(),
        };
        (!options.is_open()).then(|| Box::new(options))
    }
}

/// Warns if edits of requests use the query of signed URLs. Edits run before the gate removes the
/// signature from the query, so they would see it.
pub fn seen_signatures(
    gate: Option<&Options>,
    edit: Option<&edit::Options>,
    at: &Range<usize>,
    checks: &mut Checks,
) {
    let is_signed = gate.is_some_and(|gate| gate.signed.is_some());
    let is_query = |variable: &edit::Variable| *variable == edit::Variable::Query;
    if is_signed && edit.is_some_and(|edit| edit.request.variables().any(is_query)) {
        checks.push(
            Problem::warning("signatures are sent to the origin")
                .at(at.clone())
                .label("URLs are signed here, and `request_headers` has `{query}`")
                .help(
                    "`{query}` is the query as the client sent it: leave it out where the origin may not have \
                     the client's signature",
                ),
        );
    }
}

/// Parses `allow`. The outer `None` means that the key is missing, the inner `None` that every
/// address is allowed.
fn allowed(key: Option<&AllowList>, checks: &mut Checks) -> Option<Option<Vec<Network>>> {
    let typed = key?;
    Some((!typed.is_false()).then(|| networks("allow", typed.get_ref(), typed.span(), checks)))
}

fn denied(key: Option<&Names>, checks: &mut Checks) -> Option<Vec<Network>> {
    let typed = key?;
    Some(networks("deny", typed.get_ref(), typed.span(), checks))
}

fn networks(
    name: &str,
    entries: &[Spanned<String>],
    at: Range<usize>,
    checks: &mut Checks,
) -> Vec<Network> {
    names::addresses(name, entries, at, NETWORKS_MAX, checks)
}

fn limit(
    key: &Key<OrFalse<Table<LimitFile>>>,
    scope: &str,
    checks: &mut Checks,
) -> Option<Option<Limit>> {
    let OrFalse::On(Table(typed)) = key.as_ref()?.get_ref() else {
        return Some(None);
    };
    let at = key.as_ref()?.span();
    if typed.requests.is_none() && typed.bandwidth.is_none() {
        checks.push(
            Problem::error("a limit without `requests` and `bandwidth`")
                .at(at)
                .help("add `requests = \"10/s\"` or `bandwidth = \"1MiB\"`, or both"),
        );
    }
    without("burst", &typed.burst, "requests", &typed.requests, checks);
    let after = &typed.bandwidth_after;
    without(
        "bandwidth_after",
        after,
        "bandwidth",
        &typed.bandwidth,
        checks,
    );
    Some(Some(Limit {
        scope: scope.to_owned(),
        requests: requests(typed, checks),
        bytes: bytes(typed, checks),
        clients: checks.count("clients", &typed.clients, CLIENTS, 1024..=1 << 24),
    }))
}

/// Warns about the key `name`, which has no effect unless the key `other` is set.
fn without<A, B>(name: &str, key: &Key<A>, other: &str, there: &Key<B>, checks: &mut Checks) {
    if let (Some(key), None) = (key, there) {
        checks.push(
            Problem::warning(format!("`{name}` does nothing here"))
                .at(key.span())
                .help(format!("add `{other}`, or leave it out")),
        );
    }
}

fn requests(typed: &LimitFile, checks: &mut Checks) -> Option<Filling> {
    let rate = typed.requests.as_ref()?;
    let Some((tokens, per_ns)) = rate_of(rate.get_ref()) else {
        checks.push(
            Problem::error(format!("`{}` is not a rate of requests", rate.get_ref()))
                .at(rate.span())
                .help("write a number from 1 to 1,000,000 and a time, as in \"10/s\", \"600/m\" or \"1000/h\""),
        );
        return None;
    };
    let a_second = tokens * SECOND / per_ns;
    let burst = checks.within("burst", &typed.burst, a_second.max(1), 1..=1_000_000);
    Some(Filling {
        tokens,
        per_ns,
        size: burst,
    })
}

/// Parses a rate such as `10/s`. Returns the number of requests, and the nanoseconds in which that
/// many are allowed.
fn rate_of(text: &str) -> Option<(u64, u64)> {
    let (count, per) = text.split_once('/')?;
    let per_s = match per.trim() {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    let count = count.trim();
    // `parse` alone would accept a sign, too.
    let digits = count.bytes().all(|b| b.is_ascii_digit());
    let count: u64 = count.parse().ok().filter(|_| digits)?;
    (1..=1_000_000)
        .contains(&count)
        .then_some((count, per_s * SECOND))
}

fn bytes(typed: &LimitFile, checks: &mut Checks) -> Option<Filling> {
    let after = checks.within("bandwidth_after", &typed.bandwidth_after, 0, 0..=1 << 50);
    typed.bandwidth.as_ref()?;
    let a_second = checks.within("bandwidth", &typed.bandwidth, 1 << 10, 1 << 10..=1 << 40);
    Some(Filling {
        tokens: a_second,
        per_ns: SECOND,
        size: after.max(a_second / AT_ONCE),
    })
}

fn signed(
    key: &Key<OrFalse<Table<SignedFile>>>,
    checks: &mut Checks,
) -> Option<Option<signed::Options>> {
    let OrFalse::On(Table(typed)) = key.as_ref()?.get_ref() else {
        return Some(None);
    };
    let at = key.as_ref()?.span();
    let lists = [&typed.keys, &typed.key_files];
    let count: usize = lists.into_iter().flatten().map(|l| l.get_ref().len()).sum();
    if !(1..=KEYS_MAX).contains(&count) {
        let (what, help) = match count {
            0 => (
                "signed URLs without a key",
                "add `key_files = [\"/etc/sluice/url.key\"]`, a file with at least 16 random bytes as text, or `keys = [\"…\"]`",
            ),
            _ => (
                "too many keys",
                "keep at most 8: the one for new signatures, and those whose signatures are still valid",
            ),
        };
        checks.push(Problem::error(what).at(at.clone()).help(help));
    }
    let paths = typed.key_files.iter().flat_map(|list| list.get_ref());
    Some(Some(signed::Options {
        keys: secrets(typed.keys.as_ref(), checks),
        key_files: paths.map(|path| PathBuf::from(path.get_ref())).collect(),
        client: typed.client.unwrap_or(false),
        prefix: typed.prefix.unwrap_or(false),
        names: parameters(typed, checks),
    }))
}

fn secrets(key: Option<&Names>, checks: &mut Checks) -> Vec<Secret> {
    let typed = key.iter().flat_map(|list| list.get_ref());
    let secrets = typed.map(|text| {
        let length = text.get_ref().len();
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&length) {
            checks.push(
                Problem::error("this is not a key")
                    .at(text.span())
                    .label(format!("{length} bytes"))
                    .help("a key has 16 to 1024 bytes; `openssl rand -hex 32` makes one"),
            );
        }
        Secret(text.get_ref().as_bytes().into())
    });
    secrets.collect()
}

fn parameters(typed: &SignedFile, checks: &mut Checks) -> signed::Names {
    let d = signed::Names::default();
    let names = signed::Names {
        expires: parameter(&typed.expires_parameter, d.expires, checks),
        signature: parameter(&typed.signature_parameter, d.signature, checks),
        prefix: parameter(&typed.prefix_parameter, d.prefix, checks),
    };
    let keys = [
        (&typed.expires_parameter, &names.expires),
        (&typed.signature_parameter, &names.signature),
        (&typed.prefix_parameter, &names.prefix),
    ];
    let twice = keys.iter().find(|(key, name)| {
        key.is_some() && keys.iter().filter(|(_, other)| other == name).count() > 1
    });
    if let Some((Some(key), name)) = twice {
        checks.push(
            Problem::error(format!("two parameters are called `{name}`"))
                .at(key.span())
                .help("give each parameter its own name"),
        );
    }
    names
}

fn parameter(key: &Key<String>, default: Box<str>, checks: &mut Checks) -> Box<str> {
    let Some(typed) = key else { return default };
    let name = typed.get_ref();
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(allowed) {
        checks.push(
            Problem::error(format!("`{name}` is not the name of a parameter"))
                .at(typed.span())
                .help(
                    "write letters, digits and -._~, at most 64, which need no escaping in a URL",
                ),
        );
    }
    name.as_str().into()
}
