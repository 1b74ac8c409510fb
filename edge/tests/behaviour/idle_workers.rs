//! Tests of idle workers: nothing wakes them.

use std::fs;

use sluice_lab::client::Closing;
use sluice_lab::origin::Resource;

use crate::harness::{Edge, SOON, Setup, eventually, serving};

/// Number of looks, at least 2 ms apart, during which no worker may wake.
const LOOKS: u32 = 250;

/// Returns how often the threads of workers have waited so far.
fn waits(edge: &Edge) -> u64 {
    let folder = format!("/proc/{}/task", edge.process.pid());
    let threads = fs::read_dir(folder).expect("the process is there");
    let of_thread = |path: std::path::PathBuf| {
        let name = fs::read_to_string(path.join("comm")).ok()?;
        let status = fs::read_to_string(path.join("status")).ok()?;
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        name.starts_with("worker-")
            .then(|| count.trim().parse::<u64>().expect("a number"))
    };
    let counts: Vec<u64> = threads
        .filter_map(|thread| of_thread(thread.expect("an entry").path()))
        .collect();
    assert_eq!(counts.len(), 2, "two workers");
    counts.iter().sum()
}

/// Waits until no worker has woken during `LOOKS` looks in a row.
fn wait_until_asleep(edge: &Edge) {
    let (mut before, mut quiet) = (waits(edge), 0);
    eventually("the workers sleep", || {
        let now = waits(edge);
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        quiet == LOOKS
    });
}

#[test]
fn an_idle_worker_sleeps_until_a_client_connects() {
    let origin = serving("/x", Resource::status(200).close());
    let edge = Setup::cached(&origin).logged("json").start();
    wait_until_asleep(&edge);
    let date = |reply: sluice_lab::client::Reply| {
        let date = reply.header("date").expect("a date").to_owned();
        httpdate::parse_http_date(&date).expect("a valid date")
    };
    let first = date(edge.get("/x", &[]));
    assert_eq!(edge.log(1).len(), 1, "the last line is written");
    wait_until_asleep(&edge);
    // The time that passed asleep is noticed: the date is not that of the first response.
    eventually("another second", || {
        let later = std::time::SystemTime::now();
        later
            .duration_since(first)
            .is_ok_and(|passed| passed.as_secs() >= 2)
    });
    assert!(date(edge.get("/x", &[])) > first);
}

#[test]
fn an_idle_connection_does_not_wake_its_worker() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::cached(&origin)
        .limits("keepalive_timeout = \"60s\"")
        .start();
    let mut client = edge.client();
    let mut date = || {
        let reply = client.get("/x", &[]).expect("a reply");
        httpdate::parse_http_date(reply.header("date").expect("a date")).expect("a valid date")
    };
    let first = date();
    wait_until_asleep(&edge);
    eventually("another second", || {
        let passed = std::time::SystemTime::now().duration_since(first);
        passed.is_ok_and(|passed| passed.as_secs() >= 2)
    });
    assert!(date() > first, "the time that passed asleep is noticed");
    wait_until_asleep(&edge);
}

#[test]
fn the_timeout_of_an_idle_connection_wakes_its_worker() {
    let origin = serving("/x", Resource::status(200));
    let edge = Setup::cached(&origin)
        .limits("keepalive_timeout = \"8s\"")
        .start();
    let mut client = edge.client();
    assert_eq!(client.get("/x", &[]).expect("a reply").status, 200);
    wait_until_asleep(&edge);
    let closing = client.wait_closed(SOON).expect("closed");
    assert_eq!(closing, Closing::Fin);
}
