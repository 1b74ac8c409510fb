//! A blocking HTTP/1.1 client for tests: low-level and strict, on real sockets, with a timeout for each operation.
//!
//! ```no_run
//! # fn main() -> Result<(), sluice_lab::client::ReadError> {
//! # let address = "127.0.0.1:8080".parse().expect("an address");
//! let reply = sluice_lab::client::get(address, "/film.mp4", &[("Range", "bytes=5000000-5000009")])?;
//! assert_eq!(reply.status, 206);
//! reply.verify_offset(5_000_000).expect("the requested bytes");
//! # Ok(())
//! # }
//! ```

mod body;
mod reply;
mod stream;

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

pub use reply::{BodyEnd, ContentRange, Head, Part, Reply};

pub use stream::{
    ClientTls, config as tls_config, config_with as tls_config_with, encrypt_all_to,
    encrypt_none_to, encrypts_to, undo_encrypt_all_to,
};

use crate::pauses;
use body::Decoder;
use stream::Stream;

/// Default timeout of each connect, write and read.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum length of a response head in bytes.
const HEAD_MAX: usize = 1 << 20;

/// Reason why a reply could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// No bytes of the reply arrived within the timeout.
    Timeout,
    /// The connection was closed before a response head was complete. The value contains the bytes received.
    Closed(Vec<u8>),
    /// The connection was reset before a response head was complete.
    Reset,
    /// The response violates RFC 9112. The text describes the violation.
    Malformed(String),
    /// Another I/O error occurred on the connection.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Timeout => write!(out, "no bytes arrived within the timeout"),
            ReadError::Closed(bytes) => {
                write!(out, "closed after {:?}", String::from_utf8_lossy(bytes))
            }
            ReadError::Reset => write!(out, "reset"),
            ReadError::Malformed(what) => write!(out, "malformed: {what}"),
            ReadError::Io(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ReadError::Timeout,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => ReadError::Reset,
            _ => ReadError::Io(error),
        }
    }
}

/// Result of waiting for the server to close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// The server has closed the connection with a FIN.
    Fin,
    /// The server has reset the connection.
    Reset,
    /// The server has sent more bytes, which can be read.
    Data,
    /// The connection stayed open and silent for the whole time.
    Open,
}

/// Source address and options of a connection.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Source address of the connection, such as 127.0.0.7; `None`: the kernel chooses.
    pub source: Option<IpAddr>,
    /// Timeout of the connect and of each read and write.
    pub timeout: Duration,
    /// Size in bytes of the receive buffer in the kernel. With a small buffer, the server soon has to wait for the
    /// client.
    pub receive_buffer: Option<usize>,
    /// TLS of the connection. `None`: as `encrypt_all_to` says, which is usually none.
    pub tls: Option<ClientTls>,
    /// Whether the connection has no TLS, whatever `encrypt_all_to` says.
    pub in_clear_text: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            source: None,
            timeout: TIMEOUT,
            receive_buffer: None,
            tls: None,
            in_clear_text: false,
        }
    }
}

/// A client's connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    address: SocketAddr,
    unread: Vec<u8>,
    began: Instant,
}

