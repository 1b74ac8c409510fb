//! Byte-level I/O on one connection of the test origin: reads heads and bodies, writes at a limited rate, and detects
//! that the client has closed the connection.

use std::future::Future;
use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::fault::{Break, Ending};
use super::record::{RECEIVED_KEPT, Recorder};

/// Maximum length of a request head in bytes. A longer head counts as malformed.
const HEAD_MAX: usize = 1 << 20;

/// Longest wait for the client to close the connection after the origin has closed it.
const LINGER: Duration = Duration::from_secs(2);

/// Reason to stop serving a connection.
#[derive(Debug)]
pub(super) enum Stop {
    /// The client has closed the connection.
    Aborted,
    /// A fault requires that the connection be closed in this way.
    Faulted(Ending),
    /// The received bytes are not an HTTP request.
    Malformed,
}

impl From<io::Error> for Stop {
    fn from(_: io::Error) -> Stop {
        Stop::Aborted
    }
}

/// A request head, parsed and as received.
pub(super) struct Head {
    pub(super) raw: Vec<u8>,
    pub(super) method: String,
    pub(super) target: String,
    pub(super) minor_version: u8,
    pub(super) headers: Vec<(String, String)>,
}

pub(super) struct Wire {
    stream: TcpStream,
    unread: BytesMut,
    id: u64,
    recorder: Recorder,
    /// Number of bytes per write and pause between writes, if the response is sent in small writes.
    pub(super) drip: Option<(usize, Duration)>,
    /// Number of bytes that are still sent before the response breaks, and the way in which it does.
    pub(super) break_in: Option<(u64, Break)>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, id: u64, recorder: Recorder) -> Wire {
        Wire {
            stream,
            unread: BytesMut::new(),
            id,
            recorder,
            drip: None,
            break_in: None,
        }
    }

    /// Reads the head of the next request. Returns `None` if the client has closed the connection or was idle for too
    /// long.
    pub(super) async fn read_head(&mut self, idle: Option<Duration>) -> Result<Option<Head>, Stop> {
        loop {
            if let Some(head) = self.parse_head()? {
                return Ok(Some(head));
            }
            if self.unread.len() > HEAD_MAX {
                return Err(Stop::Malformed);
            }
            let read = match idle.filter(|_| self.unread.is_empty()) {
                Some(idle) => match timeout(idle, self.fill()).await {
                    Ok(read) => read?,
                    Err(_) => return Ok(None),
                },
                None => self.fill().await?,
            };
            if read == 0 {
                return match self.unread.is_empty() {
                    true => Ok(None),
                    false => Err(Stop::Malformed),
                };
            }
        }
    }

    fn parse_head(&mut self) -> Result<Option<Head>, Stop> {
        let mut fields = vec![httparse::EMPTY_HEADER; 512];
        let mut request = httparse::Request::new(&mut fields);
        let length = match request.parse(&self.unread) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Stop::Malformed),
        };
        let head = Head {
            raw: self.unread[..length].to_vec(),
            method: request.method.unwrap_or_default().to_owned(),
            target: request.path.unwrap_or_default().to_owned(),
            minor_version: request.version.unwrap_or(1),
            headers: request
                .headers
                .iter()
                .map(|field| {
                    let value = String::from_utf8_lossy(field.value).into_owned();
                    (field.name.to_owned(), value)
                })
                .collect(),
        };
        self.unread.advance(length);
        Ok(Some(head))
    }

    async fn fill(&mut self) -> Result<usize, Stop> {
        self.unread.reserve(16 << 10);
        let before = self.unread.len();
        let read = self.stream.read_buf(&mut self.unread).await?;
        let fresh = &self.unread[before..];
        self.recorder.connection(self.id, |connection| {
            let room = RECEIVED_KEPT.saturating_sub(connection.received.len());
            connection
                .received
                .extend_from_slice(&fresh[..fresh.len().min(room)]);
        });
        Ok(read)
    }

    /// Reads at most `most` bytes. Returns no bytes at the end of the connection.
    pub(super) async fn read_some(&mut self, most: u64) -> Result<Bytes, Stop> {
        if self.unread.is_empty() {
            self.fill().await?;
        }
        let count = self
            .unread
            .len()
            .min(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(self.unread.split_to(count).freeze())
    }

    /// Reads a line up to its LF. Returns the line without CR and LF.
    pub(super) async fn read_line(&mut self) -> Result<Vec<u8>, Stop> {
        loop {
            if let Some(at) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line = self.unread.split_to(at + 1);
                return Ok(line.trim_ascii_end().to_vec());
            }
            if self.unread.len() > HEAD_MAX || self.fill().await? == 0 {
                return Err(Stop::Malformed);
            }
        }
    }

    /// Writes all bytes, in small writes if `drip` is set, up to the break of the response.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let mut rest = bytes;
        while let Some((left, how)) = self.break_in {
            let count = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.write_all(&rest[..count]).await?;
            rest = &rest[count..];
            self.break_in = Some((left - count as u64, how));
            if rest.is_empty() {
                return Ok(());
            }
            self.break_here(how).await?;
            rest = &rest[1..];
        }
        self.write_all(rest).await
    }

    /// Breaks the response at the next byte, which is not sent.
    async fn break_here(&mut self, how: Break) -> Result<(), Stop> {
        self.break_in = None;
        match how {
            Break::End(ending) => Err(Stop::Faulted(ending)),
            Break::Stall => {
                self.until_gone().await;
                Err(Stop::Aborted)
            }
            Break::Nul => self.write_all(b"\0").await,
        }
    }

    async fn write_all(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let Some((size, every)) = self.drip else {
            return Ok(self.stream.write_all(bytes).await?);
        };
        for drop in bytes.chunks(size.max(1)) {
            self.stream.write_all(drop).await?;
            self.hold(sleep(every)).await?;
        }
        Ok(())
    }

    /// Writes as many bytes as the socket accepts now, at least one.
    pub(super) async fn write_some(&mut self, bytes: &[u8]) -> Result<usize, Stop> {
        if self.break_in.is_some() {
            self.write(bytes).await?;
            return Ok(bytes.len());
        }
        match self.drip {
            None => Ok(self.stream.write(bytes).await?),
            Some((size, _)) => {
                let count = bytes.len().min(size.max(1));
                self.write(&bytes[..count]).await?;
                Ok(count)
            }
        }
    }

    /// Waits for the future `what`, unless the client closes the connection first.
    pub(super) async fn hold<T>(&self, what: impl Future<Output = T>) -> Result<T, Stop> {
        tokio::select! {
            biased;
            done = what => Ok(done),
            () = gone(&self.stream) => Err(Stop::Aborted),
        }
    }

    /// Waits until the client has closed the connection.
    pub(super) async fn until_gone(&self) {
        gone(&self.stream).await;
    }

    /// Closes the connection with a FIN or a reset.
    pub(super) async fn end(mut self, ending: Ending) {
        match ending {
            Ending::Reset => {
                // With a linger time of zero, dropping the socket sends a reset instead of a FIN.
                let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
                self.closed();
            }
            Ending::Fin => {
                let _ = self.stream.shutdown().await;
                self.closed();
                // If unread bytes were left, closing the socket would send a reset, which could discard bytes that the
                // client has received and not read. So the client's bytes are read first.
                let _ = timeout(LINGER, drain(&mut self.stream)).await;
            }
        }
    }

    fn closed(&self) {
        self.recorder
            .connection(self.id, |one| one.closed = Some(std::time::Instant::now()));
    }
}

