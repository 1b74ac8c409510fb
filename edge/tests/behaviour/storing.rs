//! Tests of what is stored and for how long (RFC 9111 3, 4.2; RFC 9213).

use sluice_lab::origin::{Gate, Modified, Resource, Seen, Tag};

use crate::aging::{
    Case, Crowd, LENGTH, aged, bare, check_kept, current, date_in, kept_for, stale, times,
};
use crate::harness::{
    SOON, Setup, assert_has_parameter, assert_hit, cache_status, fresh, origin, serving,
};

const HOUR: std::ops::RangeInclusive<i64> = 3580..=3600;
const YEAR: i64 = 365 * 24 * 3600;

/// A body without a lifetime and validator, with this header.
fn with(name: &str, value: &str) -> Resource {
    bare(Resource::offset(LENGTH)).header(name, value)
}

// RFC 9111 3: final statuses with explicit freshness are stored, errors among them.
#[test]
fn most_statuses_with_explicit_freshness_are_stored() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for status in [
        200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 414, 451, 500, 501,
        502, 503, 504,
    ] {
        let path = format!("/{status}");
        let resource = Resource::status(status).cache_control("max-age=3600");
        let kept = kept_for(&edge, &origin, &path, resource);
        assert!(kept.is_some_and(|ttl| HOUR.contains(&ttl)), "{status}");
        assert_eq!(edge.get(&path, &[]).status, status);
    }
}

// These statuses concern one request, and not the resource.
#[test]
fn statuses_of_one_request_are_never_stored() {
    let origin = origin();
    let edge = Setup::cached(&origin)
        .cache("valid = { any = \"1h\" }")
        .start();
    for status in [
        401, 407, 408, 412, 413, 416, 417, 421, 425, 426, 428, 429, 431, 511,
    ] {
        let path = format!("/{status}");
        let resource = Resource::status(status).cache_control("max-age=3600, public");
        let kept = kept_for(&edge, &origin, &path, resource);
        assert_eq!(kept, None, "{status}");
        assert!(times(&origin, &path) >= 2, "{status}");
    }
}

// RFC 9111 3, 5.2.2.3: an unknown status is stored if the response has a lifetime, and not stored
// if it has `must-understand`.
#[test]
fn unknown_statuses_with_explicit_freshness_are_stored() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for status in [299, 399, 499, 599] {
        let answer = |n, control| {
            let resource = Resource::status(status).cache_control(control);
            kept_for(&edge, &origin, &format!("/{status}/{n}"), resource)
        };
        assert!(answer(1, "max-age=3600").is_some(), "{status}");
        assert_eq!(answer(2, "must-understand, max-age=3600"), None, "{status}");
        assert_eq!(answer(3, "x=y"), None, "{status}");
    }
}

// RFC 9111 5.2.2.3: a cache that understands the status ignores a `no-store` next to
// `must-understand`.
#[test]
fn must_understand_overrides_no_store_for_known_statuses() {
    let control = "must-understand, no-store, max-age=3600";
    let known = bare(Resource::offset(LENGTH)).cache_control(control);
    let unknown = Resource::status(599).cache_control(control);
    let origin = origin();
    let cases = vec![("known", known, Some(HOUR)), ("unknown", unknown, None)];
    check_kept(&Setup::cached(&origin), &origin, cases);
}

// RFC 9111 5.2.2.4, 5.2.2.7: the named headers go only to the client whose request was fetched.
#[test]
fn headers_named_by_private_and_no_cache_are_not_stored() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for control in [
        "max-age=3600, private=\"X-Own\"",
        "max-age=3600, no-cache=\"X-Own\"",
        "max-age=3600, private=\"x-own, x-more\", no-cache=\"X-Other\"",
        "max-age=3600, no-cache=X-Own",
    ] {
        let path = format!("/{}", control.len());
        let resource = fresh_with(control)
            .header("X-Own", "mine")
            .header("X-All", "ours");
        origin.serve(&path, resource);
        let first = edge.get(&path, &[]);
        assert_eq!(first.header("x-own"), Some("mine"), "{control}");
        let hit = edge.get(&path, &[]);
        hit.verify_whole(LENGTH).expect("the body");
        assert_hit(&hit);
        assert_eq!(hit.header("x-own"), None, "{control}");
        assert_eq!(hit.header("x-all"), Some("ours"), "{control}");
    }
}

