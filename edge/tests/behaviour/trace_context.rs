//! Tests of W3C trace context: traceparent and tracestate to the origin, and in the access log.

use sluice_lab::origin::{Resource, Seen};

use crate::harness::{Setup, assert_hit, fresh, serving};

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn sent() -> String {
    format!("00-{TRACE_ID}-00f067aa0ba902b7-01")
}

/// Returns the ids of trace and span, and the flags, that an origin got.
fn ids(request: &Seen) -> [String; 3] {
    let parents = request.header_all(PARENT);
    assert_eq!(parents.len(), 1, "{parents:?}");
    let parts: Vec<String> = parents[0].split('-').map(str::to_owned).collect();
    let lengths: Vec<usize> = parts.iter().map(String::len).collect();
    assert_eq!((lengths, &*parts[0]), (vec![2, 32, 16, 2], "00"));
    [parts[1].clone(), parts[2].clone(), parts[3].clone()]
}

#[test]
fn a_valid_trace_is_passed_on_with_a_new_parent_and_logged() {
    let origin = serving("/x", Resource::offset(10));
    let edge = Setup::uncached(&origin)
        .server("trace = true")
        .logged("json")
        .start();
    edge.get("/x", &[(PARENT, &sent()), (STATE, "a=1"), (STATE, "b=2")]);
    let seen = &origin.requests()[0];
    let [trace, span, flags] = ids(seen);
    assert_eq!((&*trace, &*flags), (TRACE_ID, "01"));
    assert_ne!(span, "00f067aa0ba902b7");
    assert_eq!(seen.header_all(STATE), ["a=1,b=2"]);
    let log = edge.json_log(1);
    assert_eq!(
        (&log[0]["trace_id"], &log[0]["span_id"]),
        (&trace.into(), &span.into())
    );
}

#[test]
fn an_invalid_trace_is_replaced() {
    let origin = serving("/x", Resource::offset(10));
    let edge = Setup::uncached(&origin).server("trace = true").start();
    let zero = format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32));
    for bad in ["nonsense", &zero, &sent().to_uppercase()] {
        edge.get(
            "/x",
            &[
                (PARENT, bad),
                (STATE, "a=1"),
                ("Trace_Parent", "x"),
                ("TraceParent_", "y"),
            ],
        );
    }
    edge.get("/x", &[(PARENT, &sent()), (PARENT, &sent())]);
    edge.get("/x", &[]);
    let requests = origin.requests();
    assert_eq!(requests.len(), 5);
    for seen in &requests {
        let [trace, ..] = ids(seen);
        assert!(trace != TRACE_ID && trace.bytes().any(|b| b != b'0'));
        assert_eq!(seen.header(STATE), None);
    }
    // A long tracestate loses whole entries, an invalid one is left out.
    let [b, c] = ["b", "c"].map(|key| format!("{key}={}", key.repeat(250)));
    let long = format!("a=1,{b},{c},d={}", "d".repeat(20));
    edge.get("/x", &[(PARENT, &sent()), (STATE, &long)]);
    edge.get("/x", &[(PARENT, &sent()), (STATE, "A=1")]);
    let requests = origin.requests();
    let kept = format!("a=1,{b},d={}", "d".repeat(20));
    assert_eq!(requests[5].header_all(STATE), [&*kept]);
    assert_eq!(ids(&requests[6])[0], TRACE_ID);
    assert_eq!(requests[6].header(STATE), None);
}

#[test]
fn a_shared_fetch_has_the_trace_of_the_request_that_launched_it() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin)
        .server("trace = true")
        .workers(1)
        .logged("json")
        .start();
    edge.get("/x", &[(PARENT, &sent()), (STATE, "a=1")]);
    let other = sent().replace("4bf9", "5bf9");
    assert_hit(&edge.get("/x", &[(PARENT, &other)]));
    let requests = origin.requests();
    assert_eq!(requests.len(), 1);
    let [trace, span, _] = ids(&requests[0]);
    assert_eq!(trace, TRACE_ID);
    // The response is not this client's alone, so the origin gets none of its text.
    assert_eq!(requests[0].header(STATE), None);
    // The trace is not a part of the key, and each request has its own in the log.
    let log = edge.json_log(2);
    assert_eq!(log[0]["span_id"], span);
    assert_eq!(log[1]["trace_id"], TRACE_ID.replace("4bf9", "5bf9"));
    assert_ne!(log[0]["span_id"], log[1]["span_id"]);
}

#[test]
fn without_trace_the_headers_are_like_any_other() {
    let origin = serving("/x", Resource::offset(10));
    let edge = Setup::uncached(&origin).logged("json").start();
    edge.get("/x", &[(PARENT, "of the client"), (STATE, "A=1")]);
    let seen = &origin.requests()[0];
    assert_eq!(seen.header_all(PARENT), ["of the client"]);
    assert_eq!(seen.header_all(STATE), ["A=1"]);
    assert!(edge.json_log(1)[0].get("trace_id").is_none());
}
