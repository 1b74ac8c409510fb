//! Warnings about options of upstreams that do nothing for the routes that use them.

use std::time::Duration;

use toml::Spanned;

use crate::cache::Rules;
use crate::config::checks::Checks;
use crate::config::file::{BalanceFile, File, UpstreamFile};
use crate::config::plan::{Plan, Proxied};
use crate::config::report::Problem;
use crate::config::value::{RetryCause, Table, show_time};
use crate::edit::Variable;
use crate::http::hop;
use crate::http::pattern::Pattern;
use crate::upstream::Options;

/// Adds all warnings about the upstreams.
pub fn check(file: &File, plan: &Plan, checks: &mut Checks) {
    for (name, file) in &file.upstream {
        let Some(options) = plan.upstreams.get(name.get_ref()) else {
            continue;
        };
        let routes = plan.sites.iter().flat_map(|site| &site.routes);
        let routes = routes.filter_map(|route| route.proxied());
        let routes: Vec<&Proxied> = routes
            .filter(|proxied| proxied.upstream == *name.get_ref())
            .collect();
        sticks_nowhere(file, options, &routes, checks);
        hashes_nothing(file, options, &routes, checks);
        waits_long(file, options, checks);
        times_out_late(file, options, checks);
        checks_no_port(file, options, checks);
    }
}

/// Warns about `sticky` if all routes of the upstream have a cache.
fn sticks_nowhere(
    file: &UpstreamFile,
    options: &Options,
    routes: &[&Proxied],
    checks: &mut Checks,
) {
    let typed = file.sticky.as_ref().filter(|_| options.sticky.is_some());
    let is_cached = !routes.is_empty() && routes.iter().all(|route| route.cache.is_some());
    if let Some(typed) = typed.filter(|_| is_cached) {
        checks.push(
            Problem::warning("`sticky` does nothing here")
                .at(typed.span())
                .label("each route of this upstream has a cache")
                .help("leave it out, or add a route without `cache` for the requests whose clients have to stick to a server"),
        );
    }
}

/// Warns about a header or cookie in `hash` that the fetches of a route with a cache don't have.
fn hashes_nothing(
    file: &UpstreamFile,
    options: &Options,
    routes: &[&Proxied],
    checks: &mut Checks,
) {
    let Some(BalanceFile::Table(table)) = file.balance.as_ref().map(Spanned::get_ref) else {
        return;
    };
    let (Some(typed), Some(template)) = (&table.hash, &options.hash) else {
        return;
    };
    let cached = || routes.iter().filter(|route| route.cache.is_some());
    let mut variables = template.variables();
    let missing = variables.find(|variable| cached().any(|route| !has(&route.rules, variable)));
    let shown = match missing {
        Some(Variable::Header(name)) => format!("{{header:{name}}}"),
        Some(Variable::Cookie(name)) => format!("{{cookie:{name}}}"),
        _ => return,
    };
    checks.push(
        Problem::warning(format!("`{shown}` is empty in the fetches of a route with a cache"))
            .at(typed.span())
            .label("a fetch for all clients has only what `key` and `forward_headers` name")
            .help(format!(
                "write `balance = \"hash\"` for the URL, or an upstream of its own for routes without a cache; \
                 to cache a response for each value, add {shown} to `key`"
            )),
    );
}

/// Whether fetches for all clients have the header or cookie of a variable.
fn has(rules: &Rules, variable: &Variable) -> bool {
    let is_sent = |name: &str| {
        let patterns = rules.forward_headers.iter().chain(&rules.trusted_headers);
        let is_sent = |pattern: &Pattern| pattern.matches_field(name.as_bytes());
        patterns.into_iter().any(is_sent)
    };
    match variable {
        Variable::Header(name) => {
            let mut constant = rules.constant_headers.iter();
            is_sent(name)
                || rules.key.headers().any(|keyed| keyed == &**name)
                || constant.any(|constant| constant == name)
                || hop::is_in(hop::SHARED, name.as_bytes())
        }
        Variable::Cookie(name) => {
            is_sent("cookie") || rules.key.cookies().any(|keyed| keyed == &**name)
        }
        _ => true,
    }
}

/// Warns if a check of a server may take longer than the time to the next one.
fn waits_long(file: &UpstreamFile, options: &Options, checks: &mut Checks) {
    let table = file.health.as_ref().and_then(|typed| typed.get_ref().on());
    let (Some(Table(table)), Some(health)) = (table, &options.health) else {
        return;
    };
    let typed = table.timeout.as_ref().map(Spanned::span);
    let typed = typed.or(table.interval.as_ref().map(Spanned::span));
    if let Some(at) = typed.filter(|_| health.timeout > health.interval) {
        let longest: Duration = (health.timeout + health.interval) * health.down;
        checks.push(
            Problem::warning("`timeout` is longer than `interval`")
                .at(at)
                .label(format!(
                    "the next check waits for the end of this one: a server that hangs is unhealthy after {}",
                    show_time(longest)
                ))
                .help("make `timeout` shorter, or `interval` longer"),
        );
    }
}

/// Warns if `retry.on` names timeouts although the time for further tries is over before a response is late.
/// Without `on`, nobody has asked for such retries, and the default `read_timeout` is longer than the default `total`.
fn times_out_late(file: &UpstreamFile, options: &Options, checks: &mut Checks) {
    let table = file.retry.as_ref().and_then(|typed| typed.get_ref().on());
    let causes = table.and_then(|Table(table)| table.on.as_ref());
    let mut causes = causes.into_iter().flat_map(|list| list.get_ref());
    let typed = causes.find(|typed| *typed.get_ref() == RetryCause::Timeout);
    let (late, total) = (options.read_timeout, options.retry.total);
    if let Some(typed) = typed.filter(|_| options.retry.tries > 1 && late >= total) {
        let (late, total) = (show_time(late), show_time(total));
        checks.push(
            Problem::warning("\"timeout\" leads to no retry of a response that does not begin")
                .at(typed.span())
                .label(format!(
                    "`total` ({total}) is over when `read_timeout` ({late}) ends the first try"
                ))
                .help("make `read_timeout` shorter than `total`"),
        );
    }
}

/// Warns about a port of health checks if servers have none.
fn checks_no_port(file: &UpstreamFile, options: &Options, checks: &mut Checks) {
    let table = file.health.as_ref().and_then(|typed| typed.get_ref().on());
    let typed = table.and_then(|Table(table)| table.port.as_ref());
    let socket = options.servers.iter().find(|server| server.unix.is_some());
    if let (Some(typed), Some(socket)) = (typed, socket) {
        checks.push(
            Problem::warning("`port` does nothing for a server on a Unix socket")
                .at(typed.span())
                .label(format!("{} is checked over its socket", socket.address()))
                .help("leave it out, or write upstreams of their own for servers on Unix sockets"),
        );
    }
}
