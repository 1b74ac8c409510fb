//! Tests of HTTP/2 to origins that are scripted with `http2::server`.

use std::future::poll_fn;

use super::*;
use crate::http::Fields;
use crate::http2::hpack::{Indexing, append_independent};
use crate::http2::request;
use crate::http2::server::{self, Event};
use crate::http2::violation::ErrorCode;
use crate::http2::write;

/// The origin's end of an HTTP/2 connection.
struct Peer2<'a> {
    served: &'a mut ServedConnection,
    server: server::Server,
    input: Vec<u8>,
    out: Vec<u8>,
    seen: VecDeque<Seen>,
}

/// An event on the origin's end.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// A request with this method and target; `true` if it has no content.
    Request(usize, String, bool),
    Content(usize, Vec<u8>, bool),
    Trailers(usize, usize),
    Cancelled(usize, u32),
}

impl Peer2<'_> {
    fn new(served: &mut ServedConnection, streams: u32) -> Peer2<'_> {
        let mut out = Vec::new();
        let mut options = server::Options::default();
        options.limits.streams = streams;
        let server = server::Server::new(options, 0, &mut out);
        Peer2::of(served, server, out)
    }

    /// Creates the end of a connection with this server, which has written its first frames to `out`.
    fn of(served: &mut ServedConnection, server: server::Server, out: Vec<u8>) -> Peer2<'_> {
        let mut peer = Peer2 {
            served,
            server,
            input: Vec::new(),
            out,
            seen: VecDeque::new(),
        };
        peer.flush();
        peer
    }

    fn flush(&mut self) {
        let out = std::mem::take(&mut self.out);
        self.served.send(&out);
    }

    /// Reads once and handles all complete frames. Returns false at the end of the connection.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 16 << 10];
        let Ok(n @ 1..) = self.served.stream.read(&mut bytes) else {
            return false;
        };
        self.input.extend_from_slice(&bytes[..n]);
        let mut request = request::Request::default();
        loop {
            let taken = self
                .server
                .take(&self.input, 0, &mut request, &mut self.out);
            let (used, event) = taken.expect("a valid client");
            let mut released = None;
            let seen = event.and_then(|event| match event {
                Event::Request { slot, ends, .. } => {
                    let path = String::from_utf8_lossy(&request.path);
                    let method = request.method.as_ref().expect("a method").as_str();
                    let head = format!("{method} {path}\r\n");
                    let fields = String::from_utf8_lossy(request.fields.text());
                    let _ = self.served.tell.send(head + &fields);
                    Some(Seen::Request(slot, path.into_owned(), ends))
                }
                Event::Content {
                    slot,
                    content,
                    ends,
                } => {
                    released = Some((slot, content.len() as u32));
                    Some(Seen::Content(slot, content.to_vec(), ends))
                }
                Event::Trailers { slot, fields } => Some(Seen::Trailers(slot, fields.len())),
                Event::Cancelled { slot, code, .. } => Some(Seen::Cancelled(slot, code.0)),
                // A stream above the limit.
                Event::Refused { .. } => None,
            });
            if let Some((slot, bytes)) = released {
                self.server.release(slot, bytes, &mut self.out);
            }
            self.seen.extend(seen);
            if used == 0 {
                self.flush();
                return true;
            }
            self.input.drain(..used);
        }
    }

    /// Returns the next event; `None` at the end of the connection.
    fn next(&mut self) -> Option<Seen> {
        loop {
            if let Some(seen) = self.seen.pop_front() {
                return Some(seen);
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// Returns the slot of the next request, and its content.
    fn request(&mut self) -> Option<(usize, String, Vec<u8>)> {
        loop {
            if let Seen::Request(slot, path, ends) = self.next()? {
                let content = if ends { Vec::new() } else { self.content(slot) };
                return Some((slot, path, content));
            }
        }
    }

    fn content(&mut self, of: usize) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            match self.next() {
                Some(Seen::Content(slot, bytes, ends)) if slot == of => {
                    all.extend_from_slice(&bytes);
                    if ends {
                        return all;
                    }
                }
                Some(Seen::Trailers(slot, _)) if slot == of => return all,
                Some(_) => {}
                None => return all,
            }
        }
    }

    fn head(&mut self, slot: usize, ends: bool, fields: &[(&str, &str)]) {
        self.head_of(200, slot, ends, fields);
    }

    fn head_of(&mut self, status: u16, slot: usize, ends: bool, fields: &[(&str, &str)]) {
        let out = &mut self.out;
        self.server.head(slot, ends, out, |encoder, out| {
            encoder.status(out, status);
            for (name, value) in fields {
                append_independent(out, name.as_bytes(), value.as_bytes(), Indexing::Without);
            }
        });
        if ends {
            self.server.end(slot, &mut self.out);
        }
        self.flush();
    }

    /// Sends content as the client opens the windows.
    fn data(&mut self, slot: usize, mut bytes: &[u8], ends: bool) {
        while !bytes.is_empty() {
            self.server.set_content(slot, true);
            let Some((_, most)) = self.server.next() else {
                if !self.read() {
                    return;
                }
                continue;
            };
            let (part, rest) = bytes.split_at(bytes.len().min(most as usize));
            bytes = rest;
            let is_last = ends && rest.is_empty();
            let length = part.len() as u32;
            self.server.data(slot, length, is_last, &mut self.out);
            self.out.extend_from_slice(part);
            self.flush();
        }
        self.server.set_content(slot, false);
        if ends {
            self.server.end(slot, &mut self.out);
            self.flush();
        }
    }

    /// Sends as much content as the windows permit now. Returns its length.
    fn fill(&mut self, slot: usize) -> usize {
        let mut filled = 0;
        self.server.set_content(slot, true);
        while let Some((_, most)) = self.server.next() {
            self.server.data(slot, most, false, &mut self.out);
            self.out.extend(std::iter::repeat_n(b'x', most as usize));
            self.flush();
            filled += most as usize;
        }
        self.server.set_content(slot, false);
        filled
    }

    fn trailers(&mut self, slot: usize) {
        let out = &mut self.out;
        self.server.trailers(slot, out, |_, out| {
            append_independent(out, b"grpc-status", b"0", Indexing::Without);
        });
        self.flush();
    }

    fn reset(&mut self, slot: usize, code: ErrorCode) {
        self.server.reset(slot, code, &mut self.out);
        self.flush();
    }

    /// Answers every request with its path, or its content.
    fn serve(&mut self) {
        while let Some((slot, path, content)) = self.request() {
            let body = if content.is_empty() {
                path.into_bytes()
            } else {
                content
            };
            self.head(slot, false, &[]);
            self.data(slot, &body, true);
        }
    }
}

