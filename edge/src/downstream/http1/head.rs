//! Parses request heads with httparse, and then checks them against RFC 9112 where httparse is
//! lenient.
//!
//! Every byte of a head is checked: the request line and each header line must be exactly what
//! httparse reported, joined only by the separators that RFC 9112 allows.

use std::cell::RefCell;
use std::mem::MaybeUninit;

use httparse::{Header, Status};

use crate::downstream::Refusal;
use crate::downstream::exchange::{RefusedRequest, check_declared};
use crate::handler::{Head, HeadParts};
use crate::http::{Fields, Method, Scheme, Version, target, trailers};
use crate::reason::Reason;

use super::framing_headers::{Framing, FramingHeaders};

/// Most header lines in one head or trailer section.
pub const LINES_MAX: usize = 256;

/// The first bytes of a TLS handshake: type and major version of its record (RFC 8446 5.1).
const TLS_HANDSHAKE: [u8; 2] = [22, 3];

/// Limits of a request head, in bytes.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Longest request line, without its CRLF.
    pub request_line: usize,
    /// Longest head without its request line.
    pub headers: usize,
    /// Longest body that may be declared, in bytes. 0: no limit.
    pub body: u64,
}

/// A complete and valid head, with the framing of its body and its effect on the connection.
pub struct Parsed {
    /// The head as handlers see it.
    pub head: Head,
    /// Length of the head in the input, in bytes.
    pub length: usize,
    /// Framing of the body.
    pub framing: Framing,
    /// Whether the client allows another request on this connection (RFC 9112 9.3).
    pub keep_alive: bool,
    /// Whether the request has `Expect: 100-continue` and a body follows.
    pub expects_continue: bool,
    /// Whether the request has `TE: trailers` (RFC 9110 10.1.4).
    pub takes_trailers: bool,
    /// The scheme of a target in absolute form, which must be that of the request.
    pub target_scheme: Option<Scheme>,
}

impl Parsed {
    /// Whether a body follows the head.
    pub fn has_body(&self) -> bool {
        self.framing != Framing::None
    }
}

type Lines<'b> = [MaybeUninit<Header<'b>>; LINES_MAX];

/// Parses a head at the start of `input`. Returns `None` if it is not complete yet.
pub fn parse(input: &[u8], limits: &Limits) -> Result<Option<Parsed>, Refusal> {
    // One empty line before a request line is skipped (RFC 9112 2.2).
    let skipped = match input {
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Ok(None),
        _ => 0,
    };
    let text = &input[skipped..];
    match text.first() {
        None => return Ok(None),
        Some(b'\r' | b'\n') => return Err(Refusal::of(Reason::EmptyLineBeforeRequest)),
        Some(_) => {}
    }
    let mut lines: Lines<'_> = [const { MaybeUninit::uninit() }; LINES_MAX];
    let mut request = httparse::Request::new(&mut []);
    let length = match request.parse_with_uninit_headers(text, &mut lines) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return check_partial(text, limits).map(|()| None),
        // The version is incomplete as long as its line has not ended, so it is not refused yet.
        Err(httparse::Error::Version) if memchr::memchr2(b'\r', b'\n', text).is_none() => {
            return check_partial(text, limits).map(|()| None);
        }
        Err(error) => return Err(refusal_of(error, text, limits)),
    };
    let line = request.method.unwrap_or_default().len()
        + request.path.unwrap_or_default().len()
        + " HTTP/1.1".len()
        + 1;
    check_sizes(line, length, limits)?;
    check_separators(&text[..length], &request)?;
    let mut parsed = interpret(&request, limits)?;
    parsed.length = skipped + length;
    Ok(Some(parsed))
}

/// Checks the limits for a request line of `line` bytes, in a head of at least `length` bytes.
fn check_sizes(line: usize, length: usize, limits: &Limits) -> Result<(), Refusal> {
    if line > limits.request_line {
        return Err(Refusal::of(Reason::RequestLineTooLong));
    }
    if length > line + 2 + limits.headers {
        return Err(Refusal::of(Reason::HeadersTooLarge));
    }
    Ok(())
}

/// Refuses an incomplete head that cannot become a valid one.
fn check_partial(text: &[u8], limits: &Limits) -> Result<(), Refusal> {
    let line = memchr::memchr(b'\n', text).map_or(text.len(), |lf| lf.saturating_sub(1));
    check_sizes(line, text.len(), limits)
}

