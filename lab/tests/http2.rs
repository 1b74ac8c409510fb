//! HTTP/2 between the lab's own parts: the verifying client, the client of raw frames, h2load, attackers, and the origin.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sluice_lab::certificates::Authority;
use sluice_lab::client::{
    BodyEnd, Client, ClientOptions, ClientTls, Closing, Protocol, ReadError, Reply,
};
use sluice_lab::front::{self, TlsFront};
use sluice_lab::hostile_http2::{Attack, Crowd};
use sluice_lab::load::h2load::H2Load;
use sluice_lab::origin::{Ending, Fault, Framing, Latch, Origin, OriginOptions, Outcome, Resource};
use sluice_lab::raw_http2::{Frames, RawHttp2, code, get, kind};

const SOON: Duration = Duration::from_secs(60);

fn origin() -> Origin {
    Origin::start(OriginOptions::default()).expect("a free port")
}

fn serving(resource: Resource) -> Origin {
    let origin = origin();
    origin.serve("/x", resource);
    origin
}

fn http2() -> ClientOptions {
    ClientOptions {
        protocol: Some(Protocol::Http2),
        ..ClientOptions::default()
    }
}

fn client(origin: &Origin) -> Client {
    Client::connect_with(origin.addr(), &http2()).expect("the origin accepts")
}

fn fetch(origin: &Origin) -> Reply {
    client(origin).get("/x", &[]).expect("a reply")
}

#[test]
fn requests_share_a_connection() {
    let origin = serving(Resource::offset(300_000));
    let mut client = client(&origin);
    for _ in 0..3 {
        let reply = client.get("/x", &[("Accept", "a/b")]).expect("a reply");
        reply.verify_whole(300_000).expect("all bytes");
        assert_eq!(reply.header("content-length"), Some("300000"));
    }
    let range = client.get("/x", &[("Range", "bytes=5-99999")]);
    let range = range.expect("a reply");
    range.verify_range(5, 99_999, 300_000).expect("the range");
    assert!(client.is_http2());
    let record = origin.record();
    assert_eq!(record.connections.len(), 1);
    let streams: Vec<_> = record.requests.iter().map(|seen| seen.stream).collect();
    assert_eq!(streams, [1, 3, 5, 7].map(Some));
    let first = &record.requests[0];
    let authority = origin.addr().to_string();
    assert_eq!(first.header(":authority"), Some(authority.as_str()));
    assert_eq!(first.header("accept"), Some("a/b"));
}

#[test]
fn the_protocol_is_negotiated_over_tls() {
    let origin = serving(Resource::offset(100_000));
    let authority = Authority::new("Test authority");
    let config = front::config(&authority.server(&["localhost"]), None);
    let front = TlsFront::start(origin.addr(), front::with_http2(&config)).expect("a port");
    let options = ClientOptions {
        tls: Some(ClientTls::trusting(&authority.der(), "localhost")),
        ..http2()
    };
    let mut client = Client::connect_with(front.address(), &options).expect("a connection");
    let reply = client.get("/x", &[]).expect("a reply");
    reply.verify_whole(100_000).expect("all bytes");
    assert_eq!(origin.requests()[0].stream, Some(1));
    // A server that does not know HTTP/2 is not accepted.
    let old = TlsFront::start(origin.addr(), config).expect("a port");
    let mut client = Client::connect_with(old.address(), &options).expect("a connection");
    let refused = client
        .get("/x", &[])
        .expect_err("the protocol was not chosen");
    assert!(matches!(refused, ReadError::Io(_)), "{refused}");
}

#[test]
fn replies_are_read_in_the_order_of_their_requests() {
    let latch = Latch::closed();
    let origin = serving(Resource::bytes("first").hold_head(&latch));
    origin.serve("/y", Resource::bytes("second"));
    let mut client = client(&origin);
    client.send("GET", "/x", &[], b"").expect("sent");
    client.send("HEAD", "/y", &[], b"").expect("sent");
    let sent = |path| {
        move |record: &sluice_lab::origin::Record| {
            record.of(path).any(|seen| seen.outcome == Outcome::Sent)
        }
    };
    assert!(
        origin.wait_for(sent("/y"), SOON),
        "a held one holds no other up"
    );
    latch.release();
    assert_eq!(client.read_response().expect("a reply").body, b"first");
    let head = client.read_reply_to("HEAD").expect("a reply");
    assert_eq!(head.header("content-length"), Some("6"));
    assert!(head.body.is_empty());
}

