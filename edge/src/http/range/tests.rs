//! Tests of the Range and Content-Range headers.

use proptest::prelude::*;
use smallvec::smallvec;

use super::*;

fn resolved(value: &str, length: u64) -> Option<Resolved> {
    parse(value.as_bytes()).map(|specs| specs.resolve(length, 0))
}

fn parts(ranges: &[Range<u64>]) -> Option<Resolved> {
    Some(Resolved::Satisfiable(ranges.iter().cloned().collect()))
}

#[test]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "lists of one range are meant"
)]
fn resolves_what_the_rfc_shows() {
    let cases: &[(&str, &[Range<u64>])] = &[
        ("bytes=0-499", &[0..500]),
        ("bytes=500-999", &[500..1000]),
        ("bytes=-500", &[9500..10000]),
        ("bytes=9500-", &[9500..10000]),
        ("bytes=0-0,-1", &[0..1, 9999..10000]),
        ("BYTES=500-600,601-999", &[500..1000]),
        ("bytes=500-700,601-999", &[500..1000]),
        (
            "bytes= 0-999, 4500-5499, -1000",
            &[0..1000, 4500..5500, 9000..10000],
        ),
        ("bytes=,,0-1,,", &[0..2]),
        ("bytes=0-", &[0..10000]),
        ("bytes=-20000", &[0..10000]),
        ("bytes=9999-20000", &[9999..10000]),
        ("bytes=0-99999999999999999999999999", &[0..10000]),
        ("bytes=20000-,5-9", &[5..10]),
        ("bytes=007-008", &[7..9]),
    ];
    for (value, ranges) in cases {
        assert_eq!(resolved(value, 10000), parts(ranges), "{value}");
    }
}

#[test]
fn unsatisfiable_and_empty_representations() {
    for value in ["bytes=10000-", "bytes=-0", "bytes=10000-10001,-0"] {
        assert_eq!(resolved(value, 10000), Some(Resolved::NotSatisfiable));
    }
    let beyond = "bytes=99999999999999999999999999-99999999999999999999999999";
    assert_eq!(resolved(beyond, u64::MAX), Some(Resolved::NotSatisfiable));
    assert_eq!(resolved("bytes=0-", 0), Some(Resolved::NotSatisfiable));
    assert_eq!(resolved("bytes=-5", 0), Some(Resolved::Ignore));
}

#[test]
fn malformed_ranges_are_ignored() {
    for value in [
        "",
        "bytes",
        "bytes=",
        "bytes=,",
        "bytes=-",
        "bytes=5",
        "bytes=5-4",
        "bytes=a-b",
        "bytes=1-2x",
        "bytes=0x1-2",
        "bytes=+1-2",
        "bytes=--1",
        "bytes=1-2-3",
        "bytes=1 -2",
        "bytes=1-2;3-4",
        "bytes=0-1,x",
        "lines=1-2",
        "bytes =1-2",
        "=1-2",
        "bytes=\u{661}-2",
    ] {
        assert_eq!(parse(value.as_bytes()), None, "{value}");
    }
}

#[test]
fn the_numbers_of_specs_and_overlaps_are_bounded() {
    let many = |n: u64, step: u64, size: u64| {
        let specs: Vec<_> = (0..n)
            .map(|i| format!("{}-{}", i * step, i * step + size - 1))
            .collect();
        format!("bytes={}", specs.join(","))
    };
    assert!(matches!(
        resolved(&many(64, 10, 1), 10000),
        Some(Resolved::Satisfiable(parts)) if parts.len() == 64
    ));
    assert_eq!(resolved(&many(65, 10, 1), 10000), None);
    assert_eq!(
        resolved(&many(9, 10, 20), 10000),
        Some(Resolved::Satisfiable(smallvec![0..100]))
    );
    assert_eq!(resolved(&many(10, 10, 20), 10000), Some(Resolved::Ignore));
    assert_eq!(resolved(&many(64, 0, 1), 10000), Some(Resolved::Ignore));
}

