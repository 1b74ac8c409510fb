//! A response's content on its way to the client: read from the body, checked against the declared
//! length, and never truncated silently.

use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::handler::{Body, Fault, FileRange, Frame, Response};
use crate::http::{Fields, Status};
use crate::reason::Reason;
use crate::telemetry::Counters;

use super::file_reader::FileReader;
use super::guard::guarded;

/// Length of the content that follows a response's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// No content, whatever the head declares: HEAD, 1xx, 204, 304.
    None,
    /// Exactly this many bytes.
    Exactly(u64),
    /// As many bytes as the body has, which is not known in advance.
    Unknown,
}

impl Extent {
    /// Returns the extent of `response`. `head` says that it responds to a HEAD request.
    #[inline]
    pub fn of(response: &Response, head: bool) -> Extent {
        if head || is_without_content(response.status) {
            return Extent::None;
        }
        match response.declared_length() {
            Some(length) => Extent::Exactly(length),
            None => Extent::Unknown,
        }
    }
}

/// Whether a response of this status never has content: 1xx, 204 and 304 (RFC 9110 6.4.1).
fn is_without_content(status: Status) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

/// A part of a response's content.
pub enum Part {
    /// Bytes in memory, at least one.
    Data(Bytes),
    /// Bytes of a file, at least one. Used only for transports that send files. This part must be
    /// sent before the next is requested, since its unsent rest may be returned to the content.
    File(FileRange),
    /// The end of the content, with the trailers if the body has some.
    End(Option<Fields>),
}

impl Part {
    /// Returns the bytes of content in the part.
    #[inline]
    fn length(&self) -> u64 {
        match self {
            Part::Data(bytes) => bytes.len() as u64,
            Part::File(part) => part.range.end - part.range.start,
            Part::End(_) => 0,
        }
    }
}

/// The content of one response.
pub struct Content {
    body: Body,
    /// Bytes not taken yet. `None` if the length is not declared.
    left: Option<u64>,
    given: u64,
    trailers: Option<Fields>,
    /// Reads parts of files into memory, for transports that do not send files.
    reader: Option<Box<FileReader>>,
    sends_files: bool,
}

impl Content {
    /// Creates empty content.
    pub fn none() -> Content {
        Content::new(Body::Empty, Extent::None, false)
    }

    /// Creates the content of a body. `sends_files` says that parts of files are passed on as such;
    /// otherwise they are read into memory.
    #[inline]
    pub fn new(body: Body, extent: Extent, sends_files: bool) -> Content {
        let (body, left) = match extent {
            Extent::None => (Body::Empty, Some(0)),
            Extent::Exactly(length) => (body, Some(length)),
            Extent::Unknown => (body, None),
        };
        Content {
            body,
            left,
            given: 0,
            trailers: None,
            reader: None,
            sends_files,
        }
    }

    /// Returns the bytes of content taken so far.
    #[inline]
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Whether the length is declared and all bytes have been taken.
    pub fn is_all_given(&self) -> bool {
        self.left == Some(0)
    }

    /// Returns the next part. After the end or a fault `poll` must not be called again.
    #[inline]
    pub fn poll(&mut self, cx: &mut Context<'_>, counters: &Counters) -> Poll<Result<Part, Fault>> {
        match &mut self.body {
            Body::Stream(_) => self.poll_stream(cx, counters),
            Body::Bytes(bytes) if !bytes.is_empty() => {
                let bytes = std::mem::take(bytes);
                self.body = Body::Empty;
                self.count(bytes.len() as u64)?;
                Poll::Ready(Ok(Part::Data(bytes)))
            }
            Body::Bytes(_) | Body::Empty => Poll::Ready(self.end()),
        }
    }

    #[inline]
    fn poll_stream(
        &mut self,
        cx: &mut Context<'_>,
        counters: &Counters,
    ) -> Poll<Result<Part, Fault>> {
        loop {
            if let Some(reader) = &mut self.reader {
                let bytes = match ready!(reader.poll(cx)) {
                    Ok(bytes) => bytes,
                    Err(fault) => return Poll::Ready(Err(self.cut(fault))),
                };
                if reader.is_done() {
                    self.reader = None;
                }
                self.count(bytes.len() as u64)?;
                return Poll::Ready(Ok(Part::Data(bytes)));
            }
            let polled = guarded(counters, || self.body.poll_frame(cx))
                .unwrap_or_else(|fault| Poll::Ready(Some(Err(fault))));
            let part = match polled {
                // All declared bytes have been taken, so the content ends here, even if the body
                // has not reported its end yet.
                Poll::Pending if self.left == Some(0) => return Poll::Ready(self.end()),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(self.end()),
                Poll::Ready(Some(Err(fault))) => return Poll::Ready(Err(self.cut(fault))),
                Poll::Ready(Some(Ok(Frame::Trailers(fields)))) => {
                    self.trailers = Some(fields);
                    continue;
                }
                Poll::Ready(Some(Ok(Frame::File(range))))
                    if !self.sends_files && !range.range.is_empty() =>
                {
                    self.reader = Some(Box::new(FileReader::new(range)));
                    continue;
                }
                Poll::Ready(Some(Ok(Frame::Data(bytes)))) => Part::Data(bytes),
                Poll::Ready(Some(Ok(Frame::File(range)))) => Part::File(range),
            };
            let length = part.length();
            if length == 0 {
                continue;
            }
            self.count(length)?;
            return Poll::Ready(Ok(part));
        }
    }

    /// Counts bytes that the caller is about to take.
    #[inline]
    fn count(&mut self, length: u64) -> Result<(), Fault> {
        if let Some(left) = &mut self.left {
            match left.checked_sub(length) {
                Some(rest) => *left = rest,
                // Bytes beyond the declared length must not be sent, since a client would take them
                // for the next response.
                None => return Err(self.cut(Reason::BadBody.into())),
            }
        }
        self.given += length;
        Ok(())
    }

    #[inline]
    fn end(&mut self) -> Result<Part, Fault> {
        if let Some(1..) = self.left {
            return Err(self.cut(Reason::BodyCut.into()));
        }
        self.body = Body::Empty;
        Ok(Part::End(self.trailers.take()))
    }

    #[cold]
    fn cut(&mut self, fault: Fault) -> Fault {
        self.body = Body::Empty;
        self.reader = None;
        fault
    }

    /// Returns the last `bytes` of a part of a file to the body, since the client does not read
    /// now. When it reads again, the file's pages may be gone from memory, or the file may have
    /// changed. Returns false if the body does not accept them.
    pub fn take_back(&mut self, bytes: u64) -> bool {
        let (Body::Stream(body), Some(left)) = (&mut self.body, &mut self.left) else {
            return false;
        };
        let taken = body.take_back(bytes);
        if taken {
            *left += bytes;
            self.given -= bytes;
        }
        taken
    }
}
