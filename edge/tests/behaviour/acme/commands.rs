//! Tests of the commands and the admin API that show certificates, renew and revoke them, and of `sluice check`.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Output};

use serde_json::Value;

use super::Bed;
use crate::harness::{Edge, eventually};

const NAME: &str = "cdn.example.com";

/// Returns what a command printed on standard output and standard error.
fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// Returns the state of the only certificate.
fn certificate(edge: &Edge) -> Value {
    let reply = edge.get_admin("/certificates");
    let value: Value = serde_json::from_slice(&reply.body).expect("JSON");
    value["list"][0].clone()
}

/// Returns the samples of the metrics of certificates.
fn metrics(edge: &Edge) -> Vec<String> {
    let text = edge.get_admin("/metrics").text();
    let lines = text
        .lines()
        .filter(|line| line.starts_with("sluice_certificate"));
    lines.map(str::to_owned).collect()
}

/// Returns the certificate that handshakes get.
fn served(bed: &Bed) -> Option<Vec<u8>> {
    let client = bed.handshake(NAME).ok()?;
    let chain = client.session()?.peer_certificates()?;
    Some(chain.first()?.to_vec())
}

#[test]
fn a_certificate_is_shown_before_and_after_it_is_obtained() {
    let bed = Bed::new(&[], |_| {});
    let edge = bed.start("", &[NAME]);
    // The name has no address yet.
    eventually("the first attempt has failed", || {
        certificate(&edge)["failures"] == 1
    });
    let state = certificate(&edge);
    assert_eq!(
        (&state["in_use"], &state["source"]),
        (&false.into(), &"acme".into())
    );
    assert!(state["renewal_unix_s"].as_i64() > state["last_attempt_unix_s"].as_i64());
    let shown = said(&edge.command(&["certs"]));
    assert!(
        shown.contains(&format!("! {NAME}: there is no certificate yet")),
        "{shown}"
    );
    assert!(
        shown.contains(&format!("{NAME}: the last attempt failed: https://")),
        "{shown}"
    );
    assert!(
        said(&edge.command(&["status"])).contains("certificates: 0 of 1 in use, 1 with warnings")
    );
    let label = format!("{{source=\"acme\",certificate=\"{NAME}\"}}");
    let before = metrics(&edge);
    for sample in [
        format!("sluice_certificate_in_use{label} 0"),
        format!("sluice_certificate_failures{label} 1"),
        format!("sluice_certificate_not_after_seconds{label} 0"),
        "sluice_certificates_warned 1".to_owned(),
    ] {
        assert!(before.contains(&sample), "{sample}: {before:?}");
    }

    bed.pebble.serve_names(&[NAME]);
    let renewed = edge.command(&["certs", "renew", NAME]);
    assert!(renewed.status.success(), "{}", said(&renewed));
    assert_eq!(bed.wait_served(NAME), "hello");
    eventually("the attempt has ended", || {
        certificate(&edge)["in_progress"] == false
    });
    let state = certificate(&edge);
    assert_eq!(
        (&state["failures"], &state["last_error"]),
        (&0.into(), &Value::Null)
    );
    let until_s = state["not_after_unix_s"].as_u64().expect("a time");
    let after = metrics(&edge);
    for sample in [
        format!("sluice_certificate_in_use{label} 1"),
        format!("sluice_certificate_failures{label} 0"),
        format!("sluice_certificate_not_after_seconds{label} {until_s}"),
        "sluice_certificates_warned 0".to_owned(),
    ] {
        assert!(after.contains(&sample), "{sample}: {after:?}");
    }
    let shown = said(&edge.command(&["certs"]));
    assert!(
        shown.contains("Pebble Intermediate CA") && shown.contains("89 days"),
        "{shown}"
    );
    assert!(!shown.contains('!'), "{shown}");
    let json = edge.command(&["certs", "--json"]);
    let value: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(value["list"][0]["names"][0], NAME);
}

