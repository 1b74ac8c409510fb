//! Tests of the size of a volume: its file always has exactly the configured size.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::disks::{
    Disks, ENDS, End, File, MIB, SMALL, again, end, number_of, settled, shelf, start,
    without_origin,
};
use crate::harness::{Edge, Setup};

/// Asserts that a volume's file has the reported length, that disk space is allocated for all of
/// it, and that the configured size is not exceeded.
fn assert_exact(edge: &Edge, disks: &Disks) {
    let (length, taken) = disks.taken(1);
    let size = disks.size();
    assert!(
        length <= size && taken <= size,
        "{length} {taken} of {size}"
    );
    assert_eq!(length, number_of(edge, 1, "size"));
    assert!(taken >= length, "{taken} of {length}: it is sparse");
    // The file is shorter than the configured size by less than a segment.
    let segment = number_of(edge, 1, "segment_bytes");
    assert!(length + segment > size, "{length} of {size}");
    assert!(number_of(edge, 1, "segments") >= 8);
}

// The file is allocated in advance. Its length is the configured size, rounded down to whole
// segments.
#[test]
fn a_volume_has_its_configured_size() {
    let origin = shelf();
    for size in [
        SMALL,
        SMALL + 1,
        SMALL + MIB - 1,
        20_000_000,
        65 * MIB + 4095,
        130_000_000,
    ] {
        let disks = Disks::new(1).sized(size);
        let setup = disks.setup(&origin);
        let edge = start(&setup);
        assert_exact(&edge, &disks);
        end(edge, End::Stopped);
        let before = disks.taken(1);
        let edge = start(&setup);
        assert_exact(&edge, &disks);
        assert_eq!(disks.taken(1), before);
    }
}

// Four times the size of the volume is written. The occupied disk space must never exceed the size,
// neither on a disk nor on a file system in memory.
#[test]
fn writing_several_times_the_size_uses_no_byte_more() {
    for disks in [Disks::new(1), Disks::in_memory(1)] {
        let origin = shelf();
        let setup = disks.setup(&origin).cache("memory = \"16MiB\"");
        let edge = start(&setup);
        let stop = AtomicBool::new(false);
        let most = thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut most = 0;
                while !stop.load(Ordering::Relaxed) {
                    let (length, taken) = disks.taken(1);
                    most = most.max(length).max(taken);
                    thread::yield_now();
                }
                most
            });
            // The flag ends the observer thread even if the load has failed.
            let flood = scope.spawn(|| flood(&edge));
            let flooded = flood.join();
            stop.store(true, Ordering::Relaxed);
            flooded.expect("every byte was right");
            watch.join().expect("no panic")
        });
        assert!(most <= disks.size(), "{most} bytes of {}", disks.size());
        let written = number_of(&edge, 1, "written_bytes");
        assert!(written > 2 * disks.size(), "{written} bytes were written");
        assert_exact(&edge, &disks);
        let folder = disks.path(1);
        let folder = folder.parent().expect("a folder");
        let files = fs::read_dir(folder).expect("a folder").count();
        assert_eq!(files, 1, "nothing lies beside it");
        end(edge, End::Killed);
        for how in ENDS {
            let edge = start(&setup);
            assert_exact(&edge, &disks);
            end(edge, how);
            assert!(disks.taken(1).1 <= disks.size());
        }
    }
}

/// Requests files with four times the content of a small volume, from four concurrent clients.
fn flood(edge: &Edge) {
    thread::scope(|scope| {
        for client in 0..4 {
            scope.spawn(move || {
                for n in 0..60 {
                    let number = client * 1000 + n;
                    File::new(number, 20_000 + number).get(edge);
                    File::new(number, 270_000 + number * 7).get(edge);
                    if n % 4 == 0 {
                        settled(edge);
                    }
                }
            });
        }
    });
    settled(edge);
}

// The configured size of a volume changes between two starts. The volume has the new size and no
// records, and the program reports that.
#[test]
fn a_volume_of_another_size_starts_empty() {
    let origin = shelf();
    let disks = Disks::new(1).sized(24 * MIB);
    let edge = start(&disks.setup(&origin));
    let file = File::new(1, 30_000);
    file.get(&edge);
    settled(&edge);
    end(edge, End::Stopped);
    let mut disks = disks;
    for size in [32 * MIB, 16 * MIB] {
        disks = disks.sized(size);
        let setup = disks.setup(&origin);
        let edge = start(&setup);
        assert_exact(&edge, &disks);
        assert_eq!(number_of(&edge, 1, "records"), 0);
        let said = edge.process.stderr();
        assert!(said.contains("disk1"), "{said}");
        file.get(&edge);
        crate::disks::written(&edge, 1);
        let edge = again(edge, End::Killed, &setup);
        without_origin(&origin, "stored again", || file.assert_stored(&edge));
        end(edge, End::Killed);
    }
}

// The message names the position of the invalid size or name in the configuration.
#[test]
fn impossible_sizes_and_names_are_reported() {
    let origin = shelf();
    let disks = Disks::new(1);
    let good = disks.setup(&origin).text();
    let size = format!("size = \"{SMALL}B\"");
    assert!(good.contains(&size));
    let with_volumes = |to: &str| good.replace("volumes = [\"disk1\"]", to);
    let cases = [
        (good.replace(&size, "size = \"15MiB\""), "size"),
        (good.replace(&size, "size = \"5TiB\""), "size"),
        (good.replace(&size, ""), "size"),
        (
            good.replace(&size, &format!("{size}\nsegment = \"4MiB\"")),
            "segment",
        ),
        (good.replace(&size, &format!("{size}\nsiez = 1")), "siez"),
        (with_volumes("volumes = [\"disk2\"]"), "disk2"),
        (with_volumes("volumes = [\"disk1\", \"disk1\"]"), "disk1"),
        (
            with_volumes("volumes = [\"disk1\"]\nplacement = \"raid\""),
            "raid",
        ),
        (
            with_volumes("volumes = [\"disk1\"]\nplacement = \"mirror\""),
            "mirror",
        ),
        (
            with_volumes("volumes = [\"disk1\"]\nweights = [1, 2]"),
            "weights",
        ),
        (
            good.clone() + &disks.tables().replace("disk1", "disk2"),
            "disk1",
        ),
    ];
    for (text, word) in cases {
        assert_ne!(text, good, "{word}");
        let said = Setup::of_text(text).refused();
        assert!(said.contains(word), "{word}: {said}");
        assert!(said.contains("sluice.toml:"), "{word}: {said}");
        assert!(!disks.path(1).exists(), "{word}: nothing was made");
    }
}
