//! Tests of requests that return to the edge. CDN-Loop detects them (RFC 8586).

use sluice_lab::origin::Resource;

use crate::harness::{Edge, Setup, assert_reason, fresh, origin, serving};

/// Starts an edge whose origin is the edge that `next` starts. `next` gets the URL of the first one.
fn before(upstream: &str, next: impl FnOnce(String) -> Edge) -> (Edge, Edge) {
    // The first edge learns the address of the second one by a reload.
    let to = |url: String| {
        Setup::of_servers(vec![url])
            .in_clear_text()
            .upstream(upstream)
            .upstream("read_timeout = \"60s\"")
    };
    let first = to("http://127.0.0.1:1".to_owned()).start();
    let second = next(format!("http://{}", first.http));
    first.rewrite(&to(format!("http://{}", second.http)).text());
    let reloaded = first.command(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    (first, second)
}

// Two edges point at each other. On a cached route, the request that comes back would wait for the
// fetch on whose behalf it was sent.
#[test]
fn a_loop_of_two_edges_ends_at_once() {
    for target in ["/x", "/pass/x"] {
        let (first, second) = before("", |url| {
            Setup::of_servers(vec![url]).in_clear_text().start()
        });
        for edge in [&first, &second] {
            let reply = edge.get(target, &[("Host", "a.example")]);
            assert_eq!(reply.status, 508, "{target}");
            assert_eq!(reply.text(), "508 loop\n", "{target}");
        }
    }
}

// The loop changes the host, so that a request comes back for another URL at first.
#[test]
fn a_loop_that_changes_the_host_ends_at_once() {
    for target in ["/x", "/pass/x"] {
        let (first, second) = before("host = \"b.example\"", |url| {
            Setup::of_servers(vec![url])
                .in_clear_text()
                .upstream("host = \"c.example\"")
                .start()
        });
        for edge in [&first, &second] {
            let reply = edge.get(target, &[("Host", "a.example")]);
            assert_eq!(reply.status, 508, "{target}");
        }
    }
}

// One edge in front of another is no loop, and neither is an edge that a request passes twice.
#[test]
fn a_request_may_pass_several_edges_and_one_edge_twice() {
    let origin = serving("/x", fresh(100));
    let shield = Setup::cached(&origin).in_clear_text().start();
    let edge = Setup::of_servers(vec![format!("http://{}", shield.http)]).start();
    edge.get("/x", &[]).verify_whole(100).expect("the body");
    let seen = &origin.requests()[0];
    assert_eq!(seen.header_all("cdn-loop").len(), 2, "one entry per edge");
    let text = |port: u16| {
        format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n[cache.main]\n\
             [upstream.origin]\nservers = [{:?}]\n\
             [upstream.self]\nservers = [\"http://127.0.0.1:{port}\"]\nhost = \"inner.example\"\n\
             [[site]]\nhosts = [\"inner.example\"]\n[[site.route]]\nproxy = \"origin\"\ncache = \"main\"\n\
             [[site]]\n[[site.route]]\nproxy = \"self\"\ncache = \"main\"\n",
            origin.url("")
        )
    };
    let edge = Setup::of_text(text(1)).start();
    edge.rewrite(&text(edge.http.port()));
    assert!(edge.command(&["reload"]).status.success());
    edge.get("/x", &[]).verify_whole(100).expect("the body");
}

// A client can't use CDN-Loop to have the origin refuse a fetch for all clients.
#[test]
fn entries_of_other_proxies_are_not_part_of_shared_fetches() {
    let origin = serving("/x", fresh(10));
    origin.serve("/pass/x", Resource::offset(10));
    let edge = Setup::cached(&origin).start();
    for target in ["/x", "/pass/x"] {
        edge.get(target, &[("CDN-Loop", "other.example, another")]);
    }
    let seen = origin.requests();
    assert_eq!(seen[0].header_all("cdn-loop").len(), 1);
    assert_eq!(seen[1].header_all("cdn-loop")[0], "other.example, another");
    assert_eq!(seen[1].header_all("cdn-loop").len(), 2);
}

#[test]
fn via_may_be_left_out_of_requests_and_x_real_ip_sent() {
    let origin = origin();
    origin.serve("/pass/x", Resource::offset(10));
    let edge = Setup::cached(&origin)
        .upstream("via = false\nx_real_ip = true")
        .start();
    let reply = edge.get(
        "/pass/x",
        &[("Via", "1.1 before"), ("X_Real_IP", "6.6.6.6")],
    );
    let seen = &origin.requests()[0];
    assert_eq!(reply.header_all("via"), [seen.via("sluice")]);
    assert_eq!(seen.header("via"), None);
    assert_eq!(seen.header_all("x-real-ip"), ["127.0.0.1"]);
    assert_eq!(seen.header("x_real_ip"), None);
}

// A client that sends an entry of this edge, which origins see, only gets an error itself.
#[test]
fn a_copied_entry_concerns_only_its_sender() {
    let origin = serving("/x", Resource::offset(10).cache_control("no-store"));
    let edge = Setup::uncached(&origin).start();
    edge.get("/x", &[]);
    let entry = origin.requests()[0]
        .header("cdn-loop")
        .expect("sent")
        .to_owned();
    let refused = edge.get("/x", &[("CDN-Loop", &entry)]);
    assert_eq!(refused.status, 508);
    assert_reason(&refused, "loop");
    edge.get("/x", &[]).verify_whole(10).expect("the body");
}
