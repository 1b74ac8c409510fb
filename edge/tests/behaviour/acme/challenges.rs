//! Tests of the challenges by which an authority verifies the control of a name.

use super::Bed;
use crate::harness::eventually;

#[test]
fn a_name_gets_its_certificate_by_each_challenge() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let bed = Bed::new(&["cdn.example.com"], |_| {});
        let keys = format!("challenge = {challenge:?}");
        let edge = bed.start(&keys, &["cdn.example.com"]);
        assert_eq!(bed.wait_served("cdn.example.com"), "hello", "{challenge}");
        assert_eq!(bed.pebble.orders(), 1);
        drop(edge);
        // The certificate outlives a restart.
        let _edge = bed.start(&keys, &["cdn.example.com"]);
        bed.handshake("cdn.example.com")
            .expect("the stored certificate");
        assert_eq!(bed.pebble.orders(), 1);
    }
}

#[test]
fn a_handshake_without_a_certificate_has_a_reason() {
    let bed = Bed::new(&[], |_| {});
    let edge = bed.start("", &["cdn.example.com"]);
    let error = bed
        .handshake("cdn.example.com")
        .expect_err("no certificate");
    assert!(error.contains("UnrecognisedName"), "{error}");
    eventually("the failure is counted", || {
        edge.counter("tls_failed_no_certificate") == 1
    });
}

#[test]
fn nonces_that_are_refused_and_slow_authorisations_only_take_time() {
    let names = ["a.example.com", "b.example.com", "c.example.com"];
    let bed = Bed::new(&names, |options| {
        options.bad_nonces = 20;
        options.sleep_s = 2;
    });
    let _edge = bed.start("", &names);
    for name in names {
        assert_eq!(bed.wait_served(name), "hello");
    }
}
