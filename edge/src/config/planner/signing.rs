//! Plans `sign` of an upstream: the credentials for an object store.

use std::path::PathBuf;

use toml::Spanned;

use super::edit::ReadPage;
use crate::config::checks::Checks;
use crate::config::file::SignFile;
use crate::config::report::{Problem, without_error_numbers};
use crate::config::value::{Key, Table};
use crate::http::fields::is_field_value;
use crate::sign::Options;

/// Returns the credentials. `read` reads the file of the secret.
pub fn plan(
    key: &Key<Table<SignFile>>,
    read: ReadPage<'_>,
    checks: &mut Checks,
) -> Option<Options> {
    let typed = key.as_ref()?;
    let Table(file) = typed.get_ref();
    let mut missing = Vec::new();
    let mut text = |name: &'static str, key: &Key<String>| match key {
        Some(key) => usable(name, key, checks),
        None => {
            missing.push(name);
            String::new()
        }
    };
    let (region, access_key) = (
        text("region", &file.region),
        text("access_key", &file.access_key),
    );
    let secret_key = match &file.secret_key_file {
        None => text("secret_key", &file.secret_key),
        Some(path) => {
            secret_of_file(path, file.secret_key.as_ref(), read, checks).unwrap_or_default()
        }
    };
    let session_token = file.session_token.as_ref();
    let session_token = session_token.map(|key| usable("session_token", key, checks));
    if let Some(name) = missing.first() {
        let example =
            "sign = { region = \"us-east-1\", access_key = \"…\", secret_key_file = \"…\" }";
        checks.push(
            Problem::error(format!("`sign` without `{name}`"))
                .at(typed.span())
                .help(format!("write `{example}`")),
        );
    }
    Some(Options {
        region,
        access_key,
        secret_key,
        secret_key_file: file.secret_key_file.as_ref().map(path_of),
        session_token,
        query: file.query.unwrap_or(false),
        writes: file.writes.unwrap_or(false),
    })
}

fn path_of(typed: &Spanned<String>) -> PathBuf {
    PathBuf::from(typed.get_ref())
}

/// Returns the secret in a file. `other`: a secret in the configuration.
fn secret_of_file(
    typed: &Spanned<String>,
    other: Option<&Spanned<String>>,
    read: ReadPage<'_>,
    checks: &mut Checks,
) -> Option<String> {
    if let Some(other) = other {
        checks.push(
            Problem::error("`secret_key` and `secret_key_file` exclude each other")
                .at(other.span())
                .help("leave out one of them"),
        );
    }
    let path = path_of(typed);
    match read(&path)? {
        Ok(text) => {
            let secret = Spanned::new(typed.span(), text.trim().to_owned());
            Some(usable("secret_key_file", &secret, checks))
        }
        Err(error) => {
            let why = without_error_numbers(&error.to_string());
            checks.push(
                Problem::error("can't read the secret from this file")
                    .at(typed.span())
                    .label(format!("{}: {why}", path.display()))
                    .help(
                        "name a file that contains only the secret, readable by Sluice's user only",
                    ),
            );
            None
        }
    }
}

/// Returns a text that can be part of a header.
fn usable(name: &str, key: &Spanned<String>, checks: &mut Checks) -> String {
    let text = key.get_ref();
    let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && b != b',');
    if text.is_empty() || !is_plain || !is_field_value(text.as_bytes()) {
        checks.push(
            Problem::error(format!("`{name}` can't be part of a signature"))
                .at(key.span())
                .help("write visible ASCII characters without spaces and commas"),
        );
    }
    text.clone()
}
