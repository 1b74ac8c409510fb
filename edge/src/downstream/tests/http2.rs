//! Tests of HTTP/2 connections as a client sees them.

use std::time::Duration;

use super::*;
use crate::http2::PREFACE;
use crate::http2::frame::{FrameHeader, HEADER_LENGTH, flag, kind};
use crate::http2::hpack::{Decoder, Encoder, Indexing};
use crate::http2::payload::Payload;
use crate::http2::write;

/// The fields of a request.
fn lines<'a>(method: &'a str, scheme: &'a str, path: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", method),
        (":scheme", scheme),
        (":path", path),
        (":authority", "a"),
    ]
}

/// An HTTP/2 client.
struct Http2Client {
    client: Client,
    encoder: Encoder,
    decoder: Decoder,
}

impl Bench {
    /// Connects a client and exchanges the first frames.
    async fn http2(&self) -> Http2Client {
        self.http2_with_room(1 << 20).await
    }

    /// Connects to a listener for HTTP/2.
    fn http2_socket(&self, room: usize) -> Client {
        let setup = ConnectionSetup {
            listener: 1,
            ..(*ConnectionSetup::plain()).clone()
        };
        self.client_of(room, &Arc::new(setup))
    }

    /// Waits until this many requests are in progress.
    async fn until_requests(&self, count: u64) {
        self.until(|bench| bench.counters.requests_now.get() == count)
            .await;
    }

    /// Waits until all connections are closed.
    async fn until_closed(&self) {
        self.until(|bench| bench.worker.connections() == 0).await;
    }

    async fn http2_with_room(&self, room: usize) -> Http2Client {
        Http2Client::begin(self.http2_socket(room)).await
    }

    /// Connects a client of a listener that serves half-closed connections.
    async fn http2_half_closing(&self) -> Http2Client {
        let setup = ConnectionSetup {
            listener: 1,
            half_close: true,
            ..(*ConnectionSetup::plain()).clone()
        };
        Http2Client::begin(self.client_of(1 << 20, &Arc::new(setup))).await
    }
}

impl Http2Client {
    /// Begins a connection without the first frames.
    fn new(client: Client) -> Http2Client {
        Http2Client {
            client,
            encoder: Encoder::new(4096),
            decoder: Decoder::new(),
        }
    }

    /// Exchanges the first frames.
    async fn begin(client: Client) -> Http2Client {
        let mut client = Http2Client::new(client);
        let mut hello = PREFACE.to_vec();
        write::settings(&mut hello, std::iter::empty());
        write::settings_ack(&mut hello);
        client.client.send(hello).await;
        client.until("0 SETTINGS ack").await;
        client
    }

    fn headers(&mut self, stream: u32, ends: bool, lines: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        let encoder = &mut self.encoder;
        write::headers(&mut out, stream, ends, 1 << 14, |out| {
            encoder.begin(out);
            for (name, value) in lines {
                encoder.field(out, name.as_bytes(), value.as_bytes(), Indexing::Field);
            }
        });
        out
    }

    async fn request(&mut self, stream: u32, ends: bool, method: &str, path: &str) {
        self.request_with(stream, ends, method, path, &[]).await;
    }

    /// Sends a request with further fields.
    async fn request_with(
        &mut self,
        stream: u32,
        ends: bool,
        method: &str,
        path: &str,
        further: &[(&str, &str)],
    ) {
        let lines = [&lines(method, "http", path)[..], further].concat();
        let bytes = self.headers(stream, ends, &lines);
        self.client.send(bytes).await;
    }

    async fn get(&mut self, stream: u32, path: &str) {
        self.request(stream, true, "GET", path).await;
    }

    async fn data(&mut self, stream: u32, content: &[u8], ends: bool) {
        let header = write::data_header(stream, content.len() as u32, ends);
        self.client.send([&header[..], content].concat()).await;
    }

    /// Reads a frame and describes it. Returns `None` at the end of the connection.
    async fn frame(&mut self) -> Option<String> {
        loop {
            if let Some((header, rest)) = self.client.got.split_first_chunk::<HEADER_LENGTH>() {
                let header = FrameHeader::parse(header);
                assert_eq!(header.check(1 << 14), Ok(()));
                if let Some(payload) = rest.get(..header.length as usize) {
                    let text = describe(&header, payload, &mut self.decoder);
                    self.client
                        .got
                        .drain(..HEADER_LENGTH + header.length as usize);
                    return Some(text);
                }
            }
            self.client.read().await.expect("no reset")?;
        }
    }

