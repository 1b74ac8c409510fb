//! A flight: one fetch from the origin, of a whole object or of a range, that many readers may
//! share.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Duration;

use super::leader_result::LeaderResult;
use crate::cache::client_budget::BudgetCharge;
use crate::cache::context::Context;
use crate::cache::decide::fence::{self, Further, Meaning};
use crate::cache::decide::storing;
use crate::cache::resource_history;
use crate::fill::{Kind, OPEN};
use crate::handler::{Body, Fault, Frame, Piece, Request, Response};
use crate::http::Fields;
use crate::http::freshness::Exchanged;
use crate::http::key::KeyHash;
use crate::reason::Reason;
use crate::store::{
    Abandoned, Head as StoredHead, Landing, Object, Phase, Progress, ResourceHistory, TableKey,
};
use crate::telemetry::Counters;

/// Longest time that a flight waits for slow readers of content that is not stored, while a fast
/// reader waits for the flight.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest number of bytes at the start of a response that are discarded to get to the wanted
/// bytes.
const SKIP_MAX: u64 = 64 << 20;
/// Number of blocks that a plain GET fetches of content too large to be stored whole. The rest is
/// fetched block by block.
const BEGINNING: u64 = 4;
/// Bytes received before other tasks of the worker get their turn.
const TURN_BYTES: u64 = 1 << 20;

/// One fetch in progress. A flight is a task on the worker whose request launched it, and goes on
/// when that client leaves.
pub(in crate::cache) struct Flight {
    pub(in crate::cache) context: Rc<Context>,
    pub(in crate::cache) landing: Landing,
    /// The requested range, `None` for a plain GET.
    pub(in crate::cache) asked: Option<Range<u64>>,
    /// The header fields of the fetch. They choose the variant, whatever the riders' requests
    /// contain.
    pub(in crate::cache) sent: Fields,
    /// Whether the fetch validates a stored response.
    pub(in crate::cache) validates: bool,
    pub(in crate::cache) leader_result: LeaderResult,
    pub(in crate::cache) charge: BudgetCharge,
    /// Bytes of the response still to be discarded.
    pub(in crate::cache) skips: u64,
    pub(in crate::cache) brought: u64,
    /// The resource's history when the flight was launched.
    pub(in crate::cache) known: ResourceHistory,
}

impl Flight {
    /// Sends the request and receives the response.
    pub(in crate::cache) async fn fly(self, request: Request) {
        let _counted = Counted::new(&self.context);
        let asked_ms = self.context.worker.clock.unix_ms();
        match self.context.origin.handler.handle(request).wait().await {
            Err(fault) => self.fall(fault),
            Ok(response) => self.arrived(response, asked_ms).await,
        }
    }

    /// Handles the head of the response, and wakes the requests that wait for it.
    async fn arrived(self, response: Response, asked_ms: u64) {
        self.leader_result.note(&response);
        let exchanged = Exchanged {
            request_ms: asked_ms,
            response_ms: self.context.worker.clock.unix_ms(),
        };
        let other = match self.validates {
            true => self.uphold(response, exchanged),
            false => Some((self, response)),
        };
        let Some((mut flight, mut response)) = other else {
            return;
        };
        match flight.meaning(&response, exchanged) {
            Meaning::Open(head, content) => match flight.open(head, content) {
                Ok(()) => flight.receive(std::mem::take(&mut response.body)).await,
                Err(reason) => flight.refuse(response, reason),
            },
            Meaning::Join(head, content) => {
                if let Some(flight) = flight.join(head, content) {
                    flight.receive(std::mem::take(&mut response.body)).await;
                }
            }
            Meaning::Supersede(head, content) => {
                if let Some(flight) = flight.supersede(head, content) {
                    flight.receive(std::mem::take(&mut response.body)).await;
                }
            }
            Meaning::Finish(content) => {
                if let Some(flight) = flight.finish(content) {
                    flight.receive(std::mem::take(&mut response.body)).await;
                }
            }
            Meaning::Refuse(reason) => flight.refuse(response, reason),
            Meaning::Retire(_) | Meaning::Plain(_) if flight.is_about_credentials() => {
                let fault = Fault::from(Reason::UnexpectedStatus);
                flight.landing.fail(Arc::new(fault));
            }
            Meaning::Retire(_) => flight.retire(),
            Meaning::Plain(_) => flight.plainly(),
            Meaning::Fail(cause) => flight.fail(cause.into()),
        }
    }

