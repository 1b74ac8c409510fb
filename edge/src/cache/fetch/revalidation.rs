//! Revalidation: judges the response against the stored one that it was to confirm (RFC 9111 4.3).

use std::sync::Arc;

use super::flight::Flight;
use crate::cache::decide::admission::Admitted;
use crate::cache::decide::reuse;
use crate::cache::decide::storing::{self, Storable};
use crate::cache::decide::validation::{self, Outcome};
use crate::cache::resource_history;
use crate::handler::{Fault, Response};
use crate::http::freshness::ExchangeTimes;
use crate::reason::Reason;
use crate::store::{Head, Object, Revalidated};

impl Flight {
    /// Handles the response to a revalidation. Returns the response if the stored one may not be
    /// served in its place: it is of another version, or a failure for which the stored response
    /// may not be used.
    pub(in crate::cache) fn handle_revalidation(
        self,
        response: Response,
        exchanged: ExchangeTimes,
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
                    // The resource may not be shared from now on. If the fetch carried anything of a
                    // client, this may apply only to that client, so the stored response stays.
                    if !self.blames_client() {
                        let table_key = self.landing.table_key();
                        let store = &self.context.store;
                        store.forget_head(table_key);
                        store.withdraw(table_key, &stored.object);
                        store.forget_head(table_key);
                    }
                    self.refuse(response, reason);
                }
            },
            Outcome::Failure => {
                if !self.blames_client() {
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
        exchanged: ExchangeTimes,
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
        exchanged: ExchangeTimes,
    ) -> Option<Storable> {
        let old = &stored.head;
        let content = storing::content_of(response);
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
        let table_key = self.landing.table_key();
        self.context
            .store
            .supersede(table_key, &stored.object, None);
        self.landing.give_back();
    }

    /// Handles a fetch without a response: serves the stored response if that permits it, else
    /// fails.
    pub(in crate::cache) fn fail_or_serve_stale(self, fault: Fault) {
        let now_ms = self.context.worker.clock.unix_ms();
        let stored = self.landing.object().revalidated();
        let blames_client = !fault.reason.is_before_request() && self.blames_client();
        let may = |stored: &Revalidated| {
            reuse::serves_on_error(&stored.head, &Admitted::default(), now_ms)
        };
        match stored.filter(may) {
            Some(stored) => {
                self.context.worker.counters.flights_failed.add(1);
                if !blames_client {
                    self.failed();
                }
                self.landing.serve_stored(stored, false);
            }
            None => {
                let timed_out =
                    matches!(fault.reason, Reason::HeadTimeout | Reason::ConnectTimeout);
                if blames_client || timed_out {
                    self.leader_result.put_fault(fault);
                }
                self.fail(fault);
            }
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
        self.withhold(fresh.withheld);
        head.born_seq = self.landing.born_seq();
        let (head, object) = (Arc::new(head), stored.object);
        if let Some(charge) = store.charge_head(head.memory()) {
            store.renew(self.landing.table_key(), &object, head.clone(), charge);
        }
        self.recovered();
        self.landing
            .serve_stored(Revalidated { object, head }, true);
    }

    /// Replaces the stored response by the object of this fetch, which gets this head.
    pub(in crate::cache) fn replace_by(&self, head: &Head) {
        let object = self.landing.object();
        if let Some(stored) = object.revalidated() {
            self.replace_version(&stored, object, head);
            object.take_revalidated();
        }
    }

    /// Replaces a stored response by `new`, an object of another version, which gets this head. A
    /// response that may be served while the origin fails is kept until the body is complete.
    /// Returns whether the stored response was in the table.
    pub(in crate::cache) fn replace_version(
        &self,
        stored: &Revalidated,
        new: &Arc<Object>,
        head: &Head,
    ) -> bool {
        let now_ms = self.context.worker.clock.unix_ms();
        let (store, table_key) = (&self.context.store, self.landing.table_key());
        // Under another Vary, the two would have different table keys.
        let is_kept = reuse::serves_on_error(&stored.head, &Admitted::default(), now_ms)
            && head.vary == stored.head.vary;
        if !is_kept {
            return store.supersede(table_key, &stored.object, Some(new.clone()));
        }
        let old = (&stored.object, &stored.head);
        store.replace_until_broken(table_key, old, new, now_ms)
    }

    /// Replaces the stored response by the object of this fetch.
    pub(in crate::cache) fn replace(&self) {
        let object = self.landing.object();
        if let Some(stored) = object.revalidated() {
            let (store, table_key) = (&self.context.store, self.landing.table_key());
            store.supersede(table_key, &stored.object, Some(object.clone()));
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
