//! The HTTP client towards directories. Bounds the time and the length of each response, and remembers when an authority
//! wants to be asked again.

use std::error::Error as StdError;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, HOST, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesBody, BytesResponse, Error, HttpClient};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::schedule;
use crate::http::date;
use crate::sys::Clock;

/// Longest time until the head of a response.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// Longest time until the end of a response after its head.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// Longest time until the head of a response of which only the status counts.
const STATUS_WITHIN: Duration = Duration::from_secs(5);
/// Longest response body, in bytes. Chains of certificates have some thousand.
const BODY_BYTES_MAX: usize = 1 << 20;

/// A client of directories, with a connection for each request.
#[derive(Clone)]
pub struct DirectoryClient {
    tls: Arc<ClientConfig>,
    clock: Clock,
    /// The time from which the authority wants the next request, as Unix time in seconds (Retry-After, RFC 9110 10.2.3).
    retry_after_unix_s: Arc<AtomicI64>,
}

impl DirectoryClient {
    /// Creates a client. `tls` verifies the directories' certificates.
    pub fn new(tls: Arc<ClientConfig>, clock: Clock) -> DirectoryClient {
        DirectoryClient {
            tls,
            clock,
            retry_after_unix_s: Arc::default(),
        }
    }

    /// Returns the time in seconds for which the authority wants no request, because of its last refusal; 0 if it has not
    /// named one.
    pub fn asked_s(&self) -> i64 {
        let until_unix_s = self.retry_after_unix_s.load(Ordering::Relaxed);
        (until_unix_s - self.clock.unix_s()).max(0)
    }

    /// Requests a URL, which may be one without TLS, and returns the status of the response.
    ///
    /// # Errors
    ///
    /// There was no response in time.
    pub async fn status(&self, uri: Uri) -> Result<StatusCode, String> {
        let request = Request::get(uri.clone()).body(BodyWrapper::default());
        let request = request.map_err(|why| format!("{uri}: {why}"))?;
        match timeout(STATUS_WITHIN, self.clone().ask(request, true)).await {
            Ok(Ok(response)) => Ok(response.status()),
            Ok(Err(error)) => Err(format!("{uri}: {error}")),
            Err(_) => Err(format!("{uri}: no response in 5 s")),
        }
    }

    async fn connect(&self, uri: &Uri, may_be_clear: bool) -> Result<Box<dyn Stream>, Failed> {
        let (host, port) =
            host_and_port(uri, may_be_clear).ok_or("the URL is not one with https")?;
        let host = host.trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, port)).await?;
        if uri.scheme_str() == Some("http") {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.to_owned())?;
        let connector = TlsConnector::from(self.tls.clone());
        Ok(Box::new(connector.connect(name, stream).await?))
    }

    /// Sends a request, and returns the head of the response. The caller bounds the time.
    pub(super) async fn ask(
        self,
        mut request: Request<BodyWrapper<Bytes>>,
        may_be_clear: bool,
    ) -> Result<Response<Incoming>, Failed> {
        let uri = request.uri().clone();
        let stream = self.connect(&uri, may_be_clear).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // The task ends with the connection, at the latest when the response is dropped.
        tokio::spawn(connection);
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let authority = HeaderValue::from_str(authority)?;
        request.headers_mut().insert(HOST, authority);
        let close = HeaderValue::from_static("close");
        request.headers_mut().insert(CONNECTION, close);
        *request.uri_mut() = match uri.path_and_query() {
            Some(path) => Uri::from(path.clone()),
            None => Uri::from_static("/"),
        };
        let response = sender.send_request(request).await?;
        self.note_retry_after(&response);
        Ok(response)
    }

    /// Remembers the time from which the authority wants the next request, if it refuses this one.
    fn note_retry_after(&self, response: &Response<Incoming>) {
        let refuses = matches!(
            response.status(),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        let value = response.headers().get(RETRY_AFTER);
        if let (true, Some(value)) = (refuses, value)
            && let Some(at_unix_s) = retry_after(value.as_bytes(), self.clock.unix_s())
        {
            self.retry_after_unix_s.store(at_unix_s, Ordering::Relaxed);
        }
    }
}

/// A connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The failure of a request.
pub(super) type Failed = Box<dyn StdError + Send + Sync>;

/// Returns the host of a URL, an IPv6 address in brackets, and its port. The URL has `https`, or `http` if it
/// `may_be_clear`.
fn host_and_port(uri: &Uri, may_be_clear: bool) -> Option<(&str, u16)> {
    let usual_port = match uri.scheme_str() {
        Some("https") => 443,
        Some("http") if may_be_clear => 80,
        _ => return None,
    };
    Some((uri.host()?, uri.port_u16().unwrap_or(usual_port)))
}

