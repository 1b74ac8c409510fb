//! Sends a request: its head, then its content in the framing that the head declares.

use std::io::{IoSlice, Write as _};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

use crate::handler::{Fault, Frame};
use crate::http::Fields;
use crate::reason::Reason;
use crate::upstream::hop;
use crate::upstream::transport::Transport;
use crate::upstream::upload::Upload;

/// Largest head buffer that is kept for a later request, in bytes.
pub(in crate::upstream) const SPARE_HEAD_BYTES_MAX: usize = 4 << 10;

/// The unsent rest of a request. Head and first content are written together if both are available.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Text to be written: first the head, later chunk headers and trailers. The first `at` bytes
    /// have been written.
    text: Vec<u8>,
    at: usize,
    /// Content to be written after `text`, and framing to be written after the content.
    content: Bytes,
    tail: &'static [u8],
    upload: Upload,
    /// Bytes of declared content still to be taken from the client. `None`: no declared length, so
    /// the content is chunked.
    left: Option<u64>,
    /// Whether all content, or as much as will be sent, has been taken from the upload.
    ended: bool,
    /// The fault because of which the request cannot be completed. The end of the request is then
    /// never sent, so that the origin does not take a part of it for all of it (RFC 9112 8).
    broken: Option<Fault>,
}

impl Outgoing {
    /// Begins a request with this complete head. Returns the buffer of the last head, for reuse.
    pub(super) fn load(&mut self, text: Vec<u8>, upload: Upload) -> Vec<u8> {
        self.left = upload.length();
        self.ended = self.left == Some(0);
        self.upload = upload;
        self.broken = None;
        (self.at, self.content, self.tail) = (0, Bytes::new(), b"");
        std::mem::replace(&mut self.text, text)
    }

    /// Frees the memory of a request that was sent, except for a head buffer of usual size.
    pub(super) fn trim(&mut self) {
        self.upload = Upload::default();
        self.content = Bytes::new();
        if self.text.capacity() > SPARE_HEAD_BYTES_MAX {
            (self.text, self.at) = (Vec::new(), 0);
        }
    }

    /// Whether the whole request has been written.
    pub(super) fn is_done(&self) -> bool {
        self.ended && self.is_written()
    }

    /// Whether all content has been taken from the client.
    pub(super) fn has_gathered(&self) -> bool {
        self.ended
    }

    fn is_written(&self) -> bool {
        self.at == self.text.len() && self.content.is_empty() && self.tail.is_empty()
    }

