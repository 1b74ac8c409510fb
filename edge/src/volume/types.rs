//! The types that all parts of a volume share: ids, locations, options, and the traits between volume and store.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;

/// Number of bytes of a record's data that have one checksum and are read together.
pub const PAGE: u64 = 64 << 10;

/// The options of one volume: `[volume.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Name of the volume in the configuration.
    pub name: String,
    /// Path of the file or block device.
    pub path: PathBuf,
    /// Size of the volume in bytes; 0: all of a block device.
    pub size: u64,
    /// Size of a segment in bytes; 0: `default_segment`.
    pub segment: u64,
    /// Maximum number of bytes that may wait to be written.
    pub queue: u64,
    /// Longest time that records and deletions wait for more to be written with them.
    pub write_delay: Duration,
    /// Number of threads that read data that is not in the page cache.
    pub readers: usize,
    /// Longest time that a read may take.
    pub read_timeout: Duration,
    /// Time between a failure of the device and the next attempt to open it.
    pub retry: Duration,
    /// Whether foreign content, or a volume of another format version, may be overwritten.
    pub overwrite: bool,
}

/// Whether a record is the head of an object or one block of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A head; for a small object, the record also contains all of its content.
    Head,
    /// One block of an object.
    Block,
}

/// The id of a record, under which it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// Id of the cache that the record belongs to.
    pub space: u64,
    /// Hash of the object's primary key.
    pub key: u128,
    /// For a head: the variant. For a block: a hash that identifies this version of the variant.
    pub version: u64,
    /// For a head: 0. For a block: its number in the object.
    pub part: u32,
    /// Head or block.
    pub kind: Kind,
}

/// The location of a record that the index knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The low half of the version in the record's id.
    pub tag: u32,
    /// Number of the segment.
    pub segment: u32,
    /// The segment's lap: the number of the pass over the volume in which it was written. Once the segment has another lap, the record has
    /// been overwritten.
    pub lap: u64,
    /// Offset of the record in the segment, in bytes.
    pub offset: u32,
    /// Length of the record in bytes.
    pub length: u32,
}

/// A record that waits to be written. Either `done` is called, or the value is dropped because the record was not written.
pub trait RecordSource: Send {
    /// Returns the id of the record.
    fn id(&self) -> Id;

    /// Returns the smallest sequence number of the fetches that contributed bytes to the record.
    fn born_seq(&self) -> u64;

    /// Returns roughly the number of bytes of memory that the record uses while it waits.
    fn bytes(&self) -> u64;

    /// Returns the record's content, immediately before the record is written; `None` if the record is obsolete. Called by the writer
    /// thread.
    fn record(&mut self) -> Option<Content>;

    /// Ends the wait: the record was written and can be read from now on, or it was not written.
    fn done(self: Box<Self>, written: bool);
}

/// The content of a record.
pub struct Content {
    /// Metadata: bytes that only the store can decode.
    pub meta: Vec<u8>,
    /// Data: parts of `PAGE` bytes; the last one may be shorter.
    pub data: SmallVec<[Bytes; 16]>,
}

/// A head that was read from a volume.
#[derive(Debug)]
pub struct HeadRead {
    /// The complete id of the head's record.
    pub id: Id,
    /// The record's metadata as it was written.
    pub meta: Bytes,
    /// The record's data as it was written.
    pub data: Bytes,
}

/// The reason why a record can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The record has been deleted, moved or overwritten.
    Gone,
    /// A checksum of the record does not match.
    Damaged,
    /// Too many reads are waiting.
    Busy,
    /// The read took longer than the limit.
    Slow,
    /// The device failed.
    Failed,
}

/// The store of a cache, as a volume uses it: the volume asks it which records are in use, and notifies it when the device fails.
pub trait Witness: Send + Sync {
    /// Whether any part of the object to which this record belongs is in memory.
    fn is_in_use(&self, id: &Id) -> bool;

    /// Called when the volume has gone out of service. The last deletions before that may be lost: the deleted records may exist again when
    /// the volume is opened next.
    fn is_out(&self) {}
}

/// A purge in a volume's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logged {
    /// Sequence number of the purge.
    pub number: u64,
    /// The rule as the store has encoded it.
    pub text: Box<[u8]>,
}

/// The reason why a purge could not be logged.
#[derive(Debug)]
pub enum LogError {
    /// The log has no room for the rule, even without obsolete rules, or the rule is longer than the maximum.
    Full,
    /// The volume is out of service.
    Out,
    /// Writing failed, so the volume is out of service now.
    Io(io::Error),
}

/// Error: why a volume can't be used at all, as a message for the operator.
#[derive(Debug)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}
