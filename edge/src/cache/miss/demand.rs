//! Demand: asks the fill policy which bytes to fetch for one request, claims them and launches
//! flights for them.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll, ready};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tokio::time::Sleep;

use super::retry::{Retry, ShortBodies, Verdict, is_change, is_replaced, without_another_fetch};
use crate::cache::client_budget::Reading;
use crate::cache::context::Context;
use crate::cache::fetch::launch::{Leader, launch};
use crate::cache::fetch::leader_result::LeaderResult;
use crate::cache::lookup::Known;
use crate::cache::resource_history;
use crate::fill::{self, Joinable, OPEN, Pace, Plan, Situation, Unsettled};
use crate::handler::Request;
use crate::reason::Reason;
use crate::store::{
    Arrangement, CLAIMS_MAX, Claim, Decision, DecisionKind, Landing, ObjectView, Phase, Reader,
    ResourceHistory, TableKey,
};

/// Time after which a request tries again if its object has the largest permitted number of
/// flights.
const CROWDED_RETRY: Duration = Duration::from_millis(50);
/// Number of flights of one worker and cache from which on each request gets only one at a time.
pub(in crate::cache) const FLIGHTS_MAX: u64 = 256;

/// The decision about a missing byte, for the request that waits for it.
pub(in crate::cache) enum Decided {
    /// The bytes are being fetched, or the request has to wait for them.
    Wait,
    Forward(Reason),
    Replace,
    Cut,
}

/// The bytes of an object that one request still wants, and the state of fetching them.
pub(in crate::cache) struct Demand {
    pub(in crate::cache) leader: Leader,
    history: ResourceHistory,
    /// The history and Vary names from the lookup, for a flight that is launched at once.
    known: Option<Box<Known>>,
    /// Whether this request launched a flight.
    pub(in crate::cache) launched: bool,
    /// Whether the response has begun. Then the request can't be passed to the origin any more.
    pub(in crate::cache) begun: bool,
    last: LastConsultation,
    waiting: Waiting,
    retry: Retry,
    short_bodies: ShortBodies,
    /// The flights that this request launched last.
    latest: SmallVec<[u64; 1]>,
    _reading: Reading,
}

/// The last consultation of the policy, and the limits that applied.
struct LastConsultation {
    pace: Pace,
    /// Number of flights at once that the last decision permitted.
    width: usize,
    /// The whole wanted range, including bytes that were sent already.
    whole_want: Range<u64>,
    /// The block for which the policy decided last.
    block: Option<u64>,
    /// Whether the object had the largest permitted number of flights.
    crowded: bool,
}

/// The wait for a byte that a flight is fetching.
#[derive(Default)]
struct Waiting {
    /// Start of the wait, in microseconds.
    since_us: Option<u64>,
    /// Timer after which the policy has to be consulted again.
    ask_again: Option<Pin<Box<Sleep>>>,
}

impl Demand {
    /// Creates the demand of a request for the object at `table_key`. `known` is the history and Vary
    /// names, if a lookup has just read them.
    pub(in crate::cache) fn new(
        context: &Rc<Context>,
        request: Request,
        want: Range<u64>,
        table_key: TableKey,
        known: Option<Box<Known>>,
    ) -> Demand {
        let history = match &known {
            Some(known) => known.history,
            None => history_of(context, table_key),
        };
        let now_ms = context.worker.clock.unix_ms();
        let now_us = context.worker.clock.monotonic_us();
        let codings = context.codings(&request, &history, now_ms);
        let result = LeaderResult::new(request.interim.clone());
        let budgets = &context.clients.budgets;
        let budget = budgets.of(request.peer.client, context.options.client_budget, now_us);
        Demand {
            history,
            known,
            launched: false,
            begun: false,
            last: LastConsultation {
                pace: Pace::new(context.options.fill.parallel),
                width: 1,
                whole_want: want,
                block: None,
                crowded: false,
            },
            waiting: Waiting::default(),
            retry: Retry::default(),
            short_bodies: ShortBodies::default(),
            latest: SmallVec::new(),
            _reading: budgets.reading(),
            leader: Leader {
                context: context.clone(),
                request,
                table_key,
                codings,
                budget,
                result,
            },
        }
    }

