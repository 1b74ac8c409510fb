//! Tests of the placement on volumes: hash, weights, stripe and mirror. Several caches share a
//! volume, or have their own volumes.

use std::fs;

use serde_json::json;
use sluice_lab::origin::{Origin, Resource};

use crate::disks::{
    BLOCK, Disks, ENDS, End, File, MIB, again, end, fill, get, is_hit, number_of, purge, records,
    settled, shelf, start, sum, without_origin, written,
};
use crate::harness::{Edge, Setup, assert_hit, fresh, serving};

/// Configures a cache with this placement on all of these volumes.
fn placing(disks: &Disks, origin: &Origin, placement: &str) -> Setup {
    disks
        .setup(origin)
        .cache(&format!("placement = \"{placement}\""))
}

/// Returns the number of records on each volume.
fn spread(edge: &Edge, count: usize) -> Vec<u64> {
    (1..=count).map(|n| number_of(edge, n, "records")).collect()
}

// With the placement `hash` each object is on one volume. The volumes' shares follow from the
// weights.
#[test]
fn hash_gives_each_volume_its_share() {
    for (weights, shares) in [
        ("", [100, 100]),
        ("weights = [50, 50]", [100, 100]),
        ("weights = [75, 25]", [150, 50]),
        ("weights = [1, 9]", [20, 180]),
    ] {
        let origin = shelf();
        let disks = Disks::in_memory(2);
        let setup = placing(&disks, &origin, "hash").cache(weights);
        let mut edge = start(&setup);
        let files = File::row(0, 200, 10_000);
        fill(&edge, &files);
        written(&edge, 200);
        let counts = spread(&edge, 2);
        assert_eq!(counts[0] + counts[1], 200, "{weights}");
        // The tolerance is four standard deviations of a random choice.
        assert!(counts[0].abs_diff(shares[0]) <= 28, "{weights}: {counts:?}");
        for how in ENDS {
            edge = again(edge, how, &setup);
            without_origin(&origin, weights, || {
                files.iter().for_each(|file| file.assert_stored(&edge));
            });
            assert_eq!(spread(&edge, 2), counts);
        }
    }
}

#[test]
fn the_default_placement_for_several_volumes_is_hash() {
    let origin = shelf();
    let disks = Disks::in_memory(3);
    let edge = start(&disks.setup(&origin));
    fill(&edge, &File::row(0, 90, 10_000));
    written(&edge, 90);
    let counts = spread(&edge, 3);
    assert_eq!(counts.iter().sum::<u64>(), 90);
    assert!(counts.iter().all(|count| *count > 10), "{counts:?}");
}

// With `hash` all blocks of a large object are on one volume. With `stripe` they are on all volumes
// in turn.
#[test]
fn stripe_spreads_the_blocks_of_an_object() {
    let length = 12 * BLOCK;
    for (placement, count, expected) in [
        ("hash", 2, vec![0, 13]),
        ("stripe", 2, vec![6, 7]),
        ("stripe", 3, vec![4, 4, 5]),
    ] {
        let origin = shelf();
        let disks = Disks::in_memory(count);
        let setup = placing(&disks, &origin, placement);
        let mut edge = start(&setup);
        let file = File::new(5, length);
        fill(&edge, &[file]);
        written(&edge, records(length));
        let mut counts = spread(&edge, count);
        counts.sort_unstable();
        assert_eq!(counts, expected, "{placement} over {count}");
        for how in ENDS {
            edge = again(edge, how, &setup);
            without_origin(&origin, placement, || {
                file.get_range(&edge, 5 * BLOCK - 10, 7 * BLOCK + 10);
                file.assert_stored(&edge);
            });
        }
    }
}

// With the placement `stripe` and many small and large objects, each volume has its share of the
// bytes.
#[test]
fn stripe_spreads_the_bytes_of_many_objects() {
    let origin = shelf();
    let disks = Disks::in_memory(2).sized(32 * MIB);
    let edge = start(&placing(&disks, &origin, "stripe"));
    fill(&edge, &File::row(0, 10, 8 * BLOCK));
    fill(&edge, &File::row(100, 100, 10_000));
    let written = [1, 2].map(|n| number_of(&edge, n, "written_bytes"));
    let (least, most) = (written[0].min(written[1]), written[0].max(written[1]));
    assert!(least * 10 >= most * 8, "{written:?}");
}

/// Returns small and large files, and their number of records.
fn mixed() -> (Vec<File>, u64) {
    let files = [File::row(0, 30, 20_000), File::row(100, 5, 600_000)].concat();
    let count = files.iter().map(|file| records(file.length)).sum();
    (files, count)
}

