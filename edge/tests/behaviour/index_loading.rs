//! Tests of requests and changes that happen while the index of a volume is still being loaded.

use std::time::Duration;

use sluice_lab::disk::Pace;
use sluice_lab::origin::{Origin, Resource};

use crate::disks::{End, File, MIB, again, ask, end, fill, loaded, shelf, start, volume};
use crate::harness::{Edge, assert_hit, fresh};
use crate::slow_disk::*;

/// Runs `run` while the index of a volume that has version 0 of `/x` is being loaded.
fn while_it_loads(run: impl Fn(&Edge, &Origin)) {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let disks = on(&disk);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    crate::disks::store_x(&edge, &origin, 20_000);
    // Segments are loaded from the newest to the oldest one. These files fill newer segments than
    // that of `/x`.
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
    // After a restart nothing of the object is in memory. The old version must not be found on the
    // volume either.
    new(&again(edge, End::Stopped, &setup));
}

#[test]
fn an_invalidation_while_the_index_loads_holds() {
    while_it_loads(|edge, origin| {
        origin.serve("/x", fresh(20_000).version(1));
        assert_eq!(ask(edge, "POST", "/x", &[]).status, 200);
    });
}

// The origin forbids storing the response while the index loads. The stored response must not be
// found when the index has loaded.
#[test]
fn a_response_that_may_no_longer_be_stored_does_not_reappear_from_the_index() {
    while_it_loads(|edge, origin| {
        let secret = Resource::offset(20_000).version(1);
        origin.serve("/x", secret.cache_control("no-store"));
        let reply = crate::disks::get(edge, "/x");
        reply.verify_version(1, 0).expect("it was not found yet");
    });
}

// A new version replaces the response while the index loads. The old version must not be found
// later, even if the new one could not be written.
#[test]
fn a_version_replaced_while_the_index_loads_does_not_reappear() {
    while_it_loads(|edge, origin| {
        origin.serve("/x", fresh(20_000).version(1));
        let reply = crate::disks::get(edge, "/x");
        reply.verify_version(1, 0).expect("it was not found yet");
    });
}

// A response without Vary is on the volume, and one with Vary is stored while the index loads. The
// old one must not be found later.
#[test]
fn a_response_without_vary_does_not_reappear_from_the_index() {
    while_it_loads(|edge, origin| {
        origin.serve("/x", fresh(20_000).version(1).vary("accept-language"));
        let reply = crate::disks::get(edge, "/x");
        reply.verify_version(1, 0).expect("it was not found yet");
    });
}

// An object without a strong validator is usable only if all of its records are known. A request
// arrives when only the head has been loaded; the object must not be removed because of it.
#[test]
fn an_object_requested_before_it_is_fully_loaded_is_not_lost() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let disks = on(&disk);
    let setup = disks.setup(&origin);
    let edge = start(&setup);
    let length = 3 * MIB;
    store_plain(&origin, &edge, length);
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
