//! Tests of slow and failing disks, which clients must not notice. A failing volume is taken out of
//! service, reported and retried; a slow one is bypassed; records that can't be written in time are
//! dropped.

use std::thread;
use std::time::Duration;

use serde_json::json;
use sluice_lab::disk::{Condition, Pace, SlowDisk};
use sluice_lab::origin::{Modified, Origin, Resource, Tag};

use crate::disks::{
    BLOCK, Disks, End, File, MIB, SMALL, again, ask, ask_purge, end, fill, is_hit, loaded,
    number_of, purge, records, settled, shelf, start, sum, volume, without_origin, written,
};
use crate::harness::{Edge, Setup, assert_hit, eventually, fresh};

/// The size of the mounted disk, with room for a volume.
const ROOM: u64 = 4 * SMALL;

/// A disk as fast as memory. If nothing can be mounted, the test is skipped with a message.
fn disk() -> Option<SlowDisk> {
    paced(ROOM, Pace::default())
}

fn paced(room: u64, pace: Pace) -> Option<SlowDisk> {
    match SlowDisk::new(room, pace) {
        Ok(disk) => Some(disk),
        Err(error) => {
            assert!(std::env::var("CI").is_err(), "{error:#}");
            eprintln!("SKIPPED: {error:#}");
            None
        }
    }
}

/// A volume on this disk with short timeouts and an early retry.
fn on(disk: &SlowDisk) -> Disks {
    let folder = tempfile::tempdir_in(disk.path()).expect("a folder on the disk");
    let disks = Disks::within(folder, 1);
    disks
        .each("retry = \"100ms\"")
        .each("read_timeout = \"300ms\"")
}

/// A cache with little memory on the volumes of several disks.
fn over(disks: &[&Disks], origin: &Origin, placement: &str) -> Setup {
    let names: Vec<_> = (1..=disks.len()).map(|n| format!("disk{n}")).collect();
    let setup = Setup::cached(origin)
        .cache(&format!("volumes = {names:?}"))
        .cache(&format!("placement = \"{placement}\""))
        .cache("slice = \"256KiB\"");
    names.iter().zip(disks).fold(setup, |setup, (name, disk)| {
        setup.tables(&disk.tables().replace("disk1", name))
    })
}

fn is(edge: &Edge, number: usize, state: &str) -> bool {
    volume(edge, number)["state"] == state
}

/// Small and large files.
fn mixed(first: u64) -> Vec<File> {
    [
        File::row(first, 30, 20_000),
        File::row(first + 100, 6, 600_000),
    ]
    .concat()
}

fn count(files: &[File]) -> u64 {
    files.iter().map(|file| records(file.length)).sum()
}

/// Requests all files and checks every byte.
fn get_all(edge: &Edge, files: &[File]) {
    files.iter().for_each(|file| drop(file.get(edge)));
}

// A volume whose disk fails to write (EIO, ENOSPC) is taken out of service and reported; traffic
// continues; the volume is retried and comes back empty.
#[test]
fn a_disk_that_fails_to_write_is_taken_out_and_comes_back_empty() {
    for condition in [Condition::FailWrites, Condition::Fail, Condition::Full] {
        let Some(disk) = disk() else { return };
        let origin = shelf();
        let disks = on(&disk);
        let setup = disks.setup(&origin);
        let edge = start(&setup);
        let files = mixed(0);
        fill(&edge, &files);
        disk.set_condition(condition);
        let others = mixed(1000);
        get_all(&edge, &others);
        eventually("it is out", || is(&edge, 1, "out"));
        let shown = volume(&edge, 1);
        assert!(
            shown["why"].as_str().is_some_and(|why| !why.is_empty()),
            "{shown}"
        );
        assert!(number_of(&edge, 1, "errors") > 0);
        assert_eq!(number_of(&edge, 1, "queue_bytes"), 0, "{condition:?}");
        get_all(&edge, &files);
        get_all(&edge, &others);
        disk.set_condition(Condition::Fine);
        eventually("it is back", || is(&edge, 1, "up"));
        assert_eq!(number_of(&edge, 1, "records"), 0, "{condition:?}: clean");
        let new = mixed(2000);
        fill(&edge, &new);
        written(&edge, count(&new));
        assert_eq!(edge.counter("responses_5xx"), 0);
        let edge = again(edge, End::Killed, &setup);
        without_origin(&origin, "stored since", || {
            new.iter().for_each(|file| file.assert_kept(&edge));
        });
    }
}

