//! The content of a client's request: decoded from the framing of HTTP/1.1, and sent as the server's windows permit.

use std::future::poll_fn;
use std::io::{self, ErrorKind};

use bytes::Bytes;
use h2::SendStream;
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::request::Framing;

/// A part of a request after its head.
enum Piece {
    Data(Bytes),
    /// The end, with trailers if there are any.
    End(HeaderMap),
}

/// A request whose content is being sent. If it is dropped before the end, the stream stays open.
pub(super) struct Upload {
    pieces: UnboundedSender<Piece>,
    framing: Framing,
    /// Bytes of the framing that are not complete.
    undecoded: Vec<u8>,
}

impl Upload {
    /// Begins to send content.
    pub(super) fn begin(executor: &Handle, stream: SendStream<Bytes>, framing: Framing) -> Upload {
        let (pieces, received) = unbounded_channel();
        executor.spawn(send(stream, received));
        Upload {
            pieces,
            framing,
            undecoded: Vec::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.framing.is_done()
    }

    /// Sends the content of these bytes, which have the framing that the request's headers announce.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.undecoded.extend_from_slice(bytes);
        let mut content = Vec::new();
        let used = self.framing.decode(&self.undecoded, &mut content)?;
        self.undecoded.drain(..used);
        if !content.is_empty() {
            self.queue(Piece::Data(content.into()))?;
        }
        if self.is_done() {
            if !self.undecoded.is_empty() {
                let what = "bytes after the end of a request's content";
                return Err(io::Error::new(ErrorKind::InvalidInput, what));
            }
            self.queue(Piece::End(trailers(self.framing.trailers())?))?;
        }
        Ok(())
    }

    /// Hands a piece to the task that sends. The task ends early if the server has reset the stream or closed the
    /// connection, as a write to a closed connection would fail.
    fn queue(&self, piece: Piece) -> io::Result<()> {
        let sent = self.pieces.send(piece);
        sent.map_err(|_| ErrorKind::BrokenPipe.into())
    }
}

fn trailers(fields: &[(String, String)]) -> io::Result<HeaderMap> {
    let mut trailers = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(io::Error::other)?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(io::Error::other)?;
        trailers.append(name, value);
    }
    Ok(trailers)
}

/// Sends pieces until the end, or until the stream or the test ends.
async fn send(mut stream: SendStream<Bytes>, mut pieces: UnboundedReceiver<Piece>) {
    while let Some(piece) = pieces.recv().await {
        let sent = match piece {
            Piece::Data(content) => send_data(&mut stream, content).await,
            Piece::End(trailers) if trailers.is_empty() => stream.send_data(Bytes::new(), true),
            Piece::End(trailers) => stream.send_trailers(trailers),
        };
        // The reason of a failure is read with the response.
        if sent.is_err() {
            return;
        }
    }
    // The test has dropped the request before its end. The stream stays as it is until the connection ends.
    let _ = poll_fn(|context| stream.poll_reset(context)).await;
}

async fn send_data(stream: &mut SendStream<Bytes>, mut content: Bytes) -> Result<(), h2::Error> {
    while !content.is_empty() {
        stream.reserve_capacity(content.len());
        let capacity = poll_fn(|context| stream.poll_capacity(context)).await;
        let capacity = match capacity {
            None => return Err(h2::Reason::CANCEL.into()),
            Some(capacity) => capacity?,
        };
        let part = content.split_to(capacity.min(content.len()));
        stream.send_data(part, false)?;
    }
    Ok(())
}
