//! Tests of the origin with the lab's client: the effect of each setting and each fault.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::*;
use crate::client::{self, BodyEnd, Client, Closing, ReadError, Reply};

const SOON: Duration = Duration::from_secs(60);

fn origin() -> Origin {
    Origin::start(OriginOptions::default()).expect("a free port on loopback")
}

fn serving(resource: Resource) -> Origin {
    let origin = origin();
    origin.serve("/x", resource);
    origin
}

fn get(address: SocketAddr, headers: &[(&str, &str)]) -> Reply {
    client::get(address, "/x", headers).expect("a reply")
}

fn faulty(fault: Fault) -> Origin {
    serving(Resource::offset(100_000).fault(fault))
}

fn short_timeout(origin: &Origin) -> Client {
    let mut client = Client::connect(origin.addr()).expect("connect");
    client
        .set_timeout(Duration::from_secs(6))
        .expect("a timeout");
    client
}

#[test]
fn offset_bodies_of_any_size_are_served_by_default() {
    let origin = origin();
    let reply = client::get(origin.addr(), "/offset/1234567", &[]).expect("a reply");
    reply.verify_whole(1_234_567).expect("the whole body");
    let missing = client::get(origin.addr(), "/nothing", &[]).expect("a reply");
    assert_eq!(missing.status, 404);
    assert!(origin.wait_for(
        |record| record.sent_for("/offset/1234567") == 1_234_567,
        SOON
    ));
}

#[test]
fn ranges_are_honoured() {
    let origin = serving(Resource::offset(10_485_760));
    let range = |value: &str| get(origin.addr(), &[("Range", value)]);
    let middle = range("bytes=5000000-5000009");
    middle
        .verify_range(5_000_000, 5_000_009, 10_485_760)
        .expect("ten bytes");
    assert_eq!(middle.body, b"005000000\n");
    range("bytes=-10")
        .verify_range(10_485_750, 10_485_759, 10_485_760)
        .expect("a suffix");
    range("bytes=10485000-")
        .verify_range(10_485_000, 10_485_759, 10_485_760)
        .expect("an open range");
    range("bytes=0-9,100-109")
        .verify_parts(&[(0, 9), (100, 109)], 10_485_760)
        .expect("two parts");
    let beyond = range("bytes=99999999-");
    assert_eq!(beyond.status, 416);
    assert_eq!(beyond.header("content-range"), Some("bytes */10485760"));
}

#[test]
fn conditions_and_if_range_compare_the_version() {
    let origin = serving(Resource::offset(1000));
    let first = get(origin.addr(), &[]);
    let tag = first.header("etag").expect("a tag").to_owned();
    assert_eq!(get(origin.addr(), &[("If-None-Match", &tag)]).status, 304);
    let old = [("Range", "bytes=0-9"), ("If-Range", tag.as_str())];
    assert_eq!(get(origin.addr(), &old).status, 206);

    assert!(origin.set_version("/x", 1));
    let second = get(origin.addr(), &old);
    assert_eq!(second.status, 200);
    second.verify_version(1, 0).expect("bytes of version 1");
    assert_ne!(second.header("etag"), Some(tag.as_str()));
    assert_ne!(
        second.header("last-modified"),
        first.header("last-modified")
    );
    assert_eq!(get(origin.addr(), &[("If-Match", &tag)]).status, 412);
}

#[test]
fn bodies_are_framed_in_three_ways() {
    let chunked = serving(
        Resource::offset(100_000)
            .framing(Framing::Chunked(777))
            .trailer("X-Sum", "42"),
    );
    let reply = get(chunked.addr(), &[]);
    reply.verify_whole(100_000).expect("the body");
    assert_eq!(reply.header("content-length"), None);
    assert_eq!(reply.trailers, [("X-Sum".to_owned(), "42".to_owned())]);

    let until_close = serving(Resource::offset(100_000).framing(Framing::Close));
    let reply = get(until_close.addr(), &[]);
    reply.verify_whole(100_000).expect("the body");
    assert_eq!(reply.end, BodyEnd::AtClose);
}

