//! Plans `acme` in `[tls]`, and the certificates that sites want by it.

use std::path::PathBuf;

use toml::Spanned;

use super::{acme_dns, sites};
use crate::acme::{
    Binding, Challenge, Directory, KeyType, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, OnDemand, Options,
    state_folder,
};
use crate::config::checks::Checks;
use crate::config::file::{AcmeFile, ExternalAccountFile, KeyTypeFile, OnDemandFile, TlsFile};
use crate::config::report::Problem;
use crate::config::value::{Names, Table};

/// Most directories.
const DIRECTORIES_MAX: usize = 4;
/// Most orders to each authority in three hours.
const ORDERS: std::ops::RangeInclusive<usize> = 1..=100_000;

/// Returns the options in `acme` of `[tls]`.
pub fn options(file: &TlsFile, checks: &mut Checks) -> Options {
    let mut options = Options {
        state: state_folder().into(),
        ..Options::default()
    };
    let Some(typed) = &file.acme else {
        return options;
    };
    let Table(table) = typed.get_ref();
    if let Some(list) = &table.directory {
        options.directories = directories(list, checks);
    }
    if let Some(list) = &table.challenge {
        options.challenges = challenges(list, checks);
    }
    acme_dns::plan(table, &mut options, checks);
    options.email = table.email.as_ref().and_then(|typed| email(typed, checks));
    options.profile = table.profile.as_ref().map(|typed| typed.get_ref().clone());
    options.key_type = key_type(table);
    if let Some(path) = &table.state {
        options.state = path.get_ref().into();
    }
    let self_signed = table.self_signed.as_ref();
    options.self_signed = self_signed.is_some_and(|typed| *typed.get_ref());
    let trusted = table.ca.as_ref().map_or(&[][..], |list| list.get_ref());
    options.trusted = trusted.iter().map(|path| path.get_ref().into()).collect();
    options.orders_max = checks.count("orders", &table.orders, options.orders_max, ORDERS);
    if let Some(typed) = &table.on_demand {
        let Table(written) = typed.get_ref();
        options.on_demand = on_demand(written, typed.span(), checks);
    }
    if let (Some(typed), Some(first)) = (&table.external_account, options.directories.first_mut()) {
        let Table(account) = typed.get_ref();
        first.binding = binding(account, typed.span(), checks);
    }
    options
}

fn directories(list: &Names, checks: &mut Checks) -> Vec<Directory> {
    if list.is_false() || list.get_ref().len() > DIRECTORIES_MAX {
        checks.push(
            Problem::error(format!("`directory` needs 1 to {DIRECTORIES_MAX} URLs"))
                .at(list.span())
                .help("leave it out for Let's Encrypt"),
        );
    }
    let mut directories = Vec::new();
    for typed in list.get_ref() {
        let url = match typed.get_ref().as_str() {
            "letsencrypt" => LETS_ENCRYPT,
            "letsencrypt-staging" => LETS_ENCRYPT_STAGING,
            url => url,
        };
        if !Directory::is_url(url) {
            checks.push(
                Problem::error("this is not the URL of a directory")
                    .at(typed.span())
                    .help("write one with https, or \"letsencrypt\", or for tests \"letsencrypt-staging\""),
            );
        }
        directories.push(Directory {
            url: url.to_owned(),
            binding: None,
        });
    }
    directories
}

/// Returns the names for which a handshake may ask.
fn on_demand(file: &OnDemandFile, at: std::ops::Range<usize>, checks: &mut Checks) -> OnDemand {
    let allow = file.allow.as_ref().map(|list| {
        let hosts = list.get_ref().iter();
        hosts
            .filter_map(|host| sites::host_name(host, checks))
            .collect()
    });
    let ask = file.ask.as_ref();
    if let Some(typed) = ask.filter(|typed| !OnDemand::is_url(typed.get_ref())) {
        checks.push(
            Problem::error("this is not a URL that can be asked")
                .at(typed.span())
                .help("write one, as in \"http://127.0.0.1:9000/allowed\""),
        );
    }
    if allow.is_none() && file.ask.is_none() {
        checks.push(
            Problem::error("everybody could have certificates ordered for any name")
                .at(at)
                .help("name the permitted names in `allow`, or a URL in `ask` that is asked about each name"),
        );
    }
    OnDemand {
        allow,
        ask: file.ask.as_ref().map(|typed| typed.get_ref().clone()),
    }
}

fn challenges(list: &Names, checks: &mut Checks) -> Vec<Challenge> {
    let mut challenges = Vec::new();
    for typed in list.get_ref() {
        match Challenge::named(typed.get_ref()) {
            Some(challenge) if challenges.contains(&challenge) => {}
            Some(challenge) => challenges.push(challenge),
            None => {
                let known: Vec<&str> = Challenge::ALL.iter().map(|one| one.name()).collect();
                checks.push(
                    Problem::error("this is not a challenge")
                        .at(typed.span())
                        .help(format!("choose from {}", known.join(", "))),
                );
            }
        }
    }
    if challenges.is_empty() {
        checks.push(
            Problem::error("`challenge` names none")
                .at(list.span())
                .help("leave it out for the default"),
        );
    }
    challenges
}

/// Returns the contact as a URL (RFC 8555 7.3).
fn email(typed: &Spanned<String>, checks: &mut Checks) -> Option<String> {
    let address = typed.get_ref().trim_start_matches("mailto:");
    let is_address = address.split_once('@').is_some_and(|(user, host)| {
        !user.is_empty() && host.contains('.') && !address.contains([' ', ',', '?', '<'])
    });
    if !is_address {
        checks.push(
            Problem::error("this is not an address of e-mail")
                .at(typed.span())
                .help("write one, as in \"ops@example.com\", or leave it out"),
        );
        return None;
    }
    Some(format!("mailto:{address}"))
}

fn key_type(table: &AcmeFile) -> KeyType {
    match table.key_type.as_ref().map(|typed| typed.get_ref().0) {
        None | Some(KeyTypeFile::P256) => KeyType::P256,
        Some(KeyTypeFile::P384) => KeyType::P384,
        Some(KeyTypeFile::Rsa2048) => KeyType::Rsa2048,
    }
}

fn binding(
    account: &ExternalAccountFile,
    at: std::ops::Range<usize>,
    checks: &mut Checks,
) -> Option<Binding> {
    let (Some(id), Some(key)) = (&account.id, &account.key) else {
        checks.push(
            Problem::error("an external account needs `id` and `key`")
                .at(at)
                .help("the authority gives both; `key` is a file with the key in base64url"),
        );
        return None;
    };
    Some(Binding {
        key_id: id.get_ref().clone(),
        key: PathBuf::from(key.get_ref()),
    })
}
