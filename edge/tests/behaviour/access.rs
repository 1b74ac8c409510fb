//! Tests of access control: allowed addresses, request rates, bandwidth, and signed URLs.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use sluice_lab::client::{Client, Reply};
use sluice_lab::offset::offset_bytes;
use sluice_lab::origin::{Framing, Resource};

use crate::harness::{Edge, Setup, assert_hit, assert_reason, eventually, fresh, serving};

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// Sends a GET from another loopback address.
fn get_from(edge: &Edge, source: &str, target: &str) -> Reply {
    let source: IpAddr = source.parse().expect("an address");
    let mut client = Client::connect_from(source, edge.http).expect("the program accepts");
    client.get(target, &[]).expect("a reply")
}

/// Runs `sluice sign` for a target with a key file. Returns the output.
fn sign(target: &str, more: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("key");
    std::fs::write(&file, format!("{KEY}\n")).expect("written");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["sign", target, "--key-file"])
        .arg(&file)
        .args(more)
        .output()
        .expect("the program starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let signed = String::from_utf8(output.stdout).expect("text");
    signed.trim_end().to_owned()
}

fn reload(edge: &Edge, text: &str) {
    edge.rewrite(text);
    let output = edge.command(&["reload"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn only_addresses_in_the_allowed_networks_are_served() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin)
        .logged("json")
        .tables("allow = [\"127.0.0.0/30\"]\ndeny = [\"127.0.0.2\"]\n")
        .start();
    assert_eq!(get_from(&edge, "127.0.0.1", "/x").status, 200);
    let denied = get_from(&edge, "127.0.0.2", "/x");
    assert_eq!(
        (denied.status, denied.text()),
        (403, "403 address-denied\n".to_owned())
    );
    assert_eq!(get_from(&edge, "127.0.0.9", "/x").status, 403);
    assert_eq!(edge.counter("requests_denied"), 2);
    let log = edge.json_log(3);
    assert!(
        log.iter()
            .any(|line| line.to_string().contains("address-denied")),
        "{log:?}"
    );
    // Another route has no access rules.
    assert_eq!(get_from(&edge, "127.0.0.9", "/pass/x").status, 404);
}

// The access rules of a site apply to all of its routes that have no access rules of their own.
#[test]
fn rules_of_a_route_replace_those_of_its_site() {
    let origin = serving("/x", fresh(10));
    origin.serve("/open/x", fresh(10));
    let text = Setup::uncached(&origin).text().replace(
        "[[site.route]]\n",
        "deny = [\"127.0.0.0/8\"]\n[[site.route]]\npath = \"/open/*\"\nproxy = \"origin\"\ndeny = false\n[[site.route]]\n",
    );
    let edge = Setup::of_text(text).start();
    assert_eq!(edge.get("/open/x", &[]).status, 200);
    assert_eq!(edge.get("/x", &[]).status, 403);
}

// A reload keeps the counts of the clients' requests.
#[test]
fn a_client_above_the_rate_limit_receives_429_with_retry_after() {
    let origin = serving("/x", fresh(10));
    let limit = |burst: u32| {
        Setup::cached(&origin).tables(&format!(
            "[site.route.limit]\nrequests = \"1/h\"\nburst = {burst}\n"
        ))
    };
    let edge = limit(2).start();
    let head = edge.ask("HEAD", "/x", &[], b"");
    assert_eq!((head.status, edge.get("/x", &[]).status), (200, 200));
    let limited = edge.get("/x", &[]);
    assert_eq!(limited.status, 429);
    assert_reason(&limited, "too-many-requests");
    let wait: u64 = limited
        .header("retry-after")
        .and_then(|seconds| seconds.parse().ok())
        .expect("seconds");
    assert!((3500..=3600).contains(&wait), "{wait}");
    // The limit does not apply to other clients, and a 429 does not close the connection.
    assert_eq!(get_from(&edge, "127.0.0.9", "/x").status, 200);
    let mut client = edge.client();
    assert_eq!(client.get("/x", &[]).expect("a reply").status, 429);
    assert_eq!(client.get("/pass/x", &[]).expect("a reply").status, 404);
    assert_eq!(edge.counter("requests_limited"), 2);
    reload(&edge, &limit(3).text());
    assert_eq!(
        (edge.get("/x", &[]).status, edge.get("/x", &[]).status),
        (200, 429)
    );
    // A reload raises the limit. The client's waiting time now follows from the new limit.
    reload(&edge, &limit(3).text().replace("1/h", "100/s"));
    eventually("the client is let in", || edge.get("/x", &[]).status == 200);
}

// One client's connections, on different workers, take their requests from one token bucket.
#[test]
fn workers_share_a_rate_limit() {
    let origin = serving("/x", fresh(10));
    let edge = Setup::cached(&origin)
        .workers(3)
        .tables("[site.route.limit]\nrequests = \"1/h\"\nburst = 7\n")
        .start();
    let statuses: Vec<u16> = (0..20).map(|_| edge.get("/x", &[]).status).collect();
    let passed = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(passed, 7, "{statuses:?}");
    assert!(statuses[..7].iter().all(|status| *status == 200));
}

// PURGE requests from a permitted address don't count against the rate limit.
#[test]
fn purging_is_not_rate_limited() {
    let origin = serving("/x", fresh(10));
    let text = Setup::cached(&origin)
        .tables("[site.route.limit]\nrequests = \"1/h\"\nburst = 2\n")
        .text()
        .replace("[admin]\n", "[admin]\npurge_from = [\"127.0.0.1\"]\n");
    let edge = Setup::of_text(text).start();
    assert_eq!(edge.get("/x", &[]).status, 200);
    for _ in 0..5 {
        assert_eq!(edge.ask("PURGE", "/x", &[], b"").status, 200);
    }
    assert_eq!(edge.get("/x", &[]).status, 200);
    assert_eq!(edge.get("/x", &[]).status, 429);
    let mut other = Client::connect_from("127.0.0.9".parse().expect("an address"), edge.http)
        .expect("the program accepts");
    for status in [403, 403, 429] {
        let reply = other.request("PURGE", "/x", &[], b"").expect("a reply");
        assert_eq!(reply.status, status);
    }
}

/// Adds a route that accepts only signed URLs, with a key and further configuration lines.
fn signing(setup: Setup, more: &str) -> Setup {
    setup.tables(&format!(
        "[site.route.signed_urls]\nkeys = [\"{KEY}\"]\n{more}"
    ))
}

// The edge removes the signature from the URL before it computes the key and sends the request to
// the origin. Therefore all signed URLs of a resource share one stored response.
#[test]
fn signed_urls_share_stored_responses() {
    let origin = serving("/x", fresh(10));
    let edge = signing(Setup::cached(&origin), "").start();
    let one = sign("/x?q=1", &["--expires", "1h"]);
    let other = sign("/x?q=1", &["--expires", "2h"]);
    assert_ne!(one, other);
    assert_eq!(edge.get(&one, &[]).status, 200);
    assert_hit(&edge.get(&other, &[]));
    let asked: Vec<String> = origin
        .requests()
        .iter()
        .map(|seen| seen.target.clone())
        .collect();
    assert_eq!(asked, ["/x?q=1"]);
    for (target, status, word) in [
        ("/x?q=1".to_owned(), 403, "signature-missing"),
        (one.replace("q=1", "q=2"), 403, "signature-wrong"),
        (
            sign("/x", &["--until", "1767225600"]),
            410,
            "signature-expired",
        ),
    ] {
        let reply = edge.get(&target, &[]);
        assert_eq!(reply.status, status, "{target}");
        assert_reason(&reply, word);
    }
    assert_eq!(edge.counter("requests_unsigned"), 3);
    assert_eq!(origin.requests().len(), 1);
}

// The signature covers a path prefix or a client address, with parameter names from the
// configuration.
#[test]
fn a_signature_may_be_for_a_folder_and_for_an_address() {
    let origin = serving("/v/1/a.ts", fresh(10));
    origin.serve("/v/1/b.ts", fresh(10));
    let keys = "client = true\nprefix = true\nexpires_parameter = \"e\"\nsignature_parameter = \"s\"\nprefix_parameter = \"p\"\n";
    let edge = signing(Setup::cached(&origin), keys).start();
    let signed = sign(
        "http://cdn.example/v/1/a.ts",
        &[
            "--prefix",
            "/v/1/",
            "--client",
            "127.0.0.1",
            "--parameters",
            "e",
            "s",
            "p",
        ],
    );
    let target = signed
        .strip_prefix("http://cdn.example")
        .expect("the host stays");
    assert_eq!(edge.get(target, &[]).status, 200);
    let next = target.replace("a.ts", "b.ts");
    assert_eq!(edge.get(&next, &[]).status, 200);
    assert_eq!(get_from(&edge, "127.0.0.9", &next).status, 403);
    assert_eq!(
        edge.get(&next.replacen("/v/1/", "/v/2/", 1), &[]).status,
        403
    );
}

// For a target that can't be signed, the command prints an error and no URL.
#[test]
fn sign_explains_why_a_target_can_not_be_signed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("key");
    for (key, arguments, complaint) in [
        (KEY, &["http://a/../x"][..], "target-above-root"),
        (KEY, &["/a b"], "target-byte"),
        (KEY, &["x"], "target"),
        (KEY, &["http://a#/b"], "target-byte"),
        (KEY, &["/v/1/a", "--prefix", "/v/1"], "ends in a slash"),
        (KEY, &["/v/1/a", "--prefix", "/v/2/"], "does not begin with"),
        (KEY, &["/a", "--expires", "soon"], "--expires"),
        ("short", &["/a"], "at least 16 bytes"),
    ] {
        std::fs::write(&file, key).expect("written");
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
            .arg("sign")
            .args(arguments)
            .arg("--key-file")
            .arg(&file)
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{arguments:?}"
        );
        assert!(said.contains(complaint), "{arguments:?}: {said}");
    }
    let root = sign("http://a.example", &["--until", "5"]);
    assert!(
        root.starts_with("http://a.example/?expires=5&signature="),
        "{root}"
    );
    let query = sign("http://a.example?x=/b", &["--until", "5"]);
    let begin = "http://a.example/?x=/b&expires=5&signature=";
    assert!(query.starts_with(begin), "{query}");
}

