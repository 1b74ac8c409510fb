//! A minimal parser of response heads for the load generator.

/// Result of parsing a response head: its length, and the headers that matter to the load generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) end: usize,
    pub(super) status: u16,
    /// Length of the body in bytes; `None` if it is chunked.
    pub(super) length: Option<u64>,
    pub(super) close: bool,
}

/// Result of parsing the received beginning of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parsed {
    Partial,
    Malformed,
    Whole(Head),
}

const LENGTH: &[u8] = b"content-length:";
const CODING: &[u8] = b"transfer-encoding:";
const CONNECTION: &[u8] = b"connection:";

/// Maximum length of a response head in bytes.
const HEAD_MAX: usize = 64 << 10;

pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut length = None;
    let mut close = false;
    let mut chunked = false;
    let mut begin = 0;
    loop {
        let Some(line_length) = bytes[begin..].iter().position(|byte| *byte == b'\n') else {
            return match bytes.len() > HEAD_MAX {
                true => Parsed::Malformed,
                false => Parsed::Partial,
            };
        };
        let line = bytes[begin..begin + line_length].trim_ascii_end();
        let first = begin == 0;
        begin += line_length + 1;
        match line.first() {
            None => break,
            Some(_) if first => {}
            Some(b'c' | b'C') => {
                if let Some(value) = value_of(line, LENGTH) {
                    length = number(value);
                } else if let Some(value) = value_of(line, CONNECTION) {
                    close |= value.eq_ignore_ascii_case(b"close");
                }
            }
            Some(b't' | b'T') => {
                let coding = value_of(line, CODING);
                chunked |= coding.is_some_and(|value| value.eq_ignore_ascii_case(b"chunked"));
            }
            Some(_) => {}
        }
    }
    let Some(status) = status(bytes) else {
        return Parsed::Malformed;
    };
    let length = match (status, length) {
        (204 | 304, None) => Some(0),
        (_, None) if !chunked => return Parsed::Malformed,
        (_, length) => length.filter(|_| !chunked),
    };
    Parsed::Whole(Head {
        end: begin,
        status,
        length,
        close,
    })
}

fn value_of<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (field, value) = line.split_at_checked(name.len())?;
    field.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn status(bytes: &[u8]) -> Option<u16> {
    if !bytes.starts_with(b"HTTP/1.") {
        return None;
    }
    number(bytes.get(9..12)?)
        .and_then(|status| u16::try_from(status).ok())
        .filter(|status| (100..600).contains(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_length_and_connection_close_are_parsed() {
        let head = b"HTTP/1.1 206 Partial\r\nServer: x\r\nConnection: Close\r\ncontent-LENGTH:  17 \r\n\r\nbody";
        let expected = Head {
            end: head.len() - 4,
            status: 206,
            length: Some(17),
            close: true,
        };
        assert_eq!(parse(head), Parsed::Whole(expected));
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n";
        let Parsed::Whole(head) = parse(chunked) else {
            panic!("a head");
        };
        assert_eq!(head.length, None);
    }

    #[test]
    fn an_incomplete_head_is_partial() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        for cut in 0..head.len() {
            assert_eq!(parse(&head[..cut]), Parsed::Partial, "cut at {cut}");
        }
    }

    #[test]
    fn heads_without_status_or_length_are_malformed() {
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n\r\n"), Parsed::Malformed);
        assert_eq!(
            parse(b"hello\r\nContent-Length: 5\r\n\r\n"),
            Parsed::Malformed
        );
        let huge = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n";
        assert_eq!(parse(huge), Parsed::Malformed);
    }
}
