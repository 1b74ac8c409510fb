//! Header lines of compressed content: which content may be compressed, and how its headers change.

use super::options::Options;
use crate::http::cache_control::ResponseDirectives;
use crate::http::coding::Coding;
use crate::http::conditional::EntityTag;
use crate::http::{FieldBlock, Fields};

/// Headers with digests of the uncompressed content (RFC 9530, RFC 3230, RFC 2616 14.15), which
/// don't match the compressed content.
const DIGESTS: [&[u8]; 4] = [b"content-md5", b"content-digest", b"digest", b"repr-digest"];

/// A short hash that distinguishes compressed forms of the same content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(u32);

impl Mark {
    /// Returns the mark for these compressed bytes.
    pub fn of(coded: &[u8]) -> Mark {
        let hash = blake3::hash(coded);
        let [a, b, c, d, ..] = *hash.as_bytes();
        Mark(u32::from_be_bytes([a, b, c, d]))
    }
}

/// Whether content of this length with these header lines may be compressed: its type is
/// configured, it has no Content-Encoding, the content is not a part of a representation, and no
/// header forbids it (RFC 9110 7.7, RFC 9111 5.2.2.6).
pub(super) fn is_eligible(options: &Options, length: Option<u64>, fields: &FieldBlock) -> bool {
    if length.is_some_and(|length| !options.sizes().contains(&length)) {
        return false;
    }
    let mut typed = false;
    for line in fields.lines() {
        let value = line.value;
        match line.lower_name {
            b"content-type" => match options.types.matches(value) {
                true => typed = true,
                false => return false,
            },
            b"content-range" => return false,
            b"cache-control" if ResponseDirectives::parse(value).no_transform => return false,
            b"content-encoding" if !value.eq_ignore_ascii_case(b"identity") => return false,
            _ => {}
        }
    }
    typed
}

/// Returns the value of ETag if it is a valid entity tag.
pub(super) fn etag(fields: &FieldBlock) -> Option<EntityTag<'_>> {
    let mut lines = fields.lines().filter(|line| line.lower_name == b"etag");
    let line = lines.next()?;
    EntityTag::parse(line.value).filter(|_| lines.next().is_none())
}

/// Returns these header lines with Accept-Encoding added to Vary (RFC 9110 12.5.5).
pub(super) fn varying(fields: &FieldBlock) -> FieldBlock {
    match says_varying(fields) {
        true => fields.clone(),
        false => FieldBlock::from(&with_vary(fields, |_| true)),
    }
}

/// Returns the header lines of compressed content and its ETag: the original ETag with the encoding
/// appended. A strong ETag also contains a hash of the compressed bytes, because another version or
/// level of the codec gives other bytes, which clients must not mix under one ETag (RFC 9110
/// 8.8.3.3).
pub(super) fn coded(
    fields: &FieldBlock,
    coding: Coding,
    mark: Mark,
) -> (FieldBlock, Option<Box<[u8]>>) {
    let etag = etag(fields).map(|tag| {
        let mut value = Vec::with_capacity(tag.opaque.len() + 24);
        if tag.weak {
            value.extend_from_slice(b"W/");
        }
        value.push(b'"');
        value.extend_from_slice(tag.opaque);
        value.push(b'-');
        value.extend_from_slice(coding.name().as_bytes());
        if !tag.weak {
            value.push(b'-');
            value.extend_from_slice(format!("{:08x}", mark.0).as_bytes());
        }
        value.push(b'"');
        value
    });
    let stays =
        |name: &[u8]| name != b"etag" && name != b"content-encoding" && !DIGESTS.contains(&name);
    let mut out = match says_varying(fields) {
        true => {
            let mut out = Fields::with_capacity(fields.text().len() + 64, fields.len() + 3);
            let lines = fields.lines().filter(|line| stays(line.lower_name));
            lines.for_each(|line| out.append_bytes(line.name, line.value));
            out
        }
        false => with_vary(fields, stays),
    };
    out.append("content-encoding", coding.name());
    if let Some(etag) = &etag {
        out.append("etag", etag);
    }
    (FieldBlock::from(&out), etag.map(Into::into))
}

