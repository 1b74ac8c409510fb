//! The interface between protocols and everything that responds to requests: `Handler`, with `Request`, `Response`,
//! `Body` and `Fault`.
//!
//! All of these stay on the worker that serves the connection (nothing is `Send`). A handler that can respond at once
//! returns `Answer::Ready`, so a memory hit never awaits.

mod connection_queue;
mod encodings;
mod fault;
mod fault_response;
mod followed;
mod head;
pub mod loops;
pub mod representation;
pub mod template;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::{CacheStatus, FieldBlock, Fields, Fwd, InterimHeads, RequestId, Scheme, Status};
use crate::reason::Reason;
use crate::sys::Address;

pub use crate::tls::{ClientCertificate, Session};
pub use connection_queue::{ConnectionQueue, QueueEntries};
pub use encodings::{Choice, Encoded, Encodings, Get, Identity};
pub use fault::Fault;
pub use followed::Followed;
pub use head::{Head, HeadParts};

/// Anything that responds to a request: a cache, an upstream, files, the admin pages.
pub trait Handler {
    /// Responds to a request. Only downstream turns a `Fault` into a status.
    fn handle(&self, request: Request) -> Answer;
}

/// A handler's response, or the promise of one.
pub enum Answer {
    /// The response is complete now.
    Ready(Result<Response, Fault>),
    /// The response follows later.
    Later(Pending),
}

/// A response that follows later. Dropping this abandons the request.
pub struct Pending {
    /// Resolves to the final response. Its body is polled after that.
    pub response: LocalFuture<Result<Response, Fault>>,
    /// 1xx heads that may be sent before the response.
    pub interim: Option<Interim>,
    /// Server and times of the exchange with an origin, filled in while the response is awaited.
    pub upstream: Option<Rc<UpstreamTimings>>,
}

/// A boxed future that stays on its worker.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

impl Answer {
    /// Returns an answer whose response follows later, without 1xx heads.
    pub fn later(future: impl Future<Output = Result<Response, Fault>> + 'static) -> Answer {
        Answer::Later(Pending {
            response: Box::pin(future),
            interim: None,
            upstream: None,
        })
    }

    /// Applies `change` to the result of the answer, once the result is known.
    pub fn map(
        self,
        change: impl FnOnce(Result<Response, Fault>) -> Result<Response, Fault> + 'static,
    ) -> Answer {
        match self {
            Answer::Ready(result) => Answer::Ready(change(result)),
            Answer::Later(Pending {
                response,
                interim,
                upstream,
            }) => Answer::Later(Pending {
                response: Box::pin(async move { change(response.await) }),
                interim,
                upstream,
            }),
        }
    }

    /// Returns the server and times of an exchange with an origin, if one is in progress.
    pub fn upstream(&self) -> Option<Rc<UpstreamTimings>> {
        match self {
            Answer::Ready(_) => None,
            Answer::Later(pending) => pending.upstream.clone(),
        }
    }

    /// Waits for the response. 1xx heads stay in the queue of the request.
    pub async fn wait(self) -> Result<Response, Fault> {
        match self {
            Answer::Ready(response) => response,
            Answer::Later(pending) => pending.response.await,
        }
    }

    /// Waits for the response, and passes the 1xx heads that come before it to `interim`.
    pub async fn wait_with(
        self,
        mut interim: impl FnMut(Status, FieldBlock),
    ) -> Result<Response, Fault> {
        let mut pending = match self {
            Answer::Ready(response) => return response,
            Answer::Later(pending) => pending,
        };
        poll_fn(|cx| {
            let response = pending.response.as_mut().poll(cx);
            while let Some(queue) = &pending.interim
                && let Poll::Ready((status, fields)) = queue.poll_next(cx)
            {
                interim(status, fields);
            }
            response
        })
        .await
    }
}

/// A request whose head has been read and checked. Its body is read from the client when it is polled.
pub struct Request {
    /// The request's head.
    pub head: Head,
    /// The content (RFC 9110 6.4), without framing.
    pub body: Body,
    /// The two ends of the connection, and the client.
    pub peer: Peer,
    /// The queue of 1xx heads, if `interim()` has created it.
    pub interim: Option<Interim>,
}

