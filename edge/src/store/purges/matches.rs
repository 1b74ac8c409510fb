//! Counts the objects in memory that purge rules cover, so that an operator sees what a purge matches.

use super::rule::Rule;
use super::rules::Purges;
use crate::store::object::{Object, Phase};
use crate::store::object_store::Store;

/// Number of ids of the eviction policy that are examined while a lock is held.
const AT_ONCE: usize = 64;

/// The objects in memory that rules cover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// Number of objects.
    pub objects: u64,
    /// Whether all objects in memory were examined.
    pub is_complete: bool,
    /// Primary keys of some of the objects.
    pub examples: Vec<Vec<u8>>,
}

impl Store {
    /// Counts the objects in memory that have a response and that one of the rules covers, and returns
    /// the keys of at most `examples` of them. Examines at most `most` ids of the eviction policy.
    pub fn matches(&self, rules: &[Rule], most: usize, examples: usize) -> Matches {
        let mut matches = Matches::default();
        let mut examined = 0;
        for shard in &self.shards {
            let mut id = 0;
            loop {
                let Some(objects) = shard.lock().those(id..id + AT_ONCE, |_| true) else {
                    break;
                };
                if examined >= most {
                    return matches;
                }
                for (table_key, object) in &objects {
                    if self.purges.would_cover(rules, table_key.primary, object) {
                        matches.objects += 1;
                        if matches.examples.len() < examples {
                            matches.examples.push(object.key.to_vec());
                        }
                    }
                }
                (id, examined) = (id + AT_ONCE, examined + AT_ONCE);
            }
        }
        matches.is_complete = true;
        matches
    }
}

impl Purges {
    /// Whether one of the rules would cover an object that has a response and that no rule in force
    /// covers.
    fn would_cover(&self, rules: &[Rule], primary: u128, object: &Object) -> bool {
        let Phase::Open(head) = object.phase() else {
            return false;
        };
        let is_covered = |rule: &Rule| match rule {
            Rule::All => true,
            Rule::Tag(tag) => head.tags.contains(tag),
            Rule::Resource(resource) => self.names.resource(primary, &object.key) == *resource,
            Rule::Prefix(prefix) => {
                let mut begins = false;
                let mut each = |text: &[u8]| begins |= text.starts_with(prefix);
                self.names.texts(&object.key, &mut each);
                begins
            }
        };
        rules.iter().any(is_covered) && !self.covers(primary, object, &head)
    }
}
