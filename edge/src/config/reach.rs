//! Lists the files that a plan needs, which the sandbox must allow.

use std::path::{Path, PathBuf};

use super::plan::{LeadsTo, Plan};
use crate::files;
use crate::sys::sandbox::{Allowed, Reach};
use crate::telemetry::AccessTarget;
use crate::telemetry::messages::MessageTarget;

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
    for volume in plan.volumes.values() {
        add(&volume.path, Reach::ReadWrite);
    }
    // The folders of these files are allowed, because a file may be replaced by a new one.
    for route in plan.sites.iter().flat_map(|site| &site.routes) {
        let signed = route.gate.iter().filter_map(|gate| gate.signed.as_ref());
        for file in signed.flat_map(|signed| &signed.key_files) {
            add(&folder_of(file), Reach::Read);
        }
        let pages = route.edit.iter().flat_map(|edit| &edit.errors.pages);
        for file in pages.filter_map(|page| page.file.as_deref()) {
            add(&folder_of(file), Reach::Read);
        }
    }
    let access = plan.log.access.as_ref().map(|access| &access.target);
    if let Some(AccessTarget::File(path)) = access {
        add(&folder_of(path), Reach::Append);
    }
    if let MessageTarget::File(path) = &plan.log.messages {
        add(&folder_of(path), Reach::Append);
    }
    all
}

pub fn folders(plan: &Plan) -> impl Iterator<Item = &files::Options> {
    let routes = plan.sites.iter().flat_map(|site| &site.routes);
    routes.filter_map(|route| match &route.leads_to {
        LeadsTo::Files(options) => Some(&**options),
        _ => None,
    })
}

/// Whether the name of a server must be resolved.
pub fn looks_up_names(plan: &Plan) -> bool {
    let servers = plan.upstreams.values().flat_map(|u| &u.servers);
    let is_name = |host: &str| host.parse::<std::net::IpAddr>().is_err();
    servers
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
