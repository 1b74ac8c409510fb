//! Tests with curl and nghttp, which speak HTTP/2 over TLS and in clear text.

use std::fs;
use std::path::Path;

use sluice_lab::offset::{offset_bytes, verify_offset};
use sluice_lab::origin::{Origin, Resource};

use crate::harness::{Edge, SOON, Setup, eventually, fresh, origin, serving};
use crate::tools::{BothListeners, installed, run, text};

const FILE: u64 = 3 << 20;

/// Starts an edge with two listeners: the first one with TLS, the second one in clear text for both protocols. Returns it
/// with the URLs of both, and writes the authority's certificate to `ca.pem`.
fn edge(origin: &Origin, folder: &Path) -> (Edge, [String; 2]) {
    let setup = Setup::cached(origin).limits("body = \"20MiB\"");
    let BothListeners { edge, urls, .. } = BothListeners::start(setup, folder);
    (edge, urls)
}

/// Asserts that clients have opened this many streams, which a worker may count after it has sent the responses.
fn assert_streams(edge: &Edge, count: u64) {
    let counted = || edge.counter("http2_streams");
    eventually("the streams are counted", || counted() >= count);
    assert_eq!(counted(), count);
}

/// Runs curl with HTTP/2, by ALPN over TLS and by prior knowledge in clear text.
fn curl(folder: &Path, url: &str, arguments: &[&str]) -> Vec<u8> {
    let version = match url.starts_with("https") {
        true => "--http2",
        false => "--http2-prior-knowledge",
    };
    let own = ["-sS", "--cacert", "ca.pem", version, url];
    run(folder, "curl", &[&own[..], arguments].concat()).stdout
}

#[test]
fn curl_downloads_over_http2() {
    if !installed(&["curl"]) {
        return;
    }
    let origin = serving("/file", fresh(FILE));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_edge, urls) = edge(&origin, folder.path());
    for url in urls {
        let url = format!("{url}/file");
        let told = ["-o", "out", "-w", "%{http_code} %{http_version}"];
        assert_eq!(curl(folder.path(), &url, &told), b"200 2");
        let whole = fs::read(folder.path().join("out")).expect("a file");
        assert_eq!(whole.len() as u64, FILE);
        verify_offset(0, &whole).expect("the bytes of the origin");
        let range = curl(folder.path(), &url, &["-r", "1000000-1000009"]);
        assert_eq!(range, offset_bytes(1_000_000, 10));
        let head = curl(folder.path(), &url, &["-I"]);
        let head = String::from_utf8(head).expect("text");
        assert!(head.starts_with("HTTP/2 200 \r\n"), "{head}");
        assert!(head.contains("content-length: 3145728\r\n"), "{head}");
    }
}

// In clear text, versions of curl before 8.0 cannot use a connection twice (https://github.com/curl/curl/pull/10643).
#[test]
fn curl_downloads_many_files_at_a_time() {
    if !installed(&["curl"]) {
        return;
    }
    let origin = origin();
    for number in 1..=100 {
        origin.serve(&format!("/file/{number}"), fresh(number * 1000));
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (edge, [url, _]) = edge(&origin, folder.path());
    let parallel = ["-Z", "--parallel-max", "50", "--fail", "-o", "#1"];
    curl(folder.path(), &format!("{url}/file/[1-100]"), &parallel);
    for number in 1..=100 {
        let content = fs::read(folder.path().join(number.to_string()));
        assert_eq!(content.expect("a file"), offset_bytes(0, number * 1000));
    }
    assert_streams(&edge, 100);
    // curl opens connections until it knows that the first one is of HTTP/2.
    let connections = edge.counter("http2_connections");
    assert!((1..=50).contains(&connections), "{connections}");
}

#[test]
fn curl_uploads_over_http2() {
    if !installed(&["curl"]) {
        return;
    }
    let origin = serving("/echo", Resource::echo());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_edge, urls) = edge(&origin, folder.path());
    let content = offset_bytes(0, 1_000_000);
    fs::write(folder.path().join("body"), &content).expect("a file");
    for url in urls {
        let url = format!("{url}/echo");
        for expect in ["Expect: 100-continue", "Expect:"] {
            let sent = ["-H", expect, "--data-binary", "@body"];
            assert_eq!(curl(folder.path(), &url, &sent), content, "{url} {expect}");
        }
    }
    let complete = |seen: &sluice_lab::origin::Seen| seen.body_complete && seen.body_is_offset;
    // The origin may note the end of a request after it has sent the last part back.
    let all_complete = origin.wait_for(|record| record.requests.iter().all(complete), SOON);
    assert!(all_complete && origin.requests().len() == 4);
}

