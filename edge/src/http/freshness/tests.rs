//! Tests of which responses are stored, and for how long they are fresh.

use proptest::prelude::*;

use super::*;

const AT: ExchangeTimes = ExchangeTimes {
    request_ms: 784_111_777_000,
    response_ms: 784_111_779_500,
};
const DATE: (&str, &str) = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
const ETAG: (&str, &str) = ("etag", "\"x\"");

fn fields(lines: &[(&str, &str)]) -> Fields {
    lines.iter().copied().collect()
}

fn targets() -> Vec<Box<str>> {
    ["sluice-cache-control", "surrogate-control"]
        .map(Box::from)
        .to_vec()
}

fn judged(status: Status, lines: &[(&str, &str)], terms: &Terms<'_>) -> Result<Verdict, Reason> {
    judge(&Fields::new(), status, &fields(lines), terms, AT)
}

fn lifetime(lines: &[(&str, &str)], terms: &Terms<'_>) -> Result<(u32, Source), Reason> {
    let mut lines = lines.to_vec();
    lines.push(ETAG);
    judged(200, &lines, terms).map(|v| (v.lifetime_s, v.source))
}

fn configured(valid_s: u64) -> Terms<'static> {
    Terms {
        valid_s: Some(valid_s),
        ..Terms::default()
    }
}

#[test]
fn the_first_source_determines_the_lifetime() {
    let targets = targets();
    let terms = Terms {
        valid_s: Some(1),
        heuristic_max_s: 86_400,
        targets: &targets,
        ..Terms::default()
    };
    // Each header takes precedence over all that follow it.
    let lines = [
        ("sluice-cache-control", "max-age=70"),
        ("surrogate-control", "max-age=60"),
        ("x-accel-expires", "50"),
        ("cache-control", "s-maxage=40"),
        ("cache-control", "max-age=30"),
        ("expires", "Sun, 06 Nov 1994 08:49:57 GMT"),
        DATE,
        ("last-modified", "Sun, 06 Nov 1994 08:48:37 GMT"),
    ];
    let expected = [
        (70, Source::Targeted),
        (60, Source::Targeted),
        (50, Source::AccelExpires),
        (40, Source::SMaxage),
        (30, Source::MaxAge),
        (20, Source::Expires),
        (1, Source::Configured),
    ];
    for (i, expected) in expected.into_iter().enumerate() {
        assert_eq!(lifetime(&lines[i..], &terms), Ok(expected));
    }
    let terms = Terms {
        valid_s: None,
        ..terms
    };
    assert_eq!(lifetime(&lines[6..], &terms), Ok((6, Source::Heuristic)));
    assert_eq!(lifetime(&lines[..0], &terms), Err(Reason::NoLifetime));
}

#[test]
fn ignored_headers_have_no_effect() {
    let targets = targets();
    let mut terms = Terms {
        targets: &targets,
        ..configured(1)
    };
    let lines = [
        ("sluice-cache-control", "no-store"),
        ("x-accel-expires", "0"),
        ("cache-control", "private, no-store"),
        ("expires", "0"),
        ("age", "100"),
        ("vary", "*"),
        ("set-cookie", "a=b"),
        DATE,
    ];
    let mut met = |ignore: Ignored, reason| {
        terms.ignore = ignore;
        assert_eq!(judged(200, &lines, &terms).map(|_| ()), Err(reason));
    };
    let mut ignore = Ignored::default();
    met(ignore, Reason::NoStore);
    ignore.targeted = true;
    met(ignore, Reason::NoStore);
    ignore.x_accel_expires = true;
    met(ignore, Reason::NoStore);
    ignore.cache_control = true;
    met(ignore, Reason::SetCookie);
    ignore.set_cookie = true;
    met(ignore, Reason::VaryAny);
    ignore.vary = true;
    met(ignore, Reason::Expired);
    ignore.expires = true;
    met(ignore, Reason::Expired);
    ignore.age = true;
    terms.ignore = ignore;
    terms.valid_s = Some(9);
    let verdict = judged(200, &lines, &terms).expect("nothing speaks against it");
    assert_eq!(
        (verdict.lifetime_s, verdict.source, verdict.fresh_ms),
        (9, Source::Configured, 6500)
    );
    assert!(verdict.vary.names().len() == 0 && verdict.stripped.is_empty());
}