#[test]
fn content_codings_are_negotiated() {
    let origin = serving(Resource::bytes("plain").encoded("gzip", "zipped"));
    let zipped = get(origin.addr(), &[("Accept-Encoding", "br, gzip")]);
    assert_eq!(zipped.body, b"zipped");
    assert_eq!(zipped.header("content-encoding"), Some("gzip"));
    assert_eq!(zipped.header("vary"), Some("Accept-Encoding"));
    let plain = get(origin.addr(), &[("Accept-Encoding", "gzip;q=0")]);
    assert_eq!(plain.body, b"plain");
    assert_ne!(plain.header("etag"), zipped.header("etag"));
}

#[test]
fn interim_responses_are_sent_first() {
    let origin = serving(Resource::bytes("x").interim(103, &[("Link", "</a.css>; rel=preload")]));
    let reply = get(origin.addr(), &[]);
    assert_eq!(reply.interim[0].status, 103);
    assert!(reply.interim[0].header("link").is_some());
    assert_eq!(reply.status, 200);
}

#[test]
fn bodies_of_both_framings_are_echoed_while_they_arrive() {
    let origin = serving(Resource::echo());
    let mut client = Client::connect(origin.addr()).expect("connect");
    let body = crate::offset::offset_bytes(0, 300_000);
    let reply = client.request("POST", "/x", &[], &body).expect("a reply");
    reply.verify_whole(300_000).expect("the body came back");

    client
        .send_raw(
            b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n00000\r\n",
        )
        .expect("half a body");
    assert_eq!(client.read_head().expect("a head").status, 200);
    assert_eq!(client.read_some(10).expect("a chunk"), b"5\r\n00000\r\n");
    client
        .send_raw(b"5\r\n0000\n\r\n0\r\n\r\n")
        .expect("the rest");
    assert_eq!(
        client.read_some(15).expect("the rest"),
        b"5\r\n0000\n\r\n0\r\n\r\n"
    );
    let seen = origin.requests().pop().expect("two requests");
    assert!(seen.body_complete && seen.body_is_offset);
    assert_eq!((seen.body_length, seen.nth_on_connection), (10, 1));
}

#[test]
fn an_upgrade_opens_an_echoing_tunnel() {
    let origin = serving(Resource::upgrade("chat"));
    let mut client = Client::connect(origin.addr()).expect("connect");
    client
        .send(
            "GET",
            "/x",
            &[("Connection", "Upgrade"), ("Upgrade", "chat")],
            b"",
        )
        .expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 101);
    client.send_raw(b"\0anything").expect("sent");
    assert_eq!(client.read_some(9).expect("echoed"), b"\0anything");
    assert_eq!(get(origin.addr(), &[]).status, 426);
}

#[test]
fn expect_continue_is_answered_unless_the_response_is_early() {
    let origin = serving(Resource::echo());
    origin.serve("/early", Resource::status(413).answer_early());
    let mut client = Client::connect(origin.addr()).expect("connect");
    let headers = [("Expect", "100-continue"), ("Content-Length", "4")];
    client.send("POST", "/x", &headers, b"").expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 100);
    client.send_raw(b"body").expect("sent");
    assert_eq!(client.read_response().expect("a reply").body, b"body");

    client.send("POST", "/early", &headers, b"").expect("sent");
    let reply = client.read_response().expect("a reply");
    assert_eq!((reply.status, reply.interim.len()), (413, 0));
    assert_eq!(client.wait_closed(SOON).expect("a state"), Closing::Fin);
}

#[test]
fn the_rate_applies_per_connection() {
    let origin = serving(Resource::offset(200_000).rate(1_000_000));
    let began = Instant::now();
    get(origin.addr(), &[])
        .verify_whole(200_000)
        .expect("whole");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(190), "{took:?} is too fast");
}

#[test]
fn latches_hold_and_release_bodies() {
    let latch = Latch::at(1000);
    let origin = serving(Resource::offset(5000).hold_body(&latch));
    let mut client = Client::connect(origin.addr()).expect("connect");
    client.send("GET", "/x", &[], b"").expect("sent");
    assert!(latch.wait_held(1, SOON));
    assert_eq!(origin.read_record(|record| record.sent_for("/x")), 1000);
    latch.advance_to(2000);
    assert!(latch.wait_passed(2000, SOON));
    latch.release();
    let reply = client.read_response().expect("a reply");
    reply.verify_whole(5000).expect("whole");
    assert_eq!(latch.held(), 0);
}

