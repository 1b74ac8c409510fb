//! Outgoing connections. No other code opens client sockets.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream, UnixStream};

use super::clock::timer_now;
use super::socket_option;

/// Time after which the connection to another address is opened, too.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Options of a TCP socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// Whether small packets are sent at once (TCP_NODELAY).
    pub nodelay: bool,
    /// Time after which an idle connection is probed; `None`: never.
    pub keepalive: Option<Duration>,
    /// Longest time that sent data may stay unacknowledged; `None`: the kernel's.
    pub user_timeout: Option<Duration>,
    /// Address of this machine from which connections are opened.
    pub bind: Option<IpAddr>,
}

impl Default for TcpOptions {
    fn default() -> TcpOptions {
        TcpOptions {
            nodelay: true,
            keepalive: None,
            user_timeout: None,
            bind: None,
        }
    }
}

/// Number of probes without an answer after which a connection is closed.
const PROBES: u32 = 3;

/// The reason why a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The name has no address.
    Unresolved,
    /// Every address refused the connection or was unreachable. The system's error about the last
    /// one, if there is one.
    Failed(Option<Errno>),
    /// Name resolution or all addresses timed out.
    Timeout,
    /// This machine has no port, or not the configured address, for a connection to the server.
    NoPort,
    /// The system has no descriptor or no memory for another socket.
    NoSocket,
}

/// Number of an error of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(i32);

impl fmt::Display for Errno {
    /// Writes the system's text, without the number that the standard library adds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = io::Error::from_raw_os_error(self.0).to_string();
        let number = format!(" (os error {})", self.0);
        f.write_str(text.strip_suffix(&number).unwrap_or(&text))
    }
}

impl ConnectError {
    /// Returns the meaning of an error of the system.
    fn of(error: &io::Error) -> ConnectError {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => {
                ConnectError::NoSocket
            }
            Some(libc::EADDRNOTAVAIL | libc::EAGAIN) => ConnectError::NoPort,
            error => ConnectError::Failed(error.map(Errno)),
        }
    }

    /// Returns the error of an address for which `other` failed, too: the own error, unless only that
    /// one is an error of this machine.
    fn or(self, other: ConnectError) -> ConnectError {
        match self.is_local() && !other.is_local() {
            true => other,
            false => self,
        }
    }

    /// Whether the error says nothing about the server.
    fn is_local(self) -> bool {
        matches!(self, ConnectError::NoPort | ConnectError::NoSocket)
    }

    /// Returns the meaning of an error of the system about a Unix socket. EAGAIN means that the
    /// server's queue is full.
    fn of_unix(error: &io::Error) -> ConnectError {
        match ConnectError::of(error) {
            ConnectError::NoPort => ConnectError::Failed(error.raw_os_error().map(Errno)),
            other => other,
        }
    }

    /// Returns the meaning of a failed look-up, which may fail since the system has no descriptor.
    fn of_lookup() -> ConnectError {
        match TcpSocket::new_v4() {
            Ok(_) => ConnectError::Unresolved,
            Err(error) => ConnectError::of(&error),
        }
    }
}

/// Connects to a host name or address (an IPv6 address with or without brackets), and tries each of its addresses in turn. `timeout` limits
/// the whole attempt. Each address gets an equal share of the remaining time, so that an address that does not answer leaves time for the
/// next one.
pub async fn connect(
    host: &str,
    port: u16,
    options: &TcpOptions,
    timeout: Duration,
) -> Result<TcpStream, ConnectError> {
    if let Some(ip) = literal(host) {
        return connect_any(&[SocketAddr::new(ip, port)], options, timeout).await;
    }
    let began = timer_now();
    let addresses: Vec<SocketAddr> =
        tokio::time::timeout(timeout, tokio::net::lookup_host((host, port)))
            .await
            .map_err(|_| ConnectError::Timeout)?
            .map_err(|_| ConnectError::of_lookup())?
            .collect();
    connect_any(&addresses, options, timeout.saturating_sub(began.elapsed())).await
}

/// Connects to the address `first` within `timeout`. If that has failed, or not succeeded after 250 ms, connects to `second`
/// as well, and returns the connection that is established first (RFC 8305 5). `own` is the one of the two addresses that
/// the caller means.
///
/// # Errors
///
/// If neither can be connected to, the error is that of `own`, unless only that one is an error of this machine.
pub async fn connect_either(
    first: SocketAddr,
    second: Option<SocketAddr>,
    own: SocketAddr,
    options: &TcpOptions,
    timeout: Duration,
) -> Result<TcpStream, ConnectError> {
    let Some(second) = second else {
        return connect_any(&[first], options, timeout).await;
    };
    // An attempt that has not ended in time has no other error.
    let errors = [first, second].map(|address| (address, Cell::new(ConnectError::Timeout)));
    let attempt = async |(address, error): &(SocketAddr, Cell<ConnectError>)| {
        let opened = connect_to(*address, options).await;
        opened.map_err(|failed| error.set(failed))
    };
    let race = async {
        let mut early = pin!(attempt(&errors[0]));
        if let Ok(opened) = tokio::time::timeout(ATTEMPT_DELAY, &mut early).await {
            return match opened {
                Ok(stream) => Ok(stream),
                Err(()) => attempt(&errors[1]).await,
            };
        }
        let mut late = pin!(attempt(&errors[1]));
        tokio::select! {
            opened = &mut early => match opened {
                Ok(stream) => Ok(stream),
                Err(()) => late.await,
            },
            opened = &mut late => match opened {
                Ok(stream) => Ok(stream),
                Err(()) => early.await,
            },
        }
    };
    let raced = tokio::time::timeout(timeout, race).await;
    raced.unwrap_or(Err(())).map_err(|()| {
        let [first, second] = errors.each_ref().map(|(_, error)| error.get());
        match errors[0].0 == own {
            true => first.or(second),
            false => second.or(first),
        }
    })
}

