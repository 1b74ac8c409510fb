//! The demands on clients' certificates, which follow from the host by the same rules as the site.

use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, HandshakeKind};
use sluice_lab::certificates::Authority;
use sluice_lab::client::{Client, tls_config};
use sluice_lab::origin::Origin;

use crate::harness::{Edge, Setup, fresh, serving};
use crate::tls::{client_config_of, connect};

/// An edge, and the authorities that its configuration names.
struct Bed {
    /// Signs the certificates of servers.
    servers: Authority,
    /// Two authorities of clients.
    clients: [Authority; 2],
    edge: Edge,
    _folder: tempfile::TempDir,
    _origin: Origin,
}

impl Bed {
    /// Starts an edge whose configuration may name `@ONE` and `@TWO`, the authorities of clients, `ORIGIN`, and
    /// `CERTIFICATE`, the keys of a certificate for these hosts.
    fn start(hosts: &[&str], text: &str) -> Bed {
        let servers = Authority::new("Servers");
        let clients = ["One", "Two"].map(Authority::new);
        let folder = tempfile::tempdir().expect("a folder");
        let pair = servers.server(hosts).write(folder.path(), "server");
        let mut text = text.replace("CERTIFICATE", &pair.expect("written").keys());
        for (name, authority) in ["@ONE", "@TWO"].into_iter().zip(&clients) {
            text = text.replace(name, &written(folder.path(), name, &authority.pem()));
        }
        let origin = serving("/x", fresh(10));
        let text = format!(
            "[server]\nworkers = 1\n{}",
            text.replace("ORIGIN", &format!("{:?}", origin.url("")))
        );
        Bed {
            servers,
            clients,
            edge: Setup::of_text(text).start(),
            _folder: folder,
            _origin: origin,
        }
    }

    /// Opens a connection for a client with this name of a host (SNI), whose certificate the authority with this index
    /// has signed.
    fn client(&self, name: &str, signer: usize) -> Client {
        connect(self.edge.http, name, self.config(signer))
    }

    fn unknown_client(&self, name: &str) -> Client {
        let config = tls_config(&self.servers.der());
        connect(self.edge.http, name, Arc::new(config))
    }

    fn config(&self, signer: usize) -> Arc<ClientConfig> {
        client_config_of(&self.servers, &self.clients[signer], "tester")
    }
}

/// Writes a file, and returns its path as a value of the configuration.
fn written(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    format!("{path:?}")
}

fn status(client: &mut Client, host: &str) -> u16 {
    let reply = client.get("/x", &[("Host", host)]);
    reply.expect("a reply").status
}

const LISTENER: &str =
    "[admin]\naddress = \"127.0.0.1:0\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n";

#[test]
fn the_site_for_any_host_demands_its_own_certificates_although_another_site_lends_it_the_server_certificate()
 {
    let text = format!(
        "{LISTENER}tls = true\n\
         [[site]]\nhosts = \"a.example.com\"\ntls = {{ CERTIFICATE, client_ca = @ONE }}\n\
         [[site.route]]\nproxy = ORIGIN\n\
         [[site]]\ntls = {{ client_ca = @TWO }}\n[[site.route]]\nproxy = ORIGIN\n"
    );
    let bed = Bed::start(&["a.example.com", "b.example.com"], &text);
    let mut one = bed.client("a.example.com", 0);
    assert_eq!(status(&mut one, "a.example.com"), 200);
    assert_eq!(status(&mut one, "b.example.com"), 421);
    let mut two = bed.client("b.example.com", 1);
    assert_eq!(status(&mut two, "b.example.com"), 200);
    let mut one = bed.client("b.example.com", 0);
    assert!(one.get("/x", &[("Host", "b.example.com")]).is_err());
}

#[test]
fn a_name_in_the_listeners_certificate_does_not_change_what_the_site_demands() {
    for hosts in ["", "hosts = \"*.example.com\"\n"] {
        let text = format!(
            "{LISTENER}tls = {{ CERTIFICATE, client_ca = @ONE }}\n\
             [[site]]\n{hosts}tls = {{ client_ca = @TWO }}\n[[site.route]]\nproxy = ORIGIN\n"
        );
        let bed = Bed::start(&["a.example.com"], &text);
        let mut two = bed.client("a.example.com", 1);
        assert_eq!(status(&mut two, "a.example.com"), 200, "{hosts:?}");
        let mut one = bed.client("a.example.com", 0);
        let refused = one.get("/x", &[("Host", "a.example.com")]);
        assert!(refused.is_err(), "{hosts:?}");
    }
}

