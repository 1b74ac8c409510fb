//! A purge rule, and the bounds on the number and size of rules.

use std::fmt;

/// Maximum number of rules in force at once. Each resource, prefix or tag has one rule, however often it is purged.
pub const RULES_MAX: usize = 65_536;

/// Maximum length of a prefix in bytes.
pub const TEXT_MAX: usize = 4096;

/// A purge rule: which responses a purge covers.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Rule {
    /// All variants of one resource, given by the hash that `Names::resource` returns.
    Resource(u128),
    /// All resources for which `Names::texts` returns a text that begins with these bytes.
    Prefix(Box<[u8]>),
    /// All responses with a tag that has this hash.
    Tag(u64),
    /// All responses.
    All,
}

/// Error: too many rules are in force, or their texts are too long. Until the sweep has checked more objects, only `Rule::All` is accepted.
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
