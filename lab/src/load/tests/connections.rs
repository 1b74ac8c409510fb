//! Tests of connections: those that never end, those that can't be made, and their share of the event loop.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::responses::server;
use super::*;
use crate::certificates::Authority;
use crate::front::{self, TlsFront};
use crate::raw_http2::Frames;

fn trusting(name: &str) -> Option<LoadTls> {
    Some(LoadTls {
        authority: Path::new("").to_owned(),
        name: name.to_owned(),
        group: None,
        resumed: false,
    })
}

/// Time after which an endless answer ends nevertheless, so that a client that only reads fails and does not hang.
const ENDLESS: Duration = Duration::from_secs(15);

/// Sends the beginning of an answer, and then these bytes until the client closes the connection. The request for
/// `/small` has a short answer. The bytes are small parts, which the client takes longer to process than the server to
/// send, so that the client always finds more of them.
fn endless(begin: Vec<u8>, rest: Vec<u8>) -> SocketAddr {
    server(move |mut stream| {
        let mut request = [0; 4096];
        loop {
            let count = stream.read(&mut request).unwrap_or(0);
            if count == 0 {
                return;
            }
            if request[..count].starts_with(b"GET /small") {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
                continue;
            }
            let _ = stream.write_all(&begin);
            let began = Instant::now();
            while began.elapsed() < ENDLESS && stream.write_all(&rest).is_ok() {}
            return;
        }
    })
}

#[test]
fn an_endless_body_does_not_occupy_the_event_loop() {
    let begin = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let target = endless(begin.to_vec(), b"1\r\nx\r\n".repeat(200_000));
    let certificate = Authority::new("one").server(&["127.0.0.1"]);
    let config = front::config(&certificate, None);
    let front = TlsFront::start(target, config).expect("a free port");
    for tls in [None, trusting("127.0.0.1")] {
        let target = tls.as_ref().map_or(target, |_| front.address());
        let mut paths = vec!["/small".to_owned(); 50];
        paths.insert(0, "/endless".to_owned());
        let result = run(LoadPlan {
            paths,
            tls,
            timeout_seconds: 6.0,
            ..plan(target, "/", 2, 51)
        })
        .expect("a result");
        assert_eq!((result.requests, result.bytes), (50, 50), "{result:?}");
        assert_eq!((result.errors.timeout, result.errors.total()), (1, 1));
        // The other connection had its responses long before the endless one was given up.
        assert!(result.latency.max_us < 5_500_000.0, "{:?}", result.latency);
    }
}

#[test]
fn endless_http2_frames_do_not_occupy_the_event_loop() {
    let mut begin = Frames::new();
    begin.settings(&[]).header_block(1, &[0x88], false);
    let mut rest = Frames::new();
    for _ in 0..100_000 {
        rest.data(1, b"x", false);
    }
    let target = endless(begin.bytes().to_vec(), rest.bytes().to_vec());
    let live = Live::new().expect("bounds");
    let result = run_on_threads(
        &LoadPlan {
            timeout_seconds: 1.0,
            ..http2_plan(target, "/", 1, 1)
        },
        1,
        false,
        &live,
    )
    .expect("a result");
    assert_eq!((result.errors.timeout, result.errors.total()), (1, 1));
}

/// Whether these bytes have the head of HEADERS for stream 3, which end headers and stream.
fn has_second_request(bytes: &[u8]) -> bool {
    bytes.windows(6).any(|head| head == [1, 5, 0, 0, 0, 3])
}

