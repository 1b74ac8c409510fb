//! Responses to POST that answer GET as well: those that name their target as what they represent,
//! and say how long they are fresh (RFC 9110 9.3.3).
//!
//! Such a response is its client's first of all. Everything up to where it is read out of the store
//! is done in one go, and no fetch ever follows it: what can't be kept whole is sent on as it came.

use std::sync::Arc;

use smallvec::smallvec;

use super::Cache;
use super::client_budget::{BudgetCharge, ClientBudget};
use super::decide::{fence, storing};
use super::flight::Flight;
use super::leader_result::LeaderResult;
use super::pass::forwarded;
use super::ride::Ride;
use super::serve;
use crate::fill::OPEN;
use crate::handler::{Head, Request, Response};
use crate::http::freshness::Exchanged;
use crate::http::key::{Key, KeyHash};
use crate::http::wanted::Wanted;
use crate::http::{CacheStatus, Fields, Method, hop};
use crate::store::{Landing, ResourceHistory, TableKey};

/// Fields of a POST that are about its content, which a GET does not have.
const OF_CONTENT: [&str; 5] = [
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "transfer-encoding",
];

/// What is kept of a POST until its response is here.
pub(super) struct Posted {
    key: Key,
    hash: KeyHash,
    /// What it was sent with, but for what is about its content.
    sent: Fields,
    asked_ms: u64,
    /// When it was asked, in the order of purges.
    asked_seq: u64,
}

impl Cache {
    /// Remembers a POST whose response may be of use for GET: one that is sent as a fetch for all
    /// would be. To that end it says what it accepts as such a fetch does.
    pub(super) fn posted(&self, request: &mut Request) -> Option<Posted> {
        let rules = &self.0.rules;
        // Under keys with fields a POST invalidates by a purge, which covers what it brings as well.
        if !rules.post || rules.key.needs_fields() || request.head.method != Method::Post {
            return None;
        }
        let mut fields = request.head.fields.clone();
        fields.retain(|name, value| !is_for_post(name, value, &request.head));
        if !self.is_for_all(&request.head, &fields) {
            return None;
        }
        self.level(&mut request.head.fields);
        self.level(&mut fields);
        Some(Posted {
            key: self.key_text(request),
            hash: self.key(request),
            sent: fields,
            asked_ms: self.0.clock.unix_ms(),
            asked_seq: self.0.store.moment(),
        })
    }

    /// Stores the response to a POST, if it may answer GET, and gives it out from there.
    pub(super) fn store_post_response(
        &self,
        request: &Request,
        posted: &Posted,
        mut response: Response,
        status: CacheStatus,
    ) -> Response {
        match self.stored_post_response(request, posted, &mut response, status) {
            Some(adopted) => adopted,
            None => forwarded(response, status),
        }
    }

    /// `None`: it can't be stored, and is as it was.
    fn stored_post_response(
        &self,
        request: &Request,
        posted: &Posted,
        response: &mut Response,
        mut status: CacheStatus,
    ) -> Option<Response> {
        let storing::Storable { head, withheld, .. } =
            self.storable_post_response(request, posted, response)?;
        let landing = self.landing_for(posted)?;
        let (length, object) = (head.length?, landing.object().clone());
        let head = crate::store::Head {
            born_seq: landing.born_seq(),
            // A further response might be another's: GET and POST may differ in what they bring.
            joinable: false,
            ..head
        };
        let mut flight = self.flight_for(posted, landing);
        if flight.open(head.clone(), 0..length).is_err() {
            flight.retire();
            return None;
        }
        status.fwd_status = Some(response.status);
        status.stored = true;
        let answering = self.answering(&head, status, self.0.clock.unix_ms());
        // Reads from here on, so that the flight is never for nobody.
        let ride = Ride::complete(&object);
        let mut adopted = match serve::bare(&answering, &object, &Wanted::All) {
            Some(adopted) => adopted,
            None => serve::content(&answering, ride, Wanted::All),
        };
        adopted.upstream = response.upstream.take();
        for (name, value) in withheld.iter() {
            adopted.fields.append_bytes(name, value);
        }
        tokio::task::spawn_local(flight.receive(std::mem::take(&mut response.body)));
        Some(adopted)
    }

    /// What a response to a POST is stored as, if it may be: a whole 200 that fits, names the target
    /// as its own, and says itself how long it is fresh.
    fn storable_post_response(
        &self,
        request: &Request,
        posted: &Posted,
        response: &Response,
    ) -> Option<storing::Storable> {
        let mut locations = response.fields.get_all("content-location");
        let own = Cache::target_of(request, locations.next()?);
        let fits = |length| length <= self.0.store.object_max();
        if response.status != 200
            || own.as_deref() != Some(&*request.head.target)
            || locations.next().is_some()
            || !response.content_length().is_some_and(fits)
        {
            return None;
        }
        let exchanged = Exchanged {
            request_ms: posted.asked_ms,
            response_ms: self.0.clock.unix_ms(),
        };
        let content = fence::content_of(response);
        let (sent, rules) = (&posted.sent, &self.0.rules);
        let asked = (None, &content);
        storing::store_as(posted.hash, sent, response, asked, exchanged, rules)
            .ok()
            .filter(|stored| stored.explicit)
    }

    /// The place for a response to a POST; `None` without room, or where anything was purged since
    /// it was asked for.
    fn landing_for(&self, posted: &Posted) -> Option<Landing> {
        let store = &self.0.store;
        let object = store.create_since(posted.key.text(), posted.asked_seq)?;
        let place = TableKey {
            primary: posted.hash.0,
            variant: 0,
        };
        store.enter(place.primary, |locked| {
            locked.insert(place.variant, object.clone(), store.weight(&object.key));
        });
        let now_us = self.0.clock.monotonic_us();
        let whole = || (smallvec![0..OPEN], ());
        let ((), mut landings) = store.arrange(&object, place, now_us, |_| whole());
        landings.pop()
    }

    /// A flight whose request was sent already. It goes on for as long as somebody reads what it
    /// brings, as if it were billed to who has nothing left.
    fn flight_for(&self, posted: &Posted, landing: Landing) -> Flight {
        let nobody = Arc::<ClientBudget>::default();
        nobody.fetch(u64::MAX);
        Flight {
            charge: BudgetCharge::new(nobody, 0),
            cache: self.clone(),
            landing,
            asked: None,
            sent: posted.sent.clone(),
            leader_result: LeaderResult::new(false),
            skips: 0,
            brought: 0,
            known: ResourceHistory::default(),
        }
    }
}

/// Whether a field of a POST says nothing about what a GET would get: it is about the content sent,
/// or it is the Origin of the target itself, which browsers send with every POST.
fn is_for_post(name: &[u8], value: &[u8], head: &Head) -> bool {
    let own_origin = || {
        let host = value.splitn(2, |&b| b == b'/').nth(1);
        let host = host.and_then(|rest| rest.strip_prefix(b"/"));
        host.is_some_and(|host| host.eq_ignore_ascii_case(head.authority.as_bytes()))
    };
    hop::is_in(&OF_CONTENT, name) || (name.eq_ignore_ascii_case(b"origin") && own_origin())
}
