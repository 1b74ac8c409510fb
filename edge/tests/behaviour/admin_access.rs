//! Access to the admin address: tokens and roles, the Unix socket, and the records of changes.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::Signal;
use sluice_lab::certificates::Authority;
use sluice_lab::client::{Client, ClientOptions, ClientTls, Reply};
use sluice_lab::process::Launch;
use tempfile::TempDir;

use crate::harness::{Edge, SOON, Setup, eventually, fresh, serving};
use crate::history::Stream;

const OPERATOR: &str = "operator-0123456789abcdef";
const ALICE: &str = "alice-0123456789abcdef";
const READER: &str = "reader-0123456789abcdef";
const WRONG: &str = "wrong-0123456789abcdef";

/// A folder with the files of three tokens.
struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Files {
        let folder = tempfile::tempdir().expect("a folder");
        let files = Files { folder };
        files.write("operator", &format!("{OPERATOR}\n"));
        files.write("operators", &format!("# people\nalice {ALICE}\n"));
        files.write("readers", &format!("grafana {READER}\n"));
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
        self.permit(name, 0o600);
    }

    fn permit(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).expect("permitted");
    }

    /// Returns the lines of `[admin]` that name the files.
    fn lines(&self) -> String {
        format!(
            "token = {{ file = {:?} }}\noperators = {{ file = {:?} }}\nreaders = {{ file = {:?} }}\n",
            self.path("operator"),
            self.path("operators"),
            self.path("readers")
        )
    }

    /// Returns a configuration with these lines in `[admin]`.
    fn config(&self, admin: &str) -> String {
        format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n[admin]\n{admin}{}[[route]]\nrespond = \"x\"\n",
            self.lines()
        )
    }

    /// Runs a command in the folder.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(arguments)
            .env_remove("SLUICE_ADMIN_TOKEN")
            .envs(variables.iter().copied())
            .current_dir(self.folder.path())
            .output()
            .expect("the program starts")
    }
}

const LOOPBACK: &str = "address = \"127.0.0.1:0\"\n";

/// Sends a request from an address of this machine, with these headers.
fn send(edge: &Edge, from: &str, line: (&str, &str), headers: &[(&str, &str)]) -> Reply {
    let source = from.parse().expect("an address");
    let mut client = Client::connect_from(source, edge.admin).expect("accepted");
    client
        .request(line.0, line.1, headers, b"")
        .expect("a reply")
}

/// Returns the status of a request with a token, from 127.0.0.1.
fn status(edge: &Edge, line: (&str, &str), token: Option<&str>) -> u16 {
    let value = token.map(|token| format!("Bearer {token}"));
    let mut headers = vec![("x-sluice", "1")];
    headers.extend(value.iter().map(|value| ("authorization", value.as_str())));
    send(edge, "127.0.0.1", line, &headers).status
}

