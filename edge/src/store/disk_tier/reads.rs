//! Reads from volumes: bytes on volumes are claimed and read into pages, like bytes from an origin.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use super::volumes::Volumes;
use crate::ranges::Ranges;
use crate::store::claim::{CLAIMS_MAX, Claim};
use crate::store::landing::Landing;
use crate::store::ledger::Ledger;
use crate::store::object::{Object, Phase, State};
use crate::store::object_store::Store;
use crate::store::page::PAGE;
use crate::store::pages::span;
use crate::store::slots::Dropped;
use crate::store::table_key::TableKey;
use crate::sys::buffer::Buffer;
use crate::volume::{Id, Missing};

/// Number of pages read at once: few enough that they are still in the CPU's cache when they are verified and sent.
const PAGES_PER_READ: u64 = 4;
/// Number of blocks looked up in one critical section, which holds the object's lock for some microseconds.
const LOOKUPS_MAX: u64 = 64;
/// Time for which a slow volume is not read for an object that can also be fetched from the origin, in microseconds.
const SLOW_VOLUME_PAUSE_US: u64 = 5_000_000;
/// Number of attempts of a read if the bytes are available nowhere else.
const TRIES: u32 = 4;
/// Pause before the next attempt if too many other reads are queued.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Divisor of the number of readers: after that many moves of readers, the bytes that all readers have passed are dropped.
const PASSES_DIVISOR: usize = 4;

/// A claimed read of a part of a block from a volume. The caller must run it.
pub struct DiskRead {
    landing: Landing,
    volumes: Arc<Volumes>,
    id: Id,
    /// Offset in the object of the block's first byte.
    base: u64,
}

/// Claimed reads of blocks from volumes, before they have landings. Claims of reads that do not begin are released on drop.
pub(in crate::store) struct ClaimedReads {
    volumes: Arc<Volumes>,
    object: Arc<Object>,
    /// The claim, the id of its block, and the offset in the object of the block's first byte.
    claims: SmallVec<[(Claim, Id, u64); 2]>,
}

impl ClaimedReads {
    /// Creates the reads. Called after the object is unlocked.
    pub(in crate::store) fn begin(
        mut self,
        store: &Arc<Store>,
        table_key: TableKey,
    ) -> SmallVec<[DiskRead; 2]> {
        let claims = std::mem::take(&mut self.claims);
        let reads = claims.into_iter().map(|(claim, id, base)| {
            let (object, birth) = (self.object.clone(), store.birth());
            DiskRead {
                landing: Landing::new(store.clone(), object, table_key, &claim, birth),
                volumes: self.volumes.clone(),
                id,
                base,
            }
        });
        reads.collect()
    }
}

impl Drop for ClaimedReads {
    fn drop(&mut self) {
        for (claim, ..) in &self.claims {
            self.object.give_back(claim.id);
        }
    }
}

impl Store {
    /// Claims those wanted bytes of an object that are on volumes and not in memory: in the block of the first wanted byte and in the
    /// block after it. `state` is that of the object, and must be unlocked before the result is dropped.
    pub(in crate::store) fn claim_disk_reads(
        &self,
        object: &Arc<Object>,
        state: &mut State,
        want: Range<u64>,
        now_us: u64,
    ) -> Option<ClaimedReads> {
        let length = state.length.filter(|_| state.may_read())?;
        let disk = state.disk.as_mut()?;
        disk.rested(now_us);
        disk.consult(want.clone(), length, LOOKUPS_MAX);
        let (volumes, block) = (disk.volumes.clone(), disk.block);
        let elsewhere = state.is_had_elsewhere();
        let first = want.start / block;
        let mut claims = SmallVec::<[(Claim, Id, u64); 2]>::new();
        for number in first..first + 2 {
            if number > first && number * block >= want.end.min(length) {
                break;
            }
            let of_block = number * block..(number + 1).saturating_mul(block);
            let wanted = want.start.max(of_block.start)..want.end.min(of_block.end);
            let Some(id) = state.block_on_disk(number, length) else {
                break;
            };
            // A volume overwrites old blocks at any time. The origin delivers such a block again.
            if elsewhere && volumes.find(&id).is_empty() {
                if let Some(disk) = &mut state.disk {
                    disk.lose(number, length);
                }
                break;
            }
            for claim in state.claim_reads(wanted, length, now_us, || self.next_flight_id()) {
                claims.push((claim, id, of_block.start));
            }
        }
        Some(ClaimedReads {
            volumes,
            object: object.clone(),
            claims,
        })
    }
}

