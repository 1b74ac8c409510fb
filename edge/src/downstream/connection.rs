//! The state of a client's connection that every protocol needs: transport, input buffer, deadline
//! slot, counts.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::handler::{Peer, Receipt};
use crate::http::ClientId;

use super::content_receipt::ContentReceipts;
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
    /// Whether a client that has closed its sending direction still gets the response.
    pub half_close: bool,
    /// Index of the connection's slot in the worker's deadlines.
    pub slot: usize,
    /// Number of bytes written so far, without those of a tunnel.
    pub written: u64,
    /// The contents that handlers want to know about, as far as the client has not acknowledged
    /// them.
    receipts: Option<Box<ContentReceipts>>,
    /// Bytes read and not used yet. An idle connection has no buffer.
    input: Option<Box<Input>>,
    /// Whether the connection counts towards the limit of connections of its client.
    counted: bool,
}

impl Connection {
    /// Creates a connection that the worker has already counted.
    pub fn new(
        worker: Rc<Worker>,
        transport: Transport,
        peer: Peer,
        half_close: bool,
    ) -> Connection {
        let slot = worker.deadlines.add();
        Connection {
            worker,
            transport,
            peer,
            half_close,
            slot,
            written: 0,
            receipts: None,
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
            let client = ClientId::of(self.peer.address.ip());
            self.counted = clients.add(client, 1, limit as u64);
            if !self.counted {
                worker.counters.connections_over_ip.add(1);
                return false;
            }
        }
        true
    }

    /// Begins to report how many bytes of a content the client has acknowledged. `unsent` is the
    /// number of bytes that will be written before the content. Reports follow from `wrote_content`
    /// and `report_received`, and when the connection is dropped.
    pub fn begin_receipt(&mut self, receipt: Arc<dyn Receipt>, unsent: u64) {
        let receipts = self.receipts.get_or_insert_default();
        receipts.begin(receipt, self.written + unsent);
    }

    /// Notes how many bytes of the content have been written for which `begin_receipt` was called.
    #[inline]
    pub fn wrote_content(&mut self, bytes: u64) {
        if let Some(receipts) = &mut self.receipts {
            receipts.wrote(bytes, || self.transport.acknowledged());
        }
    }

    /// Reports the bytes of such contents that the client has acknowledged meanwhile. Must not be
    /// called while a content is being written.
    #[inline]
    pub fn report_received(&mut self) {
        if let Some(receipts) = &mut self.receipts {
            receipts.report(|| self.transport.acknowledged());
            if receipts.is_reported() {
                self.receipts = None;
            }
        }
    }

    /// Whether the client has not acknowledged all content that a handler wants to know about.
    pub fn awaits_acknowledgements(&self) -> bool {
        self.receipts.is_some()
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

    /// Removes all of the input and returns it.
    pub fn take_input(&mut self) -> Vec<u8> {
        let bytes = self.input().to_vec();
        self.consume(bytes.len());
        self.release_buffer();
        bytes
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
        self.report_received();
        if let Some(input) = self.input.take() {
            self.worker.pool.put(input);
        }
        if std::thread::panicking() {
            self.worker.counters.panics.add(1);
        }
        if self.counted {
            let client = ClientId::of(self.peer.address.ip());
            self.worker.balance.clients.subtract(client, 1);
        }
        self.worker.closed(self.slot);
    }
}
