//! Tests of misbehaving origins. Each failure has a named reason, and no request hangs. No
//! truncated body looks complete, or is stored as complete.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use sluice_lab::client::Reply;
use sluice_lab::origin::{
    Accept, BadChunk, BrokenHead, Ending, Fault, Framing, Origin, Outcome, Record, Resource,
};
use socket2::{Domain, Socket, Type};

use crate::harness::{
    Edge, SOON, Setup, assert_has_parameter, assert_hit, assert_reason, eventually, fresh, origin,
    serving,
};

/// Response heads that the edge refuses.
const BROKEN: [BrokenHead; 19] = [
    BrokenHead::Garbage,
    BrokenHead::BareCr,
    BrokenHead::NoColon,
    BrokenHead::SpaceBeforeColon,
    BrokenHead::Nul,
    BrokenHead::ObsFold,
    BrokenHead::Huge(100_000),
    BrokenHead::ManyFields(2000),
    BrokenHead::BadStatus,
    BrokenHead::ShortStatus,
    BrokenHead::BadVersion,
    BrokenHead::DifferingLengths,
    BrokenHead::LengthAndChunked,
    BrokenHead::BadLength,
    BrokenHead::NegativeLength,
    BrokenHead::OverflowingLength,
    BrokenHead::UnknownCoding,
    BrokenHead::ChunkedNotFinal,
    BrokenHead::Endless,
];

/// Chunked bodies with an error, where the edge breaks off the response.
const BAD_CHUNKS: [BadChunk; 10] = [
    BadChunk::NotHex,
    BadChunk::Negative,
    BadChunk::Overflow,
    BadChunk::Empty,
    BadChunk::BareLf,
    BadChunk::NoCrlf,
    BadChunk::Extension(100_000),
    BadChunk::NoLast,
    BadChunk::BadTrailer,
    BadChunk::HugeTrailer(200_000),
];

/// Starts an edge with short timeouts that serves the resource on two routes: `/x` with a cache,
/// `/pass/x` without.
fn impatient(origin: &Origin, resource: Resource) -> Edge {
    both_routes(origin, resource, "read_timeout = \"1s\"")
}

/// Does what `impatient` does, but the timeouts pass only if the origin does not send the rest, not if the machine
/// pauses.
fn waiting(origin: &Origin, resource: Resource) -> Edge {
    both_routes(origin, resource, "read_timeout = \"7s\"")
}

/// Does what `impatient` does, but with timeouts longer than any pause of the machine.
fn patient(origin: &Origin, resource: Resource) -> Edge {
    both_routes(origin, resource, "read_timeout = \"60s\"")
}

/// Like `patient`, for responses that only HTTP/1.1 has.
fn over_http1(origin: &Origin, resource: Resource) -> Edge {
    let setup = with_routes(origin, resource, "read_timeout = \"60s\"");
    setup.with_http1_servers().start()
}

fn both_routes(origin: &Origin, resource: Resource, line: &str) -> Edge {
    with_routes(origin, resource, line).start()
}

fn with_routes(origin: &Origin, resource: Resource, line: &str) -> Setup {
    origin.serve("/x", resource.clone());
    origin.serve("/pass/x", resource);
    Setup::cached(origin).upstream(line).logged("json")
}

/// Asserts that the route with a cache and the route without both respond with this status and
/// reason, and that nothing is stored.
fn assert_fails(edge: &Edge, status: u16, reason: &str) {
    for target in ["/pass/x", "/x"] {
        let reply = edge.get(target, &[]);
        assert_eq!(reply.status, status, "{target}");
        assert!(!reply.truncated(), "{target}");
        assert_reason(&reply, reason);
    }
    assert!(edge.objects("/x").is_empty());
}

/// Asserts that the body of a response was cut off so that the client notices.
fn assert_cut(reply: &Reply, longest: usize) {
    assert_eq!(reply.status, 200);
    assert!(reply.truncated(), "it looks whole: {:?}", reply.end);
    assert!(reply.body.len() <= longest, "{} bytes", reply.body.len());
    let right = sluice_lab::offset::verify_offset(0, &reply.body);
    right.expect("what came is right");
}

