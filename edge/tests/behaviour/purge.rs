//! Tests of purges: by URL, by prefix, by tag, and of everything; hard and soft. A purge takes
//! effect in all workers at once, and covers running fetches.

use std::thread;

use serde_json::{Value, json};
use sluice_lab::client::{self, Reply};
use sluice_lab::origin::{Latch, Origin, Resource};

use crate::harness::{
    Edge, SOON, Setup, assert_hit, cache_status, eventually, fresh, origin, serving,
    wait_for_requests,
};

const LENGTH: u64 = 3000;

fn is_hit(reply: &Reply) -> bool {
    cache_status(reply).starts_with("sluice; hit")
}

fn tagged(tags: &str) -> Resource {
    fresh(LENGTH).header("Surrogate-Key", tags)
}

/// Requests a path, so that the response is stored.
fn store(edge: &Edge, path: &str) {
    edge.get(path, &[]);
    assert_hit(&edge.get(path, &[]));
}

fn ask(edge: &Edge, order: &Value) -> Reply {
    let body = order.to_string();
    let fields = [("x-sluice", "1")];
    client::once(edge.admin, "POST", "/purge", &fields, body.as_bytes()).expect("an answer")
}

/// Sends a purge. Returns its sequence number.
fn purge(edge: &Edge, order: &Value) -> u64 {
    let reply = ask(edge, order);
    assert_eq!(reply.status, 200, "{order}: {}", reply.text());
    let answer: Value = serde_json::from_slice(&reply.body).expect("JSON");
    let first = &answer["purged"][0];
    assert_eq!(first["cache"], "main");
    first["sequence"].as_u64().expect("a number")
}

fn url(edge: &Edge, path: &str) -> String {
    edge.url(path)
}

#[test]
fn a_purge_removes_exactly_what_it_names() {
    let origin = origin();
    let paths = ["/a/x", "/a/y?q", "/ab", "/b"];
    origin.serve("/a/x", tagged("one two"));
    origin.serve("/a/y", tagged("two"));
    origin.serve("/ab", fresh(LENGTH).header("Cache-Tag", "one, three"));
    origin.serve("/b", fresh(LENGTH));
    let edge = Setup::cached(&origin).start();
    let host = edge.http;
    let mut before = 0;
    for (order, gone) in [
        (json!({"url": edge.url("/a/x")}), vec!["/a/x"]),
        (json!({"url": edge.url("/a/y")}), vec![]),
        (json!({"url": "http://other/a/x"}), vec![]),
        (json!({"prefix": edge.url("/a/")}), vec!["/a/x", "/a/y?q"]),
        (
            json!({"prefix": format!("//{host}/a")}),
            vec!["/a/x", "/a/y?q", "/ab"],
        ),
        (json!({"prefix": "/b", "cache": "main"}), vec!["/b"]),
        (json!({"prefix": "https://other/"}), vec![]),
        (json!({"tag": "two"}), vec!["/a/x", "/a/y?q"]),
        (json!({"tags": ["three", "four"]}), vec!["/ab"]),
        (json!({"tag": "TWO"}), vec![]),
        (json!({"all": true}), paths.to_vec()),
    ] {
        paths.iter().for_each(|path| store(&edge, path));
        let sequence = purge(&edge, &order);
        assert!(sequence > before, "{order}");
        before = sequence;
        for path in paths {
            assert_eq!(
                is_hit(&edge.get(path, &[])),
                !gone.contains(&path),
                "{order} {path}"
            );
        }
    }
    eventually("nothing has to be checked any more", || {
        edge.cache_state("purges") == 0
    });
}

#[test]
fn a_purge_by_url_removes_all_variants() {
    let origin = serving("/x", fresh(LENGTH).vary("X-A"));
    let edge = Setup::cached(&origin).start();
    let get = |value| edge.get("/x", &[("x-a", value)]);
    for soft in [false, true] {
        for value in ["1", "2", "3"] {
            get(value);
            assert_hit(&get(value));
        }
        purge(&edge, &json!({"url": url(&edge, "/x"), "soft": soft}));
        for value in ["1", "2", "3"] {
            assert!(!is_hit(&get(value)), "{soft} {value}");
        }
    }
}