// If a read fails, the response comes from the origin.
#[test]
fn a_disk_that_fails_to_read_affects_no_response() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let disks = on(&disk);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    let files = mixed(0);
    fill(&edge, &files);
    written(&edge, count(&files));
    let edge = again(edge, End::Stopped, &setup);
    disk.set_condition(Condition::FailReads);
    get_all(&edge, &files);
    eventually("it is out", || is(&edge, 1, "out"));
    assert!(number_of(&edge, 1, "errors") > 0);
    assert_eq!(edge.counter("responses_5xx"), 0);
    disk.set_condition(Condition::Fine);
    eventually("it is back", || is(&edge, 1, "up"));
    let edge = again(edge, End::Killed, &setup);
    fill(&edge, &files);
    without_origin(&origin, "stored again", || {
        files.iter().for_each(|file| file.assert_kept(&edge));
    });
}

// If the disk fails at the start, the edge serves without it and retries.
#[test]
fn a_disk_that_fails_at_the_start_is_tried_again() {
    for condition in [Condition::Fail, Condition::FailReads, Condition::Full] {
        let Some(disk) = disk() else { return };
        let origin = shelf();
        let disks = on(&disk);
        let setup = disks.setup(&origin);
        disk.set_condition(condition);
        let edge = setup.start();
        let file = File::new(1, 20_000);
        file.get(&edge);
        disk.set_condition(Condition::Fine);
        loaded(&edge);
        let other = File::new(2, 20_000);
        other.get(&edge);
        eventually("it is written", || number_of(&edge, 1, "records") > 0);
        settled(&edge);
        let edge = again(edge, End::Killed, &setup);
        without_origin(&origin, "stored", || other.assert_kept(&edge));
    }
}

// The file does not fit on the disk: the volume is out of service from the start, and no incomplete
// file is used.
#[test]
fn a_disk_without_room_is_out_of_service_from_the_start() {
    let Some(disk) = paced(SMALL / 2, Pace::default()) else {
        return;
    };
    let origin = shelf();
    let disks = on(&disk);
    let edge = disks.setup(&origin).start();
    let files = mixed(0);
    get_all(&edge, &files);
    assert!(is(&edge, 1, "out"), "{}", volume(&edge, 1));
    without_origin(&origin, "in memory", || get_all(&edge, &files));
    assert_eq!(edge.counter("responses_5xx"), 0);
}

// A stuck read falls back to the origin after a limit, and does not hold up content in memory.
#[test]
fn a_stuck_read_falls_back_to_the_origin() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let disks = on(&disk);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    let files = mixed(0);
    fill(&edge, &files);
    written(&edge, count(&files));
    let edge = again(edge, End::Stopped, &setup);
    let remembered = File::new(0, 20_000);
    remembered.assert_kept(&edge);
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
    // More reads than there are reader threads.
    thread::scope(|scope| {
        for file in &files[6..20] {
            let edge = &edge;
            scope.spawn(move || file.get(edge));
        }
    });
    remembered.assert_kept(&edge);
    disk.set_condition(Condition::Fine);
    get_all(&edge, &files);
    assert_eq!(edge.counter("responses_5xx"), 0);
    eventually("it serves again", || {
        get_all(&edge, &files);
        is(&edge, 1, "up")
    });
}

/// Stores `/x`, a file without a strong validator, on the volume.
fn keep_plain(origin: &Origin, edge: &Edge, length: u64) {
    origin.serve("/x", plain(length));
    let reply = crate::disks::get(edge, "/x");
    reply.verify_whole(length).expect("the body");
    written(edge, records(length));
}

// Without a strong validator, only the disk has the bytes of this version: the reader waits for the
// disk and is served.
#[test]
fn a_late_read_does_not_cut_off_an_object_that_only_the_disk_has() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let disks = on(&disk);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    let length = 3 * MIB;
    keep_plain(&origin, &edge, length);
    let edge = again(edge, End::Stopped, &setup);
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

/// A file without a strong validator, which is usable only if it is complete.
fn plain(length: u64) -> Resource {
    fresh(length).tag(Tag::None).modified(Modified::None)
}

/// Asserts that a file in memory is served without the origin.
fn without_origin_for(origin: &Origin, file: File, edge: &Edge) {
    let before = origin.read_record(|record| record.count(&file.path()));
    for _ in 0..20 {
        file.assert_kept(edge);
    }
    let after = origin.read_record(|record| record.count(&file.path()));
    assert_eq!(before, after);
}

