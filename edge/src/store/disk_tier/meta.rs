//! The encoding of a head in a record on a volume: the object's key and head as bytes.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::http::FieldBlock;
use crate::http::freshness::Source;
use crate::store::head::{Head, Selected};

/// Version of the encoding, increased whenever the encoded fields change. Records with other versions are not decoded.
const VERSION: u8 = 3;
/// The earlier version, whose records end before the source of the lifetime. They are still decoded.
const VERSION_WITHOUT_SOURCE: u8 = 2;

/// A decoded record of a head.
pub struct HeadRecord {
    /// The text of the primary key.
    pub key: Bytes,
    /// Sequence number at which the object's first fetch began.
    pub born_seq: u64,
    /// Size of the object's blocks in bytes.
    pub block: u64,
    /// Sequence number of a purge: all blocks of the object are from fetches after that purge.
    pub since: u64,
    /// The head of the response.
    pub head: Head,
}

/// The encoded form of a head's record, in the order in which its fields are written.
#[derive(Serialize, Deserialize)]
struct Written<'a> {
    version: u8,
    #[serde(borrow)]
    key: &'a [u8],
    born_seq: u64,
    block: u64,
    since: u64,
    status: u16,
    #[serde(borrow)]
    fields: WrittenBlock<'a>,
    length: Option<u64>,
    etag: Option<&'a [u8]>,
    last_modified_s: Option<u64>,
    date_s: u64,
    received_ms: u64,
    initial_age_ms: u64,
    fresh_until_ms: u64,
    stale_while_revalidate_ms: u64,
    stale_if_error_ms: u64,
    strict: bool,
    authorized: bool,
    immutable: bool,
    odd_range: bool,
    head_born_seq: u64,
    tags: Vec<u64>,
    #[serde(borrow)]
    vary: Option<(Vec<&'a str>, u128)>,
    joinable: bool,
    generation: u64,
}

/// The encoded form of a field block: header lines with their index. The index is written too, so that a head read from a volume needs no
/// parsing, only a check.
#[derive(Serialize, Deserialize)]
struct WrittenBlock<'a> {
    bytes: &'a [u8],
    text: u32,
    lines: u32,
}

/// Encodes a head. `length` is the complete length of the content, which may have become known only at the end of the fetch.
pub fn encode(
    (key, born_seq): (&[u8], u64),
    (block, since): (u64, u64),
    head: &Head,
    length: Option<u64>,
) -> Vec<u8> {
    let vary = head.vary.as_ref().map(|vary| {
        let names = vary.names.iter().map(|name| &**name).collect();
        (names, vary.variant)
    });
    let written = Written {
        version: VERSION,
        key,
        born_seq,
        block,
        since,
        status: head.status,
        fields: WrittenBlock {
            bytes: head.fields.as_bytes(),
            text: head.fields.text().len() as u32,
            lines: head.fields.len() as u32,
        },
        length,
        etag: head.etag.as_deref(),
        last_modified_s: head.last_modified_s,
        date_s: head.date_s,
        received_ms: head.received_ms,
        initial_age_ms: head.initial_age_ms,
        fresh_until_ms: head.fresh_until_ms,
        stale_while_revalidate_ms: head.stale_while_revalidate_ms,
        stale_if_error_ms: head.stale_if_error_ms,
        strict: head.strict,
        authorized: head.authorized,
        immutable: head.immutable,
        odd_range: head.odd_range,
        head_born_seq: head.born_seq,
        tags: head.tags.to_vec(),
        vary,
        joinable: head.joinable,
        generation: head.generation,
    };
    // Encoding into memory can't fail. If it did, the result would be rejected by `decode`.
    let mut bytes = postcard::to_stdvec(&written).unwrap_or_default();
    bytes.push(head.lifetime_source.number());
    bytes
}

