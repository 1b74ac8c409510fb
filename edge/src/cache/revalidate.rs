//! Validating what is stored: what the response to such a fetch means, and fetches behind a stale
//! response (RFC 9111 4.3, RFC 5861).

use std::sync::Arc;

use super::decide::admission::Admitted;
use super::decide::fence;
use super::decide::reuse;
use super::decide::storing::{self, Storable};
use super::decide::validation::{self, Outcome};
use super::demand::FLIGHTS_MAX;
use super::flight::Flight;
use super::lookup::{Found, How};
use super::miss::found_in;
use super::ride::Ride;
use super::{Cache, resource_history};
use crate::handler::{Body, Fault, Request, Response};
use crate::http::Method;
use crate::http::freshness::Exchanged;
use crate::reason::Reason;
use crate::store::{Object, Revalidated, TableKey};

impl Cache {
    /// Has a stale response validated behind the answer that it gave, unless that is being done.
    pub(super) fn revalidate_in_background(&self, request: &Request, found: &Found) {
        let store = &self.0.store;
        if self.0.counters.flights_now.get() >= FLIGHTS_MAX {
            return; // while it is stale, another request will see to it
        }
        let Some(spare) = store.create(&found.object.key) else {
            return;
        };
        let begun = store.enter(found.place.primary, |locked| {
            let object = &found.object;
            let first =
                locked.holds(found.place.variant, object) && object.revalidation().is_none();
            if first {
                object.revalidate_with(found.head.clone(), &spare);
            }
            first
        });
        if !begun {
            return;
        }
        // It may have been a range of it, for which other codings are asked than for the whole.
        let history = store.enter(found.place.primary, |locked| locked.history());
        let codings = self.codings(request, &history, self.0.clock.unix_ms());
        let mut head = request.head.clone();
        head.method = Method::Get;
        head.fields
            .retain(|name, _| !matches!(name, [b'i' | b'I', b'f' | b'F', b'-', ..]));
        head.fields.remove("range");
        let request = Request {
            head,
            body: Body::Empty,
            peer: request.peer,
            interim: None,
        };
        let mut demand = self.demand(request, found.place);
        demand.codings = codings;
        let mut ride = Ride::filling(&spare, 0..crate::fill::OPEN, demand);
        tokio::task::spawn_local(async move {
            ride.head().await;
        });
    }

    /// What may be given in place of a fetch that failed, because this request says so: what the
    /// stored response says itself was taken care of by the flight.
    pub(super) fn serve_on_error(
        &self,
        failed: &Arc<Object>,
        admitted: &Admitted,
        place: TableKey,
        how: How,
    ) -> Option<Found> {
        let stored = failed.revalidated()?;
        let now_ms = self.0.clock.unix_ms();
        reuse::serves_on_error(&stored.head, admitted, now_ms).then(|| found_in(stored, place, how))
    }
}

impl Flight {
    /// What the response means for the stored one that it was to confirm. Given back where it is to
    /// be taken for a response like any other: that of another version, or of a failure.
    pub(super) fn uphold(
        self,
        response: Response,
        exchanged: Exchanged,
    ) -> Option<(Flight, Response)> {
        let Some(stored) = self.landing.object().revalidated() else {
            return Some((self, response));
        };
        let serves_on_error =
            reuse::serves_on_error(&stored.head, &Admitted::default(), exchanged.response_ms);
        match validation::outcome(&stored.head, &response, serves_on_error) {
            Outcome::Confirmed => match self.freshened(&stored, &response, exchanged) {
                Ok(fresh) => self.confirm(stored, fresh),
                Err(reason) => {
                    // From now on it is not to be shared; but with credentials that may go for them.
                    if !self.has_credentials() {
                        let place = self.landing.table_key();
                        let store = &self.cache.0.store;
                        store.forget_head(place);
                        store.withdraw(place, &stored.object);
                        store.forget_head(place);
                    }
                    self.refuse(response, reason);
                }
            },
            Outcome::Failure => {
                if !self.has_credentials() {
                    self.failed();
                }
                self.landing.serve_stored(stored, false);
            }
            Outcome::Again => self.start_again(&stored),
            Outcome::Other => match self.same(&stored, &response, exchanged) {
                Some(fresh) => self.confirm(stored, fresh),
                None => return Some((self, response)),
            },
        }
        None
    }

