//! One recent error or event.

use std::net::IpAddr;

use serde::Serialize;

/// A recent error or event. The same one again within a minute only raises `count`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// Number of the notice, which never changes. Later notices have greater numbers.
    pub id: u64,
    /// Number of its last change, in the same sequence as `id`: `id` until it is repeated.
    pub changed: u64,
    /// Time of the last repeat, in milliseconds since the Unix epoch.
    pub time: u64,
    /// Time of the first one.
    pub since: u64,
    /// The kind: `request-failed`, `server`, `reload`, `purge`, `volume`, `certificate` …
    pub kind: &'static str,
    /// The cause: the reason of a failure as in `docs/reasons.md`, or a word such as `ejected`.
    pub reason: &'static str,
    /// A sentence about it, escaped.
    pub message: Box<str>,
    /// The URL that the last one is about, masked and escaped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<Box<str>>,
    /// The client that the last one is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<IpAddr>,
    /// Number of times.
    pub count: u64,
}

/// An error or event, before its notice has a number.
#[derive(Clone, Debug, Default)]
pub(super) struct Happened {
    pub(super) kind: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) url: Option<String>,
    pub(super) client: Option<IpAddr>,
}
