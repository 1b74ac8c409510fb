//! The kinds of slow clients: the bytes that they send and read, and their schedule. No I/O.

use std::net::Ipv4Addr;
use std::str::FromStr;

use serde::Serialize;

/// The kinds of slow clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Sends one byte of a request head per second, and never completes the head.
    Slowloris,
    /// Sends half a request line, and then nothing.
    HalfLine,
    /// Sends a request body at one byte per second.
    Body,
    /// Like `Body`, with each byte in a chunk of its own.
    Chunked,
    /// Requests a large file and reads 64 bytes per second.
    SlowRead,
    /// Requests a large file and reads nothing.
    Stalled,
}

/// Paths of the large file and of uploads.
pub(super) const BIG: &str = "/big";
pub(super) const UPLOAD: &str = "/upload";

const HEAD: &[u8] = b"GET /0 HTTP/1.1\r\nHost: lab\r\n";
const FIELD: &[u8] = b"X-Slow: 1\r\n";

/// Number of addresses of each kind; with more clients, addresses are shared.
const ADDRESSES: usize = 60_000;

impl Kind {
    /// All kinds, in the order of the table.
    pub const ALL: [Kind; 6] = [
        Kind::Slowloris,
        Kind::HalfLine,
        Kind::Body,
        Kind::Chunked,
        Kind::SlowRead,
        Kind::Stalled,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Slowloris => "slowloris",
            Kind::HalfLine => "half-line",
            Kind::Body => "body",
            Kind::Chunked => "chunked",
            Kind::SlowRead => "slow-read",
            Kind::Stalled => "stalled",
        }
    }

    /// Returns the bytes that the client sends when it has connected.
    pub(super) fn first(self) -> Vec<u8> {
        match self {
            Kind::Slowloris => HEAD[..1].to_vec(),
            Kind::HalfLine => b"GET /0 HT".to_vec(),
            Kind::Body => {
                format!("POST {UPLOAD} HTTP/1.1\r\nHost: lab\r\nContent-Length: 1000000\r\n\r\n")
                    .into_bytes()
            }
            Kind::Chunked => {
                format!("POST {UPLOAD} HTTP/1.1\r\nHost: lab\r\nTransfer-Encoding: chunked\r\n\r\n")
                    .into_bytes()
            }
            Kind::SlowRead | Kind::Stalled => {
                format!("GET {BIG} HTTP/1.1\r\nHost: lab\r\n\r\n").into_bytes()
            }
        }
    }

    /// Returns the client's action in this second.
    pub(super) fn each_second(self, second: usize) -> Act {
        match self {
            Kind::Slowloris => {
                let place = second + 1;
                let byte = match HEAD.get(place) {
                    Some(byte) => *byte,
                    None => FIELD[(place - HEAD.len()) % FIELD.len()],
                };
                Act::Send(vec![byte])
            }
            Kind::Body => Act::Send(b"x".to_vec()),
            Kind::Chunked => Act::Send(b"1\r\nx\r\n".to_vec()),
            Kind::SlowRead => Act::Read(64),
            Kind::HalfLine | Kind::Stalled => Act::Nothing,
        }
    }

    /// Whether the client reads responses. If not, only the server's socket shows that the connection is closed.
    pub(super) fn reads(self) -> bool {
        !matches!(self, Kind::SlowRead | Kind::Stalled)
    }

    /// Returns the address of client `number` of this kind. Each kind has its own network.
    pub(super) fn source(self, number: usize) -> Ipv4Addr {
        let number = number % ADDRESSES;
        let (high, low) = ((number / 250) as u8, (number % 250) as u8 + 1);
        Ipv4Addr::new(127, 64 + self as u8, high, low)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Kind, String> {
        let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| Kind::ALL.map(Kind::name).join(", "))
    }
}

/// An action of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    Send(Vec<u8>),
    Read(usize),
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slowloris_head_never_ends() {
        let mut sent = Kind::Slowloris.first();
        for second in 0..500 {
            let Act::Send(bytes) = Kind::Slowloris.each_second(second) else {
                panic!("it sends");
            };
            assert_eq!(bytes.len(), 1);
            sent.extend(bytes);
        }
        assert!(sent.starts_with(b"GET /0 HTTP/1.1\r\nHost: lab\r\nX-Slow: 1\r\nX-Slow: 1\r\n"));
        assert!(!sent.windows(4).any(|four| four == b"\r\n\r\n"));
    }

    #[test]
    fn each_kind_has_its_own_name_and_network() {
        for (place, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.source(0).octets(), [127, 64 + place as u8, 0, 1]);
            assert_eq!(kind.source(999).octets(), [127, 64 + place as u8, 3, 250]);
        }
        assert!("fast".parse::<Kind>().is_err());
    }
}
