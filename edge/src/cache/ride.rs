//! A ride: one request's way through an object. It hands out what is there, waits for what is on
//! its way, and has its filler ask for what nobody is bringing.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::fault_of;
use super::filler::{Asked, Filler};
use super::handover::Handover;
use crate::handler::{Cause, Fault, Request};
use crate::store::{Failure, Head, Next, Object, Opening, Phase, Reader};

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
