//! Compares purges with a model that keeps every rule and checks all of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;

use super::super::*;
use super::{find, flying, fresh_until, opened, prefix, sweep, tagged};
use crate::store::Landing;
use crate::store::tests::{store, table_key};

#[derive(Clone, Debug)]
enum Step {
    Fetch(u8, u8),
    Arrive(u8),
    Purge(u8, u8, bool),
    Look(u8),
    Renew(u8, u8),
    Sweep(u8),
}

const KEYS: [&str; 6] = ["/", "/a", "/a/", "/a/b", "/ab", "/b"];

const TAGS: u8 = 3;

fn a_step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS.len() as u8;
    let tags = || 0..1_u8 << TAGS;
    prop_oneof![
        3 => (key(), tags()).prop_map(|(key, tags)| Step::Fetch(key, tags)),
        3 => key().prop_map(Step::Arrive),
        3 => (0..3u8, 0..6u8, any::<bool>()).prop_map(|(kind, of, soft)| Step::Purge(kind, of, soft)),
        1 => any::<bool>().prop_map(|soft| Step::Purge(3, 0, soft)),
        4 => key().prop_map(Step::Look),
        2 => (key(), tags()).prop_map(|(key, tags)| Step::Renew(key, tags)),
        2 => (1..200u8).prop_map(Step::Sweep),
    ]
}

fn tags_of(bits: u8) -> Vec<u64> {
    (0..u64::from(TAGS))
        .filter(|tag| bits >> tag & 1 == 1)
        .collect()
}

fn rule_of(kind: u8, of: u8) -> Rule {
    match kind {
        0 => Rule::Resource(u128::from(of)),
        1 => prefix(KEYS[usize::from(of)]),
        2 => Rule::Tag(u64::from(of)),
        _ => Rule::All,
    }
}

/// An object as the model knows it.
struct Known {
    object: Arc<Object>,
    born: u64,
    head_born: u64,
    /// All tags that the object has had, each with the range of sequence numbers during which it had the tag.
    tags: Vec<(u64, Range<u64>)>,
    /// Whether a sweep may have removed the object.
    may_be_out: bool,
    is_out: bool,
    landing: Option<(Landing, u8)>,
}

impl Known {
    /// Computes whether the rules remove the object, and whether they make it stale.
    fn fate(&self, key: u8, rules: &[(u64, Rule, bool)]) -> (bool, bool) {
        let by = |soft: bool, born: u64| {
            rules.iter().any(|(number, rule, is_soft)| {
                *is_soft == soft && *number > born && self.is_named_by(key, rule, *number)
            })
        };
        let nothing_to_keep = self.landing.is_some() && by(true, self.born);
        (
            by(false, self.born) || nothing_to_keep,
            by(true, self.head_born),
        )
    }

    /// Whether a rule covers the object: by its key, or by a tag that the object has now or had when the rule was added.
    fn is_named_by(&self, key: u8, rule: &Rule, number: u64) -> bool {
        match rule {
            Rule::Resource(resource) => *resource == u128::from(key),
            Rule::Prefix(text) => KEYS[usize::from(key)].as_bytes().starts_with(text),
            Rule::Tag(tag) => self
                .tags
                .iter()
                .any(|(is, had)| is == tag && had.start < number && number <= had.end),
            Rule::All => true,
        }
    }
}

proptest! {
    #[test]
    fn purges_act_like_a_check_of_every_rule(steps in prop::collection::vec(a_step(), 1..80)) {
        let store = store(16 << 20);
        let mut rules: Vec<(u64, Rule, bool)> = Vec::new();
        let mut known: BTreeMap<u8, Known> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Fetch(key, tags) => {
                    let landing = flying(&store, u128::from(key), KEYS[usize::from(key)]);
                    let object = landing.object().clone();
                    let (born, head_born) = (object.born_seq, landing.born_seq());
                    let landing = Some((landing, tags));
                    known.insert(key, Known {
                        object,
                        born,
                        head_born,
                        tags: vec![],
                        may_be_out: false,
                        is_out: false,
                        landing,
                    });
                }
                Step::Arrive(key) => {
                    if let Some(known) = known.get_mut(&key)
                        && let Some((landing, tags)) = known.landing.take()
                    {
                        opened(&store, landing, &tags_of(tags));
                        let since = known.head_born;
                        known.tags =
                            tags_of(tags).into_iter().map(|tag| (tag, since..u64::MAX)).collect();
                    }
                }
                Step::Purge(kind, of, soft) => {
                    let rule = rule_of(kind, of);
                    let number = store.purge(&rule, soft, 50).expect("few rules");
                    rules.push((number, rule, soft));
                }
                Step::Look(key) => {
                    let found = find(&store, u128::from(key));
                    let Some(known) = known.get_mut(&key) else {
                        prop_assert!(found.is_none());
                        continue;
                    };
                    let (gone, stale) = known.fate(key, &rules);
                    let awaits = known.landing.is_some();
                    match found {
                        None => {
                            prop_assert!(gone || known.may_be_out || known.is_out);
                            known.is_out = true;
                        }
                        Some(found) => {
                            prop_assert!(!gone && !known.is_out);
                            prop_assert!(Arc::ptr_eq(&found, &known.object));
                            let until = (!awaits).then_some(if stale { 50 } else { u64::MAX });
                            prop_assert_eq!(fresh_until(&found), until);
                        }
                    }
                }
                Step::Renew(key, tags) => {
                    let birth = store.birth();
                    if let Some(known) = known.get_mut(&key).filter(|k| k.landing.is_none()) {
                        let number = birth.seq;
                        let head = Arc::new(tagged(number, &tags_of(tags)));
                        let charge = store.charge_head(head.memory()).expect("room");
                        store.renew(table_key(u128::from(key)), &known.object, head, charge);
                        known.head_born = number;
                        known.tags.iter_mut().for_each(|(_, had)| had.end = number.min(had.end));
                        let tags = tags_of(tags).into_iter();
                        known.tags.extend(tags.map(|tag| (tag, number..u64::MAX)));
                    }
                }
                Step::Sweep(places) => {
                    store.sweep(usize::from(places));
                    for (key, known) in &mut known {
                        known.may_be_out |= known.fate(*key, &rules).0;
                    }
                }
            }
        }
        // Ends all fetches: then no rule may be left, and only covered objects may have been removed.
        for known in known.values_mut() {
            known.landing = None;
        }
        prop_assert_eq!((sweep(&store), store.rules()), (Swept::Idle, 0));
        drop(known);
        store.purge(&Rule::All, false, 0).expect("room");
        prop_assert_eq!(sweep(&store), Swept::Idle);
        prop_assert_eq!(store.ledger.used(), 0);
    }
}
