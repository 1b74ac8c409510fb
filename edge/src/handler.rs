//! What answers requests: `Handler`, with `Request`, `Response`, `Body` and `Fault`.
//!
//! Everything here stays on the worker that accepted the connection (nothing is `Send`). A handler
//! that can answer at once does (`Answer::Ready`), so that a memory hit never awaits.

mod encodings;
mod fault;
pub mod representation;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::{CacheStatus, FieldBlock, Fields, Method, Scheme, Status, Version};

pub use encodings::{Choice, Encoded, Encodings, Get, Identity};
pub use fault::{Cause, Fault, Stage, Whose};

/// Anything that answers a request: a cache, an upstream, files, the admin pages.
pub trait Handler {
    /// Answers. A `Fault` becomes a status only in downstream.
    fn handle(&self, request: Request) -> Answer;
}

/// What a handler gives back.
pub enum Answer {
    /// The response, now.
    Ready(Result<Response, Fault>),
    /// The response, later.
    Later(Pending),
}

/// A response still to come. Dropping it abandons the request.
pub struct Pending {
    /// Resolves to the final response's head, with its body to be polled.
    pub response: LocalFuture<Result<Response, Fault>>,
    /// 1xx heads that may be sent before it.
    pub interim: Option<Interim>,
}

/// A boxed future that stays on its worker.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

impl Answer {
    /// A response that comes later, without 1xx heads before it.
    pub fn later(future: impl Future<Output = Result<Response, Fault>> + 'static) -> Answer {
        Answer::Later(Pending {
            response: Box::pin(future),
            interim: None,
        })
    }

    /// This answer with its result changed by `change`, now or when it comes.
    pub fn map(
        self,
        change: impl FnOnce(Result<Response, Fault>) -> Result<Response, Fault> + 'static,
    ) -> Answer {
        match self {
            Answer::Ready(result) => Answer::Ready(change(result)),
            Answer::Later(Pending { response, interim }) => Answer::Later(Pending {
                response: Box::pin(async move { change(response.await) }),
                interim,
            }),
        }
    }

    /// The response, whether it was ready or has to be awaited (1xx heads are not shown).
    pub async fn wait(self) -> Result<Response, Fault> {
        match self {
            Answer::Ready(response) => response,
            Answer::Later(pending) => pending.response.await,
        }
    }
}

/// A request whose head has been read and checked. Its body is read as it is polled.
pub struct Request {
    /// The head.
    pub head: Head,
    /// The content (RFC 9110 6.4), unframed.
    pub body: Body,
    /// Who asked.
    pub peer: Peer,
    /// Where a handler that answers later may put 1xx heads; made by `interim()`.
    pub interim: Option<Interim>,
}

impl Request {
    /// The queue for 1xx heads, made when first asked for. A handler that calls this puts the same
    /// queue into its `Pending`.
    pub fn interim(&mut self) -> Interim {
        self.interim.get_or_insert_with(Interim::default).clone()
    }
}

/// The connection's two ends and its scheme.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// The other end of the connection.
    pub address: SocketAddr,
    /// Who asks: the other end, or whoever a trusted proxy says it is.
    pub client: IpAddr,
    /// Our address.
    pub local: SocketAddr,
    /// `https` under TLS.
    pub scheme: Scheme,
}

/// The head of a request in the one form that route, key and origin all see.
///
/// Its buffers come from, and go back to, a small pool of the worker's.
#[derive(Clone, Debug)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// Absolute path and query in origin-form (RFC 9112 3.2.1), dot segments removed, at least `/`
    /// (or `*` for OPTIONS). Visible ASCII without `#` and backslash.
    pub target: String,
    /// Host and optional port, lower case (RFC 9110 7.2); empty for HTTP/1.0 without Host.
    pub authority: String,
    /// As received.
    pub version: Version,
    /// The field lines as received, Host and framing fields included.
    pub fields: Fields,
    /// Whether the client asks for another protocol on an HTTP/1.1 connection (RFC 9110 7.8).
    pub upgrade: bool,
}

thread_local! {
    static HEAD_BUFFERS: RefCell<Vec<(String, String, Fields)>> = const { RefCell::new(Vec::new()) };
}

/// Heads kept for reuse per worker, and the largest one that is worth keeping.
const POOLED_HEADS_MAX: usize = 64;
const POOLED_HEAD_BYTES_MAX: usize = 8 << 10;

