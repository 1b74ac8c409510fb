//! The chunked transfer coding (RFC 9112 7.1), decoded strictly: any malformed input is an error.

use super::Fields;

/// Longest chunk-size line with its extensions, in bytes.
pub const SIZE_LINE_MAX: usize = 256;
/// Most bytes of chunk extensions in one body.
pub const EXTENSIONS_MAX: usize = 4 << 10;
/// Largest number of hexadecimal digits in a chunk size, so that the size fits into a `u64`.
const SIZE_DIGITS_MAX: usize = 16;

/// Parses a trailer section: field lines and the empty line after them. The error describes the
/// problem.
pub type ReadTrailers = fn(&[u8]) -> Result<Fields, &'static str>;

/// Decodes one chunked body whose bytes arrive in several reads.
pub struct Decoder {
    state: State,
    /// Bytes left in the current chunk.
    left: u64,
    /// Bytes decoded so far of the current chunk-size line (`line`) and of all extensions of the
    /// body (`extensions`).
    line: usize,
    extensions: usize,
    trailers: Vec<u8>,
    trailers_max: usize,
    read_trailers: ReadTrailers,
    padded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Size {
        digits: usize,
    },
    /// Spaces and tabs after the digits of a size, if the decoder accepts them.
    Padding,
    Extension(Extension),
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailers,
    Ended,
    /// Malformed input was found. The end of the body can't be determined, so every further call
    /// fails with this text.
    Broken(&'static str),
}

/// Position of the decoder within `; name = value` (RFC 9112 7.1.1, without the optional white
/// space).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    NameStart,
    Name,
    ValueStart,
    Value,
    Quoted,
    Escaped,
    QuotedEnd,
}

/// The result of one decoding step. Each number counts the input bytes consumed.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// Content.
    Data(usize, &'a [u8]),
    /// All input is consumed and more is needed.
    More,
    /// The end of the body, with its trailers.
    End(usize, Fields),
}

/// Error: the chunked coding is malformed. The text says how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadChunk(pub &'static str);

impl Decoder {
    /// Creates a decoder for a body whose trailer section may have this many bytes.
    pub fn new(trailers_max: usize, read_trailers: ReadTrailers) -> Decoder {
        Decoder {
            state: State::Size { digits: 0 },
            left: 0,
            line: 0,
            extensions: 0,
            trailers: Vec::new(),
            trailers_max,
            read_trailers,
            padded: false,
        }
    }

    /// Makes the decoder also accept spaces and tabs after a chunk's size, because some origins pad
    /// the size to a fixed width. Only for responses: in requests, ambiguous framing is refused.
    pub fn padded(mut self) -> Decoder {
        self.padded = true;
        self
    }

