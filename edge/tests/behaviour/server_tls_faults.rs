//! Tests of servers whose TLS connections break, in the handshake, in records, or without a close_notify.

use sluice_lab::front::Cut;
use sluice_lab::offset::verify_offset;
use sluice_lab::origin::{Ending, Framing};

use crate::broken_bytes::{EVERY_BYTE, check};
use crate::harness::{Edge, Setup, cache_status, eventually, fresh, origin};
use crate::server_tls::{NAME, Rig, valid};

/// Number of bytes that are tried unless every byte is.
const SAMPLE: u64 = 12;
/// Length of a body, which has several records.
const SIZE: u64 = 40_000;
/// Length of a body if every byte is tried.
const EVERY_BYTE_SIZE: u64 = 1500;
/// Number of threads that then share the bytes, since most of the time is spent waiting for a server that failed.
const EVERY_BYTE_SHARES: usize = 16;
/// Failures have no effect on later requests, and each request has a connection of its own.
const KEYS: &str = "keepalive = 0\neject = false\nretry = { total = \"1h\", budget = 1 }";

fn rig() -> Rig {
    let rig = Rig::new(valid);
    rig.origin.serve_rest(fresh(SIZE));
    rig
}

fn setup(rig: &Rig) -> Setup {
    rig.setup("server_name = \"origin.test\"").upstream(KEYS)
}

// The end of a response without a length is the end of the connection, so an attacker who ends it
// early must not be able to make a part look whole (RFC 8446 6.1, RFC 9112 9.8).
#[test]
fn an_end_without_a_close_notify_truncates_a_body_that_ends_with_the_connection() {
    let rig = rig();
    let close = fresh(SIZE).framing(Framing::Close);
    rig.origin.serve("/x", close.clone());
    rig.origin.serve("/pass/x", close);
    let edge = setup(&rig).start();
    rig.front.set_abrupt(true);
    for path in ["/pass/x", "/x", "/x"] {
        let reply = edge.get(path, &[]);
        assert!(reply.truncated(), "{path}");
        verify_offset(0, &reply.body).expect("the right bytes");
        assert!(!cache_status(&reply).contains("hit"), "{path}");
    }
    rig.front.set_abrupt(false);
    for path in ["/pass/x", "/x"] {
        edge.get(path, &[]).verify_whole(SIZE).expect(path);
    }
}

#[test]
fn an_end_without_a_close_notify_does_no_harm_after_a_complete_body() {
    let rig = rig();
    rig.front.set_abrupt(true);
    let chunked = fresh(SIZE).framing(Framing::Chunked(10_000));
    rig.origin.serve("/pass/chunked", chunked.close());
    rig.origin.serve("/pass/sized", fresh(SIZE).close());
    let edge = setup(&rig).start();
    for path in ["/pass/chunked", "/pass/sized"] {
        edge.get(path, &[]).verify_whole(SIZE).expect(path);
    }
}

/// Waits until requests reach the server again after a failure.
fn calm(edge: &Edge, rig: &Rig) {
    rig.front.set_cut(None);
    let before = rig.front.handshake_count();
    eventually("the server is in use", || {
        edge.get("/pass/calm", &[]);
        rig.front.handshake_count() > before
    });
}

/// Returns the length of bodies whose connections are cut.
fn cut_size() -> u64 {
    match std::env::var_os(EVERY_BYTE) {
        Some(_) => EVERY_BYTE_SIZE,
        None => SIZE,
    }
}

/// Returns the numbers of encrypted bytes after which one of `shares` threads cuts connections.
fn positions(rig: &Rig, edge: &Edge, share: usize, shares: usize) -> Vec<u64> {
    let before = rig.front.sent();
    edge.get("/pass/measured", &[])
        .verify_whole(cut_size())
        .expect("the response");
    let whole = rig.front.sent() - before;
    let step = match std::env::var_os(EVERY_BYTE) {
        Some(_) => 1,
        None => whole / SAMPLE,
    };
    // The last bytes are the close_notify, or the end of the last record.
    let step = usize::try_from(step.max(1)).expect("few bytes");
    let all = (0..whole).step_by(step).skip(share).step_by(shares);
    all.chain([whole - 1, whole]).collect()
}

fn try_cuts(ending: Ending) {
    let shares = match std::env::var_os(EVERY_BYTE) {
        Some(_) => EVERY_BYTE_SHARES,
        None => 1,
    };
    std::thread::scope(|scope| {
        for share in 0..shares {
            scope.spawn(move || try_share(ending, share, shares));
        }
    });
}

fn try_share(ending: Ending, share: usize, shares: usize) {
    let (rig, good) = (rig(), origin());
    rig.origin.serve_rest(fresh(cut_size()));
    good.serve_rest(fresh(cut_size()));
    let alone = setup(&rig).workers(1).start();
    let ca = rig.folder.path().join("ca.pem");
    let pair = Setup::of_text(format!(
        "[server]\nworkers = 1\n[[listener]]\naddress = \"127.0.0.1:0\"\n\
         [admin]\naddress = \"127.0.0.1:0\"\n[upstream.origin]\n\
         servers = [{:?}, {{ url = {:?}, backup = true }}]\n{KEYS}\n\
         tls = {{ ca = {ca:?}, server_name = {NAME:?} }}\n[cache.main]\n\
         [[route]]\npath = \"/pass/*\"\nproxy = \"origin\"\n\
         [[route]]\nproxy = \"origin\"\ncache = \"main\"\n",
        rig.front.url(),
        good.url("")
    ))
    .in_clear_text()
    .start();
    for after in positions(&rig, &alone, share, shares) {
        for (edge, prefix) in [(&alone, "/pass/a"), (&pair, "/pass/b"), (&pair, "/c")] {
            calm(edge, &rig);
            rig.front.set_cut(Some(Cut { after, ending }));
            let path = format!("{prefix}/{after}");
            let case = format!("{path}, {ending:?}");
            let is_whole = check(&edge.get(&path, &[]), "GET", cut_size(), &case);
            assert!(is_whole || prefix == "/pass/a", "{case}");
        }
    }
}

#[test]
fn connections_that_end_at_any_byte() {
    try_cuts(Ending::Fin);
}

#[test]
fn connections_that_are_reset_at_any_byte() {
    try_cuts(Ending::Reset);
}
