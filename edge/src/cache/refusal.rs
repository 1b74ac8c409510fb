//! Requests for which nothing may be fetched.

use super::decide::admission::Admitted;
use super::hit::respond;
use super::lookup::Lookup;
use crate::handler::{Fault, Request, Response, loops};
use crate::reason::Reason;

/// Returns the answer to a request for which nothing may be fetched. `may_be_stored` says whether memory
/// or a volume may have a response for it.
pub(in crate::cache) fn refuse_fetch(
    request: &Request,
    admitted: &Admitted,
    may_be_stored: bool,
) -> Option<Result<Response, Fault>> {
    if admitted.only_if_cached && !may_be_stored {
        return Some(Ok(respond::not_cached()));
    }
    // A request that this process forwarded before would wait for its own fetch (RFC 8586 2).
    loops::is_loop(&request.head).then(|| Err(Reason::Loop.into()))
}

/// Whether memory or a volume may have a response for this key.
pub(in crate::cache) fn may_be_stored(looked: &Lookup) -> bool {
    matches!(
        looked,
        Lookup::Recalled(_) | Lookup::Stored(_) | Lookup::Missing { on_disk: true, .. }
    )
}
