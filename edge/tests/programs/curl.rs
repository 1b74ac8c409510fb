//! Tests with curl: ranges, resumed downloads, uploads, several URLs on one connection, and
//! absolute-form targets.

use std::fs;

use sluice_lab::offset::{offset_bytes, verify_offset};
use sluice_lab::origin::Resource;

use crate::harness::{Setup, fresh, serving};
use crate::tools::{assert_sent_once, installed, run, text};

const FILE: u64 = 10 << 20;

#[test]
fn curl_downloads_ranges_of_a_cold_file() {
    if !installed(&["curl"]) {
        return;
    }
    let origin = serving("/file", fresh(FILE).vary("Accept-Encoding"));
    let edge = Setup::cached(&origin).start();
    let url = format!("http://{}/file", edge.http);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let range = run(
        folder.path(),
        "curl",
        &["-sS", "--http1.1", "-r", "5000000-5000009", &url],
    );
    assert_eq!(text(&range), "005000000\n");
    let several = run(
        folder.path(),
        "curl",
        &["-sSi", "-r", "0-9,5000000-5000009", &url],
    );
    let several = text(&several);
    assert!(several.contains("multipart/byteranges"), "{several}");
    assert!(several.contains("005000000\n"), "{several}");
    let head = text(&run(folder.path(), "curl", &["-sSI", &url]));
    assert!(head.contains("content-length: 10485760\r\n"), "{head}");
    assert_sent_once(&origin, &edge, FILE);
}

#[test]
fn curl_resumes_a_download() {
    if !installed(&["curl"]) {
        return;
    }
    let origin = serving("/file", fresh(FILE));
    let edge = Setup::cached(&origin).start();
    let url = format!("http://{}/file", edge.http);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let part = folder.path().join("part");
    fs::write(&part, offset_bytes(0, 3_000_001)).expect("a file");
    run(
        folder.path(),
        "curl",
        &["-sSf", "-C", "-", "-o", "part", &url],
    );
    let whole = fs::read(&part).expect("the file");
    assert_eq!(whole.len() as u64, FILE);
    verify_offset(0, &whole).expect("the right bytes");
    assert_sent_once(&origin, &edge, FILE);
}

#[test]
fn curl_uploads_a_body() {
    if !installed(&["curl"]) {
        return;
    }
    let origin = serving("/upload", Resource::status(201));
    let edge = Setup::cached(&origin).limits("body = \"20MiB\"").start();
    let url = format!("http://{}/upload", edge.http);
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join("body"), offset_bytes(0, 5_000_000)).expect("a file");
    // curl sends `Expect: 100-continue` with a large body.
    for extra in ["X-Same: 1", "Transfer-Encoding: chunked"] {
        let arguments = [
            "-sS",
            "-w",
            "%{http_code}",
            "-o",
            "answer",
            "-H",
            extra,
            "-T",
            "body",
            &url,
        ];
        assert_eq!(text(&run(folder.path(), "curl", &arguments)), "201");
    }
    let seen = origin.requests();
    assert!(
        seen.iter()
            .all(|one| one.body_complete && one.body_is_offset)
    );
    assert!(seen.iter().all(|one| one.body_length == 5_000_000));
    let chunked = |one: &&sluice_lab::origin::Seen| one.header("transfer-encoding").is_some();
    assert_eq!((seen.len(), seen.iter().filter(chunked).count()), (2, 1));
}

#[test]
fn curl_reuses_its_connection() {
    if !installed(&["curl"]) {
        return;
    }
    let origin = serving("/file", fresh(1000));
    let edge = Setup::cached(&origin).start();
    let url = format!("http://{}/file", edge.http);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let format = "%{http_code} %{num_connects}\\n";
    let several = [
        "-sS", "-w", format, "-o", "1", "-o", "2", "-o", "3", &url, &url, &url,
    ];
    assert_eq!(
        text(&run(folder.path(), "curl", &several)),
        "200 1\n200 0\n200 0\n"
    );
    assert_eq!(edge.counter("connections_accepted"), 1);
}

// If curl uses the edge as a proxy, it sends the whole URI as the target.
#[test]
fn curl_sends_absolute_form_to_a_proxy() {
    if !installed(&["curl"]) {
        return;
    }
    let origin = serving("/file", fresh(1000));
    let edge = Setup::cached(&origin).start();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let proxy = format!("http://{}", edge.http);
    for _ in 0..2 {
        let got = run(
            folder.path(),
            "curl",
            &["-sSf", "-x", &proxy, "http://A.example/./file"],
        );
        assert_eq!(got.stdout, offset_bytes(0, 1000));
    }
    let seen = &origin.requests()[..];
    assert_eq!((seen.len(), seen[0].target.as_str()), (1, "/file"));
    assert_eq!(seen[0].header("host"), Some("a.example"));
}
