//! Session tickets whose keys several edges derive from the same secrets.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, HandshakeKind};
use sluice_lab::certificates::Authority;
use sluice_lab::client::tls_config;

use crate::harness::{Edge, Setup};
use crate::tls::connect;

const HOST: &str = "a.example.com";

/// The authority, certificate and secrets of several edges.
struct Bed {
    authority: Authority,
    folder: tempfile::TempDir,
    /// The keys of the configuration that name the certificate.
    keys: String,
}

impl Bed {
    fn new() -> Bed {
        let authority = Authority::new("Test authority");
        let folder = tempfile::tempdir().expect("a folder");
        let files = authority.server(&[HOST]).write(folder.path(), "site");
        let bed = Bed {
            authority,
            keys: files.expect("written").keys(),
            folder,
        };
        bed.write("old", b"0123456789abcdef0123456789abcdef\n");
        bed.write("new", b"fedcba9876543210fedcba9876543210\n");
        bed
    }

    fn write(&self, name: &str, secret: &[u8]) {
        std::fs::write(self.path(name), secret).expect("written");
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        Path::new(self.folder.path()).join(name)
    }

    /// Returns a configuration whose tickets have keys of these secrets.
    fn text(&self, secrets: &[&str]) -> String {
        let secrets: Vec<_> = secrets.iter().map(|name| self.path(name)).collect();
        format!(
            "[tls]\ntickets = {secrets:?}\n[[listener]]\naddress = \"127.0.0.1:0\"\ntls = {{ {} }}\n\
             [admin]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = \"a\"\n",
            self.keys
        )
    }

    fn edge(&self, secrets: &[&str]) -> Edge {
        Setup::of_text(self.text(secrets)).start()
    }

    fn reload(&self, edge: &Edge, secrets: &[&str]) {
        edge.rewrite(&self.text(secrets));
        let reloaded = edge.command(&["reload"]);
        assert!(reloaded.status.success(), "{reloaded:?}");
    }

    /// Returns the configuration of a client without sessions.
    fn client(&self) -> Arc<ClientConfig> {
        Arc::new(tls_config(&self.authority.der()))
    }
}

/// Makes a request on a new connection. Returns whether it resumed a session.
fn resumes(edge: &Edge, client: &Arc<ClientConfig>) -> bool {
    let mut connection = connect(edge.http, HOST, client.clone());
    let reply = connection.get("/", &[("Host", HOST)]).expect("a reply");
    assert_eq!(reply.status, 200);
    let session = connection.session().expect("TLS");
    session.handshake_kind() == Some(HandshakeKind::Resumed)
}

#[test]
fn another_edge_with_the_same_secret_resumes_a_session() {
    let bed = Bed::new();
    let (one, other) = (bed.edge(&["old"]), bed.edge(&["old"]));
    let client = bed.client();
    assert!(!resumes(&one, &client));
    assert!(resumes(&other, &client));
    assert!(resumes(&one, &client));
    let stranger = bed.edge(&["new"]);
    assert!(!resumes(&stranger, &client));
}

#[test]
fn a_replaced_secret_reads_tickets_until_it_is_removed() {
    let bed = Bed::new();
    let edge = bed.edge(&["old"]);
    let [early, late] = [bed.client(), bed.client()];
    assert!(!resumes(&edge, &early));
    assert!(!resumes(&edge, &late));
    bed.reload(&edge, &["new", "old"]);
    assert!(resumes(&edge, &early));
    // The new ticket has a key of the new secret.
    bed.reload(&edge, &["new"]);
    assert!(resumes(&edge, &early));
    assert!(!resumes(&edge, &late));
}

#[test]
fn a_secret_that_can_not_be_used_is_refused() {
    let bed = Bed::new();
    bed.write("short", b"0123456789abcdef\n");
    bed.write("binary", &[0xff; 80]);
    for (name, problem) in [
        ("none", "can't be read: No such file"),
        ("short", "shorter than 32 characters"),
        (
            "binary",
            "can't be read: stream did not contain valid UTF-8",
        ),
    ] {
        let said = Setup::of_text(bed.text(&["old", name])).refused();
        let place = format!("{}: ", bed.path(name).display());
        for part in ["sluice.toml:2", &place, problem] {
            assert!(said.contains(part), "{part:?} is not in {said}");
        }
        let has_help = said.contains("openssl rand -hex 32");
        assert_eq!(has_help, name != "none", "{said}");
        // A reload changes nothing then.
        let edge = bed.edge(&["old"]);
        edge.rewrite(&bed.text(&["old", name]));
        assert!(!edge.command(&["reload"]).status.success());
        assert_eq!(
            connect(edge.http, HOST, bed.client())
                .get("/", &[("Host", HOST)])
                .expect("a reply")
                .status,
            200
        );
    }
}