/// Asserts that the route with a cache and the route without both cut off the body, that the log
/// has this reason, and that nothing is stored.
fn assert_cut_both(edge: &Edge, longest: usize, reason: &str) {
    for target in ["/pass/x", "/x"] {
        assert_cut(&edge.get(target, &[]), longest);
    }
    for line in edge.json_log(2) {
        assert_eq!(line["cut"], true, "{line}");
        assert_eq!(line["reason"], reason, "{line}");
    }
    eventually("nothing is kept", || edge.objects("/x").is_empty());
}

#[test]
fn an_origin_that_is_down_is_a_named_fault() {
    let origin = origin();
    let edge = patient(&origin, fresh(10));
    origin.refuse().expect("it stops listening");
    assert_fails(&edge, 502, "connect-failed");
    origin.reopen().expect("it listens again");
    edge.get("/x", &[])
        .verify_whole(10)
        .expect("as if nothing had been");
}

// The origin never responds, or stops in the middle of its response.
#[test]
fn a_silent_origin_times_out() {
    for fault in [
        Fault::NeverAnswer,
        Fault::StallHead { after: 0 },
        Fault::StallHead { after: 30 },
    ] {
        let origin = origin();
        let edge = impatient(&origin, fresh(1000).fault(fault));
        assert_fails(&edge, 504, "head-timeout");
    }
}

// The origin accepts connections, and neither reads nor responds.
#[test]
fn an_origin_that_never_reads_times_out() {
    let origin = origin();
    origin.set_rules(|rules| rules.accept = Accept::Ignore);
    let edge = impatient(&origin, fresh(1000));
    assert_fails(&edge, 504, "head-timeout");
}

// The origin closes the connection before or after it has read the request.
#[test]
fn an_origin_that_closes_connections_is_a_named_fault() {
    for ending in [Ending::Fin, Ending::Reset] {
        let origin = origin();
        let edge = patient(&origin, fresh(1000).fault(Fault::EndBeforeHead(ending)));
        assert_fails(&edge, 502, "closed-before-head");
    }
    let origin = origin();
    origin.set_rules(|rules| rules.accept = Accept::End(Ending::Fin));
    let edge = patient(&origin, fresh(1000));
    assert_fails(&edge, 502, "closed-before-head");
}

#[test]
fn malformed_response_heads_are_refused() {
    let origin = origin();
    let edge = over_http1(&origin, fresh(100));
    for broken in BROKEN {
        let resource = fresh(100).fault(Fault::Head(broken)).close();
        origin.serve("/x", resource.clone());
        origin.serve("/pass/x", resource);
        for target in ["/pass/x", "/x"] {
            let reply = edge.get(target, &[]);
            assert_eq!(reply.status, 502, "{broken:?} {target}");
            assert_reason(&reply, "bad-head");
        }
        assert!(edge.objects("/x").is_empty(), "{broken:?}");
    }
}

// RFC 9112 2.2: a recipient may accept a bare LF as the end of a line in a response head.
#[test]
fn a_bare_lf_is_accepted_as_a_line_end() {
    let origin = serving(
        "/x",
        fresh(100).fault(Fault::Head(BrokenHead::BareLf)).close(),
    );
    let edge = Setup::uncached(&origin).start();
    let reply = edge.get("/x", &[]);
    match reply.status {
        200 => reply.verify_whole(100).expect("the body"),
        status => assert_eq!(status, 502),
    }
}

// The origin ends the body before its Content-Length, by a close or by a reset.
#[test]
fn truncated_bodies_are_cut_off_for_the_client() {
    for ending in [Ending::Fin, Ending::Reset] {
        let origin = origin();
        let after = 150_000;
        let edge = patient(
            &origin,
            fresh(300_000)
                .ranges(false)
                .fault(Fault::CutBody { after, ending }),
        );
        assert_cut_both(&edge, 150_000, "body-cut");
    }
}

