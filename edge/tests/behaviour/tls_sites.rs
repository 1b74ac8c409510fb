//! TLS of sites: the redirect of clear text to https, and routes for clients with a certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use sluice_lab::certificates::Authority;
use sluice_lab::client::{self, Client};
use sluice_lab::origin::Origin;

use crate::harness::{Edge, Setup, eventually, fresh, serving};
use crate::tls::{client_config, connect};

const HOST: &str = "a.example.com";

/// A site with TLS, and the addresses of a listener in clear text and one with TLS.
struct Site {
    authority: Authority,
    edge: Edge,
    origin: Origin,
    clear: SocketAddr,
    encrypted: SocketAddr,
    _folder: tempfile::TempDir,
}

/// Starts an edge with a site for `HOST`. `tls` are further keys of the site's `tls`, and `route` the text of its
/// routes.
fn site(tls: &str, route: &str) -> Site {
    let authority = Authority::new("Test authority");
    let folder = tempfile::tempdir().expect("a folder");
    let pair = authority.server(&[HOST]);
    let files = pair.write(folder.path(), "site").expect("written");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).expect("written");
    let tls = tls.replace("CA", &format!("{ca:?}"));
    let origin = serving("/x", fresh(1000));
    let text = format!(
        "[server]\nworkers = 1\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[log]\naccess = \"access.log\"\nformat = \"json\"\nflush = \"10ms\"\n\
         [upstream.origin]\nservers = {:?}\n[[site]]\nhosts = {HOST:?}\ntls = {{ {}{tls} }}\n{route}",
        origin.url(""),
        files.keys()
    );
    let edge = Setup::of_text(text).start();
    let listening = |scheme: &str| {
        let before = format!("listening on {scheme}://");
        let text = edge.process.stdout();
        let line = text.lines().find_map(|line| line.split_once(&before));
        line.and_then(|(_, address)| address.trim().parse().ok())
    };
    eventually("both listen", || listening("https").is_some());
    let address = |scheme| listening(scheme).expect("an address");
    Site {
        clear: address("http"),
        encrypted: address("https"),
        authority,
        edge,
        origin,
        _folder: folder,
    }
}

const PROXY: &str = "[[site.route]]\nproxy = \"origin\"\n";

impl Site {
    fn client(&self) -> Client {
        let config = client::tls_config(&self.authority.der());
        connect(self.encrypted, HOST, Arc::new(config))
    }

    fn known_client(&self) -> Client {
        connect(
            self.encrypted,
            HOST,
            client_config(&self.authority, "tester"),
        )
    }
}

fn get(client: &mut Client, target: &str) -> client::Reply {
    client.get(target, &[("Host", HOST)]).expect("a reply")
}

#[test]
fn clear_text_is_redirected_to_https() {
    let site = site("", PROXY);
    for method in ["GET", "POST"] {
        let headers = [("Host", "A.example.com:8080")];
        let reply = client::once(site.clear, method, "/x/%2F?a=b", &headers, b"");
        let reply = reply.expect("a reply");
        assert_eq!(reply.status, 308);
        assert_eq!(
            reply.header("location"),
            Some("https://a.example.com/x/%2F?a=b")
        );
    }
    assert_eq!(site.origin.requests().len(), 0);
    assert_eq!(get(&mut site.client(), "/x").status, 200);
}

#[test]
fn the_redirect_names_the_configured_port_or_is_off() {
    let other = site(", redirect = 8443", PROXY);
    let reply = client::get(other.clear, "/x", &[("Host", HOST)]).expect("a reply");
    assert_eq!(
        reply.header("location"),
        Some("https://a.example.com:8443/x")
    );
    let off = site(", redirect = false", PROXY);
    let reply = client::get(off.clear, "/x", &[("Host", HOST)]).expect("a reply");
    assert_eq!(reply.status, 200);
}

#[test]
fn hsts_is_sent_over_tls_only() {
    let route = format!("{PROXY}security_headers = true\n");
    let site = site(", redirect = false", &route);
    let hsts = "strict-transport-security";
    let reply = get(&mut site.client(), "/x");
    assert_eq!(reply.header(hsts), Some("max-age=31536000"));
    let reply = client::get(site.clear, "/x", &[("Host", HOST)]).expect("a reply");
    assert_eq!(reply.header(hsts), None);
}

#[test]
fn hsts_with_a_configured_value_is_sent_over_tls_only() {
    let value = "max-age=63072000; includeSubDomains";
    let hsts = "strict-transport-security";
    for edit in ["set", "add"] {
        for redirect in ["true", "false"] {
            let header =
                format!("{{ {edit} = {{ Strict-Transport-Security = {value:?}, X-A = \"b\" }} }}");
            let route = format!("{PROXY}response_headers = {header}\n");
            let site = site(&format!(", redirect = {redirect}"), &route);
            let reply = get(&mut site.client(), "/x");
            assert_eq!(reply.header(hsts), Some(value));
            let reply = client::get(site.clear, "/x", &[("Host", HOST)]).expect("a reply");
            assert_eq!(reply.header(hsts), None, "{edit}, redirect {redirect}");
            assert_eq!(reply.header("x-a"), Some("b"));
        }
    }
}

