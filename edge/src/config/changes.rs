//! Compares two plans for a reload.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::plan::{ListenerPlan, Plan, RouteHandler, RoutePlan, SitePlan, goes_on};
use super::reach::{dns_program, manages_certificates};
use crate::cache::Rules;
use crate::downstream::Protocols;
use crate::telemetry::LogRule;
use crate::tls::ListenerTls;

/// The differences between two plans, as texts for the operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Differences that a reload applies.
    pub applied: Vec<String>,
    /// Differences that only a restart applies.
    pub needs_restart: Vec<String>,
}

/// Returns the differences between the running plan and a new one.
pub fn changes(old: &Plan, new: &Plan) -> Changes {
    let mut applied = Vec::new();
    let mut note = |differs: bool, what: &str| {
        if differs {
            applied.push(what.to_owned());
        }
    };
    note(old.limits != new.limits, "limits changed");
    note(old.trust != new.trust, "trusted proxies changed");
    note(old.buffers != new.buffers, "buffers of bodies changed");
    note(old.request_id != new.request_id, "request ids changed");
    note(old.trace != new.trace, "trace context changed");
    note(old.log.access != new.log.access, "access log changed");
    note(places(old) != places(new), "sites changed");
    note(
        log_rules(old) != log_rules(new),
        "the selection of logged requests changed",
    );
    note(rules(old) != rules(new), "caching rules changed");
    note(
        old.tls != new.tls || listener_tls(old) != listener_tls(new),
        "TLS settings changed",
    );
    // Different listeners need a restart, and are compared below.
    let have_others = |(old, new): (&ListenerPlan, &ListenerPlan)| old.protocols != new.protocols;
    note(
        old.listeners.iter().zip(&new.listeners).any(have_others),
        "protocols of listeners changed",
    );
    note(
        old.acme != new.acme,
        "options of certificates from authorities changed",
    );
    note(old.purge != new.purge, "addresses that may purge changed");
    admin(old, new, &mut applied);
    volumes(old, new, &mut applied);
    named("cache", &old.caches, &new.caches, &mut applied);
    named("upstream", &old.upstreams, &new.upstreams, &mut applied);
    Changes {
        applied,
        needs_restart: needs_restart(old, new),
    }
}

/// Returns the names of the differences that only a restart applies.
fn needs_restart(old: &Plan, new: &Plan) -> Vec<String> {
    let restart = [
        (old.workers != new.workers, "workers"),
        (bare(old) != bare(new), "listeners"),
        (old.admin != new.admin, "admin address"),
        (old.history != new.history, "history"),
        (old.admin_events != new.admin_events, "file of events"),
        (old.log.level != new.log.level, "log level"),
        (old.log.messages != new.log.messages, "log of messages"),
        (old.privileges != new.privileges, "user and sandbox"),
        // The process that runs it starts before the sandbox.
        (
            dns_program(new).is_some() && dns_program(new) != dns_program(old),
            "program for DNS",
        ),
        (
            manages_certificates(old) && acme_files(old) != acme_files(new),
            "folder of certificates",
        ),
    ];
    let needs_restart = restart.iter().filter(|(differs, _)| *differs);
    let mut needs_restart: Vec<String> =
        needs_restart.map(|(_, what)| (*what).to_owned()).collect();
    needs_restart.extend(other_volumes(old, new));
    needs_restart
}

/// Lists the changes of the admin API that a reload applies.
fn admin(old: &Plan, new: &Plan, out: &mut Vec<String>) {
    let have_other_tokens =
        old.admin_tokens != new.admin_tokens || old.admin_token_files != new.admin_token_files;
    let changes = [
        (
            old.admin_hosts != new.admin_hosts,
            "host names of the admin API changed",
        ),
        (
            old.admin_tls != new.admin_tls,
            "TLS of the admin address changed",
        ),
        (have_other_tokens, "tokens of the admin API changed"),
        (old.price != new.price, "price of traffic changed"),
    ];
    let changes = changes.iter().filter(|(differs, _)| *differs);
    out.extend(changes.map(|(_, what)| (*what).to_owned()));
}

