//! An index of the rules in force, so that checking an object does not depend on their number.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::Bound;

use super::super::ledger::Charge;
use super::super::table_key::AlreadyHashed;
use super::rule::{Full, RULES_MAX, Rule, TEXT_MAX};

/// Total length of all prefixes in bytes.
const TEXTS_MAX: usize = 8 << 20;
/// Bytes of a rule in addition to its text: rows of tables that may be half empty.
const RULE_BYTES: usize = 128;

type Hashed<K> = HashMap<K, Mark, BuildHasherDefault<AlreadyHashed>>;

/// Rules are found by what they cover. No rule is older than a rule for everything that makes it
/// unnecessary.
pub(super) struct Index {
    all: Mark,
    resources: Hashed<u128>,
    tags: Hashed<u64>,
    /// The newest hard rule for any tag.
    newest_tag: u64,
    prefixes: BTreeMap<Box<[u8]>, Mark>,
    texts: usize,
    charge: Charge,
}

/// The newest rules for one resource, prefix or tag; 0 if there is none.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    hard: u64,
    soft: u64,
    /// The time of the newest soft rule.
    soft_ms: u64,
}

/// What the rules say about one object.
pub(super) struct Covered {
    /// Whether a rule removes the object.
    pub(super) hard: bool,
    /// Since when the object is stale, in Unix milliseconds.
    pub(super) stale_at_ms: Option<u64>,
    /// The newest rule that makes the object stale; 0 for none.
    pub(super) soft: u64,
    /// The newest rule that removes the object; 0 for none.
    pub(super) hardest: u64,
    born: u64,
    head_born: u64,
}

/// Rules taken out, to be dropped after unlocking.
pub(super) struct Dropped {
    _resources: Hashed<u128>,
    _tags: Hashed<u64>,
    _prefixes: BTreeMap<Box<[u8]>, Mark>,
    _charge: Option<Charge>,
}

impl Mark {
    fn add(&mut self, number: u64, soft_ms: Option<u64>) {
        match soft_ms {
            None => self.hard = self.hard.max(number),
            Some(now_ms) if number > self.soft => {
                self.soft = number;
                self.soft_ms = now_ms;
            }
            Some(_) => {}
        }
    }

    /// Drops rules up to this number. Returns whether any is left.
    fn forget(&mut self, upto: u64) -> bool {
        if self.hard <= upto {
            self.hard = 0;
        }
        if self.soft <= upto {
            self.soft = 0;
        }
        self.hard != 0 || self.soft != 0
    }

    fn newest(&self) -> u64 {
        self.hard.max(self.soft)
    }
}

impl Covered {
    /// For an object born at this number, whose head was born at that one.
    pub(super) fn nothing(born: u64, head_born: u64) -> Covered {
        Covered {
            hard: false,
            stale_at_ms: None,
            soft: 0,
            hardest: 0,
            born,
            head_born,
        }
    }

    pub(super) fn by(&mut self, mark: &Mark) {
        self.by_since(mark, self.born);
    }

    /// Applies a rule to what the object has been since this number.
    fn by_since(&mut self, mark: &Mark, since: u64) {
        if mark.hard > since {
            self.hard = true;
            self.hardest = self.hardest.max(mark.hard);
        }
        if mark.soft > self.head_born {
            let earliest = self.stale_at_ms.unwrap_or(u64::MAX).min(mark.soft_ms);
            self.stale_at_ms = Some(earliest);
            self.soft = self.soft.max(mark.soft);
        }
    }
}

impl Index {
    pub(super) fn new(charge: Charge) -> Index {
        Index {
            all: Mark::default(),
            resources: HashMap::default(),
            tags: HashMap::default(),
            newest_tag: 0,
            prefixes: BTreeMap::new(),
            texts: 0,
            charge,
        }
    }

    pub(super) fn len(&self) -> usize {
        let all = usize::from(self.all.newest() > 0);
        self.resources.len() + self.tags.len() + self.prefixes.len() + all
    }

    /// Makes room for a rule. Returns the rules that it makes unnecessary.
    pub(super) fn make_room(&mut self, rule: &Rule, soft: bool) -> Result<Option<Dropped>, Full> {
        let known = match rule {
            // Each older rule covers only a part of what this one covers.
            Rule::All => return Ok((!soft).then(|| self.clear())),
            Rule::Resource(resource) => self.resources.contains_key(resource),
            Rule::Tag(tag) => self.tags.contains_key(tag),
            Rule::Prefix(text) => {
                let known = self.prefixes.contains_key(text);
                if !known && (text.len() > TEXT_MAX || self.texts + text.len() > TEXTS_MAX) {
                    return Err(Full);
                }
                known
            }
        };
        match known || self.len() < RULES_MAX {
            true => Ok(None),
            false => Err(Full),
        }
    }

