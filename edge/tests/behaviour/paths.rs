//! Tests of the paths of proxied requests: a path in `proxy`, and `rewrite`.

use sluice_lab::origin::{Origin, Resource};

use crate::harness::{Edge, Setup, assert_hit, assert_reason, fresh, origin};

/// Returns an edge with a cache, and these lines in a route for it before the general one.
fn edge(origin: &Origin, route: &str) -> Edge {
    let text = Setup::cached(origin).workers(1).text();
    let first = "[[site.route]]\n";
    let text = text.replacen(first, &format!("{first}{route}\n{first}"), 1);
    Setup::of_text(text).start()
}

/// Sends a GET and returns the target that the origin received last.
fn sent(origin: &Origin, edge: &Edge, target: &str) -> String {
    let reply = edge.get(target, &[]);
    assert_eq!(reply.status, 200, "{target}: {}", reply.text());
    origin.requests().last().expect("a request").target.clone()
}

#[test]
fn a_path_in_proxy_replaces_the_part_that_the_route_fixes() {
    let origin = origin();
    origin.serve_rest(fresh(10));
    for (path, base, target, expected) in [
        ("/video/*", "/media", "/video/a.mp4?x=1", "/media/a.mp4?x=1"),
        ("/video/*", "/media/", "/video/b", "/media/b"),
        ("/video/*", "/", "/video/a/c", "/a/c"),
        ("/video/**", "/a%7eb/./c", "/video/%64", "/a~b/c/d"),
        ("/feed", "/feeds/all.xml", "/feed?q", "/feeds/all.xml?q"),
        ("/*", "/base", "/", "/base/"),
    ] {
        for cache in ["", "cache = \"main\""] {
            let named = format!("proxy = \"origin{base}\"");
            let url = format!("proxy = \"{}\"", origin.url(base));
            for proxy in [named, url] {
                let edge = edge(&origin, &format!("path = \"{path}\"\n{proxy}\n{cache}"));
                assert_eq!(sent(&origin, &edge, target), expected, "{proxy}");
                // Other routes of the upstream are not affected.
                if path != "/*" {
                    assert_eq!(sent(&origin, &edge, "/other"), "/other");
                }
            }
        }
    }
}

#[test]
fn keys_and_purges_have_the_clients_path_if_proxy_has_one() {
    let origin = origin();
    origin.serve_rest(fresh(10));
    let edge = edge(
        &origin,
        "path = \"/video/*\"\nproxy = \"origin/media\"\ncache = \"main\"",
    );
    assert_eq!(sent(&origin, &edge, "/video/a"), "/media/a");
    assert_hit(&edge.get("/video/a", &[]));
    assert_eq!(edge.objects("/video/a").len(), 1);
    assert_eq!(edge.objects("/media/a").len(), 0);
    // A response to the same path of the origin by another route is another response.
    assert_eq!(sent(&origin, &edge, "/media/a"), "/media/a");
    assert_eq!(origin.requests().len(), 2);
    let purged = edge.command(&["purge", &edge.url("/video/a")]);
    assert!(purged.status.success());
    edge.get("/video/a", &[]);
    assert_eq!(origin.requests().len(), 3);
}

const VIDEO: &str = "path = \"/video/*\"\nproxy = \"origin\"\ncache = \"main\"\n";

#[test]
fn paths_are_rewritten_before_the_key_is_made() {
    let origin = origin();
    origin.serve_rest(fresh(10));
    let rules = "rewrite = [[\"^/video/(old|new)/(.*)$\", \"/v2/$2\"], [\"^/v2/\", \"/v3/\"]]";
    let edge = edge(&origin, &format!("{VIDEO}{rules}"));
    assert_eq!(sent(&origin, &edge, "/video/old/a?x=1"), "/v3/a?x=1");
    // Another path with the same result shares the response.
    assert_hit(&edge.get("/video/new/a?x=1", &[]));
    assert_eq!(origin.requests().len(), 1);
    // The same URL by a route without rules does not.
    assert_eq!(sent(&origin, &edge, "/v3/a?x=1"), "/v3/a?x=1");
    assert_eq!(origin.requests().len(), 2);
    // A path that no rule matches stays.
    assert_eq!(sent(&origin, &edge, "/video/other"), "/video/other");
}

