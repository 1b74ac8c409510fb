//! A flight: one fetch from the origin that many readers may ride.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::{Cache, decide};
use crate::handler::{Body, Cause, Exchange, Fault, Frame, Head, Request, Response};
use crate::http::Fields;
use crate::http::freshness::Exchanged;
use crate::http::key::KeyHash;
use crate::store::{Abandoned, Head as StoredHead, Landing, Place};
use crate::telemetry::Counters;

/// How long a response that could not be shared keeps its key from being tried again, so that
/// requests for it don't queue behind one another.
const REFUSED_MS: u64 = 10_000;
/// How long a flight waits for slow readers of what can't be kept, while a fast one waits for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes taken in before others have their turn.
const TURN_BYTES: usize = 1 << 20;

/// One fetch in progress. A task of the worker whose request launched it; it goes on when that
/// client leaves.
pub(super) struct Flight {
    cache: Cache,
    landing: Landing,
    /// What was sent: a variant is chosen by these fields, whatever the riders sent.
    sent: Fields,
    handover: Handover,
}

/// Launches the flight of the object that `landing` fills, on behalf of `request`: of that only
/// what the key holds and what the allow-list names is sent.
pub(super) fn launch(cache: Cache, landing: Landing, request: &Request, handover: Handover) {
    let names = cache
        .0
        .store
        .enter(landing.place().primary, |locked| locked.vary().cloned());
    let mut head = Head::new();
    head.target.push_str(&request.head.target);
    head.authority.push_str(&request.head.authority);
    let names = names.as_deref().unwrap_or_default();
    decide::flight_fields(&request.head.fields, names, &mut head.fields);
    let flight = Flight {
        cache,
        landing,
        sent: head.fields.clone(),
        handover,
    };
    let request = Request {
        head,
        body: Body::Empty,
        // Of the launching client only its address is told, as for a request of its own.
        peer: request.peer,
        interim: None,
    };
    tokio::task::spawn_local(flight.fly(request));
}

impl Flight {
    /// Fetches, to the end.
    async fn fly(self, request: Request) {
        let _counted = Counted::new(&self.cache);
        let asked_ms = self.cache.0.clock.unix_ms();
        match self.cache.0.origin.handle(request).wait().await {
            Err(fault) => self.fail(fault),
            Ok(response) => self.arrived(response, asked_ms).await,
        }
    }

    /// The response's head is here: whoever waits learns what it means.
    async fn arrived(mut self, mut response: Response, asked_ms: u64) {
        self.handover.note(&response);
        let now_ms = self.cache.0.clock.unix_ms();
        let options = &self.cache.0.options;
        let exchanged = Exchanged {
            request_ms: asked_ms,
            response_ms: now_ms,
        };
        match decide::store_as(
            KeyHash(self.landing.place().primary),
            &self.sent,
            &response,
            exchanged,
            options,
        ) {
            Err(word) => self.refuse(response, word),
            Ok(head) => match self.admit(head) {
                Err(word) => self.refuse(response, word),
                Ok(()) => self.receive(std::mem::take(&mut response.body)).await,
            },
        }
    }

