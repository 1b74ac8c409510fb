//! How flights end: all that was claimed is there, or the origin failed, or its response is not for
//! sharing.

use std::sync::Arc;
use std::time::Duration;

use super::flight::Flight;
use crate::cache::decide::reuse;
use crate::cache::resource_history;
use crate::handler::{Body, Fault, Response};
use crate::http::Status;
use crate::reason::{Reason, Whose};
use crate::store::{Object, Phase};

/// How long the end of a chunked body is waited for once all its bytes are there.
const ENDING: Duration = Duration::from_secs(1);
/// A flight that brought less before it failed was of no use, bytes.
const FRUITFUL: u64 = 64 << 10;

impl Flight {
    /// All that was claimed is there. A body with more to come is cut; of one that only has to end
    /// the end is read, so that its connection can serve another request.
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

    /// Fetches fail no more.
    pub(in crate::cache) fn recovered(&self) {
        if self.known.failures > 0 {
            self.change_history(|history| history.failures = 0);
        }
    }

    /// Ranges of this can't be relied on: what is missing is asked for by a plain GET. If nothing
    /// is there yet, by another object.
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

    /// The object is not to be used any more. Those who have had nothing of it look again, the
    /// others get what is stored.
    pub(in crate::cache) fn retire(self) {
        let object: Arc<Object> = self.landing.object().clone();
        self.context
            .store
            .supersede(self.landing.table_key(), &object, None);
        self.landing
            .fail(Arc::new(Fault::from(Reason::VersionChanged)));
    }

    /// The response may not be shared. Who launched the flight may have it, if the same request
    /// would have been sent for it alone; the others part.
    pub(in crate::cache) fn refuse(self, response: Response, mut reason: Reason) {
        let now_ms = self.context.worker.clock.unix_ms();
        let stored = self.landing.object().revalidated().is_some();
        let until_ms = match response.status {
            // What one client's credentials bring is nothing that others have to know.
            _ if self.has_credentials() => {
                reason = Reason::Authorization;
                0
            }
            500.. => self.failed(),
            // A full store may be better in the next moment; and what lies behind the end of one
            // version may be inside the next.
            _ if !reason.remembered() => 0,
            // It says something about this request or this moment, and nothing about what is stored.
            status if stored && !speaks_for_all(status) => {
                // Those who are given what is stale don't ask again at once.
                self.change_history(|history| resource_history::rest(history, now_ms));
                0
            }
            status => {
                self.recovered();
                self.replace();
                if speaks_for_all(status) {
                    // What a volume has of it may not be known yet.
                    self.context.store.forget_head(self.landing.table_key());
                }
                now_ms + self.context.rules.pass_for.as_millis() as u64
            }
        };
        if !reuse::is_failure(response.status) {
            // It is no failure that what is stored may stand in for.
            self.landing.object().take_revalidated();
        }
        self.leader_result.put(response);
        self.landing.refuse(reason, until_ms);
    }
}

/// Statuses by which an origin says what there is now, to whomever.
fn speaks_for_all(status: Status) -> bool {
    matches!(status, 200..400 | 404 | 410)
}
