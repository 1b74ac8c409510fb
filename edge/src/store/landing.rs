//! A flight's end at the store: takes bytes in, finds room for them, tells the readers.

use std::future::poll_fn;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use tokio::io::ReadBuf;

use super::claims::{Claim, NotOurs};
use super::head::Head;
use super::ledger::Charge;
use super::object::{Abandoned, Failure, Object};
use super::page::{PAGE, Page};
use super::pages::{Lacking, ToFill};
use super::purges::Birth;
use super::window::WINDOW;
use super::{Locked, Place, Store};
use crate::sys::buffer::Buffer;

/// Readers are woken once per this much progress, and whenever the flight pauses.
const ANNOUNCE: u64 = 64 << 10;

/// Brings an object's bytes from one place on. The only writer of what it has claimed. Dropped
/// without `land` or `fail`, it fails as abandoned, so that nobody waits for ever.
pub struct Landing {
    store: Arc<Store>,
    object: Arc<Object>,
    place: Place,
    id: u64,
    at: u64,
    /// Where the claim ended when it was last looked at; it may have been cut since.
    end: u64,
    /// Bytes of the response that come before the claim.
    skip: u64,
    page: Option<(u64, Arc<Page>)>,
    reserve: Option<Reserve>,
    unannounced: u64,
    windowed: bool,
    over: bool,
    born_seq: u64,
    /// As long as its head may have to be checked against purges.
    birth: Option<Birth>,
    /// What comes is handed over to volumes in pieces of so many bytes, if at all.
    kept_block: Option<u64>,
    /// All before this was.
    kept_upto: u64,
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
        place: Place,
        claim: &Claim,
        birth: Birth,
    ) -> Landing {
        Landing {
            store,
            object,
            place,
            id: claim.id,
            at: claim.at,
            end: claim.end,
            skip: 0,
            page: None,
            reserve: None,
            unannounced: 0,
            windowed: false,
            over: false,
            born_seq: birth.seq,
            birth: Some(birth),
            kept_block: None,
            kept_upto: claim.at,
        }
    }

    /// What it brings is to be kept on volumes.
    pub(super) fn keeping(mut self, block: Option<NonZeroU32>) -> Landing {
        self.kept_block = block.map(|block| u64::from(block.get()));
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
    pub fn place(&self) -> Place {
        self.place
    }

    /// Its object was filed under another variant.
    pub fn set_place(&mut self, place: Place) {
        self.place = place;
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
        let keep = self.store.keeps(&self.object, self.place, &head);
        // With the shard locked, so that nobody who looked it up without a head meets this one
        // before it was checked against purges.
        let open = |_: &mut Locked<'_>| self.object.open(head, charge, block, keep);
        self.store.enter(self.place.primary, open).wake();
    }

    /// Puts the head of a later response of the same version in the place of the one that is there
    /// (RFC 9111 3.4).
    pub fn renew(&self, head: Arc<Head>, charge: Charge) {
        self.store.renew(self.place, &self.object, head, charge);
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
        self.kept_upto = met.start;
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
    /// The word for why there is none.
    pub fn reserve(&mut self) -> Result<(), &'static str> {
        if !self.store.holds(self.place, &self.object) {
            // Out of the table it can't be evicted: its readers carry it along with them.
            self.store.shed(self.place, &self.object, u64::MAX, true);
        }
        let more = match self.unreserved() {
            0 => self.store.ledger.charge_anyway(0),
            lacking => self.store.make_room(lacking).ok_or("no-room")?,
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
            self.store.shed(self.place, &self.object, lacking, false);
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

    /// Takes bytes in; waits only where the store has no room, the object can't be had again, and
    /// the readers are behind. `now_us` as for `Store::arrange`.
    ///
    /// # Errors
    /// Nobody reads what can't be kept, or there is no room for what was not reserved.
    pub async fn write(&mut self, bytes: &[u8], now_us: u64) -> Result<Progress, Abandoned> {
        self.birth = None; // its head is where it belongs
        let skipped = self.skip.min(bytes.len() as u64);
        self.skip -= skipped;
        let mut bytes = &bytes[skipped as usize..];
        while !bytes.is_empty() && self.at < self.end {
            let (index, offset) = (self.at / PAGE, (self.at % PAGE) as usize);
            let Some(page) = self.page(index).await? else {
                break;
            };
            let room = (page.capacity() as u64).saturating_sub(offset as u64);
            let take = room.min(self.end - self.at).min(bytes.len() as u64);
            if take == 0 {
                break;
            }
            let (now, later) = bytes.split_at(take as usize);
            // SAFETY: this landing alone claimed these bytes, and they are published only
            // afterwards. Claims are disjoint and `at` only grows. Others may cut this claim while
            // it copies, but to `at + PAGE` at the earliest, and `take` is at most one page.
            unsafe { page.write(offset, now) };
            self.published(take, now_us)?;
            bytes = later;
        }
        match self.at < self.end {
            // More bytes than the declared length: the caller's check failed.
            true if !bytes.is_empty() => Err(Abandoned),
            true => Ok(Progress::More),
            false => Ok(Progress::Done),
        }
    }

    /// Has `fill` put the next bytes straight into the object's memory, as many as it has and as
    /// there is room for in one page. `None` where there is no such room just now: `write` makes
    /// some. Then what `fill` gave, and how far the flight is if bytes came.
    pub fn fill<T>(
        &mut self,
        now_us: impl FnOnce() -> u64,
        fill: impl FnOnce(&mut ReadBuf<'_>) -> T,
    ) -> Option<(T, Option<Result<Progress, Abandoned>>)> {
        let page = self.page_at_hand()?;
        let offset = (self.at % PAGE) as usize;
        let len = (page.capacity() - offset).min((self.end - self.at) as usize);
        // SAFETY: as in `write`: this landing alone claimed these bytes, they are in one page, and
        // they are published only afterwards.
        let mut room = ReadBuf::uninit(unsafe { page.room(offset, len) });
        let given = fill(&mut room);
        let came = room.filled().len() as u64;
        if came == 0 {
            return Some((given, None));
        }
        self.birth = None; // its head is where it belongs
        let progress = match self.published(came, now_us()) {
            Ok(()) if self.at < self.end => Ok(Progress::More),
            Ok(()) => Ok(Progress::Done),
            Err(abandoned) => Err(abandoned),
        };
        Some((given, Some(progress)))
    }

    /// The page that the next bytes belong to, if it is there, or can be had without waiting.
    fn page_at_hand(&mut self) -> Option<Arc<Page>> {
        if self.skip > 0 || self.windowed || self.end == u64::MAX || self.at >= self.end {
            return None;
        }
        let index = self.at / PAGE;
        if let Some((_, page)) = self.page.as_ref().filter(|(at, _)| *at == index) {
            return Some(page.clone());
        }
        let (found, end) = self.object.to_fill(self.id, index);
        self.ends_at(end.min(self.end));
        let page = match found {
            _ if self.at >= self.end => return None,
            ToFill::Full => return None,
            ToFill::There(page) => page,
            ToFill::Lacking(lacking) => {
                let charge = self.reserved(lacking.cost)?;
                self.put(index, lacking, charge).ok()?
            }
        };
        Some(self.page.insert((index, page)).1.clone())
    }

    /// So many bytes from `at` on are in their page: readers may have them.
    fn published(&mut self, bytes: u64, now_us: u64) -> Result<(), Abandoned> {
        let published = self.object.publish(self.id, self.at, bytes, now_us);
        self.at += bytes;
        self.ends_at(published.ok_or(Abandoned)?);
        self.keep(false);
        self.unannounced += bytes;
        if self.unannounced >= ANNOUNCE {
            self.announce();
        }
        Ok(())
    }

    /// Takes whole pages in, from the page on in which it is: they become the object's without being
    /// copied, but where there is one already.
    ///
    /// # Errors
    /// Nobody wants them any more.
    pub(super) fn take_in(&mut self, pages: Vec<Buffer>, now_us: u64) -> Result<(), Abandoned> {
        self.birth = None;
        let mut weights: Option<(Option<Range<u64>>, i64)> = None;
        for buffer in pages {
            let (index, offset) = (self.at / PAGE, (self.at % PAGE) as usize);
            let (found, end) = self.object.to_fill(self.id, index);
            self.ends_at(end.min(self.end));
            let upto = (index * PAGE + buffer.filled().len() as u64).min(self.end);
            if self.at >= upto {
                break;
            }
            let len = upto - self.at;
            match found {
                ToFill::Full => return Err(Abandoned),
                ToFill::There(page) => {
                    let from = &buffer.filled()[offset..offset + len as usize];
                    // SAFETY: as in `write`: this landing alone claimed these bytes, at most a page
                    // of them from `at` on, and they are published only afterwards.
                    unsafe { page.write(offset, from) };
                }
                ToFill::Lacking(lacking) => {
                    let charge = self.reserved(lacking.cost).ok_or(Abandoned)?;
                    let bytes = Page::filled(buffer, charge);
                    if !self.object.put_page(index, bytes) {
                        return Err(Abandoned);
                    }
                    let weight = lacking.cost as i64;
                    match &mut weights {
                        Some((block, sum)) if *block == lacking.block => *sum += weight,
                        _ => {
                            if let Some((block, sum)) = weights.replace((lacking.block, weight)) {
                                self.weigh(block, sum);
                            }
                        }
                    }
                }
            }
            let published = self.object.publish(self.id, self.at, len, now_us);
            self.at += len;
            self.unannounced += len;
            self.ends_at(published.ok_or(Abandoned)?);
        }
        if let Some((block, sum)) = weights {
            self.weigh(block, sum);
        }
        self.announce();
        Ok(())
    }

    /// Tells the readers of what has come: before the flight waits for more.
    pub fn announce(&mut self) {
        if self.unannounced > 0 {
            self.unannounced = 0;
            self.object.announce();
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
        self.keep(true);
    }

    /// Has volumes keep what came, as soon as that is a whole block or all there is.
    fn keep(&mut self, landed: bool) {
        let Some(block) = self.kept_block else {
            return;
        };
        let from = self.kept_upto;
        if landed || self.at / block > from / block || self.at >= self.end {
            self.kept_upto = self.at;
            self.store.keep(self.place, &self.object, from..self.at);
        }
    }

    /// The response can't be shared: until then (Unix ms) requests for this key go forward on
    /// their own, without waiting for one another. For the first flight of an object.
    pub fn refuse(mut self, word: &'static str, until_ms: u64) {
        self.over = true;
        self.object.refuse(self.id, word, until_ms);
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
            self.store.withdraw(self.place, &self.object);
        }
        self.object.fail(self.id, failure);
    }

    /// Its claim is given up, which counts as no failure: those who wait for it ask anew. What it
    /// brought stays as for `fail`. An object without a head is retired: it is looked up again.
    pub fn give_back(mut self) {
        self.over = true;
        if !self.object.outlives_flights() {
            self.store.withdraw(self.place, &self.object);
        }
        self.object.give_back(self.id);
    }

    /// The page to write to, a new one if need be; `None` if the claim turns out to end here.
    async fn page(&mut self, index: u64) -> Result<Option<Arc<Page>>, Abandoned> {
        match &self.page {
            Some((at, page)) if *at == index => return Ok(Some(page.clone())),
            _ => {}
        }
        let (found, end) = self.object.to_fill(self.id, index);
        self.ends_at(end.min(self.end));
        if self.at >= self.end {
            return Ok(None);
        }
        let page = match found {
            ToFill::There(page) => page,
            ToFill::Full => return Err(Abandoned),
            ToFill::Lacking(lacking) => self.new_page(index, lacking).await?,
        };
        self.page = Some((index, page.clone()));
        Ok(Some(page))
    }

    async fn new_page(&mut self, index: u64, lacking: Lacking) -> Result<Arc<Page>, Abandoned> {
        let charge = self.room(lacking.cost).await?;
        self.put(index, lacking, charge)
    }

    fn put(
        &mut self,
        index: u64,
        lacking: Lacking,
        charge: Charge,
    ) -> Result<Arc<Page>, Abandoned> {
        let page = Page::new(lacking.capacity as usize, charge);
        let (page, ours) = self.object.add_page(index, page).ok_or(Abandoned)?;
        if ours && !self.windowed {
            // Until this is told the block can't be evicted: the claim meets it.
            self.weigh(lacking.block, lacking.cost as i64);
        }
        Ok(page)
    }

    /// Room for one page: reserved before, made now, or within the window that readers open.
    async fn room(&mut self, bytes: u64) -> Result<Charge, Abandoned> {
        if let Some(charge) = self.reserved(bytes) {
            return Ok(charge);
        }
        let again = self.object.lock().joinable;
        if !self.windowed {
            let small = again || self.at + bytes <= self.store.object_max();
            if let Some(charge) = small.then(|| self.store.make_room(bytes)).flatten() {
                return Ok(charge);
            }
            if again {
                return Err(Abandoned);
            }
            // From here on the bytes only pass through: nobody may join any more.
            self.windowed = true;
            self.store.withdraw(self.place, &self.object);
            self.object.make_windowed();
        }
        self.announce();
        poll_fn(|cx| {
            // With the ledger full, each such flight has one page and no more.
            let ledger = &self.store.ledger;
            let window = match ledger.used() < ledger.limit() {
                true => WINDOW,
                false => PAGE,
            };
            self.object.poll_window(self.at, window, cx)
        })
        .await?;
        Ok(self.store.ledger.charge_anyway(bytes))
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

    /// The last page's bytes in memory of their size, where the page is much too large.
    fn shrunk_tail(&self) -> Option<bytes::Bytes> {
        let start = self.at.checked_sub(1)? / PAGE * PAGE;
        let used = self.at - start;
        let capacity = self.page.as_ref()?.1.capacity() as u64;
        if self.windowed || Page::footprint(used) * 5 / 4 > capacity {
            return None;
        }
        let bytes = self.object.slice(start, self.at)?;
        let charge = self.store.ledger.charge_anyway(Page::footprint(used));
        let less = Page::footprint(capacity) - charge.bytes();
        let page = Page::new(used as usize, charge);
        self.weigh(None, -(less as i64));
        // SAFETY: nobody else has this page yet, and it is written once before it is sliced.
        unsafe {
            page.write(0, &bytes);
            Some(page.slice(0, bytes.len()))
        }
    }

    fn weigh(&self, block: Option<Range<u64>>, by: i64) {
        self.store.weigh(self.place, &self.object, block, by);
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if !self.over {
            self.give_up(Arc::new(Abandoned));
        }
    }
}
