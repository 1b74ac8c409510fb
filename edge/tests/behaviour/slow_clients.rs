//! Tests of deliberately slow clients, and of clients that never read. They are cut off at their
//! limits, and each uses a limited amount of memory.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use sluice_lab::client::Client;
use sluice_lab::origin::{Origin, Resource};

use crate::harness::{Edge, SOON, Setup, eventually, fresh, origin};

/// Time between two bytes of a slow client.
const BEAT: Duration = Duration::from_millis(20);

const LIMITS: &str = "header_timeout = \"8s\"\nbody_timeout = \"500ms\"\nsend_timeout = \"500ms\"\n\
                      keepalive_timeout = \"8s\"\nmin_rate = \"1KiB\"\nmin_rate_grace = \"1s\"";

/// An edge that serves files below `/files/`, and everything else from an origin.
struct Both {
    _folder: tempfile::TempDir,
    _origin: Origin,
    edge: Edge,
}

fn both(limits: &str) -> Both {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("small"), "hello").expect("written");
    let large = std::fs::File::create(folder.path().join("large")).expect("made");
    large.set_len(200 << 20).expect("a sparse file");
    let origin = origin();
    origin.serve("/small", fresh(5));
    origin.serve("/large", Resource::offset(200 << 20));
    origin.serve("/cached/small", fresh(5));
    origin.serve("/cached/large", fresh(200 << 20));
    for target in ["/put", "/cached/put"] {
        origin.serve(target, Resource::status(200));
    }
    let text = format!(
        "[server]\nworkers = 1\n[limits]\n{limits}\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[upstream.o]\nservers = [{:?}]\n[cache.main]\n\
         [[site]]\n[[site.route]]\npath = \"/files/*\"\n\
         [site.route.files]\nroot = {:?}\nstrip_prefix = \"/files\"\n\
         [[site.route]]\npath = \"/cached/*\"\nproxy = \"o\"\ncache = \"main\"\n\
         [[site.route]]\nproxy = \"o\"\n",
        origin.url(""),
        folder.path().display().to_string()
    );
    Both {
        edge: Setup::of_text(text).start(),
        _folder: folder,
        _origin: origin,
    }
}

/// Sends `begin`, then the bytes of `rest` one by one, again and again, while reading the response
/// slowly. Returns the received bytes once the edge has closed the connection.
fn dribble(mut client: Client, begin: &str, rest: &[u8]) -> String {
    client.send_raw(begin.as_bytes()).expect("sent");
    let end = Instant::now() + 2 * SOON;
    let (mut stream, mut got, mut few) = (client.stream(), Vec::new(), [0; 1024]);
    stream.set_read_timeout(Some(BEAT)).expect("an option");
    for byte in rest.iter().cycle() {
        assert!(Instant::now() < end, "not cut: {begin:?}");
        match stream.read(&mut few) {
            Ok(0) => break,
            Ok(n) => got.extend_from_slice(&few[..n]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
    }
    String::from_utf8_lossy(&got).into_owned()
}

// Clients send their requests slowly. The timeouts and the minimum rate end their connections on
// every kind of route.
#[test]
fn slow_senders_are_cut_off() {
    let both = both(LIMITS);
    let edge = &both.edge;
    let length = "Host: a\r\nContent-Length: 100000\r\n\r\n";
    let chunked = "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let kinds: &[(&str, String, &[u8], &str)] = &[
        (
            "slowloris",
            "GET /small HTTP/1.1\r\n".into(),
            b"a: b\r\n",
            "408",
        ),
        (
            "slowloris, files",
            "GET /files/small HTTP/1.1\r\n".into(),
            b"a: b\r\n",
            "408",
        ),
        (
            "body",
            format!("POST /put HTTP/1.1\r\n{length}"),
            b"x",
            "408",
        ),
        (
            "chunks",
            format!("POST /put HTTP/1.1\r\n{chunked}"),
            b"1\r\nx\r\n",
            "408",
        ),
        (
            "chunk extension",
            format!("POST /put HTTP/1.1\r\n{chunked}1"),
            b";a=b",
            "4",
        ),
        (
            "body to a file",
            format!("GET /files/small HTTP/1.1\r\n{length}"),
            b"x",
            "200",
        ),
        (
            "chunks to a file",
            format!("GET /files/small HTTP/1.1\r\n{chunked}"),
            b"1\r\nx\r\n",
            "200",
        ),
        (
            "refused body",
            format!("POST /files/small HTTP/1.1\r\n{length}"),
            b"x",
            "405",
        ),
        (
            "body to a cache",
            format!("POST /cached/put HTTP/1.1\r\n{length}"),
            b"x",
            "408",
        ),
    ];
    thread::scope(|scope| {
        for (kind, begin, rest, status) in kinds {
            scope.spawn(move || {
                let answer = dribble(edge.client(), begin, rest);
                let expected = format!("HTTP/1.1 {status}");
                assert!(answer.starts_with(&expected), "{kind}: {answer}");
            });
        }
    });
    eventually("all are gone", || edge.counter("connections_now") == 0);
}

// One client stops in the middle of its request line. Another one stops in the middle of a body
// that the edge does not need.
#[test]
fn silent_clients_are_cut_off() {
    let both = both(LIMITS);
    let edge = &both.edge;
    for begin in [
        "GET /sma",
        "GET /small HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
        "GET /files/small HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
        "GET /files/small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx",
        "POST /put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx",
    ] {
        let mut client = edge.client();
        client.send_raw(begin.as_bytes()).expect("sent");
        client.read_to_end().expect("an end");
    }
    eventually("all are gone", || edge.counter("connections_now") == 0);
}

// Clients read at 64 B/s or not at all. They are cut off whether the body is a file sent with
// sendfile, a cached response, or a response of an origin.
#[test]
fn slow_readers_are_cut_off() {
    let both = both(LIMITS);
    let edge = &both.edge;
    let ask = |target: &str| {
        let mut client = edge.slow_reader();
        client.send("GET", target, &[], b"").expect("sent");
        client
    };
    let targets = ["/files/large", "/large", "/cached/large"];
    let stalled = targets.map(ask);
    let mut slow = targets.map(ask);
    let began = Instant::now();
    while edge.counter("client_timeouts") < 6 {
        assert!(began.elapsed() < 2 * SOON, "not all are cut");
        thread::sleep(Duration::from_millis(200));
        for client in &mut slow {
            // The client reads 64 bytes per second. An error is ignored, because the edge may have
            // reset the connection.
            let _ = client.read_some(13);
        }
    }
    eventually("all are gone", || edge.counter("connections_now") == 0);
    assert_eq!(edge.counter("responses_cut"), 6);
    drop(stalled);
}

/// Returns the number of bytes by which the edge's memory grows while this many clients run `act`
/// and stay connected. Memory of the cache is not included: `memory` limits it, and the number of
/// blocks that are fetched depends on the size of the send buffers that the kernel chooses.
fn cost(edge: &Edge, clients: usize, act: impl Fn(&mut Client)) -> u64 {
    // The edge allocates some memory only once: 3 MB for the history, at its first reading in the
    // first second or later, and some for the first requests. It does so before the measurement
    // begins.
    edge.wait_for_history();
    for target in ["/small", "/files/small", "/cached/small"] {
        edge.get(target, &[]);
    }
    let before = edge.peak_memory();
    let stored_before = edge.cache_state("bytes");
    let mut held: Vec<Client> = Vec::new();
    for _ in 0..clients {
        let mut client = edge.slow_reader();
        act(&mut client);
        held.push(client);
    }
    edge.get("/small", &[]);
    let after = edge.peak_memory();
    let stored = edge.cache_state("bytes").saturating_sub(stored_before);
    drop(held);
    after.saturating_sub(before + stored)
}

/// Writes until the edge stops reading for a moment. Returns the number of written bytes.
fn push(client: &mut Client, bytes: &[u8]) -> usize {
    let mut stream = client.stream();
    let moment = Some(Duration::from_millis(100));
    stream.set_write_timeout(moment).expect("an option");
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(n @ 1..) => sent += n,
            _ => break,
        }
    }
    sent
}

