//! Tests of failover: requests that one server fails are sent to another server.

use std::time::Instant;

use sluice_lab::origin::{BrokenHead, Ending, Fault, Latch, Origin, Resource};

use crate::harness::{Edge, SOON, Setup, assert_reason, eventually, fresh, origin};

/// Total time of all tries, longer than any test runs.
const PATIENT: &str = "total = \"1h\"";

/// Starts an origin that answers every request, except that it has this fault.
fn failing(fault: Fault) -> Origin {
    let origin = origin();
    origin.serve_rest(fresh(1000).fault(fault));
    origin
}

/// Starts an origin that answers every request correctly.
fn correct() -> Origin {
    let origin = origin();
    origin.serve_rest(fresh(1000));
    origin
}

/// Starts an origin that answers every request with this status.
fn answering(status: u16) -> Origin {
    let origin = origin();
    origin.serve_rest(Resource::status(status));
    origin
}

/// Starts an edge with a cache before these servers, of which the second one is a backup.
pub fn first_then(first: &Origin, backup: &Origin, retry: &str) -> Edge {
    first_and(first, backup, "backup = true", retry)
}

/// Starts an edge with a server that gets at least the first 500 requests, and another one with this setting.
fn first_and(first: &Origin, other: &Origin, setting: &str, keys: &str) -> Edge {
    let (first, other) = (first.url(""), other.url(""));
    Setup::of_text(format!(
        "[server]\nworkers = 1\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[upstream.origin]\n\
         servers = [{{ url = {first:?}, weight = 1000 }}, {{ url = {other:?}, {setting} }}]\n{keys}\n\
         [cache.main]\n[[route]]\npath = \"/pass/*\"\nproxy = \"origin\"\n\
         [[route]]\nproxy = \"origin\"\ncache = \"main\"\n"
    ))
    .in_clear_text()
    .start()
}

/// Waits until the error log has this text.
fn logged(edge: &Edge, text: &str) {
    eventually(text, || edge.process.stderr().contains(text));
}

// Half of the servers close every connection before the head. No client notices, whether the route
// has a cache or not.
#[test]
fn a_server_that_closes_every_connection_costs_no_client_a_response() {
    for ending in [Ending::Fin, Ending::Reset] {
        let (bad, good) = (failing(Fault::EndBeforeHead(ending)), correct());
        let retry = format!("retry = {{ {PATIENT} }}");
        let edge = Setup::cached(&bad).also(&good).upstream(&retry).start();
        for n in 0..40 {
            for path in [format!("/pass/{n}"), format!("/{n}")] {
                let reply = edge.get(&path, &[]);
                reply.verify_whole(1000).expect("the other server's");
            }
        }
        for method in ["HEAD", "OPTIONS"] {
            for n in 0..10 {
                let reply = edge.ask(method, &format!("/pass/{n}"), &[], b"");
                assert_eq!(reply.status, 200, "{method}");
            }
        }
        assert!(edge.counter("upstream_retries") > 0);
        // After a few failures in a row the other server is preferred.
        let failed = bad.requests().len();
        assert!(failed < 30, "{failed}");
        logged(&edge, "cause=closed-before-head");
    }
}

// A server may have executed a request that it received, so only requests that ask for no change
// are sent to another server.
#[test]
fn a_request_that_may_have_been_executed_is_sent_to_one_server_only() {
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        for body in [&b""[..], b"content"] {
            let bad = failing(Fault::EndBeforeHead(Ending::Fin));
            let good = correct();
            let edge = first_then(&bad, &good, "");
            let reply = edge.ask(method, "/pass/x", &[], body);
            assert_eq!(reply.status, 502, "{method}");
            assert_reason(&reply, "closed-before-head");
            assert_eq!((bad.requests().len(), good.requests().len()), (1, 0));
        }
    }
}

