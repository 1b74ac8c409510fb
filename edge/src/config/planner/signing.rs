//! Plans `sign` of an upstream: the credentials for an object store.

use toml::Spanned;

use crate::config::checks::Checks;
use crate::config::file::SignFile;
use crate::config::report::Problem;
use crate::config::value::{Key, Table};
use crate::http::fields::is_field_value;
use crate::sign::Options;

/// Returns the credentials.
pub fn plan(key: &Key<Table<SignFile>>, checks: &mut Checks) -> Option<Options> {
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
    let secret_key = text("secret_key", &file.secret_key);
    let session_token = file.session_token.as_ref();
    let session_token = session_token.map(|key| usable("session_token", key, checks));
    if let Some(name) = missing.first() {
        let example = "sign = { region = \"us-east-1\", access_key = \"…\", secret_key = \"…\" }";
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
        session_token,
        query: file.query.unwrap_or(false),
        writes: file.writes.unwrap_or(false),
    })
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
