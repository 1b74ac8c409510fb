//! Tests of strict framing. A message whose framing two readers could understand differently is
//! refused, and never reaches an origin.

use sluice_lab::client::Closing;
use sluice_lab::origin::{Origin, Resource};

use crate::harness::setup::scheme;
use crate::harness::{Edge, SOON, Setup, origin};
use crate::malformed;

/// Starts an origin that responds to every request and records it, so that tests notice each
/// request that reaches an origin.
fn anything() -> Origin {
    let origin = origin();
    origin.serve_rest(Resource::bytes("reached").cache_control("max-age=3600"));
    origin
}

/// Sends a malformed request and then a correct one. Asserts that the response has this status, and
/// that the edge closes the connection.
fn refuse(edge: &Edge, name: &str, request: &[u8], status: u16) {
    let mut client = edge.client();
    client.send_raw(request).expect("sent");
    // An error is ignored, because the edge may have closed the connection already.
    let _ = client.send_raw(b"\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
    let reply = client
        .read_response()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(reply.status, status, "{name}");
    assert_eq!(reply.header("connection"), Some("close"), "{name}");
    assert!(!reply.truncated(), "{name}");
    let closing = client.wait_closed(SOON).expect("a socket");
    assert_eq!(closing, Closing::Fin, "{name}: one answer, then the end");
}

/// Asserts that no complete request has reached the origin.
fn assert_untouched(origin: &Origin, name: &str) {
    origin.read_record(|record| {
        for connection in &record.connections {
            assert!(!connection.malformed, "{name}: {connection:?}");
        }
        for seen in &record.requests {
            assert!(!seen.body_complete, "{name}: {seen:?}");
            assert_ne!(seen.target, "/smuggled", "{name}");
        }
    });
}

// At least 100 malformed requests receive their expected statuses. None of them reaches an origin
// in another form.
#[test]
fn malformed_requests_get_their_status_and_reach_no_origin() {
    let table = malformed::all();
    assert!(table.len() >= 100);
    let origin = anything();
    // One of the requests is the preface of HTTP/2.
    for setup in [Setup::cached(&origin), Setup::uncached(&origin)] {
        let edge = setup.with_http1().in_clear_text().start();
        for (name, request, status) in &table {
            refuse(&edge, name, request, *status);
            assert_untouched(&origin, name);
        }
        let refused = edge.counter("requests_refused") + edge.counter("responses_4xx");
        assert!(refused >= table.len() as u64, "{refused} were counted");
    }
}

// Each malformed request is sent byte by byte. It must be refused as if it had arrived at once.
#[test]
fn malformed_requests_in_pieces_are_refused_as_well() {
    let origin = anything();
    let edge = Setup::uncached(&origin).start();
    let short = |request: &[u8]| request.len() < 200;
    // With TLS, a URI with `https` is correct.
    let malformed_here = |name: &str| scheme() == "http" || name != malformed::OTHER_SCHEME;
    for (name, request, status) in malformed::all()
        .iter()
        .filter(|(name, request, _)| short(request) && malformed_here(name))
    {
        let mut client = edge.client();
        for byte in request {
            // The edge may refuse the request and close the connection before all bytes have been
            // sent.
            if client.send_raw(&[*byte]).is_err() {
                break;
            }
        }
        let _ = client.finish_sending();
        match client.read_response() {
            Ok(reply) => assert_eq!(reply.status, *status, "{name}"),
            // Some of the requests are incomplete at this point, and not yet malformed. The edge
            // closes their connections without a response.
            Err(error) => assert!(error.to_string().starts_with("closed"), "{name}: {error}"),
        }
        assert_untouched(&origin, name);
    }
}

// The body of each request contains a second request, which a reader with lax framing rules would
// find. The second request must not reach an origin.
#[test]
fn hidden_requests_are_not_smuggled() {
    let origin = anything();
    let edge = Setup::cached(&origin).start();
    let hidden = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let lines = [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: xchunked\r\nContent-Length: 4",
        "Transfer-Encoding : chunked\r\nContent-Length: 4",
        "Transfer-Encoding:\tchunked\r\nContent-Length: 4",
        "Transfer-Encoding: chunked\r\n\tfolded: x\r\nContent-Length: 4",
        "X: y\nTransfer-Encoding: chunked\r\nContent-Length: 4",
        "X: y\rTransfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 4\r\nContent-Length: 40",
        "Content-Length: 4, 40",
        "Content-Length: +4",
        "Content_Length: 4\r\nTransfer-Encoding: chunked\r\nContent-Length: 40",
        "Connection: Content-Length\r\nContent-Length: 4\r\nContent-Length: 4",
    ];
    for line in lines {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n0\r\n\r\n{hidden}");
        let answer = edge.send_raw(request.as_bytes());
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{line:?}: {answer}");
        assert!(
            answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 501 "),
            "{line:?}: {answer}"
        );
        assert_untouched(&origin, line);
    }
    assert!(origin.requests().is_empty());
}
