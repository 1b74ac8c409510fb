//! Tests of durable purges. An acknowledged purge holds after any kind of restart, whether its
//! objects were in memory, on a volume, in the write queue, or still being fetched.

use std::fs;
use std::thread;

use serde_json::{Value, json};
use sluice_lab::origin::{Latch, Origin, Resource};

use crate::disks::{
    Disks, ENDS, End, File, HOST, again, ask, end, fill, get, is_hit, loaded, number_of, purge,
    purge_path, records, settled, shelf, start, store_x, sum, url, volume, without_origin, written,
};
use crate::harness::{
    Edge, SOON, Setup, assert_hit, cache_status, eventually, fresh, origin, serving,
};

pub const SMALL: u64 = 3000;
pub const LARGE: u64 = 600_000;

pub fn tagged(length: u64, tags: &str) -> Resource {
    fresh(length).header("Surrogate-Key", tags)
}

/// Four objects on a volume: two of them small, two with a tag.
pub const PATHS: [&str; 4] = ["/a/x", "/a/y?q=1", "/b", "/c"];

pub fn four() -> Origin {
    let origin = origin();
    origin.serve("/a/x", tagged(SMALL, "one two"));
    origin.serve("/a/y", tagged(LARGE, "two"));
    origin.serve("/b", fresh(LARGE));
    origin.serve("/c", fresh(SMALL));
    origin
}

pub fn store_four(edge: &Edge) {
    let before = sum(edge, "records");
    let missing = PATHS
        .iter()
        .filter(|path| !is_hit(&get(edge, path)))
        .count();
    if missing == PATHS.len() {
        written(edge, before + 2 + 2 * records(LARGE));
    }
    settled(edge);
}

/// Returns purges, each with the paths whose objects it removes.
fn orders() -> Vec<(Value, Vec<&'static str>)> {
    vec![
        (json!({"url": url("/a/x")}), vec!["/a/x"]),
        (json!({"url": url("/a/y?q=1")}), vec!["/a/y?q=1"]),
        (json!({"url": url("/b")}), vec!["/b"]),
        (json!({"prefix": url("/a/")}), vec!["/a/x", "/a/y?q=1"]),
        (json!({"prefix": "/b"}), vec!["/b"]),
        (json!({"prefix": format!("//{HOST}/c")}), vec!["/c"]),
        (json!({"tag": "two"}), vec!["/a/x", "/a/y?q=1"]),
        (json!({"tags": ["one", "none"]}), vec!["/a/x"]),
        (json!({"all": true}), PATHS.to_vec()),
        (json!({"url": "http://other.example/a/x"}), vec![]),
    ]
}

// The purge is synced to the disk before it is acknowledged, so a restart never undoes it. The
// purged objects are in memory and on a volume.
#[test]
fn purged_objects_stay_purged_after_a_restart() {
    for how in ENDS {
        for (order, gone) in orders() {
            let origin = four();
            let disks = Disks::in_memory(1);
            let setup = disks.setup(&origin);
            let edge = start(&setup);
            store_four(&edge);
            purge(&edge, &order);
            let edge = again(edge, how, &setup);
            for path in PATHS {
                let hit = is_hit(&get(&edge, path));
                assert_eq!(hit, !gone.contains(&path), "{how:?} {order} {path}");
            }
        }
    }
}

// The purged objects are on the volume only, and the program is restarted twice.
#[test]
fn objects_on_the_volume_only_are_purged() {
    for (order, gone) in orders() {
        let origin = four();
        let mut edge = Disks::in_memory(1).start(&origin);
        store_four(&edge);
        edge.restart(End::Stopped);
        purge(&edge, &order);
        edge.restart(End::Killed);
        edge.restart(End::Stopped);
        for path in PATHS {
            let hit = is_hit(&get(&edge, path));
            assert_eq!(hit, !gone.contains(&path), "{order} {path}");
        }
        // The object was stored again after the purge, so the purge does not cover it.
        settled(&edge);
        edge.restart(End::Killed);
        without_origin(&origin, "stored again", || {
            PATHS.iter().for_each(|path| assert_hit(&get(&edge, path)));
        });
    }
}