#[test]
fn curl_gets_interim_responses_and_trailers() {
    if !installed(&["curl"]) {
        return;
    }
    let resource = Resource::bytes("text")
        .interim(103, &[("Link", "</a.css>; rel=preload")])
        .framing(sluice_lab::origin::Framing::Chunked(100))
        .trailer("X-Checksum", "1234");
    let origin = serving("/pass/x", resource);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_edge, urls) = edge(&origin, folder.path());
    for url in urls {
        let told = ["-H", "TE: trailers", "-D", "head"];
        let content = curl(folder.path(), &format!("{url}/pass/x"), &told);
        assert_eq!(content, b"text");
        let head = fs::read_to_string(folder.path().join("head")).expect("a file");
        let (interim, rest) = head.split_once("\r\n\r\n").expect("two heads");
        assert!(interim.starts_with("HTTP/2 103 "), "{head}");
        assert!(interim.contains("link: </a.css>; rel=preload"), "{head}");
        assert!(rest.starts_with("HTTP/2 200 "), "{head}");
        assert!(rest.contains("x-checksum: 1234"), "{head}");
    }
}

// A client that asks for an upgrade to h2c goes on with HTTP/1.1.
#[test]
fn curl_falls_back_to_http1() {
    if !installed(&["curl"]) {
        return;
    }
    let origin = serving("/x", fresh(10));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (_edge, [encrypted, clear]) = edge(&origin, folder.path());
    for (url, version) in [(encrypted, "--http1.1"), (clear, "--http2")] {
        let url = format!("{url}/x");
        let told = [
            "-sS",
            "--cacert",
            "ca.pem",
            version,
            "-o",
            "out",
            "-w",
            "%{http_version}",
        ];
        let told = run(folder.path(), "curl", &[&told[..], &[&url]].concat());
        assert_eq!(text(&told), "1.1");
    }
}

#[test]
fn nghttp_downloads_many_at_a_time() {
    if !installed(&["nghttp"]) {
        return;
    }
    let origin = serving("/file", fresh(FILE));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (edge, urls) = edge(&origin, folder.path());
    for url in &urls {
        // Each URL is requested ten times on one connection.
        let url = format!("{url}/file");
        let told = run(folder.path(), "nghttp", &["-ns", "-m", "10", "-y", &url]);
        let told = text(&told);
        let lines = told
            .lines()
            .filter(|line| line.trim_end().ends_with("/file"));
        let complete = lines.filter(|line| line.contains(" 200 "));
        assert_eq!(complete.count(), 10, "{told}");
    }
    assert_eq!(edge.counter("http2_connections"), 2);
    assert_streams(&edge, 20);
}

#[test]
fn h2load_sends_many_requests_at_a_time() {
    if !installed(&["h2load"]) {
        return;
    }
    let origin = serving("/x", fresh(20_000));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (edge, urls) = edge(&origin, folder.path());
    for url in &urls {
        let url = format!("{url}/x");
        // Five connections have up to 50 requests at a time each.
        let load = ["-n", "2000", "-c", "5", "-m", "50", &url];
        let told = text(&run(folder.path(), "h2load", &load));
        assert!(told.contains("Application protocol: h2"), "{told}");
        assert!(told.contains(" 2000 succeeded, 0 failed"), "{told}");
        assert!(told.contains("status codes: 2000 2xx"), "{told}");
    }
    assert_eq!(edge.counter("http2_connections"), 10);
    assert_streams(&edge, 4000);
    // The responses of `http` and of `https` are stored apart.
    assert_eq!(origin.read_record(|record| record.count("/x")), 2);
}