// A chunked body ends without its last chunk.
#[test]
fn truncated_chunked_bodies_are_cut_off_for_the_client() {
    let origin = origin();
    let cut = Fault::CutBody {
        after: 150_000,
        ending: Ending::Fin,
    };
    let resource = fresh(300_000).framing(Framing::Chunked(10_000)).fault(cut);
    let edge = patient(&origin, resource);
    assert_cut_both(&edge, 150_000, "body-cut");
}

// A body without a length ends with its connection. If the connection is reset, the body must count
// as truncated.
#[test]
fn bodies_delimited_by_close_and_reset_are_cut_off() {
    let origin = origin();
    let resource = fresh(30_000).framing(Framing::Close);
    let edge = patient(&origin, resource.clone());
    for target in ["/pass/x", "/x", "/x"] {
        edge.get(target, &[])
            .verify_whole(30_000)
            .expect("a close in order");
    }
    let cut = Fault::CutBody {
        after: 15_000,
        ending: Ending::Reset,
    };
    origin.serve("/pass/y", resource.clone().fault(cut.clone()));
    origin.serve("/y", resource.fault(cut));
    for target in ["/pass/y", "/y"] {
        assert_cut(&edge.get(target, &[]), 15_000);
    }
}

#[test]
fn stalled_bodies_time_out() {
    let origin = origin();
    let edge = waiting(
        &origin,
        fresh(300_000)
            .ranges(false)
            .fault(Fault::StallBody { after: 100_000 }),
    );
    assert_cut_both(&edge, 100_000, "body-timeout");
}

// The body is shorter than its Content-Length.
#[test]
fn bodies_shorter_than_declared_are_cut_off() {
    let origin = origin();
    let edge = waiting(
        &origin,
        fresh(1000).ranges(false).fault(Fault::LengthTooLong(5)),
    );
    for target in ["/pass/x", "/x"] {
        let reply = edge.get(target, &[]);
        match reply.status {
            200 => assert_cut(&reply, 1000),
            status => assert_eq!(status, 502),
        }
    }
    assert!(edge.objects("/x").is_empty());
}

// The origin sends more bytes than its Content-Length. They must not become part of the next
// response.
#[test]
fn bytes_beyond_the_declared_length_are_dropped() {
    let more = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged".to_vec();
    let origin = serving("/x", Resource::offset(1000).fault(Fault::ExtraBytes(more)));
    origin.serve("/y", Resource::offset(50));
    let edge = Setup::uncached(&origin)
        .with_http1_servers()
        .workers(1)
        .start();
    let mut client = edge.client();
    for _ in 0..5 {
        for (target, length) in [("/x", 1000), ("/y", 50)] {
            let reply = client.get(target, &[]).expect("a reply");
            reply.verify_whole(length).expect(target);
            // Bytes that arrive after the next request was sent would be its response.
            let all = |record: &Record| {
                let mut requests = record.requests.iter();
                requests.all(|seen| seen.outcome != Outcome::Pending)
            };
            assert!(origin.wait_for(all, SOON), "all of it was sent");
        }
    }
}

#[test]
fn malformed_chunks_are_cut_off() {
    let origin = origin();
    let edge = over_http1(&origin, fresh(10));
    for broken in BAD_CHUNKS {
        let resource = fresh(1000).fault(Fault::Chunk(broken)).close();
        origin.serve("/y", resource.clone());
        origin.serve("/pass/y", resource);
        for target in ["/pass/y", "/y"] {
            let reply = edge.get(target, &[]);
            match reply.status {
                200 => assert!(reply.truncated(), "{broken:?} {target} looks whole"),
                status => assert_eq!(status, 502, "{broken:?} {target}"),
            }
        }
        eventually("nothing is kept", || edge.objects("/y").is_empty());
    }
}

