//! A flight: one fetch from the origin, of a whole object or of a range, that many readers may
//! share.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::leader_result::LeaderResult;
use super::rated_body::body_of;
use crate::cache::client_budget::BudgetCharge;
use crate::cache::context::Context;
use crate::cache::decide::fence::{self, Further, Meaning, Source};
use crate::cache::decide::shared_request::{Carries, LeaderShare, MayTake};
use crate::cache::decide::storing;
use crate::cache::lookup::Known;
use crate::cache::resource_history;
use crate::fill::{Kind, OPEN};
use crate::handler::{Fault, Request, Response};
use crate::http::freshness::ExchangeTimes;
use crate::http::key::KeyHash;
use crate::http::{FieldBlock, Fields, Status};
use crate::reason::Reason;
use crate::store::{Head as StoredHead, Landing, Phase, ResourceHistory, Revalidated};
use crate::telemetry::Counters;

/// Largest number of bytes at the start of a response that are discarded to get to the wanted
/// bytes.
const SKIP_MAX: u64 = 64 << 20;
/// Number of bytes below which a partial response counts as much shorter than requested, if it is
/// shorter.
const SHORT_PART: u64 = 64 << 10;
/// Number of blocks that a plain GET fetches of content too large to be stored whole. The rest is
/// fetched block by block.
const FIRST_BLOCKS: u64 = 4;

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
    pub(in crate::cache) leader_share: LeaderShare,
    pub(in crate::cache) leader_result: LeaderResult,
    pub(in crate::cache) charge: BudgetCharge,
    /// Bytes of the response still to be discarded.
    pub(in crate::cache) skips: u64,
    /// The resource's history and Vary names when the flight was launched.
    pub(in crate::cache) known: Known,
    /// The generations of the old and of the new version, if this flight has found a new one. The
    /// change is noted in the history when the flight has received its claim: an origin that breaks
    /// bodies off may still serve the old version.
    pub(in crate::cache) changes: Option<[u64; 2]>,
}

impl Flight {
    /// Sends the request and receives the response.
    pub(in crate::cache) async fn run(self, request: Request) {
        let _counted = FlightCount::new(&self.context);
        let asked_ms = self.context.worker.clock.unix_ms();
        let answer = self.context.origin.handler.handle(request);
        let upstream = answer.upstream();
        let forward = |status, fields| self.forward_interim(status, fields);
        let answer = answer.wait_with(forward);
        let Some(result) = self.while_wanted(upstream.as_deref(), answer).await else {
            return self.landing.give_back();
        };
        match result {
            Err(fault) if fault.reason == Reason::FetchAbandoned => self.fail(fault),
            Err(fault) => {
                self.leader_result.note_failed(upstream);
                self.fail_or_serve_stale(fault);
            }
            Ok(response) => self.arrived(response, asked_ms).await,
        }
    }

    /// Passes a 1xx head on to the clients that wait for the final head. If the fetch carries
    /// credentials, only their owner receives the head.
    fn forward_interim(&self, status: Status, fields: FieldBlock) {
        if self.sent.contains("authorization") {
            return self.leader_result.forward_interim(status, fields);
        }
        let fields = match fields.contains("set-cookie") {
            true => fields.filtered(|line| line.lower_name != b"set-cookie"),
            false => fields,
        };
        self.landing.forward_interim(status, &fields);
    }