// The object is on the volume only. After the purge it must not be served, even without a restart.
#[test]
fn a_purge_applies_at_once_to_objects_on_the_volume() {
    for (order, gone) in orders() {
        let origin = four();
        let mut edge = Disks::in_memory(1).start(&origin);
        store_four(&edge);
        edge.restart(End::Killed);
        purge(&edge, &order);
        for path in PATHS {
            let hit = is_hit(&get(&edge, path));
            assert_eq!(hit, !gone.contains(&path), "{order} {path}");
        }
    }
}

// A soft purge makes objects stale, so that they are revalidated, also after a restart. Objects
// that were revalidated after the purge are fresh.
#[test]
fn soft_purges_hold_after_a_restart() {
    for how in ENDS {
        for order in [
            json!({"url": url("/a/y?q=1"), "soft": true}),
            json!({"tag": "two", "soft": true}),
            json!({"all": true, "soft": true}),
        ] {
            let origin = four();
            let disks = Disks::in_memory(1);
            let setup = disks.setup(&origin);
            let mut edge = start(&setup);
            store_four(&edge);
            purge(&edge, &order);
            edge = again(edge, how, &setup);
            let reply = get(&edge, "/a/y?q=1");
            let said = cache_status(&reply);
            assert!(said.contains("fwd=stale; fwd-status=304"), "{order} {said}");
            reply.verify_whole(LARGE).expect("the body");
            assert_hit(&get(&edge, "/a/y?q=1"));
            settled(&edge);
            edge = again(edge, End::Stopped, &setup);
            let reply = without_origin(&origin, "validated", || get(&edge, "/a/y?q=1"));
            assert_hit(&reply);
        }
    }
}

// A purge of a URL covers all of its variants, including those on the volume only.
#[test]
fn all_variants_stay_purged_after_a_restart() {
    let origin = serving("/x", fresh(SMALL).vary("X-A"));
    let disks = Disks::in_memory(1);
    let setup = disks.setup(&origin);
    let mut edge = start(&setup);
    let values = ["1", "2", "3"];
    let ask_for = |edge: &Edge, value: &str| ask(edge, "GET", "/x", &[("X-A", value)]);
    for value in values {
        ask_for(&edge, value);
    }
    written(&edge, 3);
    edge = again(edge, End::Stopped, &setup);
    purge_path(&edge, "/x");
    edge = again(edge, End::Killed, &setup);
    for value in values {
        assert!(!is_hit(&ask_for(&edge, value)), "{value}");
    }
}

// Sequence numbers continue to grow after a restart. Therefore an object stored in a later run is
// newer than an earlier purge.
#[test]
fn sequence_numbers_grow_from_run_to_run() {
    let origin = serving("/x", fresh(SMALL));
    let mut edge = Disks::in_memory(1).start(&origin);
    let mut before = 0;
    for round in 0..6 {
        get(&edge, "/x");
        written(&edge, 1);
        assert_hit(&get(&edge, "/x"));
        let answer = purge(&edge, &json!({"url": url("/x")}));
        let number = answer["purged"][0]["sequence"].as_u64();
        let number = number.expect("a number");
        assert!(number > before, "{round}: {number} after {before}");
        before = number;
        edge.restart(ENDS[round % 2]);
        assert!(!is_hit(&get(&edge, "/x")), "{round}");
        settled(&edge);
        edge.restart(ENDS[round / 2 % 2]);
        let reply = without_origin(&origin, "stored since", || get(&edge, "/x"));
        assert_hit(&reply);
    }
}

