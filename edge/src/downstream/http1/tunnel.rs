//! An upgraded connection (RFC 9110 7.8): bytes both ways, half-closes passed on.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::downstream::deadlines::{Tick, ticks};
use crate::handler::Duplex;
use crate::sys::net::Socket;

use super::wire::{Wire, guarded, yield_turn};

/// Bytes held each way.
const BUFFER_BYTES: usize = 16 << 10;
/// Bytes copied in one turn before others get theirs.
const TURN_BYTES: u64 = 1 << 20;
/// How long a tunnel may be silent both ways.
const IDLE: Duration = Duration::from_secs(300);

/// The tunnel between a client and the handler's other end.
pub struct Tunnel {
    duplex: Box<dyn Duplex>,
    up: Lane,
    down: Lane,
    last: Option<Tick>,
    moved: bool,
}

/// One direction.
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
    /// With nothing sent yet.
    pub fn new(duplex: Box<dyn Duplex>) -> Tunnel {
        Tunnel {
            duplex,
            up: Lane::default(),
            down: Lane::default(),
            last: None,
            moved: false,
        }
    }

    /// Bytes sent to the client.
    pub fn bytes_to_client(&self) -> u64 {
        self.down.total
    }

    /// Until when something has to move.
    pub fn deadline(&mut self, now: Tick) -> Tick {
        if std::mem::take(&mut self.moved) || self.last.is_none() {
            self.last = Some(now);
        }
        self.last.unwrap_or(now).saturating_add(ticks(IDLE))
    }

    /// Copies; ready when both ways are at their end, or one is broken.
    pub fn poll(&mut self, cx: &mut Context<'_>, wire: &mut Wire) -> Poll<()> {
        let before = self.up.total + self.down.total;
        loop {
            let round = self.up.total + self.down.total;
            let up = self.poll_up(cx, wire);
            let down = self.poll_down(cx, wire);
            let now = self.up.total + self.down.total;
            self.moved |= now > before;
            if matches!(up, Poll::Ready(Err(_)))
                || matches!(down, Poll::Ready(Err(_)))
                || (up.is_ready() && down.is_ready())
            {
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

    /// From the client; ready when its end has been passed on.
    fn poll_up(&mut self, cx: &mut Context<'_>, wire: &mut Wire) -> Poll<io::Result<()>> {
        let lane = &mut self.up;
        if lane.closed {
            return Poll::Ready(Ok(()));
        }
        if wire.input().is_empty() && !lane.ended {
            lane.ended = ready!(wire.poll_fill(cx))? == 0;
        }
        let duplex = &mut self.duplex;
        while !wire.input().is_empty() {
            let written = guarded(wire, || Pin::new(&mut *duplex).poll_write(cx, wire.input()));
            let n = ready!(written.unwrap_or_else(|_| broken()))?;
            if n == 0 {
                return broken();
            }
            wire.used(n);
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

    /// To the client; ready when the other end's end has been passed on.
    fn poll_down(&mut self, cx: &mut Context<'_>, wire: &mut Wire) -> Poll<io::Result<()>> {
        let lane = &mut self.down;
        if lane.closed {
            return Poll::Ready(Ok(()));
        }
        if lane.unsent().is_empty() && !lane.ended {
            let duplex = &mut self.duplex;
            let read = guarded(wire, || poll_read_into(duplex, cx, &mut lane.buffer));
            if ready!(read.unwrap_or_else(|_| broken()))? == 0 {
                lane.ended = true;
            }
        }
        while !lane.unsent().is_empty() {
            let n = ready!(poll_send(&mut wire.socket, cx, lane.unsent()))?;
            wire.worker.counters.client_bytes_out.add(n as u64);
            lane.advance(n);
        }
        // Silent tunnels hold no buffer.
        lane.buffer = Vec::new();
        if lane.ended {
            wire.socket.shutdown_write();
            lane.closed = true;
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }
}

fn poll_send(socket: &mut Socket, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
    socket.poll_write(cx, &[IoSlice::new(bytes)], false)
}

/// Reads into an empty buffer, which keeps no memory if nothing is there.
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