impl Origin {
    /// Starts an origin whose connections speak HTTP/2 and permit this many streams.
    fn http2(
        streams: u32,
        script: impl Fn(usize, &mut Peer2<'_>) + Send + Sync + 'static,
    ) -> Origin {
        Origin::new(move |number, served| script(number, &mut Peer2::new(served, streams)))
    }

    fn h2c(&self) -> Server {
        Server {
            h2c: true,
            ..self.server()
        }
    }

    fn upstream2(&self) -> Testing {
        Testing::new(Options::new(vec![self.h2c()]))
    }
}

fn ok(text: &str) -> Result<(u16, Vec<u8>), Reason> {
    Ok((200, text.as_bytes().to_vec()))
}

/// Fetches all of these targets at a time.
async fn fetch_all(testing: &Rc<Testing>, targets: &[String]) -> Vec<(u16, Vec<u8>)> {
    let tasks: Vec<_> = targets
        .iter()
        .map(|target| {
            let (testing, target) = (testing.clone(), target.clone());
            tokio::task::spawn_local(async move { testing.fetch(get(&target)).await })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.expect("no panic").expect("a response"));
    }
    all
}

fn targets(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("/{n}")).collect()
}

#[test]
fn many_requests_share_one_connection() {
    let origin = Origin::http2(100, |_, peer| {
        // All requests arrive before the first response.
        let requests: Vec<_> = (0..64)
            .map(|_| peer.request().expect("a request"))
            .collect();
        for (slot, path, _) in requests {
            peer.head(slot, false, &[]);
            peer.data(slot, path.as_bytes(), true);
        }
        peer.serve();
    });
    run(async {
        let testing = Rc::new(origin.upstream2());
        let targets = targets(64);
        let all = fetch_all(&testing, &targets).await;
        for (target, (_, body)) in targets.iter().zip(all) {
            assert_eq!(target.as_bytes(), body);
        }
        assert_eq!(testing.fetch(get("/last")).await, ok("/last"));
        assert_eq!(testing.counters.upstream_connects.get(), 1);
        assert_eq!(testing.counters.upstream_reuses.get(), 64);
        assert_eq!(testing.idle(), 1);
        let head = origin.next_request();
        assert!(head.starts_with("GET /"), "{head}");
        for line in [
            "host: example.com",
            "via: 1.1 sluice",
            "x-forwarded-for: 192.0.2.7",
        ] {
            assert!(head.contains(line), "{line:?} is not in {head}");
        }
    });
}

