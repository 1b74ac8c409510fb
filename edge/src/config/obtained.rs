//! Checks whether certificates can be obtained from authorities: the listeners and the folder that this needs, and the
//! judgement of what `sluice check` finds on the network.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::account::{Account, Purpose};
use super::checks::Checks;
use super::file::File;
use super::plan::Plan;
use super::planner;
use super::reach::{folder_of, obtains_certificates};
use super::report::{Problem, Report};
use super::syntax;
use super::value::show_time;
use crate::acme::dns::Setter;
use crate::acme::{self, Challenge};
use crate::sys::ListenAddress;
use crate::sys::disk::{self, access};
use crate::tls::Management;

/// Ports at which authorities verify names (RFC 8555 8.3, RFC 8737 3).
const HTTP_PORT: u16 = 80;
const TLS_PORT: u16 = 443;
/// Largest difference between the clocks of an authority and of this machine that is not reported, in seconds.
const CLOCK_OFF_MAX_S: i64 = 5 * 60;
/// Most characters of a text from a server.
const TEXT_MAX: usize = 200;

/// The hosts and directories that the network decides about.
#[derive(Clone, Debug)]
pub struct Obtained {
    /// The hosts for which certificates are obtained, without those that are patterns.
    pub hosts: Vec<String>,
    /// The name servers. Empty: those of the system.
    pub name_servers: Vec<SocketAddr>,
    /// The options of certificates from authorities.
    pub options: acme::Options,
}

/// The addresses of a host, as `sluice check` finds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostFinding {
    /// An address is one of this machine.
    Here,
    /// All addresses are those of other machines.
    Elsewhere(Vec<IpAddr>),
    /// There is no address, for this reason.
    Nowhere(String),
}

/// The response of a directory, as `sluice check` finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryFinding {
    /// The directory has answered. Its clock is this many seconds ahead of that of this machine, if it has sent the time.
    Answered {
        /// Seconds.
        ahead_s: Option<i64>,
    },
    /// The directory's certificate can't be verified, for this reason.
    Unverified(String),
    /// There is no response, for this reason.
    Unreachable(String),
}

/// The results of the look-ups and requests of `sluice check`.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Hosts with their addresses.
    pub hosts: Vec<(String, HostFinding)>,
    /// Directories, by their URLs, with their responses.
    pub directories: Vec<(String, DirectoryFinding)>,
}

/// Returns the hosts and directories to look at, if certificates are obtained from authorities. `text` is that of the
/// plan's file.
pub fn obtained(plan: &Plan, text: &str) -> Option<Obtained> {
    if !obtains_certificates(plan) {
        return None;
    }
    let file = syntax::read(text).ok()?;
    let mut hosts: Vec<String> = hosts(&file, plan)
        .into_iter()
        .map(|(host, _)| host)
        .filter(|host| !host.starts_with("*.") && is_name(host))
        .collect();
    hosts.sort();
    hosts.dedup();
    Some(Obtained {
        hosts,
        name_servers: planner::name_servers(&file.server),
        options: plan.acme.clone(),
    })
}

fn is_name(host: &str) -> bool {
    host.trim_matches(['[', ']']).parse::<IpAddr>().is_err()
}

/// Adds the problems with what was found to the report of a configuration.
pub fn report_findings(plan: &Plan, findings: &Findings, report: &mut Report) {
    let Ok(file) = syntax::read(&report.text) else {
        return;
    };
    let hosts = hosts(&file, plan);
    let of_hosts = findings.hosts.iter().filter_map(|(host, finding)| {
        let (_, at) = hosts.iter().find(|(own, _)| own == host)?;
        Some(host_problem(finding)?.at(at.clone()))
    });
    let of_directories = findings.directories.iter().filter_map(|(url, finding)| {
        Some(directory_problem(url, finding)?.at(directory(&file, plan, url)))
    });
    let mut problems: Vec<Problem> = of_hosts.chain(of_directories).collect();
    syntax::as_written(&report.text, &mut problems);
    report.add(problems);
}

fn host_problem(finding: &HostFinding) -> Option<Problem> {
    match finding {
        HostFinding::Here => None,
        HostFinding::Nowhere(why) => Some(
            Problem::warning("no certificate can be obtained for this name: it has no address")
                .label(shortened(why))
                .help("add its A or AAAA record, or correct the name"),
        ),
        HostFinding::Elsewhere(addresses) => {
            let all: Vec<String> = addresses.iter().take(4).map(IpAddr::to_string).collect();
            Some(
                Problem::warning("the addresses of this name are not those of this machine")
                    .label(all.join(", "))
                    .help(
                        "this is right if a router or load balancer passes ports 80 and 443 on to this machine; otherwise \
                         the authority asks another machine: correct the A and AAAA records",
                    ),
            )
        }
    }
}