impl Request {
    /// Returns the queue of 1xx heads, which the first call creates. `None` for HTTP/1.0, which has no 1xx responses (RFC
    /// 9110 15.2). A handler that calls this must put the same queue into its `Pending`.
    pub fn interim(&mut self) -> Option<Interim> {
        let has_interim = self.head.version.has_interim();
        has_interim.then(|| self.interim.get_or_insert_default().clone())
    }
}

/// The two ends of the client's connection, the client, and the scheme.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Address of the other end of the connection.
    pub address: Address,
    /// Address of the client: the other end of the connection, or the address that a trusted proxy reports.
    pub client: IpAddr,
    /// Address of the server's end of the connection.
    pub local: Address,
    /// `https` if the client uses TLS, else `http`.
    pub scheme: Scheme,
    /// The facts about the client's TLS session, if the connection has TLS.
    pub tls: Option<Session>,
    /// Whether the request is made for several clients, so that the origin is told no client's address.
    pub shared: bool,
}

/// A response: a complete head, and a body to be polled.
pub struct Response {
    /// Final status.
    pub status: Status,
    /// Stored header lines, which are sent first. All responses made of the same stored head share them.
    pub stored: FieldBlock,
    /// Further header lines. Never Content-Length, Transfer-Encoding, Connection or Keep-Alive, which downstream adds.
    pub fields: Fields,
    /// Age in seconds, for responses from the cache (RFC 9111 5.1).
    pub age_s: Option<u32>,
    /// The cache's handling of the request, for Cache-Status, the log and the counters.
    pub cache: Option<CacheStatus>,
    /// The length of the content to declare if `body` does not know it, as for HEAD and 304.
    pub length: Option<u64>,
    /// The content, without framing.
    pub body: Body,
    /// Whether the content ends when the origin closes its connection, so that truncation cannot be detected.
    pub until_close: bool,
    /// The stream to which the client is connected after this response, if the client asked for a tunnel.
    pub tunnel: Option<Box<dyn Duplex>>,
    /// Learns how many bytes of the content the client has received.
    pub receipt: Option<Arc<dyn Receipt>>,
    /// Server, status and times of the fetch from the origin, if one was made for this request.
    pub upstream: Option<Rc<UpstreamTimings>>,
    /// Reason of an error response, for the log.
    pub fault: Option<Reason>,
    /// Reason for which a cache forwarded a request that then failed, for the log. `cache` is `None` then.
    pub failed_fwd: Option<Fwd>,
}

impl Response {
    /// Returns a response with a status, no headers and no content.
    #[inline]
    pub fn new(status: Status) -> Response {
        Response {
            status,
            stored: FieldBlock::new(),
            fields: Fields::new(),
            age_s: None,
            cache: None,
            length: None,
            body: Body::Empty,
            until_close: false,
            tunnel: None,
            receipt: None,
            upstream: None,
            fault: None,
            failed_fwd: None,
        }
    }

    /// Returns a short plain-text response.
    pub fn text(status: Status, text: impl Into<Bytes>) -> Response {
        let mut response = Response::new(status);
        response
            .fields
            .append("content-type", "text/plain; charset=utf-8");
        response.body = Body::Bytes(text.into());
        response
    }

    /// Returns the length of the content to declare to the client: `length` if set, else the body's length.
    pub fn declared_length(&self) -> Option<u64> {
        self.length.or_else(|| self.body.length())
    }
}

/// Learns how many bytes of content a client has received. Responses of one connection may share a receipt.
pub trait Receipt {
    /// Counts bytes of content that the client has received.
    fn received(&self, bytes: u64);
}

