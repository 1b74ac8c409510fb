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
        let mut client = Http2Client {
            client: self.http2_socket(room),
            encoder: Encoder::new(4096),
            decoder: Decoder::new(),
        };
        let mut hello = PREFACE.to_vec();
        write::settings(&mut hello, std::iter::empty());
        write::settings_ack(&mut hello);
        client.client.send(hello).await;
        client.until("0 SETTINGS ack").await;
        client
    }
}

impl Http2Client {
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
        let mut window = 65_536;
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
        assert_eq!(client.until("1 ").await, ["1 HEADERS :status=100"]);
        client.data(1, b"x", true).await;
        assert!(client.response(1).await.ends_with("|POST / x"));
        client
            .request_with(3, false, "POST", "/refuse", &expect)
            .await;
        let found = client.until("3 RST_STREAM").await;
        assert_eq!(
            found,
            [
                "3 HEADERS :status=403 content-length=2",
                "3 DATA no end",
                "3 RST_STREAM 0"
            ]
        );
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
        assert!(client.rest().await.contains("without the preface"));
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
        assert_eq!(client.until("0 GOAWAY").await, ["0 GOAWAY 0 0"]);
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
