//! The history as the threads share it: one thread records, the admin thread reads.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

use super::layout::Layout;
use super::members::History;

/// The history of a running Sluice.
pub struct SharedHistory {
    points: RwLock<History>,
    /// Unix time of the last readings, in seconds.
    noted: watch::Sender<u64>,
}

impl SharedHistory {
    /// Creates a history without members that takes at most `bytes_max` bytes.
    pub fn new(
        layouts: impl IntoIterator<Item = Layout>,
        bytes_max: usize,
        now_s: u64,
    ) -> SharedHistory {
        SharedHistory {
            points: RwLock::new(History::new(layouts, bytes_max)),
            noted: watch::Sender::new(now_s),
        }
    }

    /// Returns the points for reading.
    pub fn read(&self) -> RwLockReadGuard<'_, History> {
        self.points.read()
    }

    /// Returns the points for recording. Readers wait meanwhile.
    pub fn write(&self) -> RwLockWriteGuard<'_, History> {
        self.points.write()
    }

    /// Returns the lock of the points.
    pub fn points(&self) -> &RwLock<History> {
        &self.points
    }

    /// Announces that all readings of this time are recorded.
    pub fn announce(&self, now_s: u64) {
        self.noted.send_replace(now_s);
    }

    /// Returns the Unix time of the last readings, in seconds.
    pub fn now_s(&self) -> u64 {
        *self.noted.borrow()
    }

    /// Returns a receiver that learns of each announcement.
    pub fn announcements(&self) -> watch::Receiver<u64> {
        self.noted.subscribe()
    }
}
