//! The access log: one record per request, formatted on the worker, written by a thread of its own.

use std::net::SocketAddr;

/// What is logged of one request. Plain values: this folder knows no HTTP.
pub struct AccessRecord<'a> {
    /// When the request's head was complete, milliseconds since the Unix epoch.
    pub time_unix_ms: u64,
    /// The client.
    pub client: SocketAddr,
    /// The method's token; empty when no request line could be read.
    pub method: &'a str,
    /// Host and port asked for.
    pub authority: &'a str,
    /// The target as received.
    pub target: &'a str,
    /// `HTTP/1.1` …
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
    /// `hit` or the reason for going forward, as in Cache-Status.
    pub cache: Option<&'static str>,
    /// The detail of Cache-Status, or the word of the fault that ended the request.
    pub reason: Option<&'static str>,
    /// From the complete request head to the last byte handed to the kernel, microseconds.
    pub request_us: u64,
    /// The exchange with the origin, where there was one.
    pub upstream: Option<AccessUpstream>,
    /// Whether the response was cut short.
    pub cut: bool,
}

/// The origin's part of a record; microseconds.
#[derive(Clone, Copy)]
#[allow(missing_docs, reason = "as named in handler::Exchange")]
pub struct AccessUpstream {
    pub server: Option<SocketAddr>,
    pub status: Option<u16>,
    pub connect_us: u64,
    pub header_us: Option<u64>,
    pub response_us: Option<u64>,
}

/// One worker's end of the access log.
pub struct AccessLog {}

impl AccessLog {
    /// Adds a record. Never blocks: when the writer has fallen behind, the record is dropped and counted.
    pub fn record(&self, _record: &AccessRecord<'_>) {}
}