#[test]
fn a_route_admits_only_clients_with_a_certificate() {
    let route = format!(
        "[[site.route]]\npath = \"/closed/*\"\nproxy = \"origin\"\nclient_certificate = true\n{PROXY}"
    );
    let site = site(
        ", redirect = false, client_ca = CA, client_certificate = \"request\"",
        &route,
    );
    site.origin.serve("/closed/x", fresh(10));
    let mut unknown = site.client();
    assert_eq!(get(&mut unknown, "/x").status, 200);
    let reply = get(&mut unknown, "/closed/x");
    assert_eq!(reply.status, 403);
    assert!(
        reply.text().contains("certificate-required"),
        "{}",
        reply.text()
    );
    assert_eq!(get(&mut site.known_client(), "/closed/x").status, 200);
    let reply = client::get(site.clear, "/closed/x", &[("Host", HOST)]).expect("a reply");
    assert_eq!(reply.status, 403);
    assert_eq!(site.edge.counter("requests_uncertified"), 2);
}

// Otherwise a client could avoid the demand by sending clear text.
#[test]
fn a_site_that_demands_certificates_refuses_clear_text() {
    let site = site(", redirect = false, client_ca = CA", PROXY);
    assert_eq!(get(&mut site.known_client(), "/x").status, 200);
    let reply = client::get(site.clear, "/x", &[("Host", HOST)]).expect("a reply");
    assert_eq!(reply.status, 403);
}

#[test]
fn log_and_origin_get_subject_and_fingerprint_of_the_certificate() {
    let route = format!(
        "{PROXY}[site.route.request_headers]\n\
         set = {{ X-Subject = \"{{client_subject}}\", X-Fingerprint = \"{{client_fingerprint}}\" }}\n"
    );
    let site = site(", client_ca = CA, client_certificate = \"request\"", &route);
    let forged = [
        ("Host", HOST),
        ("X-Subject", "CN=admin"),
        ("X_Fingerprint", "1"),
    ];
    let mut known = site.known_client();
    known.get("/x", &forged).expect("a reply");
    site.client().get("/x", &forged).expect("a reply");
    let lines = site.edge.json_log(2);
    let fingerprint = lines[0]["client_fingerprint"].as_str().expect("a hash");
    assert_eq!(fingerprint.len(), 64);
    assert!(
        lines[0]["client_subject"]
            .as_str()
            .is_some_and(|name| name.contains("CN=tester"))
    );
    assert!(lines[1]["client_subject"].is_null());
    let requests = site.origin.requests();
    let subject = requests[0].header("x-subject").expect("a subject");
    assert!(subject.contains("CN=tester"), "{subject}");
    assert_eq!(requests[0].header("x-fingerprint"), Some(fingerprint));
    assert_eq!(requests[1].header("x-subject"), None);
    assert_eq!(requests[1].header("x_fingerprint"), None);
}

#[test]
fn a_demand_that_no_certificate_can_fulfil_is_an_error() {
    let text = "[[route]]\nproxy = \"http://127.0.0.1:9\"\nclient_certificate = true\n";
    let error = Setup::of_text(text.to_owned()).refused();
    assert!(error.contains("no authority is known"), "{error}");
    assert!(error.contains("client_ca"), "{error}");
}

#[test]
fn a_site_demands_client_certificates_also_with_the_listeners_certificate() {
    let authority = Authority::new("Test authority");
    let folder = tempfile::tempdir().expect("a folder");
    let pair = authority.server(&[HOST]);
    let files = pair.write(folder.path(), "listener").expect("written");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).expect("written");
    let origin = serving("/x", fresh(1000));
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = {{ {} }}\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [[site]]\nhosts = {HOST:?}\ntls = {{ client_ca = {ca:?} }}\n[[site.route]]\nproxy = {:?}\n",
        files.keys(),
        origin.url("")
    );
    let edge = Setup::of_text(text).start();
    let config = Arc::new(client::tls_config(&authority.der()));
    let mut unknown = connect(edge.http, HOST, config);
    let refused = unknown.get("/x", &[("Host", HOST)]).expect_err("refused");
    let refused = refused.to_string();
    assert!(refused.contains("CertificateRequired"), "{refused}");
    let known = client_config(&authority, "tester");
    assert_eq!(get(&mut connect(edge.http, HOST, known), "/x").status, 200);
}

// ACME clients keep the files in another folder.
#[test]
fn certificates_that_are_symbolic_links_can_be_read_in_the_sandbox() {
    let authority = Authority::new("Test authority");
    let folder = tempfile::tempdir().expect("a folder");
    let [live, archive] = ["live", "archive"].map(|name| folder.path().join(name));
    for folder in [&live, &archive] {
        std::fs::create_dir(folder).expect("created");
    }
    let files = authority.server(&[HOST]).write(&archive, "site");
    let mut files = files.expect("written");
    for file in [&mut files.certificate, &mut files.key] {
        let name = file.file_name().expect("a name");
        let link = live.join(name);
        let target = std::path::Path::new("../archive").join(name);
        std::os::unix::fs::symlink(target, &link).expect("linked");
        *file = link;
    }
    let origin = serving("/x", fresh(1000));
    let text = format!(
        "[server]\nsandbox = \"auto\"\n[[listener]]\naddress = \"127.0.0.1:0\"\ntls = {{ {} }}\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[[route]]\nproxy = {:?}\n",
        files.keys(),
        origin.url("")
    );
    let edge = Setup::of_text(text).start();
    let config = Arc::new(client::tls_config(&authority.der()));
    assert_eq!(get(&mut connect(edge.http, HOST, config), "/x").status, 200);
    let reloaded = edge.command(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
}
