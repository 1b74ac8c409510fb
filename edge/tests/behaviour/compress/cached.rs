//! Tests of compressing cached responses.

use sluice_lab::client::Reply;
use sluice_lab::origin::{Framing, Latch, Modified, Origin, Resource, Tag};

use super::{decoded, etag, exercise, in_coding, number, text, varies};
use crate::harness::{Edge, SOON, Setup, assert_has_parameter, assert_hit, eventually, serving};

/// Starts an edge that compresses responses of its cached route. `keys` are further settings of
/// `compress`.
fn compressing(origin: &Origin, keys: &str) -> Edge {
    with(origin, "", keys)
}

/// Starts an edge that compresses responses of its cached route. `cache` has further settings of
/// the cache, and `keys` of `compress`.
fn with(origin: &Origin, cache: &str, keys: &str) -> Edge {
    let compress = format!("[site.route.compress]\n{keys}\n");
    Setup::cached(origin).cache(cache).tables(&compress).start()
}

fn css(content: Vec<u8>) -> Resource {
    Resource::bytes(content)
        .cache_control("max-age=3600")
        .header("Content-Type", "text/css")
        .modified(Modified::Fixed("Thu, 01 Jan 2026 00:00:00 GMT".to_owned()))
}

fn ask(edge: &Edge, fields: &[(&str, &str)]) -> Reply {
    edge.get("/x", &[&[("Accept-Encoding", "gzip")], fields].concat())
}

// Bodies of one page and of many pages, with a length or chunked, are served in each coding. The
// origin receives only one request.
#[test]
fn stored_responses_are_served_in_each_coding() {
    for length in [20_000, 80_000] {
        for framing in [Framing::Length, Framing::Chunked(7_000)] {
            let content = text(length);
            let origin = serving("/x", css(content.clone()).framing(framing));
            let edge = compressing(&origin, "");
            for coding in ["zstd", "br", "gzip"] {
                exercise(&edge, "/x", coding, &content);
                let reply = in_coding(&edge, "/x", coding, coding);
                assert_hit(&reply);
                assert!(reply.header("age").is_some());
            }
            assert_eq!(number(&edge, "made"), 3);
            assert_eq!(origin.record().count("/x"), 1);
        }
    }
}

/// Waits until this number of compressed forms has been made.
fn wait_made(edge: &Edge, count: u64) {
    eventually("it is compressed", || number(edge, "made") == count);
}

// Compression begins when the response of the first request is complete, so the second request gets
// the compressed form. The content may be one page, many pages, or several blocks fetched one by
// one, with a length or chunked.
#[test]
fn compression_begins_with_the_first_request() {
    for (length, framing, fill) in [
        (20_000, Framing::Length, "auto"),
        (80_000, Framing::Chunked(7_000), "auto"),
        (2_500_000, Framing::Length, "slice"),
        (2_500_000, Framing::Length, "lock"),
    ] {
        let content = text(length);
        let origin = serving("/x", css(content.clone()).framing(framing));
        let edge = with(&origin, &format!("fill = {fill:?}\nslice = \"1MiB\""), "");
        let first = ask(&edge, &[]);
        assert!(first.body == content && varies(&first), "{fill}");
        assert_eq!(first.header("content-encoding"), None);
        wait_made(&edge, 1);
        // The counter rises shortly before the form can be served.
        let second = in_coding(&edge, "/x", "gzip", "gzip");
        assert_hit(&second);
        assert!(decoded("gzip", &second.body) == content);
        assert_eq!(number(&edge, "made"), 1);
    }
}

// Each client of a running fetch has its preferred encoding made, also one that leaves early. A
// client that accepts no encoding has none made.
#[test]
fn each_client_of_a_fetch_has_its_encoding_made() {
    let content = text(50_000);
    let latch = Latch::at(10_000);
    let origin = serving("/x", css(content.clone()).hold_body(&latch));
    let edge = compressing(&origin, "");
    let send = |encodings: &str| {
        let mut client = edge.client();
        let fields = [("Accept-Encoding", encodings)];
        client.send("GET", "/x", &fields, b"").expect("sent");
        client
    };
    let mut leader = send("identity");
    assert!(latch.wait_held(1, SOON));
    let mut gzip = send("gzip");
    let mut gone = send("br");
    for client in [&mut leader, &mut gzip, &mut gone] {
        let head = client.read_head().expect("a head");
        assert_eq!((head.status, head.header("content-encoding")), (200, None));
    }
    drop(gone);
    latch.release();
    assert_eq!(gzip.read_some(content.len()).expect("all"), content);
    wait_made(&edge, 2);
    for coding in ["gzip", "br"] {
        in_coding(&edge, "/x", coding, coding);
    }
    assert_eq!(number(&edge, "made"), 2);
    assert_eq!(origin.record().count("/x"), 1);
}

