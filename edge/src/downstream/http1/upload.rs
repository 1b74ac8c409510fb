//! A request's body on its way from the connection to whoever reads it, with back-pressure.
//!
//! The connection decodes and fills a small slot; the handler's side empties it, perhaps from
//! another task of the same worker. Each wakes the other.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::handler::{BodyStream, Fault, Frame};
use crate::http::Fields;
use crate::http::chunked::{Decoded, Decoder};
use crate::reason::Reason;

use super::chunked;
use super::head::Framing;

/// Bytes and frames that may lie in the slot unread.
const SLOT_BYTES_MAX: usize = 64 << 10;
const SLOT_FRAMES_MAX: usize = 64;

/// The connection's side.
pub struct Upload {
    slot: Rc<RefCell<Slot>>,
    framing: Decoding,
    received: u64,
    /// Most bytes of content; 0: no limit.
    limit: u64,
}

enum Decoding {
    Length(u64),
    Chunked(Box<Decoder>),
    Ended,
    /// Where it ends can't be known any more.
    Broken(Fault),
}

/// The reader's side.
struct UploadBody {
    slot: Rc<RefCell<Slot>>,
}

#[derive(Default)]
struct Slot {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// What is still to come, as far as declared.
    left: Option<u64>,
    ended: bool,
    fault: Option<Fault>,
    /// Whether the reader has asked for anything, and whether it is gone.
    wanted: bool,
    abandoned: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
}

impl Upload {
    /// Both sides of a body with this framing; `None` when there is no body.
    pub fn new(
        framing: Framing,
        limit: u64,
        trailers_max: usize,
    ) -> Option<(Upload, impl BodyStream)> {
        let decoding = match framing {
            Framing::None => return None,
            Framing::Length(n) => Decoding::Length(n),
            Framing::Chunked => Decoding::Chunked(Box::new(chunked::decoder(trailers_max))),
        };
        let left = match framing {
            Framing::Length(n) => Some(n),
            _ => None,
        };
        let slot = Rc::new(RefCell::new(Slot {
            left,
            ..Slot::default()
        }));
        let upload = Upload {
            slot: slot.clone(),
            framing: decoding,
            received: 0,
            limit,
        };
        Some((upload, UploadBody { slot }))
    }

    /// Whether all of the body has been taken from the connection.
    pub fn is_complete(&self) -> bool {
        matches!(self.framing, Decoding::Ended)
    }

    /// What broke it.
    pub fn fault(&self) -> Option<Fault> {
        self.slot.borrow().fault
    }

    /// Whether more is to be read from the connection now. If not, the reader's next step wakes `cx`.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut slot = self.slot.borrow_mut();
        let stopped = slot.ended || slot.fault.is_some() || slot.abandoned;
        if !stopped
            && slot.wanted
            && slot.bytes < SLOT_BYTES_MAX
            && slot.frames.len() < SLOT_FRAMES_MAX
        {
            return Poll::Ready(());
        }
        slot.connection = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether it is known that at most this much of it is still to come, or that nobody knows.
    pub fn may_end_within(&self, bytes: u64) -> bool {
        match self.framing {
            Decoding::Length(left) => left <= bytes,
            Decoding::Chunked(_) | Decoding::Ended => true,
            Decoding::Broken(_) => false,
        }
    }

    /// Whether nobody will read the rest.
    pub fn is_abandoned(&self) -> bool {
        self.slot.borrow().abandoned
    }

    /// Decodes from `input` into the slot; says how much of it was used. 0: more is needed.
    pub fn take(&mut self, input: &[u8]) -> Result<usize, Fault> {
        let (used, piece) = self.decode(input).inspect_err(|&fault| self.fail(fault))?;
        let frame = match piece {
            Piece::Nothing => None,
            Piece::Data(data) => Some(Frame::Data(Bytes::copy_from_slice(data))),
            Piece::Trailers(fields) => Some(Frame::Trailers(fields)),
        };
        let mut slot = self.slot.borrow_mut();
        if let Some(Frame::Data(bytes)) = &frame {
            let n = bytes.len();
            slot.bytes += n;
            slot.left = slot.left.map(|left| left.saturating_sub(n as u64));
        }
        slot.frames.extend(frame);
        slot.ended = matches!(self.framing, Decoding::Ended);
        slot.wake_reader();
        Ok(used)
    }

    /// Reads on without keeping anything; says how much of `input` was used.
    pub fn discard(&mut self, input: &[u8]) -> Result<usize, Fault> {
        self.decode(input).map(|(used, _)| used)
    }

    /// The body breaks off here.
    pub fn fail(&self, fault: Fault) {
        let mut slot = self.slot.borrow_mut();
        if !slot.ended {
            slot.fault.get_or_insert(fault);
        }
        slot.wake_reader();
    }