// After a soft purge the stored responses are stale: they are revalidated, and may be served if the
// origin fails.
#[test]
fn a_soft_purge_makes_responses_stale() {
    let origin = origin();
    let page = || fresh(LENGTH).header("Surrogate-Key", "t");
    origin.serve("/x", page());
    origin.serve(
        "/grace",
        page().cache_control("max-age=3600, stale-while-revalidate=600"),
    );
    let edge = Setup::cached(&origin).start();
    store(&edge, "/x");
    store(&edge, "/grace");
    purge(&edge, &json!({"tag": "t", "soft": true}));
    let validated = edge.get("/x", &[]);
    assert_eq!(validated.status, 200);
    assert!(cache_status(&validated).starts_with("sluice; fwd=stale; fwd-status=304"));
    assert_hit(&edge.get("/x", &[]));
    let stale = edge.get("/grace", &[]);
    assert!(is_hit(&stale), "{}", cache_status(&stale));
    assert!(cache_status(&stale).contains("detail=stale-while-revalidate"));
    wait_for_requests(&origin, "/grace", 2);
    eventually("it is fresh again", || {
        let status = cache_status(&edge.get("/grace", &[])).to_owned();
        status.starts_with("sluice; hit; ttl=3")
    });
    assert_eq!(origin.record().count("/grace"), 2);
}

/// Holds the origin's response to one request, purges, and sends another request. The second
/// request must receive another response.
fn purged_during_a_flight(order: impl Fn(&Edge) -> Value, held: impl Fn(&Latch) -> Resource) {
    let latch = Latch::closed();
    let origin = serving("/x", held(&latch));
    let edge = Setup::cached(&origin).start();
    thread::scope(|scope| {
        let first = scope.spawn(|| edge.get("/x", &[]));
        assert!(latch.wait_held(1, SOON));
        purge(&edge, &order(&edge));
        origin.serve("/x", tagged("t").version(2));
        let second = edge.get("/x", &[]);
        assert_eq!(second.header("etag"), edge.get("/x", &[]).header("etag"));
        latch.release();
        let first = first.join().expect("no panic");
        // Clients that joined the fetch before the purge receive its response. Requests after the
        // purge receive a new one.
        assert_eq!(first.status, 200);
        assert_ne!(first.header("etag"), second.header("etag"));
        let later = edge.get("/x", &[]);
        assert_eq!(later.header("etag"), second.header("etag"));
    });
}

#[test]
fn a_response_requested_before_a_purge_is_not_served_after_it() {
    let head = |latch: &Latch| tagged("t").hold_head(latch);
    for soft in [false, true] {
        purged_during_a_flight(|edge| json!({"url": url(edge, "/x"), "soft": soft}), head);
        purged_during_a_flight(|_| json!({"prefix": "/", "soft": soft}), head);
        purged_during_a_flight(|_| json!({"all": true, "soft": soft}), head);
    }
    // When the purge arrives, the head of the response has arrived, and its body has not.
    let body = |latch: &Latch| {
        latch.advance_to(1);
        tagged("t").hold_body(latch)
    };
    purged_during_a_flight(|_| json!({"tag": "t"}), body);
    purged_during_a_flight(|edge| json!({"url": url(edge, "/x")}), body);
}

// The purge names a tag. The response with this tag arrives later, from a fetch that began before
// the purge.
#[test]
fn a_tag_that_arrives_after_its_purge_is_covered() {
    let latch = Latch::closed();
    let origin = serving("/x", tagged("t").hold_head(&latch));
    let edge = Setup::cached(&origin).start();
    thread::scope(|scope| {
        let first = scope.spawn(|| edge.get("/x", &[]));
        assert!(latch.wait_held(1, SOON));
        purge(&edge, &json!({"tag": "t"}));
        origin.serve("/x", tagged("t").version(2));
        // The request waits for the running fetch. The tags in the response then show that the
        // purge covers it.
        let mut second = edge.client();
        second.send("GET", "/x", &[], b"").expect("sent");
        eventually("it was looked up", || edge.counter("requests_now") == 2);
        latch.release();
        let first = first.join().expect("no panic");
        let second = second.read_response().expect("an answer");
        assert_eq!((first.status, second.status), (200, 200));
        assert_ne!(first.header("etag"), second.header("etag"));
        let later = edge.get("/x", &[]);
        assert_hit(&later);
        assert_eq!(later.header("etag"), second.header("etag"));
    });
    assert_eq!(origin.record().count("/x"), 2);
}

// Clients on all workers send requests before and after the purge.
#[test]
fn a_purge_is_in_force_on_all_workers_at_once() {
    let origin = serving("/x", fresh(LENGTH));
    let edge = Setup::cached(&origin).workers(4).start();
    let mut clients: Vec<_> = (0..16).map(|_| edge.client()).collect();
    let mut asked = 0;
    for round in 0..20 {
        for client in &mut clients {
            client.request("GET", "/x", &[], b"").expect("an answer");
        }
        asked += usize::from(round == 0);
        assert_eq!(origin.record().count("/x"), asked, "{round}");
        let order = match round % 2 {
            0 => json!({"all": true}),
            _ => json!({"url": url(&edge, "/x")}),
        };
        purge(&edge, &order);
        // The first request after the purge must not receive the old response, whichever worker
        // serves it.
        let first = &mut clients[round % 16];
        let reply = first.request("GET", "/x", &[], b"").expect("an answer");
        asked += 1;
        assert!(!is_hit(&reply), "{round}");
    }
}

