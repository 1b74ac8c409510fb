//! The state of a server, as operators see it.

use serde::{Serialize, Serializer};

use super::metric::{Kind, Metric, Scope, Unit};

/// The state of a server, as operators see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EffectiveState {
    /// The server gets its share of requests.
    #[default]
    Up,
    /// The operator has ordered to drain the server.
    Drain,
    /// The operator, or the configuration, has taken the server down.
    Down,
    /// The address was added while the program runs, and no health check of it has ended yet.
    Checking,
    /// Health checks fail.
    Unhealthy,
    /// The server was ejected because requests to it failed, and has not passed a trial yet.
    Ejected,
    /// The last attempt to connect to the server failed, or its TLS handshake.
    Unreachable,
    /// There is no answer about the server's name yet.
    Resolving,
    /// The server's name has no address.
    Unresolved,
}

impl EffectiveState {
    /// Every state.
    pub const ALL: [EffectiveState; 9] = [
        EffectiveState::Up,
        EffectiveState::Drain,
        EffectiveState::Down,
        EffectiveState::Checking,
        EffectiveState::Unhealthy,
        EffectiveState::Ejected,
        EffectiveState::Unreachable,
        EffectiveState::Resolving,
        EffectiveState::Unresolved,
    ];

    /// Description of the gauges of the state, one for each state.
    pub const METRIC: Metric = Metric {
        name: "state",
        kind: Kind::Gauge,
        unit: Unit::Flag,
        scope: Scope::Server,
        help: "1 for the state of the server, 0 for each other state.",
        summary: None,
    };

    /// Returns the name in status pages.
    pub fn name(self) -> &'static str {
        match self {
            EffectiveState::Up => "up",
            EffectiveState::Drain => "drain",
            EffectiveState::Down => "down",
            EffectiveState::Checking => "checking",
            EffectiveState::Unhealthy => "unhealthy",
            EffectiveState::Ejected => "ejected",
            EffectiveState::Unreachable => "unreachable",
            EffectiveState::Resolving => "resolving",
            EffectiveState::Unresolved => "unresolved",
        }
    }
}

impl Serialize for EffectiveState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