fn directory_problem(url: &str, finding: &DirectoryFinding) -> Option<Problem> {
    match finding {
        DirectoryFinding::Answered { ahead_s } => {
            let ahead_s = ahead_s.filter(|s| s.abs() > CLOCK_OFF_MAX_S)?;
            let off = show_time(std::time::Duration::from_secs(ahead_s.unsigned_abs()));
            let way = match ahead_s > 0 {
                true => "behind",
                false => "ahead of",
            };
            Some(
                Problem::warning("the clock of this machine is wrong, or that of the directory")
                    .label(format!("{off} {way} {url}"))
                    .help("set the clock, for example with chrony: new certificates would seem to be not valid yet, or expired"),
            )
        }
        DirectoryFinding::Unverified(why) => Some(
            Problem::warning("the certificate of the directory can't be verified")
                .label(format!("{url}: {}", shortened(why)))
                .help("name the certificate of its authority, as in `ca = \"ca.pem\"` in [tls.acme], and compare the clocks"),
        ),
        DirectoryFinding::Unreachable(why) => Some(
            Problem::warning("the directory can't be reached")
                .label(format!("{url}: {}", shortened(why)))
                .help("correct the URL, or permit connections to it; Sluice starts without it, and asks again"),
        ),
    }
}

/// Returns a text from elsewhere without control characters, and not too long.
fn shortened(text: &str) -> String {
    let harmless = text.chars().map(|c| match c.is_control() {
        true => ' ',
        false => c,
    });
    harmless.take(TEXT_MAX).collect()
}

/// Returns the hosts for which certificates are obtained, each with its position.
fn hosts(file: &File, plan: &Plan) -> Vec<(String, Range<usize>)> {
    let mut all = Vec::new();
    for (typed, planned) in file.site.iter().zip(&plan.sites) {
        let managed = planned.tls.as_ref().and_then(|tls| tls.managed);
        if managed != Some(Management::Acme) {
            continue;
        }
        let hosts = typed.get_ref().hosts.iter();
        let hosts = hosts.flat_map(|list| list.get_ref()).map(Spanned::span);
        all.extend(planned.hosts.iter().cloned().zip(hosts));
    }
    all
}

/// Returns the position of a directory, or of the reason why it is asked.
fn directory(file: &File, plan: &Plan, url: &str) -> Range<usize> {
    let typed = file.tls.acme.as_ref().map(|typed| &typed.get_ref().0);
    let list = typed.and_then(|acme| acme.directory.as_ref());
    let planned = plan.acme.directories.iter();
    let index = planned.clone().position(|one| one.url == url);
    let written = index.and_then(|index| Some(list?.get_ref().get(index)?.span()));
    written.unwrap_or_else(|| place(file, plan))
}

/// Returns the position of `acme`, or of the first site whose certificates are obtained.
fn place(file: &File, plan: &Plan) -> Range<usize> {
    if let Some(typed) = &file.tls.acme {
        return typed.span();
    }
    first_site(file, plan)
}

fn first_site(file: &File, plan: &Plan) -> Range<usize> {
    let sites = file.site.iter().zip(&plan.sites);
    let mut managed = sites.filter(|(_, planned)| {
        let managed = planned.tls.as_ref().and_then(|tls| tls.managed);
        managed.is_some_and(|managed| managed != Management::Internal)
    });
    let first = managed
        .next()
        .and_then(|(typed, _)| typed.get_ref().tls.as_ref());
    first.map_or(0..0, Spanned::span)
}

/// Adds the problems of the listeners and of the folder that certificates from authorities need.
pub fn check(
    file: &File,
    plan: &Plan,
    purpose: Purpose,
    account: Account<'_>,
    checks: &mut Checks,
) {
    if !obtains_certificates(plan) {
        return;
    }
    state(file, plan, account, checks);
    keys(file, plan, account, checks);
    if purpose == Purpose::Check {
        listeners(file, plan, checks);
    }
}

/// Reports a folder of certificates that can't be created or written.
fn state(file: &File, plan: &Plan, account: Account<'_>, checks: &mut Checks) {
    let typed = file.tls.acme.as_ref();
    let typed = typed.and_then(|typed| typed.get_ref().0.state.as_ref());
    let at = typed.map_or_else(|| place(file, plan), Spanned::span);
    let (path, usable) = new_folder(&plan.acme.state);
    if let Err(error) = usable {
        let what = "certificates can't be stored in this folder";
        checks
            .problems
            .extend(account.unusable(what, &path, &error, at));
    }
}

