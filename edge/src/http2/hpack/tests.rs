//! Tests of encoder and decoder together: the examples of RFC 7541 Appendix C, errors, limits, and round trips.

use proptest::prelude::*;

use super::decoder::Decoded;
use super::dynamic_table::FIELD_OVERHEAD;
use super::*;

type Lines = Vec<(Vec<u8>, Vec<u8>)>;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |b: u8| char::from(b).to_digit(16).expect("a digit") as u8;
    digits
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

fn lines(text: &[(&str, &str)]) -> Lines {
    let line = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    text.iter().map(line).collect()
}

fn decode_up_to(
    decoder: &mut Decoder,
    block: &[u8],
    most: u64,
) -> Result<(Lines, Decoded), DecodeError> {
    let mut found = Vec::new();
    let decoded = decoder.decode(block, most, |field| {
        assert_eq!(
            field.is_valid,
            crate::http2::field::is_valid(field.name, field.value)
        );
        found.push((field.name.to_vec(), field.value.to_vec()));
    })?;
    Ok((found, decoded))
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Lines, DecodeError> {
    decode_up_to(decoder, block, u64::MAX).map(|(lines, _)| lines)
}

/// A block in hexadecimal, its fields, and the entries of the table after it.
type Example<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [(&'a str, &'a str)]);

/// Decodes the blocks of one connection.
#[track_caller]
fn check(decoder: &mut Decoder, blocks: &[Example<'_>]) {
    for (hex, fields, table) in blocks {
        assert_eq!(decode(decoder, &bytes(hex)), Ok(lines(fields)));
        assert_eq!(decoder.entries(), lines(table));
    }
}

const FIRST: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "www.example.com"),
];
const SECOND: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "www.example.com"),
    ("cache-control", "no-cache"),
];
const THIRD: &[(&str, &str)] = &[
    (":method", "GET"),
    (":scheme", "https"),
    (":path", "/index.html"),
    (":authority", "www.example.com"),
    ("custom-key", "custom-value"),
];
const REQUEST_TABLE: &[(&str, &str)] = &[
    ("custom-key", "custom-value"),
    ("cache-control", "no-cache"),
    (":authority", "www.example.com"),
];

#[test]
fn the_representations_of_rfc_7541_c_2_are_decoded() {
    check(
        &mut Decoder::new(),
        &[
            (
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                &[("custom-key", "custom-header")],
                &[("custom-key", "custom-header")],
            ),
            (
                "040c 2f73 616d 706c 652f 7061 7468",
                &[(":path", "/sample/path")],
                &[("custom-key", "custom-header")],
            ),
            (
                "82",
                &[(":method", "GET")],
                &[("custom-key", "custom-header")],
            ),
        ],
    );
    let mut never = false;
    let block = bytes("1008 7061 7373 776f 7264 0673 6563 7265 74");
    let mut decoder = Decoder::new();
    let decoded = decoder.decode(&block, 1000, |field| {
        never = field.never_indexed && field.name == b"password" && field.value == b"secret";
    });
    assert!(decoded.is_ok() && never && decoder.entries().is_empty());
}

#[test]
fn the_requests_of_rfc_7541_c_3_and_c_4_are_decoded() {
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    for [first, second, third] in [plain, coded] {
        check(
            &mut Decoder::new(),
            &[
                (first, FIRST, &REQUEST_TABLE[2..]),
                (second, SECOND, &REQUEST_TABLE[1..]),
                (third, THIRD, REQUEST_TABLE),
            ],
        );
    }
}

