//! Tests of bodies that break off and are continued by another server.

use std::time::Duration;

use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Ending, Fault, Framing, Origin, Resource, Tag};

use crate::failover::first_then;
use crate::harness::{Setup, eventually, fresh, origin};

/// Size of the tests' resource, and of the part of it that a failing server sends.
const SIZE: u64 = 300_000;
const PART: u64 = 100_000;
/// Further tries are permitted, however slow the test is.
const RETRY: &str = "retry = { total = \"1h\" }";

/// Starts an origin that serves this resource at every path.
fn everywhere(resource: Resource) -> Origin {
    let origin = origin();
    origin.serve_rest(resource);
    origin
}

fn cut(ending: Ending) -> Fault {
    Fault::CutBody {
        after: PART,
        ending,
    }
}

/// Returns the values of Range of all requests.
fn ranges(origin: &Origin) -> Vec<Option<String>> {
    let requests = origin.requests();
    let range = requests
        .iter()
        .map(|seen| seen.header("range").map(str::to_owned));
    range.collect()
}

#[test]
fn another_server_sends_the_rest_of_a_body() {
    for path in ["/pass/x", "/x"] {
        let bad = everywhere(fresh(SIZE).fault(cut(Ending::Fin)));
        let good = everywhere(fresh(SIZE));
        let edge = first_then(&bad, &good, RETRY);
        let reply = edge.get(path, &[]);
        reply.verify_whole(SIZE).expect("all of it");
        let tag = reply.header("etag").expect("a tag");
        assert_eq!(ranges(&good), [Some("bytes=100000-299999".to_owned())]);
        assert_eq!(good.requests()[0].header("if-range"), Some(tag));
        assert_eq!(edge.counter("upstream_resumed"), 1);
        assert_eq!((bad.requests().len(), good.requests().len()), (1, 1));
    }
}

// A reset discards bytes in transit, so the rest may begin earlier.
#[test]
fn another_server_sends_the_rest_after_a_reset() {
    for path in ["/pass/x", "/x"] {
        let bad = everywhere(fresh(SIZE).fault(cut(Ending::Reset)));
        let good = everywhere(fresh(SIZE));
        let edge = first_then(&bad, &good, RETRY);
        let reply = edge.get(path, &[]);
        reply.verify_whole(SIZE).expect("all of it");
        assert_eq!(good.requests().len(), 1);
    }
}

// The timeout is short, so the other server may be too late as well.
#[test]
fn another_server_sends_the_rest_after_a_timeout() {
    for path in ["/pass/x", "/x"] {
        let bad = everywhere(fresh(SIZE).fault(Fault::StallBody { after: PART }));
        let good = everywhere(fresh(SIZE));
        let edge = first_then(&bad, &good, &format!("read_timeout = \"50ms\"\n{RETRY}"));
        eventually("all of the body", || {
            let reply = edge.get(path, &[]);
            if matches!(reply.status, 502..=504) {
                return false;
            }
            verify_offset(0, &reply.body).expect("the right bytes");
            reply.body.len() as u64 == SIZE
        });
    }
}

/// The head at once, and then 5,000 bytes a second without a pause that is a timeout.
fn trickle() -> Fault {
    Fault::DripBody {
        bytes: 50,
        every: Duration::from_millis(10),
    }
}

// The first server is never silent for long, but too slow. The timeout is short, so the other server
// may be too late as well.
#[test]
fn another_server_sends_the_rest_of_a_body_that_trickles() {
    for path in ["/pass/x", "/x"] {
        let bad = everywhere(fresh(SIZE).fault(trickle()));
        let good = everywhere(fresh(SIZE));
        let keys = format!("read_timeout = \"200ms\"\nmin_rate = \"1MiB\"\n{RETRY}");
        let edge = first_then(&bad, &good, &keys);
        eventually("all of the body", || {
            let reply = edge.get(path, &[]);
            verify_offset(0, &reply.body).expect("the right bytes");
            reply.body.len() as u64 == SIZE && edge.counter("upstream_resumed") > 0
        });
        let said = edge.process.stderr();
        assert!(said.contains("cause=body-timeout"), "{said}");
    }
}

// The responses take longer than the timeout, but each pause in them is shorter. With a declared
// length that is too slow, without one it is not.
#[test]
fn a_body_without_a_declared_length_may_trickle() {
    let slow = Fault::DripBody {
        bytes: 100,
        every: Duration::from_millis(100),
    };
    let origin = origin();
    let sized = fresh(3000).fault(slow.clone());
    origin.serve(
        "/pass/chunked",
        sized.clone().framing(Framing::Chunked(1500)),
    );
    origin.serve("/pass/sized", sized);
    let edge = Setup::cached(&origin)
        .upstream("read_timeout = \"2s\"\nmin_rate = \"1MiB\"\nretry = false\neject = false")
        .start();
    eventually("the whole response", || {
        edge.get("/pass/chunked", &[]).verify_whole(3000).is_ok()
    });
    eventually("a response that is cut", || {
        edge.get("/pass/sized", &[]).truncated()
    });
}

