//! A log line given as a template: text with named fields in braces, checked once, written without
//! allocating.
//!
//! A value that a client can choose never contains the byte that follows its field, so that each
//! line can be parsed in only one way.

use std::io::Write;
use std::ops::Range;

use super::access_format::{
    Stamp, address, escape, escape_hex, number, server_address, status, three_digits,
};
use super::access_record::AccessRecord;
use crate::reason::Reason;

/// Longest template, in bytes.
const TEXT_MAX: usize = 4096;
/// Most fields in a template, and most request headers among them.
const FIELDS_MAX: usize = 64;
const REQUEST_FIELDS_MAX: usize = 16;

/// A template that was checked.
#[derive(Debug, PartialEq, Eq)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
    /// Names of the request headers among the fields, in lower case.
    request_headers: Vec<Box<str>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(Box<[u8]>),
    /// A field, and the byte that follows it in the template.
    Field(Field, u8),
}

/// An error in a template, and its position in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// Position in the text, in bytes.
    pub at: Range<usize>,
    /// Kind of the error.
    pub fault: TemplateFault,
}

/// The kind of an error in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateFault {
    /// No field has this name.
    Unknown(String),
    /// The text after `request.` is not a valid header name (RFC 9110 5.1).
    NoFieldName(String),
    /// A `{` without `}`, or a `}` without `{`.
    Brace,
    /// A character other than visible ASCII, space or tab.
    Character,
    /// Two fields without text between them.
    Adjacent,
    /// A letter, a digit, `-`, `.` or a backslash directly after a field whose value a client can
    /// choose.
    Ending,
    /// The template is too long, or has too many fields.
    TooMuch,
    /// The template has no field.
    NoField,
}

