//! Tests of `sign`: requests to object stores have the edge's signature, and none of a client's credentials.

use sluice_lab::offset::offset_bytes;
use sluice_lab::origin::Resource;

use crate::harness::{Setup, assert_hit, assert_reason, fresh, serving};

const KEYS: &str = "region = \"us-east-1\", access_key = \"AKIAEXAMPLE\", secret_key = \"secret\"";

/// Returns `sign` with these further keys.
fn sign(more: &str) -> String {
    format!("host = \"bucket.example\"\nsign = {{ {KEYS}{more} }}")
}

#[test]
fn signed_requests_are_cached_and_have_no_credentials_of_clients() {
    let origin = serving("/a%20b.mp4", fresh(1000));
    let edge = Setup::cached(&origin).upstream(&sign("")).start();
    let stolen = [
        ("X-Amz-Copy-Source", "/other/object"),
        ("x_amz_acl", "public-read"),
    ];
    let reply = edge.get("/a%20b.mp4?list-type=2", &stolen);
    reply.verify_whole(1000).expect("the body");
    assert_hit(&edge.get("/a%20b.mp4?list-type=2", &[]));
    // Without the cache, as well.
    edge.get(
        "/pass/x?acl",
        &[("Authorization", "Bearer x"), stolen[0], stolen[1]],
    );
    let seen = origin.requests();
    assert_eq!(seen.len(), 2);
    for (seen, path) in seen.iter().zip(["/a%20b.mp4", "/pass/x"]) {
        assert_eq!(seen.target, path);
        assert_eq!(seen.header_all("host"), ["bucket.example"]);
        let authorization = seen.header_all("authorization");
        assert_eq!(authorization.len(), 1);
        let scope = authorization[0]
            .strip_prefix("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/")
            .expect("a signature");
        let names = "/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=";
        assert!(scope[8..].starts_with(names), "{scope}");
        let date = seen.header("x-amz-date").expect("a date");
        assert_eq!((&date[..8], date.len()), (&scope[..8], 16));
        let content = seen.header("x-amz-content-sha256").expect("a hash");
        assert!(content.starts_with("e3b0c44298fc"), "{content}");
        assert_eq!(seen.header("x-amz-copy-source"), None);
        assert_eq!(seen.header("x_amz_acl"), None);
    }
}

#[test]
fn the_secret_may_be_in_a_file() {
    let origin = serving("/x", fresh(10));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("s3.key");
    let sign = KEYS.replace(
        "secret_key = \"secret\"",
        &format!("secret_key_file = {file:?}"),
    );
    let setup = Setup::cached(&origin).upstream(&format!("sign = {{ {sign} }}"));
    assert!(
        setup
            .refused()
            .contains("can't read the secret from this file")
    );
    std::fs::write(&file, "secret\n").expect("the folder can be written");
    let edge = setup.start();
    assert_eq!(edge.get("/x", &[]).status, 200);
    assert!(origin.requests()[0].header("authorization").is_some());
}

#[test]
fn only_reads_are_signed_unless_writes_are_allowed() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::uncached(&origin).upstream(&sign("")).start();
    for method in ["PUT", "DELETE", "POST", "OPTIONS"] {
        let reply = edge.ask(method, "/x", &[], b"");
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, Some("GET, HEAD"))
        );
        assert_reason(&reply, "method-not-allowed");
    }
    assert!(origin.requests().is_empty());
    let more = ", writes = true, query = true, session_token = \"temporary\"";
    let edge = Setup::uncached(&origin).upstream(&sign(more)).start();
    let body = offset_bytes(0, 300_000);
    assert_eq!(edge.ask("PUT", "/x?partNumber=1", &[], &body).status, 200);
    let seen = &origin.requests()[0];
    assert_eq!(seen.target, "/x?partNumber=1");
    assert!(seen.body_complete && seen.body_is_offset);
    assert_eq!(
        seen.header("x-amz-content-sha256"),
        Some("UNSIGNED-PAYLOAD")
    );
    assert_eq!(seen.header("x-amz-security-token"), Some("temporary"));
    let authorization = seen.header("authorization").expect("a signature");
    assert!(
        authorization.contains(";x-amz-date;x-amz-security-token,"),
        "{authorization}"
    );
}

#[test]
fn clients_do_not_choose_the_host_that_is_signed() {
    let origin = serving("/x", Resource::status(200));
    let sign = format!("sign = {{ {KEYS} }}");
    let edge = Setup::uncached(&origin).upstream(&sign).start();
    edge.get("/x", &[("Host", "other-bucket.example")]);
    let seen = origin.requests();
    assert_eq!(
        seen[0].header_all("host"),
        [origin.url("").trim_start_matches("http://")]
    );
    assert!(seen[0].header("authorization").is_some());
}

#[test]
fn credentials_must_be_complete() {
    let origin = serving("/x", Resource::status(200));
    let setup = Setup::uncached(&origin);
    let said = setup
        .clone()
        .upstream("sign = { region = \"a b\", access_key = \"a\" }")
        .refused();
    assert!(said.contains("`sign` without `secret_key`"), "{said}");
    assert!(
        said.contains("`region` can't be part of a signature"),
        "{said}"
    );
}