#[test]
fn the_responses_of_rfc_7541_c_5_and_c_6_are_decoded() {
    let plain = [
        "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3120 474d \
         546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "4803 3330 37c1 c0bf",
        "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 7738 666f \
         6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b \
         2076 6572 7369 6f6e 3d31",
    ];
    let coded = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 63c7 \
         8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 b335 \
         dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let first_date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
    let last_date = ("date", "Mon, 21 Oct 2013 20:13:22 GMT");
    let location = ("location", "https://www.example.com");
    let private = ("cache-control", "private");
    let cookie = (
        "set-cookie",
        "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
    );
    let gzip = ("content-encoding", "gzip");
    for [first, second, third] in [plain, coded] {
        let mut decoder = Decoder::new();
        decoder.set_limit(256);
        assert_eq!(decode(&mut decoder, b"\x3f\xe1\x01"), Ok(vec![]));
        check(
            &mut decoder,
            &[
                (
                    first,
                    &[(":status", "302"), private, first_date, location],
                    &[location, first_date, private, (":status", "302")],
                ),
                (
                    second,
                    &[(":status", "307"), private, first_date, location],
                    &[(":status", "307"), location, first_date, private],
                ),
                (
                    third,
                    &[
                        (":status", "200"),
                        private,
                        last_date,
                        location,
                        gzip,
                        cookie,
                    ],
                    &[cookie, gzip, last_date],
                ),
            ],
        );
    }
}

#[test]
fn malformed_blocks_are_refused() {
    for (block, error) in [
        (&b"\x80"[..], DecodeError::Index),
        (b"\xbe", DecodeError::Index),
        (b"\xff\0", DecodeError::Index),
        (b"\x7f\0\x01a", DecodeError::Index),
        (b"\x0f\x2f\x01a", DecodeError::Index),
        (b"\xff", DecodeError::Truncated),
        (b"\xff\xff\xff\xff\xff\xff", DecodeError::Integer),
        (b"\x40", DecodeError::Truncated),
        (b"\x40\x01", DecodeError::Truncated),
        (b"\x40\x01a", DecodeError::Truncated),
        (b"\x40\x01a\x02b", DecodeError::Truncated),
        (b"\x40\x7f\xff\xff\xff\x7f", DecodeError::Truncated),
        (b"\0\x81\xff\0", DecodeError::Huffman),
        (b"\0\x01a\x82\x07\xff", DecodeError::Huffman),
        (b"\x3f\xe2\x1f", DecodeError::TableSize),
        (b"\x82\x20", DecodeError::LateTableSize),
    ] {
        assert_eq!(decode(&mut Decoder::new(), block), Err(error), "{block:x?}");
    }
}

#[test]
fn a_lower_limit_has_to_be_followed_at_once() {
    let mut decoder = Decoder::new();
    decoder.set_limit(100);
    assert_eq!(
        decode(&mut decoder, b"\x82"),
        Err(DecodeError::MissingTableSize)
    );
    let mut decoder = Decoder::new();
    decoder.set_limit(20);
    decoder.set_limit(4096);
    assert_eq!(
        decode(&mut decoder, b"\x3e\x82"),
        Err(DecodeError::MissingTableSize)
    );
    assert!(decode(&mut decoder, b"\x34\x3f\xe1\x1f\x82").is_ok());
    assert!(decode(&mut decoder, b"\x82").is_ok());
    decoder.set_limit(5000);
    assert!(decode(&mut decoder, b"\x3f\xe9\x26\x82").is_ok());
}

#[test]
fn a_block_over_the_limit_keeps_the_table_in_step() {
    let (mut limited, mut other) = (Decoder::new(), Decoder::new());
    let block = b"\x82\x40\x01a\x01b\x86\x40\x01c\x81\x07\x87";
    let size = |name: &str, value: &str| (name.len() + value.len() + FIELD_OVERHEAD) as u64;
    let most = size(":method", "GET") + size("a", "b");
    let (found, decoded) = decode_up_to(&mut limited, block, most).expect("a valid block");
    let (all, whole) = decode_up_to(&mut other, block, u64::MAX).expect("a valid block");
    assert_eq!((found.len(), all.len()), (2, 5));
    assert!(decoded.is_over && !whole.is_over);
    assert_eq!(decoded.list_size, whole.list_size);
    assert_eq!(limited.entries(), other.entries());
}

