//! The facts on which the choice of a server depends, and the result of the choice.

use std::rc::Rc;

use crate::handler::UpstreamTimings;
use crate::http::ClientId;

/// The facts about a request that concern the choice of its server.
pub(super) struct Criteria<'a> {
    pub(super) client: ClientId,
    /// Computes the hash of the requested URL, or of the configured text.
    pub(super) key: &'a dyn Fn() -> u64,
    /// Whether the request can be sent to another server if one fails.
    pub(super) is_repeatable: bool,
    /// The id of the server to which the client sticks.
    pub(super) sticky: Option<u64>,
    /// Whether the request asks for another protocol, so that it needs a connection of HTTP/1.1.
    pub(super) needs_http1: bool,
    /// Learns the request's entry in the queue for a connection.
    pub(super) record: Rc<UpstreamTimings>,
}

/// The result of a choice.
pub(super) enum Choice {
    Server(usize),
    /// All servers that may be used have reached their limit of connections.
    Full,
    /// All servers that may be used accept no connections, and none has an idle one.
    Unreachable,
    /// No server may be used.
    None,
}