/// Returns the folder that exists among this one and those above it, and whether this user may create files in it. Sluice
/// creates the folders that are missing.
pub fn new_folder(path: &Path) -> (PathBuf, std::io::Result<()>) {
    let mut path = path.to_owned();
    loop {
        match access::create_in(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound && folder_of(&path) != path => {
                path = folder_of(&path);
            }
            usable => return (path, usable),
        }
    }
}

/// Reports keys that can't be read, and a program that can't be run.
fn keys(file: &File, plan: &Plan, account: Account<'_>, checks: &mut Checks) {
    let at = || place(file, plan);
    let bindings = plan.acme.directories.iter();
    let mut files: Vec<(&Path, &str)> = bindings
        .filter_map(|one| {
            Some((
                &*one.binding.as_ref()?.key,
                "the key of the external account",
            ))
        })
        .collect();
    let setter = plan.acme.dns.as_ref().map(|dns| &dns.setter);
    if let Some(Setter::Update(options)) = setter {
        files.push((&options.key, "the key of dynamic updates"));
    }
    let mut report = |what: String, path: &Path, error: &std::io::Error| {
        checks.problems.extend(match error.kind() {
            ErrorKind::PermissionDenied => account.unusable(&what, path, error, at()),
            _ => Some(
                Problem::error(what)
                    .at(at())
                    .label(format!("{}: {error}", path.display()))
                    .help("correct the path; a relative path begins in the folder where Sluice is started"),
            ),
        });
    };
    for (path, what) in files {
        if let Err(error) = disk::look_at(path) {
            report(format!("{what} can't be read"), path, &error);
        }
    }
    if let Some(Setter::Program(options)) = setter
        && let Some(program) = options.command.first().filter(|one| one.contains('/'))
        && let Err(error) = access::execute(Path::new(program))
    {
        let what = "the program of `dns` can't be run".to_owned();
        report(what, Path::new(program), &error);
    }
}

/// Reports listeners without which authorities can't verify names.
fn listeners(file: &File, plan: &Plan, checks: &mut Checks) {
    let challenges = &plan.acme.challenges;
    let has_port = |challenge: &Challenge| match challenge {
        Challenge::Http01 => is_served(plan, HTTP_PORT, false),
        Challenge::TlsAlpn01 => is_served(plan, TLS_PORT, true),
        Challenge::Dns01 => true,
    };
    let Some(first) = challenges.first().filter(|first| !has_port(first)) else {
        return;
    };
    let (missing, port) = match first {
        Challenge::TlsAlpn01 => ("no listener has TLS on port 443", "\":443\"\ntls = true"),
        _ => ("no listener is in clear text on port 80", "\":80\""),
    };
    let typed = file.tls.acme.as_ref().map(|typed| &typed.get_ref().0);
    let typed = typed.and_then(|acme| acme.challenge.as_ref());
    let at = typed.map_or_else(|| first_site(file, plan), |list| list.span());
    let other = challenges.iter().find(|other| has_port(other));
    let help = match other {
        Some(other) => format!(
            "add one, or write `challenge = {:?}` in [tls.acme]",
            other.name()
        ),
        None => format!("add one:\n[[listener]]\naddress = {port}"),
    };
    checks.push(
        Problem::warning(format!("{missing}, where {} verifies names", first.name()))
            .at(at)
            .label(format!("the listeners are {}", described(plan)))
            .help(format!(
                "{help}\n(This is right if a router or load balancer passes the port on to one of the listeners.)"
            )),
    );
}

/// Whether a listener has this port, with or without TLS.
fn is_served(plan: &Plan, port: u16, tls: bool) -> bool {
    plan.listeners.iter().any(|one| match &one.address {
        ListenAddress::Ip(address) => address.port() == port && one.tls.is_some() == tls,
        ListenAddress::Unix(_) => false,
    })
}

