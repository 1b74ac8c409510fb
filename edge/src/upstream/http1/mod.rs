//! HTTP/1.1 to an origin server: one exchange at a time on a connection.
//!
//! `request` renders the head that the origin gets, `outgoing` sends it with its content, `incoming`
//! reads the response, and `response` checks its head. `round_trip` is one request with its
//! response, `connection` what is kept between two of them.
//!
//! httparse accepts some invalid heads: lines that end in a bare LF (which RFC 9112 2.2 permits),
//! empty lines before the status line, and obs-text in the reason phrase. None of these is
//! forwarded, since every head is built again. Refused are obs-fold, space before a colon, lines
//! without a colon, control characters, HTTP/0.9 and too many header lines. A body that an HTTP/1.0
//! origin ends by closing looks complete however early it ends (RFC 9112 8), unless the connection
//! was reset.

mod connection;
mod incoming;
mod outgoing;
mod request;
mod response;
mod round_trip;
mod spare;

pub(super) use self::connection::Connection;
