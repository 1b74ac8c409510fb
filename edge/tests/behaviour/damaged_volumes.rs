//! Tests of damaged volumes: flipped bits, lost blocks, misplaced blocks. No client receives a
//! wrong byte. Damaged data is counted, and fetched again from the origin.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use sluice_lab::client::Client;
use sluice_lab::noise::{self, Dice};

use crate::disks::{
    Disks, ENDS, End, File, HOST, MIB, again, end, fill, is_hit, number_of, settled, shelf, start,
    without_origin,
};
use crate::harness::{Edge, Setup};

/// Number of bits that one round flips.
const FLIPS: u64 = 2000;
const RUNS: u64 = 5;

/// Returns the offset of the first segment in the volume's file. Before it are the superblocks and
/// the purge log, which other tests damage.
fn segments_begin(edge: &Edge) -> u64 {
    let all = number_of(edge, 1, "segments") * number_of(edge, 1, "segment_bytes");
    number_of(edge, 1, "size") - all
}

/// Flips `count` random bits of a file, all after the offset `begin`.
fn flip(path: &Path, begin: u64, count: u64, dice: &mut Dice) {
    let file = OpenOptions::new().read(true).write(true).open(path);
    let file = file.expect("the volume's file");
    let length = file.metadata().expect("its length").len();
    for _ in 0..count {
        let at = begin + dice.below(length - begin);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("a byte");
        byte[0] ^= 1 << dice.below(8);
        file.write_all_at(&byte, at).expect("a byte");
    }
}

/// Returns small and large files with 10 MB in total.
fn many() -> Vec<File> {
    [
        File::row(0, 800, 5000),
        File::row(2000, 60, 50_000),
        File::row(3000, 12, 250_000),
    ]
    .concat()
}

/// Requests all files on one connection and checks every byte. Returns the number of hits.
fn get_all(edge: &Edge, files: &[File]) -> usize {
    let mut client = edge.client();
    let one = |client: &mut Client, file: &File| {
        let reply = client.get(&file.path(), &[("Host", HOST)]);
        let reply = reply.expect("a reply");
        let right = noise::verify(file.number, 0, 0, &reply.body);
        right.unwrap_or_else(|wrong| panic!("{file:?}: {wrong}"));
        assert_eq!(reply.body.len() as u64, file.length, "{file:?}");
        assert!(!reply.truncated(), "{file:?}");
        is_hit(&reply)
    };
    files.iter().filter(|file| one(&mut client, file)).count()
}

// Five rounds flip 10,000 bits in total. No client may receive a wrong byte, and damaged records
// are fetched again.
#[test]
fn no_flipped_bit_reaches_a_client() {
    let origin = shelf();
    let mut edge = Disks::in_memory(1).start(&origin);
    let files = many();
    let begin = segments_begin(&edge);
    for run in 0..RUNS {
        fill(&edge, &files);
        edge.end(ENDS[run as usize % 2]);
        flip(&edge.disks.path(1), begin, FLIPS, &mut Dice::new(run, 17));
        edge.start();
        let before = origin.read_record(|record| record.requests_total);
        let hits = get_all(&edge, &files);
        let asked = origin.read_record(|record| record.requests_total) - before;
        assert!(
            hits < files.len() - 100,
            "{run}: {hits} hits: nothing was damaged"
        );
        assert!(
            hits > 100,
            "{run}: {hits} hits: whatever is sound is served"
        );
        assert!(
            asked >= (files.len() - hits) as u64,
            "{run}: each is fetched again"
        );
        assert!(number_of(&edge, 1, "damaged") > 20, "{run}: it is counted");
        settled(&edge);
        // The records were fetched and written again. They must be intact now, and after a restart.
        without_origin(&origin, "repaired", || {
            assert_eq!(get_all(&edge, &files), files.len(), "{run}");
        });
        edge.restart(End::Killed);
        let hits = get_all(&edge, &files);
        // Damage to a segment's table also hides intact records of the segment, so only half of the
        // files must be hits.
        assert!(hits > files.len() / 2, "{run}: {hits} hits");
        edge.end(End::Killed);
        fs::remove_file(edge.disks.path(1)).expect("it was there");
        edge.start();
    }
    assert_eq!(edge.counter("responses_5xx"), 0);
}