#[test]
fn an_invalid_expires_means_expired() {
    let late = ("expires", "Sun, 06 Nov 1994 08:50:37 GMT");
    let later = ("expires", "Sun, 06 Nov 1994 08:51:37 GMT");
    let expired = Ok((0, Source::Expires));
    let terms = configured(9);
    assert_eq!(lifetime(&[("expires", "0")], &terms), expired);
    assert_eq!(lifetime(&[("expires", "soon")], &terms), expired);
    assert_eq!(lifetime(&[late, later], &terms), expired);
    // Without Date, Expires counts from the arrival, 2 s later.
    let relative = Ok((58, Source::Expires));
    assert_eq!(lifetime(&[late], &terms), relative);
    assert_eq!(lifetime(&[late, late], &terms), relative);
    assert_eq!(lifetime(&[("date", "x"), late], &terms), relative);
    let date = ("date", "Sun, 06 Nov 1994 08:59:37 GMT");
    assert_eq!(lifetime(&[date, late], &terms), expired);
    assert_eq!(
        lifetime(&[("cache-control", "max-age=x"), late], &terms),
        Ok((0, Source::MaxAge))
    );
}

#[test]
fn heuristic_lifetimes_are_bounded_and_limited_to_some_statuses() {
    let day = ("last-modified", "Sat, 05 Nov 1994 08:49:37 GMT");
    let terms = Terms {
        heuristic_max_s: 86_400,
        ..Terms::default()
    };
    let of = |status, lines: &[(&str, &str)]| {
        judged(status, lines, &terms).map(|v| (v.lifetime_s, v.source))
    };
    let tenth = Ok((8640, Source::Heuristic));
    for status in [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501] {
        assert_eq!(of(status, &[DATE, day]), tenth, "{status}");
    }
    for status in [201, 202, 302, 303, 307, 403, 451, 500, 502, 503, 504, 599] {
        assert_eq!(
            of(status, &[DATE, day]),
            Err(Reason::NoLifetime),
            "{status}"
        );
        let public = ("cache-control", "public");
        assert_eq!(of(status, &[DATE, day, public]), tenth, "{status}");
    }
    let years = ("last-modified", "Sat, 05 Nov 1983 08:49:37 GMT");
    assert_eq!(of(200, &[DATE, years]), Ok((86_400, Source::Heuristic)));
    let late = ("last-modified", "Mon, 07 Nov 1994 08:49:37 GMT");
    assert_eq!(of(200, &[DATE, late]), Err(Reason::NoLifetime));
    assert_eq!(of(200, &[DATE]), Err(Reason::NoLifetime));
    let off = judged(200, &[DATE, day], &Terms::default());
    assert_eq!(off, Err(Reason::NoLifetime));
}

#[test]
fn bounds_apply_to_positive_lifetimes_only() {
    let cc = |value| [("cache-control", value)];
    let terms = Terms {
        lifetime_s: 10..=100,
        ..configured(1000)
    };
    assert_eq!(lifetime(&cc("max-age=5"), &terms), Ok((10, Source::MaxAge)));
    assert_eq!(lifetime(&cc("max-age=500"), &terms).map(|l| l.0), Ok(100));
    assert_eq!(lifetime(&cc("max-age=50"), &terms).map(|l| l.0), Ok(50));
    assert_eq!(lifetime(&[], &terms), Ok((100, Source::Configured)));
    assert_eq!(lifetime(&cc("max-age=0"), &terms).map(|l| l.0), Ok(0));
    assert_eq!(lifetime(&cc("no-store"), &terms), Err(Reason::NoStore));
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    let reversed = Terms {
        lifetime_s: 100..=10,
        ..Terms::default()
    };
    assert_eq!(lifetime(&cc("max-age=5"), &reversed).map(|l| l.0), Ok(10));
    let huge = lifetime(&[], &configured(u64::MAX)).map(|l| l.0);
    assert_eq!(huge, Ok(SECONDS_MAX));
}

fn aged(lines: &[(&str, &str)]) -> (u64, u64) {
    let mut lines = lines.to_vec();
    lines.extend([ETAG, ("cache-control", "max-age=3600")]);
    let verdict = judged(200, &lines, &Terms::default()).expect("it has a validator");
    (verdict.initial_age_ms, verdict.fresh_ms.max(0) as u64)
}

