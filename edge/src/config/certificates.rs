//! Checks the files of TLS that a configuration names, at the start and in `sluice check`.

use std::io::{self, ErrorKind};
use std::ops::Range;

use super::account::Account;
use super::checks::Checks;
use super::file::File;
use super::plan::Plan;
use super::report::Problem;
use super::value::{Key, Switch, Table};
use crate::http::date;
use crate::sys::Clock;
use crate::tls::{
    self, Certificate, CertificateFiles, ChainDefect, ClientCertificates, Facts, LoadError,
    OpenError,
};

/// Part of a certificate's validity before its end in which a warning is given. Certificates from authorities are renewed
/// earlier, so that the warning shows that this fails.
const WARNING_PART: i64 = 3;
const DAY_S: i64 = 24 * 3600;
/// Longest time in seconds before the end of a certificate in a file in which a warning is given.
const FILE_WARNING_S: i64 = 30 * DAY_S;

/// Adds the problems of the files that the TLS of listeners, sites and the admin address needs.
pub fn check(file: &File, plan: &Plan, account: Account<'_>, checks: &mut Checks) {
    let mut files = Files {
        account,
        now_unix_s: (Clock::system().unix_ms() / 1000) as i64,
        known: Some(Vec::new()),
        checks,
    };
    let typed = file
        .listener
        .iter()
        .filter_map(|one| one.get_ref().tls.as_ref());
    let typed = typed.filter(|typed| !matches!(typed.get_ref(), Switch::Off));
    let planned = plan.listeners.iter().filter_map(|one| one.tls.as_ref());
    for (typed, planned) in typed.zip(planned) {
        files.certificates(&planned.certificates, typed.span());
        if let Switch::Table(table) = typed.get_ref() {
            files.authorities(planned.clients.as_ref(), &table.client_ca);
        }
    }
    for (typed, planned) in file.site.iter().zip(&plan.sites) {
        let (Some(typed), Some(tls)) = (&typed.get_ref().tls, &planned.tls) else {
            continue;
        };
        let certificates = files.certificates(&tls.certificates, typed.span());
        if !certificates.is_empty() {
            names(&planned.hosts, &certificates, typed.span(), files.checks);
        }
        files.authorities(tls.clients.as_ref(), &typed.get_ref().0.client_ca);
    }
    let secrets = file.tls.tickets.iter().flat_map(|list| list.get_ref());
    for typed in secrets {
        if let Err(error) = tls::secret(typed.get_ref().as_ref()) {
            files.refuse(
                "this secret of session tickets can't be used",
                &error,
                typed.span(),
            );
        }
    }
    // If a file can't be read, no one knows for which hosts its certificate is valid.
    if let Some(known) = files.known.take()
        && plan.listeners.iter().any(|one| one.tls.is_some())
    {
        others(file, plan, &known, files.checks);
    }
    files.of_servers(file, plan);
    files.of_directories(file, plan);
    if let (Some(typed), Some(tls)) = (&file.admin.tls, &plan.admin_tls) {
        files.certificates(&tls.certificates, typed.span());
        if let Some(Table(table)) = typed.get_ref().on() {
            files.authorities(tls.clients.as_ref(), &table.client_ca);
        }
    }
}

/// The files of TLS that were checked.
struct Files<'a> {
    account: Account<'a>,
    now_unix_s: i64,
    /// All certificates. `None` if one of them can't be loaded.
    known: Option<Vec<Certificate>>,
    checks: &'a mut Checks,
}

