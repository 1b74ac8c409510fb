//! Keys of requests, made by the route's rules, and the targets of shared fetches.

use crate::cache::context::Context;
use crate::handler::{Head, Request};
use crate::http::key::{Key, KeyHash};
use crate::http::location::{Base, same_host_target};

/// Makes the hash of a request's primary key.
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

/// Makes a request's primary key.
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

/// Appends the target of a shared fetch, which contains only the parts of the URL that are in the
/// key.
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

/// Resolves a reference in a response to a target on the same origin. `None` for other origins, for
/// which the response can't speak (RFC 9111 4.4).
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