// The write queue is bounded: records that find it full are dropped and counted. Clients receive
// every byte.
#[test]
fn records_that_a_slow_disk_can_not_take_are_dropped() {
    let slow = Pace {
        rate: Some(3_000_000),
        latency: Duration::from_millis(1),
    };
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let disks = on(&disk).each("queue = \"2MiB\"");
    let setup = disks.setup(&origin);
    let edge = start(&setup);
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
    // A dropped record is written when its object is fetched again, or stays absent: its content is
    // never wrong.
    let edge = again(edge, End::Killed, &setup);
    fill(&edge, &files[..100]);
    assert_eq!(edge.counter("responses_5xx"), 0);
}

// A stuck write holds up no client. When the disk continues, so does writing.
#[test]
fn a_stuck_write_holds_up_no_client() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let disks = on(&disk).each("queue = \"2MiB\"");
    let setup = disks.setup(&origin).cache("memory = \"16MiB\"");
    let edge = start(&setup);
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

// One of two mirrored disks fails while the program runs: no stored byte is lost.
#[test]
fn a_mirror_serves_all_objects_when_one_disk_fails() {
    for condition in [Condition::Fail, Condition::FailReads] {
        let (Some(first), Some(second)) = (disk(), disk()) else {
            return;
        };
        let origin = shelf();
        let disks = [on(&first), on(&second)];
        let setup = over(&[&disks[0], &disks[1]], &origin, "mirror");
        let edge = start(&setup);
        let files = mixed(0);
        fill(&edge, &files);
        written(&edge, 2 * count(&files));
        let edge = again(edge, End::Killed, &setup);
        first.set_condition(condition);
        without_origin(&origin, "one is left", || {
            files.iter().for_each(|file| file.assert_kept(&edge));
        });
        eventually("it is out", || is(&edge, 1, "out"));
        assert!(is(&edge, 2, "up"));
        let new = mixed(1000);
        fill(&edge, &new);
        first.set_condition(Condition::Fine);
        eventually("it is back", || is(&edge, 1, "up"));
        assert_eq!(number_of(&edge, 2, "records"), count(&files) + count(&new));
        without_origin(&origin, "all is there", || {
            files.iter().for_each(|file| file.assert_kept(&edge));
            new.iter().for_each(|file| file.assert_kept(&edge));
        });
    }
}

// With hash placement the objects of the other volume are still served, and nothing of the failed
// one is wrong.
#[test]
fn the_other_volumes_serve_when_a_disk_fails() {
    for placement in ["hash", "stripe"] {
        let (Some(first), Some(second)) = (disk(), disk()) else {
            return;
        };
        let origin = shelf();
        let disks = [on(&first), on(&second)];
        let setup = over(&[&disks[0], &disks[1]], &origin, placement);
        let edge = start(&setup);
        let files = mixed(0);
        fill(&edge, &files);
        written(&edge, count(&files));
        let edge = again(edge, End::Killed, &setup);
        first.set_condition(Condition::Fail);
        let hits = files.iter().filter(|file| is_hit(&file.get(&edge))).count();
        assert!(hits > 0, "{placement}");
        eventually("it is out", || is(&edge, 1, "out"));
        fill(&edge, &files);
        // While one volume is out of service, another takes its place.
        let edge = start_again_with(edge, &first, &setup);
        fill(&edge, &files);
        without_origin(&origin, placement, || {
            files.iter().for_each(|file| file.assert_kept(&edge));
        });
        assert_eq!(edge.counter("responses_5xx"), 0);
    }
}

/// Starts the program again with working disks.
fn start_again_with(edge: Edge, disk: &SlowDisk, setup: &Setup) -> Edge {
    end(edge, End::Killed);
    disk.set_condition(Condition::Fine);
    start(setup)
}

// A volume that was out of service comes back empty, so that purged objects do not reappear.
#[test]
fn a_disk_that_was_out_of_service_restores_nothing() {
    let (Some(first), Some(second)) = (disk(), disk()) else {
        return;
    };
    let origin = shelf();
    let disks = [on(&first), on(&second)];
    let setup = over(&[&disks[0], &disks[1]], &origin, "mirror");
    let edge = start(&setup);
    let files = mixed(0);
    fill(&edge, &files);
    written(&edge, 2 * count(&files));
    first.set_condition(Condition::Fail);
    // The volume logs the purge, fails, and is taken out of service; the other volume has the purge
    // as well.
    purge(&edge, &json!({"prefix": "/shelf/"}));
    eventually("it is out", || is(&edge, 1, "out"));
    end(edge, End::Killed);
    first.set_condition(Condition::Fine);
    let edge = start(&setup);
    for file in &files {
        assert!(!is_hit(&file.get(&edge)), "{file:?}");
    }
}

