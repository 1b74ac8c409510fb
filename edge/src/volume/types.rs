//! The types that all parts of a volume share: ids, locations, options, and the seams to the store.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;

/// Bytes of a record's data that have one checksum and are read together.
pub const PAGE: u64 = 64 << 10;

/// The options of one volume: `[volume.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Name in the configuration.
    pub name: String,
    /// The file or block device.
    pub path: PathBuf,
    /// Size in bytes; 0: all of a block device.
    pub size: u64,
    /// Bytes of a segment; 0: `default_segment`.
    pub segment: u64,
    /// Bytes that may wait to be written.
    pub queue: u64,
    /// Threads that read data that is not in the page cache.
    pub readers: usize,
    /// Longest time that a read may take.
    pub read_timeout: Duration,
    /// Time after a failure until the device is opened again.
    pub retry: Duration,
    /// Whether foreign content, or a volume of another format version, may be overwritten.
    pub overwrite: bool,
}

/// Whether a record is the head of an object or one block of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A head; for a small object also all of its content.
    Head,
    /// One block of an object.
    Block,
}

/// The key of a record in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// The cache that the record belongs to.
    pub space: u64,
    /// Hash of the object's primary key.
    pub key: u128,
    /// For a head the variant, for a block a hash that identifies this version of the variant.
    pub version: u64,
    /// For a head 0, for a block its number.
    pub part: u32,
    /// Head or block.
    pub kind: Kind,
}

/// The location of a record that the index knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The low half of the version in the record's id.
    pub tag: u32,
    /// The segment's number.
    pub segment: u32,
    /// The segment's lap. In a later lap the record has been overwritten.
    pub lap: u64,
    /// Offset of the record in the segment, in bytes.
    pub offset: u32,
    /// Length of the record in bytes.
    pub length: u32,
}

/// A record that waits to be written. Exactly one of two things happens: `done` is called, or the
/// value is dropped without having been written.
pub trait RecordSource: Send {
    /// The id under which the record will be found.
    fn id(&self) -> Id;

    /// The number at which the oldest fetch began that contributed to the record.
    fn born_seq(&self) -> u64;

    /// Roughly how many bytes the record holds in memory while it waits.
    fn bytes(&self) -> u64;

    /// The record's content, taken when its turn to be written has come; `None` if the record is
    /// obsolete. Called by the thread that composes segments.
    fn record(&mut self) -> Option<Content>;

    /// Reports the end: the record can be read from now on, or was not written.
    fn done(self: Box<Self>, written: bool);
}

/// A record's content.
pub struct Content {
    /// Bytes that only the store interprets.
    pub meta: Vec<u8>,
    /// Pieces of `PAGE` bytes; the last one may be shorter.
    pub data: SmallVec<[Bytes; 16]>,
}

/// A head that was read.
#[derive(Debug)]
pub struct HeadRead {
    /// The complete id.
    pub id: Id,
    /// The meta as it was written.
    pub meta: Bytes,
    /// The data as it was written.
    pub data: Bytes,
}

/// Why a record can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The record is no longer there.
    Gone,
    /// A checksum did not match.
    Damaged,
    /// Too many reads are waiting.
    Busy,
    /// The read took too long.
    Slow,
    /// The device failed.
    Failed,
}

/// The store's side of a volume: says what is used in memory, and learns when the volume fails.
pub trait Witness: Send + Sync {
    /// Whether anything of the object that this record belongs to is in memory.
    fn is_in_use(&self, id: &Id) -> bool;

    /// Called when the volume went out of use. The last deletions before that may be lost: their
    /// records may be there again when the volume is opened next.
    fn is_out(&self) {}
}

/// A purge in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The purge's sequence number.
    pub number: u64,
    /// The rule, in the store's encoding.
    pub text: Box<[u8]>,
}

/// Why a purge could not be logged.
#[derive(Debug)]
pub enum LogError {
    /// The log has no room for the rule, even without obsolete ones, or the rule is longer than
    /// any may be.
    Full,
    /// The volume is out of use.
    Out,
    /// Writing failed; the volume is out of use now.
    Io(io::Error),
}

/// Why a volume is not used at all, in words for the operator, who has to act.
#[derive(Debug)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}
