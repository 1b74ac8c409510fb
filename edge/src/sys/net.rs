//! Connections, which are registered with the reactor only when they first have to wait.

use std::ffi::{c_int, c_void};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};

use super::Address;
use super::listen_options::is_without;
use super::watch::Watch;

/// An accepted connection, which may move to another worker before it becomes a `Socket`.
pub struct Accepted {
    /// Descriptor of the connection, in non-blocking mode.
    pub fd: OwnedFd,
    /// Address of the client.
    pub address: Address,
    /// Address of the server's end of the connection.
    pub local: Address,
    /// Whether the listener's options set the size of the connection's send buffer.
    pub sized: bool,
}

const IPPROTO_TCP: c_int = 6;

// Offsets of two fields in `struct tcp_info`, which only grows at its end. The fields exist since Linux 4.6 and 4.1.
const MIN_RTT_AT: usize = 148;
const BYTES_ACKED_AT: usize = 120;

/// Returns the shortest round trip that the kernel has measured on this connection, in microseconds.
fn min_rtt_us(fd: &OwnedFd) -> Option<u32> {
    tcp_info(fd, MIN_RTT_AT).map(u32::from_ne_bytes)
}

/// The kernel's data about a TCP connection (TCP_INFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpState {
    /// Smoothed round trip in microseconds.
    pub rtt_us: u32,
    /// Congestion window in segments.
    pub window: u32,
    /// Segments sent and not yet acknowledged.
    pub in_flight: u32,
    /// Segments sent again since the connection was opened.
    pub retransmits: u32,
    /// Size of a segment in bytes.
    pub segment: u32,
}

/// Returns the state of a TCP connection; `None` for other sockets, and if the kernel does not provide it.
pub fn tcp_state(fd: &impl AsRawFd) -> Option<TcpState> {
    // The offsets of these fields have never changed.
    let info: [u8; 104] = tcp_info(fd, 0)?;
    let field = |at: usize| Some(u32::from_ne_bytes(info.get(at..at + 4)?.try_into().ok()?));
    Some(TcpState {
        segment: field(16)?,
        in_flight: field(24)?,
        rtt_us: field(68)?,
        window: field(80)?,
        retransmits: field(100)?,
    })
}