#[test]
fn content_is_sent_in_the_framing_of_the_headers() {
    let origin = serving(Resource::echo());
    let mut client = client(&origin);
    let reply = client.request("PUT", "/x", &[], &[b'a'; 200_000]);
    assert_eq!(reply.expect("a reply").body, [b'a'; 200_000]);
    // In parts, and with 100 Continue.
    let headers = [("Content-Length", "6"), ("Expect", "100-continue")];
    client.send("POST", "/x", &headers, b"").expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 100);
    client.send_raw(b"abc").expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 200);
    assert_eq!(client.read_some(3).expect("content"), b"abc");
    client.send_raw(b"def").expect("sent");
    assert_eq!(client.read_to_end().expect("content"), b"def");
    // Chunks and trailers.
    let chunked = [("Transfer-Encoding", "chunked"), ("TE", "trailers")];
    client
        .send("POST", "/x", &chunked, b"3\r\nabc\r\n0\r")
        .expect("sent");
    client.send_raw(b"\nX-Sum: 9\r\n\r\n").expect("sent");
    assert_eq!(client.read_response().expect("a reply").body, b"abc");
    let more = client
        .send_raw(b"x")
        .expect_err("no request has more content");
    assert_eq!(more.kind(), std::io::ErrorKind::InvalidInput);
    let requests = origin.requests();
    assert!(requests.iter().all(|seen| seen.body_complete));
    let last = requests.last().expect("requests");
    assert_eq!(last.trailers, [("x-sum".to_owned(), "9".to_owned())]);
    assert_eq!(last.header("transfer-encoding"), None);
    assert_eq!(last.header("te"), Some("trailers"));
}

#[test]
fn interim_responses_and_trailers_are_read() {
    let hints = [("Link", "</a>; rel=preload")];
    let resource = Resource::offset(10)
        .framing(Framing::Chunked(4))
        .interim(103, &hints)
        .trailer("X-Sum", "9");
    let reply = fetch(&serving(resource));
    assert_eq!(reply.interim.len(), 1);
    assert_eq!(reply.interim[0].header("link"), Some(hints[0].1));
    assert_eq!(reply.trailers, [("x-sum".to_owned(), "9".to_owned())]);
    reply.verify_whole(10).expect("all bytes");
}

#[test]
fn faults_end_streams_or_connections() {
    let resource = || Resource::offset(100_000);
    let origin = serving(resource().fault_times(1, Fault::RefuseStream));
    let mut client = client(&origin);
    let refused = client.get("/x", &[]).expect_err("refused");
    assert!(matches!(refused, ReadError::Reset), "{refused}");
    assert_eq!(client.http2_code(), Some(code::REFUSED_STREAM));
    // The connection goes on.
    let reply = client.get("/x", &[]).expect("a reply");
    reply.verify_whole(100_000).expect("all bytes");
    let (after, code) = (50_000, code::CANCEL);
    origin.serve("/x", resource().fault(Fault::ResetStream { after, code }));
    let reply = client.get("/x", &[]).expect("a reply");
    assert_eq!(reply.end, BodyEnd::Reset);
    assert_eq!(client.http2_code(), Some(code));
    // A length that is too large is found by the client.
    origin.serve("/x", resource().fault(Fault::LengthTooLong(1)));
    let broken = client.get("/x", &[]).expect_err("a violation");
    assert!(matches!(broken, ReadError::Malformed(_)), "{broken}");
    let ending = Ending::Fin;
    origin.serve("/x", resource().fault(Fault::CutBody { after, ending }));
    let reply = client.get("/x", &[]).expect("a reply");
    assert_eq!(reply.end, BodyEnd::Closed);
    assert_eq!(client.wait_closed(SOON).expect("an end"), Closing::Fin);
}

#[test]
fn goaway_ends_a_connection_at_once_or_in_order() {
    let origin = serving(Resource::offset(10).fault(Fault::GoAway(code::ENHANCE_YOUR_CALM)));
    let mut ended = client(&origin);
    let closed = ended.get("/x", &[]).expect_err("no response");
    assert!(matches!(closed, ReadError::Closed(_)), "{closed}");
    assert_eq!(ended.http2_code(), Some(code::ENHANCE_YOUR_CALM));
    origin.serve("/x", Resource::offset(10));
    origin.set_rules(|rules| rules.max_requests = Some(1));
    let mut drained = client(&origin);
    let reply = drained
        .get("/x", &[])
        .expect("the request before GOAWAY is served");
    reply.verify_whole(10).expect("all bytes");
    assert_eq!(drained.wait_closed(SOON).expect("an end"), Closing::Fin);
}

