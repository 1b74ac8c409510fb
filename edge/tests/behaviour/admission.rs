//! What is written to volumes at all, how long it stays, and what is given up when too much waits.

use std::thread;

use crate::disks::{
    Disks, End, File, again, ask, fill, is_hit, number_of, records, settled, shelf, start, sum,
    without_origin, written,
};
use crate::harness::{Edge, eventually};

// "admission settings (all, second request, …)": what was asked for once is in memory alone.
#[test]
fn what_was_asked_for_a_second_time_is_written() {
    let origin = shelf();
    let disks = Disks::new(1);
    let setup = disks.setup(&origin).cache("admit = \"second\"");
    let edge = start(&setup);
    let once = [File::row(0, 5, 10_000), File::row(10, 2, 400_000)].concat();
    let twice = [File::row(100, 5, 10_000), File::row(110, 2, 400_000)].concat();
    fill(&edge, &once);
    fill(&edge, &twice);
    assert_eq!(number_of(&edge, 1, "records"), 0);
    twice.iter().for_each(|file| file.assert_kept(&edge));
    let expected = twice.iter().map(|file| records(file.length)).sum();
    written(&edge, expected);
    let edge = again(edge, End::Stopped, &setup);
    assert_eq!(number_of(&edge, 1, "records"), expected);
    without_origin(&origin, "asked for twice", || {
        twice.iter().for_each(|file| file.assert_kept(&edge));
    });
    assert!(once.iter().all(|file| !is_hit(&file.get(&edge))));
    settled(&edge);
    assert_eq!(number_of(&edge, 1, "records"), expected);
    assert!(once.iter().all(|file| is_hit(&file.get(&edge))));
    let all = expected + once.iter().map(|file| records(file.length)).sum::<u64>();
    written(&edge, all);
}

// The second request comes while the first is being answered: that counts, too.
#[test]
fn a_second_request_counts_while_the_first_goes_on() {
    let origin = shelf();
    let gate = sluice_lab::origin::Gate::at(100_000);
    let slow = crate::harness::fresh(400_000).gate(&gate);
    origin.serve("/x", slow);
    let disks = Disks::new(1);
    let setup = disks.setup(&origin).cache("admit = \"second\"");
    let edge = start(&setup);
    thread::scope(|scope| {
        let clients = [0; 2].map(|_| scope.spawn(|| crate::disks::get(&edge, "/x")));
        eventually("both are there", || edge.counter("requests_now") == 2);
        gate.release();
        for client in clients {
            let reply = client.join().expect("no panic");
            reply.verify_whole(400_000).expect("the body");
        }
    });
    written(&edge, records(400_000));
    let edge = again(edge, End::Killed, &setup);
    without_origin(&origin, "asked for twice", || {
        assert!(is_hit(&crate::disks::get(&edge, "/x")));
    });
}

// "size limits": by the length of the content.
#[test]
fn what_is_too_small_or_too_large_is_not_written() {
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
        files.iter().for_each(|file| file.assert_kept(&edge));
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

// "a block that can't fit is not admitted": larger than a segment, it stays in memory.
#[test]
fn blocks_that_fit_into_no_segment_are_not_written() {
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
    without_origin(&origin, "in memory", || large.assert_kept(&edge));
    let edge = again(edge, End::Stopped, &setup);
    large.get(&edge);
    without_origin(&origin, "stored", || small.assert_kept(&edge));
    assert_eq!(number_of(&edge, 1, "damaged"), 0);
}

// What asks not to be stored is not written either.
#[test]
fn what_is_not_stored_is_not_written() {
    let origin = shelf();
    for control in ["no-store", "private", "no-store, max-age=60"] {
        let path = format!("/{}", control.len());
        let resource = sluice_lab::origin::Resource::offset(20_000);
        origin.serve(&path, resource.cache_control(control));
    }
    let disks = Disks::new(1);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
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

// "`inactive` drops index entries": what nobody reads goes, what is read stays.
#[test]
fn what_nobody_reads_is_dropped() {
    let origin = shelf();
    let disks = Disks::new(1);
    let setup = disks
        .setup(&origin)
        .cache("memory = \"8MiB\"")
        .cache("inactive = \"2s\"");
    let edge = start(&setup);
    let idle = File::row(0, 20, 10_000);
    let busy = File::new(100, 10_000);
    fill(&edge, &idle);
    fill(&edge, &[busy]);
    assert_eq!(number_of(&edge, 1, "records"), 21);
    // Out of memory they must be to be dropped: others take their place.
    let others = File::row(1000, 40, 400_000);
    without_origin_for(&edge, busy, || {
        fill(&edge, &others);
    });
    let mut left = u64::MAX;
    eventually("the idle ones are gone", || {
        busy.assert_kept(&edge);
        left = number_of(&edge, 1, "records");
        left <= 30
    });
    let before = origin.read_record(|record| record.count(&busy.path()));
    busy.assert_kept(&edge);
    assert_eq!(
        origin.read_record(|record| record.count(&busy.path())),
        before
    );
    assert_eq!(before, 1, "it was read all the time");
}

/// Runs this, with a file read before and after.
fn without_origin_for(edge: &Edge, file: File, run: impl FnOnce()) {
    file.assert_kept(edge);
    run();
    file.assert_kept(edge);
}

// "The queue to a writer is bounded in bytes": whatever comes at once, it never grows beyond that, and what is given up is counted.
#[test]
fn what_waits_is_bounded_and_what_is_given_up_is_counted() {
    let origin = shelf();
    let disks = Disks::new(1).each("queue = \"1MiB\"").sized(64 << 20);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
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
    // A head may be written anew when its last byte has come.
    assert!(
        kept <= all && kept + shed >= all,
        "{kept} + {shed} of {all}"
    );
    assert_eq!(shed > 0, sum(&edge, "shed_bytes") > 0);
    files.iter().for_each(|file| drop(file.get(&edge)));
    assert_eq!(edge.counter("responses_5xx"), 0);
    // What was given up once is written when it comes again, or stays away: never wrong.
    let edge = again(edge, End::Stopped, &setup);
    files.iter().for_each(|file| drop(file.get(&edge)));
}
