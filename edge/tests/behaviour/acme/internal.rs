//! Tests of the local authority for development, and of self-signed certificates.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;

use super::{Bed, handshake};
use crate::harness::{Edge, Setup};

/// The folder of certificates in a test's folder.
const STATE: &str = "state";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Returns the configuration of an edge whose site has these hosts and this value of `tls`.
fn text(folder: &TempDir, hosts: &[&str], tls: &str, keys: &str) -> String {
    format!(
        "[admin]\naddress = \"127.0.0.1:0\"\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n\
         [tls.acme]\nstate = {:?}\n{keys}\n\
         [[site]]\nhosts = {hosts:?}\ntls = {tls:?}\n[[site.route]]\nrespond = \"hello\"\n",
        folder.path().join(STATE),
    )
}

fn internal(folder: &TempDir, hosts: &[&str]) -> Setup {
    Setup::of_text(text(folder, hosts, "internal", ""))
}

/// Returns the root's certificate in PEM.
fn root_pem(folder: &TempDir) -> String {
    let file = folder.path().join(STATE).join("internal/root.pem");
    fs::read_to_string(file).expect("the root")
}

/// Completes a handshake with this name, in which the certificate is verified with the root.
fn verified(edge: &Edge, root: &str, name: &str) -> Result<(), String> {
    let root = CertificateDer::from_pem_slice(root.as_bytes()).expect("a certificate");
    handshake(edge.http, &root, name).map(drop)
}