    /// Consults the policy about the bytes that `reader` still wants, and carries the plan out.
    /// Decision and claims are one critical section.
    pub(in crate::cache) fn ask(&mut self, reader: &mut Reader) -> Decided {
        let context = self.leader.context.clone();
        let (now_us, table_key) = (context.worker.clock.monotonic_us(), self.leader.table_key);
        let known = self.known.take();
        let decide = |seen: &ObjectView<'_>, want| self.decide(seen, want, now_us);
        let (plan, arranged) = context.store.arrange_for(reader, table_key, now_us, decide);
        for read in arranged.reads {
            // If the read fails, the bytes are fetched without a pause.
            self.retry.forget_position();
            let clock = context.worker.clock.clone();
            tokio::task::spawn_local(read.run(move || clock.monotonic_us()));
        }
        if !arranged.landings.is_empty() {
            let counters = &context.worker.counters;
            counters.flights_taken_over.add(arranged.takeovers);
            self.launched = true;
            self.latest = arranged.landings.iter().map(Landing::id).collect();
            let known = known.unwrap_or_else(|| Box::new(Known::now(&context, table_key)));
            for landing in arranged.landings {
                launch(&self.leader, landing, &known);
            }
        }
        if let Plan::Replace(Reason::LockAge) | Plan::Restart(Reason::LockAge) = plan {
            // The origin may never answer because of something that the fetch carried of its client.
            let now_ms = context.worker.clock.unix_ms();
            context.change_history(table_key, |history| {
                resource_history::distrust_clients(history, now_ms);
            });
        }
        let again = match plan {
            Plan::Fetch { again, .. } | Plan::Wait(again) => again,
            Plan::Forward(reason) => return Decided::Forward(reason),
            Plan::Replace(_) => return Decided::Replace,
            Plan::Restart(_) => {
                // The reader is woken when the flight has ended.
                reader.object().stop_flight_to(reader.wanted().start);
                Some(context.options.fill.lock_age)
            }
            Plan::Cut => return Decided::Cut,
        };
        self.waiting.ask_again = again.map(|after| Box::pin(tokio::time::sleep(after)));
        Decided::Wait
    }

    /// Decides about the wanted bytes. Called under the object's lock.
    fn decide(
        &mut self,
        seen: &ObjectView<'_>,
        want: Range<u64>,
        now_us: u64,
    ) -> (Arrangement, Plan) {
        let block = self.leader.context.options.fill.block;
        self.last.block = Some(want.start / block);
        self.last.crowded = false;
        let plan = self.plan(seen, want.clone(), now_us);
        let ahead = (self.last.width as u64).saturating_mul(block);
        let arrangement = Arrangement {
            ranges: match &plan {
                Plan::Fetch { ranges, .. } => ranges.clone(),
                _ => SmallVec::new(),
            },
            keep_until: want.start.saturating_add(ahead).min(want.end),
            note: self.note(want, &plan),
        };
        (arrangement, plan)
    }