#[test]
fn age_is_the_larger_of_apparent_and_corrected_age() {
    // Without Age and Date the age is the duration of the exchange, 2.5 s.
    assert_eq!(aged(&[]), (2500, 3_597_500));
    assert_eq!(aged(&[DATE]).0, 2500);
    assert_eq!(aged(&[("date", "Sun, 06 Nov 1994 08:48:39 GMT")]).0, 60_000);
    assert_eq!(aged(&[DATE, ("age", "100")]), (102_500, 3_497_500));
    assert_eq!(aged(&[("age", "7200")]), (7_202_500, 0));
    let most = u64::from(SECONDS_MAX) * 1000 + 2500;
    assert_eq!(aged(&[("age", "99999999999999999999999999")]), (most, 0));
    // A Date in the future and a clock set back count as 0.
    assert_eq!(aged(&[("date", "Sun, 06 Nov 1994 09:49:37 GMT")]).0, 2500);
    let instant = |response_ms| {
        let exchanged = ExchangeTimes {
            request_ms: response_ms,
            response_ms,
        };
        lifetime::Age::of(&fields(&[DATE]), false, exchanged).initial_ms
    };
    // A difference of one second on the clock counts as 0, a difference of two as 2.
    assert_eq!(instant(784_111_778_001), 0);
    assert_eq!(instant(784_111_779_000), 2000);
    let back = ExchangeTimes {
        request_ms: 5,
        response_ms: 3,
    };
    assert_eq!(lifetime::Age::of(&Fields::new(), false, back).initial_ms, 0);
}

// RFC 9111 5.1: the first member of a list counts, and an invalid value is ignored.
#[test]
fn the_first_valid_age_counts() {
    for (lines, age_s) in [
        (&["7, 100"][..], 7),
        (&["0, 7200"], 0),
        (&["7200, 0"], 7200),
        (&["7,"], 7),
        (&["7, x"], 7),
        (&["0", "7200"], 0),
        (&["7200", "0"], 7200),
        (&["x", "7200"], 7200),
        (&["-1", "7", "9"], 7),
        (&["x, 7"], 0),
        (&[",7"], 0),
    ] {
        let lines: Vec<_> = lines.iter().map(|age| ("age", *age)).collect();
        assert_eq!(aged(&lines).0, age_s * 1000 + 2500, "{lines:?}");
    }
    for invalid in ["", "-1", "x", "1.5", "7200.0", "7;a", "7;a=1", "+7"] {
        assert_eq!(aged(&[("age", invalid)]), (2500, 3_597_500), "{invalid}");
    }
}

#[test]
fn accel_expires_takes_precedence_over_cache_control() {
    let cc = (
        "cache-control",
        "private, no-store, no-cache, max-age=0, s-maxage=1, stale-while-revalidate=7",
    );
    let of = |value| {
        let lines = [("x-accel-expires", value), ("age", "100"), cc];
        judged(200, &lines, &Terms::default())
    };
    let verdict = of("60").expect("it may be stored");
    assert_eq!((verdict.fresh_ms, verdict.swr_s), (60_000, 7));
    assert!(!verdict.no_cache && !verdict.strict && !verdict.authorized);
    let until = of("@784111789").expect("it may be stored");
    assert_eq!((until.fresh_ms, until.lifetime_s), (10_000, 10));
    assert_eq!(of("@784111700").map(|v| v.fresh_ms), Ok(0));
    assert_eq!(of("0"), Err(Reason::NoStore));
    assert_eq!(of("soon"), Err(Reason::NoStore));
    let named = [
        ("x-accel-expires", "60"),
        ("cache-control", "private=\"x-a\""),
    ];
    let verdict = judged(200, &named, &Terms::default()).expect("it may be stored");
    assert_eq!(verdict.stripped, ["x-a"]);
}

