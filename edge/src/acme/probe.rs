//! One request for a directory, which shows whether it can be reached and what time it has there.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{DATE, USER_AGENT};
use http::{Request, StatusCode};
use instant_acme::BodyWrapper;
use rustls::ClientConfig;

use super::http_client::{BoundedBody, DirectoryClient, Failed};
use crate::http::date;
use crate::sys::Clock;
use crate::tls::ConnectError;

/// Value of User-Agent.
const AGENT: &str = concat!("sluice/", env!("CARGO_PKG_VERSION"));

/// The reason why a directory can't be used.
#[derive(Debug)]
pub enum ProbeError {
    /// The handshake of TLS failed.
    Tls(ConnectError),
    /// No connection, or no usable response. The text may contain text of the server.
    Other(String),
}

impl From<Failed> for ProbeError {
    fn from(error: Failed) -> ProbeError {
        let of_tls = error.downcast_ref::<io::Error>();
        match of_tls.and_then(ConnectError::of_io) {
            Some(error) => ProbeError::Tls(error),
            None => ProbeError::Other(error.to_string()),
        }
    }
}

/// Requests a directory (RFC 8555 7.1.1). Returns the date of the response, as Unix time in seconds, if it has one. The
/// caller bounds the time. `tls` verifies the directory's certificate.
///
/// # Errors
///
/// The directory can't be reached, or the response is no directory.
pub async fn probe(
    tls: Arc<ClientConfig>,
    clock: Clock,
    url: &str,
) -> Result<Option<i64>, ProbeError> {
    // Authorities demand a User-Agent (RFC 8555 6.1).
    let request = Request::get(url).header(USER_AGENT, AGENT);
    let request = request.body(BodyWrapper::<Bytes>::from(Vec::new()));
    let request = request.map_err(|error| ProbeError::Other(error.to_string()))?;
    let response = DirectoryClient::new(tls, clock).ask(request, false).await?;
    if response.status() != StatusCode::OK {
        let status = response.status().as_u16();
        return Err(ProbeError::Other(format!(
            "the response has the status {status}"
        )));
    }
    let date = response.headers().get(DATE);
    let date = date.and_then(|value| date::parse(value.as_bytes()));
    let body = BoundedBody(Some(response.into_body())).read().await?;
    let directory: Option<serde_json::Value> = serde_json::from_slice(&body).ok();
    match directory.is_some_and(|directory| directory["newOrder"].is_string()) {
        true => Ok(date.map(u64::cast_signed)),
        false => Err(ProbeError::Other("the response is no directory".to_owned())),
    }
}
