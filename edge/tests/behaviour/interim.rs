//! Tests of interim responses (102 and 103, RFC 9110 15.2, RFC 8297) on cached routes: each client
//! that waits for the final response receives them, and they are never stored.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use sluice_lab::client::Client;
use sluice_lab::origin::{Fault, Latch, Resource, Seen};

use crate::caching_rules::{LENGTH, stale};
use crate::harness::{
    Edge, SOON, Setup, assert_has_parameter, assert_hit, eventually, fresh, serving,
};
use crate::partial_objects::{
    BLOCK, FILE, MODES, check_range, filling, landed, send_range, wanted,
};

/// Most interim responses that a client receives before one response.
const HEADS_MAX: usize = 16;

const LINK: &str = "</a.css>; rel=preload; as=style";

/// Returns a resource that sends a 102 and a 103, and holds the final head at the latch.
fn hinting(resource: Resource, latch: &Latch) -> Resource {
    resource
        .interim(102, &[])
        .interim(103, &[("Link", LINK), ("X-Hint", "1")])
        .hold_head(latch)
}

/// Sends a GET for `/x` on a new connection.
fn send(edge: &Edge) -> Client {
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    client
}

/// Reads the 102 and the 103 of `hinting`.
fn read_hints(client: &mut Client) {
    assert_eq!(client.read_head().expect("a 102").status, 102);
    let hint = client.read_head().expect("a 103");
    assert_eq!(hint.status, 103);
    assert_eq!(hint.header("link"), Some(LINK));
    assert_eq!(hint.header("x-hint"), Some("1"));
}

/// Reads a final response of this length, which must have no header of the interim ones.
fn read_final(client: &mut Client, length: u64) {
    let reply = client.read_response().expect("a reply");
    assert!(reply.interim.is_empty(), "{:?}", reply.interim);
    assert_eq!((reply.header("link"), reply.header("x-hint")), (None, None));
    reply.verify_whole(length).expect("the body");
}

#[test]
fn interim_responses_reach_all_clients_of_a_shared_fetch() {
    let latch = Latch::closed();
    let origin = serving("/x", hinting(fresh(LENGTH), &latch));
    let edge = Setup::cached(&origin).start();
    let mut first = send(&edge);
    read_hints(&mut first);
    // These clients arrive after the interim responses, some of them on the other worker.
    let mut later: Vec<_> = (0..6).map(|_| send(&edge)).collect();
    later.iter_mut().for_each(read_hints);
    latch.release();
    read_final(&mut first, LENGTH);
    later
        .iter_mut()
        .for_each(|client| read_final(client, LENGTH));
    assert_eq!(origin.requests().len(), 1);
    // A hit has no interim response.
    let hit = edge.get("/x", &[]);
    assert_hit(&hit);
    assert!(hit.interim.is_empty());
    assert_eq!((hit.header("link"), hit.header("x-hint")), (None, None));
}

// RFC 9110 15.2: an HTTP/1.0 client receives no interim response.
#[test]
fn a_client_of_http_1_0_receives_no_interim_response() {
    let latch = Latch::closed();
    let origin = serving("/x", hinting(fresh(LENGTH), &latch));
    let edge = Setup::cached(&origin).start();
    let mut new = send(&edge);
    read_hints(&mut new);
    let mut old = edge.client();
    let request = b"GET /x HTTP/1.0\r\nHost: a\r\n\r\n";
    old.send_raw(request).expect("sent");
    let mut leading = edge.client();
    let request = b"GET /x?old HTTP/1.0\r\nHost: a\r\n\r\n";
    leading.send_raw(request).expect("sent");
    eventually("both wait", || edge.counter("requests_now") == 3);
    latch.release();
    for client in [&mut new, &mut old, &mut leading] {
        read_final(client, LENGTH);
    }
}

// The interim responses and the final head arrive in one piece, so no client waits between them.
#[test]
fn interim_responses_that_arrive_together_with_the_final_head_are_forwarded() {
    let both = "HTTP/1.1 103 Early Hints\r\nLink: </1>\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </2>\r\n\r\n\
                HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 1000\r\n\r\n";
    let resource = fresh(LENGTH).fault(Fault::RawHead(both.as_bytes().to_vec()));
    let origin = serving("/x", resource.clone());
    origin.serve("/pass/x", resource);
    let edge = Setup::cached(&origin).with_http1_servers().start();
    for path in ["/x", "/pass/x"] {
        let reply = edge.get(path, &[]);
        reply.verify_whole(LENGTH).expect("the body");
        let links: Vec<_> = reply
            .interim
            .iter()
            .map(|head| head.header("link"))
            .collect();
        assert_eq!(links, [Some("</1>"), Some("</2>")], "{path}");
    }
}

#[test]
fn interim_responses_of_a_revalidation_are_forwarded() {
    let latch = Latch::closed();
    let origin = serving("/x", stale(""));
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[]);
    landed(&edge);
    origin.serve("/x", hinting(stale(""), &latch));
    let mut clients: Vec<_> = (0..3).map(|_| send(&edge)).collect();
    clients.iter_mut().for_each(read_hints);
    latch.release();
    clients
        .iter_mut()
        .for_each(|client| read_final(client, LENGTH));
    landed(&edge);
    let reply = edge.get("/x", &[]);
    assert_has_parameter(&reply, "fwd-status=304");
}

