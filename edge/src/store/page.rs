//! A page: up to 64 KiB of an object's bytes. Each byte is written once, while other bytes of the page may be read.

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use bytes::Bytes;

use super::ledger::Charge;
use crate::sys::buffer::Buffer;

/// Size in bytes of the range of an object that a page covers.
pub const PAGE: u64 = 64 << 10;

/// Size in bytes of a page's own structure and of the view that readers share, added to each page's charge.
const BOOKKEEPING: u64 = 128;

/// Size in bytes of a page's entry in the object's list of pages, added to the charge of full pages.
const SLOT_BYTES: u64 = 112;

/// Uninitialised memory for the bytes of one page, with its charge on the ledger. The charge lasts as long as any reader or flight holds
/// the page.
pub struct Page {
    memory: NonNull<u8>,
    capacity: usize,
    _charge: Charge,
}

// SAFETY: `memory` is owned by this value alone and is accessed only through `write` and `slice`. Their contracts (disjoint writes; reads
// only of bytes that were written before, ordered by the object's lock) exclude data races.
unsafe impl Send for Page {}
// SAFETY: `write` and `slice` are the only accesses to `memory`; their contracts (disjoint writes; reads only of bytes written before)
// exclude data races between threads.
unsafe impl Sync for Page {}

impl Page {
    /// Returns the memory that a page of `bytes` takes from the allocator. The allocator has four size classes per doubling, and the page's
    /// structure and view are allocations of their own. Charging less would let the process exceed its configured memory.
    pub fn footprint(bytes: u64) -> u64 {
        let bytes = bytes.max(64);
        let step = (bytes.next_power_of_two() / 8).max(16);
        let slot = if bytes < PAGE { 0 } else { SLOT_BYTES };
        bytes.next_multiple_of(step) + BOOKKEEPING + slot
    }

    /// Creates a page of `capacity` bytes, at least 1, charged with `footprint(capacity)`.
    pub fn new(capacity: usize, charge: Charge) -> Arc<Page> {
        Page::of(Buffer::new(capacity), charge)
    }

    /// Creates a page in the memory of `buffer`, charged with its footprint.
    fn of(buffer: Buffer, charge: Charge) -> Arc<Page> {
        let (memory, capacity, _) = buffer.into_parts();
        Arc::new(Page {
            memory,
            capacity,
            _charge: charge,
        })
    }

    /// Returns the filled part of a buffer as a shared view of a page.
    pub fn filled(buffer: Buffer, charge: Charge) -> Bytes {
        let filled = buffer.filled().len();
        let page = Page::of(buffer, charge);
        // SAFETY: these bytes were written before (contract of `Buffer`). This function has the
        // only reference to the page, so they are never written again.
        unsafe { page.slice(0, filled) }
    }

    /// Number of bytes that fit into the page.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Copies `bytes` to offset `at`.
    ///
    /// # Safety
    /// No other `write` to any of these bytes may run at the same time, and none of them may have
    /// been given to `slice` yet.
    pub unsafe fn write(&self, at: usize, bytes: &[u8]) {
        assert!(
            at.checked_add(bytes.len())
                .is_some_and(|end| end <= self.capacity),
            "a write stays within its page"
        );
        // SAFETY: the target is within the allocation (asserted), nobody else writes or reads it
        // (this function's contract), and `bytes` can't overlap memory that has no reference to it.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                self.memory.as_ptr().add(at),
                bytes.len(),
            );
        }
    }

    /// Returns the memory of bytes `at..at + len`, to be written.
    ///
    /// # Safety
    ///
    /// The contract of `write` applies for as long as the returned slice exists.
    #[expect(
        clippy::mut_from_ref,
        reason = "nobody else has these bytes: the contract says so"
    )]
    pub unsafe fn room(&self, at: usize, len: usize) -> &mut [MaybeUninit<u8>] {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= self.capacity),
            "room is within its page"
        );
        // SAFETY: the slice is within the allocation (asserted), and nobody else reads or writes it (this function's contract).
        // `MaybeUninit` permits bytes that are not initialised.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(at).cast(), len) }
    }

    /// Returns the bytes `start..end` as a shared view that keeps the page alive.
    ///
    /// # Safety
    ///
    /// All these bytes must have been written, in an order that this thread sees (through a lock), and must never be written again.
    pub unsafe fn slice(self: &Arc<Page>, start: usize, end: usize) -> Bytes {
        assert!(
            start <= end && end <= self.capacity,
            "a slice stays within its page"
        );
        Bytes::from_owner(View {
            page: self.clone(),
            start,
            end,
        })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: these are the values that `into_parts` returned in `of`, used once; no byte
        // counts as filled.
        drop(unsafe { Buffer::from_parts(self.memory, self.capacity, 0) });
    }
}

/// A view of written bytes of a page; only `Page::slice` creates views.
struct View {
    page: Arc<Page>,
    start: usize,
    end: usize,
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range is within the allocation (asserted in `slice`), initialised and never written again (contract of `slice`). The
        // `Arc` keeps the memory for as long as the view lives.
        unsafe {
            std::slice::from_raw_parts(
                self.page.memory.as_ptr().add(self.start),
                self.end - self.start,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Ledger;
    use super::*;

    #[test]
    fn a_view_keeps_the_page_and_its_charge() {
        let ledger = Ledger::new(1000);
        let page = Page::new(10, ledger.try_charge(Page::footprint(10)).expect("room"));
        // SAFETY: there is a single thread, and each byte is written once before it is sliced.
        let view = unsafe {
            page.write(2, b"abc");
            page.slice(2, 5)
        };
        drop(page);
        assert_eq!(&view[..], b"abc");
        assert!(ledger.used() > 0);
        drop(view);
        assert_eq!(ledger.used(), 0);
    }

    #[test]
    fn footprints_cover_the_bytes_with_at_most_a_quarter_more() {
        for bytes in (1..200_000).step_by(7) {
            let footprint = Page::footprint(bytes);
            assert!(footprint >= bytes + BOOKKEEPING);
            assert!(footprint <= bytes.max(64) * 5 / 4 + 16 + BOOKKEEPING + SLOT_BYTES);
        }
        assert_eq!(Page::footprint(PAGE), PAGE + BOOKKEEPING + SLOT_BYTES);
    }
}
