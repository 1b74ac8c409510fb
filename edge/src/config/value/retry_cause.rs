//! Causes of retries: names of failures, and statuses.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};

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
        struct CauseVisitor;
        impl Visitor<'_> for CauseVisitor {
            type Value = RetryCause;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(RETRY_CAUSE)
            }

            fn visit_i64<E: Error>(self, status: i64) -> Result<RetryCause, E> {
                Ok(RetryCause::Status(u64::try_from(status).unwrap_or(0)))
            }

            fn visit_u64<E: Error>(self, status: u64) -> Result<RetryCause, E> {
                Ok(RetryCause::Status(status))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<RetryCause, E> {
                match name {
                    "connect" => Ok(RetryCause::Connect),
                    "tls" => Ok(RetryCause::Tls),
                    "reset" => Ok(RetryCause::Reset),
                    "timeout" => Ok(RetryCause::Timeout),
                    _ => Err(E::custom(format!(
                        "{name:?} is no cause of retries\n{RETRY_CAUSE_ADVICE}"
                    ))),
                }
            }
        }
        deserializer.deserialize_any(CauseVisitor)
    }
}
