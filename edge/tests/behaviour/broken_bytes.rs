//! Tests of responses that break at one byte, for each way of breaking and many bytes.
//!
//! A client receives the whole response, an error, or a body that is visibly cut. With another
//! server, it receives the whole response wherever failover promises that. No server executes a
//! request twice that may not be repeated.

use std::io::{Read, Write};
use std::net::TcpStream;

use sluice_lab::client::Reply;
use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Break, Ending, Fault, Framing, Origin, Resource};

use crate::failover::first_then;
use crate::harness::{Edge, Setup, fresh, origin};

/// Environment variable with which every byte is tried instead of a sample.
pub const EVERY_BYTE: &str = "SLUICE_EVERY_BYTE";
/// Number of bytes of a response's head or body that are tried otherwise.
const SAMPLE: usize = 6;
/// Size of the responses' content.
const SIZE: u64 = 400;

const FRAMINGS: [Framing; 2] = [Framing::Length, Framing::Chunked(150)];

/// Starts an origin that serves `/ok` correctly.
fn server() -> Origin {
    let origin = origin();
    origin.serve("/ok", fresh(SIZE));
    origin.serve("/pass/ok", fresh(SIZE));
    origin
}

/// Returns the lengths of head and whole of the origin's response.
fn lengths(resource: Resource) -> (usize, usize) {
    let origin = origin();
    origin.serve_rest(resource);
    let mut stream = TcpStream::connect(origin.addr()).expect("a connection");
    origin.set_rules(|rules| rules.max_requests_silent = Some(1));
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("a response");
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    (end.expect("a head") + 4, response.len())
}

/// Returns the bytes to try among `from..to`: all, or some that begin at another one for each
/// `seed`.
fn positions(from: usize, to: usize, seed: usize) -> Vec<usize> {
    if std::env::var_os(EVERY_BYTE).is_some() {
        return (from..to).collect();
    }
    let step = ((to - from) / SAMPLE).max(1);
    let mut some: Vec<usize> = (from + seed % step..to).step_by(step).collect();
    some.extend([from, to - 1]);
    some
}

/// Asserts that a response to a request with this method, for content of `size` bytes, is right, an
/// error, or visibly cut. Returns whether it is whole.
pub fn check(reply: &Reply, method: &str, size: u64, case: &str) -> bool {
    match reply.status {
        200 if method == "HEAD" => {
            assert!(reply.body.is_empty(), "{case}");
            true
        }
        200 => {
            verify_offset(0, &reply.body).unwrap_or_else(|wrong| panic!("{case}: {wrong}"));
            let is_all = reply.body.len() as u64 == size;
            assert!(is_all || reply.truncated(), "{case}: it looks complete");
            is_all && !reply.truncated()
        }
        status => {
            assert!([502, 503, 504].contains(&status), "{case}: {status}");
            false
        }
    }
}

/// The requests that servers received for a path.
fn count(servers: &[&Origin], path: &str) -> usize {
    let of = |server: &&Origin| server.read_record(|record| record.count(path));
    servers.iter().map(of).sum()
}

/// Sends correct requests to the first server, so that it stays in use.
fn calm(edge: &Edge) {
    for _ in 0..3 {
        edge.get("/pass/ok", &[]);
    }
}

/// Tries one break of the response to each method, with and without another server.
fn try_breaks(
    how: Break,
    framing: Framing,
    part: fn((usize, usize)) -> (usize, usize),
    keys: &str,
) {
    let resource = || fresh(SIZE).framing(framing);
    let (head, _) = lengths(resource());
    let (from, to) = part(lengths(resource()));
    let (bad, good) = (server(), server());
    good.serve_rest(resource());
    let pair = first_then(
        &bad,
        &good,
        &format!("{keys}\nretry = {{ budget = 1, total = \"1h\" }}"),
    );
    let alone = Setup::cached(&bad).workers(1).upstream(keys).start();
    for (seed, method) in ["GET", "HEAD", "POST", "PATCH"].into_iter().enumerate() {
        for byte in positions(from, to, seed * 7) {
            for (edge, prefix) in [(&alone, "/pass/a"), (&pair, "/pass/b"), (&pair, "/c")] {
                let path = format!("{prefix}/{method}/{byte}");
                let case = format!("{how:?} at {byte} of {path}, {framing:?}");
                let fault = Fault::At {
                    byte: byte as u64,
                    how,
                };
                bad.serve(&path, resource().fault(fault));
                let content = if method == "POST" {
                    &b"content"[..]
                } else {
                    b""
                };
                let is_whole = check(&edge.ask(method, &path, &[], content), method, SIZE, &case);
                let safe = matches!(method, "GET" | "HEAD");
                if !safe {
                    assert!(count(&[&bad, &good], &path) <= 1, "{case}: executed twice");
                }
                let has_other = prefix != "/pass/a" && safe && matches!(how, Break::End(_));
                let is_promised = byte < head || framing == Framing::Length;
                assert!(is_whole || !has_other || !is_promised, "{case}");
                calm(edge);
            }
        }
    }
}

fn head((head, _): (usize, usize)) -> (usize, usize) {
    (0, head)
}

fn body((head, whole): (usize, usize)) -> (usize, usize) {
    (head, whole)
}

#[test]
fn a_response_that_ends_in_its_head() {
    for framing in FRAMINGS {
        try_breaks(Break::End(Ending::Fin), framing, head, "");
    }
}

#[test]
fn a_response_that_ends_in_its_body() {
    for framing in FRAMINGS {
        try_breaks(Break::End(Ending::Fin), framing, body, "");
    }
}

#[test]
fn a_response_that_is_reset_in_its_head() {
    for framing in FRAMINGS {
        try_breaks(Break::End(Ending::Reset), framing, head, "");
    }
}

#[test]
fn a_response_that_is_reset_in_its_body() {
    for framing in FRAMINGS {
        try_breaks(Break::End(Ending::Reset), framing, body, "");
    }
}

#[test]
fn a_response_that_stops_in_its_head_or_body() {
    for framing in FRAMINGS {
        try_breaks(Break::Stall, framing, head, "read_timeout = \"20ms\"");
        try_breaks(Break::Stall, framing, body, "read_timeout = \"20ms\"");
    }
}

#[test]
fn a_response_with_a_nul_in_its_head() {
    for framing in FRAMINGS {
        try_breaks(Break::Nul, framing, head, "");
    }
}