// The flight began before the purge, so its response must not be served to later requests, in this
// run or the next.
#[test]
fn a_fetch_that_began_before_a_purge_restores_nothing() {
    for length in [SMALL, LARGE] {
        for order in [
            json!({"url": url("/x")}),
            json!({"tag": "t"}),
            json!({"all": true}),
        ] {
            let latch = Latch::at(1000);
            let origin = serving("/x", tagged(length, "t").hold_body(&latch));
            let mut edge = Disks::in_memory(1).start(&origin);
            thread::scope(|scope| {
                let first = scope.spawn(|| get(&edge, "/x"));
                assert!(latch.wait_passed(1000, SOON));
                purge(&edge, &order);
                latch.release();
                let reply = first.join().expect("no panic");
                reply
                    .verify_whole(length)
                    .expect("the earlier client receives it");
            });
            settled(&edge);
            origin.serve("/x", tagged(length, "t").version(1));
            edge.restart(End::Stopped);
            let reply = get(&edge, "/x");
            let right = reply.verify_version(1, 0);
            right.unwrap_or_else(|wrong| panic!("{length} {order}: {wrong}"));
        }
    }
}

// The purge arrives when the object is stored, but still waits in the write queue.
#[test]
fn objects_in_the_write_queue_are_purged() {
    let origin = shelf();
    let mut edge = Disks::in_memory(1).start(&origin);
    let files = [File::row(0, 40, 20_000), File::row(100, 6, 300_000)].concat();
    for round in 0..4_usize {
        files.iter().for_each(|file| drop(file.get(&edge)));
        match round % 2 {
            0 => drop(purge(&edge, &json!({"all": true}))),
            _ => drop(purge(&edge, &json!({"prefix": "/shelf/"}))),
        }
        edge.restart(ENDS[round / 2]);
        for file in &files {
            assert!(!is_hit(&file.get(&edge)), "{round} {file:?}");
        }
    }
}

// A volume is missing during a purge, and has not logged it. When the volume comes back, the purged
// objects on it must not be served, whatever the placement is.
#[test]
fn a_volume_missing_during_a_purge_restores_nothing() {
    for placement in ["mirror", "hash", "stripe"] {
        for lost in [1, 2] {
            let origin = four();
            let mut edge = Disks::in_memory(2)
                .each("retry = \"100ms\"")
                .start_with(&origin, &format!("placement = \"{placement}\""));
            PATHS.iter().for_each(|path| drop(get(&edge, path)));
            settled(&edge);
            edge.end(End::Stopped);
            // The program runs while the volume's file has another name. During this run everything
            // is purged.
            let (path, aside) = (edge.disks.path(lost), edge.disks.path(9));
            fs::rename(&path, &aside).expect("moved");
            edge.start();
            purge(&edge, &json!({"all": true}));
            edge.end(End::Killed);
            fs::rename(&aside, &path).expect("moved back");
            edge.start();
            for path in PATHS {
                let hit = is_hit(&get(&edge, path));
                assert!(!hit, "{placement} {lost} {path}");
            }
            settled(&edge);
            edge.restart(End::Stopped);
            without_origin(&origin, placement, || {
                PATHS.iter().for_each(|path| assert_hit(&get(&edge, path)));
            });
        }
    }
}

// The path of the volume can't be opened for a while. During this time everything is purged.
#[test]
fn a_volume_that_could_not_be_opened_comes_back_empty() {
    let origin = four();
    let disks = Disks::in_memory(2).each("retry = \"100ms\"");
    let setup = disks.setup(&origin).cache("placement = \"mirror\"");
    let edge = start(&setup);
    store_four_twice(&edge);
    end(edge, End::Stopped);
    let aside = disks.path(9);
    fs::rename(disks.path(2), &aside).expect("moved");
    fs::create_dir(disks.path(2)).expect("a folder in its place");
    let said = setup.refused();
    assert!(said.contains("2.vol"), "{said}");
    fs::remove_dir(disks.path(2)).expect("gone again");
    fs::rename(&aside, disks.path(2)).expect("moved back");
    let missing = setup.text().replace("/2.vol", "/sub/2.vol");
    let setup = Setup::of_text(missing);
    let folder = disks.path(2).with_file_name("sub");
    let edge = setup.start();
    eventually("it is shown to be out", || {
        volume(&edge, 2)["state"] == "out"
    });
    purge(&edge, &json!({"tag": "two"}));
    fs::create_dir(&folder).expect("a folder");
    fs::rename(disks.path(2), folder.join("2.vol")).expect("moved");
    eventually("it is back", || volume(&edge, 2)["state"] == "up");
    assert_eq!(
        number_of(&edge, 2, "records"),
        0,
        "it may have missed purges"
    );
    assert!(!is_hit(&get(&edge, "/a/x")));
    without_origin(&origin, "on the other one", || {
        assert_hit(&get(&edge, "/b"));
    });
    let edge = again(edge, End::Killed, &setup);
    assert_hit(&get(&edge, "/b"));
}