/// Runs `sluice trust` with these arguments in a folder.
fn trust(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .current_dir(folder)
        .arg("trust")
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn names_wildcards_and_addresses_have_certificates_at_once() {
    let folder = folder();
    let hosts = ["localhost", "*.dev.example", "127.0.0.1"];
    let edge = internal(&folder, &hosts).start();
    let root = root_pem(&folder);
    // A client that connects to an address sends no name.
    for name in ["localhost", "a.dev.example", "127.0.0.1"] {
        verified(&edge, &root, name).expect("a certificate");
    }
    let error = verified(&edge, &root, "other.example").expect_err("another name");
    assert!(error.contains("not valid for name"), "{error}");
    let mut client = {
        let root = CertificateDer::from_pem_slice(root.as_bytes()).expect("a certificate");
        handshake(edge.http, &root, "localhost").expect("a certificate")
    };
    let reply = client.get("/", &[("Host", "localhost")]).expect("a reply");
    assert_eq!(reply.text(), "hello");
}

#[test]
fn the_root_outlives_a_restart_and_only_the_user_reads_its_files() {
    let folder = folder();
    let edge = internal(&folder, &["localhost"]).start();
    let root = root_pem(&folder);
    drop(edge);
    let edge = internal(&folder, &["localhost", "a.example"]).start();
    assert_eq!(root_pem(&folder), root);
    verified(&edge, &root, "a.example").expect("a certificate");
    let state = folder.path().join(STATE);
    let files = ["lock", "internal/root.pem", "internal/root.key"].map(|file| (file, 0o600));
    for (path, expected) in [("", 0o700), ("internal", 0o700)].into_iter().chain(files) {
        let found = fs::metadata(state.join(path)).expect("it exists");
        assert_eq!(found.permissions().mode() & 0o777, expected, "{path}");
    }
}

// Without Landlock in the kernel, this edge has no sandbox.
#[test]
fn in_the_sandbox_the_folder_is_created_and_written() {
    let folder = folder();
    let text = text(&folder, &["localhost"], "internal", "");
    let edge = Setup::of_text(format!("[server]\nsandbox = \"auto\"\n{text}")).start();
    verified(&edge, &root_pem(&folder), "localhost").expect("a certificate");
}

#[test]
fn a_second_process_is_refused_the_folder() {
    let folder = folder();
    let _edge = internal(&folder, &["localhost"]).start();
    let said = internal(&folder, &["localhost"]).refused();
    assert!(said.contains("another process uses this folder"), "{said}");
    assert!(said.contains("`state` in [tls.acme]"), "{said}");
}

#[test]
fn a_name_that_a_reload_adds_has_a_certificate_and_one_that_it_removes_has_none() {
    let folder = folder();
    let edge = internal(&folder, &["localhost"]).start();
    let root = root_pem(&folder);
    verified(&edge, &root, "a.example").expect_err("another name");
    edge.rewrite(&text(&folder, &["a.example"], "internal", ""));
    let reload = edge.command(&["reload"]);
    assert!(reload.status.success(), "{}", said(&reload.stderr));
    verified(&edge, &root, "a.example").expect("a certificate");
    verified(&edge, &root, "localhost").expect_err("another name");
}

#[test]
fn trust_reads_the_root_of_a_running_edge_or_makes_one() {
    let folder = folder();
    let config = folder.path().join("trust.toml");
    let text = text(&folder, &["localhost"], "internal", "");
    fs::write(&config, &text).expect("a file");
    // The file is found in the folder, too.
    let made = trust(folder.path(), &["-c", "trust.toml", "--print"]);
    assert_eq!(said(&made.stderr), "");
    assert_eq!(said(&made.stdout), root_pem(&folder));
    let edge = Setup::of_text(text).start();
    assert_eq!(said(&made.stdout), root_pem(&folder));
    let state = folder.path().join(STATE).display().to_string();
    let read = trust(folder.path(), &["--acme-state", &state, "--print"]);
    assert_eq!(said(&read.stdout), said(&made.stdout));
    verified(&edge, &said(&read.stdout), "localhost").expect("a certificate");
    let advice = said(&trust(folder.path(), &["-c", "trust.toml"]).stdout);
    let file = format!("{state}/internal/root.pem");
    for expected in [
        &format!("sudo install -m 644 {file} /usr/local/share/ca-certificates/sluice.crt"),
        &format!("sudo install -m 644 {file} /etc/pki/ca-trust/source/anchors/sluice.pem"),
        "certutil -d sql:$HOME/.pki/nssdb -A -t C,,",
        "security add-trusted-cert",
        "certutil -addstore -f Root",
    ] {
        assert!(advice.contains(expected), "{advice}");
    }
}

#[test]
fn trust_can_not_make_a_root_while_another_process_uses_the_folder() {
    let folder = folder();
    // No authority listens at port 1, and this site needs no root.
    let keys = "directory = \"https://127.0.0.1:1/dir\"";
    let _edge = Setup::of_text(text(&folder, &["a.example"], "auto", keys)).start();
    let state = folder.path().join(STATE).display().to_string();
    let refused = trust(folder.path(), &["--acme-state", &state]);
    assert_eq!(refused.status.code(), Some(1));
    let said = said(&refused.stderr);
    assert!(said.contains("there is no root yet"), "{said}");
    assert!(said.contains("`tls = \"internal\"`"), "{said}");
}

#[test]
fn a_damaged_root_is_named_and_not_replaced() {
    let folder = folder();
    drop(internal(&folder, &["localhost"]).start());
    let file = folder.path().join(STATE).join("internal/root.pem");
    fs::write(&file, "no certificate").expect("a file");
    let refused = internal(&folder, &["localhost"]).refused();
    assert!(refused.contains("internal/root.pem"), "{refused}");
    let trusted = trust(folder.path(), &["--acme-state", STATE]);
    let trusted = said(&trusted.stderr);
    assert!(trusted.contains("internal/root.pem"), "{trusted}");
    assert_eq!(root_pem(&folder), "no certificate");
}

/// Runs a client without input. Returns `None` if the client is not installed.
fn client(program: &str, arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.output().ok()
}

fn file_of_root(folder: &TempDir) -> String {
    let file = folder.path().join(STATE).join("internal/root.pem");
    file.display().to_string()
}

#[test]
fn curl_and_openssl_accept_the_certificates() {
    let folder = folder();
    let edge = internal(&folder, &["localhost", "*.dev.example", "127.0.0.1"]).start();
    let (file, port) = (file_of_root(&folder), edge.http.port());
    for host in ["localhost", "127.0.0.1", "a.dev.example"] {
        let url = format!("https://{host}:{port}/");
        let connect = format!("{host}:{port}:127.0.0.1:{port}");
        let arguments = ["-sS", "--noproxy", "*", "--cacert", &file];
        let arguments = [&arguments[..], &["--connect-to", &connect, &url]].concat();
        if let Some(output) = client("curl", &arguments) {
            assert_eq!(said(&output.stdout), "hello", "{}", said(&output.stderr));
        }
    }
    let address = edge.http.to_string();
    let arguments = [
        "s_client",
        "-connect",
        &address,
        "-servername",
        "a.dev.example",
        "-verify_hostname",
        "a.dev.example",
        "-verify_return_error",
        "-x509_strict",
        "-CAfile",
        &file,
    ];
    if let Some(output) = client("openssl", &arguments) {
        let (out, error) = (said(&output.stdout), said(&output.stderr));
        assert!(output.status.success(), "{out}{error}");
        assert!(out.contains("Verification: OK"), "{out}{error}");
    }
}

#[test]
fn a_self_signed_certificate_is_used_until_there_is_one_of_an_authority() {
    let name = "cdn.example.com";
    let bed = Bed::new(&[name], |_| {});
    let authority = bed.pebble.authority().expect("pebble's authority");
    bed.pebble.pause().expect("pebble runs");
    let edge = bed.start("self_signed = true", &[name]);
    let https = SocketAddr::from(([127, 0, 0, 1], bed.https));
    let error = handshake(https, &authority, name).expect_err("another certificate");
    assert!(error.contains("UnknownIssuer"), "{error}");
    assert_eq!(edge.counter("tls_failed_no_certificate"), 0);
    bed.pebble.resume().expect("pebble runs");
    assert_eq!(bed.wait_served(name), "hello");
    assert_eq!(bed.pebble.orders(), 1);
    let stored = fs::read_dir(bed.folder.path().join("state/certificates")).expect("a folder");
    let stored: Vec<_> = stored
        .map(|file| file.expect("a file").file_name().into_string())
        .collect();
    assert!(stored.contains(&Ok(format!("{name}.pem"))), "{stored:?}");
}
