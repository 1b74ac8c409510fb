//! TLS with the clients curl and openssl, as far as they are installed.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::harness::{Edge, Setup, eventually, fresh, serving, setup};

const LENGTH: u64 = 200_000;

/// Starts an edge with TLS, and writes the certificate of its authority to `ca.pem` in its folder.
fn edge() -> Edge {
    let origin = serving("/x", fresh(LENGTH));
    let edge = Setup::cached(&origin).encrypted().level("debug").start();
    std::fs::write(edge.file("ca.pem"), setup::authority_pem()).expect("written");
    std::mem::forget(origin);
    edge
}

/// Runs a client with this input. Returns `None` if the client is not installed.
fn run(edge: &Edge, program: &str, arguments: &[&str], input: &str) -> Option<Output> {
    let port = edge.http.port().to_string();
    let ca = edge.file("ca.pem").display().to_string();
    let arguments = arguments
        .iter()
        .map(|text| text.replace("PORT", &port).replace("AUTHORITY", &ca));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take().expect("a pipe");
    // The client may end before it has read all of its input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    Some(child.wait_with_output().expect("it ends"))
}

#[test]
fn curl_gets_a_response_over_both_versions() {
    let edge = edge();
    for version in ["1.2", "1.3"] {
        let (least, most) = (format!("--tlsv{version}"), format!("--tls-max={version}"));
        let most: Vec<&str> = most.split('=').collect();
        let arguments = [
            "-sS",
            "--cacert",
            "AUTHORITY",
            "--noproxy",
            "*",
            &least,
            most[0],
            most[1],
        ];
        let url = ["https://localhost:PORT/x"];
        let Some(output) = run(&edge, "curl", &[&arguments[..], &url].concat(), "") else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{version}: {said}");
        assert_eq!(output.stdout.len() as u64, LENGTH);
    }
    assert_eq!(edge.counter("tls_handshakes_failed"), 0);
}

#[test]
fn curl_uploads_a_body() {
    let edge = edge();
    let body = "x".repeat(100_000);
    let arguments = [
        "-sS",
        "--cacert",
        "AUTHORITY",
        "--noproxy",
        "*",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--data-binary",
        "@-",
        "https://localhost:PORT/pass/none",
    ];
    let Some(output) = run(&edge, "curl", &arguments, &body) else {
        return;
    };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "404");
    assert!(edge.counter("client_bytes_in") > 100_000);
}

#[test]
fn openssl_completes_a_handshake_and_resumes_it() {
    let edge = edge();
    let session = edge.file("session.pem").display().to_string();
    let common = [
        "s_client",
        "-connect",
        "127.0.0.1:PORT",
        "-servername",
        "localhost",
        "-CAfile",
        "AUTHORITY",
        "-verify_return_error",
        "-ign_eof",
    ];
    let request = "GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    for (option, resumed) in [("-sess_out", 0), ("-sess_in", 1)] {
        let arguments = [&common[..], &[option, &session]].concat();
        let Some(output) = run(&edge, "openssl", &arguments, request) else {
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("HTTP/1.1 200"), "{text}");
        assert_eq!(edge.counter("tls_resumed"), resumed);
    }
}

#[test]
fn openssl_opens_connection_after_connection() {
    let edge = edge();
    let arguments = [
        "s_time",
        "-connect",
        "127.0.0.1:PORT",
        "-CAfile",
        "AUTHORITY",
        "-www",
        "/x",
        "-new",
        "-time",
        "1",
    ];
    let Some(output) = run(&edge, "openssl", &arguments, "") else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("connections in"), "{said}");
    assert!(edge.counter("tls_handshakes") > 0);
    assert_eq!(edge.counter("panics"), 0);
}

#[test]
fn a_client_with_an_old_version_is_refused_with_an_alert() {
    let edge = edge();
    for version in ["-tls1", "-tls1_1"] {
        let arguments = [
            "s_client",
            "-connect",
            "127.0.0.1:PORT",
            version,
            "-cipher",
            "ALL:@SECLEVEL=0",
        ];
        let Some(output) = run(&edge, "openssl", &arguments, "") else {
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("alert protocol version"), "{said}");
    }
    eventually("the reason", || {
        edge.process.stderr().contains("tls-version")
    });
}

#[test]
fn the_log_explains_why_a_handshake_failed() {
    let edge = edge();
    let arguments = [
        "s_client",
        "-connect",
        "127.0.0.1:PORT",
        "-servername",
        "localhost",
        "-verify_return_error",
    ];
    if run(&edge, "openssl", &arguments, "").is_none() {
        return;
    }
    let listener = format!("listener={}", edge.http);
    let parts = [
        "a TLS handshake failed client=127.0.0.1",
        &listener,
        "name=localhost",
        "reason=tls-refused-by-client",
        "cause=\"received fatal alert: UnknownC",
    ];
    let is_logged = |line: &str| parts.iter().all(|part| line.contains(part));
    eventually("a line with all facts", || {
        edge.process.stderr().lines().any(is_logged)
    });
}