/// Returns the files of certificates from authorities that are opened at the start.
fn acme_files(plan: &Plan) -> (&Path, &[PathBuf]) {
    (&plan.acme.state, &plan.acme.trusted)
}

/// Returns the TLS of each listener.
fn listener_tls(plan: &Plan) -> Vec<&Option<ListenerTls>> {
    plan.listeners
        .iter()
        .map(|listener| &listener.tls)
        .collect()
}

/// Returns the listeners without the settings that a reload applies: their protocols and those of TLS, but not whether a
/// listener has TLS.
fn bare(plan: &Plan) -> Vec<ListenerPlan> {
    let mut listeners = plan.listeners.clone();
    for listener in &mut listeners {
        listener.tls = None;
        listener.protocols = Protocols::CLEAR;
    }
    listeners
}

/// Lists added, removed and changed volumes, except those whose changes need a restart.
fn volumes(old: &Plan, new: &Plan, out: &mut Vec<String>) {
    let mut stays = old.volumes.clone();
    stays.retain(|name, options| {
        new.volumes
            .get(name)
            .is_none_or(|new| goes_on(options, new))
    });
    let mut becomes = new.volumes.clone();
    becomes.retain(|name, _| stays.contains_key(name) || !old.volumes.contains_key(name));
    named("volume", &stays, &becomes, out);
}

/// Returns the names of the volumes whose changes need a restart.
fn other_volumes(old: &Plan, new: &Plan) -> Vec<String> {
    let other = new
        .volumes
        .iter()
        .filter(|(name, options)| match old.volumes.get(*name) {
            Some(before) => !goes_on(before, options),
            None => old
                .volumes
                .values()
                .any(|before| before.path == options.path),
        });
    other.map(|(name, _)| format!("volume {name}")).collect()
}

/// Returns the log rule of each route.
fn log_rules(plan: &Plan) -> Vec<&Option<LogRule>> {
    let routes = plan.sites.iter().flat_map(|site| &site.routes);
    routes.map(|route| &route.log).collect()
}

/// Returns the sites with the caching and log rules of all routes removed, to compare the rest.
fn places(plan: &Plan) -> Vec<SitePlan> {
    let mut sites = plan.sites.clone();
    for route in sites.iter_mut().flat_map(|site| &mut site.routes) {
        route.log = None;
        if let RouteHandler::Upstream(proxied) = &mut route.handler {
            proxied.rules = Arc::default();
        }
    }
    sites
}

/// Returns the caching rules of all routes, without the addresses that may purge.
fn rules(plan: &Plan) -> Vec<Rules> {
    let routes = plan.sites.iter().flat_map(|site| &site.routes);
    let rules = routes.filter_map(RoutePlan::proxied).map(|proxied| Rules {
        purge_from: Vec::new(),
        ..Rules::clone(&proxied.rules)
    });
    rules.collect()
}

fn named<T: PartialEq>(
    kind: &str,
    old: &BTreeMap<String, T>,
    new: &BTreeMap<String, T>,
    out: &mut Vec<String>,
) {
    for (name, options) in new {
        match old.get(name) {
            None => out.push(format!("{kind} {name} added")),
            Some(before) if before != options => out.push(format!("{kind} {name} changed")),
            Some(_) => {}
        }
    }
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    out.extend(gone.map(|name| format!("{kind} {name} removed")));
}

/// Writes one line per difference, or `nothing changed`.
impl std::fmt::Display for Changes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self == &Changes::default() {
            return writeln!(f, "nothing changed");
        }
        for line in &self.applied {
            writeln!(f, "{line}")?;
        }
        for what in &self.needs_restart {
            writeln!(f, "{what}: differs, and needs a restart")?;
        }
        Ok(())
    }
}