    /// Decodes up to the first content, the end of the body, or the end of the input. After an
    /// error, every call returns that error.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, BadChunk> {
        if let State::Broken(why) = self.state {
            return Err(BadChunk(why));
        }
        self.advance(input)
            .inspect_err(|bad| self.state = State::Broken(bad.0))
    }

    fn advance<'a>(&mut self, input: &'a [u8]) -> Result<Decoded<'a>, BadChunk> {
        let mut at = 0;
        while at < input.len() {
            match self.state {
                State::Data => {
                    let n =
                        (input.len() - at).min(usize::try_from(self.left).unwrap_or(usize::MAX));
                    self.left -= n as u64;
                    if self.left == 0 {
                        self.state = State::DataCr;
                    }
                    return Ok(Decoded::Data(at + n, &input[at..at + n]));
                }
                State::Trailers => {
                    at += self.take_trailers(&input[at..])?;
                    if self.state == State::Ended {
                        return self.end(at);
                    }
                }
                State::Ended => return self.end(at),
                _ => {
                    self.state = self.step(input[at])?;
                    at += 1;
                }
            }
        }
        Ok(Decoded::More)
    }

    /// Processes one byte of framing (not content or trailers) and returns the next state.
    fn step(&mut self, b: u8) -> Result<State, BadChunk> {
        match self.state {
            State::Size { digits } => self.size(b, digits),
            State::Padding => self.after_digits(b),
            State::Extension(extension) => self.extension(b, extension),
            State::SizeLf if b == b'\n' => Ok(self.after_size()),
            State::DataCr if b == b'\r' => Ok(State::DataLf),
            State::DataLf if b == b'\n' => {
                self.line = 0;
                Ok(State::Size { digits: 0 })
            }
            _ => Err(BadChunk("chunk not ended by CRLF")),
        }
    }

    fn size(&mut self, b: u8, digits: usize) -> Result<State, BadChunk> {
        if let Some(digit) = (b as char).to_digit(16) {
            if digits == SIZE_DIGITS_MAX {
                return Err(BadChunk("chunk size too large"));
            }
            self.left = match digits {
                0 => u64::from(digit),
                _ => (self.left << 4) | u64::from(digit),
            };
            return Ok(State::Size { digits: digits + 1 });
        }
        match digits {
            0 => Err(BadChunk("chunk size missing")),
            _ => self.after_digits(b),
        }
    }

    fn after_digits(&mut self, b: u8) -> Result<State, BadChunk> {
        match b {
            b' ' | b'\t' if self.padded => {
                self.line += 1;
                match self.line > SIZE_LINE_MAX {
                    true => Err(BadChunk("chunk size line too long")),
                    false => Ok(State::Padding),
                }
            }
            b'\r' => Ok(State::SizeLf),
            b';' => Ok(State::Extension(Extension::NameStart)),
            _ => Err(BadChunk("bad chunk size")),
        }
    }

    fn extension(&mut self, b: u8, at: Extension) -> Result<State, BadChunk> {
        use Extension::*;
        self.line += 1;
        self.extensions += 1;
        if self.line > SIZE_LINE_MAX || self.extensions > EXTENSIONS_MAX {
            return Err(BadChunk("chunk extensions too long"));
        }
        let token = super::fields::is_token_byte(b);
        let next = match (at, b) {
            (Name | Value | QuotedEnd, b'\r') => return Ok(State::SizeLf),
            (Name | Value | QuotedEnd, b';') => NameStart,
            (NameStart | Name, _) if token => Name,
            (Name, b'=') => ValueStart,
            (ValueStart, b'"') => Quoted,
            (ValueStart | Value, _) if token => Value,
            (Quoted, b'"') => QuotedEnd,
            (Quoted, b'\\') => Escaped,
            (Quoted | Escaped, b'\t' | b' '..=b'~' | 0x80..) => Quoted,
            _ => return Err(BadChunk("bad chunk extension")),
        };
        Ok(State::Extension(next))
    }

    fn after_size(&mut self) -> State {
        match self.left {
            0 => State::Trailers,
            _ => State::Data,
        }
    }

    /// Collects the trailer section up to the empty line that ends it; returns the bytes consumed.
    fn take_trailers(&mut self, input: &[u8]) -> Result<usize, BadChunk> {
        for (i, &b) in input.iter().enumerate() {
            if self.trailers.len() == self.trailers_max + 2 {
                return Err(BadChunk("trailers too long"));
            }
            self.trailers.push(b);
            if b == b'\n' && (self.trailers == b"\r\n" || self.trailers.ends_with(b"\r\n\r\n")) {
                self.state = State::Ended;
                return Ok(i + 1);
            }
            if b == b'\n' && !self.trailers.ends_with(b"\r\n") {
                return Err(BadChunk("bare LF in trailers"));
            }
        }
        Ok(input.len())
    }

    fn end<'a>(&mut self, at: usize) -> Result<Decoded<'a>, BadChunk> {
        let text = std::mem::take(&mut self.trailers);
        let fields = match text.len() {
            0..=2 => Fields::new(),
            _ => (self.read_trailers)(&text).map_err(BadChunk)?,
        };
        Ok(Decoded::End(at, fields))
    }
}
