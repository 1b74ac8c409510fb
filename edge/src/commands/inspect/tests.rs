//! Tests of the text about objects in every state, at several widths. The expected texts are in
//! `snapshots`.
#![expect(
    clippy::single_range_in_vec_init,
    clippy::reversed_empty_ranges,
    reason = "lists with one range are intended, and a reversed range is hostile input"
)]

use std::ops::Range;

use super::layout::Style;
use super::show::show;
use super::terminal::is_utf8;
use crate::admin::{
    DecisionState, FlightState, FreshnessState, ObjectPhase, ObjectState, OnVolume, Span, UrlState,
};
use crate::reason::Reason;

const URL: &str = "http://cdn.example.com/video.mp4";
const MIB: u64 = 1 << 20;

fn spans(ranges: &[Range<u64>]) -> Vec<Span> {
    ranges.iter().cloned().map(Span::of).collect()
}

fn total(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Returns an open object with these bytes stored and these bytes in flight.
fn object(
    length: Option<u64>,
    stored: &[Range<u64>],
    flying: &[Range<u64>],
    missing: &[Range<u64>],
) -> ObjectState {
    ObjectState {
        state: ObjectPhase::Open,
        status: 200,
        length,
        etag: Some("\"5e8c-62a9\"".to_owned()),
        last_modified: Some("Sun, 06 Nov 1994 08:49:37 GMT".to_owned()),
        generation: Some("00c0ffee12345678".to_owned()),
        joinable: Some(true),
        age_s: Some(3),
        fresh_for_s: 3597,
        stored: spans(stored),
        in_flight: spans(flying),
        missing: spans(missing),
        stored_bytes: total(stored),
        missing_bytes: total(missing),
        ..ObjectState::default()
    }
}

fn complete() -> ObjectState {
    object(Some(9), &[0..9], &[], &[])
}

fn sparse() -> ObjectState {
    ObjectState {
        flights: vec![
            FlightState {
                first: 5 * MIB,
                next: 5_500_000,
                last: Some(6 * MIB - 1),
                rate: Some(MIB),
                left_ms: None,
                age_ms: 260,
                idle_ms: 3,
                head: true,
            },
            FlightState {
                first: 8 * MIB,
                next: 8 * MIB,
                last: Some(9 * MIB - 1),
                age_ms: 4,
                idle_ms: 4,
                ..FlightState::default()
            },
            FlightState {
                first: 9 * MIB,
                next: 9 * MIB + 10,
                last: Some(10 * MIB - 1),
                rate: Some(5),
                left_ms: None,
                age_ms: 65_000,
                idle_ms: 61_500,
                head: true,
            },
        ],
        decisions: vec![
            decision(61_500, 0..OPEN, "fetch", &[0..MIB, MIB..2 * MIB], "start"),
            decision(
                1_250,
                5_000_000..5_000_010,
                "fetch",
                &[5_000_000..5 * MIB],
                "gap",
            ),
            decision(4, 5_000_000..5_000_010, "wait", &[], "coming"),
        ],
        ..object(
            Some(10 * MIB),
            &[0..2 * MIB, 5_000_000..5_500_000],
            &[5_500_000..6 * MIB, 8 * MIB..9 * MIB, 9 * MIB + 10..10 * MIB],
            &[2 * MIB..5_000_000, 6 * MIB..8 * MIB],
        )
    }
}

/// Returns an object whose blocks up to `end` are alternately on two volumes, and of which a part
/// is in memory.
fn kept(end: u64) -> ObjectState {
    let turn = |parity: u64| {
        let blocks = (0..10).filter(|block| block % 2 == parity);
        let blocks = blocks.map(|block| block * MIB..((block + 1) * MIB).min(end));
        blocks.filter(|block| block.start < end).collect::<Vec<_>>()
    };
    let on = |name: &str, ranges: &[Range<u64>]| OnVolume {
        volume: name.to_owned(),
        stored: spans(ranges),
        stored_bytes: total(ranges),
    };
    let volumes = vec![on("disk1", &turn(0)), on("disk\u{1b}[2J", &turn(1))];
    let missing = end..10 * MIB;
    let missing = [missing].into_iter().filter(|range| !range.is_empty());
    ObjectState {
        volumes,
        ..object(
            Some(10 * MIB),
            &[0..600_000],
            &[],
            &missing.collect::<Vec<_>>(),
        )
    }
}

const OPEN: u64 = u64::MAX;

fn decision(
    ago_ms: u64,
    want: Range<u64>,
    what: &str,
    ranges: &[Range<u64>],
    why: &str,
) -> DecisionState {
    DecisionState {
        unix_ms: 0,
        ago_ms,
        want: Span::of(want),
        what: what.to_owned(),
        ranges: spans(ranges),
        why: why.to_owned(),
    }
}

fn unknown_length() -> ObjectState {
    ObjectState {
        etag: None,
        last_modified: None,
        generation: None,
        joinable: Some(false),
        why_not_joinable: Some("no ETag".to_owned()),
        fresh_for_s: -75,
        flights: vec![FlightState {
            next: 300_000,
            rate: Some(700_000),
            age_ms: 500,
            head: true,
            ..FlightState::default()
        }],
        ..object(None, &[0..300_000], &[300_000..OPEN], &[])
    }
}

/// Returns an object with every second of 20,000 bytes, more ranges than the edge lists.
fn very_sparse() -> ObjectState {
    let stored: Vec<_> = (0..5000).map(|n| 2 * n..2 * n + 1).collect();
    let missing: Vec<_> = (0..5000).map(|n| 2 * n + 1..2 * n + 2).collect();
    ObjectState {
        listed_to: Some(10_000),
        stored_bytes: 10_000,
        missing_bytes: 10_000,
        ..object(Some(20_000), &stored, &[], &missing)
    }
}

fn variants() -> Vec<ObjectState> {
    let of = |hash: &str, object: ObjectState| ObjectState {
        vary: vec!["accept-encoding".to_owned(), "accept-language".to_owned()],
        variant: format!("accept-encoding, accept-language: {hash}"),
        ..object
    };
    let awaiting = ObjectState {
        state: ObjectPhase::Awaiting,
        in_flight: vec![Span::of(0..OPEN)],
        flights: vec![FlightState::default()],
        ..ObjectState::default()
    };
    let refused = ObjectState {
        state: ObjectPhase::Refused,
        why: Some("private".to_owned()),
        refused_for_ms: Some(8_200),
        ..ObjectState::default()
    };
    let empty = ObjectState {
        etag: Some("W/\"0\"".to_owned()),
        joinable: Some(false),
        why_not_joinable: Some("its ETag is weak".to_owned()),
        generation: None,
        ..object(Some(0), &[], &[], &[])
    };
    vec![
        of("3f2a9c01d2e4f6a83f2a9c01d2e4f6a8", complete()),
        of("93d4000000000000000000000000000a", empty),
        awaiting,
        refused,
    ]
}

fn at(width: usize, objects: Vec<ObjectState>) -> String {
    let style = Style {
        width,
        ascii: false,
        colour: false,
    };
    drawn(&style, objects)
}

fn drawn(style: &Style, objects: Vec<ObjectState>) -> String {
    let cache = UrlState {
        cache: "main".to_owned(),
        objects,
    };
    show(URL, &[cache], style)
}

#[test]
fn each_state_is_shown_as_its_snapshot() {
    insta::assert_snapshot!("complete", at(80, vec![complete()]));
    insta::assert_snapshot!("sparse", at(80, vec![sparse()]));
    insta::assert_snapshot!("unknown_length", at(80, vec![unknown_length()]));
    insta::assert_snapshot!("very_sparse", at(80, vec![very_sparse()]));
    insta::assert_snapshot!("variants", at(80, variants()));
    insta::assert_snapshot!("on_volumes", at(80, vec![kept(5 * MIB), kept(10 * MIB)]));
}

#[test]
fn the_text_fits_narrow_and_wide_terminals() {
    insta::assert_snapshot!("sparse_40", at(40, vec![sparse()]));
    insta::assert_snapshot!("sparse_60", at(60, vec![sparse()]));
    insta::assert_snapshot!("sparse_120", at(120, vec![sparse()]));
    for width in [40, 60, 80, 120] {
        for objects in [
            vec![sparse()],
            vec![very_sparse()],
            variants(),
            vec![unknown_length()],
        ] {
            let text = at(width, objects);
            let widest = text.lines().map(|line| line.chars().count()).max();
            // A line may exceed the width only if it is a hash, which is never broken.
            assert!(
                widest.is_some_and(|n| n <= width.max(11 + 32)),
                "{width}:\n{text}"
            );
        }
    }
}

#[test]
fn plain_terminals_get_ascii_and_others_colours() {
    let style = |ascii, colour| Style {
        width: 60,
        ascii,
        colour,
    };
    let mut accented = sparse();
    accented.etag = Some("\"é\"".to_owned());
    let plain = drawn(&style(true, false), vec![accented.clone()]);
    assert!(plain.is_ascii(), "{plain}");
    assert!(
        plain.contains("# stored  + partly  > in flight  . missing"),
        "{plain}"
    );
    let colourless = drawn(&style(false, false), vec![accented.clone()]);
    let mut coloured = drawn(&style(false, true), vec![accented]);
    assert!(coloured.contains("\x1b[32m█"), "{coloured}");
    for code in ["\x1b[0m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[36m"] {
        coloured = coloured.replace(code, "");
    }
    assert_eq!(coloured, colourless);
}

#[test]
fn a_state_is_explained() {
    let state = |state: ObjectPhase, why: &str| {
        let object = ObjectState {
            state,
            why: Some(why.to_owned()),
            ..ObjectState::default()
        };
        at(120, vec![object])
    };
    let large = state(ObjectPhase::Refused, Reason::TooLarge.text());
    assert!(
        large.contains("not shared: larger than `max_object_size`;"),
        "{large}"
    );
    let retired = state(ObjectPhase::Retired, "");
    assert!(
        retired.contains("retired: not used for new requests\n"),
        "{retired}"
    );
}

#[test]
fn without_an_object_nothing_is_shown() {
    assert_eq!(at(80, vec![]), "");
    let nothing = super::nothing("http://a/\x1b[2J", "").to_string();
    assert!(nothing.starts_with("no cache has stored or is fetching http://a/\\u{1b}[2J"));
}

// The response may come from a server that is no edge, and so contain anything.
#[test]
fn hostile_answers_do_no_harm() {
    let bad = "\x1b]0;x\x07\u{9b}2J\u{202e}\r\n".repeat(100);
    let flight = FlightState {
        first: u64::MAX,
        next: 0,
        last: Some(0),
        rate: Some(u64::MAX),
        left_ms: Some(u64::MAX),
        age_ms: u64::MAX,
        idle_ms: u64::MAX,
        head: true,
    };
    let backwards = Span {
        first: u64::MAX,
        last: Some(0),
    };
    let hostile = ObjectState {
        key: bad.clone(),
        state: ObjectPhase::Open,
        why: Some(bad.clone()),
        freshness: Some(FreshnessState {
            rule: bad.clone(),
            detail: bad.clone(),
            lifetime_s: i64::MIN,
            stale_while_revalidate_s: u64::MAX,
            stale_if_error_s: u64::MAX,
        }),
        headers: vec![(bad.clone(), bad.clone())],
        vary: vec![bad.clone()],
        variant: bad.clone(),
        status: 1,
        length: Some(u64::MAX),
        etag: Some(bad.clone()),
        last_modified: Some(bad.clone()),
        generation: Some(bad.clone()),
        joinable: Some(false),
        why_not_joinable: Some(bad.clone()),
        age_s: Some(u64::MAX),
        fresh_for_s: i64::MIN,
        stored: vec![backwards, Span::of(0..u64::MAX)],
        volumes: vec![
            OnVolume {
                volume: bad.clone(),
                stored: vec![backwards; 20],
                stored_bytes: u64::MAX,
            };
            20
        ],
        stored_bytes: u64::MAX,
        missing_bytes: u64::MAX,
        flights: vec![flight; 100],
        decisions: vec![decision(u64::MAX, u64::MAX..0, &bad, &[], &bad)],
        ..ObjectState::default()
    };
    let others = [ObjectPhase::Refused, ObjectPhase::Failed].map(|state| ObjectState {
        state,
        length: None,
        ..hostile.clone()
    });
    let mut objects = vec![hostile];
    objects.extend(others);
    for width in [20, 80] {
        let text = at(width, objects.clone());
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        assert!(!text.contains('\u{202e}'), "{text}");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("and 68 more"), "{text}");
    }
}

#[test]
fn an_answer_of_another_version_is_still_read() {
    let text = r#"[{"cache": "a", "objects": [{"status": 200, "news": 1}], "more": []}]"#;
    let caches: Vec<UrlState> = serde_json::from_str(text).expect("understood");
    assert_eq!(caches[0].objects[0].status, 200);
    let text = r#"[{"objects": [{"state": "\u001b[2J"}, {"state": "revalidated"}]}]"#;
    let caches: Vec<UrlState> = serde_json::from_str(text).expect("understood");
    let states: Vec<_> = caches[0]
        .objects
        .iter()
        .map(|object| object.state)
        .collect();
    assert_eq!(states, [ObjectPhase::Unknown, ObjectPhase::Revalidated]);
}

#[test]
fn widths_and_locales_are_understood() {
    assert_eq!([0, 1, 40, 9999].map(Style::width), [80, 20, 40, 500]);
    assert!(is_utf8("de_DE.UTF-8") && is_utf8("C.utf8"));
    assert!(!is_utf8("C") && !is_utf8("en_US.ISO-8859-1"));
}