    /// Reads frames up to one that begins with this text, and returns all of them except WINDOW_UPDATE.
    async fn until(&mut self, start: &str) -> Vec<String> {
        let mut found = Vec::new();
        loop {
            let frame = self.frame().await;
            let frame = frame.unwrap_or_else(|| panic!("{start:?} did not come, but {found:?}"));
            let is_last = frame.starts_with(start);
            if !frame.contains("WINDOW_UPDATE") || is_last {
                found.push(frame);
            }
            if is_last {
                return found;
            }
        }
    }

    /// Reads the response on a stream, and returns its status and content, with an asterisk if it is reset.
    async fn response(&mut self, stream: u32) -> String {
        let mut all = String::new();
        loop {
            let frame = self.frame().await.expect("a response");
            let Some(text) = frame.strip_prefix(&format!("{stream} ")) else {
                continue;
            };
            let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
            let ends = rest.ends_with(" end");
            let rest = rest.strip_suffix(" end").unwrap_or(rest);
            match kind {
                "HEADERS" => all += &rest.replace(":status=", ""),
                "DATA" => all += &format!("|{rest}"),
                "RST_STREAM" => return all + "*",
                _ => {}
            }
            if ends {
                return all;
            }
        }
    }
}

fn describe(header: &FrameHeader, payload: &[u8], decoder: &mut Decoder) -> String {
    let end = match header.has(flag::END_STREAM) && header.kind <= kind::HEADERS {
        true => " end",
        false => "",
    };
    let text = match Payload::parse(header, payload).expect("a valid frame") {
        Payload::Data { content, .. } => format!("DATA {}", String::from_utf8_lossy(content)),
        Payload::Headers { block, .. } => {
            let mut text = "HEADERS".to_owned();
            let decoded = decoder.decode(block, 1 << 20, |field| {
                let name = String::from_utf8_lossy(field.name);
                if name != "date" && name != "content-type" {
                    text += &format!(" {name}={}", String::from_utf8_lossy(field.value));
                }
            });
            decoded.expect("a header block");
            text
        }
        Payload::Reset(code) => format!("RST_STREAM {}", code.0),
        Payload::Settings(_) => "SETTINGS".into(),
        Payload::SettingsAck => "SETTINGS ack".into(),
        Payload::GoAway { last_stream, code } => format!("GOAWAY {last_stream} {}", code.0),
        Payload::Ping(_) => "PING".into(),
        Payload::WindowUpdate(increment) => format!("WINDOW_UPDATE {increment}"),
        other => format!("{other:?}"),
    };
    format!("{} {text}{end}", header.stream)
}

#[test]
fn requests_are_answered_with_content_and_trailers() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/echo" => echo(request),
            "/trailers" => {
                let mut response = Response::new(200);
                let sum = [("X-Sum", "1")].into_iter().collect();
                response.body = frames(vec![data("ab"), Ok(Frame::Trailers(sum))]);
                Answer::Ready(Ok(response))
            }
            "/empty" => Answer::Ready(Ok(Response::new(204))),
            _ => ok("hello"),
        });
        let mut client = bench.http2().await;
        client.get(1, "/").await;
        let found = client.until("1 DATA").await;
        assert_eq!(
            found,
            ["1 HEADERS :status=200 content-length=5", "1 DATA hello end"]
        );
        client.get(3, "/empty").await;
        assert_eq!(client.until("3 ").await, ["3 HEADERS :status=204 end"]);
        client.request(5, true, "HEAD", "/").await;
        let found = client.until("5 ").await;
        assert_eq!(found, ["5 HEADERS :status=200 content-length=5 end"]);
        client.request(7, false, "POST", "/echo?x").await;
        client.data(7, b"con", false).await;
        client.data(7, b"tent", false).await;
        let trailers = client.headers(7, true, &[("x-sum", "2")]);
        client.client.send(trailers).await;
        let response = client.response(7).await;
        assert!(
            response.contains("|POST /echo?x content+") && response.contains("x-sum"),
            "{response}"
        );
        let te = [("te", "trailers")];
        client.request_with(9, true, "GET", "/trailers", &te).await;
        let found = client.until("9 HEADERS x-sum").await;
        assert_eq!(
            found,
            [
                "9 HEADERS :status=200",
                "9 DATA ab",
                "9 HEADERS x-sum=1 end"
            ]
        );
        assert_eq!(bench.counters.requests.get(), 5);
        assert_eq!(bench.counters.requests_now.get(), 0);
        assert_eq!(bench.counters.responses_cut.get(), 0);
    });
}

