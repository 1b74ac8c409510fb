//! Plans `[[site]]`: hosts, and the routes of each site.

use std::borrow::Cow;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;

use super::edit::{Level, ReadPage};
use super::gate::GateKeys;
use super::routes::{Sections, SiteKeys, route, route_place};
use super::server_url::is_host;
use super::{compress, logs, rules, tls, upstreams};
use crate::cache::Rules;
use crate::config::checks::Checks;
use crate::config::file::{File, RouteFile, SiteFile};
use crate::config::lints;
use crate::config::plan::{RouteHandler, RoutePlan, SitePlan};
use crate::config::report::Problem;
use crate::config::value::Named;
use crate::http::Network;
use crate::route::Covering;

/// Returns all sites. Also warns about unused upstreams and caches.
pub fn plan(
    file: &File,
    purge: &[Network],
    read: ReadPage<'_>,
    checks: &mut Checks,
) -> Vec<SitePlan> {
    let plain = Rules {
        purge_from: purge.to_vec(),
        ..Rules::default()
    };
    let of_caches = file.cache.iter().map(|(name, cache)| {
        let rules = rules::plan(&plain, &cache.rules(), checks);
        (name.get_ref().as_str(), rules)
    });
    let known = Sections {
        upstreams: &file.upstream,
        caches: &file.cache,
        rules: of_caches.collect(),
        plain,
        read,
    };
    let sites = sites(file, checks);
    let mut taken = HashSet::new();
    let mut plans: Vec<SitePlan> = sites
        .iter()
        .map(|site| one(site, &known, &mut taken, checks))
        .collect();
    share_equal_options(&mut plans);
    let routes = || plans.iter().flat_map(|s| &s.routes);
    unused(
        "upstream",
        &file.upstream,
        |name| routes().any(|r| r.proxied().is_some_and(|p| p.uses(name))),
        |name| {
            let routes = sites.iter().flat_map(|site| &site.get_ref().route);
            let mut urls = routes.filter_map(|route| route.get_ref().proxy.as_ref());
            let url = urls.find(|url| {
                let own = upstreams::name_of(url.get_ref());
                own.is_some() && own == upstreams::name_of(&format!("http://{name}"))
            })?;
            Some(url.get_ref().clone())
        },
        checks,
    );
    unused(
        "cache",
        &file.cache,
        |name| routes().any(|r| r.cache() == Some(name)),
        |_| None,
        checks,
    );
    plans
}

/// Lets a route share its caching rules and its edits with an earlier route that has equal ones, so
/// that many routes take little memory. Compares only with the latest different ones, since the
/// time must not grow with the square of the number of routes.
fn share_equal_options(sites: &mut [SitePlan]) {
    let (mut rules, mut edits) = (Latest::default(), Latest::default());
    for route in sites.iter_mut().flat_map(|site| &mut site.routes) {
        if let RouteHandler::Upstream(proxied) = &mut route.handler {
            rules.share(&mut proxied.rules);
        }
        if let Some(edit) = &mut route.edit {
            edits.share(edit);
        }
    }
}

/// The latest values that differ from one another.
struct Latest<T>(VecDeque<Arc<T>>);

impl<T> Default for Latest<T> {
    fn default() -> Latest<T> {
        Latest(VecDeque::new())
    }
}

impl<T: PartialEq> Latest<T> {
    /// Number of values to compare with.
    const COUNT: usize = 8;

    /// Replaces a value by an equal one of the latest values, if there is one.
    fn share(&mut self, value: &mut Arc<T>) {
        match self.0.iter().find(|known| **known == *value) {
            Some(known) => *value = known.clone(),
            None => {
                self.0.truncate(Self::COUNT - 1);
                self.0.push_front(value.clone());
            }
        }
    }
}

/// Returns the sites of the file. Routes outside of any site become a site for any host.
fn sites<'a>(file: &'a File, checks: &mut Checks) -> Cow<'a, [Spanned<SiteFile>]> {
    match (file.route.first(), file.site.is_empty()) {
        (None, false) => {}
        (None, true) => checks.push(
            Problem::error("no route: every request would be answered 404")
                .help("add one:\n[[route]]\nproxy = \"http://127.0.0.1:9000\""),
        ),
        (Some(first), true) => {
            let site = SiteFile {
                route: file.route.clone(),
                ..SiteFile::default()
            };
            return Cow::Owned(vec![Spanned::new(first.span(), site)]);
        }
        (Some(first), false) => checks.push(
            Problem::error("a [[route]] outside of a site, beside [[site]]")
                .at(first.span())
                .label("this route has no site, so its hosts are unknown")
                .help("write [[site.route]] below the [[site]] that it belongs to; a site without `hosts` answers for any host"),
        ),
    }
    Cow::Borrowed(&file.site)
}

