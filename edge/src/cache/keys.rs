//! Keys of requests: what the route's rules make of them, and what shared fetches ask for.

use super::Cache;
use crate::handler::{Head, Request};
use crate::http::key::{Key, KeyHash};
use crate::http::location::{Base, same_host_target};

impl Cache {
    /// The hash of a request's primary key.
    #[inline]
    pub(super) fn key(&self, request: &Request) -> KeyHash {
        let (scheme, head) = (request.peer.scheme, &request.head);
        if self.0.plain_keys {
            return self.0.memo.key(scheme, head);
        }
        let rules = &self.0.rules.key;
        rules.hash(
            scheme,
            &head.authority,
            head.path(),
            head.query(),
            &head.fields,
        )
    }

    /// A request's primary key.
    pub(super) fn key_text(&self, request: &Request) -> Key {
        let head = &request.head;
        self.0.rules.key.key(
            request.peer.scheme,
            &head.authority,
            head.path(),
            head.query(),
            &head.fields,
        )
    }

    /// Appends the target that a shared fetch asks for: what the key holds, no more.
    pub(super) fn shared_target(&self, head: &Head, out: &mut String) {
        if self.0.plain_keys {
            return out.push_str(&head.target);
        }
        out.push_str(head.path());
        if let Some(query) = self.0.rules.key.query(head.query()) {
            out.push('?');
            out.push_str(&query);
        }
    }

    /// The target on the request's own origin that a reference in its response names; `None` for
    /// others, for which it can't speak (RFC 9111 4.4).
    pub(super) fn target_of(request: &Request, reference: &[u8]) -> Option<String> {
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
}
