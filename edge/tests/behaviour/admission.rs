//! Tests of the admission to volumes: which objects are written, how long they stay there, and
//! which records are dropped when the write queue is full.

use std::thread;

use crate::disks::{
    Disks, End, File, HOST, again, ask, fill, is_hit, number_of, records, settled, shelf, start,
    sum, without_origin, written,
};
use crate::harness::eventually;

// After one request an object is stored only in memory; the second request has the object written
// to a volume.
#[test]
fn an_object_is_written_on_its_second_request() {
    let origin = shelf();
    let mut edge = Disks::new(1).start_with(&origin, "min_uses = 2");
    let once = [File::row(0, 5, 10_000), File::row(10, 2, 400_000)].concat();
    let twice = [File::row(100, 5, 10_000), File::row(110, 2, 400_000)].concat();
    fill(&edge, &once);
    fill(&edge, &twice);
    assert_eq!(number_of(&edge, 1, "records"), 0);
    twice.iter().for_each(|file| file.assert_stored(&edge));
    let expected = twice.iter().map(|file| records(file.length)).sum();
    written(&edge, expected);
    edge.restart(End::Stopped);
    assert_eq!(number_of(&edge, 1, "records"), expected);
    without_origin(&origin, "asked for twice", || {
        twice.iter().for_each(|file| file.assert_stored(&edge));
    });
    assert!(once.iter().all(|file| !is_hit(&file.get(&edge))));
    settled(&edge);
    assert_eq!(number_of(&edge, 1, "records"), expected);
    assert!(once.iter().all(|file| is_hit(&file.get(&edge))));
    let all = expected + once.iter().map(|file| records(file.length)).sum::<u64>();
    written(&edge, all);
}

// The second request arrives while the response to the first one is still being sent, and still
// counts as the second.
#[test]
fn a_second_request_counts_while_the_first_is_answered() {
    let origin = shelf();
    let latch = sluice_lab::origin::Latch::at(100_000);
    let slow = crate::harness::fresh(400_000).hold_body(&latch);
    origin.serve("/x", slow);
    let mut edge = Disks::new(1).start_with(&origin, "min_uses = 2");
    thread::scope(|scope| {
        let clients = [0; 2].map(|_| scope.spawn(|| crate::disks::get(&edge, "/x")));
        eventually("both are there", || edge.counter("requests_now") == 2);
        latch.release();
        for client in clients {
            let reply = client.join().expect("no panic");
            reply.verify_whole(400_000).expect("the body");
        }
    });
    written(&edge, records(400_000));
    edge.restart(End::Killed);
    without_origin(&origin, "asked for twice", || {
        assert!(is_hit(&crate::disks::get(&edge, "/x")));
    });
}

// The minimum and maximum size for writing to volumes are compared with the length of the content.
#[test]
fn objects_outside_the_size_limits_are_not_written() {
    let origin = shelf();
    let disks = Disks::new(1);
    let setup = disks
        .setup(&origin)
        .cache("admit_min = \"1000B\"")
        .cache("admit_max = \"300000B\"");
    let edge = start(&setup);
    let lengths = [0, 999, 1000, 70_000, 300_000, 300_001, 700_000];
    let files: Vec<File> = (0..).zip(lengths).map(|(n, l)| File::new(n, l)).collect();
    fill(&edge, &files);
    without_origin(&origin, "in memory", || {
        files.iter().for_each(|file| file.assert_stored(&edge));
    });
    let expected = records(1000) + records(70_000) + records(300_000);
    written(&edge, expected);
    let edge = again(edge, End::Stopped, &setup);
    assert_eq!(number_of(&edge, 1, "records"), expected);
    for file in files {
        let kept = (1000..=300_000).contains(&file.length);
        assert_eq!(is_hit(&file.get(&edge)), kept, "{file:?}");
    }
}

// A block that is larger than a segment of the volume can't be written, and stays in memory.
#[test]
fn blocks_larger_than_a_segment_are_not_written() {
    let origin = shelf();
    let disks = Disks::new(1);
    let text = disks.setup(&origin).text();
    let setup = crate::harness::Setup::of_text(
        text.replace("slice = \"256KiB\"", "slice = \"4MiB\"\nfill = \"slice\""),
    );
    let edge = start(&setup);
    let large = File::new(1, 9_000_000);
    let small = File::new(2, 10_000);
    fill(&edge, &[large, small]);
    without_origin(&origin, "in memory", || large.assert_stored(&edge));
    let edge = again(edge, End::Stopped, &setup);
    large.get(&edge);
    without_origin(&origin, "stored", || small.assert_stored(&edge));
    assert_eq!(number_of(&edge, 1, "damaged"), 0);
}