#[test]
fn http2_requests_are_sent_while_a_body_arrives() {
    let mut rest = Frames::new();
    for _ in 0..100_000 {
        rest.data(1, b"x", false);
    }
    let rest = rest.bytes().to_vec();
    let target = server(move |mut stream| {
        let is_asked = Arc::new(AtomicBool::new(false));
        let seen = is_asked.clone();
        let mut reader = stream.try_clone().expect("a descriptor");
        thread::spawn(move || {
            let (mut all, mut part) = (Vec::new(), [0; 4096]);
            while let Ok(count @ 1..) = reader.read(&mut part) {
                all.extend_from_slice(&part[..count]);
                if has_second_request(&all) {
                    seen.store(true, Ordering::Release);
                }
            }
        });
        let mut begin = Frames::new();
        begin.settings(&[]).header_block(1, &[0x88], false);
        let _ = stream.write_all(begin.bytes());
        let began = Instant::now();
        while !is_asked.load(Ordering::Acquire) {
            if began.elapsed() > ENDLESS || stream.write_all(&rest).is_err() {
                return;
            }
        }
        let mut end = Frames::new();
        end.data(1, b"", true).header_block(3, &[0x88], true);
        // The reader keeps the connection open.
        let _ = stream.write_all(end.bytes());
    });
    // The second request is due while the body of the first response arrives.
    let result = run(LoadPlan {
        rate: Some(10.0),
        ..http2_plan(target, "/", 1, 2)
    })
    .expect("a result");
    assert_eq!((result.requests, result.errors.total()), (2, 0));
}

#[test]
fn decrypted_bytes_are_read_without_further_events() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    let certificate = Authority::new("one").server(&["127.0.0.1"]);
    let config = front::config(&certificate, None);
    let one = TlsFront::start(origin.addr(), config.clone()).expect("a free port");
    let two = TlsFront::start(origin.addr(), front::with_http2(&config)).expect("a free port");
    // Bodies have many more records than are read at once.
    for (streams, front) in [(None, &one), (Some(3), &two)] {
        let result = run(LoadPlan {
            streams,
            tls: trusting("127.0.0.1"),
            verify: true,
            expect_length: Some(5_000_000),
            ..plan(front.address(), "/offset/5000000", 2, 12)
        })
        .expect("a result");
        assert_eq!((result.requests, result.errors.total()), (12, 0));
        assert!(result.latency.max_us < 15_000_000.0, "{result:?}");
    }
}

#[test]
fn a_connection_of_http2_rests_with_all_its_streams() {
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = accepted.clone();
    // Each handshake fails.
    let target = server(move |stream| {
        counted.fetch_add(1, Ordering::Relaxed);
        drop(stream);
    });
    let result = run(LoadPlan {
        tls: trusting("127.0.0.1"),
        streams: Some(100),
        rate: Some(100.0),
        requests: None,
        seconds: Some(0.5),
        timeout_seconds: 600.0,
        consecutive_errors_max: None,
        ..plan(target, "/", 1, 0)
    })
    .expect("a result");
    assert_eq!((result.errors.tls, result.errors.total()), (50, 50));
    // Without a rest, there is an attempt for each request.
    let accepted = accepted.load(Ordering::Relaxed);
    assert!((1..=12).contains(&accepted), "{accepted} attempts");
}

#[test]
fn the_first_connect_error_is_named() {
    let origin = Origin::start(OriginOptions::default()).expect("a free port");
    origin.refuse().expect("the listener stops");
    for streams in [None, Some(1)] {
        for tls in [None, trusting("127.0.0.1")] {
            let plan = LoadPlan {
                streams,
                tls,
                consecutive_errors_max: None,
                ..plan(origin.addr(), "/", 1, 2)
            };
            let result = run(plan.clone()).expect("a result");
            assert_eq!((result.errors.connect, result.errors.total()), (2, 2));
            assert_eq!(result.connects, 0);
            let error = result.first_connect_error.expect("an error");
            assert_eq!(error.text, "Connection refused");
            assert_eq!(error.errno, rustix::io::Errno::CONNREFUSED.raw_os_error());
            let error = run(LoadPlan {
                consecutive_errors_max: Some(1),
                ..plan
            })
            .expect_err("only errors");
            assert!(error.to_string().contains("Connection refused"), "{error}");
        }
    }
    let good = run(plan(floor(1).addr(), "/", 1, 1)).expect("a result");
    assert_eq!(good.first_connect_error, None);
}
