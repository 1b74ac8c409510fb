//! Options of the health checks of an upstream's servers.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::http::{Method, Status};

/// Options of `health`.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// Port to which the checks connect. `None`: that of the server.
    pub port: Option<u16>,
    /// Path and query of the checks' requests.
    pub path: String,
    /// Method of the requests.
    pub method: Method,
    /// Headers of the requests: lower-case names and values.
    pub headers: Vec<(String, String)>,
    /// Statuses of responses by which a server is healthy.
    pub statuses: Vec<RangeInclusive<Status>>,
    /// Text that the first 64 KiB of the response's content must contain.
    pub body: Option<String>,
    /// Time between two checks of a server.
    pub interval: Duration,
    /// Largest random change of `interval`, as a part of it from 0 to 1.
    pub jitter: f64,
    /// Longest time of a check.
    pub timeout: Duration,
    /// Number of good checks in a row after which an unhealthy server is healthy.
    pub up: u32,
    /// Number of failed checks in a row after which a healthy server is unhealthy.
    pub down: u32,
}

impl Default for Health {
    fn default() -> Health {
        Health {
            port: None,
            path: "/".to_owned(),
            method: Method::Get,
            headers: Vec::new(),
            statuses: vec![200..=399],
            body: None,
            interval: Duration::from_secs(5),
            jitter: 0.1,
            timeout: Duration::from_secs(1),
            up: 2,
            down: 3,
        }
    }
}