#[test]
fn a_full_connection_opens_another_one_and_refused_streams_are_sent_again() {
    // The server's limit is not known when the requests begin, so it refuses some of them.
    let origin = Origin::http2(3, |_, peer| peer.serve());
    run(async {
        let testing = Rc::new(origin.upstream2());
        for round in 0..3 {
            let targets = targets(9);
            let all = fetch_all(&testing, &targets).await;
            for (target, (_, body)) in targets.iter().zip(all) {
                assert_eq!(target.as_bytes(), body, "in round {round}");
            }
        }
        let connects = testing.counters.upstream_connects.get();
        assert!((2..=5).contains(&connects), "{connects} connections");
    });
}

#[test]
fn connections_are_limited_and_requests_wait_for_streams() {
    let origin = Origin::http2(2, |_, peer| peer.serve());
    run(async {
        let mut options = Options::new(vec![origin.h2c()]);
        options.max_connections = 1;
        let testing = Rc::new(Testing::new(options));
        // The limit of streams is known from then on.
        assert_eq!(testing.fetch(get("/a")).await, ok("/a"));
        let all = fetch_all(&testing, &targets(20)).await;
        assert_eq!(all.len(), 20);
        assert_eq!(testing.counters.upstream_connects.get(), 1);
    });
}

#[test]
fn a_refused_post_is_sent_again_with_its_content() {
    let origin = Origin::http2(100, |_, peer| {
        let (slot, _, content) = peer.request().expect("a request");
        assert_eq!(content, b"content");
        peer.reset(slot, ErrorCode::REFUSED_STREAM);
        peer.serve();
    });
    run(async {
        let testing = origin.upstream2();
        let fed = Fed::default();
        fed.data(b"con");
        fed.data(b"tent");
        fed.feed(None);
        let reply = testing.fetch(post(Body::stream(fed))).await;
        assert_eq!(reply, ok("content"));
        assert_eq!(testing.counters.upstream_connects.get(), 1);
        assert_eq!(testing.counters.upstream_retries.get(), 1);
    });
}

#[test]
fn a_server_that_refuses_every_stream_is_no_endless_loop() {
    let origin = Origin::http2(100, |_, peer| {
        while let Some((slot, _, _)) = peer.request() {
            peer.reset(slot, ErrorCode::REFUSED_STREAM);
        }
    });
    run(async {
        let reply = origin.upstream2().fetch(get("/")).await;
        assert_eq!(reply, Err(Reason::StreamRefused));
    });
}

