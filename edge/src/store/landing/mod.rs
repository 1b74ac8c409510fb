//! A flight's end at the store: takes bytes in, finds room for them, tells the readers.

mod taking;

use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use crate::reason::Reason;
use crate::store::claims::{Claim, NotOurs};
use crate::store::head::Head;
use crate::store::ledger::Charge;
use crate::store::object::{Abandoned, Failure, Object};
use crate::store::page::{PAGE, Page};
use crate::store::purges::Birth;
use crate::store::{Locked, Store, TableKey};

/// Readers are woken once per this much progress, and whenever the flight pauses.
const ANNOUNCE: u64 = 64 << 10;

/// Brings an object's bytes from one place on. The only writer of what it has claimed. Dropped
/// without `land` or `fail`, it fails as abandoned, so that nobody waits for ever.
pub struct Landing {
    store: Arc<Store>,
    object: Arc<Object>,
    table_key: TableKey,
    id: u64,
    at: u64,
    /// Where the claim ended when it was last looked at; it may have been cut since.
    end: u64,
    /// Bytes of the response that come before the claim.
    skip: u64,
    page: Option<(u64, Arc<Page>)>,
    reserve: Option<Reserve>,
    unannounced: u64,
    passes_through: bool,
    over: bool,
    born_seq: u64,
    /// As long as its head may have to be checked against purges.
    birth: Option<Birth>,
    /// What comes is handed over to volumes in pieces of so many bytes, if at all.
    write_block: Option<u64>,
    /// All before this was.
    enqueued_upto: u64,
}

/// Room made beforehand.
struct Reserve {
    charge: Charge,
    /// The end of what it is for.
    until: u64,
}

