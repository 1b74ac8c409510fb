//! Plans `[[site.route]]` and `[[route]]`: conditions, handlers and rules.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;

use super::edit::{Level, ReadPage};
use super::names::named;
use super::{
    buffers, compress, files, gate, logs, methods, paths, redirects, respond, rules, server_url,
    upstreams,
};
use crate::cache::Rules;
use crate::config::checks::Checks;
use crate::config::file::{CacheFile, RouteFile, SiteFile, UpstreamFile};
use crate::config::plan::{Proxied, RouteHandler, RoutePlan};
use crate::config::report::Problem;
use crate::config::value::Named;
use crate::edit;
use crate::http::hop;
use crate::http::path_regex::PatternError;
use crate::route::Matcher;
use gate::GateKeys;

/// The sections to which routes refer by name.
pub struct Sections<'a> {
    /// Sections `[upstream.NAME]`.
    pub upstreams: &'a Named<UpstreamFile>,
    /// Sections `[cache.NAME]`.
    pub caches: &'a Named<CacheFile>,
    /// Caching rules of each cache.
    pub rules: BTreeMap<&'a str, Rules>,
    /// Caching rules of routes without a cache.
    pub plain: Rules,
    /// Reads the files of error pages.
    pub read: ReadPage<'a>,
}

/// The keys of a site that apply to all of its routes.
pub struct SiteKeys<'a> {
    /// Name of the site in messages.
    pub name: String,
    /// Section of the site.
    pub typed: &'a SiteFile,
    /// The site's `compress`.
    pub compress: compress::CompressKey,
    /// The site's `allow`, `deny`, `limit` and `signed_urls`.
    pub gate: GateKeys,
    /// The site's edits of headers.
    pub edit: Level,
}

/// Returns the plan of one route.
pub fn route(
    route: &Spanned<RouteFile>,
    above: &SiteKeys<'_>,
    known: &Sections,
    checks: &mut Checks,
) -> RoutePlan {
    let typed = route.get_ref();
    let matcher = matcher(typed, checks);
    let mut handler = handler(route, &matcher, known, checks);
    let own_words = matches!(&handler, RouteHandler::Respond(options) if options.content.is_some());
    let level = Level::of_route(typed, known.read, checks);
    let edit = level.within(&above.edit, own_words, checks);
    if let (RouteHandler::Upstream(proxied), Some(edit)) = (&mut handler, &edit)
        && proxied.cache.is_some()
    {
        carry_constants(Arc::make_mut(&mut proxied.rules), edit);
    }
    // Only routes with a cache treat PURGE specially, so only these need the addresses that may
    // purge.
    let purge = typed.cache.as_ref().and(typed.proxy.as_ref());
    let purge = purge.map_or(&[][..], |_| &known.plain.purge_from);
    let name = format!("{}: {matcher}", above.name);
    let gate = above.gate.plan(typed, &name, purge, known.read, checks);
    if let (Some(gate), Some(listed)) = (&gate, &typed.invalidate_on)
        && let Some(allowed) = &gate.allow_methods
    {
        methods::refused(listed, allowed, checks);
    }
    gate::seen_signatures(
        gate.as_deref(),
        edit.as_deref(),
        &route_place(route),
        checks,
    );
    RoutePlan {
        compress: compress::plan(typed, &above.compress, checks),
        edit,
        gate,
        log: logs::of_route(above.typed, typed, checks),
        matcher,
        handler,
    }
}

/// Adds headers that edits set to a constant to those that shared fetches contain, since their
/// values do not depend on the client.
fn carry_constants(rules: &mut Rules, edit: &edit::Options) {
    let names = edit.request.constant();
    for name in
        names.filter(|&name| name != "authorization" && hop::may_be_constant(name.as_bytes()))
    {
        rules
            .constant_headers
            .push(name.to_ascii_lowercase().into());
    }
}

