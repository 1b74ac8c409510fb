//! A landing: a flight's access to the object that it fills. The landing writes bytes, reserves memory for them, and wakes the readers.

mod taking;

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use crate::reason::Reason;
use crate::store::claim::{Claim, NotOurs};
use crate::store::disk_tier::disk_copy::DiskCopy;
use crate::store::head::Head;
use crate::store::ledger::Charge;
use crate::store::locked::Locked;
use crate::store::object::{Abandoned, Failure, Object};
use crate::store::object_store::Store;
use crate::store::page::{PAGE, Page};
use crate::store::pages::Unfilled;
use crate::store::purges::births::Birth;
use crate::store::setbacks::{Setback, Setbacks};
use crate::store::table_key::TableKey;

/// Number of bytes after which readers are woken; they are also woken whenever the flight pauses.
const WAKE_BYTES: u64 = 64 << 10;

/// Fills one claim of an object, as the only writer of the claimed bytes. A landing that is dropped before `land` or `fail` fails as
/// abandoned, so that no reader waits forever.
pub struct Landing {
    store: Arc<Store>,
    object: Arc<Object>,
    table_key: TableKey,
    id: u64,
    at: u64,
    /// End of the claim when it was last read; a takeover may have shortened the claim since.
    end: u64,
    /// Number of bytes of the response before the claim, which are skipped.
    skip: u64,
    page: Option<(u64, Arc<Page>)>,
    reserve: Reserve,
    unannounced: u64,
    passes_through: bool,
    over: bool,
    born_seq: u64,
    /// The fetch's birth, held while the response's head may still have to be checked against purges.
    birth: Option<Birth>,
    /// Size in bytes of the parts in which the object is queued for volumes; `None` if it is not written to volumes.
    write_block: Option<u64>,
    /// Offset before which all bytes of the claim have been queued for volumes.
    enqueued_upto: u64,
}

/// Memory reserved on the ledger for bytes of the claim.
struct Reserve {
    /// `None` until memory is reserved for the first time.
    charge: Option<Charge>,
    /// The bytes for which the memory is reserved.
    range: Range<u64>,
}

/// Whether a flight has to add more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Some bytes of the claim are still missing.
    More,
    /// All bytes of the claim are stored; the flight ignores whatever else the origin sends.
    Done,
}

impl Landing {
    pub(super) fn new(
        store: Arc<Store>,
        object: Arc<Object>,
        table_key: TableKey,
        claim: &Claim,
        birth: Birth,
    ) -> Landing {
        let reserve = Reserve {
            charge: None,
            range: claim.at..claim.at,
        };
        Landing {
            store,
            object,
            table_key,
            id: claim.id,
            at: claim.at,
            end: claim.end,
            skip: 0,
            page: None,
            reserve,
            unannounced: 0,
            passes_through: false,
            over: false,
            born_seq: birth.seq,
            birth: Some(birth),
            write_block: None,
            enqueued_upto: claim.at,
        }
    }

    /// Sets the size of the parts in which the object is queued for volumes.
    pub(super) fn with_write_block(mut self, block: Option<NonZeroU32>) -> Landing {
        self.write_block = block.map(|block| u64::from(block.get()));
        self
    }

    /// Returns the sequence number at which the fetch began. Heads of its response get this number as their `born_seq`.
    pub fn born_seq(&self) -> u64 {
        self.born_seq
    }

    /// Creates an object for the response of this fetch, which turned out to be another version than the landing's object. The new object
    /// gets the sequence number of the fetch. Returns `None` if there is no room.
    pub fn successor(&self) -> Option<Arc<Object>> {
        let birth = self.birth.clone().unwrap_or_else(|| self.store.birth());
        self.store.create_at(&self.object.key, birth)
    }

    /// Returns the store of the object.
    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns the object that is filled.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Returns the id of the claim.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the object's key in the table.
    pub fn table_key(&self) -> TableKey {
        self.table_key
    }

    /// Returns the bytes still to be added; the end is `u64::MAX` if the length is unknown.
    pub fn range(&self) -> Range<u64> {
        self.object.claimed(self.id)
    }

    /// Returns the bytes still to be added as far as this flight knows. A takeover may have shortened the claim since.
    fn planned(&self) -> Range<u64> {
        self.at..self.end
    }

    /// Whether a reader waits for one of the first bytes that the flight has still to add.
    pub fn is_awaited(&self) -> bool {
        self.object.awaits(self.id)
    }

