//! The user and the sandbox by which the process drops privileges before the first request.

use std::fmt;

use crate::config::value::Sandbox;

/// User and sandbox of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// User to which the process switches after binding the listeners.
    pub user: Option<User>,
    /// Whether the process restricts its own file access.
    pub sandbox: Sandbox,
}

/// Value of `user`: `"NAME"` or `"NAME:GROUP"`, as names or numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name or number of the user.
    pub name: String,
    /// Name or number of the group. `None`: the user's primary group.
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