impl Files<'_> {
    /// Loads certificates, and reports those that can't be loaded or that clients would refuse.
    fn certificates(&mut self, files: &[CertificateFiles], at: Range<usize>) -> Vec<Certificate> {
        let mut loaded = Vec::new();
        for files in files {
            match tls::load(files) {
                Ok(certificate) => {
                    chain(&certificate, files, at.clone(), self.checks);
                    validity(&certificate, self.now_unix_s, at.clone(), self.checks);
                    loaded.push(certificate);
                }
                Err(error) => {
                    self.refuse("this certificate can't be used", &error, at.clone());
                    self.known = None;
                }
            }
        }
        if let Some(known) = &mut self.known {
            known.extend(loaded.iter().cloned());
        }
        loaded
    }

    fn authorities(&mut self, clients: Option<&ClientCertificates>, typed: &Key<String>) {
        if let (Some(clients), Some(typed)) = (clients, typed)
            && let Err(error) = tls::check_authorities(clients)
        {
            self.refuse("these authorities can't be used", &error, typed.span());
        }
    }

    /// Opens the TLS of upstreams, and reports files that can't be used.
    fn of_servers(&mut self, file: &File, plan: &Plan) {
        for (name, options) in &plan.upstreams {
            if !options.uses_tls() {
                continue;
            }
            let mut sections = file.upstream.iter();
            let section = sections.find(|(typed, _)| typed.get_ref() == name);
            let at = section.map_or(0..0, |(typed, section)| {
                let tls = section.tls.as_ref().map(toml::Spanned::span);
                let servers = || section.servers.as_ref().map(|list| list.span());
                tls.or_else(servers).unwrap_or(typed.span())
            });
            let title = format!("TLS of upstream `{name}` can't be set up");
            match tls::Client::open(&options.tls) {
                Ok(_) => {}
                Err(OpenError::Load(error)) => self.refuse(&title, &error, at),
                Err(error) => self
                    .checks
                    .push(Problem::error(title).at(at).label(error.to_string())),
            }
        }
    }

    /// Checks the authorities by which the directories of ACME are verified.
    fn of_directories(&mut self, file: &File, plan: &Plan) {
        let typed = file.tls.acme.as_ref();
        let Some(list) = typed.and_then(|typed| typed.get_ref().0.ca.as_ref()) else {
            return;
        };
        if let Err(OpenError::Load(error)) = tls::Client::open(&plan.acme.client()) {
            self.refuse(
                "the directories of ACME can't be verified",
                &error,
                list.span(),
            );
        }
    }

    fn refuse(&mut self, title: &str, error: &LoadError, at: Range<usize>) {
        let problem = match error.is_denied {
            true => {
                let denied = io::Error::from(ErrorKind::PermissionDenied);
                self.account.unusable(title, &error.file, &denied, at)
            }
            false => Some(
                Problem::error(title)
                    .at(at)
                    .label(error.to_string())
                    .help(error.help),
            ),
        };
        self.checks.problems.extend(problem);
    }
}

/// Reports sites without certificates of their own, if none of the certificates of listeners and other sites is valid
/// for a host. A site without `tls` may be for clear text only, if a listener has that.
fn others(file: &File, plan: &Plan, known: &[Certificate], checks: &mut Checks) {
    let has_clear_text = plan.listeners.iter().any(|one| one.tls.is_none());
    for (typed, planned) in file.site.iter().zip(&plan.sites) {
        let needs_one = match &planned.tls {
            Some(tls) => tls.certificates.is_empty() && tls.managed.is_none(),
            None => !has_clear_text,
        };
        if known.is_empty() || !needs_one {
            continue;
        }
        let Some(host) = uncovered(&planned.hosts, known) else {
            continue;
        };
        checks.push(
            Problem::warning(format!("no certificate is valid for {host}"))
                .at(typed.span())
                .label("this site has none of its own, and those of listeners and other sites are for other names")
                .help("clients will refuse TLS with this host: add `tls = { certificate = …, key = … }` to the site"),
        );
    }
}

