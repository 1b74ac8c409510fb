//! `[[site]]`: from what was typed to hosts and routes that lead somewhere.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use toml::Spanned;

use super::checks::Checks;
use super::edit::{Level, Read};
use super::file::{CacheFile, File, RouteFile, SiteFile, UpstreamFile};
use super::gate::Said;
use super::report::Problem;
use super::unknown::did_you_mean;
use super::upstreams::{self, is_host};
use super::value::{Key, Named};
use super::{logs, rules};
use crate::cache::Rules;
use crate::http::pattern::Pattern;
use crate::http::{Network, hop};
use crate::route::{Matcher, PatternError};
use crate::telemetry::LogRule;
use crate::{compress, edit, files, gate};

/// One site: the hosts it answers for, and where their requests go.
#[derive(Clone, Debug, PartialEq)]
pub struct SitePlan {
    /// Host names in lower case, or `*.name`; none: any.
    pub hosts: Vec<String>,
    /// Tried in order; the first that matches counts. At least one.
    pub routes: Vec<RoutePlan>,
}

/// `[[site.route]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutePlan {
    /// Which requests.
    pub matcher: Matcher,
    /// How what is stored is compressed, if it is.
    pub compress: Option<compress::Options>,
    /// What is done to the heads of requests and responses.
    pub edit: Option<Box<edit::Options>>,
    /// What stands before it, if anything does.
    pub gate: Option<Box<gate::Options>>,
    /// Which of them are logged; `None`: all, where there is a log.
    pub log: Option<LogRule>,
    /// What answers them.
    pub leads_to: LeadsTo,
}

/// What answers on a route.
#[derive(Clone, Debug, PartialEq)]
pub enum LeadsTo {
    /// An upstream's servers, maybe through a cache.
    Upstream(Box<Proxied>),
    /// A folder of files.
    Files(Box<files::Options>),
    /// Another address.
    Redirect(Box<edit::RedirectOptions>),
    /// A fixed response.
    Respond(Box<edit::RespondOptions>),
}

/// An upstream, maybe behind a cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Proxied {
    /// The upstream's name.
    pub upstream: String,
    /// The cache's name, if its responses are cached.
    pub cache: Option<String>,
    /// How they are: what the route says, else its cache, else the defaults.
    pub rules: Rules,
}

impl RoutePlan {
    /// The upstream it leads to, if it does.
    pub fn proxied(&self) -> Option<&Proxied> {
        match &self.leads_to {
            LeadsTo::Upstream(proxied) => Some(proxied),
            LeadsTo::Files(_) | LeadsTo::Redirect(_) | LeadsTo::Respond(_) => None,
        }
    }

    /// The name of the cache that it goes through.
    pub fn cache(&self) -> Option<&str> {
        self.proxied()?.cache.as_deref()
    }
}

/// What the routes' names may lead to.
struct Known<'a> {
    upstreams: &'a Named<UpstreamFile>,
    caches: &'a Named<CacheFile>,
    /// The caching rules of each cache.
    rules: BTreeMap<&'a str, Rules>,
    /// Of routes without a cache.
    plain: Rules,
    read: Read<'a>,
}

/// All sites. Also says which upstreams and caches nobody uses.
pub fn plan(file: &File, purge: &[Network], read: Read<'_>, checks: &mut Checks) -> Vec<SitePlan> {
    let plain = Rules {
        purge: purge.to_vec(),
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

/// The sites of the file; routes outside of any site make one that answers for any host.
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
                .label("which hosts this route is for is not clear")
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
    // What is wrong with it is said once, and not for each route.
    super::compress::one(&typed.compress, checks);
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
                        "route {} of the site takes all of its requests",
                        before + 1
                    ))
                    .help("routes are tried in order: put the narrower one first"),
            );
        }
        routes.push(route);
    }
    SitePlan { hosts, routes }
}

