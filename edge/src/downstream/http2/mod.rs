//! HTTP/2 (RFC 9113): `connection` moves frames between the transport and `http2::server`, `exchanges` begins and continues
//! the exchanges, of which `stream` has one each, `sending` queues and writes what they send, and `waiting` has the
//! deadlines. `tunnel` has WebSockets.

mod connection;
mod counts;
mod exchanges;
mod limits;
mod render;
mod request;
mod sending;
mod stored_heads;
mod stream;
mod stream_box;
mod tunnel;
mod unsent;
mod waiting;

pub(super) use connection::Http2;
