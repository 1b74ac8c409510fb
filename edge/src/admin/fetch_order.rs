//! Types of `POST /fetch`: the order to fetch a URL, and the state of the fetch.

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::explanation::Question;

/// An order to fetch a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchOrder {
    /// The request to make: a GET.
    pub question: Question,
    /// Whether a stored response is validated first.
    pub refresh: bool,
}

/// A fetch in progress, which reports its end.
pub type Fetching = oneshot::Receiver<Fetched>;

/// The state of a fetch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fetched {
    /// State of the fetch: `complete`, `failed`, or `running` if it has not ended yet.
    pub state: String,
    /// Status of the response.
    pub status: Option<u16>,
    /// Bytes of the response's content, stored or fetched.
    pub bytes: u64,
    /// Cache-Status of the response.
    pub cache_status: Option<String>,
    /// The named reason of a failure.
    pub reason: Option<String>,
    /// Milliseconds that the fetch took.
    pub took_ms: u64,
}