fn refusal_of(error: httparse::Error, text: &[u8], limits: &Limits) -> Refusal {
    if let Err(refusal) = check_partial(text, limits)
        && refusal.status == 414
    {
        return refusal;
    }
    let line = memchr::memchr(b'\r', text).map(|cr| &text[..cr]);
    match error {
        httparse::Error::TooManyHeaders => Refusal::of(Reason::TooManyHeaders),
        httparse::Error::Version if line.is_some_and(ends_in_another_version) => {
            Refusal::of(Reason::HttpVersion)
        }
        httparse::Error::HeaderName => Refusal::of(Reason::BadFieldName),
        httparse::Error::HeaderValue => Refusal::of(Reason::BadFieldValue),
        httparse::Error::NewLine => Refusal::of(Reason::BareCr),
        _ if text.starts_with(&TLS_HANDSHAKE) => Refusal::of(Reason::UnexpectedTls),
        _ => Refusal::of(Reason::BadRequestLine),
    }
}

/// Whether a request line ends in ` HTTP/n.n`, but neither 1.0 nor 1.1.
fn ends_in_another_version(line: &[u8]) -> bool {
    matches!(
        line.last_chunk::<9>(),
        Some([b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor])
            if major.is_ascii_digit()
                && minor.is_ascii_digit()
                && !matches!((major, minor), (b'1', b'0' | b'1'))
    )
}

/// Checks the bytes between the parts that httparse reported: single spaces in the request line,
/// CRLF at the end of each line, nothing between name and colon, no folding.
fn check_separators(text: &[u8], request: &httparse::Request<'_, '_>) -> Result<(), Refusal> {
    let method = request.method.unwrap_or_default().len();
    let path = request.path.unwrap_or_default().len();
    let rest = text
        .get(method + 1 + path..)
        .filter(|_| text.get(method) == Some(&b' '))
        .and_then(|rest| {
            rest.strip_prefix(b" HTTP/1.1\r\n")
                .or_else(|| rest.strip_prefix(b" HTTP/1.0\r\n"))
        })
        .ok_or(Refusal::of(Reason::BadRequestLine))?;
    check_lines(rest, request.headers).map_err(Refusal::of)
}

/// Checks that `text` consists of exactly these header lines and the empty line after them.
fn check_lines(text: &[u8], lines: &[Header<'_>]) -> Result<(), Reason> {
    let mut rest = text;
    for line in lines {
        rest = after(rest, line.name.as_bytes())
            .and_then(|rest| rest.strip_prefix(b":"))
            .ok_or(Reason::BadFieldLine)?;
        rest = after(skip_whitespace(rest), line.value).ok_or(Reason::BadFieldLine)?;
        rest = skip_whitespace(rest)
            .strip_prefix(b"\r\n")
            .ok_or(Reason::BareLf)?;
    }
    match rest {
        b"\r\n" => Ok(()),
        _ => Err(Reason::BareLf),
    }
}

/// Returns the rest of `text` after `part`, if `part` is the memory at the start of `text`. Equal
/// bytes elsewhere do not count.
#[inline]
fn after<'a>(text: &'a [u8], part: &[u8]) -> Option<&'a [u8]> {
    (part.is_empty() || std::ptr::eq(text.as_ptr(), part.as_ptr()))
        .then(|| text.get(part.len()..))
        .flatten()
}

#[inline]
fn skip_whitespace(text: &[u8]) -> &[u8] {
    let n = text
        .iter()
        .take_while(|&&b| b == b' ' || b == b'\t')
        .count();
    &text[n..]
}

/// Interprets the request line and the headers.
fn interpret(request: &httparse::Request<'_, '_>, limits: &Limits) -> Result<Parsed, Refusal> {
    let mut pooled = Head::new();
    let head: &mut HeadParts = &mut pooled;
    let mut framing_headers = FramingHeaders::default();
    for line in request.headers.iter() {
        framing_headers.add(line.name.as_bytes(), line.value);
        head.fields.append_bytes(line.name.as_bytes(), line.value);
    }
    head.version = match request.version {
        Some(0) => Version::Http10,
        _ => Version::Http11,
    };
    head.method = Method::from_token(request.method.unwrap_or_default());
    let framing = framing_headers.framing(head.version)?;
    check_declared(framing.length().unwrap_or(0), limits.body)?;
    if head.method == Method::Connect {
        return Err(Refusal::of(Reason::Connect));
    }
    if head.method == Method::Trace && framing != Framing::None {
        return Err(Refusal::of(Reason::TraceWithBody));
    }
    let expects_continue =
        framing_headers.expects_continue(head.version)? && framing != Framing::None;
    let target_scheme = locate(head, request.path.unwrap_or_default(), &framing_headers)?;
    head.wants_tunnel = head.version == Version::Http11
        && framing_headers.upgrade
        && framing_headers.connection_upgrade
        && framing == Framing::None;
    Ok(Parsed {
        length: 0,
        framing,
        keep_alive: !framing_headers.close
            && (head.version == Version::Http11 || framing_headers.keep_alive),
        expects_continue,
        takes_trailers: framing_headers.takes_trailers,
        target_scheme,
        head: pooled,
    })
}

