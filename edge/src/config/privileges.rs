//! `[server] user` and `sandbox`: what the program keeps of its rights once it listens.

use std::fmt;
use std::path::{Path, PathBuf};

use super::checks::Checks;
use super::file::ServerSection;
use super::plan::Plan;
use super::report::Problem;
use super::sites::LeadsTo;
use super::value::{Key, Sandbox};
use crate::files;
use crate::sys::root::Links;
use crate::sys::sandbox::{Allowed, Reach};
use crate::telemetry::AccessTarget;
use crate::telemetry::messages::MessageTarget;

/// What is given up before the first request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// Who it becomes, if anybody else.
    pub user: Option<User>,
    /// Whether it shuts itself in.
    pub sandbox: Sandbox,
}

/// `user = "NAME"` or `"NAME:GROUP"`; names, or numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub name: String,
    /// The group, where it is not the user's own.
    pub group: Option<String>,
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.group {
            Some(group) => write!(f, "{}:{group}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// From what was typed. Who gives up being root wants to be sandboxed, too, where that can be.
pub fn plan(file: &ServerSection, checks: &mut Checks) -> Privileges {
    let user = user(&file.user, checks);
    let usual = match user {
        Some(_) => Sandbox::Auto,
        None => Sandbox::No,
    };
    Privileges {
        sandbox: file
            .sandbox
            .as_ref()
            .map_or(usual, |typed| *typed.get_ref()),
        user,
    }
}

fn user(key: &Key<String>, checks: &mut Checks) -> Option<User> {
    let typed = key.as_ref()?;
    let (name, group) = match typed.get_ref().split_once(':') {
        Some((name, group)) => (name, Some(group)),
        None => (typed.get_ref().as_str(), None),
    };
    let is_name = |name: &str| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"_-.$@".contains(&b);
        !name.is_empty() && name.len() <= 256 && name.bytes().all(fits)
    };
    if !is_name(name) || !group.is_none_or(is_name) {
        checks.push(
            Problem::error("`user` is no user")
                .at(typed.span())
                .help("write \"www-data\", \"www-data:www-data\", or numbers, as in \"33:33\""),
        );
    }
    let is_number = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
    if is_number(name) && group.is_none() {
        checks.push(
            Problem::error("a user's number without a group")
                .at(typed.span())
                .help("write both, as in \"33:33\": a number may have no group of its own"),
        );
    }
    if matches!(name, "root" | "0") {
        checks.push(
            Problem::warning("`user` is root")
                .at(typed.span())
                .label("it keeps all of root's rights")
                .help("choose a user with none, such as \"www-data\""),
        );
    }
    Some(User {
        name: name.to_owned(),
        group: group.map(str::to_owned),
    })
}

/// Links that lead out of their folder, where nothing but the folder can be read.
pub fn links_out(plan: &Plan, file: &ServerSection, checks: &mut Checks) {
    let typed = file.sandbox.as_ref().map(toml::Spanned::span);
    let Some(at) = typed.or(file.user.as_ref().map(toml::Spanned::span)) else {
        return;
    };
    let any = folders(plan).any(|options| options.links == Links::Any);
    if plan.privileges.sandbox != Sandbox::No && any {
        checks.push(
            Problem::warning("`symlinks = \"any\"` leads no further than `sandbox` allows")
                .at(at)
                .label("what is linked to from outside of a folder is answered 403")
                .help("serve the folder that links lead to, too, or set one of the two otherwise"),
        );
    }
}

fn folders(plan: &Plan) -> impl Iterator<Item = &files::Options> {
    let routes = plan.sites.iter().flat_map(|site| &site.routes);
    routes.filter_map(|route| match &route.leads_to {
        LeadsTo::Files(options) => Some(&**options),
        _ => None,
    })
}

/// Where a plan needs files, and what for.
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
    // Their folders, since a new file takes an old one's place.
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

/// Whether names of servers have to be looked up.
pub fn looks_up_names(plan: &Plan) -> bool {
    let servers = plan.upstreams.values().flat_map(|u| &u.servers);
    let is_name = |host: &str| host.parse::<std::net::IpAddr>().is_err();
    servers
        .map(|server| server.host.trim_matches(['[', ']']))
        .any(is_name)
}

/// The folder that a file is in.
pub fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// A line about who it is and where it may go; none where nothing is given up.
pub fn describe(plan: &Plan) -> Option<String> {
    let user = plan.privileges.user.as_ref();
    let user = user.map(|user| format!("as {user} once it listens"));
    let sandboxed = match plan.privileges.sandbox {
        Sandbox::No => None,
        Sandbox::Auto => Some("sandboxed, if the kernel can"),
        Sandbox::Yes => Some("sandboxed"),
    };
    let sandboxed = sandboxed.map(|how| {
        let paths = |wanted: fn(&Reach) -> bool| {
            let its = reach(plan).into_iter().filter(|a| wanted(&a.reach));
            let its: Vec<String> = its.map(|a| a.path.display().to_string()).collect();
            match its.is_empty() {
                true => "nothing".to_owned(),
                false => its.join(", "),
            }
        };
        format!(
            "{how}: reads {} and its configuration, writes {}",
            paths(|reach| *reach == Reach::Read),
            paths(|reach| *reach != Reach::Read)
        )
    });
    match (user, sandboxed) {
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => Some(one),
        (Some(user), Some(sandboxed)) => Some(format!("{user}, {sandboxed}")),
    }
}
