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

use super::client_budget::{ClientBudget, Reading};
use super::leader_result::LeaderResult;
use super::{Cache, TableKey, decide, launch, resource_history};
use crate::fill::{self, Joinable, OPEN, Pace, Plan, Situation, Unsettled};
use crate::handler::Request;
use crate::http::vary::Codings;
use crate::reason::Reason;
use crate::store::{CLAIMS_MAX, Claim, Decision, Object, Phase, Reader, ResourceHistory, Seen};

/// Fetches that may fail in a row, at one place, before a body is cut.
const MISSES_MAX: u32 = 5;
/// Who got this much further has not missed in a row.
const PROGRESS: u64 = 64 << 10;
/// Who gets no further than this by a fetch is at the same place, and tries again so often.
const STEP: u64 = 4 << 10;
const TRIES_MAX: u32 = 8;
/// How long to wait for a place for one more flight.
const CROWDED: Duration = Duration::from_millis(50);
/// Flights of one worker and cache beyond which nobody gets more than one at a time.
pub(super) const FLIGHTS_MAX: u64 = 256;

/// What asking the policy came to.
pub(super) enum Asked {
    /// Something is on its way, or is to be waited for.
    Coming,
    Forward(Reason),
    Replace,
    Cut,
}

/// What a request needs to have more fetched.
pub(super) struct Demand {
    pub(super) cache: Cache,
    pub(super) request: Request,
    pub(super) place: TableKey,
    pub(super) codings: Option<Codings>,
    pub(super) history: ResourceHistory,
    pub(super) budget: Arc<ClientBudget>,
    /// Whether what it hands out is sent to the client.
    pub(super) settles: bool,
    pub(super) leader_result: LeaderResult,
    /// Whether it launched a flight.
    pub(super) launched: bool,
    pub(super) begun: bool,
    pace: Pace,
    /// Flights at once that it was allowed when it asked last.
    width: usize,
    _reading: Reading,
    /// All that is wanted, what was handed out of it included.
    whole_want: Range<u64>,
    /// When to ask again.
    again: Option<Pin<Box<Sleep>>>,
    /// Since when it waits for its next byte.
    waiting_since_us: Option<u64>,
    /// The block for which the policy was asked last.
    asked_block: Option<u64>,
    /// Whether the last asking found no place for one more flight.
    crowded: bool,
    /// Fetches that failed in a row, and where that was.
    misses: u32,
    missed_at: u64,
    /// How often it asked again at almost the same place, and where.
    tries: u32,
    stood_at: Option<u64>,
    /// Until then it does not ask for a byte that nobody brings.
    patience: Option<Pin<Box<Sleep>>>,
}

impl Demand {
    pub(super) fn new(
        cache: Cache,
        request: Request,
        place: TableKey,
        codings: Option<Codings>,
        history: ResourceHistory,
    ) -> Demand {
        let parts = &cache.0;
        let now_us = parts.clock.monotonic_us();
        let budget = parts
            .budgets
            .of(request.peer.client, parts.options.client_budget, now_us);
        let may_take = decide::may_take(&request.head.fields, &parts.rules);
        Demand {
            pace: Pace::new(parts.options.fill.parallel),
            budget,
            leader_result: LeaderResult::new(may_take),
            width: 1,
            _reading: parts.budgets.reading(),
            cache,
            request,
            place,
            codings,
            history,
            launched: false,
            begun: false,
            whole_want: 0..0,
            again: None,
            waiting_since_us: None,
            asked_block: None,
            crowded: false,
            misses: 0,
            missed_at: 0,
            tries: 0,
            stood_at: None,
            patience: None,
            settles: true,
        }
    }