    fn freshened(
        &self,
        stored: &Revalidated,
        response: &Response,
        exchanged: Exchanged,
    ) -> Result<Storable, Reason> {
        let rules = &self.cache.0.rules;
        let (primary, old) = (self.primary(), &*stored.head);
        storing::freshened(primary, &self.sent, old, response, exchanged, rules)
    }

    /// The head of a response that brings what is stored already: the origin took no notice of the
    /// condition. What is large, or asked for by ranges, is not fetched again for that.
    fn same(
        &self,
        stored: &Revalidated,
        response: &Response,
        exchanged: Exchanged,
    ) -> Option<Storable> {
        let old = &stored.head;
        let content = fence::content_of(response);
        let (primary, rules) = (self.primary(), &self.cache.0.rules);
        let same = old.generation != 0
            && old.generation == storing::generation(primary, response, &content)
            && (response.status == 206 || stored.object.is_sparse());
        if !same {
            return None;
        }
        let asked = (self.asked.as_ref(), &content);
        let fresh = storing::store_as(primary, &self.sent, response, asked, exchanged, rules);
        let mut fresh = fresh.ok()?;
        fresh.head.joinable |= old.joinable;
        Some(fresh)
    }

    /// Nothing can be made of what is stored any more: who waits looks again, and finds nothing.
    fn start_again(self, stored: &Revalidated) {
        let place = self.landing.table_key();
        self.cache.0.store.supersede(place, &stored.object, None);
        self.landing.give_back();
    }

    /// No response came. Where the stored one may serve on all the same, it does.
    pub(super) fn fall(self, fault: Fault) {
        let now_ms = self.cache.0.clock.unix_ms();
        let stored = self.landing.object().revalidated();
        let may = |stored: &Revalidated| {
            reuse::serves_on_error(&stored.head, &Admitted::default(), now_ms)
        };
        match stored.filter(may) {
            Some(stored) => {
                self.cache.0.counters.flights_failed.add(1);
                self.failed();
                self.landing.serve_stored(stored, false);
            }
            None => self.fail(fault),
        }
    }

    /// What is stored is what the origin has: it gets the new head (RFC 9111 4.3.4), and serves who
    /// waited.
    fn confirm(self, stored: Revalidated, fresh: Storable) {
        let store = self.cache.0.store.clone();
        let mut head = fresh.head;
        if head.vary != stored.head.vary {
            // It stands among the variants under other names.
            return self.start_again(&stored);
        }
        self.leader_result.withhold(fresh.withheld);
        head.born_seq = self.landing.born_seq();
        let (head, object) = (Arc::new(head), stored.object);
        if let Some(charge) = store.charge_head(head.memory()) {
            store.renew(self.landing.table_key(), &object, head.clone(), charge);
        }
        self.recovered();
        self.landing
            .serve_stored(Revalidated { object, head }, true);
    }

    /// It brings something new: that takes the place of what it was to confirm.
    pub(super) fn replace(&self) {
        let object = self.landing.object();
        if let Some(stored) = object.revalidated() {
            let (store, place) = (&self.cache.0.store, self.landing.table_key());
            store.supersede(place, &stored.object, Some(object.clone()));
            // Only now: till then others know that it is on its way.
            object.take_revalidated();
        }
    }

    /// The origin failed: until the time that is given back (Unix ms) requests go to it one by one, if
    /// it was not the first time; it may be better in the next moment.
    pub(super) fn failed(&self) -> u64 {
        let now_ms = self.cache.0.clock.unix_ms();
        let mut until_ms = 0;
        self.change_history(|history| {
            resource_history::failed(history, false, now_ms);
            until_ms = if history.failures > 1 {
                history.retry_ms
            } else {
                0
            };
        });
        until_ms
    }
}