#[test]
fn orders_about_unknown_names_say_which_names_there_are() {
    let bed = Bed::new(&[NAME], |_| {});
    let edge = bed.start("", &[NAME]);
    bed.wait_served(NAME);
    for order in ["renew", "revoke"] {
        let output = edge.command(&["certs", order, "other\u{202e}.example"]);
        assert_eq!(output.status.code(), Some(3));
        let said = said(&output);
        assert!(said.contains(&format!("only: {NAME}")), "{said}");
        assert!(said.is_ascii(), "{said}");
    }
    let output = edge.command(&["certs", "revoke", NAME, "--reason", "boredom"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_error_of_a_refused_name_is_shown() {
    let bed = Bed::new(&[NAME], |options| options.refused = vec![NAME.to_owned()]);
    let edge = bed.start("", &[NAME]);
    eventually("the authority has refused", || {
        certificate(&edge)["failures"] == 1
    });
    let output = edge.command(&["certs"]);
    let shown = said(&output);
    assert!(shown.contains("rejectedIdentifier"), "{shown}");
    let is_harmless = |c: char| c == '\n' || !c.is_control();
    assert!(shown.chars().all(is_harmless), "{shown:?}");
}

#[test]
fn a_revoked_certificate_is_replaced_by_one_with_another_key() {
    let bed = Bed::new(&[NAME], |_| {});
    let edge = bed.start("", &[NAME]);
    bed.wait_served(NAME);
    eventually("the attempt has ended", || {
        certificate(&edge)["in_progress"] == false
    });
    let first = served(&bed).expect("a certificate");
    let revoked = edge.command(&["certs", "revoke", NAME, "--reason", "keyCompromise"]);
    let text = said(&revoked);
    assert!(revoked.status.success(), "{text}");
    assert!(text.contains("a new one is being obtained"), "{text}");
    // The revoked one is not used from the response on.
    assert_ne!(served(&bed), Some(first.clone()));
    eventually("there is another certificate", || served(&bed).is_some());
    assert_ne!(served(&bed), Some(first));
    assert_eq!(bed.pebble.orders(), 2);
    assert!(edge.process.stderr().contains("a certificate was revoked"));
    drop(edge);
    // The new one outlives a restart.
    let _edge = bed.start("", &[NAME]);
    bed.handshake(NAME).expect("the new certificate");
    assert_eq!(bed.pebble.orders(), 2);
}

#[test]
fn a_renewal_keeps_to_the_limit_of_orders() {
    let bed = Bed::new(&[NAME], |_| {});
    let edge = bed.start("orders = 1", &[NAME]);
    bed.wait_served(NAME);
    eventually("the attempt has ended", || {
        certificate(&edge)["in_progress"] == false
    });
    assert!(edge.command(&["certs", "renew", NAME]).status.success());
    eventually("the renewal is postponed", || {
        certificate(&edge)["last_error"] != Value::Null
    });
    let state = certificate(&edge);
    assert_eq!(state["failures"], 0);
    let error = state["last_error"].as_str().expect("an error");
    assert!(error.contains("`orders`"), "{error}");
    assert_eq!((&state["in_use"], bed.pebble.orders()), (&true.into(), 1));
    bed.handshake(NAME).expect("the certificate stays in use");
}

#[test]
fn the_certificates_on_the_disk_are_shown_if_no_sluice_runs() {
    let bed = Bed::new(&[NAME], |_| {});
    let edge = bed.start("", &[NAME]);
    bed.wait_served(NAME);
    eventually("the attempt has ended", || {
        certificate(&edge)["in_progress"] == false
    });
    let admin = edge.admin;
    drop(edge);
    let file = bed.folder.path().join("sluice.toml");
    let text = bed
        .text("", &[NAME])
        .replace("127.0.0.1:0", &admin.to_string());
    std::fs::write(&file, text).expect("written");
    let output = sluice(&["certs", "-c", &file.display().to_string()]);
    let shown = said(&output);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("certificates on the disk"), "{shown}");
    assert!(shown.contains("Pebble Intermediate CA"), "{shown}");
}

fn sluice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .env_remove("SLUICE_ADMIN")
        .env_remove("SLUICE_CONFIG")
        .output()
        .expect("the program starts")
}

/// Runs `sluice check` with a configuration, and returns what it says.
fn check(bed: &Bed, text: &str, options: &[&str]) -> String {
    let file = bed.folder.path().join("checked.toml");
    std::fs::write(&file, text).expect("written");
    let file = file.display().to_string();
    let output = sluice(&[&["check", &file], options].concat());
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

#[test]
fn a_check_says_beforehand_what_would_fail() {
    let names = ["here.example.com", "away.example.com", "none.example.com"];
    let bed = Bed::new(&names[..1], |_| {});
    let away = IpAddr::from(Ipv4Addr::new(192, 0, 2, 1));
    bed.pebble.names().set(names[1], &[away]);
    let resolver = format!("[server]\nresolver = \"{}\"\n", bed.pebble.names().addr());
    let text = resolver + &bed.text("", &names);
    let all = check(&bed, &text, &[]);
    for expected in [
        "no listener is in clear text on port 80, where http-01 verifies names",
        &format!(
            "the listeners are 127.0.0.1:{}, 127.0.0.1:{} with TLS",
            bed.http, bed.https
        ),
        "the addresses of this name are not those of this machine",
        "192.0.2.1",
        "no certificate can be obtained for this name: it has no address",
        "checked.toml:",
    ] {
        assert!(all.contains(expected), "{expected}: {all}");
    }
    assert_eq!(all.matches("warning: ").count(), 3, "{all}");
    let offline = check(&bed, &text, &["--offline"]);
    assert_eq!(offline.matches("warning: ").count(), 1, "{offline}");
    // Both challenges are impossible, and the first one is reported.
    let by_tls = check(
        &bed,
        &bed.text("challenge = \"tls-alpn-01\"", &[])
            .replace("hosts = []", "hosts = \"a.invalid\""),
        &["--offline"],
    );
    assert!(
        by_tls.contains("no listener has TLS on port 443, where tls-alpn-01"),
        "{by_tls}"
    );
}

#[test]
fn a_check_reports_directories_that_can_not_be_used() {
    let bed = Bed::new(&[NAME], |_| {});
    let resolver = format!("[server]\nresolver = \"{}\"\n", bed.pebble.names().addr());
    let text = resolver + &bed.text("", &[NAME]);
    let fine = check(&bed, &text, &[]);
    assert!(!fine.contains("directory"), "{fine}");
    let other = sluice_lab::certificates::Authority::new("Another authority").pem();
    let file = bed.folder.path().join("other.pem");
    std::fs::write(&file, other).expect("written");
    let trust = format!("ca = {:?}", bed.pebble.trust());
    let unverified = check(&bed, &text.replace(&trust, &format!("ca = {file:?}")), &[]);
    assert!(
        unverified.contains("the certificate of the directory can't be verified"),
        "{unverified}"
    );
    let port = sluice_lab::process::free_port().expect("a port");
    let down = format!("https://127.0.0.1:{port}/dir");
    let down = check(&bed, &text.replace(&bed.pebble.directory(), &down), &[]);
    assert!(down.contains("the directory can't be reached"), "{down}");
    let no_directory = format!("{}/other", bed.pebble.directory());
    let missing = check(
        &bed,
        &text.replace(&bed.pebble.directory(), &no_directory),
        &[],
    );
    assert!(
        missing.contains("the response has the status 404"),
        "{missing}"
    );
}
