//! The ways in which the keys of a store have been made. A purge by URL needs all of them.

use parking_lot::Mutex;

use crate::http::key::KeyRules;

/// The ways in which the keys of a store have been made since it was created. A reload may change
/// the way and keep stored responses, and a later reload may make them reachable again. So a purge
/// by URL has to cover all ways.
#[derive(Default)]
pub struct KeyRuleHistory(Mutex<Vec<KeyRules>>);

/// Number of ways to make keys that are remembered for one store. More are remembered only if all
/// of them are in use.
pub(super) const REMEMBERED_RULES_MAX: usize = 64;

impl KeyRuleHistory {
    /// Sets the ways that are in use from now on. If there are too many, the oldest ways that are
    /// not in use are forgotten. Returns the number of those.
    pub fn take_up<'a>(&self, now: impl Iterator<Item = &'a KeyRules>) -> usize {
        let mut key_rules = self.0.lock();
        let mut used: Vec<KeyRules> = Vec::new();
        for rules in now.map(KeyRules::of_urls) {
            if !used.contains(&rules) {
                used.push(rules);
            }
        }
        key_rules.retain(|old| !used.contains(old));
        let forgotten = (key_rules.len() + used.len()).saturating_sub(REMEMBERED_RULES_MAX);
        let forgotten = forgotten.min(key_rules.len());
        key_rules.drain(..forgotten);
        key_rules.append(&mut used);
        forgotten
    }

    /// Returns all ways, the oldest first, or the default way if there are none.
    pub fn all(&self) -> Vec<KeyRules> {
        match &self.0.lock()[..] {
            [] => vec![KeyRules::default()],
            key_rules => key_rules.to_vec(),
        }
    }
}
