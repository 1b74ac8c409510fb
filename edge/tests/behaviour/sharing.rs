//! Tests of sharing: one fetch for several clients, across workers, for a limited time and in
//! limited memory.

use rustix::process::Signal;
use sluice_lab::client::Client;
use sluice_lab::origin::{Framing, Latch, Resource};

use crate::harness::{
    SOON, Setup, assert_has_parameter, assert_hit, cache_status, eventually, fresh, origin,
    serving, wait_for_requests,
};

// A flight of one worker serves clients of other workers. During a shutdown it continues until they
// have received their responses.
#[test]
fn during_shutdown_a_rider_keeps_the_flight_of_another_worker() {
    let latch = Latch::at(100_000);
    let origin = serving("/x", fresh(300_000).hold_body(&latch));
    let mut edge = Setup::cached(&origin)
        .limits("shutdown_timeout = \"1h\"")
        .start();
    // With six connections, each of the two workers has some.
    let mut clients: Vec<Client> = (0..6).map(|_| edge.client()).collect();
    for client in &mut clients {
        client.send("GET", "/x", &[], b"").expect("sent");
        client.read_head().expect("a head");
    }
    // All clients but one disconnect, including the client whose request started the flight.
    let mut last = clients.pop().expect("six");
    drop(clients);
    eventually("they left", || edge.counter("connections_now") == 1);
    edge.signal(Signal::TERM);
    eventually("it drains", || {
        std::net::TcpStream::connect(edge.http).is_err()
    });
    latch.release();
    let body = last.read_to_end().expect("the rest");
    assert_eq!(body.len(), 300_000);
    assert!(edge.wait_exit().success());
}

// The bodies of 60 clients don't fit into memory, so they pass through. Each client may use little
// memory beyond the limit of the ledger.
#[test]
fn bodies_that_pass_through_share_the_available_memory() {
    let latch = Latch::closed();
    let origin = origin();
    let edge = Setup::cached(&origin)
        .cache("memory = \"8MiB\"")
        .limits("send_timeout = \"1h\"\nmin_rate = 0")
        .start();
    let mut readers: Vec<Client> = (0..60)
        .map(|n| {
            let path = format!("/{n}");
            let endless = fresh(3_000_000).framing(Framing::Chunked(50_000));
            origin.serve(&path, endless.hold_head(&latch));
            let mut reader = edge.slow_reader();
            let close = [("connection", "close")];
            reader.send("GET", &path, &close, b"").expect("sent");
            reader
        })
        .collect();
    eventually("all are being fetched", || {
        edge.counter("flights_now") == 60
    });
    latch.release();
    for reader in &mut readers {
        reader.read_head().expect("a head");
    }
    let (bytes, limit) = (edge.cache_state("bytes"), edge.cache_state("limit"));
    assert!(bytes <= limit + 60 * (200 << 10), "{bytes} of {limit}");
    let reply = readers.pop().expect("60").read_to_end().expect("all of it");
    assert!(reply.len() >= 3_000_000);
}

// A slow rider does not delay the other riders of the same flight.
#[test]
fn a_slow_rider_does_not_hold_up_the_others() {
    let latch = Latch::closed();
    let endless = fresh(20_000_000).framing(Framing::Chunked(50_000));
    let origin = serving("/x", endless.hold_head(&latch));
    let edge = Setup::cached(&origin)
        .cache("memory = \"8MiB\"")
        .limits("send_timeout = \"1h\"\nmin_rate = 0")
        .start();
    let mut slow = edge.slow_reader();
    slow.send("GET", "/x", &[], b"").expect("sent");
    let mut fast = edge.client();
    fast.send("GET", "/x", &[], b"").expect("sent");
    eventually("both share the fetch", || edge.counter("requests_now") == 2);
    latch.release();
    let reply = fast.read_response().expect("a reply");
    reply.verify_whole(20_000_000).expect("all of it");
}