impl State {
    /// Whether bytes of the object may be read from volumes. A retired object may be read too, for the readers that it still has.
    fn may_read(&self) -> bool {
        matches!(self.phase, Phase::Open(_) | Phase::Retired) && !self.passes_through
    }

    /// Whether the origin can deliver bytes of this object that the volumes can't.
    fn is_had_elsewhere(&self) -> bool {
        self.joinable && matches!(self.phase, Phase::Open(_))
    }

    /// Returns the id of a block, if the block is on volumes.
    fn block_on_disk(&self, number: u64, length: u64) -> Option<Id> {
        let disk = self.disk.as_ref()?;
        let bytes = disk.range_of(number, length);
        let there = !bytes.is_empty() && disk.there.covers(&bytes);
        there.then(|| disk.block_id(number)).flatten()
    }

    /// Claims the pages of a range that are neither in memory nor claimed, and returns one read per claim.
    fn claim_reads(
        &mut self,
        wanted: Range<u64>,
        length: u64,
        now_us: u64,
        next_id: impl Fn() -> u64,
    ) -> SmallVec<[Claim; 2]> {
        let first = wanted.start / PAGE * PAGE;
        let hull = first..wanted.end.next_multiple_of(PAGE).min(length);
        let free = self.lacking_in_memory(hull);
        let claims: SmallVec<[Claim; 2]> = free
            .into_iter()
            .take(CLAIMS_MAX.saturating_sub(self.claims.len()))
            .map(|free| Claim {
                id: next_id(),
                at: free.start,
                end: free.end,
                start: free.start,
                begun_us: now_us,
                head_us: self.joinable.then_some(now_us),
                progress_us: now_us,
                is_ending: false,
            })
            .collect();
        self.claims.extend(claims.iter().cloned());
        claims
    }
}

impl State {
    /// Records that a request begins to read an object with a disk copy. Bytes that it reads from volumes stay in memory only if the
    /// previous request was so recent that an object in memory would not have been evicted since. Otherwise these bytes would evict objects
    /// in use.
    pub(in crate::store) fn begin_ride(&mut self, ledger: &Ledger) {
        let Some(disk) = &mut self.disk else {
            return;
        };
        let now = ledger.turned();
        let before = disk.asked_at.replace(now);
        if disk.transient.is_empty() {
            let near = ledger.limit() / 2;
            disk.passing = before.is_none_or(|before| now - before > near);
        }
    }

    /// Whether pages read from volumes are dropped once all readers have passed them.
    pub(in crate::store) fn is_passing(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.passing)
    }

    /// Removes the pages that were read from volumes and that no claim and no reader needs soon. Readers that need these pages later read
    /// them from the volume again. Otherwise the distance between a fast reader and a slow one would keep all pages in memory.
    pub(in crate::store) fn pass_on(&mut self) -> Dropped {
        let mut passed = Dropped::new();
        let riders = self.riders.len();
        let Some(disk) = self.disk.as_mut().filter(|disk| !disk.transient.is_empty()) else {
            return passed;
        };
        // With many readers, looking for passed bytes at every move would be too expensive.
        disk.moves += 1;
        if disk.moves * PASSES_DIVISOR <= riders {
            return passed;
        }
        disk.moves = 0;
        let soon = 2 * disk.block;
        let transient = std::mem::take(&mut disk.transient);
        let needed = self.needed_soon(soon);
        for gone in transient.iter().flat_map(|there| needed.gaps(there)) {
            self.present.remove(gone.clone());
            passed.extend(self.pages.take(span(&gone)));
        }
        if let Some(disk) = &mut self.disk {
            let stays = transient.iter().flat_map(|there| needed.within(there));
            disk.transient = stays.collect();
        }
        passed
    }

    /// Returns the pages of all claims, and those that readers need within the next `soon` bytes.
    fn needed_soon(&self, soon: u64) -> Ranges {
        let length = self.length.unwrap_or(u64::MAX);
        let riders = self.riders.iter().map(|(_, rider)| rider);
        let riders = riders.filter(|rider| rider.at < length).map(|rider| {
            let upto = rider.at.saturating_add(soon);
            rider.at..rider.wanted_until.max(upto)
        });
        let claims = self.claims.iter().map(|claim| claim.at..claim.end);
        let pages = |range: Range<u64>| {
            let end = range.end.checked_next_multiple_of(PAGE);
            range.start / PAGE * PAGE..end.unwrap_or(u64::MAX)
        };
        riders.chain(claims).map(pages).collect()
    }
}

