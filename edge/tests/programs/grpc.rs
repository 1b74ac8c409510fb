//! Tests with a client and a server of gRPC: calls of all four kinds pass through the edge with their metadata, trailers,
//! errors, cancellations and deadlines.

use std::fs;
use std::path::Path;

use sluice_lab::certificates::Authority;
use sluice_lab::process::{Launch, Process};

use crate::harness::{SOON, Setup};
use crate::tools::{BothListeners, python_with, run_python};

const SERVER: &str = include_str!("scripts/grpc_server.py");
const CLIENT: &str = include_str!("scripts/grpc_client.py");

/// A running gRPC server.
struct Server {
    _process: Process,
    url: String,
    /// The line of an upstream that makes the edge trust the server.
    trust: String,
}

impl Server {
    /// Starts a server with TLS or in clear text. `age`: milliseconds after which a connection ends; 0: no end.
    fn start(python: &str, folder: &Path, encrypted: bool, age: u32) -> Server {
        let script = folder.join("server.py");
        fs::write(&script, SERVER).expect("written");
        let mut launch = Launch::new("server", python, folder)
            .args([script.display().to_string(), age.to_string()]);
        let mut trust = String::new();
        if encrypted {
            let authority = Authority::new("Test authority of servers");
            let pair = authority.server(&["127.0.0.1"]).write(folder, "server");
            let pair = pair.expect("written");
            let ca = folder.join("server-ca.pem");
            fs::write(&ca, authority.pem()).expect("written");
            launch =
                launch.args([pair.certificate, pair.key].map(|file| file.display().to_string()));
            trust = format!("tls = {{ ca = {ca:?} }}");
        }
        let mut process = launch.start().expect("Python starts");
        let line = process.wait_line("listening on", SOON).expect("a port");
        let port = line.rsplit(' ').next().expect("a word");
        let scheme = if encrypted { "https" } else { "h2c" };
        Server {
            url: format!("{scheme}://127.0.0.1:{port}"),
            trust,
            _process: process,
        }
    }
}

/// Calls all methods of a server through an edge, from a client in clear text and from one with TLS.
fn call_all_methods(encrypted: bool, prepare: impl FnOnce(Setup) -> Setup) {
    let Some(python) = python_with(&["grpc"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(python, folder.path(), encrypted, 0);
    let setup = prepare(Setup::of_servers(vec![server.url.clone()])).upstream(&server.trust);
    // The limit applies to all messages of a request together.
    let setup = setup.limits("body = \"20MiB\"");
    let listeners = BothListeners::start(setup, folder.path());
    let [tls, clear] = &listeners.addresses;
    for arguments in [&["all", &**clear][..], &["all", tls, "ca.pem"]] {
        let output = run_python(python, folder.path(), CLIENT, arguments);
        assert_eq!(output.lines().count(), 6, "{output}");
    }
    let edge = &listeners.edge;
    assert_eq!(edge.counter("http2_connections"), 2);
    let connects = edge.counter("upstream_connects");
    assert!((1..=8).contains(&connects), "{connects}");
    assert_eq!(edge.counter("upstream_failures"), 0);
}

#[test]
fn grpc_passes_to_a_server_in_clear_text() {
    call_all_methods(false, Setup::without_cache);
}

#[test]
fn grpc_passes_to_a_server_with_tls() {
    call_all_methods(true, Setup::without_cache);
}

#[test]
fn grpc_passes_through_a_route_with_a_cache() {
    call_all_methods(false, |setup| setup);
}

// The server announces the end of each connection with GOAWAY, while calls are on their way. None of them fails.
#[test]
fn grpc_calls_outlast_the_connections_to_the_server() {
    let Some(python) = python_with(&["grpc"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(python, folder.path(), false, 20);
    let setup = Setup::of_servers(vec![server.url.clone()]).without_cache();
    let listeners = BothListeners::start(setup, folder.path());
    let arguments = ["many", &listeners.addresses[1]];
    run_python(python, folder.path(), CLIENT, &arguments);
    let connects = listeners.edge.counter("upstream_connects");
    assert!(connects >= 3, "{connects}");
    assert_eq!(listeners.edge.counter("upstream_failures"), 0);
}
