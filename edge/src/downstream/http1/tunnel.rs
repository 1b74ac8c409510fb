//! Copies the bytes of an upgraded connection (RFC 9110 7.8) in both directions, and forwards
//! half-closes.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::downstream::connection::Connection;
use crate::downstream::deadlines::{Tick, ticks};
use crate::downstream::exchange::guarded;
use crate::downstream::transport::Transport;
use crate::downstream::turn::yield_turn;
use crate::handler::Duplex;

/// Bytes buffered in each direction.
const BUFFER_BYTES: usize = 16 << 10;
/// Most bytes copied before other connections get their turn.
const TURN_BYTES: u64 = 1 << 20;
/// The tunnel between a client and the stream that the handler returned, such as a connection to
/// the origin.
pub struct Tunnel {
    duplex: Box<dyn Duplex>,
    up: Lane,
    down: Lane,
    last: Option<Tick>,
    moved: bool,
}

/// One direction of a tunnel.
#[derive(Default)]
struct Lane {
    buffer: Vec<u8>,
    sent: usize,
    total: u64,
    ended: bool,
    closed: bool,
}

impl Lane {
    fn unsent(&self) -> &[u8] {
        &self.buffer[self.sent..]
    }

    fn advance(&mut self, n: usize) {
        self.sent += n;
        self.total += n as u64;
        if self.sent == self.buffer.len() {
            self.buffer.clear();
            self.sent = 0;
        }
    }
}

impl Tunnel {
    /// Creates the tunnel to this stream.
    pub fn new(duplex: Box<dyn Duplex>) -> Tunnel {
        Tunnel {
            duplex,
            up: Lane::default(),
            down: Lane::default(),
            last: None,
            moved: false,
        }
    }

    /// Returns the number of bytes sent to the client.
    pub fn bytes_to_client(&self) -> u64 {
        self.down.total
    }

    /// Returns the tick at which no byte has passed for `timeout`.
    pub fn deadline(&mut self, now: Tick, timeout: Duration) -> Tick {
        if std::mem::take(&mut self.moved) || self.last.is_none() {
            self.last = Some(now);
        }
        self.last.unwrap_or(now).saturating_add(ticks(timeout))
    }

    /// Copies bytes in both directions. Ready when both directions have ended or one has failed.
    pub fn poll(&mut self, cx: &mut Context<'_>, connection: &mut Connection) -> Poll<()> {
        let before = self.up.total + self.down.total;
        loop {
            let round = self.up.total + self.down.total;
            let up = self.poll_up(cx, connection);
            let down = self.poll_down(cx, connection);
            let now = self.up.total + self.down.total;
            self.moved |= now > before;
            let has_failed =
                matches!(up, Poll::Ready(Err(_))) || matches!(down, Poll::Ready(Err(_)));
            if has_failed {
                self.cut(connection);
            }
            if has_failed || (up.is_ready() && down.is_ready()) {
                return Poll::Ready(());
            }
            if now - before > TURN_BYTES {
                yield_turn(cx);
                return Poll::Pending;
            }
            if now == round {
                return Poll::Pending;
            }
        }
    }

    /// Keeps the bytes sent to the client from looking complete, if the other stream has not ended.
    pub fn cut(&self, connection: &mut Connection) {
        if !self.down.closed {
            connection.transport.withhold_end();
        }
    }

    /// Copies from the client. Ready when the end of the client's stream has been forwarded.
    fn poll_up(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Poll<io::Result<()>> {
        let lane = &mut self.up;
        if lane.closed {
            return Poll::Ready(Ok(()));
        }
        if connection.input().is_empty() && !lane.ended {
            lane.ended = ready!(connection.poll_fill(cx))? == 0;
        }
        let duplex = &mut self.duplex;
        while !connection.input().is_empty() {
            let written = guarded(&connection.worker.counters, || {
                Pin::new(&mut *duplex).poll_write(cx, connection.input())
            });
            let n = ready!(written.unwrap_or_else(|_| broken()))?;
            if n == 0 {
                return broken();
            }
            connection.consume(n);
            lane.total += n as u64;
        }
        if lane.ended {
            ready!(Pin::new(&mut *duplex).poll_shutdown(cx))?;
            lane.closed = true;
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut *duplex).poll_flush(cx))?;
        Poll::Pending
    }

    /// Copies to the client. Ready when the end of the other stream has been forwarded to the
    /// client.
    fn poll_down(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
    ) -> Poll<io::Result<()>> {
        let lane = &mut self.down;
        if lane.closed {
            return Poll::Ready(Ok(()));
        }
        if lane.unsent().is_empty() && !lane.ended {
            let duplex = &mut self.duplex;
            let read = guarded(&connection.worker.counters, || {
                poll_read_into(duplex, cx, &mut lane.buffer)
            });
            if ready!(read.unwrap_or_else(|_| broken()))? == 0 {
                lane.ended = true;
            }
        }
        while !lane.unsent().is_empty() {
            let n = ready!(poll_send(&mut connection.transport, cx, lane.unsent()))?;
            connection.worker.counters.client_bytes_out.add(n as u64);
            lane.advance(n);
        }
        // The buffer is freed, so that a silent tunnel holds none.
        lane.buffer = Vec::new();
        if lane.ended {
            ready!(connection.transport.poll_shutdown_write(cx))?;
            lane.closed = true;
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

fn poll_send(
    transport: &mut Transport,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    transport.poll_write(cx, &[IoSlice::new(bytes)], false)
}

/// Reads into an empty buffer. The buffer allocates no memory if nothing has arrived.
fn poll_read_into(
    duplex: &mut Box<dyn Duplex>,
    cx: &mut Context<'_>,
    buffer: &mut Vec<u8>,
) -> Poll<io::Result<usize>> {
    let mut memory = [const { MaybeUninit::uninit() }; BUFFER_BYTES];
    let mut read = ReadBuf::uninit(&mut memory);
    ready!(Pin::new(duplex).poll_read(cx, &mut read))?;
    buffer.extend_from_slice(read.filled());
    Poll::Ready(Ok(buffer.len()))
}

fn broken<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
}
