//! Keys of requests: what the route's rules make of them, and what shared fetches ask for.

use crate::cache::context::Context;
use crate::handler::{Head, Request};
use crate::http::key::{Key, KeyHash};
use crate::http::location::{Base, same_host_target};

/// The hash of a request's primary key.
#[inline]
pub(in crate::cache) fn key(context: &Context, request: &Request) -> KeyHash {
    let (scheme, head) = (request.peer.scheme, &request.head);
    if context.plain_keys {
        return context.memo.key(scheme, head);
    }
    let rules = &context.rules.key;
    rules.hash(
        scheme,
        &head.authority,
        head.path(),
        head.query(),
        &head.fields,
    )
}

/// A request's primary key.
pub(in crate::cache) fn key_text(context: &Context, request: &Request) -> Key {
    let head = &request.head;
    context.rules.key.key(
        request.peer.scheme,
        &head.authority,
        head.path(),
        head.query(),
        &head.fields,
    )
}

/// Appends the target that a shared fetch asks for: what the key holds, no more.
pub(in crate::cache) fn shared_target(context: &Context, head: &Head, out: &mut String) {
    if context.plain_keys {
        return out.push_str(&head.target);
    }
    out.push_str(head.path());
    if let Some(query) = context.rules.key.query(head.query()) {
        out.push('?');
        out.push_str(&query);
    }
}

/// The target on the request's own origin that a reference in its response names; `None` for
/// others, for which it can't speak (RFC 9111 4.4).
pub(in crate::cache) fn target_of(request: &Request, reference: &[u8]) -> Option<String> {
    let base = Base {
        scheme: request.peer.scheme,
        authority: &request.head.authority,
        target: &request.head.target,
    };
    let (path, query) = same_host_target(base, reference)?;
    Some(match query {
        Some(query) => format!("{path}?{query}"),
        None => path,
    })
}
