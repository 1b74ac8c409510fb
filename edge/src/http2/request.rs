//! Collects and checks the header section of a request (RFC 9113 8.2, 8.3.1, 8.5; RFC 8441).

use super::hpack::Field;
use super::malformed::{Malformed, check, check_regular, take_length};
use super::priority::Priority;
use crate::http::key::without_default_port;
use crate::http::{Fields, Method, Scheme, target};

/// The expectation of a request (RFC 9110 10.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expectation {
    /// None.
    #[default]
    None,
    /// `100-continue`.
    Continue,
    /// Anything else, which is refused with 417.
    Unknown,
}

/// The header section of a request. The memory is reused for the next one.
#[derive(Debug, Default)]
pub struct Request {
    /// The method. Always there in a checked request.
    pub method: Option<Method>,
    /// The scheme; `None` if it is neither http nor https, or for CONNECT without `:protocol`.
    pub scheme: Option<Scheme>,
    /// Whether there is a scheme, of any kind.
    pub has_scheme: bool,
    /// Path and query as received: begins with `/`, or is `*` with OPTIONS. Empty for CONNECT without `:protocol`.
    pub path: Vec<u8>,
    /// The authority as received: from `:authority`, otherwise from Host.
    pub authority: Vec<u8>,
    /// The protocol of an extended CONNECT (RFC 8441 4). Empty if there is none.
    pub protocol: Vec<u8>,
    /// The other fields, in order. The first one is always Host, with the value of `authority`, unless that is empty.
    /// Several lines of Cookie are joined to one (RFC 9113 8.2.3), which comes last.
    pub fields: Fields,
    /// The length of the content, if it is declared.
    pub content_length: Option<u64>,
    /// The expectation.
    pub expectation: Expectation,
    /// Whether the client accepts trailers (RFC 9110 10.1.4).
    pub takes_trailers: bool,
    /// The priority in the Priority field (RFC 9218 5); its last line counts.
    pub priority: Priority,
    cookie: Vec<u8>,
    seen: u8,
    has_authority: bool,
    has_host: bool,
    is_regular: bool,
    malformed: Option<Malformed>,
}

const METHOD: u8 = 1;
const SCHEME: u8 = 2;
const PATH: u8 = 4;
const AUTHORITY: u8 = 8;
const PROTOCOL: u8 = 16;

impl Request {
    /// Makes this an empty request, and keeps the memory.
    pub fn clear(&mut self) {
        let mut old = std::mem::take(self);
        for bytes in [
            &mut old.path,
            &mut old.authority,
            &mut old.protocol,
            &mut old.cookie,
        ] {
            bytes.clear();
        }
        old.fields.clear();
        *self = Request {
            path: old.path,
            authority: old.authority,
            protocol: old.protocol,
            cookie: old.cookie,
            fields: old.fields,
            ..Request::default()
        };
    }

    /// Adds a field. After a malformed one, further fields are ignored.
    #[inline]
    pub fn add(&mut self, field: &Field<'_>) {
        if self.malformed.is_none() {
            self.malformed = self.take(field).err();
        }
    }

    fn take(&mut self, field: &Field<'_>) -> Result<(), Malformed> {
        check(field)?;
        match field.name.first() {
            Some(b':') => self.take_pseudo(field.name, field.value),
            _ => self.take_regular(field.name, field.value),
        }
    }

