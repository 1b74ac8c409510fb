//! What has a request's missing bytes fetched: asks the fill policy, registers what it says, and
//! launches the flights.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tokio::time::Sleep;

use super::account::{Account, Reading};
use super::handover::Handover;
use super::{Cache, Place, decide, flight, lore};
use crate::fill::{self, Joinable, OPEN, Pace, Plan, Situation, Unsettled};
use crate::handler::Request;
use crate::http::vary::Codings;
use crate::store::{Claim, Decision, Lore, Object, Phase, Reader, Seen};

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

/// What asking the policy came to.
pub(super) enum Asked {
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
    pub(super) launched: bool,
    pub(super) begun: bool,
    pace: Pace,
    _reading: Reading,
    /// All that is wanted, what was handed out of it included.
    pub(super) whole_want: Range<u64>,
    /// When to ask again.
    again: Option<Pin<Box<Sleep>>>,
    /// Since when it waits for its next byte.
    waiting_since_us: Option<u64>,
    /// The block for which the policy was asked last.
    pub(super) asked_block: Option<u64>,
    pub(super) misses: u32,
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
            _reading: parts.accounts.reading(),
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
    pub(super) fn ask(&mut self, reader: &mut Reader) -> Asked {
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
        let (width, spare) = self.within_memory(spare);
        let situation = Situation {
            want,
            length: seen.length.or(self.lore.length),
            have: seen.have,
            flights: &flights,
            joinable,
            unsettled: lore::unsettled(&self.lore, parts.clock.unix_ms()),
            leads: self.launched,
            begun: self.begun,
            waited: Duration::from_micros(now_us - self.waiting_since_us.unwrap_or(now_us)),
            spare,
            width,
            whole_max: parts.store.object_max(),
        };
        match parts.fill.plan(&situation) {
            // Until the first flight has a head, nobody knows what may be put beside it.
            Plan::Fetch { .. } if joinable == Joinable::Unknown && !flights.is_empty() => {
                Plan::Wait(None)
            }
            plan => plan,
        }
    }

    /// Flights at once and bytes ahead for this request: all who read share the memory there is,
    /// and what is fetched ahead of them all must fit in well.
    fn within_memory(&self, spare: u64) -> (usize, u64) {
        let parts = &self.cache.0;
        let block = parts.options.fill.block;
        let share = parts.store.limit() / parts.accounts.readers();
        let width = match parts.counters.flights_now.get() >= FLIGHTS_MAX {
            true => 1,
            // The policy looks two blocks ahead for each flight.
            false => (share / (4 * block)).clamp(1, self.pace.width() as u64) as usize,
        };
        match share < 2 * block {
            true => (width, spare.min(share / 4)),
            false => (width, spare),
        }
    }

    /// Whether ranges of this resource are not to be asked for.
    fn is_plain(&self) -> bool {
        self.lore.is_plain(self.cache.0.clock.unix_ms())
    }

    /// Whether its response may begin while the first byte is only on its way. Who may yet be sent
    /// on by itself waits for it.
    pub(super) fn may_begin(&self) -> bool {
        let lock = self.cache.0.options.fill.kind == fill::Kind::Lock;
        let settled = lore::unsettled(&self.lore, self.cache.0.clock.unix_ms()) == Unsettled::No;
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
    pub(super) fn poll_missing(
        &mut self,
        reader: &mut Reader,
        cx: &mut Context<'_>,
    ) -> Poll<Asked> {
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
    pub(super) fn poll_again(&mut self, cx: &mut Context<'_>) -> Poll<()> {
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
    pub(super) fn delivered(&mut self, reader: &mut Reader, bytes: u64) {
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
