//! The combinations of settings that are compared.

use serde::{Deserialize, Serialize};

/// Load of the far server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// The proxy is the server's only client.
    Idle,
    /// Other clients open more connections than the server can accept.
    Heavy,
}

/// Settings of the proxy and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Name in tables.
    pub name: &'static str,
    /// Whether the proxy keeps idle connections to the server (nginx: `keepalive` in the upstream block).
    pub upstream_keepalive: bool,
    /// Whether the proxy's requests have `Connection: close`, if the proxy has a setting for that (nginx).
    pub close_requests: bool,
    /// Whether the server keeps connections open after a response, for 300 s.
    pub server_keeps: bool,
    /// Most requests that the server accepts on one connection.
    pub requests_per_connection: u64,
    /// Load of the server.
    pub load: Load,
}

/// Most requests on one connection to a server that is idle, and to one that is loaded.
const REQUESTS_IDLE: u64 = 100_000;
const REQUESTS_LOADED: u64 = 300;

const fn idle(name: &'static str, upstream: bool, close: bool, server: bool) -> Case {
    Case {
        name,
        upstream_keepalive: upstream,
        close_requests: close,
        server_keeps: server,
        requests_per_connection: REQUESTS_IDLE,
        load: Load::Idle,
    }
}

const fn loaded(name: &'static str, keepalive: bool) -> Case {
    Case {
        name,
        upstream_keepalive: keepalive,
        close_requests: !keepalive,
        server_keeps: true,
        requests_per_connection: REQUESTS_LOADED,
        load: Load::Heavy,
    }
}

/// The combinations with an idle server.
const IDLE: [Case; 5] = [
    idle("A", false, true, false),
    idle("B", false, false, false),
    idle("C", false, false, true),
    idle("D", true, false, false),
    idle("E", true, false, true),
];

/// The combinations with a loaded server.
const LOADED: [Case; 2] = [
    loaded("loaded, close", false),
    loaded("loaded, keepalive", true),
];

impl Case {
    /// Returns all combinations.
    pub fn all() -> impl Iterator<Item = Case> {
        IDLE.into_iter().chain(LOADED)
    }

    /// Returns whether connections can be reused with these settings.
    pub fn can_reuse(self) -> bool {
        self.upstream_keepalive && !self.close_requests && self.server_keeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_reused_only_if_proxy_and_server_keep_them() {
        let reusing: Vec<&str> = Case::all()
            .filter(|case| case.can_reuse())
            .map(|case| case.name)
            .collect();
        assert_eq!(reusing, ["E", "loaded, keepalive"]);
    }
}