// The file of one of two volumes is removed or overwritten. With the placement `mirror` all objects
// are still served from the other volume.
#[test]
fn a_mirror_survives_the_loss_of_either_volume() {
    for lost in [1, 2] {
        for how in ENDS {
            let origin = shelf();
            let disks = Disks::in_memory(2);
            let setup = placing(&disks, &origin, "mirror");
            let edge = start(&setup);
            let (files, count) = mixed();
            fill(&edge, &files);
            written(&edge, 2 * count);
            assert_eq!(spread(&edge, 2), [count, count]);
            end(edge, how);
            fs::remove_file(disks.path(lost)).expect("it was there");
            let edge = start(&setup);
            assert_eq!(number_of(&edge, lost, "records"), 0);
            without_origin(&origin, "mirrored", || {
                files.iter().for_each(|file| file.assert_stored(&edge));
            });
        }
    }
}

// One of two mirrored volumes can't be opened, or its content is damaged everywhere. All objects
// are still served from the other volume.
#[test]
fn a_mirror_serves_while_one_volume_is_unavailable_or_damaged() {
    let origin = shelf();
    let disks = Disks::in_memory(2).each("retry = \"100ms\"");
    let setup = placing(&disks, &origin, "mirror");
    let edge = start(&setup);
    let (files, count) = mixed();
    fill(&edge, &files);
    written(&edge, 2 * count);
    end(edge, End::Killed);
    // The test overwrites every segment of the first volume. The superblocks and the purge log
    // before the segments stay intact.
    let mut content = fs::read(disks.path(1)).expect("a volume");
    let begin = content.len() - 14 * MIB as usize;
    content[begin..].fill(0x5a);
    fs::write(disks.path(1), content).expect("a volume");
    let edge = start(&setup);
    without_origin(&origin, "one is damaged", || {
        files.iter().for_each(|file| file.assert_stored(&edge));
    });
    end(edge, End::Killed);
    let elsewhere = setup.text().replace("/1.vol", "/missing/1.vol");
    let edge = Setup::of_text(elsewhere).start();
    crate::harness::eventually("the second one has loaded", || {
        crate::disks::volume(&edge, 2)["state"] == "up"
    });
    assert_eq!(crate::disks::volume(&edge, 1)["state"], "out");
    without_origin(&origin, "one is out", || {
        files.iter().for_each(|file| file.assert_stored(&edge));
    });
}

// With the placement `mirror` and three volumes, each object is on two of them.
#[test]
fn a_mirror_over_three_keeps_two_copies() {
    let origin = shelf();
    let disks = Disks::in_memory(3);
    let setup = placing(&disks, &origin, "mirror");
    let edge = start(&setup);
    let (files, count) = mixed();
    fill(&edge, &files);
    written(&edge, 2 * count);
    let counts = spread(&edge, 3);
    assert_eq!(counts.iter().sum::<u64>(), 2 * count, "{counts:?}");
    assert!(counts.iter().all(|n| *n > 0 && *n < count), "{counts:?}");
    end(edge, End::Killed);
    fs::remove_file(disks.path(2)).expect("it was there");
    let edge = start(&setup);
    without_origin(&origin, "mirrored", || {
        files.iter().for_each(|file| file.assert_stored(&edge));
    });
}

// With the placements `hash` and `stripe`, the loss of a volume loses only the data on this volume.
#[test]
fn the_loss_of_a_volume_loses_only_its_own_data() {
    for placement in ["hash", "stripe"] {
        let origin = shelf();
        let disks = Disks::in_memory(2);
        let setup = placing(&disks, &origin, placement);
        let edge = start(&setup);
        let (files, count) = mixed();
        fill(&edge, &files);
        written(&edge, count);
        let left = number_of(&edge, 2, "records");
        end(edge, End::Stopped);
        fs::remove_file(disks.path(1)).expect("it was there");
        let edge = start(&setup);
        assert_eq!(number_of(&edge, 2, "records"), left);
        let small = &files[..30];
        let kept = small.iter().filter(|file| is_hit(&file.get(&edge))).count();
        assert!((3..=27).contains(&kept), "{placement}: {kept} of 30");
        fill(&edge, &files);
        without_origin(&origin, "fetched again", || {
            files.iter().for_each(|file| file.assert_stored(&edge));
        });
    }
}

/// Configures two caches for different routes, each on the volumes that its argument names.
fn two_caches(disks: &Disks, origin: &Origin, first: &str, second: &str) -> Setup {
    let servers = [origin.url("")];
    Setup::of_text(format!(
        "[server]\nworkers = 2\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[upstream.origin]\nservers = {servers:?}\n\
         [cache.main]\nvolumes = {first}\nslice = \"256KiB\"\n\
         [cache.other]\nvolumes = {second}\nslice = \"256KiB\"\n\
         [[site]]\n[[site.route]]\npath = \"/other/*\"\nproxy = \"origin\"\ncache = \"other\"\n\
         [[site.route]]\nproxy = \"origin\"\ncache = \"main\"\n{}",
        disks.tables()
    ))
}

