//! Tests of header edits and error pages: the keys of sites and routes, which of them takes
//! precedence, and the errors in them.

use crate::config::Purpose;
use std::path::Path;

use super::{LEAST, plan, said};
use crate::config::{Report, RouteHandler, describe, load};
use crate::edit::{Lifetime, Options};

/// Returns a configuration whose site has the keys `site` and whose route has the keys `route`.
fn route(site: &str, route: &str) -> String {
    LEAST
        .replace("[[site]]", &format!("[[site]]\n{site}"))
        .replace(
            "proxy = \"origin\"",
            &format!("proxy = \"origin\"\n{route}"),
        )
}

fn options(text: &str) -> Option<Options> {
    plan(text).sites[0].routes[0].edit.as_deref().cloned()
}

const ALL: &str = r#"
cache_control = "no-cache"
error_pages = { 404 = { text = "none" }, 5xx = { text = "<p>", type = "text/html" } }
expires = { default = "-1h", types = { "Text/HTML" = "epoch", "image/*" = "30days" } }
intercept_errors = true
request_headers = { set = { X-One = "1", X-Two = "{client}" }, add = { X-Three = "3" }, remove = ["Cookie"] }
response_headers = { set = { X-Status = "{status}" }, remove = ["server"] }
security_headers = true
"#;

#[test]
fn every_key_may_stand_in_a_site_and_in_a_route() {
    let (of_site, of_route) = (options(&route(ALL, "")), options(&route("", ALL)));
    assert_eq!(of_site, of_route);
    let options = of_route.expect("edits");
    let names: Vec<&str> = options
        .request
        .put
        .iter()
        .map(|(name, _)| &**name)
        .collect();
    assert_eq!(names, ["x-one", "x-two", "x-three"]);
    let removed: Vec<&str> = options.request.remove.iter().map(|name| &**name).collect();
    assert_eq!(removed, ["x-one", "x-two", "cookie"]);
    let expires = options.expires.expect("lifetimes");
    assert_eq!(expires.types[0], ("text/html".into(), Lifetime::Epoch));
    let pages = options.errors.pages.iter();
    let which: Vec<_> = pages.map(|page| page.statuses.clone()).collect();
    assert_eq!(which, [404..=404, 500..=599]);
    assert_eq!(
        &*options.errors.pages[0].media_type,
        "text/plain; charset=utf-8"
    );
    assert!(options.errors.intercept && options.security);
    insta::assert_snapshot!("edits", describe(&plan(&route(ALL, ""))));
}

#[test]
fn a_routes_word_wins_and_may_undo_the_sites() {
    let undone = "cache_control = false\nerror_pages = false\nexpires = false\nrequest_headers = false\n\
                  response_headers = false\nsecurity_headers = false\n";
    assert_eq!(options(&route(ALL, undone)), None);
    assert_eq!(options(&route("", undone)), None);
    let other = options(&route(ALL, "request_headers = { add = { A = \"b\" } }\n")).expect("edits");
    assert_eq!(
        (other.request.put.len(), other.request.remove.len()),
        (1, 0)
    );
    assert!(other.security);
}

#[test]
fn fields_that_are_the_same_in_every_request_are_forwarded() {
    let fields = "cache = \"a\"\nrequest_headers = { set = { X-One = \"1\", X-Two = \"{client}\", \
                  Authorization = \"Basic eDp5\", If-Match = \"*\" }, add = { X-Three = \"3\" } }\n";
    let plan = plan(&format!("[cache.a]\n{}", route("", fields)));
    let proxied = plan.sites[0].routes[0].proxied().expect("an upstream");
    let forwarded: Vec<bool> = [
        &b"x-one"[..],
        b"x-two",
        b"x-three",
        b"authorization",
        b"if-match",
    ]
    .iter()
    .map(|name| {
        let mut constant = proxied.rules.constant_headers.iter();
        constant.any(|constant| constant.as_bytes() == *name)
    })
    .collect();
    assert_eq!(forwarded, [true, false, false, false, false]);
}

