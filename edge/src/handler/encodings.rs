//! The interface between handlers with content and the part that compresses it.

use std::sync::Arc;

use bytes::Bytes;

use crate::http::coding::{Accepted, Coding};
use crate::http::{FieldBlock, Fields};

/// Compressed forms of content, each made once outside the workers and kept for later requests.
pub trait Encodings {
    /// Chooses the form of content for a request with these headers and accepted encodings. If the
    /// client's preferred form does not exist yet, it is queued to be made from `content`.
    fn choose(&self, accepted: &Accepted, request: &Fields, content: &Identity<'_>) -> Choice;

    /// Whether fetches request uncompressed content from origins, whatever clients accept.
    fn requests_identity(&self) -> bool;
}

/// The form of a response's content.
#[derive(Debug)]
pub enum Choice {
    /// The uncompressed content, which is never compressed.
    Identity,
    /// The uncompressed content for this request, with these header lines instead of its own: they
    /// contain `Vary: accept-encoding`.
    Varying(FieldBlock),
    /// Compressed content.
    Coded(Arc<Encoded>),
}

/// Uncompressed content.
pub struct Identity<'a> {
    /// Id of the content; different contents have different ids.
    pub id: u128,
    /// Length in bytes, if known.
    pub length: Option<u64>,
    /// The header lines.
    pub fields: &'a FieldBlock,
    /// Returns a way to get all of the content; `None` if it is not available now.
    pub get: &'a dyn Fn() -> Option<Get>,
}

/// Gets content. The call may block, so it happens on another thread. Returns `None` if the content
/// is gone or has changed.
pub type Get = Box<dyn FnOnce() -> Option<Bytes> + Send>;

/// Compressed content.
#[derive(Debug)]
pub struct Encoded {
    /// The content coding.
    pub coding: Coding,
    /// The header lines: those of the uncompressed content, with Content-Encoding, Vary, and an
    /// ETag of its own.
    pub fields: FieldBlock,
    /// The value of ETag.
    pub etag: Option<Box<[u8]>>,
    /// The complete compressed content.
    pub content: Bytes,
}