#[test]
fn requests_after_goaway_move_to_another_connection() {
    let origin = Origin::http2(100, |number, peer| {
        if number > 0 {
            return peer.serve();
        }
        let (slot, path, _) = peer.request().expect("a request");
        // The second request may have arrived. It is ignored, and the first one is completed.
        write::go_away(&mut peer.out, 1, ErrorCode::NO_ERROR, "");
        peer.flush();
        peer.head(slot, false, &[]);
        peer.data(slot, path.as_bytes(), true);
        while peer.next().is_some() {}
    });
    run(async {
        let testing = Rc::new(origin.upstream2());
        let mut first = pin!(testing.fetch(get("/first")));
        assert!(is_waiting(&mut first).await);
        let fed = Fed::default();
        fed.data(b"second");
        fed.feed(None);
        let second = testing.fetch(post(Body::stream(fed)));
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first, second), (ok("/first"), ok("second")));
        assert_eq!(testing.fetch(get("/third")).await, ok("/third"));
        assert_eq!(testing.counters.upstream_connects.get(), 2);
    });
}

#[test]
fn a_reset_after_the_head_cuts_the_body() {
    let origin = Origin::http2(100, |_, peer| {
        let (slot, _, _) = peer.request().expect("a request");
        peer.head(slot, false, &[]);
        peer.data(slot, b"part", false);
        peer.reset(slot, ErrorCode::INTERNAL_ERROR);
        peer.serve();
    });
    run(async {
        let testing = origin.upstream2();
        assert_eq!(testing.fetch(get("/")).await, Err(Reason::BodyCut));
        assert_eq!(testing.fetch(get("/next")).await, ok("/next"));
        assert_eq!(testing.counters.upstream_connects.get(), 1);
    });
}

#[test]
fn interim_heads_are_bounded_in_number_and_together_in_size() {
    // As in HTTP/1.1, the final head counts, too. Its line has 100 bytes as well.
    for (count, most, accepted) in heads::INTERIM {
        let origin = Origin::http2(100, move |_, peer| {
            let link = "x".repeat(92);
            while let Some((slot, path, _)) = peer.request() {
                for _ in 0..count {
                    peer.head_of(103, slot, false, &[("link", &link)]);
                }
                peer.head(slot, false, &[("link", &link)]);
                peer.data(slot, path.as_bytes(), true);
            }
        });
        assert_eq!(heads::assert_interim(origin.h2c(), most, accepted), 1);
    }
}

#[test]
fn a_body_shorter_than_declared_is_no_complete_one() {
    let origin = Origin::http2(100, |_, peer| {
        let (slot, _, _) = peer.request().expect("a request");
        peer.head(slot, false, &[("content-length", "5")]);
        peer.data(slot, b"part", true);
        while peer.next().is_some() {}
    });
    run(async {
        let reply = origin.upstream2().fetch(get("/")).await;
        assert_eq!(reply, Err(Reason::BadBody));
    });
}

#[test]
fn a_closed_connection_fails_its_requests_only_if_they_were_sent() {
    let origin = Origin::http2(100, |number, peer| match number {
        0 => {
            let (slot, path, _) = peer.request().expect("a request");
            peer.head(slot, false, &[]);
            peer.data(slot, path.as_bytes(), true);
            // To close with unread frames would reset the connection, and the response could be lost.
            let ended = peer.served.stream.shutdown(std::net::Shutdown::Write);
            while ended.is_ok() && peer.read() {}
        }
        1 => {
            peer.request();
        }
        _ => peer.serve(),
    });
    run(async {
        let testing = origin.upstream2();
        assert_eq!(testing.fetch(get("/a")).await, ok("/a"));
        // The connection closes while it is idle, or when this request arrives.
        let second = testing.fetch(get("/b")).await;
        assert_eq!(second, Err(Reason::ClosedBeforeHead));
        assert_eq!(testing.fetch(get("/c")).await, ok("/c"));
    });
}

