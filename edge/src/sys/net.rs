//! Sockets: a listener per worker, and connections that are registered with the reactor only when they first have to wait.

use std::ffi::{c_int, c_void};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketFlags, sockopt};
use tokio::io::unix::AsyncFd;

use super::Address;
use super::listen_options::{ListenOptions, is_without};

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

/// A listening socket of one worker. Each worker binds a socket of its own to the same address (SO_REUSEPORT).
pub struct Listener {
    io: Watch,
    local: Address,
    sized: bool,
}

/// A descriptor that is registered with the reactor when it first has to wait.
enum Watch {
    Bare(OwnedFd),
    Watched(AsyncFd<OwnedFd>),
    /// The descriptor has been taken out; only during the registration.
    Gone,
}

impl Watch {
    /// Returns the reactor's handle, and registers the descriptor before if necessary.
    fn watched(&mut self) -> io::Result<&AsyncFd<OwnedFd>> {
        if let Watch::Bare(_) = self
            && let Watch::Bare(fd) = std::mem::replace(self, Watch::Gone)
        {
            // SAFETY: the `OwnedFd` keeps the descriptor open and unchanged for as long as the `AsyncFd` owns it. No code here takes it out
            // or replaces it.
            match unsafe { AsyncFd::register(fd) } {
                Ok(watched) => *self = Watch::Watched(watched),
                Err(refused) => {
                    let (fd, error) = refused.into_parts();
                    *self = Watch::Bare(fd);
                    return Err(error);
                }
            }
        }
        match self {
            Watch::Watched(fd) => Ok(fd),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn fd(&self) -> io::Result<&OwnedFd> {
        match self {
            Watch::Bare(fd) => Ok(fd),
            Watch::Watched(fd) => Ok(fd.get_ref()),
            Watch::Gone => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Listener {
    /// Checks that no other program listens at an address. `bind` would share the address with a program of the same user, and each of the
    /// two programs would get half of the connections.
    ///
    /// # Errors
    ///
    /// The address is in use or not available.
    pub fn check_free(address: SocketAddr) -> io::Result<()> {
        std::net::TcpListener::bind(address).map(drop)
    }

    /// Creates a listening socket at this address.
    ///
    /// # Errors
    ///
    /// The address is not available, or the kernel refuses an option.
    pub fn bind(address: SocketAddr, listening: &ListenOptions) -> io::Result<Listener> {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(address),
            socket2::Type::STREAM,
            Some(socket2::Protocol::TCP),
        )?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        // Accepted sockets inherit TCP_NODELAY, so no call per connection is needed.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        let fd = OwnedFd::from(socket);
        listening.apply(&fd)?;
        rustix::net::listen(&fd, listening.backlog())?;
        let local = address_of(rustix::net::getsockname(&fd)?);
        Ok(Listener {
            io: Watch::Bare(fd),
            local,
            sized: listening.send_buffer.is_some(),
        })
    }

    /// Returns the address at which the socket listens.
    pub fn local(&self) -> Address {
        self.local
    }

    /// Waits until there may be a connection to accept. The caller then calls `accept` until it returns `None`.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.io.watched()?.poll_read_ready(cx))?.retain_ready();
        Poll::Ready(Ok(()))
    }

    /// Whether a connection waits to be accepted. If not, `poll_readable` waits for one.
    ///
    /// # Errors
    ///
    /// The system failed.
    pub fn has_waiting(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        // The guard is taken before the system call. If a connection arrives during the call, the guard therefore doesn't clear the
        // readiness that the new connection sets.
        let watched = self.io.watched()?;
        let guard = match watched.poll_read_ready(cx) {
            Poll::Ready(guard) => Some(guard?),
            Poll::Pending => None,
        };
        let waits = !is_without(watched.get_ref(), PollFlags::IN);
        if let Some(mut guard) = guard.filter(|_| !waits) {
            guard.clear_ready();
        }
        Ok(waits)
    }

    /// Accepts the next waiting connection; returns `None` if there is none.
    pub fn accept(&mut self, cx: &mut Context<'_>) -> io::Result<Option<Accepted>> {
        // The guard is taken before the system call. If a connection arrives during the call, the guard therefore doesn't clear the
        // readiness that the new connection sets.
        let guard = match &self.io {
            Watch::Watched(fd) => match fd.poll_read_ready(cx) {
                Poll::Ready(guard) => Some(guard?),
                Poll::Pending => None,
            },
            _ => None,
        };
        loop {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            match rustix::net::acceptfrom_with(self.io.fd()?, flags) {
                Ok((fd, Some(address))) => return self.accepted(fd, address_of(address)).map(Some),
                Ok((_, None)) | Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO) => {}
                Err(Errno::AGAIN) => {
                    if let Some(mut guard) = guard {
                        guard.clear_ready();
                    }
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn accepted(&self, fd: OwnedFd, address: Address) -> io::Result<Accepted> {
        let local = match self.local.ip().is_unspecified() {
            true => address_of(rustix::net::getsockname(&fd)?),
            false => self.local,
        };
        let sized = self.sized;
        Ok(Accepted {
            fd,
            address,
            local,
            sized,
        })
    }
}

/// Converts an address from the kernel's form. All sockets here are IP or Unix sockets.
fn address_of(address: SocketAddrAny) -> Address {
    match SocketAddr::try_from(address) {
        Ok(address) => Address::Ip(address),
        Err(_) => Address::Unix,
    }
}

const IPPROTO_TCP: c_int = 6;

// Offsets of two fields in `struct tcp_info`, which only grows at its end. The fields exist since Linux 4.6 and 4.1.
const MIN_RTT_AT: usize = 148;
const BYTES_ACKED_AT: usize = 120;

/// Returns the shortest round trip that the kernel has measured on this connection, in microseconds.
fn min_rtt_us(fd: &OwnedFd) -> Option<u32> {
    tcp_info(fd, MIN_RTT_AT).map(u32::from_ne_bytes)
}

/// Returns `N` bytes of `struct tcp_info` from this offset on; `None` if the kernel does not provide them.
fn tcp_info<const N: usize>(fd: &OwnedFd, at: usize) -> Option<[u8; N]> {
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
    /// Whether `fit_send_buffer` has been called, or the listener's options set the size of the send buffer.
    fitted: bool,
}

/// Round trip in microseconds below which a client counts as near. `NEAR_BUFFER` bytes per such round trip are 8 Gbit/s.
const NEAR_RTT_US: u32 = 250;
/// Size of the send buffer towards a near client, in bytes.
const NEAR_BUFFER: usize = 256 << 10;

impl Socket {
    /// Creates the socket of an accepted connection. If the listener's options set the size of the send buffer, the size stays.
    pub fn new(accepted: Accepted) -> Socket {
        Socket {
            watch: Watch::Bare(accepted.fd),
            drained: false,
            fitted: accepted.sized,
        }
    }

    /// Reads the bytes that have arrived; returns 0 at the end of the stream. After a read that does not fill `buf`, the next one waits for
    /// the reactor without a system call.
    #[inline]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Watch::Bare(fd) = &self.watch
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
    if let Watch::Bare(fd) = watch {
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

/// Whether accepting failed because descriptors or memory ran out. The connection stays in the queue, so accepting again at once would fail
/// in an endless loop.
pub fn is_exhausted(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::{Read, Write};

    /// Options with which connections are accepted before their first byte arrives.
    const AT_ONCE: ListenOptions = ListenOptions {
        backlog: Some(16),
        defer: false,
        receive_buffer: None,
        send_buffer: None,
        keepalive: None,
    };

    fn on_runtime<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::LocalRuntime::new()
            .expect("a runtime")
            .block_on(test)
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
            let address = "127.0.0.1:0".parse().expect("an address");
            let mut listener = Listener::bind(address, &AT_ONCE).expect("bind");
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

    #[test]
    fn acknowledged_bytes_are_known() {
        on_runtime(async {
            let address = "127.0.0.1:0".parse().expect("an address");
            let mut listener = Listener::bind(address, &AT_ONCE).expect("bind");
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
            let address = "127.0.0.1:0".parse().expect("an address");
            let mut listener = Listener::bind(address, &AT_ONCE).expect("bind");
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
