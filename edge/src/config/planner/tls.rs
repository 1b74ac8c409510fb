//! Plans `[tls]`, and `tls` of listeners, sites and the admin address.

use std::ops::Range;
use std::path::PathBuf;

use toml::Spanned;

use super::managed_tls;
use crate::config::checks::Checks;
use crate::config::file::{
    AdminFile, ClientCertificateFile, File, ListenerFile, SiteFile, TlsFile, TlsVersion,
    UnknownNameFile,
};
use crate::config::plan::{ListenerPlan, Plan, SitePlan};
use crate::config::report::Problem;
use crate::config::value::{Key, Names, OrFalse, OrTable, Switch, SwitchOrPort, Table, Word};
use crate::tls::{
    CertificateFiles, CipherSuite, ClientCertificates, Group, HttpsRedirect, ListenerTls, Options,
    SiteTls, TicketOptions, UnknownName, Version,
};

/// Most certificates of one listener or site: one for each type of key is enough.
const CERTIFICATES_MAX: usize = 8;
/// Most files with secrets of tickets.
const SECRETS_MAX: usize = 8;

/// Returns the options in `[tls]`.
pub fn options(file: &TlsFile, checks: &mut Checks) -> Options {
    let d = Options::default();
    let options = Options {
        min_version: version(&file.min_version).unwrap_or(d.min_version),
        groups: named(
            "groups",
            file.groups.as_ref(),
            (Group::ALL, Group::name, Group::named),
            checks,
        ),
        ciphers: named(
            "ciphers",
            file.ciphers.as_ref(),
            (CipherSuite::ALL, CipherSuite::name, CipherSuite::named),
            checks,
        ),
        unknown_name: match file.unknown_name.as_ref().map(|typed| typed.get_ref().0) {
            None => d.unknown_name,
            Some(UnknownNameFile::Default) => UnknownName::Default,
            Some(UnknownNameFile::Refuse) => UnknownName::Refuse,
        },
        tickets: tickets(file.tickets.as_ref(), checks),
        key_log: file.key_log.as_ref().is_some_and(|typed| *typed.get_ref()),
    };
    if let (Some(typed), true) = (&file.key_log, options.key_log) {
        checks.push(
            Problem::warning("the keys of all TLS connections are written to a file")
                .at(typed.span())
                .label("everyone who has the file can decrypt the traffic")
                .help("the environment variable SSLKEYLOGFILE names the file; remove `key_log` after debugging"),
        );
    }
    options
}

/// Reports values of `min_version` in `[tls]`, listeners and `[admin]` for which `ciphers` has no cipher suite.
fn without_suite(file: &File, plan: &Plan, checks: &mut Checks) {
    let newest = plan.tls.ciphers.iter().map(|suite| suite.version()).max();
    let of_listeners = file.listener.iter().filter_map(|one| {
        match one.get_ref().tls.as_ref().map(Spanned::get_ref) {
            Some(Switch::Table(table)) => Some(&table.min_version),
            _ => None,
        }
    });
    let of_admin = file.admin.tls.iter();
    let of_admin = of_admin.filter_map(|typed| typed.get_ref().on());
    let of_admin = of_admin.map(|Table(table)| &table.min_version);
    let of_others = of_listeners.chain(of_admin);
    for typed in [&file.tls.min_version].into_iter().chain(of_others) {
        if version(typed) > newest
            && let Some(typed) = typed
        {
            checks.push(
                Problem::error("no cipher suite is left for `min_version`")
                    .at(typed.span())
                    .help("add one of TLS 1.3 to `ciphers` of [tls], such as \"TLS_AES_128_GCM_SHA256\""),
            );
        }
    }
}

/// All values of an enumeration, the function that returns a value's name, and the one that finds a name.
type Values<T> = (&'static [T], fn(T) -> &'static str, fn(&str) -> Option<T>);

