//! Parser of the PROXY protocol, versions 1 and 2: the header in which a load balancer reports its
//! client's address before the client's first byte ("The PROXY protocol", HAProxy Technologies,
//! 2020). Does no I/O.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::http::Network;

/// First bytes of a header of version 1, and of version 2.
const TEXT: &[u8] = b"PROXY ";
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Longest version 1 header in bytes, including its line end (section 2.1).
const TEXT_MAX: usize = 107;
/// Bytes of a version 2 header before the addresses (section 2.2).
const FIXED: usize = 16;
/// Most bytes of a version 2 header after the first 16: addresses and TLVs.
const REST_MAX: usize = 4096;
/// Type of the TLV that has the header's checksum (section 2.2.3).
const CHECKSUM: u8 = 0x03;

/// Requirement of a listener that connections begin with a PROXY header (`proxy_protocol`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyProtocol {
    /// The accepted versions.
    pub versions: Versions,
    /// Load balancers that may send a header. Connections from other addresses are refused.
    pub trusted: Vec<Network>,
}

/// Versions of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Only version 1, the text line.
    V1,
    /// Only version 2, the binary header.
    V2,
    /// Versions 1 and 2.
    Any,
}

/// A complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the header in bytes. The client's first byte follows.
    pub length: usize,
    /// The two ends of the client's connection. `None` for connections that the balancer opened
    /// itself, such as health checks, and for anything but TCP over IP.
    pub ends: Option<Ends>,
}

/// The two ends of the client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The client's address.
    pub source: SocketAddr,
    /// The address that the client connected to.
    pub destination: SocketAddr,
}

/// Error: the bytes do not begin with a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Parses the header at the start of `input`. Returns `None` if more bytes are needed.
///
/// # Errors
///
/// The input cannot become a valid header of these versions, whatever bytes follow.
pub fn parse(input: &[u8], versions: Versions) -> Result<Option<Header>, Malformed> {
    let begins = |mark: &[u8]| {
        let length = mark.len().min(input.len());
        input[..length] == mark[..length]
    };
    match versions {
        Versions::V1 | Versions::Any if begins(TEXT) => text(input),
        Versions::V2 | Versions::Any if begins(SIGNATURE) => binary(input),
        _ => Err(Malformed),
    }
}

/// Reads `PROXY TCP4 192.0.2.1 192.0.2.2 40000 443`, or `PROXY UNKNOWN` and any text (section 2.1).
fn text(input: &[u8]) -> Result<Option<Header>, Malformed> {
    let within = &input[..input.len().min(TEXT_MAX)];
    let Some(end) = memchr::memchr(b'\n', within) else {
        return match input.len() < TEXT_MAX {
            true => Ok(None),
            false => Err(Malformed),
        };
    };
    let line = within[..end].strip_suffix(b"\r").ok_or(Malformed)?;
    let line = std::str::from_utf8(line).map_err(|_| Malformed)?;
    let mut words = line.split(' ').skip(1);
    let ends = match words.next() {
        Some("UNKNOWN") => None,
        Some("TCP4") => Some(text_ends::<Ipv4Addr>(&mut words)?),
        Some("TCP6") => Some(text_ends::<Ipv6Addr>(&mut words)?),
        _ => return Err(Malformed),
    };
    if ends.is_some() && words.next().is_some() {
        return Err(Malformed);
    }
    Ok(Some(Header {
        length: end + 1,
        ends,
    }))
}

fn text_ends<'a, A>(words: &mut impl Iterator<Item = &'a str>) -> Result<Ends, Malformed>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let mut address = || -> Option<IpAddr> { Some(words.next()?.parse::<A>().ok()?.into()) };
    let (source, destination) = (address().ok_or(Malformed)?, address().ok_or(Malformed)?);
    let mut port = || words.next().and_then(port).ok_or(Malformed);
    Ok(Ends {
        source: SocketAddr::new(source, port()?),
        destination: SocketAddr::new(destination, port()?),
    })
}

/// Reads a port: digits without a sign or leading zeros.
fn port(word: &str) -> Option<u16> {
    let digits = word.bytes().all(|b| b.is_ascii_digit());
    let fits = digits && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| fits)
}

/// Reads a binary header (section 2.2): signature, version and command, family, length, addresses,
/// TLVs.
fn binary(input: &[u8]) -> Result<Option<Header>, Malformed> {
    if input.get(12).is_some_and(|b| !matches!(b, 0x20 | 0x21)) {
        return Err(Malformed);
    }
    let Some(&[command, family, high, low]) = input.get(12..FIXED) else {
        return Ok(None);
    };
    let rest = usize::from(u16::from_be_bytes([high, low]));
    if rest > REST_MAX {
        return Err(Malformed);
    }
    let length = FIXED + rest;
    let Some(header) = input.get(..length) else {
        return Ok(None);
    };
    let ends = match command {
        0x20 => None,
        _ => introduced(header, family)?,
    };
    Ok(Some(Header { length, ends }))
}

