//! Tests of the freshness lifetime and age of a response (RFC 9111 4.2; RFC 9213).

use sluice_lab::origin::{Modified, Resource, Tag};

use crate::caching_rules::{Case, LENGTH, bare, check_fresh_for, current, date_in, times};
use crate::harness::{Setup, assert_hit, origin, serving};
use crate::storing::{HOUR, YEAR, fresh_with, with};

// RFC 9213 2.2: the first valid targeted header, such as CDN-Cache-Control, gives the lifetime.
// Cache-Control and Expires are then ignored.
#[test]
fn targeted_headers_take_precedence() {
    let origin = origin();
    let targeted =
        |value: &str, control: &str| with("CDN-Cache-Control", value).cache_control(control);
    let past = date_in(-1000);
    let cases: Vec<Case<'_>> = vec![
        (
            "over no-store",
            targeted("max-age=3600", "no-store"),
            Some(HOUR),
        ),
        (
            "over max-age",
            targeted("max-age=3600", "max-age=5"),
            Some(HOUR),
        ),
        (
            "over s-maxage",
            targeted("max-age=3600", "s-maxage=5"),
            Some(HOUR),
        ),
        ("no-store", targeted("no-store", "max-age=3600"), None),
        ("private", targeted("private", "max-age=3600"), None),
        (
            "over Expires",
            with("CDN-Cache-Control", "max-age=3600").header("Expires", &past),
            Some(HOUR),
        ),
        (
            "ours before others",
            targeted("no-store", "no-store").header("Sluice-Cache-Control", "max-age=3600"),
            Some(HOUR),
        ),
        (
            "parameters are not heeded",
            targeted("max-age=3600;x=y, z", "no-store"),
            Some(HOUR),
        ),
    ];
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}

// RFC 9213 2.1: a targeted header is ignored if it is empty or not a structured-field dictionary.
#[test]
fn malformed_targeted_headers_are_ignored() {
    let origin = origin();
    let targeted = |value: &str| with("CDN-Cache-Control", value).cache_control("max-age=3600");
    let cases = [
        "",
        "&&&",
        "max-age=5, ???",
        "MAX-AGE=5",
        "no-store,",
        "max-age=\"5",
    ];
    let cases = cases.map(|value| (value, targeted(value), Some(HOUR)));
    check_fresh_for(&Setup::cached(&origin), &origin, cases.into());
}

#[test]
fn targeted_headers_are_configurable() {
    let origin = origin();
    let setup = Setup::cached(&origin).cache("target_list = [\"X-Cache-Control\"]");
    let cases = vec![
        (
            "named",
            with("X-Cache-Control", "max-age=3600").cache_control("no-store"),
            Some(HOUR),
        ),
        (
            "not named",
            with("CDN-Cache-Control", "max-age=3600").cache_control("no-store"),
            None,
        ),
    ];
    check_fresh_for(&setup, &origin, cases);
}

// The configuration names Surrogate-Control (W3C Edge Architecture) as a targeted header. It then
// has its own rules, and requests to the origin announce support for it.
#[test]
fn surrogate_control_may_be_a_target() {
    let origin = origin();
    let setup = Setup::cached(&origin).cache("target_list = [\"Surrogate-Control\"]");
    let control = |value: &str| with("Surrogate-Control", value).cache_control("no-store");
    let cases: Vec<Case<'_>> = vec![
        ("max-age", control("max-age=3600"), Some(HOUR)),
        ("with an extension", control("max-age=3600+600"), Some(HOUR)),
        ("no-store", control("no-store, max-age=3600"), None),
    ];
    check_fresh_for(&setup, &origin, cases);
    let sent = crate::caching_rules::last_sent(&origin, "/0", "surrogate-capability");
    assert_eq!(sent.as_deref(), Some("sluice=\"Surrogate/1.0\""));
}