/// Configuration lines with timeouts far longer than any test.
const PATIENT: &str =
    "header_timeout = \"1h\"\nbody_timeout = \"1h\"\nsend_timeout = \"1h\"\nmin_rate = 0";

// The client sends requests and does not read the responses. The edge then stops reading requests.
#[test]
fn pipelining_clients_use_little_memory() {
    let both = both(PATIENT);
    for target in ["/files/large", "/files/small", "/cached/large"] {
        let ask = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let asks = ask.repeat((4 << 20) / ask.len());
        let cost = cost(&both.edge, 20, |client| {
            push(client, asks.as_bytes());
        });
        assert!(cost < 4 << 20, "{target}: {cost} bytes");
    }
}

#[test]
fn clients_that_flood_headers_use_little_memory() {
    let both = both(PATIENT);
    let line = format!("x-flood: {}\r\n", "x".repeat(4000));
    let flood = format!("GET /small HTTP/1.1\r\nHost: a\r\n{}", line.repeat(1000));
    let cost_ = cost(&both.edge, 20, |client| {
        push(client, flood.as_bytes());
    });
    assert!(cost_ < 4 << 20, "{cost_} bytes");
    // Each client sends less than the limit of a head, and never ends the head.
    let begun = format!("GET /small HTTP/1.1\r\nHost: a\r\n{}", line.repeat(7));
    let cost_ = cost(&both.edge, 100, |client| {
        client.send_raw(begun.as_bytes()).expect("sent");
    });
    assert!(cost_ < 8 << 20, "{cost_} bytes");
}

// Each client sends a few bytes of a head and waits. Such a client must not use a whole buffer.
#[test]
fn incomplete_heads_use_little_memory() {
    let both = both(PATIENT);
    let cost = cost(&both.edge, 1000, |client| {
        client
            .send_raw(b"GET /small HTTP/1.1\r\nHost: a\r\n")
            .expect("sent");
    });
    assert!(cost < 4 << 20, "{cost} bytes");
}

#[test]
fn clients_that_never_read_use_little_memory() {
    let both = both(PATIENT);
    for target in ["/files/large", "/large"] {
        let cost = cost(&both.edge, 50, |client| {
            client.send("GET", target, &[], b"").expect("sent");
        });
        assert!(cost < 64 << 20, "{target}: {cost} bytes");
    }
}
