//! Tests of request ids: in X-Request-ID to the origin and to the client, and in the access log.

use sluice_lab::client::Reply;
use sluice_lab::origin::Resource;

use crate::harness::{Setup, assert_hit, fresh, serving};

const HEADER: &str = "X-Request-ID";

/// Returns the id in a response, of which there is one.
fn id_of(reply: &Reply) -> String {
    let ids = reply.header_all(HEADER);
    assert_eq!(ids.len(), 1, "{ids:?}");
    ids[0].to_owned()
}

/// Asserts that this is the text of a UUID of version 7 (RFC 9562 4, 5.7).
fn assert_made(id: &str) {
    let groups: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "{id}");
    assert!(
        id.split('-').nth(2).is_some_and(|g| g.starts_with('7')),
        "{id}"
    );
}

#[test]
fn a_request_has_one_id_at_origin_client_and_log() {
    let origin = serving("/x", Resource::offset(10).header(HEADER, "of the origin"));
    let setup = Setup::uncached(&origin).server("request_id = true\n");
    let edge = setup.workers(1).logged("json").start();
    // The client is not trusted, so its ids are replaced in every spelling.
    let reply = edge.get("/x", &[(HEADER, "forged"), ("X_Request_ID", "forged")]);
    let id = id_of(&reply);
    assert_made(&id);
    let seen = &origin.requests()[0];
    assert_eq!(seen.header_all(HEADER), [&*id]);
    assert_eq!(seen.header("x_request_id"), None);
    // A request that is refused has an id, too.
    let refused = edge.send_raw(b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n");
    let refused_id = refused
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("x-request-id: ")
                .map(str::to_owned)
        })
        .expect("an id");
    assert_made(&refused_id);
    let log = edge.json_log(2);
    assert_eq!(log[0]["request_id"], *id);
    assert!(log[0].get("upstream_request_id").is_none());
    assert_eq!(log[1]["request_id"], *refused_id);
    assert_ne!(id, refused_id);
}

#[test]
fn an_interim_response_has_no_id_of_the_origin() {
    let hints = [(HEADER, "of the origin"), ("Link", "</a.css>")];
    let origin = serving("/x", Resource::offset(10).interim(103, &hints));
    for setup in [Setup::uncached(&origin), Setup::cached(&origin)] {
        let edge = setup.server("request_id = true\n").start();
        let said = edge.send_raw(b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(
            said.starts_with("HTTP/1.1 103 ") && said.contains("</a.css>"),
            "{said}"
        );
        assert!(!said.contains("of the origin"), "{said}");
    }
}

#[test]
fn a_shared_fetch_has_an_id_of_its_own() {
    let origin = serving("/x", fresh(10).header(HEADER, "of the origin"));
    let setup = Setup::cached(&origin).server("request_id = true\n");
    let edge = setup.workers(1).logged("json").start();
    let first = id_of(&edge.get("/x", &[]));
    let hit = edge.get("/x", &[]);
    assert_hit(&hit);
    let second = id_of(&hit);
    let requests = origin.requests();
    assert_eq!(requests.len(), 1);
    let fetch = requests[0].header(HEADER).expect("an id");
    assert_made(fetch);
    assert!(fetch != first && fetch != second && first != second);
    let log = edge.json_log(2);
    assert_eq!(log[0]["request_id"], *first);
    assert_eq!(log[0]["upstream_request_id"], *fetch);
    assert_eq!(log[1]["request_id"], *second);
    assert!(log[1].get("upstream_request_id").is_none());
    // A request that bypasses the cache is not shared.
    origin.serve_rest(Resource::offset(10));
    let passed = id_of(&edge.get("/pass/x", &[]));
    assert_eq!(origin.requests()[1].header(HEADER), Some(&*passed));
}

#[test]
fn only_a_trusted_proxy_sets_the_id() {
    let origin = serving("/x", Resource::offset(10));
    let setup = Setup::uncached(&origin);
    let server = "request_id = true\ntrusted_proxies = \"127.0.0.1\"\n";
    let edge = setup.server(server).start();
    assert_eq!(
        id_of(&edge.get("/x", &[(HEADER, "Root=1-a_b")])),
        "Root=1-a_b"
    );
    assert_eq!(origin.requests()[0].header_all(HEADER), ["Root=1-a_b"]);
    let long = "a".repeat(129);
    for bad in ["a b", "<a>", "a, b", &long] {
        assert_made(&id_of(&edge.get("/x", &[(HEADER, bad)])));
    }
    assert_made(&id_of(&edge.get("/x", &[(HEADER, "a"), (HEADER, "a")])));
}

#[test]
fn without_request_ids_the_header_is_like_any_other() {
    let origin = serving("/x", Resource::offset(10).header(HEADER, "of the origin"));
    let edge = Setup::uncached(&origin).start();
    let reply = edge.get("/x", &[(HEADER, "of the client")]);
    assert_eq!(id_of(&reply), "of the origin");
    assert_eq!(origin.requests()[0].header_all(HEADER), ["of the client"]);
}
