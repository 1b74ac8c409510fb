//! The test client's connection with HTTP/2. The h2 crate checks what the server sends.
//!
//! One thread of the process drives the connections of all clients, so that pings and settings are answered while a
//! test does something else. Content is received up to the stream's window, and more of it when the test reads.

mod request;
mod transport;
mod upload;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Response};
use tokio::runtime::{self, Handle};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::reply::{BodyEnd, Head};
use super::{ClientOptions, ClientTls, Closing, ReadError};

pub(super) use request::Message;
use upload::Upload;

/// Window of the connection, which is never the limit, so that a stream that is not read does not stop the others.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Window of a stream, as most clients have it at first.
const STREAM_WINDOW: u32 = 65_535;

/// Returns the executor of all connections.
fn executor() -> Handle {
    static EXECUTOR: LazyLock<Handle> = LazyLock::new(|| {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("an executor needs a few descriptors");
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("http2-clients".to_owned())
            .spawn(move || runtime.block_on(std::future::pending::<()>()))
            .expect("a thread can be started");
        handle
    });
    EXECUTOR.clone()
}

/// A connection of a client.
pub(super) struct Http2 {
    executor: Handle,
    requests: SendRequest<Bytes>,
    /// The task of the connection, which ends with the connection.
    task: Option<JoinHandle<Result<(), h2::Error>>>,
    /// The requests without a final response so far, in their order.
    waiting: VecDeque<ResponseFuture>,
    /// The response whose content is being read.
    current: Option<Content>,
    /// The request whose content is not complete.
    upload: Option<Upload>,
    timeout: Duration,
    /// The error code of the last reset or GOAWAY.
    code: Option<u32>,
}

/// The content of a response.
struct Content {
    stream: RecvStream,
    /// Bytes that were taken from the stream and not read by the test.
    unread: Bytes,
}

impl std::fmt::Debug for Http2 {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Http2({} waiting)", self.waiting.len())
    }
}

