//! A decoder of chunked bodies (RFC 9112 section 7.1) for the load generator: finds the end of a body and its
//! content.

/// Maximum length in bytes of a line with a chunk size and extensions, and of a trailer line.
const LINE_MAX: u32 = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The next byte is a hexadecimal digit of a chunk size, or ends the chunk size.
    Size,
    /// The next byte belongs to the rest of a chunk-size line, after the size.
    Rest,
    /// The next byte is content of a chunk.
    Data,
    /// The next byte belongs to the line end after a chunk's content.
    End,
    /// The next byte belongs to a line of the trailer section. An empty line ends the body.
    Trailer,
    Done,
}

/// State of the decoder between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunks {
    step: Step,
    /// Number of bytes of the current chunk that have not been decoded yet.
    left: u64,
    /// Number of bytes of the current line decoded so far.
    line: u32,
    /// Number of bytes of content decoded so far.
    pub(super) length: u64,
}

/// Error: the body is not a valid chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

impl Chunks {
    pub(super) fn new() -> Chunks {
        Chunks {
            step: Step::Size,
            left: 0,
            line: 0,
            length: 0,
        }
    }

    /// Decodes these bytes and passes content to `content` with its offset. Returns whether the body is complete.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut content: impl FnMut(u64, &[u8]),
    ) -> Result<bool, Malformed> {
        while let Some((first, rest)) = bytes.split_first() {
            if self.step == Step::Data {
                let count = usize::try_from(self.left)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                content(self.length, &bytes[..count]);
                self.length += count as u64;
                self.left -= count as u64;
                bytes = &bytes[count..];
                if self.left == 0 {
                    self.step = Step::End;
                }
                continue;
            }
            self.character(*first)?;
            bytes = rest;
        }
        Ok(self.step == Step::Done)
    }

    fn character(&mut self, byte: u8) -> Result<(), Malformed> {
        self.line += 1;
        if self.line > LINE_MAX || self.step == Step::Done {
            return Err(Malformed);
        }
        match (self.step, byte) {
            (Step::Size | Step::Rest, b'\n') if self.line > 1 => {
                self.step = match self.left {
                    0 => Step::Trailer,
                    _ => Step::Data,
                };
                self.line = 0;
            }
            (Step::Size, digit) if digit.is_ascii_hexdigit() => {
                let digit = char::from(digit).to_digit(16).ok_or(Malformed)?;
                let longer = self.left.checked_mul(16).ok_or(Malformed)?;
                self.left = longer + u64::from(digit);
            }
            (Step::Size, b'\r' | b';' | b' ' | b'\t') if self.line > 1 => self.step = Step::Rest,
            (Step::End, b'\n') => {
                self.step = Step::Size;
                self.line = 0;
            }
            (Step::Trailer, b'\n') => {
                // An empty line has at most two bytes: CR and LF.
                if self.line <= 2 {
                    self.step = Step::Done;
                }
                self.line = 0;
            }
            (Step::End, b'\r') | (Step::Rest | Step::Trailer, _) => {}
            _ => return Err(Malformed),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";

    #[test]
    fn a_body_split_anywhere_decodes_alike() {
        for cut in 0..BODY.len() {
            let mut chunks = Chunks::new();
            let mut content = Vec::new();
            let mut take = |at: u64, bytes: &[u8]| {
                assert_eq!(at, content.len() as u64);
                content.extend_from_slice(bytes);
            };
            assert_eq!(chunks.feed(&BODY[..cut], &mut take), Ok(false), "{cut}");
            assert_eq!(chunks.feed(&BODY[cut..], &mut take), Ok(true), "{cut}");
            assert_eq!(chunks.length, 15);
            assert_eq!(content, b"hello0123456789");
        }
    }

    #[test]
    fn invalid_chunked_bodies_are_malformed() {
        for wrong in [
            &b"x\r\n"[..],
            b"\r\n",
            b"1\r\nab",
            b"11111111111111111\r\n",
            b"0\r\n\r\nmore",
        ] {
            assert_eq!(Chunks::new().feed(wrong, |_, _| ()), Err(Malformed));
        }
        let long = [&b"1;"[..], &[b'x'; 20_000]].concat();
        assert_eq!(Chunks::new().feed(&long, |_, _| ()), Err(Malformed));
    }
}