// Bits of a large object with many blocks are flipped. The object is then requested in ranges and
// as a whole.
#[test]
fn damaged_blocks_are_fetched_again_one_by_one() {
    let origin = shelf();
    let mut edge = Disks::in_memory(1).start_with(&origin, "fill = \"slice\"");
    let begin = segments_begin(&edge);
    let file = File::new(1, 6_000_000);
    fill(&edge, &[file]);
    edge.restart(End::Stopped);
    let mut dice = Dice::new(5, 5);
    for run in 0..4 {
        edge.end(End::Killed);
        flip(&edge.disks.path(1), begin, 40, &mut dice);
        edge.start();
        origin.reset_record();
        for _ in 0..100 {
            let first = dice.below(file.length - 1);
            let last = (first + dice.below(100_000)).min(file.length - 1);
            file.get_range(&edge, first, last);
        }
        file.get(&edge);
        settled(&edge);
        let sent = origin.read_record(|record| record.sent_for(&file.path()));
        assert!(sent > 0, "{run}: nothing was damaged");
        without_origin(&origin, "repaired", || file.assert_stored(&edge));
    }
}

// Bits are flipped while the program runs. Data is verified on each read, even if it comes from the
// page cache.
#[test]
fn bits_flipped_at_runtime_reach_no_client() {
    for disks in [Disks::in_memory(1), Disks::new(1)] {
        let origin = shelf();
        let setup = disks.setup(&origin).cache("memory = \"8MiB\"");
        let edge = start(&setup);
        let begin = segments_begin(&edge);
        let files = [File::row(0, 300, 5000), File::row(2000, 44, 240_000)].concat();
        fill(&edge, &files);
        let mut dice = Dice::new(9, 9);
        for _ in 0..3 {
            flip(&disks.path(1), begin, 1000, &mut dice);
            get_all(&edge, &files);
            settled(&edge);
        }
        assert!(number_of(&edge, 1, "damaged") > 20);
        assert_eq!(edge.counter("responses_5xx"), 0);
        let edge = again(edge, End::Stopped, &setup);
        get_all(&edge, &files);
    }
}

// A volume has two superblocks, and one of them is enough. If the purge log is damaged, the volume
// may be emptied.
#[test]
fn damage_before_the_segments_serves_nothing_wrong() {
    let origin = shelf();
    for place in [0..4096, 4096..8192] {
        let mut edge = Disks::in_memory(1).start(&origin);
        let files = File::row(0, 100, 20_000);
        fill(&edge, &files);
        edge.restart(End::Killed);
        edge.end(End::Killed);
        let file = OpenOptions::new().write(true).open(edge.disks.path(1));
        let file = file.expect("the volume's file");
        let garbage = vec![0xa5; 4096];
        file.write_all_at(&garbage, place.start).expect("written");
        edge.start();
        let hits = get_all(&edge, &files);
        assert_eq!(hits, files.len(), "{place:?}");
    }
}

// A damaged purge log may have lost purges, so that nothing that they may cover is served any more.
#[test]
fn nothing_purged_is_served_after_the_purge_log_was_damaged() {
    let origin = shelf();
    for seed in 0..6 {
        let mut edge = Disks::in_memory(1).start(&origin);
        let begin = segments_begin(&edge);
        let files = File::row(0, 100, 5000);
        fill(&edge, &files);
        for file in files.iter().step_by(2) {
            crate::disks::purge_path(&edge, &file.path());
        }
        edge.end(ENDS[seed as usize % 2]);
        let mut dice = Dice::new(seed, 3);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(edge.disks.path(1));
        let file = file.expect("the volume's file");
        match seed {
            // The first seeds damage one bit of the written part of the log.
            0..=3 => flip_written(&file, 8192..begin, &mut dice),
            // The other seeds overwrite the whole log.
            _ => {
                let fill = [0, 0xff][seed as usize % 2];
                let garbage = vec![fill; (begin - 8192) as usize];
                file.write_all_at(&garbage, 8192).expect("written");
            }
        }
        edge.start();
        for file in files.iter().step_by(2) {
            assert!(!is_hit(&file.get(&edge)), "{seed} {file:?}");
        }
        get_all(&edge, &files);
    }
}

/// Flips one bit of a non-zero byte in this part of the file, but not in the last fifth of the
/// written bytes. A damaged entry at the end of the log looks like a purge that was never
/// acknowledged.
fn flip_written(file: &fs::File, place: std::ops::Range<u64>, dice: &mut Dice) {
    let mut content = vec![0; (place.end - place.start) as usize];
    file.read_exact_at(&mut content, place.start).expect("read");
    let written: Vec<usize> = (0..content.len()).filter(|at| content[*at] != 0).collect();
    let at = written[dice.below(written.len() as u64 * 4 / 5) as usize];
    let byte = content[at] ^ (1 << dice.below(8));
    file.write_all_at(&[byte], place.start + at as u64)
        .expect("written");
}

