//! Pins: counts of the reads in progress in each segment. A segment is overwritten only when it has no pins.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The number of reads in progress in each segment.
///
/// A segment's lap is the number of the pass over the volume in which it was written. A reader first pins the segment, then checks that its
/// lap is still the expected one. The thread that reclaims the segment first sets the new lap, then waits for the pins. All four operations
/// are `SeqCst`, so at least one of the two threads sees what the other one has done.
pub struct Pins {
    counts: Box<[AtomicU32]>,
    is_awaited: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

/// A pin, which keeps a segment from being overwritten until the pin is dropped.
pub struct Pin {
    pins: Arc<Pins>,
    segment: usize,
}

impl Pins {
    /// Creates the counts for this many segments.
    pub fn new(segments: usize) -> Arc<Pins> {
        Arc::new(Pins {
            counts: std::iter::repeat_with(AtomicU32::default)
                .take(segments)
                .collect(),
            is_awaited: AtomicBool::new(false),
            lock: Mutex::new(()),
            changed: Condvar::new(),
        })
    }

    /// Pins a segment; returns `None` if the segment number is out of range.
    pub fn pin(self: &Arc<Pins>, segment: u32) -> Option<Pin> {
        let segment = segment as usize;
        self.counts.get(segment)?.fetch_add(1, Ordering::SeqCst);
        Some(Pin {
            pins: self.clone(),
            segment,
        })
    }

    /// Waits until a segment is not pinned, but at most for the time `within`.
    pub fn wait(&self, segment: u32, within: Duration) {
        let Some(count) = self.counts.get(segment as usize) else {
            return;
        };
        let is_free = || count.load(Ordering::SeqCst) == 0;
        let mut guard = self.lock.lock();
        self.is_awaited.store(true, Ordering::SeqCst);
        self.changed
            .wait_while_for(&mut guard, |()| !is_free(), within);
        self.is_awaited.store(false, Ordering::SeqCst);
    }

    /// Whether a segment is not pinned.
    #[cfg(test)]
    pub fn is_free(&self, segment: u32) -> bool {
        self.counts[segment as usize].load(Ordering::SeqCst) == 0
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let before = self.pins.counts[self.segment].fetch_sub(1, Ordering::SeqCst);
        if before == 1 && self.pins.is_awaited.load(Ordering::SeqCst) {
            // The lock ensures that the notification can't happen between the other thread's check and its wait.
            let _guard = self.pins.lock.lock();
            self.pins.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_free_after_its_last_reader() {
        let pins = Pins::new(2);
        let (a, b) = (pins.pin(1).expect("a segment"), pins.pin(1));
        assert!(pins.pin(2).is_none());
        pins.wait(0, Duration::from_secs(60));
        assert!(pins.is_free(0));
        drop(a);
        pins.wait(1, Duration::from_millis(1));
        assert!(!pins.is_free(1));
        let reader = std::thread::spawn(move || drop(b));
        pins.wait(1, Duration::from_secs(60));
        assert!(pins.is_free(1));
        reader.join().expect("no panic");
    }
}