    /// Handles the head of the response, and wakes the requests that wait for it.
    async fn arrived(self, response: Response, asked_ms: u64) {
        self.leader_result.note(&response);
        let exchanged = ExchangeTimes {
            request_ms: asked_ms,
            response_ms: self.context.worker.clock.unix_ms(),
        };
        let other = match self.validates {
            true => self.handle_revalidation(response, exchanged),
            false => Some((self, response)),
        };
        let Some((mut flight, mut response)) = other else {
            return;
        };
        let meaning = flight.meaning(&response, exchanged);
        if fence::is_about_client(flight.source(), response.status, &meaning) {
            return flight.blame_client(response, &meaning);
        }
        match meaning {
            Meaning::Open(head, content) => match flight.open(head, content) {
                Ok(()) => flight.receive(body_of(&mut response)).await,
                Err(reason) => flight.refuse(response, reason),
            },
            Meaning::Join(head, content) => {
                if let Some(flight) = flight.join(head, content) {
                    flight.receive(body_of(&mut response)).await;
                }
            }
            Meaning::Supersede(head, content) => {
                if let Some(flight) = flight.supersede(head, content) {
                    flight.receive(body_of(&mut response)).await;
                }
            }
            Meaning::Finish(content) => {
                if let Some(flight) = flight.finish(content) {
                    flight.receive(body_of(&mut response)).await;
                }
            }
            Meaning::Refuse(reason) => flight.refuse(response, reason),
            Meaning::Retire(_) => flight.retire(),
            Meaning::Plain(_) => flight.avoid_ranges(),
            Meaning::Fail(reason) => flight.fail(reason.into()),
        }
    }

    /// The circumstances that say whether a response may be about the client.
    fn source(&self) -> Source {
        let object = self.landing.object();
        Source {
            carries: self.leader_share.carries,
            stored: self.validates || matches!(object.phase(), Phase::Open(_)),
        }
    }

