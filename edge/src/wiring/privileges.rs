//! Drops privileges: after binding the listeners and before the first thread starts, so that all
//! threads are affected.
//!
//! Logs and volumes are opened after that, by the same user that reopens them at a reload or when a
//! disk comes back. A missing permission therefore already fails at startup.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::config::{self, Plan, Sandbox};
use crate::sys::account::{self, Account};
use crate::sys::confine::{self, Allowed, Confined, Reach};
use crate::sys::disk;

/// The privileges that were dropped.
#[derive(Default)]
pub(super) struct DroppedPrivileges {
    /// The user that the process switched to.
    user: Option<String>,
    /// Files that the sandbox permits; `None` without a sandbox.
    given: Option<Permitted>,
}

/// Files that the sandbox permits.
struct Permitted {
    allowed: Vec<Allowed>,
    /// Permitted parts of the system, by their purpose.
    system: Vec<&'static str>,
}

/// Files that name resolution may need, and the folders of libraries that the C library loads for
/// it.
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

/// The folder with the sizes of block devices.
const FOR_DEVICES: [&str; 1] = ["/sys/devices"];

/// Switches to the plan's user and starts the sandbox. `config` is the file that a reload reads.
///
/// # Errors
/// A privilege can't be dropped: the process never runs with more privileges than configured.
pub(super) fn drop_privileges(
    plan: &Plan,
    config: Option<&Path>,
) -> anyhow::Result<DroppedPrivileges> {
    let wanted = &plan.privileges;
    let mut given = DroppedPrivileges::default();
    if let Some(user) = &wanted.user {
        let account =
            Account::find(&user.name, user.group.as_deref()).map_err(anyhow::Error::msg)?;
        account
            .enter()
            .with_context(|| format!("can't switch to the user {user}"))?;
        account::gain_no_rights().context("can't set no_new_privs")?;
        given.user = Some(user.to_string());
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

/// Starts the sandbox and returns what it permits; `None` if the kernel does not support it and the
/// configuration does not require it.
fn confined(plan: &Plan, config: Option<&Path>) -> anyhow::Result<Option<Permitted>> {
    let allowed = allowed(plan, config);
    for volume in plan.volumes.values().filter(|volume| volume.size > 0) {
        // Landlock needs an existing file to grant write access. Volumes treat an empty file like a
        // missing one.
        disk::make_if_missing(&volume.path)
            .with_context(|| format!("can't make {}", volume.path.display()))?;
    }
    let ports: Vec<u16> = plan.admin.iter().map(|address| address.port()).collect();
    let outcome = confine::confine(&allowed.allowed, &ports);
    match (outcome, plan.privileges.sandbox) {
        (Ok(Confined::Fully), _) => tracing::info!("the sandbox is active"),
        (Ok(Confined::Partly), _) => {
            tracing::info!("the sandbox is active with the restrictions that this kernel supports");
        }
        (Ok(Confined::Not), Sandbox::Yes) => {
            bail!("can't start the sandbox: this kernel has no Landlock, or Landlock is disabled")
        }
        (Ok(Confined::Not), _) => {
            tracing::warn!("no sandbox: this kernel has no Landlock, or Landlock is disabled");
            return Ok(None);
        }
        (Err(error), _) => return Err(error).context("can't start the sandbox"),
    }
    Ok(Some(allowed))
}

/// Files that a plan needs.
struct Needs {
    /// Files that the configuration names.
    named: Vec<Allowed>,
    /// Files of the system, with their purpose.
    system: Vec<(&'static str, &'static [&'static str])>,
}

fn needs(plan: &Plan) -> Needs {
    let mut system = Vec::new();
    if config::looks_up_names(plan) {
        system.push(("the files for name resolution", &FOR_NAMES[..]));
    }
    if plan.volumes.values().any(|volume| volume.size == 0) {
        system.push(("the sizes of block devices", &FOR_DEVICES[..]));
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
    // The folder is needed too, because editors replace a file by a new one.
    all.extend(config.map(|file| read(config::folder_of(file))));
    let paths = system.iter().flat_map(|(_, paths)| *paths);
    all.extend(paths.map(|path| read(path.into())));
    // Another user may be able to move the working directory, so paths are made absolute.
    for one in &mut all {
        one.path = confine::real(&one.path);
    }
    Permitted {
        allowed: all,
        system: system.iter().map(|(what, _)| *what).collect(),
    }
}

impl DroppedPrivileges {
    /// Why a reload can't apply this plan inside the sandbox, if it can't.
    pub(super) fn refuses(&self, plan: &Plan) -> Option<String> {
        let given = self.given.as_ref()?;
        let Needs { named, system } = needs(plan);
        let beyond = confine::beyond(&named, &given.allowed);
        // System files are compared by purpose, because their paths depend on the system and may
        // change.
        let system = system.iter().map(|(what, _)| *what);
        let system = system.filter(|what| !given.system.contains(what));
        let beyond: Vec<String> = beyond
            .iter()
            .map(|path| path.display().to_string())
            .chain(system.map(str::to_owned))
            .collect();
        (!beyond.is_empty()).then(|| {
            format!(
                "only a new start can change this: it is sandboxed (`sandbox` in [server]), and can't reach {}\n",
                beyond.join(", ")
            )
        })
    }

    /// Adds the user and the sandbox to an error that they may have caused.
    pub(super) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let text = format!("{error:#}");
        if !text.contains("ermission denied") {
            return error;
        }
        let confined = "it is sandboxed (`sandbox` in [server]) to what its configuration names";
        match (&self.user, self.given.is_some()) {
            (Some(user), false) => {
                anyhow::anyhow!("{text}\nit runs as {user}, which needs permission for this")
            }
            (Some(user), true) => anyhow::anyhow!(
                "{text}\nit runs as {user}, which needs permission for this, and {confined}"
            ),
            (None, true) => anyhow::anyhow!("{text}\n{confined}"),
            (None, false) => error,
        }
    }
}