    /// Admitted the policy what to do for the bytes that `reader` still wants, and does it: look,
    /// decide and claim are one critical section.
    pub(super) fn ask(&mut self, reader: &mut Reader) -> Asked {
        let cache = self.cache.clone();
        let parts = &cache.0;
        let (now_us, want) = (parts.clock.monotonic_us(), reader.wanted());
        let block = parts.options.fill.block;
        self.asked_block = Some(want.start / block);
        self.crowded = false;
        let (object, place) = (reader.object().clone(), self.place);
        for read in parts
            .store
            .claim_disk_reads(&object, place, want.clone(), now_us)
        {
            // What can't be had after all is asked for at once.
            self.stood_at = None;
            let clock = parts.clock.clone();
            tokio::task::spawn_local(read.run(move || clock.monotonic_us()));
        }
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
        let ahead = (self.width as u64).saturating_mul(block);
        reader.keep_until(want.start.saturating_add(ahead).min(want.end));
        for landing in landings {
            self.launched = true;
            launch::launch(self, landing);
        }
        let again = match plan {
            Plan::Fetch { again, .. } | Plan::Wait(again) => again,
            Plan::Forward(reason) => return Asked::Forward(reason),
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
                if !self.has_budget() && want != (0..OPEN) && !self.begun {
                    return Plan::Forward(Reason::Budget);
                }
                return Plan::Fetch {
                    ranges: smallvec![0..OPEN],
                    again: None,
                };
            }
            Phase::Awaiting => Joinable::Unknown,
            _ if self.begun && seen.brings(want.start) => return Plan::Wait(None),
            _ if self.begun => return Plan::Cut,
            _ => return Plan::Wait(None),
        };
        let flights: SmallVec<[fill::Flight; 4]> = seen
            .claims
            .iter()
            .map(|claim| flight_of(claim, now_us))
            .collect();
        let brought = seen.in_memory.within(self.whole_want.clone());
        let brought = brought.map(|range| range.end - range.start).sum();
        self.pace.observe(now_us, brought, flights.len());
        let parts = &self.cache.0;
        let spare = self.budget.spare(parts.options.client_budget, now_us);
        let (mut width, spare) = self.within_memory(spare);
        if seen.claims.len() >= CLAIMS_MAX / 2 {
            width = 1;
        }
        self.width = width;
        let situation = Situation {
            want,
            length: seen.length.or(self.history.length),
            have: seen.have,
            flights: &flights,
            joinable,
            unsettled: resource_history::unsettled(&self.history, parts.clock.unix_ms()),
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
            // It would be brought more than it asks for.
            Plan::Fetch { .. } if spare == 0 && seen.is_shattered() && !self.begun => {
                Plan::Forward(Reason::Budget)
            }
            Plan::Fetch { .. } if seen.is_full() => {
                self.crowded = true;
                match self.begun {
                    true => Plan::Wait(Some(CROWDED)),
                    false => Plan::Forward(Reason::Crowded),
                }
            }
            plan => plan,
        }
    }

    /// Flights at once and bytes ahead for this request: all who read share the memory there is,
    /// and what is fetched ahead of them all must fit in well.
    fn within_memory(&self, spare: u64) -> (usize, u64) {
        let parts = &self.cache.0;
        let block = parts.options.fill.block;
        let share = parts.store.limit() / parts.budgets.readers();
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

    /// Whether its client may have more fetched than it asks for.
    pub(super) fn has_budget(&self) -> bool {
        let parts = &self.cache.0;
        let now_us = parts.clock.monotonic_us();
        self.budget.spare(parts.options.client_budget, now_us) > 0
    }

    /// Other bytes are wanted from here on.
    pub(super) fn want(&mut self, range: Range<u64>) {
        self.asked_block = None;
        self.whole_want = range;
        self.misses = 0;
        self.stood_at = None;
        self.patience = None;
    }

    /// Whether the policy has not been asked about what is wanted now.
    pub(super) fn is_unasked(&self) -> bool {
        self.asked_block.is_none()
    }

    /// Whether ranges of this resource are not to be asked for.
    fn is_plain(&self) -> bool {
        self.history.avoids_ranges(self.cache.0.clock.unix_ms())
    }

    /// Whether its response may begin while the first byte is only on its way. Who may yet be sent
    /// on by itself waits for it.
    pub(super) fn may_begin(&self) -> bool {
        let lock = self.cache.0.options.fill.kind == fill::Kind::Lock;
        let settled = resource_history::unsettled(&self.history, self.cache.0.clock.unix_ms())
            == Unsettled::No;
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
                let why = match (self.misses > 0, self.begun, self.launched) {
                    (true, ..) => Reason::Resume,
                    (_, true, _) => Reason::Ahead,
                    (.., false) => Reason::FirstFetch,
                    _ => Reason::Gap,
                };
                ("fetch", why, ranges.clone())
            }
            Plan::Forward(why) => ("forward", *why, SmallVec::new()),
            Plan::Replace(why) => ("replace", *why, SmallVec::new()),
            Plan::Cut => ("cut", Reason::OutOfReach, SmallVec::new()),
        };
        object.note(Decision {
            unix_ms: self.cache.0.clock.unix_ms(),
            want: want.clone(),
            what,
            ranges,
            why,
        });
    }

    /// Nobody brings the next byte: has it fetched, but not for ever, and not at once where the last
    /// fetch of it failed.
    pub(super) fn poll_missing(
        &mut self,
        reader: &mut Reader,
        cx: &mut Context<'_>,
    ) -> Poll<Asked> {
        let at = reader.wanted().start;
        let mut tries = None;
        if let Some(patience) = &mut self.patience {
            ready!(patience.as_mut().poll(cx));
            self.patience = None;
        } else {
            tries = self.tries(at);
        }
        // Of all who waited one was the first to try again, and may have failed by now.
        let wait = self.retry_in();
        if wait.is_some() || (tries.is_some() && self.history.failures > 0) {
            if self.gives_up(at) {
                return Poll::Ready(Asked::Cut);
            }
        } else if tries.is_some_and(|tries| tries > TRIES_MAX) {
            return Poll::Ready(Asked::Cut);
        }
        // Where failures are known all who wait keep in step by them, and this one waits by itself
        // only where they are not.
        let by_itself = tries.filter(|_| self.history.failures == 0);
        if let Some(wait) = wait.or(by_itself.map(resource_history::backoff)) {
            return self.poll_patience(wait, cx);
        }
        match self.ask(reader) {
            // Others have all the flights that one object may have: one of them ends before long.
            Asked::Coming if self.crowded => {
                self.stood_at = None;
                self.poll_patience(CROWDED, cx)
            }
            asked => Poll::Ready(asked),
        }
    }

    fn poll_patience(&mut self, time: Duration, cx: &mut Context<'_>) -> Poll<Asked> {
        let mut patience = Box::pin(tokio::time::sleep(time));
        if patience.as_mut().poll(cx).is_ready() {
            cx.waker().wake_by_ref();
        }
        self.patience = Some(patience);
        Poll::Pending
    }

    /// How often it has asked for a byte at almost the same place before, if it did.
    fn tries(&mut self, at: u64) -> Option<u32> {
        match self
            .stood_at
            .is_some_and(|stood| at < stood.saturating_add(STEP))
        {
            true => self.tries += 1,
            false => self.tries = 0,
        }
        self.stood_at = Some(at);
        (self.tries > 0).then_some(self.tries)
    }

    /// How long nobody is to try again, since fetches failed.
    fn retry_in(&mut self) -> Option<Duration> {
        let parts = &self.cache.0;
        self.history = parts
            .store
            .enter(self.place.primary, |locked| locked.history());
        resource_history::retry_in(&self.history, parts.clock.unix_ms())
    }

    /// A fetch of what is wanted failed: whether that was once too often.
    fn gives_up(&mut self, at: u64) -> bool {
        if at >= self.missed_at.saturating_add(PROGRESS) {
            self.misses = 0;
        }
        self.missed_at = at;
        self.misses += 1;
        match self.begun {
            true => self.misses > MISSES_MAX,
            // Nobody is made to wait for an origin that just failed twice.
            false => self.history.failures >= 2,
        }
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
        self.patience = None;
        if self.settles {
            self.budget.settle(bytes);
        }
        let want = reader.wanted();
        let parts = &self.cache.0;
        if want.is_empty() || self.asked_block == Some(want.start / parts.options.fill.block) {
            return;
        }
        parts
            .store
            .touch_block(self.place, reader.object(), want.start);
        // What this comes to is met when the byte is.
        let _ = self.ask(reader);
    }
}

/// A claim as the policy sees it. Its rate is told once it can be: what came in the first moment, or
/// did not come, says little.
fn flight_of(claim: &Claim, now_us: u64) -> fill::Flight {
    const TELLING_US: u64 = 30_000;
    const TELLING_BYTES: u128 = 64 << 10;
    const LONG_US: u64 = 500_000;
    let since_us = now_us.saturating_sub(claim.head_us.unwrap_or(now_us));
    let brought = u128::from(claim.at - claim.start);
    let rate = (since_us >= LONG_US || (since_us >= TELLING_US && brought >= TELLING_BYTES))
        .then(|| u64::try_from(brought * 1_000_000 / u128::from(since_us)).unwrap_or(u64::MAX));
    fill::Flight {
        at: claim.at,
        end: claim.end,
        rate,
        idle: Duration::from_micros(now_us.saturating_sub(claim.progress_us)),
    }
}
