//! Helpers of the tests of slow and failing disks: a mounted file system whose disk a test can slow
//! down, stop, and make fail.

use sluice_lab::disk::{Pace, SlowDisk};
use sluice_lab::origin::{Modified, Origin, Resource, Tag};

use crate::disks::{Disks, File, Restartable, SMALL, fill, records, volume, written};
use crate::harness::{Edge, Setup, fresh};

/// Size of the mounted disk in bytes, with room for a volume.
const ROOM: u64 = 4 * SMALL;

/// Mounts a disk as fast as memory. If nothing can be mounted, prints a message and returns `None`,
/// so that the test is skipped.
pub fn disk() -> Option<SlowDisk> {
    paced(ROOM, Pace::default())
}

/// Mounts a disk of this size in bytes and with this speed.
pub fn paced(room: u64, pace: Pace) -> Option<SlowDisk> {
    match SlowDisk::new(room, pace) {
        Ok(disk) => Some(disk),
        Err(error) => {
            assert!(std::env::var("CI").is_err(), "{error:#}");
            eprintln!("SKIPPED: {error:#}");
            None
        }
    }
}

/// Creates a volume on this disk, with short timeouts and an early retry.
pub fn on(disk: &SlowDisk) -> Disks {
    let folder = tempfile::tempdir_in(disk.path()).expect("a folder on the disk");
    let disks = Disks::within(folder, 1);
    disks
        .each("retry = \"100ms\"")
        .each("read_timeout = \"1s\"")
}

/// Mounts two disks as fast as memory.
pub fn two_disks() -> Option<[SlowDisk; 2]> {
    Some([disk()?, disk()?])
}

/// Starts an edge with a volume on each of the two disks and with this placement.
pub fn on_two(disks: [&SlowDisk; 2], origin: &Origin, placement: &str) -> Restartable<[Disks; 2]> {
    let disks = disks.map(on);
    let setup = Setup::cached(origin)
        .cache("volumes = [\"disk1\", \"disk2\"]")
        .cache(&format!("placement = \"{placement}\""))
        .cache("slice = \"256KiB\"")
        .tables(&disks[0].tables())
        .tables(&disks[1].tables().replace("disk1", "disk2"));
    Restartable::new(disks, setup)
}

/// Has small and large files stored, each on this many volumes. Returns the files.
pub fn store_mixed(edge: &Edge, copies: u64) -> Vec<File> {
    let files = mixed(0);
    fill(edge, &files);
    written(edge, copies * count(&files));
    files
}

/// Whether a volume, counted from 1, is in this state.
pub fn is(edge: &Edge, number: usize, state: &str) -> bool {
    volume(edge, number)["state"] == state
}

/// Returns small and large files, numbered from `first`.
pub fn mixed(first: u64) -> Vec<File> {
    [
        File::row(first, 30, 20_000),
        File::row(first + 100, 6, 600_000),
    ]
    .concat()
}

/// Returns the number of records of these files.
pub fn count(files: &[File]) -> u64 {
    files.iter().map(|file| records(file.length)).sum()
}

/// Requests all files and checks every byte.
pub fn get_all(edge: &Edge, files: &[File]) {
    files.iter().for_each(|file| drop(file.get(edge)));
}

/// Serves `/x` at the origin as a file without a strong validator, and has it stored on the volume.
pub fn store_plain(origin: &Origin, edge: &Edge, length: u64) {
    origin.serve("/x", plain(length));
    let reply = crate::disks::get(edge, "/x");
    reply.verify_whole(length).expect("the body");
    written(edge, records(length));
}

/// Returns a resource without a strong validator. Its object is usable only if all of its bytes are
/// stored.
fn plain(length: u64) -> Resource {
    fresh(length).tag(Tag::None).modified(Modified::None)
}
