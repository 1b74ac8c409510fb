//! Drops privileges after the listeners are bound and before the first thread starts, so that all
//! threads are affected.
//!
//! Logs and volumes are opened after that, by the same user that reopens them at a reload or when a
//! disk comes back. A missing permission therefore already fails at startup.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};

use crate::acme::dns::Helper;
use crate::config::{self, Plan, Report, Sandbox, Unusable};
use crate::sys::disk;
use crate::sys::sandbox::{self, Allowed, Enforcement, Reach};
use crate::sys::user::{self, ProcessUser};

/// The privileges that were dropped.
#[derive(Default)]
pub(super) struct DroppedPrivileges {
    /// The user that the process switched to.
    user: Option<String>,
    /// Files that the sandbox permits; `None` without a sandbox.
    given: Option<Permitted>,
    /// Runs the program that sets the records of DNS-01.
    dns_helper: Option<Arc<Helper>>,
}

/// Files that the sandbox permits, and their purposes.
struct Permitted {
    allowed: Vec<Allowed>,
    /// Purposes for which system files are permitted, such as name resolution.
    system: Vec<&'static str>,
}

/// Files that name resolution may need, and the folders of the libraries that the C library loads
/// for it.
const FOR_NAMES: [&str; 12] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ld.so.cache",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/lib",
    "/lib64",
    "/usr/lib",
];

/// Folder from which the sizes of block devices and the load of disks are read.
const FOR_DEVICES: [&str; 1] = ["/sys/devices"];

/// Switches to the plan's user and starts the sandbox. `config` is the file that a reload reads.
///
/// # Errors
///
/// A privilege can't be dropped. The caller must not go on, since the process would run with more
/// privileges than configured.
pub(super) fn drop_privileges(
    plan: &Plan,
    config: Option<&Path>,
) -> anyhow::Result<DroppedPrivileges> {
    let wanted = &plan.privileges;
    let mut given = DroppedPrivileges::default();
    if let Some(user) = &wanted.user {
        let account =
            ProcessUser::find(&user.name, user.group.as_deref()).map_err(anyhow::Error::msg)?;
        account
            .enter()
            .with_context(|| format!("can't switch to the user {user}"))?;
        user::set_no_new_privs().context("can't set no_new_privs")?;
        given.user = Some(user.to_string());
    }
    if let Some(options) = config::dns_program(plan) {
        // The sandbox would also confine the program.
        let helper = Helper::start(options);
        let helper = helper.context("can't start the process that runs the program of `dns`")?;
        given.dns_helper = Some(Arc::new(helper));
    }
    if wanted.sandbox != Sandbox::No {
        given.given = confined(plan, config)?;
    }
    if let Some(path) = config
        && (given.user.is_some() || given.given.is_some())
        && let Err(error) = disk::look_at(path)
    {
        tracing::warn!(%error, "a reload would not be able to read {}", path.display());
    }
    Ok(given)
}

/// Starts the sandbox and returns the files that it permits. Returns `None` if the kernel does not
/// support it and the configuration does not require it.
fn confined(plan: &Plan, config: Option<&Path>) -> anyhow::Result<Option<Permitted>> {
    let allowed = allowed(plan, config);
    for volume in plan.volumes.values().filter(|volume| volume.size > 0) {
        // Landlock can only grant access to existing files, so the file is created. Volumes treat
        // an empty file like a missing one.
        if let Err(error) = disk::make_if_missing(&volume.path) {
            tracing::warn!(
                "volume {}: {} can't be created ({error}), so the sandbox denies access to it until Sluice is restarted",
                volume.name,
                volume.path.display()
            );
        }
    }
    let folders = allowed.allowed.iter();
    for folder in folders.filter(|one| one.reach == Reach::Folder) {
        // If this fails, opening the folder fails for the same reason.
        let _ = disk::private::create(&folder.path);
    }
    let mut ports: Vec<u16> = plan
        .admin
        .iter()
        .filter_map(|address| Some(address.ip()?.port()))
        .collect();
    if plan.upstreams.values().any(|one| one.tcp.bind.is_some()) {
        // To bind the source address of a connection is to bind port 0.
        ports.push(0);
    }
    let outcome = sandbox::enter(&allowed.allowed, &ports);
    match (outcome, plan.privileges.sandbox) {
        (Ok(Enforcement::Fully), _) => tracing::info!("the sandbox is active"),
        (Ok(Enforcement::Partly), _) => {
            tracing::info!("the sandbox is active with the restrictions that this kernel supports");
        }
        (Ok(Enforcement::Not), Sandbox::Yes) => {
            bail!("can't start the sandbox: this kernel has no Landlock, or Landlock is disabled")
        }
        (Ok(Enforcement::Not), _) => {
            tracing::warn!("no sandbox: this kernel has no Landlock, or Landlock is disabled");
            return Ok(None);
        }
        (Err(error), _) => return Err(error).context("can't start the sandbox"),
    }
    Ok(Some(allowed))
}

