//! Sends one request to an admin address.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};

use sluice_lab::client::{Client, ClientOptions, ClientTls, ReadError, Reply};

use super::admin_url::AdminUrl;
use crate::tls::ConnectError;

/// A request to the admin address.
pub struct Order<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub body: &'a [u8],
    /// The token to send, if there is one.
    pub token: Option<&'a str>,
}

/// The reason why there is no reply.
pub enum Failure {
    Tls(ConnectError),
    /// The token was not sent, since everyone on the way could have read it.
    ClearText,
    Other(String),
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Failure {
        let of_tls = match &error {
            ReadError::Io(error) => ConnectError::of_io(error),
            _ => None,
        };
        of_tls.map_or_else(|| Failure::Other(error.to_string()), Failure::Tls)
    }
}

/// Sends a request to the first address of the host that accepts a connection, or to a Unix socket.
///
/// # Errors
///
/// There is no reply, or the token may not be sent.
pub fn exchange(
    url: &AdminUrl,
    tls: Option<ClientTls>,
    order: &Order<'_>,
) -> Result<Reply, Failure> {
    let options = ClientOptions {
        tls,
        ..ClientOptions::default()
    };
    let mut client = connect(url, &options, order.token.is_some())?;
    client.handshake().map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Failure::Tls(ConnectError::Closed),
        _ => ReadError::from(error).into(),
    })?;
    let authority = url.authority();
    let authorization = order.token.map(|token| format!("Bearer {token}"));
    let mut headers = vec![
        ("host", authority.as_str()),
        ("x-sluice", "1"),
        ("connection", "close"),
    ];
    headers.extend(
        authorization
            .iter()
            .map(|value| ("authorization", value.as_str())),
    );
    Ok(client.request(order.method, order.target, &headers, order.body)?)
}

fn connect(url: &AdminUrl, options: &ClientOptions, has_token: bool) -> Result<Client, Failure> {
    let (host, port) = match url {
        AdminUrl::Host { host, port, .. } => (host.as_str(), *port),
        AdminUrl::Unix(path) => {
            return Ok(Client::connect_unix(path, options).map_err(ReadError::from)?);
        }
    };
    let mut connected = Err(ReadError::Timeout);
    for address in addresses(host, port).map_err(ReadError::from)? {
        let is_local = address.ip().to_canonical().is_loopback();
        if has_token && options.tls.is_none() && !is_local {
            return Err(Failure::ClearText);
        }
        connected = Client::connect_with(address, options).map_err(ReadError::from);
        if connected.is_ok() {
            break;
        }
    }
    Ok(connected?)
}

/// Returns the addresses of a host, at least one.
fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<_> = (host, port).to_socket_addrs()?.collect();
    match found.is_empty() {
        true => Err(io::Error::other("the host name has no address")),
        false => Ok(found),
    }
}