#[test]
fn a_bomb_of_references_is_refused_before_it_costs_time_or_memory() {
    let mut decoder = Decoder::new();
    let mut block = b"\x40\x01a\x7f\xd0\x1e".to_vec();
    block.extend([b'x'; 4047]);
    let field = block.len();
    block.extend([0xbe; 16 << 10]);
    // The list is up to four times as large as its limit.
    let begin = &block[..field + 15];
    let (found, decoded) = decode_up_to(&mut decoder, begin, 16 << 10).expect("a valid block");
    assert!(found.len() <= 4 && decoded.is_over);
    let bomb = decode_up_to(&mut decoder, &block, 16 << 10);
    assert_eq!(bomb.map(|(found, _)| found.len()), Err(DecodeError::Bomb));
    assert!(decoder.memory() <= 20 << 10);
}

#[test]
fn repeated_fields_of_a_response_take_few_bytes() {
    let mut encoder = Encoder::new(512);
    let mut decoder = Decoder::new();
    let mut lengths = Vec::new();
    for ttl in 10..14 {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        encoder.status(&mut out, 200);
        let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
        encoder.field(&mut out, b"date", date, Indexing::Field);
        let status = format!("sluice; hit; ttl={ttl}");
        encoder.field(&mut out, b"cache-status", status.as_bytes(), Indexing::Name);
        encoder.field(&mut out, b"set-cookie", b"a=b", Indexing::Never);
        let decoded = decode(&mut decoder, &out).expect("a valid block");
        assert_eq!(decoded[2], (b"cache-status".to_vec(), status.into_bytes()));
        assert_eq!(decoded.len(), 4);
        lengths.push(out.len());
    }
    assert!(
        lengths[0] > 50 && lengths[1..].iter().all(|length| *length <= 26),
        "{lengths:?}"
    );
    assert!(encoder.memory() < 1024);
}

fn some_lines() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>, u8)>> {
    let name = prop::sample::select(vec![
        ":status",
        "date",
        "x",
        "y-long-name",
        "age",
        "accept-encoding",
    ]);
    let value = prop_oneof![
        Just(b"200".to_vec()),
        Just(b"gzip, deflate".to_vec()),
        prop::collection::vec(any::<u8>(), 0..60),
        "[a-z0-9]{0,300}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(
        (
            name.prop_map(|name| name.as_bytes().to_vec()),
            value,
            0u8..5,
        ),
        0..20,
    )
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        blocks in prop::collection::vec((some_lines(), prop::collection::vec(0u32..5000, 0..3)), 1..8),
        wanted in prop::sample::select(vec![0u32, 100, 512, 4096, 6000]),
    ) {
        let (mut encoder, mut decoder) = (Encoder::new(wanted), Decoder::new());
        for (lines, limits) in blocks {
            for limit in limits {
                encoder.set_limit(limit);
                decoder.set_limit(limit);
            }
            let mut out = Vec::new();
            encoder.begin(&mut out);
            for (name, value, indexing) in &lines {
                match indexing {
                    0 => encoder.field(&mut out, name, value, Indexing::Field),
                    1 => encoder.field(&mut out, name, value, Indexing::Name),
                    2 => encoder.field(&mut out, name, value, Indexing::Never),
                    3 => encoder.field(&mut out, name, value, Indexing::Without),
                    _ => append_independent(&mut out, name, value, Indexing::Without),
                }
            }
            let lines: Lines = lines.into_iter().map(|(name, value, _)| (name, value)).collect();
            prop_assert_eq!(decode(&mut decoder, &out), Ok(lines));
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..6)) {
        crate::http2::exercise::blocks(&blocks.concat());
        let mut decoder = Decoder::new();
        for block in blocks {
            if decode(&mut decoder, &block).is_err() {
                break;
            }
        }
    }
}