impl Head {
    /// An empty head whose buffers are to be filled.
    pub fn new() -> Head {
        let (target, authority, fields) = HEAD_BUFFERS
            .try_with(|pool| pool.borrow_mut().pop())
            .ok()
            .flatten()
            .unwrap_or_default();
        Head {
            method: Method::Get,
            target,
            authority,
            version: Version::Http11,
            fields,
            upgrade: false,
        }
    }

    /// The path: the target up to the first `?`.
    pub fn path(&self) -> &str {
        self.target
            .split_once('?')
            .map_or(&self.target, |(path, _)| path)
    }

    /// The query: what follows the first `?`, when there is one.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        if self.fields.memory() + self.target.capacity() > POOLED_HEAD_BYTES_MAX {
            return;
        }
        self.target.clear();
        self.authority.clear();
        self.fields.clear();
        let buffers = (
            std::mem::take(&mut self.target),
            std::mem::take(&mut self.authority),
            std::mem::take(&mut self.fields),
        );
        // At a thread's end the pool may be gone already: then the buffers are simply freed.
        let _ = HEAD_BUFFERS.try_with(|pool| {
            let mut pool = pool.borrow_mut();
            if pool.len() < POOLED_HEADS_MAX {
                pool.push(buffers);
            }
        });
    }
}

impl Default for Head {
    fn default() -> Head {
        Head::new()
    }
}

/// A response: the head is complete, the body is polled.
pub struct Response {
    /// The final status.
    pub status: Status,
    /// Field lines that are sent first, and shared by all responses made of the same stored head.
    pub stored: FieldBlock,
    /// Further field lines. Never Content-Length, Transfer-Encoding, Connection or Keep-Alive:
    /// framing is downstream's.
    pub fields: Fields,
    /// Age in seconds, for responses out of the cache (RFC 9111 5.1).
    pub age_s: Option<u32>,
    /// Rendered as Cache-Status, logged and counted.
    pub cache: Option<CacheStatus>,
    /// The Content-Length to declare where `body` does not tell: HEAD and 304 have no body.
    pub length: Option<u64>,
    /// The content, unframed.
    pub body: Body,
    /// The content ends with the origin's connection: nobody can tell whether it is whole.
    pub until_close: bool,
    /// With status 101: the other end of the tunnel (RFC 9110 7.8).
    pub upgrade: Option<Box<dyn Duplex>>,
    /// Server, status and times of the fetch from the origin, if this request caused one.
    pub upstream: Option<Rc<UpstreamTimings>>,
    /// What went wrong, in a response that tells of it: for the log.
    pub fault: Option<Cause>,
}

impl Response {
    /// A response with a status and nothing else.
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
            upgrade: None,
            upstream: None,
            fault: None,
        }
    }

    /// A short plain-text response of our own.
    pub fn text(status: Status, text: impl Into<Bytes>) -> Response {
        let mut response = Response::new(status);
        response
            .fields
            .append("content-type", "text/plain; charset=utf-8");
        response.body = Body::Bytes(text.into());
        response
    }

    /// The length to declare: as set, else the body's.
    pub fn content_length(&self) -> Option<u64> {
        self.length.or_else(|| self.body.length())
    }
}

/// A byte stream both ways, as an upgraded connection is.
pub trait Duplex: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// Server, status and times of one request to an origin. `upstream` fills them in as the request proceeds; the
/// access log reads them.
#[derive(Debug, Default)]
pub struct UpstreamTimings {
    /// The server asked, once chosen.
    pub server: Cell<Option<SocketAddr>>,
    /// Microseconds to connect; 0 on a reused connection.
    pub connect_us: Cell<u64>,
    /// Microseconds from sending the request to the complete head.
    pub header_us: Cell<Option<u64>>,
    /// Microseconds from sending the request to the end of the body.
    pub response_us: Cell<Option<u64>>,
    /// Status the origin answered.
    pub status: Cell<Option<Status>>,
    /// Body bytes received.
    pub body_bytes: Cell<u64>,
}

/// Content: nothing, bytes at hand, or a stream.
#[derive(Default)]
pub enum Body {
    /// No content.
    #[default]
    Empty,
    /// All of it, at hand.
    Bytes(Bytes),
    /// Polled chunk by chunk. Back-pressure is not being polled.
    Stream(Box<dyn BodyStream>),
}