/// Whether Vary already contains Accept-Encoding or `*`.
fn says_varying(fields: &FieldBlock) -> bool {
    fields
        .lines()
        .filter(|line| line.lower_name == b"vary")
        .flat_map(|line| line.value.split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .any(|member| member == b"*" || member.eq_ignore_ascii_case(b"accept-encoding"))
}

/// Returns the header lines for whose names `stays` holds. Accept-Encoding is added to the first
/// Vary, or in a new Vary if there is none.
fn with_vary(fields: &FieldBlock, stays: impl Fn(&[u8]) -> bool) -> Fields {
    let mut out = Fields::with_capacity(fields.text().len() + 64, fields.len() + 3);
    let mut said = false;
    for line in fields.lines().filter(|line| stays(line.lower_name)) {
        if !said && line.lower_name == b"vary" && !line.value.is_empty() {
            said = true;
            out.append_bytes(line.name, &[line.value, b", accept-encoding"].concat());
        } else {
            out.append_bytes(line.name, line.value);
        }
    }
    if !said {
        out.append("vary", "accept-encoding");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[(&str, &str)]) -> FieldBlock {
        lines.iter().copied().collect()
    }

    #[test]
    fn only_content_that_may_be_transformed_is_compressed() {
        let options = Options::default();
        let html = ("Content-Type", "text/html");
        let is = |length, lines: &[(&str, &str)]| is_eligible(&options, length, &text(lines));
        assert!(is(None, &[html]));
        assert!(is(Some(options.min), &[html]));
        assert!(!is(Some(options.min - 1), &[html]));
        assert!(!is(Some(options.max + 1), &[html]));
        assert!(!is(None, &[]));
        assert!(!is(None, &[("content-type", "image/png")]));
        assert!(!is(None, &[html, ("content-type", "image/png")]));
        for (name, value, expected) in [
            ("cache-control", "max-age=1, No-Transform", false),
            ("cache-control", "max-age=1", true),
            ("content-encoding", "gzip", false),
            ("content-encoding", "identity", true),
            ("content-range", "bytes 0-1/2", false),
            ("set-cookie", "a=b", true),
        ] {
            assert_eq!(
                is(None, &[html, (name, value)]),
                expected,
                "{name}: {value}"
            );
            assert_eq!(
                is(None, &[(name, value), html]),
                expected,
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn vary_is_added_once() {
        for (before, after) in [
            (&[][..], "vary: accept-encoding\r\n"),
            (
                &[("Vary", "Origin")][..],
                "Vary: Origin, accept-encoding\r\n",
            ),
            (
                &[("vary", "a, Accept-Encoding")],
                "vary: a, Accept-Encoding\r\n",
            ),
            (
                &[("vary", "a"), ("vary", "accept-encoding")],
                "vary: a\r\nvary: accept-encoding\r\n",
            ),
            (&[("vary", "*")], "vary: *\r\n"),
            (&[("vary", "")], "vary: \r\nvary: accept-encoding\r\n"),
        ] {
            assert_eq!(varying(&text(before)).text(), after.as_bytes());
        }
    }

    #[test]
    fn compressed_content_has_its_own_etag_and_no_digest_of_the_original() {
        let plain = text(&[
            ("Content-Type", "text/css"),
            ("ETag", "\"x\""),
            ("Digest", "a"),
            ("Content-MD5", "b"),
            ("Repr-Digest", "c"),
            ("Content-Digest", "d"),
            ("Vary", "Origin"),
            ("Last-Modified", "e"),
        ]);
        let (fields, etag) = coded(&plain, Coding::Brotli, Mark::of(b"z"));
        let etag = String::from_utf8(etag.expect("one").into()).expect("text");
        assert!(etag.starts_with("\"x-br-") && etag.len() == 15, "{etag}");
        assert_eq!(
            format!("{fields:?}"),
            format!(
                "Content-Type: text/css\r\nVary: Origin, accept-encoding\r\nLast-Modified: e\r\n\
                 content-encoding: br\r\netag: {etag}\r\n"
            )
        );
        let (_, other) = coded(&plain, Coding::Brotli, Mark::of(b"y"));
        assert_ne!(other.expect("one").as_ref(), etag.as_bytes());
        let weak = text(&[("etag", "W/\"x\"")]);
        let (_, etag) = coded(&weak, Coding::Gzip, Mark::of(b"z"));
        assert_eq!(etag.as_deref(), Some(&b"W/\"x-gzip\""[..]));
        for none in [
            &[][..],
            &[("etag", "x")],
            &[("etag", "\"a\""), ("etag", "\"b\"")],
        ] {
            let (fields, etag) = coded(&text(none), Coding::Zstd, Mark::of(b"z"));
            assert_eq!(etag, None);
            assert_eq!(
                fields.text(),
                b"vary: accept-encoding\r\ncontent-encoding: zstd\r\n"
            );
        }
    }
}
