//! Tests of a configuration with very many routes.

use sluice_lab::origin::Origin;

use crate::harness::{Edge, Setup, assert_hit, eventually, fresh, serving};

/// Number of routes.
const ROUTES: usize = 10_000;

/// Largest memory that a route may take on each worker, in bytes.
const WORKER_MAX: i64 = 500;
/// Largest memory that a route with requests may take on each worker, in bytes: its handlers, its counters, and two of its
/// histograms, of which each takes 300 bytes and 512 bytes for each power of two of its values.
const VISITED_MAX: u64 = 4000;
/// Largest memory that a route may take in the configuration, which all workers share, in bytes.
const SHARED_MAX: i64 = 1500;

/// Starts an edge with this many cached routes below `/r`, and one for all other paths. The history is off, since its memory
/// has a limit of its own.
fn with_routes(origin: &Origin, routes: usize, workers: usize) -> Edge {
    let route =
        |n| format!("[[site.route]]\npath = \"/r{n}/*\"\nproxy = \"origin\"\ncache = \"main\"\n");
    let routes: String = (0..routes).map(route).collect();
    let setup = Setup::cached(origin).workers(workers);
    let text = setup.admin("history = false").text();
    Setup::of_text(text.replacen("[[site]]\n", &format!("[[site]]\n{routes}"), 1)).start()
}

/// Returns an edge with this many routes that has served a request.
fn started(origin: &Origin, routes: usize, workers: usize) -> Edge {
    let edge = with_routes(origin, routes, workers);
    let first = edge.get("/r7/x", &[]);
    first.verify_whole(1000).expect("the body");
    edge
}

// The allocator returns the memory that reading the configuration took a short time after the start.
#[test]
fn routes_without_requests_cost_a_worker_little_memory() {
    let origin = serving("/r7/x", fresh(1000));
    let resident = |edge: &Edge| i64::try_from(edge.resident_memory()).expect("less than 2^63");
    let few = resident(&started(&origin, 8, 1));
    let (one, four) = (started(&origin, ROUTES, 1), started(&origin, ROUTES, 4));
    let routes = ROUTES as i64;
    eventually("a route takes little memory that all workers share", || {
        resident(&one) - few <= routes * SHARED_MAX
    });
    eventually("a route takes little memory of each worker", || {
        resident(&four) - resident(&one) <= 3 * routes * WORKER_MAX
    });
}

// Each request is for another route, so that the worker builds the handlers of all routes.
#[test]
fn routes_with_requests_cost_a_worker_little_memory() {
    const VISITED: usize = 5000;
    let origin = serving("/x", fresh(10));
    let edge = with_routes(&origin, VISITED, 1);
    let mut client = edge.client();
    client.get("/x", &[]).expect("a reply");
    let before = edge.resident_memory();
    // The origin is not needed: the cache has no such response, and the request forbids a fetch.
    let fields = [("Cache-Control", "only-if-cached")];
    for n in 0..VISITED {
        let reply = client.get(&format!("/r{n}/"), &fields).expect("a reply");
        assert_eq!(reply.status, 504);
    }
    let each = edge.resident_memory().saturating_sub(before) / VISITED as u64;
    assert!(each <= VISITED_MAX, "{each} bytes for each route");
    assert_hit(&client.get("/x", &[]).expect("a reply"));
}
