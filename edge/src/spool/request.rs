//! Buffers the body of a request until it is complete.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use super::buffer::Buffer;
use crate::handler::{Body, BodyStream, Fault, Frame};
use crate::http::Fields;
use crate::reason::Reason;

/// A body whose bytes are all in buffers.
struct Gathered {
    buffer: Buffer,
    trailers: Option<Fields>,
}

/// Reads a body to its end.
///
/// # Errors
///
/// The fault of the body; `RequestBodyTooLarge` if it never fits; `BuffersFull` if there is no memory for it now;
/// `BufferDiskFull`, `BufferDiskFailed` or `BufferDiskTimeout` if the disk does not take the part that memory has no room
/// for.
pub(super) async fn gather(mut body: Body, mut buffer: Buffer) -> Result<Body, Fault> {
    let length_max = buffer.body_max();
    let is_too_long = |length: u64| length > length_max;
    if body.length().is_some_and(is_too_long) {
        return Err(Reason::RequestBodyTooLarge.into());
    }
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        // Frames may be as small as a byte and need no wait, and other tasks of the worker must run.
        tokio::task::coop::consume_budget().await;
        match frame? {
            Frame::Data(bytes) => {
                if buffer.has_disk() && is_too_long(buffer.bytes() + bytes.len() as u64) {
                    return Err(Reason::RequestBodyTooLarge.into());
                }
                poll_fn(|cx| buffer.poll_push(cx, &bytes, false)).await?;
            }
            Frame::Trailers(fields) => trailers = Some(fields),
            // Requests have no parts of files.
            Frame::File(_) => return Err(Reason::BadRequestBody.into()),
        }
    }
    Ok(match buffer.bytes() == 0 && trailers.is_none() {
        true => Body::Empty,
        false => Body::stream(Gathered { buffer, trailers }),
    })
}

impl BodyStream for Gathered {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let bytes = ready!(self.buffer.poll_pop(cx));
        let data = bytes.map(|bytes| bytes.map(Frame::Data).map_err(Fault::from));
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::Trailers).map(Ok)))
    }

    fn length(&self) -> Option<u64> {
        // Trailers can follow only content whose length is not declared.
        self.trailers.is_none().then(|| self.buffer.bytes())
    }
}
