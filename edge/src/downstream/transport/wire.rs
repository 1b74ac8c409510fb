//! The byte stream below everything else: a kernel socket, or memory in tests.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

#[cfg(any(test, feature = "test-rigs"))]
use super::memory;
use crate::sys::net::{Accepted, Socket};

/// A byte stream without TLS. `Transport` describes the methods.
#[allow(missing_docs, reason = "the methods are those of `Transport`")]
pub enum Wire {
    Socket(Socket),
    #[cfg(any(test, feature = "test-rigs"))]
    Memory(memory::End),
}

#[allow(missing_docs, reason = "the methods are those of `Transport`")]
impl Wire {
    pub fn new(accepted: Accepted) -> Wire {
        Wire::Socket(Socket::new(accepted))
    }

    #[inline]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Wire::Socket(socket) => socket.poll_read(cx, buf),
            #[cfg(any(test, feature = "test-rigs"))]
            Wire::Memory(end) => end.poll_read(cx, buf),
        }
    }

    pub fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Wire::Socket(socket) => socket.read_now(buf),
            #[cfg(any(test, feature = "test-rigs"))]
            Wire::Memory(end) => end.read_now(buf),
        }
    }

    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Wire::Socket(socket) => socket.poll_closed(cx),
            #[cfg(any(test, feature = "test-rigs"))]
            Wire::Memory(end) => end.poll_closed(cx),
        }
    }

    #[inline]
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        match self {
            Wire::Socket(socket) => socket.poll_write(cx, slices, more),
            #[cfg(any(test, feature = "test-rigs"))]
            Wire::Memory(end) => end.poll_write(cx, slices),
        }
    }

    #[inline]
    pub fn sends_files(&self) -> bool {
        match self {
            Wire::Socket(_) => true,
            #[cfg(any(test, feature = "test-rigs"))]
            Wire::Memory(_) => false,
        }
    }

    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &OwnedFd,
        range: Range<u64>,
    ) -> Poll<io::Result<usize>> {
        match self {
            Wire::Socket(socket) => socket.poll_send_file(cx, file, range),
            #[cfg(any(test, feature = "test-rigs"))]
            Wire::Memory(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    #[inline]
    pub fn fit_send_buffer(&mut self) {
        match self {
            Wire::Socket(socket) => socket.fit_send_buffer(),
            #[cfg(any(test, feature = "test-rigs"))]
            Wire::Memory(_) => {}
        }
    }

    pub fn acknowledged(&self) -> Option<u64> {
        match self {
            Wire::Socket(socket) => socket.acknowledged(),
            #[cfg(any(test, feature = "test-rigs"))]
            Wire::Memory(_) => None,
        }
    }

    pub fn acknowledge_now(&self) {
        match self {
            Wire::Socket(socket) => socket.acknowledge_now(),
            #[cfg(any(test, feature = "test-rigs"))]
            Wire::Memory(_) => {}
        }
    }

    pub fn shutdown_write(&mut self) {
        match self {
            Wire::Socket(socket) => socket.shutdown_write(),
            #[cfg(any(test, feature = "test-rigs"))]
            Wire::Memory(end) => end.shutdown_write(),
        }
    }

    pub fn reset_on_drop(&mut self) {
        match self {
            Wire::Socket(socket) => socket.reset_on_drop(),
            #[cfg(any(test, feature = "test-rigs"))]
            Wire::Memory(end) => end.reset(),
        }
    }
}
