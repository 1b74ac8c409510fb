//! Validating what is stored: what the response to such a fetch means, and fetches behind a stale
//! response (RFC 9111 4.3, RFC 5861).

use std::sync::Arc;

use super::bring::found_in;
use super::decide::asks::Asks;
use super::decide::reuse;
use super::decide::storing;
use super::decide::validation::{self, Outcome};
use super::flight::Flight;
use super::look::{Found, How};
use super::ride::Ride;
use super::{Cache, lore};
use crate::handler::{Body, Fault, Request, Response, Whose};
use crate::http::Method;
use crate::http::freshness::Exchanged;
use crate::store::{Object, Place, Standing};

/// Given stale because the origin failed.
pub(super) const IN_PLACE: How = How::Stale {
    word: "stale-if-error",
    behind: false,
};

impl Cache {
    /// Has a stale response validated behind the answer that it gave, unless that is being done.
    pub(super) fn revalidate_behind(&self, request: &Request, found: &Found) {
        let store = &self.0.store;
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
        place: Place,
    ) -> Option<Found> {
        let standing = failed.standing()?;
        let now_ms = self.0.clock.unix_ms();
        reuse::stands_in(&standing.head, asks, now_ms).then(|| found_in(standing, place, IN_PLACE))
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
            Outcome::Confirmed => self.confirm(standing, response, exchanged),
            Outcome::Failure => {
                self.failed();
                self.landing.stand(standing, false);
                None
            }
            Outcome::Again => {
                let place = self.landing.place();
                self.cache.0.store.supersede(place, &standing.object, None);
                self.landing.give_back();
                None
            }
            Outcome::Other => Some((self, response)),
        }
    }

    /// No response came. Where the stored one may serve on all the same, it does.
    pub(super) fn fall(self, fault: Fault) {
        let now_ms = self.cache.0.clock.unix_ms();
        let standing = self.landing.object().standing();
        let may = |standing: &Standing| reuse::stands_in(&standing.head, &Asks::default(), now_ms);
        match standing.filter(may) {
            Some(standing) => {
                self.cache.0.counters.flights_failed.add(1);
                if fault.whose == Whose::Origin {
                    self.failed();
                }
                self.landing.stand(standing, false);
            }
            None => self.fail(fault),
        }
    }

    /// 304: the stored response's head is freshened by it (RFC 9111 4.3.4), and serves who waited.
    fn confirm(
        self,
        standing: Standing,
        response: Response,
        exchanged: Exchanged,
    ) -> Option<(Flight, Response)> {
        let (cache, place) = (self.cache.clone(), self.landing.place());
        let (store, object) = (&cache.0.store, &standing.object);
        let rules = &cache.0.rules;
        let born_seq = self.landing.born_seq();
        let old = &standing.head;
        let mut head = match storing::freshened(
            self.primary(),
            &self.sent,
            old,
            &response,
            exchanged,
            rules,
        ) {
            Ok(head) => head,
            // From now on it is not to be shared.
            Err(word) => {
                self.refuse(response, word);
                return None;
            }
        };
        head.born_seq = born_seq;
        let head = Arc::new(head);
        if let Some(charge) = store.charge_head(head.memory()) {
            store.renew(place, object, head.clone(), charge);
            super::flight::file(&cache, place, object, &head);
        }
        self.recovered();
        let object = object.clone();
        self.landing.stand(Standing { object, head }, true);
        None
    }

    /// It brings something new: that takes the place of what it was to confirm.
    pub(super) fn replace(&self) {
        let object = self.landing.object();
        if let Some(standing) = object.take_standing() {
            let (store, place) = (&self.cache.0.store, self.landing.place());
            store.supersede(place, &standing.object, Some(object.clone()));
        }
    }

    /// The origin failed: the next fetch waits a little.
    fn failed(&self) {
        let now_ms = self.cache.0.clock.unix_ms();
        self.lore(|lore| lore::failed(lore, false, now_ms));
    }
}
