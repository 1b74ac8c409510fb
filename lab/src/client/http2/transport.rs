//! The byte stream below a client's HTTP/2: TCP, or TLS with the protocol `h2` (RFC 9113 3.3).

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::ClientTls;

/// The name of HTTP/2 in the negotiation of the protocol (RFC 9113 3.2).
const H2: &[u8] = b"h2";

pub(super) trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// Makes a connected socket asynchronous, and completes the handshake if there is TLS.
pub(super) async fn open(
    socket: TcpStream,
    tls: Option<&ClientTls>,
) -> io::Result<Box<dyn Transport>> {
    socket.set_nonblocking(true)?;
    let socket = tokio::net::TcpStream::from_std(socket)?;
    let Some(tls) = tls else {
        return Ok(Box::new(socket));
    };
    // The copy shares the sessions with the original, so that connections can be resumed.
    let mut config = (*tls.config).clone();
    config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
    let name = ServerName::try_from(tls.name.clone()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await?;
    let chosen = stream.get_ref().1.alpn_protocol();
    match chosen == Some(H2) {
        true => Ok(Box::new(stream)),
        false => Err(io::Error::other(format!(
            "the server has chosen {:?} and not HTTP/2",
            chosen.map(String::from_utf8_lossy)
        ))),
    }
}