// The first response is truncated, and the next request receives a complete one from the origin.
#[test]
fn a_truncated_response_is_fetched_again() {
    let cut = Fault::CutBody {
        after: 150_000,
        // With a reset the head might be lost as well, so the connection ends with a close.
        ending: Ending::Fin,
    };
    let origin = serving("/x", fresh(300_000).ranges(false).fault_times(1, cut));
    let edge = Setup::cached(&origin).start();
    assert_cut(&edge.get("/x", &[]), 150_000);
    edge.get("/x", &[]).verify_whole(300_000).expect("whole");
    assert_hit(&edge.get("/x", &[]));
    assert_eq!(origin.requests().len(), 2);
    assert_eq!(edge.counter("flights_failed"), 1);
}

// The origin sends slowly, but within its timeouts.
#[test]
fn a_slow_origin_is_served_completely() {
    let drip = Fault::Drip {
        bytes: 40,
        every: Duration::from_millis(1),
    };
    let origin = origin();
    let edge = patient(&origin, fresh(2000).fault(drip));
    for target in ["/pass/x", "/x"] {
        edge.get(target, &[]).verify_whole(2000).expect(target);
    }
}

// The origin sends a 206 to a request without Range. The part must not be stored as the whole
// response.
#[test]
fn an_unrequested_part_is_never_stored_as_the_whole() {
    let part = Resource::offset(10)
        .with_status(206)
        .header("Content-Range", "bytes 0-9/100")
        .cache_control("max-age=60");
    let origin = serving("/x", part);
    let edge = Setup::cached(&origin).start();
    for _ in 0..2 {
        let reply = edge.get("/x", &[]);
        assert_has_parameter(&reply, "detail=partial");
    }
    assert!(
        edge.objects("/x")
            .iter()
            .all(|object| object["stored_bytes"] == 0)
    );
}

// An HTTP/1.0 client receives a body without a length and without chunks. The edge resets the
// connection to show that the body is truncated.
#[test]
fn http_1_0_clients_notice_a_truncated_body() {
    let origin = origin();
    let cut = Fault::CutBody {
        after: 15_000,
        ending: Ending::Fin,
    };
    let resource = fresh(30_000).framing(Framing::Chunked(1000)).fault(cut);
    let edge = patient(&origin, resource);
    for target in ["/pass/x", "/x"] {
        let mut client = edge.client();
        let request = format!("GET {target} HTTP/1.0\r\nHost: a\r\n\r\n");
        client.send_raw(request.as_bytes()).expect("sent");
        let end = client.read_to_end().expect_err("no end in order");
        assert_eq!(end.to_string(), "reset", "{target}");
    }
}

// The accept queue of the server is full, so that connecting to it takes longer than the timeout.
#[test]
fn a_server_that_does_not_accept_connections_times_out() {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    full.bind(&address.into()).expect("a free port");
    full.listen(0).expect("it listens");
    let address = full.local_addr().expect("an address").as_socket();
    let address = address.expect("an IP address");
    let short = Duration::from_millis(100);
    let mut queue = Vec::new();
    while let Ok(waiting) = TcpStream::connect_timeout(&address, short) {
        queue.push(waiting);
        assert!(queue.len() < 100, "its queue has no end");
    }
    let edge = Setup::of_servers(vec![format!("http://{address}")])
        .upstream("connect_timeout = \"200ms\"")
        .start();
    assert_fails(&edge, 504, "connect-timeout");
}

// The server is configured by name. A name that has no address is a fault of the origin.
#[test]
fn server_names_are_resolved() {
    let origin = serving("/x", fresh(10));
    let named = format!("http://localhost:{}", origin.addr().port());
    let edge = Setup::of_servers(vec![named]).start();
    edge.get("/x", &[]).verify_whole(10).expect("the body");
    let edge = Setup::of_servers(vec!["http://nowhere.invalid".to_owned()])
        .upstream("connect_timeout = \"1s\"")
        .start();
    let reply = edge.get("/x", &[]);
    match reply.status {
        502 => assert_has_parameter(&reply, "detail=unresolved"),
        // If the resolver needs long to report that the name does not exist, the connect timeout
        // passes first.
        _ => assert_has_parameter(&reply, "detail=connect-timeout"),
    }
}
