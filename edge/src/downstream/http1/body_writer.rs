//! Writes a response's content in HTTP/1 framing: takes it part by part, chunks it if necessary,
//! writes it, and ends or truncates it.

use std::task::{Context, Poll};

use crate::downstream::connection::Connection;
use crate::downstream::exchange::{Exchange, Part};
use crate::downstream::turn::Turn;
use crate::handler::Fault;
use crate::http::Fields;

use super::render::Delivery;
use crate::downstream::outbox::Outbox;

/// Writes the content of one response, whose head is in the outbox.
pub struct BodyWriter {
    delivery: Delivery,
    ended: bool,
    fault: Option<Fault>,
    /// Whether no content has been taken yet, so that the head and the first content can be sent in
    /// one write.
    fresh: bool,
}

/// State of the writer after a poll.
pub enum Step {
    /// All content has been written.
    Done,
    /// The connection's turn is over, although more could be written.
    Yield,
    /// The client does not read, so the send buffer is full.
    Blocked,
    /// The next content is not available yet.
    Starved,
    /// The content was truncated by this fault. Everything before it has been written.
    Cut(Fault),
    /// The client has closed the connection.
    Gone,
}

impl BodyWriter {
    /// Creates the writer of content that is delimited in this way.
    pub fn new(delivery: Delivery) -> BodyWriter {
        BodyWriter {
            delivery,
            ended: delivery == Delivery::None,
            fault: None,
            fresh: true,
        }
    }

    /// Whether the client would take truncated content for complete unless the connection is reset.
    pub fn looks_complete(&self, exchange: &Exchange) -> bool {
        self.delivery == Delivery::UntilClose || exchange.is_all_given()
    }

    /// Takes and writes content until the client or the body has to be waited for.
    pub fn poll(
        &mut self,
        cx: &mut Context<'_>,
        exchange: &mut Exchange,
        out: &mut Outbox,
        connection: &mut Connection,
        turn: &mut Turn,
    ) -> Step {
        loop {
            if !self.ended && (self.fresh || out.is_empty()) {
                self.fresh = false;
                self.gather(cx, exchange, out);
            }
            if out.is_empty() {
                return match (self.fault, self.ended) {
                    (Some(fault), _) => Step::Cut(fault),
                    (None, true) => Step::Done,
                    (None, false) => Step::Starved,
                };
            }
            match out.poll_flush(cx, connection, turn) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Step::Gone,
                Poll::Pending => {
                    take_back(exchange, out);
                    return Step::Blocked;
                }
            }
            if turn.is_spent() && !(out.is_empty() && self.ended) {
                return Step::Yield;
            }
        }
    }

    /// Takes parts of the content until there is enough for one write.
    fn gather(&mut self, cx: &mut Context<'_>, exchange: &mut Exchange, out: &mut Outbox) {
        while !self.ended && !out.is_full() {
            match exchange.poll_content(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(Part::Data(bytes))) => {
                    self.begin_chunk(out, bytes.len());
                    out.content(bytes);
                    self.end_chunk(out);
                }
                Poll::Ready(Ok(Part::File(part))) => {
                    self.begin_chunk(out, (part.range.end - part.range.start) as usize);
                    out.file(part);
                    self.end_chunk(out);
                    // The unsent rest of this part may have to be returned to the content, so it is
                    // sent before the next part is taken.
                    return;
                }
                Poll::Ready(Ok(Part::End(trailers))) => self.end(out, trailers),
                Poll::Ready(Err(fault)) => {
                    self.fault = Some(fault);
                    self.ended = true;
                }
            }
        }
    }

    #[inline]
    fn begin_chunk(&self, out: &mut Outbox, length: usize) {
        if let Delivery::Chunked { .. } = self.delivery {
            out.text(|text| chunk_size(text, length));
        }
    }

    #[inline]
    fn end_chunk(&self, out: &mut Outbox) {
        if let Delivery::Chunked { .. } = self.delivery {
            out.text(|text| text.extend_from_slice(b"\r\n"));
        }
    }

    fn end(&mut self, out: &mut Outbox, trailers: Option<Fields>) {
        self.ended = true;
        let Delivery::Chunked { trailers: wanted } = self.delivery else {
            return;
        };
        out.text(|text| {
            text.extend_from_slice(b"0\r\n");
            if let Some(fields) = trailers.filter(|_| wanted) {
                text.extend_from_slice(fields.text());
            }
            text.extend_from_slice(b"\r\n");
        });
    }
}

/// Returns the unsent rest of a part of a file to the content. When the client reads again, the
/// file's pages may be gone from memory, or the file may have changed.
fn take_back(exchange: &mut Exchange, out: &mut Outbox) {
    let left = out.file_left() as u64;
    if left > 0 && exchange.take_back(left) {
        out.drop_file();
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
