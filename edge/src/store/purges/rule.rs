//! A purge rule, and the bounds of all rules.

use std::fmt;

/// Rules in force at once. Each resource, prefix or tag has one rule, however often it is purged.
pub const RULES_MAX: usize = 65_536;

/// Length of a prefix in bytes.
pub const TEXT_MAX: usize = 4096;

/// What a purge covers.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Rule {
    /// All variants of one resource, by the hash that `Names::resource` gives.
    Resource(u128),
    /// All resources with a text of `Names::texts` that begins with these bytes.
    Prefix(Box<[u8]>),
    /// All responses with the tag of this hash.
    Tag(u64),
    /// Everything.
    All,
}

/// Too many rules are in force, or too long ones. Until more objects have been checked against
/// them, only everything can be purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{RULES_MAX} purges are in force already: wait until the store has been gone through, or purge everything"
        )
    }
}

impl std::error::Error for Full {}