impl Client {
    /// Connects to a server with the default options.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        Client::connect_with(address, &ClientOptions::default())
    }

    /// Connects to a server from the source address `source`, which may be any address in 127/8.
    pub fn connect_from(source: IpAddr, address: SocketAddr) -> io::Result<Client> {
        let source = Some(source);
        Client::connect_with(
            address,
            &ClientOptions {
                source,
                ..ClientOptions::default()
            },
        )
    }

    /// Connects to a server with these options.
    pub fn connect_with(address: SocketAddr, options: &ClientOptions) -> io::Result<Client> {
        pauses::point();
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        if let Some(size) = options.receive_buffer {
            socket.set_recv_buffer_size(size)?;
        }
        if let Some(source) = options.source {
            socket.bind(&SocketAddr::new(source, 0).into())?;
        }
        socket.connect_timeout(&address.into(), options.timeout)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(options.timeout))?;
        stream.set_write_timeout(Some(options.timeout))?;
        let by_default = || stream::default_for(address).filter(|_| !options.in_clear_text);
        let tls = options.tls.clone().or_else(by_default);
        Ok(Client {
            stream: Stream::new(stream, tls.as_ref())?,
            address,
            unread: Vec::new(),
            began: Instant::now(),
        })
    }

    /// Sets the timeout of each read and write.
    pub fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        let socket = self.stream.socket();
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))
    }

    /// Returns the client's own address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.socket().local_addr()
    }

    /// Returns the connection's socket.
    pub fn stream(&self) -> &TcpStream {
        self.stream.socket()
    }

    /// Completes the TLS handshake, which otherwise happens with the first read or write.
    pub fn handshake(&mut self) -> io::Result<()> {
        self.stream.handshake()
    }

    /// Returns the TLS session, if the connection has TLS.
    pub fn session(&self) -> Option<&rustls::ClientConnection> {
        self.stream.session()
    }

    /// Sends these bytes unchanged. The times in the next reply count from now.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        pauses::point();
        self.began = Instant::now();
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends a request. Host is added unless `headers` contains it. A body gets a Content-Length unless `headers`
    /// determines the framing.
    pub fn send(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let has = |wanted: &str| {
            headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case(wanted))
        };
        let mut request = format!("{method} {target} HTTP/1.1\r\n");
        if !has("host") {
            request.push_str(&format!("Host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() && !has("content-length") && !has("transfer-encoding") {
            request.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        self.send_raw(&[request.as_bytes(), body].concat())
    }

    /// Sends a GET request and returns the reply.
    pub fn get(&mut self, target: &str, headers: &[(&str, &str)]) -> Result<Reply, ReadError> {
        self.request("GET", target, headers, b"")
    }

    /// Sends a request and returns the reply.
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Reply, ReadError> {
        self.send(method, target, headers, body)?;
        self.read_reply_to(method)
    }

    /// Reads the reply to a request other than HEAD.
    pub fn read_response(&mut self) -> Result<Reply, ReadError> {
        self.read_reply_to("GET")
    }

    /// Reads the reply to a request with this method: interim responses, the final head, and its body.
    ///
    /// A truncated body is not an error: see [`Reply::truncated`]. A 101 counts as final.
    pub fn read_reply_to(&mut self, method: &str) -> Result<Reply, ReadError> {
        let mut interim = Vec::new();
        let head = loop {
            let head = self.read_head()?;
            match head.status {
                101 | 200.. => break head,
                _ => interim.push(head),
            }
        };
        let first_byte = self.began.elapsed();
        let mut decoder = Decoder::new(method, &head)?;
        let mut body = Vec::new();
        let end = loop {
            match self.read_body(&mut decoder, &mut body)? {
                Some(end) => break end,
                None => continue,
            }
        };
        Ok(Reply {
            interim,
            status: head.status,
            reason: head.reason,
            headers: head.headers,
            body,
            trailers: decoder.trailers,
            end,
            first_byte,
            total: self.began.elapsed(),
        })
    }

    /// Reads the next head, interim or final, without the body.
    pub fn read_head(&mut self) -> Result<Head, ReadError> {
        pauses::point();
        loop {
            if let Some(length) = reply::head_length(&self.unread) {
                let head = Head::parse(&self.unread[..length])?;
                self.unread.drain(..length);
                return Ok(head);
            }
            if self.unread.len() > HEAD_MAX {
                return Err(ReadError::Malformed("a head is too long".to_owned()));
            }
            if self.fill()? == 0 {
                return Err(ReadError::Closed(std::mem::take(&mut self.unread)));
            }
        }
    }

    /// Reads `count` bytes without interpreting them. Returns fewer only if the connection ends before.
    pub fn read_some(&mut self, count: usize) -> Result<Vec<u8>, ReadError> {
        pauses::point();
        while self.unread.len() < count && self.fill()? > 0 {}
        let count = count.min(self.unread.len());
        Ok(self.unread.drain(..count).collect())
    }

    /// Reads all bytes until the connection ends.
    pub fn read_to_end(&mut self) -> Result<Vec<u8>, ReadError> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.unread))
    }

    /// Waits up to `within` for the server to close the connection.
    pub fn wait_closed(&mut self, within: Duration) -> io::Result<Closing> {
        pauses::point();
        if !self.unread.is_empty() {
            return Ok(Closing::Data);
        }
        let before = self.stream.socket().read_timeout()?;
        self.stream
            .socket()
            .set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
        let read = match &self.stream {
            Stream::Plain(socket) => peek(socket).map_err(ReadError::from),
            Stream::Tls(_) => self.fill(),
        };
        let closing = match read {
            Ok(0) => Ok(Closing::Fin),
            Ok(_) => Ok(Closing::Data),
            Err(error) => match error {
                ReadError::Timeout => Ok(Closing::Open),
                ReadError::Reset => Ok(Closing::Reset),
                ReadError::Io(error) => Err(error),
                other => Err(io::Error::other(other)),
            },
        };
        self.stream.socket().set_read_timeout(before)?;
        closing
    }

    /// Closes the sending direction of the connection.
    pub fn finish_sending(&mut self) -> io::Result<()> {
        self.stream.notify_close()?;
        self.stream.socket().shutdown(Shutdown::Write)
    }

    /// Closes the connection with a reset.
    pub fn reset(self) -> io::Result<()> {
        socket2::SockRef::from(self.stream.socket()).set_linger(Some(Duration::ZERO))
    }

    /// Reads and decodes a body up to its end. Returns the way in which the body ended.
    fn read_body(
        &mut self,
        decoder: &mut Decoder,
        body: &mut Vec<u8>,
    ) -> Result<Option<BodyEnd>, ReadError> {
        let used = decoder.decode(&self.unread, body)?;
        self.unread.drain(..used);
        if decoder.done() {
            return Ok(Some(BodyEnd::Complete));
        }
        match self.fill() {
            Ok(0) => Ok(Some(decoder.at_close())),
            Ok(_) => Ok(None),
            Err(ReadError::Reset) => Ok(Some(BodyEnd::Reset)),
            Err(ReadError::Timeout) => Ok(Some(BodyEnd::Stalled)),
            Err(other) => Err(other),
        }
    }

    fn fill(&mut self) -> Result<usize, ReadError> {
        let before = self.unread.len();
        self.unread.resize(before + (64 << 10), 0);
        let read = loop {
            match self.stream.read(&mut self.unread[before..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => break read,
            }
        };
        self.unread
            .truncate(before + read.as_ref().map_or(0, |read| *read));
        Ok(read?)
    }
}

/// Sends a GET request on a new connection and returns the reply.
pub fn get(
    address: SocketAddr,
    target: &str,
    headers: &[(&str, &str)],
) -> Result<Reply, ReadError> {
    once(address, "GET", target, headers, b"")
}

/// Sends a request with `Connection: close` on a new connection and returns the reply.
pub fn once(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Reply, ReadError> {
    let headers = [headers, &[("Connection", "close")]].concat();
    Client::connect(address)?.request(method, target, &headers, body)
}

/// Returns 1 if bytes have arrived, and 0 at the end of the stream. A process that is stopped and continued waits on.
fn peek(socket: &TcpStream) -> io::Result<usize> {
    loop {
        match socket.peek(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            seen => return seen,
        }
    }
}
