//! Purges that last: the rules of a cache in the logs of its volumes.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};

use super::volumes::Volumes;
use crate::store::object_store::Store;
use crate::store::purges::rule::{Full, Rule};
use crate::volume::{LogError, Volume, Witness};

/// A rule as it is logged.
#[derive(Serialize, Deserialize)]
struct Written {
    /// When what it covers becomes stale, Unix ms; `None`: it is dropped.
    soft_ms: Option<u64>,
    rule: Rule,
}

/// No volume could take a purge into its log: it is in force, but may not outlast a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDurable(String);

impl NotDurable {
    /// What keeps it from durable, without what that means.
    pub fn reason(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NotDurable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the purge is in force, but may be undone by a restart: {}",
            self.0
        )
    }
}

impl std::error::Error for NotDurable {}

/// A purge that is in force, to be made to last.
#[derive(Clone)]
pub struct DurablePurge {
    volumes: Arc<Volumes>,
    number: u64,
    text: Vec<u8>,
}

impl DurablePurge {
    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether this is the same rule on the same volumes, whatever its number.
    pub fn repeats(&self, other: &DurablePurge) -> bool {
        Arc::ptr_eq(&self.volumes, &other.volumes) && self.text == other.text
    }

    /// Logs it on all volumes that are up. Waits for their disks.
    ///
    /// # Errors
    /// None of them has it.
    pub fn log(&self) -> Result<(), NotDurable> {
        let DurablePurge {
            volumes,
            number,
            text,
        } = self;
        let (mut logged, mut full, mut why) = (false, Vec::new(), String::new());
        for volume in volumes.all() {
            match volume.log_purge(volumes.space, *number, text) {
                Ok(()) => logged = true,
                // It comes back empty.
                Err(LogError::Out) => why = format!("volume {} is out", volume.name()),
                Err(LogError::Full) => {
                    full.push(volume);
                    why = format!("the purge log of volume {} is full", volume.name());
                }
                Err(LogError::Io(error)) => why = format!("volume {}: {error}", volume.name()),
            }
        }
        if !logged {
            return Err(NotDurable(why));
        }
        // What these hold must not outlive a purge that they don't know.
        for volume in full {
            volume.wipe("its purge log is full");
            let _ = volume.mark_purged(volumes.space, *number);
        }
        Ok(())
    }
}

impl Store {
    /// What makes a purge with this number last, where there are volumes.
    pub fn durable_purge(
        &self,
        rule: &Rule,
        soft_ms: Option<u64>,
        number: u64,
    ) -> Option<DurablePurge> {
        let volumes = self.volumes()?;
        let written = Written {
            soft_ms,
            rule: rule.clone(),
        };
        Some(DurablePurge {
            volumes,
            number,
            text: postcard::to_stdvec(&written).unwrap_or_default(),
        })
    }

    /// Takes up volumes: what they have is found from now on, and purges that they know hold.
    ///
    /// # Errors
    /// They know more purges than there may be.
    pub fn set_volumes(self: &Arc<Self>, volumes: Option<Arc<Volumes>>) -> Result<(), Full> {
        if let Some(volumes) = &volumes {
            self.take_up(volumes)?;
            for volume in volumes.all() {
                let witness: Weak<dyn Witness> = Arc::<Store>::downgrade(self);
                volume.set_witness(volumes.space, witness);
            }
        }
        *self.volumes.write() = volumes;
        Ok(())
    }

    /// Takes the place of a store of the same cache: what was purged there is purged here, whether it is
    /// in the logs yet or not. To be told of volumes by `set_volumes`: those that one has miss nothing.
    pub fn succeed(&self, before: &Store) {
        self.purges.take_over(&before.purges);
        *self.volumes.write() = before.volumes();
    }