/// Returns `N` bytes of `struct tcp_info` from this offset on; `None` if the kernel does not provide them.
fn tcp_info<const N: usize>(fd: &impl AsRawFd, at: usize) -> Option<[u8; N]> {
    unsafe extern "C" {
        fn getsockopt(
            fd: c_int,
            level: c_int,
            name: c_int,
            value: *mut c_void,
            len: *mut u32,
        ) -> c_int;
    }
    const TCP_INFO: c_int = 11;
    let mut info = [0u8; 256];
    let mut length = info.len() as u32;
    // SAFETY: `info` and `length` live for the whole call, and `length` says how many bytes of `info` may be written.
    let result = unsafe {
        getsockopt(
            fd.as_raw_fd(),
            IPPROTO_TCP,
            TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let there = result == 0 && length as usize >= at + N;
    let field = info.get(at..at + N).filter(|_| there)?;
    field.try_into().ok()
}

/// A connection. Its descriptor is registered with the reactor when a read or write first has to wait. If the only request of a connection
/// has arrived before the connection is accepted, the descriptor is never registered.
pub struct Socket {
    watch: Watch,
    /// Whether the last read did not fill its buffer: the next read then waits for the reactor first.
    drained: bool,
    /// Whether input may be left although the reactor does not report the socket as readable: the next read tries without waiting.
    unread: bool,
    /// Whether `fit_send_buffer` has been called, or the listener's options set the size of the send buffer.
    fitted: bool,
}

/// Round trip in microseconds below which a client counts as near. `NEAR_BUFFER` bytes per such round trip are 8 Gbit/s.
const NEAR_RTT_US: u32 = 250;
/// Size of the send buffer towards a near client, in bytes.
const NEAR_BUFFER: usize = 256 << 10;

impl Socket {
    /// Creates the socket of an accepted connection. If the listener's options set the size of the send buffer, `fit_send_buffer` does not
    /// change it.
    pub fn new(accepted: Accepted) -> Socket {
        Socket {
            watch: Watch::Unregistered(accepted.fd),
            drained: false,
            unread: false,
            fitted: accepted.sized,
        }
    }

    /// Reads the bytes that have arrived; returns 0 at the end of the stream. After a read that does not fill `buf`, the next one waits for
    /// the reactor without a system call.
    #[inline]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Watch::Unregistered(fd) = &self.watch
            && !self.drained
        {
            match recv(fd, buf) {
                Err(Errno::AGAIN) => {}
                Ok(n) => {
                    self.drained = n < buf.len();
                    return Poll::Ready(Ok(n));
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        let watched = self.watch.watched()?;
        if self.unread {
            match recv(watched.get_ref(), buf) {
                Err(Errno::AGAIN) => self.unread = false,
                Ok(n) => {
                    self.unread = n == buf.len();
                    return Poll::Ready(Ok(n));
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        loop {
            let mut guard = ready!(watched.poll_read_ready(cx))?;
            match recv(watched.get_ref(), buf) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                Ok(n) => {
                    // The guard clears only the readiness that it saw. Bytes that arrive after the read set the readiness again. An end of
                    // the stream that was already reported stays set.
                    match n > 0 && n < buf.len() {
                        true => guard.clear_ready(),
                        false => guard.retain_ready(),
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Waits until the other end has closed its sending direction or reset the connection, even if unread bytes come before that.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let watched = self.watch.watched()?;
        loop {
            let mut guard = ready!(watched.poll_read_ready(cx))?;
            if guard.ready().is_read_closed() {
                guard.retain_ready();
                return Poll::Ready(Ok(()));
            }
            // Clearing the readiness makes the reactor wait for the next event. The unread bytes that it reported stay.
            self.unread = true;
            guard.clear_ready();
        }
    }

    /// Reads without waiting, even if the reactor has not reported the socket as readable. Returns `None` if no byte has arrived.
    pub fn read_now(&mut self, buf: &mut [u8]) -> io::Result<Option<usize>> {
        match recv(self.watch.fd()?, buf) {
            Ok(n) => Ok(Some(n)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes as many bytes of the slices as the kernel takes. `more` says that further bytes follow at once, so that the kernel may delay
    /// a packet that is not full.
    #[inline]
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        let count = slices.iter().map(|slice| slice.len()).sum();
        poll_send(&mut self.watch, cx, count, |fd| send(fd, slices, more))
    }

    /// Sends as many bytes of this part of a file as the kernel takes. Returns 0 if the file ends before this part.
    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &OwnedFd,
        range: Range<u64>,
    ) -> Poll<io::Result<usize>> {
        let count = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        poll_send(&mut self.watch, cx, count, |socket| {
            let mut offset = range.start;
            rustix::fs::sendfile(socket, file, Some(&mut offset), count)
        })
    }

    /// Limits the size of the send buffer towards a near client, before much is sent. Otherwise the kernel lets the buffer grow to
    /// megabytes, and bytes leave the processor's cache before they are read (measured: twice the CPU per byte). The smaller buffer does
    /// not reduce the rate. For other clients, the kernel chooses the size.
    pub fn fit_send_buffer(&mut self) {
        if std::mem::replace(&mut self.fitted, true) {
            return;
        }
        if let Ok(fd) = self.watch.fd()
            && min_rtt_us(fd).is_some_and(|rtt_us| rtt_us < NEAR_RTT_US)
        {
            // The kernel doubles the number for its own bookkeeping. If it refuses, the size stays.
            let _ = sockopt::set_socket_send_buffer_size(fd, NEAR_BUFFER / 2);
        }
    }

    /// Returns the number of bytes that the other end's kernel has acknowledged so far; `None` if the kernel does not say.
    pub fn acknowledged(&self) -> Option<u64> {
        tcp_info(self.watch.fd().ok()?, BYTES_ACKED_AT).map(u64::from_ne_bytes)
    }

    /// Acknowledges the bytes that have arrived at once. Otherwise the kernel waits 40 ms for bytes to send along with the acknowledgement,
    /// and a client with Nagle's algorithm (RFC 9293 3.7.4) waits for it before it sends more.
    pub fn acknowledge_now(&self) {
        // An error means that the connection is closed already, or that the socket is no TCP socket.
        if let Ok(fd) = self.watch.fd() {
            let _ = sockopt::set_tcp_quickack(fd, true);
        }
    }

    /// Shuts down the sending direction.
    pub fn shutdown_write(&mut self) {
        // An error means that the connection is closed already.
        if let Ok(fd) = self.watch.fd() {
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
        }
    }

    /// Makes dropping the socket reset the connection (SO_LINGER 0). The client then can't take the bytes that it has received for the
    /// complete response, and the kernel discards unsent bytes.
    pub fn reset_on_drop(&mut self) {
        if let Ok(fd) = self.watch.fd() {
            let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
        }
    }
}

#[inline]
fn recv(fd: &OwnedFd, buf: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::net::recv(fd, &mut *buf, RecvFlags::empty()) {
            Err(Errno::INTR) => {}
            result => return result.map(|(n, _)| n),
        }
    }
}

/// Calls `send`, which tries to send `count` bytes, until the kernel takes some of them or fails.
#[inline]
fn poll_send(
    watch: &mut Watch,
    cx: &mut Context<'_>,
    count: usize,
    mut send: impl FnMut(&OwnedFd) -> Result<usize, Errno>,
) -> Poll<io::Result<usize>> {
    let mut send = |fd: &OwnedFd| {
        loop {
            match send(fd) {
                Err(Errno::INTR) => {}
                result => return result,
            }
        }
    };
    // A socket that is not registered is tried at once; for a registered one, the reactor knows whether it is writable.
    if let Watch::Unregistered(fd) = watch {
        match send(fd) {
            Err(Errno::AGAIN) => {}
            result => return Poll::Ready(result.map_err(io::Error::from)),
        }
    }
    let watched = watch.watched()?;
    loop {
        let mut guard = ready!(watched.poll_write_ready(cx))?;
        match send(watched.get_ref()) {
            Err(Errno::AGAIN) => guard.clear_ready(),
            result => {
                match result {
                    // A short write usually means that the socket is full. Trying again would fail, and for a file also look up pages in
                    // vain, so the next write waits for the reactor. A write is also short if the file has become shorter, so `is_full`
                    // checks the socket.
                    Ok(n) if n < count && is_full(watched.get_ref()) => guard.clear_ready(),
                    _ => guard.retain_ready(),
                }
                return Poll::Ready(result.map_err(io::Error::from));
            }
        }
    }
}

/// Whether the socket takes no byte now. If so, the kernel reports when the socket is writable again.
fn is_full(fd: &OwnedFd) -> bool {
    is_without(fd, PollFlags::OUT)
}

#[inline]
fn send(fd: &OwnedFd, slices: &[IoSlice<'_>], more: bool) -> Result<usize, Errno> {
    let flags = match more {
        true => SendFlags::NOSIGNAL | SendFlags::MORE,
        false => SendFlags::NOSIGNAL,
    };
    match slices {
        [one] => rustix::net::send(fd, one, flags),
        many if more => {
            let mut nothing = SendAncillaryBuffer::default();
            rustix::net::sendmsg(fd, many, &mut nothing, flags)
        }
        many => rustix::io::writev(fd, many),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::listen_options::ListenOptions;
    use crate::sys::listener::Listener;
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::SocketAddr;

    /// Options with which connections are accepted before their first byte arrives.
    const AT_ONCE: ListenOptions = ListenOptions {
        backlog: Some(16),
        defer_accept: false,
        receive_buffer: None,
        send_buffer: None,
        tcp_keepalive: None,
        ipv6_only: true,
    };

    fn on_runtime<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::LocalRuntime::new()
            .expect("a runtime")
            .block_on(test)
    }

    /// Binds a free port on the loopback address.
    fn bind() -> Listener {
        let address = SocketAddr::from(([127, 0, 0, 1], 0)).into();
        let bound = Listener::bind(&address, &AT_ONCE, 1).expect("bind");
        bound.sockets.into_iter().next().expect("one socket")
    }

    fn bound(listener: &Listener) -> SocketAddr {
        match listener.local() {
            Address::Ip(address) => address,
            Address::Unix => unreachable!("bound to an IP address"),
        }
    }

    async fn accept(listener: &mut Listener) -> Accepted {
        poll_fn(|cx| {
            loop {
                if let Some(accepted) = listener.accept(cx).expect("accept") {
                    return Poll::Ready(accepted);
                }
                ready!(listener.poll_readable(cx)).expect("readable");
            }
        })
        .await
    }

    #[test]
    fn reads_and_writes_over_loopback_and_sees_the_end() {
        on_runtime(async {
            let mut listener = bind();
            let mut client = std::net::TcpStream::connect(bound(&listener)).expect("connect");
            let accepted = accept(&mut listener).await;
            assert_eq!(accepted.local, listener.local());
            let mut socket = Socket::new(accepted);
            let mut buf = [0; 64];
            for round in 0..3u8 {
                client.write_all(&[round; 5]).expect("write");
                let n = poll_fn(|cx| socket.poll_read(cx, &mut buf))
                    .await
                    .expect("read");
                assert_eq!(&buf[..n], &[round; 5]);
            }
            let n = poll_fn(|cx| {
                socket.poll_write(cx, &[IoSlice::new(b"ab"), IoSlice::new(b"c")], false)
            })
            .await
            .expect("write");
            assert_eq!(n, 3);
            let mut answer = [0; 3];
            client.read_exact(&mut answer).expect("read");
            assert_eq!(&answer, b"abc");
            drop(client);
            let end = poll_fn(|cx| socket.poll_read(cx, &mut buf)).await;
            assert_eq!(end.expect("the end"), 0);
        });
    }

    // Waiting for the end of the stream takes the readiness of unread bytes, which must still be read.
    #[test]
    fn a_close_is_seen_behind_unread_bytes_which_can_still_be_read() {
        on_runtime(async {
            let mut listener = bind();
            let mut client = std::net::TcpStream::connect(bound(&listener)).expect("connect");
            let mut socket = Socket::new(accept(&mut listener).await);
            let mut buf = [0; 4];
            let mut got = Vec::new();
            client.write_all(b"unread bytes").expect("write");
            while got.len() < 9 {
                let read = poll_fn(|cx| {
                    assert!(socket.poll_closed(cx).is_pending());
                    socket.poll_read(cx, &mut buf)
                });
                let n = read.await.expect("read");
                got.extend_from_slice(&buf[..n]);
            }
            drop(client);
            let closed = poll_fn(|cx| socket.poll_closed(cx)).await;
            closed.expect("the other end has closed");
            loop {
                let n = poll_fn(|cx| socket.poll_read(cx, &mut buf)).await;
                match n.expect("read") {
                    0 => break,
                    n => got.extend_from_slice(&buf[..n]),
                }
            }
            assert_eq!(got, b"unread bytes");
        });
    }

    #[test]
    fn acknowledged_bytes_are_known() {
        on_runtime(async {
            let mut listener = bind();
            let mut client = std::net::TcpStream::connect(bound(&listener)).expect("connect");
            let mut socket = Socket::new(accept(&mut listener).await);
            let before = socket.acknowledged().expect("the kernel tells");
            let sent =
                poll_fn(|cx| socket.poll_write(cx, &[IoSlice::new(&[b'x'; 5000])], false)).await;
            client.read_exact(&mut [0; 5000]).expect("read");
            // The client's kernel acknowledges bytes over loopback at once, or after the delay of an acknowledgement.
            while socket.acknowledged() < Some(before + 5000) {
                tokio::task::yield_now().await;
            }
            assert_eq!(sent.expect("written"), 5000);
            assert_eq!(socket.acknowledged(), Some(before + 5000));
        });
    }

    #[test]
    fn a_client_on_this_machine_gets_a_bounded_send_buffer() {
        on_runtime(async {
            let mut listener = bind();
            let _client = std::net::TcpStream::connect(bound(&listener)).expect("connect");
            let accepted = accept(&mut listener).await;
            let rtt_us = min_rtt_us(&accepted.fd).expect("the kernel tells");
            let mut socket = Socket::new(accepted);
            socket.fit_send_buffer();
            let fd = socket.watch.fd().expect("open");
            let size = sockopt::socket_send_buffer_size(fd).expect("a size");
            // On a busy machine, a round trip over loopback may take longer than the limit, so the test accepts both sizes.
            assert_eq!(size == NEAR_BUFFER, rtt_us < NEAR_RTT_US);
        });
    }
}
