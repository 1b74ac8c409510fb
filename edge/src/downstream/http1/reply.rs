//! A response's content on its way out: gathered frame by frame, framed, written, ended or cut.

use std::task::{Context, Poll};

use crate::handler::{Body, Fault, Frame};
use crate::http::Fields;
use crate::reason::Reason;

use super::outbox::Outbox;
use super::render::Delivery;
use super::wire::{Budget, Wire, guarded};

/// The content of one response.
pub struct Reply {
    body: Body,
    delivery: Delivery,
    trailers: Option<Fields>,
    /// Content bytes put into the outbox.
    content: u64,
    ended: bool,
    fault: Option<Fault>,
    /// Nothing has been gathered yet, so content may join the head in one write.
    fresh: bool,
}

/// How far a reply got.
pub enum Step {
    /// All is written.
    Done,
    /// The turn is over, though more could be done.
    Yield,
    /// The client does not read.
    Blocked,
    /// The content is not there yet.
    Starved,
    /// The content broke off; what could be written is.
    Cut(Fault),
    /// The client is gone.
    Gone,
}

impl Reply {
    /// Of a response whose head is in the outbox.
    pub fn new(body: Body, delivery: Delivery) -> Reply {
        let ended = delivery == Delivery::None;
        Reply {
            body: if ended { Body::Empty } else { body },
            delivery,
            trailers: None,
            content: 0,
            ended,
            fault: None,
            fresh: true,
        }
    }

    /// Content bytes handed to the outbox so far.
    pub fn content(&self) -> u64 {
        self.content
    }

    /// Whether the client would take what it gets for all of it, unless the connection breaks.
    pub fn looks_whole(&self) -> bool {
        matches!(self.delivery, Delivery::UntilClose | Delivery::Length(0))
    }

    /// Goes on until something has to be waited for.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        wire: &mut Wire,
        budget: &mut Budget,
    ) -> Step {
        loop {
            if !self.ended && (self.fresh || out.is_empty()) {
                self.fresh = false;
                self.gather(cx, out, wire);
            }
            if out.is_empty() {
                return match (self.fault, self.ended) {
                    (Some(fault), _) => Step::Cut(fault),
                    (None, true) => Step::Done,
                    (None, false) => Step::Starved,
                };
            }
            match wire.poll_flush(cx, out, budget) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Step::Gone,
                Poll::Pending => {
                    self.take_back(out);
                    return Step::Blocked;
                }
            }
            if budget.is_spent() && !(out.is_empty() && self.ended) {
                return Step::Yield;
            }
        }
    }

    /// Takes frames until there is enough for one write.
    fn gather(&mut self, cx: &mut Context<'_>, out: &mut Outbox, wire: &Wire) {
        while !self.ended && !out.is_full() {
            let polled = match &mut self.body {
                Body::Stream(_) => guarded(wire, || self.body.poll_frame(cx))
                    .unwrap_or_else(|fault| Poll::Ready(Some(Err(fault)))),
                at_hand => at_hand.poll_frame(cx),
            };
            match polled {
                // The declared length is there: the end need not be waited for.
                Poll::Pending if self.delivery == Delivery::Length(0) => self.end(out),
                Poll::Pending => return,
                Poll::Ready(Some(Ok(Frame::Data(bytes)))) => {
                    let length = bytes.len() as u64;
                    self.take(length, out, |out| out.content(bytes));
                }
                Poll::Ready(Some(Ok(Frame::File(part)))) => {
                    let length = part.range.end.saturating_sub(part.range.start);
                    self.take(length, out, |out| out.file(part));
                    // It is written before the body is asked for more: it may take this back.
                    return;
                }
                Poll::Ready(Some(Ok(Frame::Trailers(fields)))) => self.trailers = Some(fields),
                Poll::Ready(Some(Err(fault))) => self.cut(fault),
                Poll::Ready(None) => self.end(out),
            }
        }
    }

    #[inline]
    fn take(&mut self, length: u64, out: &mut Outbox, put: impl FnOnce(&mut Outbox)) {
        if length == 0 {
            return;
        }
        match &mut self.delivery {
            Delivery::None => return,
            Delivery::Length(left) => match left.checked_sub(length) {
                Some(rest) => *left = rest,
                // More than was declared can't be sent: the next response would begin in it.
                None => return self.cut(Reason::BadBody.into()),
            },
            Delivery::Chunked { .. } => out.text(|text| chunk_size(text, length as usize)),
            Delivery::UntilClose => {}
        }
        self.content += length;
        put(out);
        if let Delivery::Chunked { .. } = self.delivery {
            out.text(|text| text.extend_from_slice(b"\r\n"));
        }
    }

    /// What of a file waits for the client goes back: when the client takes it, its pages may be gone from
    /// memory, or the file may have changed.
    fn take_back(&mut self, out: &mut Outbox) {
        let left = out.file_left() as u64;
        if left == 0 {
            return;
        }
        if let (Body::Stream(body), Delivery::Length(missing)) =
            (&mut self.body, &mut self.delivery)
            && body.take_back(left)
        {
            out.drop_file();
            *missing += left;
            self.content -= left;
        }
    }

    fn end(&mut self, out: &mut Outbox) {
        match self.delivery {
            Delivery::Length(1..) => return self.cut(Reason::BodyCut.into()),
            Delivery::Chunked { trailers } => out.text(|text| {
                text.extend_from_slice(b"0\r\n");
                if let Some(fields) = self.trailers.as_ref().filter(|_| trailers) {
                    text.extend_from_slice(fields.text());
                }
                text.extend_from_slice(b"\r\n");
            }),
            _ => {}
        }
        self.body = Body::Empty;
        self.ended = true;
    }

    fn cut(&mut self, fault: Fault) {
        self.body = Body::Empty;
        self.fault = Some(fault);
        self.ended = true;
    }
}

fn chunk_size(text: &mut Vec<u8>, size: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let first = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for place in (0..first).rev() {
        text.push(DIGITS[(size >> (4 * place)) & 0xf]);
    }
    text.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    #[test]
    fn chunk_sizes_are_hexadecimal() {
        for size in [1, 15, 16, 255, 256, 65_536, usize::MAX] {
            let mut text = Vec::new();
            super::chunk_size(&mut text, size);
            assert_eq!(text, format!("{size:x}\r\n").into_bytes());
        }
    }
}
