//! A client that sends and reads single frames (RFC 9113 4.1).

use sluice_lab::client::Client;

use crate::harness::Edge;

/// Types of frames, flags, and error codes (RFC 9113 6, 7).
pub const HEADERS: u8 = 1;
pub const RESET: u8 = 3;
pub const GO_AWAY: u8 = 7;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PROTOCOL_ERROR: u32 = 1;
pub const REFUSED_STREAM: u32 = 7;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A frame.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
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

/// Returns a request without content. Fields are literals that change no table (RFC 7541 6.2.2).
pub fn request(stream: u32, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).expect("short"));
            block.extend(text.as_bytes());
        }
    }
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
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
}