/// Returns the values with the names in a list, or all values if the list is missing.
fn named<T: Copy + PartialEq>(
    key: &str,
    typed: Option<&Names>,
    (all, name, find): Values<T>,
    checks: &mut Checks,
) -> Vec<T> {
    let Some(typed) = typed else {
        return all.to_vec();
    };
    let known: Vec<&str> = all.iter().map(|value| name(*value)).collect();
    let mut values = Vec::new();
    for entry in typed.get_ref() {
        match find(entry.get_ref()) {
            Some(value) if values.contains(&value) => checks.push(
                Problem::warning(format!("`{key}` names this twice"))
                    .at(entry.span())
                    .help("leave out one of them"),
            ),
            Some(value) => values.push(value),
            None => checks.push(
                Problem::error(format!("unknown name in `{key}`"))
                    .at(entry.span())
                    .help(openssl_advice(entry.get_ref(), &known)),
            ),
        }
    }
    if typed.is_false() {
        checks.push(
            Problem::error(format!("`{key}` can't be turned off"))
                .at(typed.span())
                .help("leave it out for the default"),
        );
    }
    match values.is_empty() {
        true => all.to_vec(),
        false => values,
    }
}

/// Names of groups in OpenSSL and in nginx, and their names in the configuration file.
const OPENSSL_GROUPS: &[(&str, &str)] = &[
    ("prime256v1", "P-256"),
    ("secp256r1", "P-256"),
    ("secp384r1", "P-384"),
];

/// Returns the advice on an unknown name, which may be OpenSSL's name of a known one.
fn openssl_advice(word: &str, known: &[&str]) -> String {
    if let (true, [first, .., last]) = (word.contains(':'), known) {
        return format!("write a list, as in [{first:?}, {last:?}]");
    }
    let groups = OPENSSL_GROUPS.iter();
    let group = groups.filter(|(theirs, ours)| *theirs == word && known.contains(ours));
    let suites = known.iter().filter(|suite| openssl_suite(suite) == word);
    let mut ours = group.map(|(_, ours)| ours).chain(suites);
    match ours.next() {
        Some(ours) => format!("write {ours:?}, the name of the standard"),
        None => format!("choose from {}", known.join(", ")),
    }
}

/// Returns OpenSSL's name of a cipher suite of TLS 1.2, as in `ECDHE-RSA-AES128-GCM-SHA256`.
fn openssl_suite(name: &str) -> String {
    name.trim_start_matches("TLS_")
        .replace("_WITH_", "-")
        .replace("AES_", "AES")
        .replace("POLY1305_SHA256", "POLY1305")
        .replace('_', "-")
}

fn tickets(typed: Option<&Names>, checks: &mut Checks) -> TicketOptions {
    let Some(typed) = typed else {
        return TicketOptions::Random;
    };
    if typed.is_false() {
        return TicketOptions::Off;
    }
    at_most("tickets", SECRETS_MAX, typed, checks);
    TicketOptions::Shared(paths(Some(typed)))
}

fn at_most(key: &str, most: usize, typed: &Names, checks: &mut Checks) {
    if typed.get_ref().len() > most {
        checks.push(
            Problem::error(format!("`{key}` has too many entries"))
                .at(typed.span())
                .help(format!("keep at most {most}")),
        );
    }
}

fn version(key: &Key<Word<TlsVersion>>) -> Option<Version> {
    let typed = key.as_ref()?;
    Some(match typed.get_ref().0 {
        TlsVersion::Tls12 => Version::Tls12,
        TlsVersion::Tls13 => Version::Tls13,
    })
}

/// Returns the TLS of a listener, if it has any.
pub fn listener(file: &ListenerFile, checks: &mut Checks) -> Option<ListenerTls> {
    let typed = file.tls.as_ref()?;
    match typed.get_ref() {
        Switch::Off => None,
        Switch::On => Some(ListenerTls::default()),
        Switch::Table(table) => Some(ListenerTls {
            certificates: certificates(&table.certificate, &table.key, typed.span(), checks),
            min_version: version(&table.min_version),
            clients: clients(&table.client_ca, &table.client_certificate, checks),
        }),
    }
}