impl DiskRead {
    /// Reads the claimed bytes. Bytes that can't be read are released and recorded as missing from the volumes.
    pub async fn run(self, now_us: impl Fn() -> u64) {
        let object = self.landing.object().clone();
        self.read_claim(now_us).await;
        // The reader that wanted the bytes may have left during the read, so passed pages are dropped here.
        let passed = object.lock().pass_on();
        drop(passed);
    }

    async fn read_claim(mut self, now_us: impl Fn() -> u64) {
        if self.landing.make_room().is_none() {
            return self.landing.put_down();
        }
        loop {
            let claim = self.landing.range();
            if claim.is_empty() {
                self.landing
                    .store()
                    .volume_hits
                    .fetch_add(1, Ordering::Relaxed);
                return self.landing.land();
            }
            let pages = claim.start / PAGE..claim.end.div_ceil(PAGE);
            let pages = pages.start..pages.end.min(pages.start + PAGES_PER_READ);
            let buffers = match self.read_patiently(pages).await {
                Ok(buffers) => buffers,
                Err(missing) => return self.miss(missing, now_us()),
            };
            let read: usize = buffers.iter().map(|buffer| buffer.filled().len()).sum();
            let bytes = &self.landing.store().volume_bytes;
            bytes.fetch_add(read as u64, Ordering::Relaxed);
            if self.landing.take_in(buffers, now_us()).is_err() {
                return self.landing.put_down();
            }
            // Yields, so that waiting readers send the bytes while they are in the CPU's cache.
            tokio::task::yield_now().await;
        }
    }

    /// Reads these pages. A failed read is repeated if the bytes are available nowhere else and a reader waits for them.
    async fn read_patiently(&self, pages: Range<u64>) -> Result<Vec<Buffer>, Missing> {
        let mut tries = 1;
        loop {
            let why = match self.read(pages.clone()).await {
                Ok(buffers) => return Ok(buffers),
                Err(why) => why,
            };
            let late = matches!(why, Missing::Busy | Missing::Slow);
            let object = self.landing.object();
            let again = late && tries < TRIES && !object.lock().is_had_elsewhere();
            if !again || !self.landing.is_awaited() {
                return Err(why);
            }
            tries += 1;
            if why == Missing::Busy {
                tokio::time::sleep(BUSY_PAUSE).await;
            }
        }
    }

    /// Reads these pages from one of the volumes that have them.
    async fn read(&self, pages: Range<u64>) -> Result<Vec<Buffer>, Missing> {
        let length = self.landing.object().length().unwrap_or(0);
        let mut why = Missing::Gone;
        let first = (pages.start - self.base / PAGE) as u32;
        for (number, found) in self.volumes.find(&self.id) {
            let volume = &self.volumes.volumes[number];
            let mut next = Some(found);
            while let Some(found) = next {
                let capacity = |page: u64| length.saturating_sub(page * PAGE).min(PAGE) as usize;
                let buffers: Vec<_> = pages.clone().map(|p| Buffer::new(capacity(p))).collect();
                match volume.read_pages(found, &self.id, first, buffers).await {
                    Ok(buffers) => return Ok(buffers),
                    Err(missing) => why = missing,
                }
                // The record may have been copied to another location before its segment was reclaimed: it is looked up once more.
                let is_gone = matches!(why, Missing::Gone);
                let elsewhere = volume.find(&self.id).filter(|other| *other != found);
                next = elsewhere.filter(|_| is_gone);
            }
        }
        Err(why)
    }