/// Returns the addresses of a header with the command PROXY, or `None` for anything but a stream
/// over IP.
fn introduced(header: &[u8], family: u8) -> Result<Option<Ends>, Malformed> {
    let rest = &header[FIXED..];
    let size = match family >> 4 {
        0 => 0,
        1 => 12,
        2 => 36,
        3 => 216,
        _ => return Err(Malformed),
    };
    let (addresses, statements) = rest.split_at_checked(size).ok_or(Malformed)?;
    // If the family is unspecified, the format of the rest is not defined, so the TLVs are not
    // checked.
    if family >> 4 != 0 {
        check_statements(header, statements)?;
    }
    let ends = match family {
        0x11 => binary_ends::<4>(addresses),
        0x21 => binary_ends::<16>(addresses),
        _ => return Ok(None),
    };
    ends.map(Some).ok_or(Malformed)
}

/// Reads source address, destination address, source port and destination port, in this order.
fn binary_ends<const N: usize>(addresses: &[u8]) -> Option<Ends>
where
    IpAddr: From<[u8; N]>,
{
    let (source, rest) = addresses.split_first_chunk::<N>()?;
    let (destination, ports) = rest.split_first_chunk::<N>()?;
    let &[a, b, c, d] = ports else { return None };
    let at = |address: &[u8; N], port| SocketAddr::new(IpAddr::from(*address), port);
    Some(Ends {
        source: at(source, u16::from_be_bytes([a, b])),
        destination: at(destination, u16::from_be_bytes([c, d])),
    })
}

