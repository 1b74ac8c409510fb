//! The volumes of one cache: chooses which of them get a record, and finds records.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::admission::RecentKeys;
use super::placement::Placement;
use crate::store::sync::Mutex;
use crate::store::table_key::{TableKey, VARIANTS_MAX};
use crate::volume::{Found, Id, Kind, Volume};

/// Options for the use of volumes by a cache.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Names of the volumes; if there are none, objects are stored in memory only.
    pub volumes: Vec<String>,
    /// The rule by which records are distributed over the volumes.
    pub placement: Placement,
    /// Time after which records that were not read are dropped; zero: never.
    pub inactive: Duration,
    /// The objects that are written to volumes.
    pub admit: Admit,
    /// Smallest content that is written, in bytes.
    pub admit_min: u64,
    /// Largest content that is written, in bytes; 0: no limit.
    pub admit_max: u64,
}

/// The objects that are written to volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Admit {
    /// All objects.
    #[default]
    All,
    /// Only objects that are requested a second time.
    Second,
}

/// The volumes of one cache.
pub struct Volumes {
    options: Options,
    pub(super) space: u64,
    pub(super) volumes: Vec<Arc<Volume>>,
    asked: Option<RecentKeys>,
    /// Whether each volume is out of service and marked as absent in the logs of the others.
    pub(super) absent: Mutex<SmallVec<[bool; 8]>>,
}

/// The number of a volume, and the location of a record on it.
pub(super) type FoundOn = (usize, Found);

impl Volumes {
    /// Creates the volumes of the cache with the id `space`.
    pub fn new(options: &Options, volumes: Vec<Arc<Volume>>, space: u64) -> Arc<Volumes> {
        for volume in &volumes {
            volume.set_inactive(space, options.inactive);
        }
        Arc::new(Volumes {
            asked: (options.admit == Admit::Second).then(RecentKeys::new),
            options: options.clone(),
            space,
            volumes,
            absent: Mutex::default(),
        })
    }

    /// All volumes, in the order of the configuration.
    pub fn all(&self) -> &[Arc<Volume>] {
        &self.volumes
    }

    /// Whether the index of any volume is still loading.
    pub(super) fn is_loading(&self) -> bool {
        self.volumes.iter().any(|volume| volume.is_loading())
    }

    pub(super) fn head_id(&self, table_key: TableKey) -> Id {
        self.id_of_head(table_key.primary, tag_of(table_key.variant))
    }

    pub(super) fn id_of_head(&self, key: u128, tag: u32) -> Id {
        Id {
            space: self.space,
            key,
            version: u64::from(tag),
            part: 0,
            kind: Kind::Head,
        }
    }

    /// Returns the volumes that placement chooses for a record.
    pub(super) fn homes(&self, id: &Id) -> SmallVec<[usize; 2]> {
        let up: SmallVec<[bool; 8]> = self.volumes.iter().map(|v| v.is_up()).collect();
        let block = (id.kind == Kind::Block).then_some(id.part);
        self.options.placement.choose(spread(id.key), block, &up)
    }

    /// Returns the locations of a record: on the volumes chosen by placement, or on others that received it while those were out of service
    /// or the placement was different.
    pub(super) fn find(&self, id: &Id) -> SmallVec<[FoundOn; 2]> {
        let homes = self.homes(id);
        let others = (0..self.volumes.len()).filter(|number| !homes.contains(number));
        let found = homes.iter().copied().chain(others);
        found
            .filter_map(|number| Some((number, self.volumes[number].find(id)?)))
            .collect()
    }

    /// Returns the locations of a key's heads.
    pub(super) fn heads(&self, key: u128) -> SmallVec<[FoundOn; 2]> {
        let all = self.volumes.iter().enumerate();
        all.flat_map(|(number, volume)| {
            let heads = volume.heads(self.space, key).into_iter();
            heads.map(move |found| (number, found))
        })
        .collect()
    }

    /// Reports to the volumes that a record is in use.
    pub(super) fn touch(&self, id: &Id) {
        for volume in &self.volumes {
            volume.touch(id);
        }
    }

    /// Deletes a record from all volumes.
    pub(super) fn forget(&self, id: &Id) {
        for volume in &self.volumes {
            volume.forget(id);
        }
    }

    /// Deletes the heads of a key for whose tags `which` returns true. A tag is a hash of the variant.
    pub(super) fn forget_heads(&self, primary: u128, which: impl Fn(u32) -> bool) {
        for (number, found) in self.heads(primary) {
            if which(found.tag) {
                self.volumes[number].forget(&self.id_of_head(primary, found.tag));
            }
        }
    }

    /// Deletes the oldest heads of a key, so that each volume has fewer than `VARIANTS_MAX`. The bound is needed since every lookup on a
    /// volume goes through all heads of the key.
    pub(super) fn bound_heads(&self, primary: u128) {
        for volume in &self.volumes {
            let mut heads = volume.heads(self.space, primary);
            if heads.len() < VARIANTS_MAX {
                continue;
            }
            heads.sort_unstable_by_key(|found| Reverse(written(found)));
            for found in &heads[VARIANTS_MAX - 1..] {
                volume.forget(&self.id_of_head(primary, found.tag));
            }
        }
    }

    /// Whether content of this length may be written. If the length is unknown, the number of bytes that have arrived, `come`, is used
    /// instead.
    pub(super) fn admits(&self, length: Option<u64>, come: u64) -> bool {
        let max = match self.options.admit_max {
            0 => u64::MAX,
            max => max,
        };
        match length {
            Some(length) => (self.options.admit_min..=max).contains(&length),
            None => come <= max,
        }
    }

    /// Whether an object with this key may be written. Also records a request for the key.
    pub(super) fn admits_key(&self, primary: u128) -> bool {
        self.asked.as_ref().is_none_or(|asked| asked.again(primary))
    }
}

/// Returns the tag of a variant in the id of its head: a hash of 32 bits.
pub(super) fn tag_of(variant: u128) -> u32 {
    let folded = (variant >> 64) as u64 ^ variant as u64;
    (folded >> 32) as u32 ^ folded as u32
}

/// Returns a sort key by which records of one volume are ordered by the time of their writing.
pub(super) fn written(found: &Found) -> (u64, u32, u32) {
    (found.lap, found.segment, found.offset)
}

/// Returns a hash of a key for placement, independent of the bits that the index and the table use.
fn spread(key: u128) -> u64 {
    ((key >> 64) as u64 ^ (key as u64).rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
