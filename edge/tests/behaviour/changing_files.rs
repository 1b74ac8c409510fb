//! Tests of files that change at the origin while clients read them. A reader of the old version
//! receives its stored bytes, and is then cut off. New readers receive the new version. No reader
//! receives a mixture.

use sluice_lab::client::{Client, Reply};
use sluice_lab::origin::{Latch, Origin, Seen};

use crate::harness::{Edge, SOON, assert_hit, eventually, fresh, serving, wait_for_requests};
use crate::partial_objects::{
    BLOCK, FILE, MODES, ask_range, assert_sent_once, by_range, check_range, filling, good,
    one_version, send_range, send_whole, settle, version_of,
};

/// Asserts that a response has at least `at_least` bytes, all of version 0, and was then cut off.
fn assert_cut_old(reply: &Reply, at_least: u64) {
    assert!(reply.truncated(), "{} bytes of it", reply.body.len());
    let length = reply.body.len() as u64;
    assert!(length >= at_least, "{length} bytes, not {at_least}");
    assert_eq!(version_of(0, &reply.body), Some(0), "not one version");
}

/// Asserts that a new request receives version 1 completely, and that version 1 is stored.
fn assert_new(edge: &Edge) {
    let new = edge.get("/x", &[]);
    assert_eq!(new.status, 200);
    assert_eq!(one_version(&new, 0, FILE - 1), 1);
    let again = edge.get("/x", &[]);
    assert_eq!(one_version(&again, 0, FILE - 1), 1);
    assert_hit(&again);
}

/// Starts a client that reads version 0 and waits in the middle of the block that begins at
/// 262,144. `latch` holds the fetch of that block. The origin answers later requests with version 1.
fn half_read(latch: &Latch) -> (Origin, Edge, Client) {
    let held = latch.clone();
    let second_is_held = move |seen: &Seen| match seen.header("range") {
        Some(range) if range.starts_with("bytes=262144-") => good(seen).hold_body(&held),
        _ => good(seen),
    };
    let origin = serving("/x", by_range(second_is_held, good));
    let edge = filling(&origin, "slice").cache("parallel = 1").start();
    check_range(&edge, 0, 9);
    assert_sent_once(&edge, &origin, BLOCK);
    let mut old = send_whole(&edge);
    assert!(latch.wait_held(1, SOON));
    assert_eq!(old.read_head().expect("a head").status, 200);
    origin.serve("/x", fresh(FILE).version(1));
    (origin, edge, old)
}

#[test]
fn a_reader_of_the_old_version_is_cut_off_where_its_stored_bytes_end() {
    let latch = Latch::at(100_000);
    let (_origin, edge, mut old) = half_read(&latch);
    latch.release();
    // The fetch of the held block has begun with the old version, so the client receives the block.
    // The next block is fetched from the new version, where the client is cut off.
    let body = read_until_cut(&mut old);
    assert_eq!(body.len() as u64, 2 * BLOCK);
    assert_eq!(version_of(0, &body), Some(0));
    assert_new(&edge);
}

// The connection that sends the old version breaks. The rest must not be fetched, because the
// origin now has the new version.
#[test]
fn a_broken_fetch_is_not_resumed_from_another_version() {
    let latch = Latch::at(100_000);
    let (origin, edge, mut old) = half_read(&latch);
    origin.drop_connections();
    let body = read_until_cut(&mut old);
    assert_eq!(version_of(0, &body), Some(0));
    let length = body.len() as u64;
    assert!((BLOCK..=BLOCK + 100_000).contains(&length), "{length}");
    assert_new(&edge);
}

/// Reads the rest of a body after its head, and asserts that the body is truncated.
fn read_until_cut(client: &mut Client) -> Vec<u8> {
    let body = client.read_some(FILE as usize).expect("until it ends");
    assert!((body.len() as u64) < FILE, "it was not cut");
    body
}

#[test]
fn old_and_new_readers_each_receive_their_own_version() {
    let latch = Latch::at(100_000);
    let (_origin, edge, mut old) = half_read(&latch);
    // The request for a range that is not stored receives the new version from the origin.
    let range = ask_range(&edge, 2_000_000, 2_000_009);
    assert_eq!(one_version(&range, 2_000_000, 2_000_009), 1);
    assert_new(&edge);
    latch.release();
    let body = read_until_cut(&mut old);
    assert_eq!(version_of(0, &body), Some(0));
    assert!(body.len() as u64 >= BLOCK, "what is stored of it");
}

