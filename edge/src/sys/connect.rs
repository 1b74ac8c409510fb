//! Outgoing connections: the only place that opens client sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The name has no address.
    Unresolved,
    /// Every address refused or could not be reached.
    Failed,
    /// Neither name nor address answered in time.
    Timeout,
}

/// Connects to a host name or address (an IPv6 one with or without brackets), trying each of its
/// addresses in turn; all of it may take `timeout`. Small writes are sent at once (TCP_NODELAY).
pub async fn connect(host: &str, port: u16, timeout: Duration) -> Result<TcpStream, ConnectError> {
    tokio::time::timeout(timeout, connect_any(host, port))
        .await
        .unwrap_or(Err(ConnectError::Timeout))
}

async fn connect_any(host: &str, port: u16) -> Result<TcpStream, ConnectError> {
    if let Some(ip) = literal(host) {
        return connect_to(SocketAddr::new(ip, port)).await;
    }
    let addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(|_| ConnectError::Unresolved)?;
    let mut result = Err(ConnectError::Unresolved);
    for address in addresses {
        result = connect_to(address).await;
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
    fn connects_to_names_and_literals_and_says_why_not() {
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
}
