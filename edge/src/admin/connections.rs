//! The connections of the admin API: their number and their times are limited, so that silent or slow clients don't
//! keep others out.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::inspect::Shared;
use super::peer::Peer;
use super::stream::{AdminStream, NewSocket};
use crate::http::Scheme;

/// Most connections at once that have begun. A further one replaces the one that has waited longest for a
/// complete request. If there is none, the further one waits.
const CONNECTIONS_MAX: usize = 64;
/// Most connections at once that have sent nothing yet, or whose TLS handshake is not complete. A further one replaces
/// the oldest.
const BEGINNING_MAX: usize = 64;
/// Longest time for the first byte of a connection with the TLS handshake, and for each complete request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest life of a connection.
const CONNECTION_LIFE: Duration = Duration::from_secs(60);
/// Pause after a failed accept, which usually means that no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket for the admin API, in non-blocking mode.
#[derive(Debug)]
pub enum AdminSocket {
    /// A TCP socket.
    Tcp(std::net::TcpListener),
    /// A Unix socket.
    Unix(std::os::unix::net::UnixListener),
}

impl AdminSocket {
    /// Returns the address of a TCP socket.
    pub(super) fn address(&self) -> io::Result<Option<SocketAddr>> {
        match self {
            AdminSocket::Tcp(listener) => listener.local_addr().map(Some),
            AdminSocket::Unix(_) => Ok(None),
        }
    }
}

/// A listening socket that the thread's runtime watches.
enum Listening {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listening {
    fn new(socket: AdminSocket) -> io::Result<Listening> {
        Ok(match socket {
            AdminSocket::Tcp(listener) => Listening::Tcp(TcpListener::from_std(listener)?),
            AdminSocket::Unix(listener) => Listening::Unix(UnixListener::from_std(listener)?),
        })
    }

    async fn accept(&self) -> io::Result<(NewSocket, Peer)> {
        match self {
            Listening::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((NewSocket::Tcp(stream), Peer::Ip(address)))
            }
            Listening::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred().ok().map(|client| client.uid());
                Ok((NewSocket::Unix(stream), Peer::Unix(user)))
            }
        }
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listening::Tcp(listener) => listener.as_fd(),
            Listening::Unix(listener) => listener.as_fd(),
        }
    }
}

/// A connection that has begun.
struct OpenConnection {
    progress: Progress,
    /// Makes the connection end.
    evict: oneshot::Sender<()>,
}

/// The admin API's listener. A connection begins, and is served, once its first byte has arrived and its TLS handshake is
/// complete.
pub(super) struct AdminListener {
    /// A reserved descriptor, so that operators can still connect when clients have taken all others.
    reserve: Option<OwnedFd>,
    listener: Listening,
    edge: Shared,
    permits: Arc<Semaphore>,
    /// The connections that have begun.
    open: Vec<OpenConnection>,
    /// One task for each connection that has not begun yet.
    beginning: JoinSet<Option<(AdminStream, Peer)>>,
    /// Handles of these tasks, the oldest first.
    handles: VecDeque<AbortHandle>,
}

impl AdminListener {
    /// Accepts connections on this socket.
    pub(super) fn new(socket: AdminSocket, edge: Shared) -> io::Result<AdminListener> {
        Ok(AdminListener {
            reserve: None,
            listener: Listening::new(socket)?,
            edge,
            permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            open: Vec::new(),
            beginning: JoinSet::new(),
            handles: VecDeque::new(),
        })
    }

    /// Waits for the beginning of a new connection in a task.
    fn watch(&mut self, socket: NewSocket, peer: Peer) {
        self.handles.retain(|task| !task.is_finished());
        if self.handles.len() >= BEGINNING_MAX
            && let Some(oldest) = self.handles.pop_front()
        {
            oldest.abort();
        }
        let edge = self.edge.clone();
        let begun = async move {
            let begun = AdminStream::begin(socket, peer, &edge);
            let Ok(begun) = timeout(REQUEST_TIMEOUT, begun).await else {
                tracing::debug!(client = %peer, "an admin connection was silent for too long");
                return None;
            };
            Some((begun?, peer))
        };
        self.handles.push_back(self.beginning.spawn(begun));
    }

    /// Waits for the permit of another connection. If there is none left, the connection that has waited longest for a
    /// complete request is closed.
    async fn permit(&mut self) -> Option<OwnedSemaphorePermit> {
        self.open.retain(|open| !open.evict.is_closed());
        if self.permits.available_permits() == 0 {
            let waiting = self.open.iter().enumerate();
            let waiting =
                waiting.filter_map(|(at, open)| Some((open.progress.eviction_order()?, at)));
            if let Some((_, at)) = waiting.min() {
                // An error means that the connection has just ended.
                let _ = self.open.swap_remove(at).evict.send(());
            }
        }
        self.permits.clone().acquire_owned().await.ok()
    }

