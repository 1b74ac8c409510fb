//! Requests that go past the cache: sent on alone, with what their responses teach it.

use std::sync::Arc;

use super::Cache;
use super::decide::{self, storing};
use super::post_response::Posted;
use crate::handler::{Answer, Body, Head, Request, Response};
use crate::http::freshness::Exchanged;
use crate::http::vary::{self, Codings};
use crate::http::{CacheStatus, Fields, Fwd, Method, Outcome, hop};
use crate::store::{Phase, RULES_MAX, Rule, Store, TableKey};

/// What a response to a request that was sent on alone may change.
enum Teaches {
    Nothing,
    /// It is unsafe: what is stored for its target may be outdated (RFC 9111 4.4). It may have a
    /// response for GET, too.
    Unsafe(Request, Option<Posted>),
    /// The head of what GET gets (RFC 9111 4.3.5).
    Head(Request, u64),
}

impl Cache {
    /// Sends the request to the origin on its own.
    pub(super) fn pass(&self, mut request: Request, status: CacheStatus) -> Answer {
        if request.head.method.is_safe() {
            // What the key does not hold is not acted upon here, shared or not.
            let fields = &mut request.head.fields;
            fields.retain(|name, _| !hop::is_unkeyed(name) || self.is_keyed(name));
        }
        let teaches = self.teaches(&mut request, status);
        let cache = self.clone();
        let answer = self.0.origin.handle(request);
        answer.map(move |result| result.map(|response| cache.learn(teaches, response, status)))
    }

    fn teaches(&self, request: &mut Request, status: CacheStatus) -> Teaches {
        match request.head.method {
            Method::Get | Method::Options | Method::Trace => Teaches::Nothing,
            Method::Head => {
                // One that goes past the cache for another reason, or is not sent as for all, may
                // get what is for its client alone.
                let head = &request.head;
                let method = status.outcome == Outcome::Fwd(Fwd::Method);
                if !method || !self.is_for_all(head, &head.fields) {
                    return Teaches::Nothing;
                }
                self.level(&mut request.head.fields);
                Teaches::Head(kept(request), self.0.clock.unix_ms())
            }
            _ => {
                let posted = self.posted(request);
                Teaches::Unsafe(kept(request), posted)
            }
        }
    }

    /// Whether a request with these fields, whatever its method, is sent on just as a fetch for all
    /// who ask for its target would be.
    pub(super) fn is_for_all(&self, head: &Head, fields: &Fields) -> bool {
        let rules = &self.0.rules;
        let own = |name| hop::is_unkeyed(name) && !self.is_keyed(name);
        if fields.contains("cookie") || fields.iter().any(|(name, _)| own(name)) {
            return false;
        }
        let mut get = head.clone();
        (get.method, get.fields) = (Method::Get, fields.clone());
        let admitted = decide::admission::admit(&get, true, rules);
        get.fields.retain(|name, _| !self.is_keyed(name));
        let mut target = String::new();
        self.shared_target(&get, &mut target);
        admitted.is_ok_and(|admitted| !admitted.authorized && !admitted.less)
            && decide::may_take(&get.fields, rules)
            && target == get.target
    }

    /// Has a request say what it accepts as a fetch for all does: what variants are told apart by,
    /// and no more.
    pub(super) fn level(&self, fields: &mut Fields) {
        let languages = self.0.rules.normal(None).languages;
        let codings = match self.requests_identity() {
            true => Codings::IDENTITY,
            false => Codings::of(fields),
        };
        fields.set("accept-encoding", codings.value());
        if !languages.is_empty() {
            let preferred = vary::preferred(fields, languages);
            fields.remove("accept-language");
            if let Some(language) = preferred {
                fields.append("accept-language", language);
            }
        }
    }

    /// Whether keys hold fields of this name.
    fn is_keyed(&self, name: &[u8]) -> bool {
        let mut names = self.0.rules.key.headers();
        names.any(|keyed| name.eq_ignore_ascii_case(keyed.as_bytes()))
    }

    fn learn(&self, teaches: Teaches, response: Response, status: CacheStatus) -> Response {
        match teaches {
            Teaches::Nothing => {}
            Teaches::Unsafe(request, posted) => {
                self.invalidate(&request, &response);
                if let Some(posted) = posted {
                    return self.store_post_response(&request, &posted, response, status);
                }
            }
            Teaches::Head(request, asked_ms) => self.compare(&request, &response, asked_ms),
        }
        forwarded(response, status)
    }

