//! Removes from the trailers of a response the headers that the route removes or replaces.

use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use crate::handler::{Body, BodyStream, Fault, Frame, Piece, Response};

/// Removes the trailers for whose names `goes` holds, since a client may merge trailers into the
/// headers (RFC 9110 6.5.1).
pub(super) fn take_out(response: &mut Response, goes: impl Fn(&[u8]) -> bool + 'static) {
    // Trailers can follow only content of unknown length.
    if response.declared_length().is_some() || response.until_close {
        return;
    }
    response.body = match std::mem::take(&mut response.body) {
        Body::Stream(inner) => Body::stream(Filtered { inner, goes }),
        body => body,
    };
}

/// A body without the trailers for whose names `goes` holds.
struct Filtered<F> {
    inner: Box<dyn BodyStream>,
    goes: F,
}

impl<F: Fn(&[u8]) -> bool> Filtered<F> {
    fn filter(&self, frame: &mut Frame) {
        if let Frame::Trailers(fields) = frame {
            fields.retain(|name, _| !(self.goes)(name));
        }
    }
}

impl<F: Fn(&[u8]) -> bool> BodyStream for Filtered<F> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let mut polled = self.inner.poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled {
            self.filter(frame);
        }
        polled
    }

    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<Option<Result<Piece, Fault>>> {
        let mut polled = self.inner.poll_into(cx, room);
        if let Poll::Ready(Some(Ok(Piece::Frame(frame)))) = &mut polled {
            self.filter(frame);
        }
        polled
    }

    fn prefer_short(&mut self, bytes: u64) {
        self.inner.prefer_short(bytes);
    }

    fn take_back(&mut self, bytes: u64) -> bool {
        self.inner.take_back(bytes)
    }

    fn require_rate(&mut self) {
        self.inner.require_rate();
    }

    fn length(&self) -> Option<u64> {
        self.inner.length()
    }
}