thread_local! {
    /// The last Host that was checked on this worker, as received and in canonical form. Many
    /// consecutive requests name the same host.
    static LAST_HOST: RefCell<Option<(Vec<u8>, String)>> = const { RefCell::new(None) };
}

#[inline]
fn check_host(host: &[u8], out: &mut String) -> Result<(), Refusal> {
    LAST_HOST.with_borrow_mut(|last| {
        if let Some((raw, canonical)) = last
            && raw == host
        {
            out.push_str(canonical);
            return Ok(());
        }
        // The cached host is taken out first, so that nothing of a refused host is kept.
        let (mut raw, mut canonical) = last.take().unwrap_or_default();
        raw.clear();
        canonical.clear();
        target::host(host, &mut canonical).map_err(|e| Refusal::of(e.reason()))?;
        raw.extend_from_slice(host);
        out.push_str(&canonical);
        *last = Some((raw, canonical));
        Ok(())
    })
}

/// Sets target and authority in their canonical form (RFC 9112 3.2, 3.3). Returns the scheme of a target
/// in absolute form.
fn locate(
    head: &mut HeadParts,
    path: &str,
    framing_headers: &FramingHeaders<'_>,
) -> Result<Option<Scheme>, Refusal> {
    let (lines, host) = (framing_headers.hosts, framing_headers.host);
    let host = target::only_host(lines, host, head.version).map_err(Refusal::of)?;
    if let Some(host) = host {
        check_host(host, &mut head.authority)?;
    }
    let form = target::canonical(&head.method, path.as_bytes(), &mut head.target)
        .map_err(|e| Refusal::of(e.reason()))?;
    if head.target != path {
        head.received_target = Some(path.into());
    }
    let target::Form::Absolute { scheme, authority } = form else {
        return Ok(None);
    };
    let mut host = String::new();
    target::host(authority, &mut host).map_err(|e| Refusal::of(e.reason()))?;
    if host != head.authority {
        // The host of a URI replaces Host (RFC 9112 3.2.2), also for rules that read headers.
        head.fields.set("host", &host);
        head.authority = host;
    }
    Ok(Some(scheme))
}

/// Returns the request line of a head that was refused, for the log, and its parts. These are empty
/// if the line contains anything but visible ASCII and spaces.
pub fn refused_request(input: &[u8]) -> RefusedRequest<'_> {
    const SHOWN_MAX: usize = 1024;
    let input = input.strip_prefix(b"\r\n").unwrap_or(input);
    let end = memchr::memchr2(b'\r', b'\n', input).unwrap_or(input.len());
    let line = &input[..end.min(SHOWN_MAX)];
    let visible = line.iter().all(|b| matches!(b, b' '..=b'~'));
    let text = std::str::from_utf8(line).unwrap_or_default();
    let mut words = text.split(' ').filter(|_| visible);
    RefusedRequest {
        method: words.next().unwrap_or_default(),
        target: words.next().unwrap_or_default(),
        version: match words.next() {
            Some("HTTP/1.1") => Version::Http11.as_str(),
            Some("HTTP/1.0") => Version::Http10.as_str(),
            _ => "",
        },
        line,
    }
}

/// Parses a trailer section: header lines, and the empty line at the end.
pub fn parse_trailers(text: &[u8]) -> Result<Fields, &'static str> {
    let mut lines = [httparse::EMPTY_HEADER; LINES_MAX];
    let Ok(Status::Complete((length, lines))) = httparse::parse_headers(text, &mut lines) else {
        return Err("bad trailers");
    };
    check_lines(&text[..length], lines).map_err(Reason::text)?;
    let mut fields = Fields::new();
    for line in lines {
        if trailers::is_barred(line.name.as_bytes()) {
            return Err("framing header in trailers");
        }
        fields.append_bytes(line.name.as_bytes(), line.value);
    }
    Ok(fields)
}

