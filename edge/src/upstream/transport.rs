//! A byte stream to an origin server: the only place where it is opened, read and written. Nothing
//! else in this folder uses a socket.

use std::future::Future;
use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::encrypted::Encrypted;
use super::error_detail::ErrorDetail;
use super::options::{Http2, Limits};
use super::recording::{ConnectionRecord, ExchangeRecording, Recorder};
use super::socket::Socket;
use super::state::ServerState;
use crate::reason::Reason;
use crate::sys::Address;
use crate::sys::clock::timer_now;
use crate::sys::connect::ConnectError;
use crate::sys::net::{TcpState, tcp_state};
use crate::tls;

/// A byte stream of one of the supported kinds.
enum Link {
    Plain(Socket),
    Tls(Box<Encrypted>),
}

/// A byte stream to a server, with counts of the bytes sent and received.
pub(super) struct Transport {
    link: Link,
    /// The server's address.
    peer: Option<Address>,
    /// Time of the handshake, if the connection has TLS.
    handshake: Option<Duration>,
    /// Whether both sides speak HTTP/2.
    is_http2: bool,
    /// Bytes received.
    read: u64,
    /// Bytes that the kernel accepted for sending.
    written: u64,
    /// Whether the last write found the socket's send buffer full.
    write_blocked: bool,
    /// Whether a write failed because the server no longer reads.
    write_broken: bool,
    /// The error of TLS that ended the connection.
    tls_error: Option<tls::ConnectError>,
    /// The record of the connection's exchanges, if they are recorded.
    record: Option<ConnectionRecord>,
}

/// The reason for which a server could not be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unconnected {
    pub(super) reason: Reason,
    /// The exact error, if it is known.
    pub(super) detail: Option<ErrorDetail>,
}

impl Transport {
    /// Connects to a server within the time that `limits` has for it, which includes the handshake of
    /// TLS, in which the server chooses the protocol; `over_http1`: it must be HTTP/1.1.
    pub(super) async fn connect(
        server: &ServerState,
        limits: &Limits,
        over_http1: bool,
    ) -> Result<Transport, Unconnected> {
        let (began, timeout) = (timer_now(), limits.connect);
        let socket = Socket::connect(server, limits).await?;
        let peer = socket.peer();
        let (link, handshake, is_http2) = match server.tls() {
            None => {
                let is_http2 = !over_http1 && server.speaks_http2(limits.http2);
                (Link::Plain(socket), None, is_http2)
            }
            Some(client) => {
                let opened = timer_now();
                let left = timeout.saturating_sub(opened.duration_since(began));
                let over_http1 = over_http1 || server.protocol().requires_http1();
                let offered = over_http1.then_some(Http2::Never.alpn());
                let name = server.tls_name();
                let stream = client.connect(socket, name, left, offered).await?;
                let is_http2 = stream.session().alpn_protocol() == Some(b"h2");
                if !is_http2 && !over_http1 && limits.http2 == Http2::Always {
                    // The server has ignored the offer.
                    return Err(tls::ConnectError::Protocol.into());
                }
                let link = Link::Tls(Box::new(Encrypted(stream)));
                let handshake = timer_now().duration_since(opened);
                (link, Some(handshake), is_http2)
            }
        };
        Ok(Transport {
            link,
            peer,
            handshake,
            is_http2,
            read: 0,
            written: 0,
            write_blocked: false,
            write_broken: false,
            tls_error: None,
            record: None,
        })
    }

    /// Has the exchanges of the connection recorded, which began to be opened to the server with this id at the time
    /// `began_us`.
    pub(super) fn record(&mut self, recorder: &Recorder, server: u64, began_us: u64) {
        self.record = Some(recorder.opened(server, began_us, self.handshake, self.is_http2));
    }

    /// Begins the record of an exchange, if the connection's exchanges are recorded.
    pub(super) fn begin_recording(&self, target: &str, sent_us: u64) -> Option<ExchangeRecording> {
        let record = self.record.as_ref()?;
        Some(record.begin(target, sent_us))
    }

    /// Notes for the record that the server has closed the connection, or announced that it will.
    pub(super) fn note_server_ends(&self) {
        self.record
            .iter()
            .for_each(ConnectionRecord::note_server_ends);
    }

    /// Returns the server's address.
    pub(super) fn peer(&self) -> Option<Address> {
        self.peer
    }

    /// Returns the time of the handshake, if the connection has TLS.
    pub(super) fn handshake(&self) -> Option<Duration> {
        self.handshake
    }

    /// Whether both sides speak HTTP/2.
    pub(super) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// Returns the number of bytes received so far.
    pub(super) fn read_total(&self) -> u64 {
        self.read
    }

    /// Returns the number of bytes that the kernel accepted for sending so far.
    pub(super) fn written_total(&self) -> u64 {
        self.written
    }

    /// Whether the last write found the socket's send buffer full.
    pub(super) fn is_write_blocked(&self) -> bool {
        self.write_blocked
    }

    /// Whether a write failed because the server no longer reads.
    pub(super) fn is_write_broken(&self) -> bool {
        self.write_broken
    }

    /// Returns the error of TLS that ended the connection, such as a refused client certificate,
    /// which the server reports after the handshake (RFC 8446 4.4.2.4).
    pub(super) fn tls_error(&self) -> Option<tls::ConnectError> {
        self.tls_error
    }

