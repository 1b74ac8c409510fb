//! Giving up rights: between listening and the first thread, so that it holds for all of them.
//!
//! Logs and volumes are opened after it, by the user that opens them again at a reload or when a disk
//! comes back. So what would fail then fails at the start.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::config::{self, Plan, Sandbox};
use crate::sys::account::{self, Account};
use crate::sys::confine::{self, Allowed, Confined, Reach};
use crate::sys::disk;

/// What was given up.
#[derive(Default)]
pub(super) struct GivenUp {
    /// Who it became.
    user: Option<String>,
    /// What it may reach; `None`: whatever its user may.
    given: Option<Given>,
}

/// What a confined process may reach.
struct Given {
    allowed: Vec<Allowed>,
    /// What of the system, by what it is for.
    system: Vec<&'static str>,
}

/// Files that looking a name up may need, and folders of libraries that the C library loads for it.
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

/// Where sizes of block devices can be read.
const FOR_DEVICES: [&str; 1] = ["/sys/devices"];

/// Becomes who the plan says, and shuts the process in. `config`: the file that a reload reads.
///
/// # Errors
/// When something can't be given up: nothing runs with more rights than it was told to have.
pub(super) fn give_up(plan: &Plan, config: Option<&Path>) -> anyhow::Result<GivenUp> {
    let wanted = &plan.privileges;
    let mut given = GivenUp::default();
    if let Some(user) = &wanted.user {
        let account =
            Account::find(&user.name, user.group.as_deref()).map_err(anyhow::Error::msg)?;
        account
            .enter()
            .with_context(|| format!("can't become {user}"))?;
        account::gain_no_rights().context("can't refuse to gain rights")?;
        given.user = Some(user.to_string());
    }
    if wanted.sandbox != Sandbox::No {
        given.given = confined(plan, config)?;
    }
    if let Some(path) = config
        && (given.user.is_some() || given.given.is_some())
        && let Err(error) = disk::look_at(path)
    {
        tracing::warn!(%error, "a reload will not be able to read {}", path.display());
    }
    Ok(given)
}

/// Shuts the process in; what it may reach then. `None`: the kernel can't, and need not.
fn confined(plan: &Plan, config: Option<&Path>) -> anyhow::Result<Option<Given>> {
    let allowed = allowed(plan, config);
    for volume in plan.volumes.values().filter(|volume| volume.size > 0) {
        // There has to be a file that may be written. An empty one is as good as none to a volume.
        disk::make_if_missing(&volume.path)
            .with_context(|| format!("can't make {}", volume.path.display()))?;
    }
    let ports: Vec<u16> = plan.admin.iter().map(|address| address.port()).collect();
    let outcome = confine::confine(&allowed.allowed, &ports);
    match (outcome, plan.privileges.sandbox) {
        (Ok(Confined::Fully), _) => tracing::info!("sandboxed to the files that it needs"),
        (Ok(Confined::Partly), _) => {
            tracing::info!("sandboxed to the files that it needs, as far as this kernel can");
        }
        (Ok(Confined::Not), Sandbox::Yes) => {
            bail!("can't be sandboxed: this kernel has no Landlock, or it is turned off")
        }
        (Ok(Confined::Not), _) => {
            tracing::warn!("not sandboxed: this kernel has no Landlock, or it is turned off");
            return Ok(None);
        }
        (Err(error), _) => return Err(error).context("can't be sandboxed"),
    }
    Ok(Some(allowed))
}

/// What a plan needs to reach.
struct Needs {
    /// What its configuration names.
    named: Vec<Allowed>,
    /// What belongs to the system, and what for.
    system: Vec<(&'static str, &'static [&'static str])>,
}

fn needs(plan: &Plan) -> Needs {
    let mut system = Vec::new();
    if config::looks_up_names(plan) {
        system.push(("what names are looked up with", &FOR_NAMES[..]));
    }
    if plan.volumes.values().any(|volume| volume.size == 0) {
        system.push(("sizes of devices", &FOR_DEVICES[..]));
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

fn allowed(plan: &Plan, config: Option<&Path>) -> Given {
    let Needs { named, system } = needs(plan);
    let mut all = named;
    // The folder, since editors put a new file in the old one's place.
    all.extend(config.map(|file| read(config::folder_of(file))));
    let paths = system.iter().flat_map(|(_, paths)| *paths);
    all.extend(paths.map(|path| read(path.into())));
    // The folder in which it was started may be another one's to move.
    for one in &mut all {
        one.path = confine::real(&one.path);
    }
    Given {
        allowed: all,
        system: system.iter().map(|(what, _)| *what).collect(),
    }
}

impl GivenUp {
    /// Why a reload can't bring this plan into force, if it can't.
    pub(super) fn refuses(&self, plan: &Plan) -> Option<String> {
        let given = self.given.as_ref()?;
        let Needs { named, system } = needs(plan);
        let beyond = confine::beyond(&named, &given.allowed);
        // By what they are for: where the system keeps them is its own matter, and may change.
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

    /// An error, with a word about who met it where that may be why.
    pub(super) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let text = format!("{error:#}");
        if !text.contains("ermission denied") {
            return error;
        }
        let confined = "it is sandboxed (`sandbox` in [server]) to what its configuration names";
        match (&self.user, self.given.is_some()) {
            (Some(user), false) => {
                anyhow::anyhow!("{text}\nit runs as {user}, which has to be let do this")
            }
            (Some(user), true) => anyhow::anyhow!(
                "{text}\nit runs as {user}, which has to be let do this, and {confined}"
            ),
            (None, true) => anyhow::anyhow!("{text}\n{confined}"),
            (None, false) => error,
        }
    }
}
