//! Tests that bytes of two versions are never combined in one response.

use sluice_lab::origin::{Ending, Fault, Latch, Origin, Resource};

use crate::harness::{
    Edge, SOON, Setup, assert_hit, cache_status, eventually, fresh, serving, wait_for_requests,
};

/// Starts an edge and a client that reads version 0, whose fetch the latch holds in the middle of
/// the body.
fn half_filled(resource: Resource, latch: &Latch) -> (Origin, Edge, sluice_lab::client::Client) {
    let origin = serving("/x", resource.hold_body(latch));
    let edge = Setup::cached(&origin).start();
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    assert!(latch.wait_held(1, SOON));
    (origin, edge, client)
}

// The response becomes stale while its body arrives. Clients that read it receive the rest of the
// old version, and later clients receive the new version.
#[test]
fn a_fill_that_becomes_stale_ends_for_its_readers() {
    let latch = Latch::at(150_000);
    let brief = Resource::offset(300_000).cache_control("max-age=1");
    let (origin, edge, mut old) = half_filled(brief, &latch);
    origin.serve("/x", fresh(200_000).version(1));
    eventually("the new version", || {
        let mut client = edge.client();
        client
            .send("GET", "/x", &[("Range", "bytes=0-9")], b"")
            .expect("sent");
        let reply = client.read_response().expect("a reply");
        let status = cache_status(&reply).to_owned();
        assert_eq!(reply.status, 206);
        match origin.requests().len() {
            1 => reply.verify_range(0, 9, 300_000).expect(&status),
            _ => reply.verify_version(1, 0).expect(&status),
        }
        origin.requests().len() == 2
    });
    latch.release();
    let reply = old.read_response().expect("a reply");
    reply.verify_whole(300_000).expect("the old one");
    let new = edge.get("/x", &[]);
    assert_eq!(new.body.len(), 200_000);
    new.verify_version(1, 0).expect("the new one");
    assert_hit(&new);
}

// A POST invalidates a response while its body arrives. The response must not be served to later
// requests.
#[test]
fn a_fill_that_was_invalidated_is_not_stored() {
    let latch = Latch::at(150_000);
    let (origin, edge, mut old) = half_filled(fresh(300_000), &latch);
    origin.serve("/x", fresh(200_000).version(1));
    assert_eq!(edge.ask("POST", "/x", &[], b"").status, 200);
    latch.release();
    let reply = old.read_response().expect("a reply");
    reply.verify_whole(300_000).expect("the old one");
    for round in 0..2 {
        let new = edge.get("/x", &[]);
        assert_eq!(new.body.len(), 200_000, "round {round}");
        new.verify_version(1, 0).expect("the new one");
    }
    assert_eq!(
        origin.requests().len(),
        3,
        "one for each version, and the POST"
    );
}

// A fetch breaks off in the middle of the body. All its riders are cut off, and none receives bytes
// of the next response.
#[test]
fn riders_of_a_fill_that_breaks_off_are_cut_off() {
    let latch = Latch::at(150_000);
    let cut = Fault::CutBody {
        after: 200_000,
        ending: Ending::Reset,
    };
    let (origin, edge, first) = half_filled(fresh(300_000).fault(cut), &latch);
    let mut riders = vec![first];
    for _ in 0..5 {
        let mut rider = edge.client();
        rider.send("GET", "/x", &[], b"").expect("sent");
        riders.push(rider);
    }
    eventually("all share the fetch", || edge.counter("requests_now") == 6);
    origin.serve("/x", fresh(300_000).version(1));
    latch.release();
    for rider in &mut riders {
        let reply = rider.read_response().expect("a head");
        assert!(reply.truncated(), "{:?}", reply.end);
        assert!(reply.body.len() <= 200_000);
        sluice_lab::offset::verify_offset(0, &reply.body).expect("one version");
    }
    let new = edge.get("/x", &[]);
    new.verify_version(1, 0).expect("the new one");
    assert_eq!(new.body.len(), 300_000);
}

// A flight fails before a head has arrived. All waiting clients receive the error, and the next
// request causes a new flight.
#[test]
fn a_flight_without_a_head_fails_for_all_waiting_clients() {
    let latch = Latch::closed();
    let origin = serving("/x", fresh(10).hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    let mut clients: Vec<_> = (0..5).map(|_| edge.client()).collect();
    for client in &mut clients {
        client.send("GET", "/x", &[], b"").expect("sent");
    }
    eventually("all wait", || edge.counter("requests_now") == 5);
    wait_for_requests(&origin, "/x", 1);
    origin.drop_connections();
    for client in &mut clients {
        let reply = client.read_response().expect("a reply");
        assert_eq!(reply.status, 502);
        assert!(cache_status(&reply).contains("detail=closed-before-head"));
    }
    latch.release();
    edge.get("/x", &[])
        .verify_whole(10)
        .expect("as if nothing had been");
    assert_eq!(origin.requests().len(), 2);
}
