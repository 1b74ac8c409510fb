//! Tests of `folder` in `[buffers]`: long bodies go on in temporary files, and a failing disk concerns only them.

use std::fs;
use std::path::Path;

use sluice_lab::client::Client;
use sluice_lab::disk::{Condition, Pace, SlowDisk};
use sluice_lab::offset::offset_bytes;
use sluice_lab::origin::{Framing, Latch, Origin, Resource};

use crate::buffering::{is_read, no_connection};
use crate::harness::{Edge, SOON, Setup, assert_reason, eventually, fresh, serving};

const MIB: usize = 1 << 20;

/// Returns a setup whose only route buffers bodies, long ones in this folder.
fn setup(origin: &Origin, folder: &Path, more: &str) -> Setup {
    with_upstream(origin, folder, more, "")
}

fn with_upstream(origin: &Origin, folder: &Path, more: &str, upstream: &str) -> Setup {
    // Neither a client that waits for the test, nor one of a busy machine, is too slow.
    let patient = "body_timeout = \"1h\"\nsend_timeout = \"1h\"\nmin_rate = 0";
    let text = Setup::uncached(origin)
        .workers(1)
        .limits("body = 0")
        .limits(patient)
        .upstream(upstream)
        .tables(&format!(
            "request_buffering = true\nresponse_buffering = true\n\
             [buffers]\nfolder = {folder:?}\nmemory_per_body = \"64KiB\"\n{more}"
        ));
    Setup::of_text(text.text())
}

/// Mounts a disk without a page cache. If nothing can be mounted, prints a message and returns `None`, so that the test is
/// skipped.
fn disk() -> Option<SlowDisk> {
    match SlowDisk::uncached(64 << 20, Pace::default()) {
        Ok(disk) => Some(disk),
        Err(error) => {
            assert!(std::env::var("CI").is_err(), "{error:#}");
            eprintln!("SKIPPED: {error:#}");
            None
        }
    }
}

/// Sends a POST with the first bytes of a body of this length.
fn upload(edge: &Edge, length: usize, sent: usize) -> Client {
    let mut client = edge.client();
    let head = format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    client.send_raw(head.as_bytes()).expect("sent");
    client.send_raw(&offset_bytes(0, sent)).expect("sent");
    client
}

/// Waits until no body is in a buffer.
fn unused(edge: &Edge) {
    eventually("everything is released", || {
        ["bytes", "disk_bytes", "files"]
            .iter()
            .all(|name| edge.buffers(name) == 0)
    });
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).expect("a folder").count()
}

fn passes_a_long_upload(folder: &Path) {
    let origin = serving("/x", Resource::status(200));
    let edge = setup(&origin, folder, "").start();
    let mut client = upload(&edge, 3 * MIB, 2 * MIB);
    eventually("most of it is on the disk", || {
        edge.buffers("disk_bytes") > 2 * MIB as u64 - (128 << 10)
    });
    assert!(edge.buffers("bytes") <= 128 << 10);
    assert_eq!(edge.buffers("files"), 1);
    assert!(no_connection(&origin), "the body is not complete");
    assert_eq!(entries(folder), 0, "the file has no name");
    client
        .send_raw(&offset_bytes(2 * MIB as u64, MIB))
        .expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
    let seen = &origin.requests()[0];
    assert!(seen.body_complete && seen.body_is_offset);
    assert_eq!(seen.header("content-length"), Some("3145728"));
    unused(&edge);
    assert_eq!(edge.buffers("spilled"), 1);
    assert!(edge.buffers("disk_written_bytes") > 2 * MIB as u64);
    let shown = String::from_utf8_lossy(&edge.command(&["status"]).stdout).into_owned();
    let line = "buffers: 0 B of 128 MiB, 0 B of 10 GiB on disk in 0 files, 1 spilled, 0 without room, 0 failed, 0 late\n";
    assert!(shown.contains(line), "{shown}");
    // A body of unknown length.
    let mut client = edge.client();
    let head = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send_raw(head.as_bytes()).expect("sent");
    for n in 0..10 {
        let bytes = offset_bytes(n * 100_000, 100_000);
        let chunk = [b"186a0\r\n", &bytes[..], b"\r\n"].concat();
        client.send_raw(&chunk).expect("sent");
    }
    client.send_raw(b"0\r\n\r\n").expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
    let seen = &origin.requests()[1];
    assert!(seen.body_complete && seen.body_is_offset);
    assert_eq!(seen.header("content-length"), Some("1000000"));
    // A client that leaves.
    let client = upload(&edge, 3 * MIB, 2 * MIB);
    eventually("it has a file", || edge.buffers("files") == 1);
    client.reset().expect("reset");
    unused(&edge);
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_long_upload_goes_on_in_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    passes_a_long_upload(folder.path());
}

