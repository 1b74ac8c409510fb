//! Tests of failing disks, which clients must not notice: a failing volume is taken out of service,
//! reported and retried.

use serde_json::json;
use sluice_lab::disk::{Condition, Pace};

use crate::disks::{
    End, File, SMALL, again, ask_purge, fill, is_hit, loaded, number_of, purge, settled, shelf,
    volume, without_origin, written,
};
use crate::harness::eventually;
use crate::slow_disk::*;

// The disk fails to write (EIO, ENOSPC). The volume is taken out of service and reported, while
// requests are served. Later the volume is tried again, and comes back empty.
#[test]
fn a_disk_that_fails_to_write_is_taken_out_and_comes_back_empty() {
    for condition in [Condition::FailWrites, Condition::Fail, Condition::Full] {
        let Some(disk) = disk() else { return };
        let origin = shelf();
        let mut edge = on(&disk).start(&origin);
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
        edge.restart(End::Killed);
        without_origin(&origin, "stored since", || {
            new.iter().for_each(|file| file.assert_stored(&edge));
        });
    }
}

// A read from the disk fails, so the bytes are fetched from the origin.
#[test]
fn a_disk_that_fails_to_read_affects_no_response() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let mut edge = on(&disk).start(&origin);
    let files = store_mixed(&edge, 1);
    edge.restart(End::Stopped);
    disk.set_condition(Condition::FailReads);
    get_all(&edge, &files);
    eventually("it is out", || is(&edge, 1, "out"));
    assert!(number_of(&edge, 1, "errors") > 0);
    assert_eq!(edge.counter("responses_5xx"), 0);
    disk.set_condition(Condition::Fine);
    eventually("it is back", || is(&edge, 1, "up"));
    edge.restart(End::Killed);
    fill(&edge, &files);
    without_origin(&origin, "stored again", || {
        files.iter().for_each(|file| file.assert_stored(&edge));
    });
}

// The disk fails when the program starts. The edge serves without the volume, and tries again
// later.
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
        without_origin(&origin, "stored", || other.assert_stored(&edge));
    }
}

// The volume's file does not fit on the disk. The volume is out of service from the start, and no
// incomplete file remains in use.
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

// One of two mirrored disks fails while the program runs. All objects are served from the other
// one.
#[test]
fn a_mirror_serves_all_objects_when_one_disk_fails() {
    for condition in [Condition::Fail, Condition::FailReads] {
        let Some([first, second]) = two_disks() else {
            return;
        };
        let origin = shelf();
        let mut edge = on_two([&first, &second], &origin, "mirror");
        let files = store_mixed(&edge, 2);
        edge.restart(End::Killed);
        first.set_condition(condition);
        without_origin(&origin, "one is left", || {
            files.iter().for_each(|file| file.assert_stored(&edge));
        });
        eventually("it is out", || is(&edge, 1, "out"));
        assert!(is(&edge, 2, "up"));
        let new = mixed(1000);
        fill(&edge, &new);
        first.set_condition(Condition::Fine);
        eventually("it is back", || is(&edge, 1, "up"));
        assert_eq!(number_of(&edge, 2, "records"), count(&files) + count(&new));
        without_origin(&origin, "all is there", || {
            files.iter().for_each(|file| file.assert_stored(&edge));
            new.iter().for_each(|file| file.assert_stored(&edge));
        });
    }
}

// With the placements `hash` and `stripe` each record is on one volume. When one disk fails,
// records on the other volume are still served, and lost ones are fetched from the origin.
#[test]
fn the_other_volumes_serve_when_a_disk_fails() {
    for placement in ["hash", "stripe"] {
        let Some([first, second]) = two_disks() else {
            return;
        };
        let origin = shelf();
        let mut edge = on_two([&first, &second], &origin, placement);
        let files = store_mixed(&edge, 1);
        edge.restart(End::Killed);
        first.set_condition(Condition::Fail);
        let hits = files.iter().filter(|file| is_hit(&file.get(&edge))).count();
        assert!(hits > 0, "{placement}");
        eventually("it is out", || is(&edge, 1, "out"));
        fill(&edge, &files);
        // One volume is out of service. Its objects are fetched again and written to the other
        // volume.
        edge.end(End::Killed);
        first.set_condition(Condition::Fine);
        edge.start();
        fill(&edge, &files);
        without_origin(&origin, placement, || {
            files.iter().for_each(|file| file.assert_stored(&edge));
        });
        assert_eq!(edge.counter("responses_5xx"), 0);
    }
}

// While the volume was out of service, purges may have been missed. Therefore the volume comes back
// empty.
#[test]
fn a_disk_that_was_out_of_service_restores_nothing() {
    let Some([first, second]) = two_disks() else {
        return;
    };
    let origin = shelf();
    let mut edge = on_two([&first, &second], &origin, "mirror");
    let files = store_mixed(&edge, 2);
    first.set_condition(Condition::Fail);
    // The first volume logs the purge, then fails and is taken out of service. The second volume
    // has logged the purge as well.
    purge(&edge, &json!({"prefix": "/shelf/"}));
    eventually("it is out", || is(&edge, 1, "out"));
    edge.end(End::Killed);
    first.set_condition(Condition::Fine);
    edge.start();
    for file in &files {
        assert!(!is_hit(&file.get(&edge)), "{file:?}");
    }
}

// No volume can log the purge. The purge takes effect, and the response is 503, because a restart
// would undo the purge.
#[test]
fn a_purge_that_a_failing_disk_can_not_log_is_answered_503() {
    let Some(disk) = disk() else { return };
    let origin = shelf();
    let edge = on(&disk).start(&origin);
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