#[test]
fn each_reason_is_returned_for_some_response() {
    let fresh = ("cache-control", "max-age=9");
    let cc = |value: &'static str| ("cache-control", value);
    let get = |status, lines: &[(&str, &str)]| judged(status, lines, &Terms::default()).map(|_| ());
    assert_eq!(get(200, &[fresh]), Ok(()));
    assert_eq!(get(404, &[fresh, ("vary", "a, b")]), Ok(()));
    assert_eq!(get(200, &[fresh, ("content-range", "bytes 0-1/2")]), Ok(()));
    for status in [299, 302, 499, 599] {
        assert_eq!(get(status, &[fresh]), Ok(()), "{status}");
    }
    let cases = [
        (103, fresh, fresh, Reason::InterimResponse),
        (206, fresh, fresh, Reason::PartialContent),
        (304, fresh, fresh, Reason::StatusNotStorable),
        (416, fresh, fresh, Reason::StatusNotStorable),
        (429, fresh, fresh, Reason::StatusNotStorable),
        (599, fresh, cc("must-understand"), Reason::StatusNotStorable),
        (200, fresh, cc("No-Store"), Reason::NoStore),
        (200, fresh, cc("private"), Reason::Private),
        (200, fresh, cc("private=\"a b\""), Reason::Private),
        (200, fresh, ("set-cookie", "a=b"), Reason::SetCookie),
        (200, fresh, ("vary", "a, *"), Reason::VaryAny),
        (200, fresh, ("vary", "a b"), Reason::VaryBad),
        (200, ("a", "b"), ETAG, Reason::NoLifetime),
        (599, cc("no-cache"), ETAG, Reason::NoLifetime),
        (200, fresh, cc("no-cache"), Reason::NoCache),
        (200, fresh, cc("max-age=0"), Reason::Expired),
        (200, fresh, ("age", "10"), Reason::Expired),
    ];
    for (status, one, other, reason) in cases {
        assert_eq!(get(status, &[one, other]), Err(reason), "{other:?}");
    }
    let understood = cc("no-store, must-understand, max-age=9");
    assert_eq!(get(200, &[understood]), Ok(()));
}

