//! HTTP/1.0 and HTTP/1.1 (RFC 9112): `connection` reads requests, `exchange` answers one.

mod account;
pub mod chunked;
mod connection;
mod ending;
mod exchange;
pub mod head;
mod introduction;
pub mod outbox;
mod patience;
mod render;
mod reply;
mod steering;
mod tunnel;
mod upload;
mod wire;

pub(super) use connection::Connection;
pub(super) use render::date_line;
