//! TLS: handshakes, certificates by name, resumption, and requests over encrypted connections.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, HandshakeKind, NamedGroup, ProtocolVersion};
use sluice_lab::certificates::{Authority, KeyType};
use sluice_lab::client::{self, Client, ClientOptions, ClientTls, ReadError};
use sluice_lab::origin::Origin;

use crate::harness::{Edge, Setup, assert_hit, eventually, fresh, serving};

/// A test bed: an authority, and an edge whose sites have certificates that it signed.
struct Bed {
    authority: Authority,
    edge: Edge,
    folder: tempfile::TempDir,
    _origin: Origin,
}

/// Starts an edge with a TLS listener. `options` are further keys of `[tls]`; each site has its hosts and the names of
/// its certificates.
fn bed(options: &str, sites: &[(&str, &[(&str, KeyType)])]) -> Bed {
    let authority = Authority::new("Test authority");
    let folder = tempfile::tempdir().expect("a folder");
    let origin = serving("/x", fresh(100_000));
    let mut text = format!(
        "[server]\nworkers = 2\n[tls]\n{options}\n[[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[upstream.origin]\nservers = {:?}\n[cache.main]\n",
        origin.url("")
    );
    for (index, (host, certificates)) in sites.iter().enumerate() {
        let mut chains = Vec::new();
        let mut keys = Vec::new();
        for (name, kind) in *certificates {
            let pair = authority.server_with(&[name], *kind);
            let file = format!("{index}-{kind:?}");
            let files = pair.write(folder.path(), &file).expect("written");
            chains.push(files.certificate);
            keys.push(files.key);
        }
        text += &format!("[[site]]\nhosts = [{host:?}]\n");
        if !chains.is_empty() {
            text += &format!("tls = {{ certificate = {chains:?}, key = {keys:?} }}\n");
        }
        text += "[[site.route]]\nproxy = \"origin\"\ncache = \"main\"\n";
    }
    Bed {
        edge: Setup::of_text(text).start(),
        authority,
        folder,
        _origin: origin,
    }
}

const ECDSA: KeyType = KeyType::Ecdsa;

fn one_site() -> Bed {
    bed("", &[("a.example.com", &[("a.example.com", ECDSA)])])
}

impl Bed {
    fn client(&self, name: &str) -> Client {
        let config = client::tls_config(&self.authority.der());
        connect(self.edge.http, name, Arc::new(config))
    }

