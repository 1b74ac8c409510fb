//! What is shared, with whom, for how long, and in how much memory.

use std::time::Duration;

use rustix::process::Signal;
use sluice_lab::client::{Client, ClientOptions};
use sluice_lab::origin::{Framing, Gate, Resource};

use crate::harness::{
    Setup, assert_hit, assert_says, cache_status, eventually, fresh, origin, serving, wait_asked,
};

// "requests in progress may finish", whichever worker's fetch they ride.
#[test]
fn at_the_end_a_rider_keeps_the_flight_of_another_worker() {
    let gate = Gate::at(100_000);
    let origin = serving("/x", fresh(300_000).gate(&gate));
    let mut edge = Setup::cached(&origin).limits("shutdown_timeout = \"1h\"").start();
    // As many clients as make it sure that both workers have some.
    let mut clients: Vec<Client> = (0..6).map(|_| edge.client()).collect();
    for client in &mut clients {
        client.send("GET", "/x", &[], b"").expect("sent");
        client.read_head().expect("a head");
    }
    // All but one leave, the one who launched the fetch among them.
    let mut last = clients.pop().expect("six");
    drop(clients);
    eventually("they left", || edge.counter("connections_now") == 1);
    edge.signal(Signal::TERM);
    eventually("it drains", || {
        std::net::TcpStream::connect(edge.http).is_err()
    });
    gate.release();
    let body = last.read_to_end().expect("the rest");
    assert_eq!(body.len(), 300_000);
    assert!(edge.wait_exit().success());
}

// "the ledger holds all memory": what can't be kept passes through, however many read.
#[test]
fn bodies_that_pass_through_share_what_room_there_is() {
    let gate = Gate::closed();
    let origin = origin();
    let edge = Setup::cached(&origin)
        .cache("memory = \"8MiB\"")
        .limits("send_timeout = \"1h\"\nmin_rate = 0")
        .start();
    let mut readers: Vec<Client> = (0..60)
        .map(|n| {
            let path = format!("/{n}");
            let endless = fresh(3_000_000).framing(Framing::Chunked(50_000));
            origin.serve(&path, endless.gate_head(&gate));
            let mut reader = edge.reluctant_client();
            let close = [("connection", "close")];
            reader.send("GET", &path, &close, b"").expect("sent");
            reader
        })
        .collect();
    eventually("all fly", || edge.counter("flights_now") == 60);
    gate.release();
    for reader in &mut readers {
        reader.read_head().expect("a head");
    }
    let (bytes, limit) = (edge.cache_state("bytes"), edge.cache_state("limit"));
    assert!(bytes <= limit + 60 * (200 << 10), "{bytes} of {limit}");
    let reply = readers.pop().expect("60").read_to_end().expect("all of it");
    assert!(reply.len() >= 3_000_000);
}

// Nor does one who reads slowly hold back one who reads fast.
#[test]
fn a_trickling_rider_does_not_hold_back_the_others() {
    let gate = Gate::closed();
    let endless = fresh(20_000_000).framing(Framing::Chunked(50_000));
    let origin = serving("/x", endless.gate_head(&gate));
    let edge = Setup::cached(&origin)
        .cache("memory = \"8MiB\"")
        .limits("send_timeout = \"1h\"\nmin_rate = 0")
        .start();
    let mut slow = edge.reluctant_client();
    slow.send("GET", "/x", &[], b"").expect("sent");
    let mut fast = edge.client();
    fast.send("GET", "/x", &[], b"").expect("sent");
    eventually("both ride", || edge.counter("requests_now") == 2);
    gate.release();
    let reply = fast.read_response().expect("a reply");
    reply.verify_whole(20_000_000).expect("all of it");
}

// A shared fetch is made for the client that launched it, as far as the origin can tell.
#[test]
fn the_origin_is_told_of_the_client_and_not_of_the_edge() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin).start();
    let from = ClientOptions {
        source: Some("127.0.0.7".parse().expect("an address")),
        ..ClientOptions::default()
    };
    let mut client = Client::connect_with(edge.http, &from).expect("connected");
    client.get("/x", &[]).expect("a reply");
    let seen = &origin.requests()[0];
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.7"));
}

// One hiccup of an origin does not keep a page out of the cache.
#[test]
fn after_an_error_the_next_answer_is_kept() {
    let origin = serving("/x", Resource::status(503));
    let edge = Setup::cached(&origin).start();
    assert_eq!(edge.get("/x", &[]).status, 503);
    origin.serve("/x", fresh(10));
    edge.get("/x", &[]).verify_whole(10).expect("the body");
    assert_hit(&edge.get("/x", &[]));
}

// Variants are bounded in number, and the oldest makes room: nobody can shut others out.
#[test]
fn many_variants_do_not_shut_out_new_ones() {
    let origin = serving("/x", fresh(10).vary("User-Agent"));
    let edge = Setup::cached(&origin).start();
    for n in 0..70 {
        edge.get("/x", &[("user-agent", &format!("junk/{n}"))]);
    }
    assert!(edge.objects("/x").len() <= 64);
    edge.get("/x", &[("user-agent", "a browser")]);
    assert_hit(&edge.get("/x", &[("user-agent", "a browser")]));
}

// "never stored as whole": of what ends with the connection nobody knows whether it is whole.
#[test]
fn what_ends_with_the_connection_is_not_kept() {
    let origin = serving("/x", fresh(1000).framing(Framing::Close));
    let edge = Setup::cached(&origin).start();
    for _ in 0..2 {
        let reply = edge.get("/x", &[]);
        reply.verify_whole(1000).expect("the body");
        assert_says(&reply, "detail=until-close");
    }
    assert!(edge.objects("/x").is_empty() || edge.cache_state("bytes") < 5000);
}

// "Access log (… with cache status, reason and timings)", for the miss that fills as well.
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

// A reload that gives a cache another size keeps what is in it.
#[test]
fn a_cache_is_resized_with_what_it_holds() {
    let origin = serving("/x", fresh(1000));
    let setup = |memory: &str| Setup::cached(&origin).cache(&format!("memory = \"{memory}\""));
    let edge = setup("32MiB").start();
    edge.get("/x", &[]);
    edge.rewrite(&setup("48MiB").text());
    assert!(edge.command(&["reload"]).status.success());
    assert_eq!(edge.cache_state("limit"), 48 << 20);
    assert_hit(&edge.get("/x", &[]));
}

// An address that another program listens at is an error, not shared.
#[test]
fn a_taken_address_is_noticed() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    let text = Setup::cached(&origin).text();
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
}

// "a rider gets nothing before the head proves storable": and what is refused is asked for alone.
#[test]
fn a_refused_answer_goes_to_one_and_the_others_ask_themselves() {
    let gate = Gate::closed();
    let private = Resource::offset(10)
        .cache_control("private")
        .gate_head(&gate);
    let origin = serving("/x", private);
    let edge = Setup::cached(&origin).start();
    let mut clients: Vec<Client> = (0..5).map(|_| edge.client()).collect();
    for client in &mut clients {
        client.send("GET", "/x", &[], b"").expect("sent");
    }
    eventually("all wait", || edge.counter("requests_now") == 5);
    wait_asked(&origin, "/x", 1);
    assert!(gate.wait_held(1, Duration::from_secs(5)));
    gate.release();
    for client in &mut clients {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(10).expect("the body");
        assert!(cache_status(&reply).contains("detail=private"));
    }
    assert_eq!(origin.requests().len(), 5);
}