/// A byte stream in both directions, such as an upgraded connection.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// Server, status and times of one request to an origin. `upstream` fills them in as the request proceeds; the access
/// log reads them.
#[derive(Debug, Default)]
pub struct UpstreamTimings {
    /// Address of the chosen server.
    pub server: Cell<Option<Address>>,
    /// Microseconds that connecting took. 0 on a reused connection.
    pub connect_us: Cell<u64>,
    /// Microseconds from sending the request to the complete head.
    pub header_us: Cell<Option<u64>>,
    /// Microseconds from sending the request to the end of the body.
    pub response_us: Cell<Option<u64>>,
    /// Status of the origin's response.
    pub status: Cell<Option<Status>>,
    /// Body bytes received.
    pub body_bytes: Cell<u64>,
    /// The redirects that were followed.
    pub followed: Cell<Followed>,
    /// Id of the request as the origin receives it, if requests have ids.
    pub request_id: RefCell<Option<RequestId>>,
    /// The requests that wait for a connection to the upstream's servers.
    pub queue: Option<Rc<ConnectionQueue>>,
    /// The entries of this request in queues for a connection.
    pub queue_entries: QueueEntries,
}

impl UpstreamTimings {
    /// Takes over the values of another request.
    pub fn take_over(&self, other: &UpstreamTimings) {
        self.server.set(other.server.get());
        self.connect_us.set(other.connect_us.get());
        self.header_us.set(other.header_us.get());
        self.response_us.set(other.response_us.get());
        self.status.set(other.status.get());
        self.body_bytes.set(other.body_bytes.get());
        self.followed.set(other.followed.get());
        self.request_id.replace(other.request_id.borrow().clone());
    }
}

/// The content of a request or response: nothing, bytes in memory, or a stream.
#[derive(Default)]
pub enum Body {
    /// No content.
    #[default]
    Empty,
    /// All of the content, in memory.
    Bytes(Bytes),
    /// Content that is polled frame by frame. Not polling it creates back-pressure.
    Stream(Box<dyn BodyStream>),
}

/// Content that arrives over time: stored blocks read one after another, an origin's response, a client's request
/// body. Dropping it abandons the rest of the content.
pub trait BodyStream {
    /// Returns the next frame, or `None` at the end. A `Fault` means that the content is truncated here, which the
    /// recipient must be able to detect. After `None` or a fault the stream must not be polled again.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>>;

    /// Returns the next frame like `poll_frame`, or writes bytes to `room` instead, which must not be full. That
    /// avoids a copy if the caller keeps the bytes.
    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        _room: &mut ReadBuf<'_>,
    ) -> Poll<Option<Result<Piece, Fault>>> {
        let polled = self.poll_frame(cx);
        polled.map(|frame| frame.map(|frame| frame.map(Piece::Frame)))
    }

    /// Limits the length in bytes of further parts of files, because the caller sends them slowly. The rest of a long
    /// part might be sent so late that the file has changed or left the page cache.
    fn prefer_short(&mut self, _bytes: u64) {}

    /// Takes back the last bytes of the last frame, which was a part of a file, because the client does not read them
    /// now. The stream checks these bytes again before it returns them again. Returns false if the stream does not
    /// support this.
    fn take_back(&mut self, _bytes: u64) -> bool {
        false
    }

    /// Requires that the content arrives at the origin's minimum rate even if it has no declared length.
    fn require_rate(&mut self) {}

    /// Returns the exact length of all further frames, if known.
    fn length(&self) -> Option<u64>;
}

/// The result of `poll_into`.
#[derive(Debug)]
pub enum Piece {
    /// A frame. `room` is unchanged.
    Frame(Frame),
    /// At least one byte was written to `room`.
    Placed,
}

/// A part of some content.
#[derive(Debug)]
pub enum Frame {
    /// Bytes, at least one.
    Data(Bytes),
    /// Bytes of a file, at least one. Only static files return such frames, and only downstream receives them.
    File(FileRange),
    /// Trailers (RFC 9110 6.5). Always the last frame.
    Trailers(Fields),
}

