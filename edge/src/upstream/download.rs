//! Receives the content of a response from the origin.

use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::ReadBuf;

use super::inbound::Step;
use super::lease::Lease;
use super::worker::UpstreamWorker;
use crate::handler::{Body, BodyStream, Fault, Frame, Head, Piece, UpstreamTimings};
use crate::http::Scheme;

/// The content still to be received, and the connection from which it is read. If this is dropped
/// before the content's end, the connection is closed.
pub(super) struct Download {
    pub(super) upstream: Rc<UpstreamWorker>,
    pub(super) lease: Option<Lease>,
    /// Content that was received together with the head.
    pub(super) first: Option<Bytes>,
    /// Bytes of content still to be received, if the response has Content-Length.
    pub(super) left: Option<u64>,
    pub(super) record: Rc<UpstreamTimings>,
    /// Scheme and head of the request, for the error log.
    pub(super) request: (Scheme, Head),
    /// Time at which the request was sent, in microseconds of the upstream's clock.
    pub(super) sent_us: u64,
}

impl Download {
    /// Returns the next frame if it has already been received. Ready with `None` at the end of the
    /// content.
    fn poll_received(&mut self) -> Poll<Option<Result<Frame, Fault>>> {
        let Some(lease) = &mut self.lease else {
            return Poll::Ready(None);
        };
        match lease.stream.step() {
            Ok(Step::More) => Poll::Pending,
            Ok(Step::Frame(frame)) => {
                if let Frame::Data(bytes) = &frame {
                    self.note_bytes(bytes.len() as u64);
                }
                if self.has_ended() {
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

    /// Turns the content into a body: bytes if all of it was received together with the head, which
    /// is usual for small content, else a stream.
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

    /// After a read that returned no data: ready if the content has ended (`None`) or failed.
    fn poll_end(&mut self, read: Poll<Result<usize, Fault>>) -> Poll<Option<Fault>> {
        let Some(lease) = &mut self.lease else {
            return Poll::Ready(None);
        };
        let ended = match read {
            Poll::Ready(Ok(_)) => lease.stream.end_of_connection(),
            Poll::Ready(Err(fault)) => Err(fault),
            Poll::Pending => match lease.stream.watch_body(&self.upstream.limits) {
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

    /// Whether all content has been received and taken.
    fn has_ended(&self) -> bool {
        let lease = self.lease.as_ref();
        lease.is_some_and(|lease| lease.stream.has_ended())
    }

    fn note_bytes(&mut self, n: u64) {
        self.upstream.counters.upstream_bytes_in.add(n);
        self.record.body_bytes.set(self.record.body_bytes.get() + n);
        self.left = self.left.map(|left| left.saturating_sub(n));
    }

    /// Returns the connection to the pool, since the content is complete.
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
            let (scheme, head) = &self.request;
            self.upstream
                .count_failure(lease.server(), fault.reason, *scheme, head);
        }
        fault
    }

    /// Notes the duration of the exchange, and returns the current time.
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
            match lease.stream.poll_content(cx, None) {
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
            && lease.stream.may_fill(room)
        {
            let read = lease.stream.poll_content(cx, Some(room));
            if let Poll::Ready(Ok(n @ 1..)) = read {
                self.note_bytes(n as u64);
                if self.has_ended() {
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