// No byte of the request was sent, so its method does not matter.
#[test]
fn a_request_of_any_method_is_sent_elsewhere_if_a_server_refuses_connections() {
    for method in ["POST", "PUT", "DELETE", "PATCH", "GET"] {
        let (down, good) = (origin(), correct());
        down.refuse().expect("it stops listening");
        let edge = first_then(&down, &good, "");
        let reply = edge.ask(method, "/pass/x", &[], b"");
        assert_eq!(reply.status, 200, "{method}");
        assert_eq!(good.requests().len(), 1);
    }
}

// The server accepts requests and never responds. The timeout is short, so the other server may be
// too late as well: only the request to it is certain.
#[test]
fn a_request_to_a_silent_server_is_sent_to_another_one() {
    let (silent, good) = (failing(Fault::NeverAnswer), correct());
    let retry = format!("read_timeout = \"50ms\"\nretry = {{ {PATIENT} }}");
    let edge = first_then(&silent, &good, &retry);
    for path in ["/pass/x", "/x"] {
        eventually("the other server's response", || {
            edge.get(path, &[]).status == 200
        });
    }
    assert!(!silent.requests().is_empty());
    logged(&edge, "cause=head-timeout");
}

#[test]
fn a_response_with_a_chosen_status_is_replaced_by_that_of_another_server() {
    let (bad, good) = (answering(503), correct());
    let retry = format!("retry = {{ on = [\"connect\", 500, 503], {PATIENT} }}");
    let edge = first_then(&bad, &good, &retry);
    // After five failures the other server would be preferred.
    for n in 0..2 {
        let reply = edge.get(&format!("/pass/{n}"), &[]);
        reply.verify_whole(1000).expect("the other server's");
        let reply = edge.get(&format!("/{n}"), &[]);
        reply.verify_whole(1000).expect("the other server's");
    }
    logged(&edge, "cause=retried-status");
    // The request may have been executed, so the response is passed on.
    let before = good.requests().len();
    assert_eq!(edge.ask("POST", "/pass/x", &[], b"").status, 503);
    assert_eq!(good.requests().len(), before);
    // Without another server, the response is passed on, too.
    let edge = Setup::uncached(&bad).upstream(&retry).start();
    assert_eq!(edge.get("/x", &[]).status, 503);
}

// The other server is known to accept no connections, so that the response is the best one there is.
#[test]
fn a_response_with_a_chosen_status_is_passed_on_if_the_other_server_is_unreachable() {
    let (bad, down) = (answering(503), origin());
    down.refuse().expect("it stops listening");
    let retry = format!("retry = {{ on = [\"connect\", 503], {PATIENT} }}");
    let edge = first_then(&bad, &down, &retry);
    // This request learns that the other server accepts no connections.
    edge.get("/pass/first", &[]);
    assert_eq!(edge.get("/pass/second", &[]).status, 503);
    assert_eq!(edge.get("/third", &[]).status, 503);
}

// The first server closes a connection instead of a response, and accepts no further ones. The
// request is then sent on the idle connection to the other server.
#[test]
fn a_request_that_is_sent_elsewhere_uses_an_idle_connection() {
    let servers = [correct(), correct()];
    let edge = Setup::uncached(&servers[0]).also(&servers[1]).workers(1);
    let edge = edge.upstream(&format!("retry = {{ {PATIENT} }}")).start();
    for _ in 0..2 {
        edge.get("/x", &[]).verify_whole(1000).expect("the body");
    }
    let [first, second] = &servers;
    assert_eq!(
        (first.connections().len(), second.connections().len()),
        (1, 1)
    );
    first.refuse().expect("it stops listening");
    first.serve_rest(fresh(1000).fault(Fault::EndBeforeHead(Ending::Fin)));
    for _ in 0..2 {
        edge.get("/x", &[]).verify_whole(1000).expect("the body");
    }
    assert_eq!(second.connections().len(), 1);
}