// Content that is not stored as a whole is not compressed: a response that was cut, and one whose
// range alone was fetched.
#[test]
fn incomplete_content_is_not_compressed() {
    let content = text(2_500_000);
    let origin = serving("/x", css(content.clone()));
    let edge = with(&origin, "fill = \"slice\"\nslice = \"1MiB\"", "");
    let part = ask(&edge, &[("Range", "bytes=0-9")]);
    assert_eq!(part.body, content[..10]);
    assert_eq!(number(&edge, "made"), 0);
    assert!(ask(&edge, &[]).body == content);
    wait_made(&edge, 1);
}

// The object is stored in blocks, and compressed as a whole.
#[test]
fn an_object_in_blocks_is_compressed_as_a_whole() {
    let content = text(2_500_000);
    let origin = serving("/x", css(content.clone()));
    let edge = with(&origin, "fill = \"slice\"\nslice = \"1MiB\"", "");
    assert!(edge.get("/x", &[]).body == content);
    let reply = in_coding(&edge, "/x", "gzip", "gzip");
    assert!(decoded("gzip", &reply.body) == content);
}

// Once a purge is answered, neither the stored response nor any of its compressed forms is served.
#[test]
fn a_purge_covers_all_compressed_forms() {
    let origin = serving("/x", css(text(30_000)));
    let edge = compressing(&origin, "");
    for round in 1..4 {
        let content = text(30_000 + round);
        origin.serve("/x", css(content.clone()));
        let output = edge.command(&["purge", &edge.url("/x")]);
        assert!(output.status.success(), "{output:?}");
        let reply = ask(&edge, &[]);
        assert!(reply.body == content, "round {round}");
        let reply = in_coding(&edge, "/x", "gzip", "gzip");
        assert!(decoded("gzip", &reply.body) == content, "round {round}");
    }
}

// The origin confirms a response several times with 304. The compressed form stays valid, and is
// not made again.
#[test]
fn a_confirmed_response_is_compressed_once() {
    let content = text(30_000);
    let origin = serving("/x", css(content.clone()).cache_control("max-age=0"));
    let edge = compressing(&origin, "");
    let mut date = None;
    for _ in 0..5 {
        let reply = in_coding(&edge, "/x", "gzip", "gzip");
        assert!(decoded("gzip", &reply.body) == content);
        assert_has_parameter(&reply, "fwd-status=304");
        assert!(reply.header("date").is_some());
        date = reply.header("date").map(str::to_owned);
        // The entity tag of the compressed form is the same after the confirmation, so the client's
        // copy is valid.
        let same = ask(&edge, &[("If-None-Match", &etag(&reply))]);
        assert_eq!(
            (same.status, same.header("etag")),
            (304, reply.header("etag"))
        );
    }
    assert!(date.is_some());
    assert_eq!(number(&edge, "made"), 1);
    assert!(
        origin
            .record()
            .of("/x")
            .skip(1)
            .all(|seen| seen.header("if-none-match").is_some())
    );
}

#[test]
fn a_response_with_no_transform_is_not_compressed() {
    let content = text(30_000);
    for resource in [
        css(content.clone()).cache_control("max-age=3600, no-transform"),
        css(content.clone()).header("Content-Encoding", "x-other"),
        css(content.clone()).with_status(404),
        Resource::bytes(content.clone()).cache_control("max-age=3600"),
        css(content.clone()).header("Content-Type", "image/png"),
        css(text(1023)),
    ] {
        let origin = serving("/x", resource);
        let edge = compressing(&origin, "types = [\"text/css\"]\nmin = \"1KiB\"");
        let first = ask(&edge, &[]);
        for _ in 0..3 {
            let reply = ask(&edge, &[]);
            assert_hit(&reply);
            assert!(reply.body == first.body && !varies(&reply));
            let own = first.header("content-encoding");
            assert_eq!(reply.header("content-encoding"), own);
        }
        assert_eq!(number(&edge, "contents"), 0);
    }
    // A request with `no-transform` receives the response without compression.
    let origin = serving("/x", css(content.clone()));
    let edge = compressing(&origin, "");
    in_coding(&edge, "/x", "gzip", "gzip");
    let reply = ask(&edge, &[("Cache-Control", "no-transform")]);
    assert!(reply.body == content && varies(&reply));
}

