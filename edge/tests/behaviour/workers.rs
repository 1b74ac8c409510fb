//! Tests of the balance of connections over the workers, also with few connections.

use sluice_lab::client::Client;

use crate::harness::{Edge, Setup, eventually, fresh, serving};

/// Opens this many connections. Returns the busier worker's share of them.
fn share(edge: &Edge, connections: u64) -> f64 {
    let counts = || -> Vec<u64> {
        let status = edge.status();
        let workers = status["workers"].as_array().expect("a list");
        let open = |worker: &serde_json::Value| worker["connections_now"].as_u64();
        workers
            .iter()
            .map(|worker| open(worker).expect("a number"))
            .collect()
    };
    eventually("all are open", || {
        counts().iter().sum::<u64>() == connections
    });
    counts().into_iter().max().unwrap_or(0) as f64 / connections as f64
}

// With two workers, and 10 or 64 connections, the busier worker has at most 65 % of the
// connections.
#[test]
fn a_few_connections_are_shared_by_the_workers() {
    let origin = serving("/x", fresh(100));
    let edge = Setup::cached(&origin).workers(2).start();
    for round in 0..10 {
        for connections in [10, 64] {
            let mut clients: Vec<Client> = (0..connections).map(|_| edge.client()).collect();
            for client in &mut clients {
                client.get("/x", &[]).expect("a reply");
            }
            let share = share(&edge, connections);
            assert!(share <= 0.65, "round {round}, {connections}: {share}");
            drop(clients);
            eventually("all have left", || edge.counter("connections_now") == 0);
        }
    }
}

// A response that one worker has fetched is served by all workers, each on its own connections.
#[test]
fn workers_share_stored_responses() {
    let origin = serving("/x", fresh(100_000));
    let edge = Setup::cached(&origin).workers(2).start();
    let mut clients: Vec<Client> = (0..8).map(|_| edge.client()).collect();
    for client in &mut clients {
        let reply = client.get("/x", &[]).expect("a reply");
        reply.verify_whole(100_000).expect("the body");
    }
    let status = edge.status();
    for worker in status["workers"].as_array().expect("a list") {
        assert!(worker["requests"].as_u64() > Some(0), "{worker}");
    }
    assert_eq!(origin.requests().len(), 1);
}
