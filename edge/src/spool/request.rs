//! Buffers the body of a request until it is complete.

use std::task::{Context, Poll};

use super::chunks::Chunks;
use super::memory::Charge;
use crate::handler::{Body, BodyStream, Fault, Frame};
use crate::http::Fields;
use crate::reason::Reason;

/// A body whose bytes are all in buffers.
struct Gathered {
    chunks: Chunks,
    trailers: Option<Fields>,
}

/// Reads a body to its end.
///
/// # Errors
///
/// The fault of the body; `RequestBodyTooLarge` if its declared length never fits; `BuffersFull` if there is no memory for
/// it now.
pub(super) async fn gather(mut body: Body, charge: Charge) -> Result<Body, Fault> {
    if body.length().is_some_and(|length| length > charge.most()) {
        return Err(Reason::RequestBodyTooLarge.into());
    }
    let mut gathered = Gathered {
        chunks: Chunks::new(charge),
        trailers: None,
    };
    while let Some(frame) = body.frame().await {
        match frame? {
            Frame::Data(bytes) if gathered.chunks.push(&bytes, false) => {}
            Frame::Data(_) => return Err(Reason::BuffersFull.into()),
            Frame::Trailers(fields) => gathered.trailers = Some(fields),
            // Requests have no parts of files.
            Frame::File(_) => return Err(Reason::BadRequestBody.into()),
        }
    }
    Ok(
        match gathered.chunks.bytes() == 0 && gathered.trailers.is_none() {
            true => Body::Empty,
            false => Body::stream(gathered),
        },
    )
}

impl BodyStream for Gathered {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let data = self.chunks.pop().map(Frame::Data);
        let frame = data.or_else(|| self.trailers.take().map(Frame::Trailers));
        Poll::Ready(frame.map(Ok))
    }

    fn length(&self) -> Option<u64> {
        // Trailers can follow only content whose length is not declared.
        self.trailers.is_none().then(|| self.chunks.bytes())
    }
}