#[test]
fn errors_in_edits_show_the_place_and_the_fix() {
    let leads = |more: &str| LEAST.replace("proxy = \"origin\"", more);
    let cases = [
        (
            "framing",
            route(
                "",
                "[site.route.request_headers.set]\nContent-Length = \"5\"\nTransfer-Encoding = \"chunked\"\n",
            ),
        ),
        (
            "connection",
            route(
                "",
                "response_headers = { remove = [\"Connection\", \"Upgrade\"] }",
            ),
        ),
        (
            "request's own",
            route(
                "",
                "[site.route.request_headers.set]\nHost = \"a\"\nX_Forwarded_For = \"1\"\nVia = \"x\"\nExpect = \"x\"\nX-Real-IP = \"x\"\nCDN-Loop = \"x\"\n",
            ),
        ),
        (
            "response's own",
            route(
                "",
                "[site.route.response_headers]\nset = { Age = \"0\" }\nremove = [\"Content-Encoding\", \"Cache-Status\"]\n",
            ),
        ),
        (
            "names",
            route(
                "",
                "[site.route.request_headers]\nset = { \"a b\" = \"1\", \"\" = \"1\", A = \"1\", a = \"2\" }\n",
            ),
        ),
        (
            "values",
            route(
                "",
                "[site.route.response_headers.set]\na = \"{hots}\"\nb = \"{host\"\nc = \"x\\r\\nSet-Cookie: a\"\nd = \"{header:}\"\n",
            ),
        ),
        (
            "status of a request",
            route("", "request_headers = { add = { A = \"{status}\" } }"),
        ),
        (
            "unknown key",
            route("", "request_headers = { put = { A = \"b\" } }"),
        ),
        ("wrong type", route("", "request_headers = \"A: b\"")),
        ("a list", route("", "response_headers = [\"A: b\"]")),
        (
            "no table",
            route("", "response_headers = { set = \"A: b\" }"),
        ),
        (
            "expires",
            route(
                "",
                "expires = { default = \"1\", types = { html = \"1h\", \"*/*\" = \"11years\" } }",
            ),
        ),
        ("expires, short", route("expires = \"tomorrow\"", "")),
        ("cache_control", route("", "cache_control = \"a\\nb\"")),
        (
            "errors",
            route(
                "",
                "[site.route.error_pages]\n200 = { text = \"x\" }\n3xx = { text = \"x\" }\n404 = {}\n500 = { file = \"a\", text = \"b\" }\n502 = { text = \"a\", type = \"html\" }\n",
            ),
        ),
        ("intercept", route("", "intercept_errors = true")),
        (
            "respond",
            leads(
                "respond = { status = 100 }\n[[site.route]]\nrespond = { status = 204, body = \"x\" }\n[[site.route]]\nrespond = { status = 304 }\n[[site.route]]\nrespond = { type = \"x\" }",
            ),
        ),
        (
            "redirect",
            leads(
                "redirect = { status = 301 }\n[[site.route]]\nredirect = { to = \"/a\", status = 304 }\n[[site.route]]\nredirect = \"{host}/a\"\n[[site.route]]\nredirect = \"https://a/ b\"\n[[site.route]]\nredirect = \"/{header:X}\"",
            ),
        ),
        (
            "redirect in circles",
            leads(
                "path = \"/a\"\nredirect = \"{path}{query}\"\n[[site.route]]\nproxy = \"origin\"",
            ),
        ),
        ("two targets", leads("redirect = \"/a\"\nrespond = \"x\"")),
        (
            "a cache for nothing",
            leads(
                "redirect = \"/a\"\ncache = \"a\"\n[[site.route]]\nproxy = \"origin\"\n[cache.a]\n",
            ),
        ),
        ("no target", leads("")),
    ];
    let all: String = cases
        .iter()
        .map(|(name, text)| format!("== {name}\n{}\n", said(text)))
        .collect();
    insta::assert_snapshot!("edit_errors", all);
}

fn loaded(folder: &Path, page: &str) -> Result<Options, Report> {
    let config = folder.join("sluice.toml");
    let text = route("", &format!("error_pages = {{ 404 = {page:?} }}\n"));
    std::fs::write(&config, text).expect("it can be written");
    let plan = load(&config, Purpose::Reload)?.plan;
    Ok(plan.sites[0].routes[0]
        .edit
        .as_deref()
        .cloned()
        .expect("edits"))
}

#[test]
fn a_page_is_read_with_the_configuration_and_its_extension_tells_its_type() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("it can be written");
        path.display().to_string()
    };
    for (name, media_type) in [
        ("404.html", "text/html; charset=utf-8"),
        ("404.json", "application/json"),
        ("404", "text/html; charset=utf-8"),
    ] {
        let options = loaded(folder.path(), &write(name, b"not here")).expect("a page");
        let page = &options.errors.pages[0];
        assert_eq!(
            (&page.content[..], &*page.media_type),
            (&b"not here"[..], media_type)
        );
    }
    let large = write("large.html", &vec![b'x'; (256 << 10) + 1]);
    let binary = write("binary.html", b"\xff\xfe");
    for (page, why) in [
        ("/nowhere/404.html", "No such file"),
        (&*large, "longer than 262144 bytes"),
        (&*binary, "valid UTF-8"),
    ] {
        let report = loaded(folder.path(), page)
            .expect_err("no page")
            .to_string();
        assert!(
            report.contains("can't read an error page") && report.contains(why),
            "{report}"
        );
    }
}

#[test]
fn a_route_may_lead_to_a_fixed_response_or_elsewhere() {
    let text = "[[site]]\n[[site.route]]\npath = \"/a\"\nrespond = \"fine\"\n[[site.route]]\n\
                redirect = { to = \"https://{hostname}{path}{query}\", status = 308 }\n";
    let plan = plan(text);
    let [fixed, elsewhere] = &plan.sites[0].routes[..] else {
        panic!("two routes");
    };
    assert!(
        matches!(&fixed.handler, RouteHandler::Respond(r) if r.status == 200 && r.content.is_some())
    );
    assert!(matches!(&elsewhere.handler, RouteHandler::Redirect(r) if r.status == 308));
    insta::assert_snapshot!("leads", describe(&plan));
}
