//! What a connection reads from and writes to, with the worker it belongs to.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::downstream::pool::Input;
use crate::downstream::worker::Worker;
use crate::handler::{Fault, Peer};
use crate::reason::Reason;
use crate::sys::net::Socket;

use super::outbox::Outbox;

/// Requests and bytes that one turn may serve before others get theirs.
const TURN_REQUESTS: u32 = 32;
const TURN_BYTES: usize = 1 << 20;

/// The socket, the bytes that were read from it, and the connection's place among the worker's.
pub struct Wire {
    /// The worker.
    pub worker: Rc<Worker>,
    /// The socket.
    pub socket: Socket,
    /// Both ends' addresses.
    pub peer: Peer,
    /// The slot among the worker's deadlines.
    pub slot: usize,
    /// Bytes read and not used; nothing while there are none.
    input: Option<Box<Input>>,
    /// Whether it counts as one of its client's connections.
    entered: bool,
}

impl Wire {
    /// Of a new connection.
    pub fn new(worker: Rc<Worker>, socket: Socket, peer: Peer) -> Wire {
        let slot = worker.deadlines.add();
        Wire {
            worker,
            socket,
            peer,
            slot,
            input: None,
            entered: false,
        }
    }

    /// Counts it as one of its client's connections, where their number is limited; says whether
    /// there is room for it.
    pub fn enter(&mut self) -> bool {
        let worker = &self.worker;
        let most = worker.serving().options.connections_per_ip;
        if most > 0 {
            self.entered = worker.balance.addresses.enter(self.peer.address.ip(), most);
            if !self.entered {
                worker.counters.connections_over_ip.add(1);
                return false;
            }
        }
        true
    }

    /// Bytes read and not used yet.
    #[inline]
    pub fn input(&self) -> &[u8] {
        self.input.as_ref().map_or(&[], |input| input.bytes())
    }

    /// `n` bytes of the input were used.
    #[inline]
    pub fn used(&mut self, n: usize) {
        if let Some(input) = &mut self.input {
            input.used(n);
        }
    }

    /// Gives the buffer back if nothing is in it: before waiting for anything.
    #[inline]
    pub fn release(&mut self) {
        if self.input.as_ref().is_some_and(|input| input.is_empty())
            && let Some(input) = self.input.take()
        {
            self.worker.pool.put_input(input);
        }
    }

    /// Keeps what came of a head in as little memory as will do: the rest may never come.
    pub fn tuck(&mut self) {
        if let Some(input) = self.input.take() {
            self.input = Some(self.worker.pool.tuck(input));
        }
    }

    /// Whether the buffer can take no more.
    pub fn is_full(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.is_full())
    }

    /// Room for a head of up to `most` bytes.
    pub fn grow(&mut self, most: usize) {
        if let Some(input) = &mut self.input {
            input.grow(most);
        }
    }

    /// Reads more behind the input; 0 at the end of what the client sends. Not when full.
    #[inline]
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self
            .input
            .as_ref()
            .is_some_and(|input| input.is_tucked() && input.is_empty())
        {
            self.release();
        }
        let worker = &self.worker;
        let input = self.input.get_or_insert_with(|| worker.pool.input());
        match self.socket.poll_read(cx, input.spare()) {
            Poll::Ready(Ok(n)) if n > 0 => {
                input.filled(n);
                self.worker.counters.client_bytes_in.add(n as u64);
                Poll::Ready(Ok(n))
            }
            other => {
                self.release();
                other
            }
        }
    }

    /// Looks for bytes that the reactor has not told of yet; says whether there are any.
    pub fn fill_now(&mut self, cx: &mut Context<'_>) -> bool {
        let worker = &self.worker;
        let input = self.input.get_or_insert_with(|| worker.pool.input());
        let found = match self.socket.read_now(cx, input.spare()) {
            Ok(Some(n)) => n,
            _ => 0,
        };
        input.filled(found);
        self.worker.counters.client_bytes_in.add(found as u64);
        self.release();
        found > 0
    }

    /// Writes once from the outbox.
    #[inline]
    pub fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Outbox,
        budget: &mut Budget,
    ) -> Poll<io::Result<()>> {
        let n = ready!(out.poll_write(cx, &mut self.socket))?;
        self.worker.counters.client_bytes_out.add(n as u64);
        budget.wrote(n);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Some(input) = self.input.take() {
            self.worker.pool.put_input(input);
        }
        if std::thread::panicking() {
            self.worker.counters.panics.add(1);
        }
        if self.entered {
            self.worker.balance.addresses.leave(self.peer.address.ip());
        }
        self.worker.closed(self.slot);
    }
}

/// Gives others their turn: this connection is polled again once the runtime has looked for their
/// news. Woken at once it would have dozens of turns before that.
pub fn yield_turn(cx: &mut Context<'_>) {
    let turn = pin!(tokio::task::yield_now());
    // Its first poll is pending, and leaves the waker with the runtime.
    let _ = turn.poll(cx);
}

/// What is left of a connection's turn.
pub struct Budget {
    requests: u32,
    bytes: usize,
    /// Bytes written since `take_written`.
    written: usize,
}

impl Budget {
    /// Of a new turn.
    pub fn new() -> Budget {
        Budget {
            requests: TURN_REQUESTS,
            bytes: TURN_BYTES,
            written: 0,
        }
    }

    /// Another request begins.
    #[inline]
    pub fn request(&mut self) {
        self.requests = self.requests.saturating_sub(1);
    }

    /// Bytes were read that cost work.
    #[inline]
    pub fn read(&mut self, n: usize) {
        self.bytes = self.bytes.saturating_sub(n);
    }

    #[inline]
    fn wrote(&mut self, n: usize) {
        self.bytes = self.bytes.saturating_sub(n);
        self.written += n;
    }

    /// Bytes written since this was last asked.
    #[inline]
    pub fn take_written(&mut self) -> usize {
        std::mem::take(&mut self.written)
    }

    /// Whether others are to have their turn.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.requests == 0 || self.bytes == 0
    }
}

/// Calls what is not ours to trust: a panic in it becomes a fault of this request alone.
#[inline]
pub fn guarded<T>(wire: &Wire, call: impl FnOnce() -> T) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|_| {
        wire.worker.counters.panics.add(1);
        Reason::Panic.into()
    })
}
