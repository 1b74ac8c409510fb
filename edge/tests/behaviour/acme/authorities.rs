//! Tests of authorities: accounts, refusals, several directories, and the budget of orders.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use super::Bed;
use crate::harness::{Setup, eventually};

#[test]
fn an_account_is_bound_to_an_external_one() {
    let name = "cdn.example.com";
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let account = |options: &mut sluice_lab::pebble::Options| {
        options.external_account = Some(("kid-1".to_owned(), key.to_owned()));
    };
    let bed = Bed::new(&[name], account);
    let edge = bed.start("", &[name]);
    eventually("the account is refused", || {
        edge.process.stderr().contains("externalAccountRequired")
    });
    drop(edge);
    let file = bed.folder.path().join("key");
    fs::write(&file, format!("{key}\n")).expect("a file");
    let keys = format!("state = {:?}\n", bed.folder.path().join("other"));
    let keys = format!("{keys}external_account = {{ id = \"kid-1\", key = {file:?} }}\n");
    let _edge = bed.start(&keys, &[name]);
    assert_eq!(bed.wait_served(name), "hello");
}

#[test]
fn the_second_directory_is_asked_if_the_first_fails() {
    let name = "cdn.example.com";
    let refusing = Bed::new(&[name], |options| options.refused = vec![name.to_owned()]);
    let bed = Bed::new(&[name], |_| {});
    let both = [refusing.pebble.directory(), bed.pebble.directory()];
    let both = format!("directory = {both:?}\n");
    let trust = [refusing.pebble.trust(), bed.pebble.trust()];
    let text = bed.text(&both, &[name]);
    let one = format!("ca = {:?}", bed.pebble.trust());
    let text = text.replace(&one, &format!("ca = {trust:?}"));
    let _edge = Setup::of_text(text).start();
    assert_eq!(bed.wait_served(name), "hello");
    assert_eq!((refusing.pebble.orders(), bed.pebble.orders()), (0, 1));
}

