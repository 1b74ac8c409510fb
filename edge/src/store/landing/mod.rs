//! A landing: a flight's access to the object that it fills. The landing writes bytes, reserves memory for them, and wakes the readers.

mod taking;

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use crate::reason::Reason;
use crate::store::claim::{Claim, NotOurs};
use crate::store::head::Head;
use crate::store::ledger::Charge;
use crate::store::locked::Locked;
use crate::store::object::{Abandoned, Failure, Object};
use crate::store::object_store::Store;
use crate::store::page::{PAGE, Page};
use crate::store::pages::Unfilled;
use crate::store::purges::births::Birth;
use crate::store::table_key::TableKey;

/// Number of bytes after which readers are woken; they are also woken whenever the flight pauses.
const ANNOUNCE: u64 = 64 << 10;

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
    reserve: Option<Reserve>,
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
    charge: Charge,
    /// End of the bytes for which the memory is reserved, as an offset.
    until: u64,
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
        Landing {
            store,
            object,
            table_key,
            id: claim.id,
            at: claim.at,
            end: claim.end,
            skip: 0,
            page: None,
            reserve: None,
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

    /// Returns the object's key in the table.
    pub fn table_key(&self) -> TableKey {
        self.table_key
    }

    /// Sets the table key, after the object was moved to another variant.
    pub fn set_table_key(&mut self, table_key: TableKey) {
        self.table_key = table_key;
    }

    /// Returns the bytes still to be added; the end is `u64::MAX` if the length is unknown.
    pub fn range(&self) -> Range<u64> {
        self.object.claimed(self.id)
    }

    /// Returns the bytes still to be added as far as this flight knows. A takeover may have shortened the claim since.
    pub fn planned(&self) -> Range<u64> {
        self.at..self.end
    }

    /// Whether a reader waits for one of the first bytes that the flight has still to add.
    pub fn is_awaited(&self) -> bool {
        self.object.awaits(self.id)
    }

    /// Sets the object's head, and wakes riders. With `sparse`, the object is evicted by block, provided that the head says that its bytes
    /// can be fetched again.
    pub fn open(&self, head: Arc<Head>, charge: Charge, sparse: bool) {
        let block = self.store.block().filter(|_| sparse);
        let disk = self.store.disk_copy(&self.object, self.table_key, &head);
        let (table_key, bytes) = (self.table_key, charge.bytes() as i64);
        // The shard is locked. Otherwise, a request that found the object without a head could see the head before it is checked against
        // purges.
        let open = |locked: &mut Locked<'_>| {
            locked.shard.weigh(table_key, &self.object, None, bytes);
            self.object.open(head, charge, block, disk)
        };
        self.store.enter(table_key.primary, open).wake();
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
        let mut unfilled = self.unfilled();
        if unfilled.loses_parts && !self.store.holds(self.table_key, &self.object) {
            // An object outside the table is not evicted, so pages that no reader needs are removed here.
            self.store
                .shed(self.table_key, &self.object, u64::MAX, true);
            unfilled = self.unfilled();
        }
        let more = match self.unreserved(&unfilled) {
            0 => self.store.ledger.charge_anyway(0),
            lacking => self.store.make_room(lacking).ok_or(Reason::NoRoom)?,
        };
        self.put_by(more);
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
        self.put_by(more);
    }

    /// Reserves memory for the claim, or shortens the claim to what the store has memory for: at least one page. A flight with a waiting
    /// reader always gets this page; a flight without one may get none. Returns whether there is memory.
    pub fn make_room(&mut self) -> bool {
        let Range { start, end } = self.planned();
        if end == u64::MAX {
            return true; // charged once the length is known, or page by page
        }
        let mut size = end - start;
        while self.reserve().is_err() {
            size /= 2;
            if size <= PAGE {
                let awaited = self.is_awaited();
                if awaited {
                    self.reserve_least();
                }
                return awaited;
            }
            self.shorten((start + size) / PAGE * PAGE);
        }
        true
    }

    fn unfilled(&self) -> Unfilled {
        self.object.unfilled(self.id, self.at, self.store.block())
    }

    /// Returns the number of bytes to charge in addition to the reserved ones, so that there is memory for the whole claim. A takeover may
    /// have shortened the claim.
    fn unreserved(&mut self, unfilled: &Unfilled) -> u64 {
        self.ends_at(unfilled.end);
        let reserved = self.reserve.as_ref().map_or(0, |r| r.charge.bytes());
        unfilled.need.saturating_sub(reserved)
    }

    fn put_by(&mut self, more: Charge) {
        let until = self.end;
        match &mut self.reserve {
            Some(reserve) => {
                reserve.charge.absorb(more);
                reserve.until = until;
            }
            None => {
                self.reserve = Some(Reserve {
                    charge: more,
                    until,
                });
            }
        }
    }

    /// Sets the end of the claim, and releases memory reserved for bytes after it.
    fn ends_at(&mut self, end: u64) {
        if end >= self.end {
            self.end = end;
            return;
        }
        self.end = end;
        if let Some(reserve) = &mut self.reserve {
            reserve.until = reserve.until.min(end);
            let need = self.object.need(self.at..end, self.store.block());
            let spare = reserve.charge.bytes().saturating_sub(need);
            drop(reserve.charge.split(spare));
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
        self.enqueue_writes(true);
    }

    /// Ends the flight because its response must not be shared. Until `until_ms` (milliseconds since the Unix epoch), requests for this key
    /// are forwarded without waiting for one another. Only for the first flight of an object.
    pub fn refuse(mut self, reason: Reason, until_ms: u64) {
        self.over = true;
        self.object.refuse(self.id, reason, until_ms);
    }

    /// Marks the landing as ended. Returns the id of its claim.
    pub(super) fn end(&mut self) -> u64 {
        self.over = true;
        self.id
    }

    /// Fails the flight and releases its claim. The added bytes stay if other flights may add the rest; otherwise the object is removed
    /// from the table.
    pub fn fail(mut self, failure: Failure) {
        self.give_up(failure);
    }

    fn give_up(&mut self, failure: Failure) {
        self.over = true;
        if !self.object.outlives_flights() {
            self.store.withdraw(self.table_key, &self.object);
        }
        self.object.fail(self.id, failure);
    }

    /// Releases the claim without any other effect: other flights may add its bytes.
    pub(in crate::store) fn put_down(mut self) {
        self.over = true;
        self.object.give_back(self.id);
    }

    /// Releases the claim without an error: readers that wait for its bytes arrange a new fetch. The added bytes stay if other flights may
    /// add the rest. An object without a head is retired, and its readers look the key up again.
    pub fn give_back(mut self) {
        self.over = true;
        if !self.object.outlives_flights() {
            self.store.withdraw(self.table_key, &self.object);
        }
        self.object.give_back(self.id);
    }

    /// Takes `bytes` from the reserved memory. Before the head was known, the claim's last page was assumed to be the object's last page.
    /// If that is wrong, up to one page is missing, and is charged even beyond the limit.
    fn reserved(&mut self, bytes: u64) -> Option<Charge> {
        let reserve = self.reserve.as_mut().filter(|r| self.at < r.until)?;
        if let lacking @ 1.. = bytes.saturating_sub(reserve.charge.bytes()) {
            let more = self.store.make_room(lacking);
            reserve
                .charge
                .absorb(more.unwrap_or_else(|| self.store.ledger.charge_anyway(lacking)));
        }
        reserve.charge.split(bytes)
    }

    fn weigh(&self, block: Option<Range<u64>>, by: i64) {
        self.store.weigh(self.table_key, &self.object, block, by);
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if !self.over {
            self.give_up(Arc::new(Abandoned));
        }
    }
}