/// Returns the time in a Retry-After as Unix time in seconds.
fn retry_after(value: &[u8], now_unix_s: i64) -> Option<i64> {
    let text = std::str::from_utf8(value).ok()?.trim();
    match i128::from_str(text) {
        Ok(seconds) => {
            let seconds = seconds.clamp(0, i128::from(schedule::RETRY_AFTER_MAX_S));
            Some(now_unix_s.saturating_add(seconds as i64))
        }
        Err(_) => date::parse(text.as_bytes()).map(u64::cast_signed),
    }
}

impl HttpClient for DirectoryClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let url = request.uri().to_string();
        let is_get = request.method() == Method::GET;
        let now_unix_s = self.clock.unix_s();
        let asked = timeout(HEAD_WITHIN, self.clone().ask(request, false));
        Box::pin(async move {
            let response = match asked.await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return Err(failed(&url, &error)),
                Err(_) => return Err(failed(&url, &"no response in 30 s")),
            };
            let (mut parts, body) = response.into_parts();
            bound_retry_after(&mut parts.headers, now_unix_s);
            // Errors of other requests are texts that the ACME library reads.
            if is_get && !parts.status.is_success() {
                let status = parts.status.as_u16();
                return Err(failed(
                    &url,
                    &format!("the response has the status {status}"),
                ));
            }
            Ok(BytesResponse {
                parts,
                body: Box::new(BoundedBody(Some(body))),
            })
        })
    }
}

/// Replaces a Retry-After by one in seconds of at most two days, since the ACME library adds it to the current time
/// unchecked.
fn bound_retry_after(headers: &mut HeaderMap, now_unix_s: i64) {
    let Some(value) = headers.remove(RETRY_AFTER) else {
        return;
    };
    if let Some(at_unix_s) = retry_after(value.as_bytes(), now_unix_s) {
        let left_s = at_unix_s.saturating_sub(now_unix_s);
        let left_s = left_s.clamp(0, schedule::RETRY_AFTER_MAX_S);
        headers.insert(RETRY_AFTER, HeaderValue::from(left_s));
    }
}

fn failed(url: &str, why: &dyn std::fmt::Display) -> Error {
    Error::Other(io::Error::other(format!("{url}: {why}")).into())
}

/// The body of a response, of which not more than `BODY_BYTES_MAX` are read.
pub(super) struct BoundedBody(pub(super) Option<Incoming>);

impl BoundedBody {
    /// Returns the whole body.
    pub(super) async fn read(&mut self) -> Result<Bytes, Failed> {
        let mut bytes = BytesMut::new();
        while let Some(body) = &mut self.0
            && let Some(frame) = body.frame().await
        {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > BODY_BYTES_MAX {
                return Err("the response is longer than 1 MiB".into());
            }
            bytes.extend_from_slice(&data);
        }
        self.0 = None;
        Ok(bytes.freeze())
    }
}

#[async_trait::async_trait]
impl BytesBody for BoundedBody {
    async fn into_bytes(&mut self) -> Result<Bytes, Failed> {
        match timeout(BODY_WITHIN, self.read()).await {
            Ok(read) => read,
            Err(_) => Err("the response did not end in 30 s".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_urls_with_https_have_a_host() {
        for (url, expected) in [
            ("https://ca.example/directory", Some(("ca.example", 443))),
            ("https://127.0.0.1:14000/dir", Some(("127.0.0.1", 14000))),
            ("https://[::1]:1/", Some(("[::1]", 1))),
            ("http://ca.example/directory", None),
            ("/directory", None),
        ] {
            let uri: Uri = url.parse().expect("a URL");
            assert_eq!(host_and_port(&uri, false), expected, "{url}");
        }
    }

    #[test]
    fn retry_after_is_a_time_span_or_a_date() {
        assert_eq!(retry_after(b"120", 1000), Some(1120));
        assert_eq!(retry_after(b"-5", 1000), Some(1000));
        let date = retry_after(b"Sun, 06 Nov 1994 08:49:37 GMT", 0);
        assert_eq!(date, Some(784_111_777));
        assert_eq!(retry_after(b"soon", 0), None);
        for (value, expected) in [
            ("18446744073709551615", Some("172800")),
            ("120", Some("120")),
            ("-1", Some("0")),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some("0")),
            ("soon", None),
        ] {
            let mut headers =
                HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(value))]);
            bound_retry_after(&mut headers, 1_800_000_000);
            let bounded = headers.get(RETRY_AFTER).map(HeaderValue::as_bytes);
            assert_eq!(bounded, expected.map(str::as_bytes), "{value}");
        }
    }
}
