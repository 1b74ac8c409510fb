//! Tests of servers with TLS, and of servers on Unix sockets.

use sluice_lab::certificates::{Authority, Pair};
use sluice_lab::front::{self, Cut, TlsFront, UnixFront};
use sluice_lab::origin::{Ending, Origin};
use tempfile::TempDir;

use crate::harness::{Edge, Setup, assert_hit, assert_reason, eventually, fresh, origin, serving};

const LENGTH: u64 = 3_000_000;
pub const NAME: &str = "origin.test";

/// An origin behind a front with TLS, and the authority that signs its certificates.
pub struct Rig {
    pub origin: Origin,
    pub front: TlsFront,
    pub authority: Authority,
    pub folder: TempDir,
}

impl Rig {
    /// Starts an origin whose certificate `sign` makes. The authority is in the file `ca.pem`.
    pub fn new(sign: impl FnOnce(&Authority) -> Pair) -> Rig {
        Rig::demanding(sign, None)
    }

    pub fn demanding(sign: impl FnOnce(&Authority) -> Pair, clients: Option<&Authority>) -> Rig {
        let authority = Authority::new("Test authority of origins");
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ca.pem");
        std::fs::write(file, authority.pem()).expect("written");
        let origin = serving("/x", fresh(LENGTH));
        let config = front::config(&sign(&authority), clients);
        let front = TlsFront::start(origin.addr(), config).expect("a free port");
        Rig {
            origin,
            front,
            authority,
            folder,
        }
    }

    /// Returns a configuration with these keys in `tls` of the upstream, besides the authority.
    pub fn setup(&self, keys: &str) -> Setup {
        let ca = self.folder.path().join("ca.pem");
        let tls = format!("tls = {{ ca = {ca:?}, {keys} }}");
        Setup::of_servers(vec![self.front.url()]).upstream(&tls)
    }
}

pub fn valid(authority: &Authority) -> Pair {
    authority.server(&[NAME])
}

/// Asserts that TLS fails, and that the log has this cause.
fn assert_fails(edge: &Edge, cause: &str) {
    let reply = edge.get("/x", &[]);
    assert_eq!(reply.status, 502);
    assert_reason(&reply, "tls-failed");
    eventually(cause, || edge.process.stderr().contains(cause));
}

#[test]
fn a_server_with_tls_is_proxied_and_cached() {
    let rig = Rig::new(valid);
    let edge = rig.setup("server_name = \"origin.test\"").start();
    let reply = edge.get("/x", &[]);
    reply.verify_whole(LENGTH).expect("the origin's bytes");
    assert_hit(&edge.get("/x", &[]));
    let upload = vec![7; 300_000];
    let reply = edge.ask("POST", "/x", &[], &upload);
    assert_eq!(reply.status, 200);
    let posted = rig.origin.requests();
    let posted = posted.iter().find(|seen| seen.method == "POST");
    assert_eq!(posted.expect("the request").body_length, 300_000);
    let handshakes = rig.front.handshakes();
    assert!(
        handshakes
            .iter()
            .all(|one| one.name.as_deref() == Some(NAME))
    );
}

#[test]
fn the_configured_host_is_the_name_that_is_verified() {
    let rig = Rig::new(valid);
    let edge = rig
        .setup("")
        .upstream("host = \"origin.test:8443\"")
        .start();
    assert_eq!(edge.get("/x", &[]).status, 200);
    assert_eq!(rig.front.handshakes()[0].name.as_deref(), Some(NAME));
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let rig = Rig::new(valid);
    assert_fails(&rig.setup("").start(), "its certificate is for other names");
    assert!(rig.origin.requests().is_empty());
}

#[test]
fn a_certificate_of_an_unknown_authority_is_refused() {
    let rig = Rig::new(|_| valid(&Authority::new("Another authority")));
    let edge = rig.setup("server_name = \"origin.test\"").start();
    assert_fails(&edge, "its certificate is not trusted");
}

#[test]
fn an_expired_certificate_is_refused() {
    let rig = Rig::new(|authority| authority.server_expired(&[NAME]));
    let edge = rig.setup("server_name = \"origin.test\"").start();
    assert_fails(&edge, "its certificate has expired");
}