pub fn store_four_twice(edge: &Edge) {
    PATHS.iter().for_each(|path| drop(get(edge, path)));
    written(edge, 2 * (2 + 2 * records(LARGE)));
}

// Purges with the method PURGE and with `sluice purge` are acknowledged under the same conditions
// as purges at the admin address.
#[test]
fn purges_by_method_and_command_are_durable() {
    for how in ENDS {
        let origin = four();
        let disks = Disks::in_memory(1);
        let text = disks.setup(&origin).text();
        let allowed = "[admin]\npurge_from = [\"127.0.0.1\"]\n";
        let setup = Setup::of_text(text.replace("[admin]\n", allowed));
        let edge = start(&setup);
        store_four(&edge);
        assert_eq!(ask(&edge, "PURGE", "/b", &[]).status, 200);
        let output = edge.command(&["purge", "--tag", "one"]);
        assert!(output.status.success(), "{output:?}");
        let edge = again(edge, how, &setup);
        for path in PATHS {
            let gone = ["/b", "/a/x"].contains(&path);
            assert_eq!(is_hit(&get(&edge, path)), !gone, "{how:?} {path}");
        }
    }
}

// The purge arrives while the index of the volume is still being loaded. It must cover entries that
// are loaded later.
#[test]
fn a_purge_during_loading_covers_entries_not_yet_loaded() {
    let origin = shelf();
    let disks = Disks::new(1).sized(64 << 20);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    let files = File::row(0, 600, 4000);
    fill(&edge, &files);
    end(edge, End::Killed);
    let edge = setup.start();
    purge(&edge, &json!({"prefix": "/shelf/"}));
    for file in files.iter().step_by(7) {
        assert!(!is_hit(&file.get(&edge)), "{file:?}");
    }
    loaded(&edge);
    for file in files.iter().skip(1).step_by(7) {
        assert!(!is_hit(&file.get(&edge)), "{file:?}");
    }
    let edge = again(edge, End::Killed, &setup);
    for file in files.iter().skip(2).step_by(7) {
        assert!(!is_hit(&file.get(&edge)), "{file:?}");
    }
}

// An object is purged, and its next version has the same validator. Blocks of the purged object
// must not be used for the new one.
#[test]
fn blocks_of_a_purged_object_are_not_joined_to_a_new_head() {
    let origin = origin();
    let mut edge = Disks::in_memory(1).start_with(&origin, "fill = \"slice\"");
    store_x(&edge, &origin, LARGE);
    edge.restart(End::Stopped);
    purge_path(&edge, "/x");
    // The new content has the validator and the length of the old one. Only the purge shows that
    // the stored bytes are out of date.
    let other = Resource::noise(77, LARGE).cache_control("max-age=3600");
    origin.serve("/x", other);
    for round in 0..3 {
        let reply = get(&edge, "/x");
        let right = sluice_lab::noise::verify(77, 0, 0, &reply.body);
        right.unwrap_or_else(|wrong| panic!("{round}: {wrong}"));
        assert_eq!(reply.body.len() as u64, LARGE);
        settled(&edge);
        edge.restart(ENDS[round % 2]);
    }
    assert!(edge.cache_state("objects") <= 1);
}
