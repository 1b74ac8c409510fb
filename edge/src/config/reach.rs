//! Lists the files that a plan needs, which the sandbox must allow.

use std::path::{Path, PathBuf};

use super::plan::{HistoryPlan, Plan, RouteHandler};
use crate::acme::dns::{ProgramOptions, Setter};
use crate::acme::{self, Challenge};
use crate::files;
use crate::sys::sandbox::{Allowed, Reach, real};
use crate::telemetry::AccessTarget;
use crate::telemetry::messages::MessageTarget;
use crate::tls::{self, Management, TicketOptions, Trust};
use crate::upstream;

/// Returns the files and folders that a plan needs, with the kind of access.
pub fn reach(plan: &Plan) -> Vec<Allowed> {
    let mut all: Vec<Allowed> = Vec::new();
    let mut add = |path: &Path, reach: Reach| {
        let allowed = Allowed {
            path: path.to_owned(),
            reach,
        };
        if !all.contains(&allowed) {
            all.push(allowed);
        }
    };
    for options in folders(plan) {
        add(&options.root, Reach::Read);
    }
    for file in &plan.admin_token_files {
        add(&folder_of(file), Reach::Read);
    }
    for volume in plan.volumes.values() {
        add(&volume.path, Reach::ReadWrite);
    }
    if let Some(disk) = &plan.buffers.disk {
        add(&disk.folder, Reach::Temporary);
    }
    if let HistoryPlan::Folder(folder) = &plan.history {
        add(folder, Reach::Folder);
    }
    // The folders of these files are allowed, because a file may be replaced by a new one.
    for route in plan.sites.iter().flat_map(|site| &site.routes) {
        let signed = route
            .gate
            .iter()
            .filter_map(|gate| gate.signed_urls.as_ref());
        for file in signed.flat_map(|signed| &signed.key_files) {
            add(&folder_of(file), Reach::Read);
        }
        let pages = route.edit.iter().flat_map(|edit| &edit.errors.pages);
        for file in pages.filter_map(|page| page.file.as_deref()) {
            add(&folder_of(file), Reach::Read);
        }
    }
    let signers = plan.upstreams.values().filter_map(|one| one.sign.as_ref());
    for file in signers.filter_map(|sign| sign.secret_key_file.as_deref()) {
        add(&folder_of(file), Reach::Read);
    }
    let mut of_upstreams = plan.upstreams.values();
    let needs_system = |one: &upstream::Options| one.uses_tls() && one.tls.trust == Trust::System;
    let system = of_upstreams.any(needs_system).then(tls::system_file);
    for file in tls_files(plan).into_iter().chain(system.as_deref()) {
        let folder = folder_of(file);
        add(&folder, Reach::Read);
        // ACME clients use symbolic links, and the sandbox judges the file to which one leads.
        let target = folder_of(&real(file));
        if target != real(&folder) {
            add(&target, Reach::Read);
        }
    }
    for Allowed { path, reach } in of_managed_certificates(plan) {
        add(&path, reach);
    }
    // rustls opens this file for each configuration, also after the sandbox has begun.
    let key_log = std::env::var_os("SSLKEYLOGFILE").filter(|_| plan.tls.key_log);
    if let Some(file) = key_log {
        add(&folder_of(Path::new(&file)), Reach::Append);
    }
    for path in logs(plan) {
        add(&folder_of(path), Reach::Append);
    }
    all
}

/// Returns the files that lines are appended to.
fn logs(plan: &Plan) -> impl Iterator<Item = &Path> {
    let access = match plan.log.access.as_ref().map(|access| &access.target) {
        Some(AccessTarget::File(path)) => Some(path.as_path()),
        _ => None,
    };
    let messages = match &plan.log.messages {
        MessageTarget::File(path) => Some(path.as_path()),
        _ => None,
    };
    access
        .into_iter()
        .chain(plan.admin_events.as_deref())
        .chain(messages)
}

