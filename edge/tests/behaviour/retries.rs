//! Tests of many clients that wait for a failing fetch of missing bytes: the origin does not
//! receive one request per client.

use sluice_lab::client::{Client, Reply};
use sluice_lab::origin::{Gate, Origin, Resource, Seen};

use crate::harness::{Edge, SOON, Setup, cache_status, eventually, serving};
use crate::partial_objects::{
    BLOCK, FILE, asked, check_range, filling, good, landed, send_range, send_whole,
};

/// The number of requests that a failing fetch may cause, however many clients wait for it.
const ATTEMPTS_MAX: u64 = 10;

/// Statuses of temporary failures.
const REFUSALS: [u16; 2] = [503, 429];

/// An origin that answers the first request and, once the gate is open, all others with this
/// status.
fn failing(status: u16, gate: &Gate) -> Origin {
    let held = gate.clone();
    let choose = move |seen: &Seen| match seen.id {
        0 => good(seen),
        _ => Resource::status(status).gate_head(&held),
    };
    serving("/x", Resource::dynamic(choose))
}

/// Requests blocks one by one, so that the clients waiting for a block wait for one fetch.
fn one_by_one(origin: &Origin) -> Setup {
    filling(origin, "slice").cache("parallel = 1")
}

/// Clients that wait for the same missing bytes, far from the stored ones.
fn waiting(edge: &Edge, crowd: u64) -> Vec<Client> {
    let clients = (0..crowd)
        .map(|_| send_range(edge, 1_000_000, 1_000_009))
        .collect();
    eventually("all wait", || edge.counter("requests_now") == crowd);
    clients
}

/// Asserts that a reply is an error.
fn assert_failed(reply: &Reply) {
    let status = reply.status;
    let told = status == 429 || (500..=504).contains(&status);
    assert!(told, "{status}: {:?}", cache_status(reply));
}

// Clients whose responses have not begun receive the error after one fetch and one retry, for all
// of them together.
#[test]
fn a_failing_fetch_costs_the_same_for_one_and_for_many_waiting_clients() {
    for status in REFUSALS {
        for crowd in [1, 20] {
            let gate = Gate::closed();
            let origin = failing(status, &gate);
            let edge = filling(&origin, "slice").start();
            check_range(&edge, 0, 9);
            landed(&edge);
            let mut clients = waiting(&edge, crowd);
            gate.release();
            for client in &mut clients {
                assert_failed(&client.read_response().expect("a reply"));
            }
            let attempts = asked(&origin).len() as u64 - 1;
            assert!(attempts <= ATTEMPTS_MAX, "{status}: {attempts} for {crowd}");
            // Stored bytes are still served.
            check_range(&edge, 100_000, 100_009);
        }
    }
}

/// Runs all of these concurrently; they spend most of their time waiting.
fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let run = &run;
            scope.spawn(move || run(case));
        }
    });
}

// Clients whose responses have begun wait a little longer, and are all cut off after a few
// attempts.
#[test]
fn a_failing_fetch_costs_the_same_for_one_and_for_many_begun_responses() {
    at_once([(503, 1), (503, 20), (429, 20)], |(status, crowd)| {
        let gate = Gate::closed();
        let origin = failing(status, &gate);
        let edge = one_by_one(&origin).start();
        check_range(&edge, 0, 9);
        landed(&edge);
        let mut clients: Vec<Client> = (0..crowd).map(|_| send_whole(&edge)).collect();
        for client in &mut clients {
            let head = client.read_head().expect("a head, since its byte is there");
            assert_eq!(head.status, 200);
        }
        gate.release();
        for client in &mut clients {
            let body = client.read_to_end().expect("an end");
            assert_eq!(body.len() as u64, BLOCK, "what there was");
        }
        let attempts = asked(&origin).len() as u64 - 1;
        assert!(attempts <= ATTEMPTS_MAX, "{status}: {attempts} for {crowd}");
        check_range(&edge, 100_000, 100_009);
    });
}

// An origin that refuses connections does not receive one attempt per client.
#[test]
fn a_refusing_origin_does_not_receive_a_connection_per_client() {
    let cases = [(1, false), (20, false), (20, true)];
    at_once(cases, |(crowd, begun)| {
        // The fetch that all clients wait for is running when the origin stops.
        let gate = Gate::closed();
        let held = gate.clone();
        let choose = move |seen: &Seen| match seen.id {
            0 => good(seen),
            _ => good(seen).gate_head(&held),
        };
        let origin = serving("/x", Resource::dynamic(choose));
        let edge = one_by_one(&origin).start();
        check_range(&edge, 0, 9);
        landed(&edge);
        let flights = edge.counter("flights");
        let mut clients: Vec<Client> = match begun {
            true => (0..crowd).map(|_| send_whole(&edge)).collect(),
            false => waiting(&edge, crowd),
        };
        if begun {
            for client in &mut clients {
                assert_eq!(client.read_head().expect("its byte is there").status, 200);
            }
        }
        assert!(gate.wait_held(1, SOON), "a fetch is under way");
        origin.refuse().expect("the port can be closed");
        origin.drop_connections();
        for client in &mut clients {
            match begun {
                true => assert_eq!(client.read_to_end().expect("an end").len() as u64, BLOCK),
                false => assert_failed(&client.read_response().expect("a reply")),
            }
        }
        let attempts = edge.counter("flights") - flights;
        assert!(attempts <= ATTEMPTS_MAX, "{attempts} for {crowd}");
        check_range(&edge, 100_000, 100_009);
    });
}

// Once the origin has recovered, one retry serves all waiting clients.
#[test]
fn a_failed_fetch_is_retried_once_for_all_clients() {
    let gate = Gate::closed();
    let held = gate.clone();
    let choose = move |seen: &Seen| match seen.id {
        1 => Resource::status(503).gate_head(&held),
        _ => good(seen),
    };
    let origin = serving("/x", Resource::dynamic(choose));
    let edge = one_by_one(&origin).start();
    check_range(&edge, 0, 9);
    landed(&edge);
    let mut clients: Vec<Client> = (0..20).map(|_| send_whole(&edge)).collect();
    for client in &mut clients {
        client.read_head().expect("a head");
    }
    assert!(gate.wait_held(1, SOON));
    gate.release();
    for client in &mut clients {
        let body = client.read_some(FILE as usize).expect("all of it");
        sluice_lab::offset::verify_offset(0, &body).expect("the right bytes");
    }
    let attempts = asked(&origin).len() as u64;
    assert!(attempts <= FILE / BLOCK + 1 + ATTEMPTS_MAX, "{attempts}");
}