fn fresh_with(control: &str) -> Resource {
    Resource::offset(LENGTH).cache_control(control)
}

// Clients that waited for the fetch do not receive the named headers.
#[test]
fn named_headers_are_not_sent_to_waiting_clients() {
    let gate = Gate::closed();
    let control = "max-age=3600, private=\"X-Own\"";
    let resource = fresh_with(control).header("X-Own", "mine");
    let origin = serving("/x", resource.gate_head(&gate));
    let edge = Setup::cached(&origin).start();
    let crowd = Crowd::of(&edge, 8, "/x", &[]);
    gate.release();
    let own = |reply: &sluice_lab::client::Reply| reply.header("x-own").is_some();
    assert!(crowd.replies().iter().filter(|reply| own(reply)).count() <= 1);
    assert_eq!(times(&origin, "/x"), 1);
}

#[test]
fn private_and_no_store_are_not_stored() {
    let origin = origin();
    let cases: Vec<Case<'_>> = [
        "private, max-age=3600",
        "PRIVATE, max-age=3600",
        "no-store, max-age=3600",
        "max-age=3600, No-Store",
        "public, private, max-age=3600",
    ]
    .map(|control| (control, fresh_with(control), None))
    .into();
    check_kept(&Setup::cached(&origin), &origin, cases);
}

#[test]
fn set_cookie_has_three_modes() {
    for (setting, kept, later) in [
        (None, false, Some("a=b")),
        (Some("pass"), false, Some("a=b")),
        (Some("store"), true, Some("a=b")),
        (Some("remove"), true, None),
    ] {
        let origin = serving("/x", current().header("Set-Cookie", "a=b"));
        let mut setup = Setup::cached(&origin);
        if let Some(setting) = setting {
            setup = setup.cache(&format!("set_cookie = \"{setting}\""));
        }
        let edge = setup.start();
        assert_eq!(edge.get("/x", &[]).header("set-cookie"), Some("a=b"));
        for _ in 0..2 {
            let reply = edge.get("/x", &[]);
            assert_eq!(reply.header("set-cookie"), later, "{setting:?}");
            let hit = cache_status(&reply).starts_with("sluice; hit");
            assert_eq!(hit, kept, "{setting:?}");
        }
    }
}

const ANN: (&str, &str) = ("Authorization", "Basic YW5u");
const BEN: (&str, &str) = ("Authorization", "Basic YmVu");

// RFC 9111 3.5: a response to a request with Authorization is shared only if it permits that.
#[test]
fn responses_to_authorized_requests_are_shared_if_they_permit_it() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for (n, (control, shared)) in [
        ("max-age=3600", false),
        ("max-age=3600, public", true),
        ("s-maxage=3600", true),
        ("max-age=3600, must-revalidate", true),
        ("max-age=3600, proxy-revalidate", false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{n}");
        origin.serve(&path, fresh_with(control));
        edge.get(&path, &[ANN]).verify_whole(LENGTH).expect(control);
        edge.get(&path, &[BEN]).verify_whole(LENGTH).expect(control);
        let asked = if shared { 1 } else { 2 };
        assert_eq!(times(&origin, &path), asked, "{control}");
    }
}

// RFC 9111 3.5: the same for responses stored for requests without Authorization.
#[test]
fn authorized_requests_receive_stored_responses_that_permit_it() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for (path, control, shared) in [
        ("/a", "max-age=3600", false),
        ("/b", "max-age=3600, public", true),
    ] {
        origin.serve(path, fresh_with(control));
        edge.get(path, &[]);
        let reply = edge.get(path, &[ANN]);
        let hit = cache_status(&reply).starts_with("sluice; hit");
        assert_eq!(hit, shared, "{control}: {}", cache_status(&reply));
        if !shared {
            let sent = crate::aging::last_sent(&origin, path, "authorization");
            assert_eq!(sent.as_deref(), Some(ANN.1));
        }
        assert_hit(&edge.get(path, &[]));
    }
}