#[test]
fn a_stream_that_waits_holds_up_no_other_one() {
    on_worker(async {
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let wait = std::cell::RefCell::new(Some(wait));
        let bench = Bench::new(move |request| match request.head.path() {
            "/slow" => {
                let wait = wait.borrow_mut().take().expect("requested once");
                Answer::later(async move {
                    let _ = wait.await;
                    Ok(Response::text(200, "slow"))
                })
            }
            _ => ok(vec![b'x'; 40_000]),
        });
        let mut client = bench.http2().await;
        client.get(1, "/slow").await;
        client.get(3, "/").await;
        assert_eq!(client.response(3).await.matches('x').count(), 40_000);
        // The window of the connection is exhausted by the second one.
        client.get(5, "/").await;
        let mut got = 0;
        while got < 65_535 - 40_000 {
            let frame = client.frame().await.expect("content");
            got += frame.matches('x').count();
        }
        assert_eq!(got, 65_535 - 40_000);
        go.send(()).expect("still waiting");
        client.until("1 HEADERS").await;
        let mut updates = Vec::new();
        write::window_update(&mut updates, 0, 100_000);
        client.client.send(updates).await;
        let found = client.until("5 DATA").await.concat();
        assert!(
            found.contains("slow"),
            "the stream of the first request comes first"
        );
    });
}

#[test]
fn a_client_that_reads_no_responses_gets_no_more_while_many_are_stalled() {
    on_worker(async {
        let bench = Bench::new(|_| ok("hello"));
        let mut client = bench.http2().await;
        let mut closed = Vec::new();
        write::settings(&mut closed, [(4, 0)].into_iter());
        client.client.send(closed).await;
        for number in 0..20 {
            client.get(2 * number + 1, "/").await;
        }
        let stalled = &bench.counters.http2_streams_stalled_now;
        bench.until(|_| stalled.get() == 20).await;
        // Those of other connections.
        stalled.add(20_000);
        client.get(41, "/").await;
        assert_eq!(client.response(41).await, "*");
        assert_eq!(bench.counters.http2_streams_refused.get(), 1);
        let mut other = bench.http2().await;
        other.get(1, "/").await;
        assert!(other.response(1).await.ends_with("hello"));
        let mut opened = Vec::new();
        for number in 0..20 {
            write::window_update(&mut opened, 2 * number + 1, 1000);
        }
        client.client.send(opened).await;
        client.get(43, "/").await;
        client.client.send(window_update(43, 5)).await;
        assert!(client.response(43).await.ends_with("hello"));
        stalled.sub(20_000);
        drop(client);
        bench.until(|_| stalled.get() == 0).await;
    });
}

fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    let mut out = Vec::new();
    write::window_update(&mut out, stream, increment);
    out
}

#[test]
fn refused_requests_get_a_response_and_malformed_ones_a_reset() {
    on_worker(async {
        let bench = Bench::new(|_| ok("x"));
        let mut client = bench.http2().await;
        for (stream, path, status) in [
            (1, "/../a", "400"),
            (3, "/a b", "400"),
            (5, "/%zz", "400"),
            (7, "/#a", "400"),
        ] {
            client.get(stream, path).await;
            let response = client.response(stream).await;
            assert!(
                response.trim_start().starts_with(status),
                "{path} {response}"
            );
        }
        client.request(9, true, "CONNECT", "/").await;
        assert_eq!(client.response(9).await, "*");
        let https = lines("GET", "https", "/");
        let bytes = client.headers(11, true, &https);
        client.client.send(bytes).await;
        assert!(client.response(11).await.contains("400"));
        let large = "y".repeat(40_000);
        let lines = [&https[..], &[("x", &large)]].concat();
        let bytes = client.headers(13, true, &lines);
        client.client.send(bytes).await;
        assert!(client.response(13).await.contains("431"));
        client.get(15, "/").await;
        assert_eq!(client.response(15).await, "200 content-length=1|x");
        assert_eq!(
            bench.counters.requests.get(),
            1,
            "no handler has seen the others"
        );
    });
}

#[test]
fn an_upload_is_read_as_its_handler_wants_it() {
    on_worker(async {
        let bench = Bench::with(
            Options {
                body: 1 << 20,
                ..Options::default()
            },
            |mut request| {
                Answer::later(async move {
                    let mut sum = 0;
                    while let Some(frame) = request.body.frame().await {
                        if let Frame::Data(bytes) = frame? {
                            sum += bytes.len();
                        }
                    }
                    Ok(Response::text(200, format!("{sum}")))
                })
            },
        );
        let mut client = bench.http2().await;
        client.request(1, false, "POST", "/").await;
        let mut window = 16_384;
        for n in 0..40 {
            while window < 16_000 {
                let frame = client
                    .until("1 WINDOW_UPDATE")
                    .await
                    .pop()
                    .expect("a frame");
                window += frame
                    .rsplit(' ')
                    .next()
                    .and_then(|n| n.parse().ok())
                    .unwrap_or(0);
            }
            client.data(1, &[b'x'; 16_000], n == 39).await;
            window -= 16_000;
        }
        assert_eq!(client.response(1).await, "200 content-length=6|640000");
        client.request(3, false, "POST", "/").await;
        let length = [("content-length", "1048577")];
        client.request_with(5, false, "POST", "/", &length).await;
        assert!(client.response(5).await.contains("413"));
    });
}

