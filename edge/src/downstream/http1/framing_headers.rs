//! The headers that determine how a request is framed and whether its connection persists (RFC 9112
//! 6.3, 9.3).

use crate::downstream::Refusal;
use crate::http::Version;
use crate::http::hop::reads_as;
use crate::reason::Reason;

/// The framing that determines where a request's body ends (RFC 9112 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is no body.
    None,
    /// The body has this many bytes, at least 1.
    Length(u64),
    /// The body is chunked.
    Chunked,
}

impl Framing {
    /// Returns the declared length of the body.
    pub fn length(self) -> Option<u64> {
        match self {
            Framing::Length(length) => Some(length),
            Framing::None | Framing::Chunked => None,
        }
    }
}

/// The headers that frame a request or affect its connection, collected in one pass.
#[derive(Default)]
pub(super) struct FramingHeaders<'a> {
    pub(super) host: Option<&'a [u8]>,
    pub(super) hosts: usize,
    length: Option<&'a [u8]>,
    lengths: usize,
    coding: Option<&'a [u8]>,
    codings: usize,
    mimicked: bool,
    expects_continue: bool,
    expects_other: bool,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) connection_upgrade: bool,
    pub(super) upgrade: bool,
    pub(super) takes_trailers: bool,
}

impl<'a> FramingHeaders<'a> {
    #[inline]
    pub(super) fn add(&mut self, name: &[u8], value: &'a [u8]) {
        match name.len() {
            2 if name.eq_ignore_ascii_case(b"te") => {
                self.takes_trailers |= members(value).any(|m| m.eq_ignore_ascii_case(b"trailers"));
            }
            4 if name.eq_ignore_ascii_case(b"host") => {
                self.host = Some(value);
                self.hosts += 1;
            }
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.expects_continue = true;
                self.expects_other |= !value.eq_ignore_ascii_case(b"100-continue");
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
            10 if name.eq_ignore_ascii_case(b"connection") => self.add_connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                self.length = Some(value);
                self.lengths += 1;
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.coding = Some(value);
                self.codings += 1;
            }
            14 if reads_as(name, b"content-length") => self.mimicked = true,
            17 if reads_as(name, b"transfer-encoding") => self.mimicked = true,
            _ => {}
        }
    }

    fn add_connection(&mut self, value: &[u8]) {
        for member in members(value) {
            self.close |= member.eq_ignore_ascii_case(b"close");
            self.keep_alive |= member.eq_ignore_ascii_case(b"keep-alive");
            self.connection_upgrade |= member.eq_ignore_ascii_case(b"upgrade");
        }
    }

    /// Returns the framing of the body. Stricter than RFC 9112 6.3: framing that two recipients
    /// could interpret differently is refused.
    pub(super) fn framing(&self, version: Version) -> Result<Framing, Refusal> {
        if self.mimicked {
            return Err(Refusal::of(Reason::FieldMimicsFraming));
        }
        match (self.length, self.coding) {
            (None, None) => Ok(Framing::None),
            (Some(_), Some(_)) => Err(Refusal::of(Reason::LengthAndTransferEncoding)),
            (Some(value), None) => match (self.lengths, decimal(value)) {
                (1, Some(0)) => Ok(Framing::None),
                (1, Some(n)) => Ok(Framing::Length(n)),
                _ => Err(Refusal::of(Reason::BadContentLength)),
            },
            (None, Some(_)) if version == Version::Http10 => {
                Err(Refusal::of(Reason::TransferEncodingInHttp10))
            }
            (None, Some(value)) if value.eq_ignore_ascii_case(b"chunked") && self.codings == 1 => {
                Ok(Framing::Chunked)
            }
            (None, Some(value)) => Err(refused_coding(value, self.codings)),
        }
    }
}

/// Returns the refusal of a Transfer-Encoding: 501 for unknown codings (RFC 9112 6.1), 400 for
/// malformed uses of chunked.
fn refused_coding(value: &[u8], lines: usize) -> Refusal {
    let unknown = |member: &[u8]| {
        crate::http::fields::is_token(member) && !member.eq_ignore_ascii_case(b"chunked")
    };
    match lines == 1
        && !value.is_empty()
        && value.split(|&b| b == b',').any(|m| unknown(m.trim_ascii()))
    {
        true => Refusal::of(Reason::UnknownTransferCoding),
        false => Refusal::of(Reason::BadTransferEncoding),
    }
}

fn members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&b| b == b',').map(<[u8]>::trim_ascii)
}

/// Parses 1*DIGIT that fits into 64 bits.
fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |n, b| match b {
        b'0'..=b'9' => n.checked_mul(10)?.checked_add(u64::from(b - b'0')),
        _ => None,
    })
}

impl FramingHeaders<'_> {
    /// Whether the client expects `100 Continue`. Any other expectation is refused, since RFC 9110
    /// 10.1.1 defines no other. Expect is ignored in HTTP/1.0.
    pub(super) fn expects_continue(&self, version: Version) -> Result<bool, Refusal> {
        match version {
            Version::Http10 => Ok(false),
            _ if self.expects_other => Err(Refusal::of(Reason::UnknownExpectation)),
            _ => Ok(self.expects_continue),
        }
    }
}
