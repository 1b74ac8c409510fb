//! Who may ask, how often and how fast, and with which signature.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use sluice_lab::client::{Client, Reply};
use sluice_lab::offset::offset_bytes;
use sluice_lab::origin::{Framing, Resource};

use crate::harness::{Edge, Setup, assert_hit, assert_says, eventually, fresh, serving};

const KEY: &str = "0123456789abcdef0123456789abcdef";

/// GET from another address of this machine.
fn get_from(edge: &Edge, source: &str, target: &str) -> Reply {
    let source: IpAddr = source.parse().expect("an address");
    let mut client = Client::connect_from(source, edge.http).expect("the program accepts");
    client.get(target, &[]).expect("a reply")
}

/// What `sluice sign` makes of a target, with the key in a file.
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

// "Only addresses in one of these networks may ask"
#[test]
fn addresses_are_allowed_and_denied() {
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
    assert_says(&denied, "detail=address-denied");
    assert_eq!(get_from(&edge, "127.0.0.9", "/x").status, 403);
    assert_eq!(edge.counter("requests_denied"), 2);
    let log = edge.json_log(3);
    assert!(
        log.iter()
            .any(|line| line.to_string().contains("address-denied")),
        "{log:?}"
    );
    // A route beside it has no gate.
    assert_eq!(get_from(&edge, "127.0.0.9", "/pass/x").status, 404);
}

// "In a [[site]], for all of its routes; what a route says itself counts in place of it"
#[test]
fn a_routes_word_counts_in_place_of_its_sites() {
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

// "429 with Retry-After"; a reload keeps what is known of clients.
#[test]
fn who_asks_too_often_is_told_when_to_come_back() {
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
    assert_says(&limited, "detail=too-many-requests");
    let wait: u64 = limited
        .header("retry-after")
        .and_then(|seconds| seconds.parse().ok())
        .expect("seconds");
    assert!((3500..=3600).contains(&wait), "{wait}");
    // Others are others, and the connection goes on.
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
    // Under a looser limit nobody waits as long as the old one would have had it.
    reload(&edge, &limit(3).text().replace("1/h", "100/s"));
    eventually("the client is let in", || edge.get("/x", &[]).status == 200);
}

// "all workers share": connections that land on different ones have one bucket.
#[test]
fn workers_share_a_limit() {
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

// PURGE from where it may come is no matter of a limit.
#[test]
fn purging_goes_past_the_gate() {
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

/// A route for signed URLs alone, with a key and more lines.
fn signing(setup: Setup, more: &str) -> Setup {
    setup.tables(&format!("[site.route.signed_urls]\nkeys = [\"{KEY}\"]\n{more}"))
}

// "neither the cache nor the origin sees them"
#[test]
fn signed_urls_share_what_is_stored() {
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
        assert_says(&reply, &format!("detail={word}"));
    }
    assert_eq!(edge.counter("requests_unsigned"), 3);
    assert_eq!(origin.requests().len(), 1);
}

// A prefix, an address, names of one's own.
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

// What can't be signed is said so, and nothing is printed that looks like a URL.
#[test]
fn sign_says_what_is_wrong() {
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

// A URL in a query is a part of the target: what is signed is the path that the server sees.
#[test]
fn a_target_may_have_a_url_in_its_query() {
    let origin = serving("/go?to=http://a/b", fresh(10));
    let edge = signing(Setup::cached(&origin), "").start();
    let signed = sign("/go?to=http://a/b", &[]);
    assert_eq!(edge.get(&signed, &[]).status, 200, "{signed}");
}

// "Keys in files are read again by a reload"
#[test]
fn keys_change_with_a_reload() {
    let origin = serving("/x", fresh(10));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("key");
    std::fs::write(&file, "another key, not that one").expect("written");
    let setup =
        Setup::cached(&origin).tables(&format!("[site.route.signed_urls]\nkey_files = [{file:?}]\n"));
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
    assert!(setup.refused().contains("can't read a key from"));
}

// The recipe of docs/access.md, run as it stands there.
#[test]
fn the_recipe_for_a_shell_gives_what_is_taken() {
    let available = std::process::Command::new("openssl")
        .arg("version")
        .output();
    if !available.is_ok_and(|output| output.status.success()) {
        // Without the program, the vectors in `gate/signed.rs` were made by it.
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

// "slow pacing is not the client's fault": no time of its counts.
#[test]
fn bandwidth_is_kept_and_nobody_is_cut_for_it() {
    let origin = serving("/x", fresh(60_000));
    origin.serve(
        "/chunked",
        Resource::offset(60_000).framing(Framing::Chunked(1_000)),
    );
    let edge = Setup::cached(&origin)
        .limits("send_timeout = \"100ms\"\nmin_rate = \"1GB\"\nmin_rate_grace = \"1s\"")
        .tables("[site.route.limit]\nbandwidth = 40000\n")
        .start();
    let began = Instant::now();
    let whole = edge.get("/x", &[]);
    whole.verify_whole(60_000).expect("all of it");
    edge.get("/x", &[("Range", "bytes=100-20099")])
        .verify_range(100, 20_099, 60_000)
        .expect("the range");
    // An eighth of a second's worth comes at once.
    let least = Duration::from_millis((80_000 - 5_000) / 40);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    edge.get("/chunked", &[])
        .verify_whole(60_000)
        .expect("all of it");
    assert_eq!(edge.counter("client_timeouts"), 0);
    assert!(edge.counter("responses_paced") >= 2);
}

// One rate for all connections of an address.
#[test]
fn connections_of_one_address_share_its_bandwidth() {
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
    // 20,000 bytes were free, a part of them may have come again.
    let least = Duration::from_millis((80_000 - 20_000) / 40);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
}

// Files too: parts of them are cut like other content, and a file that changes cuts the response.
#[test]
fn files_are_held_back_and_never_mixed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, content) = (folder.path().join("x"), offset_bytes(0, 300_000));
    std::fs::write(&file, &content).expect("written");
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n[[site]]\n[[site.route]]\n\
         files = {:?}\nlimit = {{ bandwidth = 400000, bandwidth_after = 100000 }}\n",
        folder.path()
    );
    let edge = Setup::of_text(text).start();
    let began = Instant::now();
    edge.get("/x", &[])
        .verify_whole(300_000)
        .expect("all of it");
    let least = Duration::from_millis(200_000 / 400);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    client.read_head().expect("a head");
    std::fs::write(&file, vec![b'-'; 300_000]).expect("written");
    // What came after the change is missing, it is not of the other version.
    let got = client.read_to_end().expect("an end");
    assert!(got.len() < 300_000, "{}", got.len());
    assert!(content.starts_with(&got));
}

// A client that goes away while it is held back leaves nothing behind.
#[test]
fn a_client_that_is_held_back_may_leave() {
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