#[test]
fn a_client_that_expects_100_gets_it_when_the_content_is_wanted() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/refuse" => Answer::Ready(Ok(Response::text(403, "no"))),
            _ => echo(request),
        });
        let mut client = bench.http2().await;
        let expect = [("expect", "100-continue")];
        client.request_with(1, false, "POST", "/", &expect).await;
        assert_eq!(client.until("1 H").await, ["1 HEADERS :status=100"]);
        client.data(1, b"x", true).await;
        assert!(client.response(1).await.ends_with("|POST / x"));
        client
            .request_with(3, false, "POST", "/refuse", &expect)
            .await;
        let found = client.until("3 DATA").await;
        let expected = ["3 HEADERS :status=403 content-length=2", "3 DATA no end"];
        assert_eq!(found, expected);
        bench.advance_s(3);
        assert_eq!(client.until("3 ").await, ["3 RST_STREAM 0"]);
    });
}

#[test]
fn a_reset_ends_the_exchange_and_nothing_else() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/never" => Answer::later(std::future::pending()),
            _ => ok("x"),
        });
        let mut client = bench.http2().await;
        client.get(1, "/never").await;
        bench.until_requests(1).await;
        let mut reset = Vec::new();
        write::reset(&mut reset, 1, crate::http2::violation::ErrorCode::CANCEL);
        client.client.send(reset).await;
        bench.until_requests(0).await;
        assert_eq!(bench.counters.responses_cut.get(), 1);
        client.get(3, "/").await;
        assert_eq!(client.response(3).await, "200 content-length=1|x");
        // A client that leaves ends all of its exchanges.
        client.get(5, "/never").await;
        bench.until_requests(1).await;
        drop(client);
        bench.until_requests(0).await;
        bench.until_closed().await;
    });
}

#[test]
fn truncated_content_and_panics_are_visible() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/cut" => {
                let mut response = Response::new(200);
                let cut = Err(crate::reason::Reason::BodyCut.into());
                response.body = frames(vec![data("abc"), cut]);
                Answer::Ready(Ok(response))
            }
            "/panic" => panic!("on purpose"),
            _ => ok("x"),
        });
        let mut client = bench.http2().await;
        client.get(1, "/cut").await;
        assert_eq!(client.response(1).await, "200|abc*");
        client.get(3, "/panic").await;
        assert!(client.response(3).await.starts_with("500"));
        client.get(5, "/").await;
        assert_eq!(client.response(5).await, "200 content-length=1|x");
        assert_eq!(bench.counters.responses_cut.get(), 1);
    });
}

#[test]
fn a_violation_ends_the_connection_with_its_code() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/never" => Answer::later(std::future::pending()),
            _ => ok("x"),
        });
        let mut client = bench.http2().await;
        client.get(1, "/never").await;
        client.data(3, b"x", true).await;
        assert_eq!(client.until("0 GOAWAY").await, ["0 GOAWAY 1 1"]);
        assert_eq!(client.frame().await, None);
        assert_eq!(bench.counters.requests_now.get(), 0);
        let mut client = bench.http2_socket(1 << 20);
        client.send(GET).await;
        assert!(client.rest().await.starts_with("HTTP/1.1 505 "));
    });
}

#[test]
fn a_drain_finishes_requests_and_closes_idle_connections() {
    on_worker(async {
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let wait = std::cell::RefCell::new(Some(wait));
        let bench = Bench::new(move |_| {
            let wait = wait.borrow_mut().take().expect("requested once");
            Answer::later(async move {
                let _ = wait.await;
                Ok(Response::text(200, "slow"))
            })
        });
        let (mut idle, mut busy) = (bench.http2().await, bench.http2().await);
        busy.get(1, "/").await;
        bench.until_requests(1).await;
        let mut drained = std::pin::pin!(bench.worker.drain(Duration::from_secs(30)));
        let begun = poll_fn(|cx| Poll::Ready(drained.as_mut().poll(cx)));
        assert!(begun.await.is_pending());
        for client in [&mut idle, &mut busy] {
            let found = client.until("0 PING").await;
            assert_eq!(found, ["0 GOAWAY 2147483647 0", "0 PING"]);
            let mut pong = Vec::new();
            write::pong(&mut pong, *b"shutdown");
            client.client.send(pong).await;
        }
        assert_eq!(idle.until("0 GOAWAY").await, ["0 GOAWAY 0 0"]);
        assert_eq!(idle.frame().await, None);
        assert_eq!(busy.until("0 GOAWAY").await, ["0 GOAWAY 1 0"]);
        go.send(()).expect("still waiting");
        assert_eq!(busy.response(1).await, "200 content-length=4|slow");
        assert_eq!(busy.frame().await, None);
        drop((idle, busy));
        drained.await;
    });
}