// The configuration names nginx's X-Accel-Expires as a targeted header. Its value is a number of
// seconds, a time, or 0 for not storing, and takes precedence over Cache-Control and Expires.
#[test]
fn x_accel_expires_sets_the_lifetime() {
    let origin = origin();
    let unix = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("a time after 1970");
    let at = format!("@{}", unix.as_secs() + 3600);
    let accel = |value: &str| with("X-Accel-Expires", value);
    let cases: Vec<Case<'_>> = vec![
        ("seconds", accel("3600"), Some(HOUR)),
        ("a time", accel(&at), Some(3500..=3600)),
        (
            "over max-age",
            accel("3600").cache_control("max-age=5"),
            Some(HOUR),
        ),
        ("0", accel("0").cache_control("max-age=3600"), None),
        (
            "malformed",
            accel("soon").cache_control("max-age=3600"),
            Some(HOUR),
        ),
    ];
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}

fn modified(seconds_ago: i64) -> Resource {
    let date = Modified::Fixed(date_in(-seconds_ago));
    bare(Resource::offset(LENGTH)).modified(date)
}

// RFC 9111 4.2.2: the heuristic lifetime is a tenth of the time since Last-Modified, at most a day.
#[test]
fn heuristic_lifetimes_come_from_last_modified() {
    let origin = origin();
    let cases: Vec<Case<'_>> = vec![
        ("a tenth", modified(10_000), Some(980..=1000)),
        ("at most a day", modified(10 * YEAR), Some(86_380..=86_400)),
        ("404", modified(10_000).with_status(404), Some(980..=1000)),
        ("not for 302", modified(10_000).with_status(302), None),
        ("not for 500", modified(10_000).with_status(500), None),
        (
            "unless public",
            modified(10_000).with_status(302).cache_control("public"),
            Some(980..=1000),
        ),
        ("the future", modified(-10_000), None),
        (
            "nothing to guess from",
            bare(Resource::offset(LENGTH)),
            None,
        ),
    ];
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}

// The setting `heuristic` is the longest heuristic lifetime; 0 disables heuristic lifetimes.
#[test]
fn heuristic_lifetimes_are_limited() {
    let origin = origin();
    for (setting, expected) in [("50s", Some(40..=50)), ("0s", None)] {
        let setup = Setup::cached(&origin).cache(&format!("heuristic = \"{setting}\""));
        let cases = vec![(setting, modified(10_000), expected)];
        check_fresh_for(&setup, &origin, cases);
    }
}

// `lifetime_min` and `lifetime_max` limit positive lifetimes, whether they come from the response
// or from the configuration.
#[test]
fn lifetimes_are_limited() {
    let origin = origin();
    let setup = Setup::cached(&origin)
        .cache("lifetime_min = \"100s\"")
        .cache("lifetime_max = \"200s\"")
        .cache("valid = { 404 = \"1s\", 410 = \"1h\" }");
    let (min, max) = (Some(85..=100), Some(185..=200));
    let control = |control| bare(fresh_with(control));
    let cases: Vec<Case<'_>> = vec![
        ("raised", control("max-age=1"), min.clone()),
        ("kept", control("max-age=150"), Some(135..=150)),
        ("lowered", control("max-age=3600"), max.clone()),
        ("Expires", with("Expires", &date_in(3600)), max.clone()),
        ("guessed", modified(10 * YEAR), max.clone()),
        ("valid, raised", Resource::status(404), min),
        ("valid, lowered", Resource::status(410), max),
        ("none is none", control("max-age=0"), None),
        ("s-maxage=0", control("s-maxage=0, max-age=9"), None),
        ("no-store", control("no-store, max-age=9"), None),
        ("private", control("private, max-age=9"), None),
        ("past", with("Expires", &date_in(-10)), None),
    ];
    check_fresh_for(&setup, &origin, cases);
}

