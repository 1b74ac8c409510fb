//! Options of the ejection of servers that fail.

use std::time::Duration;

use crate::balance::OutlierOptions;

/// Options of `eject`.
#[derive(Clone, Debug, PartialEq)]
pub struct Eject {
    /// Limits from which on a server is ejected.
    pub outliers: OutlierOptions,
    /// Time of the first ejection. Each further one lasts twice as long, up to five minutes.
    pub time: Duration,
    /// Largest share of the servers that may be ejected at a time, from 0 to 1.
    pub at_most: f64,
}

impl Default for Eject {
    fn default() -> Eject {
        Eject {
            outliers: OutlierOptions {
                failures: 5,
                window_us: 10_000_000,
                error_rate: Some(0.5),
                latency: None,
            },
            time: Duration::from_secs(10),
            at_most: 0.5,
        }
    }
}