/// The site's host names, each of which no other site may have.
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
                Problem::error(format!("two sites answer for {host}"))
                    .at(span.clone())
                    .help("put the routes of both into one site; they are tried in order"),
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
        () if host.contains(':') => {
            "write the name alone: a site answers on every port that is listened on"
        }
        () if host.contains('*') => {
            "a `*` may only stand for all that comes before a dot, as in \"*.example.com\""
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

/// What to underline of a route: its condition, else its target, else its header.
fn route_place(route: &Spanned<RouteFile>) -> Range<usize> {
    let typed = route.get_ref();
    let keys = [&typed.path, &typed.path_regex, &typed.query, &typed.proxy];
    let key = keys.into_iter().flatten().next().map(Spanned::span);
    let files = || typed.files.as_ref().map(Spanned::span);
    let respond = || typed.respond.as_ref().map(Spanned::span);
    let redirect = || typed.redirect.as_ref().map(Spanned::span);
    let key = key.or_else(files).or_else(respond).or_else(redirect);
    key.unwrap_or(route.span())
}

/// What a site says of all of its routes.
struct Above<'a> {
    /// What the site is called where one of its routes is named.
    name: String,
    typed: &'a SiteFile,
    compress: super::compress::Typed,
    gate: Said,
    edit: Level,
}

fn route(
    route: &Spanned<RouteFile>,
    above: &Above<'_>,
    known: &Known,
    checks: &mut Checks,
) -> RoutePlan {
    let typed = route.get_ref();
    let matcher = matcher(typed, checks);
    let mut leads_to = leads_to(route, known, checks);
    let own_words = matches!(&leads_to, LeadsTo::Respond(options) if options.content.is_some());
    let level = Level::of_route(typed, known.read, checks);
    let edit = level.within(&above.edit, own_words, checks);
    if let (LeadsTo::Upstream(proxied), Some(edit)) = (&mut leads_to, &edit)
        && proxied.cache.is_some()
    {
        carry_constants(&mut proxied.rules, edit);
    }
    // Only a cache knows what PURGE is: elsewhere it is a request like any other.
    let purge = typed.cache.as_ref().and(typed.proxy.as_ref());
    let purge = purge.map_or(&[][..], |_| &known.plain.purge);
    let name = format!("{}: {matcher}", above.name);
    let gate = above.gate.plan(typed, &name, purge, checks);
    super::gate::seen_signatures(
        gate.as_deref(),
        edit.as_deref(),
        &route_place(route),
        checks,
    );
    RoutePlan {
        compress: super::compress::plan(typed, &above.compress, checks),
        edit,
        gate,
        log: logs::of_route(above.typed, typed, checks),
        matcher,
        leads_to,
    }
}

/// Fields that are the same in every request reach the origin by shared fetches, too.
fn carry_constants(rules: &mut Rules, edit: &edit::Options) {
    let shared = |name: &str| name == "authorization" || hop::is_in(hop::SHARED, name.as_bytes());
    let names = edit.request.constant();
    for name in names.filter(|name| !shared(name) && hop::may_be_carried(name.as_bytes())) {
        let pattern = Pattern::new(name);
        if !rules.forward.contains(&pattern) {
            rules.forward.push(pattern);
        }
    }
}

fn leads_to(route: &Spanned<RouteFile>, known: &Known, checks: &mut Checks) -> LeadsTo {
    let typed = route.get_ref();
    one_target(route, checks);
    let proxied = Proxied {
        upstream: upstream(&typed.proxy, known, checks).unwrap_or_default(),
        cache: named("cache", &typed.cache, known.caches, checks),
        rules: rules_of(typed, known, checks),
    };
    let (why, leads_to) = if let Some(files) = &typed.files {
        let options = super::files::plan(files, checks);
        let why = "files are kept in memory of their own";
        (why, LeadsTo::Files(Box::new(options)))
    } else if let Some(fixed) = &typed.respond {
        let options = super::respond::respond(fixed, checks);
        ("nothing is fetched", LeadsTo::Respond(Box::new(options)))
    } else if let Some(options) = typed
        .redirect
        .as_ref()
        .and_then(|redirect| super::respond::redirect(redirect, checks))
    {
        ("nothing is fetched", LeadsTo::Redirect(Box::new(options)))
    } else {
        return LeadsTo::Upstream(Box::new(proxied));
    };
    if let Some(cache) = &typed.cache {
        checks.push(
            Problem::warning("`cache` does nothing here")
                .at(cache.span())
                .label(why)
                .help(match typed.files {
                    Some(_) => "leave it out, and set `memory` of `files`",
                    None => "leave it out",
                }),
        );
    }
    leads_to
}