async fn drain(stream: &mut TcpStream) {
    let mut waste = vec![0; 16 << 10];
    while matches!(stream.read(&mut waste).await, Ok(read) if read > 0) {}
}

/// Completes when the client has closed the connection. Never completes while received bytes are unread, because a
/// close can't be detected then.
async fn gone(stream: &TcpStream) {
    loop {
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => {}
            _ => return,
        }
        let mut byte = [0];
        match stream.peek(&mut byte).await {
            Ok(0) | Err(_) => return,
            Ok(_) => std::future::pending().await,
        }
    }
}

/// Limits the rate of writes. Bytes are granted in steps of about two milliseconds.
pub(super) struct Pace {
    rate: Option<u64>,
    next: Instant,
}

/// Longest delay of a write that later writes make up for by sending faster.
const CATCH_UP: Duration = Duration::from_millis(50);

impl Pace {
    pub(super) fn new(rate: Option<u64>) -> Pace {
        Pace {
            rate,
            next: Instant::now(),
        }
    }

    /// Waits until bytes may be sent. Returns how many of the `wanted` bytes may be sent now.
    pub(super) async fn grant(&mut self, wire: &Wire, wanted: u64) -> Result<u64, Stop> {
        let (due, granted) = self.step(wanted);
        if let Some(due) = due {
            wire.hold(sleep_until(due)).await?;
        }
        Ok(granted)
    }

    /// Returns how many of the `wanted` bytes may be sent, and the time before which they must not be sent.
    pub(super) fn step(&mut self, wanted: u64) -> (Option<Instant>, u64) {
        let Some(rate) = self.rate else {
            return (None, wanted);
        };
        let now = Instant::now();
        self.next = self.next.max(now.checked_sub(CATCH_UP).unwrap_or(now));
        let due = (self.next > now).then_some(self.next);
        let granted = wanted.min((rate / 500).max(1));
        self.next += Duration::from_nanos(granted.saturating_mul(1_000_000_000) / rate);
        (due, granted)
    }
}
