//! The folder of the state if the configuration names none.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::options::STATE;
use crate::sys::disk::access;
use crate::sys::user;

/// Name of the folder of certificates in the folder of the state.
const CERTIFICATES: &str = "certificates";

/// Returns the folder of accounts, certificates and keys if the configuration names none:
/// `/var/lib/sluice/certificates` for root and for a user who may write there, else a folder in the user's home. With
/// `StateDirectory` of systemd, the folder is in the one that systemd has created.
///
/// The folder stays the same until the process ends, also if the process switches to another user.
pub fn state_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| choose(&Surroundings::of_process()))
}

/// The properties of the process that decide about the folder.
#[derive(Default)]
struct Surroundings {
    is_root: bool,
    /// Whether the user may create files in the folder of services, or in the one above it.
    may_write: bool,
    /// The folders that systemd has created, separated by colons (STATE_DIRECTORY).
    of_systemd: Option<String>,
    /// The user's folder for the state of programs (XDG_STATE_HOME).
    of_user: Option<PathBuf>,
    /// The user's home.
    home: Option<PathBuf>,
}

impl Surroundings {
    fn of_process() -> Surroundings {
        let may_write = |path: &Path| access::create_in(path).is_ok();
        Surroundings {
            is_root: user::is_root(),
            may_write: Path::new(STATE).ancestors().take(2).any(may_write),
            of_systemd: env::var("STATE_DIRECTORY").ok(),
            of_user: env::var_os("XDG_STATE_HOME").map(PathBuf::from),
            home: env::var_os("HOME").map(PathBuf::from),
        }
    }
}

fn choose(surroundings: &Surroundings) -> PathBuf {
    let of_services = PathBuf::from(STATE);
    let of_systemd = surroundings.of_systemd.as_deref();
    let first = of_systemd.and_then(|list| list.split(':').find(|path| path.starts_with('/')));
    if let Some(folder) = first {
        return Path::new(folder).join(CERTIFICATES);
    }
    if surroundings.is_root || surroundings.may_write {
        return of_services;
    }
    // Relative paths in the variable are to be ignored (XDG Base Directory Specification).
    let of_user = surroundings.of_user.clone();
    let of_user = of_user.filter(|path| path.is_absolute());
    let home = surroundings.home.as_ref().filter(|home| home.is_absolute());
    let of_user = of_user.or_else(|| home.map(|home| home.join(".local/state")));
    of_user.map_or(of_services, |folder| {
        folder.join("sluice").join(CERTIFICATES)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_services_have_a_folder_of_the_system_and_users_one_of_their_own() {
        let user = || Surroundings {
            home: Some("/home/a".into()),
            ..Surroundings::default()
        };
        let own = "/home/a/.local/state/sluice/certificates";
        let system = "/var/lib/sluice/certificates";
        let cases = [
            (user(), own),
            (Surroundings::default(), system),
            (
                Surroundings {
                    is_root: true,
                    ..user()
                },
                system,
            ),
            (
                Surroundings {
                    may_write: true,
                    ..user()
                },
                system,
            ),
            (
                Surroundings {
                    of_user: Some("/state".into()),
                    ..user()
                },
                "/state/sluice/certificates",
            ),
            (
                Surroundings {
                    of_user: Some("state".into()),
                    ..user()
                },
                own,
            ),
            (
                Surroundings {
                    is_root: true,
                    of_systemd: Some("/var/lib/private/sluice:/var/lib/other".to_owned()),
                    ..user()
                },
                "/var/lib/private/sluice/certificates",
            ),
        ];
        for (surroundings, expected) in cases {
            assert_eq!(choose(&surroundings), Path::new(expected));
        }
    }
}
