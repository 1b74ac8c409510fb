//! Tests of sites and routes: the choice of a route by host and path.

use sluice_lab::origin::{Origin, Resource};

use crate::harness::{Edge, Setup, assert_reason, origin, serving};

/// Starts three origins that respond with their names, and an edge with sites and routes that lead
/// to them.
fn three() -> (Vec<Origin>, Edge) {
    let named = |name: &'static str| {
        let origin = origin();
        let told = move |seen: &sluice_lab::origin::Seen| {
            let host = seen.header("host").unwrap_or("").to_owned();
            Resource::bytes(format!("{name} {host}{}", seen.target))
        };
        origin.serve_rest(Resource::dynamic(told));
        origin
    };
    let origins = vec![named("one"), named("two"), named("three")];
    let upstream = |name: &str, n: usize, more: &str| {
        format!(
            "[upstream.{name}]\nservers = [{:?}]\n{more}",
            origins[n].url("")
        )
    };
    let text = [
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n".to_owned(),
        upstream("one", 0, ""),
        upstream("two", 1, "host = \"inner.example\"\n"),
        upstream("three", 2, ""),
        "[[site]]\nhosts = [\"a.example\", \"*.b.example\"]\n".to_owned(),
        "[[site.route]]\npath_regex = '\\.(mp4|avi)$'\nproxy = \"two\"\n".to_owned(),
        "[[site.route]]\npath = \"/static/*\"\nproxy = \"three\"\n".to_owned(),
        "[[site.route]]\npath = \"/\"\nproxy = \"one\"\n".to_owned(),
        "[[site]]\nhosts = [\"c.example\"]\n[[site.route]]\nproxy = \"three\"\n".to_owned(),
    ];
    let edge = Setup::of_text(text.concat()).start();
    (origins, edge)
}

#[test]
fn hosts_and_paths_choose_the_origin() {
    let (_origins, edge) = three();
    for (host, target, expected) in [
        ("a.example", "/", "one a.example/"),
        ("A.EXAMPLE:8080", "/", "one a.example:8080/"),
        ("x.b.example", "/", "one x.b.example/"),
        ("a.example", "/film.mp4", "two inner.example/film.mp4"),
        (
            "a.example",
            "/film.avi?start=5",
            "two inner.example/film.avi?start=5",
        ),
        ("a.example", "/static/a", "three a.example/static/a"),
        ("a.example", "/x/../static/a", "three a.example/static/a"),
        ("c.example", "/anything", "three c.example/anything"),
    ] {
        let reply = edge.get(target, &[("Host", host)]);
        assert_eq!(reply.text(), expected, "{host}{target}");
    }
}

#[test]
fn an_unconfigured_host_or_path_is_404() {
    let (origins, edge) = three();
    for (host, target) in [
        ("d.example", "/"),
        ("b.example", "/"),
        ("a.example", "/other"),
        ("a.example", "/static"),
        ("a.example", "/static/../other"),
        ("a.example", "/STATIC/a"),
        ("127.0.0.1", "/"),
    ] {
        let reply = edge.get(target, &[("Host", host)]);
        assert_eq!(reply.status, 404, "{host}{target}");
        assert_reason(&reply, "no-route");
    }
    assert!(origins.iter().all(|origin| origin.requests().is_empty()));
}

#[test]
fn the_program_listens_at_the_configured_address() {
    let origin = serving("/x", Resource::offset(10));
    let text = Setup::uncached(&origin)
        .text()
        .replacen("127.0.0.1:0", "[::1]:0", 1);
    let edge = Setup::of_text(text).start();
    assert!(edge.http.is_ipv6());
    edge.get("/x", &[]).verify_whole(10).expect("the body");
    let seen = &origin.requests()[0];
    assert_eq!(seen.header("x-forwarded-for"), Some("::1"));
    let forwarded = seen.header("forwarded").unwrap_or("");
    assert!(forwarded.starts_with("for=\"[::1]\";"), "{forwarded}");
}

#[test]
fn command_line_options_are_enough() {
    let origin = serving("/x", Resource::offset(10).cache_control("max-age=60"));
    let edge = Edge::with_options(&[
        "--origin",
        &origin.url(""),
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "127.0.0.1:0",
        "--memory",
        "16MiB",
        "--workers",
        "1",
    ]);
    for _ in 0..2 {
        edge.get("/x", &[]).verify_whole(10).expect("the body");
    }
    assert_eq!(origin.requests().len(), 1);
    let output = edge.command(&["reload"]);
    assert!(!output.status.success(), "there is no file to read again");
    edge.get("/x", &[]).verify_whole(10).expect("it goes on");
}

#[test]
fn the_program_listens_at_several_addresses() {
    let origin = serving("/x", Resource::offset(10).cache_control("max-age=60"));
    let second = "[[listener]]\naddress = \"127.0.0.2:0\"\n[admin]";
    let text = Setup::cached(&origin).in_clear_text().text();
    let text = text.replace("[admin]", second);
    let edge = Setup::of_text(text).start();
    let said = edge.process.stdout();
    let addresses: Vec<std::net::SocketAddr> = said
        .lines()
        .filter_map(|line| line.strip_prefix("listening on http://"))
        .map(|address| address.parse().expect("an address"))
        .collect();
    assert_eq!(addresses.len(), 2, "{said}");
    for address in addresses {
        let reply = sluice_lab::client::get(address, "/x", &[("Host", "a")]);
        reply.expect("a reply").verify_whole(10).expect("the body");
    }
    assert_eq!(
        origin.requests().len(),
        1,
        "what one has fetched the other has"
    );
}