fn described(plan: &Plan) -> String {
    let listeners = plan.listeners.iter().map(|one| match one.tls {
        Some(_) => format!("{} with TLS", one.address),
        None => one.address.to_string(),
    });
    listeners.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::loading::parse;

    const TEXT: &str = "\
[[listener]]
address = \"127.0.0.1:80\"
[[listener]]
address = \"127.0.0.1:443\"
tls = true
[server]
resolver = \"192.0.2.53\"
[tls.acme]
directory = [\"https://a.example/dir\", \"letsencrypt\"]
[[site]]
hosts = [\"a.example\", \"b.example\"]
tls = \"auto\"
[[site.route]]
respond = \"a\"
[[site]]
hosts = \"c.example\"
[[site.route]]
respond = \"c\"
";

    /// Returns the report of what was found.
    fn judged(findings: &Findings) -> String {
        let loaded = parse("sluice.toml", TEXT).expect("a plan");
        let mut report = Report::new("sluice.toml".to_owned(), TEXT.to_owned());
        report_findings(&loaded.plan, findings, &mut report);
        report.render(false)
    }

    #[test]
    fn hosts_without_patterns_are_looked_at() {
        let text = TEXT.replace("hosts = [", "hosts = [\"*.a.example\", ");
        let text = text.replace(
            "[tls.acme]",
            "[tls.acme]\ndns = { program = \"/bin/true\" }",
        );
        let loaded = parse("sluice.toml", &text).expect("a plan");
        let obtained = obtained(&loaded.plan, &text).expect("hosts");
        assert_eq!(obtained.hosts, ["a.example", "b.example"]);
        assert_eq!(obtained.name_servers[0].to_string(), "192.0.2.53:53");
        let without = TEXT.replace("tls = \"auto\"", "");
        let without = without.replace("tls = true", "");
        let loaded = parse("sluice.toml", &without).expect("a plan");
        assert!(super::obtained(&loaded.plan, &without).is_none());
    }

    #[test]
    fn findings_are_shown_at_their_lines() {
        let host = |name: &str, finding| (name.to_owned(), finding);
        let found = judged(&Findings {
            hosts: vec![
                host(
                    "a.example",
                    HostFinding::Nowhere("no such\u{1b} name".to_owned()),
                ),
                host(
                    "b.example",
                    HostFinding::Elsewhere(vec![[192, 0, 2, 1].into()]),
                ),
            ],
            directories: vec![
                (
                    "https://a.example/dir".to_owned(),
                    DirectoryFinding::Unverified("unknown issuer".to_owned()),
                ),
                (
                    acme::LETS_ENCRYPT.to_owned(),
                    DirectoryFinding::Answered {
                        ahead_s: Some(-7200),
                    },
                ),
            ],
        });
        insta::assert_snapshot!("findings", found);
    }

    #[test]
    fn what_is_in_order_is_not_reported() {
        let found = judged(&Findings {
            hosts: vec![("a.example".to_owned(), HostFinding::Here)],
            directories: vec![
                (
                    acme::LETS_ENCRYPT.to_owned(),
                    DirectoryFinding::Answered { ahead_s: None },
                ),
                (
                    "https://a.example/dir".to_owned(),
                    DirectoryFinding::Answered {
                        ahead_s: Some(CLOCK_OFF_MAX_S),
                    },
                ),
            ],
        });
        assert_eq!(found.trim(), "");
    }

    #[test]
    fn the_first_challenge_needs_its_listener() {
        let said = |text: &str| {
            let loaded = parse("sluice.toml", text).expect("a plan");
            let file = syntax::read(text).expect("a file");
            let mut checks = Checks::default();
            listeners(&file, &loaded.plan, &mut checks);
            let problems = checks.problems.iter();
            let lines = problems
                .map(|one| format!("{} | {}", one.title, one.help.as_deref().unwrap_or("")));
            lines.collect::<String>()
        };
        assert_eq!(said(TEXT), "");
        let without_80 = said(&TEXT.replace(":80\"", ":8080\""));
        assert!(
            without_80.starts_with("no listener is in clear text on port 80"),
            "{without_80}"
        );
        assert!(
            without_80.contains("or write `challenge = \"tls-alpn-01\"`"),
            "{without_80}"
        );
        let without_both = said(
            &TEXT
                .replace(":80\"", ":8080\"")
                .replace(":443\"", ":8443\""),
        );
        assert!(without_both.contains("address = \":80\""), "{without_both}");
        let by_tls = TEXT.replace("[tls.acme]", "[tls.acme]\nchallenge = \"tls-alpn-01\"");
        assert_eq!(said(&by_tls.replace(":80\"", ":8080\"")), "");
        let without_443 = said(&by_tls.replace(":443\"", ":8443\""));
        assert!(
            without_443.starts_with("no listener has TLS on port 443"),
            "{without_443}"
        );
    }

    #[test]
    fn the_folder_of_certificates_is_created_below_an_existing_one() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let said = |path: &std::path::Path| {
            let text = TEXT.replace("[tls.acme]", &format!("[tls.acme]\nstate = {path:?}"));
            let loaded = parse("sluice.toml", &text).expect("a plan");
            let file = syntax::read(&text).expect("a file");
            let mut checks = Checks::default();
            state(&file, &loaded.plan, Account::Checking, &mut checks);
            checks.problems.len()
        };
        assert_eq!(said(&folder.path().join("a/b/c")), 0);
        std::fs::write(folder.path().join("file"), "")?;
        assert_eq!(said(&folder.path().join("file")), 1);
        assert_eq!(said(&folder.path().join("file/a")), 1);
        Ok(())
    }
}