#[test]
fn impossible_purges_are_refused_with_an_explanation() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for (order, status, said) in [
        (json!({}), 400, "name what to purge"),
        (json!({"tag": "a", "url": "b"}), 400, "only one"),
        (json!({"tag": "a b"}), 400, "a tag has"),
        (json!({"url": "/a"}), 400, "a URL begins with"),
        (json!({"prefix": "a"}), 400, "a prefix begins with"),
        (json!({"prefix": "/a/.."}), 400, "a prefix can't end in .."),
        (json!({"prefix": "/a/*"}), 400, "a prefix needs no *"),
        (json!({"url": "http://u:p@a/"}), 400, "remove user name"),
        (json!({"all": false}), 400, "\"all\" is true"),
        (json!({"teg": "a"}), 400, "unknown field `teg`"),
        (
            json!({"all": true, "cache": "x"}),
            404,
            "there is no cache \"x\", only: main",
        ),
    ] {
        let reply = ask(&edge, &order);
        assert_eq!(reply.status, status, "{order}");
        assert!(reply.text().contains(said), "{order}: {}", reply.text());
    }
    assert_eq!(edge.cache_state("purges"), 0);
}

// Responses were stored under an earlier setting `key`. They can't be requested now, but a reload
// may configure that `key` again, so the purge covers them, too.
#[test]
fn a_url_is_purged_under_the_keys_of_earlier_configurations() {
    let origin = serving("/x", fresh(LENGTH));
    let target = "/x?b=1&a=1";
    let text = |setup: Setup| {
        let admin = "[admin]\npurge_from = [\"127.0.0.1\"]\n";
        setup.text().replace("[admin]\n", admin)
    };
    let sorted = text(Setup::cached(&origin).cache("query_sort = true"));
    let plain = text(Setup::cached(&origin));
    let none = plain.replace("proxy = \"origin\"\ncache = \"main\"", "proxy = \"origin\"");
    assert_ne!(plain, none);
    let edge = Setup::of_text(sorted.clone()).start();
    let reload = |text: &str| {
        edge.rewrite(text);
        let output = edge.command(&["reload"]);
        assert!(output.status.success(), "{output:?}");
    };
    let order = json!({"url": url(&edge, target)});
    for meanwhile in [&plain, &none] {
        for by_method in [false, true] {
            if by_method && meanwhile == &none {
                continue;
            }
            store(&edge, target);
            reload(meanwhile);
            match by_method {
                false => assert!(purge(&edge, &order) > 0),
                true => assert_eq!(edge.ask("PURGE", target, &[], b"").status, 200),
            }
            reload(&sorted);
            assert!(!is_hit(&edge.get(target, &[])), "{meanwhile} {by_method}");
        }
    }
}

// No route uses the cache, so nothing is stored in it. A purge is accepted nevertheless.
#[test]
fn a_cache_without_routes_can_be_purged() {
    let origin = origin();
    let text = Setup::cached(&origin).text();
    let none = text.replace("proxy = \"origin\"\ncache = \"main\"", "proxy = \"origin\"");
    let edge = Setup::of_text(none).start();
    assert!(purge(&edge, &json!({"url": "http://a/"})) > 0);
}

/// Starts an edge that permits these addresses to send PURGE.
fn allowing(origin: &Origin, networks: &str) -> Edge {
    let text = Setup::cached(origin).text();
    let admin = format!("[admin]\npurge_from = [{networks}]\n");
    Setup::of_text(text.replace("[admin]\n", &admin)).start()
}

#[test]
fn the_method_purge_purges_its_target() {
    let origin = serving("/x", fresh(LENGTH));
    let edge = allowing(&origin, "\"127.0.0.0/8\"");
    store(&edge, "/x");
    edge.get("/y", &[]);
    let reply = edge.ask("PURGE", "/x", &[], b"");
    let answer: Value = serde_json::from_slice(&reply.body).expect("JSON");
    let purged = &answer["purged"][0];
    assert_eq!((reply.status, &purged["soft"]), (200, &json!(false)));
    assert_eq!(purged["rule"], json!({"url": url(&edge, "/x")}));
    assert!(purged["sequence"].as_u64() > Some(0));
    let again = edge.get("/x", &[]);
    assert!(cache_status(&again).contains("fwd=uri-miss"));
    let reply = edge.ask("PURGE", "/x", &[("sluice-purge", "soft")], b"");
    assert_eq!(reply.status, 200);
    assert!(cache_status(&edge.get("/x", &[])).contains("fwd=stale"));
    let reply = edge.ask("PURGE", "/x", &[("sluice-purge", "hard")], b"");
    assert_eq!(reply.status, 400);
    assert!(origin.requests().iter().all(|seen| seen.method == "GET"));
}

