//! Tests of the client's timeouts and minimum rate. Time that the edge spends waiting for the
//! origin must not count against the client.

use std::time::Duration;

use sluice_lab::client::Closing;
use sluice_lab::offset::offset_bytes;
use sluice_lab::origin::{Latch, Resource};

use crate::harness::{SOON, Setup, fresh, serving, slow, wait_for_requests};

/// Configuration lines with limits that only a fast client satisfies.
const STRICT: &str = "header_timeout = \"7s\"\nbody_timeout = \"7s\"\nsend_timeout = \"7s\"
keepalive_timeout = \"7s\"\nmin_rate = \"1GB\"\nmin_rate_grace = \"7s\"";

/// A time longer than each of these limits.
const LONG: Duration = Duration::from_millis(7500);

// The origin sends slowly. The client's minimum rate must not count the time in which there is
// nothing to send.
#[test]
fn a_slow_origin_does_not_count_against_the_reader() {
    let slow = slow(fresh(200_000), LONG);
    let origin = serving("/x", slow.clone());
    origin.serve("/pass/x", slow);
    let edge = Setup::cached(&origin).limits(STRICT).start();
    let mut clients = ["/x", "/x", "/pass/x"].map(|target| {
        let mut client = edge.client();
        client.send("GET", target, &[], b"").expect("sent");
        client
    });
    for client in &mut clients {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(200_000).expect("all of it");
    }
    assert_eq!(edge.counter("client_timeouts"), 0);
}

// The origin does not read the request body for a while. The client's timeout must not count this
// time.
#[test]
fn a_slow_origin_does_not_count_against_the_uploader() {
    let latch = Latch::closed();
    let origin = serving("/x", Resource::status(200).hold_upload(&latch));
    let edge = Setup::uncached(&origin)
        .in_clear_text()
        .limits(STRICT)
        .limits("body = 0")
        .start();
    let mut client = edge.client();
    let body = offset_bytes(0, 20_000_000);
    let head = format!(
        "PUT /x HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // One write, since a pause between head and body would count against the client.
    let request = [head.as_bytes(), &body].concat();
    let mut sender = client.stream().try_clone().expect("another handle");
    let sending = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &request));
    wait_for_requests(&origin, "/x", 1);
    assert_eq!(client.wait_closed(LONG).expect("a socket"), Closing::Open);
    latch.release();
    assert_eq!(client.read_response().expect("a reply").status, 200);
    sending.join().expect("a thread").expect("all was sent");
    assert!(origin.requests()[0].body_is_offset);
}

#[test]
fn waiting_for_a_fill_does_not_time_out() {
    let latch = Latch::at(10_000);
    let origin = serving("/x", fresh(100_000).hold_body(&latch));
    let edge = Setup::cached(&origin)
        .limits(STRICT)
        .cache("fill = \"whole\"")
        .start();
    let mut client = edge.client();
    let range = [("Range", "bytes=90000-90009")];
    client.send("GET", "/x", &range, b"").expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 206);
    assert_eq!(client.wait_closed(LONG).expect("a socket"), Closing::Open);
    latch.release();
    assert_eq!(client.read_some(10).expect("the range"), b"000090000\n");
    assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
}