#[test]
fn responses_that_may_not_be_stored_are_not_written() {
    let origin = shelf();
    for control in ["no-store", "private", "no-store, max-age=60"] {
        let path = format!("/{}", control.len());
        let resource = sluice_lab::origin::Resource::offset(20_000);
        origin.serve(&path, resource.cache_control(control));
    }
    let edge = Disks::new(1).start(&origin);
    for _ in 0..3 {
        for path in ["/8", "/7", "/20"] {
            assert!(!is_hit(&crate::disks::get(&edge, path)));
        }
    }
    let secret = [("Authorization", "Basic eDp5")];
    File::new(5, 100).get(&edge);
    written(&edge, 1);
    ask(&edge, "GET", &File::new(6, 100).path(), &secret);
    settled(&edge);
    assert_eq!(number_of(&edge, 1, "records"), 1);
}

// `inactive` drops objects from volumes if no client requests them for this time. An object that
// clients request stays.
#[test]
fn inactive_objects_are_dropped_from_volumes() {
    let origin = shelf();
    let disks = Disks::new(1).sized(64 << 20);
    let setup = disks
        .setup(&origin)
        .cache("memory = \"8MiB\"")
        .cache("inactive = \"8s\"");
    let edge = start(&setup);
    let idle = File::row(0, 20, 10_000);
    let busy = File::new(100, 10_000);
    fill(&edge, &idle);
    fill(&edge, &[busy]);
    assert_eq!(number_of(&edge, 1, "records"), 21);
    // An object is dropped from the volume only after its eviction from memory, so requests for
    // other objects evict the idle ones. Which object is evicted next is partly random.
    let is_in_memory = |file: &File| !edge.objects_of(HOST, &file.path()).is_empty();
    for other in File::row(1000, 1000, 400_000) {
        other.get(&edge);
        busy.assert_stored(&edge);
        if !idle.iter().any(is_in_memory) {
            break;
        }
    }
    // Records of the other objects may stay as long as these objects are in memory.
    eventually("the idle ones are gone", || {
        busy.assert_stored(&edge);
        number_of(&edge, 1, "records") <= 1 + 20 * 3
    });
    for file in idle {
        assert!(!is_hit(&file.get(&edge)), "{file:?}");
    }
    let before = origin.read_record(|record| record.count(&busy.path()));
    busy.assert_stored(&edge);
    assert_eq!(
        origin.read_record(|record| record.count(&busy.path())),
        before
    );
    assert_eq!(before, 1, "it was read all the time");
}

// Records that do not fit into the write queue, whose size in bytes is limited, are dropped and
// counted as `shed`.
#[test]
fn the_write_queue_is_bounded_and_dropped_records_are_counted() {
    let origin = shelf();
    let mut edge = Disks::new(1)
        .each("queue = \"1MiB\"")
        .sized(64 << 20)
        .start(&origin);
    let files = [File::row(0, 60, 250_000), File::row(100, 200, 3000)].concat();
    thread::scope(|scope| {
        for part in files.chunks(33) {
            let edge = &edge;
            scope.spawn(move || {
                for file in part {
                    file.get(edge);
                    let waiting = number_of(edge, 1, "queue_bytes");
                    assert!(waiting <= 1 << 20, "{waiting} bytes wait");
                }
            });
        }
    });
    settled(&edge);
    let (kept, shed) = (sum(&edge, "records"), sum(&edge, "shed"));
    let all: u64 = files.iter().map(|file| records(file.length)).sum();
    // Some heads are written twice, the second time when the last byte of the body has arrived. The
    // sum may therefore exceed the number of records.
    assert!(
        kept <= all && kept + shed >= all,
        "{kept} + {shed} of {all}"
    );
    assert_eq!(shed > 0, sum(&edge, "shed_bytes") > 0);
    files.iter().for_each(|file| drop(file.get(&edge)));
    assert_eq!(edge.counter("responses_5xx"), 0);
    // A dropped record is either written after a later request or stays absent. `File::get` checks
    // that no content is wrong.
    edge.restart(End::Stopped);
    files.iter().for_each(|file| drop(file.get(&edge)));
}