// Two caches share a volume. Each finds only its own objects, and a purge of everything in one
// cache leaves those of the other.
#[test]
fn caches_share_a_volume() {
    let origin = shelf();
    let disks = Disks::new(1);
    let setup = two_caches(&disks, &origin, "[\"disk1\"]", "[\"disk1\"]");
    let mut edge = start(&setup);
    let paths = ["/other/x", "/x", "/other/y", "/y"];
    for (path, length) in paths.iter().zip([5000, 5000, 700_000, 700_000]) {
        origin.serve(path, fresh(length));
        get(&edge, path);
    }
    written(&edge, 2 + 2 * records(700_000));
    let hits = |edge: &Edge| paths.map(|path| is_hit(&get(edge, path)));
    edge = again(edge, End::Killed, &setup);
    without_origin(&origin, "stored", || {
        assert_eq!(hits(&edge), [true; 4]);
    });
    purge(&edge, &json!({"all": true, "cache": "other"}));
    edge = again(edge, End::Killed, &setup);
    assert_eq!(hits(&edge), [false, true, false, true]);
    settled(&edge);
    purge(&edge, &json!({"all": true, "cache": "main"}));
    edge = again(edge, End::Stopped, &setup);
    assert_eq!(hits(&edge), [true, false, true, false]);
}

// A route is moved to another cache. The objects that the first cache has stored for its URLs are
// not served.
#[test]
fn the_new_cache_of_a_route_starts_empty() {
    let origin = serving("/other/x", fresh(5000));
    let disks = Disks::new(1);
    let both = "[\"disk1\"]";
    let setup = two_caches(&disks, &origin, both, both);
    let edge = start(&setup);
    get(&edge, "/other/x");
    written(&edge, 1);
    let moved = setup
        .text()
        .replace("path = \"/other/*\"", "path = \"/none/*\"");
    let edge = again(edge, End::Stopped, &Setup::of_text(moved));
    assert!(!is_hit(&get(&edge, "/other/x")));
    written(&edge, 2);
    let edge = again(edge, End::Stopped, &setup);
    assert_hit(&get(&edge, "/other/x"));
}

// Each of two caches has a volume of its own, and writes only there.
#[test]
fn caches_can_have_their_own_volumes() {
    let origin = shelf();
    let disks = Disks::new(2);
    let setup = two_caches(&disks, &origin, "[\"disk1\"]", "[\"disk2\"]");
    let mut edge = start(&setup);
    for n in 0..10 {
        for (path, times) in [(format!("/{n}"), 1), (format!("/other/{n}"), 2)] {
            origin.serve(&path, fresh(1000 * times));
            get(&edge, &path);
        }
    }
    written(&edge, 20);
    assert_eq!(spread(&edge, 2), [10, 10]);
    edge = again(edge, End::Killed, &setup);
    without_origin(&origin, "stored", || {
        for n in 0..10 {
            assert_hit(&get(&edge, &format!("/{n}")));
            assert_hit(&get(&edge, &format!("/other/{n}")));
        }
    });
    // The volume of the first cache is lost. The second cache still serves its objects.
    end(edge, End::Killed);
    fs::remove_file(disks.path(1)).expect("it was there");
    let edge = start(&setup);
    for n in 0..10 {
        assert!(!is_hit(&get(&edge, &format!("/{n}"))));
        assert_hit(&get(&edge, &format!("/other/{n}")));
    }
}

// The program is restarted with another placement on the same volumes. Objects may or may not be
// found again, but none is wrong.
#[test]
fn another_placement_serves_nothing_wrong() {
    let origin = shelf();
    let disks = Disks::in_memory(2);
    let (files, _) = mixed();
    let mut edge = start(&placing(&disks, &origin, "hash"));
    fill(&edge, &files);
    for placement in ["mirror", "stripe", "hash", "mirror", "hash"] {
        let setup = placing(&disks, &origin, placement);
        edge = again(edge, End::Stopped, &setup);
        files.iter().for_each(|file| drop(file.get(&edge)));
        fill(&edge, &files);
        without_origin(&origin, placement, || {
            files.iter().for_each(|file| file.assert_stored(&edge));
        });
        assert_eq!(sum(&edge, "damaged"), 0);
    }
}

// A new version is stored under another placement, while an old version is still on a volume. When
// the first placement is configured again, the old version must not be served.
#[test]
fn changing_the_placement_restores_no_old_version() {
    for length in [5000, 700_000] {
        let origin = serving("/x", fresh(length));
        let disks = Disks::in_memory(2);
        let mut edge = start(&placing(&disks, &origin, "mirror"));
        get(&edge, "/x");
        written(&edge, 2 * records(length));
        for (version, placement) in [(1, "hash"), (2, "stripe"), (3, "mirror"), (4, "hash")] {
            edge = again(edge, End::Killed, &placing(&disks, &origin, placement));
            let resource: Resource = fresh(length).version(version);
            origin.serve("/x", resource);
            crate::disks::purge_path(&edge, "/x");
            let reply = get(&edge, "/x");
            reply.verify_version(version, 0).expect("the new one");
            settled(&edge);
            edge = again(edge, End::Killed, &placing(&disks, &origin, placement));
            let reply = get(&edge, "/x");
            reply.verify_version(version, 0).expect("the new one");
        }
    }
}