#[test]
fn a_reader_whose_response_has_not_begun_receives_the_new_version() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, BLOCK);
        let latch = Latch::closed();
        origin.serve("/x", fresh(FILE).version(1).hold_head(&latch));
        let firsts = [600_000, 2_000_000, 1_200_000];
        let mut clients = Vec::from(firsts.map(|first| send_range(&edge, first, first + 9)));
        eventually("all wait", || edge.counter("requests_now") == 3);
        wait_for_requests(&origin, "/x", 2);
        latch.release();
        for (client, first) in clients.iter_mut().zip(firsts) {
            let reply = client.read_response().expect("a reply");
            assert_eq!(one_version(&reply, first, first + 9), 1, "{mode}");
        }
        assert_new(&edge);
    }
}

// The stored bytes of the old version are fresh, so requests for them are hits. A request for other
// bytes reaches the origin, which sends the new version.
#[test]
fn stored_bytes_of_the_old_version_are_served_while_fresh() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, BLOCK);
        assert!(origin.set_version("/x", 1));
        assert_hit(&check_range(&edge, 100_000, 100_009));
        let beyond = ask_range(&edge, 2_000_000, 2_000_009);
        assert_eq!(one_version(&beyond, 2_000_000, 2_000_009), 1, "{mode}");
        let stored = ask_range(&edge, 100_000, 100_009);
        assert_eq!(one_version(&stored, 100_000, 100_009), 1, "{mode}");
    }
}

// Half of the old version is stored, and the origin has only the new one. A request for the whole
// file must receive bytes of one version.
#[test]
fn a_request_for_the_whole_of_a_replaced_version_is_never_mixed() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 10, 2 * BLOCK - 10);
        assert_sent_once(&edge, &origin, 2 * BLOCK);
        assert!(origin.set_version("/x", 1));
        let whole = edge.get("/x", &[]);
        assert_eq!(whole.status, 200);
        // The response either began with stored bytes of the old version and was cut off, or is the
        // complete new version.
        match whole.truncated() {
            true => assert_cut_old(&whole, 2 * BLOCK),
            false => assert_eq!(one_version(&whole, 0, FILE - 1), 1, "{mode}"),
        }
        assert_new(&edge);
    }
}

// The origin sends a file of another length with the same entity tag. The cache must treat it as
// another version.
#[test]
fn another_length_is_another_version() {
    for mode in MODES {
        let tag = sluice_lab::origin::Tag::Fixed("\"same\"".to_owned());
        let origin = serving("/x", fresh(FILE).tag(tag.clone()));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 1_200_000, 1_200_009);
        assert_sent_once(&edge, &origin, BLOCK);
        let longer = FILE + 1000;
        origin.serve("/x", fresh(longer).version(1).tag(tag));
        let reply = ask_range(&edge, 2_000_000, 2_000_009);
        assert_eq!(reply.content_range().expect("one").complete, Some(longer));
        let right = reply.verify_version(1, 2_000_000);
        right.expect("the new version");
        let whole = edge.get("/x", &[]);
        assert_eq!((whole.status, whole.body.len() as u64), (200, longer));
        whole.verify_version(1, 0).expect("the new version");
    }
}

// The file at the origin became shorter, so that stored bytes lie beyond its new end.
#[test]
fn a_file_that_became_shorter_is_noticed() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, BLOCK);
        origin.serve("/x", fresh(1_000_000).version(1));
        let beyond = ask_range(&edge, 2_000_000, 2_000_009);
        assert_eq!(beyond.status, 416, "{mode}");
        assert_eq!(beyond.header("content-range"), Some("bytes */1000000"));
        let whole = edge.get("/x", &[]);
        assert_eq!((whole.status, whole.body.len()), (200, 1_000_000), "{mode}");
        whole.verify_version(1, 0).expect("the new version");
        settle(&edge, &origin, 0);
    }
}

// The file has been deleted at the origin when the missing bytes are requested.
#[test]
fn a_file_that_disappeared_is_noticed() {
    for mode in MODES {
        let origin = serving("/x", fresh(FILE));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        assert_sent_once(&edge, &origin, BLOCK);
        origin.serve("/x", sluice_lab::origin::Resource::status(404));
        let gone = ask_range(&edge, 2_000_000, 2_000_009);
        assert_eq!(gone.status, 404, "{mode}");
        let requests = origin.requests().len();
        assert!(requests <= 10, "{requests} requests");
    }
}