    /// Moves the object to the variant that its head's Vary selects, sets the head, and wakes riders. With `sparse`, the object is evicted
    /// by block, provided that the head says that its bytes can be fetched again. If an eviction or a new version removed the object from
    /// the table, it is not inserted again: only its current riders read it.
    pub fn open(&mut self, head: Arc<Head>, charge: Charge, sparse: bool) {
        let (store, primary) = (self.store.clone(), self.table_key.primary);
        let bytes = charge.bytes() as i64;
        let disk = store.volumes().and_then(|_| self.disk_copy(&head));
        let block = store.block();
        // The volumes may have been added after the claim was made.
        self.write_block = disk.as_ref().and(block).map(|block| block.get().into());
        // The shard is locked. Otherwise, a request that found the object without a head could see the head before it is checked against
        // purges.
        let wakes = store.enter(primary, |locked| {
            if disk.is_none() {
                self.refile(locked, &head);
            }
            locked
                .shard
                .weigh(self.table_key, &self.object, None, bytes);
            let block = block.filter(|_| sparse);
            self.object.open(head, charge, block, disk)
        });
        wakes.wake();
    }

    /// Moves the object to its variant, and creates its disk copy. Volumes keep the head of an object that is in the table when the write
    /// ends. The earlier object of the variant therefore leaves the table before its head on volumes is deleted. Heads on volumes are
    /// deleted while this object has no head, so that its own head is not deleted.
    fn disk_copy(&mut self, head: &Head) -> Option<DiskCopy> {
        let (store, primary) = (self.store.clone(), self.table_key.primary);
        if store.enter(primary, |locked| self.refile(locked, head)) {
            // Heads on volumes that were written under other Vary names can't be found any more.
            store.forget_on_disk(primary);
        }
        store.disk_copy(&self.object, self.table_key, head)
    }

    /// Moves the object to the variant that its head's Vary selects, if the table has the object. Returns whether the key had other Vary
    /// names before.
    fn refile(&mut self, locked: &mut Locked<'_>, head: &Head) -> bool {
        let selected = head.vary.as_ref();
        let (from, names) = (self.table_key.variant, selected.map(|vary| &vary.names));
        let to = selected.map_or(0, |vary| vary.variant);
        let renamed = locked.vary().is_some_and(|known| Some(known) != names);
        locked.note_length(head.length, head.length > Some(self.store.object_max()));
        if locked.refile(from, to, names, &self.object) {
            self.table_key.variant = to;
        }
        renamed
    }

    /// Replaces the head by that of a later response of the same version (RFC 9111 section 3.4).
    pub fn renew(&self, head: Arc<Head>, charge: Charge) {
        self.store.renew(self.table_key, &self.object, head, charge);
    }

    /// Accepts the response's head. `content` is the range of the representation that the response contains; its end is `u64::MAX` if
    /// unknown.
    ///
    /// The first flight of an object claims exactly this range from now on. Every other flight claims the overlap of this range with its
    /// present claim, and `write` skips the bytes before.
    ///
    /// # Errors
    ///
    /// The response contains no byte of the claim.
    pub fn accept(&mut self, content: Range<u64>, now_us: u64) -> Result<(), NotOurs> {
        let from = content.start;
        let met = self
            .object
            .accept(self.id, content, now_us)
            .ok_or(NotOurs)?;
        self.skip = met.start - from;
        self.at = met.start;
        self.enqueued_upto = met.start;
        self.page = None;
        self.ends_at(met.end);
        Ok(())
    }

    /// Moves the end of the claim to `end`, if the claim ends later.
    pub fn shorten(&mut self, end: u64) {
        let end = self.object.shorten(self.id, end);
        self.ends_at(end);
    }

    /// Extends the claim up to the next byte that is stored or claimed by another flight, or to the end of the content. No memory is
    /// reserved for the added part: the caller calls `reserve`.
    pub fn extend(&mut self) {
        self.page = None; // the page at the old end may have been evicted
        self.end = self.object.extend(self.id);
    }

