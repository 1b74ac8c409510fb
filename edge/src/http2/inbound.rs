//! Cuts received bytes into frames, in either role, and keeps the rules about their order: the preface (RFC 9113 3.4),
//! and header blocks that no other frame interrupts (RFC 9113 4.3).
//!
//! The content of DATA is passed on as it arrives, so that a frame need not fit into the input buffer. All other frames
//! that are known have to arrive completely.

use super::PREFACE;
use super::frame::{FrameHeader, HEADER_LENGTH, flag, kind};
use super::header_block::{self, Assembly, Limits};
use super::payload::{self, Payload};
use super::violation::{ErrorCode, Violation};

/// The received side of a connection.
#[derive(Debug)]
pub struct Inbound {
    stage: Stage,
    /// The header block of which parts are missing.
    block: Option<Box<Assembly>>,
    limits: Limits,
}

/// The expected next bytes.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The rest of the preface, from this byte on.
    Preface(usize),
    /// The header of the first frame, which must be SETTINGS.
    First,
    /// The header of a frame.
    Header,
    /// Content of a DATA frame.
    Data {
        stream: u32,
        /// Bytes of content, and of padding after them, that have not arrived yet.
        left: u32,
        padding: u32,
        end_stream: bool,
    },
    /// Bytes without a meaning.
    Ignored(u32),
}

/// A frame, or a part of one.
#[derive(Debug)]
pub enum Frame<'a> {
    /// A complete header block.
    Block {
        /// The stream.
        stream: u32,
        /// Whether the message ends with it.
        end_stream: bool,
        /// Whether the stream is declared to depend on itself: see `Payload::Headers`.
        depends_on_itself: bool,
        /// The bytes, which have to be decoded in any case.
        block: Block<'a>,
    },
    /// Content of a DATA frame.
    Data {
        /// The stream.
        stream: u32,
        /// The content, possibly only a part of it.
        content: &'a [u8],
        /// Bytes to count for flow control: the length of the whole frame in its first part, otherwise 0.
        flow: u32,
        /// The bytes in `flow` that are padding.
        padding: u32,
        /// Whether the message ends with this part.
        end_stream: bool,
    },
    /// A frame of another type, except CONTINUATION.
    Other(u32, Payload<'a>),
    /// A frame that is an error of its stream.
    Invalid(u32, ErrorCode, &'static str),
}

/// The bytes of a header block.
#[derive(Debug)]
pub enum Block<'a> {
    /// All of the block was in one frame.
    Received(&'a [u8]),
    /// The block was in several frames.
    Assembled(Box<Assembly>),
}

impl Block<'_> {
    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Block::Received(bytes) => bytes,
            Block::Assembled(assembly) => assembly.bytes(),
        }
    }
}

impl Inbound {
    /// Creates the received side of a server's connection, which begins with the preface.
    pub fn of_server(limits: Limits) -> Inbound {
        Inbound {
            stage: Stage::Preface(0),
            block: None,
            limits,
        }
    }

    /// Creates the received side of a client's connection.
    pub fn of_client(limits: Limits) -> Inbound {
        Inbound {
            stage: Stage::First,
            ..Inbound::of_server(limits)
        }
    }

    /// Whether the peer's first SETTINGS have arrived.
    pub fn has_begun(&self) -> bool {
        !matches!(self.stage, Stage::Preface(_) | Stage::First)
    }

    /// Whether no frame other than DATA, and no header block, has begun, as far as bytes were taken.
    pub fn is_between_frames(&self) -> bool {
        self.block.is_none() && matches!(self.stage, Stage::Header | Stage::Data { .. })
    }

    /// Whether a frame or a header block is incomplete.
    pub fn is_within_frame(&self) -> bool {
        self.block.is_some() || matches!(self.stage, Stage::Data { .. } | Stage::Ignored(_))
    }