fn said(output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

fn assert_fails(output: &Output, parts: &[&str]) {
    let error = said(output).expect_err("the command fails");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    assert!(!error.contains("0123456789"), "{error}");
}

#[test]
fn every_page_needs_a_token_and_every_change_one_of_an_operator() {
    let files = Files::new();
    let edge = Setup::of_text(files.config(LOOPBACK)).start();
    let pages = [
        "/status",
        "/status?url=http://a/",
        "/metrics",
        "/servers",
        "/certificates",
    ];
    // The addresses are both of the loopback interface.
    for from in ["127.0.0.1", "127.0.0.2"] {
        for page in pages {
            let get = |value: &str| {
                let headers = [("authorization", value)];
                let headers = if value.is_empty() { &[][..] } else { &headers };
                send(&edge, from, ("GET", page), headers)
            };
            let missing = get("");
            assert_eq!(missing.status, 401, "{page}");
            assert_eq!(
                missing.header("www-authenticate"),
                Some("Bearer realm=\"sluice\"")
            );
            assert_eq!(get("Basic b3BlcmF0b3I6").status, 401, "{page}");
            for token in [OPERATOR, ALICE, READER] {
                assert_eq!(get(&format!("Bearer {token}")).status, 200, "{page}");
            }
        }
        for page in ["/health", "/"] {
            assert_eq!(send(&edge, from, ("GET", page), &[]).status, 200, "{page}");
        }
    }
    for page in pages {
        assert_eq!(status(&edge, ("GET", page), Some(WRONG)), 401, "{page}");
    }
}

/// Returns the paths that the index lists for a method.
fn listed(index: &str, method: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for line in index.lines() {
        let mut words = line.split_whitespace();
        if let (Some(first), Some(target)) = (words.next(), words.next())
            && first == method
        {
            let path = target.split('?').next().unwrap_or(target);
            paths.push(path.to_owned());
        }
    }
    paths
}

// The index lists the pages, so new pages are tested, too.
#[test]
fn no_listed_page_is_open_and_no_listed_change_is_permitted_to_readers() {
    let files = Files::new();
    let edge = Setup::of_text(files.config(LOOPBACK)).start();
    let index = send(&edge, "127.0.0.1", ("GET", "/"), &[]).text();
    let is_public = |path: &str| path == "/health" || path.starts_with("/dashboard");
    let mut pages = listed(&index, "GET");
    pages.retain(|path| !is_public(path));
    let changes = listed(&index, "POST");
    assert!(pages.len() >= 4 && changes.len() >= 4, "{index}");
    for (method, paths) in [("GET", &pages), ("POST", &changes)] {
        for path in paths {
            for token in [None, Some(WRONG)] {
                let found = status(&edge, (method, path), token);
                // There may have been too many wrong tokens already.
                assert!(
                    matches!((token, found), (_, 401) | (Some(_), 429)),
                    "{path}: {found}"
                );
            }
        }
    }
    eventually("another try", || {
        status(&edge, ("GET", "/status"), Some(READER)) == 200
    });
    for path in &changes {
        assert_eq!(status(&edge, ("POST", path), Some(READER)), 403, "{path}");
    }
    let order = "/servers?upstream=a&server=b&set=up";
    let certificate = "/certificates?name=a&order=renew";
    for (target, found) in [("/purge", 400), (order, 404), (certificate, 404)] {
        for token in [OPERATOR, ALICE] {
            assert_eq!(
                status(&edge, ("POST", target), Some(token)),
                found,
                "{target}"
            );
        }
    }
}

#[test]
fn other_hosts_and_forms_of_web_pages_are_refused_with_the_right_token_too() {
    let files = Files::new();
    let edge = Setup::of_text(files.config(LOOPBACK)).start();
    let token = format!("Bearer {OPERATOR}");
    let with = |line: (&str, &str), more: &[(&str, &str)]| {
        let headers = [&[("authorization", token.as_str())], more].concat();
        send(&edge, "127.0.0.1", line, &headers)
    };
    let rebound = with(("GET", "/status"), &[("Host", "evil.example")]);
    assert_eq!(rebound.status, 421);
    let form = [
        ("Origin", "http://evil.example"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    ];
    assert_eq!(with(("POST", "/reload"), &form).status, 403);
    let preflight = [
        ("Origin", "http://evil.example"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "x-sluice"),
    ];
    let refused = with(("OPTIONS", "/reload"), &preflight);
    assert!(refused.status >= 400 && refused.header("access-control-allow-origin").is_none());
    let own = with(("POST", "/reload"), &[("x-sluice", "1")]);
    assert_eq!(own.status, 200, "{}", own.text());
    for name in ["content-security-policy", "cross-origin-opener-policy"] {
        assert!(refused.header(name).is_some() && rebound.header(name).is_some());
    }
}

#[test]
fn a_client_that_guesses_is_refused_and_others_are_not() {
    let files = Files::new();
    let edge = Setup::of_text(files.config(LOOPBACK)).start();
    let get = |from: &str, token: &str| {
        let value = format!("Bearer {token}");
        send(
            &edge,
            from,
            ("GET", "/status"),
            &[("authorization", &value)],
        )
    };
    // The client gets another try every six seconds, which may be while the test runs.
    eventually("too many tries", || get("127.0.0.3", WRONG).status == 429);
    let refused = get("127.0.0.3", OPERATOR);
    if refused.status != 200 {
        assert_eq!(
            (refused.status, refused.header("retry-after")),
            (429, Some("6"))
        );
    }
    assert_eq!(get("127.0.0.4", OPERATOR).status, 200);
    let logged = edge.process.stderr();
    let count = |text: &str| logged.matches(text).count();
    assert_eq!(count("a wrong token was sent"), 1, "{logged}");
    assert!(count("so many wrong tokens") >= 1, "{logged}");
    assert!(
        !logged.contains(WRONG) && !logged.contains(OPERATOR),
        "{logged}"
    );
}

#[test]
fn every_change_is_logged_with_its_client_and_without_secrets() {
    let origin = serving("/x", fresh(100));
    let files = Files::new();
    let setup = Setup::cached(&origin);
    let text = setup.text();
    let text = text.replacen("[admin]\n", &format!("[admin]\n{}", files.lines()), 1);
    let edge = Setup::of_text(text).start();
    let post = |target: &str, body: &str| {
        let value = format!("Bearer {ALICE}");
        let headers = [("x-sluice", "1"), ("authorization", value.as_str())];
        let mut client = Client::connect(edge.admin).expect("accepted");
        let reply = client.request("POST", target, &headers, body.as_bytes());
        reply.expect("a reply").status
    };
    let url = format!(
        "{{\"url\": \"http://{}/x?signature=secret&a=1\"}}",
        edge.http
    );
    assert_eq!(post("/purge", &url), 200);
    assert_eq!(
        post("/servers?upstream=origin&server=nobody&set=drain", ""),
        404
    );
    let fetch = format!(
        "/fetch?url=http://{}/x?sig=secret&headers=Authorization:%20Bearer%20secret",
        edge.http
    );
    assert_eq!(post(&fetch, ""), 200);
    let with_body = format!(
        "/fetch?url=http://{}/x&headers=Content-Length:%205",
        edge.http
    );
    assert_eq!(post(&with_body, ""), 400);
    assert_eq!(post(&format!("/{}", "A".repeat(5000)), ""), 404);
    assert_eq!(post("/reload", ""), 200);
    edge.signal(Signal::HUP);
    let client = "who=alice client=127.0.0.1";
    let purged = format!(
        "purge: url http://{}/x?signature=***&a=1 {client} status=200",
        edge.http
    );
    let ordered = format!("servers: nobody of origin: drain {client} status=404");
    let reloaded = format!("reload: read the configuration again {client} status=200");
    let signal = "reload: read the configuration again who=SIGHUP client=signal".to_owned();
    let fetched = format!("fetch: http://{}/x?sig=*** {client} status=200", edge.http);
    for line in [purged, ordered, fetched, reloaded, signal] {
        eventually("the line", || {
            let logged = edge.process.stderr();
            assert!(
                !logged.contains("secret")
                    && !logged.contains(ALICE)
                    && !logged.contains(&"A".repeat(600)),
                "{logged}"
            );
            logged.contains(&line)
        });
    }
}

#[test]
fn a_reload_takes_up_new_tokens_and_refuses_unusable_ones() {
    let files = Files::new();
    let edge = Setup::of_text(files.config(LOOPBACK)).start();
    let reload = |token: &str| status(&edge, ("POST", "/reload"), Some(token));
    let newer = "newer-0123456789abcdef";
    files.write("operator", newer);
    assert_eq!(reload(newer), 401);
    assert_eq!(reload(OPERATOR), 200);
    assert_eq!([reload(OPERATOR), reload(newer)], [401, 200]);
    files.write("readers", "grafana short");
    assert_eq!(reload(newer), 422);
    assert_eq!(
        status(&edge, ("GET", "/status"), Some(READER)),
        200,
        "nothing has changed"
    );
    files.write("readers", &format!("grafana {READER}\n"));
    // Without the keys, the loopback address is open again.
    let open = files.config(LOOPBACK).replace(&files.lines(), "");
    edge.rewrite(&open);
    assert_eq!(reload(newer), 200);
    assert_eq!(status(&edge, ("GET", "/status"), None), 200);
}

// A stream is one request that lasts long. It ends within seconds after its token was withdrawn.
#[test]
fn a_stream_ends_when_its_token_is_withdrawn() {
    let files = Files::new();
    let edge = Setup::of_text(files.config(LOOPBACK)).start();
    let open = |token: &str| {
        let line = format!("Authorization: Bearer {token}\r\n");
        let mut stream = Stream::open_with(&edge, "events=0", &line);
        assert!(stream.line("HTTP/1.1 ").starts_with("200"));
        stream
    };
    let (mut reader, mut alice) = (open(READER), open(ALICE));
    files.write("readers", "grafana another-0123456789abcdef\n");
    assert_eq!(status(&edge, ("POST", "/reload"), Some(ALICE)), 200);
    reader.wait_end();
    // The other stream has the event of the reload, and of a second one.
    assert_eq!(status(&edge, ("POST", "/reload"), Some(ALICE)), 200);
    while alice.event("notice")["count"] != 2 {}
}

#[test]
fn commands_find_their_token() {
    let files = Files::new();
    let edge = Setup::of_text(files.config(LOOPBACK)).start();
    let admin = edge.admin.to_string();
    let by_address = ["status", "--admin", admin.as_str()];
    let missing = files.run(&by_address, &[]);
    assert_fails(
        &missing,
        &["needs a token", "--token-file", "SLUICE_ADMIN_TOKEN"],
    );
    let wrong = files.run(&by_address, &[("SLUICE_ADMIN_TOKEN", WRONG)]);
    assert_fails(&wrong, &["does not accept the token"]);
    let short = files.run(&by_address, &[("SLUICE_ADMIN_TOKEN", "0123456789")]);
    assert_fails(&short, &["this is not a token", "SLUICE_ADMIN_TOKEN"]);
    let right = files.run(&by_address, &[("SLUICE_ADMIN_TOKEN", READER)]);
    assert!(said(&right).is_ok(), "{right:?}");
    let variables = [("SLUICE_ADMIN_TOKEN", WRONG)];
    let file = [&by_address[..], &["--token-file", "readers"]].concat();
    assert!(
        said(&files.run(&file, &variables)).is_ok(),
        "the file comes first"
    );
    let file = [&by_address[..], &["--token-file", "nothing"]].concat();
    assert_fails(
        &files.run(&file, &[]),
        &["--token-file nothing", "can't read"],
    );
    let reload = ["reload", "--admin", &admin, "--token-file", "readers"];
    assert_fails(
        &files.run(&reload, &[]),
        &["the token grafana may only read"],
    );
    // In its folder, a command finds `sluice.toml`, and in it the tokens.
    let config = files.config(&format!("address = {admin:?}\n"));
    fs::write(files.path("sluice.toml"), config).expect("written");
    for command in ["status", "reload"] {
        let output = files.run(&[command], &[]);
        assert!(said(&output).is_ok(), "{output:?}");
    }
    // A token is for the address of its configuration file only, and is sent nowhere in clear text.
    assert_fails(&files.run(&by_address, &[]), &["needs a token"]);
    let elsewhere = [
        "status",
        "--admin",
        "http://192.0.2.1:9901",
        "--token-file",
        "readers",
    ];
    assert_fails(
        &files.run(&elsewhere, &[]),
        &["could read the token", "https://"],
    );
}

#[test]
fn an_address_for_other_machines_has_tls_and_tokens() {
    let files = Files::new();
    let authority = Authority::new("Test authority");
    let pair = authority.server(&["localhost", "127.0.0.1"]);
    let pair = pair.write(files.folder.path(), "admin").expect("written");
    fs::write(files.path("ca.pem"), authority.pem()).expect("written");
    let tls = format!("tls = {{ {} }}\n", pair.keys());
    let everywhere = "address = \"0.0.0.0:0\"\n";
    let mut edge = Setup::of_text(files.config(&format!("{everywhere}{tls}"))).start();
    edge.admin.set_ip("127.0.0.1".parse().expect("an address"));
    edge.encrypt_admin(ClientTls::trusting(&authority.der(), "localhost"));
    let get = |token| status(&edge, ("GET", "/status"), token);
    assert_eq!(
        [get(None), get(Some(WRONG)), get(Some(READER))],
        [401, 401, 200]
    );
    assert_eq!(status(&edge, ("GET", "/health"), None), 200);
    let url = format!("https://{}", edge.admin);
    let command = [
        "status",
        "--admin",
        &url,
        "--ca",
        "ca.pem",
        "--token-file",
        "operators",
    ];
    let output = files.run(&command, &[]);
    assert!(said(&output).is_ok(), "{output:?}");
    let without_tls = Setup::of_text(files.config(everywhere)).refused();
    assert!(
        without_tls.contains("the admin address needs TLS"),
        "{without_tls}"
    );
    let text = files
        .config(&format!("{everywhere}{tls}"))
        .replace(&files.lines(), "");
    let without_tokens = Setup::of_text(text).refused();
    assert!(
        without_tokens.contains("the admin address needs tokens"),
        "{without_tokens}"
    );
}

#[test]
fn check_explains_files_of_tokens() {
    let files = Files::new();
    let check = || {
        let config = files.config(LOOPBACK);
        fs::write(files.path("sluice.toml"), config).expect("written");
        files.run(&["check"], &[])
    };
    let output = check();
    let shown = said(&output).expect("usable");
    let line = "with a token; operators: operator, alice; readers: grafana\n";
    assert!(shown.contains(line), "{shown}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    for mode in [0o640, 0o604] {
        files.permit("readers", mode);
        let output = check();
        let warned = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{warned}");
        assert!(
            warned.contains("other users can read the tokens"),
            "{warned}"
        );
        assert!(warned.contains("chmod 600"), "{warned}");
    }
    files.write("readers", "# comment\ngrafana 0123456789\n");
    assert_fails(
        &check(),
        &["readers:2: the token has 10 characters", "sluice.toml:7"],
    );
    files.write("readers", "");
    assert_fails(&check(), &["readers:1: there is no token"]);
    files.write("readers", &format!("alice {READER}\n"));
    assert_fails(&check(), &["readers:1:", "has the name alice"]);
    fs::remove_file(files.path("readers")).expect("removed");
    assert_fails(
        &check(),
        &["can't read the tokens", "readers: No such file"],
    );
}

/// Starts the program with an admin API on a Unix socket.
fn start_on_socket(files: &Files, admin: &str, socket: &Path) -> sluice_lab::process::Process {
    let address = format!("unix:{}", socket.display());
    let config = format!(
        "listen = \"127.0.0.1:0\"\n[admin]\naddress = {address:?}\n{admin}[[route]]\nrespond = \"x\"\n"
    );
    let path = files.path("sluice.toml");
    fs::write(&path, config).expect("written");
    let folder = files.folder.path();
    let launch = Launch::new("sluice", env!("CARGO_BIN_EXE_sluice"), folder);
    let launch = launch.args(["serve", "-c", path.to_str().expect("UTF-8")]);
    let mut process = launch.start().expect("the program starts");
    let line = process.wait_line("admin on ", SOON).expect("it listens");
    assert_eq!(line.trim_end(), format!("admin on {address}"));
    process
}

#[test]
fn only_its_user_may_use_the_admin_address_on_a_unix_socket() {
    let files = Files::new();
    let socket = files.path("admin.sock");
    let mut process = start_on_socket(&files, "", &socket);
    let mode = fs::metadata(&socket).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let get = |target: &str, headers: &[(&str, &str)]| {
        let client = Client::connect_unix(&socket, &ClientOptions::default());
        client
            .expect("accepted")
            .get(target, headers)
            .expect("a reply")
    };
    assert_eq!(get("/status", &[]).status, 200);
    assert_eq!(get("/status", &[("Host", "evil.example")]).status, 421);
    let mut silent = Client::connect_unix(&socket, &ClientOptions::default()).expect("accepted");
    let url = format!("unix:{}", socket.display());
    for arguments in [
        &["reload", "--admin", &url][..],
        &["status"],
        &["status", "-c", "sluice.toml"],
    ] {
        let output = files.run(arguments, &[]);
        assert!(said(&output).is_ok(), "{output:?}");
    }
    silent
        .read_to_end()
        .expect("the silent connection is closed");
    let user = fs::metadata(&socket).map(|file| std::os::unix::fs::MetadataExt::uid(&file));
    let user = user.expect("a file");
    let logged = process.stderr();
    let line = format!("who=local client=\"unix, user {user}\" status=200");
    assert!(logged.contains(&line), "{logged}");
    process.signal(Signal::TERM).expect("sent");
    process.wait_exit(SOON).expect("it ends");
    assert!(!socket.exists(), "the file is removed");
    assert_fails(
        &files.run(&["status"], &[]),
        &["no Sluice answers at unix:"],
    );
}

#[test]
fn tokens_are_needed_on_a_unix_socket_too() {
    let files = Files::new();
    let socket = files.path("admin.sock");
    let process = start_on_socket(&files, &files.lines(), &socket);
    let url = format!("unix:{}", socket.display());
    let status = ["status", "--admin", url.as_str()];
    assert_fails(&files.run(&status, &[]), &["needs a token"]);
    let output = files.run(&status, &[("SLUICE_ADMIN_TOKEN", ALICE)]);
    assert!(said(&output).is_ok(), "{output:?}");
    let output = files.run(&["reload"], &[]);
    assert!(said(&output).is_ok(), "{output:?}");
    assert!(process.stderr().contains("who=operator"));
    let tls = "tls = { certificate = \"a.pem\", key = \"a.key\" }\n";
    let text = fs::read_to_string(files.path("sluice.toml")).expect("a file");
    let text = text.replacen("token =", &format!("{tls}token ="), 1);
    fs::write(files.path("sluice.toml"), text).expect("written");
    let output = files.run(&["check"], &[]);
    let warned = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(warned.contains("a Unix socket has no TLS"), "{warned}");
}
