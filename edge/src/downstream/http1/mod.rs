//! HTTP/1.0 and HTTP/1.1 (RFC 9112): `connection` reads requests, `cycle` carries one exchange.

mod body_writer;
pub mod chunked;
mod client_watch;
mod closing;
mod connection;
mod cycle;
mod framing_headers;
pub mod head;
mod render;
mod request_body;
mod tunnel;

pub(super) use connection::Http1;
