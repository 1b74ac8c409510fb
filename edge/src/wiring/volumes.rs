//! The volumes of a running Sluice: opened at startup, kept across reloads, and closed at shutdown or
//! when a reload removes them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::config::{self, Plan, Unusable};
use crate::store::{Store, disk_tier};
use crate::sys::Clock;
use crate::volume::{self, Refused, Volume};

/// Open volumes by name.
pub(super) type Open = BTreeMap<String, Arc<Volume>>;

/// Time between two checks whether a removed volume is still being read.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// Additional time for closing a volume at shutdown, in which the state for the next start is
/// written.
const SEAL_WAIT: Duration = Duration::from_secs(1);
/// Number of consecutive checks without a read after which a removed volume counts as unused.
const QUIET_CHECKS: u32 = 4;

/// Returns the volumes of a plan. Volumes that are already open (`before`, with their plan) are
/// reused, the others are opened.
///
/// # Errors
///
/// A volume can't be used. Volumes that were opened by this call are closed again.
pub(super) fn open(
    plan: &Plan,
    before: Option<(&Plan, &Open)>,
    clock: &Clock,
) -> anyhow::Result<Open> {
    let runs = |name: &str, options: &volume::Options| {
        let (plan, open) = before?;
        let old = plan.volumes.get(name)?;
        let volume = open.get(name)?;
        config::goes_on(old, options).then(|| volume.clone())
    };
    // Volumes are opened in parallel, so that a slow disk does not delay the others.
    thread::scope(|scope| {
        let opening: Vec<_> = plan
            .volumes
            .iter()
            .map(|(name, options)| {
                let volume = runs(name, options);
                let (options, clock) = (options.clone(), clock.clone());
                let open = move || match volume {
                    Some(volume) => Ok(volume),
                    None => Volume::open(options, clock),
                };
                (name, scope.spawn(open))
            })
            .collect();
        let opened = opening.into_iter().map(|(name, opening)| {
            let opened = opening.join();
            let opened = opened.unwrap_or_else(|_| Err(Refused("opening it panicked".to_owned())));
            let volume = opened.map_err(|refused| Unusable::volume(name, &refused.to_string()))?;
            Ok((name.clone(), volume))
        });
        opened.collect()
    })
}

/// Returns the volumes of the cache with this name, or `None` if it has none.
pub(super) fn of_cache(
    name: &str,
    options: &disk_tier::Options,
    open: &Open,
) -> Option<Arc<disk_tier::Volumes>> {
    let its = options.volumes.iter();
    let volumes: Vec<_> = its.filter_map(|name| open.get(name).cloned()).collect();
    (!volumes.is_empty()).then(|| disk_tier::Volumes::new(options, volumes, space(name)))
}

/// Replaces the volumes of a store. Volumes that contain more purges than a store can hold are
/// emptied.
pub(super) fn give(store: &Arc<Store>, volumes: Option<&Arc<disk_tier::Volumes>>) {
    let Err(error) = store.set_volumes(volumes.cloned()) else {
        return;
    };
    // The purges concern only data on these volumes. Once that is wiped, the purges are not needed.
    tracing::warn!(
        "volumes have logged more purges of a cache than Sluice allows, so they are emptied ({error})"
    );
    for volume in volumes.iter().flat_map(|volumes| volumes.all()) {
        volume.wipe("it had logged too many purges");
    }
    if let Err(error) = store.set_volumes(volumes.cloned()) {
        tracing::error!(target: "sluice::event::volume::memory-only", "a cache uses memory only: {error}");
    }
}

/// Returns a number that identifies a cache on volumes that several caches share. The number is the
/// same after a restart.
fn space(cache: &str) -> u64 {
    let hash = blake3::hash(cache.as_bytes());
    let (first, _) = hash
        .as_bytes()
        .split_first_chunk()
        .unwrap_or((&[0; 8], &[]));
    u64::from_le_bytes(*first)
}

/// All open volumes: those in use, and those that a reload removed but that are not closed yet.
pub(super) struct OpenVolumes {
    state: Mutex<State>,
    changed: Condvar,
    look: Duration,
}

#[derive(Default)]
struct State {
    used: Open,
    /// Volumes removed by a reload. Each has a thread that waits until nothing reads the volume.
    left_out: Vec<Arc<Volume>>,
    closing: usize,
}

impl State {
    /// Returns the index of a removed volume in `left_out`.
    fn place_of(&self, volume: &Arc<Volume>) -> Option<usize> {
        let same = |other: &Arc<Volume>| Arc::ptr_eq(other, volume);
        self.left_out.iter().position(same)
    }
}

