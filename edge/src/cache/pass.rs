//! Requests that go past the cache: sent on alone, with what their responses teach it.

use super::Cache;
use super::adopt::Posted;
use super::decide::storing;
use crate::handler::{Answer, Body, Fault, Pending, Request, Response};
use crate::http::freshness::Exchanged;
use crate::http::{CacheStatus, Fwd, Method, Outcome, hop};
use crate::store::{Phase, Place};

/// What a response to a request that was sent on alone may change.
enum Teaches {
    Nothing,
    /// It is unsafe: what is stored for its target may be outdated (RFC 9111 4.4).
    Unsafe(Request),
    /// POST may have a response for GET, too.
    Post(Posted),
    /// The head of what GET gets (RFC 9111 4.3.5).
    Head(Request, u64),
}

impl Cache {
    /// Sends the request to the origin on its own.
    pub(super) fn pass(&self, mut request: Request, status: CacheStatus) -> Answer {
        if request.head.method.is_safe() {
            // What the key does not hold is not acted upon here, shared or not.
            hop::strip_unkeyed(&mut request.head.fields);
        }
        let teaches = self.teaches(&request, status);
        let cache = self.clone();
        match self.0.origin.handle(request) {
            Answer::Ready(Err(fault)) => Answer::Ready(Err(fault)),
            Answer::Ready(Ok(response)) => match teaches {
                Teaches::Nothing => Answer::Ready(Ok(forwarded(response, status))),
                teaches => {
                    Answer::later(async move { cache.learn(teaches, response, status).await })
                }
            },
            Answer::Later(Pending { response, interim }) => Answer::Later(Pending {
                response: Box::pin(async move {
                    let response = response.await?;
                    cache.learn(teaches, response, status).await
                }),
                interim,
            }),
        }
    }

    fn teaches(&self, request: &Request, status: CacheStatus) -> Teaches {
        let kept = || Request {
            head: request.head.clone(),
            body: Body::Empty,
            peer: request.peer,
            interim: None,
        };
        match request.head.method {
            Method::Get | Method::Options | Method::Trace => Teaches::Nothing,
            // One that goes past the cache for another reason may get what is for its client alone.
            Method::Head if status.outcome != Outcome::Fwd(Fwd::Method) => Teaches::Nothing,
            Method::Head => Teaches::Head(kept(), self.0.clock.unix_ms()),
            Method::Post => match self.posted(request) {
                Some(posted) => Teaches::Post(posted),
                None => Teaches::Unsafe(kept()),
            },
            _ => Teaches::Unsafe(kept()),
        }
    }

    async fn learn(
        &self,
        teaches: Teaches,
        response: Response,
        status: CacheStatus,
    ) -> Result<Response, Fault> {
        match teaches {
            Teaches::Nothing => {}
            Teaches::Unsafe(request) => self.invalidate(&request, &response),
            Teaches::Post(posted) => {
                self.invalidate(&posted.request, &response);
                return self.adopt(posted, response, status).await;
            }
            Teaches::Head(request, asked_ms) => self.compare(&request, &response, asked_ms),
        }
        Ok(forwarded(response, status))
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
        let key = self.key(request);
        self.0.store.enter(key.0, |locked| locked.clear());
    }

    /// The response to a HEAD that was sent on: what is stored for GET is freshened by it if it is
    /// the same, and stale if it is not (RFC 9111 4.3.5).
    fn compare(&self, request: &Request, response: &Response, asked_ms: u64) {
        if response.status != 200 || request.head.fields.contains("authorization") {
            return;
        }
        let (key, now_ms) = (self.key(request), self.0.clock.unix_ms());
        let store = &self.0.store;
        let found = store.enter(key.0, |locked| {
            let variant = match locked.vary() {
                None => 0,
                Some(names) => {
                    let normal = self.0.rules.normal(None);
                    super::decide::variant(key, names, &request.head.fields, normal)
                }
            };
            let object = locked.find(variant)?;
            let primary = key.0;
            Some((object, Place { primary, variant }))
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
            Some(Ok(fresh)) => {
                let mut fresh = fresh.head;
                fresh.born_seq = head.born_seq;
                if let Some(charge) = store.charge_head(fresh.memory()) {
                    store.renew(place, &object, fresh.into(), charge);
                }
            }
            Some(Err(_)) => store.withdraw(place, &object),
            None => object.expire(&head, now_ms),
        }
    }
}

/// A response straight from the origin, with how it came about.
pub(super) fn forwarded(mut response: Response, mut status: CacheStatus) -> Response {
    status.fwd_status = Some(response.status);
    response.cache = Some(status);
    response
}
