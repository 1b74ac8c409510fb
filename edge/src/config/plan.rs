//! What will happen: everything that was typed, checked and with its defaults filled in.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use toml::Spanned;

use super::checks::Checks;
use super::connections::{self, ListenerPlan};
use super::edit::Read;
use super::file::{AdminFile, File, LimitsFile};
use super::privileges::{self, Privileges};
use super::report::Problem;
use super::sites::SitePlan;
use super::value::Level;
use super::volumes::{self, Look};
use super::{caches, kept, logs, names, sites, upstreams};
use crate::downstream::Trust;
use crate::http::Network;
use crate::telemetry::AccessOptions;
use crate::telemetry::messages::MessageTarget;
use crate::{cache, downstream, upstream, volume};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The listener's address unless the configuration says otherwise.
pub const LISTEN: &str = "0.0.0.0:8080";
/// The admin address unless the configuration says otherwise.
pub const ADMIN: &str = "127.0.0.1:9901";

/// A whole configuration, ready to run. Two that are equal run the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Worker threads; 0: one per core.
    pub workers: usize,
    /// Where requests are taken, at least one.
    pub listeners: Vec<ListenerPlan>,
    /// `[limits]`.
    pub limits: downstream::Options,
    /// Who may say who asks.
    pub trust: Trust,
    /// Where the admin API is, if anywhere.
    pub admin: Option<SocketAddr>,
    /// Addresses that may send PURGE to a cached route.
    pub purge: Vec<Network>,
    /// `[log]`.
    pub log: LogOptions,
    /// What is given up before the first request.
    pub privileges: Privileges,
    /// `[volume.NAME]`.
    pub volumes: BTreeMap<String, volume::Options>,
    /// `[cache.NAME]`.
    pub caches: BTreeMap<String, cache::Options>,
    /// `[upstream.NAME]`.
    pub upstreams: BTreeMap<String, upstream::Options>,
    /// The sites, in order; at least one.
    pub sites: Vec<SitePlan>,
}

/// `[log]`.
#[derive(Clone, Debug, PartialEq)]
pub struct LogOptions {
    /// What is told of the program itself.
    pub level: Level,
    /// Where.
    pub messages: MessageTarget,
    /// The access log, if there is one.
    pub access: Option<AccessOptions>,
}

/// Makes the plan. It counts only if no problem is fatal. `look`: what is at the paths of volumes;
/// `read`: what error pages hold.
pub fn build(file: &File, look: Look<'_>, read: Read<'_>) -> (Plan, Vec<Problem>) {
    let mut checks = Checks::default();
    let admin = admin(&file.admin, &mut checks);
    let listeners =
        connections::listeners(&file.listener, file.listen.as_ref(), admin, &mut checks);
    let mut upstreams = upstreams::plan(&file.upstream, &listeners, &mut checks);
    let sites = file.site.iter().flat_map(|site| &site.get_ref().route);
    let routes = sites.chain(&file.route).map(Spanned::get_ref);
    upstreams::of_routes(routes, &listeners, &mut upstreams, &mut checks);
    let purge = names::networks(
        "purge_from",
        file.admin.purge_from.as_ref(),
        "every address may purge",
        &mut checks,
    );
    let volumes = volumes::plan(&file.volume, look, &mut checks);
    let plan = Plan {
        workers: checks.count("workers", &file.server.workers, 0, 0..=1024),
        limits: limits(&file.limits, &mut checks),
        trust: connections::trust(&file.server, &mut checks),
        admin,
        log: logs::plan(&file.log, &mut checks),
        privileges: privileges::plan(&file.server, &mut checks),
        caches: caches::plan(&file.cache, &volumes, &mut checks),
        volumes: volumes.options,
        sites: sites::plan(file, &purge, read, &mut checks),
        purge,
        upstreams,
        listeners,
    };
    let uses = |name: &str| {
        plan.caches
            .values()
            .any(|cache| cache.disk_tier.volumes.iter().any(|n| n == name))
    };
    kept::unused(&file.volume, uses, &mut checks);
    privileges::links_out(&plan, &file.server, &mut checks);
    purged_nowhere(file, &plan, &mut checks);
    purged_by_all(file, &plan, &mut checks);
    let mut problems = checks.problems;
    if problems.iter().any(|p| p.fatal) {
        // What an error made doubtful (an upstream nobody uses, its name mistyped) would only distract.
        problems.retain(|p| p.fatal);
    }
    problems.sort_by_key(|p| p.span.as_ref().map_or(0, |s| s.start));
    (plan, problems)
}

