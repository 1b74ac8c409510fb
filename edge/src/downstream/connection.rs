//! The state of a client's connection that every protocol needs: transport, input buffer, deadline
//! slot, counts.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::handler::Peer;

use super::input::Input;
use super::transport::Transport;
use super::worker::Worker;

/// A client's connection, for any protocol. Dropping it closes the transport and releases every
/// count.
pub struct Connection {
    /// The worker that serves the connection.
    pub worker: Rc<Worker>,
    /// The byte stream to the client.
    pub transport: Transport,
    /// Addresses of both ends of the connection.
    pub peer: Peer,
    /// Index of the connection's slot in the worker's deadlines.
    pub slot: usize,
    /// Bytes read and not used yet. An idle connection has no buffer.
    input: Option<Box<Input>>,
    /// Whether the connection counts towards the limit of connections of its client.
    counted: bool,
}

impl Connection {
    /// Creates a connection that the worker has already counted.
    pub fn new(worker: Rc<Worker>, transport: Transport, peer: Peer) -> Connection {
        let slot = worker.deadlines.add();
        Connection {
            worker,
            transport,
            peer,
            slot,
            input: None,
            counted: false,
        }
    }

    /// Counts the connection towards its client's limit, if one is configured. Returns false if the
    /// client has reached the limit.
    pub fn count_client(&mut self) -> bool {
        let worker = &self.worker;
        let limit = worker.serving().options.connections_per_ip;
        if limit > 0 {
            let clients = &worker.balance.clients;
            self.counted = clients.enter(self.peer.address.ip(), limit);
            if !self.counted {
                worker.counters.connections_over_ip.add(1);
                return false;
            }
        }
        true
    }

    /// Returns the bytes read and not used yet.
    #[inline]
    pub fn input(&self) -> &[u8] {
        self.input.as_ref().map_or(&[], |input| input.bytes())
    }

    /// Removes the first `n` bytes of the input.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        if let Some(input) = &mut self.input {
            input.consume(n);
        }
    }

    /// Returns the input buffer to the pool if it is empty. Called before the connection waits.
    #[inline]
    pub fn release_buffer(&mut self) {
        if self.input.as_ref().is_some_and(|input| input.is_empty())
            && let Some(input) = self.input.take()
        {
            self.worker.pool.put(input);
        }
    }

    /// Moves a short input to a small buffer, since the rest of the head may never arrive.
    pub fn shrink_buffer(&mut self) {
        if let Some(input) = self.input.take() {
            self.input = Some(self.worker.pool.shrink(input));
        }
    }

    /// Whether the input buffer is full.
    pub fn is_full(&self) -> bool {
        self.input.as_ref().is_some_and(|input| input.is_full())
    }

    /// Enlarges the input buffer, up to `max` bytes.
    pub fn grow_buffer(&mut self, max: usize) {
        if let Some(input) = &mut self.input {
            input.grow(max);
        }
    }

    /// Reads more input. Returns the number of bytes, 0 at the end of the stream. Must not be
    /// called while the buffer is full.
    #[inline]
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self
            .input
            .as_ref()
            .is_some_and(|input| input.is_small() && input.is_empty())
        {
            self.release_buffer();
        }
        let worker = &self.worker;
        let input = self.input.get_or_insert_with(|| worker.pool.get());
        match self.transport.poll_read(cx, input.spare()) {
            Poll::Ready(Ok(n)) if n > 0 => {
                input.filled(n);
                self.worker.counters.client_bytes_in.add(n as u64);
                Poll::Ready(Ok(n))
            }
            other => {
                self.release_buffer();
                other
            }
        }
    }

    /// Reads bytes that have arrived but that the runtime has not reported yet. Returns whether
    /// there were any.
    pub fn fill_now(&mut self) -> bool {
        let worker = &self.worker;
        let input = self.input.get_or_insert_with(|| worker.pool.get());
        let found = match self.transport.read_now(input.spare()) {
            Ok(Some(n)) => n,
            _ => 0,
        };
        input.filled(found);
        self.worker.counters.client_bytes_in.add(found as u64);
        self.release_buffer();
        found > 0
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(input) = self.input.take() {
            self.worker.pool.put(input);
        }
        if std::thread::panicking() {
            self.worker.counters.panics.add(1);
        }
        if self.counted {
            self.worker.balance.clients.leave(self.peer.address.ip());
        }
        self.worker.closed(self.slot);
    }
}
