//! The interface between handlers that have content and the part that compresses it.

use std::sync::Arc;

use bytes::Bytes;

use crate::http::coding::{Accepted, Coding};
use crate::http::{FieldBlock, Fields};

/// Compressed forms of content. Each form is made once, outside the workers, and kept for later
/// requests.
pub trait Encodings {
    /// Chooses the form of content for a request with these headers and accepted encodings. If the
    /// client's preferred form does not exist yet, queues the content for compression.
    fn choose(&self, accepted: &Accepted, request: &Fields, content: &Identity<'_>) -> Choice;

    /// Queues the encodings of content that clients wanted while it was incomplete. `content` is
    /// complete now.
    fn complete(&self, content: &Identity<'_>);

    /// Whether fetches request uncompressed content from origins, regardless of what clients
    /// accept.
    fn requests_identity(&self) -> bool;
}

/// The form in which content is sent.
#[derive(Debug)]
pub enum Choice {
    /// The content is sent uncompressed, and never compressed for other requests either.
    Identity,
    /// The content is sent uncompressed for this request, with these header lines, which contain
    /// `Vary: accept-encoding`, in place of the stored ones.
    Varying(FieldBlock),
    /// The content is sent compressed.
    Coded(Arc<Encoded>),
}

/// Uncompressed content.
pub struct Identity<'a> {
    /// Id of the content. Different contents have different ids.
    pub id: u128,
    /// Length in bytes, if known.
    pub length: Option<u64>,
    /// The header lines of the response.
    pub fields: &'a FieldBlock,
    /// Returns a closure that reads all of the content, or `None` if the content is not available
    /// now.
    pub get: &'a dyn Fn() -> Option<Get>,
}

/// Reads all of the content. The call may block, so it happens on another thread. Returns `None` if
/// the content is gone or has changed.
pub type Get = Box<dyn FnOnce() -> Option<Bytes> + Send>;

/// Compressed content.
#[derive(Debug)]
pub struct Encoded {
    /// The content coding.
    pub coding: Coding,
    /// The header lines: those of the uncompressed content, with Content-Encoding, Vary, and a
    /// different ETag.
    pub fields: FieldBlock,
    /// The value of ETag in `fields`.
    pub etag: Option<Box<[u8]>>,
    /// The complete compressed content.
    pub content: Bytes,
}
