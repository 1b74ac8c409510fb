//! Decisions, as pure functions: which requests use the cache, what a flight asks, what a response
//! may be stored as, and for whom.

use bytes::Bytes;

use super::Options;
use crate::handler::{Head as RequestHead, Response};
use crate::http::cache_control::ResponseDirectives;
use crate::http::freshness::{self, Received};
use crate::http::{CacheStatus, Fields, Fwd, Method, date, hop, key, vary};
use crate::store::{Head, Selected, VaryNames};

/// Whether a request may be answered through the cache; else why not.
pub(super) fn admit(head: &RequestHead, no_body: bool) -> Result<(), CacheStatus> {
    let because = |word| Err(CacheStatus::fwd(Fwd::Bypass).because(word));
    match head.method {
        Method::Get | Method::Head if head.upgrade => because("upgrade"),
        Method::Get | Method::Head if !no_body => because("request-body"),
        // What an authorized request gets may be for it alone (RFC 9111 3.5).
        Method::Get | Method::Head if head.fields.contains("authorization") => because("authorization"),
        Method::Get | Method::Head => Ok(()),
        _ => Err(CacheStatus::fwd(Fwd::Method)),
    }
}

/// The variant that a request selects under these Vary names (RFC 9111 4.1).
pub(super) fn variant(names: &VaryNames, fields: &Fields) -> u128 {
    let mut text = Vec::with_capacity(64);
    vary::secondary_key(names, fields, &mut text);
    key::hash_of(&text)
}

/// Whether a request may have the response that this head belongs to.
pub(super) fn selects(head: &Head, fields: &Fields) -> bool {
    head.vary
        .as_ref()
        .is_none_or(|selected| variant(&selected.names, fields) == selected.variant)
}
