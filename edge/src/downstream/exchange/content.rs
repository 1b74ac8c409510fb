//! A response's content as it is sent: pulled from the body, held to the declared length, and never truncated
//! silently.

use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::handler::{Body, Fault, FileRange, Frame, Response};
use crate::http::{Fields, Status};
use crate::reason::Reason;
use crate::telemetry::Counters;

use super::file_reader::FileReader;
use super::guard::guarded;

/// How much content follows a response's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// None, whatever the head declares: HEAD, 1xx, 204, 304.
    None,
    /// Exactly this many bytes.
    Exactly(u64),
    /// As much as the body gives.
    Unknown,
}

impl Extent {
    /// The extent of `response`; `head`: it answers a HEAD request.
    #[inline]
    pub fn of(response: &Response, head: bool) -> Extent {
        if head || is_without_content(response.status) {
            return Extent::None;
        }
        match response.content_length() {
            Some(length) => Extent::Exactly(length),
            None => Extent::Unknown,
        }
    }
}

/// 1xx, 204 and 304 never have content (RFC 9110 6.4.1).
fn is_without_content(status: Status) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}

/// A part of the content.
pub enum Part {
    /// Bytes, never empty.
    Data(Bytes),
    /// Bytes of a file, never none; only for transports that send files. They have to be sent before the next part
    /// is asked for: the content may take them back.
    File(FileRange),
    /// The end, with trailer fields if the body gave some.
    End(Option<Fields>),
}

impl Part {
    /// Bytes of content in the part.
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
    /// Bytes still to come; `None` if the length is not declared.
    left: Option<u64>,
    given: u64,
    trailers: Option<Fields>,
    /// Reads parts of files into memory, for transports that do not send files.
    reader: Option<Box<FileReader>>,
    sends_files: bool,
}

impl Content {
    /// No content.
    pub fn none() -> Content {
        Content::new(Body::Empty, Extent::None, false)
    }

    /// The content of a body; `sends_files`: parts of files are given as such.
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

    /// Bytes given so far.
    #[inline]
    pub fn given(&self) -> u64 {
        self.given
    }

    /// Whether the length is declared and all of it has been given.
    pub fn is_all_given(&self) -> bool {
        self.left == Some(0)
    }

    /// The next part. After the end or a fault it must not be polled again.
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
                let bytes = ready!(reader.poll(cx))?;
                if reader.is_done() {
                    self.reader = None;
                }
                self.count(bytes.len() as u64)?;
                return Poll::Ready(Ok(Part::Data(bytes)));
            }
            let polled = guarded(counters, || self.body.poll_frame(cx))
                .unwrap_or_else(|fault| Poll::Ready(Some(Err(fault))));
            let part = match polled {
                // All declared bytes are there: the body's end need not be awaited.
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

    /// Counts bytes that are about to be given.
    #[inline]
    fn count(&mut self, length: u64) -> Result<(), Fault> {
        if let Some(left) = &mut self.left {
            match left.checked_sub(length) {
                Some(rest) => *left = rest,
                // More than was declared must not be sent: a client would take it for the next response.
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
        fault
    }

    /// Gives the last bytes of a part of a file back to the body, since the client does not take them now: when it
    /// does, their pages may be gone from memory, or the file may have changed. Returns false if the body does not
    /// take them.
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