    /// Makes the policy's plan. Called under the object's lock.
    fn plan(&mut self, seen: &ObjectView<'_>, want: Range<u64>, now_us: u64) -> Plan {
        let joinable = match seen.phase {
            Phase::Open(head) if head.joinable => Joinable::Yes,
            Phase::Open(_) => Joinable::No,
            // Ranges of the resource proved unusable, so the whole is fetched.
            Phase::Awaiting if seen.claims.is_empty() && self.avoids_ranges() => {
                if !self.has_budget() && want != (0..OPEN) && !self.begun {
                    return Plan::Forward(Reason::Budget);
                }
                return Plan::Fetch {
                    ranges: smallvec![0..OPEN],
                    again: None,
                };
            }
            Phase::Awaiting => Joinable::Unknown,
            _ if self.begun && seen.is_arriving(want.start) => return Plan::Wait(None),
            _ if self.begun => return Plan::Cut,
            _ => return Plan::Wait(None),
        };
        let flights: SmallVec<[fill::Flight; 4]> = seen
            .claims
            .iter()
            .map(|claim| flight_of(claim, now_us))
            .collect();
        self.observe_pace(seen, flights.len(), now_us);
        let context = &self.leader.context;
        let budget = context.options.client_budget;
        let spare = self.leader.budget.spare(budget, now_us);
        let (mut width, spare) = self.within_memory(spare);
        // Without Range, or with much shorter responses than requested, further flights only fetch
        // bytes again. After a new version was found, they fail like the last one.
        if self.wastes_flights(seen) || seen.claims.len() >= CLAIMS_MAX / 2 {
            width = 1;
        }
        self.last.width = width;
        let situation = Situation {
            want: want.clone(),
            length: seen.length.or(self.history.length),
            have: seen.have,
            flights: &flights,
            joinable,
            unsettled: self.unsettled(),
            leads: self.leads(seen, want.start),
            begun: self.begun,
            waited: Duration::from_micros(now_us - self.waiting.since_us.unwrap_or(now_us)),
            spare,
            width,
            whole_max: context.object_max,
        };
        match context.fill.plan(&situation) {
            // Without a head, it is unknown whether another response may add bytes.
            Plan::Fetch { .. } if joinable == Joinable::Unknown && !flights.is_empty() => {
                Plan::Wait(None)
            }
            // In a fragmented object, a claim would exceed the wanted range.
            Plan::Fetch { .. } if spare == 0 && seen.is_shattered() && !self.begun => {
                Plan::Forward(Reason::Budget)
            }
            Plan::Fetch { .. } if seen.is_full() => {
                self.last.crowded = true;
                match self.begun {
                    true => Plan::Wait(Some(CROWDED_RETRY)),
                    false => Plan::Forward(Reason::Crowded),
                }
            }
            plan => plan,
        }
    }

    /// Whether this request launched the flight for the byte `at`, or any flight if none is for it.
    fn leads(&self, seen: &ObjectView<'_>, at: u64) -> bool {
        let claim = seen.claims.iter().find(|claim| claim.contains(at));
        self.launched && claim.is_none_or(|claim| self.latest.contains(&claim.id))
    }

    /// Whether responses contain less than requested, or everything, or another version.
    fn wastes_flights(&self, seen: &ObjectView<'_>) -> bool {
        let short = self.history.short_parts > 0 || self.leader.result.had_short_part();
        short || self.avoids_ranges() || seen.failure.is_some_and(is_change)
    }

    fn avoids_ranges(&self) -> bool {
        let now_ms = self.leader.context.worker.clock.unix_ms();
        resource_history::avoids_ranges(&self.history, now_ms)
    }

    /// Whether the resource's version keeps changing. That no longer matters once the response has
    /// begun.
    fn unsettled(&self) -> Unsettled {
        let now_ms = self.leader.context.worker.clock.unix_ms();
        match self.begun {
            true => Unsettled::No,
            false => resource_history::unsettled(&self.history, now_ms),
        }
    }

    /// Records for the pace how many of the wanted bytes have arrived.
    fn observe_pace(&mut self, seen: &ObjectView<'_>, flights: usize, now_us: u64) {
        let arrived = seen.in_memory.within(self.last.whole_want.clone());
        let arrived = arrived.map(|range| range.end - range.start).sum();
        self.last.pace.observe(now_us, arrived, flights);
    }

