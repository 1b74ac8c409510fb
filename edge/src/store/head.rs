//! The head of a stored response: plain data, made by the cache, kept by the store.

use std::sync::Arc;

use bytes::Bytes;

use crate::http::FieldBlock;

/// The names that Vary lists, lower case and sorted.
pub type VaryNames = Arc<[Box<str>]>;

/// A stored response's head. Times are milliseconds since the Unix epoch unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Head {
    /// The status.
    pub status: u16,
    /// Field lines as they are sent, Date among them; without framing, hop-by-hop fields and Age.
    pub fields: FieldBlock,
    /// Complete length of the content, when it is known before the end.
    pub length: Option<u64>,
    /// The entity tag as sent, quotes and weakness included.
    pub etag: Option<Bytes>,
    /// Last-Modified in seconds since the epoch.
    pub last_modified_s: Option<u64>,
    /// Date in seconds since the epoch.
    pub date_s: u64,
    /// When the response was received.
    pub received_ms: u64,
    /// Its age then (RFC 9111 4.2.3 corrected_initial_age).
    pub initial_age_ms: u64,
    /// Until when it is fresh.
    pub fresh_until_ms: u64,
    /// How long after that it may be given while it is revalidated behind (RFC 5861 3).
    pub stale_while_revalidate_ms: u64,
    /// How long after that it may be given where the origin fails (RFC 5861 4).
    pub stale_if_error_ms: u64,
    /// It may not be given stale but within those times: must-revalidate and the like, with which
    /// they are 0, and s-maxage (RFC 9111 4.2.4).
    pub strict: bool,
    /// Whether it may answer requests with Authorization (RFC 9111 3.5).
    pub authorized: bool,
    /// It does not change while it is fresh (RFC 8246).
    pub immutable: bool,
    /// Its lines have a Content-Range, though it is no part: answers that are parts leave that out.
    pub odd_range: bool,
    /// The sequence number at which the fetch began that brought this head.
    pub born_seq: u64,
    /// Hashes of its tags, sorted.
    pub tags: Box<[u64]>,
    /// The fields by which this variant was chosen; `None` without Vary.
    pub vary: Option<Selected>,
    /// Whether bytes of other responses may be put beside those of this one: it has a strong
    /// validator and a complete length, and its origin honours ranges (RFC 9110 13.1.5, 14.2).
    pub joinable: bool,
    /// Names the version: the first 64 bits of a hash over key, strong validator and length; 0
    /// without a strong validator.
    pub generation: u64,
}

/// Which variant a response is (RFC 9111 4.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Selected {
    /// The names that its Vary lists.
    pub names: VaryNames,
    /// Hash of what the request that brought it had in them.
    pub variant: u128,
}

impl Head {
    /// Age at `now_ms` (RFC 9111 4.2.3 current_age).
    pub fn age_ms(&self, now_ms: u64) -> u64 {
        self.initial_age_ms
            .saturating_add(now_ms.saturating_sub(self.received_ms))
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> u64 {
        // The lines' first copy makes them shared, which takes a little memory of its own.
        const SHARED: usize = 64;
        let etag = self.etag.as_ref().map_or(0, |etag| etag.len() + SHARED);
        let names = self.vary.as_ref().map_or(0, |selected| {
            selected.names.iter().map(|name| name.len() + 32).sum()
        });
        let tags = size_of_val(&*self.tags);
        (size_of::<Head>() + self.fields.memory() + SHARED + etag + names + tags) as u64
    }
}
