//! Tests of reloads. SIGHUP and `sluice reload` replace the configuration without dropping a
//! request, and an invalid configuration changes nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use rustix::process::Signal;
use sluice_lab::origin::{Latch, Resource};

use crate::harness::{
    Edge, SOON, Setup, assert_has_parameter, assert_hit, eventually, fresh, origin, serving,
};

fn generation(edge: &Edge) -> u64 {
    edge.status()["reload"]["generation"]
        .as_u64()
        .expect("a number")
}

// After the reload the new settings apply, and stored responses are still served.
#[test]
fn a_reload_applies_changes_and_keeps_stored_responses() {
    let origin = serving("/x", fresh(1000));
    origin.serve("/y", Resource::status(200));
    let setup = Setup::cached(&origin);
    let edge = setup.start();
    edge.get("/x", &[]);
    assert_has_parameter(&edge.get("/y", &[]), "detail=no-lifetime");
    let mut kept = edge.client();
    kept.get("/x", &[]).expect("a reply");
    let changed = setup.limits("keepalive_header = true\nkeepalive_timeout = \"40s\"");
    edge.rewrite(&changed.text());
    let output = edge.command(&["reload"]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("limits changed"), "{said}");
    assert_eq!(generation(&edge), 2);
    let reply = kept.get("/x", &[]).expect("the connection was kept");
    assert_hit(&reply);
    let announces = (!kept.is_http2()).then_some("timeout=40");
    assert_eq!(reply.header("keep-alive"), announces);
    assert_eq!(origin.read_record(|record| record.count("/x")), 1);
}

#[test]
fn sighup_reloads_the_configuration() {
    let (old, new) = (
        serving("/x", Resource::bytes("old")),
        serving("/x", Resource::bytes("new")),
    );
    let edge = Setup::uncached(&old).start();
    assert_eq!(edge.get("/x", &[]).text(), "old");
    edge.rewrite(&Setup::uncached(&new).text());
    edge.signal(Signal::HUP);
    eventually("it has reloaded", || edge.get("/x", &[]).text() == "new");
    assert_eq!(generation(&edge), 2);
}

/// Guard that ends the clients of a test.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// Twenty reloads during load change every setting that a reload can change.
#[test]
fn reloads_drop_no_request() {
    let origin = serving("/x", fresh(50_000));
    origin.serve("/pass/x", Resource::offset(50_000));
    let setup = Setup::cached(&origin);
    let edge = setup.start();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        // If an assertion fails, the clients have to stop, too.
        let _stop = StopOnDrop(&stop);
        for n in 0..4 {
            let (edge, stop, done) = (&edge, &stop, &done);
            scope.spawn(move || {
                let mut client = edge.client();
                let target = ["/x", "/pass/x"][n % 2];
                while !stop.load(Ordering::Relaxed) {
                    let reply = client.get(target, &[]).expect("a reply");
                    reply.verify_whole(50_000).expect("whole");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for n in 1..=20 {
            let before = done.load(Ordering::Relaxed);
            let changed = match n % 4 {
                0 => setup.clone().cache(&format!("memory = \"{}MiB\"", 100 + n)),
                1 => setup
                    .clone()
                    .limits(&format!("request_line = {}", 5000 + n)),
                2 => setup.clone().upstream(&format!("keepalive = {n}")),
                _ => setup
                    .clone()
                    .cache(&format!("valid = {{ 404 = \"{n}s\" }}")),
            };
            edge.rewrite(&changed.text());
            let output = edge.command(&["reload"]);
            assert!(output.status.success(), "{output:?}");
            eventually("requests go on", || {
                done.load(Ordering::Relaxed) > before + 4
            });
        }
    });
    assert_eq!(generation(&edge), 21);
    assert_eq!(edge.counter("responses_cut"), 0);
    assert_eq!(edge.counter("responses_5xx"), 0);
}

// A request keeps the configuration with which it began, even if a reload replaces the
// configuration meanwhile.
#[test]
fn a_running_request_keeps_its_configuration() {
    let latch = Latch::at(100_000);
    let origin = serving("/x", fresh(300_000).hold_body(&latch));
    let other = origin_elsewhere();
    let edge = Setup::cached(&origin).start();
    let mut client = edge.client();
    client.send("GET", "/x", &[], b"").expect("sent");
    assert!(latch.wait_held(1, SOON));
    edge.rewrite(&Setup::uncached(&other).text());
    assert!(edge.command(&["reload"]).status.success());
    assert_eq!(edge.get("/x", &[]).text(), "elsewhere");
    latch.release();
    let reply = client.read_response().expect("a reply");
    reply.verify_whole(300_000).expect("the old one, whole");
    let next = client.get("/x", &[]).expect("a reply");
    assert_eq!(
        next.text(),
        "elsewhere",
        "the connection uses the new configuration"
    );
}

fn origin_elsewhere() -> sluice_lab::origin::Origin {
    serving("/x", Resource::bytes("elsewhere"))
}

// The error names the position of the mistake in the configuration.
#[test]
fn a_bad_configuration_changes_nothing() {
    let origin = serving("/x", fresh(10));
    let setup = Setup::cached(&origin);
    let edge = setup.start();
    edge.get("/x", &[]);
    for (line, complaint) in [
        ("keepalive_timeout = \"forever\"", "keepalive_timeout"),
        ("no_such_limit = 1", "no_such_limit"),
        ("request_line = 1", "request_line"),
        ("body = \"much\"", "much"),
    ] {
        edge.rewrite(&setup.clone().limits(line).text());
        let output = edge.command(&["reload"]);
        assert!(!output.status.success(), "{line}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(complaint), "{line}: {said}");
        assert!(said.contains("sluice.toml:4"), "{line}: {said}");
        let error = edge.status()["reload"]["last_error"].to_string();
        assert!(error.contains(complaint), "{error}");
    }
    assert_eq!(generation(&edge), 1);
    assert_hit(&edge.get("/x", &[]));
    edge.rewrite(&setup.limits("body = 5").text());
    assert!(edge.command(&["reload"]).status.success());
    assert!(edge.status()["reload"]["last_error"].is_null());
    assert_eq!(edge.ask("PUT", "/x", &[], b"123456").status, 413);
}

// A reload refuses a configuration that changes a setting fixed for the process's lifetime, and
// names the setting.
#[test]
fn settings_that_need_a_restart_are_refused() {
    let origin = origin();
    let setup = Setup::cached(&origin);
    let edge = setup.start();
    edge.rewrite(&setup.workers(3).text());
    let output = edge.command(&["reload"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("workers"), "{said}");
    assert_eq!(generation(&edge), 1);
}