fn chain(
    certificate: &Certificate,
    files: &CertificateFiles,
    at: Range<usize>,
    checks: &mut Checks,
) {
    let issuer = &certificate.facts.issuer;
    let (problem, help) = match certificate.facts.chain {
        None => return,
        Some(ChainDefect::NoIntermediate) => (
            format!("the file has no certificate of the issuer {issuer}"),
            "append the intermediate certificates (often in `fullchain.pem`), unless clients trust the issuer itself",
        ),
        Some(ChainDefect::Order(index)) => (
            format!("certificate {} did not issue the one before it", index + 1),
            "order the chain: the certificate itself, its issuer, that one's issuer",
        ),
    };
    checks.push(
        Problem::warning("this chain of certificates is incomplete")
            .at(at)
            .label(format!("{}: {problem}", files.certificate.display()))
            .help(help),
    );
}

fn validity(certificate: &Certificate, now_unix_s: i64, at: Range<usize>, checks: &mut Checks) {
    let facts = &certificate.facts;
    let Some(problem) = expiry_of_file(facts, now_unix_s) else {
        return;
    };
    let name = facts.names.first().map_or("", String::as_str);
    let (preposition, date_s, help) = match now_unix_s < facts.not_before_unix_s {
        true => (
            "from",
            facts.not_before_unix_s,
            "use it from this date on, or correct the clock of this machine",
        ),
        false => (
            "until",
            facts.not_after_unix_s,
            "renew it; a running Sluice loads changed files by itself",
        ),
    };
    let date = date::format(u64::try_from(date_s).unwrap_or_default());
    let date = String::from_utf8_lossy(&date);
    checks.push(
        Problem::warning(problem)
            .at(at)
            .label(format!(
                "the certificate for {name} is valid {preposition} {date}"
            ))
            .help(help),
    );
}

/// Returns the problem with the validity of a certificate that Sluice renews, if it has expired, has a third of its validity
/// left or less, or is not valid yet. The times are Unix times in seconds.
pub fn expiry(not_before_unix_s: i64, not_after_unix_s: i64, now_unix_s: i64) -> Option<String> {
    let left_s = not_after_unix_s.saturating_sub(now_unix_s);
    let validity_s = not_after_unix_s.saturating_sub(not_before_unix_s);
    let problem = if now_unix_s < not_before_unix_s {
        "this certificate is not valid yet".to_owned()
    } else if left_s <= 0 {
        "this certificate has expired".to_owned()
    } else if left_s <= validity_s / WARNING_PART {
        match left_s / DAY_S {
            0 => "this certificate expires within a day".to_owned(),
            1 => "this certificate expires in 1 day".to_owned(),
            days => format!("this certificate expires in {days} days"),
        }
    } else {
        return None;
    };
    Some(problem)
}

/// Returns the problem with the validity of a certificate in a file, which somebody else renews: it counts only in the last
/// days, as some are valid for years.
pub fn expiry_of_file(facts: &Facts, now_unix_s: i64) -> Option<String> {
    let left_s = facts.not_after_unix_s.saturating_sub(now_unix_s);
    let is_far = now_unix_s >= facts.not_before_unix_s && left_s > FILE_WARNING_S;
    let problem = || expiry(facts.not_before_unix_s, facts.not_after_unix_s, now_unix_s);
    if is_far { None } else { problem() }
}

/// Returns a host for which none of these certificates is valid.
fn uncovered<'a>(hosts: &'a [String], certificates: &[Certificate]) -> Option<&'a String> {
    let mut hosts = hosts.iter();
    hosts.find(|host| !certificates.iter().any(|one| one.facts.is_for(host)))
}

/// Reports a host of a site for which none of these certificates is valid.
fn names(hosts: &[String], certificates: &[Certificate], at: Range<usize>, checks: &mut Checks) {
    let Some(host) = uncovered(hosts, certificates) else {
        return;
    };
    let names: Vec<&str> = certificates
        .iter()
        .flat_map(|one| one.facts.names.iter().map(String::as_str))
        .collect();
    let known = match names.is_empty() {
        true => "it names no host (subjectAltName)".to_owned(),
        false => format!("it is for {}", names.join(", ")),
    };
    checks.push(
        Problem::warning(format!("the certificate is not valid for {host}"))
            .at(at)
            .label(known)
            .help("clients will refuse it: request one that names all hosts of the site"),
    );
}