macro_rules! fields {
    ($($name:literal => $field:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Field { $($field,)* Request(usize) }

        /// Names of all fields, except those of request headers, which are written `request.NAME`.
        pub const FIELD_NAMES: &[&str] = &[$($name),*];

        fn field_of(name: &str) -> Option<Field> {
            match name {
                $($name => Some(Field::$field),)*
                _ => None,
            }
        }
    };
}

fields! {
    "request_id" => RequestId,
    "upstream_request_id" => UpstreamRequestId,
    "trace_id" => TraceId,
    "span_id" => SpanId,
    "client" => Client,
    "peer" => Peer,
    "port" => Port,
    "scheme" => Scheme,
    "tls" => Tls,
    "cipher" => Cipher,
    "group" => Group,
    "resumed" => Resumed,
    "client_subject" => ClientSubject,
    "client_fingerprint" => ClientFingerprint,
    "time_iso" => TimeIso,
    "time_common" => TimeCommon,
    "time_unix" => TimeUnix,
    "method" => Method,
    "host" => Host,
    "target" => Target,
    "path" => Path,
    "query" => Query,
    "version" => Version,
    "status" => Status,
    "bytes" => Bytes,
    "referer" => Referer,
    "user_agent" => UserAgent,
    "range" => Range,
    "cache" => Cache,
    "reason" => Reason,
    "cut" => Cut,
    "request_us" => RequestUs,
    "request_time" => RequestTime,
    "upstream" => Upstream,
    "upstream_status" => UpstreamStatus,
    "tries" => Tries,
    "connect_us" => ConnectUs,
    "connect_time" => ConnectTime,
    "header_us" => HeaderUs,
    "header_time" => HeaderTime,
    "response_us" => ResponseUs,
    "response_time" => ResponseTime,
    "redirects" => Redirects,
}

impl Field {
    /// Whether a client can choose the field's value.
    fn is_foreign(self) -> bool {
        matches!(
            self,
            Field::Method
                | Field::ClientSubject
                | Field::Host
                | Field::Target
                | Field::Path
                | Field::Query
                | Field::Referer
                | Field::UserAgent
                | Field::Range
                | Field::RequestId
                | Field::Request(_)
        )
    }
}

impl Template {
    /// Parses a template: `{name}` is a field, `{{` and `}}` are literal braces.
    ///
    /// # Errors
    ///
    /// The first error in the text.
    pub fn parse(text: &str) -> Result<Template, TemplateError> {
        let fail = |at: Range<usize>, fault| Err(TemplateError { at, fault });
        if text.len() > TEXT_MAX {
            return fail(0..text.len(), TemplateFault::TooMuch);
        }
        let mut template = Template {
            text: text.to_owned(),
            pieces: Vec::new(),
            request_headers: Vec::new(),
        };
        let (mut plain, mut at, mut count) = (Vec::new(), 0, 0);
        // Position at which the text after the last field begins.
        let mut after = 0;
        let bytes = text.as_bytes();
        while let Some(&byte) = bytes.get(at) {
            match (byte, bytes.get(at + 1)) {
                (b'{' | b'}', Some(&next)) if next == byte => {
                    plain.push(byte);
                    at += 2;
                }
                (b'{', _) => {
                    let Some(length) = text[at..].find('}') else {
                        return fail(at..text.len(), TemplateFault::Brace);
                    };
                    let place = at..at + length + 1;
                    count += 1;
                    if count > FIELDS_MAX {
                        return fail(place, TemplateFault::TooMuch);
                    }
                    let field = template
                        .field(&text[place.start + 1..place.end - 1])
                        .map_err(|fault| TemplateError {
                            at: place.clone(),
                            fault,
                        })?;
                    if after > 0 && plain.is_empty() {
                        return fail(place, TemplateFault::Adjacent);
                    }
                    template.end(std::mem::take(&mut plain), after)?;
                    template.pieces.push(Piece::Field(field, b'\n'));
                    (at, after) = (place.end, place.end);
                }
                (b'}', _) => return fail(at..at + 1, TemplateFault::Brace),
                (b' '..=b'~' | b'\t', _) => {
                    plain.push(byte);
                    at += 1;
                }
                _ => {
                    let length = text[at..].chars().next().map_or(1, char::len_utf8);
                    return fail(at..at + length, TemplateFault::Character);
                }
            }
        }
        if count == 0 {
            return fail(0..text.len(), TemplateFault::NoField);
        }
        plain.push(b'\n');
        template.end(plain, after)?;
        Ok(template)
    }

    /// Returns the template as written in the configuration.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the names of the request headers whose values `AccessRecord::request_headers` must
    /// have, in this order.
    pub fn request_headers(&self) -> &[Box<str>] {
        &self.request_headers
    }

    fn field(&mut self, name: &str) -> Result<Field, TemplateFault> {
        if let Some(field) = field_of(name) {
            return Ok(field);
        }
        let Some(wanted) = name.strip_prefix("request.") else {
            return Err(TemplateFault::Unknown(name.to_owned()));
        };
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if wanted.is_empty() || !wanted.bytes().all(is_token) {
            return Err(TemplateFault::NoFieldName(wanted.to_owned()));
        }
        let wanted = wanted.to_ascii_lowercase();
        let known = self.request_headers.iter().position(|n| **n == *wanted);
        let index = known.unwrap_or_else(|| {
            self.request_headers.push(wanted.into());
            self.request_headers.len() - 1
        });
        match index < REQUEST_FIELDS_MAX {
            true => Ok(Field::Request(index)),
            false => Err(TemplateFault::TooMuch),
        }
    }

    /// Appends text. Its first byte ends the value of the field before it.
    fn end(&mut self, text: Vec<u8>, at: usize) -> Result<(), TemplateError> {
        let Some(&first) = text.first() else {
            return Ok(());
        };
        if let Some(Piece::Field(field, end)) = self.pieces.last_mut() {
            *end = first;
            // A value itself may contain these bytes, so none of them can mark its end: letters,
            // digits and backslashes occur in escapes, `-` replaces an absent value, and `...` an
            // omitted rest.
            let is_written = first.is_ascii_alphanumeric() || matches!(first, b'\\' | b'-' | b'.');
            if field.is_foreign() && is_written {
                return Err(TemplateError {
                    at: at..at + 1,
                    fault: TemplateFault::Ending,
                });
            }
        }
        self.pieces.push(Piece::Text(text.into()));
        Ok(())
    }

    /// Writes the line of a record.
    pub(super) fn write(&self, out: &mut Vec<u8>, record: &AccessRecord<'_>, stamp: &mut Stamp) {
        stamp.set(record.time_unix_ms);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Field(field, end) if field.is_foreign() => {
                    match foreign(*field, record).filter(|value| !value.is_empty()) {
                        Some(value) => escape(out, value, *end, escape_hex),
                        None => out.push(b'-'),
                    }
                }
                Piece::Field(field, _) => own(out, *field, record, stamp),
            }
        }
    }
}