// The disk's file system has no files without a name. A write may transfer fewer bytes than wanted.
#[test]
fn a_long_upload_goes_on_in_a_file_that_was_removed() {
    let Some(disk) = disk() else { return };
    passes_a_long_upload(disk.path());
    disk.set_condition(Condition::ShortWrites);
    passes_a_long_upload(disk.path());
}

#[test]
fn a_slow_reader_of_a_long_response_holds_neither_connection_nor_memory() {
    const LENGTH: u64 = 30_000_000;
    let folder = tempfile::tempdir().expect("a folder");
    for framing in [Framing::Length, Framing::Chunked(10_000)] {
        let origin = serving("/x", Resource::offset(LENGTH).framing(framing).close());
        let edge = setup(&origin, folder.path(), "memory = \"1MiB\"\n").start();
        let mut client = edge.slow_reader();
        client.send("GET", "/x", &[], b"").expect("sent");
        is_read(&origin);
        assert_eq!(edge.buffers("files"), 1);
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(LENGTH).expect("the body");
        unused(&edge);
    }
}

// The file is full, so the client's reads determine how fast the response is read.
#[test]
fn a_response_longer_than_its_file_is_streamed() {
    const LENGTH: u64 = 40_000_000;
    let folder = tempfile::tempdir().expect("a folder");
    let origin = serving("/x", Resource::offset(LENGTH));
    let edge = setup(&origin, folder.path(), "disk_per_body = \"1MiB\"\n").start();
    let mut client = edge.slow_reader();
    client.send("GET", "/x", &[], b"").expect("sent");
    eventually("the file is full", || edge.buffers("disk_full") == 1);
    assert!(edge.buffers("disk_bytes") <= MIB as u64);
    let reply = client.read_response().expect("a reply");
    reply.verify_whole(LENGTH).expect("the body");
    unused(&edge);
}

#[test]
fn a_body_beyond_the_limits_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = serving("/x", Resource::status(200));
    let limits = "disk = \"4MiB\"\ndisk_per_body = \"1536KiB\"\n";
    let edge = setup(&origin, folder.path(), limits).start();
    let reply = upload(&edge, 1_600_000, 0).read_response();
    let reply = reply.expect("a reply");
    assert_eq!(reply.status, 413);
    assert_reason(&reply, "request-body-too-large");
    let mut client = edge.client();
    let head = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send_raw(head.as_bytes()).expect("sent");
    let chunk = [b"200000\r\n", &vec![0; 2 * MIB][..]].concat();
    // The edge may close the connection while the client still sends.
    let _ = client.send_raw(&chunk);
    let reply = client.read_response().expect("a reply");
    assert_eq!(reply.status, 413);
    assert_reason(&reply, "request-body-too-large");
    // The first upload takes most of the client's share of the disk, so the second has no room.
    let mut first = upload(&edge, 1_500_000, 1_499_999);
    eventually("the first one is on the disk", || {
        edge.buffers("disk_bytes") > 1_350_000
    });
    let mut second = upload(&edge, 1_400_000, 0);
    let _ = second.send_raw(&vec![0; 1_400_000]);
    let reply = second.read_response().expect("a reply");
    assert_eq!(reply.status, 507);
    assert_reason(&reply, "buffer-disk-full");
    assert_eq!(edge.counter("requests_over_buffers"), 1);
    assert!(no_connection(&origin));
    first.send_raw(&offset_bytes(1_499_999, 1)).expect("sent");
    assert_eq!(first.read_response().expect("a reply").status, 200);
    assert!(origin.requests()[0].body_is_offset);
    unused(&edge);
}