// A response to a request with Authorization says nothing about other requests: these are not
// passed because of it.
#[test]
fn a_response_to_authorization_does_not_make_others_pass() {
    let origin = serving("/x", current());
    let edge = Setup::cached(&origin).start();
    edge.get("/x", &[ANN]);
    assert_has_parameter(&edge.get("/x", &[]), "stored");
    assert_hit(&edge.get("/x", &[]));
}

// A 401 or similar response to one client's credentials is not shared.
#[test]
fn errors_to_the_authorized_are_not_shared() {
    let origin = serving(
        "/x",
        Resource::status(403).cache_control("public, max-age=3600"),
    );
    let edge = Setup::cached(&origin).start();
    for asked in 1..=2 {
        assert_eq!(edge.get("/x", &[ANN]).status, 403);
        assert_eq!(times(&origin, "/x"), asked);
    }
}

// Concurrent requests with different credentials for an unknown resource each receive their own
// response.
#[test]
fn concurrent_authorized_requests_receive_their_own_responses() {
    let gate = Gate::closed();
    let held = gate.clone();
    let own = move |seen: &Seen| {
        let who = seen.header("authorization").unwrap_or("nobody").to_owned();
        Resource::bytes(who)
            .cache_control("max-age=3600")
            .gate_head(&held)
    };
    let origin = serving("/x", Resource::dynamic(own));
    let edge = Setup::cached(&origin).start();
    let others = Crowd::of(&edge, 3, "/x", &[]);
    let anns = Crowd::beside(3, &edge, 3, "/x", &[ANN]);
    let bens = Crowd::beside(6, &edge, 3, "/x", &[BEN]);
    assert!(gate.wait_held(1, SOON));
    gate.release();
    for (crowd, text) in [(others, "nobody"), (anns, ANN.1), (bens, BEN.1)] {
        for reply in crowd.replies() {
            assert_eq!(reply.text(), text, "{}", cache_status(&reply));
        }
    }
}

// RFC 9110 14.4: Content-Range has a meaning only in 206 and 416.
#[test]
fn a_200_with_content_range_is_a_full_response() {
    let odd = current().header("Content-Range", "bytes 5-9/10");
    let origin = serving("/x", odd);
    let edge = Setup::cached(&origin).start();
    for _ in 0..2 {
        edge.get("/x", &[]).verify_whole(LENGTH).expect("the body");
    }
    let range = edge.get("/x", &[("Range", "bytes=5-9")]);
    range.verify_range(5, 9, LENGTH).expect("the range");
    assert_eq!(times(&origin, "/x"), 1);
}

// RFC 9213 2.2: the first valid targeted header counts, and Cache-Control and Expires do not.
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
    check_kept(&Setup::cached(&origin), &origin, cases);
}

// RFC 9213 2.1: a targeted header that is empty or not a structured-field dictionary is ignored.
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
    check_kept(&Setup::cached(&origin), &origin, cases.into());
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
    check_kept(&setup, &origin, cases);
}

// Surrogate-Control (W3C Edge Architecture) as a target: its own rules apply, and requests announce
// it.
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
    check_kept(&setup, &origin, cases);
    let sent = crate::aging::last_sent(&origin, "/0", "surrogate-capability");
    assert_eq!(sent.as_deref(), Some("sluice=\"Surrogate/1.0\""));
}

// nginx's X-Accel-Expires: seconds, a time, or 0 for not storing, before Cache-Control and Expires.
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
    check_kept(&Setup::cached(&origin), &origin, cases);
}

fn modified(seconds_ago: i64) -> Resource {
    let date = Modified::Fixed(date_in(-seconds_ago));
    bare(Resource::offset(LENGTH)).modified(date)
}

