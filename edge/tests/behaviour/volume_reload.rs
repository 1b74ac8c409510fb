//! Tests of reloads that add, keep and remove volumes.

use crate::disks::{
    Disks, End, File, again, end, fill, is_hit, loaded, number_of, shelf, start, sum,
    without_origin, written,
};
use crate::harness::{Edge, Setup, cache_status, eventually};

/// Whether no process has a lock on this file.
fn is_free(path: &std::path::Path) -> bool {
    let file = std::fs::File::open(path).expect("a volume");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn reload(edge: &Edge, setup: &Setup) {
    edge.rewrite(&setup.text());
    let output = edge.command(&["reload"]);
    assert!(output.status.success(), "{output:?}");
}

// A reload keeps volumes that stay in the configuration, opens new ones, and closes those that are
// no longer configured.
#[test]
fn a_reload_keeps_adds_and_closes_volumes() {
    let origin = shelf();
    let (first, second) = (Disks::new(1), Disks::new(2));
    let other = second.tables().replace("[volume.disk1]", "[volume.spare]");
    let setup = first.setup(&origin);
    let edge = start(&setup);
    let files = File::row(0, 10, 30_000);
    fill(&edge, &files);
    written(&edge, 10);
    let changed = setup.clone().limits("keepalive_header = true");
    reload(&edge, &changed);
    assert_eq!(number_of(&edge, 1, "records"), 10);
    // The configuration has one more volume, but the cache does not use it yet.
    let more = setup
        .clone()
        .tables(&other.replace("[volume.disk2]", "[volume.spare2]"));
    reload(&edge, &more);
    loaded(&edge);
    assert_eq!(crate::disks::volumes(&edge).len(), 3);
    without_origin(&origin, "stored", || {
        files.iter().for_each(|file| file.assert_stored(&edge));
    });
    reload(&edge, &setup);
    eventually("the others are gone", || {
        crate::disks::volumes(&edge).len() == 1
    });
    without_origin(&origin, "stored", || {
        files.iter().for_each(|file| file.assert_stored(&edge));
    });
    // The edge releases the lock of a volume that it has closed.
    for number in [1, 2] {
        eventually("it is free", || is_free(&second.path(number)));
    }
    let elsewhere = start(&second.setup(&origin));
    assert_eq!(sum(&elsewhere, "records"), 0);
    end(elsewhere, End::Stopped);
    let edge = again(edge, End::Killed, &setup);
    without_origin(&origin, "stored", || {
        files.iter().for_each(|file| file.assert_stored(&edge));
    });
}

#[test]
fn a_reload_adds_volumes_to_a_cache_and_removes_them() {
    let origin = shelf();
    let disks = Disks::new(1);
    let (with, without) = (
        disks.setup(&origin),
        Setup::cached(&origin).cache("slice = \"256KiB\""),
    );
    let edge = without.start();
    let file = File::new(1, 30_000);
    file.get(&edge);
    reload(&edge, &with);
    loaded(&edge);
    let other = File::new(2, 30_000);
    other.get(&edge);
    written(&edge, 1);
    other.assert_stored(&edge);
    reload(&edge, &without);
    let reply = other.get(&edge);
    assert!(is_hit(&reply) || cache_status(&reply).contains("fwd="));
    eventually("it is free", || is_free(&disks.path(1)));
    reload(&edge, &with);
    loaded(&edge);
    other.get(&edge);
    file.get(&edge);
}
