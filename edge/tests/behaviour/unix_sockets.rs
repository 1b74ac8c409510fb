//! Tests of listeners on Unix sockets.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Latch, Origin, Resource};
use tempfile::TempDir;

use crate::harness::{SOON, Setup, eventually, fresh, serving};

const LENGTH: u64 = 3_000_000;

/// Returns a folder, the path of a socket in it, and a configuration that also listens there.
fn listening(origin: &Origin) -> (TempDir, PathBuf, Setup) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("sluice.sock");
    let listener = format!("[[listener]]\naddress = \"unix:{}\"\n", path.display());
    let setup = Setup::cached(origin).tables(&listener);
    (folder, path, setup)
}

fn connect(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).expect("the program listens");
    stream.set_read_timeout(Some(SOON)).expect("an option");
    stream
}

fn request(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

/// Sends a GET on a new connection and returns the head and the content of the response.
fn get(path: &Path, target: &str) -> (String, Vec<u8>) {
    let mut stream = connect(path);
    stream
        .write_all(request(target).as_bytes())
        .expect("it is taken");
    response(stream)
}

fn response(mut stream: UnixStream) -> (String, Vec<u8>) {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the end of a response");
    let end = all.windows(4).position(|w| w == b"\r\n\r\n");
    let content = all.split_off(end.expect("a complete head") + 4);
    (String::from_utf8(all).expect("a head is text"), content)
}

#[test]
fn clients_of_a_unix_socket_are_served_by_all_workers() {
    let origin = serving("/x", fresh(LENGTH));
    let (_folder, path, setup) = listening(&origin);
    let edge = setup.start();
    let mode = std::fs::metadata(&path).expect("a file").permissions();
    assert_eq!(mode.mode() & 0o777, 0o666);
    let (head, content) = get(&path, "/x");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    verify_offset(0, &content).expect("the bytes of the origin");
    assert_eq!(content.len() as u64, LENGTH);
    // Open connections are balanced over the workers like TCP connections.
    let clients: Vec<UnixStream> = (0..8).map(|_| connect(&path)).collect();
    for mut client in &clients {
        client.write_all(request("/x").as_bytes()).expect("taken");
    }
    for client in clients {
        let (head, content) = response(client);
        assert!(head.contains("hit"), "{head}");
        assert_eq!(content.len() as u64, LENGTH);
    }
    assert_eq!(edge.get("/x", &[]).status, 200);
    let seen = &origin.requests()[0];
    assert_eq!(seen.header("host"), Some("a"));
}

// A Unix client has no address. The origin and the log see the loopback address, since the client
// is on this machine.
#[test]
fn a_client_of_a_unix_socket_has_the_loopback_address() {
    let origin = serving("/pass/x", Resource::status(200));
    let (_folder, path, setup) = listening(&origin);
    let edge = setup.logged("json").start();
    let (head, _) = get(&path, "/pass/x");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let seen = &origin.requests()[0];
    assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(edge.json_log(1)[0]["client"], "127.0.0.1");
}

#[test]
fn the_file_of_a_dead_process_is_replaced_and_one_in_use_is_refused() {
    let origin = serving("/x", Resource::status(200));
    let (_folder, path, setup) = listening(&origin);
    let mut first = setup.start();
    let text = setup.refused();
    assert!(
        text.contains("can't listen on unix:") && text.contains("in use"),
        "{text}"
    );
    assert!(get(&path, "/x").0.starts_with("HTTP/1.1 200 "));
    first.signal(Signal::KILL);
    first.wait_exit();
    assert!(path.exists(), "a killed process removes nothing");
    let _second = setup.start();
    assert!(get(&path, "/x").0.starts_with("HTTP/1.1 200 "));
    drop(first);
}

#[test]
fn a_shutdown_removes_the_file_and_finishes_requests() {
    let latch = Latch::closed();
    let origin = serving("/x", fresh(10).hold_head(&latch));
    let (_folder, path, setup) = listening(&origin);
    let mut edge = setup.start();
    let mut client = connect(&path);
    client.write_all(request("/x").as_bytes()).expect("taken");
    assert!(latch.wait_held(1, SOON), "the origin has the request");
    edge.signal(Signal::TERM);
    eventually("the file is removed", || !path.exists());
    latch.release();
    let (head, content) = response(client);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(content.len(), 10);
    assert!(edge.wait_exit().success());
}