impl Http2 {
    /// Begins HTTP/2 on a connected socket.
    pub(super) fn begin(
        socket: TcpStream,
        tls: Option<&ClientTls>,
        options: &ClientOptions,
    ) -> io::Result<Http2> {
        let executor = executor();
        let window = match options.receive_buffer {
            Some(size) => u32::try_from(size).unwrap_or(STREAM_WINDOW),
            None => STREAM_WINDOW,
        };
        let handshake = async {
            let transport = transport::open(socket, tls).await?;
            h2::client::Builder::new()
                .initial_window_size(window)
                .initial_connection_window_size(CONNECTION_WINDOW)
                .enable_push(false)
                .handshake::<_, Bytes>(transport)
                .await
                .map_err(into_io)
        };
        let (requests, connection) = wait(&executor, options.timeout, handshake)??;
        let task = executor.spawn(connection);
        Ok(Http2 {
            executor,
            requests,
            task: Some(task),
            waiting: VecDeque::new(),
            current: None,
            upload: None,
            timeout: options.timeout,
            code: None,
        })
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Returns the error code of the last stream or connection that ended with one.
    pub(super) fn code(&self) -> Option<u32> {
        self.code
    }

    /// Sends a request. Content beyond the server's windows is sent in the background.
    pub(super) fn send(&mut self, message: Message) -> io::Result<()> {
        let Message {
            request,
            framing,
            body,
        } = message;
        let ends = framing.is_done();
        let requests = self.requests.clone();
        let begin = async {
            let mut requests = requests.ready().await?;
            requests.send_request(request, ends)
        };
        let begun = wait(&self.executor, self.timeout, begin)?;
        let (response, stream): (ResponseFuture, SendStream<Bytes>) = begun.map_err(into_io)?;
        self.waiting.push_back(response);
        self.upload = None;
        if !ends {
            let mut upload = Upload::begin(&self.executor, stream, framing);
            upload.feed(&body)?;
            self.upload = Some(upload);
        }
        Ok(())
    }

    /// Sends further content of the last request, in the framing that its headers announce.
    pub(super) fn send_content(&mut self, bytes: &[u8]) -> io::Result<()> {
        let upload = self.upload.as_mut().filter(|upload| !upload.is_done());
        let Some(upload) = upload else {
            let what = "the connection speaks HTTP/2, and no request has more content";
            return Err(io::Error::new(ErrorKind::InvalidInput, what));
        };
        upload.feed(bytes)
    }

    /// Reads the next head, interim or final.
    pub(super) fn read_head(&mut self) -> Result<Head, ReadError> {
        let Some(mut response) = self.waiting.pop_front() else {
            return Err(self.without_response());
        };
        let read = wait(&self.executor, self.timeout, next_head(&mut response));
        match read.map_err(ReadError::from)? {
            Err(error) => Err(self.failed(&error)),
            Ok(Next::Interim(head)) => {
                self.waiting.push_front(response);
                into_head(&head)
            }
            Ok(Next::Final(head)) => {
                let (parts, stream) = head.into_parts();
                self.current = Some(Content {
                    stream,
                    unread: Bytes::new(),
                });
                into_head(&Response::from_parts(parts, ()))
            }
        }
    }

    /// Waits for the end of a connection on which no request has been sent.
    fn without_response(&mut self) -> ReadError {
        match self.wait_end(self.timeout) {
            None => ReadError::Timeout,
            Some(Closing::Reset) => ReadError::Reset,
            Some(_) => ReadError::Closed(Vec::new()),
        }
    }

    /// Appends the rest of the current response's content to `body`. Returns its end and its trailers.
    pub(super) fn read_body(
        &mut self,
        body: &mut Vec<u8>,
    ) -> Result<(BodyEnd, Vec<(String, String)>), ReadError> {
        loop {
            match self.read_piece() {
                Ok(Some(piece)) => body.extend_from_slice(&piece),
                Ok(None) => break,
                Err(ReadError::Timeout) => return Ok((BodyEnd::Stalled, Vec::new())),
                Err(ReadError::Reset) => return Ok((BodyEnd::Reset, Vec::new())),
                Err(ReadError::Closed(_)) => return Ok((BodyEnd::Closed, Vec::new())),
                Err(other) => return Err(other),
            }
        }
        Ok((BodyEnd::Complete, self.read_trailers()?))
    }

    fn read_trailers(&mut self) -> Result<Vec<(String, String)>, ReadError> {
        let Some(content) = &mut self.current else {
            return Ok(Vec::new());
        };
        let read = wait(&self.executor, self.timeout, content.stream.trailers());
        match read.map_err(ReadError::from)? {
            Ok(trailers) => fields(&trailers.unwrap_or_default()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Reads up to `count` bytes of the current response's content. Returns fewer only if the content ends before. As
    /// with a body that HTTP/1.1 cuts off, the bytes don't show whether they are complete; `code` does.
    pub(super) fn read_some(&mut self, count: usize) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            let mut piece = match self.read_piece() {
                Ok(Some(piece)) => piece,
                Ok(None) | Err(ReadError::Reset | ReadError::Closed(_)) => break,
                Err(error) => return Err(error),
            };
            let taken = piece.len().min(count - bytes.len());
            bytes.extend_from_slice(&piece[..taken]);
            piece.advance(taken);
            if let Some(content) = &mut self.current {
                content.unread = piece;
            }
        }
        Ok(bytes)
    }

    /// Returns the next bytes of the current response's content, or `None` at its end.
    fn read_piece(&mut self) -> Result<Option<Bytes>, ReadError> {
        let Some(content) = &mut self.current else {
            return Ok(None);
        };
        if !content.unread.is_empty() {
            return Ok(Some(std::mem::take(&mut content.unread)));
        }
        let read = wait(&self.executor, self.timeout, content.stream.data());
        match read.map_err(ReadError::from)? {
            None => Ok(None),
            Some(Ok(piece)) => {
                // Reading opens the window again, so that a test that does not read holds the server up.
                let released = content.stream.flow_control().release_capacity(piece.len());
                released.map_err(|error| ReadError::Io(into_io(error)))?;
                Ok(Some(piece))
            }
            Some(Err(error)) => Err(self.failed(&error)),
        }
    }

    /// Waits up to `within` for the server to close the connection, or to send content that can be read.
    pub(super) fn wait_closed(&mut self, within: Duration) -> Closing {
        if let Some(content) = &mut self.current {
            if content.unread.is_empty() && !content.stream.is_end_stream() {
                let read = wait(&self.executor, within, content.stream.data());
                if let Ok(Some(Ok(piece))) = read {
                    content.unread = piece;
                }
            }
            if !content.unread.is_empty() {
                return Closing::Data;
            }
        }
        self.wait_end(within).unwrap_or(Closing::Open)
    }

    /// Waits up to `within` for the end of the connection.
    fn wait_end(&mut self, within: Duration) -> Option<Closing> {
        let Some(task) = &mut self.task else {
            return Some(Closing::Fin);
        };
        let ended = wait(&self.executor, within, task).ok()?;
        self.task = None;
        match ended {
            Ok(Err(error)) => match self.failed(&error) {
                ReadError::Reset => Some(Closing::Reset),
                _ => Some(Closing::Fin),
            },
            // If the task was aborted, the client itself has closed the connection.
            Ok(Ok(())) | Err(_) => Some(Closing::Fin),
        }
    }

    /// Ends the connection's task, and with it the connection's use of the socket.
    pub(super) fn end(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // The result says only that the task was aborted.
            let _ = wait(&self.executor, self.timeout, task);
        }
    }

    /// Remembers the code of an error, and returns the reason why nothing can be read.
    fn failed(&mut self, error: &h2::Error) -> ReadError {
        self.code = error.reason().map(u32::from).or(self.code);
        if let Some(error) = error.get_io() {
            // If the server has sent GOAWAY before, only the end of the connection has its code.
            self.wait_end(self.timeout);
            return match error.kind() {
                ErrorKind::ConnectionReset => ReadError::Reset,
                _ => ReadError::Closed(Vec::new()),
            };
        }
        match error {
            _ if error.is_library() => ReadError::Malformed(error.to_string()),
            _ if error.is_go_away() => ReadError::Closed(Vec::new()),
            _ if error.is_reset() => ReadError::Reset,
            _ => ReadError::Io(io::Error::other(error.to_string())),
        }
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        // Like a client that vanishes: without GOAWAY, and without an end of open requests.
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Waits for a future from a thread that is none of an executor's.
fn wait<F: Future>(executor: &Handle, within: Duration, future: F) -> io::Result<F::Output> {
    // A timer has to be made on the executor.
    let limited = async { timeout(within, future).await };
    let done = executor.block_on(limited);
    done.map_err(|_| ErrorKind::TimedOut.into())
}

enum Next {
    Interim(Response<()>),
    Final(Response<RecvStream>),
}

/// Waits for the next interim response, or the final one.
async fn next_head(response: &mut ResponseFuture) -> Result<Next, h2::Error> {
    poll_fn(|context| {
        // Asking for the final head drops the interim ones before it. The connection's thread may add one at any
        // moment, so the final head is asked for only once it is known to be the next.
        if let Some(interim) = ready!(response.poll_informational(context)) {
            return Poll::Ready(interim.map(Next::Interim));
        }
        let head = Pin::new(&mut *response).poll(context);
        head.map(|head| head.map(Next::Final))
    })
    .await
}

fn into_head(response: &Response<()>) -> Result<Head, ReadError> {
    Ok(Head {
        status: response.status().as_u16(),
        reason: String::new(),
        headers: fields(response.headers())?,
    })
}

/// Headers that a message of HTTP/2 must not have (RFC 9113 8.2.2).
const CONNECTION_HEADERS: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

fn fields(headers: &HeaderMap) -> Result<Vec<(String, String)>, ReadError> {
    let mut fields = Vec::new();
    for (name, value) in headers {
        if CONNECTION_HEADERS.contains(&name.as_str()) {
            return Err(ReadError::Malformed(format!("{name} in HTTP/2")));
        }
        let value = String::from_utf8_lossy(value.as_bytes());
        if value.trim_matches([' ', '\t']) != value {
            return Err(ReadError::Malformed(format!("spaces around {value:?}")));
        }
        fields.push((name.as_str().to_owned(), value.into_owned()));
    }
    Ok(fields)
}

fn into_io(error: h2::Error) -> io::Error {
    match error.is_io() {
        true => error
            .into_io()
            .unwrap_or_else(|| ErrorKind::BrokenPipe.into()),
        // As in HTTP/1, nothing can be sent on a connection that the server has ended.
        false if error.is_go_away() || error.is_reset() => {
            io::Error::new(ErrorKind::BrokenPipe, error.to_string())
        }
        false => io::Error::other(error.to_string()),
    }
}