/// Applies the damage to the segments of a stopped volume, and checks that all responses are right
/// after the next start.
fn survives(what: &str, damage: impl Fn(&fs::File, u64, &mut Dice)) {
    let origin = shelf();
    for seed in 0..3 {
        let mut edge = Disks::in_memory(1).start(&origin);
        let begin = segments_begin(&edge);
        let files = many();
        fill(&edge, &files);
        edge.end(ENDS[seed as usize % 2]);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(edge.disks.path(1));
        let file = file.expect("the volume's file");
        damage(&file, begin, &mut Dice::new(seed, 31));
        edge.start();
        get_all(&edge, &files);
        settled(&edge);
        edge.restart(End::Stopped);
        get_all(&edge, &files);
        assert_eq!(edge.counter("responses_5xx"), 0, "{what}");
    }
}

/// Copies `length` bytes of a file from one offset to another.
fn copy(file: &fs::File, from: u64, to: u64, length: u64) {
    let mut piece = vec![0; length as usize];
    file.read_exact_at(&mut piece, from).expect("read");
    file.write_all_at(&piece, to).expect("written");
}

// Whole segments, pages and sectors are moved, lost, or overwritten with other data.
#[test]
fn lost_and_misplaced_data_is_not_served() {
    survives("segments in the wrong place", |file, begin, dice| {
        for _ in 0..4 {
            let (from, to) = (dice.below(10), dice.below(10));
            copy(file, begin + from * MIB, begin + to * MIB, MIB);
        }
    });
    survives("pages in the wrong place", |file, begin, dice| {
        for _ in 0..200 {
            let (from, to) = (dice.below(150), dice.below(150));
            copy(file, begin + from * 65_536, begin + to * 65_536, 65_536);
        }
    });
    survives("sectors in the wrong place", |file, begin, dice| {
        for _ in 0..2000 {
            let (from, to) = (dice.below(20_000), dice.below(20_000));
            copy(file, begin + from * 512, begin + to * 512, 512);
        }
    });
    survives("writes that were lost", |file, begin, dice| {
        for _ in 0..200 {
            let at = begin + dice.below(2400) * 4096;
            file.write_all_at(&[0; 4096], at).expect("written");
        }
    });
    survives("noise", |file, begin, dice| {
        let mut garbage = vec![0; MIB as usize];
        noise::fill(99, 0, 0, &mut garbage);
        for _ in 0..3 {
            let at = begin + dice.below(9) * MIB;
            file.write_all_at(&garbage, at).expect("written");
        }
    });
}

// Some writes of a complete pass over the volume are lost, so that records of the pass before are
// still on the disk. They must not be taken for records of the present pass.
#[test]
fn records_of_an_earlier_pass_are_not_served() {
    let origin = shelf();
    let mut edge = Disks::in_memory(1).start(&origin);
    let begin = segments_begin(&edge);
    fill(&edge, &File::row(0, 120, 140_000));
    edge.end(End::Stopped);
    let earlier = fs::read(edge.disks.path(1)).expect("the volume");
    edge.start();
    let files = File::row(1000, 120, 140_000);
    fill(&edge, &files);
    assert!(number_of(&edge, 1, "laps") >= 1);
    edge.end(End::Killed);
    let file = OpenOptions::new().write(true).open(edge.disks.path(1));
    let file = file.expect("the volume's file");
    let mut dice = Dice::new(2, 2);
    for _ in 0..60 {
        let at = (begin + dice.below(220) * 65_536) as usize;
        let piece = &earlier[at..(at + 65_536).min(earlier.len())];
        file.write_all_at(piece, at as u64).expect("written");
    }
    edge.start();
    get_all(&edge, &files);
    get_all(&edge, &File::row(0, 120, 140_000));
    assert_eq!(edge.counter("responses_5xx"), 0);
}

// An old copy of the volume's file replaces the present one. The copy is consistent in itself, but
// its content is out of date.
#[test]
fn an_older_copy_of_the_file_serves_nothing_wrong() {
    let origin = shelf();
    let disks = Disks::in_memory(1);
    let setup: Setup = disks.setup(&origin);
    let edge = start(&setup);
    let files = File::row(0, 100, 30_000);
    fill(&edge, &files);
    end(edge, End::Killed);
    let copy = fs::read(disks.path(1)).expect("the volume");
    let edge = start(&setup);
    fill(&edge, &File::row(500, 200, 100_000));
    end(edge, End::Stopped);
    fs::write(disks.path(1), copy).expect("the volume");
    let edge = start(&setup);
    assert_eq!(get_all(&edge, &files), files.len());
    get_all(&edge, &File::row(500, 20, 100_000));
}