impl Default for OpenVolumes {
    fn default() -> OpenVolumes {
        OpenVolumes {
            state: Mutex::default(),
            changed: Condvar::new(),
            look: CHECK_INTERVAL,
        }
    }
}

impl OpenVolumes {
    /// Records the volumes that are now in use. Volumes no longer in use are closed when nothing
    /// reads them, so that no response is cut, or after `wait_max`.
    pub(super) fn take_up(self: &Arc<Self>, now: &Open, wait_max: Duration) {
        let mut state = self.state.lock();
        let mut left_out = std::mem::replace(&mut state.used, now.clone());
        left_out.retain(|name, volume| !now.get(name).is_some_and(|new| Arc::ptr_eq(new, volume)));
        for (name, volume) in left_out {
            state.left_out.push(volume.clone());
            let held = self.clone();
            let started = thread::Builder::new()
                .name("volume-closer".to_owned())
                .spawn(move || held.close_when_quiet(&volume, wait_max));
            if let Err(error) = started {
                // Without a thread the volume stays open, and is closed at shutdown.
                tracing::warn!(%error, "volume {name} stays open");
            }
        }
    }

    fn close_when_quiet(&self, volume: &Arc<Volume>, wait_max: Duration) {
        let mut state = self.state.lock();
        let looks = wait_max.as_nanos() / self.look.as_nanos().max(1);
        let (mut reads, mut quiet) = (volume.status().numbers.reads, 0);
        for _ in 0..looks {
            if quiet == QUIET_CHECKS || state.place_of(volume).is_none() {
                break;
            }
            self.changed.wait_for(&mut state, self.look);
            let before = std::mem::replace(&mut reads, volume.status().numbers.reads);
            quiet = if before == reads { quiet + 1 } else { 0 };
        }
        let Some(at) = state.place_of(volume) else {
            // A shutdown has begun meanwhile, and closes this volume.
            return;
        };
        state.left_out.swap_remove(at);
        state.closing += 1;
        drop(state);
        self.close(volume, wait_max);
    }

    /// Closes a volume that `closing` already counts.
    fn close(&self, volume: &Volume, within: Duration) {
        let counted = Counted(self);
        volume.close(within);
        drop(counted);
        tracing::info!("volume {} is closed", volume.name());
    }

    /// Closes all volumes in parallel. Queued data is written for at most `within`. Returns whether
    /// all volumes were closed in time.
    pub(super) fn end(self: &Arc<Self>, within: Duration) -> bool {
        let mut state = self.state.lock();
        let used = std::mem::take(&mut state.used).into_values();
        let all: Vec<_> = used.chain(std::mem::take(&mut state.left_out)).collect();
        for volume in all {
            state.closing += 1;
            let held = self.clone();
            let started = thread::Builder::new()
                .name("volume-closer".to_owned())
                .spawn(move || held.close(&volume, within));
            if let Err(error) = started {
                state.closing -= 1;
                tracing::warn!(%error, "a volume can't be closed");
            }
        }
        self.changed.notify_all();
        self.wait(&mut state, within + SEAL_WAIT)
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>, within: Duration) -> bool {
        let busy = |state: &mut State| state.closing > 0;
        !self.changed.wait_while_for(state, busy, within).timed_out()
    }
}

