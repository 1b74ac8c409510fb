//! HTTP/2 (RFC 9113): `connection` moves frames between the transport and `http2::server`, `exchanges` begins and continues
//! the exchanges, of which `stream` has one each, and `waiting` has the deadlines.

mod connection;
mod exchanges;
mod render;
mod request;
mod stream;
mod waiting;

pub(super) use connection::Http2;
