//! A blocking client for tests: low-level and strict, on real sockets, with a timeout for each operation.
//!
//! The client speaks HTTP/1.1, or HTTP/2 if its options or `speak_http2_to` say so. A test then needs no change: headers
//! that announce the framing of HTTP/1.1 only frame the content that the test gives, and replies are read in the order
//! of their requests. Bytes that a test sends itself are HTTP/1.1, so a connection that begins with them stays with it.
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
mod errors;
mod http2;
mod options;
mod reply;
mod stream;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

pub use errors::{Closing, ReadError};
pub use options::{ClientOptions, Protocol, TIMEOUT};
pub use reply::{BodyEnd, ContentRange, Head, Part, Reply};

pub use stream::{
    ClientTls, Http2Mark, config as tls_config, config_with as tls_config_with, encrypt_all_to,
    encrypt_none_to, encrypts_to, speak_http1_to, speak_http2_to, undo_encrypt_all_to,
    undo_speak_http2_to,
};

use crate::pauses;
use body::Decoder;
use http2::{Http2, Message};
use stream::Stream;

/// Maximum length of a response head in bytes.
const HEAD_MAX: usize = 1 << 20;

/// A client's connection to a server.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    address: SocketAddr,
    unread: Vec<u8>,
    began: Instant,
    version: Version,
}

