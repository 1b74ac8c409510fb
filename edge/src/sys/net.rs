//! TCP sockets: a listener per worker, and sockets that meet the reactor only once they have to wait.

use std::ffi::{c_int, c_void};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, sockopt};
use tokio::io::unix::AsyncFd;

use super::listen_options::{ListenOptions, is_without};
use super::memory_pipe;

/// A connection fresh from the kernel; may move to another worker before it becomes a `Socket`.
pub struct Accepted {
    /// The connection, not blocking.
    pub fd: OwnedFd,
    /// The client's address.
    pub address: SocketAddr,
    /// Our address.
    pub local: SocketAddr,
    /// Whether the size of its send buffer was chosen.
    pub sized: bool,
}

/// A listening socket of one worker (SO_REUSEPORT: each worker binds its own to the same address).
pub struct Listener {
    io: Watch,
    local: SocketAddr,
    sized: bool,
}

/// A descriptor, watched by the reactor from the first time that it has to be waited for.
enum Watch {
    Bare(OwnedFd),
    Watched(AsyncFd<OwnedFd>),
    /// Only while the one becomes the other.
    Gone,
}

impl Watch {
    /// The reactor's handle, registered if need be.
    fn watched(&mut self) -> io::Result<&AsyncFd<OwnedFd>> {
        if let Watch::Bare(_) = self
            && let Watch::Bare(fd) = std::mem::replace(self, Watch::Gone)
        {
            // SAFETY: the `OwnedFd` keeps the descriptor open and the same for as long as the
            // `AsyncFd` owns it, and nothing here takes it out or replaces it.
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
    /// Whether nobody listens at an address. `bind` would share it with whoever does, if that is the
    /// same user's: two programs would each get half of the connections.
    ///
    /// # Errors
    /// The address is taken, or can't be had.
    pub fn check_free(address: SocketAddr) -> io::Result<()> {
        std::net::TcpListener::bind(address).map(drop)
    }

    /// Binds and listens.
    ///
    /// # Errors
    /// The address can't be had, or the kernel does not take what the socket is set to.
    pub fn bind(address: SocketAddr, listening: &ListenOptions) -> io::Result<Listener> {
        let socket = socket2::Socket::new(
            socket2::Domain::for_address(address),
            socket2::Type::STREAM,
            Some(socket2::Protocol::TCP),
        )?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        // Accepted sockets inherit this: no call per connection.
        socket.set_tcp_nodelay(true)?;
        socket.bind(&address.into())?;
        let fd = OwnedFd::from(socket);
        listening.apply(&fd)?;
        rustix::net::listen(&fd, listening.backlog())?;
        let local = SocketAddr::try_from(rustix::net::getsockname(&fd)?)?;
        Ok(Listener {
            io: Watch::Bare(fd),
            local,
            sized: listening.send_buffer.is_some(),
        })
    }

    /// The bound address.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Waits until there may be a connection to accept; then `accept` until it gives none.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.io.watched()?.poll_read_ready(cx))?.retain_ready();
        Poll::Ready(Ok(()))
    }

    /// Whether a connection waits to be accepted. If none does, `poll_readable` waits for one.
    ///
    /// # Errors
    /// The system's.
    pub fn has_waiting(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        // Taken before the call: it clears only the readiness from before.
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

    /// The next connection in the queue, if there is one.
    pub fn accept(&mut self, cx: &mut Context<'_>) -> io::Result<Option<Accepted>> {
        // Taken before the call: it clears only the readiness from before.
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
                Ok((fd, Some(address))) => return self.accepted(fd, address.try_into()?).map(Some),
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

    fn accepted(&self, fd: OwnedFd, address: SocketAddr) -> io::Result<Accepted> {
        let local = match self.local.ip().is_unspecified() {
            true => SocketAddr::try_from(rustix::net::getsockname(&fd)?)?,
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

const IPPROTO_TCP: c_int = 6;

// struct tcp_info grows at its end only. These have been at their places since Linux 4.6 and 4.1.
const MIN_RTT_AT: usize = 148;
const BYTES_ACKED_AT: usize = 120;

/// The shortest round trip the kernel has seen on this connection, microseconds.
fn min_rtt_us(fd: &OwnedFd) -> Option<u32> {
    tcp_info(fd, MIN_RTT_AT).map(u32::from_ne_bytes)
}

/// The field of so many bytes at this place of `struct tcp_info`.
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
    // SAFETY: `info` and `length` are ours for the whole call, and `length` says how much of
    // `info` may be written.
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

/// A connection. It is registered with the reactor when a read or a write first has to wait, so a
/// connection whose one request is there when it is accepted never is.
pub struct Socket {
    io: Io,
    /// The last read was short: there was no more then, so the next one waits before it tries.
    drained: bool,
    /// Whether the send buffer was fitted to the way to the client.
    fitted: bool,
}

/// A client nearer than this needs no large send buffer: `NEAR_BUFFER` in this time is 8 Gbit/s.
const NEAR_RTT_US: u32 = 250;
/// What is then kept on its way, bytes.
const NEAR_BUFFER: usize = 256 << 10;

enum Io {
    Tcp(Watch),
    Memory(memory_pipe::End),
}

impl Socket {
    /// Of an accepted connection. Where the size of its send buffer was chosen, it stays so.
    pub fn new(accepted: Accepted) -> Socket {
        Socket {
            io: Io::Tcp(Watch::Bare(accepted.fd)),
            drained: false,
            fitted: accepted.sized,
        }
    }

    /// Two ends connected in memory, holding at most `capacity` bytes each way.
    pub fn pair(capacity: usize) -> (Socket, Socket) {
        let (a, b) = memory_pipe::pair(capacity);
        let socket = |end| Socket {
            io: Io::Memory(end),
            drained: false,
            fitted: false,
        };
        (socket(a), socket(b))
    }

    /// Reads what is there; 0 at the end. A read that does not fill `buf` found all there was, so
    /// the next one waits for the reactor without another call that would only say so.
    #[inline]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let watch = match &mut self.io {
            Io::Tcp(watch) => watch,
            Io::Memory(end) => return end.poll_read(cx, buf),
        };
        if let Watch::Bare(fd) = watch
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
        let watched = watch.watched()?;
        loop {
            let mut guard = ready!(watched.poll_read_ready(cx))?;
            match recv(watched.get_ref(), buf) {
                Err(Errno::AGAIN) => guard.clear_ready(),
                Ok(n) => {
                    // The guard clears only the readiness it saw: what arrives after the read
                    // raises it again, and an end that was already announced stays set.
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

    /// Looks for bytes now, whatever the reactor has said so far; waits for none.
    pub fn read_now(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> io::Result<Option<usize>> {
        let fd = match &mut self.io {
            Io::Tcp(watch) => watch.fd()?,
            Io::Memory(end) => {
                return match end.poll_read(cx, buf) {
                    Poll::Ready(read) => read.map(Some),
                    Poll::Pending => Ok(None),
                };
            }
        };
        match recv(fd, buf) {
            Ok(n) => Ok(Some(n)),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes what the kernel takes of the slices. `more`: more follows at once, so that a packet
    /// that is not full may wait for it.
    #[inline]
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Tcp(watch) => {
                let count = slices.iter().map(|slice| slice.len()).sum();
                poll_send(watch, cx, count, |fd| send(fd, slices, more))
            }
            Io::Memory(end) => end.poll_write(cx, slices),
        }
    }

    /// Writes what the kernel takes of these bytes of a file; 0: the file has none there.
    pub fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &OwnedFd,
        range: Range<u64>,
    ) -> Poll<io::Result<usize>> {
        let count = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        match &mut self.io {
            Io::Tcp(watch) => poll_send(watch, cx, count, |socket| {
                let mut offset = range.start;
                rustix::fs::sendfile(socket, file, Some(&mut offset), count)
            }),
            Io::Memory(end) => {
                let mut bytes = vec![0; count.min(64 << 10)];
                let n = rustix::io::pread(file, &mut bytes[..], range.start)?;
                match n {
                    0 => Poll::Ready(Ok(0)),
                    n => end.poll_write(cx, &[IoSlice::new(&bytes[..n])]),
                }
            }
        }
    }

    /// Much is to be sent. Towards a near client the kernel would let its buffer grow to megabytes,
    /// which leave the processor's cache before they are read (measured: twice the CPU per byte);
    /// a bounded one keeps the same rate. Far clients keep the kernel's own sizing.
    pub fn fit_send_buffer(&mut self) {
        if std::mem::replace(&mut self.fitted, true) {
            return;
        }
        if let Io::Tcp(watch) = &mut self.io
            && let Ok(fd) = watch.fd()
            && min_rtt_us(fd).is_some_and(|rtt_us| rtt_us < NEAR_RTT_US)
        {
            // The kernel doubles the number, for its own bookkeeping. Refused: it stays as it is.
            let _ = sockopt::set_socket_send_buffer_size(fd, NEAR_BUFFER / 2);
        }
    }

    /// Bytes that the other end's kernel has acknowledged so far, where it can be known.
    pub fn acknowledged(&self) -> Option<u64> {
        match &self.io {
            Io::Tcp(watch) => tcp_info(watch.fd().ok()?, BYTES_ACKED_AT).map(u64::from_ne_bytes),
            Io::Memory(_) => None,
        }
    }

    /// Tells the other end that no more will come.
    pub fn shutdown_write(&mut self) {
        match &mut self.io {
            // It may be gone already; then there is no one to tell.
            Io::Tcp(watch) => {
                if let Ok(fd) = watch.fd() {
                    let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
                }
            }
            Io::Memory(end) => end.shutdown_write(),
        }
    }

    /// From here on dropping the socket resets the connection (SO_LINGER 0): what the other end
    /// has received cannot look whole, and nothing unsent is kept.
    pub fn reset_on_drop(&mut self) {
        match &mut self.io {
            Io::Tcp(watch) => {
                if let Ok(fd) = watch.fd() {
                    let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
                }
            }
            Io::Memory(end) => end.reset(),
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

/// Has `send`, which has so many bytes, tried until the socket takes something, or fails.
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
    // Once it is registered, the reactor knows whether it is worth a try.
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
                    // It is full: another try would fail, and for a file look up pages in vain. But a
                    // file may also have become shorter.
                    Ok(n) if n < count && is_full(watched.get_ref()) => guard.clear_ready(),
                    _ => guard.retain_ready(),
                }
                return Poll::Ready(result.map_err(io::Error::from));
            }
        }
    }
}

/// Whether the socket takes nothing more now. If so, the kernel says when it does again.
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

/// Whether an accept failed for want of descriptors or memory: the connection still waits, so
/// trying again at once would spin.
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

    /// Connections are accepted before they say anything.
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
            let mut client = std::net::TcpStream::connect(listener.local()).expect("connect");
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
    fn a_reset_is_an_error_to_the_other_end() {
        let (mut a, mut b) = Socket::pair(8);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut buf = [0; 8];
        assert!(b.poll_read(&mut cx, &mut buf).is_pending());
        a.reset_on_drop();
        drop(a);
        assert!(matches!(
            b.poll_read(&mut cx, &mut buf),
            Poll::Ready(Err(_))
        ));
    }

    #[test]
    fn what_is_acknowledged_is_known() {
        on_runtime(async {
            let address = "127.0.0.1:0".parse().expect("an address");
            let mut listener = Listener::bind(address, &AT_ONCE).expect("bind");
            let mut client = std::net::TcpStream::connect(listener.local()).expect("connect");
            let mut socket = Socket::new(accept(&mut listener).await);
            let before = socket.acknowledged().expect("the kernel tells");
            let sent =
                poll_fn(|cx| socket.poll_write(cx, &[IoSlice::new(&[b'x'; 5000])], false)).await;
            client.read_exact(&mut [0; 5000]).expect("read");
            // What was read over loopback is acknowledged at once, or within the delay of one.
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
            let _client = std::net::TcpStream::connect(listener.local()).expect("connect");
            let accepted = accept(&mut listener).await;
            let rtt_us = min_rtt_us(&accepted.fd).expect("the kernel tells");
            let mut socket = Socket::new(accepted);
            socket.fit_send_buffer();
            let Io::Tcp(watch) = &mut socket.io else {
                unreachable!("accepted from TCP")
            };
            let fd = watch.fd().expect("open");
            let size = sockopt::socket_send_buffer_size(fd).expect("a size");
            // A machine under load may need longer for a round trip even to itself.
            assert_eq!(size == NEAR_BUFFER, rtt_us < NEAR_RTT_US);
        });
    }
}