// Settings, acknowledgements and PING may cross the request on their way, so they do not show that the server has seen it.
#[test]
fn a_request_is_sent_again_if_only_frames_of_the_connection_came_before_its_end() {
    let origin = Origin::http2(100, |number, peer| match number {
        0 => {
            let (slot, path, _) = peer.request().expect("a request");
            peer.head(slot, false, &[]);
            peer.data(slot, path.as_bytes(), true);
            peer.request();
            write::ping(&mut peer.out, [1; 8]);
            peer.flush();
        }
        _ => peer.serve(),
    });
    run(async {
        let testing = origin.upstream2();
        assert_eq!(testing.fetch(get("/a")).await, ok("/a"));
        assert_eq!(testing.fetch(get("/b")).await, ok("/b"));
    });
}

#[test]
fn trailers_pass_both_ways_and_the_head_comes_before_the_request_ends() {
    let origin = Origin::http2(100, |_, peer| {
        let Some(Seen::Request(slot, _, false)) = peer.next() else {
            panic!("a request with content");
        };
        peer.head(slot, false, &[("content-type", "application/grpc")]);
        let Some(Seen::Content(_, message, false)) = peer.next() else {
            panic!("a message");
        };
        peer.data(slot, &message, false);
        loop {
            match peer.next() {
                Some(Seen::Trailers(_, 1)) => break,
                Some(Seen::Content(_, bytes, false)) => peer.data(slot, &bytes, false),
                other => panic!("{other:?}"),
            }
        }
        peer.trailers(slot);
        peer.server.end(slot, &mut peer.out);
        peer.flush();
        while peer.next().is_some() {}
    });
    run(async {
        let testing = origin.upstream2();
        let fed = Fed::default();
        let mut request = post(Body::stream(fed.clone()));
        request.head.fields.append("te", "trailers");
        let mut response = testing.ask(request).await.expect("a head");
        assert_eq!(
            response.fields.get("content-type"),
            Some(&b"application/grpc"[..])
        );
        for message in [&b"first"[..], b"second"] {
            fed.data(if message == b"first" {
                b"first"
            } else {
                b"second"
            });
            match response.body.frame().await {
                Some(Ok(Frame::Data(bytes))) => assert_eq!(bytes, message),
                other => panic!("{other:?}"),
            }
        }
        let mut trailers = Fields::new();
        trailers.append("x-sum", "1");
        fed.feed(Some(Ok(Frame::Trailers(trailers))));
        match response.body.frame().await {
            Some(Ok(Frame::Trailers(fields))) => {
                assert_eq!(fields.get("grpc-status"), Some(&b"0"[..]));
            }
            other => panic!("{other:?}"),
        }
        assert!(response.body.frame().await.is_none());
        assert!(origin.next_request().contains("te: trailers\r\n"));
        assert_eq!(testing.idle(), 1);
    });
}

#[test]
fn a_client_that_leaves_has_its_stream_reset() {
    let origin = Origin::http2(100, |_, peer| {
        let (slot, _, _) = peer.request().expect("a request");
        peer.head(slot, false, &[]);
        peer.data(slot, b"part", false);
        let cancel = ErrorCode::CANCEL.0;
        assert_eq!(peer.next(), Some(Seen::Cancelled(slot, cancel)));
        peer.serve();
    });
    run(async {
        let testing = origin.upstream2();
        let response = testing.ask(get("/")).await.expect("a head");
        drop(response);
        assert_eq!(testing.fetch(get("/next")).await, ok("/next"));
        assert_eq!(testing.counters.upstream_connects.get(), 1);
    });
}

// Servers end connections with too many resets, and with them the exchanges of other clients.
#[test]
fn clients_that_leave_end_no_exchange_of_another_one() {
    const CANCELLED: usize = 101;
    let origin = Origin::http2(200, |_, peer| {
        let (mut long, mut cancelled) = (None, 0);
        while let Some(seen) = peer.next() {
            match seen {
                Seen::Request(slot, path, _) => {
                    peer.head(slot, false, &[]);
                    match &*path {
                        "/long" => long = Some(slot),
                        "/cancelled" => {}
                        _ => peer.data(slot, b"x", true),
                    }
                }
                Seen::Cancelled(..) => cancelled += 1,
                _ => {}
            }
            if cancelled == CANCELLED
                && let Some(slot) = long.take()
            {
                peer.data(slot, b"complete", true);
            }
        }
    });
    run(async {
        let testing = origin.upstream2();
        let mut long = testing.ask(get("/long")).await.expect("a head");
        for _ in 0..2 * CANCELLED {
            drop(testing.ask(get("/cancelled")).await.expect("a head"));
        }
        assert!(content(&mut long.body).await == Ok(b"complete".to_vec()));
        assert_eq!(testing.fetch(get("/next")).await, ok("x"));
        assert!(testing.counters.upstream_connects.get() > 1);
    });
}

