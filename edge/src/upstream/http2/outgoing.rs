//! The content of a request that was not sent yet.

use std::task::{Context, Poll};

use bytes::Bytes;

use crate::handler::{Fault, Frame};
use crate::http::Fields;
use crate::reason::Reason;
use crate::upstream::small_pieces::SmallPieces;
use crate::upstream::upload::Upload;

/// The content of a request, of which one piece is taken from the client at a time. The next one is taken when it was sent,
/// so a server that opens no window makes the client wait.
#[derive(Default)]
pub(super) struct Outgoing {
    upload: Upload,
    /// Bytes of declared content still to be taken from the client.
    left: Option<u64>,
    /// Content that was taken and not sent.
    content: Bytes,
    trailers: Option<Fields>,
    /// Whether all content has been taken.
    ended: bool,
    /// Whether the end has been taken, too.
    finished: bool,
    small_pieces: SmallPieces,
    /// Number of bytes sent.
    sent: u64,
}

/// The end of a request, once all of its content was sent.
pub(super) enum End {
    /// A frame that says that it is the last one.
    Plain,
    Trailers(Fields),
}

impl Outgoing {
    pub(super) fn new(upload: Upload) -> Outgoing {
        let left = upload.length();
        Outgoing {
            ended: left == Some(0),
            finished: left == Some(0),
            left,
            upload,
            ..Outgoing::default()
        }
    }

    /// Returns the content as the request has it, too.
    pub(super) fn upload(&self) -> &Upload {
        &self.upload
    }

    /// Whether all content has been taken from the client.
    pub(super) fn has_taken_all(&self) -> bool {
        self.ended
    }

    /// Whether there is content that could be sent now.
    pub(super) fn has_content(&self) -> bool {
        !self.content.is_empty()
    }

    /// Returns the number of bytes sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Takes a piece from the client, unless there is one. The task of `cx` is woken when there is.
    ///
    /// # Errors
    ///
    /// The request cannot be completed. Its end must not be sent, so that the server does not take a part of the content for
    /// all of it.
    pub(super) fn fetch(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        while self.content.is_empty() && !self.ended && self.small_pieces.poll_ready(cx).is_ready()
        {
            match self.upload.poll_frame(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Some(Ok(Frame::Data(bytes)))) => {
                    self.count(bytes.len())?;
                    self.small_pieces.note(bytes.len());
                    self.content = bytes;
                }
                Poll::Ready(Some(Ok(Frame::Trailers(fields)))) => {
                    self.trailers = Some(fields).filter(|fields| !fields.is_empty());
                    self.end()?;
                }
                // The content of a request never has frames that refer to files.
                Poll::Ready(Some(Ok(Frame::File(_)))) => return Err(Reason::SendFailed.into()),
                Poll::Ready(Some(Err(fault))) => return Err(fault),
                Poll::Ready(None) => self.end()?,
            }
        }
        Ok(())
    }

    /// Counts content against the declared length, with which it has to agree (RFC 9113 8.1.1).
    fn count(&mut self, bytes: usize) -> Result<(), Fault> {
        if let Some(left) = &mut self.left {
            let length = bytes as u64;
            *left = left.checked_sub(length).ok_or(Reason::SendFailed)?;
            self.ended = *left == 0;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        self.ended = true;
        match self.left {
            Some(1..) => Err(Reason::SendFailed.into()),
            _ => Ok(()),
        }
    }

    /// Takes up to `most` bytes to be sent.
    pub(super) fn take(&mut self, most: usize) -> Bytes {
        let length = most.min(self.content.len());
        self.sent += length as u64;
        self.content.split_to(length)
    }

    /// Takes the end of the request, if all content was sent.
    pub(super) fn take_end(&mut self) -> Option<End> {
        if !self.ended || !self.content.is_empty() || self.finished {
            return None;
        }
        self.finished = true;
        Some(match self.trailers.take() {
            Some(fields) => End::Trailers(fields),
            None => End::Plain,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::{Body, BodyStream};
    use std::rc::Rc;

    /// Content of these frames; `None` is a frame that has not arrived.
    struct Frames(Option<u64>, std::vec::IntoIter<Option<Frame>>);

    impl BodyStream for Frames {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
            match self.1.next() {
                Some(None) => Poll::Pending,
                Some(Some(frame)) => Poll::Ready(Some(Ok(frame))),
                None => Poll::Ready(None),
            }
        }

        fn length(&self) -> Option<u64> {
            self.0
        }
    }

    fn data(text: &'static str) -> Option<Frame> {
        Some(Frame::Data(Bytes::from_static(text.as_bytes())))
    }

    /// Sends content in parts of at most three bytes.
    fn sent(length: Option<u64>, frames: Vec<Option<Frame>>) -> Result<Vec<String>, Reason> {
        let body = Body::stream(Frames(length, frames.into_iter()));
        let mut outgoing = Outgoing::new(Upload::new(body, &Rc::default()));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut parts = Vec::new();
        loop {
            outgoing.fetch(&mut cx).map_err(|fault| fault.reason)?;
            let part = outgoing.take(3);
            if !part.is_empty() {
                parts.push(String::from_utf8_lossy(&part).into_owned());
            }
            match outgoing.take_end() {
                Some(End::Plain) => parts.push("end".into()),
                Some(End::Trailers(fields)) => parts.push(format!("{} trailers", fields.len())),
                None => continue,
            }
            return Ok(parts);
        }
    }

    #[test]
    fn content_is_sent_in_parts_and_must_have_its_declared_length() {
        let hello = || vec![data("he"), None, data("llo!")];
        let parts = |all: &[&str]| Ok(all.iter().map(|part| (*part).to_owned()).collect());
        assert_eq!(sent(Some(6), hello()), parts(&["he", "llo", "!", "end"]));
        assert_eq!(sent(None, hello()), parts(&["he", "llo", "!", "end"]));
        assert_eq!(sent(Some(5), hello()), Err(Reason::SendFailed));
        assert_eq!(sent(Some(7), hello()), Err(Reason::SendFailed));
        let mut fields = Fields::new();
        fields.append("x-sum", "1");
        let trailers = vec![data("a"), Some(Frame::Trailers(fields))];
        assert_eq!(sent(None, trailers), parts(&["a", "1 trailers"]));
        let empty = vec![data("a"), Some(Frame::Trailers(Fields::new()))];
        assert_eq!(sent(None, empty), parts(&["a", "end"]));
    }
}
