//! The outcomes of a flight: all claimed bytes were received, or the origin failed, or its response
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

/// How long to wait for the end of a chunked body after all its bytes were received.
const ENDING: Duration = Duration::from_secs(1);
/// Bytes that a flight must fetch before it fails to count as progress.
const FRUITFUL: u64 = 64 << 10;

impl Flight {
    /// Ends a flight that received its whole claim. A body with more bytes is cut off. The end of a
    /// chunked body is read, so that its connection can be reused.
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

    /// Notes that fetches succeed again.
    pub(in crate::cache) fn recovered(&self) {
        if self.known.failures > 0 {
            self.change_history(|history| history.failures = 0);
        }
    }

    /// Notes that ranges of this resource can't be relied on. Missing bytes are then fetched by a
    /// plain GET, into a new object if this one has no head yet.
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
        if fault.reason.whose() == Whose::Origin {
            let now_ms = self.context.worker.clock.unix_ms();
            self.change_history(|history| {
                resource_history::failed(history, self.brought >= FRUITFUL, now_ms)
            });
        }
        self.landing.fail(Arc::new(fault));
    }

    /// Takes the object out of use. Requests that have not begun their responses look up again; the
    /// others get the stored bytes.
    pub(in crate::cache) fn retire(self) {
        let object: Arc<Object> = self.landing.object().clone();
        self.context
            .store
            .supersede(self.landing.table_key(), &object, None);
        self.landing
            .fail(Arc::new(Fault::from(Reason::VersionChanged)));
    }

    /// Ends a flight whose response may not be shared. The leader may have the response if the same
    /// request would have been sent for it alone. The other riders look up again or are passed.
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
            // The response concerns this request or this moment, not the stored response.
            status if stored && !speaks_for_all(status) => {
                // Requests that are served stale don't revalidate again at once.
                self.change_history(|history| resource_history::rest(history, now_ms));
                0
            }
            status => {
                self.recovered();
                self.replace();
                if speaks_for_all(status) {
                    // A head on a volume may not be indexed yet.
                    self.context.store.forget_head(self.landing.table_key());
                }
                now_ms + self.context.rules.hit_for_pass.as_millis() as u64
            }
        };
        if !reuse::is_failure(response.status) {
            // The origin did not fail, so the stored response may not be served instead.
            self.landing.object().take_revalidated();
        }
        self.leader_result.put(response);
        self.landing.refuse(reason, until_ms);
    }
}

/// Whether a status describes the resource for every client.
fn speaks_for_all(status: Status) -> bool {
    matches!(status, 200..400 | 404 | 410)
}