    /// Files the object under its variant, makes room for it and opens it to readers.
    fn admit(&mut self, head: StoredHead) -> Result<(), &'static str> {
        let now_us = self.cache.0.clock.monotonic_us();
        let content = 0..head.length.unwrap_or(u64::MAX);
        // The first flight of an object brings what its response has.
        let _ = self.landing.accept(content, now_us);
        if let Some(length) = head.length {
            if length > self.cache.0.store.object_max() {
                return Err("too-large");
            }
            self.landing.reserve()?;
        }
        let Some(charge) = self.cache.0.store.charge_head(head.memory()) else {
            return Err("no-room");
        };
        self.file(&head);
        self.landing.open(Arc::new(head), charge, false);
        Ok(())
    }

    /// Under the Vary that the response names, the object belongs to the variant that the
    /// flight's own request selects.
    fn file(&mut self, head: &StoredHead) {
        let place = self.landing.place();
        let object = self.landing.object().clone();
        let to = head.vary.as_ref().map_or(0, |vary| vary.variant);
        let filed = self.cache.0.store.enter(place.primary, |locked| {
            locked.refile(
                place.variant,
                to,
                head.vary.as_ref().map(|vary| &vary.names),
                &object,
            )
        });
        // Else it was taken out meanwhile, by an eviction or because the resource changed: those
        // who ride may have it, nobody else will.
        if filed {
            self.landing.set_place(Place {
                variant: to,
                ..place
            });
        }
    }

    /// Takes the body in. Readers hear of progress before the flight waits for more.
    async fn receive(mut self, mut body: Body) {
        let mut turn = 0;
        loop {
            let landing = &mut self.landing;
            let frame = poll_fn(|cx| {
                let polled = body.poll_frame(cx);
                if polled.is_pending() {
                    landing.announce();
                }
                polled
            })
            .await;
            match frame {
                Some(Ok(Frame::Data(bytes))) => {
                    self.cache.0.counters.flight_bytes.add(bytes.len() as u64);
                    if self.take_in(&bytes).await.is_err() {
                        return self.fail(Cause::FetchAbandoned.into());
                    }
                    turn += bytes.len();
                    if turn >= TURN_BYTES {
                        turn = 0;
                        self.landing.announce();
                        tokio::task::yield_now().await;
                    }
                }
                // Trailers are not stored (RFC 9111 3: they may be left out).
                Some(Ok(Frame::Trailers(_))) => {}
                Some(Err(fault)) => return self.fail(fault),
                None => return self.landing.land(),
            }
        }
    }

    /// Writes to the store. Where it has no room, readers are waited for, but not for ever.
    async fn take_in(&mut self, bytes: &[u8]) -> Result<(), Abandoned> {
        let object = self.landing.object().clone();
        let now_us = self.cache.0.clock.monotonic_us();
        let mut writing = pin!(self.landing.write(bytes, now_us));
        loop {
            match tokio::time::timeout(PATIENCE, writing.as_mut()).await {
                Ok(result) => return result.map(|_| ()),
                Err(_) => object.leave_behind(),
            }
        }
    }

    fn fail(self, fault: Fault) {
        self.cache.0.counters.flights_failed.add(1);
        self.landing.fail(Arc::new(fault));
    }

    /// The response may not be shared. Who launched the flight may have it, if the same request
    /// would have been sent for it alone; the others part.
    fn refuse(self, response: Response, word: &'static str) {
        // A failing origin or a full store may be better in the next moment.
        let passing = word == "no-room" || response.status >= 500;
        let until_ms = match passing {
            true => 0,
            false => self.cache.0.clock.unix_ms() + REFUSED_MS,
        };
        self.handover.put(response);
        self.landing.refuse(word, until_ms);
    }
}

/// What a flight leaves for the request that launched it. Both are on the same worker.
#[derive(Clone)]
pub(super) struct Handover(Rc<Left>);

struct Left {
    /// Whether the request may have a response that can't be shared.
    may_take: bool,
    response: RefCell<Option<Response>>,
    exchange: RefCell<Option<Rc<Exchange>>>,
}

impl Handover {
    /// With nothing left yet.
    pub(super) fn new(may_take: bool) -> Handover {
        Handover(Rc::new(Left {
            may_take,
            response: RefCell::default(),
            exchange: RefCell::default(),
        }))
    }

    /// Leaves a response that can't be shared, if it may be taken and someone is there to take it.
    fn put(self, response: Response) {
        if self.0.may_take && Rc::strong_count(&self.0) > 1 {
            *self.0.response.borrow_mut() = Some(response);
        }
    }

    /// Leaves the record of the exchange.
    fn note(&self, response: &Response) {
        self.0.exchange.borrow_mut().clone_from(&response.exchange);
    }

    /// Takes the response.
    pub(super) fn take(&self) -> Option<Response> {
        self.0.response.borrow_mut().take()
    }

    /// The exchange with the origin, for the log.
    pub(super) fn exchange(&self) -> Option<Rc<Exchange>> {
        self.0.exchange.borrow().clone()
    }
}

/// Counts a flight for as long as it lasts, even if it panics.
struct Counted(Arc<Counters>);

impl Counted {
    fn new(cache: &Cache) -> Counted {
        let counters = cache.0.counters.clone();
        counters.flights.add(1);
        counters.flights_now.add(1);
        Counted(counters)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.flights_now.sub(1);
    }
}
