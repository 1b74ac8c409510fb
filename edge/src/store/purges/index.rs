//! An index of the purge rules in force, so that the cost of checking an object does not depend on their number.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::super::ledger::Charge;
use super::super::table_key::Seeded;
use super::rule::{Full, RULES_MAX, Rule, TEXT_MAX};

/// Maximum total length of all prefixes in bytes.
const TEXTS_MAX: usize = 8 << 20;
/// Memory charged for a rule in addition to its text, in bytes: rows of tables that may be half empty.
const RULE_BYTES: usize = 128;

type Hashed<K> = HashMap<K, Mark, Seeded>;

/// The purge rules in force, found by what they cover. A rule for everything removes the older rules that it makes unnecessary.
pub(super) struct Index {
    all: Mark,
    resources: Hashed<u128>,
    tags: Hashed<u64>,
    /// Sequence number of the newest hard rule for a tag, whichever tag that is.
    newest_tag: u64,
    prefixes: BTreeMap<Box<[u8]>, Mark>,
    texts: usize,
    charge: Charge,
}

/// The sequence numbers of the newest hard and soft rule for one resource, prefix or tag; 0 if there is none.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    hard: u64,
    soft: u64,
    /// Time at which the newest soft rule makes responses stale, in milliseconds since the Unix epoch.
    soft_ms: u64,
}

/// The effect of the rules on one object.
pub(super) struct Covered {
    /// Whether a rule removes the object.
    pub(super) hard: bool,
    /// Time from which the object is stale, in milliseconds since the Unix epoch; `None` if no rule makes it stale.
    pub(super) stale_at_ms: Option<u64>,
    /// Sequence number of the newest rule that makes the object stale; 0 for none.
    pub(super) soft: u64,
    /// Sequence number of the newest rule that removes the object; 0 for none.
    pub(super) hardest: u64,
    born: u64,
    head_born: u64,
}

/// Rules removed from the index, to be dropped after unlocking.
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

    /// Drops rules with numbers up to `upto`. Returns whether any rule is left.
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
    /// Returns the effect of no rules on an object whose fetch began at number `born`, and whose head was fetched at number `head_born`.
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

    /// Applies a hard rule if its number is greater than `since`, and a soft rule if it is newer than the object's head.
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

    /// Returns the memory of the rules that is charged to the ledger, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.charge.bytes()
    }

    pub(super) fn len(&self) -> usize {
        let all = usize::from(self.all.newest() > 0);
        self.resources.len() + self.tags.len() + self.prefixes.len() + all
    }

    /// Makes room for a rule. Returns the rules that the new one makes unnecessary.
    pub(super) fn make_room(&mut self, rule: &Rule, soft: bool) -> Result<Option<Dropped>, Full> {
        let known = match rule {
            // A hard purge of everything covers all that older rules cover, so they are dropped.
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

    /// Drops the rules with numbers up to `upto`.
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

    /// Adjusts the charge on the ledger to the memory of the rules.
    fn recharge(&mut self) {
        let rules = self.resources.len() + self.tags.len() + self.prefixes.len();
        let bytes = (rules * RULE_BYTES + self.texts) as u64;
        match bytes.checked_sub(self.charge.bytes()) {
            Some(0) => {}
            Some(more) => self.charge.absorb(self.charge.beside(more)),
            None => drop(self.charge.split(self.charge.bytes() - bytes)),
        }
    }

    /// Returns all rules with their numbers. For soft rules, also the time from which responses are stale, in milliseconds since the Unix
    /// epoch.
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

    /// Returns a mark with the newest hard rule for a tag, whichever tag that is.
    pub(super) fn newest_tag(&self) -> Mark {
        Mark {
            hard: self.newest_tag,
            ..Mark::default()
        }
    }

    /// Applies the rules for the tags of a head that was fetched at number `since`. Rules with smaller numbers are about earlier heads.
    pub(super) fn tags(&self, tags: &[u64], since: u64, covered: &mut Covered) {
        if self.tags.is_empty() {
            return;
        }
        for mark in tags.iter().filter_map(|tag| self.tags.get(tag)) {
            covered.by_since(mark, since);
        }
    }

    /// Applies all rules whose prefix the text begins with, from the longest prefix on; each prefix is found by one search. If a search
    /// finds a text that is no prefix, the next search is for the common beginning of both texts.
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
