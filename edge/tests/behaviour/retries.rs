//! Tests of many clients that wait for missing bytes whose fetch fails. The origin must not receive
//! one request per client.

use sluice_lab::client::{Client, Reply};
use sluice_lab::origin::{Latch, Origin, Resource, Seen};

use crate::harness::{Edge, SOON, Setup, cache_status, eventually, serving};
use crate::partial_objects::{
    BLOCK, FILE, asked, check_range, filling, good, landed, send_range, send_whole,
};

/// Maximum number of requests that a failing fetch may cause, however many clients wait for it.
const ATTEMPTS_MAX: u64 = 10;

/// Statuses of responses that report a temporary failure.
const REFUSALS: [u16; 2] = [503, 429];

/// Starts an origin that answers the first request correctly. All later requests receive this
/// status once the latch is open.
fn failing(status: u16, latch: &Latch) -> Origin {
    let held = latch.clone();
    let choose = move |seen: &Seen| match seen.id {
        0 => good(seen),
        _ => Resource::status(status).hold_head(&held),
    };
    serving("/x", Resource::dynamic(choose))
}

/// Configures one fetch at a time, so that all clients that need the same block wait for one fetch.
fn one_by_one(origin: &Origin) -> Setup {
    // The tests read from one client after the other.
    let patient = "send_timeout = \"1h\"\nmin_rate = 0";
    filling(origin, "slice")
        .cache("parallel = 1")
        .limits(patient)
}

/// Sends requests of `crowd` clients for the same missing bytes, far from the stored ones.
fn waiting(edge: &Edge, crowd: u64) -> Vec<Client> {
    let clients = (0..crowd)
        .map(|_| send_range(edge, 1_000_000, 1_000_009))
        .collect();
    eventually("all wait", || edge.counter("requests_now") == crowd);
    clients
}

/// Reads the head of a response and the block that is stored. The client then waits for the next block.
fn read_stored(client: &mut Client) {
    let head = client.read_head().expect("a head, since its byte is there");
    assert_eq!(head.status, 200);
    let stored = client.read_some(BLOCK as usize).expect("a block");
    assert_eq!(stored.len() as u64, BLOCK);
}

/// Asserts that a response is an error.
fn assert_failed(reply: &Reply) {
    let status = reply.status;
    let told = status == 429 || (500..=504).contains(&status);
    assert!(told, "{status}: {:?}", cache_status(reply));
}

// No client's response has begun. One fetch and one retry fail, and then all clients receive the
// error.
#[test]
fn a_failing_fetch_costs_the_same_for_one_and_for_many_waiting_clients() {
    for status in REFUSALS {
        for crowd in [1, 20] {
            let latch = Latch::closed();
            let origin = failing(status, &latch);
            let edge = filling(&origin, "slice").start();
            check_range(&edge, 0, 9);
            landed(&edge);
            let mut clients = waiting(&edge, crowd);
            latch.release();
            for client in &mut clients {
                assert_failed(&client.read_response().expect("a reply"));
            }
            let attempts = asked(&origin).len() as u64 - 1;
            assert!(attempts <= ATTEMPTS_MAX, "{status}: {attempts} for {crowd}");
            // The block that was stored before the failure is still served.
            check_range(&edge, 100_000, 100_009);
        }
    }
}

/// Runs all cases concurrently, because they spend most of their time waiting.
fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let run = &run;
            scope.spawn(move || run(case));
        }
    });
}

// The responses of all clients have begun. The clients wait for a few attempts, and are then cut
// off.
#[test]
fn a_failing_fetch_costs_the_same_for_one_and_for_many_begun_responses() {
    at_once([(503, 1), (503, 20), (429, 20)], |(status, crowd)| {
        let latch = Latch::closed();
        let origin = failing(status, &latch);
        let edge = one_by_one(&origin).start();
        check_range(&edge, 0, 9);
        landed(&edge);
        let mut clients: Vec<Client> = (0..crowd).map(|_| send_whole(&edge)).collect();
        clients.iter_mut().for_each(read_stored);
        latch.release();
        for client in &mut clients {
            assert_eq!(client.read_to_end().expect("an end"), b"");
        }
        let attempts = asked(&origin).len() as u64 - 1;
        assert!(attempts <= ATTEMPTS_MAX, "{status}: {attempts} for {crowd}");
        check_range(&edge, 100_000, 100_009);
    });
}

// The origin refuses connections. The number of attempts to connect must not grow with the number
// of clients.
#[test]
fn a_refusing_origin_does_not_receive_a_connection_per_client() {
    let cases = [(1, false), (20, false), (20, true)];
    at_once(cases, |(crowd, begun)| {
        // The latch holds the response that all clients wait for. The origin stops accepting
        // connections before the response arrives.
        let latch = Latch::closed();
        let held = latch.clone();
        let choose = move |seen: &Seen| match seen.id {
            0 => good(seen),
            _ => good(seen).hold_head(&held),
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
            clients.iter_mut().for_each(read_stored);
        }
        assert!(latch.wait_held(1, SOON), "a fetch is under way");
        origin.refuse().expect("the port can be closed");
        origin.drop_connections();
        for client in &mut clients {
            match begun {
                true => assert_eq!(client.read_to_end().expect("an end"), b""),
                false => assert_failed(&client.read_response().expect("a reply")),
            }
        }
        let attempts = edge.counter("flights") - flights;
        assert!(attempts <= ATTEMPTS_MAX, "{attempts} for {crowd}");
        check_range(&edge, 100_000, 100_009);
    });
}

// After a failure the origin works again. One further fetch serves all waiting clients.
#[test]
fn a_failed_fetch_is_retried_once_for_all_clients() {
    let latch = Latch::closed();
    let held = latch.clone();
    let choose = move |seen: &Seen| match seen.id {
        1 => Resource::status(503).hold_head(&held),
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
    assert!(latch.wait_held(1, SOON));
    latch.release();
    for client in &mut clients {
        let body = client.read_some(FILE as usize).expect("all of it");
        sluice_lab::offset::verify_offset(0, &body).expect("the right bytes");
    }
    let attempts = asked(&origin).len() as u64;
    assert!(attempts <= FILE / BLOCK + 1 + ATTEMPTS_MAX, "{attempts}");
}
