//! Switches the process to another user permanently, in all threads and with all ids.

use std::ffi::CString;
use std::io;

use nix::unistd::{self, Gid, Group, ResGid, ResUid, Uid, User};

/// A user of the system with its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUser {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

/// Maximum number of groups of a user that are used; the kernel permits more.
const GROUPS_MAX: usize = 1024;

impl ProcessUser {
    /// Looks up a user by name or number, with a group to be the user's primary one.
    ///
    /// # Errors
    ///
    /// The user or group is unknown; the message is for the operator.
    pub fn find(user: &str, group: Option<&str>) -> Result<ProcessUser, String> {
        let known = match user.parse() {
            Ok(uid) => User::from_uid(Uid::from_raw(uid)),
            Err(_) => User::from_name(user),
        };
        let known = known.map_err(|error| format!("looking up the user {user} failed: {error}"))?;
        let gid = match group {
            Some(group) => group_id(group)?,
            None => {
                let user = known
                    .as_ref()
                    .ok_or_else(|| format!("unknown user {user}"))?;
                user.gid
            }
        };
        let uid = match (&known, user.parse()) {
            (Some(known), _) => known.uid,
            (None, Ok(uid)) => Uid::from_raw(uid),
            (None, Err(_)) => return Err(format!("unknown user {user}")),
        };
        let mut groups = match &known {
            Some(known) => groups_of(&known.name, gid),
            None => vec![gid],
        };
        groups.truncate(GROUPS_MAX);
        Ok(ProcessUser { uid, gid, groups })
    }

    /// Returns the ids of the user and its primary group.
    pub fn ids(&self) -> (u32, u32) {
        (self.uid.as_raw(), self.gid.as_raw())
    }

    /// Runs a function with the rights of this user, on a thread of its own. The process keeps its
    /// user.
    ///
    /// # Errors
    ///
    /// The process is not root and runs as another user or has other groups, or no thread can be
    /// started.
    pub fn run<T: Send>(&self, call: impl FnOnce() -> T + Send) -> io::Result<T> {
        if self.is_current()? {
            return Ok(call());
        }
        std::thread::scope(|scope| {
            let as_user = || {
                self.enter_thread()?;
                Ok(call())
            };
            let thread = std::thread::Builder::new().spawn_scoped(scope, as_user)?;
            let panicked = || io::Error::other("the function panicked");
            thread.join().unwrap_or_else(|_| Err(panicked()))
        })
    }

    /// Whether the process runs as this user, without groups of others.
    fn is_current(&self) -> io::Result<bool> {
        let is_its = |group: &Gid| *group == self.gid || self.groups.contains(group);
        let within_its_groups = unistd::getgroups()?.iter().all(is_its);
        Ok(self.is_it(unistd::getresuid()?, unistd::getresgid()?) && within_its_groups)
    }

    /// Whether these are the ids of this user.
    fn is_it(&self, uids: ResUid, gids: ResGid) -> bool {
        let uids = [uids.real, uids.effective, uids.saved];
        let gids = [gids.real, gids.effective, gids.saved];
        uids.iter().all(|uid| *uid == self.uid) && gids.iter().all(|gid| *gid == self.gid)
    }

    /// Switches only this thread to this user.
    fn enter_thread(&self) -> io::Result<()> {
        use rustix::process::{Gid, Uid};
        let gid = |gid: &unistd::Gid| Gid::from_raw(gid.as_raw());
        let groups: Vec<Gid> = self.groups.iter().map(gid).collect();
        let (own, uid) = (gid(&self.gid), Uid::from_raw(self.uid.as_raw()));
        // The user id is changed last, because only root can change groups.
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(own, own, own)?;
        Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
    }

    /// Switches the process to this user: real, effective and saved ids, and all groups. The C library applies this to all threads, as
    /// POSIX demands.
    ///
    /// # Errors
    ///
    /// The process is not root and runs as another user or has other groups; or an id of the old user remained.
    pub fn enter(&self) -> io::Result<()> {
        if self.is_current()? {
            return Ok(());
        }
        let (uids, gids) = (unistd::getresuid()?, unistd::getresgid()?);
        if !uids.effective.is_root() {
            let said = match self.is_it(uids, gids) {
                true => {
                    "the process has groups that are not this user's, and only root can drop groups"
                }
                false => "only root can switch to another user",
            };
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, said));
        }
        // The user id is changed last, because only root can change groups.
        unistd::setgroups(&self.groups)?;
        unistd::setresgid(self.gid, self.gid, self.gid)?;
        unistd::setresuid(self.uid, self.uid, self.uid)?;
        match self.is_it(unistd::getresuid()?, unistd::getresgid()?) {
            true => Ok(()),
            false => Err(io::Error::other("an id of the old user remained")),
        }
    }
}

fn group_id(group: &str) -> Result<Gid, String> {
    if let Ok(gid) = group.parse() {
        return Ok(Gid::from_raw(gid));
    }
    match Group::from_name(group) {
        Ok(Some(group)) => Ok(group.gid),
        Ok(None) => Err(format!("unknown group {group}")),
        Err(error) => Err(format!("looking up the group {group} failed: {error}")),
    }
}

/// Returns the groups of a user, at least its primary one.
fn groups_of(user: &str, own: Gid) -> Vec<Gid> {
    let name = CString::new(user).unwrap_or_default();
    unistd::getgrouplist(&name, own).unwrap_or_else(|_| vec![own])
}

/// Whether the process runs as root.
pub fn is_root() -> bool {
    unistd::geteuid().is_root()
}

/// Sets `no_new_privs` for this thread and for threads that it starts: programs that they execute gain no privileges.
///
/// # Errors
///
/// The kernel refused.
pub fn set_no_new_privs() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name_and_number() {
        let root = ProcessUser::find("root", None).expect("there is a root");
        assert_eq!((root.uid.as_raw(), root.gid.as_raw()), (0, 0));
        assert_eq!(ProcessUser::find("0", Some("root")), Ok(root.clone()));
        let stranger = ProcessUser::find("4123456", Some("77")).expect("a number needs no name");
        assert_eq!(stranger.uid.as_raw(), 4_123_456);
        assert_eq!(stranger.groups, [Gid::from_raw(77)]);
        for (user, group, said) in [
            ("no-such-user", None, "unknown user no-such-user"),
            ("4123456", None, "unknown user 4123456"),
            ("root", Some("no-such-group"), "unknown group no-such-group"),
            ("no-such-user", Some("0"), "unknown user no-such-user"),
        ] {
            assert_eq!(ProcessUser::find(user, group), Err(said.to_owned()));
        }
    }

    #[test]
    fn a_function_runs_as_another_user_and_the_process_keeps_its_own() -> io::Result<()> {
        if !unistd::geteuid().is_root() {
            return Ok(());
        }
        let user = ProcessUser::find("4123456", Some("77")).expect("a number needs no name");
        let seen = user.run(|| rustix::process::geteuid().as_raw())?;
        assert_eq!(seen, 4_123_456);
        assert!(unistd::geteuid().is_root());
        Ok(())
    }

    #[test]
    fn switching_to_the_current_user_needs_no_privileges() -> io::Result<()> {
        let uid = unistd::getuid();
        let now = ProcessUser {
            uid,
            gid: unistd::getgid(),
            groups: unistd::getgroups()?,
        };
        now.enter()?;
        assert_eq!(unistd::getuid(), uid);
        Ok(())
    }
}
