//! WebSockets over HTTP/2 (RFC 8441): an extended CONNECT becomes the Upgrade that HTTP/1.1 has for it, and the tunnel of
//! its response becomes the content of the stream in both directions.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use tokio::io::ReadBuf;

use crate::downstream::Refusal;
use crate::downstream::deadlines::{Tick, ticks};
use crate::downstream::exchange::guarded;
use crate::handler::{Body, BodyStream, Duplex, Fault, Frame, Head, Response};
use crate::http2::request::Request;
use crate::reason::Reason;
use crate::telemetry::Counters;

/// Most bytes that are read from the other stream at a time.
const READ_BYTES: usize = 16 << 10;

/// Turns the head of an extended CONNECT, whose method is GET already, into that of the opening handshake of a WebSocket in HTTP/1.1 (RFC 8441 5,
/// RFC 6455 4.1).
///
/// # Errors
///
/// Another protocol is wanted, or none. Content has no place in a handshake.
pub fn as_upgrade(head: &mut Head, request: &Request) -> Result<(), Refusal> {
    let is_websocket = request.protocol.eq_ignore_ascii_case(b"websocket");
    if !is_websocket || request.content_length.is_some() {
        return Err(Refusal::of(Reason::Connect));
    }
    // HTTP/2 has no key, since its frames cannot be mistaken for those of a WebSocket.
    head.fields.remove("sec-websocket-key");
    head.fields.append("connection", "Upgrade");
    head.fields.append("upgrade", "websocket");
    head.fields.append("sec-websocket-key", key());
    head.wants_tunnel = true;
    Ok(())
}

/// Returns a random key (RFC 6455 4.1).
fn key() -> String {
    let random = || RandomState::new().hash_one(0u8).to_ne_bytes();
    STANDARD.encode([random(), random()].concat())
}

/// Turns the response to such a request into the one that HTTP/2 has for it. `content` is the content of the request. If
/// the response begins a tunnel, it becomes its content.
pub fn accept(response: &mut Response, content: Option<Body>) -> Option<Tunnel> {
    let duplex = response.tunnel.take();
    match (duplex, content, response.status) {
        (Some(duplex), Some(content), 101) => {
            let tunnel = Tunnel(Rc::new(RefCell::new(Parts {
                duplex,
                content,
                unwritten: Bytes::new(),
                up: Up::Open,
                has_moved: true,
                last: 0,
            })));
            response.status = 200;
            response.fields.remove("sec-websocket-accept");
            response.body = Body::stream(TunnelContent(tunnel.clone()));
            Some(tunnel)
        }
        // In HTTP/2 any other successful response would begin a tunnel, too (RFC 9110 9.3.6).
        (None, Some(_), 200..=299) | (Some(_), _, _) => {
            *response = Fault::from(Reason::UnexpectedStatus).response();
            None
        }
        _ => None,
    }
}

/// A tunnel between a stream and the one that the handler returned.
#[derive(Clone)]
pub struct Tunnel(Rc<RefCell<Parts>>);

/// The content of the response, which comes out of the tunnel.
struct TunnelContent(Tunnel);

struct Parts {
    duplex: Box<dyn Duplex>,
    /// The content of the request, which goes into the tunnel.
    content: Body,
    /// Content that was taken and not written.
    unwritten: Bytes,
    up: Up,
    /// Whether bytes have passed since the last call of `deadline`.
    has_moved: bool,
    last: Tick,
}

/// State of the direction from the client.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Up {
    Open,
    /// The client has ended its direction, which has not been passed on.
    Ended,
    Closed,
    /// The other stream takes nothing any more, or the client's content is truncated.
    Failed(Fault),
}

impl Tunnel {
    /// Passes on content of the client.
    pub fn poll_up(&self, cx: &mut Context<'_>, counters: &Counters) {
        let mut parts = self.0.borrow_mut();
        let polled = guarded(counters, || parts.poll_up(cx));
        if let Err(fault) = polled.flatten() {
            parts.up = Up::Failed(fault);
        }
    }

    /// Returns the tick at which no byte has passed for `timeout`.
    pub fn deadline(&self, now: Tick, timeout: std::time::Duration) -> Tick {
        let mut parts = self.0.borrow_mut();
        if std::mem::take(&mut parts.has_moved) {
            parts.last = now;
        }
        parts.last.saturating_add(ticks(timeout))
    }
}

impl Parts {
    fn poll_up(&mut self, cx: &mut Context<'_>) -> Result<(), Fault> {
        loop {
            while !self.unwritten.is_empty() {
                let duplex = Pin::new(&mut *self.duplex);
                match duplex.poll_write(cx, &self.unwritten) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(Ok(n @ 1..)) => self.unwritten.advance(n),
                    Poll::Ready(_) => return Err(Reason::BodyCut.into()),
                }
                self.has_moved = true;
            }
            match self.up {
                Up::Closed | Up::Failed(_) => return Ok(()),
                Up::Ended => {
                    if let Poll::Ready(ended) = Pin::new(&mut *self.duplex).poll_shutdown(cx) {
                        self.up = Up::Closed;
                        ended.map_err(|_| Reason::BodyCut)?;
                    }
                    return Ok(());
                }
                Up::Open => {}
            }
            match self.content.poll_frame(cx) {
                Poll::Ready(Some(Ok(Frame::Data(bytes)))) => self.unwritten = bytes,
                // A tunnel has no trailers (RFC 9113 8.5).
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(fault))) => return Err(fault),
                Poll::Ready(None) => self.up = Up::Ended,
                Poll::Pending => {
                    let flushed = Pin::new(&mut *self.duplex).poll_flush(cx);
                    return match flushed {
                        Poll::Ready(Err(_)) => Err(Reason::BodyCut.into()),
                        _ => Ok(()),
                    };
                }
            }
        }
    }

    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let mut memory = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut read = ReadBuf::uninit(&mut memory);
        ready!(Pin::new(&mut *self.duplex).poll_read(cx, &mut read))?;
        self.has_moved = true;
        Poll::Ready(Ok(Bytes::copy_from_slice(read.filled())))
    }
}

impl BodyStream for TunnelContent {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, Fault>>> {
        let mut parts = self.0.0.borrow_mut();
        match parts.poll_down(cx) {
            Poll::Pending => match parts.up {
                Up::Failed(fault) => Poll::Ready(Some(Err(fault))),
                _ => Poll::Pending,
            },
            // The other stream has ended, so further content of the client has no reader.
            Poll::Ready(Ok(bytes)) if bytes.is_empty() => Poll::Ready(None),
            Poll::Ready(Ok(bytes)) => Poll::Ready(Some(Ok(Frame::Data(bytes)))),
            Poll::Ready(Err(_)) => Poll::Ready(Some(Err(Reason::BodyCut.into()))),
        }
    }

    fn length(&self) -> Option<u64> {
        None
    }
}
