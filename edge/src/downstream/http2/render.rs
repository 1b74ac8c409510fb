//! Renders heads of responses and trailers as header blocks.

use crate::downstream::exchange::Extent;
use crate::handler::Response;
use crate::http::{FieldBlock, Fields, Status};
use crate::http2::hpack::{Encoder, Indexing, append_independent};
use crate::http2::malformed::is_connection_specific;

use super::stored_heads;

/// Appends the fields of a final response; `date` is the value of a Date header.
pub fn head(
    encoder: &mut Encoder,
    out: &mut Vec<u8>,
    response: &Response,
    extent: Extent,
    date: &[u8],
) {
    encoder.status(out, response.status);
    stored_heads::append(out, &response.stored, |out| block(out, &response.stored));
    fields(out, &response.fields);
    if !response.stored.has_date() && !response.fields.contains("date") {
        encoder.field(out, b"date", date, Indexing::Field);
    }
    if let Some(age) = response.age_s {
        number(out, b"age", u64::from(age));
    }
    if let Some(cache) = &response.cache {
        let mut value = Vec::new();
        cache.render(&mut value);
        encoder.field(out, b"cache-status", &value, Indexing::Name);
    }
    if let Some(length) = declared_length(response, extent) {
        number(out, b"content-length", length);
    }
}

/// Appends the fields of a 1xx response.
pub fn interim(encoder: &mut Encoder, out: &mut Vec<u8>, status: Status, lines: &FieldBlock) {
    encoder.status(out, status);
    block(out, lines);
}

/// Appends trailers.
pub fn trailers(out: &mut Vec<u8>, lines: &Fields) {
    fields(out, lines);
}

/// Returns the value of Content-Length.
fn declared_length(response: &Response, extent: Extent) -> Option<u64> {
    match (extent, response.status) {
        (Extent::Exactly(length), _) => Some(length),
        (Extent::Unknown, _) | (Extent::None, 100..=199 | 204) => None,
        // The declared length is that of the response to a GET, if it is known (RFC 9110 8.6).
        (Extent::None, _) if response.body.is_empty() => response.length,
        (Extent::None, _) => response.declared_length(),
    }
}

fn block(out: &mut Vec<u8>, lines: &FieldBlock) {
    for line in lines.lines() {
        field(out, line.lower_name, line.value);
    }
}

fn fields(out: &mut Vec<u8>, lines: &Fields) {
    for (name, value) in lines.iter() {
        match name.iter().any(u8::is_ascii_uppercase) {
            true => field(out, &name.to_ascii_lowercase(), value),
            false => field(out, name, value),
        }
    }
}

/// Appends a field, unless it belongs to a connection of HTTP/1.1 (RFC 9113 8.2.2).
fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if is_connection_specific(name) {
        return;
    }
    let indexing = match name {
        b"set-cookie" => Indexing::Never,
        _ => Indexing::Without,
    };
    append_independent(out, name, value, indexing);
}

fn number(out: &mut Vec<u8>, name: &[u8], value: u64) {
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(value).as_bytes();
    append_independent(out, name, digits, Indexing::Without);
}