/// Decodes a head; returns `None` if the bytes are invalid.
pub fn decode(bytes: &[u8]) -> Option<HeadRecord> {
    let (written, rest) = postcard::take_from_bytes::<Written<'_>>(bytes).ok()?;
    let lifetime_source = match (written.version, rest) {
        (VERSION, [number]) => Source::of_number(*number)?,
        (VERSION_WITHOUT_SOURCE, []) => Source::default(),
        _ => return None,
    };
    if written.block == 0 {
        return None;
    }
    let WrittenBlock { bytes, text, lines } = written.fields;
    let fields = FieldBlock::from_bytes(Bytes::copy_from_slice(bytes), text, lines)?;
    let vary = written.vary.map(|(names, variant)| Selected {
        names: names.into_iter().map(Into::into).collect(),
        variant,
    });
    let head = Head {
        status: written.status,
        fields,
        length: written.length,
        etag: written.etag.map(Bytes::copy_from_slice),
        last_modified_s: written.last_modified_s,
        date_s: written.date_s,
        received_ms: written.received_ms,
        initial_age_ms: written.initial_age_ms,
        fresh_until_ms: written.fresh_until_ms,
        lifetime_source,
        stale_while_revalidate_ms: written.stale_while_revalidate_ms,
        stale_if_error_ms: written.stale_if_error_ms,
        strict: written.strict,
        authorized: written.authorized,
        immutable: written.immutable,
        odd_range: written.odd_range,
        born_seq: written.head_born_seq,
        tags: written.tags.into(),
        vary,
        joinable: written.joinable && written.length.is_some(),
        generation: written.generation,
    };
    Some(HeadRecord {
        key: Bytes::copy_from_slice(written.key),
        born_seq: written.born_seq,
        block: written.block,
        since: written.since,
        head,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn a_head() -> impl Strategy<Value = Head> {
        let numbers = prop::array::uniform8(any::<u64>());
        let flags = prop::array::uniform4(any::<bool>());
        let text = || prop::collection::vec(any::<u8>(), 0..40);
        let vary = prop::option::of((prop::collection::vec("[a-z-]{1,12}", 0..4), any::<u128>()));
        let tags = prop::collection::vec(any::<u64>(), 0..5);
        let lines = prop::collection::vec(("[a-zA-Z-]{1,12}", "[ -~]{0,20}"), 0..6);
        (numbers, flags, lines, prop::option::of(text()), vary, tags).prop_map(
            |(n, flags, lines, etag, vary, tags)| Head {
                status: n[0] as u16,
                fields: (lines.iter().map(|(name, value)| (&**name, &**value))).collect(),
                length: flags[0].then_some(n[1]),
                etag: etag.map(Into::into),
                last_modified_s: flags[1].then_some(n[2]),
                date_s: n[3],
                received_ms: n[4],
                fresh_until_ms: n[5],
                born_seq: n[6],
                generation: n[7],
                strict: flags[2],
                lifetime_source: Source::of_number((n[0] % 8) as u8).expect("a number of a source"),
                joinable: flags[0] && flags[3],
                tags: tags.into(),
                vary: vary.map(|(names, variant)| Selected {
                    names: names.into_iter().map(String::into_boxed_str).collect(),
                    variant,
                }),
                ..Head::default()
            },
        )
    }

    proptest! {
        #[test]
        fn an_encoded_head_is_decoded(head in a_head(), key in ".{0,50}", born in any::<u64>()) {
            let bytes = encode((key.as_bytes(), born), (1 << 20, 7), &head, head.length);
            let kept = decode(&bytes).expect("bytes that were encoded");
            prop_assert_eq!(&kept.head, &head);
            prop_assert!(kept.head.fields.lines().eq(head.fields.lines()));
            prop_assert_eq!((&*kept.key, kept.born_seq), (key.as_bytes(), born));
            // A record that was cut short is rejected, wherever the cut is.
            for end in 0..bytes.len() {
                prop_assert!(decode(&bytes[..end]).is_none());
            }
        }

        #[test]
        fn a_head_of_the_earlier_version_is_decoded_without_its_source(head in a_head()) {
            let mut bytes = encode((b"k", 1), (1 << 20, 7), &head, head.length);
            bytes.pop();
            bytes[0] = VERSION_WITHOUT_SOURCE;
            let kept = decode(&bytes).expect("bytes of the earlier version");
            let head = Head { lifetime_source: Source::default(), ..head };
            prop_assert_eq!(&kept.head, &head);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