#[test]
fn a_closed_client_is_detected_while_a_latch_holds() {
    let latch = Latch::closed();
    let origin = serving(Resource::offset(5000).hold_head(&latch));
    let mut client = Client::connect(origin.addr()).expect("connect");
    client.send("GET", "/x", &[], b"").expect("sent");
    assert!(latch.wait_held(1, SOON));
    drop(client);
    let aborted = |record: &Record| record.requests[0].outcome == Outcome::Aborted;
    assert!(origin.wait_for(aborted, SOON));
    assert!(origin.wait_for(|record| record.open_connections() == 0, SOON));
}

#[test]
fn resources_can_depend_on_the_request() {
    let origin = serving(Resource::dynamic(|seen| match seen.header("range") {
        Some(_) => Resource::status(503),
        None => Resource::bytes(seen.target.clone()),
    }));
    let reply = client::get(origin.addr(), "/x?q=1", &[]).expect("a reply");
    assert_eq!(reply.body, b"/x?q=1");
    assert_eq!(get(origin.addr(), &[("Range", "bytes=0-1")]).status, 503);
}

#[test]
fn connections_are_refused_and_accepted_again() {
    let origin = serving(Resource::bytes("x"));
    origin.refuse().expect("closed");
    let refused = Client::connect(origin.addr()).expect_err("nobody listens");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    origin.reopen().expect("open again");
    assert_eq!(get(origin.addr(), &[]).status, 200);
}

