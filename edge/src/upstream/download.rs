//! The content of a response while it comes from the origin.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::http1::Step;
use super::lease::Lease;
use super::worker::UpstreamWorker;
use crate::handler::{Body, BodyStream, Fault, Frame, Piece, UpstreamTimings};

/// The content still to come, and the connection over which it comes. Dropping it before the
/// content's end closes the connection.
pub(super) struct Download {
    pub(super) upstream: Rc<UpstreamWorker>,
    pub(super) lease: Option<Lease>,
    /// Content that came together with the head.
    pub(super) first: Option<Bytes>,
    /// Bytes still to come, if declared.
    pub(super) left: Option<u64>,
    pub(super) record: Rc<UpstreamTimings>,
    /// When the request was sent.
    pub(super) sent_us: u64,
}

impl Download {
    /// The next frame if it was received already. Ready with `None` at the end.
    fn poll_received(&mut self) -> Poll<Option<Result<Frame, Fault>>> {
        let Some(lease) = &mut self.lease else {
            return Poll::Ready(None);
        };
        match lease.step() {
            Ok(Step::More) => Poll::Pending,
            Ok(Step::Frame(frame)) => {
                if let Frame::Data(bytes) = &frame {
                    self.note_bytes(bytes.len() as u64);
                }
                if self.lease.as_ref().is_some_and(Lease::has_ended) {
                    self.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Ok(Step::End) => {
                self.finish();
                Poll::Ready(None)
            }
            Err(fault) => Poll::Ready(Some(Err(self.fail(fault)))),
        }
    }

    /// The content as a body: bytes if all of it came together with the head, as small content does,
    /// else a stream.
    pub(super) fn into_body(mut self) -> Result<Body, Fault> {
        let first = match self.poll_received() {
            Poll::Ready(Some(Ok(Frame::Data(bytes)))) => bytes,
            Poll::Ready(Some(Err(fault))) => return Err(fault),
            _ => return Ok(Body::stream(self)),
        };
        if self.lease.is_none() {
            return Ok(Body::Bytes(first));
        }
        self.first = Some(first);
        Ok(Body::stream(self))
    }

    /// After a read without data: whether the content has ended, or has failed.
    fn poll_end(&mut self, read: Poll<Result<usize, Fault>>) -> Poll<Option<Fault>> {
        let Some(lease) = &mut self.lease else {
            return Poll::Ready(None);
        };
        let ended = match read {
            Poll::Ready(Ok(_)) => lease.end_of_connection(),
            Poll::Ready(Err(fault)) => Err(fault),
            Poll::Pending => match lease.watch_body(&self.upstream.limits) {
                Some(late) => Err(late.into()),
                None => return Poll::Pending,
            },
        };
        Poll::Ready(match ended {
            Ok(()) => {
                self.finish();
                None
            }
            Err(fault) => Some(self.fail(fault)),
        })
    }

    fn note_bytes(&mut self, n: u64) {
        self.upstream.counters.upstream_bytes_in.add(n);
        self.record.body_bytes.set(self.record.body_bytes.get() + n);
        self.left = self.left.map(|left| left.saturating_sub(n));
    }

    /// The content is complete: the connection goes back to the pool.
    pub(super) fn finish(&mut self) {
        if let Some(lease) = self.lease.take() {
            let now_us = self.note_time();
            self.upstream.pool.give_back(lease, now_us);
        }
    }

    fn fail(&mut self, fault: Fault) -> Fault {
        if let Some(mut lease) = self.lease.take() {
            self.note_time();
            lease.note_failure(&fault);
            self.upstream.count_failure(lease.server());
        }
        fault
    }

    /// Notes how long the exchange took, and returns the time.
    fn note_time(&self) -> u64 {
        let now_us = self.upstream.clock.monotonic_us();
        let took_us = now_us.saturating_sub(self.sent_us);
        self.record.response_us.set(Some(took_us));
        now_us
    }
}

impl BodyStream for Download {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::Data(first))));
        }
        loop {
            if let Poll::Ready(frame) = self.poll_received() {
                return Poll::Ready(frame);
            }
            let Some(lease) = &mut self.lease else {
                return Poll::Ready(None);
            };
            match lease.poll_content(cx, None) {
                Poll::Ready(Ok(1..)) => {}
                read => return self.poll_end(read).map(|ended| ended.map(Err)),
            }
        }
    }

    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<Option<Result<Piece, Fault>>> {
        if self.first.is_none()
            && let Some(lease) = &mut self.lease
            && lease.may_fill(room)
        {
            let read = lease.poll_content(cx, Some(room));
            if let Poll::Ready(Ok(n @ 1..)) = read {
                self.note_bytes(n as u64);
                if self.lease.as_ref().is_some_and(Lease::has_ended) {
                    self.finish();
                }
                return Poll::Ready(Some(Ok(Piece::Placed)));
            }
            return self.poll_end(read).map(|ended| ended.map(Err));
        }
        let polled = self.poll_frame(cx);
        polled.map(|frame| frame.map(|frame| frame.map(Piece::Frame)))
    }

    fn length(&self) -> Option<u64> {
        let first = self.first.as_ref().map_or(0, Bytes::len) as u64;
        self.left.map(|left| left + first)
    }
}
