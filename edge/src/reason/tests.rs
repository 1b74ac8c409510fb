//! Tests of reasons: their names, and what follows from them.

use std::collections::HashSet;
use std::fmt::Write;

use super::*;

#[test]
fn every_text_is_a_token_of_its_own() {
    let texts: HashSet<_> = Reason::ALL.iter().map(|reason| reason.text()).collect();
    assert_eq!(texts.len(), Reason::ALL.len());
    for text in texts {
        let sound = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        assert!(!text.is_empty() && text.bytes().all(sound), "{text}");
    }
}

#[test]
fn every_fault_has_a_status_that_fits_the_party_at_fault() {
    for &reason in Reason::ALL {
        let status = reason.status();
        match (reason.kind(), reason.whose()) {
            (Kind::Fault | Kind::Refused, _) if status.is_none() => panic!("{reason}"),
            (Kind::Fault, Some(Party::Client)) => {
                assert!(matches!(status, Some(400..=499 | 508)), "{reason}");
            }
            (Kind::Fault, Some(_)) => {
                assert!(matches!(status, Some(500..=599)), "{reason}");
            }
            (Kind::Fault, None) => panic!("{reason} is nobody's fault"),
            (_, whose) => assert_eq!(whose, None, "{reason}"),
        }
    }
}

#[test]
fn a_reason_is_found_by_its_text() {
    for &reason in Reason::ALL {
        assert_eq!(Reason::named(reason.text()), Some(reason));
    }
    assert_eq!(Reason::named("unheard-of"), None);
}

#[test]
fn a_reason_is_one_byte() {
    assert_eq!(size_of::<Option<Reason>>(), 1);
}

#[test]
fn the_documentation_lists_every_reason() {
    let documented = include_str!("../../../docs/reasons.md");
    let expected = tables();
    let at = documented.find("\n## ").expect("sections") + 1;
    assert!(
        documented[at..] == expected,
        "docs/reasons.md has to end with:\n\n{expected}"
    );
}

fn tables() -> String {
    let mut out = String::new();
    let mut last = None;
    for &reason in Reason::ALL {
        if last.replace(reason.kind()) != Some(reason.kind()) {
            let gap = if out.is_empty() { "" } else { "\n" };
            let (title, places) = section(reason.kind());
            let _ = write!(
                out,
                "{gap}## {title}\n\n{places}\n\n| reason | status | meaning |\n|---|---|---|\n"
            );
        }
        let status = reason.status().map_or(String::new(), |s| s.to_string());
        let meaning = reason.meaning().trim().replace("  ", " ");
        let _ = writeln!(out, "| `{}` | {status} | {meaning} |", reason.text());
    }
    out
}

/// Returns the title of a kind's section in `docs/reasons.md`, and the places where its reasons appear.
fn section(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Fault => (
            "Faults",
            "In the response body if the response had not begun, also in the `detail` of Cache-Status if a cache had forwarded the request, and in the access log.",
        ),
        Kind::Refused => (
            "Refused requests",
            "In the response body and the access log.",
        ),
        Kind::Cut => ("Cut responses", "In the access log."),
        Kind::Passed => (
            "Requests not answered from the cache",
            "In the `detail` of Cache-Status and the access log.",
        ),
        Kind::Stale => (
            "Stale responses",
            "In the `detail` of Cache-Status and the access log.",
        ),
        Kind::NotStored => (
            "Responses that are not stored",
            "In the `detail` of Cache-Status, the access log, and in `sluice inspect` while the decision is remembered.",
        ),
        Kind::Forwarded => (
            "Requests that the fill policy forwards",
            "In the `detail` of Cache-Status, the access log and `sluice inspect`.",
        ),
        Kind::Fenced => (
            "Responses that do not fit the stored object",
            "In the `detail` of Cache-Status and the access log if the request is forwarded for that reason.",
        ),
        Kind::Fetched => ("Fetches", "In `sluice inspect`."),
    }
}
