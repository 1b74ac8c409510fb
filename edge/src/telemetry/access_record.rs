//! The facts of a request that are logged.

use std::net::IpAddr;

use crate::reason::Reason;
use crate::sys::Address;

/// The facts of a request that are logged, as plain values, since this folder does not know HTTP.
pub struct AccessRecord<'a> {
    /// Time at which the request's head was complete, in milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// The request's id, if requests have ids.
    pub request_id: Option<&'a str>,
    /// The id of the request that the origin received, if it is another one: that of a shared fetch.
    pub upstream_request_id: Option<&'a str>,
    /// Ids of the request's trace and span (W3C Trace Context), if requests have traces.
    pub trace: Option<(&'a str, &'a str)>,
    /// The client's address, from the connection or as reported by a trusted proxy.
    pub client: IpAddr,
    /// Address of the other end of the connection.
    pub peer: Address,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The TLS session, if the connection is encrypted.
    pub tls: Option<AccessTls<'a>>,
    /// The method. Empty if no request line could be read.
    pub method: &'a str,
    /// Host and port of the request.
    pub authority: &'a str,
    /// The request target as received.
    pub target: &'a str,
    /// The HTTP version, such as `HTTP/1.1`. Empty if the request line has none that is supported.
    pub version: &'a str,
    /// The request line of a refused request, as received. Empty if there is none.
    pub refused_line: &'a [u8],
    /// The status sent. 0 if nothing could be sent.
    pub status: u16,
    /// Body bytes sent.
    pub body_bytes: u64,
    /// Referer, as received.
    pub referer: Option<&'a [u8]>,
    /// User-Agent, as received.
    pub user_agent: Option<&'a [u8]>,
    /// Range, as received.
    pub range: Option<&'a [u8]>,
    /// Values of the request headers that `AccessLog::request_headers` names, in the same order.
    pub request_headers: &'a [Option<&'a [u8]>],
    /// `hit`, or the reason for forwarding the request, as in Cache-Status.
    pub cache: Option<&'static str>,
    /// The detail of Cache-Status, or the reason for which the request failed.
    pub reason: Option<Reason>,
    /// Microseconds from the complete request head to the last byte that the kernel accepted.
    pub request_us: u64,
    /// Data of the exchange with the origin, if there was one.
    pub upstream: Option<AccessUpstream>,
    /// Whether the response was truncated.
    pub cut: bool,
}

/// The TLS session of a connection.
#[derive(Clone, Copy)]
pub struct AccessTls<'a> {
    /// Version, such as `TLSv1.3`.
    pub version: &'static str,
    /// Cipher suite, such as `TLS_AES_128_GCM_SHA256`.
    pub cipher: &'static str,
    /// Group of the key exchange, such as `X25519`. `None` if no keys were exchanged.
    pub group: Option<&'static str>,
    /// Whether the session was resumed.
    pub resumed: bool,
    /// Subject and fingerprint of the client's certificate, if the client has one.
    pub certificate: Option<(&'a str, &'a str)>,
}

/// Data of the exchange with the origin. Times are in microseconds.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as named in handler::UpstreamTimings")]
pub struct AccessUpstream {
    pub server: Option<Address>,
    pub tries: u32,
    pub status: Option<u16>,
    pub connect_us: u64,
    pub header_us: Option<u64>,
    pub response_us: Option<u64>,
    /// Number of redirects that were followed.
    pub redirects: u8,
}
