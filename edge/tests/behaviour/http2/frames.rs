//! A client that sends and reads single frames (RFC 9113 4.1).

use sluice_lab::client::{Client, Closing};

use crate::harness::{Edge, SOON};

/// Types of frames, flags, and error codes (RFC 9113 6, 7).
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const GO_AWAY: u8 = 7;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PROTOCOL_ERROR: u32 = 1;
pub const STREAM_CLOSED: u32 = 5;
pub const FRAME_SIZE_ERROR: u32 = 6;
pub const REFUSED_STREAM: u32 = 7;
pub const COMPRESSION_ERROR: u32 = 9;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// Returns the error code of RST_STREAM or GOAWAY.
    pub fn code(&self) -> u32 {
        let at = match self.kind {
            RESET => 0,
            GO_AWAY => 4,
            kind => panic!("a frame of type {kind} has no error code"),
        };
        let code = self.payload[at..at + 4].try_into();
        u32::from_be_bytes(code.expect("four bytes"))
    }
}

/// Returns the bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// Returns the preface and empty settings, with which a client begins.
pub fn hello() -> Vec<u8> {
    [PREFACE, &frame(4, 0, 0, b"")].concat()
}

/// Returns a header block. Fields are literals that change no table (RFC 7541 6.2.2).
pub fn block<T: AsRef<[u8]>>(fields: &[(T, T)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_ref(), value.as_ref()] {
            append_length(&mut block, text.len());
            block.extend(text);
        }
    }
    block
}

/// Appends the length of a string without Huffman code (RFC 7541 5.1).
fn append_length(block: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(0x7f) else {
        return block.push(length as u8);
    };
    block.push(0x7f);
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

/// Returns a request without content.
pub fn request(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block(fields))
}

/// Returns the fields of a GET.
pub fn get(target: &str) -> [(&str, &str); 4] {
    [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", target),
        (":authority", "a"),
    ]
}

/// A connection.
pub struct FrameClient(pub Client);

impl FrameClient {
    /// Connects to an edge, and begins with preface and settings.
    pub fn connect(edge: &Edge) -> FrameClient {
        let mut client = FrameClient(edge.client());
        client.send(&hello());
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.send_raw(bytes).expect("sent");
    }

    /// Reads the next frame. `None`: the connection has ended.
    pub fn read(&mut self) -> Option<Frame> {
        let header = self.0.read_some(9).expect("a frame");
        if header.is_empty() {
            return None;
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, b| n << 8 | u32::from(*b));
        let length = number(&header[..3]) as usize;
        let payload = self.0.read_some(length).expect("a frame");
        assert_eq!(payload.len(), length, "a frame was cut");
        Some(Frame {
            kind: header[3],
            flags: header[4],
            stream: number(&header[5..]),
            payload,
        })
    }

    /// Reads frames up to the next one of this type.
    pub fn read_until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.read().expect("a frame of this type");
            if frame.kind == kind {
                return frame;
            }
        }
    }

    /// Reads the end of a connection whose client broke the rules: GOAWAY with this code, and nothing after it.
    pub fn assert_closed_with(mut self, code: u32, name: &str) {
        assert_eq!(self.read_until(GO_AWAY).code(), code, "{name}");
        assert!(self.read().is_none(), "{name}");
        let closing = self.0.wait_closed(SOON).expect("a socket");
        assert_eq!(closing, Closing::Fin, "{name}");
    }

    /// Reads the response of a stream, or the reset in place of it. Frames of other streams are ignored.
    pub fn outcome(&mut self, stream: u32) -> Outcome {
        let mut body = Vec::new();
        loop {
            let frame = self.read().expect("a response or a reset");
            assert_ne!(frame.kind, GO_AWAY, "GOAWAY with code {}", frame.code());
            match frame.kind {
                RESET if frame.stream == stream => return Outcome::Reset(frame.code()),
                DATA if frame.stream == stream => body.extend(&frame.payload),
                HEADERS if frame.stream == stream => {}
                _ => continue,
            }
            if frame.flags & END_STREAM != 0 {
                return Outcome::Body(String::from_utf8_lossy(&body).into_owned());
            }
        }
    }
}

/// The end of a stream, as its client sees it.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// RST_STREAM with this code.
    Reset(u32),
    /// A complete response with this content.
    Body(String),
}