    /// Reserves memory for the whole claim, whose end must be known, so that the fetch can't stall halfway. Unused memory is released when
    /// the flight ends.
    ///
    /// # Errors
    ///
    /// The reason why the store has no memory for the claim.
    pub fn reserve(&mut self) -> Result<(), Reason> {
        if self.reserve.range == self.planned() {
            return Ok(());
        }
        let mut unfilled = self.unfilled();
        let (store, table_key) = (&self.store, self.table_key);
        let is_outside =
            || !store.holds(table_key, &self.object) && !store.keeps_aside(table_key, &self.object);
        if unfilled.loses_parts && is_outside() {
            // An object outside the table is not evicted, so pages that no reader needs are removed here.
            self.store
                .shed(self.table_key, &self.object, u64::MAX, true);
            unfilled = self.unfilled();
        }
        if let lacking @ 1.. = self.unreserved(&unfilled) {
            let more = self.store.make_room(lacking).ok_or(Reason::NoRoom)?;
            self.reserve.add(more);
        }
        self.reserve.range = self.planned();
        Ok(())
    }

    /// Shortens the claim to its first page, and charges this page even beyond the limit, so that a full ledger can't block a response that
    /// a reader waits for. Only for objects whose bytes can be fetched again.
    pub fn reserve_least(&mut self) {
        self.shorten((self.at / PAGE * PAGE).saturating_add(PAGE));
        let unfilled = self.unfilled();
        let lacking = self.unreserved(&unfilled);
        let more = self.store.make_room(lacking).unwrap_or_else(|| {
            // Readers and flights use all memory. In exchange for the page, the object gives up as many bytes that no reader needs at this
            // moment.
            self.store
                .shed(self.table_key, &self.object, lacking, false);
            self.store.ledger.charge_anyway(lacking)
        });
        self.reserve.add(more);
        self.reserve.range = self.planned();
    }

    /// Reserves memory for the claim, or shortens the claim to what the store has memory for: at least one page. A flight with a waiting
    /// reader always gets this page; a flight without one may get none. Returns the claim, or `None` if there is no memory.
    pub fn make_room(&mut self) -> Option<Range<u64>> {
        let Range { start, end } = self.planned();
        if end == u64::MAX {
            return Some(start..end); // charged once the length is known, or page by page
        }
        let mut size = end - start;
        while self.reserve().is_err() {
            size /= 2;
            if size <= PAGE {
                let awaited = self.is_awaited();
                if awaited {
                    self.reserve_least();
                }
                return awaited.then(|| self.planned());
            }
            self.shorten((start + size) / PAGE * PAGE);
        }
        Some(self.planned())
    }

    fn unfilled(&self) -> Unfilled {
        self.object.unfilled(self.id, self.at, self.store.block())
    }

    /// Returns the number of bytes to charge in addition to the reserved ones, so that there is memory for the whole claim. A takeover may
    /// have shortened the claim.
    fn unreserved(&mut self, unfilled: &Unfilled) -> u64 {
        self.ends_at(unfilled.end);
        unfilled.need.saturating_sub(self.reserve.bytes())
    }

    /// Sets the end of the claim, and releases memory reserved for bytes after it.
    fn ends_at(&mut self, end: u64) {
        if end >= self.end {
            self.end = end;
            return;
        }
        self.end = end;
        let range = &mut self.reserve.range;
        range.end = range.end.min(end);
        let bytes = self.reserve.bytes();
        if bytes > 0 {
            let need = self.object.need(self.at..end, self.store.block());
            drop(self.reserve.split(bytes.saturating_sub(need)));
        }
    }

    /// Ends the flight, after all bytes of its claim were added.
    pub fn land(mut self) {
        let end = self.object.claimed(self.id).end;
        if end != u64::MAX && end != self.at {
            return self.give_up(Arc::new(Abandoned));
        }
        self.over = true;
        let tail = (end == u64::MAX).then(|| self.shrunk_tail()).flatten();
        self.object.land(self.id, tail);
        self.store
            .complete_replacement(self.table_key, &self.object);
        self.enqueue_writes(true);
    }

    /// Ends the flight because its response must not be shared. Until `until_ms` (milliseconds since the Unix epoch), requests for this key
    /// are forwarded without waiting for one another. Only for the first flight of an object.
    pub fn refuse(mut self, reason: Reason, until_ms: u64) {
        self.over = true;
        self.store.drop_replaced(self.table_key, &self.object);
        self.object.refuse(self.id, reason, until_ms, false);
    }

    /// Ends the flight because its response, or its failure, concerns only the client whose request launched it. Other requests are looked
    /// up again. Only for the first flight of an object.
    pub fn refuse_one_client(mut self, reason: Reason) {
        self.over = true;
        self.store
            .undo_replacement(self.table_key, &self.object, false);
        self.object.refuse(self.id, reason, 0, true);
    }