/// Connects to a Unix socket within `timeout`.
pub async fn connect_unix(path: &Path, timeout: Duration) -> Result<UnixStream, ConnectError> {
    match tokio::time::timeout(timeout, UnixStream::connect(path)).await {
        Ok(opened) => opened.map_err(|error| ConnectError::of_unix(&error)),
        Err(_) => Err(ConnectError::Timeout),
    }
}

async fn connect_any(
    addresses: &[SocketAddr],
    options: &TcpOptions,
    timeout: Duration,
) -> Result<TcpStream, ConnectError> {
    let (began, mut result) = (timer_now(), Err(ConnectError::Unresolved));
    for (addresses_left, address) in (1..=addresses.len() as u32).rev().zip(addresses) {
        let share = timeout.saturating_sub(began.elapsed()) / addresses_left;
        result = tokio::time::timeout(share, connect_to(*address, options))
            .await
            .unwrap_or(Err(ConnectError::Timeout));
        if result.is_ok() {
            break;
        }
    }
    result
}

fn literal(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    bare.unwrap_or(host).parse().ok()
}

async fn connect_to(address: SocketAddr, options: &TcpOptions) -> Result<TcpStream, ConnectError> {
    let opened: io::Result<TcpStream> = async {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        if let Some(from) = options.bind {
            bind(&socket, from)?;
        }
        let stream = socket.connect(address).await?;
        set(&stream, options)?;
        Ok(stream)
    }
    .await;
    opened.map_err(|error| ConnectError::of(&error))
}

/// Binds a socket to an address of this machine, but not yet to a port: the kernel chooses one when the socket is connected
/// (IP_BIND_ADDRESS_NO_PORT). If it chose one now, the port could not be used again for another server, so that all servers
/// together would get no more connections than there are ports.
fn bind(socket: &TcpSocket, from: IpAddr) -> io::Result<()> {
    // A kernel without the option chooses the port at once.
    let _ = socket_option::set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
    // Fails if the addresses of socket and server are of different families.
    socket.bind(SocketAddr::new(from, 0))
}