    /// Decides what to do with the response, given the current phase of the object.
    fn meaning(&self, response: &Response, exchanged: ExchangeTimes) -> Meaning {
        let (content, rules) = (storing::content_of(response), &self.context.rules);
        let stored = storing::store_as(
            self.primary(),
            &self.sent,
            response,
            (self.asked.as_ref(), &content),
            exchanged,
            rules,
        );
        let born_seq = self.landing.born_seq();
        let stored = stored.map(|storable| {
            self.withhold(storable.withheld);
            let mut head = storable.head;
            head.born_seq = born_seq;
            if let (400.., Some(names)) = (head.status, &self.known.vary) {
                storing::limit_to_variant(&mut head, names, self.primary(), &self.sent, rules);
            }
            head
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

    /// Hands header fields that are not stored to the leader, if it may have them.
    pub(in crate::cache) fn withhold(&self, lines: Fields) {
        if self.leader_share.may_take != MayTake::Nothing && !lines.is_empty() {
            self.leader_result.withhold(lines);
        }
    }

    pub(in crate::cache) fn primary(&self) -> KeyHash {
        KeyHash(self.landing.table_key().primary)
    }

    /// Handles the object's first response: inserts the object into the table under its variant,
    /// makes room for it and opens it to readers. An error is the reason why it can't be stored.
    pub(in crate::cache) fn open(
        &mut self,
        mut head: StoredHead,
        content: Range<u64>,
    ) -> Result<(), Reason> {
        // Ranges of this resource proved unusable in an earlier response.
        let now_ms = self.context.worker.clock.unix_ms();
        head.joinable &=
            self.asked.is_some() || !resource_history::avoids_ranges(&self.known.history, now_ms);
        let Some(charge) = self.context.store.charge_head(head.memory()) else {
            return Err(Reason::NoRoom);
        };
        let now_us = self.context.worker.clock.monotonic_us();
        if self.landing.accept(content.clone(), now_us).is_err() {
            return Err(Reason::AnotherRange);
        }
        let sparse = self.reserve_room(&head, &content)?;
        if self.validates {
            self.replace_by(&head);
        }
        if self.asked.is_some() && !head.joinable {
            self.learn_plain();
        }
        let length = head.length;
        self.landing.open(Arc::new(head), charge, sparse);
        self.note_part(&content, length);
        Ok(())
    }

    /// Notes in the history whether a partial response with the bytes `content` is much shorter
    /// than requested.
    fn note_part(&self, content: &Range<u64>, length: Option<u64>) {
        let Some(asked) = &self.asked else {
            return;
        };
        let end = asked.end.min(length.unwrap_or(OPEN));
        let is_short = content.end < end && content.end.saturating_sub(asked.start) < SHORT_PART;
        if is_short {
            self.leader_result.note_short_part();
        }
        let may_teach = self.leader_share.carries != Carries::Client;
        if may_teach && (is_short || self.known.history.short_parts > 0) {
            let now_ms = self.context.worker.clock.unix_ms();
            self.change_history(|history| resource_history::note_part(history, is_short, now_ms));
        }
    }

    /// Makes room for a first response. Returns whether the object is stored block by block: an
    /// object is, if it is too large to be stored whole and other responses may add bytes to it.
    fn reserve_room(&mut self, head: &StoredHead, content: &Range<u64>) -> Result<bool, Reason> {
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
        let whole = match length <= self.context.object_max {
            true => self.landing.reserve(),
            false => Err(Reason::TooLarge),
        };
        match whole {
            Ok(()) => Ok(false),
            Err(_) if head.joinable && matches!(fill.kind, Kind::Slice | Kind::Auto) => {
                self.landing
                    .shorten((FIRST_BLOCKS * fill.block).min(length));
                if self.landing.reserve().is_err() {
                    self.landing.reserve_least();
                }
                Ok(true)
            }
            Err(reason) => Err(reason),
        }
    }

    /// Handles a response with more bytes of the stored version. Its head replaces the older one
    /// (RFC 9111 3.4), unless the fetch carried something of a client.
    fn join(mut self, mut head: StoredHead, content: Range<u64>) -> Option<Flight> {
        let whole = content == (0..head.length.unwrap_or(OPEN));
        self.note_part(&content, head.length);
        self = self.accept(content)?;
        if whole && self.landing.range().start > 0 {
            // The origin now ignores Range, so this response contains all missing bytes.
            self.landing.extend();
            if self.leader_share.carries != Carries::Client {
                self.learn_plain();
            }
        }
        head.joinable = true;
        if self.leader_share.carries != Carries::Client
            && let Some(charge) = self.context.store.charge_head(head.memory())
        {
            self.landing.renew(Arc::new(head), charge);
        }
        Some(self)
    }

    /// Handles a response with more bytes of a version that may not be stored any more: the
    /// object's current readers get the bytes, and the object leaves the table. If the fetch carried
    /// something of a client, the object stays.
    fn finish(self, content: Range<u64>) -> Option<Flight> {
        let flight = self.accept(content)?;
        if flight.leader_share.carries == Carries::Client {
            return Some(flight);
        }
        let (table_key, object) = (flight.landing.table_key(), flight.landing.object());
        let store = &flight.context.store;
        store.forget_head(table_key);
        store.withdraw(table_key, object);
        store.forget_head(table_key);
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
    /// the bytes. Requests whose response has begun go on with the current one, as long as it is
    /// kept.
    fn supersede(mut self, head: StoredHead, content: Range<u64>) -> Option<Flight> {
        let store = self.context.store.clone();
        let (table_key, object) = (self.landing.table_key(), self.landing.object().clone());
        let stored = object.head().map(|head| Revalidated { object, head });
        let old_generation = stored.as_ref().map_or(0, |old| old.head.generation);
        let generations = [old_generation, head.generation];
        let now_us = self.context.worker.clock.monotonic_us();
        let landing = stored.zip(self.landing.successor());
        let landing = landing.and_then(|(old, new)| {
            self.replace_version(&old, &new, &head).then_some(())?;
            let (_, mut landings) = store.arrange(&new, table_key, now_us, |_| {
                (smallvec::smallvec![content.clone()], ())
            });
            landings.pop()
        });
        let Some(landing) = landing else {
            self.retire();
            return None;
        };
        self.changes = Some(generations);
        let old = std::mem::replace(&mut self.landing, landing);
        old.fail(Arc::new(Fault::from(Reason::VersionChanged)));
        if self.open(head, content).is_err() {
            self.retire();
            return None;
        }
        Some(self)
    }

    pub(in crate::cache) fn change_history(&self, change: impl FnOnce(&mut ResourceHistory)) {
        let table_key = self.landing.table_key();
        self.context.change_history(table_key, change);
    }
}

/// Counts a flight in progress until the value is dropped, also if the flight panics.
struct FlightCount(Arc<Counters>);

impl FlightCount {
    fn new(context: &Context) -> FlightCount {
        let counters = context.worker.counters.clone();
        counters.flights.add(1);
        counters.flights_now.add(1);
        FlightCount(counters)
    }
}

impl Drop for FlightCount {
    fn drop(&mut self) {
        self.0.flights_now.sub(1);
    }
}