/// Content that arrives over time: stored blocks read one after another, an origin's response, a
/// client's upload. Dropping it abandons the rest.
pub trait BodyStream {
    /// The next frame; `None` at the end. A `Fault` means that the content is cut short here, and
    /// must look so to whoever receives it. After `None` or a fault it is not polled again.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>>;

    /// As `poll_frame`, but bytes may be put into `room`, which has some, instead of being given as
    /// a frame: whoever keeps them need not copy them then.
    fn poll_into(
        &mut self,
        cx: &mut Context<'_>,
        _room: &mut ReadBuf<'_>,
    ) -> Poll<Option<Result<Piece, Fault>>> {
        let polled = self.poll_frame(cx);
        polled.map(|frame| frame.map(|frame| frame.map(Piece::Frame)))
    }

    /// Whoever polls lets frames go slowly, and would rather have no parts of files longer than this: what
    /// was looked at when a part was given may no longer be true when it goes.
    fn prefer_short(&mut self, _bytes: u64) {}

    /// Takes back the last bytes of the frame that was given last, a part of a file, since the client
    /// does not take them now: they come again when it does, looked at anew. Says whether it did.
    fn take_back(&mut self, _bytes: u64) -> bool {
        false
    }

    /// The exact length of all frames still to come, when known.
    fn length(&self) -> Option<u64>;
}

/// What came of polling a body with room for its bytes.
#[derive(Debug)]
pub enum Piece {
    /// A frame: nothing was put into the room.
    Frame(Frame),
    /// At least one byte was put there.
    Placed,
}

/// A piece of content.
#[derive(Debug)]
pub enum Frame {
    /// Bytes, never empty.
    Data(Bytes),
    /// Bytes of a file, never none. Only static files give these, and only downstream gets them.
    File(FileRange),
    /// Trailer fields (RFC 9110 6.5); the last frame.
    Trailers(Fields),
}

impl Frame {
    /// Bytes of content that it is.
    pub fn length(&self) -> u64 {
        match self {
            Frame::Data(bytes) => bytes.len() as u64,
            Frame::File(part) => part.range.end - part.range.start,
            Frame::Trailers(_) => 0,
        }
    }
}

/// Bytes of a file that are at hand, as far as that can be told: sending them keeps nobody waiting.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file, open for reading.
    pub file: Arc<OwnedFd>,
    /// Which of its bytes.
    pub range: Range<u64>,
}

impl Body {
    /// From a stream.
    pub fn stream(stream: impl BodyStream + 'static) -> Body {
        Body::Stream(Box::new(stream))
    }

    /// The exact length of what is still to come, when known.
    pub fn length(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Bytes(bytes) => Some(bytes.len() as u64),
            Body::Stream(stream) => stream.length(),
        }
    }

    /// Whether it is known that nothing is to come.
    pub fn is_empty(&self) -> bool {
        matches!(self, Body::Empty) || matches!(self, Body::Bytes(b) if b.is_empty())
    }

    /// The next frame, as `BodyStream::poll_frame`; safe to poll after the end.
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

    /// As `BodyStream::poll_into`; safe to poll after the end.
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

    /// The next frame, awaited.
    pub async fn frame(&mut self) -> Option<Result<Frame, Fault>> {
        std::future::poll_fn(|cx| self.poll_frame(cx)).await
    }
}

/// A bounded queue of 1xx heads (RFC 9110 15.2) between an exchange and its client.
#[derive(Clone, Default)]
pub struct Interim(Rc<RefCell<InterimState>>);

#[derive(Default)]
struct InterimState {
    heads: VecDeque<(Status, Fields)>,
    waker: Option<Waker>,
}

impl Interim {
    /// More than this many unsent 1xx heads are dropped: they are only hints.
    pub const HEADS_MAX: usize = 8;

    /// Adds a head. 100 and 101 are not passed: downstream answers Expect, and 101 is final.
    pub fn push(&self, status: Status, fields: Fields) {
        let mut state = self.0.borrow_mut();
        if state.heads.len() < Self::HEADS_MAX {
            state.heads.push_back((status, fields));
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The next head; pending while there is none.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<(Status, Fields)> {
        let mut state = self.0.borrow_mut();
        match state.heads.pop_front() {
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
