//! HTTP/2 to an origin server (RFC 9113): many exchanges at a time on a connection.
//!
//! `task` is the one task of a connection: it reads, writes and keeps the deadlines, so that an exchange whose client is slow
//! holds no other one up. `state` is what the task and the exchanges share: `http2::client::Client`, the transport, the
//! `output` and the exchanges; `receive` handles the server's frames, `send` sends requests, and `watch` notices servers that
//! stall by the times in `activity`. An `exchange` has the `outgoing` content of its request and the `incoming` content of its response.
//! `connection` is the handle in the pool, and `stream` the one of an exchange. `request` renders heads, `response` converts
//! those of responses, `options` has the limits, and `counts` counts for the metrics.

mod activity;
mod connection;
mod counts;
mod exchange;
mod incoming;
mod options;
mod outgoing;
mod output;
mod receive;
mod request;
mod response;
mod send;
mod state;
mod stream;
mod task;
mod watch;

pub(super) use self::connection::Connection;
pub(super) use self::stream::Stream;