    /// Records that the claimed bytes can't be read from any volume now. If no reader waits for them, a later request may try again.
    fn miss(self, why: Missing, now_us: u64) {
        let object = self.landing.object().clone();
        let (table_key, store) = (self.landing.table_key(), self.landing.store().clone());
        let gone = matches!(why, Missing::Gone | Missing::Damaged);
        let awaited = self.landing.is_awaited();
        let mut state = object.lock();
        let (length, elsewhere) = (state.length.unwrap_or(0), state.is_had_elsewhere());
        if let Some(disk) = &mut state.disk {
            match gone || awaited && !elsewhere {
                true => disk.lose(u64::from(self.id.part), length),
                false if elsewhere => disk.rest_until(now_us.saturating_add(SLOW_VOLUME_PAUSE_US)),
                false => {}
            }
        }
        let lost = !state.joinable && (gone || awaited);
        drop(state);
        if lost {
            // No source has the missing bytes, so the object is removed and its next request fetches it again from the origin.
            store.withdraw(table_key, &object);
            object.retire().wake();
            if gone {
                store.forget_head(table_key);
            }
        }
        self.landing.put_down();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::tests::*;
    use super::*;
    use crate::store::tests::table_key;
    use crate::store::{Arrangement, ObjectView};

    fn only_read(store: &Arc<Store>, object: &Arc<Object>, now_us: u64) -> DiskRead {
        let mut reads = disk_reads(store, object, table_key(1), 0..PAGE, now_us);
        assert_eq!(reads.len(), 1);
        reads.remove(0)
    }

    #[test]
    fn a_slow_volume_is_read_again_later() {
        let (_folder, volumes, store) = with_one_volume();
        let object = kept_whole(&store, &volumes, 1 << 20);
        let rider = object.reader(0);
        only_read(&store, &object, 5).miss(Missing::Slow, 7);
        assert!(!object.has(0..1), "the origin is to be asked");
        let claim = |now_us| disk_reads(&store, &object, table_key(1), 0..PAGE, now_us);
        assert!(claim(7 + SLOW_VOLUME_PAUSE_US - 1).is_empty());
        // The block still counts as being on a volume, so it is not written again if the origin delivers it.
        let block = 0..128 << 10;
        assert!(
            object
                .lock()
                .disk
                .as_ref()
                .is_some_and(|disk| disk.has(&block))
        );
        assert_eq!(claim(7 + SLOW_VOLUME_PAUSE_US).len(), 1);
        drop(rider);
    }

    #[test]
    fn bytes_available_nowhere_else_are_given_up_only_if_a_reader_waits() {
        let (_folder, volumes, store) = with_one_volume();
        bring(&store, 1, versioned(300_000, 0), 0..300_000);
        flush(&volumes);
        forget_memory(&store, 1);
        let object = recalled(&store, 1).expect("the object is on a volume");
        let rider = object.reader(290_000);
        for why in [Missing::Busy, Missing::Slow, Missing::Failed] {
            only_read(&store, &object, 0).miss(why, 0);
            assert!(store.holds(table_key(1), &object) && object.has(0..300_000));
        }
        drop(rider);
        let rider = object.reader(0);
        only_read(&store, &object, 0).miss(Missing::Slow, 0);
        assert!(!store.holds(table_key(1), &object) && object.is_retired());
        assert!(store.is_on_disk(1), "its head is still there");
        // The bytes before the failed read are missing, but a reader that is already past them can still read the later ones.
        assert!(!object.has(0..1) && object.has(290_000..300_000));
        drop(rider);
    }

    #[test]
    fn claims_of_disk_reads_are_released_if_the_fill_policy_panics() {
        let (_folder, volumes, store) = with_one_volume();
        let object = kept_whole(&store, &volumes, 1 << 20);
        let mut reader = object.reader(0);
        let policy = |_: &ObjectView<'_>, _: Range<u64>| -> (Arrangement, ()) {
            panic!("the test's policy fails")
        };
        let arrange = || store.arrange_for(&mut reader, table_key(1), 0, policy);
        assert!(catch_unwind(AssertUnwindSafe(arrange)).is_err());
        assert!(object.lock().claims.is_empty());
        drop(only_read(&store, &object, 0));
    }
}