// A body that is stored must arrive at the minimum rate, also without a declared length: many clients
// may wait for it. A stream of events may pause.
#[test]
fn a_stored_body_without_a_declared_length_may_not_trickle() {
    let slow = Fault::DripBody {
        bytes: 100,
        every: Duration::from_millis(100),
    };
    let stored = fresh(3000).fault(slow).framing(Framing::Chunked(1500));
    let events = stored.clone().header("content-type", "text/event-stream");
    let origin = everywhere(stored);
    origin.serve("/events", events);
    let edge = Setup::cached(&origin)
        .upstream("read_timeout = \"2s\"\nmin_rate = \"1MiB\"\nretry = false\neject = false")
        .start();
    let mut number = 0;
    eventually("a response that is cut", || {
        number += 1;
        edge.get(&format!("/{number}"), &[]).truncated()
    });
    eventually("a message with the cause", || {
        edge.process.stderr().contains("cause=body-timeout")
    });
    eventually("all events", || {
        edge.get("/events", &[]).verify_whole(3000).is_ok()
    });
}

#[test]
fn the_rest_of_a_range_is_requested() {
    let bad = everywhere(fresh(SIZE).fault(cut(Ending::Fin)));
    let good = everywhere(fresh(SIZE));
    let edge = first_then(&bad, &good, RETRY);
    let reply = edge.get("/pass/x", &[("Range", "bytes=50000-249999")]);
    reply
        .verify_range(50_000, 249_999, SIZE)
        .expect("all of it");
    assert_eq!(ranges(&good), [Some("bytes=150000-249999".to_owned())]);
}

// Every server breaks off, but each sends some bytes first.
#[test]
fn a_body_goes_on_as_long_as_it_advances() {
    let bad = everywhere(fresh(SIZE).fault(cut(Ending::Fin)));
    let other = everywhere(fresh(SIZE).fault(cut(Ending::Fin)));
    let edge = first_then(&bad, &other, RETRY);
    let reply = edge.get("/pass/x", &[]);
    reply.verify_whole(SIZE).expect("all of it");
    assert_eq!(
        [ranges(&bad), ranges(&other)].concat(),
        [
            None,
            Some("bytes=200000-299999".to_owned()),
            Some("bytes=100000-299999".to_owned())
        ]
    );
}

#[test]
fn a_body_that_does_not_advance_is_cut() {
    let none = Fault::CutBody {
        after: 0,
        ending: Ending::Fin,
    };
    let bad = everywhere(fresh(SIZE).fault(cut(Ending::Fin)));
    let other = everywhere(fresh(SIZE).fault(none));
    let edge = first_then(&bad, &other, RETRY);
    let reply = edge.get("/pass/x", &[]);
    assert!(reply.truncated());
    assert_eq!(reply.body.len() as u64, PART);
    assert_eq!((bad.requests().len(), other.requests().len()), (1, 1));
}

// Without a strong entity tag, or with another one, the other server's bytes may be of another
// version. The request is not even sent if the first response has none.
#[test]
fn bytes_of_another_version_are_never_added() {
    let weak = || fresh(SIZE).tag(Tag::Fixed("W/\"v1\"".to_owned()));
    let chunked = || fresh(SIZE).framing(Framing::Chunked(10_000));
    let multipart = || fresh(SIZE).header("Content-Type", "Multipart/ByteRanges; boundary=a");
    for (first, second, requests) in [
        (weak(), weak(), 0),
        (fresh(SIZE).tag(Tag::None), fresh(SIZE).tag(Tag::None), 0),
        (chunked(), chunked(), 0),
        (fresh(SIZE), fresh(SIZE).version(2), 1),
        (fresh(SIZE), fresh(SIZE).ranges(false), 1),
        (
            fresh(SIZE),
            fresh(SIZE).framing(Framing::Chunked(10_000)),
            1,
        ),
        (fresh(SIZE), Resource::status(503), 1),
        // The content is a list of parts.
        (fresh(SIZE), multipart(), 1),
    ] {
        let bad = everywhere(first.fault(cut(Ending::Fin)));
        let good = everywhere(second);
        let edge = first_then(&bad, &good, RETRY);
        let reply = edge.get("/pass/x", &[]);
        assert!(reply.truncated());
        assert_eq!(reply.body.len() as u64, PART);
        verify_offset(0, &reply.body).expect("the right bytes");
        assert_eq!(good.requests().len(), requests);
        assert_eq!(edge.counter("upstream_resumed"), 0);
    }
}

#[test]
fn only_a_get_is_continued() {
    let bad = everywhere(fresh(SIZE).fault(cut(Ending::Fin)));
    let good = everywhere(fresh(SIZE));
    let edge = first_then(&bad, &good, RETRY);
    let reply = edge.ask("POST", "/pass/x", &[], b"");
    assert!(reply.truncated() && reply.body.len() as u64 == PART);
    let reply = edge.ask("GET", "/pass/x", &[], b"content");
    assert!(reply.truncated() && reply.body.len() as u64 == PART);
    assert!(good.requests().is_empty());
}
