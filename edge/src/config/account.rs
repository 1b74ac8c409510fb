//! The user with whose rights files are checked, and the problems of files that this user can't use.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;

use super::plan::{Plan, User};
use super::report::Problem;
use crate::sys::user::ProcessUser;

/// The step that reads the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A running Sluice reads the file again.
    Reload,
    /// Sluice starts.
    Start,
    /// `sluice check`, which another user than that of `sluice serve` may run.
    Check,
}

/// The user with whose rights files are checked.
#[derive(Clone, Copy)]
pub enum Account<'a> {
    /// The user of the running Sluice, with the value of `user`.
    Serving(Option<&'a User>),
    /// The user of `sluice check`. `sluice serve` may run as another one.
    Checking,
    /// Not the user of the running Sluice.
    Other,
}

/// Runs a check of files as the user that Sluice would have, if that is possible.
pub fn with_account<T: Send>(
    plan: &Plan,
    purpose: Purpose,
    check: impl Fn(Account<'_>) -> T + Sync,
) -> T {
    let Some(user) = &plan.privileges.user else {
        return match purpose {
            Purpose::Start => check(Account::Serving(None)),
            Purpose::Check | Purpose::Reload => check(Account::Checking),
        };
    };
    let account = ProcessUser::find(&user.name, user.group.as_deref()).ok();
    let checked = account.and_then(|account| {
        let serving = || check(Account::Serving(Some(user)));
        account.run(serving).ok()
    });
    checked.unwrap_or_else(|| check(Account::Other))
}

impl Account<'_> {
    /// Returns the problem of a file or folder that can't be used.
    pub fn unusable(
        self,
        what: &str,
        path: &Path,
        error: &io::Error,
        at: Range<usize>,
    ) -> Option<Problem> {
        let is_denied = error.kind() == ErrorKind::PermissionDenied;
        let problem = match self {
            Account::Other if is_denied => return None,
            Account::Checking if is_denied => Problem::warning(what),
            _ => Problem::error(what),
        };
        let help = match is_denied {
            true => self.permit(),
            false => advice(error.kind()).to_owned(),
        };
        let label = self.label(path, error);
        Some(problem.at(at).label(label).help(help))
    }

    /// Describes an error of a file, and the user whose rights are missing.
    pub fn label(self, path: &Path, error: &io::Error) -> String {
        let label = format!("{}: {}", path.display(), reason(error));
        match self {
            Account::Serving(Some(user)) if error.kind() == ErrorKind::PermissionDenied => {
                format!("{label} for {user}")
            }
            _ => label,
        }
    }

    /// Advice on missing permission.
    pub fn permit(self) -> String {
        match self {
            Account::Serving(Some(user)) => {
                format!("give {user}, the `user` of [server], permission for this path")
            }
            _ => "run `sluice serve` as another user, or change the permissions".to_owned(),
        }
    }
}

/// Advice on a path that can't be used.
pub fn advice(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::IsADirectory => "name a file in this folder",
        ErrorKind::NotADirectory => "name a folder; each part of a path but the last is one, too",
        _ => CREATE,
    }
}

/// Advice on a missing folder.
const CREATE: &str = "create the folder, or correct the path; a relative path begins in the folder where Sluice is started";

/// Describes an error of the file system without its number.
fn reason(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "no such folder".to_owned(),
        ErrorKind::NotADirectory => "not a folder".to_owned(),
        ErrorKind::IsADirectory => "a folder, not a file".to_owned(),
        ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