    /// Marks the landing as ended. Returns the id of its claim.
    pub(super) fn end(&mut self) -> u64 {
        self.over = true;
        self.id
    }

    /// Notes a failure of this flight for the bytes that it has still to add: `change` counts it.
    pub fn set_back(&self, change: impl FnOnce(&mut Setback)) {
        let range = self.range();
        if range.is_empty() {
            return;
        }
        let mut state = self.object.lock();
        let new = || Box::new(Setbacks::new(self.object.charge_note(Setbacks::BYTES)));
        state.setbacks.get_or_insert_with(new).note(range, change);
    }

    /// Fails the flight and releases its claim. The added bytes stay if other flights may add the rest; otherwise the object is removed
    /// from the table. If this was the last flight of an object that is to replace an older one, the older one takes its place again.
    pub fn fail(mut self, failure: Failure) {
        self.give_up(failure);
    }

    fn give_up(&mut self, failure: Failure) {
        self.end_early(false, |object, id| object.fail(id, failure));
    }

    /// Fails the flight as `fail` does, although the origin did not fail. If other flights may add the rest, the added bytes replace an older
    /// object.
    pub fn abandon(mut self, failure: Failure) {
        self.end_early(true, |object, id| object.fail(id, failure));
    }

    /// Releases the claim without any other effect: other flights may add its bytes.
    pub(in crate::store) fn put_down(mut self) {
        self.over = true;
        self.object.give_back(self.id);
    }

    /// Releases the claim without an error: readers that wait for its bytes arrange a new fetch. The added bytes stay if other flights may
    /// add the rest; without a waiting reader, they replace an older object. An object without a head is retired, and its readers look the
    /// key up again.
    pub fn give_back(mut self) {
        if self.object.outlives_flights() && self.object.has_rider_in(self.id) {
            return self.put_down();
        }
        self.end_early(true, Object::give_back);
    }

    /// Ends the flight before its claim is filled; `release` releases the claim. The last flight of an object that is to replace an older
    /// one completes the replacement if the object has bytes, `keeps_bytes` is true and other flights may add the rest. Otherwise it undoes
    /// the replacement.
    fn end_early(&mut self, keeps_bytes: bool, release: impl FnOnce(&Object, u64)) {
        self.over = true;
        let (store, object, table_key) = (&self.store, &self.object, self.table_key);
        let outlives = object.outlives_flights();
        // While other flights add bytes, the object may still become complete.
        let is_last = object.ends_as_last(self.id);
        let is_kept = keeps_bytes && outlives && object.has_bytes();
        if is_last && !is_kept {
            store.undo_replacement(table_key, object, true);
        }
        if !outlives {
            store.withdraw(table_key, object);
        }
        release(object, self.id);
        // The other flights may have ended since, while this one still had its claim. In a sparse object, that claim did not matter.
        let may_complete = match is_last {
            true => is_kept,
            false => !object.is_sparse(),
        };
        if may_complete {
            store.complete_replacement(table_key, object);
        }
    }

    /// Takes `bytes` from the reserved memory. Before the head was known, the claim's last page was assumed to be the object's last page.
    /// If that is wrong, up to one page is missing, and is charged even beyond the limit.
    fn reserved(&mut self, bytes: u64) -> Option<Charge> {
        if self.at >= self.reserve.range.end {
            return None;
        }
        if let lacking @ 1.. = bytes.saturating_sub(self.reserve.bytes()) {
            let more = self.store.make_room(lacking);
            let more = more.unwrap_or_else(|| self.store.ledger.charge_anyway(lacking));
            self.reserve.add(more);
        }
        self.reserve.split(bytes)
    }

    fn weigh(&self, block: Option<Range<u64>>, by: i64) {
        self.store.weigh(self.table_key, &self.object, block, by);
    }
}

impl Reserve {
    fn bytes(&self) -> u64 {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }

    fn add(&mut self, more: Charge) {
        match &mut self.charge {
            Some(charge) => charge.absorb(more),
            None => self.charge = Some(more),
        }
    }

    fn split(&mut self, bytes: u64) -> Option<Charge> {
        self.charge.as_mut()?.split(bytes)
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if !self.over {
            self.give_up(Arc::new(Abandoned));
        }
    }
}
