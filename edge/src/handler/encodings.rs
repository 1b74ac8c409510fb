//! The seam between those who have content and what keeps it in other codings.

use std::sync::Arc;

use bytes::Bytes;

use crate::http::coding::{Accepted, Coding};
use crate::http::{FieldBlock, Fields};

/// Other codings of content: made once, off the workers, and kept for whoever asks next.
pub trait Encodings {
    /// How content is to be given to who asks with these fields and accepts these codings. What the
    /// client would rather have and is not there is made for the next one, where `content` can be had.
    fn choose(&self, accepted: &Accepted, request: &Fields, content: &Plain<'_>) -> Choice;

    /// Whether origins are asked for content as it is, whatever clients accept.
    fn asks_for_plain(&self) -> bool;
}

/// How content is to be given.
#[derive(Debug)]
pub enum Choice {
    /// As it is: nobody would compress such content.
    Plain,
    /// As it is, this time, with these field lines in place of its own: they say that it depends on
    /// Accept-Encoding.
    Varying(FieldBlock),
    /// In a coding.
    Coded(Arc<Encoded>),
}

/// Content as it is.
pub struct Plain<'a> {
    /// Two contents with the same id are the same.
    pub id: u128,
    /// Bytes, once that is known.
    pub length: Option<u64>,
    /// Its field lines.
    pub fields: &'a FieldBlock,
    /// How to get all of it; `None`: it can't be had now.
    pub get: &'a dyn Fn() -> Option<Get>,
}

/// Gets content, which may take its time: called on another thread. `None`: it is gone, or has changed.
pub type Get = Box<dyn FnOnce() -> Option<Bytes> + Send>;

/// Content in a coding.
#[derive(Debug)]
pub struct Encoded {
    /// Which.
    pub coding: Coding,
    /// Its field lines: those of the content as it is, with Content-Encoding, Vary, and an ETag of its
    /// own.
    pub fields: FieldBlock,
    /// Its ETag's value.
    pub etag: Option<Box<[u8]>>,
    /// All of it.
    pub content: Bytes,
}
