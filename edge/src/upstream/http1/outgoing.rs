//! Sends a request: its head, then its content in the framing that the head declares.

use std::io::{IoSlice, Write as _};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use smallvec::SmallVec;

use crate::handler::{Fault, Frame};
use crate::http::Fields;
use crate::reason::Reason;
use crate::upstream::small_pieces::SmallPieces;
use crate::upstream::transport::Transport;
use crate::upstream::upload::Upload;

/// Largest buffer for heads that an idle connection keeps, in bytes.
const IDLE_HEAD_BYTES_MAX: usize = 512;

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
    small_pieces: SmallPieces,
    upload: Upload,
    /// Bytes of declared content still to be taken from the client. `None`: no declared length, so
    /// the content is chunked.
    left: Option<u64>,
    /// Whether the request has content.
    has_content: bool,
    /// Whether all content, or as much as will be sent, has been taken from the upload.
    ended: bool,
    /// The fault because of which the request cannot be completed. The end of the request is then
    /// never sent, so that the origin does not take a part of it for all of it (RFC 9112 8).
    broken: Option<Fault>,
}

impl Outgoing {
    /// Begins a request with this content. Returns the empty buffer into which the caller writes
    /// the complete head.
    pub(super) fn load(&mut self, upload: Upload) -> &mut Vec<u8> {
        self.left = upload.length();
        self.ended = self.left == Some(0);
        self.has_content = !self.ended;
        self.upload = upload;
        self.broken = None;
        (self.at, self.content, self.tail) = (0, Bytes::new(), b"");
        self.small_pieces.begin();
        self.text.clear();
        &mut self.text
    }

    /// Frees the memory of a request that was sent, except for a head buffer of usual size.
    pub(super) fn trim(&mut self) {
        self.upload = Upload::default();
        self.content = Bytes::new();
        if self.text.capacity() > IDLE_HEAD_BYTES_MAX {
            (self.text, self.at) = (Vec::new(), 0);
        }
    }

    /// Whether the whole request has been written.
    pub(super) fn is_done(&self) -> bool {
        self.ended && self.is_written()
    }

    /// Whether the request has content that is not completely written yet.
    pub(super) fn is_uploading(&self) -> bool {
        self.has_content && !self.is_done()
    }