/// Returns the TLS of a site, if it has its own.
pub fn site(file: &SiteFile, checks: &mut Checks) -> Option<SiteTls> {
    let typed = file.tls.as_ref()?;
    let OrTable(table) = typed.get_ref();
    let managed = managed_tls::place(table);
    if let Some(managed) = managed {
        managed_tls::check(managed, file, (table, typed.span()), checks);
    }
    Some(SiteTls {
        certificates: match managed {
            Some(_) => Vec::new(),
            None if managed_tls::is_unknown_word(table, typed.span(), checks) => Vec::new(),
            None => certificates(&table.certificate, &table.key, typed.span(), checks),
        },
        managed,
        is_shared: managed_tls::is_shared(managed, table, checks),
        clients: clients(&table.client_ca, &table.client_certificate, checks),
        redirect: match table.redirect.as_ref().map(|typed| *typed.get_ref()) {
            None | Some(SwitchOrPort::Switch(true)) => HttpsRedirect::On,
            Some(SwitchOrPort::Switch(false)) => HttpsRedirect::Off,
            Some(SwitchOrPort::Port(port)) => HttpsRedirect::To(port),
        },
    })
}

/// Returns the TLS of the admin address, if it has any. Client certificates are mandatory where authorities are named.
pub fn admin(file: &AdminFile, checks: &mut Checks) -> Option<ListenerTls> {
    let typed = file.tls.as_ref()?;
    let Table(table) = typed.get_ref().on()?;
    let is_off = |address: &Spanned<OrFalse<String>>| address.get_ref().on().is_none();
    if file.address.as_ref().is_some_and(is_off) {
        checks.push(
            Problem::warning("the admin API is off, so this does nothing")
                .at(typed.span())
                .help("leave it out, or give [admin] an address"),
        );
        return None;
    }
    let is_unix = |address: &Spanned<OrFalse<String>>| {
        let on = address.get_ref().on();
        on.is_some_and(|address| address.starts_with("unix:"))
    };
    if file.address.as_ref().is_some_and(is_unix) {
        checks.push(
            Problem::warning("a Unix socket has no TLS, so this does nothing")
                .at(typed.span())
                .help("leave it out"),
        );
        return None;
    }
    if table.certificate.is_none() && table.key.is_none() {
        checks.push(
            Problem::error("the admin address has no certificate")
                .at(typed.span())
                .help("write `tls = { certificate = \"chain.pem\", key = \"key.pem\" }`"),
        );
    }
    Some(ListenerTls {
        certificates: certificates(&table.certificate, &table.key, typed.span(), checks),
        min_version: version(&table.min_version),
        clients: clients(&table.client_ca, &None, checks),
    })
}

/// Reports routes that demand a client certificate where no authority is known whose certificates are valid.
fn unverifiable(file: &File, listeners: &[ListenerPlan], sites: &[SitePlan], checks: &mut Checks) {
    let of_listener = |listener: &ListenerPlan| {
        let tls = listener.tls.as_ref();
        tls.is_some_and(|tls| tls.clients.is_some())
    };
    if listeners.iter().any(of_listener) {
        return;
    }
    let files = file.site.iter().map(|site| {
        let site = site.get_ref();
        (&site.client_certificate, &site.route)
    });
    let files: Vec<_> = match file.site.is_empty() {
        true => vec![(&None, &file.route)],
        false => files.collect(),
    };
    for ((by_site, routes), site) in files.into_iter().zip(sites) {
        if site.tls.as_ref().is_some_and(|tls| tls.clients.is_some()) {
            continue;
        }
        let of_routes = routes.iter();
        let of_routes = of_routes.filter_map(|one| one.get_ref().client_certificate.as_ref());
        let demanding = by_site.iter().chain(of_routes);
        for typed in demanding.filter(|typed| *typed.get_ref()) {
            checks.push(
                Problem::error("no authority is known whose client certificates are valid")
                    .at(typed.span())
                    .help(
                        "name its certificate in `tls` of the site or listener, as in \
                         `client_ca = \"clients.pem\", client_certificate = \"request\"`",
                    ),
            );
        }
    }
}