/// Files that the process needs to run a plan.
struct Needs {
    /// Files that the configuration names.
    named: Vec<Allowed>,
    /// System files, by purpose.
    system: Vec<(&'static str, &'static [&'static str])>,
}

fn needs(plan: &Plan) -> Needs {
    let mut system = Vec::new();
    if config::looks_up_names(plan) {
        system.push(("the files for name resolution", &FOR_NAMES[..]));
    }
    if !plan.volumes.is_empty() {
        system.push(("the sizes and the load of disks", &FOR_DEVICES[..]));
    }
    Needs {
        named: config::reach(plan),
        system,
    }
}

fn read(path: PathBuf) -> Allowed {
    Allowed {
        path,
        reach: Reach::Read,
    }
}

fn allowed(plan: &Plan, config: Option<&Path>) -> Permitted {
    let Needs { named, system } = needs(plan);
    let mut all = named;
    // The folder is needed, too, because editors replace a file by creating a new one in it.
    all.extend(config.map(|file| read(config::folder_of(file))));
    let paths = system.iter().flat_map(|(_, paths)| *paths);
    all.extend(paths.map(|path| read(path.into())));
    // Another user may be able to move the working directory, so paths are made absolute.
    for one in &mut all {
        one.path = sandbox::real(&one.path);
    }
    Permitted {
        allowed: all,
        system: system.iter().map(|(what, _)| *what).collect(),
    }
}

impl DroppedPrivileges {
    /// Returns the process that runs the program that sets the records of DNS-01, if there is one.
    pub(super) fn dns_helper(&self) -> Option<Arc<Helper>> {
        self.dns_helper.clone()
    }

    /// Returns the reason why a reload can't apply this plan inside the sandbox, or `None` if it
    /// can.
    pub(super) fn refuses(&self, plan: &Plan) -> Option<String> {
        let given = self.given.as_ref()?;
        let Needs { named, system } = needs(plan);
        let beyond = sandbox::beyond(&named, &given.allowed);
        // System files are compared by purpose instead of by path, because their paths depend on
        // the system and may change.
        let system = system.iter().map(|(what, _)| *what);
        let system = system.filter(|what| !given.system.contains(what));
        let beyond: Vec<String> = beyond
            .iter()
            .map(|path| path.display().to_string())
            .chain(system.map(str::to_owned))
            .collect();
        (!beyond.is_empty()).then(|| {
            format!(
                "this change needs a restart: the sandbox (`sandbox` in [server]) denies access to {}\n",
                beyond.join(", ")
            )
        })
    }

    /// Returns the report of an error that concerns a part of the configuration, with the line of
    /// that part and advice. `source` is the name and the text of the configuration file. To other
    /// errors of missing permission, the user and the sandbox are added as advice.
    pub(super) fn explain(
        &self,
        error: anyhow::Error,
        source: Option<(String, &str)>,
    ) -> anyhow::Error {
        let privileges = self.restrictions();
        let Some(unusable) = error.downcast_ref::<Unusable>() else {
            let text = format!("{error:#}");
            return match privileges {
                Some(_) if text.contains("ermission denied") => {
                    Report::without_file(text, privileges).into()
                }
                _ => error,
            };
        };
        let (name, text) = source.unwrap_or_default();
        unusable.report(&name, text, privileges).into()
    }

    /// Describes the user and the sandbox that may be the cause of missing permission.
    fn restrictions(&self) -> Option<String> {
        let confined = "the sandbox (`sandbox` in [server]) permits only the files and folders that the configuration named when Sluice started: restart Sluice to permit more";
        let user =
            |user: &String| format!("Sluice runs as {user}, which needs permission for this");
        match (&self.user, self.given.is_some()) {
            (Some(name), false) => Some(user(name)),
            (Some(name), true) => Some(format!("{}; {confined}", user(name))),
            (None, true) => Some(confined.to_owned()),
            (None, false) => None,
        }
    }
}