    /// Whether all content has been taken from the client.
    pub(super) fn has_taken_all(&self) -> bool {
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
            let wants_more = !self.ended && self.content.is_empty() && self.tail.is_empty();
            if wants_more && self.small_pieces.poll_ready(cx).is_ready() {
                self.take_frame(cx)?;
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
    fn take_frame(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        if self.at == self.text.len() {
            self.text.clear();
            self.at = 0;
        }
        match self.upload.poll_frame(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(Some(Ok(Frame::Data(bytes)))) => {
                self.count(&bytes)?;
                self.small_pieces.note(bytes.len());
                self.content = bytes;
                self.add_framing();
                Ok(())
            }
            Poll::Ready(Some(Ok(Frame::Trailers(fields)))) => self.end(&fields),
            // The content of a request never has frames that refer to files.
            Poll::Ready(Some(Ok(Frame::File(_)))) => Err(Reason::SendFailed.into()),
            Poll::Ready(Some(Err(fault))) => Err(fault),
            Poll::Ready(None) => self.end(&Fields::new()),
        }
    }

    /// Counts content against the declared length. Content longer than declared is refused: the
    /// origin would read the excess as another request.
    fn count(&mut self, bytes: &Bytes) -> Result<(), Fault> {
        if let Some(left) = &mut self.left {
            let length = bytes.len() as u64;
            *left = left.checked_sub(length).ok_or(Reason::SendFailed)?;
            self.ended = *left == 0;
        }
        Ok(())
    }

    /// Frames the content as a chunk if its length was not declared.
    fn add_framing(&mut self) {
        if self.left.is_none() && !self.content.is_empty() {
            // Writing to a `Vec` does not fail.
            let _ = write!(self.text, "{:x}\r\n", self.content.len());
            self.tail = b"\r\n";
        }
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

fn write_trailers(fields: &Fields, out: &mut Vec<u8>) {
    for (name, value) in fields.iter() {
        out.extend(name.iter().map(u8::to_ascii_lowercase));
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::{Body, BodyStream};
    use std::rc::Rc;

    /// Content of these frames. No frame is available at the places of `None`.
    struct Frames {
        length: Option<u64>,
        frames: std::vec::IntoIter<Option<Frame>>,
    }

    impl BodyStream for Frames {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
            match self.frames.next() {
                Some(None) => Poll::Pending,
                Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
                None => Poll::Ready(None),
            }
        }

        fn length(&self) -> Option<u64> {
            self.length
        }
    }

    /// Returns the writes for content of these frames, without a transport.
    fn writes(length: Option<u64>, frames: Vec<Option<Frame>>) -> Result<Vec<Vec<u8>>, Fault> {
        let frames = frames.into_iter();
        let body = Body::stream(Frames { length, frames });
        let mut outgoing = Outgoing::default();
        outgoing.load(Upload::new(body, &Rc::default()));
        let mut writes = Vec::new();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while !outgoing.is_done() {
            outgoing.take_frame(&mut cx)?;
            let parts = [
                &outgoing.text[outgoing.at..],
                &outgoing.content,
                outgoing.tail,
            ];
            let sent = parts.concat();
            outgoing.written(sent.len());
            writes.push(sent);
        }
        writes.retain(|sent| !sent.is_empty());
        Ok(writes)
    }

    fn data(bytes: impl Into<Vec<u8>>) -> Option<Frame> {
        Some(Frame::Data(Bytes::from(bytes.into())))
    }

    #[test]
    fn content_is_framed_and_never_longer_or_shorter_than_declared() {
        let sized = |length, frames| writes(Some(length), frames).map(|writes| writes.concat());
        let hello = || vec![data("he"), data("llo")];
        assert_eq!(sized(5, hello()), Ok(b"hello".to_vec()));
        assert!(sized(4, hello()).is_err());
        assert!(sized(6, hello()).is_err());
        let frames = vec![data("he"), None, data("0123456789"), data("abcdef")];
        let sent = writes(None, frames).map(|writes| writes.concat());
        let chunks = b"2\r\nhe\r\na\r\n0123456789\r\n6\r\nabcdef\r\n0\r\n\r\n";
        assert_eq!(sent, Ok(chunks.to_vec()));
    }

    #[test]
    fn a_new_request_keeps_nothing_of_the_last_one() {
        let mut outgoing = Outgoing::default();
        let body = Body::Bytes(Bytes::from_static(b"abc"));
        let head = outgoing.load(Upload::new(body, &Rc::default()));
        head.extend_from_slice(b"first");
        assert!(!outgoing.is_done());
        let head = outgoing.load(Upload::default());
        assert!(head.is_empty());
        head.extend_from_slice(b"second");
        outgoing.written(6);
        assert!(outgoing.is_done());
    }

    #[test]
    fn an_idle_connection_holds_no_request() {
        let mut outgoing = Outgoing::default();
        let content = Bytes::from(vec![b'x'; 100]);
        let upload = Upload::new(Body::Bytes(content.clone()), &Rc::default());
        let head = outgoing.load(upload);
        head.resize(2 * IDLE_HEAD_BYTES_MAX, b'h');
        let mut cx = Context::from_waker(std::task::Waker::noop());
        outgoing.take_frame(&mut cx).expect("as declared");
        outgoing.written(2 * IDLE_HEAD_BYTES_MAX + 100);
        assert!(outgoing.is_done() && !content.is_unique());
        outgoing.trim();
        assert!(outgoing.is_done() && content.is_unique());
        assert_eq!(outgoing.text.capacity(), 0);
    }
}