#[test]
fn a_stale_response_is_stored_if_it_can_be_used() {
    let of = |lines: &[(&str, &str)]| judged(200, lines, &Terms::default());
    let validated = |value| of(&[("cache-control", value), ETAG]).expect("it has a validator");
    let verdict = validated("no-cache, max-age=9");
    assert!(verdict.no_cache && verdict.strict && verdict.fresh_ms == 6500);
    let verdict = validated("no-cache");
    assert_eq!((verdict.lifetime_s, verdict.source), (0, Source::None));
    assert_eq!(validated("max-age=0").fresh_ms.max(0), 0);
    let modified = ("last-modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert!(of(&[("cache-control", "max-age=0"), modified]).is_ok());
    for none in [("etag", "x"), ("last-modified", "yesterday")] {
        let stale = of(&[("cache-control", "max-age=0"), none]);
        assert_eq!(stale, Err(Reason::Expired), "{none:?}");
    }
    // A stale response is storable while it may still be served stale. Its staleness is 2.5 s on
    // arrival.
    for (value, kept) in [
        ("max-age=0, stale-while-revalidate=3", true),
        ("max-age=0, stale-if-error=3", true),
        ("max-age=0, stale-if-error=2", false),
        ("max-age=0, stale-if-error=3, must-revalidate", false),
        ("s-maxage=0, stale-if-error=3", true),
        ("no-cache, stale-if-error=3", false),
    ] {
        assert_eq!(of(&[("cache-control", value)]).is_ok(), kept, "{value}");
    }
}

#[test]
fn grace_comes_from_the_response_or_the_configuration_unless_forbidden() {
    let terms = Terms {
        stale_while_revalidate_s: 5,
        stale_if_error_s: u64::MAX,
        ..Terms::default()
    };
    let of = |value| {
        let verdict = judged(200, &[("cache-control", value)], &terms).expect("fresh");
        (verdict.swr_s, verdict.sie_s, verdict.strict)
    };
    assert_eq!(of("max-age=9"), (5, SECONDS_MAX, false));
    let said = "max-age=9, stale-while-revalidate=1, stale-if-error=0";
    assert_eq!(of(said), (1, 0, false));
    for strict in [
        "max-age=9, must-revalidate, stale-if-error=1",
        "max-age=9, proxy-revalidate",
        "s-maxage=9",
    ] {
        assert_eq!(of(strict), (0, 0, true), "{strict}");
    }
    assert!(!judged(200, &[("cache-control", "max-age=9")], &terms).is_ok_and(|v| v.immutable));
    let immutable = judged(200, &[("cache-control", "max-age=9, immutable")], &terms);
    assert!(immutable.is_ok_and(|v| v.immutable));
}

#[test]
fn named_fields_and_cookies_are_stripped() {
    let of = |set_cookie, value| {
        let terms = Terms {
            set_cookie,
            ..Terms::default()
        };
        let lines = [("cache-control", value), ("set-cookie", "a=b")];
        judged(200, &lines, &terms).map(|v| v.stripped)
    };
    let none: Vec<String> = Vec::new();
    let names = |names: &[&str]| Ok(names.iter().map(|n| (*n).to_owned()).collect());
    let (plain, own) = (
        "max-age=9",
        "max-age=9, private=\"X, Set-Cookie\", no-cache=x",
    );
    assert_eq!(of(SetCookie::Pass, plain), Err(Reason::SetCookie));
    assert_eq!(of(SetCookie::Store, plain), Ok(none));
    assert_eq!(of(SetCookie::Remove, plain), names(&["set-cookie"]));
    for set_cookie in [SetCookie::Pass, SetCookie::Store, SetCookie::Remove] {
        assert_eq!(of(set_cookie, own), names(&["set-cookie", "x"]));
    }
    let other = "max-age=9, private=z";
    assert_eq!(of(SetCookie::Remove, other), names(&["set-cookie", "z"]));
}

#[test]
fn responses_to_authorized_requests_need_permission() {
    let request = fields(&[("authorization", "Basic eDp5")]);
    let of = |status, value| {
        let response = fields(&[("cache-control", value)]);
        judge(&request, status, &response, &Terms::default(), AT).map(|v| v.authorized)
    };
    assert_eq!(of(200, "max-age=9"), Err(Reason::Authorization));
    for value in [
        "max-age=9, public",
        "max-age=9, must-revalidate",
        "s-maxage=9",
    ] {
        assert_eq!(of(200, value), Ok(true), "{value}");
        assert_eq!(of(404, value), Err(Reason::Authorization), "{value}");
    }
    let alone = judged(200, &[("cache-control", "max-age=9")], &Terms::default());
    assert_eq!(alone.map(|v| v.authorized), Ok(false));
}

proptest! {
    /// Checks the relations between a verdict's values for any headers and clocks.
    #[test]
    fn verdicts_are_consistent(
        status in 0_u16..1000,
        lines in prop::collection::vec((0_usize..10, "[a-z0-9=\", @+;*-]{0,24}"), 0..6),
        request_ms in any::<u64>(),
        response_ms in any::<u64>(),
        numbers in any::<[u64; 6]>(),
        ignore in any::<[bool; 7]>(),
    ) {
        const NAMES: [&str; 10] = [
            "cache-control", "expires", "date", "age", "etag", "last-modified", "vary",
            "x-accel-expires", "sluice-cache-control", "surrogate-control",
        ];
        let targets = targets();
        let [valid_s, heuristic_max_s, min, max, swr_s, sie_s] = numbers;
        let [age, cache_control, expires, set_cookie, targeted, vary, x_accel_expires] = ignore;
        let terms = Terms {
            valid_s: (valid_s % 2 == 0).then_some(valid_s),
            heuristic_max_s,
            lifetime_s: min..=max,
            ignore: Ignored { age, cache_control, expires, set_cookie, targeted, vary, x_accel_expires },
            set_cookie: SetCookie::Remove,
            stale_while_revalidate_s: swr_s,
            stale_if_error_s: sie_s,
            targets: &targets,
        };
        let lines: Vec<_> = lines.iter().map(|(name, value)| (NAMES[*name], value.as_str())).collect();
        let exchanged = ExchangeTimes { request_ms, response_ms };
        if let Ok(verdict) = judge(&Fields::new(), status, &fields(&lines), &terms, exchanged) {
            prop_assert!(verdict.lifetime_s <= SECONDS_MAX);
            prop_assert!(verdict.fresh_ms <= i64::from(verdict.lifetime_s) * 1000);
            prop_assert!(!verdict.strict || verdict.swr_s == 0 && verdict.sie_s == 0);
            prop_assert!(verdict.strict || !verdict.no_cache);
            prop_assert!(status >= 200);
        }
    }
}
