//! Types of `GET /explain`, which says what would happen to a request. The edge writes them, the commands `inspect` and
//! `check` show them.

use serde::{Deserialize, Serialize};

use super::object::ObjectState;

/// A request to explain.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The URL as a client requests it.
    pub url: String,
    /// The method.
    #[serde(default = "get")]
    pub method: String,
    /// Lines of request headers, as in `Accept-Language: de`, without Host.
    #[serde(default)]
    pub headers: String,
    /// IP address of the other end of the connection.
    #[serde(default = "loopback")]
    pub client: String,
}

fn get() -> String {
    "GET".to_owned()
}

fn loopback() -> String {
    "127.0.0.1".to_owned()
}

impl Question {
    /// Creates the question about a GET request for this URL with these lines of headers.
    pub fn of(url: &str, headers: &str) -> Question {
        Question {
            url: url.to_owned(),
            method: get(),
            headers: headers.to_owned(),
            client: loopback(),
        }
    }
}

/// The explanation of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// Whether this is about the running Sluice and its stored responses, and not only about a configuration.
    pub live: bool,
    /// The URL in normal form.
    pub url: String,
    /// The method.
    pub method: String,
    /// Address of the client, which a trusted proxy may have reported.
    pub client: String,
    /// The site of the route: its host names, or `*` for any host.
    pub site: Option<String>,
    /// The condition of the route.
    pub route: Option<String>,
    /// The handler of the route: `proxy`, `files`, `redirect` or `respond`.
    pub handler: Option<String>,
    /// The configured checks of the route, in their order.
    pub gates: Vec<GateState>,
    /// The edits of the request's and the response's headers.
    pub edits: Vec<String>,
    /// The target as the cache and the origin see it, if it differs from the client's.
    pub rewritten: Option<String>,
    /// Name of the cache.
    pub cache: Option<String>,
    /// The cache key.
    pub key: Option<KeyState>,
    /// The object that the cache has for the request, usable or not.
    pub stored: Option<ObjectState>,
    /// The decision: `hit`, `stale`, `partial`, `join`, `revalidate`, `miss`, `recall`, `pass`, `not-cached`, `loop` or
    /// `purge` of a cache; `lookup` if it depends on what is stored; `forward` without a cache; `refused`, `no-route`,
    /// `gate`, `https`, `files`, `redirect` or `respond` without an origin.
    pub decision: String,
    /// The named reason of the decision, if it has one.
    pub reason: Option<String>,
    /// The beginning of Cache-Status, as far as it is known before a response.
    pub cache_status: Option<String>,
    /// How the cache fetches and keeps responses.
    pub policy: Option<PolicyState>,
    /// Name of the upstream to which the route forwards requests.
    pub upstream: Option<String>,
    /// Address and state of the upstream's first servers, and why.
    pub servers: Vec<String>,
    /// Advice for the operator if no server works.
    pub advice: Option<String>,
    /// The response, if Sluice knows it without the origin.
    pub answer: Option<AnswerState>,
}

/// The result of one check of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GateState {
    /// Name of the check: `address`, `certificate`, `requests`, `method` or `signature`.
    pub gate: String,
    /// Whether the request passes. `None`: the check is not made.
    pub passes: Option<bool>,
    /// The named reason of a refusal.
    pub detail: Option<String>,
}

/// The key under which a cache has the response to a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyState {
    /// The primary key: the URL with the configured additions.
    pub primary: String,
    /// Hash of the primary key, in hexadecimal digits.
    pub hash: String,
    /// Names in the Vary of stored responses.
    pub vary: Vec<String>,
    /// Hash of the values that the request has for these names. `None` without Vary.
    pub variant: Option<String>,
}

/// How a cache fetches and keeps responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyState {
    /// The fill policy.
    pub fill: String,
    /// The caching rules of the route that differ from the defaults.
    pub rules: Vec<String>,
}

/// A response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerState {
    /// The status.
    pub status: u16,
    /// Names and values of header lines, without those that every response gets.
    pub headers: Vec<(String, String)>,
}