    /// Takes the next frame, or a part of one, from the start of `input`. Returns the number of bytes used, 0 if more
    /// input is needed. `size_max` is the SETTINGS_MAX_FRAME_SIZE that the peer may use.
    ///
    /// # Errors
    ///
    /// The peer violates the protocol, so that the connection has to end.
    #[inline]
    pub fn take<'a>(
        &mut self,
        input: &'a [u8],
        size_max: u32,
    ) -> Result<(usize, Option<Frame<'a>>), Violation> {
        match self.stage {
            Stage::Header => self.frame(input, size_max),
            Stage::Data { .. } if input.is_empty() => Ok((0, None)),
            Stage::Data { .. } => Ok(self.data(input)),
            Stage::Ignored(left) => Ok((self.ignore(input, left), None)),
            Stage::Preface(at) => self.preface(input, at).map(|used| (used, None)),
            Stage::First => match input.first_chunk::<HEADER_LENGTH>().map(FrameHeader::parse) {
                Some(header) if header.kind != kind::SETTINGS || header.has(flag::ACK) => {
                    Err(Violation::protocol("connection begins without SETTINGS"))
                }
                _ => self.frame(input, size_max),
            },
        }
    }

    fn preface(&mut self, input: &[u8], at: usize) -> Result<usize, Violation> {
        let expected = &PREFACE[at..];
        let length = expected.len().min(input.len());
        if input[..length] != expected[..length] {
            return Err(Violation::protocol("connection begins without the preface"));
        }
        self.stage = match at + length == PREFACE.len() {
            true => Stage::First,
            false => Stage::Preface(at + length),
        };
        Ok(length)
    }

    fn ignore(&mut self, input: &[u8], left: u32) -> usize {
        let length = input.len().min(left as usize);
        self.skip(left - length as u32);
        length
    }

    /// Ignores the next bytes.
    #[inline]
    fn skip(&mut self, length: u32) {
        self.stage = match length {
            0 => Stage::Header,
            length => Stage::Ignored(length),
        };
    }

    #[inline]
    fn frame<'a>(
        &mut self,
        input: &'a [u8],
        size_max: u32,
    ) -> Result<(usize, Option<Frame<'a>>), Violation> {
        let Some((header, rest)) = input.split_first_chunk::<HEADER_LENGTH>() else {
            return Ok((0, None));
        };
        let header = FrameHeader::parse(header);
        match header.check(size_max) {
            Ok(()) => {}
            Err(Violation::Stream(stream, code, text)) => {
                self.check_order(&header)?;
                self.skip(header.length);
                return Ok((HEADER_LENGTH, Some(Frame::Invalid(stream, code, text))));
            }
            Err(violation) => return Err(violation),
        }
        self.check_order(&header)?;
        match header.kind {
            kind::DATA => self.begin_data(&header, rest),
            // The type alone is an error, so the payload need not arrive.
            kind::PUSH_PROMISE => Err(payload::PUSH),
            kind::HEADERS..=kind::CONTINUATION | kind::PRIORITY_UPDATE => self.whole(&header, rest),
            _ => {
                self.skip(header.length);
                let frame = Frame::Other(header.stream, Payload::Unknown);
                Ok((HEADER_LENGTH, Some(frame)))
            }
        }
    }

    /// Checks that only CONTINUATION of the same stream follows an incomplete header block (RFC 9113 6.2, 6.10).
    #[inline]
    fn check_order(&self, header: &FrameHeader) -> Result<(), Violation> {
        match (&self.block, header.kind == kind::CONTINUATION) {
            (None, false) | (Some(_), true) => Ok(()),
            (None, true) => Err(Violation::protocol("CONTINUATION without a header block")),
            (Some(_), false) => Err(Violation::protocol("frame within a header block")),
        }
    }

    /// Begins a DATA frame, and takes the content that is there.
    #[inline]
    fn begin_data<'a>(
        &mut self,
        header: &FrameHeader,
        rest: &'a [u8],
    ) -> Result<(usize, Option<Frame<'a>>), Violation> {
        let is_padded = header.has(flag::PADDED);
        let padding = match rest.first() {
            Some(first) => payload::padding(header, *first)?,
            None if is_padded => return Ok((0, None)),
            None => 0,
        };
        let start = usize::from(is_padded);
        self.stage = Stage::Data {
            stream: header.stream,
            left: header.length - padding,
            padding: padding - u32::from(is_padded),
            end_stream: header.has(flag::END_STREAM),
        };
        let (used, mut frame) = self.data(&rest[start..]);
        if let Some(Frame::Data {
            flow, padding: all, ..
        }) = &mut frame
        {
            (*flow, *all) = (header.length, padding);
        }
        Ok((HEADER_LENGTH + start + used, frame))
    }

    /// Takes the content that is there. The first part of a frame may be empty.
    #[inline]
    fn data<'a>(&mut self, input: &'a [u8]) -> (usize, Option<Frame<'a>>) {
        let Stage::Data {
            stream,
            left,
            padding,
            end_stream,
        } = &mut self.stage
        else {
            return (0, None);
        };
        let content = &input[..input.len().min(*left as usize)];
        *left -= content.len() as u32;
        let is_last = *left == 0;
        let frame = Frame::Data {
            stream: *stream,
            content,
            flow: 0,
            padding: 0,
            end_stream: *end_stream && is_last,
        };
        if is_last {
            let padding = *padding;
            self.skip(padding);
        }
        (content.len(), Some(frame))
    }

    /// Takes a frame that has to arrive completely.
    fn whole<'a>(
        &mut self,
        header: &FrameHeader,
        rest: &'a [u8],
    ) -> Result<(usize, Option<Frame<'a>>), Violation> {
        if matches!(header.kind, kind::HEADERS | kind::CONTINUATION) {
            // A block over the limit ends the connection before it fills the input buffer.
            header_block::check(header.length as usize, self.limits.with_framing())?;
        }
        let length = header.length as usize;
        let Some(payload) = rest.get(..length) else {
            return Ok((0, None));
        };
        self.stage = Stage::Header;
        let used = HEADER_LENGTH + length;
        let frame = match Payload::parse(header, payload) {
            Ok(payload @ (Payload::Headers { .. } | Payload::Continuation { .. })) => {
                self.block(header.stream, payload)?
            }
            Ok(payload) => Some(Frame::Other(header.stream, payload)),
            Err(Violation::Stream(stream, code, text)) => Some(Frame::Invalid(stream, code, text)),
            Err(violation) => return Err(violation),
        };
        Ok((used, frame))
    }

    /// Takes a part of a header block. Returns the block if it is complete.
    fn block<'a>(
        &mut self,
        stream: u32,
        payload: Payload<'a>,
    ) -> Result<Option<Frame<'a>>, Violation> {
        let is_complete = match payload {
            Payload::Headers {
                block,
                end_stream,
                end_headers: true,
                depends_on_itself,
            } => {
                header_block::check(block.len(), self.limits)?;
                return Ok(Some(Frame::Block {
                    stream,
                    end_stream,
                    depends_on_itself,
                    block: Block::Received(block),
                }));
            }
            Payload::Headers {
                block,
                end_stream,
                depends_on_itself,
                ..
            } => {
                let limits = self.limits;
                let assembly =
                    Assembly::begin(stream, end_stream, depends_on_itself, block, limits)?;
                self.block = Some(Box::new(assembly));
                false
            }
            Payload::Continuation { block, end_headers } => {
                if let Some(assembly) = &mut self.block {
                    assembly.add(stream, block, self.limits)?;
                }
                end_headers
            }
            _ => false,
        };
        Ok(self
            .block
            .take_if(|_| is_complete)
            .map(|assembly| Frame::Block {
                stream,
                end_stream: assembly.end_stream,
                depends_on_itself: assembly.depends_on_itself,
                block: Block::Assembled(assembly),
            }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http2::frame::MAX_FRAME_SIZE_MIN;
    use crate::http2::write;

    const LIMITS: Limits = Limits {
        bytes: 100,
        continuations: 3,
    };

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let header = FrameHeader {
            length: payload.len() as u32,
            kind,
            flags,
            stream,
        };
        [&header.to_bytes()[..], payload].concat()
    }

    fn begin() -> Vec<u8> {
        let mut bytes = PREFACE.to_vec();
        write::settings(&mut bytes, std::iter::empty());
        bytes
    }

    /// Takes all frames of the bytes, which arrive in pieces of these lengths. Joins the parts of DATA.
    fn taken(bytes: &[u8], pieces: &[usize]) -> (Vec<String>, Option<Violation>) {
        let mut inbound = Inbound::of_server(LIMITS);
        let (mut found, mut buffer, mut at) = (Vec::<String>::new(), Vec::new(), 0);
        let mut content: Vec<u8> = Vec::new();
        let mut lengths = pieces.iter().copied().chain(std::iter::repeat(usize::MAX));
        while at < bytes.len() {
            let length = lengths.next().unwrap_or(1).clamp(1, bytes.len() - at);
            buffer.extend_from_slice(&bytes[at..at + length]);
            at += length;
            loop {
                let (used, frame) = match inbound.take(&buffer, MAX_FRAME_SIZE_MIN) {
                    Ok(taken) => taken,
                    Err(violation) => return (found, Some(violation)),
                };
                match frame {
                    Some(Frame::Data {
                        stream,
                        content: part,
                        flow,
                        padding,
                        end_stream,
                    }) => {
                        content.extend_from_slice(part);
                        if flow > 0 {
                            found.push(format!("{stream}: flow {flow} padding {padding}"));
                        }
                        if end_stream {
                            found.push(format!("{stream}: {}", content.escape_ascii()));
                            content.clear();
                        }
                    }
                    Some(Frame::Block {
                        stream,
                        end_stream,
                        block,
                        ..
                    }) => {
                        let text = block.bytes().escape_ascii();
                        found.push(format!("{stream}: block {text} {end_stream}"));
                    }
                    Some(Frame::Other(stream, payload)) => {
                        found.push(format!("{stream}: {payload:?}"));
                    }
                    Some(Frame::Invalid(stream, code, _)) => {
                        found.push(format!("{stream}: {code:?}"));
                    }
                    None if used == 0 => break,
                    None => {}
                }
                assert!(used > 0);
                buffer.drain(..used);
            }
        }
        (found, None)
    }

    fn all() -> Vec<u8> {
        let end = flag::END_STREAM | flag::PADDED;
        [
            begin(),
            frame(kind::HEADERS, flag::END_HEADERS, 1, b"whole"),
            frame(kind::HEADERS, flag::END_STREAM, 3, b"in"),
            frame(kind::CONTINUATION, 0, 3, b""),
            frame(kind::CONTINUATION, flag::END_HEADERS, 3, b"parts"),
            frame(kind::DATA, 0, 1, b"con"),
            frame(kind::DATA, flag::PADDED, 1, b"\x03xxx"),
            frame(0x42, 0xff, 9, b"unknown"),
            frame(0x42, 0xff, 0, b""),
            frame(kind::PRIORITY, 0, 5, b"odd"),
            frame(kind::PING, 0, 0, b"12345678"),
            frame(kind::DATA, end, 1, b"\x02tentxx"),
            frame(kind::WINDOW_UPDATE, 0, 7, b"\0\0\0\0"),
            frame(kind::DATA, flag::END_STREAM, 9, b""),
        ]
        .concat()
    }

    const FOUND: [&str; 13] = [
        "0: Settings(Changes([]))",
        "1: block whole false",
        "3: block inparts true",
        "1: flow 3 padding 0",
        "1: flow 4 padding 4",
        "9: Unknown",
        "0: Unknown",
        "5: ErrorCode(6)",
        "0: Ping([49, 50, 51, 52, 53, 54, 55, 56])",
        "1: flow 7 padding 3",
        "1: content",
        "7: ErrorCode(1)",
        "9: ",
    ];

    #[test]
    fn frames_are_taken() {
        let (found, violation) = taken(&all(), &[]);
        assert_eq!(
            (found, violation),
            (FOUND.map(str::to_owned).to_vec(), None)
        );
    }

    #[test]
    fn wrong_orders_end_the_connection() {
        let headers = frame(kind::HEADERS, 0, 1, b"a");
        for (bytes, code) in [
            (b"GET / HTTP/1.1\r\n".to_vec(), ErrorCode::PROTOCOL_ERROR),
            (
                [PREFACE, &frame(kind::PING, 0, 0, b"12345678")[..]].concat(),
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                [PREFACE, &frame(kind::SETTINGS, flag::ACK, 0, b"")[..]].concat(),
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                [begin(), frame(kind::CONTINUATION, 4, 1, b"a")].concat(),
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                [
                    begin(),
                    headers.clone(),
                    frame(kind::PING, 0, 0, b"12345678"),
                ]
                .concat(),
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                [begin(), headers.clone(), frame(0x42, 0, 0, b"")].concat(),
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                [begin(), headers.clone(), frame(kind::PRIORITY, 0, 3, b"")].concat(),
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                [
                    begin(),
                    headers.clone(),
                    frame(kind::CONTINUATION, 4, 3, b"a"),
                ]
                .concat(),
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                [begin(), frame(kind::PUSH_PROMISE, 4, 1, b"\0\0\0\x02")].concat(),
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                [begin(), frame(kind::DATA, flag::PADDED, 1, b"\x03xx")].concat(),
                ErrorCode::PROTOCOL_ERROR,
            ),
            (
                [begin(), frame(kind::HEADERS, 4, 1, &[0; 101])].concat(),
                ErrorCode::ENHANCE_YOUR_CALM,
            ),
            (
                [
                    begin(),
                    headers.clone(),
                    frame(kind::CONTINUATION, 0, 1, &[0; 100]),
                ]
                .concat(),
                ErrorCode::ENHANCE_YOUR_CALM,
            ),
            (
                [
                    begin(),
                    headers,
                    frame(kind::CONTINUATION, 0, 1, b"").repeat(4),
                ]
                .concat(),
                ErrorCode::ENHANCE_YOUR_CALM,
            ),
        ] {
            let (_, violation) = taken(&bytes, &[]);
            assert_eq!(
                violation.map(|v| v.code()),
                Some(code),
                "{}",
                bytes.escape_ascii()
            );
        }
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_the_pieces_in_which_they_arrive(
            pieces in prop::collection::vec(1usize..30, 0..60),
            damage in prop::option::of((24usize..200, any::<u8>())),
        ) {
            let mut bytes = all();
            if let Some((at, byte)) = damage && let Some(old) = bytes.get_mut(at) {
                *old = byte;
            }
            prop_assert_eq!(taken(&bytes, &pieces), taken(&bytes, &[]));
        }
    }
}