// A purge that no volume could log is in force, and is not acknowledged as durable.
#[test]
fn a_purge_that_a_failing_disk_can_not_log_is_answered_503() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let disks = on(&disk);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    let files = mixed(0);
    fill(&edge, &files);
    disk.set_condition(Condition::FailWrites);
    let reply = ask_purge(&edge, &json!({"all": true}));
    assert_eq!(reply.status, 503, "{}", reply.text());
    for file in &files {
        assert!(!is_hit(&file.get(&edge)), "{file:?}");
    }
    disk.set_condition(Condition::Fine);
    eventually("it is back", || is(&edge, 1, "up"));
    let reply = ask_purge(&edge, &json!({"all": true}));
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// Runs this while the index of a volume with version 0 of `/x` is being loaded.
fn while_it_loads(run: impl Fn(&Edge, &Origin)) {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let disks = on(&disk);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    crate::disks::keep_x(&edge, &origin, 20_000);
    // Newer segments, which are loaded before that of `/x`.
    fill(&edge, &File::row(0, 20, 300_000));
    end(edge, End::Killed);
    disk.set_pace(Pace {
        rate: None,
        latency: Duration::from_millis(100),
    });
    let edge = setup.start();
    run(&edge, &origin);
    assert!(is(&edge, 1, "loading"), "{}", volume(&edge, 1));
    disk.set_pace(Pace::default());
    loaded(&edge);
    let new = |edge: &Edge| {
        let reply = crate::disks::get(edge, "/x");
        reply.verify_version(1, 0).expect("the new one");
    };
    new(&edge);
    // The same when nothing of the object is in memory.
    new(&again(edge, End::Stopped, &setup));
}

#[test]
fn an_invalidation_while_the_index_loads_holds() {
    while_it_loads(|edge, origin| {
        origin.serve("/x", fresh(20_000).version(1));
        assert_eq!(ask(edge, "POST", "/x", &[]).status, 200);
    });
}

// A response found not to be storable while the index loads does not reappear either.
#[test]
fn a_response_that_may_no_longer_be_stored_does_not_reappear_from_the_index() {
    while_it_loads(|edge, origin| {
        let secret = Resource::offset(20_000).version(1);
        origin.serve("/x", secret.cache_control("no-store"));
        let reply = crate::disks::get(edge, "/x");
        reply.verify_version(1, 0).expect("it was not found yet");
    });
}

// A version that was replaced while the index loads does not reappear, even if the new one could
// not be written.
#[test]
fn a_version_replaced_while_the_index_loads_does_not_reappear() {
    while_it_loads(|edge, origin| {
        origin.serve("/x", fresh(20_000).version(1));
        let reply = crate::disks::get(edge, "/x");
        reply.verify_version(1, 0).expect("it was not found yet");
    });
}

// A response stored without Vary does not reappear after one with Vary was stored.
#[test]
fn a_response_without_vary_does_not_reappear_from_the_index() {
    while_it_loads(|edge, origin| {
        origin.serve("/x", fresh(20_000).version(1).vary("accept-language"));
        let reply = crate::disks::get(edge, "/x");
        reply.verify_version(1, 0).expect("it was not found yet");
    });
}

// Without a strong validator an object is usable only if all of it is known. A request that arrives
// when only its head was loaded does not cause the object to be lost.
#[test]
fn an_object_requested_before_it_is_fully_loaded_is_not_lost() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let disks = on(&disk);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    let length = 3 * MIB;
    keep_plain(&origin, &edge, length);
    fill(&edge, &File::row(0, 8, 300_000));
    end(edge, End::Killed);
    disk.set_pace(Pace {
        rate: None,
        latency: Duration::from_millis(50),
    });
    let edge = setup.start();
    let look = || ask(&edge, "GET", "/x", &[("Cache-Control", "only-if-cached")]);
    let mut statuses = Vec::new();
    while is(&edge, 1, "loading") {
        statuses.push(look().status);
    }
    assert_eq!(statuses.first(), Some(&504), "nothing is known of it yet");
    disk.set_pace(Pace::default());
    let reply = look();
    assert_hit(&reply);
    reply.verify_whole(length).expect("the body");
}

// One of two disks is slow: objects on the other one are served as usual, and in the end both have
// their share.
#[test]
fn one_slow_disk_of_two_holds_up_no_client() {
    let (Some(first), Some(second)) = (disk(), disk()) else {
        return;
    };
    let origin = shelf();
    let disks = [on(&first), on(&second)];
    let setup = over(&[&disks[0], &disks[1]], &origin, "stripe");
    let edge = start(&setup);
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