    /// Whether the fetch carried credentials. Its response may then concern only the owner of the
    /// credentials.
    pub(in crate::cache) fn has_credentials(&self) -> bool {
        self.sent.contains("authorization")
    }

    /// Whether the response may concern only the credentials that the fetch carried, although other
    /// requests read the object. Their reads must go on.
    fn is_about_credentials(&self) -> bool {
        self.has_credentials() && matches!(self.landing.object().phase(), Phase::Open(_))
    }

    /// Decides what to do with the response, given the current phase of the object.
    fn meaning(&self, response: &Response, exchanged: Exchanged) -> Meaning {
        let content = fence::content_of(response);
        let stored = storing::store_as(
            self.primary(),
            &self.sent,
            response,
            (self.asked.as_ref(), &content),
            exchanged,
            &self.context.rules,
        );
        let born_seq = self.landing.born_seq();
        let stored = stored.map(|storable| {
            self.leader_result.withhold(storable.withheld);
            StoredHead {
                born_seq,
                ..storable.head
            }
        });
        match self.landing.object().phase() {
            Phase::Awaiting => fence::first(self.asked.as_ref(), response.status, content, stored),
            Phase::Open(is) => {
                let further = Further {
                    wanted: self.landing.range().start,
                    status: response.status,
                    ranged: self.asked.is_some(),
                    generation: match &stored {
                        Ok(head) => head.generation,
                        Err(_) => storing::generation(self.primary(), response, &content),
                    },
                };
                fence::further(&further, content, stored, &is)
            }
            // The object is no longer looked up. Its readers may still get the bytes of other
            // flights.
            _ => Meaning::Fail(Reason::FetchAbandoned),
        }
    }

    pub(in crate::cache) fn primary(&self) -> KeyHash {
        KeyHash(self.landing.table_key().primary)
    }

    /// Handles the object's first response: files the object under its variant, makes room for it
    /// and opens it to readers. An error is the reason why it can't be stored.
    pub(in crate::cache) fn open(
        &mut self,
        mut head: StoredHead,
        content: Range<u64>,
    ) -> Result<(), Reason> {
        // Ranges of this resource proved unusable in an earlier response.
        let now_ms = self.context.worker.clock.unix_ms();
        head.joinable &=
            self.asked.is_some() || !resource_history::avoids_ranges(&self.known, now_ms);
        let Some(charge) = self.context.store.charge_head(head.memory()) else {
            return Err(Reason::NoRoom);
        };
        let now_us = self.context.worker.clock.monotonic_us();
        if self.landing.accept(content.clone(), now_us).is_err() {
            return Err(Reason::AnotherRange);
        }
        let sparse = self.room(&head, &content)?;
        if self.validates {
            self.replace();
        }
        self.file(&head);
        if self.asked.is_some() && !head.joinable {
            self.learn_plain();
        }
        self.landing.open(Arc::new(head), charge, sparse);
        Ok(())
    }

    /// Makes room for a first response. Returns whether the object is stored block by block: an
    /// object is, if it is too large to be stored whole and other responses may add bytes to it.
    fn room(&mut self, head: &StoredHead, content: &Range<u64>) -> Result<bool, Reason> {
        let store = &self.context.store;
        let Some(length) = head.length else {
            return Ok(false); // room is made as it comes
        };
        let fill = &self.context.options.fill;
        if content.end - content.start < length || (self.asked.is_some() && head.joinable) {
            return match self.landing.reserve() {
                Ok(()) => Ok(head.joinable && length > fill.block),
                Err(_) if head.joinable => {
                    self.landing.reserve_least();
                    Ok(true)
                }
                Err(reason) => Err(reason),
            };
        }
        let whole = match length <= store.object_max() {
            true => self.landing.reserve(),
            false => Err(Reason::TooLarge),
        };
        match whole {
            Ok(()) => Ok(false),
            Err(_) if head.joinable && matches!(fill.kind, Kind::Slice | Kind::Auto) => {
                self.landing.shorten((BEGINNING * fill.block).min(length));
                if self.landing.reserve().is_err() {
                    self.landing.reserve_least();
                }
                Ok(true)
            }
            Err(reason) => Err(reason),
        }
    }

    /// Handles a response with more bytes of the stored version. Its head replaces the older one
    /// (RFC 9111 3.4).
    fn join(mut self, mut head: StoredHead, content: Range<u64>) -> Option<Flight> {
        let whole = content == (0..head.length.unwrap_or(OPEN));
        self = self.accept(content)?;
        if whole && self.landing.range().start > 0 {
            // The origin now ignores Range, so this response contains all missing bytes.
            self.landing.extend();
            self.learn_plain();
        }
        head.joinable = true;
        if let Some(charge) = self.context.store.charge_head(head.memory()) {
            self.landing.renew(Arc::new(head), charge);
        }
        Some(self)
    }