/// Guard that counts a volume as closed when dropped, also after a panic.
struct Counted<'a>(&'a OpenVolumes);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.state.lock().closing -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wiring::snapshot::Snapshot;

    const LONG: Duration = Duration::from_secs(60);

    /// Returns the options of a volume in a test's folder.
    fn options(folder: &tempfile::TempDir, name: &str) -> volume::Options {
        volume::Options {
            name: name.to_owned(),
            path: folder.path().join(name),
            size: 16 << 20,
            segment: 0,
            queue: 1 << 20,
            readers: 1,
            write_delay: Duration::from_millis(50),
            read_timeout: Duration::from_secs(1),
            retry: Duration::from_secs(10),
            overwrite: false,
        }
    }

    fn open_one(options: volume::Options) -> Arc<Volume> {
        Volume::open(options, Clock::system()).expect("a volume")
    }

    fn set(volumes: &[&Arc<Volume>]) -> Open {
        let named = volumes.iter().map(|v| (v.name().to_owned(), (*v).clone()));
        named.collect()
    }

    /// Waits until `left_out` volumes are removed and not closed, and none is being closed. Returns
    /// whether that happened.
    fn settled(held: &OpenVolumes, left_out: usize) -> bool {
        let mut state = held.state.lock();
        let busy = |state: &mut State| state.closing > 0 || state.left_out.len() != left_out;
        let wait_max = Duration::from_secs(15);
        !held
            .changed
            .wait_while_for(&mut state, busy, wait_max)
            .timed_out()
    }

    /// Creates a `OpenVolumes` that checks volumes for reads at this interval.
    fn held(look: Duration) -> Arc<OpenVolumes> {
        Arc::new(OpenVolumes {
            look,
            ..OpenVolumes::default()
        })
    }

    #[test]
    fn a_removed_volume_is_closed_when_nothing_reads_from_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (options(&folder, "one"), options(&folder, "two"));
        let (a, b) = (open_one(one.clone()), open_one(two.clone()));
        let held = held(Duration::from_millis(1));
        held.take_up(&set(&[&a, &b]), LONG);
        assert!(settled(&held, 0));
        held.take_up(&set(&[&a]), LONG);
        assert!(settled(&held, 0));
        assert_eq!(held.state.lock().used.len(), 1);
        // The volume's file can be opened again, so its lock has been released, although the volume
        // is still referenced.
        open_one(two);
        assert!(a.is_up() && !b.is_up());
        // Without a wait, a volume is closed although it may still be read.
        held.take_up(&Open::new(), Duration::ZERO);
        assert!(settled(&held, 0));
        open_one(one);
    }

    #[test]
    fn all_volumes_are_closed_at_shutdown() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, two) = (options(&folder, "one"), options(&folder, "two"));
        let (a, b) = (open_one(one.clone()), open_one(two));
        let held = held(LONG);
        held.take_up(&set(&[&a, &b]), LONG * 10);
        held.take_up(&set(&[&a]), LONG * 10);
        assert!(settled(&held, 1));
        assert!(held.end(Duration::from_secs(15)));
        assert!(settled(&held, 0));
        assert!(held.state.lock().used.is_empty());
        // The volume's file can be opened again, so its lock has been released.
        open_one(one);
    }

    /// Returns a snapshot with two volumes in this folder and a cache with these settings, as if
    /// reloaded after `before`.
    fn snapshot(folder: &tempfile::TempDir, cache: &str, before: Option<&Snapshot>) -> Snapshot {
        let volume = |name: &str| {
            let path = folder.path().join(name);
            format!("[volume.{name}]\npath = {path:?}\nsize = \"16MiB\"\n")
        };
        let text = format!(
            "[upstream.o]\nservers = [\"http://127.0.0.1:9\"]\n{}{}[cache.main]\nslice = \"64KiB\"\n{cache}\n\
             [[site]]\n[[site.route]]\nproxy = \"o\"\ncache = \"main\"\n",
            volume("one"),
            volume("two")
        );
        let plan = config::parse("test.toml", &text)
            .expect("a configuration")
            .plan;
        Snapshot::build(plan, 1, before, &Clock::system()).expect("a snapshot")
    }

    #[test]
    fn reloads_keep_volumes_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let both = "volumes = [\"one\", \"two\"]";
        let first = snapshot(&folder, both, None);
        let its = |snapshot: &Snapshot| {
            let stored = &snapshot.stores["main"];
            (
                Arc::as_ptr(&stored.store),
                stored.volumes.as_ref().map(Arc::as_ptr),
            )
        };
        let same = snapshot(&folder, &format!("{both}\nmemory = \"9MiB\""), Some(&first));
        assert!(Arc::ptr_eq(&first.volumes["one"], &same.volumes["one"]));
        assert_eq!(its(&first), its(&same));
        same.take_effect(&first);
        // If only the weights of the volumes change, the store is kept and the set of volumes is
        // replaced.
        let weights = snapshot(&folder, &format!("{both}\nweights = [1, 2]"), Some(&same));
        assert_eq!(its(&weights).0, its(&same).0);
        assert_ne!(its(&weights).1, its(&same).1);
        weights.take_effect(&same);
        // A changed `evict` creates a new store with a new set of volumes.
        let other = snapshot(&folder, &format!("{both}\nevict = \"lru\""), Some(&weights));
        assert_ne!(its(&other).0, its(&weights).0);
        assert_ne!(its(&other).1, its(&weights).1);
        // Sequence numbers continue across stores: a purge of the new store is newer than all data
        // that the old store has written.
        let store = |snapshot: &Snapshot| snapshot.stores["main"].store.clone();
        let newest = store(&weights).moment();
        assert!(store(&other).moment() > newest);
        let none = snapshot(&folder, "evict = \"lru\"", Some(&other));
        assert_eq!(its(&none), (its(&other).0, None));
        none.take_effect(&other);
    }

    #[test]
    fn a_cache_is_identified_by_its_name() {
        assert_eq!(space("main"), space("main"));
        assert_ne!(space("main"), space("video"));
        let hash = blake3::hash(b"main").to_hex();
        let bytes: Vec<String> = space("main")
            .to_le_bytes()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(bytes.concat(), hash[..16]);
    }
}
