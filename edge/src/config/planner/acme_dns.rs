//! Plans `dns` in `[tls.acme]`, and checks that the names of sites have a challenge that can prove them.

use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;

use super::{names, resolver};
use crate::acme::dns::{Algorithm, DnsOptions, ProgramOptions, Setter, UpdateOptions, is_dns_name};
use crate::acme::{Challenge, Options};
use crate::config::checks::Checks;
use crate::config::file::{AcmeFile, AlgorithmFile, DnsFile, File};
use crate::config::plan::Plan;
use crate::config::report::Problem;
use crate::config::value::{Key, OrFalse, Table};
use crate::tls::Management;

const SECOND: Duration = Duration::from_secs(1);
/// Longest time until the program has ended by default.
const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Longest time until the name servers have the record by default.
const PROPAGATION: Duration = Duration::from_secs(120);
const PROPAGATION_MAX: Duration = Duration::from_secs(3600);
/// Time for which resolvers may keep the record by default.
const TTL: Duration = Duration::from_secs(60);
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);

/// Sets `dns`, and the challenge DNS-01 by default if there is a `dns`.
pub fn plan(file: &AcmeFile, options: &mut Options, checks: &mut Checks) {
    let uses_dns = options.challenges.contains(&Challenge::Dns01);
    let Some(typed) = &file.dns else {
        if let (Some(list), true) = (&file.challenge, uses_dns) {
            checks.push(
                Problem::error("the challenge \"dns-01\" needs `dns`")
                    .at(list.span())
                    .help(EXAMPLES),
            );
        }
        return;
    };
    match &file.challenge {
        None => options.challenges.push(Challenge::Dns01),
        Some(list) if !uses_dns => checks.push(
            Problem::warning("no challenge uses `dns`, so it does nothing")
                .at(typed.span())
                .label("`challenge` does not name \"dns-01\"")
                .help(format!(
                    "add it to `challenge`, as in `challenge = [{}\"dns-01\"]`",
                    list.get_ref()
                        .iter()
                        .map(|one| format!("{:?}, ", one.get_ref()))
                        .collect::<String>()
                )),
        ),
        Some(_) => {}
    }
    let Table(table) = typed.get_ref();
    options.dns = dns(table, typed, checks);
}

/// The ways to set records, as advice.
const EXAMPLES: &str = "add `dns = { program = \"/usr/local/bin/dns-update\" }`, or for dynamic updates \
     `dns = { server = \"192.0.2.1\", key_name = \"acme\", key = \"/etc/sluice/dns.key\" }`";

fn dns(file: &DnsFile, at: &Spanned<Table<DnsFile>>, checks: &mut Checks) -> Option<DnsOptions> {
    let setter = match (&file.program, &file.server) {
        (Some(_), None) => program(file, checks),
        (None, Some(server)) => update(file, server, at, checks),
        (Some(_), Some(server)) => {
            checks.push(
                Problem::error("`program` and `server` exclude each other")
                    .at(server.span())
                    .help("leave out one of them"),
            );
            None
        }
        (None, None) => {
            checks.push(
                Problem::error("`dns` needs `program` or `server`")
                    .at(at.span())
                    .help(EXAMPLES),
            );
            None
        }
    };
    let propagation = match file.propagation.as_ref().map(Spanned::get_ref) {
        Some(OrFalse::False) => None,
        _ => Some(checks.within_or(
            "propagation",
            &time(&file.propagation),
            PROPAGATION,
            SECOND..=PROPAGATION_MAX,
            ", or false",
        )),
    };
    let list = file.name_servers.as_ref();
    let name_servers = list.map(|list| resolver::addresses("name_servers", list, checks));
    Some(DnsOptions {
        setter: setter?,
        propagation,
        name_servers: name_servers.unwrap_or_default(),
    })
}

fn time<T: Copy>(key: &Key<OrFalse<T>>) -> Key<T> {
    let typed = key.as_ref()?;
    let on = typed.get_ref().on()?;
    Some(Spanned::new(typed.span(), *on))
}