    pub(super) fn add(&mut self, rule: &Rule, number: u64, soft_ms: Option<u64>) {
        let mark = match rule {
            Rule::All => &mut self.all,
            Rule::Resource(resource) => self.resources.entry(*resource).or_default(),
            Rule::Tag(tag) => {
                if soft_ms.is_none() {
                    self.newest_tag = self.newest_tag.max(number);
                }
                self.tags.entry(*tag).or_default()
            }
            Rule::Prefix(text) => {
                if !self.prefixes.contains_key(text) {
                    self.texts += text.len();
                }
                self.prefixes.entry(text.clone()).or_default()
            }
        };
        mark.add(number, soft_ms);
        self.recharge();
    }

    /// Drops the rules up to this number.
    pub(super) fn forget(&mut self, upto: u64) -> Option<Dropped> {
        self.all.forget(upto);
        let tables = self.resources.values().chain(self.tags.values());
        let newest = tables.chain(self.prefixes.values()).map(Mark::newest);
        if newest.max().unwrap_or(0) <= upto {
            return Some(self.clear_tables());
        }
        self.resources.retain(|_, mark| mark.forget(upto));
        self.tags.retain(|_, mark| mark.forget(upto));
        if self.newest_tag <= upto {
            self.newest_tag = 0;
        }
        self.prefixes.retain(|_, mark| mark.forget(upto));
        self.texts = self.prefixes.keys().map(|text| text.len()).sum();
        self.recharge();
        None
    }

    fn clear(&mut self) -> Dropped {
        self.all = Mark::default();
        self.clear_tables()
    }

    fn clear_tables(&mut self) -> Dropped {
        self.texts = 0;
        self.newest_tag = 0;
        Dropped {
            _resources: std::mem::take(&mut self.resources),
            _tags: std::mem::take(&mut self.tags),
            _prefixes: std::mem::take(&mut self.prefixes),
            _charge: self.charge.split(self.charge.bytes()),
        }
    }

    /// Adjusts the charge on the ledger to the rules.
    fn recharge(&mut self) {
        let rules = self.resources.len() + self.tags.len() + self.prefixes.len();
        let bytes = (rules * RULE_BYTES + self.texts) as u64;
        match bytes.checked_sub(self.charge.bytes()) {
            Some(0) => {}
            Some(more) => self.charge.absorb(self.charge.beside(more)),
            None => drop(self.charge.split(self.charge.bytes() - bytes)),
        }
    }

    /// All rules with their numbers; for soft rules also the time since which responses are stale
    /// (Unix ms).
    pub(super) fn rules(&self) -> Vec<(Rule, u64, Option<u64>)> {
        let resources = self.resources.iter();
        let tags = self.tags.iter();
        let prefixes = self.prefixes.iter();
        std::iter::once((Rule::All, &self.all))
            .chain(resources.map(|(hash, mark)| (Rule::Resource(*hash), mark)))
            .chain(tags.map(|(hash, mark)| (Rule::Tag(*hash), mark)))
            .chain(prefixes.map(|(text, mark)| (Rule::Prefix(text.clone()), mark)))
            .flat_map(|(rule, mark)| {
                let hard = (rule.clone(), mark.hard, None);
                [hard, (rule, mark.soft, Some(mark.soft_ms))]
            })
            .filter(|(_, number, _)| *number > 0)
            .collect()
    }

    pub(super) fn has_resources(&self) -> bool {
        !self.resources.is_empty()
    }

    pub(super) fn has_prefixes(&self) -> bool {
        !self.prefixes.is_empty()
    }

    pub(super) fn all(&self, covered: &mut Covered) {
        covered.by(&self.all);
    }

    pub(super) fn resource(&self, resource: u128, covered: &mut Covered) {
        if let Some(mark) = self.resources.get(&resource) {
            covered.by(mark);
        }
    }

    /// The newest rule for any tag.
    pub(super) fn newest_tag(&self) -> Mark {
        Mark {
            hard: self.newest_tag,
            ..Mark::default()
        }
    }

    /// Applies the rules for the tags of a head born at this number. Earlier rules applied to
    /// earlier heads.
    pub(super) fn tags(&self, tags: &[u64], since: u64, covered: &mut Covered) {
        if self.tags.is_empty() {
            return;
        }
        for mark in tags.iter().filter_map(|tag| self.tags.get(tag)) {
            covered.by_since(mark, since);
        }
    }

    /// Applies all rules whose prefix the text begins with, from the longest on, each found by one
    /// search. If a search finds another text, no rule is longer than the common beginning of both.
    pub(super) fn prefixes(&self, text: &[u8], covered: &mut Covered) {
        let mut rest = text;
        loop {
            let upto = (Bound::Unbounded, Bound::Included(rest));
            let Some((prefix, mark)) = self.prefixes.range::<[u8], _>(upto).next_back() else {
                return;
            };
            let same = prefix.iter().zip(rest).take_while(|(a, b)| a == b).count();
            if same < prefix.len() {
                rest = &rest[..same];
                continue;
            }
            covered.by(mark);
            match prefix.len().checked_sub(1) {
                Some(shorter) => rest = &rest[..shorter],
                None => return,
            }
        }
    }
}
