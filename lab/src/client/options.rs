//! Options of the test client's connections.

use std::net::IpAddr;
use std::time::Duration;

use super::ClientTls;

/// Default timeout of each connect, write and read.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Source address and options of a connection.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Source address of the connection, such as 127.0.0.7; `None`: the kernel chooses.
    pub source: Option<IpAddr>,
    /// Timeout of the connect and of each read and write.
    pub timeout: Duration,
    /// Size in bytes of the receive buffer in the kernel. With a small buffer, the server soon has to wait for the
    /// client.
    pub receive_buffer: Option<usize>,
    /// TLS of the connection. `None`: as `encrypt_all_to` says, which is usually none.
    pub tls: Option<ClientTls>,
    /// Whether the connection has no TLS, whatever `encrypt_all_to` says.
    pub in_clear_text: bool,
    /// Protocol of the connection. `None`: as `speak_http2_to` says, which is usually HTTP/1.1.
    pub protocol: Option<Protocol>,
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, with TLS by ALPN, and without by prior knowledge.
    Http2,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            source: None,
            timeout: TIMEOUT,
            receive_buffer: None,
            tls: None,
            in_clear_text: false,
            protocol: None,
        }
    }
}
