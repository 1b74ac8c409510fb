//! Tests with HTTP/2 clients of programming languages: httpx in Python and net/http in Go.

use sluice_lab::origin::{Framing, Origin, Resource};

use crate::harness::{Setup, fresh, serving};
use crate::tools::{BothListeners, build_go, installed, python_with, run, run_python};

const PYTHON: &str = include_str!("scripts/http2_client.py");
const GO: &str = include_str!("scripts/http2_client.go");

/// Length of the file in bytes, which the clients expect.
const FILE: u64 = 3 << 20;

fn prepared() -> Origin {
    let origin = serving("/file", fresh(FILE));
    origin.serve("/pass/echo", Resource::echo());
    let trailers = Resource::bytes("text").framing(Framing::Chunked(100));
    origin.serve("/pass/trailers", trailers.trailer("X-Checksum", "1234"));
    origin
}

fn setup(origin: &Origin) -> Setup {
    Setup::cached(origin).limits("body = \"20MiB\"")
}

#[test]
fn a_client_in_python_speaks_http2() {
    let Some(python) = python_with(&["httpx", "h2"]) else {
        return;
    };
    let (origin, folder) = (prepared(), tempfile::tempdir().expect("a folder"));
    let listeners = BothListeners::start(setup(&origin), folder.path());
    for (number, url) in listeners.urls.iter().enumerate() {
        let output = run_python(python, folder.path(), PYTHON, &[url, "ca.pem"]);
        assert_eq!(output.lines().count(), 3, "{output}");
        let connections = listeners.edge.counter("http2_connections");
        assert_eq!(connections, number as u64 + 1);
    }
}

// Only newer versions of Go speak HTTP/2 in clear text.
#[test]
fn a_client_in_go_speaks_http2() {
    if !installed(&["go"]) {
        return;
    }
    let (origin, folder) = (prepared(), tempfile::tempdir().expect("a folder"));
    build_go(folder.path(), "client", GO);
    let BothListeners { edge, urls, .. } = BothListeners::start(setup(&origin), folder.path());
    run(folder.path(), "./client", &[&urls[0], "ca.pem"]);
    let connections = edge.counter("http2_connections");
    assert_eq!(connections, 1);
}

// The edge ends connections with GOAWAY, while further requests are on their way.
#[test]
fn a_client_in_go_goes_on_after_the_end_of_connections() {
    if !installed(&["go"]) {
        return;
    }
    let (origin, folder) = (prepared(), tempfile::tempdir().expect("a folder"));
    build_go(folder.path(), "client", GO);
    let setup = setup(&origin).limits("keepalive_requests = 20");
    let BothListeners { edge, urls, .. } = BothListeners::start(setup, folder.path());
    run(folder.path(), "./client", &[&urls[0], "ca.pem"]);
    let ended = edge.counter("http2_goaways");
    assert!(ended >= 3, "{ended}");
}
