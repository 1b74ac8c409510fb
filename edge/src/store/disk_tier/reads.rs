//! Reading: bytes of an object that are on volumes come into memory, by claims as any others.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use super::volumes::Volumes;
use crate::ranges::Ranges;
use crate::store::claim::{CLAIMS_MAX, Claim};
use crate::store::landing::Landing;
use crate::store::object::{Object, Phase, State};
use crate::store::object_store::Store;
use crate::store::page::PAGE;
use crate::store::pages::span;
use crate::store::slots::Dropped;
use crate::store::table_key::TableKey;
use crate::sys::buffer::Buffer;
use crate::volume::{Id, Missing};

/// Pages that are read at once: they are checked and sent while they are in the processor's cache.
const AT_ONCE: u64 = 4;
/// Blocks that are looked up at once, which takes an object's lock for some microseconds.
const LOOKED_UP: u64 = 64;
/// How long a volume that did not keep up is not asked for an object that the origin has, too.
const REST_US: u64 = 5_000_000;
/// How often a read is tried where nobody else has what it brings.
const TRIES: u32 = 4;
/// How long to wait where too many other reads do.
const BUSY: Duration = Duration::from_millis(100);
/// For each so many riders of an object, one move passes before it is seen what all have passed.
const CROWD: usize = 4;

/// One read of a part of a block, which has to be run.
pub struct DiskRead {
    landing: Landing,
    volumes: Arc<Volumes>,
    id: Id,
    /// The block's first byte.
    base: u64,
}

impl Store {
    /// Claims what of the next wanted bytes is on volumes and not in memory: in the block where they
    /// begin, and in the one behind it. The reads are to be run.
    pub fn claim_disk_reads(
        self: &Arc<Self>,
        object: &Arc<Object>,
        table_key: TableKey,
        want: Range<u64>,
        now_us: u64,
    ) -> SmallVec<[DiskRead; 2]> {
        let mut state = object.lock();
        let Some(length) = state.length.filter(|_| state.may_read()) else {
            return SmallVec::new();
        };
        let Some(disk) = &mut state.disk else {
            return SmallVec::new();
        };
        disk.rested(now_us);
        disk.consult(want.clone(), length, LOOKED_UP);
        let (volumes, block) = (disk.volumes.clone(), disk.block);
        let first = want.start / block;
        let mut claimed = SmallVec::<[(Claim, Id, u64); 2]>::new();
        for number in first..first + 2 {
            if number > first && number * block >= want.end.min(length) {
                break;
            }
            let of_block = number * block..(number + 1).saturating_mul(block);
            let wanted = want.start.max(of_block.start)..want.end.min(of_block.end);
            let Some(id) = state.block_on_disk(number, length) else {
                break;
            };
            for claim in state.claim_reads(wanted, length, now_us, || self.next_flight_id()) {
                claimed.push((claim, id, of_block.start));
            }
        }
        drop(state);
        let reads = claimed.into_iter().map(|(claim, id, base)| {
            let birth = self.birth();
            let landing = Landing::new(self.clone(), object.clone(), table_key, &claim, birth);
            DiskRead {
                landing,
                volumes: volumes.clone(),
                id,
                base,
            }
        });
        reads.collect()
    }
}

impl State {
    /// Whether bytes may come from volumes: also for those who still read what was superseded.
    fn may_read(&self) -> bool {
        matches!(self.phase, Phase::Open(_) | Phase::Retired) && !self.passes_through
    }

    /// Whether the origin may bring what volumes don't.
    fn is_had_elsewhere(&self) -> bool {
        self.joinable && matches!(self.phase, Phase::Open(_))
    }

    /// The id of a block, if it is on volumes.
    fn block_on_disk(&self, number: u64, length: u64) -> Option<Id> {
        let disk = self.disk.as_ref()?;
        let bytes = disk.range_of(number, length);
        let there = !bytes.is_empty() && disk.there.covers(&bytes);
        there.then(|| disk.block_id(number)).flatten()
    }

    /// Claims the pages of a range, as far as their bytes neither are in memory nor claimed.
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
            })
            .collect();
        self.claims.extend(claims.iter().cloned());
        claims
    }
}

impl Store {
    /// A request begins to read an object. What it gets from volumes stays in memory only if it was
    /// asked for so lately that it would still be there; else it would drive out what is in use.
    pub fn begin_ride(&self, object: &Object) {
        let mut state = object.lock();
        let Some(disk) = &mut state.disk else {
            return;
        };
        let now = self.ledger.turned();
        let before = disk.asked_at.replace(now);
        if disk.transient.is_empty() {
            let near = self.ledger.limit() / 2;
            disk.passing = before.is_none_or(|before| now - before > near);
        }
    }
}

