//! An operator's order about a server.

use serde::Deserialize;

use super::purge::Refusal;
use crate::telemetry::UrlMask;

/// Largest weight of a server.
const WEIGHT_MAX: u32 = 1000;

/// Query of `POST /servers`: an order about a server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerOrder {
    /// Name of the upstream.
    pub upstream: String,
    /// Address or name of the server, as `GET /servers` shows them, with or without port, or its URL.
    pub server: String,
    /// The state that the server gets.
    pub set: Option<ServerSet>,
    /// The weight that replaces the configured one.
    pub weight: Option<u32>,
}

/// A state that an operator gives a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerSet {
    /// The server gets requests.
    Up,
    /// The server gets no new requests, except of clients that stick to it.
    Drain,
    /// The server gets no new requests.
    Down,
}

impl ServerSet {
    fn as_str(self) -> &'static str {
        match self {
            ServerSet::Up => "up",
            ServerSet::Drain => "drain",
            ServerSet::Down => "down",
        }
    }
}

impl ServerOrder {
    /// Describes the order for the log. The server may be a URL.
    pub(super) fn describe(&self, mask: &UrlMask) -> String {
        let server = mask.shown(self.server.as_bytes(), false);
        let mut text = format!("{server} of {}", self.upstream);
        if let Some(set) = self.set {
            text = format!("{text}: {}", set.as_str());
        }
        if let Some(weight) = self.weight {
            text = format!("{text}: weight {weight}");
        }
        text
    }

    /// Refuses an order without a meaning.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let why = match (self.set, self.weight) {
            (None, None) => "give `set` (up, drain or down) or `weight`\n".to_owned(),
            (_, Some(weight)) if !(1..=WEIGHT_MAX).contains(&weight) => {
                format!("a weight is a number from 1 to {WEIGHT_MAX}\n")
            }
            _ => return Ok(()),
        };
        Err(Refusal { status: 400, why })
    }
}
