//! Makes the plan from the file: checks every value and fills in the defaults.

mod acme;
mod acme_dns;
mod address;
mod admin;
mod balance;
mod buffers;
mod caches;
mod compress;
mod disk_tier;
mod edit;
mod eject;
mod files;
mod gate;
mod health;
mod history;
mod limits;
mod listeners;
mod logs;
mod managed_tls;
mod methods;
mod names;
mod paths;
mod price;
mod privileges;
mod redirect_hosts;
mod redirects;
mod resolver;
mod respond;
mod retry;
mod routes;
mod rules;
mod server_tcp;
mod server_tls;
mod server_url;
mod signing;
mod sites;
mod sticky;
mod tls;
mod upstreams;
mod volumes;

use std::sync::Arc;

use toml::Spanned;

use super::checks::Checks;
use super::file::File;
use super::lints;
use super::plan::Plan;
use super::report::Problem;

pub use address::{parse as parse_address, parse_listen as parse_listen_address};
pub use admin::token_keys;
pub use edit::{PAGE_BYTES_MAX, ReadPage};
pub use gate::BURST_DIVISOR;
pub use resolver::name_servers;
pub use volumes::Examine;

/// Makes the plan, which is usable only if no problem is fatal. `examine_path` returns what exists at the
/// path of a volume, `read` returns the content of an error page or a file with a key.
pub fn plan(file: &File, examine_path: Examine<'_>, read: ReadPage<'_>) -> (Plan, Vec<Problem>) {
    let mut checks = Checks::default();
    let admin = admin::address(file, &mut checks);
    let tokens = admin::tokens(&file.admin, read, &mut checks);
    let (listeners, listen) = (&file.listener, file.listen.as_ref());
    let sites_have_tls = managed_tls::has_sites(file);
    let listeners = listeners::listeners(
        listeners,
        listen,
        sites_have_tls,
        admin.as_ref(),
        &mut checks,
    );
    let mut upstreams = upstreams::plan(&file.upstream, &listeners, read, &mut checks);
    let sites = file.site.iter().flat_map(|site| &site.get_ref().route);
    let routes = sites.chain(&file.route).map(Spanned::get_ref);
    upstreams::of_routes(routes, &listeners, &mut upstreams, &mut checks);
    resolver::plan(&file.server, &mut upstreams, &mut checks);
    let purge = names::networks(
        "purge_from",
        file.admin.purge_from.as_ref(),
        "every address may purge",
        &mut checks,
    );
    let volumes = volumes::plan(&file.volume, examine_path, &mut checks);
    let plan = Plan {
        workers: checks.count("workers", &file.server.workers, 0, 0..=1024),
        limits: limits::plan(&file.limits, &mut checks),
        buffers: buffers::plan(&file.buffers, &mut checks),
        trust: listeners::trust(&file.server, &mut checks),
        request_id: file.server.request_id.unwrap_or_default(),
        trace: file.server.trace.unwrap_or_default(),
        tls: tls::options(&file.tls, &mut checks),
        acme: acme::options(&file.tls, &mut checks),
        admin,
        admin_hosts: admin::hosts(file, &mut checks),
        admin_events: logs::events(&file.admin, &mut checks),
        price: price::plan(&file.admin, &mut checks),
        admin_tls: tls::admin(&file.admin, &mut checks),
        history: history::plan(&file.admin, &mut checks),
        admin_tokens: Arc::new(tokens),
        admin_token_files: admin::token_files(&file.admin),
        log: logs::plan(&file.log, &mut checks),
        privileges: privileges::plan(&file.server, &mut checks),
        caches: caches::plan(&file.cache, &volumes, &mut checks),
        volumes: volumes.options,
        sites: sites::plan(file, &purge, read, &mut checks),
        purge,
        upstreams,
        listeners,
    };
    tls::check(file, &plan, &mut checks);
    acme_dns::check(file, &plan, &mut checks);
    let uses = |name: &str| {
        plan.caches
            .values()
            .any(|cache| cache.disk_tier.volumes.iter().any(|n| n == name))
    };
    disk_tier::unused(&file.volume, uses, &mut checks);
    lints::plan::check(file, &plan, &mut checks);
    lints::upstreams::check(file, &plan, &mut checks);
    let mut problems = checks.problems;
    if problems.iter().any(|p| p.fatal) {
        // An error may cause misleading warnings: if the name of an upstream is mistyped in a
        // route, the upstream seems unused.
        problems.retain(|p| p.fatal);
    }
    problems.sort_by_key(|p| p.span.as_ref().map_or(0, |s| s.start));
    (plan, problems)
}