    /// Handles a response with more bytes of a version that may not be stored any more: the
    /// object's current readers get the bytes, and the object leaves the table.
    fn finish(self, content: Range<u64>) -> Option<Flight> {
        let flight = self.accept(content)?;
        let (place, object) = (flight.landing.table_key(), flight.landing.object());
        let store = &flight.context.store;
        store.forget_head(place);
        store.withdraw(place, object);
        store.forget_head(place);
        Some(flight)
    }

    /// Accepts a further response. The claim is reduced to the bytes that the response contains.
    fn accept(mut self, content: Range<u64>) -> Option<Flight> {
        let wanted = self.landing.range().start;
        self.skips = wanted.saturating_sub(content.start);
        if self.skips > SKIP_MAX {
            self.retire();
            return None;
        }
        let now_us = self.context.worker.clock.monotonic_us();
        if self.landing.accept(content, now_us).is_err() {
            self.fail(Reason::UnexpectedStatus.into());
            return None;
        }
        Some(self)
    }

    /// Handles a response of another version: a new object replaces the current one and receives
    /// the bytes.
    fn supersede(mut self, head: StoredHead, content: Range<u64>) -> Option<Flight> {
        let store = self.context.store.clone();
        let (place, old) = (self.landing.table_key(), self.landing.object().clone());
        let generations = [old.head().map_or(0, |old| old.generation), head.generation];
        let new = self.landing.successor();
        let now_us = self.context.worker.clock.monotonic_us();
        let landing = new.and_then(|new| {
            store
                .supersede(place, &old, Some(new.clone()))
                .then_some(())?;
            let (_, mut landings) = store.arrange(&new, place, now_us, |_| {
                (smallvec::smallvec![content.clone()], ())
            });
            landings.pop()
        });
        let now_ms = self.context.worker.clock.unix_ms();
        self.change_history(|history| resource_history::changed(history, generations, now_ms));
        let Some(landing) = landing else {
            self.retire();
            return None;
        };
        let old = std::mem::replace(&mut self.landing, landing);
        old.fail(Arc::new(Fault::from(Reason::VersionChanged)));
        if self.open(head, content).is_err() {
            self.retire();
            return None;
        }
        Some(self)
    }

    /// Files the object under the variant that the fetch selects by the Vary of its response. The
    /// length of a large object is remembered for the next fetch.
    fn file(&mut self, head: &StoredHead) {
        let place = self.landing.table_key();
        // If an eviction or a new version removed the object from the table, it is not inserted
        // again: only its current riders read it.
        if let Some(place) = file(&self.context, place, self.landing.object(), head) {
            self.landing.set_table_key(place);
        }
    }

    pub(in crate::cache) fn change_history(&self, change: impl FnOnce(&mut ResourceHistory)) {
        let place = self.landing.table_key();
        self.context.store.enter(place.primary, |locked| {
            let mut history = locked.history();
            change(&mut history);
            locked.set_history(history);
        });
    }

    /// Receives the body. Readers are woken before the flight waits for more bytes.
    pub(in crate::cache) async fn receive(mut self, mut body: Body) {
        let mut turn = 0;
        loop {
            let came = poll_fn(|cx| self.poll_body(&mut body, cx)).await;
            let length = came.bytes();
            self.note_brought(length);
            if length > 0 && self.is_for_nobody() {
                return self.fail(Reason::FetchAbandoned.into());
            }
            let progress = match came {
                Came::Placed(_, progress) => progress,
                Came::Frame(Some(Ok(Frame::Data(bytes)))) => self.take_in(&bytes).await,
                // Trailers are not stored (RFC 9111 3 permits leaving them out).
                Came::Frame(Some(Ok(Frame::Trailers(_)))) => continue,
                // An origin never sends a file.
                Came::Frame(Some(Ok(Frame::File(_)))) => return self.fail(Reason::BadBody.into()),
                Came::Frame(Some(Err(fault))) => return self.fail(fault),
                Came::Frame(None) if self.is_all() => return self.landed(),
                Came::Frame(None) => return self.fail(Reason::BodyCut.into()),
            };
            match progress {
                Err(Abandoned) => return self.fail(Reason::FetchAbandoned.into()),
                Ok(Progress::Done) => return self.land(body).await,
                Ok(Progress::More) => {}
            }
            turn += length;
            if turn >= TURN_BYTES {
                turn = 0;
                self.landing.announce();
                tokio::task::yield_now().await;
            }
        }
    }