#[test]
fn a_server_may_demand_a_client_certificate() {
    let clients = Authority::new("Test authority of edges");
    let rig = Rig::demanding(valid, Some(&clients));
    let edge = rig.setup("server_name = \"origin.test\"").start();
    assert_fails(&edge, "it refused the client certificate, or wants one");
    drop(edge);
    let pair = clients.client("edge");
    let files = pair.write(rig.folder.path(), "edge").expect("written");
    let edge = rig
        .setup(&format!("server_name = \"origin.test\", {}", files.keys()))
        .start();
    assert_eq!(edge.get("/x", &[]).status, 200);
    let handshakes = rig.front.handshakes();
    assert!(handshakes.last().expect("a handshake").certified);
}

#[test]
fn without_verification_any_certificate_is_accepted_and_the_start_warns() {
    let rig = Rig::new(|_| Authority::new("Another authority").server_expired(&["a.test"]));
    let edge = Setup::of_servers(vec![rig.front.url()])
        .upstream("tls = { verify = false }")
        .start();
    assert_eq!(edge.get("/x", &[]).status, 200);
    let warning = "certificates of the servers are not verified";
    eventually(warning, || edge.process.stderr().contains(warning));
}

#[test]
fn sessions_are_resumed() {
    let rig = Rig::new(valid);
    let edge = rig
        .setup("server_name = \"origin.test\"")
        .upstream("keepalive = 0")
        .start();
    for _ in 0..3 {
        assert_eq!(edge.get("/pass/x", &[]).status, 404);
    }
    let resumed: Vec<bool> = rig
        .front
        .handshakes()
        .iter()
        .map(|one| one.resumed)
        .collect();
    assert_eq!(resumed, [false, true, true]);
}

#[test]
fn connections_over_tls_are_reused() {
    let rig = Rig::new(valid);
    let edge = rig
        .setup("server_name = \"origin.test\"")
        .workers(1)
        .start();
    for _ in 0..5 {
        assert_eq!(edge.get("/pass/x", &[]).status, 404);
    }
    assert_eq!(rig.front.handshakes().len(), 1);
}

// An expired certificate, one for another name, and connections that end before, in and at the end of
// the server's part of the handshake.
#[test]
fn another_server_is_tried_if_tls_fails() {
    let expired = Rig::new(|authority| authority.server_expired(&[NAME]));
    let other_name = Rig::new(|authority| authority.server(&["other.test"]));
    let cut = |after, ending| {
        let rig = Rig::new(valid);
        rig.front.set_cut(Some(Cut { after, ending }));
        rig
    };
    let cuts = [Ending::Fin, Ending::Reset].map(|ending| [0, 1, 90, 500].map(|n| cut(n, ending)));
    for bad in [expired, other_name]
        .into_iter()
        .chain(cuts.into_iter().flatten())
    {
        let good = origin();
        good.serve_rest(fresh(10));
        let edge = bad
            .setup("server_name = \"origin.test\"")
            .upstream("retry = { total = \"1h\", budget = 1 }")
            .also(&good)
            .start();
        for number in 0..3 {
            for path in ["/pass", ""] {
                let reply = edge.get(&format!("{path}/{number}"), &[]);
                reply.verify_whole(10).expect("the other server's response");
            }
        }
        // No byte of the request was sent, so its method does not matter.
        assert_eq!(edge.ask("POST", "/pass/x", &[], b"content").status, 200);
        assert!(bad.origin.requests().is_empty());
        assert!(edge.process.stderr().contains("TLS with a server fails"));
    }
}

#[test]
fn a_changed_authority_is_used_after_a_reload() {
    let rig = Rig::new(valid);
    let edge = rig.setup("server_name = \"origin.test\"").start();
    assert_eq!(edge.get("/pass/x", &[]).status, 404);
    let another = Authority::new("Another authority");
    rig.front.set_config(front::config(&valid(&another), None));
    std::fs::write(rig.folder.path().join("ca.pem"), another.pem()).expect("written");
    rig.origin.drop_connections();
    // The files are polled, so no reload is needed, but this test does not wait that long.
    assert!(edge.command(&["reload"]).status.success());
    eventually("the new authority is trusted", || {
        edge.get("/pass/x", &[]).status == 404
    });
}

