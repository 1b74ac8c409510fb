//! Warnings about the plan as a whole.

use std::net::Ipv4Addr;

use crate::config::checks::Checks;
use crate::config::file::{File, ServerSection};
use crate::config::plan::Plan;
use crate::config::reach::folders;
use crate::config::report::Problem;
use crate::config::value::Sandbox;
use crate::http::Network;
use crate::sys::root::Links;

/// Adds all warnings about the plan.
pub fn check(file: &File, plan: &Plan, checks: &mut Checks) {
    links_out(plan, &file.server, checks);
    purged_nowhere(file, plan, checks);
    purged_by_all(file, plan, checks);
}

/// Warns about `purge_from` if no route has a cache.
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

/// Warns about a loopback address in `purge_from` if a proxy on this machine may forward all requests,
/// unless the address that the proxy reports counts.
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
    let reported = |address| {
        plan.trust
            .proxies
            .iter()
            .any(|proxy| proxy.contains(address))
    };
    let is_trusted = reported(Ipv4Addr::LOCALHOST.into());
    if plan.listeners.iter().all(|l| l.address.is_local()) && !is_trusted {
        checks.push(
            Problem::warning("if a proxy on this machine forwards requests, each of its clients may purge")
                .at(typed.span())
                .label("all requests that such a proxy forwards have this address")
                .help(
                    "write `trusted_proxies = \"127.0.0.1\"` in [server], so that the address counts that the proxy reports, \
                     or leave this out and purge over the admin address",
                ),
        );
    }
}

/// Warns about `symlinks = "any"` together with the sandbox, which prevents reads outside the
/// folder.
fn links_out(plan: &Plan, file: &ServerSection, checks: &mut Checks) {
    let typed = file.sandbox.as_ref().map(toml::Spanned::span);
    let Some(at) = typed.or(file.user.as_ref().map(toml::Spanned::span)) else {
        return;
    };
    let any = folders(plan).any(|options| options.symlinks == Links::Any);
    if plan.privileges.sandbox != Sandbox::No && any {
        checks.push(
            Problem::warning("`symlinks = \"any\"` is limited by `sandbox`")
                .at(at)
                .label("links out of the folder get 403")
                .help("add a route for the folder that the links lead to, or change one of the two keys"),
        );
    }
}
