//! Tests of browsers that load a page with many images over HTTP/2.

use sluice_lab::origin::{Origin, Resource};

use super::{Browser, logged, serve_page};
use crate::harness::{Setup, origin};

const PAGE: &str = include_str!("../pages/images.html");
/// Number of images on the page.
const IMAGES: usize = 200;

/// Returns an image with this number as its width, and a length that depends on it.
fn image(number: usize) -> Resource {
    let padding = "x".repeat(number * 97 % 40_000);
    let picture = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{number}" height="10"><!--{padding}--></svg>"#
    );
    Resource::bytes(picture)
        .header("Content-Type", "image/svg+xml")
        .cache_control("max-age=3600")
}

/// Starts an origin with the page and its images.
fn prepared() -> Origin {
    let origin = origin();
    serve_page(&origin, PAGE);
    for number in 1..=IMAGES {
        origin.serve(&format!("/image/{number}"), image(number));
    }
    origin
}

/// Loads the page twice. The second time, all images come from the cache of the edge.
fn load(browser: Browser) {
    if !browser.is_installed_with(&[]) {
        return;
    }
    let origin = prepared();
    let edge = Setup::cached(&origin).encrypted().logged("json").start();
    for times in 1..=2 {
        let visit = browser.open(&edge, "/page");
        let reports = visit.reports(&origin, times);
        assert_eq!(reports, vec![IMAGES.to_string(); times]);
        // A browser opens further connections while the first one takes long to be opened.
        let connections = edge.counter("http2_connections");
        assert!(
            (1..=10 * times as u64).contains(&connections),
            "{connections}"
        );
    }
    let fetched = origin.read_record(|record| {
        let images = record
            .requests
            .iter()
            .filter(|seen| seen.target.starts_with("/image/"));
        images.count()
    });
    assert_eq!(fetched, IMAGES);
    let images = logged(&edge, "/image/", 2 * IMAGES);
    assert_eq!(images.len(), 2 * IMAGES);
    for line in images {
        assert_eq!(line["version"], "HTTP/2.0", "{line}");
        assert_eq!(line["status"], 200, "{line}");
    }
}

#[test]
fn chromium_loads_200_images_over_http2() {
    load(Browser::Chromium);
}

#[test]
fn firefox_loads_200_images_over_http2() {
    load(Browser::Firefox);
}

/// Loads the page over connections that the edge ends with GOAWAY, while further requests are on their way. No request waits
/// for another one to end, since Chromium lets requests that wait for room on a connection fail at GOAWAY.
fn load_over_ending_connections(browser: Browser) {
    if !browser.is_installed_with(&[]) {
        return;
    }
    let origin = prepared();
    let setup = Setup::cached(&origin).encrypted();
    let edge = setup
        .limits("keepalive_requests = 30\nmax_streams = 1024")
        .start();
    let visit = browser.open(&edge, "/page");
    assert_eq!(visit.report(&origin), IMAGES.to_string());
    let ended = edge.counter("http2_goaways");
    assert!(ended >= 1, "{ended}");
}

#[test]
fn chromium_loads_200_images_over_ending_connections() {
    load_over_ending_connections(Browser::Chromium);
}

#[test]
fn firefox_loads_200_images_over_ending_connections() {
    load_over_ending_connections(Browser::Firefox);
}
