//! A ride: one request's way through an object. It hands out what is there, waits for what is on
//! its way, and asks the fill policy for what nobody is bringing.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};
use tokio::time::Sleep;

use super::account::Account;
use super::flight::{self, Handover};
use super::{Cache, Place, decide, fault_of};
use crate::fill::{self, Joinable, OPEN, Pace, Plan, Situation, Unsettled};
use crate::handler::{Cause, Fault, Request};
use crate::http::vary::Codings;
use crate::store::{
    Claim, Decision, Failure, Head, Lore, Next, Object, Opening, Phase, Reader, Seen,
};

/// Fetches that may fail in a row, at one place, before a request is failed that has not been
/// answered yet; and before a body is cut.
const MISSES_MAX: u32 = 2;
const MISSES_BEGUN_MAX: u32 = 5;
/// From the second miss on, so much time passes before the next try; four times as much each time.
const BACKOFF: Duration = Duration::from_millis(25);
/// Who got this much further has not missed in a row.
const PROGRESS: u64 = 64 << 10;
/// Flights of one worker and cache beyond which nobody gets more than one at a time.
const FLIGHTS_MAX: u64 = 256;

/// One request's way through an object.
pub(super) struct Ride {
    reader: Reader,
    /// What fetches more. Without one, everything is there and stays there.
    filler: Option<Box<Filler>>,
}

/// How the wait for a ride's first byte ended.
pub(super) enum Met {
    /// It is there, or on its way under this head.
    Head(Arc<Head>),
    /// There is no such object any more, or never will be.
    Gone(Phase),
    /// The request is to be sent on by itself, for this reason.
    Forward(&'static str),
    /// Another object is to take this one's place, fetched whole.
    Replace,
    /// Nobody can bring it.
    Failed(Fault),
}

/// What asking the policy came to.
enum Asked {
    /// Something is on its way, or is to be waited for.
    Coming,
    Forward(&'static str),
    Replace,
    Cut,
}

/// What a request needs to have more fetched.
pub(super) struct Filler {
    pub(super) cache: Cache,
    pub(super) request: Request,
    pub(super) place: Place,
    pub(super) codings: Option<Codings>,
    pub(super) lore: Lore,
    pub(super) account: Option<Arc<Account>>,
    pub(super) handover: Handover,
    /// Whether it launched a flight.
    launched: bool,
    begun: bool,
    pace: Pace,
    /// All that is wanted, what was handed out of it included.
    whole_want: Range<u64>,
    /// When to ask again.
    again: Option<Pin<Box<Sleep>>>,
    /// Since when it waits for its next byte.
    waiting_since_us: Option<u64>,
    /// The block for which the policy was asked last.
    asked_block: Option<u64>,
    misses: u32,
    missed_at: u64,
    backoff: Option<Pin<Box<Sleep>>>,
}

impl Filler {
    pub(super) fn new(
        cache: Cache,
        request: Request,
        place: Place,
        codings: Option<Codings>,
        lore: Lore,
    ) -> Filler {
        let parts = &cache.0;
        let now_us = parts.clock.monotonic_us();
        let account = parts.accounts.of(
            request.peer.address.ip(),
            parts.options.client_budget,
            now_us,
        );
        let may_take = decide::may_take(&request.head.fields);
        Filler {
            pace: Pace::new(parts.options.fill.parallel),
            account: Some(account),
            handover: Handover::new(may_take),
            cache,
            request,
            place,
            codings,
            lore,
            launched: false,
            begun: false,
            whole_want: 0..0,
            again: None,
            waiting_since_us: None,
            asked_block: None,
            misses: 0,
            missed_at: 0,
            backoff: None,
        }
    }

    /// Asks the policy what to do for the bytes that `reader` still wants, and does it: look,
    /// decide and claim are one critical section.
    fn ask(&mut self, reader: &mut Reader) -> Asked {
        let cache = self.cache.clone();
        let parts = &cache.0;
        let (now_us, want) = (parts.clock.monotonic_us(), reader.wanted());
        let block = parts.options.fill.block;
        self.asked_block = Some(want.start / block);
        let (object, place) = (reader.object().clone(), self.place);
        let decide = |seen: &Seen<'_>| {
            let plan = self.plan(seen, want.clone(), now_us);
            let ranges = match &plan {
                Plan::Fetch { ranges, .. } => ranges.clone(),
                _ => SmallVec::new(),
            };
            (ranges, plan)
        };
        let (plan, landings) = parts.store.arrange(&object, place, now_us, decide);
        self.note(&object, &want, &plan);
        let ahead = (self.pace.width() as u64).saturating_mul(block);
        reader.keep_until(want.start.saturating_add(ahead).min(want.end));
        for landing in landings {
            self.launched = true;
            flight::launch(self, landing);
        }
        let again = match plan {
            Plan::Fetch { again, .. } | Plan::Wait(again) => again,
            Plan::Forward(word) => return Asked::Forward(word),
            Plan::Replace(_) => return Asked::Replace,
            Plan::Cut => return Asked::Cut,
        };
        self.again = again.map(|after| Box::pin(tokio::time::sleep(after)));
        Asked::Coming
    }