// `valid` gives lifetimes by status to responses that have none of their own. The entry `any` is
// for all statuses that `valid` does not list.
#[test]
fn statuses_without_a_lifetime_get_the_configured_one() {
    let origin = origin();
    let setup = Setup::cached(&origin).cache("valid = { 200 = \"100s\", any = \"1h\" }");
    let cases: Vec<Case<'_>> = vec![
        ("200", bare(Resource::offset(LENGTH)), Some(85..=100)),
        ("404", Resource::status(404), Some(HOUR)),
        ("302", Resource::status(302), Some(HOUR)),
        ("500", Resource::status(500), Some(HOUR)),
        (
            "who says is heard",
            Resource::status(404).cache_control("max-age=30"),
            Some(15..=30),
        ),
        (
            "no-store",
            Resource::status(404).cache_control("no-store"),
            None,
        ),
        ("past", Resource::status(404).header("Expires", "0"), None),
    ];
    check_fresh_for(&setup, &origin, cases);
}

#[test]
fn headers_of_responses_can_be_ignored() {
    let valid = "valid = { 200 = \"1h\" }";
    for (name, resource) in [
        ("cache-control", bare(fresh_with("no-store"))),
        ("cache-control", bare(fresh_with("private, max-age=5"))),
        ("cache-control", with("Pragma", "no-cache")),
        ("expires", with("Expires", "0")),
        ("age", with("Age", "100000").cache_control("max-age=3600")),
        ("set-cookie", with("Set-Cookie", "a=b")),
        ("targeted", with("CDN-Cache-Control", "no-store")),
        ("x-accel-expires", with("X-Accel-Expires", "0")),
        ("vary", with("Vary", "*")),
    ] {
        let origin = origin();
        let setup = Setup::cached(&origin).cache(valid);
        let ignoring = setup.cache(&format!("ignore_headers = [\"{name}\"]"));
        check_fresh_for(&ignoring, &origin, vec![(name, resource, Some(HOUR))]);
    }
}

// With `ignore_headers = ["vary"]`, one stored response answers all requests.
#[test]
fn vary_can_be_ignored() {
    let origin = serving("/x", current().vary("X-Flavour"));
    let edge = Setup::cached(&origin)
        .cache("ignore_headers = [\"vary\"]")
        .start();
    edge.get("/x", &[("X-Flavour", "cherry")]);
    assert_hit(&edge.get("/x", &[("X-Flavour", "lemon")]));
    assert_hit(&edge.get("/x", &[]));
    assert_eq!(times(&origin, "/x"), 1);
}

// RFC 9111 5.1: Age is one decimal number, and an Age that is none is ignored. Of several lines the
// first valid one counts, and of a list the first member.
#[test]
fn an_invalid_age_is_ignored() {
    let origin = origin();
    let age = |value: &str| with("Age", value).cache_control("max-age=3600");
    let aged = || Some(2980..=3000);
    let cases: Vec<Case<'_>> = vec![
        ("good", age("600"), aged()),
        ("too old", age("3601"), None),
        ("no number", age("abc"), Some(HOUR)),
        ("negative", age("-7200"), Some(HOUR)),
        ("a fraction", age("7200.0"), Some(HOUR)),
        ("a parameter", age("7200;x=y"), Some(HOUR)),
        ("beyond all bounds", age("99999999999999999999"), None),
        ("the first of a list", age("600, 7200"), aged()),
        ("an old first of a list", age("7200, 0"), None),
        ("one number twice", age("600, 600"), aged()),
        ("two lines", age("600").header("Age", "7200"), aged()),
        ("an old first line", age("7200").header("Age", "0"), None),
        ("one line twice", age("600").header("Age", "600"), aged()),
        (
            "an invalid line, then a valid one",
            age("abc").header("Age", "600"),
            aged(),
        ),
        ("an invalid line", age("600").header("Age", "abc"), aged()),
    ];
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}

