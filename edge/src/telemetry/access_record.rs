//! The facts of one request that are logged.

use std::net::{IpAddr, SocketAddr};

use crate::reason::Reason;
use crate::sys::Address;

/// The facts of one request that are logged. Plain values: this folder does not know HTTP.
pub struct AccessRecord<'a> {
    /// When the request's head was complete, milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// The client's address, from the connection or from a trusted proxy.
    pub client: IpAddr,
    /// The other end of the connection.
    pub peer: Address,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The method's token; empty when no request line could be read.
    pub method: &'a str,
    /// Host and port of the request.
    pub authority: &'a str,
    /// The target as received.
    pub target: &'a str,
    /// `HTTP/1.1` and so on.
    pub version: &'a str,
    /// The status sent; 0 when nothing could be sent.
    pub status: u16,
    /// Body bytes sent.
    pub body_bytes: u64,
    /// Referer, as received.
    pub referer: Option<&'a [u8]>,
    /// User-Agent, as received.
    pub user_agent: Option<&'a [u8]>,
    /// Range, as received.
    pub range: Option<&'a [u8]>,
    /// The values of the log's `request_fields`.
    pub request_fields: &'a [Option<&'a [u8]>],
    /// `hit` or the reason for going forward, as in Cache-Status.
    pub cache: Option<&'static str>,
    /// The detail of Cache-Status, or the name of the fault that ended the request.
    pub reason: Option<Reason>,
    /// From the complete request head to the last byte handed to the kernel, microseconds.
    pub request_us: u64,
    /// The exchange with the origin, if there was one.
    pub upstream: Option<AccessUpstream>,
    /// Whether the response was cut short.
    pub cut: bool,
}

/// The origin's part of a record; microseconds.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as named in handler::UpstreamTimings")]
pub struct AccessUpstream {
    pub server: Option<SocketAddr>,
    pub status: Option<u16>,
    pub connect_us: u64,
    pub header_us: Option<u64>,
    pub response_us: Option<u64>,
}
