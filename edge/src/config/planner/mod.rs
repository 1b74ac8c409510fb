//! Makes the plan from the file: checks every value and fills in the defaults.

mod acme;
mod acme_dns;
mod address;
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

use std::net::SocketAddr;

use toml::Spanned;

use super::checks::Checks;
use super::file::File;
use super::lints;
use super::plan::{ADMIN, Plan};
use super::report::Problem;

pub use address::parse as parse_address;
pub use edit::{PAGE_BYTES_MAX, ReadPage};
pub use gate::BURST_DIVISOR;
pub use resolver::name_servers;
pub use volumes::Examine;

/// Makes the plan, which is usable only if no problem is fatal. `examine_path` returns what exists at the
/// path of a volume, `read` returns the content of an error page or a file with a key.
pub fn plan(file: &File, examine_path: Examine<'_>, read: ReadPage<'_>) -> (Plan, Vec<Problem>) {
    let mut checks = Checks::default();
    let admin = admin(file, &mut checks);
    let (listeners, listen) = (&file.listener, file.listen.as_ref());
    let sites_have_tls = managed_tls::has_sites(file);
    let listeners = listeners::listeners(listeners, listen, sites_have_tls, admin, &mut checks);
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
        tls: tls::options(&file.tls, &mut checks),
        acme: acme::options(&file.tls, &mut checks),
        admin,
        admin_hosts: admin_hosts(file, &mut checks),
        price: price::plan(&file.admin, &mut checks),
        admin_tls: tls::admin(&file.admin, &mut checks),
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

/// Returns the host names of the admin API, without ports and final dots.
fn admin_hosts(file: &File, checks: &mut Checks) -> Vec<String> {
    let Some(typed) = file.admin.hosts.as_ref() else {
        return Vec::new();
    };
    names::few("hosts", typed.get_ref().len(), typed.span(), checks);
    let mut hosts = Vec::new();
    for host in typed.get_ref() {
        let name = host.get_ref().trim_end_matches('.').to_ascii_lowercase();
        match server_url::is_host(&name) {
            true => hosts.push(name),
            false => checks.push(
                Problem::error(format!("`{}` is not a host name", host.get_ref()))
                    .at(host.span())
                    .help("write a name without a port, as in \"edge.example.com\""),
            ),
        }
    }
    hosts
}

fn admin(file: &File, checks: &mut Checks) -> Option<SocketAddr> {
    let Some(typed) = &file.admin.address else {
        return ADMIN.parse().ok();
    };
    let text = Spanned::new(typed.span(), typed.get_ref().on()?.clone());
    let address = address::address("address", &text, checks)?;
    if !address.ip().is_loopback() && !tls::is_closed(&file.admin) {
        checks.push(
            Problem::warning("the admin address can be reached from other machines")
                .at(text.span())
                .label("everyone who can connect can read the status, reload the configuration and purge")
                .help("keep it on 127.0.0.1, let a firewall guard it, or demand client certificates with `client_ca` in `tls`"),
        );
    }
    if file.listen.is_none() && file.listener.is_empty() {
        listeners::check_default(&text, address, checks);
    }
    Some(address)
}