    /// The policy's plan, under the object's lock.
    fn plan(&mut self, seen: &Seen<'_>, want: Range<u64>, now_us: u64) -> Plan {
        let joinable = match seen.phase {
            Phase::Open(head) if head.joinable => Joinable::Yes,
            Phase::Open(_) => Joinable::No,
            // A range of it has proved to be of no use.
            Phase::Awaiting if self.is_plain() && seen.claims.is_empty() => {
                return Plan::Fetch {
                    ranges: smallvec![0..OPEN],
                    again: None,
                };
            }
            Phase::Awaiting => Joinable::Unknown,
            _ if self.begun => return Plan::Cut,
            _ => return Plan::Wait(None),
        };
        if seen.is_full() {
            return match self.begun {
                true => Plan::Cut,
                false => Plan::Forward("fragments"),
            };
        }
        let flights: SmallVec<[fill::Flight; 4]> = seen
            .claims
            .iter()
            .map(|claim| flight_of(claim, now_us))
            .collect();
        let brought = seen.have.within(self.whole_want.clone());
        let brought = brought.map(|range| range.end - range.start).sum();
        self.pace.observe(now_us, brought, flights.len());
        let parts = &self.cache.0;
        let spare = self.account.as_ref().map_or(u64::MAX, |account| {
            account.spare(parts.options.client_budget, now_us)
        });
        let busy = parts.counters.flights_now.get() >= FLIGHTS_MAX;
        let situation = Situation {
            want,
            length: seen.length.or(self.lore.length),
            have: seen.have,
            flights: &flights,
            joinable,
            unsettled: unsettled(&self.lore, parts.clock.unix_ms()),
            leads: self.launched,
            begun: self.begun,
            waited: Duration::from_micros(now_us - self.waiting_since_us.unwrap_or(now_us)),
            spare,
            width: if busy { 1 } else { self.pace.width() },
            whole_max: parts.store.object_max(),
        };
        let plan = parts.fill.plan(&situation);
        match &plan {
            // Until the first flight has a head, nobody knows what may be put beside it.
            Plan::Fetch { .. } if joinable == Joinable::Unknown && !flights.is_empty() => {
                Plan::Wait(None)
            }
            // A client whose budget is used up has no whole object fetched for a part of it.
            Plan::Fetch { ranges, .. }
                if spare == 0
                    && !self.begun
                    && ranges.iter().any(|range| range.end == OPEN)
                    && situation.want != (0..OPEN) =>
            {
                Plan::Forward("client-budget")
            }
            _ => plan,
        }
    }

    /// Whether ranges of this resource are not to be asked for.
    fn is_plain(&self) -> bool {
        self.lore.is_plain(self.cache.0.clock.unix_ms())
    }

    /// Whether its response may begin while the first byte is only on its way. Who may yet be sent
    /// on by itself waits for it.
    fn may_begin(&self) -> bool {
        let lock = self.cache.0.options.fill.kind == fill::Kind::Lock;
        let settled = unsettled(&self.lore, self.cache.0.clock.unix_ms()) == Unsettled::No;
        self.launched || (settled && !lock)
    }

    /// Notes what was decided, and why, for whoever inspects the object.
    fn note(&self, object: &Object, want: &Range<u64>, plan: &Plan) {
        let (what, why, ranges) = match plan {
            Plan::Wait(_) => return,
            // The beginning of an object nobody knows: no news, and there are many of those.
            Plan::Fetch { ranges, .. } if !self.begun && ranges.iter().all(|r| r.start == 0) => {
                return;
            }
            Plan::Fetch { ranges, .. } => {
                let why = match (self.misses > 1, self.begun, self.launched) {
                    (true, ..) => "resume",
                    (_, true, _) => "ahead",
                    (.., false) => "miss",
                    _ => "gap",
                };
                ("fetch", why, ranges.clone())
            }
            Plan::Forward(why) => ("forward", *why, SmallVec::new()),
            Plan::Replace(why) => ("replace", *why, SmallVec::new()),
            Plan::Cut => ("cut", "out-of-reach", SmallVec::new()),
        };
        object.note(Decision {
            unix_ms: self.cache.0.clock.unix_ms(),
            want: want.clone(),
            what,
            ranges,
            why,
        });
    }

