//! The end of a flight: all claimed bytes were received, or the origin failed, or the response
//! can't be shared.

use std::sync::Arc;
use std::time::Duration;

use super::flight::Flight;
use crate::cache::decide::reuse;
use crate::cache::resource_history;
use crate::handler::{Body, Fault, Response};
use crate::http::Status;
use crate::reason::{Reason, Whose};
use crate::store::{Object, Phase};

/// Longest wait for the end of a chunked body after all its bytes were received.
const ENDING: Duration = Duration::from_secs(1);
/// Number of bytes from which a failed flight counts as having made progress.
const FRUITFUL: u64 = 64 << 10;

impl Flight {
    /// Ends a flight that received its whole claim. If the body has more bytes, the connection is
    /// closed. The end of a chunked body is read first, so that the connection can be reused.
    pub(in crate::cache) async fn land(self, mut body: Body) {
        self.landed();
        if body.length().is_none() {
            let _ = tokio::time::timeout(ENDING, body.frame()).await;
        }
    }

    pub(in crate::cache) fn landed(self) {
        self.recovered();
        self.landing.land();
    }

    /// Notes in the history that fetches succeed again.
    pub(in crate::cache) fn recovered(&self) {
        if self.known.failures > 0 {
            self.change_history(|history| history.failures = 0);
        }
    }

    /// Notes in the history that ranges of this resource can't be relied on. Missing bytes are then
    /// fetched without Range. If the object has no head yet, a new object is used for that.
    pub(in crate::cache) fn plainly(self) {
        self.learn_plain();
        match self.landing.object().phase() {
            Phase::Open(_) => self.landing.give_back(),
            _ => self.retire(),
        }
    }

    pub(in crate::cache) fn learn_plain(&self) {
        let until_ms = self.context.worker.clock.unix_ms() + resource_history::NO_RANGES_MS;
        self.change_history(|history| history.no_ranges_until_ms = until_ms);
    }

    pub(in crate::cache) fn fail(self, fault: Fault) {
        self.context.worker.counters.flights_failed.add(1);
        if fault.reason.whose() == Some(Whose::Origin) {
            let now_ms = self.context.worker.clock.unix_ms();
            self.change_history(|history| {
                resource_history::failed(history, self.brought >= FRUITFUL, now_ms)
            });
        }
        self.landing.fail(Arc::new(fault));
    }

    /// Removes the object from the table. Riders whose response has not begun look up again; the
    /// other riders get the bytes that are stored.
    pub(in crate::cache) fn retire(self) {
        let object: Arc<Object> = self.landing.object().clone();
        self.context
            .store
            .supersede(self.landing.table_key(), &object, None);
        self.landing
            .fail(Arc::new(Fault::from(Reason::VersionChanged)));
    }

    /// Ends a flight whose response may not be shared. The leader may have the response if
    /// forwarding its request would have sent the origin the same. The other riders' requests are
    /// looked up again or forwarded.
    pub(in crate::cache) fn refuse(self, response: Response, mut reason: Reason) {
        let now_ms = self.context.worker.clock.unix_ms();
        let stored = self.landing.object().revalidated().is_some();
        let until_ms = match response.status {
            // A response to one client's credentials concerns no other client.
            _ if self.has_credentials() => {
                reason = Reason::Authorization;
                0
            }
            500.. => self.failed(),
            // A full store may soon have room, and a range beyond the end of one version may lie
            // inside the next.
            _ if !reason.remembered() => 0,
            // The response concerns this request or this moment, so the stored response stays.
            status if stored && !speaks_for_all(status) => {
                // The stale response is served without another revalidation for a while.
                self.change_history(|history| resource_history::rest(history, now_ms));
                0
            }
            status => {
                self.recovered();
                self.replace();
                if speaks_for_all(status) {
                    // While a volume loads its index, a head on it may not be found yet, so it is
                    // deleted by its id.
                    self.context.store.forget_head(self.landing.table_key());
                }
                now_ms + self.context.rules.hit_for_pass.as_millis() as u64
            }
        };
        if !reuse::is_failure(response.status) {
            // The origin answered and did not fail, so the stored response must not be served in
            // its place.
            self.landing.object().take_revalidated();
        }
        self.leader_result.put(response);
        self.landing.refuse(reason, until_ms);
    }
}

/// Whether a response with this status describes the resource for every client.
fn speaks_for_all(status: Status) -> bool {
    matches!(status, 200..400 | 404 | 410)
}