fn handler(
    route: &Spanned<RouteFile>,
    matcher: &Matcher,
    known: &Sections,
    checks: &mut Checks,
) -> RouteHandler {
    let typed = route.get_ref();
    one_target(route, checks);
    let proxied = proxied(typed, matcher, known, checks);
    let (why, handler) = if let Some(files) = &typed.files {
        let options = files::plan(files, checks);
        let why = "`files` has its own memory";
        (why, RouteHandler::Files(Box::new(options)))
    } else if let Some(fixed) = &typed.respond {
        let options = respond::respond(fixed, checks);
        (
            "nothing is fetched",
            RouteHandler::Respond(Box::new(options)),
        )
    } else if let Some(options) = typed
        .redirect
        .as_ref()
        .and_then(|redirect| respond::redirect(redirect, checks))
    {
        (
            "nothing is fetched",
            RouteHandler::Redirect(Box::new(options)),
        )
    } else {
        return RouteHandler::Upstream(Box::new(proxied));
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
    handler
}

fn proxied(typed: &RouteFile, matcher: &Matcher, known: &Sections, checks: &mut Checks) -> Proxied {
    let (upstream, path) = match &typed.proxy {
        None => Default::default(),
        Some(proxy) => upstream(proxy, known, checks),
    };
    let at = typed.proxy.as_ref().map(Spanned::span).unwrap_or_default();
    let path = path.and_then(|path| paths::path_map(path, at, typed, matcher, checks));
    let rewrite = paths::rewrite(typed, checks);
    let mut rules = rules_of(typed, known, checks);
    if rewrite.is_some() && typed.cache.is_some() {
        // Rewritten URLs of this route may equal URLs of another route with another upstream.
        let base = path
            .as_ref()
            .map_or(String::new(), |path| format!(" {path}"));
        rules.key.add_literal(format!("upstream {upstream}{base}"));
    }
    Proxied {
        upstream,
        path,
        rewrite,
        write_back: paths::write_back(typed, checks),
        follow_redirects: redirects::plan(typed, known.upstreams, checks),
        buffered: buffers::of_route(typed, checks),
        cache: named("cache", typed.cache.as_ref(), known.caches, checks),
        rules: Arc::new(rules),
    }
}

/// Reports routes that have no handler or several.
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
                .help("keep one, and move the other to its own route")
        }
        (None, _) => Problem::error("a route without a handler")
            .at(route.span())
            .help(
                "add `proxy = \"http://HOST\"` or the name of an [upstream.NAME], `files = \"FOLDER\"`, \
                 `respond = \"TEXT\"` or `redirect = \"ADDRESS\"`",
            ),
    };
    checks.push(problem);
}

/// Returns the caching rules. Each rule is the route's, else its cache's.
fn rules_of(typed: &RouteFile, known: &Sections, checks: &mut Checks) -> Rules {
    let own = typed.rules();
    if let Some(cache) = &typed.cache {
        let base = known.rules.get(cache.get_ref().as_str());
        return rules::plan(base.unwrap_or(&known.plain), &own, checks);
    }
    // Without a cache the rules have no effect, so errors in them are reported, but no warnings.
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

/// Returns the name of the upstream to which a route refers by name or by URL, and the path after it.
fn upstream<'a>(
    proxy: &'a Spanned<String>,
    known: &Sections,
    checks: &mut Checks,
) -> (String, Option<&'a str>) {
    let text = proxy.get_ref();
    let is_section = known.upstreams.keys().any(|name| name.get_ref() == text);
    let (bare, path) = match is_section {
        true => (text.as_str(), None),
        false => paths::split(text),
    };
    let name = match server_url::is_url(text) && !is_section {
        true => upstreams::name_of(text),
        false => {
            let name = Spanned::new(proxy.span(), bare.to_owned());
            named("upstream", Some(&name), known.upstreams, checks)
        }
    };
    (name.unwrap_or_default(), path)
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

/// Returns the matcher. If its pattern is invalid, reports that and returns a matcher of all
/// requests.
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

/// Returns the position in the file at which messages about a route point: its condition, else its
/// handler, else its header.
pub fn route_place(route: &Spanned<RouteFile>) -> Range<usize> {
    let typed = route.get_ref();
    let keys = [&typed.path, &typed.path_regex, &typed.query, &typed.proxy];
    let key = keys.into_iter().flatten().next().map(Spanned::span);
    let files = || typed.files.as_ref().map(Spanned::span);
    let respond = || typed.respond.as_ref().map(Spanned::span);
    let redirect = || typed.redirect.as_ref().map(Spanned::span);
    let key = key.or_else(files).or_else(respond).or_else(redirect);
    key.unwrap_or(route.span())
}
