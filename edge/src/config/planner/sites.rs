//! Plans `[[site]]`: hosts, and the routes of each site.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use toml::Spanned;

use super::edit::{Level, Read};
use super::gate::Said;
use super::routes::{Above, Known, route, route_place};
use super::upstreams::is_host;
use super::{compress, logs, rules};
use crate::cache::Rules;
use crate::config::checks::Checks;
use crate::config::file::{File, SiteFile};
use crate::config::plan::{RoutePlan, SitePlan};
use crate::config::report::Problem;
use crate::config::value::Named;
use crate::http::Network;

/// Returns all sites. Also warns about unused upstreams and caches.
pub fn plan(file: &File, purge: &[Network], read: Read<'_>, checks: &mut Checks) -> Vec<SitePlan> {
    let plain = Rules {
        purge_from: purge.to_vec(),
        ..Rules::default()
    };
    let of_caches = file.cache.iter().map(|(name, cache)| {
        let rules = rules::plan(&plain, &cache.rules(), checks);
        (name.get_ref().as_str(), rules)
    });
    let known = Known {
        upstreams: &file.upstream,
        caches: &file.cache,
        rules: of_caches.collect(),
        plain,
        read,
    };
    let sites = sites(file, checks);
    let mut taken = HashSet::new();
    let plans: Vec<SitePlan> = sites
        .iter()
        .map(|site| one(site, &known, &mut taken, checks))
        .collect();
    let routes = || plans.iter().flat_map(|s| &s.routes);
    unused(
        "upstream",
        &file.upstream,
        |name| routes().any(|r| r.proxied().is_some_and(|p| p.upstream == name)),
        checks,
    );
    unused(
        "cache",
        &file.cache,
        |name| routes().any(|r| r.cache() == Some(name)),
        checks,
    );
    plans
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

fn unused<T>(kind: &str, sections: &Named<T>, used: impl Fn(&str) -> bool, checks: &mut Checks) {
    for name in sections.keys().filter(|name| !used(name.get_ref())) {
        checks.push(
            Problem::warning(format!(
                "{kind} `{}` is not used by any route",
                name.get_ref()
            ))
            .at(name.span()),
        );
    }
}

fn one(
    site: &Spanned<SiteFile>,
    known: &Known,
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
    let above = Above {
        compress: typed.compress.clone(),
        gate: Said::by_site(typed, &name, checks),
        edit: Level::of_site(typed, known.read, checks),
        name,
        typed,
    };
    let mut routes: Vec<RoutePlan> = Vec::new();
    for of_route in &typed.route {
        let route = route(of_route, &above, known, checks);
        if let Some(before) = routes
            .iter()
            .position(|earlier| earlier.matcher.covers(&route.matcher))
        {
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
        routes.push(route);
    }
    SitePlan { hosts, routes }
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

fn host_name(text: &Spanned<String>, checks: &mut Checks) -> Option<String> {
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