/// Addresses that may purge, where nothing is stored.
fn purged_nowhere(file: &File, plan: &Plan, checks: &mut Checks) {
    let mut routes = plan.sites.iter().flat_map(|site| &site.routes);
    let typed = file.admin.purge_from.as_ref();
    if let Some(typed) = typed.filter(|_| routes.all(|route| route.cache().is_none())) {
        checks.push(
            Problem::warning("`purge_from` does nothing here")
                .at(typed.span())
                .label("no route has a cache")
                .help("leave it out, or add `cache = \"NAME\"` to a route"),
        );
    }
}

/// Addresses of this machine may purge, and all requests come from this machine: from what stands in
/// front, on behalf of others.
fn purged_by_all(file: &File, plan: &Plan, checks: &mut Checks) {
    let own = |network: &Network| network.address.is_loopback();
    let Some(typed) = file
        .admin
        .purge_from
        .as_ref()
        .filter(|_| plan.purge.iter().any(own))
    else {
        return;
    };
    if plan.listeners.iter().all(|l| l.address.ip().is_loopback()) {
        checks.push(
            Problem::warning("every client of what stands in front may purge")
                .at(typed.span())
                .label("requests come from this machine only, whoever asks")
                .help("have what stands in front refuse PURGE, or leave this out and purge over the admin address"),
        );
    }
}

fn limits(file: &LimitsFile, checks: &mut Checks) -> downstream::Options {
    let d = downstream::Options::default();
    downstream::Options {
        request_line: checks.count(
            "request_line",
            &file.request_line,
            d.request_line,
            256..=MIB,
        ),
        headers: checks.count("headers", &file.headers, d.headers, KIB..=MIB),
        body: checks.within("body", &file.body, d.body, 0..=1 << 50),
        header_timeout: checks.within(
            "header_timeout",
            &file.header_timeout,
            d.header_timeout,
            MS..=HOUR,
        ),
        body_timeout: checks.within(
            "body_timeout",
            &file.body_timeout,
            d.body_timeout,
            MS..=HOUR,
        ),
        send_timeout: checks.within(
            "send_timeout",
            &file.send_timeout,
            d.send_timeout,
            MS..=HOUR,
        ),
        keepalive_timeout: checks.within(
            "keepalive_timeout",
            &file.keepalive_timeout,
            d.keepalive_timeout,
            Duration::ZERO..=24 * HOUR,
        ),
        keepalive_header: file.keepalive_header.unwrap_or(d.keepalive_header),
        keepalive_requests: checks.within(
            "keepalive_requests",
            &file.keepalive_requests,
            d.keepalive_requests,
            0..=u64::MAX,
        ),
        connections: checks.count(
            "connections",
            &file.connections,
            d.connections,
            0..=10_000_000,
        ),
        connections_per_ip: checks.count(
            "connections_per_ip",
            &file.connections_per_ip,
            d.connections_per_ip,
            0..=10_000_000,
        ),
        min_rate: checks.within("min_rate", &file.min_rate, d.min_rate, 0..=1 << 30),
        min_rate_grace: checks.within(
            "min_rate_grace",
            &file.min_rate_grace,
            d.min_rate_grace,
            SECOND..=HOUR,
        ),
        drain: checks.within(
            "shutdown_timeout",
            &file.shutdown_timeout,
            d.drain,
            Duration::ZERO..=24 * HOUR,
        ),
    }
}

pub(super) fn address(
    what: &str,
    text: &Spanned<String>,
    checks: &mut Checks,
) -> Option<SocketAddr> {
    // Without a host: every IPv4 address of this machine.
    let parsed = match text.get_ref().strip_prefix(':') {
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => format!("0.0.0.0:{port}").parse(),
        _ => text.get_ref().parse(),
    };
    if parsed.is_err() {
        checks.push(
            Problem::error(format!("`{what}` is not an address"))
                .at(text.span())
                .label("not an IP address with a port")
                .help("write a port, as in \":8080\", or an IP address and a port, as in \"127.0.0.1:0\" or \"[::]:8080\""),
        );
    }
    parsed.ok()
}

fn admin(file: &AdminFile, checks: &mut Checks) -> Option<SocketAddr> {
    let Some(typed) = &file.address else {
        return ADMIN.parse().ok();
    };
    let text = Spanned::new(typed.span(), typed.get_ref().on()?.clone());
    let address = address("address", &text, checks)?;
    if !address.ip().is_loopback() {
        checks.push(
            Problem::warning("the admin address can be reached from other machines")
                .at(text.span())
                .label("whoever reaches it can read the status, reload the configuration and purge")
                .help("keep it on 127.0.0.1, or let a firewall guard it"),
        );
    }
    Some(address)
}
