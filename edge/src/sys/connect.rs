//! Outgoing connections. No other code opens client sockets of TCP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;

use super::clock::timer_now;

/// The reason why a connection could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The name has no address.
    Unresolved,
    /// Every address refused the connection or was unreachable.
    Failed,
    /// Name resolution or all addresses timed out.
    Timeout,
}

/// Connects to a host name or address (an IPv6 address with or without brackets), and tries each of its addresses in turn. `timeout` limits
/// the whole attempt. Each address gets an equal share of the remaining time, so that an address that does not answer leaves time for the
/// next one. The connection has TCP_NODELAY.
pub async fn connect(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, ConnectError> {
    if let Some(ip) = literal(host) {
        return connect_any(&[SocketAddr::new(ip, port)], timeout).await;
    }
    let began = timer_now();
    let addresses: Vec<SocketAddr> =
        tokio::time::timeout(timeout, tokio::net::lookup_host((host, port)))
            .await
            .map_err(|_| ConnectError::Timeout)?
            .map_err(|_| ConnectError::Unresolved)?
            .collect();
    connect_any(&addresses, timeout.saturating_sub(began.elapsed())).await
}

async fn connect_any(
    addresses: &[SocketAddr],
    timeout: Duration,
) -> Result<TcpStream, ConnectError> {
    let (began, mut result) = (timer_now(), Err(ConnectError::Unresolved));
    for (addresses_left, address) in (1..=addresses.len() as u32).rev().zip(addresses) {
        let share = timeout.saturating_sub(began.elapsed()) / addresses_left;
        result = tokio::time::timeout(share, connect_to(*address))
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

async fn connect_to(address: SocketAddr) -> Result<TcpStream, ConnectError> {
    let opened: io::Result<TcpStream> = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
    .await;
    opened.map_err(|_| ConnectError::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn connects_to_names_and_addresses_and_reports_failures() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let port = listener.local_addr().expect("an address").port();
            let timeout = Duration::from_secs(20);
            let stream = connect("127.0.0.1", port, timeout).await.expect("accepted");
            assert!(stream.nodelay().expect("an option"));
            assert!(connect("localhost", port, timeout).await.is_ok());
            drop(listener);
            let refused = connect("127.0.0.1", port, timeout).await;
            assert_eq!(refused.err(), Some(ConnectError::Failed));
            let unknown = connect("no-such-name.invalid", 80, timeout).await;
            assert_eq!(unknown.err(), Some(ConnectError::Unresolved));
        });
        assert_eq!(literal("[::1]"), "::1".parse().ok());
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
            let timeout = Duration::from_millis(400);
            let stream = connect_any(&[silent, good], timeout).await;
            let stream = stream.expect("the second one accepts");
            assert_eq!(stream.peer_addr().expect("an address"), good);
            let alone = connect_any(&[silent], timeout).await;
            assert_eq!(alone.err(), Some(ConnectError::Timeout));
        });
    }
}
