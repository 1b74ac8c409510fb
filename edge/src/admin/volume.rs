//! One volume as the admin address shows it.

use serde::Serialize;

/// One volume now. Counts are since it was opened.
#[derive(Clone, Debug, Default, Serialize)]
pub struct VolumeState {
    /// As configured.
    pub name: String,
    /// The file or block device.
    pub path: String,
    /// `up`; `loading`: up, while its index fills; `out`: not used now.
    pub state: String,
    /// Why it is out.
    pub why: Option<String>,
    /// How much of its index is there, 0 to 1.
    pub loaded: f64,
    /// Bytes it takes on the device.
    pub size: u64,
    /// How many segments it has.
    pub segments: u64,
    /// Bytes of each.
    pub segment_bytes: u64,
    /// Records in its index.
    pub records: u64,
    /// Bytes that wait to be written.
    pub queue_bytes: u64,
    /// Bytes written, with all that belongs to the format.
    pub written_bytes: u64,
    /// Bytes of records that were written again when their segment was reclaimed.
    pub rewritten_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Those of them that the page cache answered.
    pub reads_at_hand: u64,
    /// Records that were not written, as the queue was full.
    pub shed: u64,
    /// Their bytes.
    pub shed_bytes: u64,
    /// Records that were found damaged.
    pub damaged: u64,
    /// Failures of the device.
    pub errors: u64,
    /// How often all of it was written.
    pub laps: u64,
    /// Milliseconds in which something was being written.
    pub write_ms: u64,
    /// Milliseconds that reads took, summed.
    pub read_ms: u64,
    /// The caches that use it.
    pub caches: Vec<String>,
}

impl VolumeState {
    /// Whether it is used.
    pub fn is_up(&self) -> bool {
        self.state != "out"
    }
}