    /// Nobody brings the next byte: asks for it, but not for ever.
    fn poll_missing(&mut self, reader: &mut Reader, cx: &mut Context<'_>) -> Poll<Asked> {
        if let Some(backoff) = &mut self.backoff {
            ready!(backoff.as_mut().poll(cx));
            self.backoff = None;
            return Poll::Ready(self.ask(reader));
        }
        let at = reader.wanted().start;
        if at >= self.missed_at.saturating_add(PROGRESS) {
            self.misses = 0;
        }
        self.missed_at = at;
        self.misses += 1;
        let most = match self.begun {
            true => MISSES_BEGUN_MAX,
            false => MISSES_MAX,
        };
        if self.misses > most {
            return Poll::Ready(Asked::Cut);
        }
        if let Some(n) = self.misses.checked_sub(3) {
            self.backoff = Some(Box::pin(tokio::time::sleep(BACKOFF * 4u32.pow(n))));
            return self.poll_missing(reader, cx);
        }
        Poll::Ready(self.ask(reader))
    }

    /// While the next byte is on its way: whether it is time to ask again.
    fn poll_again(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.waiting_since_us.is_none() {
            self.waiting_since_us = Some(self.cache.0.clock.monotonic_us());
        }
        match &mut self.again {
            None => Poll::Pending,
            Some(again) => {
                ready!(again.as_mut().poll(cx));
                self.again = None;
                Poll::Ready(())
            }
        }
    }

    /// Bytes have been handed out: in the next block the policy may want more ahead.
    fn delivered(&mut self, reader: &mut Reader, bytes: u64) {
        self.waiting_since_us = None;
        if let Some(account) = &self.account {
            account.settle(bytes);
        }
        let want = reader.wanted();
        let parts = &self.cache.0;
        if want.is_empty() || self.asked_block == Some(want.start / parts.options.fill.block) {
            return;
        }
        parts
            .store
            .touch_part(self.place, reader.object(), want.start);
        // What this comes to is met when the byte is.
        let _ = self.ask(reader);
    }
}

impl Ride {
    /// Through an object that is complete and stays so.
    pub(super) fn complete(object: &Arc<Object>) -> Ride {
        Ride {
            reader: object.reader(0),
            filler: None,
        }
    }

    /// Through an object that may have to be fetched, from where `want` begins.
    pub(super) fn filling(object: &Arc<Object>, want: Range<u64>, filler: Filler) -> Ride {
        let mut ride = Ride {
            reader: object.reader(want.start),
            filler: Some(Box::new(filler)),
        };
        ride.limit(want);
        ride
    }

    /// What is read.
    pub(super) fn object(&self) -> &Arc<Object> {
        self.reader.object()
    }

    /// Reads these bytes from here on, and nothing else.
    pub(super) fn limit(&mut self, range: Range<u64>) {
        if self.reader.wanted() != range {
            self.reader.limit(range.start, range.end);
        }
        if let Some(filler) = &mut self.filler {
            filler.asked_block = None;
            filler.whole_want = range;
        }
    }

    /// Bytes still to come, when known.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.reader.remaining()
    }

    pub(super) fn filler(&mut self) -> Option<&mut Filler> {
        self.filler.as_deref_mut()
    }

    /// Whether this request launched a flight.
    pub(super) fn launched(&self) -> bool {
        self.filler.as_ref().is_some_and(|filler| filler.launched)
    }

    /// It reads for nobody, ahead of those who will want the bytes: nobody is billed.
    pub(super) fn unbilled(&mut self) {
        if let Some(filler) = &mut self.filler {
            filler.account = None;
        }
    }

    /// Its response begins: it can't be sent on any more. Asks for what lies ahead.
    pub(super) fn begin(&mut self) {
        if let Some(filler) = &mut self.filler {
            filler.begun = true;
            filler.misses = 0;
            if !self.reader.wanted().is_empty() {
                let _ = filler.ask(&mut self.reader);
            }
        }
    }

    /// Waits until the object's head is known, whatever it means for this request.
    pub(super) async fn head(&mut self) -> Met {
        std::future::poll_fn(|cx| self.poll_head(cx, true)).await
    }

