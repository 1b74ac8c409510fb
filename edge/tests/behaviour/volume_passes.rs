//! Tests of writers that pass over a whole volume. Objects that clients have read are written
//! again, and all others are overwritten.

use crate::disks::{
    Disks, ENDS, End, File, again, fill, is_hit, number_of, settled, shelf, start, without_origin,
};
use crate::harness::Edge;

/// Requests these files. Returns the number of hits.
fn hits(edge: &Edge, files: &[File]) -> usize {
    files.iter().filter(|file| is_hit(&file.get(edge))).count()
}

// Files are written until the writer has passed over the volume several times. The files that
// clients read meanwhile stay stored.
#[test]
fn objects_that_are_read_survive_a_pass_over_the_volume() {
    for restarted in [false, true] {
        let origin = shelf();
        let disks = Disks::new(1);
        // The memory tier is so small that other files evict everything between two reads.
        let setup = disks.setup(&origin).cache("memory = \"8MiB\"");
        let mut edge = start(&setup);
        let all = File::row(0, 200, 50_000);
        fill(&edge, &all);
        // Every eighth file is read again and again, so each segment has some of these files.
        let hot: Vec<File> = all.iter().copied().step_by(8).collect();
        let cold: Vec<File> = all.iter().copied().skip(1).step_by(8).collect();
        if restarted {
            // Only reads from the volume mark records as used, so the restart empties the memory
            // before the read.
            edge = again(edge, End::Killed, &setup);
            assert_eq!(hits(&edge, &hot), hot.len(), "all fit");
            edge = again(edge, End::Stopped, &setup);
        }
        // The new files overwrite everything on the volume, except for the records that were read
        // and therefore written again.
        for (n, file) in File::row(1000, 325, 50_000).iter().enumerate() {
            if n % 90 == 0 && !restarted {
                assert_eq!(hits(&edge, &hot), hot.len(), "{n}");
            }
            file.get(&edge);
            if n % 20 == 0 {
                settled(&edge);
            }
        }
        settled(&edge);
        assert!(number_of(&edge, 1, "rewritten_bytes") > 0);
        let kept = hits(&edge, &hot);
        assert!(kept * 10 >= hot.len() * 9, "{restarted}: {kept} were kept");
        let gone = cold.len() - hits(&edge, &cold);
        assert!(gone * 10 >= cold.len() * 9, "{restarted}: {gone} are gone");
    }
}

// Files are written until the writer has passed over the volume, then the program is restarted, and
// so on. Every file that the status lists is served without a wrong byte.
#[test]
fn passes_and_restarts_alternate_safely() {
    let origin = shelf();
    let mut edge = Disks::in_memory(1).start(&origin);
    for round in 0..8_u64 {
        let new = File::row(round * 100, 40, 150_000 + round * 11_111);
        fill(&edge, &new);
        let records_before = number_of(&edge, 1, "records");
        edge.restart(ENDS[round as usize % 2]);
        // Some objects were evicted from memory and are still on the volume, so the number of hits
        // may be higher.
        let found = number_of(&edge, 1, "records");
        assert!(
            found >= records_before,
            "{round}: {found} of {records_before}"
        );
        // The newest objects must be stored, whatever has been overwritten.
        without_origin(&origin, "the newest", || {
            new.iter()
                .rev()
                .take(20)
                .for_each(|file| file.assert_stored(&edge));
        });
        assert_eq!(number_of(&edge, 1, "damaged"), 0, "{round}");
    }
}