#[test]
fn a_request_above_the_limit_of_the_server_is_not_sent() {
    let origin = Origin::new(|_, served| {
        let mut out = Vec::new();
        let mut options = server::Options::default();
        options.limits.header_list = 4096;
        let server = server::Server::new(options, 0, &mut out);
        let mut peer = Peer2::of(served, server, out);
        peer.serve();
    });
    run(async {
        let testing = origin.upstream2();
        // The settings of the server arrive with the first response at the latest.
        assert_eq!(testing.fetch(get("/a")).await, ok("/a"));
        let mut large = get("/b");
        large.head.fields.append("x-long", "y".repeat(4000));
        assert_eq!(testing.fetch(large).await, Err(Reason::OriginHeaderLimit));
        assert_eq!(testing.fetch(get("/c")).await, ok("/c"));
        assert_eq!(testing.counters.upstream_connects.get(), 1);
    });
}

#[test]
fn a_head_above_its_limits_fails_its_request_alone() {
    let origin = Origin::http2(100, |_, peer| {
        let (long, lines) = ("y".repeat(66_000), vec![("x-n", "1"); 300]);
        while let Some((slot, path, _)) = peer.request() {
            match &*path {
                "/long" => peer.head(slot, true, &[("x-long", &long)]),
                "/lines" => peer.head(slot, true, &lines),
                _ => {
                    peer.head(slot, false, &[]);
                    peer.data(slot, path.as_bytes(), true);
                }
            }
        }
    });
    run(async {
        let testing = origin.upstream2();
        for target in ["/long", "/lines"] {
            assert_eq!(testing.fetch(get(target)).await, Err(Reason::BadHead));
            assert_eq!(testing.fetch(get("/next")).await, ok("/next"));
        }
        assert_eq!(testing.counters.upstream_connects.get(), 1);
    });
}

#[test]
fn an_upload_that_breaks_off_is_reset() {
    let origin = Origin::http2(100, |_, peer| {
        let Some(Seen::Request(slot, _, false)) = peer.next() else {
            panic!("a request with content");
        };
        while let Some(seen) = peer.next() {
            if seen == Seen::Cancelled(slot, ErrorCode::CANCEL.0) {
                return peer.serve();
            }
            assert!(matches!(seen, Seen::Content(_, _, false)), "{seen:?}");
        }
    });
    run(async {
        let testing = origin.upstream2();
        let fed = Fed::default();
        fed.data(b"part");
        fed.feed(Some(Err(Reason::ClientGone.into())));
        let reply = testing.fetch(post(Body::stream(fed))).await;
        assert_eq!(reply, Err(Reason::ClientGone));
        assert_eq!(testing.fetch(get("/next")).await, ok("/next"));
    });
}