/// Pairs the files of certificates with those of keys.
fn certificates(
    certificates: &Option<Names>,
    keys: &Option<Names>,
    at: Range<usize>,
    checks: &mut Checks,
) -> Vec<CertificateFiles> {
    let (chains, keys) = (paths(certificates.as_ref()), paths(keys.as_ref()));
    if chains.len() != keys.len() {
        checks.push(
            Problem::error("each certificate needs one key")
                .at(at)
                .label(format!(
                    "{} of certificates, {} of keys",
                    crate::config::value::show_count(chains.len() as u64, "file"),
                    crate::config::value::show_count(keys.len() as u64, "file")
                ))
                .help("write `certificate = \"chain.pem\", key = \"key.pem\"`, or two lists of the same length"),
        );
    }
    if let Some(typed) = certificates {
        at_most("certificate", CERTIFICATES_MAX, typed, checks);
    }
    let pairs = chains.into_iter().zip(keys);
    pairs
        .map(|(certificate, key)| CertificateFiles { certificate, key })
        .collect()
}

fn paths(typed: Option<&Names>) -> Vec<PathBuf> {
    let typed = typed.map_or(&[][..], |typed| typed.get_ref());
    typed.iter().map(|path| path.get_ref().into()).collect()
}

fn clients(
    authorities: &Key<String>,
    word: &Key<Word<ClientCertificateFile>>,
    checks: &mut Checks,
) -> Option<ClientCertificates> {
    let Some(typed) = authorities else {
        if let Some(typed) = word {
            checks.push(
                Problem::error("`client_certificate` without `client_ca`")
                    .at(typed.span())
                    .label("no authority is known whose certificates are valid")
                    .help("add the file of the authorities, as in `client_ca = \"clients.pem\"`"),
            );
        }
        return None;
    };
    let word = word.as_ref().map(|typed| typed.get_ref().0);
    Some(ClientCertificates {
        authorities: typed.get_ref().into(),
        required: word.unwrap_or_default() == ClientCertificateFile::Require,
    })
}

/// Reports contradictions between `[tls]`, listeners and sites, such as listeners without a certificate, and
/// certificates that no listener uses.
pub fn check(file: &File, plan: &Plan, checks: &mut Checks) {
    let (listeners, sites) = (&plan.listeners[..], &plan.sites[..]);
    without_suite(file, plan, checks);
    managed_tls::without_permission(file, plan, checks);
    let has_certificate = |tls: &SiteTls| !tls.certificates.is_empty() || tls.managed.is_some();
    let by_sites = sites
        .iter()
        .any(|site| site.tls.as_ref().is_some_and(has_certificate));
    // A certificate without a key, or a key without a certificate, is reported where it is written.
    let is_incomplete = file.site.iter().any(|site| {
        let typed = site.get_ref().tls.as_ref();
        typed.is_some_and(|typed| {
            let OrTable(table) = typed.get_ref();
            table.certificate.is_some() != table.key.is_some()
                && managed_tls::place(table).is_none()
        })
    });
    for typed in file
        .listener
        .iter()
        .filter_map(|one| one.get_ref().tls.as_ref())
    {
        let own = match typed.get_ref() {
            Switch::Off => continue,
            Switch::On => false,
            Switch::Table(table) => table.certificate.is_some(),
        };
        if !own && !by_sites && !is_incomplete {
            checks.push(
                Problem::error("this listener has no certificate")
                    .at(typed.span())
                    .help("write `tls = { certificate = \"chain.pem\", key = \"key.pem\" }` here, or in a site"),
            );
        }
    }
    unverifiable(file, listeners, sites, checks);
    let is_used = listeners.iter().any(|listener| listener.tls.is_some());
    let unused = file
        .site
        .iter()
        .filter_map(|site| site.get_ref().tls.as_ref());
    for typed in unused.filter(|_| !is_used) {
        checks.push(
            Problem::warning("no listener has TLS, so this does nothing")
                .at(Spanned::span(typed))
                .help("add one:\n[[listener]]\naddress = \":443\"\ntls = true"),
        );
    }
}
