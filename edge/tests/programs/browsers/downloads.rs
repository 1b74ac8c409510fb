//! Tests of browsers that download data over HTTP/2, with checks of each byte.

use sluice_lab::origin::Resource;

use super::{Browser, logged, serve_page};
use crate::harness::{Setup, fresh, origin};

const DATA: &str = include_str!("../pages/data.html");
const DOWNLOAD: &str = include_str!("../pages/download.html");

#[test]
fn chromium_loads_a_page_over_tls() {
    const LENGTH: usize = 1_000_000;
    let browser = Browser::Chromium;
    if !browser.is_installed_with(&[]) {
        return;
    }
    let origin = origin();
    serve_page(&origin, DATA);
    origin.serve("/data", Resource::offset(LENGTH as u64));
    let edge = Setup::cached(&origin).encrypted().logged("json").start();
    let visit = browser.open(&edge, "/page");
    let report = visit.report(&origin);
    assert_eq!(report, format!("{LENGTH}_{LENGTH}_{LENGTH}_h2_true"));
    for line in edge.json_log(5) {
        assert_eq!(line["tls"], "TLSv1.3");
        assert_eq!(line["group"], "X25519MLKEM768");
        assert_eq!(line["cipher"], "TLS_AES_128_GCM_SHA256");
    }
}

/// Downloads a file of 1 GB that is larger than the cache.
fn download(browser: Browser) {
    const LENGTH: u64 = 1_000_000_000;
    if !browser.is_installed_with(&[]) {
        return;
    }
    let origin = origin();
    serve_page(&origin, DOWNLOAD);
    origin.serve("/file", fresh(LENGTH));
    let setup = Setup::cached(&origin).encrypted().logged("json");
    let edge = setup.cache("memory = \"64MiB\"").start();
    let visit = browser.open(&edge, "/page");
    assert_eq!(visit.report(&origin), format!("{LENGTH}_end"));
    let line = &logged(&edge, "/file", 1)[0];
    assert_eq!(line["version"], "HTTP/2.0");
    assert_eq!(line["bytes"], LENGTH);
    let peak = edge.peak_memory();
    assert!(peak < 256 << 20, "{peak} bytes");
}

#[test]
fn chromium_downloads_a_gigabyte_over_http2() {
    download(Browser::Chromium);
}

#[test]
fn firefox_downloads_a_gigabyte_over_http2() {
    download(Browser::Firefox);
}
