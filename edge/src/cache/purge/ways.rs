//! The ways in which keys of a store have been made: a purge by URL has to know them all.

use parking_lot::Mutex;

use crate::http::key::KeyRules;

/// How the keys of a store were made since it is there. A reload may change that and keep what is
/// stored; a further one may bring it back into reach. So a purge by URL has to know all ways.
#[derive(Default)]
pub struct Ways(Mutex<Vec<KeyRules>>);

/// Ways known of one store, unless more are in use at once.
pub(super) const WAYS_MAX: usize = 64;

impl Ways {
    /// Keys are made in these ways from now on. Where that makes too many, the oldest ones that are
    /// not in use are forgotten; says how many.
    pub fn take_up<'a>(&self, now: impl Iterator<Item = &'a KeyRules>) -> usize {
        let mut ways = self.0.lock();
        let mut used: Vec<KeyRules> = Vec::new();
        for rules in now.map(KeyRules::of_urls) {
            if !used.contains(&rules) {
                used.push(rules);
            }
        }
        ways.retain(|old| !used.contains(old));
        let forgotten = (ways.len() + used.len()).saturating_sub(WAYS_MAX);
        let forgotten = forgotten.min(ways.len());
        ways.drain(..forgotten);
        ways.append(&mut used);
        forgotten
    }

    /// All of them, oldest first; the plain one where there is none.
    pub fn all(&self) -> Vec<KeyRules> {
        match &self.0.lock()[..] {
            [] => vec![KeyRules::default()],
            ways => ways.to_vec(),
        }
    }
}
