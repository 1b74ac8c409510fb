//! The histogram that one worker writes: counters per bucket, in pages that are allocated at their first use.

use super::buckets::{PAGE, PAGES, bucket_of};
use super::counter::Counter;
use super::histogram::Histogram;
use crate::sys::once_box::OnceBox;

/// The counters of the buckets of one power of two.
type Page = [Counter; PAGE];

/// The pages of a histogram.
type Table = [OnceBox<Page>; PAGES];

/// Most memory that one histogram allocates, in bytes.
pub(super) const BYTES_MAX: usize = size_of::<Table>() + PAGES * size_of::<Page>();

/// A histogram that one worker writes and any thread reads. A page is allocated when the first value falls into it, and
/// stays. After that, counting allocates nothing.
#[derive(Default)]
pub struct HistogramCounters {
    table: OnceBox<Table>,
    sum: Counter,
}

impl HistogramCounters {
    /// Counts a value. Only the owning worker may call this, as with `Counter::add`.
    #[inline]
    pub fn record(&self, value: u64) {
        let bucket = bucket_of(value);
        let page = self
            .table
            .get()
            .and_then(|table| table[bucket / PAGE].get());
        let page = match page {
            Some(page) => page,
            None => self.allocate(bucket / PAGE),
        };
        page[bucket % PAGE].add(1);
        self.sum.add(value);
    }

    #[cold]
    fn allocate(&self, page: usize) -> &Page {
        let table = self
            .table
            .get_or_create(|| std::array::from_fn(|_| OnceBox::default()));
        table[page].get_or_create(|| std::array::from_fn(|_| Counter::default()))
    }

    /// Returns the current values.
    pub fn values(&self) -> Histogram {
        let mut values = Histogram::default();
        let tables = self.table.get().into_iter().flatten();
        for (number, page) in tables.enumerate() {
            for (at, counter) in page.get().into_iter().flatten().enumerate() {
                values.push(number * PAGE + at, counter.get());
            }
        }
        values.sum = self.sum.get();
        values
    }
}