impl Frame {
    /// Returns the number of bytes of content in the frame.
    pub fn length(&self) -> u64 {
        match self {
            Frame::Data(bytes) => bytes.len() as u64,
            Frame::File(part) => part.range.end - part.range.start,
            Frame::Trailers(_) => 0,
        }
    }
}

/// Bytes of a file that are in the page cache, as far as the kernel can tell, so that sending them does not block.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file, open for reading.
    pub file: Arc<OwnedFd>,
    /// The range of bytes in the file.
    pub range: Range<u64>,
}

impl Body {
    /// Creates a body from a stream.
    pub fn stream(stream: impl BodyStream + 'static) -> Body {
        Body::Stream(Box::new(stream))
    }

    /// Returns the exact length of the rest of the content, if known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Bytes(bytes) => Some(bytes.len() as u64),
            Body::Stream(stream) => stream.length(),
        }
    }

    /// Whether the content is known to be empty.
    pub fn is_empty(&self) -> bool {
        matches!(self, Body::Empty) || matches!(self, Body::Bytes(b) if b.is_empty())
    }

    /// Returns the next frame, like `BodyStream::poll_frame`, but may also be polled after the end.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        match self {
            Body::Empty => Poll::Ready(None),
            Body::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Body::Empty;
                Poll::Ready((!bytes.is_empty()).then_some(Ok(Frame::Data(bytes))))
            }
            Body::Stream(stream) => {
                let polled = stream.poll_frame(cx);
                if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
                    *self = Body::Empty;
                }
                polled
            }
        }
    }

    /// Returns or writes the next bytes, like `BodyStream::poll_into`, but may also be polled after the end.
    pub fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<Option<Result<Piece, Fault>>> {
        let Body::Stream(stream) = self else {
            let polled = self.poll_frame(cx);
            return polled.map(|frame| frame.map(|frame| frame.map(Piece::Frame)));
        };
        let polled = stream.poll_into(cx, room);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            *self = Body::Empty;
        }
        polled
    }

    /// Waits for the next frame.
    pub async fn frame(&mut self) -> Option<Result<Frame, Fault>> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }
}

/// The queue of 1xx heads (RFC 9110 15.2) from a handler to its client, for one response. Heads beyond the limits of
/// `InterimHeads` are dropped.
#[derive(Clone, Default)]
pub struct Interim(Rc<RefCell<InterimState>>);

#[derive(Default)]
struct InterimState {
    heads: InterimHeads,
    waker: Option<Waker>,
}

impl Interim {
    /// Adds a head to the queue. Handlers must not add 100 or 101: downstream sends 100 itself, and 101 is a final
    /// response.
    pub fn push(&self, status: Status, fields: FieldBlock) {
        let mut state = self.0.borrow_mut();
        state.heads.push(status, fields);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Returns the next head, or `None` if the queue is empty.
    pub fn pop(&self) -> Option<(Status, FieldBlock)> {
        self.0.borrow_mut().heads.pop()
    }

    /// Returns the next head. Pending while the queue is empty.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<(Status, FieldBlock)> {
        let mut state = self.0.borrow_mut();
        match state.heads.pop() {
            Some(head) => Poll::Ready(head),
            None => {
                match &state.waker {
                    Some(waker) if waker.will_wake(cx.waker()) => {}
                    _ => state.waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_responses_are_small() {
        // Requests and responses are moved from handler to handler, and a move of more than 256 bytes costs twice as
        // much.
        assert!(size_of::<Request>() <= 144, "{}", size_of::<Request>());
        assert!(size_of::<Response>() <= 256, "{}", size_of::<Response>());
    }

    #[test]
    fn a_body_of_bytes_gives_one_frame_and_then_none() {
        let mut body = Body::Bytes(Bytes::from_static(b"abc"));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(body.length(), Some(3));
        assert!(
            matches!(body.poll_frame(&mut cx), Poll::Ready(Some(Ok(Frame::Data(b)))) if b == "abc")
        );
        assert!(matches!(body.poll_frame(&mut cx), Poll::Ready(None)));
        assert!(matches!(body.poll_frame(&mut cx), Poll::Ready(None)));
    }
}