// The first block is stored. The interim response to the fetch of another block reaches the client
// that waits for this block.
#[test]
fn interim_responses_to_the_fetch_of_a_block_are_forwarded() {
    for mode in MODES {
        let latch = Latch::closed();
        let held = latch.clone();
        let choose = move |seen: &Seen| match wanted(seen).0 >= BLOCK {
            true => hinting(fresh(FILE), &held),
            false => fresh(FILE),
        };
        let origin = serving("/x", Resource::dynamic(choose));
        let edge = filling(&origin, mode).start();
        check_range(&edge, 0, 9);
        landed(&edge);
        let mut client = send_range(&edge, 2_000_000, 2_000_009);
        read_hints(&mut client);
        latch.release();
        let reply = client.read_response().expect("a reply");
        let right = reply.verify_range(2_000_000, 2_000_009, FILE);
        right.expect("the range");
    }
}

// Connection, and the headers that it names, concern one connection. A cookie concerns one client.
#[test]
fn interim_responses_lose_headers_of_one_connection_or_client() {
    let latch = Latch::closed();
    let lines = [
        ("Connection", "x-hop"),
        ("X-Hop", "1"),
        ("Keep-Alive", "timeout=1"),
        ("Set-Cookie", "id=1"),
        ("Link", LINK),
    ];
    let resource = fresh(LENGTH).interim(103, &lines).hold_head(&latch);
    let origin = serving("/x", resource);
    let edge = Setup::cached(&origin).with_http1_servers().start();
    let mut clients = [send(&edge), send(&edge)];
    for client in &mut clients {
        let hint = client.read_head().expect("a 103");
        let names: Vec<_> = hint.headers.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, ["link"]);
    }
    latch.release();
    clients
        .iter_mut()
        .for_each(|client| read_final(client, LENGTH));
}

// A fetch that carries the credentials of one client may receive hints for this client alone.
#[test]
fn interim_responses_to_credentials_reach_only_their_owner() {
    let latch = Latch::closed();
    let shared = fresh(LENGTH).header("Cache-Control", "public");
    let origin = serving("/x", hinting(shared, &latch));
    let edge = Setup::cached(&origin).start();
    let mut owner = edge.client();
    let fields = [("Authorization", "Basic QTpC")];
    owner.send("GET", "/x", &fields, b"").expect("sent");
    read_hints(&mut owner);
    let mut other = send(&edge);
    eventually("both wait", || edge.counter("requests_now") == 2);
    latch.release();
    read_final(&mut owner, LENGTH);
    let reply = other.read_response().expect("a reply");
    reply.verify_whole(LENGTH).expect("the body");
    // If this client shares the fetch with the credentials, it receives none of its hints.
    let asked = origin.requests().len();
    assert_eq!(reply.interim.len(), if asked == 1 { 0 } else { 2 });
}

#[test]
fn a_client_receives_a_limited_number_and_size_of_interim_responses() {
    let flood = |count: usize, line: &str| {
        (0..count).fold(fresh(LENGTH), |resource, n| {
            resource.interim(103, &[("Link", line), ("X-Number", &n.to_string())])
        })
    };
    let long = "x".repeat(5000);
    for (count, line, fewest, most) in [
        (40, LINK, HEADS_MAX, HEADS_MAX),
        (6, &long[..], 2, 3), // 16 KiB in all
    ] {
        let latch = Latch::closed();
        let resource = flood(count, line).hold_head(&latch);
        let origin = serving("/x", resource.clone());
        origin.serve("/pass/x", resource);
        let edge = Setup::cached(&origin).start();
        let mut clients = [send(&edge), send(&edge), edge.client()];
        clients[2].send("GET", "/pass/x", &[], b"").expect("sent");
        assert!(latch.wait_held(2, SOON));
        eventually("all wait", || edge.counter("requests_now") == 3);
        latch.release();
        for client in &mut clients {
            let reply = client.read_response().expect("a reply");
            reply.verify_whole(LENGTH).expect("the body");
            let seen = reply.interim.len();
            assert!((fewest..=most).contains(&seen), "{count}: {seen}");
            let numbers = reply.interim.iter().map(|head| head.header("x-number"));
            let expected: Vec<_> = (0..seen).map(|n| n.to_string()).collect();
            assert!(numbers.eq(expected.iter().map(|n| Some(&n[..]))));
        }
    }
}

// The origin sends one 103 after another and never a final response. The time limit for the head
// counts from the request, so the interim responses do not extend it.
#[test]
fn interim_responses_do_not_extend_the_read_timeout() {
    let origin = endless_hints();
    let edge = Setup::of_servers(vec![format!("http://{origin}")])
        .upstream("read_timeout = \"500ms\"")
        .start();
    for path in ["/x", "/pass/x"] {
        // If the origin pauses, the time may pass before its first interim response.
        eventually("a response after interim ones", || {
            let reply = edge.get(path, &[]);
            let (status, interim) = (reply.status, reply.interim.len());
            assert!(matches!(status, 502 | 504), "{path}: {status}");
            assert!(interim <= HEADS_MAX, "{path}");
            interim > 0
        });
    }
    assert_eq!(edge.counter("flights_now"), 0);
}

/// Starts a server that sends a 103 every 20 ms, for as long as the connection lasts.
fn endless_hints() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream = stream.expect("a connection");
                let _ = stream.read(&mut [0; 4096]);
                let hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
                while stream.write_all(hint).is_ok() {
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    address
}
