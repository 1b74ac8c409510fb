//! Tests of clients that close their connection while their request waits. Their requests leave
//! queues and connections to the origin at once.

use sluice_lab::client::{Client, Closing};
use sluice_lab::origin::{Framing, Latch, Origin, Record, Resource};

use crate::harness::{
    Edge, SOON, Setup, assert_hit, eventually, fresh, serving, wait_for_requests,
};
use crate::partial_objects::{BLOCK, FILE, by_range, check_range, filling, send_range};

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

// Three clients hold both connections to the origin and one place in the queue. The origin never
// responds to them.
#[test]
fn clients_that_leave_free_queues_and_connections_at_once() {
    let latch = Latch::closed();
    let origin = serving("/x", Resource::status(200));
    origin.serve("/held", Resource::status(200).hold_head(&latch));
    let edge = Setup::uncached(&origin)
        .with_http1_servers()
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
    let edge = Setup::uncached(&origin).with_http1().start();
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
// counts as gone. (A client with HTTP/2 needs its direction for frames such as WINDOW_UPDATE.)
#[test]
fn a_half_close_ends_a_waiting_request_unless_the_listener_permits_it() {
    for target in ["/x", "/pass/x"] {
        let latch = Latch::closed();
        let origin = serving(target, fresh(1000).hold_head(&latch));
        let setup = Setup::cached(&origin).with_http1().logged("json");
        for permitted in [false, true] {
            let edge = match permitted {
                false => setup.start(),
                true => setup.clone().listener("half_close = true").start(),
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
    let edge = Setup::cached(&origin).with_http1().start();
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
        .with_http1_servers()
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
            .with_http1_servers()
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

/// Starts an edge with this limit of connections that has stored the first block of `/x` and nothing
/// else. From then on the origin holds its responses to `/x`.
fn with_first_block(origin: &Origin, latch: &Latch, upstream: &str, cache: &str) -> Edge {
    let edge = filling(origin, "slice")
        .with_http1_servers()
        .cache(cache)
        .workers(1)
        .upstream(&format!("{upstream}\nqueue_timeout = \"1m\""))
        .start();
    check_range(&edge, 0, 0);
    wait_for_flights(&edge, 0);
    origin.serve("/x", fresh(FILE).hold_head(latch));
    edge
}

fn with_files() -> Origin {
    let origin = serving("/x", fresh(FILE));
    origin.serve("/pass/y", fresh(1000));
    origin
}

fn wait_for_flights(edge: &Edge, flights: u64) {
    eventually("so many fetches are in progress", || {
        edge.counter("flights_now") == flights
    });
}

/// Waits until that many requests of clients are in progress, and until the worker has then served
/// another one, from memory: by then, it has also run the fetches that it has woken.
fn wait_for_clients(edge: &Edge, clients: u64) {
    eventually("so many requests are in progress", || {
        edge.counter("requests_now") == clients
    });
    check_range(edge, 0, 0);
}

fn expect_byte(client: &mut Client, at: u64) {
    let reply = client.read_response().expect("a reply");
    reply.verify_range(at, at, FILE).expect("the byte");
}

fn expect_y(client: &mut Client) {
    let reply = client.read_response().expect("a reply");
    reply.verify_whole(1000).expect("the body");
}

// One client after another requests a further range of a stored file, and leaves. The origin never
// responds, so their fetches hold both connections.
#[test]
fn fetches_of_further_ranges_without_clients_make_room() {
    let (origin, latch) = (with_files(), Latch::closed());
    let edge = with_first_block(&origin, &latch, "max_connections = 2", "");
    for (number, at) in [(1, 4 * BLOCK), (2, 7 * BLOCK)] {
        let leaving = send_range(&edge, at, at);
        assert!(latch.wait_held(number, SOON), "the origin has the request");
        drop(leaving);
        eventually("the client has left", || edge.counter("requests_now") == 0);
    }
    assert_eq!(edge.counter("flights_now"), 2);
    let mut other = ask(&edge, "/pass/y");
    expect_y(&mut other);
    wait_for_flights(&edge, 1);
    let failed = edge.counter("flights_failed");
    assert_eq!(failed, 1, "the other fetch goes on");
}

// Of two ranges of a file that are being fetched, one still has a client.
#[test]
fn the_fetch_of_a_range_without_clients_makes_room_and_the_other_goes_on() {
    let (origin, latch) = (with_files(), Latch::closed());
    let edge = with_first_block(&origin, &latch, "max_connections = 2", "");
    let [mut staying, leaving] = [4 * BLOCK, 7 * BLOCK].map(|at| send_range(&edge, at, at));
    assert!(latch.wait_held(2, SOON), "the origin has two requests");
    drop(leaving);
    eventually("one client is left", || edge.counter("requests_now") == 1);
    assert_eq!(edge.counter("flights_now"), 2);
    expect_y(&mut ask(&edge, "/pass/y"));
    wait_for_flights(&edge, 1);
    latch.release();
    expect_byte(&mut staying, 4 * BLOCK);
    wait_for_flights(&edge, 0);
    assert_hit(&check_range(&edge, 4 * BLOCK, 5 * BLOCK - 1));
    // The range whose fetch was ended is fetched again.
    check_range(&edge, 7 * BLOCK, 7 * BLOCK);
}

// The second client of a range arrives after the first one has left.
#[test]
fn the_fetch_of_a_range_keeps_its_connection_for_a_later_client() {
    let (origin, latch) = (with_files(), Latch::closed());
    let edge = with_first_block(&origin, &latch, "max_connections = 1", "");
    let leaving = send_range(&edge, 4 * BLOCK, 4 * BLOCK);
    assert!(latch.wait_held(1, SOON), "the origin has the request");
    drop(leaving);
    eventually("the client has left", || edge.counter("requests_now") == 0);
    let mut later = send_range(&edge, 4 * BLOCK, 4 * BLOCK);
    wait_for_clients(&edge, 1);
    let mut other = ask(&edge, "/pass/y");
    wait_for_clients(&edge, 2);
    latch.release();
    expect_byte(&mut later, 4 * BLOCK);
    expect_y(&mut other);
    assert_eq!(origin.requests().len(), 3, "no fetch was ended");
}

// The client gets the bytes of these fetches one after another. It waits only for the first one.
#[test]
fn fetches_for_the_later_bytes_of_a_response_keep_their_connections() {
    let (origin, latch) = (with_files(), Latch::closed());
    let edge = with_first_block(&origin, &latch, "max_connections = 2", "");
    let mut reading = send_range(&edge, 4 * BLOCK, 6 * BLOCK - 1);
    assert!(latch.wait_held(2, SOON), "the origin has two requests");
    let mut other = ask(&edge, "/pass/y");
    wait_for_clients(&edge, 2);
    latch.release();
    let reply = reading.read_response().expect("a reply");
    let right = reply.verify_range(4 * BLOCK, 6 * BLOCK - 1, FILE);
    right.expect("the bytes");
    expect_y(&mut other);
    assert_eq!(origin.requests().len(), 4, "no fetch was ended");
}

// The rest of the block waits for the only connection. Nobody waits for the rest, but no other
// request waits for the connection either.
#[test]
fn the_rest_of_a_block_may_wait_for_a_connection() {
    for cache in ["", "read_ahead = \"512KiB\""] {
        let (origin, latch) = (with_files(), Latch::closed());
        let edge = with_first_block(&origin, &latch, "max_connections = 1", cache);
        let at = 4 * BLOCK + BLOCK / 2;
        let mut client = send_range(&edge, at, at);
        assert!(latch.wait_held(1, SOON), "the origin has the request");
        eventually("the rest waits", || edge.counter("flights_now") >= 2);
        latch.release();
        expect_byte(&mut client, at);
        wait_for_flights(&edge, 0);
        let end = if cache.is_empty() { 5 } else { 7 };
        assert_hit(&check_range(&edge, 4 * BLOCK, end * BLOCK - 1));
    }
}

// The origin holds all responses but that for the first block, so the read-ahead holds the only
// connection.
#[test]
fn the_read_ahead_of_a_whole_file_makes_room() {
    let latch = Latch::closed();
    let held = latch.clone();
    let file = by_range(
        move |seen| match seen.header("range") {
            Some(range) if range.starts_with("bytes=0-") => fresh(FILE),
            _ => fresh(FILE).hold_head(&held),
        },
        |_| fresh(FILE),
    );
    let origin = serving("/x", file);
    origin.serve("/pass/y", fresh(1000));
    let edge = filling(&origin, "slice")
        .cache("read_ahead = \"whole\"")
        .workers(1)
        .upstream("max_connections = 1\nqueue_timeout = \"1m\"")
        .start();
    check_range(&edge, 0, 0);
    assert!(latch.wait_held(1, SOON), "the origin has a request");
    expect_y(&mut ask(&edge, "/pass/y"));
}

// The fetch of the rest of a block waits for the only connection. A client's request that waits for
// it as well ends that fetch.
#[test]
fn the_rest_of_a_block_does_not_wait_with_requests_of_clients() {
    let (origin, latch) = (with_files(), Latch::closed());
    let edge = with_first_block(&origin, &latch, "max_connections = 1", "");
    let at = 4 * BLOCK + BLOCK / 2;
    let mut client = send_range(&edge, at, at);
    assert!(latch.wait_held(1, SOON), "the origin has the request");
    wait_for_flights(&edge, 2);
    let mut other = ask(&edge, "/pass/y");
    wait_for_flights(&edge, 1);
    latch.release();
    expect_byte(&mut client, at);
    expect_y(&mut other);
}
