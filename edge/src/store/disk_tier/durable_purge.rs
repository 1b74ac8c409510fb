//! Durable purges: the purge rules of a cache in the logs of its volumes.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};

use super::volumes::Volumes;
use crate::store::object_store::Store;
use crate::store::purges::rule::{Full, Rule};
use crate::volume::{LogError, Volume, Witness};

/// A purge rule as it is encoded in a volume's log.
#[derive(Serialize, Deserialize)]
struct Written {
    /// Time at which covered responses become stale, in milliseconds since the Unix epoch; `None` if the purge removes them.
    soft_ms: Option<u64>,
    rule: Rule,
}

/// Error: no volume could log a purge. The purge is in force, but may not survive a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDurable(String);

impl NotDurable {
    /// Returns the reason why the purge is not durable.
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

/// A purge in force that is still to be logged.
#[derive(Clone)]
pub struct DurablePurge {
    volumes: Arc<Volumes>,
    number: u64,
    text: Vec<u8>,
}

impl DurablePurge {
    /// Returns the purge's sequence number.
    #[cfg(test)]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether the other purge has the same rule and the same volumes; their sequence numbers may differ.
    pub fn repeats(&self, other: &DurablePurge) -> bool {
        Arc::ptr_eq(&self.volumes, &other.volumes) && self.text == other.text
    }

    /// Logs the purge on all volumes in service. Waits for their disks.
    ///
    /// # Errors
    /// No volume has logged the purge.
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
                // A volume that is out of service need not log the purge: its records are deleted before it returns to service.
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
        // These volumes have no room for the purge in their logs, so all their records are deleted: no record may survive a purge that its
        // volume has not logged.
        for volume in full {
            volume.wipe("its purge log is full");
            let _ = volume.mark_purged(volumes.space, *number);
        }
        Ok(())
    }
}

impl Store {
    /// Returns the durable form of the purge with this number; `None` if the cache has no volumes.
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

    /// Sets the volumes of the store: their records can be found from now on, and the purges in their logs are in force.
    ///
    /// # Errors
    ///
    /// The logs contain more purges than the limit.
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

    /// Takes over all purges from an earlier store of the same cache, whether logged or not. The caller must call `set_volumes` afterwards.
    /// Volumes of the earlier store have missed no purge.
    pub fn succeed(&self, before: &Store) {
        self.purges.take_over(&before.purges);
        *self.volumes.write() = before.volumes();
    }

    fn take_up(&self, volumes: &Volumes) -> Result<(), Full> {
        let (space, all) = (volumes.space, volumes.all());
        let logged = all.iter().filter_map(|volume| volume.purged_upto(space));
        let newest = logged.max().unwrap_or(0).max(self.purged_upto());
        // Only volumes that are new to this cache are checked. The others, which the store before a reload used, can't have missed a purge:
        // if logging one had failed, the volume would be out of service. A purge that their logs lack is being written at this moment.
        let before = self.volumes();
        let knows = |new: &Arc<Volume>| {
            let old = before.iter().flat_map(|volumes| volumes.all());
            old.into_iter().any(|old| Arc::ptr_eq(old, new))
        };
        for volume in all.iter().filter(|volume| !knows(volume)) {
            // Raises the sequence number above those of all stored records, so that later fetches have greater numbers.
            self.sequence.fetch_max(volume.sequence(), Ordering::SeqCst);
            // A volume with fewer logged purges than the newest one has missed some: all its records are deleted. A volume without any mark
            // of this cache has no records of it; it gets its mark below.
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
            // A rule that can't be decoded may have covered anything, so it is treated as a purge of everything.
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
                // A volume out of service remembers the mark, and writes it to its log when it returns.
                Ok(()) | Err(LogError::Out) => {}
                // Wiping the volume empties its purge log, which then begins with this mark.
                Err(LogError::Full) => volume.wipe("its purge log is full"),
                Err(error) => tracing::warn!(
                    "volume {}: can't write purges to its log: {error:?}",
                    volume.name()
                ),
            }
        }
        Ok(())
    }

    /// Logs on all volumes that one of them is out of service, as if there had been a purge. Deletions just before the failure may not have
    /// been written to that volume, and later ones were not. If the program ends before the volume returns, the next start finds that the
    /// volume lacks the logged mark. The sweep calls this, and so does the closing of volumes; only the first call per failure has an
    /// effect. Waits for disks.
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
            // A volume out of service remembers the mark and writes it to its log when it returns.
            let _ = volume.mark_purged(volumes.space, moment);
        }
    }

    /// Returns a lower bound for the `born_seq` of all records on volumes and in their write queues.
    pub(in crate::store) fn oldest_on_disk(&self) -> u64 {
        let volumes = self.volumes();
        let oldest = volumes.iter().flat_map(|volumes| volumes.all());
        oldest.map(|v| v.oldest_born()).min().unwrap_or(u64::MAX)
    }

    /// Allows the volumes to drop logged purges up to this number.
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
        volume.status().numbers.records
    }

    #[test]
    fn a_volume_keeps_its_records_when_another_cache_uses_it_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let volumes = ["a", "b"].map(|name| volume_in(folder.path(), name));
        let store = store_on(&volumes[..1], &Options::default());
        let number = store.purge(&Rule::All, false, 0).expect("room");
        let durable = store
            .durable_purge(&Rule::All, None, number)
            .expect("volumes");
        durable.log().expect("a volume that is up");
        // A second cache, with id 8, uses the second volume too.
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
        // The store now uses the first volume only, so the second one misses the next purge. When the store uses the second volume again,
        // that volume must lose all records.
        let one = Volumes::new(&Options::default(), volumes[..1].to_vec(), 7);
        store.set_volumes(Some(one)).expect("few purges");
        let number = store.purge(&Rule::All, false, 0).expect("room");
        let all = Volumes::new(&both(), volumes.to_vec(), 7);
        store.set_volumes(Some(all)).expect("few purges");
        assert_eq!(records(&volumes[1]), 0);
        assert_eq!(volumes[1].purged_upto(7), Some(number));
    }

    #[test]
    fn a_volume_that_returned_in_the_last_run_keeps_its_new_records() {
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
                write_delay: Duration::from_millis(50),
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
    fn records_deleted_while_a_volume_is_out_or_just_before_do_not_reappear() {
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
    fn a_succeeding_store_handles_volumes_that_are_logging_a_purge() {
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
