//! Validating what is stored: what the response to such a fetch means, and fetches behind a stale
//! response (RFC 9111 4.3, RFC 5861).

use std::sync::Arc;

use super::bring::found_in;
use super::decide::asks::Asks;
use super::decide::fence;
use super::decide::reuse;
use super::decide::storing::{self, Storable};
use super::decide::validation::{self, Outcome};
use super::filler::FLIGHTS_MAX;
use super::flight::Flight;
use super::look::{Found, How};
use super::ride::Ride;
use super::{Cache, lore};
use crate::handler::{Body, Fault, Request, Response};
use crate::http::Method;
use crate::http::freshness::Exchanged;
use crate::store::{Object, Standing, TableKey};

impl Cache {
    /// Has a stale response validated behind the answer that it gave, unless that is being done.
    pub(super) fn revalidate_behind(&self, request: &Request, found: &Found) {
        let store = &self.0.store;
        if self.0.counters.flights_now.get() >= FLIGHTS_MAX {
            return; // while it is stale, another request will see to it
        }
        let Some(spare) = store.create(&found.object.key) else {
            return;
        };
        let begun = store.enter(found.place.primary, |locked| {
            let object = &found.object;
            let first = locked.holds(found.place.variant, object) && object.validation().is_none();
            if first {
                object.validate_by(found.head.clone(), &spare);
            }
            first
        });
        if !begun {
            return;
        }
        // It may have been a range of it, for which other codings are asked than for the whole.
        let lore = store.enter(found.place.primary, |locked| locked.lore());
        let codings = self.codings(request, &lore, self.0.clock.unix_ms());
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
        let mut filler = self.filler(request, found.place);
        filler.codings = codings;
        let mut ride = Ride::filling(&spare, 0..crate::fill::OPEN, filler);
        tokio::task::spawn_local(async move {
            ride.head().await;
        });
    }

    /// What may be given in place of a fetch that failed, because this request says so: what the
    /// stored response says itself was taken care of by the flight.
    pub(super) fn stand_in(
        &self,
        failed: &Arc<Object>,
        asks: &Asks,
        place: TableKey,
        how: How,
    ) -> Option<Found> {
        let standing = failed.standing()?;
        let now_ms = self.0.clock.unix_ms();
        reuse::stands_in(&standing.head, asks, now_ms).then(|| found_in(standing, place, how))
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
        let Some(standing) = self.landing.object().standing() else {
            return Some((self, response));
        };
        let stands_in = reuse::stands_in(&standing.head, &Asks::default(), exchanged.response_ms);
        match validation::outcome(&standing.head, &response, stands_in) {
            Outcome::Confirmed => match self.freshened(&standing, &response, exchanged) {
                Ok(fresh) => self.confirm(standing, fresh),
                Err(word) => {
                    // From now on it is not to be shared; but with credentials that may go for them.
                    if !self.has_credentials() {
                        let place = self.landing.table_key();
                        let store = &self.cache.0.store;
                        store.forget_head(place);
                        store.withdraw(place, &standing.object);
                        store.forget_head(place);
                    }
                    self.refuse(response, word);
                }
            },
            Outcome::Failure => {
                if !self.has_credentials() {
                    self.failed();
                }
                self.landing.stand(standing, false);
            }
            Outcome::Again => self.start_again(&standing),
            Outcome::Other => match self.same(&standing, &response, exchanged) {
                Some(fresh) => self.confirm(standing, fresh),
                None => return Some((self, response)),
            },
        }
        None
    }

    fn freshened(
        &self,
        standing: &Standing,
        response: &Response,
        exchanged: Exchanged,
    ) -> Result<Storable, &'static str> {
        let rules = &self.cache.0.rules;
        let (primary, old) = (self.primary(), &*standing.head);
        storing::freshened(primary, &self.sent, old, response, exchanged, rules)
    }

    /// The head of a response that brings what is stored already: the origin took no notice of the
    /// condition. What is large, or asked for by ranges, is not fetched again for that.
    fn same(
        &self,
        standing: &Standing,
        response: &Response,
        exchanged: Exchanged,
    ) -> Option<Storable> {
        let old = &standing.head;
        let content = fence::content_of(response);
        let (primary, rules) = (self.primary(), &self.cache.0.rules);
        let same = old.generation != 0
            && old.generation == storing::generation(primary, response, &content)
            && (response.status == 206 || standing.object.is_sparse());
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
    fn start_again(self, standing: &Standing) {
        let place = self.landing.table_key();
        self.cache.0.store.supersede(place, &standing.object, None);
        self.landing.give_back();
    }

    /// No response came. Where the stored one may serve on all the same, it does.
    pub(super) fn fall(self, fault: Fault) {
        let now_ms = self.cache.0.clock.unix_ms();
        let standing = self.landing.object().standing();
        let may = |standing: &Standing| reuse::stands_in(&standing.head, &Asks::default(), now_ms);
        match standing.filter(may) {
            Some(standing) => {
                self.cache.0.counters.flights_failed.add(1);
                self.failed();
                self.landing.stand(standing, false);
            }
            None => self.fail(fault),
        }
    }

    /// What is stored is what the origin has: it gets the new head (RFC 9111 4.3.4), and serves who
    /// waited.
    fn confirm(self, standing: Standing, fresh: Storable) {
        let store = self.cache.0.store.clone();
        let mut head = fresh.head;
        if head.vary != standing.head.vary {
            // It stands among the variants under other names.
            return self.start_again(&standing);
        }
        self.handover.withhold(fresh.withheld);
        head.born_seq = self.landing.born_seq();
        let (head, object) = (Arc::new(head), standing.object);
        if let Some(charge) = store.charge_head(head.memory()) {
            store.renew(self.landing.table_key(), &object, head.clone(), charge);
        }
        self.recovered();
        self.landing.stand(Standing { object, head }, true);
    }

    /// It brings something new: that takes the place of what it was to confirm.
    pub(super) fn replace(&self) {
        let object = self.landing.object();
        if let Some(standing) = object.standing() {
            let (store, place) = (&self.cache.0.store, self.landing.table_key());
            store.supersede(place, &standing.object, Some(object.clone()));
            // Only now: till then others know that it is on its way.
            object.take_standing();
        }
    }

    /// The origin failed: until the time that is given back (Unix ms) requests go to it one by one, if
    /// it was not the first time; it may be better in the next moment.
    pub(super) fn failed(&self) -> u64 {
        let now_ms = self.cache.0.clock.unix_ms();
        let mut until_ms = 0;
        self.lore(|lore| {
            lore::failed(lore, false, now_ms);
            until_ms = if lore.failures > 1 { lore.retry_ms } else { 0 };
        });
        until_ms
    }
}