#[test]
fn stalled_streams_and_idle_connections_end() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/large" => ok(vec![b'x'; 200_000]),
            "/echo" => echo(request),
            _ => ok("x"),
        });
        let mut client = bench.http2().await;
        // The client never opens its windows.
        client.get(1, "/large").await;
        let mut got = 0;
        while got < 65_535 {
            got += client.frame().await.expect("content").matches('x').count();
        }
        bench.advance_s(60);
        client.until("1 RST_STREAM").await;
        let mut update = Vec::new();
        write::window_update(&mut update, 0, 100_000);
        client.client.send(update).await;
        // The client never sends its content.
        client.request(3, false, "POST", "/echo").await;
        bench.until_requests(1).await;
        bench.advance_s(60);
        let found = client.until("3 HEADERS").await.concat();
        assert!(found.contains("408"), "{found}");
        // The client sends no further request.
        bench.advance_s(3);
        client.until("3 RST_STREAM").await;
        bench.advance_s(60);
        client.until("0 GOAWAY 3 0").await;
        assert_eq!(client.frame().await, None);
    });
}

#[test]
fn a_client_that_reads_nothing_makes_no_queue() {
    on_worker(async {
        let bench = Bench::new(|_| ok("x"));
        let mut client = bench.http2_with_room(1000).await;
        let mut ping = Vec::new();
        for _ in 0..60 {
            write::ping(&mut ping, *b"12345678");
        }
        client.client.send(ping).await;
        for _ in 0..60 {
            assert!(
                client
                    .frame()
                    .await
                    .is_some_and(|frame| frame.contains("Pong"))
            );
        }
        client.get(1, "/").await;
        assert_eq!(client.response(1).await, "200 content-length=1|x");
    });
}

#[test]
fn input_that_came_while_the_client_did_not_read_is_handled_once_it_reads() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/large" => ok(vec![b'x'; 190_000]),
            _ => ok("y"),
        });
        let mut client = bench.http2_with_room(100_000).await;
        let mut windows = Vec::new();
        write::settings(&mut windows, [(4, 1 << 20)].into_iter());
        write::window_update(&mut windows, 0, 1 << 20);
        client.client.send(windows).await;
        client.get(1, "/large").await;
        bench
            .until(|bench| bench.counters.client_bytes_out.get() > 100_000)
            .await;
        client.get(3, "/").await;
        tokio::task::yield_now().await;
        let found = client.until("3 DATA").await;
        let content: usize = found.iter().map(|frame| frame.matches('x').count()).sum();
        assert_eq!(content, 190_000);
    });
}

#[test]
fn each_request_begins_the_idle_time_anew() {
    on_worker(async {
        let bench = Bench::new(|_| ok("x"));
        let mut client = bench.http2().await;
        for number in 0..5 {
            client.get(2 * number + 1, "/").await;
            assert!(client.response(2 * number + 1).await.ends_with('x'));
            bench.advance_s(40);
        }
        bench.advance_s(20);
        client.until("0 GOAWAY 9 0").await;
        assert_eq!(client.frame().await, None);
    });
}

#[test]
fn a_client_that_reads_nothing_is_cut() {
    on_worker(async {
        let bench = Bench::new(|_| ok(vec![b'x'; 50_000]));
        let mut client = bench.http2_with_room(1000).await;
        client.get(1, "/").await;
        bench
            .until(|bench| bench.counters.client_bytes_out.get() > 1000)
            .await;
        bench.advance_s(60);
        bench.until_closed().await;
        assert_eq!(bench.counters.responses_cut.get(), 1);
        // The same holds for a client that is told to go away.
        let mut client = bench.http2_with_room(1000).await;
        client.get(1, "/").await;
        let connections = bench.worker.connections();
        client.data(9, b"x", true).await;
        tokio::task::yield_now().await;
        assert_eq!(connections, 1);
        bench.advance_s(60);
        bench.until_closed().await;
    });
}

#[test]
fn a_frame_that_does_not_end_closes_the_connection() {
    on_worker(async {
        let bench = Bench::new(|_| ok("x"));
        let mut client = bench.http2().await;
        let header = FrameHeader {
            length: 5,
            kind: kind::HEADERS,
            flags: 0,
            stream: 1,
        };
        client.client.send(header.to_bytes()).await;
        tokio::task::yield_now().await;
        bench.advance_s(11);
        assert_eq!(client.until("0 GOAWAY").await, ["0 GOAWAY 0 11"]);
        assert_eq!(client.frame().await, None);
        drop(client);
        // The same holds for a client that does not begin.
        let mut silent = bench.http2_socket(1 << 20);
        silent.send(&PREFACE[..10]).await;
        tokio::task::yield_now().await;
        bench.advance_s(11);
        bench.until_closed().await;
    });
}