    /// Completes a handshake with this name, or returns the error.
    fn handshake(&self, name: &str) -> Result<Client, String> {
        let mut client = self.client(name);
        match client.handshake() {
            Ok(()) => Ok(client),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Opens a connection whose client sends this name.
pub fn connect(address: SocketAddr, name: &str, config: Arc<ClientConfig>) -> Client {
    let tls = ClientTls {
        config,
        name: name.to_owned(),
    };
    let options = ClientOptions {
        tls: Some(tls),
        ..ClientOptions::default()
    };
    Client::connect_with(address, &options).expect("the program accepts")
}

fn get(client: &mut Client, host: &str) -> Result<client::Reply, ReadError> {
    client.get("/x", &[("Host", host)])
}

#[test]
fn requests_are_answered_over_tls_and_from_the_cache() {
    let bed = one_site();
    let mut client = bed.client("a.example.com");
    let first = get(&mut client, "a.example.com").expect("a reply");
    first.verify_whole(100_000).expect("the body");
    let second = get(&mut client, "a.example.com").expect("a reply");
    assert_hit(&second);
    second.verify_whole(100_000).expect("the body");
    let session = client.session().expect("TLS");
    assert_eq!(session.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    let group = session.negotiated_key_exchange_group().expect("a group");
    assert_eq!(group.name(), rustls::NamedGroup::X25519MLKEM768);
    assert_eq!(bed.edge.counter("tls_handshakes"), 1);
    assert_eq!(bed.edge.counter("tls_handshakes_now"), 0);
}

#[test]
fn the_certificate_follows_from_the_name() {
    let bed = bed(
        "",
        &[
            ("a.example.com", &[("a.example.com", ECDSA)]),
            ("*.example.net", &[("*.example.net", ECDSA)]),
        ],
    );
    for name in ["a.example.com", "b.example.net", "c.example.net"] {
        let mut client = bed.handshake(name).expect("a certificate for it");
        assert_eq!(get(&mut client, name).expect("a reply").status, 200);
    }
    // The first site's certificate is the default, which is not valid for other names.
    let error = bed
        .handshake("other.example.org")
        .expect_err("no certificate");
    assert!(error.contains("invalid peer certificate"), "{error}");
}

#[test]
fn a_site_without_a_certificate_gets_that_of_another_site_which_is_valid_for_it() {
    let bed = bed(
        "",
        &[
            ("a.example.net", &[("a.example.net", ECDSA)]),
            ("www.example.com", &[("*.example.com", ECDSA)]),
            ("img.example.com", &[]),
        ],
    );
    let mut client = bed.handshake("img.example.com").expect("a certificate");
    let reply = get(&mut client, "img.example.com").expect("a reply");
    assert_eq!(reply.status, 200);
}

/// Returns the error of a client that speaks this version of TLS only.
fn handshake_with(
    bed: &Bed,
    version: &'static rustls::SupportedProtocolVersion,
) -> Result<(), String> {
    let config = config_with(bed.authority.der(), version);
    let mut client = connect(bed.edge.http, "a.example.com", config);
    client.handshake().map_err(|error| error.to_string())
}

/// Returns the configuration of a client that trusts this authority and speaks this version of TLS only.
fn config_with(
    authority: Vec<u8>,
    version: &'static rustls::SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.into()).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

#[test]
fn a_listener_has_its_own_min_version() {
    let authority = Authority::new("Test authority");
    let folder = tempfile::tempdir().expect("a folder");
    let pair = authority.server(&["a.example.com"]);
    let keys = pair.write(folder.path(), "site").expect("written").keys();
    for (global, own, permits_old) in [("1.2", "1.3", false), ("1.3", "1.2", true)] {
        let edge = Setup::of_text(format!(
            "[admin]\naddress = \"127.0.0.1:0\"\n[tls]\nmin_version = {global:?}\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
             tls = {{ {keys}, min_version = {own:?} }}\n[[route]]\nrespond = \"a\"\n"
        ))
        .start();
        let handshake = |version| {
            let config = config_with(authority.der(), version);
            connect(edge.http, "a.example.com", config).handshake()
        };
        handshake(&rustls::version::TLS13).expect("TLS 1.3");
        assert_eq!(handshake(&rustls::version::TLS12).is_ok(), permits_old);
    }
}

#[test]
fn only_versions_from_min_version_on_are_accepted() {
    let sites: &[(&str, &[(&str, KeyType)])] = &[("a.example.com", &[("a.example.com", ECDSA)])];
    let old = &rustls::version::TLS12;
    handshake_with(&bed("", sites), old).expect("TLS 1.2 by default");
    let strict = bed("min_version = \"1.3\"", sites);
    let error = handshake_with(&strict, old).expect_err("refused");
    assert!(error.contains("ProtocolVersion"), "{error}");
    handshake_with(&strict, &rustls::version::TLS13).expect("TLS 1.3");
}

#[test]
fn groups_and_ciphers_are_those_of_the_configuration() {
    let sites: &[(&str, &[(&str, KeyType)])] = &[("a.example.com", &[("a.example.com", ECDSA)])];
    let options = "groups = [\"P-256\"]\nciphers = [\"TLS_CHACHA20_POLY1305_SHA256\"]";
    let bed = bed(options, sites);
    let client = bed.handshake("a.example.com").expect("a handshake");
    let session = client.session().expect("TLS");
    let group = session.negotiated_key_exchange_group().expect("a group");
    assert_eq!(group.name(), rustls::NamedGroup::secp256r1);
    let suite = session.negotiated_cipher_suite().expect("a suite");
    let expected = rustls::CipherSuite::TLS13_CHACHA20_POLY1305_SHA256;
    assert_eq!(suite.suite(), expected);
    let error = handshake_with(&bed, &rustls::version::TLS12).expect_err("no suite of TLS 1.2");
    assert!(
        error.contains("ProtocolVersion") || error.contains("HandshakeFailure"),
        "{error}"
    );
}

#[test]
fn the_order_of_cipher_suites_is_that_of_the_edge_except_for_clients_with_other_preferences() {
    let bed = one_site();
    let chosen = |first: &str, group: NamedGroup| {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        let suites = &mut provider.cipher_suites;
        suites.sort_by_key(|suite| !format!("{:?}", suite.suite()).contains(first));
        provider.kx_groups.sort_by_key(|one| one.name() != group);
        let config = client::tls_config_with(&bed.authority.der(), provider);
        let mut client = connect(bed.edge.http, "a.example.com", Arc::new(config));
        client.handshake().expect("a handshake");
        let session = client.session().expect("TLS");
        let suite = session.negotiated_cipher_suite().expect("a suite");
        format!("{:?}", suite.suite())
    };
    let (classic, hybrid) = (NamedGroup::X25519, NamedGroup::X25519MLKEM768);
    for (first, group, expected) in [
        ("TLS13_AES_256", classic, "TLS13_AES_128_GCM_SHA256"),
        ("TLS13_AES_256", hybrid, "TLS13_AES_256_GCM_SHA384"),
        ("TLS13_CHACHA20", classic, "TLS13_CHACHA20_POLY1305_SHA256"),
    ] {
        assert_eq!(chosen(first, group), expected);
    }
}

// The client has to send a second ClientHello, since it remembers the group of the other server.
#[test]
fn a_session_of_another_server_with_the_same_name_does_not_break_the_handshake() {
    let sites: &[(&str, &[(&str, KeyType)])] = &[("a.example.com", &[("a.example.com", ECDSA)])];
    let other = bed("groups = [\"X25519\"]", sites);
    let bed = one_site();
    let mut roots = rustls::RootCertStore::empty();
    for authority in [&other.authority, &bed.authority] {
        roots.add(authority.der().into()).expect("a root");
    }
    let mut config = client::tls_config(&bed.authority.der());
    let provider = config.crypto_provider().clone();
    config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    for edge in [&other.edge, &bed.edge, &other.edge, &bed.edge] {
        let mut client = connect(edge.http, "a.example.com", config.clone());
        let reply = get(&mut client, "a.example.com").expect("a reply");
        assert_eq!(reply.status, 200);
    }
}

#[test]
fn an_unknown_name_is_refused_if_configured() {
    let sites: &[(&str, &[(&str, KeyType)])] = &[("a.example.com", &[("a.example.com", ECDSA)])];
    let bed = bed("unknown_name = \"refuse\"", sites);
    let error = bed.handshake("b.example.com").expect_err("refused");
    assert!(error.contains("UnrecognisedName"), "{error}");
    assert!(bed.handshake("a.example.com").is_ok());
    assert_eq!(bed.edge.counter("tls_handshakes_failed"), 1);
}

/// Starts an edge that refuses unknown names, with a site for any host. `CERTIFICATE` in the text are the keys of a
/// certificate for `www.example.com` and `*.example.net`.
fn refusing(text: &str) -> (Authority, Edge, tempfile::TempDir) {
    let authority = Authority::new("Test authority");
    let folder = tempfile::tempdir().expect("a folder");
    let pair = authority.server(&["www.example.com", "*.example.net"]);
    let keys = pair.write(folder.path(), "any").expect("written").keys();
    let edge = Setup::of_text(format!(
        "[admin]\naddress = \"127.0.0.1:0\"\n[tls]\nunknown_name = \"refuse\"\n[[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n{}",
        text.replace("CERTIFICATE", &keys)
    ))
    .start();
    (authority, edge, folder)
}

#[test]
fn the_names_in_the_certificate_of_the_site_for_any_host_are_known() {
    const OWN: &str = "[[site]]\ntls = { CERTIFICATE }\n[[site.route]]\nrespond = \"a\"\n";
    // The site for any host uses the certificate of another site.
    const LENT: &str = "[[site]]\nhosts = \"b.example.net\"\ntls = { CERTIFICATE }\n\
         [[site.route]]\nrespond = \"b\"\n[[site]]\n[[site.route]]\nrespond = \"a\"\n";
    for text in [OWN, LENT] {
        let (authority, edge, _folder) = refusing(text);
        let config = Arc::new(client::tls_config(&authority.der()));
        for name in ["www.example.com", "a.example.net"] {
            let mut client = connect(edge.http, name, config.clone());
            assert_eq!(get(&mut client, name).expect("a reply").status, 200);
        }
        let mut unknown = connect(edge.http, "www.example.org", config);
        let refused = unknown.handshake().expect_err("refused").to_string();
        assert!(refused.contains("UnrecognisedName"), "{refused}");
    }
}

#[test]
fn the_type_of_key_is_one_that_the_client_can_verify() {
    let certificates = &[("a.example.com", KeyType::Rsa), ("a.example.com", ECDSA)];
    let bed = bed("", &[("a.example.com", certificates)]);
    let suite = |name: &str| {
        let mut provider = rustls::crypto::aws_lc_rs::default_provider();
        provider
            .cipher_suites
            .retain(|suite| format!("{:?}", suite.suite()).contains(name));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(bed.authority.der().into()).expect("a root");
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS12])
            .expect("suites")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut client = connect(bed.edge.http, "a.example.com", Arc::new(config));
        client.handshake().expect("a certificate of that type");
        let session = client.session().expect("TLS");
        format!("{:?}", session.negotiated_cipher_suite())
    };
    assert!(suite("ECDHE_RSA").contains("RSA"));
    assert!(suite("ECDHE_ECDSA").contains("ECDSA"));
    assert!(
        suite("ECDHE").contains("ECDSA"),
        "the cheaper one is preferred"
    );
}

#[test]
fn sessions_are_resumed_on_every_worker_and_after_a_reload() {
    let bed = one_site();
    let config = Arc::new(client::tls_config(&bed.authority.der()));
    let kind = || {
        let mut client = connect(bed.edge.http, "a.example.com", config.clone());
        let reply = get(&mut client, "a.example.com").expect("a reply");
        assert_eq!(reply.status, 200);
        client.session().expect("TLS").handshake_kind()
    };
    assert_eq!(kind(), Some(HandshakeKind::Full));
    // The kernel chooses the worker of each connection.
    let mut connections = 0;
    eventually("both workers resume sessions", || {
        assert_eq!(kind(), Some(HandshakeKind::Resumed));
        connections += 1;
        let status = bed.edge.status();
        let workers = status["workers"].as_array().expect("a list");
        let resumed = workers.iter().map(|one| one["tls_resumed"].as_u64());
        workers.len() == 2 && resumed.min().flatten() > Some(0)
    });
    let reloaded = bed.edge.command(&["reload"]);
    assert!(reloaded.status.success());
    assert_eq!(kind(), Some(HandshakeKind::Resumed));
    assert_eq!(bed.edge.counter("tls_resumed"), connections + 1);
}

#[test]
fn without_tickets_no_session_is_resumed() {
    let sites: &[(&str, &[(&str, KeyType)])] = &[("a.example.com", &[("a.example.com", ECDSA)])];
    let bed = bed("tickets = false", sites);
    let config = Arc::new(client::tls_config(&bed.authority.der()));
    for _ in 0..3 {
        let mut client = connect(bed.edge.http, "a.example.com", config.clone());
        get(&mut client, "a.example.com").expect("a reply");
        let kind = client.session().expect("TLS").handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::Full));
    }
}

#[test]
fn a_request_in_clear_text_is_answered_with_the_reason() {
    let bed = one_site();
    client::encrypt_none_to(bed.edge.http);
    let reply = client::get(bed.edge.http, "/x", &[]).expect("a reply");
    assert_eq!(reply.status, 400);
    let text = reply.text();
    assert_eq!(text, "not-tls: this port expects TLS (https://)\n");
}

#[test]
fn a_changed_certificate_is_used_after_a_reload_without_dropping_connections() {
    let bed = one_site();
    let mut old = bed.handshake("a.example.com").expect("a handshake");
    let serial = |client: &Client| {
        let chain = client.session().expect("TLS").peer_certificates();
        chain.expect("a certificate")[0].to_vec()
    };
    let before = serial(&old);
    let pair = bed.authority.server(&["a.example.com"]);
    pair.write(bed.folder.path(), "0-Ecdsa").expect("written");
    assert!(bed.edge.command(&["reload"]).status.success());
    let new = bed.handshake("a.example.com").expect("a handshake");
    assert_ne!(serial(&new), before);
    let reply = get(&mut old, "a.example.com").expect("a reply on the old connection");
    assert_eq!(reply.status, 200);
}

#[test]
fn changed_files_are_loaded_by_themselves_once_they_fit_together() {
    let bed = one_site();
    let mut client = bed.handshake("a.example.com").expect("a handshake");
    let reply = get(&mut client, "a.example.com").expect("a reply");
    assert_eq!(reply.status, 200);
    let pair = bed.authority.server(&["a.example.com"]);
    // Only the certificate is new, so it does not fit the key.
    std::fs::write(bed.folder.path().join("0-Ecdsa.pem"), &pair.certificate).expect("written");
    let said = |text: &str| bed.edge.process.stderr().contains(text);
    eventually("an error", || said("the earlier ones stay in use"));
    assert!(bed.handshake("a.example.com").is_ok());
    std::fs::write(bed.folder.path().join("0-Ecdsa.key"), &pair.key).expect("written");
    eventually("the new one", || said("changed certificates are in use"));
    let new = bed.handshake("a.example.com").expect("a handshake");
    let chain = new.session().expect("TLS").peer_certificates();
    let leaf = chain.expect("a chain")[0].to_vec();
    let expected = rustls::pki_types::CertificateDer::from_pem_slice(pair.certificate.as_bytes());
    assert_eq!(leaf, expected.expect("a certificate").to_vec());
    let reply = get(&mut client, "a.example.com").expect("the old connection goes on");
    assert_eq!(reply.status, 200);
}

/// Returns the certificate that a client with this name gets.
fn certificate(bed: &Bed, name: &str) -> Vec<u8> {
    let client = bed.handshake(name).expect("a handshake");
    let chain = client.session().expect("TLS").peer_certificates();
    chain.expect("a chain")[0].to_vec()
}

#[test]
fn a_file_that_can_not_be_used_does_not_stop_the_renewal_of_other_certificates() {
    let names = ["a.example.com", "b.example.com"];
    let bed = bed(
        "",
        &[
            (names[0], &[(names[0], ECDSA)]),
            (names[1], &[(names[1], ECDSA)]),
        ],
    );
    let [first, second] = names.map(|name| certificate(&bed, name));
    let refused = || bed.edge.status()["tls_files_refused"].as_u64();
    assert_eq!(refused(), Some(0));
    let key = bed.folder.path().join("0-Ecdsa.key");
    let good = std::fs::read_to_string(&key).expect("a key");
    std::fs::write(&key, "no key").expect("written");
    let pair = bed.authority.server(&[names[1]]);
    pair.write(bed.folder.path(), "1-Ecdsa").expect("written");
    eventually("the new one", || certificate(&bed, names[1]) != second);
    assert_eq!(certificate(&bed, names[0]), first);
    eventually("the number", || refused() == Some(1));
    let metrics = bed.edge.get_admin("/metrics").text();
    assert!(
        metrics.contains("\nsluice_tls_files_refused 1\n"),
        "{metrics}"
    );
    let status = bed.edge.command(&["status"]).stdout;
    let status = String::from_utf8_lossy(&status);
    assert!(
        status.contains("tls: 1 changed file can't be used"),
        "{status}"
    );
    let message = "0-Ecdsa.key: has no private key";
    eventually("a message", || bed.edge.process.stderr().contains(message));
    std::fs::write(&key, good).expect("written");
    eventually("the number", || refused() == Some(0));
    assert_eq!(certificate(&bed, names[0]), first);
}

#[test]
fn a_key_of_another_certificate_is_an_error_that_names_both_files() {
    let authority = Authority::new("Test authority");
    let folder = tempfile::tempdir().expect("a folder");
    let names = ["a.example.com"];
    let mut pair = authority.server(&names);
    pair.key = authority.server(&names).key;
    let files = pair.write(folder.path(), "mixed").expect("written");
    let text = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = {{ {} }}\n[[route]]\nproxy = \"http://127.0.0.1:9\"\n",
        files.keys()
    );
    let error = Setup::of_text(text).refused();
    for part in [
        "sluice.toml:3",
        "does not belong to the certificate",
        "mixed.key",
        "mixed.pem",
    ] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

#[test]
fn an_upload_and_a_large_response_pass_over_tls() {
    let origin = serving("/pass/big", fresh(5_000_000));
    let edge = Setup::cached(&origin)
        .encrypted()
        .limits("body = \"8MiB\"")
        .start();
    let reply = edge.get("/pass/big", &[]);
    reply.verify_whole(5_000_000).expect("the body");
    let body = vec![b'x'; 3_000_000];
    let reply = edge.ask("POST", "/pass/echo", &[], &body);
    assert_eq!(reply.status, 404, "the origin has no such resource");
    assert!(edge.counter("client_bytes_in") > 3_000_000);
}

/// A test bed with a site that demands client certificates, and one that does not.
fn with_client_certificates() -> Bed {
    let bed = open_and_closed();
    add_client_ca(&bed);
    bed
}

fn open_and_closed() -> Bed {
    let sites: &[(&str, &[(&str, KeyType)])] = &[
        ("open.example.com", &[("open.example.com", ECDSA)]),
        ("closed.example.com", &[("closed.example.com", ECDSA)]),
    ];
    bed("", sites)
}

/// Reloads a configuration in which the second site demands client certificates.
fn add_client_ca(bed: &Bed) {
    let ca = bed.folder.path().join("clients.pem");
    std::fs::write(&ca, bed.authority.pem()).expect("written");
    let text = std::fs::read_to_string(bed.edge.file("sluice.toml")).expect("a file");
    let (first, second) = text.rsplit_once(" }\n").expect("the second site");
    let text = format!("{first}, client_ca = {ca:?} }}\n{second}");
    bed.edge.rewrite(&text);
    let reloaded = bed.edge.command(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
}

fn with_certificate(bed: &Bed) -> Arc<ClientConfig> {
    client_config(&bed.authority, "tester")
}

/// Returns the configuration of a client that trusts this authority and has a certificate that it signed.
pub fn client_config(authority: &Authority, name: &str) -> Arc<ClientConfig> {
    client_config_of(authority, authority, name)
}

/// Returns the configuration of a client that trusts the authority `servers` and has a certificate that `clients` signed.
pub fn client_config_of(servers: &Authority, clients: &Authority, name: &str) -> Arc<ClientConfig> {
    let pair = clients.client(name);
    let chain = rustls::pki_types::CertificateDer::from_pem_slice(pair.certificate.as_bytes());
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(pair.key.as_bytes());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(servers.der().into()).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![chain.expect("a chain")], key.expect("a key"));
    Arc::new(config.expect("a certificate"))
}

#[test]
fn client_certificates_are_demanded_by_name() {
    let bed = with_client_certificates();
    let mut open = bed.client("open.example.com");
    assert_eq!(
        get(&mut open, "open.example.com").expect("a reply").status,
        200
    );
    // In TLS 1.3 the client learns of the refusal with its first read.
    let mut closed = bed.client("closed.example.com");
    let refused = get(&mut closed, "closed.example.com").expect_err("refused");
    assert!(
        refused.to_string().contains("CertificateRequired"),
        "{refused}"
    );
    let mut known = connect(bed.edge.http, "closed.example.com", with_certificate(&bed));
    assert_eq!(
        get(&mut known, "closed.example.com")
            .expect("a reply")
            .status,
        200
    );
}

#[test]
fn a_request_for_a_host_with_other_demands_is_misdirected() {
    let bed = with_client_certificates();
    let mut open = bed.client("open.example.com");
    let reply = get(&mut open, "closed.example.com").expect("a reply");
    assert_eq!(reply.status, 421);
    assert!(reply.text().contains("misdirected"), "{}", reply.text());
    let mut known = connect(bed.edge.http, "closed.example.com", with_certificate(&bed));
    let reply = get(&mut known, "open.example.com:443").expect("a reply");
    assert_eq!(reply.status, 421);
}

#[test]
fn a_connection_that_is_older_than_the_demand_for_certificates_is_misdirected() {
    let bed = open_and_closed();
    let old = |name| {
        let mut client = bed.client(name);
        assert_eq!(get(&mut client, name).expect("a reply").status, 200);
        client
    };
    let (mut open, mut closed) = (old("open.example.com"), old("closed.example.com"));
    add_client_ca(&bed);
    let reply = get(&mut closed, "closed.example.com").expect("a reply");
    assert_eq!(reply.status, 421);
    assert!(reply.text().contains("misdirected"), "{}", reply.text());
    let reply = get(&mut open, "open.example.com").expect("a reply");
    assert_eq!(reply.status, 200);
    let mut known = connect(bed.edge.http, "closed.example.com", with_certificate(&bed));
    let reply = get(&mut known, "closed.example.com").expect("a reply");
    assert_eq!(reply.status, 200);
}

/// Makes two connections with a client of this configuration, and returns their lines in the log.
fn logged(config: Arc<ClientConfig>) -> Vec<serde_json::Value> {
    let origin: Origin = serving("/x", fresh(1000));
    // Each worker writes its own lines, so the order is known only with one of them.
    let setup = Setup::cached(&origin).encrypted().workers(1);
    let edge = setup.logged("json").start();
    for _ in 0..2 {
        let mut client = connect(edge.http, "localhost", config.clone());
        assert_eq!(get(&mut client, "localhost").expect("a reply").status, 200);
    }
    edge.json_log(2)
}

// A resumed session of TLS 1.2 exchanges no keys.
#[test]
fn the_log_names_a_resumed_session_of_tls_1_2() {
    let pem = crate::harness::setup::authority_pem();
    let authority = rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes());
    let authority = authority.expect("a certificate").to_vec();
    let lines = logged(config_with(authority, &rustls::version::TLS12));
    let cipher = lines[0]["cipher"].as_str().expect("a name");
    assert!(cipher.starts_with("TLS_ECDHE_"), "{cipher}");
    assert!(lines[0]["group"].is_string(), "{}", lines[0]);
    assert!(lines[1]["group"].is_null(), "{}", lines[1]);
    for (line, resumed) in lines.iter().zip([false, true]) {
        assert_eq!(line["tls"], "TLSv1.2");
        assert_eq!(line["cipher"], cipher);
        assert_eq!(line["resumed"], resumed);
    }
}