    /// Limits this request's flights and bytes ahead by memory: all readers share the memory of the
    /// store, and the bytes fetched ahead for all of them must fit.
    fn within_memory(&self, spare: u64) -> (usize, u64) {
        let context = &self.leader.context;
        let block = context.options.fill.block;
        let share = context.options.memory / context.clients.budgets.readers();
        let width = match context.worker.counters.flights_now.get() >= FLIGHTS_MAX {
            true => 1,
            // The policy plans two blocks ahead for each flight.
            false => (share / (4 * block)).clamp(1, self.last.pace.width() as u64) as usize,
        };
        match share < 2 * block {
            true => (width, spare.min(share / 4)),
            false => (width, spare),
        }
    }

    /// Whether the client's budget permits fetching more than the request wants.
    pub(in crate::cache) fn has_budget(&self) -> bool {
        let context = &self.leader.context;
        let now_us = context.worker.clock.monotonic_us();
        self.leader
            .budget
            .spare(context.options.client_budget, now_us)
            > 0
    }

    /// Sets the range that is wanted from now on. Returns whether it differs from the one before.
    pub(in crate::cache) fn want(&mut self, range: &Range<u64>) -> bool {
        self.last.block = None;
        let before = std::mem::replace(&mut self.last.whole_want, range.clone());
        let differs = before != *range;
        if differs {
            self.retry = Retry::default();
        }
        differs
    }

    /// Whether the policy has not been consulted about the wanted range.
    pub(in crate::cache) fn is_unasked(&self) -> bool {
        self.last.block.is_none()
    }

    /// Whether the policy must be consulted before the response begins, even if its first bytes are
    /// stored: the flight that fetches the others may be too old.
    pub(in crate::cache) fn asks_before_beginning(&self) -> bool {
        self.leader.context.options.fill.kind == fill::Kind::Lock && self.is_unasked()
    }

    /// Whether the response may begin before its first byte was received. A request that may still be forwarded
    /// separately has to wait for that byte.
    pub(in crate::cache) fn may_begin(&self) -> bool {
        let kind = self.leader.context.options.fill.kind;
        self.launched || (kind != fill::Kind::Lock && self.unsettled() == Unsettled::No)
    }

    /// The decision with its reason, to be noted in the object for inspection.
    fn note(&self, want: Range<u64>, plan: &Plan) -> Option<Decision> {
        let (kind, why, ranges) = match plan {
            Plan::Wait(_) => return None,
            // Fetching the start of an object without a head is too frequent to be worth noting.
            Plan::Fetch { ranges, .. } if !self.begun && ranges.iter().all(|r| r.start == 0) => {
                return None;
            }
            Plan::Fetch { ranges, .. } => {
                let why = match (self.retry.is_resuming(), self.begun, self.launched) {
                    (true, ..) => Reason::Resume,
                    (_, true, _) => Reason::Ahead,
                    (.., false) => Reason::FirstFetch,
                    _ => Reason::Gap,
                };
                (DecisionKind::Fetch, why, ranges.clone())
            }
            Plan::Forward(why) => (DecisionKind::Forward, *why, SmallVec::new()),
            Plan::Replace(why) => (DecisionKind::Replace, *why, SmallVec::new()),
            Plan::Restart(why) => (DecisionKind::Replace, *why, SmallVec::new()),
            Plan::Cut => (DecisionKind::Cut, Reason::OutOfReach, SmallVec::new()),
        };
        Some(Decision {
            unix_ms: self.leader.context.worker.clock.unix_ms(),
            want,
            kind,
            ranges,
            why,
        })
    }

