//! Tests of the laws of the router: the host selects the site, and the order of the routes decides
//! between them.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::handler::{Answer, Handler, Request};
use crate::handler::{Body, Head, Peer, Response};
use crate::http::Scheme;
use crate::http::target::host_of;
use crate::reason::Reason;
use crate::telemetry::WorkerRoutes;

fn site<T>(hosts: &[&str], routes: Vec<(Matcher, T)>) -> Site<T> {
    Site {
        hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
        routes,
    }
}

pub(super) fn path(text: &str) -> Matcher {
    Matcher::path(text).expect("a good path")
}

fn regex(text: &str) -> Matcher {
    Matcher::path_regex(text).expect("a good pattern")
}

/// Generates conditions of all kinds, many of which match the same requests.
pub(super) fn matcher() -> impl Strategy<Value = Matcher> {
    let glob = "(/|[*])[ab/]{0,3}[*]{0,2}[ab/]{0,2}[*]?";
    let path = prop_oneof![
        8 => glob.prop_map(|text| path(&text)),
        1 => Just(Matcher::any()),
        1 => "[ab/]{1,2}\\$?".prop_map(|text| regex(&text)),
    ];
    let query = prop::option::weighted(0.3, "[ab]{0,2}");
    (path, query).prop_map(|(path, query)| match query {
        Some(query) => path.with_query(&query).expect("a good pattern"),
        None => path,
    })
}

#[test]
fn the_host_decides_the_site() {
    let router = Router::new([
        site(&["a.example", "*.b.example"], vec![(Matcher::any(), 1)]),
        site(
            &["*.example", "x.b.example", "[::1]"],
            vec![(Matcher::any(), 2)],
        ),
        site(&[], vec![(Matcher::any(), 3)]),
    ]);
    for (authority, expected) in [
        ("a.example", 1),
        ("a.example:8080", 1),
        ("a.example.", 1),
        ("a.example.:80", 1),
        ("y.b.example", 1),
        ("z.y.b.example:1", 1),
        ("x.b.example", 2),
        ("b.example", 2),
        ("[::1]:8080", 2),
        ("[::1]", 2),
        ("example", 3),
        (".example", 3),
        ("[::2]", 3),
        ("", 3),
        ("a.example.evil", 3),
    ] {
        assert_eq!(router.find(authority, "/"), Some(&expected), "{authority}");
    }
    let long = "a.".repeat(10_000) + "example";
    assert_eq!(router.find(&long, "/"), Some(&3));
}

#[test]
fn the_order_decides_the_route_and_no_other_site_is_tried() {
    let router = Router::new([
        site(
            &["a.example"],
            vec![
                (path("/static/*"), 1),
                (path("/favicon.ico"), 2),
                (regex(r"\.(mp4|avi)$"), 3),
            ],
        ),
        site(&[], vec![(Matcher::any(), 4)]),
    ]);
    for (target, expected) in [
        ("/static/film.mp4", Some(1)),
        ("/static/", Some(1)),
        ("/static", None),
        ("/static?x=/static/", None),
        ("/favicon.ico", Some(2)),
        ("/favicon.ico?v=2", Some(2)),
        ("/favicon.icon", None),
        ("/film.mp4?t=1", Some(3)),
        ("/film.mp4/x", None),
        ("*", None),
    ] {
        assert_eq!(
            router.find("a.example", target),
            expected.as_ref(),
            "{target}"
        );
    }
    assert_eq!(router.find("b.example", "/film.mp4/x"), Some(&4));
    assert_eq!(Router::<u8>::new([]).find("a", "/"), None);
}

