//! A ride: one request's way through an object. It hands out what is there, waits for what is on
//! its way, and has its demand ask for what nobody is bringing.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{self, Poll, ready};

use bytes::Bytes;

use super::demand::{Asked, Demand};
use crate::cache::fetch::leader_result::LeaderResult;
use crate::handler::{Fault, Request};
use crate::reason::Reason;
use crate::store::{Failure, Head, Next, Object, Opening, Phase, Reader};

/// One request's way through an object.
pub(in crate::cache) struct Ride {
    reader: Reader,
    /// What fetches more. Without one, everything is there and stays there.
    demand: Option<Box<Demand>>,
}

/// How the wait for a ride's first byte ended.
pub(in crate::cache) enum Met {
    /// It is there, or on its way under this head.
    Head(Arc<Head>),
    /// There is no such object any more, or never will be.
    Gone(Phase),
    /// The request is to be sent on by itself, for this reason.
    Forward(Reason),
    /// Another object is to take this one's place, fetched whole.
    Replace,
    /// Nobody can bring it.
    Failed(Fault),
}

impl Ride {
    /// Through an object that is complete and stays so.
    pub(in crate::cache) fn complete(object: &Arc<Object>) -> Ride {
        Ride {
            reader: object.reader(0),
            demand: None,
        }
    }

    /// Through an object that may have to be fetched, from where `want` begins.
    pub(in crate::cache) fn filling(
        object: &Arc<Object>,
        want: Range<u64>,
        demand: Demand,
    ) -> Ride {
        demand.leader.context.store.begin_ride(object);
        let mut ride = Ride {
            reader: object.reader(want.start),
            demand: Some(Box::new(demand)),
        };
        ride.limit(want);
        ride
    }

    /// What is read.
    pub(in crate::cache) fn object(&self) -> &Arc<Object> {
        self.reader.object()
    }

    /// Reads these bytes from here on, and nothing else.
    pub(in crate::cache) fn limit(&mut self, range: Range<u64>) {
        if self.reader.wanted() != range {
            self.reader.limit(range.start, range.end);
        }
        if let Some(demand) = &mut self.demand {
            demand.want(range);
        }
    }

    /// Bytes still to come, when known.
    pub(in crate::cache) fn remaining(&self) -> Option<u64> {
        self.reader.remaining()
    }

    pub(in crate::cache) fn demand(&mut self) -> Option<&mut Demand> {
        self.demand.as_deref_mut()
    }

    /// Whether this request launched a flight.
    pub(in crate::cache) fn launched(&self) -> bool {
        self.demand.as_ref().is_some_and(|demand| demand.launched)
    }

    /// Its response begins: it can't be sent on any more.
    pub(in crate::cache) fn begin(&mut self) {
        if let Some(demand) = &mut self.demand {
            demand.begun = true;
        }
    }

    /// Admitted for what lies ahead, whether the next byte is there or not.
    pub(in crate::cache) fn fetch_ahead(&mut self) {
        if let Some(demand) = &mut self.demand
            && !self.reader.wanted().is_empty()
        {
            // What this comes to is met when the byte is.
            let _ = demand.ask(&mut self.reader);
        }
    }

    /// Waits until the object's head is known, whatever it means for this request.
    pub(in crate::cache) async fn head(&mut self) -> Met {
        poll_fn(|cx| self.poll_head(cx)).await
    }

    fn poll_head(&mut self, cx: &mut task::Context<'_>) -> Poll<Met> {
        loop {
            match self.object().phase() {
                Phase::Awaiting => {}
                Phase::Open(head) => return Poll::Ready(Met::Head(head)),
                other => return Poll::Ready(Met::Gone(other)),
            }
            let Some(demand) = &mut self.demand else {
                return Poll::Ready(Met::Failed(self.fault()));
            };
            // The policy may not want this request to wait at all.
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

    /// Waits until the first byte is there, or on its way under a head that has been checked.
    pub(in crate::cache) async fn first_byte(&mut self) -> Met {
        poll_fn(|cx| self.poll_first_byte(cx)).await
    }

    fn poll_first_byte(&mut self, cx: &mut task::Context<'_>) -> Poll<Met> {
        loop {
            let Some(demand) = &mut self.demand else {
                return Poll::Ready(Met::Failed(self.fault()));
            };
            let asked = match self.reader.poll_opening(!demand.may_begin(), cx) {
                Poll::Ready(Opening::Here(head)) => return Poll::Ready(Met::Head(head)),
                Poll::Ready(Opening::Other(phase)) => return Poll::Ready(Met::Gone(phase)),
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

    /// What an asking means for a request that has not been answered; `None`: it waits on.
    fn met(&self, asked: Asked) -> Option<Met> {
        Some(match asked {
            Asked::Coming => return None,
            Asked::Forward(reason) => Met::Forward(reason),
            Asked::Replace => Met::Replace,
            Asked::Cut => Met::Failed(self.fault()),
        })
    }

    /// The next bytes, at most to the end of a page; `None` at the end of what is read.
    pub(in crate::cache) fn poll_next(
        &mut self,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Bytes, Fault>>> {
        loop {
            let asked = match (self.reader.poll_next(cx), &mut self.demand) {
                (Poll::Ready(Next::Bytes(bytes)), demand) => {
                    if let Some(demand) = demand {
                        demand.delivered(&mut self.reader, bytes.len() as u64);
                    }
                    return Poll::Ready(Some(Ok(bytes)));
                }
                (Poll::Ready(Next::End), _) => return Poll::Ready(None),
                (Poll::Ready(Next::Missing), None) => Asked::Cut,
                (Poll::Ready(Next::Missing), Some(demand)) => {
                    ready!(demand.poll_missing(&mut self.reader, cx))
                }
                (Poll::Pending, None) => return Poll::Pending,
                (Poll::Pending, Some(demand)) => {
                    ready!(demand.poll_again(cx));
                    // The byte is on its way, whatever this comes to.
                    let _ = demand.ask(&mut self.reader);
                    Asked::Coming
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
        failure.map_or(Reason::FetchAbandoned.into(), |failure| fault_of(&failure))
    }

    /// The request, to be sent on by itself or to look again.
    pub(in crate::cache) fn into_request(self) -> Option<(Request, LeaderResult)> {
        self.demand
            .map(|demand| (demand.leader.request, demand.leader.result))
    }
}

/// The fault that a flight put into the store, got out again.
pub(in crate::cache) fn fault_of(failure: &Failure) -> Fault {
    failure
        .downcast_ref::<Fault>()
        .copied()
        .unwrap_or_else(|| Reason::FetchAbandoned.into())
}