/// How far a flight is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It has more to bring.
    More,
    /// All of its claim is there, whatever else the origin sends.
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

    /// What it brings is to be kept on volumes.
    pub(super) fn with_write_block(mut self, block: Option<NonZeroU32>) -> Landing {
        self.write_block = block.map(|block| u64::from(block.get()));
        self
    }

    /// The sequence number at which its fetch began: that of the heads it brings.
    pub fn born_seq(&self) -> u64 {
        self.born_seq
    }

    /// A new object for what this fetch brings, which turned out to be another version: it is no
    /// younger than the fetch. `None`: there is no room for it.
    pub fn successor(&self) -> Option<Arc<Object>> {
        let birth = self.birth.clone().unwrap_or_else(|| self.store.birth());
        self.store.create_at(&self.object.key, birth)
    }

    /// The store that it fills an object of.
    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The object that is filled.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// Where its object stands in the table.
    pub fn table_key(&self) -> TableKey {
        self.table_key
    }

    /// Its object was filed under another variant.
    pub fn set_table_key(&mut self, table_key: TableKey) {
        self.table_key = table_key;
    }

    /// What it has still to bring; `u64::MAX` as an end that is not known.
    pub fn range(&self) -> Range<u64> {
        self.object.claimed(self.id)
    }

    /// Whether some reader's next byte lies in the first page of what it has still to bring.
    pub fn is_awaited(&self) -> bool {
        self.object.awaits(self.id)
    }

    /// Makes the head known. Riders wake. `sparse`: the bytes are accounted and evicted by block,
    /// if the head says that they can be had again.
    pub fn open(&self, head: Arc<Head>, charge: Charge, sparse: bool) {
        self.weigh(None, charge.bytes() as i64);
        let block = self.store.block().filter(|_| sparse);
        let disk = self.store.disk_copy(&self.object, self.table_key, &head);
        // With the shard locked, so that nobody who looked it up without a head meets this one
        // before it was checked against purges.
        let open = |_: &mut Locked<'_>| self.object.open(head, charge, block, disk);
        self.store.enter(self.table_key.primary, open).wake();
    }

    /// Puts the head of a later response of the same version in the place of the one that is there
    /// (RFC 9111 3.4).
    pub fn renew(&self, head: Arc<Head>, charge: Charge) {
        self.store.renew(self.table_key, &self.object, head, charge);
    }

    /// The response's head is accepted; its content is `content` of the representation, with
    /// `u64::MAX` for an end that is not known. The first flight of an object claims just that from
    /// now on. Any other claims what of it lies in its claim, and `write` skips what comes before.
    ///
    /// # Errors
    /// The content has nothing of the claim.
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

    /// Lets the claim end at `end`, if not before.
    pub fn shorten(&mut self, end: u64) {
        let end = self.object.shorten(self.id, end);
        self.ends_at(end);
    }

    /// Lets the claim go on to the next byte that is there or claimed by another flight, or to the
    /// end. What was reserved does not grow with it: `reserve` does that.
    pub fn extend(&mut self) {
        self.page = None; // where the claim ended, the page may have been evicted
        self.end = self.object.extend(self.id);
    }

    /// Makes room for all of the claim, whose end must be known, so that the fill can't get stuck
    /// in the middle. What is left of it when the flight ends is given back.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn reserve(&mut self) -> Result<(), Reason> {
        if !self.store.holds(self.table_key, &self.object) {
            // Out of the table it can't be evicted: its readers carry it along with them.
            self.store
                .shed(self.table_key, &self.object, u64::MAX, true);
        }
        let more = match self.unreserved() {
            0 => self.store.ledger.charge_anyway(0),
            lacking => self.store.make_room(lacking).ok_or(Reason::NoRoom)?,
        };
        self.put_by(more);
        Ok(())
    }

    /// Lets the claim end with its first page, and charges that in any case: for a reader that
    /// waits, so that a full ledger can't stop a response that is under way. Only for objects whose
    /// bytes can be had again.
    pub fn reserve_least(&mut self) {
        self.shorten((self.at / PAGE * PAGE).saturating_add(PAGE));
        let lacking = self.unreserved();
        let more = self.store.make_room(lacking).unwrap_or_else(|| {
            // What others read and fetch is all there is. This object gives up so much of what is
            // not needed at this moment.
            self.store
                .shed(self.table_key, &self.object, lacking, false);
            self.store.ledger.charge_anyway(lacking)
        });
        self.put_by(more);
    }

    /// Makes room for the claim, for less of it where the store has too little: in the end a page,
    /// which who waits for it gets in any case. Whether there is any: what nobody waits for yet gets
    /// none.
    pub fn make_room(&mut self) -> bool {
        let Range { start, end } = self.range();
        if end == u64::MAX {
            return true; // made when the length is known, or as it comes
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

    /// What has to be charged yet for all of the claim.
    fn unreserved(&mut self) -> u64 {
        let end = self.range().end; // it may have been cut meanwhile
        self.ends_at(end);
        let reserved = self.reserve.as_ref().map_or(0, |r| r.charge.bytes());
        self.need().saturating_sub(reserved)
    }

    fn need(&self) -> u64 {
        self.object.need(self.at..self.end, self.store.block())
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

    /// The claim ends here: what was reserved for more is given back.
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

    /// All bytes are there.
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

    /// The response can't be shared: until then (Unix ms) requests for this key go forward on
    /// their own, without waiting for one another. For the first flight of an object.
    pub fn refuse(mut self, reason: Reason, until_ms: u64) {
        self.over = true;
        self.object.refuse(self.id, reason, until_ms);
    }

    /// It is over; the id of its claim.
    pub(super) fn end(&mut self) -> u64 {
        self.over = true;
        self.id
    }

    /// The flight failed: its claim is given up. What it brought stays if others may bring the
    /// rest; else the object is not offered to anyone any more.
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

    /// Its claim is given up, and that is all: others may bring its bytes, or come to terms without.
    pub(in crate::store) fn put_down(mut self) {
        self.over = true;
        self.object.give_back(self.id);
    }

    /// Its claim is given up, which counts as no failure: those who wait for it ask anew. What it
    /// brought stays as for `fail`. An object without a head is retired: it is looked up again.
    pub fn give_back(mut self) {
        self.over = true;
        if !self.object.outlives_flights() {
            self.store.withdraw(self.table_key, &self.object);
        }
        self.object.give_back(self.id);
    }

    /// Takes from what was reserved. Before there was a head, the claim's last page was taken for
    /// the object's: where it is not, up to one page is lacking, and is charged in any case.
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
