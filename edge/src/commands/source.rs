//! Finds the configuration file of a command, the admin address of the running Sluice, and its folder of certificates.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::admin_url::AdminUrl;
use super::output::{harmless, misused};
use crate::acme;
use crate::admin::first_token;
use crate::config::{self, Report, StatePlace, without_error_numbers};
use crate::sys::ListenAddress;
use crate::sys::disk::{self, path_info};

/// Environment variable with the path of the configuration file.
const CONFIG_VARIABLE: &str = "SLUICE_CONFIG";
/// Environment variable with the admin address.
const ADMIN_VARIABLE: &str = "SLUICE_ADMIN";
/// Environment variable with the token for the admin address.
const TOKEN_VARIABLE: &str = "SLUICE_ADMIN_TOKEN";
/// Longest file with tokens, in bytes.
const TOKENS_BYTES_MAX: u64 = 256 << 10;
/// Configuration file that is used if none is named.
const CONFIG: &str = "sluice.toml";

/// Advice for a command that needs a configuration file and has none.
pub const NO_CONFIG: &str = "no configuration: there is no ./sluice.toml";

/// Returns the value of an environment variable, unless it is empty.
fn variable(name: &str) -> Option<std::ffi::OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the configuration file: `given`, or else that in SLUICE_CONFIG, or else `./sluice.toml`
/// if it exists.
pub fn config_file(given: Option<&Path>) -> Option<PathBuf> {
    let named = given.map(Path::to_owned);
    let named = named.or_else(|| variable(CONFIG_VARIABLE).map(PathBuf::from));
    named.or_else(|| {
        let here = PathBuf::from(CONFIG);
        let found = path_info::look(&here).ok()?;
        let missing = matches!(
            found.kind,
            path_info::Kind::Nothing | path_info::Kind::NoFolder
        );
        (!missing).then_some(here)
    })
}

/// An admin address, and the place where it was found, for messages.
pub struct AdminAddress {
    /// The URL to connect to.
    pub url: AdminUrl,
    /// The certificates of the address, if a configuration file names them.
    pub certificates: Option<Vec<PathBuf>>,
    /// The files with tokens for the address, if a configuration file names them.
    pub tokens: Vec<PathBuf>,
    /// Where the address was found, as in "the address of --admin".
    pub source: String,
}

/// Returns the admin address of the running Sluice: `given`, or else that of the file `config`, or
/// else that in SLUICE_ADMIN, or else that of the configuration file that `config_file` finds, or
/// else the default.
///
/// # Errors
///
/// The configuration file can't be read or has no admin address, or SLUICE_ADMIN is not an address.
pub fn admin(given: Option<&AdminUrl>, config: Option<&Path>) -> anyhow::Result<AdminAddress> {
    let found = |url: AdminUrl, source: &str| AdminAddress {
        url,
        certificates: None,
        tokens: Vec::new(),
        source: source.to_owned(),
    };
    if let Some(url) = given {
        return Ok(found(url.clone(), "the address of --admin"));
    }
    if let (None, Some(value)) = (config, variable(ADMIN_VARIABLE)) {
        let text = value.to_string_lossy();
        let url = AdminUrl::parse(&text).ok_or_else(|| {
            misused(
                format!("{ADMIN_VARIABLE}={}", harmless(&text)),
                "this is not an address",
                format!(
                    "write an IP address and a port, as in {}, or http://HOST:PORT, https://HOST:PORT or unix:PATH",
                    config::ADMIN
                ),
            )
        })?;
        return Ok(found(url, &format!("the address in {ADMIN_VARIABLE}")));
    }
    let Some(path) = config_file(config) else {
        let url = AdminUrl::of(&ListenAddress::Ip(config::ADMIN.parse()?), false);
        return Ok(found(url, "the default address"));
    };
    let place =
        config::admin_place(&path).map_err(|report| with_variable(report, config, &path))?;
    let file = path.display();
    let place = place.with_context(|| format!("{file} switches the admin API off"))?;
    Ok(AdminAddress {
        url: AdminUrl::of(&place.address, place.certificates.is_some()),
        certificates: place.certificates,
        tokens: place.tokens,
        source: format!("the address in {file}"),
    })
}

/// Returns the token for the admin address: that of the file `given`, or else that in SLUICE_ADMIN_TOKEN, or else that of
/// the first of the files `configured` that this user can read and that has one.
///
/// # Errors
///
/// The file `given` can't be read or has no token, or the variable has none.
pub fn token(given: Option<&Path>, configured: &[PathBuf]) -> anyhow::Result<Option<String>> {
    let read = |path: &Path| disk::read_text(path, TOKENS_BYTES_MAX);
    let help = "a token has at least 16 letters, digits and characters of -._~+/";
    if let Some(path) = given {
        let option = harmless(&format!("--token-file {}", path.display()));
        let text = read(path).map_err(|error| {
            let why = harmless(&without_error_numbers(&error.to_string()));
            misused(
                option.clone(),
                format!("can't read this file: {why}"),
                "write the path of a file that this user can read, with one token",
            )
        })?;
        let token = first_token(&text).map(str::to_owned);
        return match token {
            None => Err(misused(option, "there is no token in this file", help)),
            token => Ok(token),
        };
    }
    if let Some(value) = variable(TOKEN_VARIABLE) {
        let text = value.to_string_lossy();
        return match first_token(&text) {
            // The value is not shown: it may be a token with a mistake.
            None => Err(misused(TOKEN_VARIABLE, "this is not a token", help)),
            token => Ok(token.map(str::to_owned)),
        };
    }
    let texts = configured.iter().filter_map(|path| read(path).ok());
    let mut tokens = texts.filter_map(|text| first_token(&text).map(str::to_owned));
    Ok(tokens.next())
}

/// Returns the folder of certificates: `given`, or else that of the file `config`, or else that of the configuration file
/// that `config_file` finds, or else the default.
///
/// # Errors
///
/// The configuration file can't be read.
pub fn state(given: Option<&Path>, config: Option<&Path>) -> anyhow::Result<StatePlace> {
    let folder = match (given, config_file(config)) {
        (None, Some(path)) => {
            let place = config::state_place(&path);
            return Ok(place.map_err(|report| with_variable(report, config, &path))?);
        }
        (given, _) => given.unwrap_or_else(|| acme::state_folder()),
    };
    Ok(StatePlace {
        folder: folder.to_owned(),
        user: None,
    })
}

/// Whether the environment names the admin address, which may be that of another machine.
pub fn has_admin_variable() -> bool {
    variable(ADMIN_VARIABLE).is_some()
}

/// Adds to a report about a configuration file without positions that the file's path is from
/// SLUICE_CONFIG, if the path is not `given` on the command line.
pub fn with_variable(mut report: Report, given: Option<&Path>, path: &Path) -> Report {
    let is_variable =
        given.is_none() && variable(CONFIG_VARIABLE).is_some_and(|value| Path::new(&value) == path);
    for problem in report.problems.iter_mut().filter(|p| p.span.is_none()) {
        if is_variable && problem.help.is_none() {
            problem.help = Some(format!("this path is the value of {CONFIG_VARIABLE}"));
        }
    }
    report
}
