//! Detection of request loops by CDN-Loop (RFC 8586).
//!
//! Each request to an origin carries an entry such as `sluice-0123456789abcdef;k=fedcba9876543210`:
//! the id of this process, and a hash of host and target. A request that already carries this
//! process's entry for its own host and target is in a loop. A process may forward a request to
//! itself for another host or target, so such entries are only counted.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::LazyLock;

use super::head::HeadParts;
use crate::http::Fields;

/// The header that lists the proxies that a request has passed.
pub const HEADER: &str = "cdn-loop";

/// Most times that a request may pass this process.
const PASSES_MAX: usize = 8;

/// Most entries of Sluice that a shared fetch takes over from a client's request.
const ENTRIES_MAX: usize = 64;

/// Start of the id of every process.
const NAME: &[u8] = b"sluice-";

/// Longest entry of Sluice in bytes.
const ENTRY_BYTES_MAX: usize = 64;

/// The identity of this process. The hash is keyed at random, so that nobody else can make an entry
/// that this process takes for its own.
struct Process {
    id: String,
    hasher: RandomState,
}

static PROCESS: LazyLock<Process> = LazyLock::new(|| {
    let hasher = RandomState::new();
    let id = format!("sluice-{:016x}", hasher.hash_one(NAME));
    Process { id, hasher }
});

/// Whether the request is in a loop: it has passed this process for the same host and target, or too
/// often.
pub fn is_loop(head: &HeadParts) -> bool {
    let mut passes = 0;
    head.fields.members(HEADER).any(|member| {
        let mut parts = member.split(|&b| b == b';').map(<[u8]>::trim_ascii);
        if parts.next() != Some(PROCESS.id.as_bytes()) {
            return false;
        }
        passes += 1;
        let mut marks = parts.filter_map(|part| part.strip_prefix(b"k="));
        passes >= PASSES_MAX || marks.any(|mark| mark == mark_of(head))
    })
}

/// Appends this process's entry for a request to the value of CDN-Loop.
pub fn append_entry(head: &HeadParts, out: &mut Vec<u8>) {
    out.extend_from_slice(PROCESS.id.as_bytes());
    out.extend_from_slice(b";k=");
    out.extend_from_slice(&mark_of(head));
}

/// Copies the entries of Sluice from a client's request to a shared fetch. Entries of others are not
/// copied, since a client could have the origin refuse the fetch by them.
pub fn copy_entries(from: &Fields, to: &mut Fields) {
    let is_ours = |member: &&[u8]| member.starts_with(NAME) && member.len() <= ENTRY_BYTES_MAX;
    let entries = from.members(HEADER).filter(is_ours).take(ENTRIES_MAX);
    for entry in entries {
        to.append(HEADER, entry);
    }
}

/// Returns the hash of a request's host and target in hexadecimal digits.
fn mark_of(head: &HeadParts) -> [u8; 16] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let hash = PROCESS.hasher.hash_one((&head.authority, &head.target));
    std::array::from_fn(|i| DIGITS[(hash >> (60 - 4 * i)) as usize & 15])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(authority: &str, target: &str) -> HeadParts {
        HeadParts {
            authority: authority.to_owned(),
            target: target.to_owned(),
            ..HeadParts::default()
        }
    }

    /// Adds this process's entry for `passed` to `head`, in the spelling of another proxy.
    fn pass(head: &mut HeadParts, passed: &HeadParts) {
        let mut entry = Vec::new();
        append_entry(passed, &mut entry);
        let entry = String::from_utf8(entry).expect("ASCII");
        head.fields
            .append("CDN-Loop", entry.replace(';', " ; a=b ;"));
    }

    #[test]
    fn a_request_that_returns_is_in_a_loop() {
        let mut request = head("a.example", "/x");
        request
            .fields
            .append("cdn-loop", "other.example, sluice-0;k=0");
        assert!(!is_loop(&request));
        let same = head("a.example", "/x");
        pass(&mut request, &same);
        assert!(is_loop(&request));
    }

    #[test]
    fn a_request_may_pass_for_another_host_or_target_a_few_times() {
        let mut request = head("a.example", "/x");
        for n in 1..PASSES_MAX {
            pass(&mut request, &head("b.example", &format!("/{n}")));
            assert!(!is_loop(&request), "{n}");
        }
        pass(&mut request, &head("b.example", "/x"));
        assert!(is_loop(&request));
    }

    #[test]
    fn a_shared_fetch_takes_over_only_the_entries_of_sluice() {
        let mut request = head("a.example", "/x");
        request
            .fields
            .append("cdn-loop", "other.example, sluice-1;k=2");
        let long = format!("sluice-{}", "1".repeat(100));
        request.fields.append("cdn-loop", long);
        pass(&mut request, &head("a.example", "/x"));
        let mut fetch = head("a.example", "/x");
        copy_entries(&request.fields, &mut fetch.fields);
        assert_eq!(fetch.fields.members(HEADER).count(), 2);
        assert!(is_loop(&fetch));
    }
}
