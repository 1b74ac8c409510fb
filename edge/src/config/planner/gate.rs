//! Plans `allow`, `deny`, `client_certificate`, `limit`, `allow_methods` and `signed_urls` of sites and routes.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use super::edit::ReadPage;
use super::{methods, names};
use crate::config::checks::Checks;
use crate::config::file::{ClientCertificateFile, LimitFile, RouteFile, SignedFile, SiteFile};
use crate::config::report::{Problem, without_error_numbers};
use crate::config::value::{AllowList, Key, Names, OrFalse, OrTable, Table};
use crate::edit;
use crate::gate::signed::{self, KEY_BYTES_MAX, KEY_BYTES_MIN, Secret};
use crate::gate::{BucketRate, Limit, Options, SECOND};
use crate::http::{Methods, Network};

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
pub const BURST_DIVISOR: u64 = 8;

/// The values of these keys in a site or route. `None`: the key is missing. `Some(None)`: the key
/// is `false`.
#[derive(Clone, Default)]
pub struct GateKeys {
    allow: Option<Option<Vec<Network>>>,
    deny: Option<Vec<Network>>,
    client_certificate: Option<bool>,
    limit: Option<Option<Limit>>,
    allow_methods: Option<Option<Methods>>,
    signed: Option<Option<signed::Options>>,
}

impl GateKeys {
    /// Parses the keys of a site. `scope` is the site's name in messages.
    pub fn by_site(
        site: &SiteFile,
        scope: &str,
        read: ReadPage<'_>,
        checks: &mut Checks,
    ) -> GateKeys {
        GateKeys {
            allow: allowed(site.allow.as_ref(), checks),
            deny: denied(site.deny.as_ref(), checks),
            client_certificate: flag(&site.client_certificate).or(required(site)),
            limit: limit(&site.limit, scope, checks),
            allow_methods: methods::allowed(site.allow_methods.as_ref(), checks),
            signed: signed(&site.signed_urls, read, checks),
        }
    }

    /// Parses the keys of a route. `scope` is the route's name in messages.
    fn by_route(
        route: &RouteFile,
        scope: &str,
        read: ReadPage<'_>,
        checks: &mut Checks,
    ) -> GateKeys {
        GateKeys {
            allow: allowed(route.allow.as_ref(), checks),
            deny: denied(route.deny.as_ref(), checks),
            client_certificate: flag(&route.client_certificate),
            limit: limit(&route.limit, scope, checks),
            allow_methods: methods::allowed(route.allow_methods.as_ref(), checks),
            signed: signed(&route.signed_urls, read, checks),
        }
    }

    /// Returns the gate of a route of this site. Each value is the route's, else the site's.
    pub fn plan(
        &self,
        route: &RouteFile,
        scope: &str,
        purge: &[Network],
        read: ReadPage<'_>,
        checks: &mut Checks,
    ) -> Option<Box<Options>> {
        let (site, route) = (self.clone(), GateKeys::by_route(route, scope, read, checks));
        let options = Options {
            allow: route.allow.or(site.allow).flatten(),
            deny: route.deny.or(site.deny).unwrap_or_default(),
            purge_from: purge.to_vec(),
            client_certificate: route
                .client_certificate
                .or(site.client_certificate)
                .unwrap_or_default(),
            limit: route.limit.or(site.limit).flatten(),
            allow_methods: route.allow_methods.or(site.allow_methods).flatten(),
            signed_urls: route.signed.or(site.signed).flatten(),
        };
        (!options.is_open()).then(|| Box::new(options))
    }
}

fn flag(key: &Key<bool>) -> Option<bool> {
    key.as_ref().map(|typed| *typed.get_ref())
}

/// Returns `Some(true)` if the TLS handshakes of a site demand a client certificate. Then its requests in clear text
/// and over a listener with other demands need one, too.
fn required(site: &SiteFile) -> Option<bool> {
    let OrTable(tls) = site.tls.as_ref()?.get_ref();
    let word = tls
        .client_certificate
        .as_ref()
        .map(|typed| typed.get_ref().0);
    let is_required = word.unwrap_or_default() == ClientCertificateFile::Require;
    (tls.client_ca.is_some() && is_required).then_some(true)
}

/// Warns if edits of requests use the query of signed URLs. Edits run before the gate removes the
/// signature from the query, so they would see it.
pub fn seen_signatures(
    gate: Option<&Options>,
    edit: Option<&edit::Options>,
    at: &Range<usize>,
    checks: &mut Checks,
) {
    let is_signed = gate.is_some_and(|gate| gate.signed_urls.is_some());
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

fn requests(typed: &LimitFile, checks: &mut Checks) -> Option<BucketRate> {
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
    Some(BucketRate {
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

fn bytes(typed: &LimitFile, checks: &mut Checks) -> Option<BucketRate> {
    let after = checks.within("bandwidth_after", &typed.bandwidth_after, 0, 0..=1 << 50);
    typed.bandwidth.as_ref()?;
    let a_second = checks.within("bandwidth", &typed.bandwidth, 1 << 10, 1 << 10..=1 << 40);
    Some(BucketRate {
        tokens: a_second,
        per_ns: SECOND,
        size: after.max(a_second / BURST_DIVISOR),
    })
}

fn signed(
    key: &Key<OrFalse<Table<SignedFile>>>,
    read: ReadPage<'_>,
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
    Some(Some(signed::Options {
        keys: secrets(typed.keys.as_ref(), checks),
        key_files: key_files(typed.key_files.as_ref(), read, checks),
        client: typed.client.unwrap_or(false),
        prefix: typed.prefix.unwrap_or(false),
        names: parameters(typed, checks),
    }))
}

/// Returns the paths of key files, and reports those that contain no key.
fn key_files(key: Option<&Names>, read: ReadPage<'_>, checks: &mut Checks) -> Vec<PathBuf> {
    let typed = key.into_iter().flat_map(|list| list.get_ref());
    let paths = typed.map(|typed| {
        let path = PathBuf::from(typed.get_ref());
        let why = match read(&path) {
            Some(Ok(text)) => Secret::from_file(text.as_bytes()).err().map(str::to_owned),
            Some(Err(error)) => Some(without_error_numbers(&error.to_string())),
            None => None,
        };
        if let Some(why) = why {
            checks.push(
                Problem::error("can't read a key from this file")
                    .at(typed.span())
                    .label(format!("{}: {why}", path.display()))
                    .help("name a file that contains only the key, as `openssl rand -hex 32` writes it"),
            );
        }
        path
    });
    paths.collect()
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