// A response that is not used leaves its connection usable if it was received completely.
#[test]
fn a_replaced_response_does_not_cost_the_connection() {
    // The response has no content, which could arrive later than its head.
    let (bad, good) = (origin(), correct());
    bad.serve_rest(Resource::offset(0).with_status(500));
    let retry = format!("retry = {{ on = [500], {PATIENT} }}");
    let edge = first_then(&bad, &good, &retry);
    for n in 0..3 {
        assert_eq!(edge.get(&format!("/pass/{n}"), &[]).status, 200);
    }
    assert_eq!(bad.requests().len(), 3);
    assert_eq!(bad.connections().len(), 1);
}

#[test]
fn failures_that_are_no_cause_of_retries_reach_the_client() {
    let closing = || failing(Fault::EndBeforeHead(Ending::Fin));
    let garbage = || failing(Fault::Head(BrokenHead::Garbage));
    for (bad, retry, reason) in [
        (closing(), "retry = false", "closed-before-head"),
        (closing(), "retry = { tries = 1 }", "closed-before-head"),
        (
            closing(),
            "retry = { on = \"connect\" }",
            "closed-before-head",
        ),
        (closing(), "retry = { on = false }", "closed-before-head"),
        (garbage(), "", "bad-head"),
    ] {
        let good = correct();
        let edge = first_then(&bad, &good, retry);
        let reply = edge.get("/pass/x", &[]);
        assert_eq!(reply.status, 502, "{retry}");
        assert_reason(&reply, reason);
        assert!(good.requests().is_empty(), "{retry}");
    }
}

#[test]
fn retries_end_with_their_budget_and_are_counted() {
    let (bad, good) = (failing(Fault::EndBeforeHead(Ending::Fin)), correct());
    let edge = first_then(&bad, &good, "retry = { budget = 0, budget_min = 0 }");
    let reply = edge.get("/pass/x", &[]);
    assert_eq!(reply.status, 502);
    assert_eq!(edge.counter("upstream_retries_refused"), 1);
    assert_eq!(edge.counter("upstream_retries"), 0);
    logged(&edge, "the budget of retries is used up");
    // Two requests permit one retry.
    let edge = first_then(&bad, &good, "retry = { budget = 0.5, budget_min = 0 }");
    let statuses: Vec<u16> = (0..4).map(|_| edge.get("/pass/x", &[]).status).collect();
    assert_eq!(statuses, [502, 200, 502, 200]);
}

// The first try takes longer than all tries together may.
#[test]
fn no_try_begins_after_the_total_time() {
    let (silent, good) = (failing(Fault::NeverAnswer), correct());
    let keys = "read_timeout = \"100ms\"\nretry = { total = \"1ms\" }";
    let edge = first_then(&silent, &good, keys);
    assert_eq!(edge.get("/pass/x", &[]).status, 504);
    assert!(good.requests().is_empty());
}

// Every server fails. Each is tried once, and the client learns of the last failure.
#[test]
fn a_request_is_sent_to_as_many_servers_as_permitted() {
    for (tries, expected) in [(2, 2), (3, 3), (17, 4)] {
        let servers: Vec<Origin> = (0..4)
            .map(|_| failing(Fault::EndBeforeHead(Ending::Fin)))
            .collect();
        let urls = servers.iter().map(|server| server.url("")).collect();
        let edge = Setup::of_servers(urls)
            .upstream(&format!("retry = {{ tries = {tries}, {PATIENT} }}"))
            .start();
        let reply = edge.get("/pass/x", &[]);
        assert_reason(&reply, "closed-before-head");
        let counts: Vec<usize> = servers.iter().map(|s| s.requests().len()).collect();
        assert_eq!(counts.iter().sum::<usize>(), expected, "{counts:?}");
        assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
    }
}

// The number of connections to servers that are down does not depend on the number of requests. When
// the servers are back, the next requests find them.
#[test]
fn servers_that_are_down_get_few_connections_and_are_used_as_soon_as_they_are_back() {
    let servers = [correct(), correct()];
    let edge = Setup::uncached(&servers[0]).also(&servers[1]).start();
    for server in &servers {
        server.refuse().expect("it stops listening");
    }
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let reply = edge.get("/x", &[]);
                    assert_reason(&reply, "connect-failed");
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let probes = edge.counter("upstream_probes");
    assert!(probes > 0);
    assert!(
        probes as f64 <= 2.0 * (10.0 * seconds + 1.0),
        "{probes} in {seconds} s"
    );
    for server in &servers {
        server.reopen().expect("it listens again");
    }
    // Either server may still seem to be down to the first request.
    eventually("a response", || edge.get("/x", &[]).status == 200);
    eventually("both are used", || {
        edge.get("/x", &[]);
        servers.iter().all(|server| !server.requests().is_empty())
    });
}