    /// After an error there is nothing but that error: the decoder may be further than what was
    /// used of the input, so reading on would take content for framing.
    fn decode<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Piece<'a>), Fault> {
        self.advance(input)
            .inspect_err(|&fault| self.framing = Decoding::Broken(fault))
    }

    fn advance<'a>(&mut self, input: &'a [u8]) -> Result<(usize, Piece<'a>), Fault> {
        if let Decoding::Broken(fault) = self.framing {
            return Err(fault);
        }
        if input.is_empty() {
            return Ok((0, Piece::Nothing));
        }
        let (used, piece) = match &mut self.framing {
            Decoding::Ended | Decoding::Broken(_) => (0, Piece::Nothing),
            Decoding::Length(left) => {
                let n = input
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= n as u64;
                if *left == 0 {
                    self.framing = Decoding::Ended;
                }
                (n, Piece::Data(&input[..n]))
            }
            Decoding::Chunked(decoder) => match decoder.decode(input) {
                Err(_) => return Err(Reason::BadRequestBody.into()),
                Ok(Decoded::More) => (input.len(), Piece::Nothing),
                Ok(Decoded::Data(used, data)) => (used, Piece::Data(data)),
                Ok(Decoded::End(used, trailers)) => {
                    self.framing = Decoding::Ended;
                    match trailers.is_empty() {
                        true => (used, Piece::Nothing),
                        false => (used, Piece::Trailers(trailers)),
                    }
                }
            },
        };
        if let Piece::Data(data) = &piece {
            self.received += data.len() as u64;
            if self.limit > 0 && self.received > self.limit {
                return Err(Reason::RequestBodyTooLarge.into());
            }
        }
        Ok((used, piece))
    }
}

/// What a stretch of input was.
enum Piece<'a> {
    Nothing,
    Data(&'a [u8]),
    Trailers(Fields),
}

impl Drop for Upload {
    /// A reader that outlives the connection learns that there is no more to come.
    fn drop(&mut self) {
        self.fail(Reason::ClientGone.into());
    }
}

impl Slot {
    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl BodyStream for UploadBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let mut slot = self.slot.borrow_mut();
        if let Some(connection) = slot.connection.take() {
            connection.wake();
        }
        slot.wanted = true;
        if let Some(frame) = slot.frames.pop_front() {
            if let Frame::Data(bytes) = &frame {
                slot.bytes -= bytes.len();
            }
            return Poll::Ready(Some(Ok(frame)));
        }
        if let Some(fault) = slot.fault {
            return Poll::Ready(Some(Err(fault)));
        }
        if slot.ended {
            return Poll::Ready(None);
        }
        slot.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn length(&self) -> Option<u64> {
        let slot = self.slot.borrow();
        slot.left.map(|left| left + slot.bytes as u64)
    }
}

impl Drop for UploadBody {
    fn drop(&mut self) {
        let mut slot = self.slot.borrow_mut();
        slot.abandoned = true;
        slot.frames.clear();
        if let Some(connection) = slot.connection.take() {
            connection.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::Body;

    #[test]
    fn a_body_goes_through_only_as_it_is_wanted() {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut upload, stream) = Upload::new(Framing::Length(5), 0, 0).expect("a body");
        let mut body = Body::stream(stream);
        assert!(upload.poll_room(&mut cx).is_pending(), "nobody asked");
        assert!(body.poll_frame(&mut cx).is_pending());
        assert!(upload.poll_room(&mut cx).is_ready());
        assert_eq!(upload.take(b"abcdeGET"), Ok(5));
        assert!(upload.is_complete() && body.length() == Some(5));
        assert!(
            matches!(body.poll_frame(&mut cx), Poll::Ready(Some(Ok(Frame::Data(b)))) if b == "abcde")
        );
        assert!(matches!(body.poll_frame(&mut cx), Poll::Ready(None)));
    }

    #[test]
    fn a_connection_that_ends_early_is_a_fault() {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut upload, stream) = Upload::new(Framing::Chunked, 4, 100).expect("a body");
        let mut body = Body::stream(stream);
        assert_eq!(upload.take(b"3\r\nabc\r\n2\r\nde"), Ok(6));
        assert_eq!(
            upload.take(b"\r\n2\r\nde"),
            Err(Reason::RequestBodyTooLarge.into())
        );
        for more in ["\r\n2\r\nde", "0\r\n\r\n", ""] {
            let again = upload.discard(more.as_bytes());
            assert_eq!(again, Err(Reason::RequestBodyTooLarge.into()));
        }
        assert!(!upload.is_complete() && !upload.may_end_within(u64::MAX));
        assert!(body.poll_frame(&mut cx).is_ready());
        drop(upload);
        assert!(matches!(
            body.poll_frame(&mut cx),
            Poll::Ready(Some(Err(f))) if f.reason == Reason::RequestBodyTooLarge
        ));
    }
}
