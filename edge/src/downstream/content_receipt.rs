//! Reports to the handlers how much of the content of their responses the client has received.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::handler::Receipt;

/// Number of bytes that are written before the client's acknowledgements are read again.
const CHECK_BYTES: u64 = 256 << 10;
/// Most contents per connection whose acknowledgements are awaited. Further ones displace the
/// oldest, whose remaining bytes are never reported as received.
const PENDING_MAX: usize = 64;

/// The contents that were written to one connection, of which handlers want to know how much the
/// client has received. A client that pipelines requests may have several contents in the send
/// buffer.
#[derive(Default)]
pub struct ContentReceipts {
    /// The contents in the order of their bytes on the connection. Only the last one may still be
    /// written.
    pending: VecDeque<ContentReceipt>,
    /// Bytes written since the acknowledgements were last read.
    unchecked: u64,
}

/// The content of one response, or of several successive ones with the same receipt.
struct ContentReceipt {
    receipt: Arc<dyn Receipt>,
    /// Bytes that are written to the connection before the content. Bytes between two contents of
    /// one receipt count as written before both, so that at no time too many bytes are reported.
    begins_at: u64,
    /// Bytes of content that were written to the connection.
    written: u64,
    /// Bytes of these that belong to earlier responses.
    earlier: u64,
    reported: u64,
}

impl ContentReceipts {
    /// Begins a content before which `begins_at` bytes are written to the connection.
    pub fn begin(&mut self, receipt: Arc<dyn Receipt>, begins_at: u64) {
        match self.pending.back_mut() {
            Some(last) if Arc::ptr_eq(&last.receipt, &receipt) => {
                last.begins_at = begins_at.saturating_sub(last.written);
                last.earlier = last.written;
            }
            _ => {
                if self.pending.len() == PENDING_MAX {
                    self.pending.pop_front();
                }
                self.pending.push_back(ContentReceipt {
                    receipt,
                    begins_at,
                    written: 0,
                    earlier: 0,
                    reported: 0,
                });
            }
        }
    }

    /// Notes the number of bytes of the last content that were written so far, and reports received
    /// bytes if many were written since the last report. `acknowledged` as for `report`.
    pub fn wrote(&mut self, bytes: u64, acknowledged: impl FnOnce() -> Option<u64>) {
        let Some(last) = self.pending.back_mut() else {
            return;
        };
        let written = last.earlier + bytes;
        self.unchecked += written.saturating_sub(last.written);
        last.written = written;
        if self.unchecked >= CHECK_BYTES {
            self.report(acknowledged);
        }
    }

    /// Reports the bytes that the client has received since the last report. `acknowledged` returns
    /// the bytes that the client has acknowledged since the connection began. If the transport does
    /// not know that number, all written bytes count as received.
    pub fn report(&mut self, acknowledged: impl FnOnce() -> Option<u64>) {
        self.unchecked = 0;
        if self.is_reported() {
            return;
        }
        let acknowledged = acknowledged();
        for content in &mut self.pending {
            content.report(acknowledged);
        }
        // The last content may still be written.
        while self.pending.len() > 1
            && self
                .pending
                .front()
                .is_some_and(ContentReceipt::is_reported)
        {
            self.pending.pop_front();
        }
    }

    /// Whether all written bytes have been reported.
    pub fn is_reported(&self) -> bool {
        self.pending.iter().all(ContentReceipt::is_reported)
    }
}

impl ContentReceipt {
    fn report(&mut self, acknowledged: Option<u64>) {
        let received = match acknowledged {
            Some(bytes) => self.written.min(bytes.saturating_sub(self.begins_at)),
            None => self.written,
        };
        if received > self.reported {
            self.receipt.received(received - self.reported);
            self.reported = received;
        }
    }

    fn is_reported(&self) -> bool {
        self.reported >= self.written
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Sum(AtomicU64);

    impl Receipt for Sum {
        fn received(&self, bytes: u64) {
            self.0.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    impl Sum {
        fn get(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn only_acknowledged_bytes_are_reported_and_each_once() {
        let sum = Arc::new(Sum::default());
        let mut contents = ContentReceipts::default();
        contents.begin(sum.clone(), 100);
        contents.wrote(1000, || unreachable!("only a few bytes were written"));
        contents.report(|| Some(50));
        assert_eq!(sum.get(), 0, "the head is not content");
        contents.report(|| Some(400));
        contents.report(|| Some(400));
        assert_eq!(sum.get(), 300);
        contents.wrote(CHECK_BYTES + 1000, || Some(1 << 30));
        assert_eq!(sum.get(), CHECK_BYTES + 1000, "never more than was written");
        assert!(contents.is_reported());
        contents.wrote(CHECK_BYTES + 2000, || None);
        contents.report(|| None);
        assert_eq!(sum.get(), CHECK_BYTES + 2000);
    }

    // Three responses of 1000 bytes, each after a head of 100 bytes, are written before the client
    // acknowledges any of them.
    #[test]
    fn all_contents_of_pipelined_responses_are_reported() {
        let (one, other) = (Arc::new(Sum::default()), Arc::new(Sum::default()));
        for sums in [[&one, &one, &one], [&one, &other, &one]] {
            let before = one.get() + other.get();
            let total = || one.get() + other.get() - before;
            let mut contents = ContentReceipts::default();
            for (n, sum) in (0..).zip(sums) {
                contents.begin(sum.clone(), n * 1100 + 100);
                contents.wrote(1000, || unreachable!("only a few bytes were written"));
            }
            for acknowledged in (0..=3300).step_by(50) {
                contents.report(|| Some(acknowledged));
                let heads = acknowledged.div_ceil(1100) * 100;
                let received = acknowledged - heads.min(acknowledged);
                assert!(
                    total() <= received.max(acknowledged / 1100 * 1000),
                    "{acknowledged}"
                );
            }
            assert_eq!(total(), 3000);
            assert!(contents.is_reported());
        }
        assert_eq!(other.get(), 1000);
    }

    #[test]
    fn the_number_of_pending_contents_is_limited() {
        let mut contents = ContentReceipts::default();
        let sums: Vec<_> = (0..=PENDING_MAX)
            .map(|_| Arc::new(Sum::default()))
            .collect();
        for (n, sum) in (0..).zip(&sums) {
            contents.begin(sum.clone(), n * 10);
            contents.wrote(10, || None);
        }
        contents.report(|| Some(1 << 20));
        assert_eq!(sums[0].get(), 0);
        assert!(sums[1..].iter().all(|sum| sum.get() == 10));
    }
}