#[test]
fn a_request_whose_body_can_not_be_written_reaches_no_origin() {
    let Some(disk) = disk() else { return };
    let origin = serving("/x", Resource::status(200));
    let edge = setup(&origin, disk.path(), "").start();
    for (condition, reason, counter) in [
        (Condition::Full, "buffer-disk-full", "disk_full"),
        (Condition::FailWrites, "buffer-disk-failed", "disk_errors"),
    ] {
        disk.set_condition(condition);
        let mut client = upload(&edge, MIB, 0);
        // A client that goes on sending after the response may be reset before it has read that.
        let _ = client.send_raw(&offset_bytes(0, 200 << 10));
        let reply = client.read_response().expect("a reply");
        assert_eq!(reply.status, 507);
        assert_reason(&reply, reason);
        assert_eq!(edge.buffers(counter), 1);
        unused(&edge);
    }
    assert!(no_connection(&origin));
    let small = edge.ask("POST", "/x", &[], &[0; 60_000]);
    assert_eq!(small.status, 200, "it is only in memory");
    disk.set_condition(Condition::Fine);
    let long = edge.ask("POST", "/x", &[], &[0; MIB]);
    assert_eq!(long.status, 200);
}

// The body is complete and waits for a connection to the origin. Then it can't be read any more.
#[test]
fn a_request_whose_body_can_not_be_read_is_broken_off() {
    let Some(disk) = disk() else { return };
    let origin = serving("/x", Resource::status(200));
    let latch = Latch::at(0);
    origin.serve("/held", Resource::offset(10).hold_body(&latch));
    let edge = with_upstream(&origin, disk.path(), "", "max_connections = 1").start();
    let mut holder = edge.client();
    holder.send("GET", "/held", &[], b"").expect("sent");
    assert!(latch.wait_held(1, SOON), "it has the only connection");
    let mut client = upload(&edge, MIB, MIB);
    eventually("its body is complete", || {
        edge.counter("requests_buffered") == 1
    });
    disk.set_condition(Condition::FailReads);
    latch.release();
    let reply = client.read_response().expect("a reply");
    assert_eq!(reply.status, 507);
    assert_reason(&reply, "buffer-disk-failed");
    assert!(holder.read_response().is_ok_and(|reply| !reply.truncated()));
    unused(&edge);
    let of_upload = |path: &str| path == "/x";
    let requests = origin.requests();
    assert!(
        requests
            .iter()
            .all(|seen| !of_upload(&seen.target) || !seen.body_complete)
    );
    disk.set_condition(Condition::Fine);
    assert_eq!(edge.ask("POST", "/x", &[], &[0; MIB]).status, 200);
}

#[test]
fn a_response_that_can_not_be_written_is_streamed() {
    const LENGTH: u64 = 20_000_000;
    let Some(disk) = disk() else { return };
    let origin = serving("/x", Resource::offset(LENGTH));
    let edge = setup(&origin, disk.path(), "").start();
    for condition in [Condition::Full, Condition::FailWrites, Condition::Hang] {
        disk.set_condition(condition);
        let failures = || edge.buffers("disk_full") + edge.buffers("disk_errors");
        let before = failures();
        let mut client = edge.slow_reader();
        client.send("GET", "/x", &[], b"").expect("sent");
        eventually("the disk fails", || match condition {
            Condition::Hang => disk.in_flight() > 0,
            _ => failures() > before,
        });
        let reply = client.read_response().expect("a reply");
        reply.verify_whole(LENGTH).expect("the body");
        disk.set_condition(Condition::Fine);
        unused(&edge);
    }
    assert_eq!(edge.counter("responses_cut"), 0);
}

#[test]
fn a_response_that_can_not_be_read_again_is_cut() {
    const LENGTH: u64 = 20_000_000;
    let Some(disk) = disk() else { return };
    let origin = serving("/x", Resource::offset(LENGTH).close());
    let edge = setup(&origin, disk.path(), "").start();
    let mut client = edge.slow_reader();
    client.send("GET", "/x", &[], b"").expect("sent");
    let done = origin.wait_for(
        |record| record.open_connections() == 0 && record.count("/x") == 1,
        SOON,
    );
    assert!(done, "all of it is in memory and on the disk");
    disk.set_condition(Condition::FailReads);
    assert!(client.read_response().is_ok_and(|reply| reply.truncated()));
    eventually("it is counted", || edge.buffers("disk_errors") == 1);
    unused(&edge);
}

