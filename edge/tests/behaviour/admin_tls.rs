//! TLS of the admin address, and the commands that use it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};

use sluice_lab::certificates::{Authority, Pair, PairFiles, self_signed};
use sluice_lab::client::{self, Client, ClientOptions, ClientTls};
use tempfile::TempDir;

use crate::admin::at_once_beside;
use crate::harness::{Edge, SOON, Setup, eventually};

const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// A running program whose admin address has TLS.
struct Bed {
    edge: Edge,
    authority: Authority,
    files: PairFiles,
    folder: TempDir,
}

/// Starts a program whose admin address has a certificate of an authority.
fn bed() -> Bed {
    let authority = Authority::new("Test authority");
    let pair = authority.server(&NAMES);
    start(authority, &pair, "")
}

/// Starts a program whose admin address has this certificate, and further keys in its `tls`.
fn start(authority: Authority, pair: &Pair, more: &str) -> Bed {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("ca.pem"), authority.pem()).expect("written");
    let files = pair.write(folder.path(), "admin").expect("written");
    let more = more.replace("FOLDER", &folder.path().display().to_string());
    let text = config("127.0.0.1:0", &format!("{}{more}", files.keys()));
    let mut edge = Setup::of_text(text).start();
    edge.encrypt_admin(ClientTls::trusting(&authority.der(), "localhost"));
    Bed {
        edge,
        authority,
        files,
        folder,
    }
}

/// Returns a configuration with these keys in `tls` of the admin address.
fn config(admin: &str, tls: &str) -> String {
    format!(
        "[log]\nlevel = \"debug\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [admin]\naddress = {admin:?}\ntls = {{ {tls} }}\n[[route]]\nrespond = \"x\"\n"
    )
}

impl Bed {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(arguments)
            .envs(variables.iter().copied())
            .current_dir(self.folder.path())
            .output()
            .expect("the program starts")
    }

    /// Runs `sluice status` with these options. Returns its errors, if it fails.
    fn status(&self, options: &[&str]) -> Result<(), String> {
        said(&self.run(&[&["status"], options].concat(), &[]))
    }

    /// Returns the URL of the admin address, by this host.
    fn url(&self, host: &str) -> String {
        format!("https://{host}:{}", self.edge.admin.port())
    }

    /// Writes a configuration file with the port of the admin address and this certificate.
    fn configured(&self, files: &PairFiles) {
        let text = config(&self.edge.admin.to_string(), &files.keys());
        fs::write(self.path("sluice.toml"), text).expect("written");
    }
}

