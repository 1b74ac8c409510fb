//! The listening socket of the test origin, which can be closed and reopened on the same port, and the tasks that serve
//! its connections.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::exchange::{Exchange, seen};
use super::fault::Ending;
use super::record::{Connection, Outcome, Seen};
use super::wire::{Stop, Wire};
use super::{Accept, Shared, http2};
use crate::noise::mix;

/// Connections that may wait until they are accepted, unless the options have a number.
const BACKLOG: u32 = 4096;

/// Time by which the origin may be late with new connections and still catch up, so that it accepts them at the same
/// rate on a busy machine.
const LATE_MAX: Duration = Duration::from_millis(100);

/// Longest wait until a listening socket is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The origin's listening socket. While connections are refused, another socket reserves the port.
#[derive(Debug)]
pub(super) struct Door {
    address: SocketAddr,
    state: State,
}

#[derive(Debug)]
enum State {
    Open {
        task: AbortHandle,
        closed: mpsc::Receiver<()>,
    },
    Closed(Socket),
    Lost,
}

/// The open listener. Fields are dropped in order, so the receiver of `_closed` is notified when the listener is closed
/// already.
struct Listening {
    listener: TcpListener,
    _closed: mpsc::Sender<()>,
}

impl Door {
    pub(super) fn open(
        address: SocketAddr,
        handle: &Handle,
        shared: Arc<Shared>,
    ) -> anyhow::Result<Door> {
        let socket = bound(address, false)?;
        let address = socket
            .local_addr()?
            .as_socket()
            .context("a TCP socket has an address")?;
        let state = listen(socket, handle, shared)?;
        Ok(Door { address, state })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn close(&mut self, handle: &Handle) -> anyhow::Result<()> {
        let _runtime = handle.enter();
        if let State::Open { task, closed } = &self.state {
            // The port is reserved before the listener is closed, so that no other process can take it.
            let keeper = bound(self.address, true)?;
            task.abort();
            let ended = closed.recv_timeout(CLOSE_TIMEOUT);
            anyhow::ensure!(
                ended == Err(mpsc::RecvTimeoutError::Disconnected),
                "the origin's listener did not stop"
            );
            self.state = State::Closed(keeper);
        }
        Ok(())
    }

    pub(super) fn reopen(&mut self, handle: &Handle, shared: Arc<Shared>) -> anyhow::Result<()> {
        let socket = match std::mem::replace(&mut self.state, State::Lost) {
            State::Closed(socket) => socket,
            State::Lost => bound(self.address, false)?,
            open @ State::Open { .. } => {
                self.state = open;
                return Ok(());
            }
        };
        self.state = listen(socket, handle, shared)?;
        Ok(())
    }
}

/// Returns a socket bound to this address. `beside`: whether another socket of this origin is bound to the address too.
fn bound(address: SocketAddr, beside: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(beside)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    // SO_REUSEPORT is set only after binding: with it, binding would succeed although another process uses the port.
    socket.set_reuse_port(true)?;
    Ok(socket)
}

fn listen(socket: Socket, handle: &Handle, shared: Arc<Shared>) -> anyhow::Result<State> {
    let backlog = shared.backlog.unwrap_or(BACKLOG);
    socket.listen(i32::try_from(backlog)?)?;
    let _runtime = handle.enter();
    let (ended, closed) = mpsc::channel();
    let listening = Listening {
        listener: TcpListener::from_std(socket.into())?,
        _closed: ended,
    };
    let task = handle.spawn(accept(listening, shared)).abort_handle();
    Ok(State::Open { task, closed })
}

async fn accept(listening: Listening, shared: Arc<Shared>) {
    let mut free_at = Instant::now();
    loop {
        let Ok((stream, peer)) = listening.listener.accept().await else {
            // Most likely the process is out of file descriptors, so wait until other connections have ended.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let id = shared.number_connection();
        shared.recorder.accepted(Connection {
            id,
            peer,
            at: Instant::now(),
            requests: 0,
            received: Vec::new(),
            malformed: false,
            closed: None,
        });
        start(stream, id, &shared);
        let (accept_time, at_once) = {
            let rules = shared.rules.lock();
            (rules.accept_time, rules.accepts_at_once)
        };
        if !accept_time.is_zero() {
            free_at = free_at.max(Instant::now() - LATE_MAX) + accept_time;
            if mix(id).is_multiple_of(at_once.max(1)) {
                tokio::time::sleep_until(free_at.into()).await;
            }
        }
    }
}

/// Serves a new connection in a task of its own.
fn start(stream: TcpStream, id: u64, shared: &Arc<Shared>) {
    let mut open = shared.open.lock();
    let task = tokio::spawn(connection(stream, id, shared.clone()));
    open.insert(id, task.abort_handle());
}

/// The entry of an open connection in the origin's list. Dropping the value removes the entry, also if the connection's
/// task is aborted.
struct Listed {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.shared.open.lock().remove(&self.id);
        self.shared.recorder.disconnected(self.id);
    }
}

async fn connection(mut stream: TcpStream, id: u64, shared: Arc<Shared>) {
    let _listed = Listed {
        id,
        shared: shared.clone(),
    };
    tune(&stream, &shared);
    let accept = shared.rules.lock().accept;
    let http2 = match accept {
        Accept::Serve => speaks_http2(&stream, &shared).await,
        _ => Some(false),
    };
    let http2_ending = match http2 {
        Some(true) => Some(http2::serve(&mut stream, id, &shared).await),
        Some(false) => None,
        None => Some(Ending::Fin),
    };
    let mut wire = Wire::new(stream, id, shared.recorder.clone());
    if let Some(ending) = http2_ending {
        return wire.end(ending).await;
    }
    let ending = match accept {
        Accept::Ignore => {
            wire.until_gone().await;
            Ending::Fin
        }
        Accept::End(ending) => ending,
        Accept::Serve => serve(&mut wire, id, &shared).await,
    };
    wire.end(ending).await;
}

/// Whether the client's first bytes are those of HTTP/2; `None` if none have arrived within the idle timeout.
async fn speaks_http2(stream: &TcpStream, shared: &Shared) -> Option<bool> {
    let idle = shared.rules.lock().idle_timeout;
    let requested = http2::is_requested(stream);
    let requested = match idle {
        Some(idle) => tokio::time::timeout(idle, requested).await.ok()?,
        None => requested.await,
    };
    // An error shows again when the connection is read.
    Some(requested.unwrap_or(false))
}

/// Sets options of an accepted socket. Errors are ignored, since the defaults are good enough.
fn tune(stream: &TcpStream, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let socket = SockRef::from(stream);
    if let Some(size) = shared.send_buffer {
        let _ = socket.set_send_buffer_size(size);
    }
    if let Some(size) = shared.receive_buffer {
        let _ = socket.set_recv_buffer_size(size);
    }
}

/// Serves requests on a connection until the connection should be closed. Returns the way to close it.
async fn serve(wire: &mut Wire, id: u64, shared: &Shared) -> Ending {
    let mut served = 0;
    loop {
        let idle = shared.rules.lock().idle_timeout;
        let head = match wire.read_head(idle).await {
            Ok(Some(head)) => head,
            Ok(None) | Err(Stop::Aborted | Stop::Faulted(_)) => return Ending::Fin,
            Err(Stop::Malformed) => {
                shared.recorder.connection(id, |one| one.malformed = true);
                let refusal =
                    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = wire.write(refusal).await;
                return Ending::Fin;
            }
        };
        let seen = shared.recorder.requested(seen(head, id, served));
        shared.recorder.connection(id, |one| one.requests += 1);
        served += 1;
        let mut pending = Pending {
            id: seen.id,
            shared,
            outcome: Outcome::Aborted,
        };
        match exchange(wire, &seen, shared, served).await {
            Ok(true) => pending.outcome = Outcome::Sent,
            Ok(false) => {
                pending.outcome = Outcome::Sent;
                return Ending::Fin;
            }
            Err(Stop::Aborted | Stop::Malformed) => return Ending::Fin,
            Err(Stop::Faulted(ending)) => {
                pending.outcome = Outcome::Faulted;
                return ending;
            }
        }
    }
}

/// Records the outcome of a request when dropped, also if the connection's task is aborted.
struct Pending<'a> {
    id: u64,
    shared: &'a Shared,
    outcome: Outcome,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.shared.recorder.ended(self.id, self.outcome);
    }
}