#[test]
fn hosts_that_no_wildcard_covers_have_the_demands_of_the_site_for_any_host() {
    let text = format!(
        "{LISTENER}tls = true\n\
         [[site]]\nhosts = \"*.example.com\"\ntls = {{ CERTIFICATE, client_ca = @ONE }}\n\
         [[site.route]]\nproxy = ORIGIN\n\
         [[site]]\ntls = {{ client_ca = @TWO }}\n[[site.route]]\nproxy = ORIGIN\n"
    );
    let bed = Bed::start(&["*.example.com"], &text);
    let label = "a".repeat(60);
    let long = format!("{label}.{label}.{label}.{label}.example.com");
    for (host, expected) in [("b.example.com", 200), (".example.com", 421), (&long, 421)] {
        let mut one = bed.client("a.example.com", 0);
        assert_eq!(status(&mut one, host), expected, "{host}");
    }
}

#[test]
fn a_site_without_a_certificate_has_its_own_demands_below_the_wildcard_of_another_site() {
    let text = format!(
        "{LISTENER}tls = true\n\
         [[site]]\nhosts = \"*.example.com\"\ntls = {{ CERTIFICATE, client_ca = @ONE }}\n\
         [[site.route]]\nproxy = ORIGIN\n\
         [[site]]\nhosts = \"a.b.example.com\"\n[[site.route]]\nproxy = ORIGIN\n"
    );
    let bed = Bed::start(&["*.example.com", "a.b.example.com"], &text);
    let mut unknown = bed.unknown_client("a.b.example.com");
    assert_eq!(status(&mut unknown, "a.b.example.com"), 200);
    assert_eq!(status(&mut unknown, "c.example.com"), 421);
}

// nginx applies the settings of the default server to such clients.
#[test]
fn a_client_that_sends_no_name_has_the_demands_of_the_site_whose_certificate_it_gets() {
    let site = "[[site]]\nhosts = \"a.example.com\"\ntls = { CERTIFICATE, client_ca = @ONE }\n\
                [[site.route]]\nproxy = ORIGIN\n";
    let without_name = |config: Arc<ClientConfig>| {
        let mut config = ClientConfig::clone(&config);
        config.enable_sni = false;
        Arc::new(config)
    };
    let name = "a.example.com";
    let bed = Bed::start(&[name], &format!("{LISTENER}tls = true\n{site}"));
    let mut known = connect(bed.edge.http, name, without_name(bed.config(0)));
    assert_eq!(status(&mut known, name), 200);
    let unknown = without_name(Arc::new(tls_config(&bed.servers.der())));
    let mut unknown = connect(bed.edge.http, name, unknown);
    assert!(unknown.get("/x", &[("Host", name)]).is_err());
    // The listener has its own certificate, and demands none of clients.
    let text = format!("{LISTENER}tls = {{ CERTIFICATE }}\n{site}");
    let bed = Bed::start(&[name], &text);
    let unknown = without_name(Arc::new(tls_config(&bed.servers.der())));
    let mut unknown = connect(bed.edge.http, name, unknown);
    assert_eq!(status(&mut unknown, name), 421);
}

// A ticket would keep the client's certificate, and rustls does not verify it again.
#[test]
fn a_session_is_not_resumed_where_client_certificates_are_verified() {
    let text =
        format!("{LISTENER}tls = {{ CERTIFICATE, client_ca = @ONE }}\n[[route]]\nproxy = ORIGIN\n");
    let bed = Bed::start(&["a.example.com"], &text);
    let config = bed.config(0);
    for _ in 0..2 {
        let mut client = connect(bed.edge.http, "a.example.com", config.clone());
        assert_eq!(status(&mut client, "a.example.com"), 200);
        let kind = client.session().expect("TLS").handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::Full));
    }
    assert_eq!(bed.edge.counter("tls_resumed"), 0);
}

#[test]
fn each_name_gets_the_certificate_that_is_valid_for_it_among_several_of_one_type() {
    let servers = Authority::new("Servers");
    let folder = tempfile::tempdir().expect("a folder");
    let names = ["a.example.com", "b.example.com"];
    let files = names.map(|name| {
        let files = servers.server(&[name]).write(folder.path(), name);
        files.expect("written")
    });
    let certificates = files.each_ref().map(|one| &one.certificate);
    let keys = files.each_ref().map(|one| &one.key);
    let pairs = format!("certificate = {certificates:?}, key = {keys:?}");
    let origin = serving("/x", fresh(10));
    let route = format!("proxy = {:?}\n", origin.url(""));
    for text in [
        format!("{LISTENER}tls = {{ {pairs} }}\n[[route]]\n{route}"),
        format!(
            "{LISTENER}tls = true\n[[site]]\nhosts = {names:?}\ntls = {{ {pairs} }}\n[[site.route]]\n{route}"
        ),
    ] {
        let edge = Setup::of_text(text).start();
        for name in names {
            let config = tls_config(&servers.der());
            let mut client = connect(edge.http, name, Arc::new(config));
            assert_eq!(status(&mut client, name), 200);
        }
    }
}