/// Returns the files that are read to obtain certificates: keys, and the authorities that verify directories.
fn acme_files(options: &acme::Options) -> Vec<PathBuf> {
    let bindings = options.directories.iter();
    let bindings = bindings.filter_map(|one| Some(&one.binding.as_ref()?.key));
    let update_key = match options.dns.as_ref().map(|dns| &dns.setter) {
        Some(Setter::Update(options)) => Some(&options.key),
        _ => None,
    };
    let files = bindings.chain(&options.trusted).chain(update_key);
    let system = options.trusted.is_empty().then(tls::system_file);
    files.cloned().chain(system).collect()
}

/// Returns the files that certificates need which come and go while Sluice runs.
fn of_managed_certificates(plan: &Plan) -> Vec<Allowed> {
    let mut all = Vec::new();
    if manages_certificates(plan) {
        all.push(Allowed {
            path: plan.acme.state.clone(),
            reach: Reach::Folder,
        });
    }
    if obtains_certificates(plan) {
        all.extend(acme_files(&plan.acme).iter().map(|file| Allowed {
            path: folder_of(file),
            reach: Reach::Read,
        }));
    }
    all
}

/// Returns the files of certificates, keys and secrets that TLS needs.
pub fn tls_files(plan: &Plan) -> Vec<&Path> {
    let listeners = plan.listeners.iter().filter_map(|one| one.tls.as_ref());
    let listeners = listeners.chain(&plan.admin_tls);
    let listeners = listeners.map(|tls| (&tls.certificates, &tls.clients));
    let sites = plan.sites.iter().filter_map(|site| site.tls.as_ref());
    let sites = sites.map(|tls| (&tls.certificates, &tls.clients));
    let mut files: Vec<&Path> = Vec::new();
    for (certificates, clients) in listeners.chain(sites) {
        let pairs = certificates.iter();
        files.extend(pairs.flat_map(|pair| [&*pair.certificate, &*pair.key]));
        files.extend(clients.iter().map(|clients| &*clients.authorities));
    }
    for options in plan.upstreams.values().filter(|one| one.uses_tls()) {
        let own = options.tls.certificate.iter();
        files.extend(own.flat_map(|pair| [&*pair.certificate, &*pair.key]));
        if let Trust::Authorities(authorities) = &options.tls.trust {
            files.extend(authorities.iter().map(|file| &**file));
        }
    }
    if let TicketOptions::Shared(secrets) = &plan.tls.tickets {
        files.extend(secrets.iter().map(|file| &**file));
    }
    files
}

pub fn folders(plan: &Plan) -> impl Iterator<Item = &files::Options> {
    let routes = plan.sites.iter().flat_map(|site| &site.routes);
    routes.filter_map(|route| match &route.handler {
        RouteHandler::Files(options) => Some(&**options),
        _ => None,
    })
}

/// Whether certificates come from authorities.
pub fn obtains_certificates(plan: &Plan) -> bool {
    has_managed(plan, |management| management != Management::Internal)
}

/// Whether a site has certificates that come and go while Sluice runs.
pub fn manages_certificates(plan: &Plan) -> bool {
    has_managed(plan, |_| true)
}

/// Whether a site has certificates that come from such a place while Sluice runs.
fn has_managed(plan: &Plan, from: impl Fn(Management) -> bool) -> bool {
    let sites = plan.sites.iter().filter_map(|site| site.tls.as_ref());
    let mut managed = sites.filter_map(|tls| tls.managed);
    managed.any(from)
}

/// Returns the program that sets the records of DNS-01, if the plan needs one.
pub fn dns_program(plan: &Plan) -> Option<&ProgramOptions> {
    let uses_dns = plan.acme.challenges.contains(&Challenge::Dns01);
    let dns = plan.acme.dns.as_ref().filter(|_| uses_dns)?;
    match &dns.setter {
        Setter::Program(options) if obtains_certificates(plan) => Some(options),
        _ => None,
    }
}

/// Whether the name of a server must be resolved.
pub fn looks_up_names(plan: &Plan) -> bool {
    if obtains_certificates(plan) {
        return true;
    }
    let servers = plan.upstreams.values().flat_map(|u| &u.servers);
    let is_name = |host: &str| host.parse::<std::net::IpAddr>().is_err();
    servers
        .filter(|server| server.unix.is_none())
        .map(|server| server.host.trim_matches(['[', ']']))
        .any(is_name)
}

/// Returns the folder that contains a file.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}
