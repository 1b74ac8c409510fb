//! Tests of compression. Each content is compressed once, in the background, so that no client
//! waits for it.

mod cached;
mod files;

use std::io::Read;

use sluice_lab::client::Reply;

use crate::harness::{Edge, eventually};

/// Returns compressible text of which no two parts are equal.
fn text(length: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(length + 32);
    let mut line = 0_u32;
    while text.len() < length {
        let word = line.wrapping_mul(2_654_435_761) >> 8;
        text.extend_from_slice(format!("line {line}: {word:x}\n").as_bytes());
        line += 1;
    }
    text.truncate(length);
    text
}

/// Decodes the bytes of a response with this content coding.
fn decoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let read = match coding {
        "gzip" => flate2::read::GzDecoder::new(bytes).read_to_end(&mut out),
        "br" => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out),
        "zstd" => zstd::Decoder::new(bytes).and_then(|mut decoder| decoder.read_to_end(&mut out)),
        other => panic!("no such coding: {other:?}"),
    };
    read.expect("it can be decoded");
    out
}

/// Repeats a request until the response has this coding. All responses before must have the
/// complete uncompressed content.
fn in_coding(edge: &Edge, target: &str, accepted: &str, coding: &str) -> Reply {
    let mut coded = None;
    eventually("it is made", || {
        let reply = edge.get(target, &[("Accept-Encoding", accepted)]);
        assert_eq!((reply.status, varies(&reply)), (200, true), "{target}");
        if reply.header("content-encoding") == Some(coding) {
            coded = Some(reply);
        }
        coded.is_some()
    });
    coded.expect("it came")
}

/// Whether Vary contains Accept-Encoding exactly once.
fn varies(reply: &Reply) -> bool {
    let lines = reply.header_all("vary");
    let members = lines.iter().flat_map(|line| line.split(','));
    let said = members.filter(|member| member.trim().eq_ignore_ascii_case("accept-encoding"));
    let count = said.count();
    assert!(count <= 1, "{lines:?}");
    count == 1
}

fn etag(reply: &Reply) -> String {
    reply.header("etag").expect("a validator").to_owned()
}

/// Returns a number from the status of `compress`.
fn number(edge: &Edge, name: &str) -> u64 {
    let state = &edge.status()["compress"];
    state[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {state}"))
}

/// Checks the rules for any resource with a coding: ranges, conditional requests and HEAD refer to
/// the bytes of the compressed form.
fn exercise(edge: &Edge, target: &str, coding: &str, plain: &[u8]) {
    let accept = ("Accept-Encoding", coding);
    let whole = in_coding(edge, target, coding, coding);
    assert!(decoded(coding, &whole.body) == plain, "{coding}");
    let length = whole.body.len();
    assert!(length < plain.len() * 9 / 10);
    let as_it_is = edge.get(target, &[]);
    assert!(as_it_is.body == plain && varies(&as_it_is));
    assert_eq!(as_it_is.header("content-encoding"), None);
    let (tag, other) = (etag(&whole), etag(&as_it_is));
    let marked = format!("{}-{coding}-", other.trim_end_matches('"'));
    assert!(tag.starts_with(&marked), "{tag} of {other}");

    let head = edge.ask("HEAD", target, &[accept], b"");
    for name in [
        "content-encoding",
        "content-length",
        "etag",
        "vary",
        "content-type",
    ] {
        assert_eq!(head.header(name), whole.header(name), "{name}");
    }
    let ask = |fields: &[(&str, &str)]| edge.get(target, &[&[accept], fields].concat());
    ranges(ask, &whole, &as_it_is);
    for (name, value, status) in [
        ("If-None-Match", &tag, 304),
        ("If-None-Match", &other, 304),
        ("If-None-Match", &"\"x\"".to_owned(), 200),
        ("If-Match", &tag, 200),
        ("If-Match", &"\"x\"".to_owned(), 412),
    ] {
        let reply = ask(&[(name, value)]);
        assert_eq!(reply.status, status, "{name}: {value}");
        assert!(varies(&reply), "{name}: {value}");
        if status == 304 {
            assert_eq!(reply.header("etag"), Some(&**value));
        }
    }
    // The request has the entity tag of the compressed form, but does not accept the coding. The
    // response is the uncompressed content, not a 304.
    let reply = edge.get(target, &[("If-None-Match", &tag)]);
    assert!(reply.status == 200 && reply.body == plain);
}

fn ranges(ask: impl Fn(&[(&str, &str)]) -> Reply, whole: &Reply, plain: &Reply) {
    let length = whole.body.len();
    let (tag, other) = (etag(whole), etag(plain));
    let last = format!("bytes=-{}", length / 2);
    for (range, first) in [("bytes=10-", 10), (&*last, length - length / 2)] {
        for condition in [None, Some(&tag)] {
            let condition = condition.map(|tag| ("If-Range", &**tag));
            let fields: Vec<_> = [("Range", range)].into_iter().chain(condition).collect();
            let part = ask(&fields);
            assert_eq!(part.status, 206, "{fields:?}");
            assert!(part.body == whole.body[first..]);
            let told = format!("bytes {first}-{}/{length}", length - 1);
            assert_eq!(part.header("content-range"), Some(&*told));
            for name in ["content-encoding", "etag", "vary"] {
                assert_eq!(part.header(name), whole.header(name), "{name}");
            }
        }
    }
    let beyond = ask(&[("Range", &format!("bytes={length}-"))]);
    assert_eq!(beyond.status, 416);
    let several = ask(&[("Range", "bytes=0-1,20-29")]);
    assert_eq!(several.status, 206);
    let has = |part: &[u8]| {
        several
            .body
            .windows(part.len())
            .any(|window| window == part)
    };
    assert!(has(&whole.body[20..30]));
    // The client has a part of the uncompressed content, and If-Range has its entity tag. The
    // response is the next part of the uncompressed content.
    let part = ask(&[("Range", "bytes=100-199"), ("If-Range", &other)]);
    assert_eq!((part.status, part.header("content-encoding")), (206, None));
    assert!(part.body == plain.body[100..200]);
    // If-Range has an unknown entity tag or a date, which is the same for all codings. The response
    // is the complete content.
    let date = whole.header("last-modified").expect("a date");
    for unknown in ["\"x\"", date] {
        let reply = ask(&[("Range", "bytes=100-199"), ("If-Range", unknown)]);
        assert_eq!(reply.status, 200, "{unknown}");
        assert!(reply.body == whole.body);
    }
}