    fn take_up(&self, volumes: &Volumes) -> Result<(), Full> {
        let (space, all) = (volumes.space, volumes.all());
        let logged = all.iter().filter_map(|volume| volume.purged_upto(space));
        let newest = logged.max().unwrap_or(0).max(self.purged_upto());
        // What a volume of this store does not have in its log is being logged, or it would be out.
        let before = self.volumes();
        let knows = |new: &Arc<Volume>| {
            let old = before.iter().flat_map(|volumes| volumes.all());
            old.into_iter().any(|old| Arc::ptr_eq(old, new))
        };
        for volume in all.iter().filter(|volume| !knows(volume)) {
            // Fetches from here on are younger than anything that is kept.
            self.sequence.fetch_max(volume.sequence(), Ordering::SeqCst);
            // One that never heard of this cache has nothing of it: it gets a mark before it does.
            if volume.purged_upto(space).is_some_and(|upto| upto < newest) {
                volume.wipe("it missed purges of a cache");
            }
        }
        let mut rules = std::collections::BTreeMap::new();
        for volume in all {
            let logged = volume.purges(space).into_iter();
            rules.extend(logged.map(|logged| (logged.number, logged.text)));
        }
        for (number, text) in rules {
            // What can't be read may have been any purge.
            let written = postcard::from_bytes(&text).unwrap_or(Written {
                soft_ms: None,
                rule: Rule::All,
            });
            self.purges
                .restore(&written.rule, number, written.soft_ms)?;
        }
        self.purges.restore_upto(newest);
        for volume in all.iter().filter(|volume| !knows(volume)) {
            match volume.mark_purged(space, newest) {
                // One that is out begins with that mark when it is back.
                Ok(()) | Err(LogError::Out) => {}
                // It begins with that mark.
                Err(LogError::Full) => volume.wipe("its purge log is full"),
                Err(error) => tracing::warn!(
                    "volume {}: can't note purges in its log: {error:?}",
                    volume.name()
                ),
            }
        }
        Ok(())
    }

    /// Notes on all volumes that one is out, as if there had been a purge: if the program ends before
    /// that one is back, it is found at the next start to have missed something. What was forgotten
    /// there just before may not have been written, and what is forgotten meanwhile is not. Once for
    /// each time that one is out; to be called by who sweeps, and before volumes are closed. Waits for
    /// disks.
    pub fn mark_absence(&self) {
        let Some(volumes) = self.volumes() else {
            return;
        };
        let out = volumes.all().iter().map(|volume| !volume.is_up()).collect();
        let mut absent = volumes.absent.lock();
        let before = std::mem::replace(&mut *absent, out);
        let was_out = |number| before.get(number).is_some_and(|was_out| *was_out);
        if !absent
            .iter()
            .enumerate()
            .any(|(n, out)| *out && !was_out(n))
        {
            return;
        }
        let moment = self.moment();
        for volume in volumes.all() {
            // One that is out remembers it, too, for when it is back.
            let _ = volume.mark_purged(volumes.space, moment);
        }
    }

    /// Nothing on volumes, or on the way there, is older than this.
    pub(in crate::store) fn oldest_on_disk(&self) -> u64 {
        let volumes = self.volumes();
        let oldest = volumes.iter().flat_map(|volumes| volumes.all());
        oldest.map(|v| v.oldest_born()).min().unwrap_or(u64::MAX)
    }

