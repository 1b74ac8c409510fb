//! Tests of configured error pages.

use std::fs;

use sluice_lab::origin::Resource;

use crate::edited_heads::site;
use crate::harness::{Edge, Setup, assert_hit, eventually, fresh, serving};

/// Configures error pages: one from a file for 404, and one for 5xx.
fn pages(folder: &tempfile::TempDir, more: &str) -> String {
    let page = folder.path().join("404.html");
    fs::write(&page, "<p>first").expect("written");
    format!("error_pages = {{ 404 = {page:?}, 5xx = {{ text = \"busy\" }} }}\n{more}")
}

// An error response of the edge gets the configured page. Its status is kept, and so is its reason
// in Cache-Status and in the log.
#[test]
fn error_responses_get_pages() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let origin = serving("/x", Resource::status(500).header("Retry-After", "7"));
    let edge = Setup::uncached(&origin)
        .tables(&pages(&folder, ""))
        .workers(1)
        .logged("json")
        .start();
    assert_eq!(edge.get("/missing", &[]).text(), "status 404\n");
    assert_eq!(edge.get("/x", &[]).text(), "status 500\n");
    origin.refuse().expect("it can be refused");
    origin.drop_connections();
    let reply = edge.get("/x", &[]);
    assert_eq!((reply.status, &*reply.text()), (502, "busy"));
    assert_eq!(
        reply.header("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("cache-status"), None);
    let head = edge.ask("HEAD", "/x", &[], b"");
    assert_eq!(
        (head.status, head.header("content-length"), head.body.len()),
        (502, Some("4"), 0)
    );
    let log = edge.json_log(4);
    assert_eq!(
        (&log[2]["reason"], &log[2]["status"]),
        (&"connect-failed".into(), &502.into())
    );
}

// With `intercept_errors`, error responses of origins get the configured pages, even if they are
// hits. Their headers are kept, except those that describe the content.
#[test]
fn errors_of_origins_get_pages_if_intercepted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing = Resource::status(404)
        .header("X-Trace", "7")
        .cache_control("max-age=60");
    let origin = serving("/x", missing);
    origin.serve("/y", fresh(10));
    let edge = Setup::cached(&origin)
        .tables(&pages(&folder, "intercept_errors = true\n"))
        .start();
    for hit in [false, true] {
        if hit {
            // The client receives the page before the origin has sent its content. The cache
            // nevertheless stores the content.
            eventually("it is stored", || {
                let reply = edge.get("/x", &[]);
                reply
                    .header("cache-status")
                    .is_some_and(|s| s.contains("; hit"))
            });
        }
        let reply = edge.get("/x", &[]);
        assert_eq!((reply.status, &*reply.text()), (404, "<p>first"), "{hit}");
        assert_eq!(
            reply.header_all("content-type"),
            ["text/html; charset=utf-8"]
        );
        assert_eq!(reply.header("x-trace"), Some("7"));
        assert_eq!(reply.header("cache-control"), Some("max-age=60"));
        if hit {
            assert_hit(&reply);
        }
    }
    edge.get("/y", &[])
        .verify_whole(10)
        .expect("no error, no page");
}

// A reload reads the file of the error page again. If the file is missing, the reload changes
// nothing.
#[test]
fn a_reload_reads_pages_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let www = folder.path().join("www");
    fs::create_dir(&www).expect("made");
    let lines = format!("[[site.route]]\nfiles = {www:?}\n{}", pages(&folder, ""));
    let edge = site(&lines).start();
    let shown = |edge: &Edge| edge.get("/nothing", &[]).text();
    assert_eq!(shown(&edge), "<p>first");
    let page = folder.path().join("404.html");
    fs::write(&page, "<p>second").expect("written");
    assert_eq!(shown(&edge), "<p>first");
    assert!(edge.command(&["reload"]).status.success());
    eventually("the new page", || shown(&edge) == "<p>second");
    fs::remove_file(&page).expect("removed");
    let refused = edge.command(&["reload"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("can't read an error page"),
        "{said}"
    );
    assert_eq!(shown(&edge), "<p>second");
}

// If the file of an error page is missing, the program does not start. The message names the line
// in the configuration.
#[test]
fn the_program_does_not_start_if_an_error_page_is_missing() {
    let said =
        site("error_pages = { 404 = \"/nowhere/404.html\" }\n[[site.route]]\nrespond = \"x\"\n")
            // Another protocol would be one more line.
            .with_http1()
            .refused();
    assert!(
        said.contains("can't read an error page: No such file"),
        "{said}"
    );
    assert!(said.contains("sluice.toml:8"), "{said}");
}

// The edge refuses some requests before it has chosen a route completely. Their responses get the
// error pages and headers of the route, too.
#[test]
fn refused_requests_get_the_pages_and_headers_of_the_route() {
    let edge = site(
        "error_pages = { 403 = { text = \"no\" }, 429 = { text = \"later\" } }\nsecurity_headers = true\n\
         [[site.route]]\npath = \"/denied\"\nrespond = \"x\"\ndeny = [\"127.0.0.0/8\"]\n\
         [[site.route]]\nrespond = \"x\"\nlimit = { requests = \"1/h\", burst = 1 }\n",
    )
    .start();
    let denied = edge.get("/denied", &[]);
    assert_eq!((denied.status, &*denied.text()), (403, "no"));
    assert_eq!(denied.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(edge.get("/", &[]).text(), "x");
    let limited = edge.get("/", &[]);
    assert_eq!((limited.status, &*limited.text()), (429, "later"));
    assert_eq!(limited.header("cache-status"), None);
    assert!(limited.header("retry-after").is_some());
}
