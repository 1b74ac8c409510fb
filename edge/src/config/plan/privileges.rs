//! The rights that the process gives up before the first request.

use std::fmt;

use crate::config::value::Sandbox;

/// User and sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privileges {
    /// User to switch to after binding the listeners.
    pub user: Option<User>,
    /// Whether file access is restricted.
    pub sandbox: Sandbox,
}

/// `user = "NAME"` or `"NAME:GROUP"`; names, or numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub name: String,
    /// The group, unless it is the user's own.
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
