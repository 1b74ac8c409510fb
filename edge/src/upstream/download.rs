//! A response's content on its way from the origin.

use std::error::Error;
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};

use super::Inner;
use super::link::Link;
use super::relay::muted;
use super::response;
use crate::handler::{Body, BodyStream, Cause, Exchange, Fault, Frame};

/// The content still to come, and the connection it comes over. Dropping it before its end closes
/// the connection.
pub(super) struct Download {
    pub(super) upstream: Rc<Inner>,
    pub(super) link: Option<Box<Link>>,
    pub(super) incoming: Incoming,
    /// What came together with the head.
    pub(super) first: Option<Bytes>,
    /// Bytes still to come, if declared.
    pub(super) left: Option<u64>,
    pub(super) record: Rc<Exchange>,
    /// When the request was sent.
    pub(super) sent_us: u64,
}

impl Download {
    /// The next frame if the connection has it already.
    pub(super) fn poll_ready(&mut self) -> Poll<Option<Result<Frame, Fault>>> {
        let mut unheard = Context::from_waker(Waker::noop());
        let polled = muted(|| Pin::new(&mut self.incoming).poll_frame(&mut unheard));
        polled.map(|frame| match frame {
            Some(Ok(frame)) => self.accept(frame).map(Ok),
            Some(Err(e)) => Some(Err(self.fail(cause(&e)))),
            None => self.end().err().map(Err),
        })
    }

    /// The content: as bytes if it came whole together with the head, as small content does, else
    /// as a stream.
    pub(super) fn into_body(mut self) -> Result<Body, Fault> {
        let first = match self.poll_ready() {
            Poll::Ready(Some(Ok(Frame::Data(bytes)))) => bytes,
            Poll::Ready(Some(Err(fault))) => return Err(fault),
            _ => return Ok(Body::stream(self)),
        };
        if self.link.is_none() {
            return Ok(Body::Bytes(first));
        }
        self.first = Some(first);
        Ok(Body::stream(self))
    }

    fn accept(&mut self, frame: hyper::body::Frame<Bytes>) -> Option<Frame> {
        if let Some(link) = &mut self.link {
            link.progressed();
        }
        match frame.into_data() {
            Ok(data) => {
                let n = data.len() as u64;
                self.upstream.counters.upstream_bytes_in.add(n);
                self.record.body_bytes.set(self.record.body_bytes.get() + n);
                self.left = self.left.map(|left| left.saturating_sub(n));
                if self.left == Some(0) {
                    self.finish();
                }
                Some(Frame::Data(data))
            }
            Err(frame) => {
                self.finish();
                let trailers = frame.into_trailers().ok()?;
                Some(Frame::Trailers(response::trailers(&trailers)))
            }
        }
    }

    fn end(&mut self) -> Result<(), Fault> {
        match self.left {
            None | Some(0) => {
                self.finish();
                Ok(())
            }
            Some(_) => Err(self.fail(Cause::BodyCut)),
        }
    }

    /// All has come: the connection may serve another request.
    pub(super) fn finish(&mut self) {
        if let Some(link) = self.link.take() {
            self.note_time();
            self.upstream.pool.give_back(link);
        }
    }

    fn fail(&mut self, cause: Cause) -> Fault {
        if let Some(link) = self.link.take() {
            self.note_time();
            self.upstream.count_failure(link.seat.server);
        }
        cause.into()
    }

    fn note_time(&self) {
        let now_us = self.upstream.clock.monotonic_us();
        let took_us = now_us.saturating_sub(self.sent_us);
        self.record.response_us.set(Some(took_us));
    }
}

impl BodyStream for Download {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::Data(first))));
        }
        let polled = self.poll_ready();
        let Some(link) = &mut self.link else {
            // Complete; or broken, and then this was said.
            return Poll::Ready(match polled {
                Poll::Ready(frame) => frame,
                Poll::Pending => None,
            });
        };
        if polled.is_ready() {
            return polled;
        }
        let closed = link.poll(cx).is_ready();
        let polled = self.poll_ready();
        if polled.is_ready() {
            return polled;
        }
        if closed {
            return Poll::Ready(Some(Err(self.fail(Cause::BodyCut))));
        }
        let limit = self.upstream.limits.read;
        match self.link.as_mut().and_then(|l| l.watch_body(cx, limit)) {
            Some(cause) => Poll::Ready(Some(Err(self.fail(cause)))),
            None => Poll::Pending,
        }
    }

    fn length(&self) -> Option<u64> {
        let first = self.first.as_ref().map_or(0, Bytes::len) as u64;
        self.left.map(|left| left + first)
    }
}

/// What a failed body means: broken framing, or an end where none should be.
fn cause(e: &hyper::Error) -> Cause {
    let io = e
        .source()
        .and_then(|source| source.downcast_ref::<std::io::Error>());
    match io.map(std::io::Error::kind) {
        Some(ErrorKind::InvalidInput | ErrorKind::InvalidData) => Cause::BadBody,
        _ => Cause::BodyCut,
    }
}