/// Checks that the TLVs fill the rest of the header exactly, and that a checksum among them is
/// correct.
fn check_statements(header: &[u8], mut statements: &[u8]) -> Result<(), Malformed> {
    while let Some((&kind, rest)) = statements.split_first() {
        let (length, rest) = rest.split_first_chunk::<2>().ok_or(Malformed)?;
        let length = usize::from(u16::from_be_bytes(*length));
        let (value, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
        if kind == CHECKSUM {
            let at = header.len() - rest.len() - length;
            check_sum(header, at, value)?;
        }
        statements = rest;
    }
    Ok(())
}

/// Checks the CRC-32C over the whole header, computed with zeros in place of the checksum.
fn check_sum(header: &[u8], at: usize, value: &[u8]) -> Result<(), Malformed> {
    let said: [u8; 4] = value.try_into().map_err(|_| Malformed)?;
    let mut zeroed = header.to_vec();
    zeroed[at..at + 4].fill(0);
    match crc_fast::crc32_iscsi(&zeroed) == u32::from_be_bytes(said) {
        true => Ok(()),
        false => Err(Malformed),
    }
}

/// Checks for the fuzzer that the result does not depend on how the bytes are split into reads, and
/// that the parser never waits for more input than the longest header.
#[cfg(any(test, feature = "test-rigs"))]
pub fn exercise(data: &[u8]) {
    for versions in [Versions::V1, Versions::V2, Versions::Any] {
        let whole = parse(data, versions);
        if let Ok(None) = whole {
            assert!(data.len() < FIXED + REST_MAX, "more than a header can be");
        }
        for length in (0..data.len()).take(FIXED + TEXT_MAX) {
            let part = parse(&data[..length], versions);
            match (part, whole) {
                (Ok(None), _) => {}
                (Ok(Some(header)), _) => {
                    assert!(header.length <= length);
                    assert_eq!(part, whole);
                }
                (Err(_), _) => assert_eq!(part, whole),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINE: &str = "PROXY TCP4 192.0.2.1 198.51.100.2 40000 443\r\nGET / HTTP/1.1\r\n";

    fn ends(source: &str, destination: &str) -> Option<Ends> {
        Some(Ends {
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
        })
    }

    /// Returns a header of version 2.
    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("short").to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    const FOUR: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x9c, 0x40, 1, 0xbb];

    #[test]
    fn a_line_of_text_is_read() {
        let parsed = parse(LINE.as_bytes(), Versions::Any);
        let found = ends("192.0.2.1:40000", "198.51.100.2:443");
        let (length, ends_) = (45, found);
        assert_eq!(
            parsed,
            Ok(Some(Header {
                length,
                ends: ends_
            }))
        );
        let six = b"PROXY TCP6 2001:db8::1 ::1 1 65535\r\n";
        let parsed = parse(six, Versions::V1).expect("well-formed");
        let found = parsed.and_then(|header| header.ends);
        assert_eq!(found, ends("[2001:db8::1]:1", "[::1]:65535"));
        for unknown in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ffff::1 x 0 \r\n"] {
            let (length, ends) = (unknown.len(), None);
            let header = Header { length, ends };
            assert_eq!(parse(unknown.as_bytes(), Versions::Any), Ok(Some(header)));
        }
    }

    #[test]
    fn a_malformed_line_is_refused_at_once() {
        let long = format!("PROXY UNKNOWN {}", "x".repeat(TEXT_MAX - 14));
        for text in [
            "GET / HTTP/1.1\r\n",
            "PROXYX",
            "PROXY TCP4 192.0.2.1 198.51.100.2 40000 443\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 40000\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 40000 65536\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 040 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 +40 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 40 443 \r\n",
            "PROXY TCP4  192.0.2.1 198.51.100.2 40 443\r\n",
            "PROXY TCP4 ::1 ::1 40 443\r\n",
            "PROXY TCP6 192.0.2.1 198.51.100.2 40 443\r\n",
            "PROXY UDP4 192.0.2.1 198.51.100.2 40 443\r\n",
            "PROXY \r\n",
            &long,
        ] {
            assert_eq!(
                parse(text.as_bytes(), Versions::Any),
                Err(Malformed),
                "{text:?}"
            );
        }
        assert_eq!(parse(LINE.as_bytes(), Versions::V2), Err(Malformed));
    }

    #[test]
    fn a_binary_header_is_read() {
        let plain = header(0x21, 0x11, &FOUR);
        let found = ends("192.0.2.1:40000", "198.51.100.2:443");
        let parsed = parse(&plain, Versions::V2).expect("well-formed");
        assert_eq!(parsed.and_then(|header| header.ends), found);
        let more = header(
            0x21,
            0x11,
            &[&FOUR[..], &[1, 0, 2, b'h', b'2', 4, 0, 0]].concat(),
        );
        let parsed = parse(&more, Versions::Any).expect("well-formed");
        let (length, ends) = (more.len(), found);
        assert_eq!(parsed, Some(Header { length, ends }));
        // Headers without client addresses: LOCAL, another address family, another socket type, a
        // Unix socket.
        for silent in [
            header(0x20, 0x00, &[]),
            header(0x20, 0x11, &FOUR),
            header(0x21, 0x00, b"what"),
            header(0x21, 0x12, &FOUR),
            header(0x21, 0x31, &[0; 216]),
        ] {
            let (length, ends) = (silent.len(), None);
            let header = Header { length, ends };
            assert_eq!(parse(&silent, Versions::V2), Ok(Some(header)));
        }
        assert_eq!(parse(&plain, Versions::V1), Err(Malformed));
    }

    #[test]
    fn a_malformed_binary_header_is_refused() {
        let mut huge = header(0x21, 0x11, &FOUR);
        huge[14] = 0x20;
        for bytes in [
            header(0x11, 0x11, &FOUR),
            header(0x22, 0x11, &FOUR),
            header(0x21, 0x41, &FOUR),
            header(0x21, 0x11, &FOUR[..11]),
            header(0x21, 0x21, &FOUR),
            header(0x21, 0x11, &[&FOUR[..], &[1, 0]].concat()),
            header(0x21, 0x11, &[&FOUR[..], &[1, 0, 9, 1]].concat()),
            huge,
        ] {
            assert_eq!(parse(&bytes, Versions::Any), Err(Malformed), "{bytes:?}");
        }
    }

    #[test]
    fn a_checksum_is_checked() {
        let mut bytes = header(0x21, 0x11, &[&FOUR[..], &[3, 0, 4, 0, 0, 0, 0]].concat());
        assert_eq!(parse(&bytes, Versions::Any), Err(Malformed));
        let sum = crc_fast::crc32_iscsi(&bytes).to_be_bytes();
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&sum);
        assert!(matches!(parse(&bytes, Versions::Any), Ok(Some(_))));
        bytes[17] ^= 1;
        assert_eq!(parse(&bytes, Versions::Any), Err(Malformed));
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_how_the_header_arrives(
            family in prop::sample::select(vec![0x00, 0x11, 0x12, 0x21, 0x31, 0x41]),
            command in prop::sample::select(vec![0x20, 0x21, 0x22]),
            rest in prop::collection::vec(any::<u8>(), 0..80),
            behind in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let bytes = [header(command, family, &rest), behind].concat();
            exercise(&bytes);
        }

        #[test]
        fn lines_of_any_kind_are_read_or_refused(line in "PROXY [A-Z0-9 .:\r]{0,120}\n?.{0,9}") {
            exercise(line.as_bytes());
        }

        #[test]
        fn every_pair_of_ends_survives(a: [u8; 4], b: [u8; 16], ports: [u16; 2]) {
            let four = SocketAddr::new(IpAddr::from(a), ports[0]);
            let six = SocketAddr::new(IpAddr::from(b), ports[1]);
            for (word, address) in [("TCP4", four), ("TCP6", six)] {
                let (ip, port) = (address.ip(), address.port());
                let line = format!("PROXY {word} {ip} {ip} {port} {port}\r\n");
                let parsed = parse(line.as_bytes(), Versions::V1).expect("well-formed");
                let ends = parsed.and_then(|header| header.ends).expect("addresses");
                prop_assert_eq!((ends.source, ends.destination), (address, address));
            }
        }
    }
}
