//! Tests of certificates for which handshakes ask.

use std::thread;

use sluice_lab::origin::Resource;

use super::Bed;
use crate::harness::{Setup, eventually, origin};

const SITE: &str = "tls = { certificate = \"on-demand\" }\n";

#[test]
fn the_first_handshake_with_a_permitted_name_waits_for_its_certificate() {
    let names = [
        "a.shops.example.com",
        "b.shops.example.com",
        "c.example.com",
    ];
    let bed = Bed::new(&names, |_| {});
    let keys = format!(
        "directory = {:?}\non_demand = {{ allow = [\"*.shops.example.com\"] }}\n",
        bed.pebble.directory()
    );
    let text = bed.text_of_site(&keys, SITE);
    let edge = Setup::of_text(text.clone()).start();
    thread::scope(|scope| {
        for name in &names[..2] {
            for _ in 0..3 {
                scope.spawn(|| bed.handshake(name).expect("a certificate comes"));
            }
        }
    });
    assert_eq!(bed.pebble.orders(), 2);
    assert!(bed.handshake("c.example.com").is_err());
    assert!(bed.handshake("missing.shops.example.com").is_err());
    assert!(bed.handshake("missing.shops.example.com").is_err());
    assert_eq!(bed.pebble.orders(), 3);
    drop(edge);
    // The certificates outlive a restart, and the failure is remembered.
    let edge = Setup::of_text(text).start();
    bed.handshake("a.shops.example.com").expect("a certificate");
    assert!(bed.handshake("missing.shops.example.com").is_err());
    assert_eq!(bed.pebble.orders(), 3);
    assert_eq!(edge.counter("tls_failed_no_certificate"), 1);
}

#[test]
fn a_url_is_asked_whether_a_name_may_have_a_certificate() {
    let names = ["a.example.com", "b.example.com"];
    let bed = Bed::new(&names, |_| {});
    let origin = origin();
    origin.serve("/allowed?domain=a.example.com", Resource::offset(2));
    let keys = format!(
        "directory = {:?}\non_demand = {{ ask = {:?} }}\n",
        bed.pebble.directory(),
        origin.url("/allowed"),
    );
    let edge = Setup::of_text(bed.text_of_site(&keys, SITE)).start();
    bed.handshake("a.example.com").expect("a certificate comes");
    assert!(bed.handshake("b.example.com").is_err());
    eventually("the refusal is logged", || {
        edge.process
            .stderr()
            .contains("has answered 404 for b.example.com")
    });
    assert_eq!(bed.pebble.orders(), 1);
}
