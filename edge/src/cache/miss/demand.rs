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

use super::retry::{Retry, Verdict};
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
    CLAIMS_MAX, Claim, Decision, DecisionKind, Object, Phase, Reader, ResourceHistory, Seen,
    TableKey,
};

/// Time after which a request tries again if its object has the largest permitted number of
/// flights.
const CROWDED: Duration = Duration::from_millis(50);
/// Number of flights of one worker and cache from which on each request gets only one at a time.
pub(in crate::cache) const FLIGHTS_MAX: u64 = 256;

/// The decision about a missing byte, for the request that waits for it.
pub(in crate::cache) enum Asked {
    /// The bytes are being fetched, or the request has to wait for them.
    Coming,
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
    /// Whether the bytes that are read are sent to the client, and so are credited to its budget.
    pub(in crate::cache) settles: bool,
    asking: Asking,
    waiting: Waiting,
    retry: Retry,
    _reading: Reading,
}

/// The last consultation of the policy, and the limits that applied.
struct Asking {
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
    /// Creates the demand of a request for the object at `place`. `known` is the history and Vary
    /// names, if a lookup has just read them.
    pub(in crate::cache) fn new(
        context: &Rc<Context>,
        request: Request,
        want: Range<u64>,
        place: TableKey,
        known: Option<Box<Known>>,
    ) -> Demand {
        let history = match &known {
            Some(known) => known.history,
            None => history_of(context, place),
        };
        let now_ms = context.worker.clock.unix_ms();
        let now_us = context.worker.clock.monotonic_us();
        let codings = context.codings(&request, &history, now_ms);
        let budgets = &context.clients.budgets;
        let budget = budgets.of(request.peer.client, context.options.client_budget, now_us);
        Demand {
            history,
            known,
            launched: false,
            begun: false,
            settles: true,
            asking: Asking {
                pace: Pace::new(context.options.fill.parallel),
                width: 1,
                whole_want: want,
                block: None,
                crowded: false,
            },
            waiting: Waiting::default(),
            retry: Retry::default(),
            _reading: budgets.reading(),
            leader: Leader {
                context: context.clone(),
                request,
                place,
                codings,
                budget,
                result: LeaderResult::default(),
            },
        }
    }