    /// A successful unsafe request may have changed what is stored for its target, and for what its
    /// response says is concerned (RFC 9111 4.4). All variants are taken out: what is being fetched
    /// for them is not stored any more.
    fn invalidate(&self, request: &Request, response: &Response) {
        if !(200..400).contains(&response.status) {
            return;
        }
        self.clear(request);
        for name in ["location", "content-location"] {
            let reference = response.fields.get(name);
            if let Some(target) = reference.and_then(|value| Cache::target_of(request, value)) {
                let mut head = request.head.clone();
                head.target = target;
                self.clear(&Request {
                    head,
                    body: Body::Empty,
                    peer: request.peer,
                    interim: None,
                });
            }
        }
    }

    fn clear(&self, request: &Request) {
        let (key, keys) = (self.key(request), &self.0.rules.key);
        let (scheme, head) = (request.peer.scheme, &request.head);
        let resource = keys.resource(scheme, &head.authority, head.path(), head.query());
        let (rule, now_ms) = (Rule::Resource(resource.0), self.0.clock.unix_ms());
        let durable = self.0.stores.each(|(store, _)| {
            clear_in(store, key.0);
            // Half of the rules there may be stay for those whom the purges are for. Where there are too
            // many already, only what the request itself would have been given is known to be gone.
            let hidden = keys.needs_fields() || store.is_loading();
            let purged = (hidden && store.rules() < RULES_MAX / 2)
                .then(|| store.purge(&rule, false, now_ms).ok())
                .flatten();
            purged.and_then(|number| store.durable_purge(&rule, None, number))
        });
        if let Some(durable) = durable.into_iter().flatten().next() {
            self.0.stores.log_in_background(durable);
        }
    }

    /// The response to a HEAD that was sent on: what is stored for GET is freshened by it if it is
    /// the same, and stale if it is not (RFC 9111 4.3.5).
    fn compare(&self, request: &Request, response: &Response, asked_ms: u64) {
        if response.status != 200 {
            return;
        }
        let (key, now_ms) = (self.key(request), self.0.clock.unix_ms());
        let store = &self.0.store;
        let found = store.enter(key.0, |locked| {
            let variant = match locked.vary() {
                None => 0,
                Some(names) => {
                    let normal = self.0.rules.normal(None);
                    decide::variant(key, names, &request.head.fields, normal)
                }
            };
            let object = locked.find(variant)?;
            let primary = key.0;
            Some((object, TableKey { primary, variant }))
        });
        let Some((object, place)) = found else {
            return;
        };
        let Phase::Open(head) = object.phase() else {
            return;
        };
        let exchanged = Exchanged {
            request_ms: asked_ms,
            response_ms: now_ms,
        };
        let sent = &request.head.fields;
        let fresh = storing::same_as(&head, response)
            .then(|| storing::freshened(key, sent, &head, response, exchanged, &self.0.rules));
        match fresh {
            // Of one that would be for other requests by now, or for nobody, a GET has to tell.
            Some(Ok(storing::Storable {
                head: mut fresh, ..
            })) if fresh.vary == head.vary => {
                fresh.born_seq = head.born_seq;
                if let Some(charge) = store.charge_head(fresh.memory()) {
                    store.renew(place, &object, fresh.into(), charge);
                }
            }
            _ => store.expire(place, &object, &head, now_ms),
        }
    }
}

/// Takes out all variants of a key, in memory and on volumes.
fn clear_in(store: &Arc<Store>, primary: u128) {
    store.enter(primary, |locked| {
        // In one, so that nobody restores it in between. By name, too: what is just being written
        // is not found yet.
        for (variant, _) in locked.all() {
            store.forget_head(TableKey { primary, variant });
        }
        store.forget_on_disk(primary);
        locked.clear();
    });
}

/// A request without its body.
fn kept(request: &Request) -> Request {
    Request {
        head: request.head.clone(),
        body: Body::Empty,
        peer: request.peer,
        interim: None,
    }
}

/// A response straight from the origin, with how it came about.
pub(super) fn forwarded(mut response: Response, mut status: CacheStatus) -> Response {
    status.fwd_status = Some(response.status);
    response.cache = Some(status);
    response
}
