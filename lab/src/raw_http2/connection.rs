//! A connection on which a test sends and reads frames.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{Frames, flag, kind};
use crate::raw_tls;

/// Longest wait for bytes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Largest payload that a server may send to a client that has not permitted more (RFC 9113 4.2).
const LARGEST: usize = 16 << 10;

/// A frame that the server has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Type, as in [`kind`].
    pub kind: u8,
    /// Flags, as in [`flag`].
    pub flags: u8,
    /// Stream; 0 for the connection.
    pub stream: u32,
    /// Payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Returns the error code of RST_STREAM or GOAWAY.
    pub fn code(&self) -> Option<u32> {
        let at = match self.kind {
            kind::RST_STREAM => 0,
            kind::GOAWAY => 4,
            _ => return None,
        };
        let bytes = self.payload.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    }

    /// Whether the frame ends its stream.
    pub fn ends_stream(&self) -> bool {
        let ends = matches!(self.kind, kind::DATA | kind::HEADERS);
        (ends && self.flags & flag::END_STREAM != 0) || self.kind == kind::RST_STREAM
    }
}

/// A connection in clear text.
#[derive(Debug)]
pub struct RawHttp2 {
    socket: TcpStream,
    unread: Vec<u8>,
    /// Number of the bytes in `unread` that were read already.
    used: usize,
}

impl RawHttp2 {
    /// Opens a connection and sends nothing.
    pub fn connect(address: SocketAddr) -> io::Result<RawHttp2> {
        let socket = raw_tls::connect(address, None)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        Ok(RawHttp2 {
            socket,
            unread: Vec::new(),
            used: 0,
        })
    }

    /// Opens a connection and sends the preface with these settings.
    pub fn open(address: SocketAddr, settings: &[(u16, u32)]) -> io::Result<RawHttp2> {
        let mut connection = RawHttp2::connect(address)?;
        connection.send(Frames::new().preface().settings(settings))?;
        Ok(connection)
    }

    /// Sends frames in one write.
    pub fn send(&mut self, frames: &Frames) -> io::Result<()> {
        self.socket.write_all(frames.bytes())
    }

    /// Returns the socket.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Reads the next frame. Returns `None` if the server has closed or reset the connection between two frames.
    pub fn read(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.parse()? {
                return Ok(Some(frame));
            }
            if !self.fill()? {
                return match self.used == self.unread.len() {
                    true => Ok(None),
                    false => Err(ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Reads frames up to the first one for which `wanted` returns true. Settings and pings of the server are answered.
    /// Returns `None` if the server has closed the connection before.
    pub fn read_until(&mut self, wanted: impl Fn(&Frame) -> bool) -> io::Result<Option<Frame>> {
        while let Some(frame) = self.read()? {
            if wanted(&frame) {
                return Ok(Some(frame));
            }
            self.acknowledge(&frame)?;
        }
        Ok(None)
    }

    /// Answers settings and pings of the server.
    pub fn acknowledge(&mut self, frame: &Frame) -> io::Result<()> {
        if frame.flags & flag::ACK != 0 {
            return Ok(());
        }
        match frame.kind {
            kind::SETTINGS => self.send(Frames::new().settings_ack()),
            kind::PING => {
                let mut frames = Frames::new();
                self.send(frames.frame(kind::PING, flag::ACK, 0, &frame.payload))
            }
            _ => Ok(()),
        }
    }

    fn parse(&mut self) -> io::Result<Option<Frame>> {
        let rest = &self.unread[self.used..];
        let Some((header, rest)) = rest.split_first_chunk::<9>() else {
            return Ok(None);
        };
        let [a, b, c, kind, flags, stream @ ..] = *header;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if length > LARGEST {
            return Err(io::Error::other(format!("a frame of {length} bytes")));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = Frame {
            kind,
            flags,
            stream: u32::from_be_bytes(stream),
            payload: payload.to_vec(),
        };
        self.used += header.len() + length;
        Ok(Some(frame))
    }

    /// Reads more bytes. Returns false at the end of the connection.
    fn fill(&mut self) -> io::Result<bool> {
        self.unread.drain(..self.used);
        self.used = 0;
        let before = self.unread.len();
        self.unread.resize(before + (64 << 10), 0);
        let read = loop {
            match self.socket.read(&mut self.unread[before..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break Ok(0),
                read => break read,
            }
        };
        let count = *read.as_ref().unwrap_or(&0);
        self.unread.truncate(before + count);
        read.map(|count| count > 0)
    }
}