    /// Whether the server has neither closed the connection nor sent anything. Queries the kernel,
    /// since the runtime learns of an event only when it polls next.
    pub(super) fn is_quiet(&mut self) -> bool {
        let is_quiet = match &mut self.link {
            Link::Plain(socket) => socket.is_quiet(),
            Link::Tls(stream) => stream.is_quiet(),
        };
        if !is_quiet {
            self.note_server_ends();
        }
        is_quiet
    }

    /// Returns the kernel's data about the connection.
    pub(super) fn tcp_state(&self) -> Option<TcpState> {
        let socket = match &self.link {
            Link::Plain(socket) => socket,
            Link::Tls(stream) => stream.socket(),
        };
        tcp_state(&socket.as_fd().as_raw_fd())
    }

    /// Ready when there may be bytes to read, or the end of the stream, as far as the runtime
    /// knows.
    pub(super) fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.link {
            Link::Plain(socket) => socket.poll_read_ready(cx),
            Link::Tls(stream) => stream.poll_read_ready(cx),
        }
    }

    /// Reads into the spare capacity of `buffer`. Returns 0 at the end of the stream.
    pub(super) fn poll_read_buffer(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        let n = ready!(pin!(self.link.read_buf(buffer)).poll(cx));
        self.note_read(n)
    }

    /// Reads into `room` and returns the number of bytes, 0 at the end of the stream.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<usize>> {
        let before = room.filled().len();
        let read = ready!(Pin::new(&mut self.link).poll_read(cx, room));
        let n = room.filled().len() - before;
        self.note_read(read.map(|()| n))
    }

    /// Writes as many bytes as the kernel accepts.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.write_broken {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = match &mut self.link {
            Link::Plain(socket) => {
                // The send buffer nearly always has room, so the kernel is tried first; the runtime
                // is polled only when the buffer is full.
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                match rustix::net::send(&*socket, bytes, flags) {
                    Err(Errno::AGAIN | Errno::INTR) => Pin::new(socket).poll_write(cx, bytes),
                    sent => Poll::Ready(sent.map_err(io::Error::from)),
                }
            }
            Link::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, bytes),
        };
        self.note_write(bytes.len(), polled)
    }

    /// Does what `poll_write` does, for several slices.
    pub(super) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        if self.write_broken {
            return Poll::Ready(Ok(length));
        }
        let polled = Pin::new(&mut self.link).poll_write_vectored(cx, slices);
        self.note_write(length, polled)
    }

    /// Notes a read's result.
    fn note_read(&mut self, read: io::Result<usize>) -> Poll<io::Result<usize>> {
        match &read {
            Ok(n @ 1..) => self.read += *n as u64,
            Ok(0) => self.note_server_ends(),
            Err(error) => {
                self.tls_error = tls::ConnectError::of_io(error);
                self.note_server_ends();
            }
        }
        Poll::Ready(read)
    }

    /// Notes a write's result. A server may respond and close without reading the rest of the
    /// request; its response is then in the socket's receive buffer. A write that fails for this
    /// reason counts as done, so that the caller goes on to read the response, or the end of the
    /// connection.
    fn note_write(
        &mut self,
        length: usize,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.write_blocked = polled.is_pending();
        match polled {
            Poll::Ready(Ok(n)) => self.written += n as u64,
            Poll::Ready(Err(e)) if is_refusal(&e) => {
                self.write_broken = true;
                self.note_server_ends();
                return Poll::Ready(Ok(length));
            }
            _ => {}
        }
        polled
    }

    /// Returns the plain byte stream, for a tunnel, and the record of the connection.
    pub(super) fn into_stream(
        self,
    ) -> (
        impl AsyncRead + AsyncWrite + Unpin + 'static,
        Option<ConnectionRecord>,
    ) {
        (self.link, self.record)
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            Link::Plain(socket) => Pin::new(socket).poll_read(cx, buf),
            Link::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Link::Plain(socket) => Pin::new(socket).poll_write(cx, buf),
            Link::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Link::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, bufs),
            Link::Tls(stream) => Pin::new(&mut **stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Link::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Link::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Link::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Link::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

impl From<ConnectError> for Unconnected {
    fn from(error: ConnectError) -> Unconnected {
        let reason = match error {
            ConnectError::Unresolved => Reason::Unresolved,
            ConnectError::Failed(_) => Reason::ConnectFailed,
            ConnectError::Timeout => Reason::ConnectTimeout,
            ConnectError::NoPort => Reason::NoLocalPort,
            ConnectError::NoSocket => Reason::NoSocket,
        };
        let detail = match error {
            ConnectError::Failed(error) => error.map(ErrorDetail::System),
            _ => None,
        };
        Unconnected { reason, detail }
    }
}

impl From<tls::ConnectError> for Unconnected {
    fn from(error: tls::ConnectError) -> Unconnected {
        let reason = match error {
            tls::ConnectError::Timeout => Reason::ConnectTimeout,
            _ => Reason::TlsFailed,
        };
        let detail = Some(ErrorDetail::Tls(error));
        Unconnected { reason, detail }
    }
}

fn is_refusal(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}