#[test]
fn a_slow_reader_holds_no_other_stream_up() {
    const LENGTH: usize = 3 << 20;
    let origin = Origin::http2(100, |_, peer| {
        let (slow, _, _) = peer.request().expect("a request");
        peer.head(slow, false, &[]);
        // As much as the window permits.
        peer.server.set_content(slow, true);
        let mut filled = 0;
        while filled < 32 << 10 {
            let Some((slot, most)) = peer.server.next() else {
                assert!(peer.read());
                continue;
            };
            peer.server.data(slot, most, false, &mut peer.out);
            let content: Vec<u8> = (filled..).take(most as usize).map(byte).collect();
            peer.out.extend_from_slice(&content);
            peer.flush();
            filled += most as usize;
        }
        peer.server.set_content(slow, false);
        let (fast, _, _) = peer.request().expect("another request");
        peer.head(fast, false, &[]);
        let all: Vec<u8> = (0..LENGTH).map(byte).collect();
        peer.data(fast, &all, true);
        peer.data(slow, &all[filled..], true);
        while peer.next().is_some() {}
    });
    run(async {
        let testing = origin.upstream2();
        let mut slow = testing.ask(get("/slow")).await.expect("a head");
        let (_, fast) = testing.fetch(get("/fast")).await.expect("a response");
        let expected: Vec<u8> = (0..LENGTH).map(byte).collect();
        assert!(fast == expected);
        assert!(content(&mut slow.body).await == Ok(expected));
        assert_eq!(testing.counters.upstream_connects.get(), 1);
    });
}

/// Sends content without end to requests for `/slow` and `/fast`, as far as the windows permit. Answers any other request
/// with the numbers of bytes that these have got, in the order of the requests.
fn serve_long(peer: &mut Peer2<'_>) {
    let mut long: Vec<(usize, usize)> = Vec::new();
    loop {
        for (slot, sent) in &mut long {
            *sent += peer.fill(*slot);
        }
        // Windows that were opened before a request are open when it is seen.
        match peer.seen.pop_front() {
            Some(Seen::Request(slot, path, _)) if path == "/sent" => {
                let sent: Vec<_> = long.iter().map(|(_, sent)| sent.to_string()).collect();
                peer.head(slot, false, &[]);
                peer.data(slot, sent.join(" ").as_bytes(), true);
            }
            Some(Seen::Request(slot, _, _)) => {
                peer.head(slot, false, &[]);
                long.push((slot, 0));
            }
            Some(_) => {}
            None if !peer.read() => return,
            None => {}
        }
    }
}

#[test]
fn a_fast_reader_gets_a_larger_window_and_a_slow_one_does_not() {
    let origin = Origin::http2(100, |_, peer| serve_long(peer));
    run(async {
        let testing = origin.upstream2();
        let mut slow = testing.ask(get("/slow")).await.expect("a head");
        // The first frame may be read before it is known that the client reads nothing.
        assert!(matches!(slow.body.frame().await, Some(Ok(Frame::Data(_)))));
        let mut fast = testing.ask(get("/fast")).await.expect("a head");
        let mut taken = 0;
        while taken < 6 << 20 {
            match fast.body.frame().await {
                Some(Ok(Frame::Data(bytes))) => taken += bytes.len(),
                other => panic!("{other:?}"),
            }
        }
        let (_, sent) = testing.fetch(get("/sent")).await.expect("a response");
        let sent: Vec<usize> = String::from_utf8_lossy(&sent)
            .split(' ')
            .map(|number| number.parse().expect("a number"))
            .collect();
        assert_eq!(sent[0], 32 << 10);
        let open = sent[1] - taken;
        assert!((1 << 20..=4 << 20).contains(&open), "{open}");
        assert_eq!(testing.counters.upstream_connects.get(), 1);
        drop(slow);
    });
}

/// Returns the byte at a position of a long body.
fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

#[test]
fn a_long_upload_arrives_as_the_windows_permit() {
    const LENGTH: usize = 2 << 20;
    let origin = Origin::http2(100, |_, peer| {
        let (slot, _, content) = peer.request().expect("a request");
        assert!(content == (0..LENGTH).map(byte).collect::<Vec<u8>>());
        peer.head(slot, true, &[]);
        while peer.next().is_some() {}
    });
    run(async {
        let body: Vec<u8> = (0..LENGTH).map(byte).collect();
        let testing = origin.upstream2();
        let reply = testing.fetch(post(Body::Bytes(body.into()))).await;
        assert_eq!(reply, ok(""));
        let length = format!("content-length: {LENGTH}\r\n");
        assert!(origin.next_request().contains(&length));
    });
}

