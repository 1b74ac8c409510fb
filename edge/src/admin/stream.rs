//! The byte stream of an admin connection, in clear text or with TLS.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::headers::EVERYWHERE;
use super::inspect::Shared;
use super::peer::Peer;
use crate::http::Scheme;
use crate::tls::{AsyncWire, HandshakeError, Refusal, Server, Stream};

/// Most bytes that a client may send after its handshake was refused before the connection is closed with a reset.
const DISCARDED_MAX: u64 = 64 << 10;

/// The socket of a new connection.
pub(super) enum NewSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// The byte stream of an admin connection.
pub(super) enum AdminStream {
    Clear(TcpStream),
    Unix(UnixStream),
    Tls(Box<Stream<AsyncWire<TcpStream>>>),
}

impl AdminStream {
    /// Waits for the first byte of a connection, and completes its handshake if the admin address has TLS. Returns
    /// `None` if the connection must be closed.
    pub(super) async fn begin(
        socket: NewSocket,
        client: Peer,
        edge: &Shared,
    ) -> Option<AdminStream> {
        let stream = match socket {
            NewSocket::Tcp(stream) => stream,
            NewSocket::Unix(stream) => {
                stream.readable().await.ok()?;
                return Some(AdminStream::Unix(stream));
            }
        };
        // `readable` may also end without a byte to read.
        let mut first = [0];
        if stream.peek(&mut first).await.ok()? == 0 {
            return None;
        }
        let Some(tls) = edge.admin_tls() else {
            return Some(AdminStream::Clear(stream));
        };
        // Every method of HTTP begins with a capital letter, and no message of TLS does.
        if first[0].is_ascii_uppercase() {
            report(client, Refusal::NotTls);
            explain(stream).await;
            return None;
        }
        handshake(stream, client, &tls).await
    }

    /// Returns the scheme of requests on this connection.
    pub(super) fn scheme(&self) -> Scheme {
        match self {
            AdminStream::Clear(_) | AdminStream::Unix(_) => Scheme::Http,
            AdminStream::Tls(_) => Scheme::Https,
        }
    }
}

async fn handshake(stream: TcpStream, client: Peer, tls: &Server) -> Option<AdminStream> {
    let session = tls.session()?;
    let mut stream = Box::new(Stream::new(AsyncWire(stream), session.into()));
    match poll_fn(|cx| stream.poll_handshake(cx)).await {
        Ok(()) => return Some(AdminStream::Tls(stream)),
        Err(HandshakeError::Closed) => report(client, Refusal::Closed),
        Err(HandshakeError::Failed(error)) => {
            report(client, Refusal::of(&error));
            let _ = poll_fn(|cx| stream.poll_flush(cx)).await;
            let AsyncWire(socket) = stream.wire();
            close(socket).await;
        }
    }
    None
}

fn report(client: Peer, refusal: Refusal) {
    tracing::debug!(
        %client,
        reason = refusal.name(),
        "a TLS handshake with the admin address failed"
    );
}

/// Answers a request in clear text.
async fn explain(mut stream: TcpStream) {
    let text = "not-tls: the admin address expects TLS (https://)\n";
    let headers = EVERYWHERE.map(|(name, value)| format!("{name}: {value}\r\n"));
    let response = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n{}\
         Connection: close\r\nContent-Length: {}\r\n\r\n{text}",
        headers.concat(),
        text.len()
    );
    if stream.write_all(response.as_bytes()).await.is_ok() {
        close(&mut stream).await;
    }
}

/// Closes the sending direction, and waits for the end of the other one: if unread bytes were left, the kernel would
/// reset the connection, and the client could lose the last bytes sent to it.
async fn close(socket: &mut TcpStream) {
    if socket.shutdown().await.is_ok() {
        let mut rest = socket.take(DISCARDED_MAX);
        let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
    }
}

impl AsyncRead for AdminStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut *self {
            AdminStream::Clear(stream) => Pin::new(stream).poll_read(cx, buffer),
            AdminStream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            AdminStream::Tls(stream) => {
                let read = stream.poll_read(cx, buffer.initialize_unfilled());
                read.map_ok(|n| buffer.advance(n))
            }
        }
    }
}

impl AsyncWrite for AdminStream {
    /// Writes bytes. With TLS, the next call after a return of fewer bytes or of `Pending` must begin with the rest of
    /// the same bytes, as hyper does.
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            AdminStream::Clear(stream) => Pin::new(stream).poll_write(cx, bytes),
            AdminStream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            AdminStream::Tls(stream) => stream.poll_write(cx, &[IoSlice::new(bytes)]),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            AdminStream::Clear(stream) => Pin::new(stream).poll_flush(cx),
            AdminStream::Unix(stream) => Pin::new(stream).poll_flush(cx),
            AdminStream::Tls(stream) => stream.poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            AdminStream::Clear(stream) => Pin::new(stream).poll_shutdown(cx),
            AdminStream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            AdminStream::Tls(stream) => stream.poll_shutdown_write(cx),
        }
    }
}
