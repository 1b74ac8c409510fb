//! Fill policies: which ranges to fetch now.

use std::ops::Range;

use serde::Deserialize;
use smallvec::SmallVec;

use crate::ranges::Ranges;

#[cfg(test)]
mod laws;
mod whole;

/// `fill = "…"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One fetch of everything missing, which everyone rides.
    #[default]
    Whole,
}

impl Kind {
    /// The policy of this kind.
    pub fn build(self) -> Box<dyn Policy + Send + Sync> {
        match self {
            Kind::Whole => Box::new(whole::Whole),
        }
    }
}

/// The end of a range that goes on to wherever the representation ends.
pub const OPEN: u64 = u64::MAX;

/// One object and one want, as they are now.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The bytes a request needs, `OPEN` at the end where it wants all there is. Not empty.
    pub want: &'a Range<u64>,
    /// The complete length, once known.
    pub length: Option<u64>,
    /// The bytes that are stored.
    pub have: &'a Ranges,
    /// The bytes that fetches in progress have still to bring, `OPEN` at the end where they run to
    /// wherever the representation ends.
    pub flying: &'a Ranges,
    /// Whether bytes of another response may be put beside those of this object: it has a strong
    /// validator, and its origin honours ranges. Where they may not, it has one fetch and no more.
    pub joinable: bool,
}

impl Situation<'_> {
    /// The want, or all there is, cut at the complete length.
    fn clip(&self, range: Range<u64>) -> Range<u64> {
        range.start..range.end.min(self.length.unwrap_or(OPEN))
    }

    /// The parts of a range that are neither there nor on their way.
    fn missing(&self, range: Range<u64>) -> SmallVec<[Range<u64>; 1]> {
        self.have
            .gaps(self.clip(range))
            .flat_map(|gap| self.flying.gaps(gap))
            .collect()
    }
}

/// What to do for a want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Begin one fetch for each of these ranges, in this order; what of the want is not in them is
    /// stored or on its way. `OPEN` at the end: to wherever the representation ends.
    Fetch(SmallVec<[Range<u64>; 1]>),
    /// Nothing to fetch: every wanted byte is stored or on its way.
    Wait,
    /// Pass the request on by itself, uncached.
    Forward,
}

/// Decides what to fetch. Pure: the same situation gives the same plan.
pub trait Policy {
    /// The plan for a situation. Wanted bytes are always covered or waited for, unless it forwards;
    /// nothing that is stored or on its way is fetched.
    fn plan(&self, situation: &Situation<'_>) -> Plan;
}