// RFC 9111 4.2.3, 5.3: the lifetime is the time from Date to Expires. The time since Date is the
// least age of the response.
#[test]
fn date_and_expires_determine_age_and_lifetime() {
    let origin = origin();
    let dated =
        |date: i64, expires: i64| with("Date", &date_in(date)).header("Expires", &date_in(expires));
    let lived = |date: &str| with("Date", date).cache_control("max-age=3600");
    let cases: Vec<Case<'_>> = vec![
        ("from Date", dated(-100, 500), Some(480..=501)),
        ("a slow clock", dated(-1000, -500), None),
        ("Date in the past", lived(&date_in(-600)), Some(2980..=3001)),
        ("Date long ago", lived(&date_in(-4000)), None),
        ("Date in the future", lived(&date_in(4000)), Some(HOUR)),
        ("no date", lived("yesterday"), Some(HOUR)),
        (
            "max-age over Expires",
            with("Expires", "0").cache_control("max-age=3600"),
            Some(HOUR),
        ),
        ("Expires: 0", with("Expires", "0"), None),
        ("Expires: -1", with("Expires", "-1"), None),
        ("no date at all", with("Expires", "in an hour"), None),
    ];
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}

// RFC 9110 5.6.7: a recipient must accept all three forms of dates.
#[test]
fn dates_have_three_forms() {
    let origin = origin();
    let kept = || Some(5 * YEAR..=12 * YEAR);
    let cases: Vec<Case<'_>> = vec![
        (
            "now",
            with("Expires", "Thu, 01 Jan 2037 00:00:00 GMT"),
            kept(),
        ),
        (
            "RFC 850",
            with("Expires", "Thursday, 01-Jan-37 00:00:00 GMT"),
            kept(),
        ),
        (
            "asctime",
            with("Expires", "Thu Jan  1 00:00:00 2037"),
            kept(),
        ),
        (
            "RFC 850, past",
            with("Expires", "Sunday, 06-Nov-94 08:49:37 GMT"),
            None,
        ),
        (
            "asctime, past",
            with("Expires", "Sun Nov  6 08:49:37 1994"),
            None,
        ),
    ];
    let setup = Setup::cached(&origin).cache("lifetime_max = \"3650d\"");
    check_fresh_for(&setup, &origin, cases);
}

// The names in a date of Expires may have any letter case, and the weekday may be a wrong one. Every
// other deviation from the three forms makes the response stale (RFC 9111 5.3).
#[test]
fn only_names_may_deviate_in_expires() {
    let origin = origin();
    let year = || Some(YEAR - 60..=YEAR);
    let cases: Vec<Case<'_>> = [
        ("THU, 18 Aug 2050 02:01:18 GMT", year()),
        ("Thu, 18 AUG 2050 02:01:18 GMT", year()),
        ("Thu, 18 Aug 2050 02:01:18 gMT", year()),
        ("Mon, 18 Aug 2050 02:01:18 GMT", year()),
        ("Monday, 18-Aug-50 02:01:18 GMT", year()),
        ("Thu Aug  8 02:01:18 2050", year()),
        ("Thu, 18 Aug 2050 02:01:18 UTC", None),
        ("Thu, 18 Aug 2050 02:01:18 +0000", None),
        ("Thu, 18 Aug 2050 02:01:18 AEST", None),
        ("Thu, 8 Aug 2050 02:01:18 GMT", None),
        ("Thu, 18 Aug 50 02:01:18 GMT", None),
        ("Thu 18 Aug 2050 02:01:18 GMT", None),
        ("Thu, 18  Aug  2050 02:01:18 GMT", None),
        ("Thu, 18-Aug-2050 02:01:18 GMT", None),
        ("Thu, 18 Aug 2050 02.01.18 GMT", None),
        ("Thu, 18 Aug 2050 2:01:18 GMT", None),
    ]
    .map(|(expires, lifetime)| (expires, with("Expires", expires), lifetime))
    .into();
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}

