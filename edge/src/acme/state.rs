//! The state of one certificate, as operators see it.

use super::options::Options;
use super::record::Record;
use super::schedule::{self, Held, Validity};
use crate::tls::Certificate;

/// The state of one certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The names that are wanted.
    pub names: Vec<String>,
    /// Whether it was a handshake that asked for the certificate, and not the configuration.
    pub is_on_demand: bool,
    /// The issuer of the certificate in use; `None` if there is none.
    pub issuer: Option<String>,
    /// The begin of its validity, as Unix time in seconds.
    pub not_before_unix_s: Option<i64>,
    /// The end of its validity, as Unix time in seconds.
    pub not_after_unix_s: Option<i64>,
    /// The time of the next attempt, as Unix time in seconds.
    pub next_unix_s: i64,
    /// The time from which the authority is asked for the time of the renewal, as Unix time in seconds.
    pub ask_window_unix_s: i64,
    /// Time of the last attempt, as Unix time in seconds.
    pub last_attempt_unix_s: Option<i64>,
    /// Number of failures since the last success.
    pub failures: u32,
    /// The error of the last attempt, if it failed.
    pub last_error: Option<String>,
    /// Whether an attempt is in progress.
    pub is_busy: bool,
    /// Whether the certificate is not wanted any more, and only the end of a task is awaited.
    pub is_leaving: bool,
    /// Whether a handshake waits for the certificate.
    pub is_demanded: bool,
}

impl State {
    /// Whether there is a certificate.
    pub fn has_certificate(&self) -> bool {
        self.issuer.is_some()
    }
}

/// Returns the state that follows from a record and the certificate in use.
///
/// A retry after a failure comes before the usual time, and also counts if the certificate in use is one of an authority
/// that `options` do not name any more: then the certificate is due at once. `None`: the options are not known.
pub fn state_of(
    record: &Record,
    certificate: Option<&Certificate>,
    options: Option<&Options>,
    now_unix_s: i64,
) -> State {
    let facts = certificate.map(|one| &one.facts);
    let renewal_unix_s = facts.map_or(0, |facts| {
        let held = Held {
            validity: Validity {
                from_unix_s: facts.not_before_unix_s,
                until_unix_s: facts.not_after_unix_s,
            },
            // A clock that was set back has seen it in the future.
            obtained_unix_s: record.obtained_unix_s.min(now_unix_s),
            window: record.window,
        };
        schedule::renewal_unix_s(held, schedule::spread(&record.names))
    });
    let has_settings = |options: &Options| record.failed_with == Some(options.settings());
    let is_failed = record.failures > 0 && options.is_none_or(has_settings);
    let is_foreign = options.is_some_and(|options| {
        let issuer = record.issued_by.as_deref();
        let mut urls = options.directories.iter().map(|one| one.url.as_str());
        issuer.is_some_and(|issuer| !urls.any(|url| url == issuer))
    });
    let next_unix_s = match is_failed {
        true => schedule::not_before_unix_s(record.not_before_unix_s, now_unix_s),
        false if is_foreign || record.failures > 0 => 0,
        false => renewal_unix_s,
    };
    State {
        names: record.names.clone(),
        is_on_demand: record.on_demand,
        issuer: facts.map(|facts| facts.issuer.clone()),
        not_before_unix_s: facts.map(|facts| facts.not_before_unix_s),
        not_after_unix_s: facts.map(|facts| facts.not_after_unix_s),
        next_unix_s,
        ask_window_unix_s: record.window_asked_from_unix_s,
        last_attempt_unix_s: record.last_attempt_unix_s,
        failures: record.failures,
        last_error: record.last_error.clone(),
        is_busy: false,
        is_leaving: false,
        is_demanded: false,
    }
}