/// A receipt that counts.
struct Received(std::sync::atomic::AtomicU64);

impl crate::handler::Receipt for Received {
    fn received(&self, bytes: u64) {
        self.0
            .fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn received_content_is_reported() {
    on_worker(async {
        let receipt = Arc::new(Received(0.into()));
        let bench = Bench::new({
            let receipt = receipt.clone();
            move |_| {
                let mut response = Response::new(200);
                response.body = Body::Bytes(vec![b'x'; 20_000].into());
                response.receipt = Some(receipt.clone());
                Answer::Ready(Ok(response))
            }
        });
        let mut client = bench.http2().await;
        client.get(1, "/").await;
        client.get(3, "/").await;
        client.response(1).await;
        client.until("3 DATA").await;
        drop(client);
        bench.until_closed().await;
        let received = receipt.0.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(received, 40_000);
    });
}

/// A handler that begins to read content and never goes on.
fn hold(mut request: Request) -> Answer {
    Answer::later(async move {
        let _first = request.body.frame().await;
        std::future::pending::<()>().await;
        drop(request);
        Ok(Response::new(204))
    })
}

#[test]
fn unread_content_counts_as_memory_of_requests() {
    on_worker(async {
        let options = Options {
            // One client gets half of it.
            request_memory: 256 << 10,
            ..Options::default()
        };
        let bench = Bench::with(options, hold);
        let memory = || bench.counters.request_memory_now.get();
        let mut client = bench.http2().await;
        client.request(1, false, "POST", "/").await;
        client.data(1, b"x", false).await;
        client.until("1 WINDOW_UPDATE").await;
        let waiting = memory();
        client.data(1, &[b'x'; 16_000], false).await;
        client.data(1, &[b'x'; 16_000], false).await;
        bench.until(|_| memory() > waiting).await;
        assert_eq!(memory(), waiting + (64 << 10));
        client.request(3, false, "POST", "/").await;
        client.data(3, b"x", false).await;
        client.until("3 WINDOW_UPDATE").await;
        assert_eq!(bench.counters.requests_over_memory.get(), 0);
        client.data(3, &[b'x'; 16_000], false).await;
        client.data(3, &[b'x'; 16_000], false).await;
        let found = client.until("3 HEADERS").await.concat();
        assert!(found.contains(":status=503"), "{found}");
        assert_eq!(bench.counters.requests_over_memory.get(), 1);
        drop(client);
        bench.until_closed().await;
        assert_eq!(memory(), 0);
    });
}

#[test]
fn the_window_of_an_upload_grows_when_it_is_read() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/echo" => echo(request),
            _ => Answer::later(async move {
                std::future::pending::<()>().await;
                drop(request);
                Ok(Response::new(204))
            }),
        });
        let mut client = bench.http2().await;
        client.request(1, false, "POST", "/never").await;
        client.request(3, false, "POST", "/echo").await;
        // The reader waits, so the window grows before any content arrives.
        let frame = client.frame().await;
        assert_eq!(frame.as_deref(), Some("3 WINDOW_UPDATE 49151"));
        client.data(3, b"x", true).await;
        assert!(client.response(3).await.ends_with("x"));
        client.data(1, &[b'x'; 16_384], false).await;
        client.data(1, b"x", false).await;
        let found = client.until("1 RST_STREAM").await;
        assert_eq!(found, ["1 RST_STREAM 3"], "nobody reads it");
    });
}

#[test]
fn a_header_block_that_does_not_end_closes_a_connection_with_streams() {
    on_worker(async {
        let bench = Bench::new(|_| Answer::later(std::future::pending()));
        let mut client = bench.http2().await;
        client.get(1, "/").await;
        // Content may take as long as its own timeouts permit.
        client.request(3, false, "POST", "/").await;
        let header = write::data_header(3, 5, false);
        client.client.send([&header[..], b"ab"].concat()).await;
        bench.until_requests(2).await;
        bench.advance_s(11);
        tokio::time::sleep(2 * crate::downstream::deadlines::TICK).await;
        let mut ping = b"cde".to_vec();
        write::ping(&mut ping, *b"12345678");
        client.client.send(ping).await;
        assert!(client.until("0 Pong").await.len() == 1);
        let mut block = client.headers(5, true, &lines("GET", "http", "/"));
        block[4] &= !flag::END_HEADERS;
        client.client.send(block).await;
        tokio::task::yield_now().await;
        bench.advance_s(6);
        let mut part = client.headers(5, false, &[("a", "b")]);
        (part[3], part[4]) = (kind::CONTINUATION, 0);
        client.client.send(part).await;
        tokio::task::yield_now().await;
        bench.advance_s(5);
        assert_eq!(client.until("0 GOAWAY").await, ["0 GOAWAY 3 11"]);
        assert_eq!(client.frame().await, None);
        assert_eq!(bench.counters.requests_now.get(), 0);
        assert_eq!(bench.counters.client_timeouts.get(), 1);
    });
}

