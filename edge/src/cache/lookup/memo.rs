//! A memo of recent keys, so that frequent targets are not hashed for each request.

use std::cell::RefCell;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;

use crate::handler::Head;
use crate::http::Scheme;
use crate::http::key::KeyHash;

/// Number of entries, a power of two.
const ENTRIES: usize = 512;
/// Longest target and authority that are remembered, bytes.
const TARGET_MAX: usize = 256;

/// A worker's memo of keys. Each entry holds the last target with its hash, and is used only if
/// target, scheme and authority are equal. So an entry can be useless, but never wrong.
pub(in crate::cache) struct Memo {
    state: RandomState,
    entries: RefCell<Box<[MemoEntry]>>,
}

#[derive(Clone, Default)]
struct MemoEntry {
    scheme: Option<Scheme>,
    authority: String,
    target: String,
    key: u128,
}

impl Memo {
    pub(in crate::cache) fn new() -> Memo {
        Memo {
            state: RandomState::default(),
            entries: RefCell::new(vec![MemoEntry::default(); ENTRIES].into_boxed_slice()),
        }
    }

    /// Returns the key of a request with this head.
    #[inline]
    pub(in crate::cache) fn key(&self, scheme: Scheme, head: &Head) -> KeyHash {
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
