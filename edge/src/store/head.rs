//! The head of a stored response: plain data, made by the cache and stored with the object.

use std::sync::Arc;

use bytes::Bytes;

use crate::http::FieldBlock;
use crate::http::freshness::Source;

/// The header names listed by Vary, in lower case and sorted.
pub type VaryNames = Arc<[Box<str>]>;

/// The head of a stored response. Times are milliseconds since the Unix epoch unless noted
/// otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// Status code of the response.
    pub status: u16,
    /// Header lines as sent to clients, including Date; without framing headers, hop-by-hop headers and Age.
    pub fields: FieldBlock,
    /// Complete length of the content in bytes, if the head states it.
    pub length: Option<u64>,
    /// The ETag as sent, including quotes and `W/`.
    pub etag: Option<Bytes>,
    /// Last-Modified in seconds since the Unix epoch.
    pub last_modified_s: Option<u64>,
    /// Date in seconds since the Unix epoch.
    pub date_s: u64,
    /// Time at which the response was received.
    pub received_ms: u64,
    /// Age of the response when it was received, in milliseconds (corrected_initial_age, RFC 9111 section 4.2.3).
    pub initial_age_ms: u64,
    /// End of the freshness lifetime.
    pub fresh_until_ms: u64,
    /// Source of the freshness lifetime. `None` also if the head was stored by a version that did not record it.
    pub lifetime_source: Source,
    /// Time after the end of the freshness lifetime during which the response may be served while it is revalidated in the background, in
    /// milliseconds (RFC 5861 section 3).
    pub stale_while_revalidate_ms: u64,
    /// Time after the end of the freshness lifetime during which the response may be served if the origin fails, in milliseconds (RFC 5861
    /// section 4).
    pub stale_if_error_ms: u64,
    /// Whether the response may be served stale only within the two times above. s-maxage has this effect, and so have must-revalidate and
    /// similar directives, which also set the two times to 0 (RFC 9111 section 4.2.4).
    pub strict: bool,
    /// Whether the response may answer requests with Authorization (RFC 9111 section 3.5).
    pub authorized: bool,
    /// Whether the response does not change while it is fresh (RFC 8246).
    pub immutable: bool,
    /// Whether the header lines contain Content-Range although the response is not partial. Partial responses made from this one omit that
    /// header.
    pub odd_range: bool,
    /// Sequence number at which the fetch of this head began.
    pub born_seq: u64,
    /// Hashes of the tags with which the response can be purged, sorted.
    pub tags: Box<[u64]>,
    /// The request headers that selected this variant; `None` without Vary.
    pub vary: Option<Selected>,
    /// Whether bytes of other responses may be combined with this one: it has a strong validator
    /// and a complete length, and its origin honours ranges (RFC 9110 sections 13.1.5 and 14.2).
    pub joinable: bool,
    /// Identifies the version: the first 64 bits of a hash of key, strong validator and length; 0
    /// without a strong validator.
    pub generation: u64,
}

/// The variant to which a response belongs (RFC 9111 section 4.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Selected {
    /// The header names listed by the response's Vary.
    pub names: VaryNames,
    /// Hash of the values that these headers had in the request that fetched the response.
    pub variant: u128,
}

impl Head {
    /// Returns the age of the response at `now_ms`, in milliseconds (current_age, RFC 9111 section 4.2.3).
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        self.initial_age_ms
            .saturating_add(now_ms.saturating_sub(self.received_ms))
    }

    /// Returns the memory that the head uses, in bytes.
    pub fn memory(&self) -> u64 {
        // `Bytes` allocates a reference count of its own when it is cloned for the first time.
        const SHARED: usize = 64;
        let etag = self.etag.as_ref().map_or(0, |etag| etag.len() + SHARED);
        let names = self.vary.as_ref().map_or(0, |selected| {
            selected.names.iter().map(|name| name.len() + 32).sum()
        });
        let tags = size_of_val(&*self.tags);
        (size_of::<Head>() + self.fields.memory() + SHARED + etag + names + tags) as u64
    }
}