    /// Purges up to this number are needed no more.
    pub(in crate::store) fn drop_logged(&self, upto: u64) {
        if let Some(volumes) = self.volumes() {
            for volume in volumes.all() {
                volume.drop_purges(volumes.space, upto);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{bring, flush, store_on, versioned, volume_in};
    use super::super::{Options, Placement, PlacementKind};
    use super::*;
    use crate::sys::Clock;

    fn both() -> Options {
        Options {
            placement: Placement {
                kind: PlacementKind::Mirror,
                weights: Vec::new(),
            },
            ..Options::default()
        }
    }

    fn records(volume: &Volume) -> u64 {
        volume.status().records
    }

    #[test]
    fn a_volume_that_another_cache_uses_keeps_what_it_has() {
        let folder = tempfile::tempdir().expect("a folder");
        let volumes = ["a", "b"].map(|name| volume_in(folder.path(), name));
        let store = store_on(&volumes[..1], &Options::default());
        let number = store.purge(&Rule::All, false, 0).expect("room");
        let durable = store
            .durable_purge(&Rule::All, None, number)
            .expect("volumes");
        durable.log().expect("a volume that is up");
        // Another cache has something on the other one.
        let another = store_on(&[], &Options::default());
        let its = Volumes::new(&Options::default(), volumes[1..].to_vec(), 8);
        another.set_volumes(Some(its)).expect("few purges");
        bring(&another, 1, versioned(5000, 0), 0..5000);
        flush(&volumes);
        assert_eq!(records(&volumes[1]), 1);
        let all = Volumes::new(&both(), volumes.to_vec(), 7);
        store.set_volumes(Some(all)).expect("few purges");
        assert_eq!(records(&volumes[1]), 1);
        assert_eq!(volumes[1].purged_upto(7), Some(number));
        // Without the cache it misses purges, and loses everything when it is used again.
        let one = Volumes::new(&Options::default(), volumes[..1].to_vec(), 7);
        store.set_volumes(Some(one)).expect("few purges");
        let number = store.purge(&Rule::All, false, 0).expect("room");
        let all = Volumes::new(&both(), volumes.to_vec(), 7);
        store.set_volumes(Some(all)).expect("few purges");
        assert_eq!(records(&volumes[1]), 0);
        assert_eq!(volumes[1].purged_upto(7), Some(number));
    }

    #[test]
    fn a_volume_that_came_back_in_the_last_run_keeps_what_it_got() {
        let folder = tempfile::tempdir().expect("a folder");
        let sub = folder.path().join("sub");
        let open = || {
            let missing = crate::volume::Options {
                name: "b".to_owned(),
                path: sub.join("b"),
                size: 16 << 20,
                segment: 0,
                queue: 1 << 20,
                readers: 1,
                read_timeout: Duration::from_secs(10),
                retry: Duration::from_millis(1),
                overwrite: false,
            };
            let missing = Volume::open(missing, Clock::system()).expect("out, at worst");
            [volume_in(folder.path(), "a"), missing]
        };
        {
            let volumes = open();
            volumes[0].mark_purged(7, 5).expect("logged");
            let store = store_on(&volumes, &both());
            assert!(!volumes[1].is_up());
            std::fs::create_dir(&sub).expect("a folder");
            while !volumes[1].is_up() {
                std::thread::yield_now();
            }
            assert_eq!(volumes[1].purged_upto(7), Some(5));
            bring(&store, 1, versioned(5000, 0), 0..5000);
            flush(&volumes);
        }
        let volumes = open();
        let _store = store_on(&volumes, &both());
        while volumes.iter().any(|volume| volume.is_loading()) {
            std::thread::yield_now();
        }
        assert_eq!(volumes.each_ref().map(|volume| records(volume)), [1, 1]);
    }

    #[test]
    fn what_is_forgotten_while_a_volume_is_out_or_just_before_does_not_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        {
            let volumes = ["a", "b"].map(|name| volume_in(folder.path(), name));
            let store = store_on(&volumes, &both());
            bring(&store, 1, versioned(5000, 0), 0..5000);
            flush(&volumes);
            store.mark_absence();
            let upto = || volumes[0].purged_upto(7);
            assert_eq!(upto(), Some(0), "all are there");
            volumes[1].close(Duration::from_secs(10));
            store.mark_absence();
            let marked = upto();
            assert!(marked > Some(0));
            store.mark_absence();
            assert_eq!(upto(), marked, "once is enough");
            store.forget_on_disk(1);
        }
        let volumes = ["a", "b"].map(|name| volume_in(folder.path(), name));
        let _store = store_on(&volumes, &both());
        assert_eq!(records(&volumes[1]), 0);
    }

    #[test]
    fn a_store_that_succeeds_another_finds_volumes_that_are_just_taking_a_purge() {
        let folder = tempfile::tempdir().expect("a folder");
        let volumes = ["a", "b"].map(|name| volume_in(folder.path(), name));
        let old = store_on(&volumes, &both());
        bring(&old, 1, versioned(5000, 0), 0..5000);
        flush(&volumes);
        volumes[0].log_purge(7, old.moment(), b"").expect("logged");
        let new = store_on(&[], &Options::default());
        new.succeed(&old);
        let all = Volumes::new(&both(), volumes.to_vec(), 7);
        new.set_volumes(Some(all)).expect("few purges");
        assert_eq!(volumes.each_ref().map(|volume| records(volume)), [1, 1]);
    }
}
