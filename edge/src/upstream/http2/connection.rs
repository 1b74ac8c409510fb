//! The pool's handle of a connection. When it is dropped, the connection gets no further exchanges, and ends after those in
//! progress.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Waker;

use super::options::Options;
use super::state::{Shared, State};
use super::stream::Stream;
use super::task::Task;
use crate::sys::Address;
use crate::upstream::options::Limits;
use crate::upstream::permit::Permit;
use crate::upstream::transport::Transport;

/// A connection in the pool.
pub(in crate::upstream) struct Connection {
    shared: Rc<Shared>,
    server: usize,
    peer: Option<Address>,
}

impl Connection {
    /// Creates a connection on a byte stream that was just opened, and starts its task.
    pub(in crate::upstream) fn new(
        transport: Transport,
        permit: Permit,
        limits: &Limits,
    ) -> Connection {
        let (server, peer) = (permit.server, transport.peer());
        let state = State::new(transport, permit, Options::new(limits));
        let shared = Rc::new(Shared::new(state));
        tokio::task::spawn_local(Task::new(shared.clone()));
        Connection {
            shared,
            server,
            peer,
        }
    }

    /// Returns the server's index.
    pub(in crate::upstream) fn server(&self) -> usize {
        self.server
    }

    /// Returns the address to which the connection is open.
    pub(in crate::upstream) fn peer(&self) -> Option<Address> {
        self.peer
    }

    /// Whether the exchange is one of this connection.
    pub(in crate::upstream) fn carries(&self, stream: &Stream) -> bool {
        stream.is_on(&self.shared)
    }

    /// Whether the connection has room for an exchange.
    pub(in crate::upstream) fn has_room(&self) -> bool {
        self.shared.read(State::has_room)
    }

    /// Takes the room for one exchange. Also returns the connection if it accepts further ones, now or later.
    pub(in crate::upstream) fn begin(self) -> (Stream, Option<Connection>) {
        let (exchange, is_usable) = self.shared.with(State::reserve);
        let exchange = Rc::new(RefCell::new(exchange));
        let stream = Stream::new(self.shared.clone(), exchange, self.peer);
        (stream, is_usable.then_some(self))
    }

    /// Whether the connection accepts exchanges, now or when others have ended. `waker` is woken when that changes.
    pub(in crate::upstream) fn stays_usable(&self, waker: &Waker) -> bool {
        self.shared.with(|state| {
            state.watch_room(waker);
            state.is_usable()
        })
    }

    /// Frees memory that an idle connection does not need. Returns whether there was any.
    pub(in crate::upstream) fn rest(&self) -> bool {
        self.shared.with(State::rest)
    }

    /// Returns the time since the last exchange has ended, in microseconds; 0 if one is in progress.
    pub(in crate::upstream) fn idle_us(&self) -> u64 {
        self.shared.read(State::idle_us)
    }

    /// Closes the connection. Returns its permit unless exchanges in progress still need it.
    pub(in crate::upstream) fn close(self) -> Option<Permit> {
        self.shared.with(|state| match state.is_idle() {
            true => state.permit.take(),
            false => None,
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.with(State::retire);
    }
}
