//! The ways in which a landing adds bytes: copied from received data, received directly into pages, or as whole pages from a volume.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::io::ReadBuf;

use super::{Landing, Progress, WAKE_BYTES};
use crate::store::ledger::Charge;
use crate::store::object::Abandoned;
use crate::store::page::{PAGE, Page};
use crate::store::pages::{MissingPage, ToFill};
use crate::store::pass_through::WINDOW;
use crate::sys::buffer::Buffer;

/// A change of an object's weight in bytes: in one block, or in the object without its blocks.
type Weight = (Option<Range<u64>>, i64);

impl Landing {
    /// Adds bytes. Waits only if the store has no room, the object can't be fetched again, and the readers are too far back. `now_us` is
    /// the time on the clock of `Store::arrange`.
    ///
    /// # Errors
    ///
    /// The bytes can't be stored and have no reader, or there is no room for bytes that were not reserved.
    pub async fn write(&mut self, bytes: &[u8], now_us: u64) -> Result<Progress, Abandoned> {
        self.birth = None; // the head was checked against purges when it was set
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
            // SAFETY: only this landing has claimed these bytes, and they are published only afterwards. Claims are disjoint and `at` only
            // grows. A takeover may shorten this claim during the copy, but to `at + PAGE` at the least, and `take` is at most one page.
            unsafe { page.write(offset, now) };
            self.published(take, now_us)?;
            bytes = later;
        }
        match self.at < self.end {
            // More bytes than the declared length: the caller should have refused them.
            true if !bytes.is_empty() => Err(Abandoned),
            true => Ok(Progress::More),
            false => Ok(Progress::Done),
        }
    }

    /// Lets `fill` write the next bytes directly into the object's memory, at most up to the end of a page. Returns `None` if there is no
    /// room at the moment; `write` makes room. Otherwise returns the result of `fill`, and the progress if bytes were added.
    pub fn fill<T>(
        &mut self,
        now_us: impl FnOnce() -> u64,
        fill: impl FnOnce(&mut ReadBuf<'_>) -> T,
    ) -> Option<(T, Option<Result<Progress, Abandoned>>)> {
        let page = self.open_page()?;
        let offset = (self.at % PAGE) as usize;
        let len = (page.capacity() - offset).min((self.end - self.at) as usize);
        // SAFETY: as in `write`: only this landing has claimed these bytes, they are in one page, and they are published only afterwards.
        let mut room = ReadBuf::uninit(unsafe { page.room(offset, len) });
        let result = fill(&mut room);
        let came = room.filled().len() as u64;
        if came == 0 {
            return Some((result, None));
        }
        self.birth = None; // the head was checked against purges when it was set
        let progress = match self.published(came, now_us()) {
            Ok(()) if self.at < self.end => Ok(Progress::More),
            Ok(()) => Ok(Progress::Done),
            Err(abandoned) => Err(abandoned),
        };
        Some((result, Some(progress)))
    }

    /// Returns the page of the next bytes, if it exists or can be added without waiting.
    fn open_page(&mut self) -> Option<Arc<Page>> {
        if self.skip > 0 || self.passes_through || self.end == u64::MAX || self.at >= self.end {
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
            ToFill::Existing(page) => page,
            ToFill::Missing(lacking) => {
                let charge = self.reserved(lacking.cost)?;
                self.put(index, lacking, charge).ok()?
            }
        };
        Some(self.page.insert((index, page)).1.clone())
    }

    /// Publishes the next `bytes` bytes, which have been written to their page.
    fn published(&mut self, bytes: u64, now_us: u64) -> Result<(), Abandoned> {
        let published = self.object.publish(self.id, self.at, bytes, now_us);
        self.at += bytes;
        self.ends_at(published.ok_or(Abandoned)?);
        self.enqueue_writes(false);
        self.unannounced += bytes;
        if self.unannounced >= WAKE_BYTES {
            self.announce();
        }
        Ok(())
    }

    /// Adds whole pages, beginning with the page that contains `at`. Their memory becomes part of the object without a copy, unless the
    /// object has the page already.
    ///
    /// # Errors
    ///
    /// The object has no use for the bytes any more.
    pub(in crate::store) fn take_in(
        &mut self,
        pages: Vec<Buffer>,
        now_us: u64,
    ) -> Result<(), Abandoned> {
        self.birth = None;
        let mut weights: SmallVec<[Weight; 1]> = SmallVec::new();
        let taken = pages.into_iter().try_for_each(|page| {
            let weight = self.take_page(page, now_us)?;
            match (weights.last_mut(), weight) {
                (_, None) => {}
                (Some((block, sum)), Some((of, more))) if *block == of => *sum += more,
                (_, Some(weight)) => weights.push(weight),
            }
            Ok(())
        });
        for (block, by) in weights {
            self.weigh(block, by);
        }
        self.announce();
        taken
    }

    /// Adds one page. If the object has a new page now, returns the change of weight.
    fn take_page(&mut self, buffer: Buffer, now_us: u64) -> Result<Option<Weight>, Abandoned> {
        let (index, offset) = (self.at / PAGE, (self.at % PAGE) as usize);
        let (found, end) = self.object.to_fill(self.id, index);
        self.ends_at(end.min(self.end));
        let filled = buffer.filled().len();
        let upto = (index * PAGE + filled as u64).min(self.end);
        let Some(len) = upto.checked_sub(self.at).filter(|len| *len > 0) else {
            return Ok(None);
        };
        let page = match found {
            ToFill::Full => return Err(Abandoned),
            ToFill::Existing(page) => page,
            ToFill::Missing(lacking) => {
                let charge = self.reserved(lacking.cost).ok_or(Abandoned)?;
                // The page's memory becomes part of the object only if the whole page was claimed.
                if len == lacking.capacity && offset == 0 {
                    let weight = (lacking.block, lacking.cost as i64);
                    let page = Page::filled(buffer, charge);
                    let passing = self.object.put_page(index, page).ok_or(Abandoned)?;
                    let weight = (!passing).then_some(weight);
                    return self.took(len, now_us).map(|()| weight);
                }
                self.put(index, lacking, charge)?
            }
        };
        let from = &buffer.filled()[offset..offset + len as usize];
        // SAFETY: as in `write`: only this landing has claimed these bytes, at most a page of them from `at` on, and they are published
        // only afterwards.
        unsafe { page.write(offset, from) };
        self.took(len, now_us).map(|()| None)
    }

    fn took(&mut self, len: u64, now_us: u64) -> Result<(), Abandoned> {
        let published = self.object.publish(self.id, self.at, len, now_us);
        self.at += len;
        self.unannounced += len;
        self.ends_at(published.ok_or(Abandoned)?);
        Ok(())
    }

    /// Wakes the readers; called before the flight waits for more bytes.
    pub fn announce(&mut self) {
        if self.unannounced > 0 {
            self.unannounced = 0;
            self.object.announce();
        }
    }

    /// Queues the added bytes for volumes once they are a whole block or the end of the content.
    pub(super) fn enqueue_writes(&mut self, landed: bool) {
        let Some(block) = self.write_block else {
            return;
        };
        let from = self.enqueued_upto;
        if landed || self.at / block > from / block || self.at >= self.end {
            self.enqueued_upto = self.at;
            self.store
                .enqueue_writes(self.table_key, &self.object, from..self.at);
        }
    }

    /// Returns the page to write to, and adds it if necessary; `None` if the claim turns out to end here.
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
            ToFill::Existing(page) => page,
            ToFill::Full => return Err(Abandoned),
            ToFill::Missing(lacking) => self.new_page(index, lacking).await?,
        };
        self.page = Some((index, page.clone()));
        Ok(Some(page))
    }

    async fn new_page(&mut self, index: u64, lacking: MissingPage) -> Result<Arc<Page>, Abandoned> {
        let charge = self.room(lacking.cost).await?;
        self.put(index, lacking, charge)
    }

    fn put(
        &mut self,
        index: u64,
        lacking: MissingPage,
        charge: Charge,
    ) -> Result<Arc<Page>, Abandoned> {
        let page = Page::new(lacking.capacity as usize, charge);
        let (page, ours) = self.object.add_page(index, page).ok_or(Abandoned)?;
        if ours && !self.passes_through {
            // The eviction policy learns of the page only now. Its block can't be evicted before, since the claim overlaps the block.
            self.weigh(lacking.block, lacking.cost as i64);
        }
        Ok(page)
    }

    /// Returns memory for one page: reserved before, charged now, or as part of the pass-through window.
    async fn room(&mut self, bytes: u64) -> Result<Charge, Abandoned> {
        if let Some(charge) = self.reserved(bytes) {
            return Ok(charge);
        }
        let again = self.object.lock().joinable;
        if !self.passes_through {
            let small = again || self.at + bytes <= self.store.object_max();
            if let Some(charge) = small.then(|| self.store.make_room(bytes)).flatten() {
                return Ok(charge);
            }
            if again {
                return Err(Abandoned);
            }
            // From here on the object passes through: it leaves the table, so that no request can join it.
            self.passes_through = true;
            self.store.withdraw(self.table_key, &self.object);
            self.store.drop_replaced(self.table_key, &self.object);
            self.object.begin_pass_through();
        }
        self.announce();
        poll_fn(|cx| {
            // If the ledger is full, a flight that passes through gets only one page at a time.
            let ledger = &self.store.ledger;
            let window = match ledger.used() < ledger.limit() {
                true => WINDOW,
                false => PAGE,
            };
            self.object.poll_pass_through(self.at, window, cx)
        })
        .await?;
        Ok(self.store.ledger.charge_anyway(bytes))
    }

    /// Copies the last page's bytes into memory of their size, if the page is much larger. Returns the copy.
    pub(super) fn shrunk_tail(&self) -> Option<bytes::Bytes> {
        let start = self.at.checked_sub(1)? / PAGE * PAGE;
        let used = self.at - start;
        let capacity = self.page.as_ref()?.1.capacity() as u64;
        if self.passes_through || Page::footprint(used) * 5 / 4 > capacity {
            return None;
        }
        let bytes = self.object.slice(start, self.at)?;
        let charge = self.store.ledger.charge_anyway(Page::footprint(used));
        let less = Page::footprint(capacity) - charge.bytes();
        let page = Page::new(used as usize, charge);
        self.weigh(None, -(less as i64));
        // SAFETY: nobody else has this page yet, and its bytes are written once before they are sliced.
        unsafe {
            page.write(0, &bytes);
            Some(page.slice(0, bytes.len()))
        }
    }
}
