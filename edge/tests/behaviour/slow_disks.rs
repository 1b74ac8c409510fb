//! Tests of slow and hanging disks, which clients must not notice. A slow volume is bypassed, and
//! records that can't be written in time are dropped.

use std::thread;
use std::time::Duration;

use sluice_lab::disk::{Condition, Pace};
use sluice_lab::origin::Origin;

use crate::disks::{BLOCK, End, File, MIB, ask, fill, number_of, settled, shelf, sum};
use crate::harness::{Edge, assert_hit, eventually};
use crate::slow_disk::*;

// A read from the disk does not return. After a time limit the bytes are fetched from the origin.
// Content in memory is served meanwhile.
#[test]
fn a_stuck_read_falls_back_to_the_origin() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let mut edge = on(&disk).start(&origin);
    let files = store_mixed(&edge, 1);
    edge.restart(End::Stopped);
    let remembered = File::new(0, 20_000);
    remembered.assert_stored(&edge);
    disk.set_condition(Condition::Hang);
    thread::scope(|scope| {
        let (small, large) = (files[5], files[33]);
        let stuck = [small, large].map(|file| {
            let edge = &edge;
            scope.spawn(move || file.get(edge))
        });
        eventually("reads are stuck", || disk.in_flight() > 0);
        without_origin_for(&origin, remembered, &edge);
        for stuck in stuck {
            stuck.join().expect("the origin has answered");
        }
    });
    assert!(disk.in_flight() > 0, "it still hangs");
    let asked = origin.read_record(|record| {
        let paths = [files[5].path(), files[33].path()];
        paths.map(|path| record.count(&path))
    });
    assert!(asked.iter().all(|times| *times >= 2), "{asked:?}");
    // The number of reads that hang exceeds the number of reader threads.
    thread::scope(|scope| {
        for file in &files[6..20] {
            let edge = &edge;
            scope.spawn(move || file.get(edge));
        }
    });
    remembered.assert_stored(&edge);
    disk.set_condition(Condition::Fine);
    get_all(&edge, &files);
    assert_eq!(edge.counter("responses_5xx"), 0);
    eventually("it serves again", || {
        get_all(&edge, &files);
        is(&edge, 1, "up")
    });
}

// The object has no strong validator, so only the disk has the bytes of its version. The client
// waits for the disk, and receives them.
#[test]
fn a_late_read_does_not_cut_off_an_object_that_only_the_disk_has() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let mut edge = on(&disk).start(&origin);
    let length = 3 * MIB;
    store_plain(&origin, &edge, length);
    edge.restart(End::Stopped);
    let reply = ask(&edge, "GET", "/x", &[("Range", "bytes=0-9")]);
    assert_hit(&reply);
    disk.set_condition(Condition::Hang);
    thread::scope(|scope| {
        let reply = scope.spawn(|| crate::disks::get(&edge, "/x"));
        eventually("a read is stuck", || disk.in_flight() > 0);
        let reads = number_of(&edge, 1, "reads");
        eventually("it is tried again", || {
            number_of(&edge, 1, "reads") >= reads + 2
        });
        disk.set_condition(Condition::Fine);
        let reply = reply.join().expect("an answer");
        assert_hit(&reply);
        reply.verify_whole(length).expect("the body");
    });
    assert_eq!(origin.read_record(|record| record.count("/x")), 1);
}

/// Asserts that a file in memory is served without a request to the origin.
fn without_origin_for(origin: &Origin, file: File, edge: &Edge) {
    let before = origin.read_record(|record| record.count(&file.path()));
    for _ in 0..20 {
        file.assert_stored(edge);
    }
    let after = origin.read_record(|record| record.count(&file.path()));
    assert_eq!(before, after);
}

// Records that do not fit into the write queue are dropped and counted. Clients nevertheless
// receive every byte.
#[test]
fn records_that_a_slow_disk_can_not_take_are_dropped() {
    let slow = Pace {
        rate: Some(3_000_000),
        latency: Duration::from_millis(1),
    };
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let mut edge = on(&disk).each("queue = \"2MiB\"").start(&origin);
    disk.set_pace(slow);
    let files = [File::row(0, 60, 300_000), File::row(100, 100, 20_000)].concat();
    thread::scope(|scope| {
        for part in files.chunks(40) {
            let edge = &edge;
            scope.spawn(move || {
                for file in part {
                    file.get(edge);
                    let waiting = number_of(edge, 1, "queue_bytes");
                    assert!(waiting <= 2 * MIB, "{waiting} bytes wait");
                }
            });
        }
    });
    let shed = number_of(&edge, 1, "shed");
    assert!(shed > 0 && number_of(&edge, 1, "shed_bytes") > 0);
    assert!(is(&edge, 1, "up"));
    disk.set_pace(Pace::default());
    settled(&edge);
    let kept = number_of(&edge, 1, "records");
    assert!(kept > 0 && kept < count(&files), "{kept}");
    // A dropped record is written when its object is fetched again, or stays absent. `File::get`
    // checks that no content is wrong.
    edge.restart(End::Killed);
    fill(&edge, &files[..100]);
    assert_eq!(edge.counter("responses_5xx"), 0);
}

// A write to the disk does not return, and clients are served meanwhile. When the disk works again,
// the records are written.
#[test]
fn a_stuck_write_holds_up_no_client() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let edge = on(&disk)
        .each("queue = \"2MiB\"")
        .start_with(&origin, "memory = \"16MiB\"");
    disk.set_condition(Condition::Hang);
    let files = [File::row(0, 60, 300_000), File::row(100, 100, 20_000)].concat();
    get_all(&edge, &files);
    assert!(disk.in_flight() > 0, "it hangs");
    assert!(number_of(&edge, 1, "queue_bytes") <= 2 * MIB);
    assert!(number_of(&edge, 1, "shed") > 0);
    assert!(edge.cache_state("bytes") <= edge.cache_state("limit"));
    disk.set_condition(Condition::Fine);
    settled(&edge);
    get_all(&edge, &files);
    settled(&edge);
    assert!(number_of(&edge, 1, "records") > 0);
    assert_eq!(edge.counter("responses_5xx"), 0);
}

// One of two disks is slow. Objects on the other disk are served as usual. In the end both disks
// have their share of the records.
#[test]
fn one_slow_disk_of_two_holds_up_no_client() {
    let Some([first, second]) = two_disks() else {
        return;
    };
    let origin = shelf();
    let edge = on_two([&first, &second], &origin, "stripe");
    first.set_condition(Condition::Hang);
    let files = [File::row(0, 8, 4 * BLOCK), File::row(100, 30, 20_000)].concat();
    get_all(&edge, &files);
    eventually("the other one has written its part", || {
        number_of(&edge, 2, "records") > 8
    });
    first.set_condition(Condition::Fine);
    settled(&edge);
    get_all(&edge, &files);
    settled(&edge);
    assert!(sum(&edge, "records") > 30);
    assert_eq!(edge.counter("responses_5xx"), 0);
}
