//! Causes of retries: names of failures, and statuses.

use serde::Deserialize;
use serde::de::Deserializer;

use super::scalar::{self, Misfit, Scalar};
use super::shape::{RETRY_CAUSE, RETRY_CAUSE_ADVICE};

/// An entry of `retry.on`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryCause {
    /// No connection could be opened.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The server closed the connection.
    Reset,
    /// The server did not respond in time.
    Timeout,
    /// The response has this status.
    Status(u64),
}

impl<'de> Deserialize<'de> for RetryCause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RetryCause, D::Error> {
        scalar::read(deserializer, RETRY_CAUSE, |written| match written {
            Scalar::Number(status) => Ok(RetryCause::Status(u64::try_from(status).unwrap_or(0))),
            Scalar::Text("connect") => Ok(RetryCause::Connect),
            Scalar::Text("tls") => Ok(RetryCause::Tls),
            Scalar::Text("reset") => Ok(RetryCause::Reset),
            Scalar::Text("timeout") => Ok(RetryCause::Timeout),
            Scalar::Text(name) => Err(Misfit::Value(format!(
                "{name:?} is no cause of retries\n{RETRY_CAUSE_ADVICE}"
            ))),
            Scalar::Switch(_) => Err(Misfit::Type),
        })
    }
}