fn program(file: &DnsFile, checks: &mut Checks) -> Option<Setter> {
    for (name, span) in of_updates(file) {
        checks.push(
            Problem::error(format!(
                "`{name}` is for dynamic updates, and `dns` has a program"
            ))
            .at(span)
            .help("leave it out"),
        );
    }
    let list = file.program.as_ref()?;
    names::few("program", list.get_ref().len(), list.span(), checks);
    let command = list.get_ref().iter().map(|one| one.get_ref().clone());
    let command: Vec<String> = command.collect();
    if command.first().is_none_or(String::is_empty) {
        checks.push(
            Problem::error("`program` names no program")
                .at(list.span())
                .help("write its path and its first arguments, as in [\"/usr/local/bin/dns-update\", \"example.com\"]"),
        );
        return None;
    }
    let timeout = checks.within("timeout", &file.timeout, TIMEOUT, SECOND..=TIMEOUT_MAX);
    Some(Setter::Program(ProgramOptions { command, timeout }))
}

/// Returns the keys that only dynamic updates have, with their positions.
fn of_updates(file: &DnsFile) -> Vec<(&'static str, std::ops::Range<usize>)> {
    let spans = [
        ("key_name", file.key_name.as_ref().map(Spanned::span)),
        ("key", file.key.as_ref().map(Spanned::span)),
        ("algorithm", file.algorithm.as_ref().map(Spanned::span)),
        ("zone", file.zone.as_ref().map(Spanned::span)),
        ("ttl", file.ttl.as_ref().map(Spanned::span)),
    ];
    let given = spans.into_iter();
    given
        .filter_map(|(name, span)| Some((name, span?)))
        .collect()
}

fn update(
    file: &DnsFile,
    server: &Spanned<String>,
    at: &Spanned<Table<DnsFile>>,
    checks: &mut Checks,
) -> Option<Setter> {
    if let Some(typed) = &file.timeout {
        checks.push(
            Problem::error("`timeout` is for a program, and `dns` has a server")
                .at(typed.span())
                .help("leave it out"),
        );
    }
    let address = resolver::address(server.get_ref());
    if address.is_none() {
        checks.push(
            Problem::error("`server` is not an address of a name server")
                .at(server.span())
                .help("write an IP address, with a port if that is not 53, as in \"192.0.2.1\" or \"192.0.2.1:5353\""),
        );
    }
    let (Some(key_name), Some(key)) = (&file.key_name, &file.key) else {
        checks.push(
            Problem::error("dynamic updates need `key_name` and `key`")
                .at(at.span())
                .label("updates without a signature would let everyone change the zone")
                .help("`tsig-keygen NAME` makes a key; `key` is the file with it, or with the secret alone"),
        );
        return None;
    };
    for typed in [Some(key_name), file.zone.as_ref()].into_iter().flatten() {
        if !is_dns_name(typed.get_ref()) {
            checks.push(
                Problem::error("this is not a name in DNS")
                    .at(typed.span())
                    .help("write one such as \"acme.example.com\""),
            );
        }
    }
    let ttl = checks.within("ttl", &file.ttl, TTL, SECOND..=TTL_MAX);
    Some(Setter::Update(UpdateOptions {
        server: address?,
        key_name: key_name.get_ref().clone(),
        key: PathBuf::from(key.get_ref()),
        algorithm: match file.algorithm.as_ref().map(|typed| typed.get_ref().0) {
            None | Some(AlgorithmFile::HmacSha256) => Algorithm::HmacSha256,
            Some(AlgorithmFile::HmacSha384) => Algorithm::HmacSha384,
            Some(AlgorithmFile::HmacSha512) => Algorithm::HmacSha512,
        },
        zone: file.zone.as_ref().map(|typed| typed.get_ref().clone()),
        ttl_s: u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX),
    }))
}

/// Reports wildcards whose certificate is to be obtained although no challenge can prove them.
pub fn check(file: &File, plan: &Plan, checks: &mut Checks) {
    if plan.acme.challenges.contains(&Challenge::Dns01) {
        return;
    }
    for (typed, planned) in file.site.iter().zip(&plan.sites) {
        let managed = planned.tls.as_ref().and_then(|tls| tls.managed);
        if managed != Some(Management::Acme) {
            continue;
        }
        let hosts = typed.get_ref().hosts.as_ref();
        let hosts = hosts.map_or(&[][..], |list| list.get_ref());
        for host in hosts.iter().filter(|host| host.get_ref().starts_with('*')) {
            checks.push(
                Problem::error("a wildcard's certificate needs the challenge \"dns-01\"")
                    .at(host.span())
                    .label("no other challenge can prove the control of a wildcard")
                    .help(match plan.acme.dns {
                        Some(_) => "add \"dns-01\" to `challenge` in [tls.acme]".to_owned(),
                        None => format!("in [tls.acme], {EXAMPLES}"),
                    }),
            );
        }
    }
}
