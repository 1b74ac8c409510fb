//! A ride: reads an object for one request. The ride returns stored bytes, waits for bytes that are
//! being fetched, and has its demand fetch missing bytes.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{self, Poll, ready};

use bytes::Bytes;

use super::demand::{Decided, Demand};
use super::retry::{fault_of, is_replaced};
use crate::cache::fetch::leader_result::LeaderResult;
use crate::handler::{Fault, Receipt, Request};
use crate::reason::Reason;
use crate::store::{Failure, Head, Next, Object, Opening, Phase, Reader};

/// Reads an object for one request.
pub(in crate::cache) struct Ride {
    reader: Reader,
    /// Has missing bytes fetched. `None` if all bytes are in memory and stay there.
    demand: Option<Box<Demand>>,
}

/// Result of waiting for an object's head or for the first wanted byte.
pub(in crate::cache) enum HeadResult {
    /// The object has this head, and the first wanted byte is stored or being fetched.
    Head(Arc<Head>),
    /// The object has ended in this phase, without a head that can be used.
    Ended(Phase),
    /// The object's response is for another variant.
    OtherVariant,
    /// The request must be forwarded to the origin separately, for this reason.
    Forward(Reason),
    /// The object must be replaced by another one, which is fetched whole.
    Replace,
    /// The first wanted byte can't be fetched.
    Failed(Fault),
}

impl Ride {
    /// Creates a ride through an object that is complete and stays so.
    pub(in crate::cache) fn complete(object: &Arc<Object>) -> Ride {
        Ride {
            reader: object.reader(0),
            demand: None,
        }
    }

    /// Creates a ride through an object whose bytes may have to be fetched, from the start of
    /// `want`.
    pub(in crate::cache) fn filling(
        object: &Arc<Object>,
        want: Range<u64>,
        demand: Demand,
    ) -> Ride {
        Ride {
            reader: demand.leader.context.store.ride(object, want),
            demand: Some(Box::new(demand)),
        }
    }

    /// Makes this a ride that reads ahead, for no client.
    pub(in crate::cache) fn set_ahead(&mut self) {
        self.reader.set_ahead();
    }

    /// The object that is read.
    pub(in crate::cache) fn object(&self) -> &Arc<Object> {
        self.reader.object()
    }

    /// Sets the range that is read from now on.
    pub(in crate::cache) fn limit(&mut self, range: Range<u64>) {
        // `start` has consulted the policy about this range already.
        if self.reader.wanted() == range {
            return;
        }
        self.reader.limit(range.start, range.end);
        if let Some(demand) = &mut self.demand {
            demand.want(&range);
        }
    }

    /// Number of bytes still to be read, if known.
    pub(in crate::cache) fn remaining(&self) -> Option<u64> {
        self.reader.remaining()
    }

    pub(in crate::cache) fn demand(&mut self) -> Option<&mut Demand> {
        self.demand.as_deref_mut()
    }

    /// Returns the receipt that credits the client's budget with the bytes that it receives. `None`
    /// if the ride never has bytes fetched.
    pub(in crate::cache) fn receipt(&self) -> Option<Arc<dyn Receipt>> {
        let demand = self.demand.as_ref()?;
        Some(demand.leader.budget.receipt())
    }

    /// Whether this request launched a flight.
    pub(in crate::cache) fn launched(&self) -> bool {
        self.demand.as_ref().is_some_and(|demand| demand.launched)
    }

    /// Notes that the response begins. From now on it is too late to leave the shared fetch and to
    /// forward the request to the origin separately.
    pub(in crate::cache) fn begin(&mut self) {
        if let Some(demand) = &mut self.demand {
            demand.begun = true;
        }
    }

    /// Consults the policy about bytes ahead, whether the next byte is stored or not.
    pub(in crate::cache) fn fetch_ahead(&mut self) {
        if let Some(demand) = &mut self.demand
            && !self.reader.wanted().is_empty()
        {
            // Decisions other than to fetch take effect only when the reader gets to the missing
            // byte.
            let _ = demand.ask(&mut self.reader);
        }
    }

    /// Creates a ride as `filling` does, and waits until the object has a head, or ends without
    /// one.
    pub(in crate::cache) async fn to_head(
        object: &Arc<Object>,
        want: Range<u64>,
        demand: Demand,
    ) -> (Ride, HeadResult) {
        let mut ride = Ride::filling(object, want, demand);
        let met = poll_fn(|cx| ride.poll_head(cx)).await;
        (ride, met)
    }

    fn poll_head(&mut self, cx: &mut task::Context<'_>) -> Poll<HeadResult> {
        let met = self.poll_phase(cx);
        self.forward_interim();
        met
    }

    fn poll_phase(&mut self, cx: &mut task::Context<'_>) -> Poll<HeadResult> {
        loop {
            match self.object().phase() {
                Phase::Awaiting => {}
                Phase::Open(head) => return Poll::Ready(HeadResult::Head(head)),
                other => return Poll::Ready(HeadResult::Ended(other)),
            }
            let Some(demand) = &mut self.demand else {
                return Poll::Ready(HeadResult::Failed(self.fault()));
            };
            // The policy is consulted before the first wait, since it may want this request
            // forwarded instead.
            if !demand.is_unasked() {
                if self.reader.poll_opening(false, cx).is_ready() {
                    continue;
                }
                ready!(demand.poll_again(cx));
            }
            let asked = demand.ask(&mut self.reader);
            if let Some(met) = self.met(asked) {
                return Poll::Ready(met);
            }
        }
    }

