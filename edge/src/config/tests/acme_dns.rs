//! Tests of `dns` in `[tls.acme]`: its plan, and the errors in it.

use std::time::Duration;

use super::{plan, said};
use crate::acme::Challenge;
use crate::acme::dns::{Algorithm, DnsOptions, ProgramOptions, Setter, UpdateOptions};
use crate::config::{Plan, changes, dns_program, reach};

/// Returns a configuration with these lines in `[tls.acme]` and this host.
fn text(acme: &str, host: &str) -> String {
    format!(
        "[[listener]]\naddress = \":443\"\ntls = true\n[tls.acme]\n{acme}\n\
         [[site]]\nhosts = \"{host}\"\ntls = \"auto\"\n[[site.route]]\nrespond = \"a\"\n"
    )
}

fn planned(acme: &str) -> Plan {
    plan(&text(acme, "*.example.com"))
}

fn dns(acme: &str) -> DnsOptions {
    planned(acme).acme.dns.expect("`dns`")
}

#[test]
fn a_program_has_the_documented_defaults() {
    let options = dns("dns = { program = \"/bin/dns\" }");
    let program = ProgramOptions {
        command: vec!["/bin/dns".to_owned()],
        timeout: Duration::from_secs(60),
    };
    assert_eq!(options.setter, Setter::Program(program.clone()));
    assert_eq!(options.propagation, Some(Duration::from_secs(120)));
    assert!(options.name_servers.is_empty());
    let options = dns(
        "challenge = \"dns-01\"\ndns = { program = [\"dns\", \"a b\"], timeout = \"5s\", propagation = false, name_servers = [\"192.0.2.1\", \"192.0.2.2:54\"] }",
    );
    assert_eq!(options.propagation, None);
    let ports = options.name_servers.iter().map(|server| server.port());
    assert_eq!(ports.collect::<Vec<_>>(), [53, 54]);
    let command = vec!["dns".to_owned(), "a b".to_owned()];
    let timeout = Duration::from_secs(5);
    assert_eq!(
        options.setter,
        Setter::Program(ProgramOptions { command, timeout })
    );
}

#[test]
fn updates_have_the_documented_defaults_and_their_key_can_be_read_in_the_sandbox() {
    let lines = "dns = { server = \"192.0.2.1\", key_name = \"acme\", key = \"/keys/dns.key\" }";
    let update = UpdateOptions {
        server: ([192, 0, 2, 1], 53).into(),
        key_name: "acme".to_owned(),
        key: "/keys/dns.key".into(),
        algorithm: Algorithm::HmacSha256,
        zone: None,
        ttl_s: 60,
    };
    assert_eq!(dns(lines).setter, Setter::Update(update.clone()));
    let files = reach(&planned(lines));
    assert!(files.iter().any(|one| one.path.as_os_str() == "/keys"));
    let more = lines.replace(
        " }",
        ", zone = \"example.com\", ttl = \"5m\", algorithm = \"hmac-sha512\" }",
    );
    let update = UpdateOptions {
        algorithm: Algorithm::HmacSha512,
        zone: Some("example.com".to_owned()),
        ttl_s: 300,
        ..update
    };
    assert_eq!(dns(&more).setter, Setter::Update(update));
}

#[test]
fn with_dns_alone_the_other_challenges_are_preferred() {
    let plan = planned("dns = { program = \"dns\" }");
    let all = [Challenge::Http01, Challenge::TlsAlpn01, Challenge::Dns01];
    assert_eq!(plan.acme.challenges, all);
    assert!(dns_program(&plan).is_some());
    let unused = super::plan(&text(
        "challenge = \"http-01\"\ndns = { program = \"dns\" }",
        "a.example",
    ));
    assert!(dns_program(&unused).is_none());
}

#[test]
fn a_change_of_the_program_needs_a_restart() {
    let needs = |old: &str, new: &str| changes(&planned(old), &planned(new)).needs_restart;
    let a = "dns = { program = \"a\" }";
    assert!(needs(a, a).is_empty());
    assert_eq!(needs(a, "dns = { program = \"b\" }"), ["program for DNS"]);
    assert_eq!(
        needs(a, "dns = { program = \"a\", timeout = \"5s\" }"),
        ["program for DNS"]
    );
    assert!(needs(a, "dns = { program = \"a\", propagation = \"5s\" }").is_empty());
    let update = "dns = { server = \"192.0.2.1\", key_name = \"acme\", key = \"a\" }";
    assert!(needs(a, update).is_empty());
    assert_eq!(needs(update, a), ["program for DNS"]);
}

#[test]
fn mistakes_are_explained() {
    let update = "server = \"192.0.2.1\", key_name = \"acme\", key = \"a\"";
    let cases = [
        "",
        "challenge = [\"http-01\", \"dns-01\"]",
        "dns = {}",
        "dns = \"/bin/dns\"",
        "dns = { program = \"\" }",
        "dns = { program = \"dns\", server = \"192.0.2.1\" }",
        "dns = { program = \"dns\", zone = \"example.com\", ttl = \"1m\" }",
        "dns = { program = \"dns\", timeout = \"1h\", propagation = \"0s\", name_servers = \"ns1\" }",
        "dns = { server = \"ns1.example.com\", key_name = \"a..b\", key = \"a\" }",
        "dns = { server = \"192.0.2.1\" }",
        &format!("dns = {{ {update}, timeout = \"1m\" }}"),
        &format!("dns = {{ {update}, algorithm = \"hmac-md5\" }}"),
        "challenge = \"http-01\"\ndns = { program = \"dns\" }",
    ];
    let all = cases.map(|case| {
        let said = said(&text(case, "*.example.com"));
        assert!(!said.is_empty(), "{case}");
        format!("--- {case}\n{said}")
    });
    insta::assert_snapshot!("mistakes", all.join("\n"));
}