#[test]
fn another_directory_issues_a_new_certificate_while_the_old_one_is_in_use() {
    let name = "cdn.example.com";
    let first = Bed::new(&[name], |_| {});
    let second = Bed::new(&[name], |options| {
        (options.http_port, options.tls_port) = (first.http, first.https);
    });
    let trust = [first.pebble.trust(), second.pebble.trust()];
    let one = format!("ca = {:?}", first.pebble.trust());
    let text = first
        .text("", &[name])
        .replace(&one, &format!("ca = {trust:?}"));
    let edge = Setup::of_text(text.clone()).start();
    first.wait_served(name);
    edge.rewrite(&text.replace(&first.pebble.directory(), &second.pebble.directory()));
    let reloaded = edge.command(&["reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    // The bed's own handshakes verify with its own authority.
    let of_second = Bed {
        http: first.http,
        https: first.https,
        ..second
    };
    of_second.wait_served(name);
    assert_eq!((first.pebble.orders(), of_second.pebble.orders()), (1, 1));
}

#[test]
fn a_shared_certificate_stays_in_use_until_the_one_with_other_names_is_there() {
    let names = ["a.example.com", "b.example.com"];
    let bed = Bed::new(&names, |options| {
        options.refused = vec![names[1].to_owned()]
    });
    let keys = format!("directory = {:?}\n", bed.pebble.directory());
    let text = |hosts: &[&str]| {
        let site =
            format!("tls = {{ certificate = \"auto\", shared = true }}\nhosts = {hosts:?}\n");
        bed.text_of_site(&keys, &site)
    };
    let edge = Setup::of_text(text(&names[..1])).start();
    bed.wait_served(names[0]);
    let certificate = bed.certificate(names[0]);
    edge.rewrite(&text(&names));
    assert!(edge.command(&["reload"]).status.success());
    eventually("the order for both is refused", || {
        edge.process.stderr().contains("rejectedIdentifier")
    });
    assert_eq!(bed.certificate(names[0]), certificate);
    drop(edge);
    let _edge = Setup::of_text(text(&names)).start();
    assert_eq!(bed.certificate(names[0]), certificate);
}

#[test]
fn a_refusal_keeps_other_names_from_nothing() {
    let bed = Bed::new(&["a.example.com", "b.example.com"], |options| {
        options.refused = vec!["a.example.com".to_owned()];
    });
    let edge = bed.start("", &["a.example.com", "b.example.com"]);
    assert_eq!(bed.wait_served("b.example.com"), "hello");
    eventually("the refusal is logged", || {
        edge.process.stderr().contains("rejectedIdentifier")
    });
    assert!(bed.handshake("a.example.com").is_err());
}

#[test]
fn orders_stay_within_the_budget_over_restarts() {
    let names = ["a.example.com", "b.example.com"];
    let bed = Bed::new(&names, |_| {});
    for _ in 0..2 {
        let edge = bed.start("orders = 1", &names);
        eventually("the budget is used up", || {
            edge.process
                .stderr()
                .contains("as many as `orders` permits")
        });
        eventually("one name has a certificate", || {
            names.iter().any(|name| bed.handshake(name).is_ok())
        });
        assert_eq!(bed.pebble.orders(), 1);
        for name in names {
            // The failure of the budget itself is no reason to wait for long after it.
            let _ = fs::remove_file(bed.state().join(format!("certificates/{name}.json")));
        }
    }
}

#[test]
fn all_hosts_of_a_site_may_share_one_certificate() {
    let names = ["a.example.com", "b.example.com"];
    let bed = Bed::new(&names, |_| {});
    let site = "tls = { certificate = \"auto\", shared = true }\nhosts = [\"a.example.com\", \"b.example.com\"]\n";
    let keys = format!("directory = {:?}\n", bed.pebble.directory());
    let _edge = Setup::of_text(bed.text_of_site(&keys, site)).start();
    for name in names {
        assert_eq!(bed.wait_served(name), "hello");
    }
    assert_eq!(bed.certificate(names[0]), bed.certificate(names[1]));
    assert_eq!(bed.pebble.orders(), 1);
}

#[test]
fn a_clock_that_is_a_day_off_keeps_nobody_from_certificates() {
    let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
    let is_there = Path::new(library).exists();
    assert!(
        is_there,
        "libfaketime is not installed: `cargo xtask test` installs it"
    );
    for offset in ["-1d", "+1d"] {
        let name = "cdn.example.com";
        let bed = Bed::new(&[name], |options| options.is_short_lived = true);
        let text = bed.text("profile = \"shortlived\"", &[name]);
        let off = Setup::of_text(text.clone())
            .environment("FAKETIME", offset)
            .environment("DONT_FAKE_MONOTONIC", "1")
            .environment("NO_FAKE_STAT", "1")
            .environment("LD_PRELOAD", library);
        let edge = off.start();
        assert_eq!(bed.wait_served(name), "hello", "{offset}");
        let date = edge.process.stderr()[.."2026-11-27".len()].replace('-', "/");
        assert!(
            !bed.pebble.log().contains(&date),
            "the clock is right: {date}"
        );
        drop(edge);
        // With the right clock and a wrong one, the certificate stays.
        for setup in [Setup::of_text(text), off] {
            let _edge = setup.start();
            assert_eq!(bed.wait_served(name), "hello", "{offset}");
        }
        assert_eq!(bed.pebble.orders(), 1, "{offset}");
    }
}

#[test]
fn keys_profiles_and_files_are_as_configured() {
    let name = "cdn.example.com";
    let bed = Bed::new(&[name], |options| options.is_short_lived = true);
    let edge = bed.start("key_type = \"p384\"\nprofile = \"shortlived\"", &[name]);
    bed.wait_served(name);
    let certificate = bed.certificate(name);
    let state: Value = serde_json::from_slice(&edge.get_admin("/certificates").body).expect("JSON");
    let time_s = |name: &str| state["list"][0][name].as_i64().expect("a time");
    let validity_s = time_s("not_after_unix_s") - time_s("not_before_unix_s");
    assert!((validity_s - 6 * 24 * 3600).abs() <= 1, "{validity_s}");
    // The object identifier of the curve P-384.
    let curve = [0x2b, 0x81, 0x04, 0x00, 0x22];
    assert!(certificate.windows(curve.len()).any(|part| part == curve));
    let folder = bed.state().join("certificates");
    let mode = |path: &Path| {
        let found = fs::metadata(path).expect("a file");
        found.permissions().mode() & 0o777
    };
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("cdn.example.com.pem")), 0o600);
    let [http, https] = [bed.http, bed.https].map(|port| format!("127.0.0.1:{port}"));
    let text = bed.text("", &[name]).replace(&http, "127.0.0.1:0");
    let text = Setup::of_text(text.replace(&https, "127.0.0.1:0")).refused();
    assert!(text.contains("another process uses this folder"), "{text}");
}
