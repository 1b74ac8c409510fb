//! Tests of long polling and of streams of events on routes without a cache: a response whose head comes late, and
//! whose body comes in pieces, reaches the client piece by piece.

use sluice_lab::client::Client;
use sluice_lab::origin::{Framing, Latch, Origin, Resource};

use crate::harness::{Edge, SOON, Setup, eventually, serving};

const PIECE: usize = 100;
const PIECES: usize = 5;

/// The lines of routes that buffer nothing, responses, requests, and both.
const ROUTES: [&str; 4] = [
    "",
    "response_buffering = true\n",
    "request_buffering = true\n",
    "request_buffering = true\nresponse_buffering = true\n",
];

fn edge(origin: &Origin, lines: &str) -> Edge {
    let text = Setup::uncached(origin).text();
    let route = "[[site.route]]\n";
    Setup::of_text(text.replace(route, &format!("{route}{lines}"))).start()
}

/// Reads the next piece, after which the origin waits.
fn read_piece(client: &mut Client, chunked: bool) {
    let mut piece = Vec::new();
    while piece.len() < PIECE {
        // The edge may send a piece in several chunks.
        let length = match chunked {
            true => chunk_length(client),
            false => PIECE,
        };
        piece.extend(client.read_some(length).expect("a piece"));
        if chunked {
            assert_eq!(client.read_some(2).expect("its end"), b"\r\n");
        }
    }
    assert_eq!(piece.len(), PIECE);
}

fn chunk_length(client: &mut Client) -> usize {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.extend(client.read_some(1).expect("the length of a chunk"));
    }
    let digits = std::str::from_utf8(line.trim_ascii()).expect("ASCII");
    usize::from_str_radix(digits, 16).expect("a length")
}

#[test]
fn a_late_response_in_pieces_arrives_piece_by_piece() {
    for lines in ROUTES {
        for framing in [Framing::Length, Framing::Chunked(PIECE), Framing::Close] {
            for method in ["GET", "POST"] {
                let (head, body) = (Latch::closed(), Latch::closed());
                let resource = Resource::offset((PIECE * PIECES) as u64)
                    .framing(framing)
                    .hold_head(&head)
                    .hold_body(&body);
                let origin = serving("/poll", resource);
                let edge = edge(&origin, lines);
                let mut client = edge.client();
                let content: &[u8] = if method == "POST" { b"content" } else { b"" };
                client.send(method, "/poll", &[], content).expect("sent");
                assert!(head.wait_held(1, SOON), "the origin has the request");
                head.release();
                assert_eq!(client.read_head().expect("a head").status, 200);
                let chunked = framing != Framing::Length && !client.is_http2();
                for n in 1..=PIECES {
                    body.advance_to((n * PIECE) as u64);
                    read_piece(&mut client, chunked);
                }
            }
        }
    }
}

#[test]
fn a_client_that_leaves_while_it_polls_ends_the_request() {
    for lines in ROUTES {
        let head = Latch::closed();
        let origin = serving("/poll", Resource::offset(10).hold_head(&head));
        let edge = edge(&origin, lines);
        let mut client = edge.client();
        client.send("GET", "/poll", &[], b"").expect("sent");
        assert!(head.wait_held(1, SOON), "the origin has the request");
        client.reset().expect("reset");
        let closed = origin.wait_for(|record| record.is_left(), SOON);
        assert!(closed, "the request to the origin ends");
        eventually("no memory is held", || edge.buffers("bytes") == 0);
    }
}