#[test]
fn other_addresses_may_not_purge() {
    let origin = serving("/x", fresh(LENGTH));
    for edge in [
        Setup::cached(&origin).start(),
        allowing(&origin, "\"10.0.0.0/8\""),
    ] {
        store(&edge, "/x");
        assert_eq!(edge.ask("PURGE", "/x", &[], b"").status, 403);
        assert_hit(&edge.get("/x", &[]));
    }
}

#[test]
fn the_purge_command_reports_what_it_purged() {
    let origin = serving("/x", tagged("t"));
    let edge = Setup::cached(&origin).start();
    let out = |arguments: &[&str]| {
        let output = edge.command(&[&["purge"], arguments].concat());
        let (out, err) = (&output.stdout, &output.stderr);
        let text = String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err);
        (output.status.success(), text)
    };
    store(&edge, "/x");
    let (done, said) = out(&["--tag", "t", "u"]);
    let rules = said.lines().filter(|line| line.starts_with("cache main: "));
    assert!(done && rules.count() == 2, "{said}");
    assert!(said.starts_with("cache main: purged: tag t\n"));
    assert!(!is_hit(&edge.get("/x", &[])));
    let (done, said) = out(&[&url(&edge, "/x"), "--soft", "--cache", "main"]);
    assert!(
        done && said.starts_with("cache main: stale: URL "),
        "{said}"
    );
    assert!(cache_status(&edge.get("/x", &[])).contains("fwd=stale"));
    let (done, said) = out(&["--all", "--json"]);
    assert!(done && said.contains("\"all\": true"), "{said}");
    let (done, said) = out(&["--prefix", "x"]);
    assert!(
        !done && said.starts_with("error: --prefix x: a prefix begins with"),
        "{said}"
    );
    let (done, said) = out(&["http://A:80/img/*"]);
    assert!(done && said.contains(": URL http://a/img/*\n"), "{said}");
    assert!(
        said.ends_with("to purge every URL with this prefix: --prefix http://a/img/\n"),
        "{said}"
    );
    let (done, said) = out(&["--prefix", "//A:80/x/../%7e"]);
    assert!(
        done && said.contains(": URLs with the prefix //a/~\n"),
        "{said}"
    );
    let (done, said) = out(&["--prefix", "/img/*"]);
    assert!(
        !done && said.contains("needs no * at its end: /img/ covers"),
        "{said}"
    );
    assert!(!out(&[]).0 && !out(&["--all", "--tag", "x"]).0);
}

#[test]
fn a_purge_reports_how_many_responses_it_matches() {
    let origin = origin();
    for path in ["/a/x", "/a/y", "/b"] {
        origin.serve(path, tagged("t"));
    }
    let edge = Setup::cached(&origin).cache("query_sort = true").start();
    let matched = |order: Value| {
        let answer: Value = serde_json::from_slice(&ask(&edge, &order).body).expect("JSON");
        let matched = &answer["purged"][0]["matched"];
        assert_eq!(matched["or_more"], false, "{answer}");
        (matched["responses"].clone(), matched["examples"].clone())
    };
    let fill = || ["/a/x", "/a/y", "/b"].map(|path| store(&edge, path));
    fill();
    let x = url(&edge, "/a/x");
    assert_eq!(matched(json!({ "url": x })), (json!(1), json!([x])));
    // A response that a purge covers is not counted again.
    assert_eq!(matched(json!({ "url": x })), (json!(0), json!([])));
    assert_eq!(matched(json!({ "prefix": "/a/" })).0, 1);
    fill();
    let (count, examples) = matched(json!({ "prefix": "/a/" }));
    assert_eq!(count, 2);
    assert_eq!(examples.as_array().map(Vec::len), Some(2));
    assert_eq!(matched(json!({ "tag": "t" })).0, 1);
    assert_eq!(matched(json!({ "tag": "other" })).0, 0);
    fill();
    let output = edge.command(&["purge", "--all"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains(&format!(
            "\n  3 responses in memory\n    {}://",
            edge.scheme()
        )),
        "{said}"
    );
    let output = edge.command(&["purge", "--all"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("\n  no response in memory\n"), "{said}");
}

#[test]
fn a_purge_reports_that_responses_on_volumes_are_not_counted() {
    let origin = origin();
    let setup = Setup::cached(&origin);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("vol");
    let volume = format!("[volume.disk]\npath = {path:?}\nsize = \"16MiB\"\n");
    let edge = setup.cache("volumes = [\"disk\"]").tables(&volume).start();
    let answer: Value =
        serde_json::from_slice(&ask(&edge, &json!({ "all": true })).body).expect("JSON");
    assert_eq!(answer["purged"][0]["matched"]["has_volumes"], true);
    let output = edge.command(&["purge", "http://a.example/none"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains(
            "\n  no response in memory; responses on volumes are covered too, and not counted\n"
        ),
        "{said}"
    );
}
