//! Warnings about the plan as a whole.

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

/// Warns about a loopback address in `purge_from` if all requests come from a proxy on this
/// machine.
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
            Problem::warning("every client of the proxy in front may purge")
                .at(typed.span())
                .label("requests from the proxy on this machine all have this address")
                .help("let that proxy refuse PURGE, or leave this out and purge over the admin address"),
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
    let any = folders(plan).any(|options| options.links == Links::Any);
    if plan.privileges.sandbox != Sandbox::No && any {
        checks.push(
            Problem::warning("`symlinks = \"any\"` is limited by `sandbox`")
                .at(at)
                .label("links out of the folder get 403")
                .help("add a route for the folder that the links lead to, or change one of the two keys"),
        );
    }
}