// RFC 9111 4.2.2: a tenth of the time since the last modification, at most a day.
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
    check_kept(&Setup::cached(&origin), &origin, cases);
}

// `heuristic` is the longest heuristic lifetime; 0 disables it.
#[test]
fn heuristic_lifetimes_are_limited() {
    let origin = origin();
    for (setting, expected) in [("50s", Some(40..=50)), ("0s", None)] {
        let setup = Setup::cached(&origin).cache(&format!("heuristic = \"{setting}\""));
        let cases = vec![(setting, modified(10_000), expected)];
        check_kept(&setup, &origin, cases);
    }
}

// `lifetime_min` and `lifetime_max` limit positive lifetimes from all sources.
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
    check_kept(&setup, &origin, cases);
}

// `valid` gives lifetimes by status to responses without one; `any` is for all other statuses.
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
    check_kept(&setup, &origin, cases);
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
        check_kept(&ignoring, &origin, vec![(name, resource, Some(HOUR))]);
    }
}

// With `ignore_headers = ["vary"]` there is one response for all requests.
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

// RFC 9111 5.1: Age is one decimal number; any other value makes the response stale.
#[test]
fn an_unreadable_age_makes_a_response_stale() {
    let origin = origin();
    let age = |value: &str| with("Age", value).cache_control("max-age=3600");
    let cases: Vec<Case<'_>> = vec![
        ("good", age("600"), Some(2980..=3000)),
        ("too old", age("3601"), None),
        ("no number", age("abc"), None),
        ("negative", age("-1"), None),
        ("a fraction", age("1.5"), None),
        ("a parameter", age("600;x=y"), None),
        ("beyond all bounds", age("99999999999999999999"), None),
        ("the first of a list", age("600, 5"), Some(2980..=3000)),
        ("two lines", age("600").header("Age", "5"), None),
    ];
    check_kept(&Setup::cached(&origin), &origin, cases);
}

// RFC 9111 4.2.3, 5.3: Expires counts from Date, and Date gives the age of a response.
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
    check_kept(&Setup::cached(&origin), &origin, cases);
}

// RFC 9110 5.6.7: all three forms are accepted.
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
    check_kept(&setup, &origin, cases);
}

// RFC 9111 1.2.2: a number that is too large counts as the maximum, which is the longest lifetime
// here.
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
    check_kept(&Setup::cached(&origin), &origin, cases);
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
    check_kept(&Setup::cached(&origin), &origin, cases);
}

// A response that is stale on arrival is stored only if it can be revalidated or served in grace.
#[test]
fn a_response_that_is_stale_on_arrival_is_stored_only_if_it_is_useful() {
    let origin = origin();
    let edge = Setup::cached(&origin).start();
    for (n, (resource, word)) in [
        (stale(""), "stored"),
        (stale("").tag(Tag::Weak).modified(Modified::None), "stored"),
        (bare(stale(", stale-if-error=600")), "stored"),
        (bare(stale(", stale-while-revalidate=600")), "stored"),
        (bare(stale("")), "detail=expired"),
        (bare(stale(", stale-if-error=30")), "detail=expired"),
        (bare(aged("max-age=0", 0)), "detail=expired"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{n}");
        origin.serve(&path, resource);
        let reply = edge.get(&path, &[]);
        reply.verify_whole(LENGTH).expect("the body");
        assert_has_parameter(&reply, word);
    }
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
    check_kept(&Setup::cached(&origin), &origin, cases);
}

// A body that ends too early is not stored as complete.
#[test]
fn a_truncated_response_is_not_stored_as_a_whole() {
    use sluice_lab::origin::{Ending, Fault};
    let cut = Fault::CutBody {
        after: 500,
        ending: Ending::Fin,
    };
    let cut = bare(fresh(LENGTH)).fault_times(1, cut);
    let origin = serving("/x", cut);
    let edge = Setup::cached(&origin).start();
    // The rest may have been fetched in the background.
    edge.get("/x", &[]);
    edge.get("/x", &[]).verify_whole(LENGTH).expect("all of it");
}