    async fn accepted(&mut self, result: io::Result<(NewSocket, Peer)>) {
        match result {
            Ok((socket, peer)) => self.watch(socket, peer),
            Err(_) if self.reserve.take().is_some() => {}
            Err(error) => {
                tracing::warn!(%error, "the admin address can't accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl axum::serve::Listener for AdminListener {
    type Io = AdminConnection;
    type Addr = Peer;

    async fn accept(&mut self) -> (AdminConnection, Peer) {
        loop {
            if self.reserve.is_none() {
                self.reserve = self.listener.as_fd().try_clone_to_owned().ok();
            }
            let (stream, peer) = tokio::select! {
                result = self.listener.accept() => {
                    self.accepted(result).await;
                    continue;
                }
                Some(found) = self.beginning.join_next() => match found {
                    Ok(Some(found)) => found,
                    _ => continue,
                },
            };
            let permit = self.permit().await;
            let (evict, evicted) = oneshot::channel();
            let connection = AdminConnection::new(stream, peer, permit, evicted);
            let progress = connection.progress.clone();
            self.open.push(OpenConnection { progress, evict });
            return (connection, peer);
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        match &self.listener {
            Listening::Tcp(listener) => listener.local_addr().map(Peer::Ip),
            Listening::Unix(_) => Ok(Peer::Unix(None)),
        }
    }
}

/// A connection that is closed after `CONNECTION_LIFE`, if a request is not complete in time, and to make room for
/// another one.
pub(super) struct AdminConnection {
    stream: AdminStream,
    end: Pin<Box<Sleep>>,
    request_end: Pin<Box<Sleep>>,
    /// Completes when the connection must make room.
    evicted: Option<oneshot::Receiver<()>>,
    progress: Progress,
    _permit: Option<OwnedSemaphorePermit>,
}

impl AdminConnection {
    fn new(
        stream: AdminStream,
        peer: Peer,
        permit: Option<OwnedSemaphorePermit>,
        evicted: oneshot::Receiver<()>,
    ) -> AdminConnection {
        let request_end = Box::pin(sleep(REQUEST_TIMEOUT));
        let state = State {
            deadline: Some(request_end.deadline()),
            ..State::default()
        };
        AdminConnection {
            end: Box::pin(sleep(CONNECTION_LIFE)),
            request_end,
            evicted: Some(evicted),
            progress: Progress {
                scheme: stream.scheme(),
                peer,
                state: Arc::new(Mutex::new(state)),
            },
            stream,
            _permit: permit,
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(evicted) = &mut self.evicted
            && let Poll::Ready(result) = Pin::new(evicted).poll(cx)
        {
            self.evicted = None;
            if result.is_ok() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        let is_late =
            self.progress.awaits_request() && self.request_end.as_mut().poll(cx).is_ready();
        match is_late || self.end.as_mut().poll(cx).is_ready() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(()),
        }
    }
}

/// The activity of client and server on a connection. Clones share the state.
#[derive(Clone)]
pub(super) struct Progress {
    /// Scheme of the requests on the connection.
    pub(super) scheme: Scheme,
    /// The client.
    pub(super) peer: Peer,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Whether a complete request is being answered.
    answering: bool,
    /// Whether the client has to read before more of a response can be written.
    blocked: bool,
    /// Time at which the connection is closed if no complete request has arrived. `None` while a
    /// complete request has no response yet.
    deadline: Option<Instant>,
}

/// Marks a connection on which a complete request is being answered, until this is dropped.
pub(super) struct Answering(Progress);

impl Progress {
    /// Notes that a complete request has arrived.
    pub(super) fn answer(&self) -> Answering {
        let mut state = self.state.lock();
        (state.answering, state.deadline) = (true, None);
        Answering(self.clone())
    }

    /// Notes that the client does not read.
    fn block(&self) {
        self.state.lock().blocked = true;
    }

    /// Notes that bytes of a response were written. If they were the last ones, the next request
    /// has to be complete at `deadline`.
    fn wrote(&self, deadline: Instant) {
        let mut state = self.state.lock();
        state.blocked = false;
        state.deadline = (!state.answering).then_some(deadline);
    }

    /// Whether the connection waits for a complete request.
    fn awaits_request(&self) -> bool {
        let state = self.state.lock();
        !state.blocked && state.deadline.is_some()
    }

    /// Returns the order in which connections make room for others, the first one first: those that
    /// wait for a complete request, then those whose clients don't read. `None` while a request is
    /// being answered.
    fn eviction_order(&self) -> Option<(bool, Instant)> {
        let state = self.state.lock();
        state.deadline.map(|deadline| (state.blocked, deadline))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.state.lock().answering = false;
    }
}

impl Connected<IncomingStream<'_, AdminListener>> for Progress {
    fn connect_info(stream: IncomingStream<'_, AdminListener>) -> Progress {
        stream.io().progress.clone()
    }
}

impl AsyncRead for AdminConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_end(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for AdminConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_end(cx)?;
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        match &polled {
            Poll::Pending => self.progress.block(),
            Poll::Ready(_) => {
                self.request_end = Box::pin(sleep(REQUEST_TIMEOUT));
                // The first poll of the timer registers the waker. The timer can't have ended yet.
                let _ = self.request_end.as_mut().poll(cx);
                self.progress.wrote(self.request_end.deadline());
            }
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
