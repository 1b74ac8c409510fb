//! Tests of clients that close their connection while their request waits. Their requests leave
//! queues and connections to the origin at once.

use sluice_lab::client::{Client, Closing};
use sluice_lab::origin::{Framing, Latch, Origin, Record, Resource};

use crate::harness::{Edge, SOON, Setup, eventually, fresh, serving, wait_for_requests};

fn ask(edge: &Edge, target: &str) -> Client {
    let mut client = edge.client();
    client.send("GET", target, &[], b"").expect("sent");
    client
}

fn wait_until_none(edge: &Edge) {
    let none = |name| edge.counter(name) == 0;
    eventually("no request or connection is left", || {
        none("requests_now") && none("connections_now")
    });
}

fn wait_until_origin_is_left(origin: &Origin) {
    let over = |record: &Record| record.open_connections() == 0;
    assert!(origin.wait_for(over, SOON), "the origin's connections end");
}

/// The configuration with a listener that serves clients that have closed their sending direction.
fn half_closing(setup: &Setup) -> Setup {
    let listener = "[[listener]]\nhalf_close = true\n";
    Setup::of_text(setup.text().replace("[[listener]]\n", listener))
}

// Three clients hold both connections to the origin and one place in the queue. The origin never
// responds to them.
#[test]
fn clients_that_leave_free_queues_and_connections_at_once() {
    let latch = Latch::closed();
    let origin = serving("/x", Resource::status(200));
    origin.serve("/held", Resource::status(200).hold_head(&latch));
    let edge = Setup::uncached(&origin)
        .workers(1)
        .upstream("max_connections = 2")
        .logged("json")
        .start();
    let mut leaving: Vec<Client> = (0..3).map(|_| ask(&edge, "/held")).collect();
    assert!(latch.wait_held(2, SOON), "the origin has two requests");
    eventually("the third request waits", || {
        edge.counter("requests_now") == 3
    });
    drop(leaving.pop());
    eventually("the third request has left", || {
        edge.counter("requests_now") == 2
    });
    drop(leaving);
    let mut other = ask(&edge, "/x");
    assert_eq!(other.read_response().expect("a reply").status, 200);
    for line in &edge.json_log(3)[..3] {
        assert_eq!(line["status"], 499, "{line}");
        assert_eq!(line["reason"], "client-gone", "{line}");
    }
    assert_eq!(origin.requests().len(), 3, "the third one was never sent");
}

// Events of a stream may be minutes apart. The edge must not wait for the next one to notice that
// the client has left.
#[test]
fn an_idle_event_stream_ends_when_its_client_leaves() {
    let latch = Latch::at(100);
    let origin = serving("/events", Resource::offset(100_000).hold_body(&latch));
    let edge = Setup::uncached(&origin).start();
    let mut client = ask(&edge, "/events");
    assert_eq!(client.read_head().expect("a head").status, 200);
    client.read_some(100).expect("the first events");
    drop(client);
    wait_until_none(&edge);
    wait_until_origin_is_left(&origin);
}

// Unread input comes before the end of the stream: pipelined requests that fill the input buffer,
// or the body of an upload.
#[test]
fn a_client_that_leaves_is_noticed_although_unread_input_is_left() {
    let latch = Latch::closed();
    let origin = serving("/held", Resource::status(200).hold_head(&latch));
    let edge = Setup::uncached(&origin).start();
    let mut client = ask(&edge, "/held");
    wait_for_requests(&origin, "/held", 1);
    let next = "GET /held HTTP/1.1\r\nHost: a\r\n\r\n".repeat(2000);
    client.send_raw(next.as_bytes()).expect("sent");
    drop(client);
    wait_until_none(&edge);
    wait_until_origin_is_left(&origin);
    assert_eq!(origin.requests().len(), 1);

    // The body of a request that waits in the queue is not read.
    let edge = Setup::uncached(&origin)
        .upstream("max_connections = 1")
        .start();
    let _first = ask(&edge, "/held");
    assert!(latch.wait_held(1, SOON), "the origin has a request");
    let mut client = edge.client();
    client
        .send("PUT", "/held", &[], &[b'x'; 100_000])
        .expect("sent");
    eventually("both requests wait", || edge.counter("requests_now") == 2);
    drop(client);
    eventually("the second request has left", || {
        edge.counter("requests_now") == 1
    });
}

// A half-close can't be told from a full close until something is sent. By default the client
// counts as gone.
#[test]
fn a_half_close_ends_a_waiting_request_unless_the_listener_permits_it() {
    for target in ["/x", "/pass/x"] {
        let latch = Latch::closed();
        let origin = serving(target, fresh(1000).hold_head(&latch));
        let setup = Setup::cached(&origin).logged("json");
        for permitted in [false, true] {
            let edge = match permitted {
                false => setup.start(),
                true => half_closing(&setup).start(),
            };
            origin.reset_record();
            let mut client = ask(&edge, target);
            wait_for_requests(&origin, target, 1);
            client.finish_sending().expect("half closed");
            match permitted {
                false => {
                    assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
                    assert_eq!(edge.json_log(1)[0]["status"], 499);
                }
                true => {
                    latch.release();
                    let reply = client.read_response().expect("a reply");
                    reply.verify_whole(1000).expect("the body");
                    assert_eq!(edge.json_log(1)[0]["status"], 200);
                }
            }
        }
    }
}