    /// Consults the policy about the bytes that `reader` still wants, and carries the plan out.
    /// Decision and claims are one critical section.
    pub(in crate::cache) fn ask(&mut self, reader: &mut Reader) -> Asked {
        let context = self.leader.context.clone();
        let (now_us, want) = (context.worker.clock.monotonic_us(), reader.wanted());
        let block = context.options.fill.block;
        self.asking.block = Some(want.start / block);
        self.asking.crowded = false;
        let known = self.known.take();
        let (object, place) = (reader.object().clone(), self.leader.place);
        let reads = context
            .store
            .claim_disk_reads(&object, place, want.clone(), now_us);
        for read in reads {
            // If the read fails, the bytes are fetched without a pause.
            self.retry.forget_position();
            let clock = context.worker.clock.clone();
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
        let (plan, landings) = context.store.arrange(&object, place, now_us, decide);
        self.note(&object, &want, &plan);
        let ahead = (self.asking.width as u64).saturating_mul(block);
        reader.keep_until(want.start.saturating_add(ahead).min(want.end));
        if !landings.is_empty() {
            self.launched = true;
            let known = known.unwrap_or_else(|| Box::new(Known::now(&context, place)));
            for landing in landings {
                launch(&self.leader, landing, &known);
            }
        }
        let again = match plan {
            Plan::Fetch { again, .. } | Plan::Wait(again) => again,
            Plan::Forward(reason) => return Asked::Forward(reason),
            Plan::Replace(_) => return Asked::Replace,
            Plan::Cut => return Asked::Cut,
        };
        self.waiting.ask_again = again.map(|after| Box::pin(tokio::time::sleep(after)));
        Asked::Coming
    }

    /// Makes the policy's plan. Called under the object's lock.
    fn plan(&mut self, seen: &Seen<'_>, want: Range<u64>, now_us: u64) -> Plan {
        let now_ms = self.leader.context.worker.clock.unix_ms();
        let avoids_ranges = resource_history::avoids_ranges(&self.history, now_ms);
        let unsettled = resource_history::unsettled(&self.history, now_ms);
        let joinable = match seen.phase {
            Phase::Open(head) if head.joinable => Joinable::Yes,
            Phase::Open(_) => Joinable::No,
            // Ranges of the resource proved unusable, so the whole is fetched.
            Phase::Awaiting if avoids_ranges && seen.claims.is_empty() => {
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
        self.observe_pace(seen, flights.len(), now_us);
        let context = &self.leader.context;
        let budget = context.options.client_budget;
        let spare = self.leader.budget.spare(budget, now_us);
        let (mut width, spare) = self.within_memory(spare);
        if seen.claims.len() >= CLAIMS_MAX / 2 {
            width = 1;
        }
        self.asking.width = width;
        let situation = Situation {
            want,
            length: seen.length.or(self.history.length),
            have: seen.have,
            flights: &flights,
            joinable,
            unsettled,
            leads: self.launched,
            begun: self.begun,
            waited: Duration::from_micros(now_us - self.waiting.since_us.unwrap_or(now_us)),
            spare,
            width,
            whole_max: context.store.object_max(),
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
                self.asking.crowded = true;
                match self.begun {
                    true => Plan::Wait(Some(CROWDED)),
                    false => Plan::Forward(Reason::Crowded),
                }
            }
            plan => plan,
        }
    }

    /// Records for the pace how many of the wanted bytes have arrived.
    fn observe_pace(&mut self, seen: &Seen<'_>, flights: usize, now_us: u64) {
        let arrived = seen.in_memory.within(self.asking.whole_want.clone());
        let arrived = arrived.map(|range| range.end - range.start).sum();
        self.asking.pace.observe(now_us, arrived, flights);
    }

    /// Limits this request's flights and bytes ahead by memory: all readers share the memory of the
    /// store, and the bytes fetched ahead for all of them must fit.
    fn within_memory(&self, spare: u64) -> (usize, u64) {
        let context = &self.leader.context;
        let block = context.options.fill.block;
        let share = context.store.limit() / context.clients.budgets.readers();
        let width = match context.worker.counters.flights_now.get() >= FLIGHTS_MAX {
            true => 1,
            // The policy plans two blocks ahead for each flight.
            false => (share / (4 * block)).clamp(1, self.asking.pace.width() as u64) as usize,
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

    /// Sets the range that is wanted from now on.
    pub(in crate::cache) fn want(&mut self, range: Range<u64>) {
        self.asking.block = None;
        self.asking.whole_want = range;
        self.retry = Retry::default();
    }

    /// Whether the policy has not been consulted about the wanted range.
    pub(in crate::cache) fn is_unasked(&self) -> bool {
        self.asking.block.is_none()
    }

    /// Whether the response may begin before its first byte was received. A request that may still
    /// be forwarded by itself has to wait for that byte.
    pub(in crate::cache) fn may_begin(&self) -> bool {
        let context = &self.leader.context;
        let settled = || {
            let now_ms = context.worker.clock.unix_ms();
            resource_history::unsettled(&self.history, now_ms) == Unsettled::No
        };
        self.launched || (context.options.fill.kind != fill::Kind::Lock && settled())
    }

    /// Notes the decision and its reason in the object, for inspection.
    fn note(&self, object: &Object, want: &Range<u64>, plan: &Plan) {
        let (kind, why, ranges) = match plan {
            Plan::Wait(_) => return,
            // Fetching the start of an object without a head is too frequent to be worth noting.
            Plan::Fetch { ranges, .. } if !self.begun && ranges.iter().all(|r| r.start == 0) => {
                return;
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
            Plan::Cut => (DecisionKind::Cut, Reason::OutOfReach, SmallVec::new()),
        };
        object.note(Decision {
            unix_ms: self.leader.context.worker.clock.unix_ms(),
            want: want.clone(),
            kind,
            ranges,
            why,
        });
    }

    /// Handles a wanted byte that no flight fetches: has it fetched, after a pause if its last
    /// fetch failed. The number of tries is bounded.
    pub(in crate::cache) fn poll_missing(
        &mut self,
        reader: &mut Reader,
        cx: &mut task::Context<'_>,
    ) -> Poll<Asked> {
        let at = reader.wanted().start;
        let tries = ready!(self.retry.poll_pause(at, cx));
        let context = &self.leader.context;
        self.history = history_of(context, self.leader.place);
        // A flight launched now must not use the older history of the lookup.
        self.known = None;
        let now_ms = context.worker.clock.unix_ms();
        let verdict = self
            .retry
            .judge((at, tries), self.begun, &self.history, now_ms);
        match verdict {
            Verdict::GiveUp => return Poll::Ready(Asked::Cut),
            Verdict::Wait(time) => {
                self.retry.begin_pause(time, cx);
                return Poll::Pending;
            }
            Verdict::Try => {}
        }
        match self.ask(reader) {
            // Other requests use all flights of this object, and one of these flights ends soon.
            Asked::Coming if self.asking.crowded => {
                self.retry.forget_position();
                self.retry.begin_pause(CROWDED, cx);
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

    /// Counts bytes that the reader has returned. At the beginning of the next block the policy is
    /// consulted, which may fetch further ahead.
    pub(in crate::cache) fn delivered(&mut self, reader: &mut Reader, bytes: u64) {
        self.waiting.since_us = None;
        self.retry.progressed();
        if self.settles {
            self.leader.budget.settle(bytes);
        }
        let want = reader.wanted();
        let context = &self.leader.context;
        if want.is_empty() || self.asking.block == Some(want.start / context.options.fill.block) {
            return;
        }
        let store = &context.store;
        store.touch_block(self.leader.place, reader.object(), want.start);
        // A plan without a fetch matters only when the reader gets to the missing byte.
        let _ = self.ask(reader);
    }
}

/// Describes a claim to the policy. A flight's rate is reported only after some time or bytes,
/// since the first bytes say little about it.
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

/// Reads the history of a resource from the table.
fn history_of(context: &Context, table_key: TableKey) -> ResourceHistory {
    let primary = table_key.primary;
    context.store.enter(primary, |locked| locked.history())
}