// The origin sends a compressed response. It is served unchanged, with a single Vary header.
#[test]
fn a_response_compressed_by_the_origin_is_not_changed() {
    let zipped = b"\x1f\x8b\x08zipped".repeat(1000);
    let content = text(30_000);
    let resource = css(content.clone())
        .encoded("gzip", zipped.clone())
        .vary("Origin");
    let origin = serving("/x", resource);
    let edge = compressing(&origin, "");
    for _ in 0..3 {
        let reply = ask(&edge, &[]);
        assert!(reply.body == zipped && varies(&reply));
    }
    let reply = in_coding(&edge, "/x", "br", "br");
    assert!(decoded("br", &reply.body) == content);
    let asked = origin
        .record()
        .of("/x")
        .map(|seen| seen.header("accept-encoding").map(str::to_owned))
        .collect::<Vec<_>>();
    assert_eq!(asked, [Some("gzip".to_owned()), Some("br".to_owned())]);
}

// With `request_identity`, the edge fetches one uncompressed response for all clients. Each client
// receives it in the coding that it prefers.
#[test]
fn one_uncompressed_response_is_fetched_for_all_codings() {
    let content = text(30_000);
    let resource = css(content.clone()).encoded("gzip", b"zipped".to_vec());
    let origin = serving("/x", resource);
    let edge = compressing(&origin, "request_identity = true");
    for coding in ["gzip", "br", "zstd"] {
        let reply = in_coding(&edge, "/x", coding, coding);
        assert!(decoded(coding, &reply.body) == content);
    }
    let requests = origin.record();
    let mut asked = requests.of("/x").map(|seen| seen.header("accept-encoding"));
    assert_eq!(asked.next(), Some(Some("identity")));
    assert_eq!(asked.next(), None);
}

// Digest headers describe the uncompressed content, so they are removed from compressed responses.
// Other headers are kept.
#[test]
fn headers_of_a_compressed_response_describe_the_coding() {
    let content = text(30_000);
    let resource = css(content)
        .vary("Origin")
        .tag(Tag::Fixed("W/\"v1\"".to_owned()))
        .header("Digest", "sha-256=abc")
        .header("Repr-Digest", "sha-256=:abc:")
        .header("Content-Digest", "sha-256=:abc:")
        .header("Content-MD5", "abc")
        .header("X-Other", "1");
    let origin = serving("/x", resource);
    let edge = compressing(&origin, "");
    let plain = edge.get("/x", &[]);
    let coded = in_coding(&edge, "/x", "br", "br");
    assert_eq!(plain.header("vary"), Some("Origin, accept-encoding"));
    assert_eq!(coded.header("vary"), Some("Origin, accept-encoding"));
    assert_eq!(coded.header("etag"), Some("W/\"v1-br\""));
    for digest in ["digest", "repr-digest", "content-digest", "content-md5"] {
        assert!(plain.header(digest).is_some(), "{digest}");
        assert_eq!(coded.header(digest), None, "{digest}");
    }
    assert_eq!(coded.header("x-other"), Some("1"));
    assert_eq!(coded.header_all("content-encoding"), ["br"]);
    // The content has no strong validator. Ranges of it are ranges of the uncompressed content.
    let part = edge.get("/x", &[("Accept-Encoding", "br"), ("Range", "bytes=5-9")]);
    assert_eq!((part.status, part.header("content-encoding")), (206, None));
    assert!(part.body == plain.body[5..10]);
}

// A route without a cache has no stored content to compress. A warning reports that `compress` has
// no effect there.
#[test]
fn routes_without_a_cache_do_not_compress() {
    let content = text(30_000);
    let origin = serving("/pass/x", css(content.clone()));
    let setup = Setup::cached(&origin);
    let with = setup
        .text()
        .replacen("[[site]]\n", "[[site]]\ncompress = [\"gzip\"]\n", 1);
    let edge = Setup::of_text(with).start();
    for _ in 0..3 {
        let reply = edge.get("/pass/x", &[("Accept-Encoding", "gzip")]);
        assert!(reply.body == content && !varies(&reply));
    }
    assert_eq!(number(&edge, "contents"), 0);
    origin.serve("/y", css(content.clone()));
    let reply = in_coding(&edge, "/y", "gzip", "gzip");
    assert!(decoded("gzip", &reply.body) == content);
    eventually("it is counted", || edge.counter("coded_served") > 0);
}