    /// Waits until the first byte is there, or on its way under a head that has been checked.
    pub(super) async fn first_byte(&mut self) -> Met {
        std::future::poll_fn(|cx| self.poll_head(cx, false)).await
    }

    fn poll_head(&mut self, cx: &mut Context<'_>, head_alone: bool) -> Poll<Met> {
        loop {
            let arrived = !head_alone && self.filler.as_ref().is_some_and(|f| !f.may_begin());
            let unasked = self.filler.as_mut().filter(|f| f.asked_block.is_none());
            let asked = match self.reader.poll_opening(arrived, cx) {
                // The policy may not want this request to wait at all.
                Poll::Pending | Poll::Ready(Opening::Missing(_)) if let Some(filler) = unasked => {
                    filler.ask(&mut self.reader)
                }
                Poll::Ready(Opening::Here(head)) => return Poll::Ready(Met::Head(head)),
                Poll::Ready(Opening::Missing(head)) if head_alone => {
                    return Poll::Ready(Met::Head(head));
                }
                Poll::Ready(Opening::Other(phase)) => return Poll::Ready(Met::Gone(phase)),
                Poll::Ready(Opening::Missing(_)) => match &mut self.filler {
                    None => Asked::Cut,
                    Some(filler) => ready!(filler.poll_missing(&mut self.reader, cx)),
                },
                Poll::Pending => match &mut self.filler {
                    None => return Poll::Pending,
                    Some(filler) => {
                        ready!(filler.poll_again(cx));
                        filler.ask(&mut self.reader)
                    }
                },
            };
            return Poll::Ready(match asked {
                Asked::Coming => continue,
                Asked::Forward(word) => Met::Forward(word),
                Asked::Replace => Met::Replace,
                Asked::Cut => Met::Failed(self.fault()),
            });
        }
    }

    /// The next bytes, at most to the end of a page; `None` at the end of what is read.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Fault>>> {
        loop {
            let asked = match (self.reader.poll_next(cx), &mut self.filler) {
                (Poll::Ready(Next::Bytes(bytes)), filler) => {
                    if let Some(filler) = filler {
                        filler.delivered(&mut self.reader, bytes.len() as u64);
                    }
                    return Poll::Ready(Some(Ok(bytes)));
                }
                (Poll::Ready(Next::End), _) => return Poll::Ready(None),
                (Poll::Ready(Next::Missing), None) => Asked::Cut,
                (Poll::Ready(Next::Missing), Some(filler)) => {
                    ready!(filler.poll_missing(&mut self.reader, cx))
                }
                (Poll::Pending, None) => return Poll::Pending,
                (Poll::Pending, Some(filler)) => {
                    ready!(filler.poll_again(cx));
                    filler.ask(&mut self.reader)
                }
            };
            if !matches!(asked, Asked::Coming) {
                return Poll::Ready(Some(Err(self.fault())));
            }
        }
    }

    /// Why its next byte does not come.
    fn fault(&self) -> Fault {
        let failure: Option<Failure> = self.object().failure();
        failure.map_or(Cause::FetchAbandoned.into(), |failure| fault_of(&failure))
    }

    /// The request, to be sent on by itself or to look again.
    pub(super) fn into_request(self) -> Option<(Request, Handover)> {
        self.filler.map(|filler| (filler.request, filler.handover))
    }
}

/// A claim as the policy sees it. Its rate is told once it has been at it for a moment.
fn flight_of(claim: &Claim, now_us: u64) -> fill::Flight {
    const TELLING_US: u64 = 30_000;
    let since_us = now_us.saturating_sub(claim.head_us.unwrap_or(now_us));
    let brought = u128::from(claim.at - claim.start);
    let rate = (since_us >= TELLING_US)
        .then(|| u64::try_from(brought * 1_000_000 / u128::from(since_us)).unwrap_or(u64::MAX));
    fill::Flight {
        at: claim.at,
        end: claim.end,
        rate,
        idle: Duration::from_micros(now_us.saturating_sub(claim.progress_us)),
    }
}

/// How settled a resource is: versions that changed under its readers lately.
fn unsettled(lore: &Lore, now_ms: u64) -> Unsettled {
    const REMEMBERED_MS: u64 = 10_000;
    const CHANGES: u8 = 2;
    if lore.changes < CHANGES || now_ms.saturating_sub(lore.since_ms) > REMEMBERED_MS {
        return Unsettled::No;
    }
    match lore.flapping {
        true => Unsettled::Flapping,
        false => Unsettled::Changing,
    }
}
