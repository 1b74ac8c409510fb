//! Tests of a start with a name alone, in a network namespace of its own, where ports 80 and 443 are free.

use std::env;
use std::process::Command;
use std::time::Instant;

use sluice_lab::client::{Client, ClientOptions};
use sluice_lab::origin::Resource;

use super::Bed;
use crate::harness::{Edge, Setup, eventually, serving};

/// The variable that says that the process is in the namespace.
const INSIDE: &str = "SLUICE_TEST_IN_NAMESPACE";

/// Runs the test with this name in a network namespace with loopback alone. Returns whether the caller is there already.
fn in_namespace(test: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    let options = match rustix::process::geteuid().is_root() {
        true => "-n",
        false => "-rn",
    };
    let program = env::current_exe().expect("the tests' program");
    let output = Command::new("unshare")
        .args([
            options,
            "sh",
            "-c",
            "ip link set lo up && exec \"$@\"",
            "sh",
        ])
        .arg(program)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
    println!("{text}");
    false
}

#[test]
fn a_name_on_the_command_line_is_enough() {
    if !in_namespace("acme::defaults::a_name_on_the_command_line_is_enough") {
        return;
    }
    let name = "cdn.example.com";
    let mut bed = Bed::new(&[name], |options| {
        (options.http_port, options.tls_port) = (80, 443)
    });
    bed.https = 443;
    let origin = serving("/file", Resource::offset(1000));
    let [directory, trust, state] = [
        bed.pebble.directory(),
        bed.pebble.trust().display().to_string(),
        bed.state().display().to_string(),
    ];
    let url = origin.url("");
    let begun = Instant::now();
    let edge = Edge::with_options(&[
        "--origin",
        &url,
        "--tls",
        name,
        "--acme-directory",
        &directory,
        "--acme-ca",
        &trust,
        "--acme-state",
        &state,
        "--admin",
        "127.0.0.1:0",
    ]);
    let mut client = None;
    eventually("there is a certificate", || {
        client = bed.handshake(name).ok();
        client.is_some()
    });
    println!(
        "{} ms from the start to the first handshake",
        begun.elapsed().as_millis()
    );
    let mut client = client.expect("a connection");
    let reply = client.get("/file", &[("Host", name)]).expect("a reply");
    assert_eq!((reply.status, reply.body.len()), (200, 1000));
    // Port 80 redirects, in both families of addresses.
    for address in ["127.0.0.1:80", "[::1]:80"] {
        let address = address.parse().expect("an address");
        let mut client =
            Client::connect_with(address, &ClientOptions::default()).expect("a connection");
        let reply = client.get("/file", &[("Host", name)]).expect("a reply");
        assert_eq!(reply.status, 308);
        assert_eq!(
            reply.header("Location"),
            Some("https://cdn.example.com/file")
        );
    }
    drop(edge);
}

#[test]
fn a_site_with_tls_listens_on_the_ports_of_http_and_https_by_default() {
    if !in_namespace(
        "acme::defaults::a_site_with_tls_listens_on_the_ports_of_http_and_https_by_default",
    ) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!(
        "[admin]\naddress = \"127.0.0.1:0\"\n[tls.acme]\nstate = {:?}\n\
         [[site]]\nhosts = \"localhost\"\ntls = \"internal\"\n[[site.route]]\nrespond = \"hello\"\n",
        folder.path().join("state")
    );
    let edge = Setup::of_text(text).start();
    assert_eq!(edge.http.port(), 80);
    let messages = edge.process.stdout();
    assert!(messages.contains("https://[::]:443"), "{messages}");
}