#[test]
fn connections_can_be_ignored_and_ended() {
    let origin = serving(Resource::bytes("x"));
    origin.set_rules(|rules| rules.accept = Accept::Ignore);
    let mut ignored = short_timeout(&origin);
    let silence = ignored.get("/x", &[]).expect_err("no answer");
    assert!(matches!(silence, ReadError::Timeout));
    assert!(origin.requests().is_empty());
    for (ending, closing) in [(Ending::Fin, Closing::Fin), (Ending::Reset, Closing::Reset)] {
        origin.set_rules(|rules| rules.accept = Accept::End(ending));
        let seen = match Client::connect(origin.addr()) {
            Ok(mut client) => client.wait_closed(SOON).expect("a state"),
            // The origin closed the connection so early that connecting failed.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Closing::Reset,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(seen, closing);
    }
}

#[test]
fn connections_are_closed_by_the_rules() {
    let origin = serving(Resource::bytes("x"));
    origin.set_rules(|rules| rules.max_requests = Some(2));
    let mut client = Client::connect(origin.addr()).expect("connect");
    assert_eq!(
        client.get("/x", &[]).expect("a reply").header("connection"),
        None
    );
    let last = client.get("/x", &[]).expect("a reply");
    assert_eq!(last.header("connection"), Some("close"));
    assert_eq!(client.wait_closed(SOON).expect("a state"), Closing::Fin);

    origin.set_rules(|rules| {
        rules.max_requests = None;
        rules.idle_timeout = Some(Duration::from_millis(20));
    });
    let mut client = Client::connect(origin.addr()).expect("connect");
    assert_eq!(client.get("/x", &[]).expect("a reply").status, 200);
    assert_eq!(client.wait_closed(SOON).expect("a state"), Closing::Fin);
}

#[test]
fn a_reused_connection_can_be_closed_during_a_request() {
    let origin = serving(Resource::bytes("x").fault(Fault::EndBeforeHeadOnReuse(Ending::Fin)));
    let mut client = Client::connect(origin.addr()).expect("connect");
    assert_eq!(client.get("/x", &[]).expect("a reply").status, 200);
    assert!(matches!(client.get("/x", &[]), Err(ReadError::Closed(_))));
    assert_eq!(origin.requests().len(), 2);
    assert_eq!(origin.requests()[1].outcome, Outcome::Faulted);
}

#[test]
fn bodies_can_be_cut_by_a_close_or_a_reset() {
    for (ending, end) in [
        (Ending::Fin, BodyEnd::Closed),
        (Ending::Reset, BodyEnd::Reset),
    ] {
        let origin = faulty(Fault::CutBody {
            after: 4321,
            ending,
        });
        let reply = get(origin.addr(), &[]);
        assert_eq!(reply.end, end);
        assert_eq!(reply.body, crate::offset::offset_bytes(0, 4321));
    }
}

#[test]
fn a_fault_can_apply_to_the_first_requests_only() {
    let cut = Fault::CutBody {
        after: 10,
        ending: Ending::Fin,
    };
    let origin = serving(Resource::offset(1000).fault_times(2, cut));
    let ends: Vec<bool> = (0..3)
        .map(|_| get(origin.addr(), &[]).truncated())
        .collect();
    assert_eq!(ends, [true, true, false]);
}

#[test]
fn bodies_and_heads_can_stall() {
    let origin = faulty(Fault::StallBody { after: 500 });
    let mut client = short_timeout(&origin);
    let reply = client.get("/x", &[]).expect("a head");
    assert_eq!((reply.end, reply.body.len()), (BodyEnd::Stalled, 500));

    let origin = faulty(Fault::StallHead { after: 20 });
    let mut client = short_timeout(&origin);
    assert!(matches!(client.get("/x", &[]), Err(ReadError::Timeout)));

    let origin = faulty(Fault::NeverAnswer);
    let mut client = short_timeout(&origin);
    assert!(matches!(client.get("/x", &[]), Err(ReadError::Timeout)));
    assert!(origin.wait_for(|record| record.requests.len() == 1, SOON));
}

#[test]
fn content_length_can_be_wrong() {
    let short = get(faulty(Fault::LengthTooLong(7)).addr(), &[]);
    assert_eq!(short.header("content-length"), Some("100007"));
    assert_eq!((short.end, short.body.len()), (BodyEnd::Closed, 100_000));

    let origin = faulty(Fault::ExtraBytes(b"HTTP/1.1 200 OK\r\n\r\nextra".to_vec()));
    let mut client = Client::connect(origin.addr()).expect("connect");
    let reply = client.get("/x", &[]).expect("a reply");
    reply.verify_whole(100_000).expect("whole");
    assert_eq!(client.read_some(24).expect("more").len(), 24);
}

#[test]
fn content_range_can_be_wrong() {
    let range = [("Range", "bytes=100-199")];
    let shifted = get(faulty(Fault::ShiftRange(50)).addr(), &range);
    shifted.verify_range(150, 249, 100_000).expect("shifted");
    let short = get(faulty(Fault::ShortRange(10)).addr(), &range);
    short.verify_range(100, 109, 100_000).expect("short");
    let wrong = Fault::ContentRange("bytes 0-99/100000".to_owned());
    let wrong = get(faulty(wrong).addr(), &range);
    assert_eq!(wrong.content_range().map(|range| range.first), Some(0));
    wrong.verify_offset(100).expect("the requested bytes");
    let none = get(faulty(Fault::NoContentRange).addr(), &range);
    assert_eq!((none.status, none.content_range()), (206, None));
    assert_eq!(get(faulty(Fault::Unsatisfiable).addr(), &range).status, 416);
    let ignored = serving(Resource::offset(1000).ranges(false));
    get(ignored.addr(), &range).verify_whole(1000).expect("200");
    let long = get(faulty(Fault::LongRange(50)).addr(), &range);
    long.verify_range(100, 249, 100_000).expect("long");
    let parts = get(faulty(Fault::AlwaysMultipart).addr(), &range);
    parts.verify_parts(&[(100, 199)], 100_000).expect("a part");
}

#[test]
fn each_broken_head_is_refused_by_the_client() {
    use BrokenHead::*;
    let all = [
        Garbage,
        BareLf,
        BareCr,
        NoColon,
        SpaceBeforeColon,
        Nul,
        ObsFold,
        BadStatus,
        ShortStatus,
        BadVersion,
        DifferingLengths,
        LengthAndChunked,
        BadLength,
        NegativeLength,
        OverflowingLength,
        UnknownCoding,
        ChunkedNotFinal,
    ];
    for how in all {
        let origin = serving(Resource::offset(100).fault(Fault::Head(how)).close());
        let read = client::get(origin.addr(), "/x", &[]);
        let broken = matches!(
            read,
            Err(ReadError::Malformed(_) | ReadError::Closed(_) | ReadError::Reset)
        );
        assert!(broken, "{how:?} gave {read:?}");
    }
    let huge = get(faulty(Fault::Head(Huge(100_000))).addr(), &[]);
    assert_eq!(huge.header("x-broken").map(str::len), Some(100_000));
    let many = get(faulty(Fault::Head(ManyFields(500))).addr(), &[]);
    assert!(many.headers.len() > 500);
    let endless = client::get(faulty(Fault::Head(Endless)).addr(), "/x", &[]);
    assert!(matches!(endless, Err(ReadError::Malformed(_))));
    let raw = faulty(Fault::RawHead(
        b"HTTP/1.1 299 Raw\r\nContent-Length: 3\r\n\r\n".to_vec(),
    ));
    let raw = get(raw.addr(), &[]);
    assert_eq!((raw.status, &raw.body[..]), (299, &b"000"[..]));
}

#[test]
fn each_broken_chunk_is_refused_by_the_client() {
    use BadChunk::*;
    for how in [
        NotHex, Negative, Overflow, Empty, BareLf, NoCrlf, BadTrailer,
    ] {
        let read = client::get(faulty(Fault::Chunk(how)).addr(), "/x", &[]);
        assert!(
            matches!(read, Err(ReadError::Malformed(_))),
            "{how:?} gave {read:?}"
        );
    }
    let cut = get(faulty(Fault::Chunk(NoLast)).addr(), &[]);
    assert_eq!((cut.end, cut.body.len()), (BodyEnd::Closed, 100_000));
    let extended = get(faulty(Fault::Chunk(Extension(100))).addr(), &[]);
    assert_eq!(extended.body.len(), 100_005);
    let long = get(faulty(Fault::Chunk(HugeTrailer(10_000))).addr(), &[]);
    assert_eq!(long.trailers[0].1.len(), 10_000);
}

#[test]
fn a_response_breaks_at_any_byte() {
    let received = |byte, how| {
        let origin = faulty(Fault::At { byte, how });
        origin.set_rules(|rules| rules.max_requests_silent = Some(1));
        let mut client = Client::connect(origin.addr()).expect("connect");
        client
            .send_raw(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        client.read_to_end().expect("an end")
    };
    let whole = received(u64::MAX, Break::Nul);
    assert!(whole.len() > 100_000);
    for byte in [0, 1, 20, 300, 100_000] {
        let cut = received(byte, Break::End(Ending::Fin));
        assert_eq!(cut.len() as u64, byte);
        let bent = received(byte, Break::Nul);
        assert_eq!((bent.len(), bent[byte as usize]), (whole.len(), 0));
    }
}

#[test]
fn responses_can_be_sent_in_small_writes() {
    let origin = serving(Resource::bytes("slow").fault(Fault::Drip {
        bytes: 16,
        every: Duration::from_millis(1),
    }));
    let reply = get(origin.addr(), &[]);
    assert_eq!(reply.body, b"slow");
    assert!(reply.total >= Duration::from_millis(10));
}

#[test]
fn the_record_keeps_heads_and_bodies_as_received() {
    let origin = serving(Resource::bytes("x"));
    let mut client = Client::connect(origin.addr()).expect("connect");
    let request = b"POST /x?y HTTP/1.1\r\nhOsT: a\r\nContent-Length: 3\r\n\r\nabc";
    client.send_raw(request).expect("sent");
    client.read_response().expect("a reply");
    let seen = origin.requests().pop().expect("one request");
    assert_eq!([&seen.raw_head[..], &seen.body].concat(), request);
    assert_eq!((seen.method.as_str(), seen.path()), ("POST", "/x"));
    assert_eq!(seen.header("host"), Some("a"));
    assert_eq!(origin.connections()[0].received, request);
    origin.reset_record();
    assert!(origin.requests().is_empty());
    assert_eq!(origin.connections().len(), 1);
    client.send_raw(b"no http\n\n").expect("sent");
    assert!(origin.wait_for(|record| record.connections[0].malformed, SOON));
}

#[test]
fn all_connections_can_be_aborted() {
    let origin = serving(Resource::bytes("x"));
    let mut client = Client::connect(origin.addr()).expect("connect");
    assert_eq!(client.get("/x", &[]).expect("a reply").status, 200);
    origin.drop_connections();
    let closing = client.wait_closed(SOON).expect("a state");
    assert!(matches!(closing, Closing::Fin | Closing::Reset));
}