    /// Writes as much of the request as possible. Ready when everything is written, or when the
    /// request cannot be completed; then every further call returns the same fault.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
    ) -> Poll<Result<(), Fault>> {
        if let Some(fault) = self.broken {
            return Poll::Ready(Err(fault));
        }
        let sent = self.poll_on(cx, transport);
        if let Poll::Ready(Err(fault)) = sent {
            self.broken = Some(fault);
        }
        sent
    }

    fn poll_on(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
    ) -> Poll<Result<(), Fault>> {
        loop {
            if !self.ended && self.content.is_empty() && self.tail.is_empty() {
                self.gather(cx)?;
            }
            if self.is_written() {
                return match self.ended {
                    true => Poll::Ready(Ok(())),
                    false => Poll::Pending,
                };
            }
            ready!(self.write(cx, transport))?;
        }
    }

    /// Takes the next frame from the client, if one has arrived.
    fn gather(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        if self.at == self.text.len() {
            self.text.clear();
            self.at = 0;
        }
        match self.upload.poll_frame(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(Some(Ok(Frame::Data(bytes)))) => self.take(bytes),
            Poll::Ready(Some(Ok(Frame::Trailers(fields)))) => self.end(&fields),
            // The content of a request never has frames that refer to files.
            Poll::Ready(Some(Ok(Frame::File(_)))) => Err(Reason::SendFailed.into()),
            Poll::Ready(Some(Err(fault))) => Err(fault),
            Poll::Ready(None) => self.end(&Fields::new()),
        }
    }

    fn take(&mut self, bytes: Bytes) -> Result<(), Fault> {
        let length = bytes.len() as u64;
        match &mut self.left {
            Some(left) => {
                // Content longer than declared is refused: the origin would read the excess as
                // another request.
                *left = left.checked_sub(length).ok_or(Reason::SendFailed)?;
                self.ended = *left == 0;
            }
            None if length > 0 => {
                // Writing to a `Vec` does not fail.
                let _ = write!(self.text, "{length:x}\r\n");
                self.tail = b"\r\n";
            }
            None => {}
        }
        self.content = bytes;
        Ok(())
    }

    fn end(&mut self, trailers: &Fields) -> Result<(), Fault> {
        match self.left {
            Some(0) => {}
            Some(_) => return Err(Reason::SendFailed.into()),
            None => {
                self.text.extend_from_slice(b"0\r\n");
                write_trailers(trailers, &mut self.text);
                self.text.extend_from_slice(b"\r\n");
            }
        }
        self.ended = true;
        Ok(())
    }

    fn write(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
    ) -> Poll<Result<(), Fault>> {
        let text = &self.text[self.at..];
        let written = if self.content.is_empty() && self.tail.is_empty() {
            ready!(transport.poll_write(cx, text))
        } else {
            let parts = [text, &self.content, self.tail];
            let parts: SmallVec<[IoSlice<'_>; 3]> = parts
                .into_iter()
                .filter(|part| !part.is_empty())
                .map(IoSlice::new)
                .collect();
            ready!(transport.poll_write_vectored(cx, &parts))
        };
        match written {
            Ok(0) | Err(_) => Poll::Ready(Err(Reason::SendFailed.into())),
            Ok(n) => {
                self.written(n);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn written(&mut self, n: usize) {
        let of_text = n.min(self.text.len() - self.at);
        self.at += of_text;
        let of_content = (n - of_text).min(self.content.len());
        self.content.advance(of_content);
        let of_tail = (n - of_text - of_content).min(self.tail.len());
        self.tail = &self.tail[of_tail..];
    }
}

/// Writes trailers, without headers that must be known before the content (RFC 9110 6.5.1).
fn write_trailers(fields: &Fields, out: &mut Vec<u8>) {
    for (name, value) in fields.iter().filter(|(name, _)| hop::may_trail(name)) {
        out.extend(name.iter().map(u8::to_ascii_lowercase));
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::Body;

    /// Returns all bytes that are sent for a body of these frames, without a transport.
    fn gathered(length: Option<u64>, frames: &[&'static [u8]]) -> Result<Vec<u8>, Fault> {
        let mut outgoing = Outgoing {
            left: length,
            ..Outgoing::default()
        };
        let mut sent = Vec::new();
        for bytes in frames {
            outgoing.take(Bytes::from_static(bytes))?;
            sent.extend_from_slice(&outgoing.text[outgoing.at..]);
            sent.extend_from_slice(&outgoing.content);
            sent.extend_from_slice(outgoing.tail);
            outgoing.written(sent.len());
            outgoing.text.clear();
            outgoing.at = 0;
        }
        outgoing.end(&Fields::new())?;
        sent.extend_from_slice(&outgoing.text);
        Ok(sent)
    }

    #[test]
    fn content_is_framed_and_never_longer_or_shorter_than_declared() {
        assert_eq!(gathered(Some(5), &[b"he", b"llo"]), Ok(b"hello".to_vec()));
        assert!(gathered(Some(4), &[b"he", b"llo"]).is_err());
        assert!(gathered(Some(6), &[b"he", b"llo"]).is_err());
        let chunks = b"2\r\nhe\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n";
        let frames: &[&'static [u8]] = &[b"he", b"", b"0123456789abcdef"];
        assert_eq!(gathered(None, frames), Ok(chunks.to_vec()));
    }

    #[test]
    fn a_new_request_keeps_nothing_of_the_last_one() {
        let mut outgoing = Outgoing::default();
        let body = Body::Bytes(Bytes::from_static(b"abc"));
        outgoing.load(b"first".to_vec(), Upload::new(body));
        assert!(!outgoing.is_done());
        assert_eq!(
            outgoing.load(b"second".to_vec(), Upload::default()),
            b"first"
        );
        outgoing.written(6);
        assert!(outgoing.is_done());
    }

    #[test]
    fn an_idle_connection_holds_no_request() {
        let mut outgoing = Outgoing::default();
        let content = Bytes::from(vec![b'x'; 100]);
        let upload = Upload::new(Body::Bytes(content.clone()));
        outgoing.load(vec![b'h'; 2 * SPARE_HEAD_BYTES_MAX], upload);
        outgoing.take(content.slice(..)).expect("as declared");
        outgoing.written(2 * SPARE_HEAD_BYTES_MAX + 100);
        assert!(outgoing.is_done() && !content.is_unique());
        outgoing.trim();
        assert!(outgoing.is_done() && content.is_unique());
        assert_eq!(outgoing.text.capacity(), 0);
    }
}