// The query contains `http://`. The path before the query is signed, not the one in the query.
#[test]
fn a_target_may_contain_a_url_in_its_query() {
    let origin = serving("/go?to=http://a/b", fresh(10));
    let edge = signing(Setup::cached(&origin), "").start();
    let signed = sign("/go?to=http://a/b", &[]);
    assert_eq!(edge.get(&signed, &[]).status, 200, "{signed}");
}

// A reload reads the files with the keys again.
#[test]
fn keys_change_with_a_reload() {
    let origin = serving("/x", fresh(10));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("key");
    std::fs::write(&file, "another key, not that one").expect("written");
    let setup = Setup::cached(&origin).tables(&format!(
        "[site.route.signed_urls]\nkey_files = [{file:?}]\n"
    ));
    let edge = setup.start();
    let signed = sign("/x", &[]);
    assert_eq!(edge.get(&signed, &[]).status, 403);
    std::fs::write(&file, KEY).expect("written");
    for says in ["keys in files changed\n", "nothing changed\n"] {
        let output = edge.command(&["reload"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains(says), "{output:?}");
    }
    assert_eq!(edge.get(&signed, &[]).status, 200);
    std::fs::write(&file, "short").expect("written");
    let output = edge.command(&["reload"]);
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(edge.get(&signed, &[]).status, 200);
    let refused = setup.refused();
    assert!(refused.contains("can't read a key from"), "{refused}");
    // The line of the file's name is shown.
    assert!(refused.contains("| key_files = ["), "{refused}");
}

// Runs the shell commands of docs/access.md exactly as printed there.
#[test]
fn the_documented_shell_recipe_produces_valid_signatures() {
    let available = std::process::Command::new("openssl")
        .arg("version")
        .output();
    if !available.is_ok_and(|output| output.status.success()) {
        // Without the program that the recipe uses, the test ends here. The test vectors in
        // `gate/signed.rs` were made with the same recipe.
        return;
    }
    let document = include_str!("../../../docs/access.md");
    let (_, recipe) = document.split_once("```sh\n").expect("a recipe");
    let (recipe, _) = recipe.split_once("```").expect("its end");
    let recipe = recipe.replace("$(cat /etc/sluice/url.key)", KEY);
    let output = std::process::Command::new("sh")
        .args(["-c", &recipe])
        .output()
        .expect("sh");
    let url = String::from_utf8(output.stdout).expect("text");
    let target = url
        .trim_end()
        .strip_prefix("https://cdn.example.com")
        .expect("a URL");
    let origin = serving("/videos/1/film.mp4", fresh(10));
    let edge = signing(Setup::cached(&origin), "").start();
    assert_eq!(edge.get(target, &[]).status, 200, "{target}");
}

// The bandwidth limit delays the response beyond the client's timeouts. This waiting time must not
// count as slowness of the client.
#[test]
fn a_bandwidth_limit_does_not_cause_timeouts() {
    let origin = serving("/x", fresh(60_000));
    origin.serve(
        "/chunked",
        Resource::offset(60_000).framing(Framing::Chunked(1_000)),
    );
    let edge = Setup::cached(&origin)
        .limits("send_timeout = \"1s\"\nmin_rate = \"1GB\"\nmin_rate_grace = \"1s\"")
        .tables("[site.route.limit]\nbandwidth = 40000\n")
        .start();
    let began = Instant::now();
    let whole = edge.get("/x", &[]);
    whole.verify_whole(60_000).expect("all of it");
    edge.get("/x", &[("Range", "bytes=100-20099")])
        .verify_range(100, 20_099, 60_000)
        .expect("the range");
    // The limit lets a burst of an eighth of a second pass at once; the rest takes at least this
    // long.
    let least = Duration::from_millis((80_000 - 5_000) / 40);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    edge.get("/chunked", &[])
        .verify_whole(60_000)
        .expect("all of it");
    assert_eq!(edge.counter("client_timeouts"), 0);
    assert!(edge.counter("responses_paced") >= 2);
}

#[test]
fn connections_of_one_address_share_one_bandwidth_limit() {
    let origin = serving("/x", fresh(20_000));
    let edge = Setup::cached(&origin)
        .tables("[site.route.limit]\nbandwidth = 40000\nbandwidth_after = 20000\n")
        .start();
    edge.get("/x", &[]);
    let began = Instant::now();
    let mut clients: Vec<Client> = (0..4).map(|_| edge.client()).collect();
    for client in &mut clients {
        client.send("GET", "/x", &[], b"").expect("sent");
    }
    for client in &mut clients {
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(20_000).expect("all of it");
    }
    // The first 20,000 bytes are not limited. Part of this allowance may have been restored
    // meanwhile, so only the least possible time is checked.
    let least = Duration::from_millis((80_000 - 20_000) / 40);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
}

// The bandwidth limit delays a file's response, and the file changes meanwhile. The response is
// then cut off.
#[test]
fn bandwidth_limited_files_are_never_mixed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, content) = (folder.path().join("x"), offset_bytes(0, 300_000));
    std::fs::write(&file, &content).expect("written");
    let limited = |bandwidth: u64| {
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n[[site]]\n[[site.route]]\n\
             files = {:?}\nlimit = {{ bandwidth = {bandwidth}, bandwidth_after = 100000 }}\n",
            folder.path()
        );
        Setup::of_text(text).start()
    };
    let edge = limited(400_000);
    let began = Instant::now();
    edge.get("/x", &[])
        .verify_whole(300_000)
        .expect("all of it");
    let least = Duration::from_millis(200_000 / 400);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    // The rest of the response takes 20 seconds, so the file changes before.
    let edge = limited(10_000);
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    client.read_head().expect("a head");
    std::fs::write(&file, vec![b'-'; 300_000]).expect("written");
    // The response ends where the change was noticed, and contains no bytes of the other version.
    let got = client.read_to_end().expect("an end");
    assert!(got.len() < 300_000, "{}", got.len());
    assert!(content.starts_with(&got));
}

// The client disconnects while the bandwidth limit delays its response. No request or connection
// must be left open in the counters.
#[test]
fn a_bandwidth_limited_client_may_disconnect() {
    let origin = serving("/x", fresh(50_000_000));
    let edge = Setup::cached(&origin)
        .tables("[site.route.limit]\nbandwidth = \"1KiB\"\n")
        .start();
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    assert_eq!(client.read_head().expect("a head").status, 200);
    client.reset().expect("reset");
    eventually("the request has ended", || {
        edge.counter("requests_now") == 0
    });
}
