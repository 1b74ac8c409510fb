//! A flight's end at the store: takes bytes in, finds room for them, tells the readers.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::head::Head;
use super::ledger::Charge;
use super::object::{Abandoned, Failure, Object};
use super::page::{PAGE, Page};
use super::window::WINDOW;
use super::{Place, Store};

/// Readers are woken once per this much progress, and whenever the flight pauses.
const ANNOUNCE: u64 = 64 << 10;

/// Brings one object's bytes from one place on. The only writer of what it has claimed. Dropped
/// without `land` or `fail`, it fails as abandoned, so that nobody waits for ever.
pub struct Landing {
    store: Arc<Store>,
    object: Arc<Object>,
    place: Place,
    id: u64,
    at: u64,
    end: Option<u64>,
    page: Option<(u64, Arc<Page>)>,
    reserved: Option<Charge>,
    unannounced: u64,
    windowed: bool,
    over: bool,
}

impl Landing {
    pub(super) fn new(store: Arc<Store>, object: Arc<Object>, place: Place) -> Landing {
        let id = store.next_flight.fetch_add(1, Ordering::Relaxed);
        object.claim(id, 0, None);
        Landing {
            store,
            object,
            place,
            id,
            at: 0,
            end: None,
            page: None,
            reserved: None,
            unannounced: 0,
            windowed: false,
            over: false,
        }
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

    /// Makes the head known. Riders wake.
    pub fn open(&self, head: Arc<Head>, charge: Charge) {
        self.store.grew(self.place, &self.object, charge.bytes());
        self.object.open(head, charge);
    }

    /// Makes room for all of a body of known length, so that the fill can't get stuck in the
    /// middle.
    ///
    /// # Errors
    /// The word for why there is none; then the response can't be shared.
    pub fn reserve(&mut self, length: u64) -> Result<(), &'static str> {
        self.end = Some(length);
        if length > self.store.object_max() {
            return Err("too-large");
        }
        let footprint = (length / PAGE) * Page::footprint(PAGE) + last_page(length);
        let reserved = self.store.make_room(footprint).ok_or("no-room")?;
        self.reserved = Some(reserved);
        self.store.grew(self.place, &self.object, footprint);
        Ok(())
    }

    /// Takes bytes in; waits only where the store has no room and the readers are behind. An error
    /// when nobody reads what can't be kept.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Abandoned> {
        while !bytes.is_empty() {
            let (index, offset) = (self.at / PAGE, (self.at % PAGE) as usize);
            let page = self.page(index).await?;
            let take = bytes.len().min(page.capacity().saturating_sub(offset));
            if take == 0 {
                return Err(Abandoned); // more bytes than the declared length: the caller's check failed
            }
            let (now, later) = bytes.split_at(take);
            // SAFETY: this landing alone claimed these bytes (claims are disjoint, `at` only
            // grows), and they are published only afterwards.
            unsafe { page.write(offset, now) };
            self.object.publish(self.id, self.at, take as u64);
            self.at += take as u64;
            self.unannounced += take as u64;
            if self.unannounced >= ANNOUNCE {
                self.announce();
            }
            bytes = later;
        }
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
        self.over = true;
        if self.end.is_some_and(|end| end != self.at) {
            return self.give_up(Arc::new(Abandoned));
        }
        let tail = self.end.is_none().then(|| self.shrunk_tail()).flatten();
        self.object.land(self.id, tail);
        self.reserved = None;
    }

    /// The response can't be shared: until then (Unix ms) requests for this key go forward on
    /// their own, without waiting for one another.
    pub fn refuse(mut self, word: &'static str, until_ms: u64) {
        self.over = true;
        self.object.refuse(self.id, word, until_ms);
    }

    /// The flight failed: the object is not offered to anyone any more, and readers get the
    /// failure where the bytes end.
    pub fn fail(mut self, failure: Failure) {
        self.give_up(failure);
    }

    fn give_up(&mut self, failure: Failure) {
        self.over = true;
        self.store.withdraw(self.place, &self.object);
        self.object.fail(self.id, failure);
    }

    /// The page to write to, a new one if need be.
    async fn page(&mut self, index: u64) -> Result<Arc<Page>, Abandoned> {
        match &self.page {
            Some((at, page)) if *at == index => return Ok(page.clone()),
            _ => {}
        }
        let page = match self.object.filling(index) {
            Some(page) => page,
            None => {
                let capacity = self
                    .end
                    .map_or(PAGE, |end| end.saturating_sub(index * PAGE).clamp(1, PAGE));
                let charge = self.room(Page::footprint(capacity)).await?;
                let page = Page::new(capacity as usize, charge);
                self.object.add_page(index, page)
            }
        };
        self.page = Some((index, page.clone()));
        Ok(page)
    }

    /// Room for one page: reserved before, made now, or within the window that readers open.
    async fn room(&mut self, bytes: u64) -> Result<Charge, Abandoned> {
        if let Some(charge) = self.reserved.as_mut().and_then(|all| all.split(bytes)) {
            return Ok(charge);
        }
        if !self.windowed {
            let small = self.at + bytes <= self.store.object_max();
            if let Some(charge) = small.then(|| self.store.make_room(bytes)).flatten() {
                self.store.grew(self.place, &self.object, bytes);
                return Ok(charge);
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
        let page = Page::new(used as usize, charge);
        // SAFETY: nobody else has this page yet, and it is written once before it is sliced.
        unsafe {
            page.write(0, &bytes);
            Some(page.slice(0, bytes.len()))
        }
    }
}

/// Footprint of the last, partly used page of a body of this length.
fn last_page(length: u64) -> u64 {
    match length % PAGE {
        0 => 0,
        rest => Page::footprint(rest),
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        if !self.over {
            self.give_up(Arc::new(Abandoned));
        }
    }
}
