//! A blocking HTTP/1.1 client on real sockets for tests: low-level, strict, and with a time limit on everything.
//!
//! ```no_run
//! # fn main() -> Result<(), sluice_lab::client::ReadError> {
//! # let address = "127.0.0.1:8080".parse().expect("an address");
//! let reply = sluice_lab::client::get(address, "/film.mp4", &[("Range", "bytes=5000000-5000009")])?;
//! assert_eq!(reply.status, 206);
//! reply.verify_offset(5_000_000).expect("the bytes asked for");
//! # Ok(())
//! # }
//! ```

mod body;
mod reply;

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

pub use body::BodyEnd;
pub use reply::{ContentRange, Head, Part, Reply};

use body::Decoder;

/// Time limit of a connect, a write or a read, unless another is set.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Largest head that is read.
const HEAD_MAX: usize = 1 << 20;

/// Why a reply could not be read.
#[derive(Debug)]
pub enum ReadError {
    /// Nothing came for too long.
    Timeout,
    /// The connection was closed in order before a head was complete; the bytes that had come.
    Closed(Vec<u8>),
    /// The connection was reset before a head was complete.
    Reset,
    /// What came is not HTTP/1.1 as its RFC has it.
    Malformed(String),
    /// Something else.
    Io(io::Error),
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Timeout => write!(out, "nothing came in time"),
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

/// What the other side has done with the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// Closed in order.
    Fin,
    /// Reset.
    Reset,
    /// Bytes came instead, and wait to be read.
    Data,
    /// Nothing within the time.
    Open,
}

/// Where a connection comes from and how it is set up.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Address to come from, such as 127.0.0.7.
    pub source: Option<IpAddr>,
    /// Time limit of the connect and of each read and write.
    pub timeout: Duration,
    /// Size of the receive buffer in the kernel, so that back-pressure shows early.
    pub receive_buffer: Option<usize>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            source: None,
            timeout: TIMEOUT,
            receive_buffer: None,
        }
    }
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    address: SocketAddr,
    unread: Vec<u8>,
    began: Instant,
}

impl Client {
    /// Connects.
    pub fn connect(address: SocketAddr) -> io::Result<Client> {
        Client::connect_with(address, &ClientOptions::default())
    }

    /// Connects from `source`, any address in 127/8.
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

    /// Connects as the options say.
    pub fn connect_with(address: SocketAddr, options: &ClientOptions) -> io::Result<Client> {
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
        Ok(Client {
            stream,
            address,
            unread: Vec::new(),
            began: Instant::now(),
        })
    }

    /// Another time limit for each read and write.
    pub fn set_timeout(&mut self, timeout: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(timeout))?;
        self.stream.set_write_timeout(Some(timeout))
    }

    /// This side's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// The socket itself.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sends these bytes as they are; times of the next reply count from here.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.began = Instant::now();
        self.stream.write_all(bytes)
    }

    /// Sends a request. Adds Host unless it is among the headers, and Content-Length for a body unless the headers frame it.
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

    /// GET, and its reply.
    pub fn get(&mut self, target: &str, headers: &[(&str, &str)]) -> Result<Reply, ReadError> {
        self.request("GET", target, headers, b"")
    }

    /// A request, and its reply.
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

    /// The reply to a request that was not HEAD.
    pub fn read_response(&mut self) -> Result<Reply, ReadError> {
        self.read_reply_to("GET")
    }

    /// The reply to a request with this method: interim responses, the final head, and its body.
    ///
    /// A body that ends too early is no error here: see [`Reply::truncated`]. A 101 is final.
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

    /// The next head, interim or final, and nothing of what follows.
    pub fn read_head(&mut self) -> Result<Head, ReadError> {
        loop {
            if let Some(length) = reply::head_length(&self.unread) {
                let head = Head::parse(&self.unread[..length])?;
                self.unread.drain(..length);
                return Ok(head);
            }
            if self.unread.len() > HEAD_MAX {
                return Err(ReadError::Malformed("a head without end".to_owned()));
            }
            if self.fill()? == 0 {
                return Err(ReadError::Closed(std::mem::take(&mut self.unread)));
            }
        }
    }

    /// Exactly `count` bytes of what comes next, whatever its framing; fewer only at the end of the connection.
    pub fn read_some(&mut self, count: usize) -> Result<Vec<u8>, ReadError> {
        while self.unread.len() < count && self.fill()? > 0 {}
        let count = count.min(self.unread.len());
        Ok(self.unread.drain(..count).collect())
    }

    /// All that comes until the connection ends.
    pub fn read_to_end(&mut self) -> Result<Vec<u8>, ReadError> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.unread))
    }

    /// Waits up to `within` for the other side to close, and tells how.
    pub fn wait_closed(&mut self, within: Duration) -> io::Result<Closing> {
        if !self.unread.is_empty() {
            return Ok(Closing::Data);
        }
        let before = self.stream.read_timeout()?;
        self.stream
            .set_read_timeout(Some(within.max(Duration::from_millis(1))))?;
        let closing = match self.stream.peek(&mut [0]) {
            Ok(0) => Ok(Closing::Fin),
            Ok(_) => Ok(Closing::Data),
            Err(error) => match ReadError::from(error) {
                ReadError::Timeout => Ok(Closing::Open),
                ReadError::Reset => Ok(Closing::Reset),
                ReadError::Io(error) => Err(error),
                other => Err(io::Error::other(other)),
            },
        };
        self.stream.set_read_timeout(before)?;
        closing
    }

    /// Closes the sending side only.
    pub fn finish_sending(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Ends the connection with a reset.
    pub fn reset(self) -> io::Result<()> {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO))
    }

    /// Decodes what is there or comes next; the body's end, once it is reached.
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

/// GET on a connection of its own.
pub fn get(
    address: SocketAddr,
    target: &str,
    headers: &[(&str, &str)],
) -> Result<Reply, ReadError> {
    once(address, "GET", target, headers, b"")
}

/// A request on a connection of its own, with `Connection: close`.
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