#[test]
fn settings_that_are_not_acknowledged_close_the_connection() {
    on_worker(async {
        let bench = Bench::new(|_| Answer::later(std::future::pending()));
        for with_request in [false, true] {
            let mut client = Http2Client::new(bench.http2_socket(1 << 20));
            let mut hello = PREFACE.to_vec();
            write::settings(&mut hello, std::iter::empty());
            client.client.send(hello).await;
            client.until("0 SETTINGS ack").await;
            let mut last = 0;
            if with_request {
                client.get(1, "/").await;
                bench.until_requests(1).await;
                last = 1;
            }
            bench.advance_s(11);
            let found = client.until("0 GOAWAY").await;
            assert_eq!(found, [format!("0 GOAWAY {last} 4")]);
            assert_eq!(client.frame().await, None);
        }
        // An acknowledgement leaves the time for the first request.
        let mut client = bench.http2().await;
        bench.advance_s(30);
        let mut ping = Vec::new();
        write::ping(&mut ping, *b"12345678");
        client.client.send(ping).await;
        assert!(client.until("0 Pong").await.len() == 1);
    });
}

#[test]
fn a_stream_has_sent_its_content_when_it_is_written() {
    on_worker(async {
        let options = Options {
            min_rate: 0,
            ..Options::default()
        };
        let bench = Bench::with(options, |_| ok(vec![b'x'; 200_000]));
        let mut client = bench.http2_with_room(1000).await;
        // The window of 65,535 bytes is queued at once.
        client.get(1, "/").await;
        let mut got = 0;
        while got < 30_000 {
            got += client.frame().await.expect("content").matches('x').count();
        }
        bench.advance_s(8);
        tokio::time::sleep(2 * crate::downstream::deadlines::TICK).await;
        while got < 65_535 {
            got += client.frame().await.expect("content").matches('x').count();
        }
        bench.advance_s(8);
        tokio::time::sleep(2 * crate::downstream::deadlines::TICK).await;
        let mut ping = Vec::new();
        write::ping(&mut ping, *b"12345678");
        client.client.send(ping).await;
        let found = client.until("0 Pong").await;
        assert_eq!(found.len(), 1, "the last byte was written 8 s ago");
        bench.advance_s(3);
        assert_eq!(client.until("1 RST").await, ["1 RST_STREAM 2"]);
    });
}

#[test]
fn a_client_that_has_closed_its_direction_gets_running_responses() {
    on_worker(async {
        let go = std::rc::Rc::new(Notify::new());
        let bench = Bench::new({
            let go = go.clone();
            move |request| match request.head.path() {
                "/echo" => echo(request),
                "/large" => ok(vec![b'x'; 100_000]),
                _ => {
                    let go = go.clone();
                    Answer::later(async move {
                        go.notified().await;
                        Ok(Response::text(200, "slow"))
                    })
                }
            }
        });
        let mut client = bench.http2_half_closing().await;
        client.get(1, "/slow").await;
        client.request(3, false, "POST", "/echo").await;
        bench.until_requests(2).await;
        client.client.socket.shutdown_write();
        // The request that was not complete is over.
        bench.until_requests(1).await;
        go.notify_one();
        assert_eq!(client.response(1).await, "200 content-length=4|slow");
        assert_eq!(client.frame().await, None);
        bench.until_closed().await;
        // The client cannot open its window any more.
        let mut client = bench.http2_half_closing().await;
        client.get(1, "/large").await;
        client.client.socket.shutdown_write();
        assert!(client.response(1).await.ends_with('*'));
        assert_eq!(client.frame().await, None);
        bench.until_closed().await;
        // Other listeners take such a client for gone.
        let cut = bench.counters.responses_cut.get();
        let mut client = bench.http2().await;
        client.get(1, "/slow").await;
        bench.until_requests(1).await;
        client.client.socket.shutdown_write();
        bench.until_closed().await;
        assert_eq!(bench.counters.responses_cut.get(), cut + 1);
    });
}

