//! Causes of retries: names of failures, and statuses.

use serde::Deserialize;
use serde::de::Deserializer;

use super::scalar::{self, Misfit, Scalar};
use super::shape::{RETRY_CAUSE, RETRY_CAUSE_ADVICE};
use super::status_range::StatusRange;

/// An entry of `retry.on`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryCause {
    /// No connection could be opened.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The server closed the connection.
    Reset,
    /// The server did not respond in time.
    Timeout,
    /// The response has one of these statuses.
    Statuses(StatusRange),
}

impl<'de> Deserialize<'de> for RetryCause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RetryCause, D::Error> {
        scalar::read(deserializer, RETRY_CAUSE, |written| {
            let cause = match written {
                Scalar::Number(number) => cause(&number.to_string()),
                Scalar::Text(text) => cause(text),
                Scalar::Switch(_) => return Err(Misfit::Type),
            };
            cause.ok_or_else(|| {
                let written = match written {
                    Scalar::Text(text) => format!("{text:?}"),
                    Scalar::Number(number) => number.to_string(),
                    Scalar::Switch(on) => on.to_string(),
                };
                Misfit::Value(format!(
                    "{written} is no cause of retries\n{RETRY_CAUSE_ADVICE}"
                ))
            })
        })
    }
}

fn cause(text: &str) -> Option<RetryCause> {
    Some(match text {
        "connect" => RetryCause::Connect,
        "tls" => RetryCause::Tls,
        "reset" => RetryCause::Reset,
        "timeout" => RetryCause::Timeout,
        text => RetryCause::Statuses(StatusRange::parse(text)?),
    })
}
