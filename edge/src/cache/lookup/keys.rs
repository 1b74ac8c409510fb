//! Keys of requests, made by the route's rules, and a memo of recent keys, so that frequent targets
//! are not hashed for each request.

use std::cell::RefCell;
use std::hash::BuildHasher;
use std::rc::Rc;

use foldhash::fast::RandomState;

use crate::handler::{Head, Request};
use crate::http::Scheme;
use crate::http::key::{Key, KeyHash, KeyRules};
use crate::http::location::{Base, same_host_target};

/// Number of entries, a power of two.
const ENTRIES: usize = 512;
/// Longest target and authority that are remembered, bytes.
const TARGET_MAX: usize = 256;

/// Makes a request's primary key.
pub(in crate::cache) fn key_text(rules: &KeyRules, request: &Request) -> Key {
    let head = &request.head;
    rules.key(
        request.peer.scheme,
        &head.authority,
        head.path(),
        head.query(),
        &head.fields,
    )
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

/// Makes the keys of one route on one worker.
pub(in crate::cache) struct Keys {
    /// Whether keys are made of the unchanged URL alone. Only such keys are remembered.
    plain: bool,
    memo: Rc<Memo>,
}

/// A worker's memo of recent keys, for all routes whose keys are made of the unchanged URL alone.
/// Each entry holds the last target with its hash, and is used only if target, scheme and authority
/// are equal. So an entry can be useless, but never wrong.
pub(in crate::cache) struct Memo {
    state: RandomState,
    entries: RefCell<Box<[Entry]>>,
}

#[derive(Clone, Default)]
struct Entry {
    scheme: Option<Scheme>,
    authority: String,
    target: String,
    key: u128,
}

impl Keys {
    /// Creates the keys of a route with these rules.
    pub(in crate::cache) fn new(rules: &KeyRules, memo: Rc<Memo>) -> Keys {
        Keys {
            plain: rules.is_plain(),
            memo,
        }
    }

    /// Makes the hash of a request's primary key. `rules` are those that `new` received.
    #[inline]
    pub(in crate::cache) fn key(&self, rules: &KeyRules, request: &Request) -> KeyHash {
        let (scheme, head) = (request.peer.scheme, &request.head);
        if self.plain {
            return self.memo.key(scheme, head);
        }
        let (path, query) = (head.path(), head.query());
        rules.hash(scheme, &head.authority, path, query, &head.fields)
    }
}

impl Memo {
    pub(in crate::cache) fn new() -> Memo {
        Memo {
            state: RandomState::default(),
            entries: RefCell::new(vec![Entry::default(); ENTRIES].into_boxed_slice()),
        }
    }

    /// Returns the key of the unchanged URL.
    #[inline]
    fn key(&self, scheme: Scheme, head: &Head) -> KeyHash {
        let at = self.state.hash_one(head.target.as_bytes()) as usize % ENTRIES;
        let mut entries = self.entries.borrow_mut();
        let entry = &mut entries[at];
        if entry.scheme == Some(scheme)
            && entry.target == head.target
            && entry.authority == head.authority
        {
            return KeyHash(entry.key);
        }
        let key = KeyHash::of(scheme, &head.authority, head.path(), head.query());
        if head.target.len() + head.authority.len() <= TARGET_MAX {
            entry.scheme = Some(scheme);
            entry.target.clone_from(&head.target);
            entry.authority.clone_from(&head.authority);
            entry.key = key.0;
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_keys_equal_computed_ones() {
        let memo = Memo::new();
        let mut head = Head::new();
        // The targets outnumber the entries. Each is looked up twice in a row and again later.
        for round in 0..2 {
            for n in 0..2 * ENTRIES {
                head.target = format!("/{n}?{n}");
                head.authority = if n % 3 == 0 { "a" } else { "b" }.to_owned();
                let key = KeyHash::of(Scheme::Http, &head.authority, head.path(), head.query());
                assert_eq!(memo.key(Scheme::Http, &head), key, "{round} {n}");
                assert_eq!(memo.key(Scheme::Http, &head), key, "{round} {n}");
                assert_ne!(memo.key(Scheme::Https, &head), key, "{round} {n}");
            }
        }
    }
}
