//! The end of a flight: all claimed bytes were received, or the origin failed, or the response
//! can't be shared.

use std::sync::Arc;
use std::time::Duration;

use super::flight::Flight;
use crate::cache::decide::fence::Meaning;
use crate::cache::decide::shared_request::{Carries, LeaderShare, MayTake};
use crate::cache::decide::{fence, reuse};
use crate::cache::hit::coded;
use crate::cache::resource_history;
use crate::handler::{Body, Fault, Response};
use crate::http::Status;
use crate::reason::{Party, Reason};
use crate::store::{Object, Phase};

/// Longest wait for the end of a chunked body after all its bytes were received.
const BODY_END_WAIT_MAX: Duration = Duration::from_secs(1);
/// Number of bytes from which a failed flight counts as having made progress.
const PROGRESS_MIN: u64 = 64 << 10;

impl Flight {
    /// Ends a flight that received its whole claim. If the body has more bytes, the connection is
    /// closed. The end of a chunked body is read first, so that the connection can be reused.
    pub(in crate::cache) async fn land(self, mut body: Body) {
        self.landed();
        if body.length().is_none() {
            let _ = tokio::time::timeout(BODY_END_WAIT_MAX, body.frame()).await;
        }
    }

    pub(in crate::cache) fn landed(self) {
        self.recovered();
        if let Some(generations) = self.changes {
            let now_ms = self.context.worker.clock.unix_ms();
            self.change_history(|history| resource_history::changed(history, generations, now_ms));
        }
        let (object, table_key) = (self.landing.object().clone(), self.landing.table_key());
        self.landing.land();
        coded::complete(&self.context, &object, table_key);
    }

    /// Notes in the history that fetches succeed again.
    pub(in crate::cache) fn recovered(&self) {
        if self.known.history.failures > 0 {
            self.change_history(|history| history.failures = 0);
        }
    }

    /// Notes in the history that ranges of this resource can't be relied on. Missing bytes are then
    /// fetched without Range, into a new object if this one has no head yet.
    pub(in crate::cache) fn avoid_ranges(self) {
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
        if matches!(fault.reason, Reason::BodyCut | Reason::BadBody) {
            self.leader_result.note_short_body(self.landing.range());
        }
        let is_origins = fault.reason.whose() == Some(Party::Origin);
        let is_sent = !fault.reason.is_before_request();
        let blames_client = is_origins && is_sent && self.blames_client();
        if blames_client && self.landing.object().head().is_none() {
            // The leader gets the failure, and the other riders look up again.
            self.leader_result.put_fault(fault);
            return self.landing.refuse_one_client(fault.reason);
        }
        if is_origins && !blames_client {
            let now_ms = self.context.worker.clock.unix_ms();
            let fruitful = self.charge.received >= PROGRESS_MIN;
            let object = self.landing.object();
            let joinable = object.head().is_some_and(|head| head.joinable);
            if joinable {
                // Failures of one range say nothing about the others.
                let landing = &self.landing;
                landing.set_back(|setback| resource_history::set_back(setback, fruitful, now_ms));
            }
            // The object that a new version was to replace may be served while the origin fails.
            if !joinable || object.is_replacing() {
                self.change_history(|history| {
                    resource_history::failed(history, fruitful, now_ms);
                });
            }
        }
        match fault.reason {
            Reason::FetchAbandoned => self.landing.abandon(Arc::new(fault)),
            _ => self.landing.fail(Arc::new(fault)),
        }
    }

    /// Whether the failure of this flight may be about the leader's client: an origin or a firewall
    /// may also close the connection for a header of one client. Then the failure counts only if
    /// the next fetch, which carries nothing of a client, fails as well. A neutral fetch still
    /// carries credentials.
    pub(super) fn blames_client(&self) -> bool {
        let blames = !self.leader_share.carries.is_neutral();
        let now_ms = self.context.worker.clock.unix_ms();
        if blames && !resource_history::distrusts_clients(&self.known.history, now_ms) {
            self.change_history(|history| resource_history::distrust_clients(history, now_ms));
        }
        blames
    }