fn said(output: &Output) -> Result<(), String> {
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Checks that a command failed with these texts in its error.
fn assert_fails(result: Result<(), String>, parts: &[&str]) {
    let error = result.expect_err("it fails");
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}

#[test]
fn commands_trust_the_certificate_in_the_configuration_file() {
    let bed = start(
        Authority::new("Another authority"),
        &self_signed(&["edge1.example.com"]),
        "",
    );
    bed.configured(&bed.files);
    // In its folder, a command finds `sluice.toml` by itself.
    for command in ["status", "reload"] {
        assert_eq!(said(&bed.run(&[command], &[])), Ok(()), "{command}");
    }
    let purged = said(&bed.run(&["purge", "--all"], &[]));
    assert_fails(purged, &["this server has no cache"]);
    let inspected = said(&bed.run(&["inspect", "http://a/b"], &[]));
    assert_fails(inspected, &["no cache has stored"]);
    // Another certificate of the same name is not trusted.
    let other = self_signed(&["edge1.example.com"]);
    let other = other.write(bed.folder.path(), "other").expect("written");
    bed.configured(&other);
    assert_fails(
        bed.status(&["-c", "sluice.toml"]),
        &["its certificate is not the configured one", "--ca FILE"],
    );
    // One of several certificates is enough.
    let lists = format!(
        "certificate = [{:?}, {:?}], key = [{:?}, {:?}]",
        other.certificate, bed.files.certificate, other.key, bed.files.key
    );
    let text = config(&bed.edge.admin.to_string(), &lists);
    fs::write(bed.path("sluice.toml"), text).expect("written");
    assert_eq!(bed.status(&[]), Ok(()));
    let missing = PairFiles {
        certificate: bed.path("missing.pem"),
        ..other
    };
    bed.configured(&missing);
    assert_fails(bed.status(&[]), &["missing.pem: can't be read"]);
}

#[test]
fn commands_verify_the_certificate_of_a_url() {
    let bed = bed();
    let by_address = bed.url("127.0.0.1");
    for url in [&by_address, &bed.url("localhost")] {
        let options = ["--admin", url, "--ca", "ca.pem"];
        assert_eq!(bed.status(&options), Ok(()));
    }
    let variables = [("SLUICE_ADMIN", by_address.as_str())];
    let output = bed.run(&["status", "--ca", "ca.pem"], &variables);
    assert_eq!(said(&output), Ok(()));
    // The certificate itself is as good as its authority.
    let options = ["--admin", &by_address, "--ca", "admin.pem"];
    assert_eq!(bed.status(&options), Ok(()));
    // Without --ca, the authorities of the system count.
    let output = bed.run(
        &["status", "--admin", &by_address],
        &[("SSL_CERT_FILE", "ca.pem")],
    );
    assert_eq!(said(&output), Ok(()));
    let other = Authority::new("Another authority");
    fs::write(bed.path("other.pem"), other.pem()).expect("written");
    let output = bed.run(
        &["status", "--admin", &by_address],
        &[("SSL_CERT_FILE", "other.pem")],
    );
    assert_eq!(output.status.code(), Some(1));
    assert_fails(
        said(&output),
        &["TLS with", "its certificate is not trusted", "--ca FILE"],
    );
    let other = ["--admin", &by_address, "--ca", "other.pem"];
    assert_fails(bed.status(&other), &["its certificate is not trusted"]);
}

#[test]
fn commands_refuse_certificates_for_other_names_and_expired_ones() {
    let authority = Authority::new("Test authority");
    let pair = authority.server(&["localhost"]);
    let bed = start(authority, &pair, "");
    let url = bed.url("127.0.0.1");
    let options = ["--admin", &url, "--ca", "ca.pem"];
    assert_fails(
        bed.status(&options),
        &["its certificate is for other names", "--admin https://"],
    );
    let authority = Authority::new("Test authority");
    let pair = authority.server_expired(&NAMES);
    let bed = start(authority, &pair, "");
    let url = bed.url("127.0.0.1");
    let options = ["--admin", &url, "--ca", "ca.pem"];
    assert_fails(bed.status(&options), &["its certificate has expired"]);
    bed.configured(&bed.files);
    assert_eq!(
        bed.status(&[]),
        Ok(()),
        "exactly this certificate is trusted"
    );
}

#[test]
fn commands_say_that_the_admin_address_has_tls_or_has_none() {
    let bed = bed();
    let admin = bed.edge.admin.to_string();
    for url in [&admin, &format!("http://{admin}")] {
        let options = ["--admin", url];
        assert_fails(bed.status(&options), &["expects TLS", "--admin https://"]);
    }
    let clear = Setup::of_text("listen = \"127.0.0.1:0\"\n[admin]\naddress = \"127.0.0.1:0\"\n[[route]]\nrespond = \"x\"\n".to_owned());
    let clear = clear.start();
    let admin = clear.admin.to_string();
    let url = format!("https://{admin}");
    assert_fails(
        bed.status(&["--admin", &url, "--ca", "ca.pem"]),
        &["it does not speak TLS", &format!("--admin http://{admin}")],
    );
    let output = bed.run(&["status", "--admin", &admin, "--ca", "ca.pem"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert_fails(said(&output), &["has no TLS"]);
    let url = format!("http://localhost:{}", clear.admin.port());
    assert_eq!(bed.status(&["--admin", &url]), Ok(()));
}

#[test]
fn a_request_in_clear_text_to_the_admin_address_is_answered_with_the_reason() {
    let bed = bed();
    client::encrypt_none_to(bed.edge.admin);
    let reply = bed.edge.get_admin("/status");
    let text = "not-tls: the admin address expects TLS (https://)\n";
    assert_eq!((reply.status, reply.text().as_str()), (400, text));
}

#[test]
fn requests_of_an_https_admin_address_may_name_its_url() {
    let bed = bed();
    let status = |scheme: &str| {
        let target = format!("{scheme}://{}/status", bed.edge.admin);
        bed.edge.get_admin(&target).status
    };
    assert_eq!([status("https"), status("http")], [200, 400]);
}

#[test]
fn the_admin_address_demands_client_certificates() {
    let authority = Authority::new("Test authority");
    let pair = authority.server(&NAMES);
    let bed = start(authority, &pair, ", client_ca = \"FOLDER/ca.pem\"");
    let url = bed.url("127.0.0.1");
    let open = ["--admin", &url, "--ca", "ca.pem"];
    let refused = ["refused the client certificate", "--certificate FILE"];
    assert_fails(bed.status(&open), &refused);
    for (authority, name) in [
        (&bed.authority, "alice"),
        (&Authority::new("Another authority"), "mallory"),
    ] {
        let pair = authority.client(name);
        pair.write(bed.folder.path(), name).expect("written");
    }
    let with = |name: &str| {
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        let own = ["--certificate", &certificate, "--key", &key];
        bed.status(&[&open[..], &own].concat())
    };
    assert_eq!(with("alice"), Ok(()));
    assert_fails(with("mallory"), &refused);
    bed.configured(&bed.files);
    let own = ["--certificate", "alice.pem", "--key", "alice.key"];
    assert_eq!(bed.status(&own), Ok(()));
    assert_fails(bed.status(&[]), &refused);
    let mixed = ["--certificate", "alice.pem", "--key", "mallory.key"];
    assert_fails(bed.status(&mixed), &["mallory.key", "does not belong"]);
}

/// Opens a connection in clear text and sends these bytes.
fn begin(bed: &Bed, bytes: &[u8]) -> Client {
    let options = ClientOptions {
        in_clear_text: true,
        ..ClientOptions::default()
    };
    let mut client = Client::connect_with(bed.edge.admin, &options).expect("accepted");
    client.send_raw(bytes).expect("sent");
    client
}

#[test]
fn stalled_handshakes_keep_nobody_out_of_the_admin_address() {
    let bed = bed();
    let url = bed.url("127.0.0.1");
    let options = ["--admin", &url, "--ca", "ca.pem"];
    // A message of a handshake of 500 bytes, of which most are missing.
    let hello = [22, 3, 1, 1, 244, 1, 0, 1, 240, 3, 3];
    let lengths = || [1, 5, 11].iter().cycle().take(300);
    let stalled = || -> Vec<Client> { lengths().map(|n| begin(&bed, &hello[..*n])).collect() };
    // Clients that complete the handshake and send no request.
    let idle = |_| {
        let mut client = Client::connect(bed.edge.admin).expect("accepted");
        client.handshake().expect("a handshake");
        client
    };
    let (mut stalled, idle) = at_once_beside(
        || (stalled(), (0..100).map(idle).collect::<Vec<_>>()),
        || assert_eq!(bed.status(&options), Ok(())),
    );
    for client in &mut stalled {
        client.wait_closed(SOON).expect("closed");
    }
    drop(idle);
    assert_eq!(bed.status(&options), Ok(()));
}

#[test]
fn hostile_bytes_in_a_handshake_end_only_their_connection() {
    let bed = bed();
    let huge = [&[22, 3, 1, 255, 255], &[7; 70_000][..]].concat();
    let endless = [&[22, 3, 1, 0, 200], &[1; 200][..]].concat().repeat(1000);
    for bytes in [
        &huge,
        &endless,
        &vec![0; 1000],
        &vec![21, 3, 3, 0, 2, 2, 40],
    ] {
        let mut socket = TcpStream::connect(bed.edge.admin).expect("accepted");
        socket.set_read_timeout(Some(SOON)).expect("a timeout");
        // The program may close the connection before it has got all bytes.
        let _ = socket.write_all(bytes);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    assert_eq!(bed.edge.get_admin("/health").status, 200);
}

/// Returns the certificate of the admin address, as a new connection gets it.
fn certificate(bed: &Bed) -> Vec<u8> {
    let mut client = Client::connect(bed.edge.admin).expect("accepted");
    client.handshake().expect("a handshake");
    let chain = client.session().expect("TLS").peer_certificates();
    chain.expect("a chain")[0].to_vec()
}

#[test]
fn a_changed_certificate_of_the_admin_address_is_taken_up_by_itself() {
    let bed = bed();
    let before = certificate(&bed);
    let mut open = Client::connect(bed.edge.admin).expect("accepted");
    assert_eq!(open.get("/health", &[]).expect("a reply").status, 200);
    let pair = bed.authority.server(&NAMES);
    pair.write(bed.folder.path(), "admin").expect("written");
    // The old connection goes on. Its requests keep it from becoming idle.
    eventually("the new certificate", || {
        assert_eq!(open.get("/health", &[]).expect("a reply").status, 200);
        certificate(&bed) != before
    });
    assert_eq!(open.get("/health", &[]).expect("a reply").status, 200);
}

#[test]
fn a_reload_turns_the_tls_of_the_admin_address_off_and_on() {
    let bed = bed();
    let url = bed.url("127.0.0.1");
    let by_tls = ["--admin", &url, "--ca", "ca.pem"];
    let text = fs::read_to_string(bed.edge.file("sluice.toml")).expect("a file");
    let (before, rest) = text.split_once("tls = ").expect("its tls");
    let (_, after) = rest.split_once('\n').expect("a line");
    bed.edge.rewrite(&format!("{before}tls = false\n{after}"));
    let output = bed.run(&[&["reload"], &by_tls[..]].concat(), &[]);
    assert_eq!(said(&output), Ok(()));
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(
        shown.contains("TLS of the admin address changed"),
        "{shown}"
    );
    let admin = bed.edge.admin.to_string();
    assert_eq!(bed.status(&["--admin", &admin]), Ok(()));
    bed.edge.rewrite(&text);
    let output = bed.run(&["reload", "--admin", &admin], &[]);
    assert_eq!(said(&output), Ok(()));
    assert_eq!(bed.status(&by_tls), Ok(()));
}

#[test]
fn check_describes_the_tls_of_the_admin_address() {
    let bed = bed();
    let tls = format!("{}, min_version = \"1.3\"", bed.files.keys());
    let ca = bed.path("ca.pem");
    let tls = format!("{tls}, client_ca = {ca:?}");
    fs::write(bed.path("token"), "0123456789abcdef").expect("written");
    let token = "[admin]\ntoken = { file = \"token\" }\n";
    let text = config("0.0.0.0:0", &tls).replacen("[admin]\n", token, 1);
    fs::write(bed.path("sluice.toml"), text).expect("written");
    let output = bed.run(&["check"], &[]);
    let shown = String::from_utf8_lossy(&output.stdout);
    let line = format!(
        "admin on https://0.0.0.0:0, TLS 1.3 only, certificate {}, clients must have a certificate of {}, with a token; operators: operator",
        bed.files.certificate.display(),
        ca.display()
    );
    assert!(shown.contains(&line), "{shown}");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!error.contains("other machines"), "{error}");
    for (tls, problem) in [
        ("", "the admin address has no certificate"),
        ("certificate = \"a.pem\"", "each certificate needs one key"),
        ("redirect = true", "unknown key `redirect`"),
        (
            "certificate = \"missing.pem\", key = \"missing.key\"",
            "this certificate can't be used",
        ),
        (
            &format!("{}, client_ca = \"missing.pem\"", bed.files.keys()),
            "these authorities can't be used",
        ),
    ] {
        fs::write(bed.path("sluice.toml"), config("127.0.0.1:0", tls)).expect("written");
        let output = bed.run(&["check"], &[]);
        assert_fails(said(&output), &[problem, "sluice.toml:7"]);
    }
}
