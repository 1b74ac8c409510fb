//! Requests that go past the cache: sent on alone, with what their responses teach it.

use super::Cache;
use crate::handler::{Answer, Fault, Pending, Request, Response};
use crate::http::key::KeyHash;
use crate::http::{CacheStatus, hop};

impl Cache {
    /// Sends the request to the origin on its own; nothing is stored.
    pub(super) fn pass(&self, mut request: Request, status: CacheStatus) -> Answer {
        if request.head.method.is_safe() {
            // What the key does not hold is not acted upon here, shared or not.
            hop::strip_unkeyed(&mut request.head.fields);
        }
        let invalidates = (!request.head.method.is_safe()).then(|| self.key(&request));
        let cache = self.clone();
        let finish = move |result: Result<Response, Fault>| {
            let response = result?;
            // A successful unsafe request may have changed what is stored (RFC 9111 4.4).
            if let Some(key) = invalidates.filter(|_| response.status < 400) {
                cache.invalidate(key);
            }
            Ok(forwarded(response, status))
        };
        match self.0.origin.handle(request) {
            Answer::Ready(result) => Answer::Ready(finish(result)),
            Answer::Later(Pending { response, interim }) => Answer::Later(Pending {
                response: Box::pin(async move { finish(response.await) }),
                interim,
            }),
        }
    }

    /// Takes all variants out: what is being fetched for them is not stored any more.
    fn invalidate(&self, key: KeyHash) {
        self.0.store.enter(key.0, |locked| locked.clear());
    }
}

/// A response straight from the origin, with how it came about.
pub(super) fn forwarded(mut response: Response, mut status: CacheStatus) -> Response {
    status.fwd_status = Some(response.status);
    response.cache = Some(status);
    response
}