/// Warns about sections that no route uses. `written` returns a URL that a route has in place of a
/// section's name.
fn unused<T>(
    kind: &str,
    sections: &Named<T>,
    used: impl Fn(&str) -> bool,
    written: impl Fn(&str) -> Option<String>,
    checks: &mut Checks,
) {
    let key = match kind {
        "upstream" => "proxy",
        other => other,
    };
    for name in sections.keys().filter(|name| !used(name.get_ref())) {
        let reference = format!("{key} = \"{}\"", name.get_ref());
        let help = match written(name.get_ref()) {
            Some(url) => {
                format!("write `{reference}`: \"{url}\" is a server with this host name")
            }
            None => format!("write `{reference}` in a route, or leave this section out"),
        };
        checks.push(
            Problem::warning(format!(
                "{kind} `{}` is not used by any route",
                name.get_ref()
            ))
            .at(name.span())
            .help(help),
        );
    }
}

fn one(
    site: &Spanned<SiteFile>,
    known: &Sections,
    taken: &mut HashSet<String>,
    checks: &mut Checks,
) -> SitePlan {
    let typed = site.get_ref();
    let hosts = hosts(site, taken, checks);
    // Errors in the site's key are reported here, once, and not for each route.
    compress::one(&typed.compress, checks);
    if typed.route.is_empty() {
        checks.push(
            Problem::error("a site without a route")
                .at(site.span())
                .help("add one:\n[[site.route]]\nproxy = \"http://127.0.0.1:9000\""),
        );
    }
    let name = match hosts.is_empty() {
        true => "any host".to_owned(),
        false => hosts.join(", "),
    };
    logs::of_site(typed, checks);
    let above = SiteKeys {
        compress: typed.compress.clone(),
        gate: GateKeys::by_site(typed, &name, known.read, checks),
        edit: Level::of_site(typed, known.read, checks),
        name,
        typed,
    };
    lints::paths::check(&typed.route, checks);
    let routes = typed.route.iter();
    let routes: Vec<RoutePlan> = routes
        .map(|of_route| route(of_route, &above, known, checks))
        .collect();
    covered(&typed.route, &routes, checks);
    SitePlan {
        hosts,
        tls: tls::site(typed, checks),
        routes,
    }
}

/// Warns about routes that can never match, because an earlier one handles all of their requests.
fn covered(written: &[Spanned<RouteFile>], routes: &[RoutePlan], checks: &mut Checks) {
    let mut covering = Covering::default();
    for (of_route, route) in written.iter().zip(routes) {
        if let Some(before) = covering.add(&route.matcher) {
            checks.push(
                Problem::warning("this route can never match")
                    .at(route_place(of_route))
                    .label(format!(
                        "route {} of the site handles all requests that this one matches",
                        before + 1
                    ))
                    .help("routes are tried in order: put the more specific one first"),
            );
        }
    }
}

/// Returns the site's host names. Each name may belong to one site only.
fn hosts(
    site: &Spanned<SiteFile>,
    taken: &mut HashSet<String>,
    checks: &mut Checks,
) -> Vec<String> {
    let written = site.get_ref().hosts.as_ref();
    if let Some(hosts) = written.filter(|hosts| hosts.is_false()) {
        checks.push(
            Problem::error("a site without a host")
                .at(hosts.span())
                .help("for any host, leave `hosts` out"),
        );
    }
    let typed = written.map_or(&[][..], |hosts| hosts.get_ref());
    let named: Vec<(String, Range<usize>)> = typed
        .iter()
        .filter_map(|host| Some((host_name(host, checks)?, host.span())))
        .collect();
    let any = typed
        .is_empty()
        .then(|| ("any host".to_owned(), site.span()));
    for (host, span) in named.iter().chain(&any) {
        if !taken.insert(host.clone()) {
            checks.push(
                Problem::error(format!("two sites have the host {host}"))
                    .at(span.clone())
                    .help("move the routes of both into one site, in the order in which they are to be tried"),
            );
        }
    }
    named.into_iter().map(|(host, _)| host).collect()
}

/// Returns a host in lower case, which may be `*.name`.
pub(super) fn host_name(text: &Spanned<String>, checks: &mut Checks) -> Option<String> {
    let host = text.get_ref().to_ascii_lowercase();
    let name = host.strip_prefix("*.").unwrap_or(&host);
    let bare = name
        .strip_prefix('[')
        .and_then(|n| n.strip_suffix(']'))
        .unwrap_or(name);
    if is_host(bare) && (bare.len() < name.len()) == bare.contains(':') {
        return Some(host.strip_suffix('.').unwrap_or(&host).to_owned());
    }
    let help = match () {
        () if host == "*" => "for any host, leave `hosts` out",
        () if host.contains("://") => "write the name alone, without http://",
        () if host.contains(':') => "write the name alone: a site serves every listener's port",
        () if host.contains('*') => {
            "a `*` is allowed only as the first label, as in \"*.example.com\""
        }
        () if !host.is_ascii() => "write it in its ASCII form (xn--…)",
        () => "write a name such as \"cdn.example.com\" or \"*.example.com\"",
    };
    checks.push(
        Problem::error("this is not a host name")
            .at(text.span())
            .help(help),
    );
    None
}
