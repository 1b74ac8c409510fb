//! Responses to POST that answer GET as well: those that name their target as what they represent,
//! and say how long they are fresh (RFC 9110 9.3.3).

use std::ops::Range;

use smallvec::smallvec;

use super::account::Bill;
use super::decide::asks::Asks;
use super::decide::{fence, storing};
use super::flight::Flight;
use super::handover::Handover;
use super::pass::forwarded;
use super::{Cache, Rode, Why};
use crate::fill::OPEN;
use crate::handler::{Body, Cause, Fault, Request, Response};
use crate::http::freshness::Exchanged;
use crate::http::key::KeyHash;
use crate::http::{CacheStatus, Fwd, Method};
use crate::store::{Landing, Lore, Place};

/// What is kept of a POST until its response is here.
pub(super) struct Posted {
    pub(super) request: Request,
    key: KeyHash,
    asked_ms: u64,
    /// When it was asked, in the order of purges.
    asked_seq: u64,
}

impl Cache {
    /// Remembers a POST whose response may be of use for GET.
    pub(super) fn posted(&self, request: &Request) -> Option<Posted> {
        let fields = &request.head.fields;
        let may = request.head.method == Method::Post
            && self.0.rules.get
            && !request.head.upgrade
            && !fields.contains("authorization");
        may.then(|| {
            let mut head = request.head.clone();
            head.method = Method::Get;
            head.fields.retain(|name, _| {
                !matches!(name, [b'i' | b'I', b'f' | b'F', b'-', ..])
                    && !name.eq_ignore_ascii_case(b"range")
            });
            let request = Request {
                head,
                body: Body::Empty,
                peer: request.peer,
                interim: None,
            };
            Posted {
                key: self.key(&request),
                asked_ms: self.0.clock.unix_ms(),
                asked_seq: self.0.store.moment(),
                request,
            }
        })
    }

    /// Stores the response to a POST, if it may answer GET, and gives it out from there.
    pub(super) async fn adopt(
        &self,
        posted: Posted,
        response: Response,
        status: CacheStatus,
    ) -> Result<Response, Fault> {
        let Some(landing) = self.adopting(&posted, &response) else {
            return Ok(forwarded(response, status));
        };
        let Posted {
            request,
            key,
            asked_ms,
            ..
        } = posted;
        let (object, place) = (landing.object().clone(), landing.place());
        let handover = Handover::new(true);
        let flight = self.flight_for(&request, landing, handover.clone());
        tokio::task::spawn_local(flight.arrived(response, asked_ms));
        let why = Why::New(Fwd::Method);
        match self
            .ride(request, &Asks::default(), key, &object, place, why)
            .await
        {
            Rode::Answered(result) => result,
            _ => match handover.take() {
                Some(response) => Ok(forwarded(response, status)),
                None => Err(Cause::FetchAbandoned.into()),
            },
        }
    }

    /// The place for a response to a POST, if it is one that may be stored.
    fn adopting(&self, posted: &Posted, response: &Response) -> Option<Landing> {
        let head = &posted.request.head;
        let own = response
            .fields
            .get("content-location")
            .is_some_and(|value| {
                Cache::target_of(&posted.request, value).is_some_and(|target| target == head.target)
            });
        if response.status != 200 || !own {
            return None;
        }
        let exchanged = Exchanged {
            request_ms: posted.asked_ms,
            response_ms: self.0.clock.unix_ms(),
        };
        let content = fence::content_of(response);
        let asked: (Option<&Range<u64>>, _) = (None, &content);
        let sent = &head.fields;
        let rules = &self.0.rules;
        let stored = storing::store_as(posted.key, sent, response, asked, exchanged, rules).ok()?;
        if !stored.explicit {
            return None;
        }
        let store = &self.0.store;
        let object = store.create_since(self.key_text(&posted.request).text(), posted.asked_seq)?;
        let place = Place {
            primary: posted.key.0,
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

    /// A flight whose request was sent already, just as it came.
    fn flight_for(&self, request: &Request, landing: Landing, handover: Handover) -> Flight {
        let filler = self.filler(
            Request {
                head: request.head.clone(),
                body: Body::Empty,
                peer: request.peer,
                interim: None,
            },
            landing.place(),
        );
        Flight {
            bill: Bill::new(filler.account.clone(), 0),
            cache: self.clone(),
            landing,
            asked: None,
            sent: request.head.fields.clone(),
            handover,
            skips: 0,
            brought: 0,
            known: Lore::default(),
        }
    }
}