#[test]
fn a_rewritten_response_is_purged_by_the_clients_url() {
    let origin = origin();
    origin.serve_rest(fresh(10));
    let setup = "rewrite = [[\"^/video/(.*)$\", \"/v2/$1\"]]";
    let text = Setup::cached(&origin).workers(1).text();
    let text = text
        .replacen(
            "[[site.route]]\n",
            &format!("[[site.route]]\n{VIDEO}{setup}\n[[site.route]]\n"),
            1,
        )
        .replacen("[admin]\n", "[admin]\npurge_from = \"127.0.0.1\"\n", 1);
    let edge = Setup::of_text(text).start();
    let mut requests = 0;
    let mut again = |how: &str, purge: &dyn Fn() -> bool| {
        requests += 1;
        edge.get("/video/a?x", &[]);
        assert_eq!(origin.requests().len(), requests, "{how}");
        assert_hit(&edge.get("/video/a?x", &[]));
        assert_eq!(edge.objects("/video/a?x").len(), 1, "{how}");
        assert!(purge(), "{how}");
    };
    let url = edge.url("/video/a?x");
    let prefix = edge.url("/v2/");
    again("by its URL", &|| {
        let out = edge.command(&["purge", &url]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.contains("/video/a?x") && text.contains("/v2/a?x")
    });
    again("by PURGE", &|| {
        edge.ask("PURGE", "/video/a?x", &[], b"").status == 200
    });
    again("by the rewritten prefix", &|| {
        edge.command(&["purge", "--prefix", &prefix])
            .status
            .success()
    });
    again("not again", &|| true);
}

#[test]
fn a_base_is_put_before_rewritten_paths() {
    let origin = origin();
    origin.serve_rest(Resource::status(200));
    let edge = edge(
        &origin,
        "path_regex = '\\.mp4$'\nproxy = \"origin/bucket\"\nrewrite = [['^/(.*)$', '/$1?raw']]",
    );
    assert_eq!(
        sent(&origin, &edge, "/a/b.mp4?c=d"),
        "/bucket/a/b.mp4?raw&c=d"
    );
}

#[test]
fn a_result_that_is_no_target_is_refused() {
    let origin = origin();
    origin.serve_rest(Resource::status(200));
    let edge = edge(
        &origin,
        &format!("{VIDEO}rewrite = [[\"^/video/(.*)$\", \"$1\"]]"),
    );
    let reply = edge.get("/video/a", &[]);
    assert_eq!(reply.status, 500);
    assert_reason(&reply, "bad-rewrite");
    assert_eq!(edge.get("/video//a", &[]).status, 200, "a slash is left");
    assert_eq!(origin.requests()[0].target, "/a");
}

#[test]
fn the_origins_own_names_become_the_clients_also_in_stored_responses() {
    let origin = origin();
    let other = "https://other.example/media/b";
    for (path, location) in [
        ("/media/own", origin.url("/media/b?c")),
        ("/media/path", "/media/b".to_owned()),
        ("/media/outside", origin.url("/b")),
        ("/media/relative", "b".to_owned()),
        ("/media/other", other.to_owned()),
    ] {
        let resource = Resource::status(301)
            .header("Location", &location)
            .header("Content-Location", &location)
            .cache_control("max-age=1000");
        origin.serve(path, resource);
    }
    let edge = edge(
        &origin,
        "path = \"/video/*\"\nproxy = \"origin/media\"\ncache = \"main\"",
    );
    for (path, expected) in [
        ("/video/own", "/video/b?c"),
        ("/video/path", "/video/b"),
        ("/video/outside", &*origin.url("/b")),
        ("/video/relative", "b"),
        ("/video/other", other),
    ] {
        let first = edge.get(path, &[]);
        let stored = edge.get(path, &[]);
        assert_hit(&stored);
        for reply in [first, stored] {
            assert_eq!(reply.status, 301);
            assert_eq!(reply.header("location"), Some(expected), "{path}");
            assert_eq!(reply.header("content-location"), Some(expected), "{path}");
        }
    }
}

#[test]
fn cookies_get_the_path_and_domain_that_the_client_knows() {
    let origin = origin();
    let cookie = "a=b; Path=/media/x; Domain=app.example";
    let resource = || {
        Resource::status(200)
            .header("Set-Cookie", cookie)
            .header("Set-Cookie", "c=d")
            .header("Refresh", "5; url=/media/next")
    };
    origin.serve("/media/x", resource());
    let text = Setup::uncached(&origin)
        .workers(1)
        .upstream("host = \"www.app.example\"")
        .text();
    let routes = "[[site.route]]\npath = \"/a/*\"\nproxy = \"origin/media\"\n\
                  [[site.route]]\npath = \"/raw/*\"\nproxy = \"origin/media\"\nwrite_back = false\n";
    let text = text.replacen("[[site.route]]\n", &format!("{routes}[[site.route]]\n"), 1);
    let edge = Setup::of_text(text).start();
    let reply = edge.get("/a/x", &[("Host", "cdn.example.net")]);
    let cookies = reply.header_all("set-cookie");
    assert_eq!(cookies, ["a=b; Path=/a/x; Domain=cdn.example.net", "c=d"]);
    assert_eq!(reply.header("refresh"), Some("5; url=/a/next"));
    let reply = edge.get("/raw/x", &[("Host", "cdn.example.net")]);
    assert_eq!(reply.header_all("set-cookie"), [cookie, "c=d"]);
    assert_eq!(reply.header("refresh"), Some("5; url=/media/next"));
}