// More bodies hang than there are threads for the disk.
#[test]
fn a_disk_that_hangs_holds_only_the_bodies_on_it() {
    let Some(disk) = disk() else { return };
    let origin = serving("/x", Resource::status(200));
    origin.serve("/small", fresh(10));
    let edge = setup(&origin, disk.path(), "disk_timeout = \"1s\"\n").start();
    disk.set_condition(Condition::Hang);
    let mut hanging: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = upload(&edge, MIB, 0);
            let _ = client.send_raw(&offset_bytes(0, 200_000));
            client
        })
        .collect();
    eventually("writes hang", || disk.in_flight() >= 4);
    edge.get("/small", &[]).verify_whole(10).expect("the body");
    let small = edge.ask("POST", "/x", &[], &[0; 60_000]);
    assert_eq!(small.status, 200, "it is only in memory");
    for client in &mut hanging {
        let reply = client.read_response().expect("a reply");
        assert_eq!(reply.status, 507);
        assert_reason(&reply, "buffer-disk-timeout");
    }
    assert_eq!(edge.buffers("disk_timeouts"), 8);
    assert!(disk.in_flight() >= 4, "it still hangs");
    edge.get("/small", &[]).verify_whole(10).expect("the body");
    disk.set_condition(Condition::Fine);
    unused(&edge);
    // A thread of a busy machine may stand still for longer than the timeout.
    eventually("it takes bodies again", || {
        edge.ask("POST", "/x", &[], &[0; MIB]).status == 200
    });
}

#[test]
fn files_can_be_created_in_the_sandbox() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = disk();
    let folders = [Some(folder.path()), disk.as_ref().map(SlowDisk::path)];
    for folder in folders.into_iter().flatten() {
        let origin = serving("/x", Resource::status(200));
        let text = setup(&origin, folder, "").text();
        let sandboxed = text.replace("[server]\n", "[server]\nsandbox = \"auto\"\n");
        let edge = Setup::of_text(sandboxed).start();
        assert_eq!(edge.ask("POST", "/x", &[], &[0; MIB]).status, 200);
        assert_eq!(edge.buffers("spilled"), 1);
        assert_eq!(entries(folder), 0);
    }
}

#[test]
fn a_reload_changes_the_folder_for_further_bodies() {
    let folders = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
    let origin = serving("/x", Resource::status(200));
    let texts = folders
        .each_ref()
        .map(|folder| setup(&origin, folder.path(), "").text());
    let edge = Setup::of_text(texts[0].clone()).start();
    let mut client = upload(&edge, MIB, MIB - 1);
    eventually("it has a file", || edge.buffers("files") == 1);
    edge.rewrite(&texts[1]);
    let reloaded = edge.command(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    folders[0].path().metadata().expect("it is there");
    assert_eq!(edge.ask("POST", "/x", &[], &[0; MIB]).status, 200);
    client
        .send_raw(&offset_bytes(MIB as u64 - 1, 1))
        .expect("sent");
    assert_eq!(client.read_response().expect("a reply").status, 200);
    assert!(origin.requests()[1].body_is_offset);
    // Another folder that does not exist changes nothing.
    let missing = folders[1].path().join("none");
    edge.rewrite(&setup(&origin, &missing, "").text());
    let refused = edge.command(&["reload"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    for text in ["folder = ", "none", "create the folder"] {
        assert!(said.contains(text), "{text}: {said}");
    }
    assert_eq!(edge.ask("POST", "/x", &[], &[0; MIB]).status, 200);
    unused(&edge);
}

#[test]
fn a_folder_that_can_not_be_used_is_reported_at_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let origin = serving("/x", Resource::status(200));
    let said = setup(&origin, &folder.path().join("none"), "").refused();
    for text in [
        "no buffered body can go on in this folder",
        "sluice.toml:",
        "no such folder",
        "create the folder, or correct the path",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
}