/// Checks for the fuzzer that an accepted head has only one meaning: it ends at its first empty
/// line and nowhere else, and each of its bytes belongs to the request line or to a header line.
#[cfg(any(test, feature = "test-rigs"))]
pub fn exercise(input: &[u8]) {
    let limits = Limits {
        request_line: 8 << 10,
        headers: 32 << 10,
        body: 0,
    };
    let Ok(Some(parsed)) = parse(input, &limits) else {
        return;
    };
    let head = &input[..parsed.length];
    let text = head.strip_prefix(b"\r\n").unwrap_or(head);
    assert_eq!(
        memchr::memmem::find(text, b"\r\n\r\n"),
        Some(text.len() - 4)
    );
    assert_eq!(
        memchr::memchr_iter(b'\n', text).count(),
        parsed.head.fields.len() + 2,
        "a malformed header line"
    );
    assert!(!text.contains(&0));
    assert!(parsed.head.target.starts_with('/') || parsed.head.target == "*");
    let framed = ["content-length", "transfer-encoding"]
        .map(|name| parsed.head.fields.get_all(name).count());
    assert!(framed[0] + framed[1] <= 1, "framed twice");
    // The result must not depend on whether bytes follow the head.
    let alone = parse(head, &limits);
    assert!(matches!(alone, Ok(Some(again)) if again.length == parsed.length));
    for cut in [parsed.length / 2, parsed.length - 1] {
        let partial = parse(&input[..cut], &limits);
        assert!(matches!(partial, Ok(None)), "complete before its end");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        request_line: 8 << 10,
        headers: 32 << 10,
        body: 0,
    };

    #[test]
    fn a_refused_host_is_not_remembered() {
        for refused in ["evil.example:99999", "evil.example:1:2", "evil.example@"] {
            let head = format!("GET / HTTP/1.1\r\nHost: {refused}\r\n\r\n");
            let parsed = parse(head.as_bytes(), &LIMITS);
            assert!(matches!(parsed, Err(refusal) if refusal.status == 400));
            let empty = b"GET / HTTP/1.0\r\nHost:\r\n\r\n";
            let parsed = parse(empty, &LIMITS);
            assert!(matches!(parsed, Ok(Some(parsed)) if parsed.head.authority.is_empty()));
        }
    }

    #[test]
    fn names_that_some_servers_read_as_framing_are_refused() {
        for name in [
            "Content_Length",
            "content_length",
            "Transfer_Encoding",
            "TRANSFER_ENCODING",
        ] {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\n{name}: 3\r\n\r\n");
            let parsed = parse(head.as_bytes(), &LIMITS);
            assert!(
                matches!(parsed, Err(refusal) if refusal == Refusal::of(Reason::FieldMimicsFraming)),
                "{name}"
            );
            assert!(parse_trailers(format!("{name}: 3\r\n\r\n").as_bytes()).is_err());
        }
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nContent_Lengths: 3\r\nx_y: z\r\n\r\n";
        assert!(matches!(parse(head, &LIMITS), Ok(Some(_))));
    }

    #[test]
    fn tls_on_a_port_without_it_has_a_reason_of_its_own() {
        for (input, reason) in [
            (
                &b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"[..],
                Reason::UnexpectedTls,
            ),
            (b"\x16\x03\x03\0\x04a\n\nb", Reason::UnexpectedTls),
            (b"\x16\x02 / HTTP/1.1\r\n\r\n", Reason::BadRequestLine),
        ] {
            let parsed = parse(input, &LIMITS);
            assert!(
                matches!(parsed, Err(refusal) if refusal == Refusal::of(reason)),
                "{input:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn an_accepted_head_has_one_meaning(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just("GET / HTTP/1.1\r\n"), Just("Host: a\r\n"), Just("\r\n"), Just("\n"),
                    Just("\r"), Just(" "), Just("X: y\r\n"), Just("X: y\n"), Just("Content-Length: 1\r\n"),
                    Just("Transfer-Encoding: chunked\r\n"), Just("\t"), Just("GET /"), Just("\0"),
                ],
                0..12,
            )
        ) {
            exercise(pieces.concat().as_bytes());
            exercise(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", pieces.concat()).as_bytes());
        }
    }
}