    /// Polls for the next part of the body, which is read directly into the object's memory if a
    /// page has room.
    fn poll_body(&mut self, body: &mut Body, cx: &mut task::Context<'_>) -> Poll<Came> {
        let clock = &self.context.worker.clock;
        let filled = self.landing.fill(
            || clock.monotonic_us(),
            |room| {
                let polled = body.poll_into(cx, room);
                (polled, room.filled().len() as u64)
            },
        );
        let polled = match filled {
            Some(((_, bytes), Some(progress))) => {
                return Poll::Ready(Came::Placed(bytes, progress));
            }
            Some(((polled, _), None)) => polled.map(|piece| match piece {
                Some(Ok(Piece::Frame(frame))) => Some(Ok(frame)),
                Some(Err(fault)) => Some(Err(fault)),
                Some(Ok(Piece::Placed)) | None => None,
            }),
            None => body.poll_frame(cx),
        };
        if polled.is_pending() {
            self.landing.announce();
        }
        polled.map(Came::Frame)
    }

    fn note_brought(&mut self, bytes: u64) {
        self.context.worker.counters.flight_bytes.add(bytes);
        self.charge.brought(bytes);
        self.brought += bytes;
        self.skips = self.skips.saturating_sub(bytes);
    }

    /// Whether the end of the body is also the end of the claim.
    fn is_all(&self) -> bool {
        let left = self.landing.range();
        left.end == OPEN || left.is_empty()
    }

    /// Whether the flight should stop early. That is so if the object has no readers, and either
    /// the client's budget is used up or the first wanted byte was not received yet.
    fn is_for_nobody(&self) -> bool {
        let parts = &self.context;
        let now_us = parts.worker.clock.monotonic_us();
        let dear = self.skips > 0 || self.charge.is_used_up(parts.options.client_budget, now_us);
        dear && !self.landing.object().is_read()
    }

    /// Writes bytes to the store. If the store has no room, the flight waits for readers. After
    /// `PATIENCE`, it drops slow readers that delay a faster one.
    async fn take_in(&mut self, bytes: &[u8]) -> Result<Progress, Abandoned> {
        let object = self.landing.object().clone();
        let now_us = self.context.worker.clock.monotonic_us();
        let mut writing = pin!(self.landing.write(bytes, now_us));
        loop {
            match tokio::time::timeout(PATIENCE, writing.as_mut()).await {
                Ok(result) => return result,
                Err(_) => object.leave_behind(),
            }
        }
    }
}

/// Result of polling for the next part of a response body.
enum Came {
    /// Number of bytes that were read directly into the object's memory.
    Placed(u64, Result<Progress, Abandoned>),
    /// The next frame, or `None` at the end of the body.
    Frame(Option<Result<Frame, Fault>>),
}

impl Came {
    fn bytes(&self) -> u64 {
        match self {
            Came::Placed(bytes, _) => *bytes,
            Came::Frame(Some(Ok(Frame::Data(bytes)))) => bytes.len() as u64,
            Came::Frame(_) => 0,
        }
    }
}

/// Files an object under the variant of its head. Returns its table key, `None` if the object is
/// not in the table.
pub(in crate::cache) fn file(
    context: &Context,
    place: TableKey,
    object: &Arc<Object>,
    head: &StoredHead,
) -> Option<TableKey> {
    let to = head.vary.as_ref().map_or(0, |vary| vary.variant);
    let names = head.vary.as_ref().map(|vary| &vary.names);
    let large = head.length > Some(context.store.object_max());
    let mut others = false;
    let filed = context.store.enter(place.primary, |locked| {
        others = locked.vary().is_some_and(|known| Some(known) != names);
        let mut history = locked.history();
        if large || history != ResourceHistory::default() {
            history.length = head.length;
            locked.set_history(history);
        }
        locked.refile(place.variant, to, names, object)
    });
    if others {
        // Records on volumes that were written under other Vary names can't be found any more.
        context.store.forget_on_disk(place.primary);
    }
    filed.then_some(TableKey {
        variant: to,
        ..place
    })
}

/// Counts a flight in progress until the value is dropped, also if the flight panics.
struct Counted(Arc<Counters>);

impl Counted {
    fn new(context: &Context) -> Counted {
        let counters = context.worker.counters.clone();
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