/// The protocol that a connection speaks so far.
#[derive(Debug)]
enum Version {
    /// HTTP/2, if the first action is a request.
    Undecided(Box<ClientOptions>),
    Http1,
    Http2(Box<Http2>),
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
            Some(socket2::Protocol::TCP),
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
        let by_default = || stream::speaks_http2_to(address).then_some(Protocol::Http2);
        let version = match options.protocol.or_else(by_default) {
            Some(Protocol::Http2) => Version::Undecided(Box::new(ClientOptions {
                tls: tls.clone(),
                ..options.clone()
            })),
            _ => Version::Http1,
        };
        Ok(Client {
            stream: Stream::new(stream, tls.as_ref())?,
            address,
            unread: Vec::new(),
            began: Instant::now(),
            version,
        })
    }

    /// Connects to a Unix socket. The connection speaks HTTP/1.1 without TLS, and only the timeout of the options counts.
    pub fn connect_unix(path: &Path, options: &ClientOptions) -> io::Result<Client> {
        pauses::point();
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.connect(&SockAddr::unix(path)?)?;
        // All calls that the client makes on its socket are calls on any stream socket.
        let stream = TcpStream::from(OwnedFd::from(socket));
        stream.set_read_timeout(Some(options.timeout))?;
        stream.set_write_timeout(Some(options.timeout))?;
        Ok(Client {
            stream: Stream::new(stream, None)?,
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            unread: Vec::new(),
            began: Instant::now(),
            version: Version::Http1,
        })
    }

    /// Returns the connection with HTTP/2, or `None` if the connection has HTTP/1.1, which is then decided.
    fn http2(&mut self) -> Option<&mut Http2> {
        if matches!(self.version, Version::Undecided(_)) {
            self.version = Version::Http1;
        }
        match &mut self.version {
            Version::Http2(http2) => Some(http2),
            _ => None,
        }
    }

    /// Begins HTTP/2 before the first request, if the connection is to speak it.
    fn begin_http2(&mut self) -> io::Result<()> {
        if let Version::Undecided(options) = &self.version {
            let socket = self.stream.socket().try_clone()?;
            let http2 = Http2::begin(socket, options.tls.as_ref(), options)?;
            self.version = Version::Http2(Box::new(http2));
        }
        Ok(())
    }

    /// Whether the connection speaks HTTP/2. A connection begins to do so with its first request.
    pub fn is_http2(&self) -> bool {
        matches!(self.version, Version::Http2(_))
    }

    /// Returns the error code (RFC 9113 7) of the last stream that the server has reset, or of the connection.
    pub fn http2_code(&self) -> Option<u32> {
        match &self.version {
            Version::Http2(http2) => http2.code(),
            _ => None,
        }
    }

    /// Sets the timeout of each read and write.
    pub fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        match &mut self.version {
            Version::Http2(http2) => http2.set_timeout(timeout),
            Version::Undecided(options) => options.timeout = timeout,
            Version::Http1 => {}
        }
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

    /// Completes the TLS handshake, which otherwise happens with the first read or write. The connection then speaks
    /// HTTP/1.1, unless it speaks HTTP/2 already.
    pub fn handshake(&mut self) -> io::Result<()> {
        match self.http2() {
            Some(_) => Ok(()),
            None => self.stream.handshake(),
        }
    }

    /// Returns the TLS session, if the connection has TLS and speaks HTTP/1.1.
    pub fn session(&self) -> Option<&rustls::ClientConnection> {
        self.stream.session()
    }

    /// Sends these bytes unchanged. The times in the next reply count from now. With HTTP/2, the bytes are further
    /// content of the last request, in the framing that its headers announce for HTTP/1.1.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        pauses::point();
        self.began = Instant::now();
        if let Some(http2) = self.http2() {
            return http2.send_content(bytes);
        }
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
        // An upgrade exists only in HTTP/1.1 (RFC 9113 8.6).
        if !has("upgrade") {
            self.begin_http2()?;
        }
        let (host, secure) = (self.address.to_string(), self.stream.is_encrypted());
        if let Some(http2) = self.http2() {
            pauses::point();
            let line = (method, target);
            http2.send(Message::new(secure, &host, line, headers, body)?)?;
            self.began = Instant::now();
            return Ok(());
        }
        let mut request = format!("{method} {target} HTTP/1.1\r\n");
        if !has("host") {
            request.push_str(&format!("Host: {host}\r\n"));
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
        let mut body = Vec::new();
        let (end, trailers) = match self.http2() {
            Some(http2) => http2.read_body(&mut body)?,
            None => self.read_framed_body(method, &head, &mut body)?,
        };
        Ok(Reply {
            interim,
            status: head.status,
            reason: head.reason,
            headers: head.headers,
            body,
            trailers,
            end,
            first_byte,
            total: self.began.elapsed(),
        })
    }

    /// Reads the next head, interim or final, without the body.
    pub fn read_head(&mut self) -> Result<Head, ReadError> {
        pauses::point();
        if let Some(http2) = self.http2() {
            return http2.read_head();
        }
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

    /// Reads `count` bytes without interpreting them. Returns fewer only if the connection ends before. With HTTP/2, the
    /// bytes are content of the response whose head was read last, and its end is that of the bytes.
    pub fn read_some(&mut self, count: usize) -> Result<Vec<u8>, ReadError> {
        pauses::point();
        if let Some(http2) = self.http2() {
            return http2.read_some(count);
        }
        while self.unread.len() < count && self.fill()? > 0 {}
        let count = count.min(self.unread.len());
        Ok(self.unread.drain(..count).collect())
    }

    /// Reads all bytes until the connection ends. With HTTP/2, the bytes are the content of the response whose head was
    /// read last.
    pub fn read_to_end(&mut self) -> Result<Vec<u8>, ReadError> {
        if let Some(http2) = self.http2() {
            return http2.read_some(usize::MAX);
        }
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.unread))
    }

    /// Waits up to `within` for the server to close the connection.
    pub fn wait_closed(&mut self, within: Duration) -> io::Result<Closing> {
        pauses::point();
        if let Some(http2) = self.http2() {
            return Ok(http2.wait_closed(within));
        }
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
        if self.http2().is_none() {
            self.stream.notify_close()?;
        }
        self.stream.socket().shutdown(Shutdown::Write)
    }

    /// Closes the connection with a reset.
    pub fn reset(self) -> io::Result<()> {
        socket2::SockRef::from(self.stream.socket()).set_linger(Some(Duration::ZERO))?;
        if let Version::Http2(http2) = self.version {
            http2.end();
        }
        Ok(())
    }

    /// Reads a body in the framing of HTTP/1.1. Returns its end and its trailers.
    fn read_framed_body(
        &mut self,
        method: &str,
        head: &Head,
        body: &mut Vec<u8>,
    ) -> Result<(BodyEnd, Vec<(String, String)>), ReadError> {
        let mut decoder = Decoder::new(method, head)?;
        loop {
            if let Some(end) = self.read_body(&mut decoder, body)? {
                return Ok((end, decoder.trailers));
            }
        }
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

/// Sends a request with `Connection: close` on a new connection and returns the reply. In HTTP/2 there is no such header.
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