    /// Handles a wanted byte that no flight fetches: has it fetched, after a pause if its last
    /// fetch failed. The number of tries is bounded.
    pub(in crate::cache) fn poll_missing(
        &mut self,
        reader: &mut Reader,
        cx: &mut task::Context<'_>,
    ) -> Poll<Decided> {
        let at = reader.wanted().start;
        let tries = ready!(self.retry.poll_pause(at, cx));
        let context = &self.leader.context;
        self.history = history_of(context, self.leader.table_key);
        // A flight launched now must not use the older history of the lookup.
        self.known = None;
        let now_ms = context.worker.clock.unix_ms();
        let is_final = match self.begun {
            true => None,
            false => without_another_fetch(&self.leader, &self.history),
        };
        let short = self.leader.result.take_short_bodies(at);
        let verdict = match is_final {
            Some(verdict) => verdict,
            None if self.short_bodies.count(at, short) => Verdict::GiveUp,
            // A second try would find the new version again.
            None if tries.is_some() && is_replaced(&self.leader, reader.object()) => {
                Verdict::GiveUp
            }
            None => {
                let setback = reader.setback();
                self.retry.judge((at, tries), self.begun, &setback, now_ms)
            }
        };
        match verdict {
            Verdict::Forward(reason) => return Poll::Ready(Decided::Forward(reason)),
            Verdict::GiveUp => return Poll::Ready(Decided::Cut),
            Verdict::Wait(time) => {
                self.retry.begin_pause(time, cx);
                return Poll::Pending;
            }
            Verdict::Try => {}
        }
        match self.ask(reader) {
            // The object has the largest permitted number of flights. The request tries again after a pause, when one
            // of them may have ended.
            Decided::Wait if self.last.crowded => {
                self.retry.forget_position();
                self.retry.begin_pause(CROWDED_RETRY, cx);
                Poll::Pending
            }
            asked => Poll::Ready(asked),
        }
    }

    /// Waits for the timer after which the policy has to be consulted again.
    pub(in crate::cache) fn poll_again(&mut self, cx: &mut task::Context<'_>) -> Poll<()> {
        if self.waiting.since_us.is_none() {
            self.waiting.since_us = Some(self.leader.context.worker.clock.monotonic_us());
        }
        match &mut self.waiting.ask_again {
            None => Poll::Pending,
            Some(again) => {
                ready!(again.as_mut().poll(cx));
                self.waiting.ask_again = None;
                Poll::Ready(())
            }
        }
    }

    /// Notes that the reader has returned bytes. At the beginning of the next block the policy is
    /// consulted, which may fetch further ahead.
    pub(in crate::cache) fn delivered(&mut self, reader: &mut Reader) {
        self.waiting.since_us = None;
        self.retry.progressed();
        let want = reader.wanted();
        let context = &self.leader.context;
        if want.is_empty() || self.last.block == Some(want.start / context.options.fill.block) {
            return;
        }
        let store = &context.store;
        store.touch_block(self.leader.table_key, reader.object(), want.start);
        // Decisions other than to fetch take effect only when the reader gets to the missing byte.
        let _ = self.ask(reader);
    }
}

/// Describes a claim to the policy. A flight's rate is reported only after some time or bytes,
/// since the first bytes say little about it.
fn flight_of(claim: &Claim, now_us: u64) -> fill::Flight {
    const MEASURE_MIN_US: u64 = 30_000;
    const MEASURE_MIN_BYTES: u128 = 64 << 10;
    const MEASURE_MAX_US: u64 = 500_000;
    let since_us = now_us.saturating_sub(claim.head_us.unwrap_or(now_us));
    let received = u128::from(claim.at - claim.start);
    let rate = (since_us >= MEASURE_MAX_US
        || (since_us >= MEASURE_MIN_US && received >= MEASURE_MIN_BYTES))
        .then(|| u64::try_from(received * 1_000_000 / u128::from(since_us)).unwrap_or(u64::MAX));
    fill::Flight {
        at: claim.at,
        end: claim.end,
        rate,
        idle: Duration::from_micros(now_us.saturating_sub(claim.progress_us)),
    }
}

/// Reads the history of a resource from the table.
fn history_of(context: &Context, table_key: TableKey) -> ResourceHistory {
    let primary = table_key.primary;
    context.store.enter(primary, |locked| locked.history())
}