async fn exchange(
    wire: &mut Wire,
    seen: &Seen,
    shared: &Shared,
    served: u64,
) -> Result<bool, Stop> {
    let mut resource = shared.find(&seen.target);
    while let Some(choose) = resource.dynamic.take() {
        resource = choose(seen);
    }
    let rules = shared.rules.lock().clone();
    let faults: Vec<_> = resource
        .faults
        .iter()
        .filter_map(|armed| armed.fire(seen.nth_on_connection > 0))
        .collect();
    wire.break_in = faults.iter().find_map(|fault| match fault {
        super::Fault::At { byte, how } => Some((*byte, *how)),
        _ => None,
    });
    wire.drip = faults.iter().find_map(|fault| match fault {
        super::Fault::Drip { bytes, every } => Some((*bytes, *every)),
        _ => None,
    });
    let close = resource.close
        || resource.framing == super::Framing::Close
        || !rules.keepalive
        || rules.max_requests.is_some_and(|most| served >= most)
        || !wants_keepalive(seen);
    let exchange = Exchange {
        wire,
        recorder: &shared.recorder,
        seen,
        resource,
        faults,
        close,
    };
    let goes_on = exchange.run().await?;
    Ok(goes_on && rules.max_requests_silent.is_none_or(|most| served < most))
}

fn wants_keepalive(seen: &Seen) -> bool {
    let connection = seen.header("connection").unwrap_or("").to_ascii_lowercase();
    match seen.minor_version {
        0 => connection.contains("keep-alive"),
        _ => !connection.contains("close"),
    }
}