/// Uses these certificates of servers and authority of clients from now on, also for connections that are open.
fn replace(rig: &Rig, pair: &Pair, clients: Option<&Authority>) {
    rig.front.set_config(front::config(pair, clients));
    rig.origin.drop_connections();
}

const UNUSABLE: &str = "files of TLS can't be used; their earlier contents stay in use";

#[test]
fn a_changed_authority_is_used_without_a_reload_and_a_broken_one_is_not() {
    let rig = Rig::new(valid);
    // Each request has a handshake of its own.
    let edge = rig
        .setup("server_name = \"origin.test\"")
        .upstream("keepalive = 0")
        .start();
    assert_eq!(edge.get("/pass/x", &[]).status, 404);
    let ca = rig.folder.path().join("ca.pem");
    std::fs::write(&ca, "no certificate").expect("written");
    eventually(UNUSABLE, || edge.process.stderr().contains(UNUSABLE));
    assert_eq!(edge.get("/pass/x", &[]).status, 404);
    let another = Authority::new("Another authority");
    replace(&rig, &valid(&another), None);
    assert_eq!(edge.get("/pass/x", &[]).status, 502);
    std::fs::write(&ca, another.pem()).expect("written");
    eventually("the new authority is trusted", || {
        edge.get("/pass/x", &[]).status == 404
    });
}

#[test]
fn a_changed_client_certificate_is_used_without_a_reload_and_a_broken_one_is_not() {
    let (clients, others) = (Authority::new("Edges"), Authority::new("Other edges"));
    let rig = Rig::demanding(valid, Some(&clients));
    let write = |pair: &Pair| pair.write(rig.folder.path(), "edge").expect("written");
    let files = write(&clients.client("edge"));
    let edge = rig
        .setup(&format!("server_name = \"origin.test\", {}", files.keys()))
        .upstream("keepalive = 0")
        .start();
    assert_eq!(edge.get("/pass/x", &[]).status, 404);
    // A key that does not belong to the certificate.
    let broken = Pair {
        key: others.client("edge").key,
        ..clients.client("edge")
    };
    write(&broken);
    eventually(UNUSABLE, || edge.process.stderr().contains(UNUSABLE));
    assert_eq!(edge.get("/pass/x", &[]).status, 404);
    replace(&rig, &valid(&rig.authority), Some(&others));
    write(&others.client("edge"));
    eventually("the new certificate is shown", || {
        edge.get("/pass/x", &[]).status == 404
    });
}

#[test]
fn a_missing_authority_is_an_error_of_the_configuration() {
    let text = "[upstream.origin]\nservers = \"https://127.0.0.1:1\"\ntls = { ca = \"/nowhere/ca.pem\" }\n\n[[route]]\nproxy = \"origin\"\n";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sluice.toml");
    std::fs::write(&file, text).expect("written");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["check", "-c"])
        .arg(&file)
        .output()
        .expect("the program starts");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(
        complaint.contains("TLS of upstream `origin` can't be set up"),
        "{complaint}"
    );
    assert!(complaint.contains("/nowhere/ca.pem"), "{complaint}");
    assert!(complaint.contains("sluice.toml:3"), "{complaint}");
}

#[test]
fn a_server_on_a_unix_socket_is_proxied() {
    let origin = serving("/x", fresh(LENGTH));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.sock");
    let front = UnixFront::start(origin.addr(), &path).expect("a socket");
    let edge = Setup::of_servers(vec![front.url()]).start();
    let reply = edge.get("/x", &[]);
    reply.verify_whole(LENGTH).expect("the origin's bytes");
    let server = &edge.status()["upstreams"]["origin"]["servers"][0];
    assert_eq!(server["address"], front.url());
    drop(front);
    std::fs::remove_file(&path).expect("a socket");
    origin.drop_connections();
    eventually("the socket is gone", || {
        let reply = edge.get("/pass/x", &[]);
        (reply.status, reply.text()) == (502, "502 connect-failed\n".into())
    });
}
