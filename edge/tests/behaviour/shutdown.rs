//! Tests of the graceful shutdown on SIGTERM and SIGQUIT, which has a deadline.

use std::net::TcpStream;

use rustix::process::Signal;
use sluice_lab::client::Closing;
use sluice_lab::origin::{Latch, Resource};

use crate::harness::{SOON, Setup, eventually, fresh, origin, wait_for_requests};

// The handlers are installed before the program says where it listens.
#[test]
fn a_signal_right_after_the_start_ends_the_program_in_order() {
    let origin = origin();
    for _ in 0..10 {
        let mut edge = Setup::cached(&origin).start();
        edge.signal(Signal::TERM);
        assert!(edge.wait_exit().success());
    }
}

/// Sends the signal while one client receives a body, one client waits for a head, and one
/// connection is idle. Checks that the running requests are answered and the program then ends.
fn drain_by(signal: Signal) {
    let (body, head) = (Latch::at(100_000), Latch::closed());
    let origin = origin();
    origin.serve("/pass/body", Resource::offset(500_000).hold_body(&body));
    origin.serve("/pass/head", Resource::offset(10).hold_head(&head));
    origin.serve("/fill", fresh(300_000).hold_body(&body));
    let mut edge = Setup::cached(&origin).start();
    let [mut reading, mut waiting, mut filling, mut idle] = [0; 4].map(|_| edge.client());
    idle.get("/offset/1", &[]).expect("a reply");
    reading.send("GET", "/pass/body", &[], b"").expect("sent");
    waiting.send("GET", "/pass/head", &[], b"").expect("sent");
    filling.send("GET", "/fill", &[], b"").expect("sent");
    wait_for_requests(&origin, "/pass/head", 1);
    assert!(body.wait_held(2, SOON));
    edge.signal(signal);
    assert_eq!(idle.wait_closed(SOON).expect("a socket"), Closing::Fin);
    eventually("new connections are refused", || {
        TcpStream::connect(edge.http).is_err()
    });
    head.release();
    let last = waiting.read_response().expect("a reply");
    last.verify_whole(10).expect("the one that waited");
    let announces = (!waiting.is_http2()).then_some("close");
    assert_eq!(last.header("connection"), announces);
    body.release();
    let reply = reading.read_response().expect("a reply");
    reply.verify_whole(500_000).expect("the one that was read");
    let reply = filling.read_response().expect("a reply");
    reply
        .verify_whole(300_000)
        .expect("the one that was filled");
    for mut client in [reading, waiting, filling] {
        assert_eq!(client.wait_closed(SOON).expect("a socket"), Closing::Fin);
    }
    assert!(edge.wait_exit().success());
}

// Running requests are completed, idle connections are closed, and no new connection is accepted.
#[test]
fn sigterm_lets_requests_finish() {
    drain_by(Signal::TERM);
}

#[test]
fn sigquit_lets_requests_finish() {
    drain_by(Signal::QUIT);
}

#[test]
fn the_deadline_cuts_off_remaining_requests() {
    let latch = Latch::at(1000);
    let origin = origin();
    origin.serve("/body", Resource::offset(5000).hold_body(&latch));
    let mut edge = Setup::uncached(&origin)
        .limits("shutdown_timeout = \"200ms\"")
        .logged("json")
        .start();
    let mut client = edge.client();
    client.send("GET", "/body", &[], b"").expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 200);
    assert_eq!(
        client.read_some(1000).expect("the bytes so far").len(),
        1000
    );
    edge.signal(Signal::TERM);
    assert!(edge.wait_exit().success());
    let rest = client.read_to_end();
    assert!(rest.is_err() || rest.is_ok_and(|rest| rest.is_empty()));
    assert_eq!(edge.json_log(1)[0]["reason"], "drain-timeout");
}

// A second signal ends the program at once, before the deadline of the shutdown.
#[test]
fn a_second_signal_cuts_off_remaining_requests_at_once() {
    let latch = Latch::closed();
    let origin = origin();
    origin.serve("/head", Resource::offset(5000).hold_head(&latch));
    let mut edge = Setup::uncached(&origin)
        .limits("shutdown_timeout = \"1h\"")
        .start();
    let mut client = edge.client();
    client.send("GET", "/head", &[], b"").expect("sent");
    wait_for_requests(&origin, "/head", 1);
    edge.signal(Signal::TERM);
    eventually("it drains", || TcpStream::connect(edge.http).is_err());
    edge.signal(Signal::TERM);
    assert!(
        !edge.wait_exit().success(),
        "it says that something was cut"
    );
    assert!(client.read_response().is_err());
}

// Connections that wait in the kernel's accept queue when the signal arrives are accepted and
// answered.
#[test]
fn connections_in_the_accept_queue_are_answered_during_shutdown() {
    let origin = origin();
    origin.serve("/x", fresh(1000));
    for _ in 0..5 {
        let mut edge = Setup::cached(&origin).start();
        edge.get("/x", &[]);
        let mut clients: Vec<_> = (0..20).map(|_| edge.client()).collect();
        for client in &mut clients {
            client.send("GET", "/x", &[], b"").expect("sent");
        }
        eventually("all are in the queue", || edge.established() >= 20);
        edge.signal(Signal::TERM);
        for mut client in clients {
            let reply = client.read_response().expect("a reply");
            reply.verify_whole(1000).expect("the body");
        }
        assert!(edge.wait_exit().success());
    }
}