#[test]
fn patterns_that_can_not_match_or_cost_too_much_are_refused() {
    for bad in [
        "", "static/*", "/a?b", "*?b", "/a#b", "/a b", "/é", "/a\\b", "a*",
    ] {
        assert!(Matcher::path(bad).is_err(), "{bad:?}");
    }
    assert!(Matcher::path(&format!("/{}", "x".repeat(5000))).is_err());
    for bad in [
        "(",
        "(?=a)",
        r"(\w{1000}){1000}",
        &"(".repeat(2000),
        &"x".repeat(5000),
    ] {
        assert!(Matcher::path_regex(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn globs_match_segments_and_whole_rests() {
    for (glob, matched, others) in [
        (
            "*.mp4",
            &["/a.mp4", "/a/b.mp4?x=.avi"][..],
            &["/a.mp4/b", "/a?b.mp4"][..],
        ),
        (
            "/video/**",
            &["/video/", "/video/a/b"],
            &["/video", "/videos/a"],
        ),
        (
            "/*/list",
            &["/a/list", "//list", "/a/list?x"],
            &["/a/b/list", "/list", "/a/list/"],
        ),
        (
            "/a/**/b",
            &["/a/b", "/a/x/b", "/a/x/y/b"],
            &["/a/xb", "/ab", "/a/b/c"],
        ),
        (
            "/a/*.ts",
            &["/a/x.ts", "/a/.ts"],
            &["/a/b/x.ts", "/a/x.tsx"],
        ),
        ("/a/*/c*", &["/a/b/c", "/a/b/c/d"], &["/a/b/x", "/a/c"]),
        ("*", &["/", "/a?b"], &[]),
        ("*/a.(b)", &["/a.(b)", "/x/a.(b)"], &["/xa.(b)", "/a.b"]),
    ] {
        let matcher = path(glob);
        for target in matched {
            assert!(matcher.matches(target), "{glob} {target}");
        }
        for target in others {
            assert!(!matcher.matches(target), "{glob} {target}");
        }
    }
}

#[test]
fn a_condition_on_the_query_sees_nothing_else() {
    let matcher = path("/a").with_query("^v=1$").expect("a good pattern");
    assert!(matcher.matches("/a?v=1"));
    assert!(!matcher.matches("/a") && !matcher.matches("/b?v=1") && !matcher.matches("/a?v=12"));
    let none = Matcher::any().with_query("^$").expect("a good pattern");
    assert!(none.matches("/a") && none.matches("/a?") && !none.matches("/a?b"));
    assert!(path("/a").covers(&matcher) && !matcher.covers(&path("/a")));
}

struct Names(&'static str);

impl Handler for Names {
    fn handle(&self, _request: Request) -> Answer {
        Answer::Ready(Ok(Response::text(200, self.0)))
    }
}

fn request(authority: &str, target: &str) -> Request {
    let mut head = Head::new();
    head.authority.push_str(authority);
    head.target.push_str(target);
    let address = crate::sys::Address::from((Ipv4Addr::LOCALHOST, 1));
    Request {
        head,
        body: Body::Empty,
        peer: Peer {
            client: std::net::Ipv4Addr::LOCALHOST.into(),
            address,
            local: address,
            scheme: Scheme::Http,
            tls: None,
            shared: false,
        },
        interim: None,
    }
}

#[test]
fn as_a_handler_it_passes_on_or_says_that_there_is_no_route() {
    let routes = vec![(path("/a"), 0), (Matcher::any(), 1)];
    let router = Arc::new(Router::new([site(&["a"], routes)]));
    let built = Rc::new(RefCell::new(Vec::new()));
    let record = built.clone();
    let build = move |index| -> Rc<dyn Handler> {
        record.borrow_mut().push(index);
        Rc::new(Names("found"))
    };
    let router = Routes::new(router, 2, build, Rc::new(WorkerRoutes::new(2)));
    assert!(built.borrow().is_empty());
    let Answer::Ready(Ok(response)) = router.handle(request("a:80", "/")) else {
        panic!("the route's handler answers at once");
    };
    assert_eq!(response.declared_length(), Some(5));
    let Answer::Ready(Err(fault)) = router.handle(request("b", "/")) else {
        panic!("a host without a site has no route");
    };
    assert_eq!(fault.reason, Reason::NoRoute);
    // A handler is built once, by the first request of its route.
    assert!(matches!(
        router.handle(request("a", "/")),
        Answer::Ready(Ok(_))
    ));
    assert_eq!(*built.borrow(), [1]);
}

proptest! {
    #[test]
    fn a_covered_path_is_never_reached(
        paths in prop::collection::vec("(/|[*])[ab*/]{0,4}", 1..6), target in "/[ab/]{0,4}(\\?[ab]{0,2})?",
    ) {
        let matchers: Vec<Matcher> = paths.iter().map(|p| path(p)).collect();
        for (i, earlier) in matchers.iter().enumerate() {
            for later in &matchers[i + 1..] {
                prop_assert!(!earlier.covers(later) || !later.matches(&target) || earlier.matches(&target));
            }
        }
    }

    #[test]
    fn any_authority_and_target_are_taken(authority in "\\PC{0,40}", target in "\\PC{0,40}") {
        let router = Router::new([
            site(&["a.b", "*.c"], vec![(path("/x*"), 1)]),
            site(&[], vec![(regex("^/[0-9]+$"), 2), (Matcher::any(), 3)]),
        ]);
        let found = router.find(&authority, &target);
        prop_assert!(found.is_some() || host_of(&authority).ends_with(".c") || host_of(&authority) == "a.b");
    }
}
