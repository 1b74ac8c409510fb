//! An encoder of frames (RFC 9113 4) and of field sections without compression (RFC 7541 6.2.2).

use super::{PREFACE, flag, kind};

/// The method GET.
pub const GET: &str = "GET";
/// The method POST.
pub const POST: &str = "POST";

/// Bytes of frames that are sent together. Nothing is checked, so the frames may violate any rule.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    /// Begins without frames.
    pub fn new() -> Frames {
        Frames::default()
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds the preface of a client.
    pub fn preface(&mut self) -> &mut Frames {
        self.bytes.extend_from_slice(PREFACE);
        self
    }

    /// Adds a frame of any type.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> &mut Frames {
        // The field of the length has 24 bits. A longer payload is a mistake of the test, and would be cut.
        let length = payload.len() as u32;
        self.bytes.extend_from_slice(&length.to_be_bytes()[1..]);
        self.bytes.extend_from_slice(&[kind, flags]);
        self.bytes.extend_from_slice(&stream.to_be_bytes());
        self.bytes.extend_from_slice(payload);
        self
    }

    /// Adds SETTINGS with these identifiers and values.
    pub fn settings(&mut self, settings: &[(u16, u32)]) -> &mut Frames {
        let mut payload = Vec::new();
        for (identifier, value) in settings {
            payload.extend_from_slice(&identifier.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.frame(kind::SETTINGS, 0, 0, &payload)
    }

    /// Adds the acknowledgement of the server's settings.
    pub fn settings_ack(&mut self) -> &mut Frames {
        self.frame(kind::SETTINGS, flag::ACK, 0, b"")
    }

    /// Adds a request's or trailers' fields in one HEADERS frame. Pseudo-headers are given as the others.
    pub fn headers(
        &mut self,
        stream: u32,
        fields: &[(&str, &str)],
        end_stream: bool,
    ) -> &mut Frames {
        self.header_block(stream, &block(fields), end_stream)
    }

    /// Adds an encoded field section in one HEADERS frame.
    pub fn header_block(&mut self, stream: u32, block: &[u8], end_stream: bool) -> &mut Frames {
        let end = if end_stream { flag::END_STREAM } else { 0 };
        self.frame(kind::HEADERS, flag::END_HEADERS | end, stream, block)
    }

    /// Adds DATA.
    pub fn data(&mut self, stream: u32, content: &[u8], end_stream: bool) -> &mut Frames {
        let flags = if end_stream { flag::END_STREAM } else { 0 };
        self.frame(kind::DATA, flags, stream, content)
    }

    /// Adds RST_STREAM.
    pub fn reset(&mut self, stream: u32, code: u32) -> &mut Frames {
        self.frame(kind::RST_STREAM, 0, stream, &code.to_be_bytes())
    }

    /// Adds PING with these bytes.
    pub fn ping(&mut self, opaque: [u8; 8]) -> &mut Frames {
        self.frame(kind::PING, 0, 0, &opaque)
    }

    /// Adds WINDOW_UPDATE. Stream 0 means the connection.
    pub fn window_update(&mut self, stream: u32, increment: u32) -> &mut Frames {
        self.frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
    }

    /// Adds PRIORITY (RFC 7540 6.3), which depends on another stream.
    pub fn priority(&mut self, stream: u32, parent: u32, weight: u8) -> &mut Frames {
        let mut payload = parent.to_be_bytes().to_vec();
        payload.push(weight);
        self.frame(kind::PRIORITY, 0, stream, &payload)
    }

    /// Adds PRIORITY_UPDATE (RFC 9218 7.1) with this field value.
    pub fn priority_update(&mut self, stream: u32, priority: &str) -> &mut Frames {
        let mut payload = stream.to_be_bytes().to_vec();
        payload.extend_from_slice(priority.as_bytes());
        self.frame(kind::PRIORITY_UPDATE, 0, 0, &payload)
    }
}

/// Encodes fields as literals without indexing, with new names (RFC 7541 6.2.2), and without Huffman coding.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        string(&mut block, name.as_bytes());
        string(&mut block, value.as_bytes());
    }
    block
}

/// Returns the fields of a GET request without TLS.
pub fn get<'a>(authority: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [
        (":method", GET),
        (":scheme", "http"),
        (":authority", authority),
        (":path", path),
    ]
}

/// Encodes a literal whose field is added to the dynamic table (RFC 7541 6.2.1).
pub(crate) fn indexed_literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0x40);
    string(block, name);
    string(block, value);
}

fn string(block: &mut Vec<u8>, bytes: &[u8]) {
    integer(block, 7, 0, bytes.len());
    block.extend_from_slice(bytes);
}

/// Encodes an integer with a prefix of this many bits (RFC 7541 5.1).
fn integer(block: &mut Vec<u8>, bits: u32, pattern: u8, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        block.push(pattern | value as u8);
        return;
    }
    block.push(pattern | most as u8);
    let mut rest = value - most;
    while rest >= 128 {
        block.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    block.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_those_of_the_rfc() {
        let encode = |bits, value| {
            let mut block = Vec::new();
            integer(&mut block, bits, 0, value);
            block
        };
        // RFC 7541 C.1.
        assert_eq!(encode(5, 10), [10]);
        assert_eq!(encode(5, 1337), [31, 154, 10]);
        assert_eq!(encode(8, 42), [42]);
        assert_eq!(encode(7, 127), [127, 0]);
    }

    #[test]
    fn frames_have_the_header_of_the_rfc() {
        let mut frames = Frames::new();
        frames.reset(3, 8).settings(&[(4, 1)]);
        assert_eq!(
            frames.bytes(),
            [
                &[0, 0, 4, 3, 0, 0, 0, 0, 3, 0, 0, 0, 8][..],
                &[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1][..],
            ]
            .concat()
        );
    }

    #[test]
    fn fields_are_literals() {
        assert_eq!(block(&[("a", "bc")]), [0, 1, b'a', 2, b'b', b'c']);
        let value = "b".repeat(130);
        assert_eq!(block(&[("a", value.as_str())])[3..5], [127, 3]);
    }
}