#[test]
fn a_connection_that_stalls_is_replaced() {
    let origin = Origin::http2(100, |number, peer| match number {
        0 => peer.served.await_close(),
        _ => peer.serve(),
    });
    run(async {
        let mut options = Options::new(vec![origin.h2c()]);
        options.read_timeout = Duration::from_millis(200);
        let testing = Rc::new(Testing::new(options));
        let first = testing.fetch(get("/a")).await;
        assert_eq!(first, Err(Reason::HeadTimeout));
        assert_eq!(testing.fetch(get("/b")).await, ok("/b"));
        assert_eq!(testing.counters.upstream_connects.get(), 2);
    });
}

#[test]
fn a_server_that_requires_http1_gets_it() {
    let origin = Origin::new(|number, served| match number {
        0 => {
            let mut peer = Peer2::new(served, 100);
            let (slot, _, _) = peer.request().expect("a request");
            peer.reset(slot, ErrorCode::HTTP_1_1_REQUIRED);
            while peer.next().is_some() {}
        }
        _ => while served.request().is_some() && served.send(HELLO) {},
    });
    run(async {
        let testing = origin.upstream2();
        for _ in 0..2 {
            assert_eq!(testing.fetch(get("/")).await, ok("hello"));
        }
        assert_eq!(testing.counters.upstream_connects.get(), 2);
    });
}

#[test]
fn a_request_with_upgrade_gets_a_connection_of_http1() {
    let origin = Origin::new(|number, served| match number {
        0 => Peer2::new(served, 100).serve(),
        _ => {
            let head = served.request().expect("a request");
            assert!(head.contains("upgrade: websocket"), "{head}");
            while served.send(HELLO) && served.request().is_some() {}
        }
    });
    run(async {
        let testing = origin.upstream2();
        assert_eq!(testing.fetch(get("/a")).await, ok("/a"));
        let fields = [("upgrade", "websocket"), ("connection", "upgrade")];
        let mut upgrade = request(Method::Get, "/", &fields);
        upgrade.head.wants_tunnel = true;
        assert_eq!(testing.fetch(upgrade).await, ok("hello"));
        assert_eq!(testing.idle(), 2);
        let again = testing.fetch(get("/b")).await;
        assert!(again == ok("/b") || again == ok("hello"), "{again:?}");
    });
}

#[test]
fn a_connection_carries_as_many_requests_as_configured() {
    let origin = Origin::http2(100, |_, peer| peer.serve());
    run(async {
        let mut options = Options::new(vec![origin.h2c()]);
        options.keepalive_requests = 2;
        let testing = Testing::new(options);
        for _ in 0..4 {
            assert_eq!(testing.fetch(get("/a")).await, ok("/a"));
        }
        assert_eq!(testing.counters.upstream_connects.get(), 2);
    });
}

#[test]
fn bytes_that_are_no_http2_fail_the_request() {
    let origin = Origin::new(|_, served| {
        served.read(24);
        served.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        served.await_close();
    });
    run(async {
        let reply = origin.upstream2().fetch(get("/")).await;
        assert_eq!(reply, Err(Reason::BadHead));
    });
}

#[test]
fn an_idle_connection_is_closed_when_the_server_announces_its_end() {
    let origin = Origin::http2(100, |_, peer| {
        let (slot, path, _) = peer.request().expect("a request");
        peer.head(slot, false, &[]);
        peer.data(slot, path.as_bytes(), true);
        peer.server.end_shutdown(&mut peer.out);
        peer.flush();
        while peer.next().is_some() {}
        let _ = peer.served.tell.send("closed".to_owned());
    });
    run(async move {
        let testing = origin.upstream2();
        assert_eq!(testing.fetch(get("/a")).await, ok("/a"));
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            match testing.idle() {
                0 => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
        origin.next_request();
        let closed = tokio::task::spawn_blocking(move || origin.next_request());
        assert_eq!(closed.await.expect("no panic"), "closed");
    });
}
