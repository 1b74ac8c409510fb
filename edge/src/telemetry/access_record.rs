//! The facts of a request that are logged.

use std::net::{IpAddr, SocketAddr};

use crate::reason::Reason;
use crate::sys::Address;

/// The facts of a request that are logged, as plain values, since this folder does not know HTTP.
pub struct AccessRecord<'a> {
    /// Time at which the request's head was complete, in milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// The client's address, from the connection or as reported by a trusted proxy.
    pub client: IpAddr,
    /// Address of the other end of the connection.
    pub peer: Address,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The method. Empty if no request line could be read.
    pub method: &'a str,
    /// Host and port of the request.
    pub authority: &'a str,
    /// The request target as received.
    pub target: &'a str,
    /// The HTTP version, such as `HTTP/1.1`.
    pub version: &'a str,
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

/// Data of the exchange with the origin. Times are in microseconds.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as named in handler::UpstreamTimings")]
pub struct AccessUpstream {
    pub server: Option<SocketAddr>,
    pub status: Option<u16>,
    pub connect_us: u64,
    pub header_us: Option<u64>,
    pub response_us: Option<u64>,
}
