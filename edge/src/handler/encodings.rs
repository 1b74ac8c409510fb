//! The interface between handlers with content and the part that stores it in other codings.

use std::sync::Arc;

use bytes::Bytes;

use crate::http::Fields;
use crate::http::coding::{Accepted, Coding};

/// Other codings of content, which are made once, outside the workers, and stored for later requests.
pub trait Encodings {
    /// Chooses the coding for a client that sends these headers and accepts these codings. If the client's preferred
    /// coding is not stored, it is made for later requests, provided that `content` is available.
    fn choose(&self, accepted: &Accepted, request: &Fields, content: &Plain<'_>) -> Choice;

    /// Whether requests to origins accept only the identity coding, whatever clients accept.
    fn asks_for_plain(&self) -> bool;
}

/// The coding of a response's content.
#[derive(Debug)]
pub enum Choice {
    /// Identity, always: such content is never compressed.
    Plain,
    /// Identity, for this request, with these field lines in place of the content's own: they add Accept-Encoding to
    /// Vary.
    Varying(Bytes),
    /// A stored coding.
    Coded(Arc<Encoded>),
}

/// Content in the identity coding.
pub struct Plain<'a> {
    /// The content's id: equal ids mean equal contents.
    pub id: u128,
    /// Length in bytes, if known.
    pub length: Option<u64>,
    /// Field lines (`Fields::text`).
    pub fields: &'a Bytes,
    /// A way to read all of the content; `None`: the content is not available now.
    pub get: &'a dyn Fn() -> Option<Get>,
}

/// Reads content, which may take long: called on another thread. `None`: the content is gone or has changed.
pub type Get = Box<dyn FnOnce() -> Option<Bytes> + Send>;

/// Content in another coding.
#[derive(Debug)]
pub struct Encoded {
    /// The coding.
    pub coding: Coding,
    /// Field lines: those of the identity coding, with Content-Encoding, Vary, and their own ETag.
    pub fields: Bytes,
    /// The ETag's value.
    pub etag: Option<Box<[u8]>>,
    /// All of the coded content.
    pub content: Bytes,
}