/// Says so where a route leads nowhere, or to more than one thing.
fn one_target(route: &Spanned<RouteFile>, checks: &mut Checks) {
    let typed = route.get_ref();
    let targets = [
        ("proxy", typed.proxy.as_ref().map(Spanned::span)),
        ("files", typed.files.as_ref().map(Spanned::span)),
        ("respond", typed.respond.as_ref().map(Spanned::span)),
        ("redirect", typed.redirect.as_ref().map(Spanned::span)),
    ];
    let mut targets = targets.into_iter().filter_map(|(key, at)| Some((key, at?)));
    let problem = match (targets.next(), targets.next()) {
        (Some(_), None) => return,
        (Some((one, _)), Some((other, at))) => {
            Problem::error(format!("a route with both `{one}` and `{other}`"))
                .at(at)
                .help("keep one, and give the other a route of its own")
        }
        (None, _) => Problem::error("a route that leads nowhere")
            .at(route.span())
            .help(
                "add `proxy = \"http://HOST\"` or the name of an [upstream.NAME], `files = \"FOLDER\"`, \
                 `respond = \"TEXT\"` or `redirect = \"ADDRESS\"`",
            ),
    };
    checks.push(problem);
}

/// The route's own keys win, one by one; its cache's hold for the others.
fn rules_of(typed: &RouteFile, known: &Known, checks: &mut Checks) -> Rules {
    let own = typed.rules();
    if let Some(cache) = &typed.cache {
        let base = known.rules.get(cache.get_ref().as_str());
        return rules::plan(base.unwrap_or(&known.plain), &own, checks);
    }
    // What is wrong is said all the same; whether it is wise does not matter.
    let mut wrong = Checks::default();
    rules::plan(&known.plain, &own, &mut wrong);
    wrong.problems.retain(|problem| problem.fatal);
    checks.problems.append(&mut wrong.problems);
    for (name, at) in own.typed() {
        checks.push(
            Problem::warning(format!("`{name}` does nothing here"))
                .at(at)
                .label("the route has no cache")
                .help("add `cache = \"NAME\"` with the name of a [cache.NAME], or leave this out"),
        );
    }
    known.plain.clone()
}

/// The name of the upstream that a route names, or that its URL stands for.
fn upstream(key: &Key<String>, known: &Known, checks: &mut Checks) -> Option<String> {
    let text = key.as_ref()?.get_ref();
    let is_section = known.upstreams.keys().any(|name| name.get_ref() == text);
    match upstreams::is_url(text) && !is_section {
        true => upstreams::name_of(text),
        false => named("upstream", key, known.upstreams, checks),
    }
}

fn named<T>(
    kind: &str,
    name: &Key<String>,
    sections: &Named<T>,
    checks: &mut Checks,
) -> Option<String> {
    let name = name.as_ref()?;
    let known = || sections.keys().map(|k| k.get_ref().as_str());
    if !known().any(|k| k == name.get_ref()) {
        let help = match did_you_mean(name.get_ref(), known()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if kind == "upstream" && name.get_ref().contains(['.', ':']) => {
                "write the URL of a server, as in \"http://127.0.0.1:9000\", or the NAME of an [upstream.NAME]".to_owned()
            }
            None => format!("add a section [{kind}.{}]", name.get_ref()),
        };
        checks.push(
            Problem::error(format!("no {kind} is named `{}`", name.get_ref()))
                .at(name.span())
                .help(help),
        );
    }
    Some(name.get_ref().clone())
}

fn matcher(route: &RouteFile, checks: &mut Checks) -> Matcher {
    let mut matcher = match (&route.path, &route.path_regex) {
        (None, None) => Matcher::any(),
        (Some(path), None) => usable(path, Matcher::path(path.get_ref()), checks),
        (None, Some(regex)) => usable(regex, Matcher::path_regex(regex.get_ref()), checks),
        (Some(_), Some(regex)) => {
            checks.push(
                Problem::error("a route with both `path` and `path_regex`")
                    .at(regex.span())
                    .help("keep one: a regex can also begin with the path, as in '^/static/'"),
            );
            Matcher::any()
        }
    };
    if let Some(query) = &route.query {
        matcher = usable(query, matcher.with_query(query.get_ref()), checks);
    }
    matcher
}

/// The matcher, or one for everything where its pattern is wrong.
fn usable(
    text: &Spanned<String>,
    matcher: Result<Matcher, PatternError>,
    checks: &mut Checks,
) -> Matcher {
    matcher.unwrap_or_else(|error| {
        checks.push(
            Problem::error(error.what)
                .at(text.span())
                .label(error.why)
                .help(error.help),
        );
        Matcher::any()
    })
}
