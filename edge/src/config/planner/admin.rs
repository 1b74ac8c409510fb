//! Plans the address, the host names and the tokens of the admin API.

use std::path::PathBuf;

use toml::Spanned;

use super::address::listen_address;
use super::edit::ReadPage;
use super::{listeners, names, server_url};
use crate::admin::{Role, TOKENS_MAX, TokenForm, Tokens};
use crate::config::checks::Checks;
use crate::config::file::{AdminFile, File};
use crate::config::plan::ADMIN;
use crate::config::report::{Problem, without_error_numbers};
use crate::config::value::Table;
use crate::sys::ListenAddress;

/// Advice on a missing token.
const TOKEN: &str = "write `token = { file = \"/etc/sluice/admin.token\" }`, and make the file with \
     `(umask 077; openssl rand -hex 32 > /etc/sluice/admin.token)`";
/// Advice on an address without TLS.
const TLS: &str = "add `tls = { certificate = \"chain.pem\", key = \"key.pem\" }`, keep the address on 127.0.0.1, \
     or write \"unix:/run/sluice/admin.sock\"";

/// Returns the address of the admin API, unless it is turned off. Other machines may reach it only with TLS and tokens.
pub fn address(file: &File, checks: &mut Checks) -> Option<ListenAddress> {
    let Some(typed) = &file.admin.address else {
        return ADMIN.parse().ok().map(ListenAddress::Ip);
    };
    let Some(text) = typed.get_ref().on() else {
        without_address(&file.admin, checks);
        return None;
    };
    let text = Spanned::new(typed.span(), text.clone());
    let address = listen_address("address", &text, checks)?;
    if !address.is_local() {
        closed(&file.admin, &text, checks);
    }
    let has_default = file.listen.is_none() && file.listener.is_empty();
    if let Some(ip) = address.ip().filter(|_| has_default) {
        listeners::check_default(&text, ip, checks);
    }
    Some(address)
}

/// Reports what an address that other machines can reach lacks.
fn closed(file: &AdminFile, text: &Spanned<String>, checks: &mut Checks) {
    let tls = file.tls.as_ref().and_then(|typed| typed.get_ref().on());
    let missing = [
        (
            tls.is_none(),
            "the admin address needs TLS, since other machines can reach it",
            "everyone on the way could read tokens, and send changes",
            TLS,
        ),
        (
            token_keys(file).is_empty(),
            "the admin address needs tokens, since other machines can reach it",
            "everyone who can connect could read the status, reload the configuration and purge",
            TOKEN,
        ),
    ];
    for (_, title, label, help) in missing.into_iter().filter(|(is_missing, ..)| *is_missing) {
        checks.push(
            Problem::error(title)
                .at(text.span())
                .label(label)
                .help(help),
        );
    }
}

/// Warns about tokens if the admin API is off.
fn without_address(file: &AdminFile, checks: &mut Checks) {
    for (_, typed) in token_keys(file) {
        checks.push(
            Problem::warning("the admin API is off, so this does nothing")
                .at(typed.span())
                .help("leave it out, or give [admin] an address"),
        );
    }
}

/// Returns the host names of the admin API, without ports and final dots.
pub fn hosts(file: &File, checks: &mut Checks) -> Vec<String> {
    let Some(typed) = file.admin.hosts.as_ref() else {
        return Vec::new();
    };
    names::few("hosts", typed.get_ref().len(), typed.span(), checks);
    let mut hosts = Vec::new();
    for host in typed.get_ref() {
        let name = host.get_ref().trim_end_matches('.').to_ascii_lowercase();
        match server_url::is_host(&name) {
            true => hosts.push(name),
            false => checks.push(
                Problem::error(format!("`{}` is not a host name", host.get_ref()))
                    .at(host.span())
                    .help("write a name without a port, as in \"edge.example.com\""),
            ),
        }
    }
    hosts
}

/// Returns the path of each file with tokens, and the way in which the file contains them.
pub fn token_keys(file: &AdminFile) -> Vec<(TokenForm, Spanned<PathBuf>)> {
    let keys = [
        (TokenForm::Only, &file.token),
        (TokenForm::Named(Role::Operator), &file.operators),
        (TokenForm::Named(Role::Reader), &file.readers),
    ];
    let keys = keys.into_iter().filter_map(|(form, key)| {
        let typed = key.as_ref()?;
        let Table(table) = typed.get_ref().on()?;
        let path = table.file.as_ref().map(Spanned::get_ref);
        let path = PathBuf::from(path.cloned().unwrap_or_default());
        Some((form, Spanned::new(typed.span(), path)))
    });
    keys.collect()
}

/// Returns the paths of all files with tokens.
pub fn token_files(file: &AdminFile) -> Vec<PathBuf> {
    let keys = token_keys(file).into_iter();
    keys.map(|(_, path)| path.into_inner()).collect()
}

/// Returns the tokens of the admin API. `read` reads their files.
pub fn tokens(file: &AdminFile, read: ReadPage<'_>, checks: &mut Checks) -> Tokens {
    let mut tokens = Tokens::default();
    for (form, typed) in token_keys(file) {
        tokens.are_required = true;
        let path = typed.get_ref();
        if path.as_os_str().is_empty() {
            checks.push(
                Problem::error("the file of the tokens is missing")
                    .at(typed.span())
                    .help("write { file = \"/etc/sluice/admin.token\" }"),
            );
            continue;
        }
        let failed = match read(path) {
            None => continue,
            Some(Ok(text)) => match tokens.add(&text, form) {
                Ok(()) => continue,
                Err(error) => Problem::error("a token can't be used")
                    .label(format!("{}:{}: {}", path.display(), error.line, error.why))
                    .help(advice(form)),
            },
            Some(Err(error)) => Problem::error("can't read the tokens from this file")
                .label(format!(
                    "{}: {}",
                    path.display(),
                    without_error_numbers(&error.to_string())
                ))
                .help("name a file that only Sluice's user can read"),
        };
        checks.push(failed.at(typed.span()));
    }
    tokens
}

/// Advice on the content of a file.
fn advice(form: TokenForm) -> String {
    match form {
        TokenForm::Only => {
            "the file has one token, such as the output of `openssl rand -hex 32`".to_owned()
        }
        TokenForm::Named(_) => format!(
            "each line has a name, a space and a token, such as the output of `openssl rand -hex 32`; \
             all files together have at most {TOKENS_MAX}"
        ),
    }
}