// Dates other than Expires are also understood with one digit for the day and with other names of
// the time zone (RFC 9110 5.6.7).
#[test]
fn other_dates_may_deviate_further() {
    let origin = origin();
    for (name, date) in [
        ("a wrong weekday", "Mon, 01 Jan 2026 00:00:00 GMT"),
        ("one digit", "Thu, 1 Jan 2026 00:00:00 GMT"),
        ("UTC", "Thu, 01 Jan 2026 00:00:00 UTC"),
        ("+0000", "Thu, 01 Jan 2026 00:00:00 +0000"),
    ] {
        // A Date in the past makes the response old.
        let lived = with("Date", date).cache_control("max-age=60");
        check_fresh_for(&Setup::cached(&origin), &origin, vec![(name, lived, None)]);

        let edge = Setup::cached(&origin).start();
        let modified = |value: &str| current().modified(Modified::Fixed(value.to_owned()));
        origin.serve("/theirs", modified(date));
        origin.serve("/ours", modified("Thu, 01 Jan 2026 00:00:00 GMT"));
        let since = ("If-Modified-Since", "Thu, 01 Jan 2026 00:00:00 GMT");
        let earlier = ("If-Modified-Since", "Wed, 31 Dec 2025 23:59:59 GMT");
        assert_eq!(edge.get("/theirs", &[since]).status, 304, "{name}");
        assert_eq!(edge.get("/theirs", &[earlier]).status, 200, "{name}");
        let since = ("If-Modified-Since", date);
        assert_eq!(edge.get("/ours", &[since]).status, 304, "{name}");
    }
}

// A Last-Modified that is no date matches only an If-Modified-Since with the same bytes.
#[test]
fn a_last_modified_that_is_no_date_matches_exactly() {
    let origin = serving(
        "/x",
        current()
            .tag(Tag::None)
            .modified(Modified::Fixed("version 7".to_owned())),
    );
    let edge = Setup::cached(&origin).start();
    for round in ["cold", "stored"] {
        for (value, status) in [("version 7", 304), ("version 8", 200)] {
            let reply = edge.get("/x", &[("If-Modified-Since", value)]);
            assert_eq!(reply.status, status, "{round}: {value}");
            assert_eq!(reply.header("last-modified"), Some("version 7"));
        }
    }
    assert_eq!(times(&origin, "/x"), 1);
}

// RFC 9111 1.2.2: a number that is too large counts as the maximum, which is also the longest
// lifetime here.
#[test]
fn huge_numbers_count_as_the_maximum() {
    let origin = origin();
    let control = |control: &str| bare(fresh_with(control));
    let year = || Some(YEAR - 60..=YEAR);
    let cases: Vec<Case<'_>> = vec![
        ("31 bits", control("max-age=2147483648"), year()),
        ("32 bits", control("max-age=4294967296"), year()),
        ("64 bits", control("max-age=18446744073709551616"), year()),
        (
            "more",
            control("max-age=99999999999999999999999999"),
            year(),
        ),
        (
            "a year",
            with("Expires", "Fri, 31 Dec 9999 23:59:59 GMT"),
            year(),
        ),
        (
            "old age",
            control("max-age=99999999999999999999").header("Age", "99999999999999999999"),
            None,
        ),
    ];
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}

// RFC 9111 4.2.1: an unreadable lifetime counts as 0.
#[test]
fn unreadable_lifetimes_count_as_0() {
    let origin = origin();
    let cases: Vec<Case<'_>> = [
        "max-age=abc",
        "max-age=-1",
        "max-age=",
        "max-age",
        "max-age=1.5",
    ]
    .map(|control| (control, bare(fresh_with(control)), None))
    .into();
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}

// RFC 8246: `immutable` has no effect on a shared cache.
#[test]
fn immutable_does_not_change_the_lifetime() {
    let origin = origin();
    let control = |control| bare(fresh_with(control));
    let cases: Vec<Case<'_>> = vec![
        (
            "with a lifetime",
            control("max-age=3600, immutable"),
            Some(HOUR),
        ),
        ("without", control("immutable"), None),
    ];
    check_fresh_for(&Setup::cached(&origin), &origin, cases);
}
