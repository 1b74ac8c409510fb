//! Decisions as pure functions: which requests use the cache, what a fetch sends, how a response is
//! stored, and which requests it may answer.

pub(super) mod admission;
pub(super) mod fence;
pub(super) mod reuse;
pub(super) mod shared_request;
pub(super) mod storing;
pub(super) mod validation;
pub(super) mod want;

use super::rules::Rules;
use crate::http::Fields;
use crate::http::key::KeyHash;
use crate::http::vary::{self, Codings, Reductions};
use crate::store::{Head, VaryNames};

/// The variant that a request selects under these Vary names (RFC 9111 4.1), 0 without names.
pub(super) fn variant(
    primary: KeyHash,
    names: &VaryNames,
    fields: &Fields,
    normal: Reductions<'_>,
) -> u128 {
    if names.is_empty() {
        return 0;
    }
    let mut text = Vec::with_capacity(64);
    vary::select(names, fields, normal, &mut text);
    primary.variant(&text).0
}

/// Whether the response with this head may answer a request with this key and these header fields.
pub(super) fn selects(
    primary: KeyHash,
    head: &Head,
    fields: &Fields,
    codings: Option<Codings>,
    rules: &Rules,
) -> bool {
    head.vary.as_ref().is_none_or(|selected| {
        let normal = rules.normal(codings);
        variant(primary, &selected.names, fields, normal) == selected.variant
    })
}