#[test]
fn near_parts_are_joined_at_the_earliest_position() {
    let specs = parse(b"bytes=900-909,100-109,500-509,115-119").expect("valid");
    let joined: SmallVec<[Range<u64>; 1]> = smallvec![900..910, 100..120, 500..510];
    assert_eq!(specs.resolve(1000, 6), Resolved::Satisfiable(joined));
    let bridge = parse(b"bytes=300-309,0-99,200-209,90-299").expect("valid");
    assert_eq!(
        bridge.resolve(1000, 0),
        Resolved::Satisfiable(smallvec![0..310])
    );
}

#[test]
fn content_range_is_parsed_and_rendered() {
    let part = |range, length| Some(ContentRange::Part { range, length });
    for (value, expected) in [
        ("bytes 0-9/100", part(0..10, Some(100))),
        ("bytes 5-5/*", part(5..6, None)),
        ("bytes */7", Some(ContentRange::Unsatisfied { length: 7 })),
    ] {
        let parsed = ContentRange::parse(value.as_bytes());
        assert_eq!(parsed, expected, "{value}");
        let mut out = Vec::new();
        parsed.expect("valid").render(&mut out);
        assert_eq!(out, value.as_bytes());
    }
    for value in [
        "",
        "bytes",
        "bytes 0-9",
        "bytes 9-0/10",
        "bytes 0-9/9",
        "bytes */*",
        "bytes -9/10",
        "bytes 0-/10",
        "bytes 0-9/99999999999999999999999",
        "bytes=0-9/10",
        "items 0-9/10",
        "bytes 0-18446744073709551615/*",
        "bytes 0-9/10, 0-9/10",
        "bytes +0-9/10",
    ] {
        assert_eq!(ContentRange::parse(value.as_bytes()), None, "{value}");
    }
}

#[test]
fn multipart_is_framed_as_rfc_2046_says() {
    let multipart = Multipart {
        boundary: "b0",
        content_type: Some(b"text/plain"),
        length: 26,
    };
    let content = b"abcdefghijklmnopqrstuvwxyz";
    let ranges = [0..2u64, 20..26];
    let mut body = Vec::new();
    for (i, range) in ranges.iter().enumerate() {
        multipart.render_head(&mut body, i == 0, range);
        body.extend_from_slice(&content[range.start as usize..range.end as usize]);
    }
    multipart.render_end(&mut body);
    let expected = "--b0\r\nContent-Type: text/plain\r\nContent-Range: bytes 0-1/26\r\n\r\nab\
        \r\n--b0\r\nContent-Type: text/plain\r\nContent-Range: bytes 20-25/26\r\n\r\nuvwxyz\
        \r\n--b0--\r\n";
    assert_eq!(String::from_utf8_lossy(&body), expected);
    assert_eq!(multipart.total(&ranges), body.len() as u64);
    assert_eq!(
        multipart.content_type(),
        "multipart/byteranges; boundary=b0"
    );
}

fn a_spec() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..120u64, 0..120u64).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        (0..120u64).prop_map(|a| format!("{a}-")),
        (0..120u64).prop_map(|n| format!("-{n}")),
    ]
}

proptest! {
    #[test]
    fn parts_are_disjoint_and_contain_the_requested_ranges(
        specs in prop::collection::vec(a_spec(), 1..8), length in 0..100u64, gap in 0..20u64,
    ) {
        let specs = parse(format!("bytes={}", specs.join(",")).as_bytes()).expect("valid");
        if let Resolved::Satisfiable(parts) = specs.resolve(length, gap) {
            for (i, part) in parts.iter().enumerate() {
                prop_assert!(part.start < part.end && part.end <= length);
                for other in &parts[i + 1..] {
                    let apart = other.start.max(part.start)
                        .saturating_sub(other.end.min(part.end));
                    prop_assert!(apart > 0 && apart >= gap);
                }
            }
            for wanted in specs.iter().filter_map(|spec| spec.resolve(length)) {
                prop_assert!(parts.iter().any(|p| p.start <= wanted.start && wanted.end <= p.end));
            }
        } else {
            prop_assert!(length == 0 || specs.iter().all(|s| s.resolve(length).is_none()));
        }
    }
}
