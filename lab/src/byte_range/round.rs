//! The measured values of one round of the byte-range experiment.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::origin_cost::OriginCost;

/// One value for each kind of request of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Times<T> {
    /// Request for ten bytes in the middle of an uncached file.
    pub cold: T,
    /// Request for the range of `cold`, sent while the request `cold` is in progress.
    pub same: T,
    /// Request for the range of `cold`, sent as soon as the response to `cold` is complete.
    pub again: T,
    /// Request for a later range of the same file, sent at the same moment as `again`.
    #[serde(rename = "far")]
    pub further: T,
    /// Request for the middle of another uncached file, whose block is being fetched from the block's beginning.
    #[serde(rename = "in")]
    pub inside: T,
    /// Request for a range that the cache has received already, while it fetches the whole file.
    pub landed: T,
    /// Request for a range that the cache has not received yet, sent at the same moment as `landed`.
    pub gap: T,
    /// Request for the whole of an uncached file.
    pub whole: T,
    /// Request for the middle of a cached file, when the origin is idle.
    pub warm: T,
}

impl<T> Times<T> {
    /// Returns one value for each kind of request; `None` if one of them is missing. `value` receives the function that
    /// picks the kind.
    pub(super) fn each<U>(value: impl Fn(fn(&Times<T>) -> &T) -> Option<U>) -> Option<Times<U>> {
        Some(Times {
            cold: value(|all| &all.cold)?,
            same: value(|all| &all.same)?,
            again: value(|all| &all.again)?,
            further: value(|all| &all.further)?,
            inside: value(|all| &all.inside)?,
            landed: value(|all| &all.landed)?,
            gap: value(|all| &all.gap)?,
            whole: value(|all| &all.whole)?,
            warm: value(|all| &all.warm)?,
        })
    }
}

/// Timing of one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// Time from sending the request to the first byte of the body, or to the head if there is no body.
    pub(super) first: Duration,
    /// Time from sending the request to the last byte of the body.
    pub(super) total: Duration,
}

/// Results of one round.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) times: Times<Timing>,
    pub(super) seek: OriginCost,
    pub(super) fill: OriginCost,
    /// CPU time of the server per request; `None` without a server.
    pub(super) cpu: Option<Duration>,
}
