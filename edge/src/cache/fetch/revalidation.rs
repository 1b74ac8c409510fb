//! Revalidation: judges the response against the stored one that it was to confirm (RFC 9111 4.3).

use std::sync::Arc;

use super::flight::Flight;
use crate::cache::decide::admission::Admitted;
use crate::cache::decide::storing::{self, Storable};
use crate::cache::decide::validation::{self, Outcome};
use crate::cache::decide::{fence, reuse};
use crate::cache::resource_history;
use crate::handler::{Fault, Response};
use crate::http::freshness::Exchanged;
use crate::reason::Reason;
use crate::store::Revalidated;

impl Flight {
    /// Handles the response to a revalidation. Returns a response that must be judged by itself:
    /// one of another version, or a failure that the stored response may not replace.
    pub(in crate::cache) fn uphold(
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
                    // The resource may not be shared from now on. If the fetch carried credentials,
                    // that may be so for their owner only.
                    if !self.has_credentials() {
                        let place = self.landing.table_key();
                        let store = &self.context.store;
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
        let rules = &self.context.rules;
        let (primary, old) = (self.primary(), &*stored.head);
        storing::freshened(primary, &self.sent, old, response, exchanged, rules)
    }

    /// Returns the new head if the origin ignored the condition and sent the stored version again.
    /// The stored bytes then stay in use, and content that is large or was fetched by ranges is not
    /// fetched again.
    fn same(
        &self,
        stored: &Revalidated,
        response: &Response,
        exchanged: Exchanged,
    ) -> Option<Storable> {
        let old = &stored.head;
        let content = fence::content_of(response);
        let (primary, rules) = (self.primary(), &self.context.rules);
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

    /// Removes the stored response, so that waiting requests look up again and fetch all of it.
    fn start_again(self, stored: &Revalidated) {
        let place = self.landing.table_key();
        self.context.store.supersede(place, &stored.object, None);
        self.landing.give_back();
    }

    /// Handles a fetch without a response: serves the stored response if that permits it, else
    /// fails.
    pub(in crate::cache) fn fall(self, fault: Fault) {
        let now_ms = self.context.worker.clock.unix_ms();
        let stored = self.landing.object().revalidated();
        let may = |stored: &Revalidated| {
            reuse::serves_on_error(&stored.head, &Admitted::default(), now_ms)
        };
        match stored.filter(may) {
            Some(stored) => {
                self.context.worker.counters.flights_failed.add(1);
                self.failed();
                self.landing.serve_stored(stored, false);
            }
            None => self.fail(fault),
        }
    }

    /// Handles a confirmation: gives the stored response the new head (RFC 9111 4.3.4) and serves
    /// it to the waiting requests.
    fn confirm(self, stored: Revalidated, fresh: Storable) {
        let store = self.context.store.clone();
        let mut head = fresh.head;
        if head.vary != stored.head.vary {
            // The new head has another Vary, so the object is filed under the wrong variant.
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

    /// Replaces the stored response by the object of this fetch.
    pub(in crate::cache) fn replace(&self) {
        let object = self.landing.object();
        if let Some(stored) = object.revalidated() {
            let (store, place) = (&self.context.store, self.landing.table_key());
            store.supersede(place, &stored.object, Some(object.clone()));
            // Until the replacement, other requests must find the revalidation in progress.
            object.take_revalidated();
        }
    }

    /// Notes a failure of the origin in the history. Returns the time (Unix ms) until which
    /// requests are forwarded without a shared fetch; 0 after a first failure, since the next fetch
    /// may succeed.
    pub(in crate::cache) fn failed(&self) -> u64 {
        let now_ms = self.context.worker.clock.unix_ms();
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