#[test]
fn a_response_before_the_end_of_its_request_is_not_lost() {
    on_worker(async {
        let bench = Bench::new(|request| match request.head.path() {
            "/refuse" => Answer::Ready(Ok(Response::text(403, "no"))),
            _ => ok("x"),
        });
        let mut client = bench.http2().await;
        for (stream, ends) in [(1, true), (3, false)] {
            client.request(stream, false, "POST", "/refuse").await;
            let response = client.response(stream).await;
            assert_eq!(response, "403 content-length=2|no");
            // The rest is received as before.
            for _ in 0..10 {
                client.data(stream, &[b'x'; 16_000], false).await;
                let found = client.until(&format!("{stream} ")).await;
                assert!(found.concat().contains("WINDOW_UPDATE"), "{found:?}");
            }
            match ends {
                true => client.data(stream, b"x", true).await,
                false => {
                    bench.advance_s(3);
                    let found = client.until(&format!("{stream} RST_STREAM")).await;
                    assert_eq!(found, [format!("{stream} RST_STREAM 0")]);
                }
            }
        }
        client.get(5, "/").await;
        assert_eq!(client.until("5 HEADERS").await.len(), 1);
    });
}

/// The fields of an extended CONNECT.
fn websocket<'a>(path: &'a str, protocol: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut fields = lines("CONNECT", "http", path);
    fields.push((":protocol", protocol));
    fields.push(("sec-websocket-version", "13"));
    fields
}

#[test]
fn an_extended_connect_becomes_a_tunnel() {
    on_worker(async {
        let bench = Bench::new(|request| {
            let head = &request.head;
            assert_eq!(head.method, crate::http::Method::Get);
            assert!(head.wants_tunnel);
            assert_eq!(head.fields.get("upgrade"), Some(&b"websocket"[..]));
            let key = head.fields.get("sec-websocket-key");
            assert_eq!(key.map(<[u8]>::len), Some(24));
            let status = match head.path() {
                "/200" => 200,
                "/403" => 403,
                _ => 101,
            };
            let mut response = Response::new(status);
            if status != 101 {
                return Answer::Ready(Ok(response));
            }
            response.fields.append("upgrade", "websocket");
            response.fields.append("sec-websocket-accept", "x");
            response.fields.append("sec-websocket-protocol", "chat");
            let (near, far) = tokio::io::duplex(64);
            response.tunnel = Some(Box::new(near));
            let cuts = request.head.path() == "/cut";
            tokio::task::spawn_local(async move {
                let (mut read, mut write) = tokio::io::split(far);
                if cuts {
                    let _ = tokio::io::AsyncReadExt::read_u8(&mut read).await;
                    return;
                }
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = tokio::io::AsyncWriteExt::write_all(&mut write, b"bye").await;
            });
            Answer::Ready(Ok(response))
        });
        let mut client = bench.http2().await;
        let connect = client.headers(1, false, &websocket("/", "websocket"));
        client.client.send(connect).await;
        let found = client.until("1 HEADERS").await;
        assert_eq!(found, ["1 HEADERS :status=200 sec-websocket-protocol=chat"]);
        client.data(1, b"hello", false).await;
        assert_eq!(client.until("1 DATA").await, ["1 DATA hello"]);
        // More than the windows of this side and the buffers in between.
        let mut got = 0;
        for _ in 0..3 {
            client.data(1, &[b'z'; 16_000], false).await;
            while got < 16_000 {
                got += client.frame().await.expect("content").matches('z').count();
            }
            got -= 16_000;
        }
        // A tunnel that is in use may be silent for longer than an upload.
        bench.advance_s(30);
        client.data(1, b"end", true).await;
        assert_eq!(client.response(1).await.replace('|', ""), "endbye");
        for (stream, path, protocol, expected) in [
            (3, "/200", "websocket", "502"),
            (5, "/403", "websocket", "403"),
            (7, "/", "connect-udp", "501"),
        ] {
            let connect = client.headers(stream, false, &websocket(path, protocol));
            client.client.send(connect).await;
            let response = client.response(stream).await;
            assert!(
                response.trim_start().starts_with(expected),
                "{path} {response}"
            );
        }
        // The end of the other side ends the stream, and a silent tunnel ends.
        let connect = client.headers(9, false, &websocket("/cut", "websocket"));
        client.client.send(connect).await;
        client.data(9, b"x", false).await;
        let found = client.until("9 DATA").await;
        assert_eq!(found.last().map(String::as_str), Some("9 DATA  end"));
        let cut = bench.counters.responses_cut.get();
        let connect = client.headers(11, false, &websocket("/", "websocket"));
        client.client.send(connect).await;
        client.until("11 HEADERS").await;
        bench.advance_s(24 * 3600);
        client.until("11 RST_STREAM").await;
        assert_eq!(bench.counters.responses_cut.get(), cut + 1);
        assert_eq!(bench.counters.requests_now.get(), 0);
    });
}