// The origin responds once with an error. The response to the next request is stored.
#[test]
fn the_response_after_an_error_is_stored() {
    let origin = serving("/x", Resource::status(503));
    let edge = Setup::cached(&origin).start();
    assert_eq!(edge.get("/x", &[]).status, 503);
    origin.serve("/x", fresh(10));
    edge.get("/x", &[]).verify_whole(10).expect("the body");
    assert_hit(&edge.get("/x", &[]));
}

// The number of variants per URL is limited. A new variant replaces the oldest one, so that one
// client can't fill all places.
#[test]
fn a_new_variant_replaces_the_oldest_one() {
    let origin = serving("/x", fresh(10).vary("User-Agent"));
    let edge = Setup::cached(&origin).start();
    for n in 0..70 {
        edge.get("/x", &[("user-agent", &format!("junk/{n}"))]);
    }
    assert!(edge.objects("/x").len() <= 64);
    edge.get("/x", &[("user-agent", "a browser")]);
    assert_hit(&edge.get("/x", &[("user-agent", "a browser")]));
}

// A body without a length ends with its connection. It may be truncated, so it is not stored.
#[test]
fn a_body_delimited_by_close_is_not_stored() {
    let origin = serving("/x", fresh(1000).framing(Framing::Close));
    let edge = Setup::cached(&origin).with_http1_servers().start();
    for _ in 0..2 {
        let reply = edge.get("/x", &[]);
        reply.verify_whole(1000).expect("the body");
        assert_has_parameter(&reply, "detail=until-close");
    }
    assert!(edge.objects("/x").is_empty() || edge.cache_state("bytes") < 5000);
}

// The log line of the request that starts a fetch has the cache status, the reason, and the times
// of the exchange with the origin.
#[test]
fn a_miss_logs_its_exchange_with_the_origin() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).logged("json").start();
    edge.get("/x", &[]);
    let line = &edge.json_log(1)[0];
    assert_eq!(line["cache"], "uri-miss", "{line}");
    assert_eq!(line["upstream_status"], 200, "{line}");
    assert!(line["header_us"].as_u64().is_some(), "{line}");
}

#[test]
fn a_resized_cache_keeps_its_objects() {
    let origin = serving("/x", fresh(1000));
    let setup = |memory: &str| Setup::cached(&origin).cache(&format!("memory = \"{memory}\""));
    let edge = setup("32MiB").start();
    edge.get("/x", &[]);
    edge.rewrite(&setup("48MiB").text());
    assert!(edge.command(&["reload"]).status.success());
    assert_eq!(edge.cache_state("limit"), 48 << 20);
    assert_hit(&edge.get("/x", &[]));
}

// Another program listens on the address. The edge must report an error, and not share the address
// through SO_REUSEPORT.
#[test]
fn an_address_in_use_is_an_error() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let text = Setup::cached(&origin).in_clear_text().text();
    let taken = text.replacen("127.0.0.1:0", &edge.http.to_string(), 1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("sluice.toml");
    std::fs::write(&file, taken).expect("written");
    let second = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["serve", "-c"])
        .arg(&file)
        .output()
        .expect("it runs");
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("can't listen on"), "{said}");
    assert!(said.contains("listens on port"), "{said}");
    assert!(!said.contains("os error"), "{said}");
}

// No rider receives a byte before the head has shown that the response is storable. If it is not
// storable, one client receives this response, and each of the others sends its own request.
#[test]
fn an_unshareable_response_goes_to_one_client_and_the_others_send_their_own_requests() {
    let latch = Latch::closed();
    let private = Resource::offset(10)
        .cache_control("private")
        .hold_head(&latch);
    let origin = serving("/x", private);
    let edge = Setup::cached(&origin).start();
    let mut clients: Vec<Client> = (0..5).map(|_| edge.client()).collect();
    for client in &mut clients {
        client.send("GET", "/x", &[], b"").expect("sent");
    }
    eventually("all wait", || edge.counter("requests_now") == 5);
    wait_for_requests(&origin, "/x", 1);
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for client in &mut clients {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(10).expect("the body");
        assert!(cache_status(&reply).contains("detail=private"));
    }
    assert_eq!(origin.requests().len(), 5);
}