#[test]
fn the_log_names_version_cipher_group_and_resumption() {
    let lines = logged(crate::harness::setup::tls().config);
    for (line, resumed) in lines.iter().zip([false, true]) {
        assert_eq!(line["tls"], "TLSv1.3");
        assert_eq!(line["group"], "X25519MLKEM768");
        assert_eq!(line["resumed"], resumed);
        assert!(
            line["cipher"]
                .as_str()
                .is_some_and(|name| name.starts_with("TLS_"))
        );
    }
}

#[test]
fn keys_are_logged_to_the_named_file_also_in_the_sandbox() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys.log");
    let origin = serving("/x", fresh(10));
    let setup = Setup::cached(&origin)
        .encrypted()
        .server("sandbox = \"auto\"")
        .tables("[tls]\nkey_log = true\n")
        .environment("SSLKEYLOGFILE", &file.display().to_string());
    let edge = setup.start();
    let keys = || std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(edge.get("/x", &[]).status, 200);
    eventually("keys", || keys().contains("SERVER_TRAFFIC_SECRET_0"));
    // A file that was removed is created again by a reload.
    std::fs::remove_file(&file).expect("removed");
    assert!(edge.command(&["reload"]).status.success());
    assert_eq!(edge.get("/x", &[]).status, 200);
    eventually("keys", || keys().contains("SERVER_TRAFFIC_SECRET_0"));
}

#[test]
fn a_balancer_names_the_client_before_the_handshake() {
    const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.2 40000 443\r\n";
    let origin = serving("/x", fresh(10));
    let setup = Setup::cached(&origin).encrypted().logged("json");
    let listener = "[[listener]]\nproxy_protocol = \"any\"\ntrusted = \"127.0.0.1\"\n";
    let text = setup.text().replace("[[listener]]\n", listener);
    let edge = Setup::of_text(text).start();
    let tls = crate::harness::setup::tls();
    let name = rustls::pki_types::ServerName::try_from(tls.name.clone()).expect("a name");
    let session = rustls::ClientConnection::new(tls.config.clone(), name).expect("a session");
    let mut socket = std::net::TcpStream::connect(edge.http).expect("accepted");
    socket.write_all(LINE).expect("sent");
    let mut stream = rustls::StreamOwned::new(session, socket);
    let request = b"GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("sent");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    assert_eq!(edge.json_log(1)[0]["client"], "192.0.2.1");
}