    /// Notes in the history that the origin refused a fetch that carried nothing of a client, unless
    /// the response may be made up by the client (RFC 8586).
    fn note_refusal(&self, status: Status, reason: Reason) {
        let LeaderShare {
            carries, needed, ..
        } = self.leader_share;
        let needed = needed && !self.sent.contains("authorization");
        if status == 508 || !(carries.is_neutral() || needed) {
            return;
        }
        let now_ms = self.context.worker.clock.unix_ms();
        let (variant, incomplete) = (
            self.landing.table_key().variant,
            carries != Carries::Nothing,
        );
        self.change_history(|history| {
            resource_history::refused(history, variant, reason, incomplete, now_ms);
            if incomplete && self.validates {
                resource_history::need_headers(history, now_ms);
            }
        });
    }

    /// Removes the object from the table, unless it is kept until a new version is complete. Riders
    /// whose response has not begun look up again; the other riders get the bytes that are stored.
    pub(in crate::cache) fn retire(self) {
        let object: Arc<Object> = self.landing.object().clone();
        self.context
            .store
            .supersede(self.landing.table_key(), &object, None);
        self.landing
            .fail(Arc::new(Fault::from(Reason::VersionChanged)));
    }

    /// Ends a flight whose response may be about the leader's client. The leader may have the
    /// response, unless that may refuse only the range. For all others the resource is fetched again
    /// without anything of a client, and what is stored stays.
    pub(in crate::cache) fn blame_client(self, response: Response, meaning: &Meaning) {
        let reason = self.reason_for_client(meaning.reason());
        self.blames_client();
        self.note_refusal(response.status, reason);
        if let Phase::Open(_) = self.landing.object().phase() {
            self.leader_result.refuse();
            let fault = Fault::from(Reason::UnexpectedStatus);
            return self.landing.fail(Arc::new(fault));
        }
        let chooses = self.leader_share.carries == Carries::Choices;
        if chooses && matches!(meaning, Meaning::Plain(_)) {
            // A neutral fetch shows, also for the leader, whether the origin refuses the range.
            return self.retire();
        }
        if !reuse::is_failure(response.status) {
            self.landing.object().take_revalidated();
        }
        self.hand_over(response);
        self.landing.refuse_one_client(reason);
    }

    /// The reason why a response is only for the leader's client. `reason` says why it may not be
    /// stored for any client.
    fn reason_for_client(&self, reason: Option<Reason>) -> Reason {
        match self.sent.contains("authorization") {
            true => Reason::Authorization,
            false => reason.unwrap_or(Reason::Unconfirmed),
        }
    }

    /// Hands the response over to the leader, if the leader may have it.
    fn hand_over(&self, response: Response) {
        let may_have = match self.leader_share.may_take {
            MayTake::Nothing => false,
            MayTake::Content => !fence::is_refusal(response.status),
            MayTake::All => true,
        };
        if may_have {
            self.leader_result.put(response);
        }
    }

    /// Ends a flight whose response may not be shared. The leader may have the response if
    /// forwarding its request would have sent the origin the same. The other riders' requests are
    /// looked up again or forwarded.
    pub(in crate::cache) fn refuse(self, response: Response, reason: Reason) {
        let now_ms = self.context.worker.clock.unix_ms();
        let stored = self.landing.object().revalidated().is_some();
        let failed = stored && matches!(response.status, 408 | 429 | 500..);
        let until_ms = match response.status {
            // The response is for the owner of the credentials.
            _ if self.leader_share.carries == Carries::Client => 0,
            500.. if !self.blames_client() => self.failed(),
            500.. => 0,
            // The stored response stays if the status applies only to the present time, or only to
            // this request.
            408 | 429 if stored => {
                // The stale response is served without another revalidation for a while.
                self.change_history(|history| resource_history::rest(history, now_ms));
                0
            }
            status if stored && !speaks_for_all(status) => {
                self.note_refusal(status, reason);
                0
            }
            // A full store may soon have room, and a range beyond the end of one version may lie
            // inside the next.
            _ if !reason.remembered() => 0,
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
        self.hand_over(response);
        if failed {
            // The waiting requests are not sent to the failing origin one by one: a cache may act
            // as if the origin had not responded (RFC 9111 4.3.3).
            let fault = Fault::from(Reason::UnexpectedStatus);
            return self.landing.fail(Arc::new(fault));
        }
        match self.leader_share.carries {
            Carries::Client => {
                let reason = self.reason_for_client(Some(reason));
                self.landing.refuse_one_client(reason);
            }
            _ => self.landing.refuse(reason, until_ms),
        }
    }
}

/// Whether a response with this status describes the resource for every client.
fn speaks_for_all(status: Status) -> bool {
    matches!(status, 200..400 | 404 | 410)
}