/// Returns the value of a field if a client can choose that value.
fn foreign<'a>(field: Field, record: &AccessRecord<'a>) -> Option<&'a [u8]> {
    let split = || match record.target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (record.target, None),
    };
    match field {
        Field::Method => Some(record.method.as_bytes()),
        Field::ClientSubject => certificate(record).map(|(subject, _)| subject.as_bytes()),
        Field::Host => Some(record.authority.as_bytes()),
        Field::Target => Some(record.target.as_bytes()),
        Field::Path => Some(split().0.as_bytes()),
        Field::Query => split().1.map(str::as_bytes),
        Field::RequestId => record.request_id.map(str::as_bytes),
        Field::Referer => record.referer,
        Field::UserAgent => record.user_agent,
        Field::Range => record.range,
        Field::Request(index) => record.request_headers.get(index).copied().flatten(),
        _ => None,
    }
}

/// Returns subject and fingerprint of the client's certificate.
fn certificate<'a>(record: &AccessRecord<'a>) -> Option<(&'a str, &'a str)> {
    record.tls.and_then(|tls| tls.certificate)
}

/// Writes a field whose value no client can choose.
fn own(out: &mut Vec<u8>, field: Field, record: &AccessRecord<'_>, stamp: &Stamp) {
    let upstream = record.upstream.as_ref();
    match field {
        Field::UpstreamRequestId => text(out, record.upstream_request_id),
        Field::TraceId => text(out, record.trace.map(|(id, _)| id)),
        Field::SpanId => text(out, record.trace.map(|(_, id)| id)),
        Field::Client => address(out, record.client),
        Field::Peer => address(out, record.peer.ip()),
        Field::Port => number(out, u64::from(record.peer.port())),
        Field::Scheme => text(out, Some(record.scheme)),
        Field::Tls => text(out, record.tls.map(|tls| tls.version)),
        Field::Cipher => text(out, record.tls.map(|tls| tls.cipher)),
        Field::Group => text(out, record.tls.and_then(|tls| tls.group)),
        Field::Resumed => text(
            out,
            record.tls.and_then(|tls| tls.resumed.then_some("resumed")),
        ),
        Field::ClientFingerprint => text(out, certificate(record).map(|(_, hash)| hash)),
        Field::TimeIso => stamp.write_iso(out, record.time_unix_ms),
        Field::TimeCommon => out.extend_from_slice(&stamp.combined),
        Field::TimeUnix => {
            number(out, record.time_unix_ms / 1000);
            out.push(b'.');
            three_digits(out, (record.time_unix_ms % 1000) as u16);
        }
        Field::Version => text(out, Some(record.version)),
        Field::Status => status(out, record.status),
        Field::Bytes => number(out, record.body_bytes),
        Field::Cache => text(out, record.cache),
        Field::Reason => text(out, record.reason.map(Reason::text)),
        Field::Cut => text(out, record.cut.then_some("cut")),
        Field::RequestUs => number(out, record.request_us),
        Field::RequestTime => seconds(out, Some(record.request_us)),
        Field::Upstream => match upstream.and_then(|upstream| upstream.server) {
            Some(server) => server_address(out, server),
            None => out.push(b'-'),
        },
        Field::UpstreamStatus => optional(out, upstream.and_then(|u| u.status).map(u64::from)),
        Field::Tries => optional(out, upstream.map(|u| u.tries.into())),
        Field::ConnectUs => optional(out, upstream.map(|u| u.connect_us)),
        Field::ConnectTime => seconds(out, upstream.map(|u| u.connect_us)),
        Field::HeaderUs => optional(out, upstream.and_then(|u| u.header_us)),
        Field::HeaderTime => seconds(out, upstream.and_then(|u| u.header_us)),
        Field::ResponseUs => optional(out, upstream.and_then(|u| u.response_us)),
        Field::ResponseTime => seconds(out, upstream.and_then(|u| u.response_us)),
        Field::Redirects => optional(out, upstream.map(|u| u.redirects.into())),
        _ => out.push(b'-'),
    }
}

fn text(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) if !text.is_empty() => out.extend_from_slice(text.as_bytes()),
        _ => out.push(b'-'),
    }
}

fn optional(out: &mut Vec<u8>, value: Option<u64>) {
    match value {
        Some(value) => number(out, value),
        None => out.push(b'-'),
    }
}

/// Writes seconds with three decimals, as nginx does.
fn seconds(out: &mut Vec<u8>, us: Option<u64>) {
    match us {
        // Writing to a Vec can't fail.
        Some(us) => _ = write!(out, "{}.{:03}", us / 1_000_000, us / 1000 % 1000),
        None => out.push(b'-'),
    }
}

#[cfg(test)]
mod tests;