#[test]
fn a_client_that_does_not_read_holds_the_origin_up() {
    let origin = serving(Resource::offset(1 << 20));
    let mut client = client(&origin);
    client.send("GET", "/x", &[], b"").expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 200);
    // The window of one stream is full, and another one is not held up.
    let is_full = |record: &sluice_lab::origin::Record| record.sent_for("/x") == 65_535;
    assert!(origin.wait_for(is_full, SOON));
    client.send("GET", "/offset/1000", &[], b"").expect("sent");
    let done = |record: &sluice_lab::origin::Record| record.sent_for("/offset/1000") == 1000;
    assert!(origin.wait_for(done, SOON));
    assert_eq!(origin.record().sent_for("/x"), 65_535);
    assert_eq!(client.read_some(1 << 20).expect("content").len(), 1 << 20);
    let reply = client.read_response().expect("a reply");
    reply.verify_whole(1000).expect("all bytes");
}

#[test]
fn a_connection_that_begins_with_raw_bytes_has_http1() {
    let origin = serving(Resource::offset(10));
    let mut client = client(&origin);
    let request = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send_raw(request).expect("sent");
    client.read_response().expect("a reply");
    assert!(!client.is_http2());
    assert_eq!(origin.requests()[0].stream, None);
}

#[test]
fn a_vanished_client_is_noticed() {
    let latch = Latch::closed();
    let origin = serving(Resource::offset(10).hold_head(&latch));
    for resets in [true, false] {
        let mut client = client(&origin);
        client.send("GET", "/x", &[], b"").expect("sent");
        assert!(latch.wait_held(1, SOON));
        match resets {
            true => client.reset().expect("reset"),
            false => drop(client),
        }
        let gone = |record: &sluice_lab::origin::Record| record.open_connections() == 0;
        assert!(origin.wait_for(gone, SOON));
        let aborted = origin
            .requests()
            .iter()
            .all(|seen| seen.outcome == Outcome::Aborted);
        assert!(aborted, "{:?}", origin.requests());
    }
}

#[test]
fn raw_frames_are_sent_and_read() {
    let origin = serving(Resource::offset(10));
    let mut raw = RawHttp2::open(origin.addr(), &[]).expect("a connection");
    let mut frames = Frames::new();
    frames.headers(1, &get("a", "/x"), true);
    raw.send(&frames).expect("sent");
    let data = raw.read_until(|frame| frame.kind == kind::DATA && !frame.payload.is_empty());
    let data = data.expect("frames").expect("content");
    assert_eq!((data.stream, data.payload.len()), (1, 10));
    // An upper-case name is malformed (RFC 9113 8.2.1).
    let mut fields = get("a", "/x").to_vec();
    fields.push(("X-A", "b"));
    raw.send(Frames::new().headers(3, &fields, true))
        .expect("sent");
    let refused = raw.read_until(|frame| frame.code().is_some());
    let refused = refused.expect("frames").expect("an error");
    assert_eq!(refused.code(), Some(code::PROTOCOL_ERROR));
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn attackers_reach_the_server() {
    for attack in Attack::ALL {
        let origin = serving(Resource::offset(5000));
        let stop = AtomicBool::new(false);
        let mut crowd = Crowd::new(origin.addr(), attack, "/x", 3);
        let tally = std::thread::scope(|scope| {
            let attackers = scope.spawn(|| crowd.run(&stop));
            let reached = origin.wait_for(
                |record| match attack {
                    Attack::TinyWindows => record.sent_total > 3,
                    Attack::StalledStreams => record.requests_total >= 300,
                    // The h2 crate ends the other attacks before it shows a request.
                    _ => record.connections.len() >= 3,
                },
                SOON,
            );
            stop.store(true, Ordering::Relaxed);
            assert!(reached, "{attack:?}: {:?}", origin.record().requests_total);
            attackers.join().expect("no panic")
        });
        assert!(tally.bursts > 0, "{attack:?}: {tally:?}");
    }
}

#[test]
fn h2load_loads_a_server() {
    let origin = serving(Resource::offset(1000));
    let folder = tempfile::tempdir().expect("a folder");
    let load = H2Load {
        connections: 2,
        streams: 5,
        requests: 100,
        ..H2Load::new(origin.addr(), "/x")
    };
    let result = match load.run(folder.path()) {
        Ok(result) => result,
        Err(error) if error.to_string().contains("apt-get") => {
            eprintln!("skipped: {error:#}");
            return;
        }
        Err(error) => panic!("{error:#}"),
    };
    assert_eq!((result.requests, result.failed), (100, 0));
    assert_eq!(result.bytes, 100_000);
    assert_eq!(origin.connections().len(), 2);
}