// The end of the connection is the end of such a body. A client that has closed only its sending
// direction must not take the part that it has received for the whole.
#[test]
fn a_response_without_length_is_reset_when_its_client_closes_its_sending_direction() {
    let latch = Latch::at(500);
    let body = Resource::offset(1000).framing(Framing::Chunked(100));
    let origin = serving("/x", body.hold_body(&latch));
    let edge = Setup::uncached(&origin).start();
    let mut client = edge.client();
    let request = b"GET /x HTTP/1.0\r\nHost: a\r\n\r\n";
    client.send_raw(request).expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 200);
    client.read_some(500).expect("the first half");
    client.finish_sending().expect("half closed");
    assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Reset);
}

// While the first request waits, the edge reads nothing, but looks for the end of the stream.
#[test]
fn a_request_that_arrives_while_another_waits_is_answered_after_it() {
    let latch = Latch::closed();
    let origin = serving("/held", Resource::status(200).hold_head(&latch));
    origin.serve("/x", fresh(1000));
    let edge = Setup::uncached(&origin).start();
    let mut client = ask(&edge, "/held");
    wait_for_requests(&origin, "/held", 1);
    client.send("GET", "/x", &[], b"").expect("sent");
    // The edge has noticed the second request when it has answered one that was sent later.
    assert_eq!(edge.get("/x", &[]).status, 200);
    latch.release();
    assert_eq!(client.read_response().expect("a reply").status, 200);
    let reply = client.read_response().expect("a reply");
    reply.verify_whole(1000).expect("the body");
}

// The responses need no waiting, so the edge sends them before it reads the end of the stream.
#[test]
fn pipelined_requests_before_a_half_close_are_answered_from_the_cache() {
    let origin = serving("/x", fresh(1000));
    let edge = Setup::cached(&origin).start();
    assert_eq!(edge.get("/x", &[]).status, 200);
    let mut client = ask(&edge, "/x");
    for _ in 0..2 {
        client.send("GET", "/x", &[], b"").expect("sent");
    }
    client.finish_sending().expect("half closed");
    for _ in 0..3 {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(1000).expect("the body");
    }
    assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
}

// No connection is left for the third fetch. When its client leaves, nothing has been sent yet.
#[test]
fn a_fetch_for_the_cache_leaves_the_queue_with_its_client() {
    let latch = Latch::closed();
    let origin = serving("/1", fresh(1000).hold_head(&latch));
    origin.serve("/2", fresh(1000).hold_head(&latch));
    origin.serve("/3", fresh(1000));
    let edge = Setup::cached(&origin)
        .workers(1)
        .upstream("max_connections = 2")
        .start();
    let _held = ["/1", "/2"].map(|target| ask(&edge, target));
    assert!(latch.wait_held(2, SOON), "the origin has two requests");
    let third = ask(&edge, "/3");
    eventually("the third fetch waits", || edge.counter("flights_now") == 3);
    drop(third);
    eventually("the third fetch has ended", || {
        edge.counter("flights_now") == 2
    });
    latch.release();
    eventually("all fetches have ended", || {
        edge.counter("flights_now") == 0
    });
    assert!(origin.requests().iter().all(|seen| seen.target != "/3"));
    edge.get("/3", &[]).verify_whole(1000).expect("the body");
}

// The fetch of a response that may be stored goes on, within the client's budget.
#[test]
fn a_fetch_for_the_cache_goes_on_when_its_client_leaves() {
    let latch = Latch::closed();
    let origin = serving("/x", fresh(1000).hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    let client = ask(&edge, "/x");
    wait_for_requests(&origin, "/x", 1);
    drop(client);
    wait_until_none(&edge);
    latch.release();
    let reply = edge.get("/x", &[]);
    reply.verify_whole(1000).expect("the body");
    assert_eq!(origin.requests().len(), 1);
}

// Two clients leave after their requests were sent to the origin, which never responds to them.
// Their fetches hold both connections. One of them makes room for the next client, the other one
// goes on.
#[test]
fn a_fetch_without_clients_makes_room_for_a_request_that_waits_for_a_connection() {
    let latch = Latch::closed();
    let origin = serving("/1", fresh(1000).hold_head(&latch));
    origin.serve("/2", fresh(1000).hold_head(&latch));
    origin.serve("/3", fresh(1000));
    for target in ["/3", "/pass/3"] {
        origin.serve(target, fresh(1000));
        let edge = Setup::cached(&origin)
            .workers(1)
            .upstream("max_connections = 2")
            .start();
        let held = latch.held();
        let leaving = ["/1", "/2"].map(|target| ask(&edge, target));
        assert!(
            latch.wait_held(held + 2, SOON),
            "the origin has two requests"
        );
        drop(leaving);
        wait_until_none(&edge);
        assert_eq!(edge.counter("flights_now"), 2);
        let reply = edge.get(target, &[]);
        reply.verify_whole(1000).expect("the body");
        eventually("one fetch goes on", || edge.counter("flights_now") == 1);
    }
}

// A client waits for the fetch, so the next request has to wait for it, too.
#[test]
fn a_fetch_with_a_client_keeps_its_connection() {
    let latch = Latch::closed();
    let origin = serving("/1", fresh(1000).hold_head(&latch));
    origin.serve("/2", fresh(1000));
    let edge = Setup::cached(&origin)
        .workers(1)
        .upstream("max_connections = 1")
        .start();
    let mut first = ask(&edge, "/1");
    assert!(latch.wait_held(1, SOON), "the origin has the request");
    let mut second = ask(&edge, "/2");
    eventually("both wait", || edge.counter("flights_now") == 2);
    latch.release();
    for client in [&mut first, &mut second] {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(1000).expect("the body");
    }
    assert_eq!(origin.requests().len(), 2);
}