    fn take_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        let flag = match name {
            b":method" => METHOD,
            b":scheme" => SCHEME,
            b":path" => PATH,
            b":authority" => AUTHORITY,
            b":protocol" => PROTOCOL,
            _ => return Err(Malformed::UnknownPseudo),
        };
        if self.is_regular {
            return Err(Malformed::LatePseudo);
        }
        if self.seen & flag != 0 {
            return Err(Malformed::RepeatedPseudo);
        }
        self.seen |= flag;
        match flag {
            METHOD => self.method = Some(method(value)?),
            SCHEME => {
                self.has_scheme = true;
                self.scheme = scheme(value)?;
            }
            PATH => self.path.extend_from_slice(value),
            AUTHORITY => self.take_authority(value),
            _ if super::field::is_valid_name(value) => self.protocol.extend_from_slice(value),
            _ => return Err(Malformed::PseudoValue),
        }
        Ok(())
    }

    fn take_authority(&mut self, value: &[u8]) {
        self.has_authority = true;
        self.authority.extend_from_slice(value);
        if !value.is_empty() {
            self.fields.append_bytes(b"host", value);
        }
    }

    fn take_regular(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        self.is_regular = true;
        check_regular(name, value)?;
        match name {
            b"host" => return self.take_host(value),
            // An empty line would leave a separator at the end of the joined one.
            b"cookie" if value.is_empty() => return Ok(()),
            b"cookie" => {
                if !self.cookie.is_empty() {
                    self.cookie.extend_from_slice(b"; ");
                }
                self.cookie.extend_from_slice(value);
                return Ok(());
            }
            b"content-length" => take_length(&mut self.content_length, value)?,
            b"te" => self.takes_trailers = true,
            b"priority" => self.priority = Priority::parse(value),
            b"expect" => {
                let is_known = value.eq_ignore_ascii_case(b"100-continue");
                self.expectation = match self.expectation {
                    Expectation::Unknown => Expectation::Unknown,
                    _ if is_known => Expectation::Continue,
                    _ => Expectation::Unknown,
                };
            }
            _ => {}
        }
        self.fields.append_bytes(name, value);
        Ok(())
    }

    /// Takes Host, which is stored only if there is no `:authority`.
    fn take_host(&mut self, value: &[u8]) -> Result<(), Malformed> {
        if self.has_host {
            return Err(Malformed::Host);
        }
        self.has_host = true;
        if self.has_authority && !self.authority.is_empty() {
            return match same_host(self.scheme, &self.authority, value) {
                true => Ok(()),
                false => Err(Malformed::Host),
            };
        }
        self.authority.extend_from_slice(value);
        if !value.is_empty() {
            let others = std::mem::take(&mut self.fields);
            self.fields.append_bytes(b"host", value);
            for (name, value) in others.iter() {
                self.fields.append_bytes(name, value);
            }
        }
        Ok(())
    }

    /// Checks the request as a whole, after its last field. `extended`: this side has announced that it supports
    /// extended CONNECT (RFC 8441 3).
    ///
    /// # Errors
    ///
    /// The request is malformed, so its stream is reset and no handler sees it.
    pub fn finish(&mut self, extended: bool) -> Result<(), Malformed> {
        if let Some(malformed) = self.malformed {
            return Err(malformed);
        }
        if self.seen & PROTOCOL != 0 && !extended {
            return Err(Malformed::UnknownPseudo);
        }
        let needed = match (&self.method, self.seen & PROTOCOL != 0) {
            (Some(Method::Connect), false) => METHOD | AUTHORITY,
            (Some(Method::Connect), true) => METHOD | AUTHORITY | SCHEME | PATH | PROTOCOL,
            (_, false) => METHOD | SCHEME | PATH,
            (_, true) => return Err(Malformed::MissingPseudo),
        };
        let is_plain_connect = needed & PATH == 0;
        if self.seen & needed != needed || (is_plain_connect && self.seen != needed) {
            return Err(Malformed::MissingPseudo);
        }
        if !is_plain_connect {
            self.check_path()?;
        }
        // An http or https URI has a host (RFC 9110 4.2) and no user information in HTTP/2 (RFC 9113 8.3.1).
        if self.authority.is_empty() {
            return Err(Malformed::Host);
        }
        if self.authority.contains(&b'@') {
            return Err(Malformed::PseudoValue);
        }
        if !self.cookie.is_empty() {
            self.fields.append_bytes(b"cookie", &self.cookie);
        }
        Ok(())
    }

    fn check_path(&self) -> Result<(), Malformed> {
        match &*self.path {
            [b'/', ..] => Ok(()),
            b"*" if self.method == Some(Method::Options) => Ok(()),
            _ => Err(Malformed::PseudoValue),
        }
    }
}

fn method(value: &[u8]) -> Result<Method, Malformed> {
    match std::str::from_utf8(value) {
        Ok(token) if crate::http::fields::is_token(value) => Ok(Method::from_token(token)),
        _ => Err(Malformed::PseudoValue),
    }
}

/// Parses a scheme (RFC 3986 3.1). Schemes other than http and https are valid, but no handler knows them.
fn scheme(value: &[u8]) -> Result<Option<Scheme>, Malformed> {
    let is_valid = value.first().is_some_and(u8::is_ascii_alphabetic)
        && value
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(b));
    match is_valid {
        false => Err(Malformed::PseudoValue),
        true if value.eq_ignore_ascii_case(b"https") => Ok(Some(Scheme::Https)),
        true if value.eq_ignore_ascii_case(b"http") => Ok(Some(Scheme::Http)),
        true => Ok(None),
    }
}