    /// Passes 1xx heads that a flight has received on to the client. Callers have polled the reader
    /// before. If it waits, it is woken for every later head; called the other way round, a head that
    /// arrives on another worker between the two calls would wait for the final one.
    fn forward_interim(&mut self) {
        let request = self.demand.as_ref().map(|demand| &demand.leader.request);
        let Some(queue) = request.and_then(|request| request.interim.as_ref()) else {
            return;
        };
        let mut heads = self.reader.take_interim();
        while let Some((status, fields)) = heads.as_mut().and_then(|heads| heads.pop()) {
            queue.push(status, fields);
        }
    }

    /// Waits until the first byte of this range is stored, or is being fetched by a flight whose
    /// head was accepted. Then the response begins, and the policy is consulted about the bytes
    /// ahead.
    pub(in crate::cache) async fn start(&mut self, range: Range<u64>) -> HeadResult {
        if let Some(demand) = &mut self.demand
            && demand.want(&range)
        {
            self.reader.limit(range.start, range.end);
        }
        poll_fn(|cx| self.poll_start(cx)).await
    }

    fn poll_start(&mut self, cx: &mut task::Context<'_>) -> Poll<HeadResult> {
        let met = self.poll_first_byte(cx);
        self.forward_interim();
        met
    }

    fn poll_first_byte(&mut self, cx: &mut task::Context<'_>) -> Poll<HeadResult> {
        loop {
            let Some(demand) = &mut self.demand else {
                return Poll::Ready(HeadResult::Failed(self.fault()));
            };
            let asked = match self.reader.poll_opening(!demand.may_begin(), cx) {
                Poll::Ready(Opening::Ready(_)) if demand.asks_before_beginning() => {
                    demand.ask(&mut self.reader)
                }
                Poll::Ready(Opening::Ready(head)) => {
                    demand.begun = true;
                    // A plan without a fetch matters only when the reader gets to the missing byte.
                    let _ = demand.ask(&mut self.reader);
                    return Poll::Ready(HeadResult::Head(head));
                }
                Poll::Ready(Opening::Other(phase)) => return Poll::Ready(HeadResult::Ended(phase)),
                Poll::Ready(Opening::Missing)
                    if is_replaced(&demand.leader, self.reader.object()) =>
                {
                    return Poll::Ready(HeadResult::Ended(Phase::Retired));
                }
                Poll::Ready(Opening::Missing) => {
                    ready!(demand.poll_missing(&mut self.reader, cx))
                }
                Poll::Pending => {
                    if !demand.is_unasked() {
                        ready!(demand.poll_again(cx));
                    }
                    demand.ask(&mut self.reader)
                }
            };
            if let Some(met) = self.met(asked) {
                return Poll::Ready(met);
            }
        }
    }

    /// Translates the policy's decision for a request whose response has not begun. `None` if the
    /// request has to wait.
    fn met(&self, asked: Decided) -> Option<HeadResult> {
        Some(match asked {
            Decided::Wait => return None,
            Decided::Forward(reason) => HeadResult::Forward(reason),
            Decided::Replace => HeadResult::Replace,
            Decided::Cut => HeadResult::Failed(self.fault()),
        })
    }

    /// Polls for the next bytes, at most up to the end of a page. `None` at the end of the wanted
    /// range.
    pub(in crate::cache) fn poll_next(
        &mut self,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Bytes, Fault>>> {
        loop {
            let asked = match (self.reader.poll_next(cx), &mut self.demand) {
                (Poll::Ready(Next::Bytes(bytes)), demand) => {
                    if let Some(demand) = demand {
                        demand.delivered(&mut self.reader);
                    }
                    return Poll::Ready(Some(Ok(bytes)));
                }
                (Poll::Ready(Next::End), _) => return Poll::Ready(None),
                (Poll::Ready(Next::Missing), None) => Decided::Cut,
                (Poll::Ready(Next::Missing), Some(demand)) => {
                    ready!(demand.poll_missing(&mut self.reader, cx))
                }
                (Poll::Pending, None) => return Poll::Pending,
                (Poll::Pending, Some(demand)) => {
                    ready!(demand.poll_again(cx));
                    // The next byte is being fetched already, so a decision other than to fetch
                    // does not affect this request yet.
                    let _ = demand.ask(&mut self.reader);
                    Decided::Wait
                }
            };
            if !matches!(asked, Decided::Wait) {
                return Poll::Ready(Some(Err(self.fault())));
            }
        }
    }

    /// The reason why the next byte can't be read or fetched.
    fn fault(&self) -> Fault {
        let failure: Option<Failure> = self.object().failure();
        failure.map_or(Reason::FetchAbandoned.into(), |failure| fault_of(&failure))
    }

    /// Returns the request, to be forwarded separately or looked up again.
    pub(in crate::cache) fn into_request(self) -> Option<(Request, LeaderResult)> {
        self.demand
            .map(|demand| (demand.leader.request, demand.leader.result))
    }
}