/// Sets the options of a connection.
fn set(stream: &TcpStream, options: &TcpOptions) -> io::Result<()> {
    stream.set_nodelay(options.nodelay)?;
    let socket = SockRef::from(stream);
    if let Some(time) = options.keepalive {
        let interval = (time / PROBES).max(Duration::from_secs(1));
        let probes = TcpKeepalive::new()
            .with_time(time)
            .with_interval(interval)
            .with_retries(PROBES);
        socket.set_tcp_keepalive(&probes)?;
    }
    if options.user_timeout.is_some() {
        socket.set_tcp_user_timeout(options.user_timeout)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime")
    }

    #[test]
    fn connects_to_names_and_addresses_and_reports_failures() {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let (options, timeout) = (TcpOptions::default(), Duration::from_secs(20));
            let stream = connect("127.0.0.1", port, &options, timeout)
                .await
                .expect("accepted");
            assert!(stream.nodelay().expect("an option"));
            assert!(connect("localhost", port, &options, timeout).await.is_ok());
            drop(listener);
            let refused = connect("127.0.0.1", port, &options, timeout).await;
            let failed = ConnectError::Failed(Some(Errno(libc::ECONNREFUSED)));
            assert_eq!(refused.err(), Some(failed));
            let unknown = connect("no-such-name.invalid", 80, &options, timeout).await;
            assert_eq!(unknown.err(), Some(ConnectError::Unresolved));
        });
        assert_eq!(literal("[::1]"), "::1".parse().ok());
    }

    #[test]
    fn options_of_sockets_are_set() {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            let options = TcpOptions {
                nodelay: false,
                keepalive: Some(Duration::from_secs(30)),
                user_timeout: Some(Duration::from_secs(7)),
                bind: Some([127, 0, 0, 9].into()),
            };
            let timeout = Duration::from_secs(20);
            let stream = connect_either(address, None, address, &options, timeout).await;
            let stream = stream.expect("accepted");
            let local = stream.local_addr().expect("an address");
            assert_eq!(Some(local.ip()), options.bind);
            let socket = SockRef::from(&stream);
            assert!(!stream.nodelay().expect("an option"));
            assert!(socket.keepalive().expect("an option"));
            let waits = socket.tcp_user_timeout().expect("an option");
            assert_eq!(waits, options.user_timeout);
            let elsewhere = TcpOptions {
                bind: Some([192, 0, 2, 1].into()),
                ..options.clone()
            };
            let unbound = connect_either(address, None, address, &elsewhere, timeout).await;
            assert_eq!(unbound.err(), Some(ConnectError::NoPort));
            let v6 = TcpOptions {
                bind: Some([0, 0, 0, 0, 0, 0, 0, 1].into()),
                ..options
            };
            let other = connect_either(address, None, address, &v6, timeout).await;
            assert!(matches!(other, Err(ConnectError::Failed(_))));
        });
    }

    #[test]
    fn errors_of_this_machine_are_told_from_those_of_servers() {
        let of = |error| ConnectError::of(&io::Error::from_raw_os_error(error));
        for error in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM] {
            assert_eq!(of(error), ConnectError::NoSocket);
        }
        for error in [libc::EADDRNOTAVAIL, libc::EAGAIN] {
            assert_eq!(of(error), ConnectError::NoPort);
        }
        for error in [libc::ECONNREFUSED, libc::ENETUNREACH, libc::ETIMEDOUT] {
            assert_eq!(of(error), ConnectError::Failed(Some(Errno(error))));
        }
        let of_unix = |error| ConnectError::of_unix(&io::Error::from_raw_os_error(error));
        let full = ConnectError::Failed(Some(Errno(libc::EAGAIN)));
        assert_eq!(of_unix(libc::EAGAIN), full);
        assert_eq!(of_unix(libc::EMFILE), ConnectError::NoSocket);
    }

    // The own address refuses the connection. The other one can't be connected to from an address of the wrong family.
    #[test]
    fn of_two_addresses_that_fail_the_own_error_is_reported() {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let own = listener.local_addr().expect("an address");
            drop(listener);
            let other = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, own.port()));
            let options = TcpOptions {
                bind: Some(own.ip()),
                ..TcpOptions::default()
            };
            let timeout = Duration::from_secs(20);
            for (first, second) in [(own, other), (other, own)] {
                let failed = connect_either(first, Some(second), own, &options, timeout).await;
                let refused = ConnectError::Failed(Some(Errno(libc::ECONNREFUSED)));
                assert_eq!(failed.err(), Some(refused));
            }
        });
    }

    // The address of the other family may be one that this machine has no address for.
    #[test]
    fn of_two_errors_that_of_a_server_is_reported_rather_than_that_of_this_machine() {
        let refused = ConnectError::Failed(Some(Errno(libc::ECONNREFUSED)));
        for local in [ConnectError::NoPort, ConnectError::NoSocket] {
            for other in [refused, ConnectError::Timeout] {
                assert_eq!((local.or(other), other.or(local)), (other, other));
            }
        }
        assert_eq!(refused.or(ConnectError::Timeout), refused);
        let both = ConnectError::NoPort.or(ConnectError::NoSocket);
        assert_eq!(both, ConnectError::NoPort);
    }

    #[test]
    fn a_bound_socket_has_no_port_before_it_is_connected() {
        for (socket, from) in [
            (TcpSocket::new_v4(), IpAddr::from([127, 0, 0, 1])),
            (TcpSocket::new_v6(), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])),
        ] {
            let socket = socket.expect("a socket");
            bind(&socket, from).expect("an address of this machine");
            let bound = socket.local_addr().expect("an address");
            assert_eq!((bound.ip(), bound.port()), (from, 0));
        }
    }

    /// Returns a listener with a full accept queue, which does not answer further connections, and the connections in its queue.
    fn unanswering() -> (TcpListener, Vec<std::net::TcpStream>) {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.expect("a socket");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        socket.bind(&any.into()).expect("a port");
        socket.listen(0).expect("a listener");
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().expect("an address");
        let short = Duration::from_millis(100);
        let connect = |_| std::net::TcpStream::connect_timeout(&address, short).ok();
        let queued: Vec<_> = (0..100).map_while(connect).collect();
        (listener, queued)
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let (full, queued) = unanswering();
        assert!(queued.len() < 100, "a queue of 0 fills up");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let [silent, good] = [&full, &listener].map(|l| l.local_addr().expect("an address"));
        runtime.block_on(async {
            let (options, timeout) = (TcpOptions::default(), Duration::from_millis(400));
            // The time is long enough for a machine that pauses.
            let long = Duration::from_secs(14);
            let stream = connect_any(&[silent, good], &options, long).await;
            let stream = stream.expect("the second one accepts");
            assert_eq!(stream.peer_addr().expect("an address"), good);
            let later = connect_either(
                silent,
                Some(good),
                silent,
                &options,
                Duration::from_secs(20),
            )
            .await;
            let later = later.expect("the other one accepts");
            assert_eq!(later.peer_addr().expect("an address"), good);
            let alone = connect_any(&[silent], &options, timeout).await;
            assert_eq!(alone.err(), Some(ConnectError::Timeout));
        });
    }
}