impl State {
    /// Whether pages that come from volumes are to go again.
    pub(in crate::store) fn is_passing(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.passing)
    }

    /// Takes out the pages that came from volumes and that no claim and no reader is in or comes to
    /// soon. Who comes to them later reads them again: else a fast reader would have all of an object
    /// stay in memory for a slow one.
    pub(in crate::store) fn pass_on(&mut self) -> Dropped {
        let mut passed = Dropped::new();
        let riders = self.riders.len();
        let Some(disk) = self.disk.as_mut().filter(|disk| !disk.transient.is_empty()) else {
            return passed;
        };
        // A crowd would look at itself at every step.
        disk.moves += 1;
        if disk.moves * CROWD <= riders {
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

    /// The pages that claims bring, and those that readers are in or come to within so many bytes.
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
    /// Reads what was claimed. What can't be had is claimed no longer, and known not to be there.
    pub async fn run(self, now_us: impl Fn() -> u64) {
        let object = self.landing.object().clone();
        self.bring(now_us).await;
        // Whoever wanted it may be gone.
        let passed = object.lock().pass_on();
        drop(passed);
    }

    async fn bring(mut self, now_us: impl Fn() -> u64) {
        if !self.landing.make_room() {
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
            let pages = pages.start..pages.end.min(pages.start + AT_ONCE);
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
            // Whoever waits sends it on while it is in the processor's cache.
            tokio::task::yield_now().await;
        }
    }

    /// Reads, and tries again where nobody else has these bytes and someone waits for them.
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
                tokio::time::sleep(BUSY).await;
            }
        }
    }

    /// Reads these pages of the object from one of the volumes that have them.
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
                // It may have been written again elsewhere, before its segment went.
                let is_gone = matches!(why, Missing::Gone);
                let elsewhere = volume.find(&self.id).filter(|other| *other != found);
                next = elsewhere.filter(|_| is_gone);
            }
        }
        Err(why)
    }

    /// It can't be had from any volume now. What nobody waits for may be had when someone does.
    fn miss(self, why: Missing, now_us: u64) {
        let object = self.landing.object().clone();
        let (table_key, store) = (self.landing.table_key(), self.landing.store().clone());
        let gone = matches!(why, Missing::Gone | Missing::Damaged);
        let awaited = self.landing.is_awaited();
        let mut state = object.lock();
        let (length, elsewhere) = (state.length.unwrap_or(0), state.is_had_elsewhere());
        if let Some(disk) = &mut state.disk {
            match gone || awaited && !elsewhere {
                true => disk
                    .there
                    .remove(disk.range_of(u64::from(self.id.part), length)),
                false if elsewhere => disk.rest_until(now_us.saturating_add(REST_US)),
                false => {}
            }
        }
        let lost = !state.joinable && (gone || awaited);
        drop(state);
        if lost {
            // Nobody can bring the rest of it: it is fetched anew.
            store.withdraw(table_key, &object);
            object.retire();
            if gone {
                store.forget_head(table_key);
            }
        }
        self.landing.put_down();
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;
    use crate::store::tests::table_key;

    fn only_read(store: &Arc<Store>, object: &Arc<Object>, now_us: u64) -> DiskRead {
        let mut reads = store.claim_disk_reads(object, table_key(1), 0..PAGE, now_us);
        assert_eq!(reads.len(), 1);
        reads.remove(0)
    }

    #[test]
    fn a_volume_that_does_not_keep_up_is_asked_again_later() {
        let (_folder, volumes, store) = with_one_volume();
        let object = kept_whole(&store, &volumes, 1 << 20);
        let rider = object.reader(0);
        only_read(&store, &object, 5).miss(Missing::Slow, 7);
        assert!(!object.has(0..1), "the origin is to be asked");
        let claim = |now_us| store.claim_disk_reads(&object, table_key(1), 0..PAGE, now_us);
        assert!(claim(7 + REST_US - 1).is_empty());
        // What the origin brings meanwhile is not written a second time.
        let block = 0..128 << 10;
        assert!(
            object
                .lock()
                .disk
                .as_ref()
                .is_some_and(|disk| disk.has(&block))
        );
        assert_eq!(claim(7 + REST_US).len(), 1);
        drop(rider);
    }

    #[test]
    fn what_nobody_else_has_is_given_up_only_if_someone_waits_for_it() {
        let (_folder, volumes, store) = with_one_volume();
        bring(&store, 1, versioned(300_000, 0), 0..300_000);
        flush(&volumes);
        forget_memory(&store, 1);
        let object = recalled(&store, 1).expect("it is kept");
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
        // Others may have what they come to.
        assert!(!object.has(0..1) && object.has(290_000..300_000));
        drop(rider);
    }
}