/// Whether `:authority` and Host name the same host and port.
fn same_host(scheme: Option<Scheme>, authority: &[u8], host: &[u8]) -> bool {
    if authority == host {
        return true;
    }
    let canonical = |raw: &[u8]| {
        let mut name = String::new();
        target::host(raw, &mut name).ok()?;
        let length = scheme.map(|scheme| without_default_port(scheme, &name).len());
        name.truncate(length.unwrap_or(name.len()));
        Some(name)
    };
    let (authority, host) = (canonical(authority), canonical(host));
    authority.is_some() && authority == host
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http2::field;

    fn collect(lines: &[(&str, &str)], extended: bool) -> Result<Request, Malformed> {
        let mut request = Request::default();
        for _ in 0..2 {
            // The second time, memory and values of the first one are there.
            request.clear();
            for (name, value) in lines {
                request.add(&Field {
                    name: name.as_bytes(),
                    value: value.as_bytes(),
                    is_valid: field::is_valid(name.as_bytes(), value.as_bytes()),
                    never_indexed: false,
                });
            }
        }
        request.finish(extended).map(|()| request)
    }

    const GET: [(&str, &str); 4] = [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/a?b"),
        (":authority", "a.example"),
    ];

    /// Returns GET with further lines.
    fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        [&GET[..], more].concat()
    }

    /// Returns GET with another value of a pseudo-header.
    fn replaced<'a>(name: &str, value: &'a str) -> Vec<(&'a str, &'a str)> {
        let line = |line: &(&'a str, &'a str)| {
            if line.0 == name {
                (line.0, value)
            } else {
                *line
            }
        };
        GET.iter().map(line).collect()
    }

    #[test]
    fn a_request_is_collected() {
        let request = collect(
            &with(&[
                ("cookie", "a=1"),
                ("te", "Trailers"),
                ("content-length", "7"),
                ("cookie", "b=2"),
                ("expect", "100-Continue"),
                ("priority", "u=1, i"),
                ("host", "A.example:443"),
                ("x", ""),
            ]),
            false,
        )
        .expect("a valid request");
        assert_eq!(request.method, Some(Method::Get));
        assert_eq!(request.scheme, Some(Scheme::Https));
        assert_eq!(
            (&*request.path, &*request.authority),
            (&b"/a?b"[..], &b"a.example"[..])
        );
        assert_eq!(
            request.fields.text(),
            b"host: a.example\r\nte: Trailers\r\ncontent-length: 7\r\nexpect: 100-Continue\r\n\
              priority: u=1, i\r\nx: \r\ncookie: a=1; b=2\r\n"
        );
        assert_eq!(request.content_length, Some(7));
        assert_eq!(request.expectation, Expectation::Continue);
        assert!(request.takes_trailers && request.priority.incremental);
        assert_eq!(request.priority.urgency, 1);
    }

    #[test]
    fn empty_cookies_leave_no_separator() {
        for (values, joined) in [
            (
                &["", "a", "", "b", ""][..],
                &b"host: a.example\r\ncookie: a; b\r\n"[..],
            ),
            (&["a", ""], b"host: a.example\r\ncookie: a\r\n"),
            (&[""], b"host: a.example\r\n"),
        ] {
            let cookies: Vec<_> = values.iter().map(|value| ("cookie", *value)).collect();
            let request = collect(&with(&cookies), false).expect("a valid request");
            assert_eq!(request.fields.text(), joined);
        }
    }

    #[test]
    fn host_stands_for_a_missing_authority() {
        let lines = [&GET[..3], &[("x", "y"), ("host", "h")]].concat();
        let request = collect(&lines, false).expect("a valid request");
        assert_eq!(request.authority, b"h");
        assert_eq!(request.fields.text(), b"host: h\r\nx: y\r\n");
        assert_eq!(collect(&GET[..3], false).err(), Some(Malformed::Host));
        let empty = [&GET[..3], &[(":authority", ""), ("host", "h")]].concat();
        assert!(collect(&empty, false).is_ok_and(|request| request.authority == b"h"));
    }

    #[test]
    fn malformed_pseudo_headers_are_refused() {
        for missing in 0..3 {
            let mut lines = GET.to_vec();
            lines.remove(missing);
            assert_eq!(collect(&lines, false).err(), Some(Malformed::MissingPseudo));
        }
        for (more, malformed) in [
            ((":path", "/b"), Malformed::RepeatedPseudo),
            ((":authority", "a.example"), Malformed::RepeatedPseudo),
            ((":status", "200"), Malformed::UnknownPseudo),
            ((":x", "y"), Malformed::UnknownPseudo),
            ((":protocol", "websocket"), Malformed::UnknownPseudo),
            ((":", ""), Malformed::Name),
            ((":Path", "/"), Malformed::Name),
        ] {
            assert_eq!(
                collect(&with(&[more]), false).err(),
                Some(malformed),
                "{more:?}"
            );
        }
        let late = [&GET[..3], &[("x", "y"), GET[3]]].concat();
        assert_eq!(collect(&late, false).err(), Some(Malformed::LatePseudo));
        for (name, value) in [
            (":path", ""),
            (":path", "a"),
            (":path", "*"),
            (":path", "https://a.example/"),
            (":method", ""),
            (":method", "G T"),
            (":scheme", ""),
            (":scheme", "1http"),
            (":authority", "user@a.example"),
        ] {
            let lines = replaced(name, value);
            assert_eq!(
                collect(&lines, false).err(),
                Some(Malformed::PseudoValue),
                "{name} {value}"
            );
        }
        assert!(
            collect(&replaced(":scheme", "ftp"), false)
                .is_ok_and(|r| r.scheme.is_none() && r.has_scheme)
        );
        let options = [(":method", "OPTIONS"), GET[1], (":path", "*"), GET[3]];
        assert!(collect(&options, false).is_ok());
    }

    #[test]
    fn malformed_fields_are_refused() {
        for (name, value, malformed) in [
            ("X", "y", Malformed::Name),
            ("a:b", "y", Malformed::Name),
            ("a b", "y", Malformed::Name),
            ("", "y", Malformed::Name),
            ("x", "a\r\nb: c", Malformed::Value),
            ("x", "a\0", Malformed::Value),
            ("x", " a", Malformed::Value),
            ("x", "a\t", Malformed::Value),
            ("connection", "close", Malformed::ConnectionSpecific),
            ("keep-alive", "5", Malformed::ConnectionSpecific),
            ("proxy-connection", "x", Malformed::ConnectionSpecific),
            (
                "transfer-encoding",
                "chunked",
                Malformed::ConnectionSpecific,
            ),
            ("upgrade", "h2c", Malformed::ConnectionSpecific),
            ("te", "trailers, gzip", Malformed::ConnectionSpecific),
            ("te", "", Malformed::ConnectionSpecific),
            ("transfer_encoding", "chunked", Malformed::MimicsFraming),
            ("content_length", "5", Malformed::MimicsFraming),
            ("content-length", "-1", Malformed::ContentLength),
            ("host", "b.example", Malformed::Host),
            ("host", "a.example:80", Malformed::Host),
            ("host", "a.example, b", Malformed::Host),
        ] {
            let found = collect(&with(&[(name, value)]), false).err();
            assert_eq!(found, Some(malformed), "{name}: {value}");
        }
        let twice = with(&[("content-length", "5"), ("content-length", "5")]);
        assert_eq!(collect(&twice, false).err(), Some(Malformed::ContentLength));
        let twice = with(&[("host", "a.example"), ("host", "a.example")]);
        assert_eq!(collect(&twice, false).err(), Some(Malformed::Host));
    }

    #[test]
    fn connect_has_only_an_authority_unless_it_is_extended() {
        let connect = [(":method", "CONNECT"), (":authority", "a:443")];
        assert!(collect(&connect, false).is_ok());
        let with_path = [&connect[..], &[(":path", "/")]].concat();
        assert_eq!(
            collect(&with_path, true).err(),
            Some(Malformed::MissingPseudo)
        );
        let extended = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/chat"),
            (":authority", "a"),
        ];
        assert!(collect(&extended, true).is_ok_and(|r| r.protocol == b"websocket"));
        assert_eq!(
            collect(&extended, false).err(),
            Some(Malformed::UnknownPseudo)
        );
        assert_eq!(
            collect(&extended[..4], true).err(),
            Some(Malformed::MissingPseudo)
        );
        let get = with(&[]);
        let get = [&get[..], &[(":protocol", "websocket")]].concat();
        assert_eq!(collect(&get, true).err(), Some(Malformed::MissingPseudo));
    }
}