// The first server holds its response back. The other one gets the fetch as well, and its response is
// used.
#[test]
fn a_late_fetch_is_sent_to_a_second_server() {
    let (late, other) = (correct(), correct());
    let latch = Latch::closed();
    late.serve("/late", fresh(1000).hold_head(&latch));
    let keys = "hedge = { at_most = 1, max_size = \"1GiB\" }";
    let edge = first_and(&late, &other, "weight = 1", keys);
    // The edge has to learn first which responses are late.
    for n in 0..40 {
        edge.get(&format!("/{n}"), &[])
            .verify_whole(1000)
            .expect("it");
    }
    let reply = edge.get("/late", &[]);
    reply.verify_whole(1000).expect("the other server's");
    assert!(edge.counter("upstream_hedges") > 0);
    assert_eq!(other.read_record(|record| record.count("/late")), 1);
    // A request that is passed on is not sent twice.
    late.serve("/pass/late", fresh(1000).hold_head(&latch));
    let mut client = edge.client();
    client.send("GET", "/pass/late", &[], b"").expect("sent");
    assert!(latch.wait_held(1, SOON));
    latch.release();
    let reply = client.read_response().expect("a reply");
    reply.verify_whole(1000).expect("its own");
    assert_eq!(other.read_record(|record| record.count("/pass/late")), 0);
}

// The other server responds with a failure before the late response begins.
#[test]
fn a_failure_of_the_second_server_is_no_answer_to_a_late_fetch() {
    let (late, other) = (correct(), correct());
    let latch = Latch::closed();
    late.serve("/late", fresh(1000).hold_head(&latch));
    other.serve("/late", Resource::status(503));
    let edge = first_and(&late, &other, "weight = 1", "hedge = { at_most = 1 }");
    // The edge has to learn first which responses are late.
    for n in 0..40 {
        let reply = edge.get(&format!("/{n}"), &[]);
        reply.verify_whole(1000).expect("all of it");
    }
    let mut client = edge.client();
    client.send("GET", "/late", &[], b"").expect("sent");
    eventually("a failure", || {
        other.read_record(|record| record.count("/late")) == 1
    });
    latch.release();
    let reply = client.read_response().expect("a reply");
    reply.verify_whole(1000).expect("the late response");
}

#[test]
fn the_access_log_has_the_number_of_tries() {
    let (bad, good) = (failing(Fault::EndBeforeHead(Ending::Fin)), correct());
    let edge = Setup::cached(&bad)
        .also(&good)
        .workers(1)
        .upstream(&format!("eject = false\nretry = {{ {PATIENT} }}"))
        .logged("json")
        .start();
    for _ in 0..4 {
        assert_eq!(edge.get("/pass/x", &[]).status, 200);
    }
    let lines = edge.json_log(4);
    let tries = lines.iter().map(|line| line["tries"].as_u64());
    let mut tries: Vec<_> = tries.collect();
    tries.sort_unstable();
    tries.dedup();
    assert_eq!(tries, [Some(1), Some(2)], "{lines:?}");
    // Servers that accept no connection are tried, too.
    for origin in [&bad, &good] {
        origin.refuse().expect("it stops listening");
        origin.drop_connections();
    }
    assert_eq!(edge.get("/pass/x", &[]).status, 502);
    let lines = edge.json_log(5);
    let failed = lines.iter().find(|line| line["status"] == 502);
    // A connection whose end is not known yet adds a try.
    let tries = failed.and_then(|line| line["tries"].as_u64());
    assert!(tries >= Some(2), "{lines:?}");
}
